"""The registry of methods: one is added here, outside the package, and works everywhere by its name."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np
import pytest

import fastmix
from fastmix import Gibbs, InferenceResult, Interrupted, MarkovRandomField, Method, cli, infer
from fastmix import method as base
from fastmix._signatures import option_entries, option_help
from fastmix.exact.enumeration import enumerate_model
from fastmix.graphs import complete_edges
from fastmix.instances import ising_grid
from fastmix.io import write_model
from fastmix.method import METHODS, find_method, make_method, option, options_of, register_method
from fastmix.testing import assert_conforms, assert_distributions

MODEL = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.3, field=[0.5, 0.0, -0.2])


@dataclass(frozen=True)
class Listed(Method):
    """Draws configurations from the list of all of them: a sampler in twenty lines.

    Parameters
    ----------
    num_draws : int
        Draws from the list. More draws make less error.
    most : int
        Configurations that a list may have.
    """

    name: ClassVar[str] = "listed"
    guarantee: ClassVar[str] = "independent draws"
    num_draws: int = 1000
    most: int = option(1 << 12, cli=False)

    def fits(self, model):
        count = float(np.prod(model.num_states.astype(float)))
        return f"the list has {count:g} configurations, more than {self.most}" if count > self.most else None

    def run(self, model, context):
        shape = tuple(model.num_states.tolist())
        states = np.array(list(np.ndindex(*shape)), dtype=np.int64)
        weights = np.exp(model.log_weight(states) - model.log_weight(states).max())
        rng = context.rng("draws")
        drawn = states[rng.choice(len(states), size=self.num_draws, p=weights / weights.sum())]
        for done in range(0, self.num_draws, 100):
            context.clock.report(done, self.num_draws, "draws")
        marginals = [np.bincount(drawn[:, i], minlength=k) / len(drawn) for i, k in enumerate(shape)]
        flat = np.concatenate(marginals) if marginals else np.zeros(0)
        return InferenceResult(model=model, method=self.name, node_marginals=flat)


@pytest.fixture
def listed(monkeypatch):
    monkeypatch.setattr(base.ADDED, "entries", {})
    return register_method(Listed)


def test_a_method_from_outside_works_by_name(listed):
    told = []
    result = infer(MODEL, method="listed", evidence={1: 0}, num_draws=20_000, seed=3, progress=told.append)
    exact = infer(MODEL, method="exact", evidence={1: 0})
    assert np.abs(result.node_marginals - exact.node_marginals).max() < 6 * 0.5 / np.sqrt(20_000)
    assert result.model is MODEL
    assert (result.stats["guarantee"], result.stats["stopped_by"]) == ("independent draws", "done")
    assert result.provenance["seed"] == 3
    assert result.provenance["options"]["num_draws"] == 20_000
    assert (told[-1].what, told[-1].unit, told[-1].total) == ("listed", "draws", 20_000)
    same = infer(MODEL, method=Listed(num_draws=20_000), evidence={1: 0}, seed=3)
    assert np.array_equal(same.node_marginals, result.node_marginals)


def test_a_method_from_outside_is_compared_and_conforms(listed):
    rows = fastmix.compare(MODEL, methods=["listed", Gibbs(num_sweeps=200)], seed=1).rows
    assert [(row.method, row.status) for row in rows] == [("listed", "ok"), ("gibbs", "ok")]
    assert "listed" in [row.method for row in fastmix.compare(MODEL, seed=1, time_limit=0.2).rows]
    assert_conforms(Listed(num_draws=20_000), atol=0.03)
    with pytest.raises(AssertionError, match=r"off by"):
        assert_conforms(Listed(num_draws=3), atol=0.03)


def test_a_method_from_outside_is_on_the_command_line(listed, tmp_path, capsys):
    write_model(MODEL, tmp_path / "model.npz")
    words = ["infer", str(tmp_path / "model.npz"), "--method", "listed", "--num-draws", "50", "--seed", "1", "--json"]
    assert cli.run_command(words) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["method"], answer["provenance"]["options"]["num_draws"]) == ("listed", 50)
    assert cli.run_command([*words, "--most", "3"]) == 2


def test_refusals_count_only_where_fits_says_so(listed):
    @dataclass(frozen=True)
    class Shy(Listed):
        def run(self, model, context):
            raise fastmix.UnfitMethodError("not today")

    with pytest.raises(AssertionError, match="not today"):
        assert_conforms(Shy(), atol=0.1)
    assert_conforms(Listed(num_draws=20_000, most=8), atol=0.03)  # what it does not fit is passed over
    with pytest.raises(fastmix.UnfitMethodError, match="8 configurations, more than 3"):
        infer(MODEL, method="listed", most=3)


def test_options_are_refused_by_name(listed):
    with pytest.raises(ValueError, match=r"^num_tosses .*'listed' .*num_draws, most"):
        infer(MODEL, method="listed", num_tosses=3)
    with pytest.raises(ValueError, match=r"^most .*'gibbs'.*listed"):
        infer(MODEL, method="gibbs", most=3)
    with pytest.raises(ValueError, match=r"^burn_in .*Gibbs\(\)"):
        infer(MODEL, method=Gibbs(), burn_in=3)
    other = dataclasses.make_dataclass("Listed2", [], bases=(Listed,), frozen=True)
    for again, name in ((Gibbs, "gibbs"), (other, "listed")):
        with pytest.raises(ValueError, match=rf"^name .*'{name}'$"):
            register_method(again)
    with pytest.raises(TypeError, match="register_method"):
        register_method(3)  # type: ignore[type-var]


@pytest.mark.parametrize(
    "call",
    [
        infer,
        fastmix.sample,
        fastmix.most_probable,
        lambda model, method: fastmix.compare(model, methods=[method]),
        lambda model, method: fastmix.score(model, [[0] * model.num_variables], method=method),
    ],
)
def test_an_unknown_method_is_one_error(call):
    with pytest.raises(ValueError, match=r"^methods? .*'magic'$") as caught:
        call(MODEL, method="magic")
    assert caught.type is ValueError  # as for any other argument; the model has nothing to do with it


def test_methods_are_frozen_and_validate_themselves():
    for name in METHODS:
        found = find_method(name)
        assert found.name == name
        assert found() == found()
        assert list(option_entries(found)) == list(options_of(found))
        assert all(option_help(found, option) for option in options_of(found))
        with pytest.raises(dataclasses.FrozenInstanceError):
            found().name = "other"
    for name, options in (
        ("gibbs", {"burn_in": -1}), ("tempered", {"moves": ["wolff"]}), ("loopy-bp", {"damping": 1.0}),
        ("mean-field", {"num_starts": 0}), ("projected", {"divergence": "magic"}), ("projected", {"norm_bound": 0}),
        ("exact", {"memory_limit": -1}), ("annealed", {"num_chains": 1}), ("perfect", {"num_draws": -1}),
    ):  # fmt: skip
        option = next(iter(options))
        with pytest.raises(ValueError, match=f"^{option} must "):
            make_method(name, options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("tempered", {"moves": ["houdayer"], "num_replicas": 5, "num_ensembles": 3, "num_sweeps": 200}),
        ("loopy-bp", {"damping": 0.3, "message_order": "residual", "max_iter": 50}),
        ("mean-field", {"num_starts": 3}),
        ("gibbs", {"schedule": "random", "estimator": "counts", "num_draws": 3, "num_sweeps": 300}),
        ("projected", {"divergence": "euclidean", "num_sweeps": 300}),
    ],
)
def test_every_option_is_reached_through_infer_and_the_command_line(method, options, tmp_path, capsys):
    result = infer(MODEL, method=method, **options)
    noted = result.provenance["options"]
    assert all(str(noted[name]) in (str(value), "Euclidean()") for name, value in options.items())
    assert infer(MODEL, method=method, backend="auto", **options).stats["backend"].startswith(("cpu", "cuda"))
    write_model(MODEL, tmp_path / "model.npz")
    words = ["infer", str(tmp_path / "model.npz"), "--method", method, "--json"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", ",".join(value) if isinstance(value, list) else str(value)]
    assert cli.run_command(words) in (0, 1)
    assert json.loads(capsys.readouterr().out)["provenance"]["options"][next(iter(options))] is not None


def test_the_model_is_reduced_once(monkeypatch):
    calls = []
    reduce = base.reduce_model
    monkeypatch.setattr(base, "reduce_model", lambda *a, **k: calls.append(a) or reduce(*a, **k))
    for name in ("sampling.results", "inference.exact", "exact.solver", "projection.project", "theory.certify"):
        monkeypatch.setattr(import_module(f"fastmix.{name}"), "reduce_model", base.reduce_model)
    infer(ising_grid(3, 3, coupling_max=2.0, seed=0), method="projected", evidence={0: 1}, num_sweeps=50, seed=1)
    assert len(calls) == 1


def test_a_projection_holds_its_sample_once():
    result: Any = infer(MODEL, method="projected", norm_bound=0.3, num_sweeps=200, seed=1)
    assert not isinstance(result, fastmix.SampleResult)
    assert result.states is result.sampled.states
    assert result.projected_std_error is result.sampled.std_error


# -- time and interrupts ----------------------------------------------------------------------------------------------


def test_the_default_limit_is_stated():
    assert infer(MODEL, method="loopy-bp").stats["time_limit"] == base.DEFAULT_SECONDS
    assert infer(MODEL, method="exact").stats["time_limit"] is None
    assert infer(MODEL, method="gibbs", num_sweeps=50).stats["time_limit"] is None
    assert infer(MODEL, method="exact", time_limit=3).stats["time_limit"] == 3
    assert [make_method(name, {}).default_limit() for name in METHODS].count(None) == 2  # exact, perfect
    for gibbs in (Gibbs(accuracy=0.1), Gibbs(num_sweeps=3), Gibbs(checkpoint="x")):
        assert gibbs.default_limit() is None


def test_a_run_without_a_limit_ends_with_the_default_one(monkeypatch):
    monkeypatch.setattr("fastmix.sampling.sample.DEFAULT_SECONDS", 0.05)
    result = infer(ising_grid(64, 64, coupling_max=0.2, seed=0), method="gibbs", seed=1)
    assert result.stats["stopped_by"] == "time_limit"
    assert result.stats["num_sweeps"] < 10_000


def test_gibbs_by_name_uses_the_time_it_is_given():
    result: Any = infer(MODEL, method="gibbs", time_limit=0.6, num_chains=4, num_draws=5, edge_marginals=True, seed=1)
    assert result.stats["stopped_by"] in ("time_limit", "done")
    assert 0.2 < result.stats["seconds"] - result.stats["compile_seconds"] < 1.8
    assert result.stats["num_sweeps"] > 10_000
    assert result.stats["burn_in"] > 1000
    exact = enumerate_model(MODEL)
    assert (np.abs(result.node_marginals - exact.node_marginals) <= 6 * result.std_error + 1e-6).all()


def test_ctrl_c_ends_a_loop_over_models_and_keeps_the_result():
    def stop(report):
        if report.done >= 400:
            raise KeyboardInterrupt

    seen = []
    model = ising_grid(16, 16, coupling_max=0.2, seed=0)

    def loop():
        for seed in range(3):
            seen.append(seed)
            infer(model, method="gibbs", num_sweeps=20_000, burn_in=9, seed=seed, progress=stop)

    with pytest.raises(KeyboardInterrupt) as stopped:
        loop()
    assert seen == [0]
    assert isinstance(stopped.value, Interrupted)
    result = stopped.value.result
    assert (result.status, result.stats["stopped_by"]) == ("interrupted", "interrupt")
    assert np.isfinite(result.node_marginals).all()


@pytest.mark.parametrize("method", [*METHODS, "reduce", "fits"])
def test_every_interrupt_says_whether_there_is_a_result(method, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    if method in METHODS:
        monkeypatch.setattr(find_method(method), "run", stop)
    else:
        monkeypatch.setattr(Method, method, stop)
    with pytest.raises(Interrupted) as stopped:
        infer(MODEL, method=method if method in METHODS else "gibbs")
    assert stopped.value.result is None


def test_an_interrupt_while_a_method_is_chosen(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastmix.inference.choice.plan_exact", stop)
    with pytest.raises(Interrupted) as stopped:
        infer(ising_grid(3, 3, coupling_max=1.0, seed=0))
    assert stopped.value.result is None


def test_an_interrupted_bracket_keeps_the_answer(monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastmix.bounds.bracket.find_bracket", stop)
    with pytest.raises(Interrupted) as stopped:
        infer(MODEL, bracket=True)
    result = stopped.value.result
    assert (result.status, result.stats["stopped_by"], result.bracket) == ("interrupted", "interrupt", None)
    np.testing.assert_allclose(result.node_marginals, enumerate_model(MODEL).node_marginals, atol=1e-9)


def test_interrupted_annealing_keeps_what_was_averaged():
    model = ising_grid(4, 4, coupling_max=1.0, attractive=True, seed=0)

    def stop(report):
        if report.done >= until:
            raise KeyboardInterrupt

    until = 10**9
    whole = infer(model, method="annealed", num_sweeps=400, seed=1, progress=stop)
    until = whole.stats["num_sweeps"] - 100
    with pytest.raises(Interrupted) as stopped:
        infer(model, method="annealed", num_sweeps=400, seed=1, progress=stop)
    result = stopped.value.result
    assert (result.status, result.stats["stopped_by"]) == ("interrupted", "interrupt")
    assert result.stats["num_sweeps"] == until
    assert_distributions(model, result.node_marginals, None)
    assert np.abs(result.node_marginals - whole.node_marginals).max() < 0.2
    until = 50
    with pytest.raises(Interrupted) as stopped:
        infer(model, method="annealed", num_sweeps=400, seed=1, progress=stop)
    assert stopped.value.result is None


@pytest.mark.parametrize("dense", [False, True])
def test_an_interrupted_projection_has_nothing_to_report(dense):
    model = ising_grid(6, 6, coupling_max=3.0, seed=0)
    if dense:
        edges = complete_edges(12)
        model = MarkovRandomField.ising(edges, np.random.default_rng(0).normal(scale=2.0, size=len(edges)))

    def stop(report):
        if report.what == "projection":
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        infer(model, method="projected", num_sweeps=2000, seed=1, progress=stop)
    assert stopped.value.result is None


# -- the choice -------------------------------------------------------------------------------------------------------


def test_large_factors_leave_time_for_messages_alone():
    rng = np.random.default_rng(2)
    scopes = [tuple(int(v) for v in rng.choice(40, 17, replace=False)) for _ in range(4)]
    factors = [((i,), rng.normal(size=2)) for i in range(40)]
    factors += [(scope, rng.normal(scale=0.1, size=(2,) * 17)) for scope in scopes]
    model = fastmix.MarkovRandomField.from_factors([2] * 40, factors)
    result = infer(model, memory_limit=1000.0, time_limit=0.5, seed=1)
    assert result.method == "loopy-bp"
    assert result.status in ("unverified", "not_converged")
    assert "no time to sample" in result.stats["reason"]


@pytest.mark.parametrize("error", [fastmix.UnfitMethodError, fastmix.ResourceError, fastmix.NotConvergedError])
def test_the_next_method_is_tried_and_the_last_refusal_says_all(monkeypatch, error):
    from fastmix.sampling.sample import Gibbs
    from fastmix.sampling.tempering.temper import Tempered
    from fastmix.variational.loopy_bp import LoopyBP
    from fastmix.variational.mean_field import MeanField

    def refuse(method, *_):
        raise error(f"{method.name} cannot begin")

    for method in (Gibbs, Tempered):
        monkeypatch.setattr(method, "run", refuse)
    model = ising_grid(4, 4, coupling_max=2.0, seed=0)
    result = infer(model, memory_limit=64.0, time_limit=1.0, seed=1)
    assert result.method == "loopy-bp"
    assert "cannot begin" in result.stats["reason"]
    monkeypatch.setattr(LoopyBP, "run", refuse)
    assert infer(model, memory_limit=64.0, time_limit=1.0, seed=1).method == "mean-field"
    monkeypatch.setattr(MeanField, "run", refuse)
    with pytest.raises((fastmix.UnfitMethodError, fastmix.ResourceError), match="mean-field cannot"):
        infer(model, memory_limit=64.0, time_limit=1.0, seed=1)


# -- log Z ------------------------------------------------------------------------------------------------------------


def test_log_z_is_given_where_it_is_asked_for():
    model = ising_grid(5, 5, coupling_max=0.3, seed=0)
    exact = infer(model, log_z=True)
    assert (exact.method, exact.log_z_kind) == ("exact", "exact")
    other = infer(model, log_z=True, memory_limit=4096.0, time_limit=1.0, seed=1)
    assert (other.method, other.log_z_kind) == ("tempered", "estimate")
    assert abs(other.log_z - exact.log_z) < 8 * other.log_z_std_error
    assert other.log_z_lower < exact.log_z
    assert infer(model, method="loopy-bp", log_z=True).log_z_kind == "estimate"
    lower = infer(model, method="mean-field", seed=1)
    assert (lower.log_z, lower.log_z_kind) == (None, "bound")
    assert lower.log_z_lower < exact.log_z
    for method in ("gibbs", "projected", "mean-field"):
        with pytest.raises(fastmix.UnfitMethodError, match=f"method {method} .*log Z"):
            infer(model, method=method, log_z=True)
    hard = MarkovRandomField.from_tables(
        np.zeros((16, 3)), fastmix.graphs.grid_edges(4, 4), [np.where(np.eye(3, dtype=bool), -np.inf, 0.0)] * 24
    )
    assert infer(hard, log_z=True, memory_limit=100.0).method == "loopy-bp"
