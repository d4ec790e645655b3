from __future__ import annotations

import math

import numpy as np
import pytest
from sampler_checks import (
    CUT,
    EDGES,
    SIGMAS,
    WEAK,
    assert_close_to_exact,
    assert_same,
    chains_of,
    given_exact,
    lopsided,
)

from contexts import context_of
from fastmix import (
    Gibbs,
    LoopyBP,
    MarkovRandomField,
    Perfect,
    SwendsenWang,
    UnfitMethodError,
    certify,
    infer,
)
from fastmix.chains.cpu import CpuChains
from fastmix.exact.enumeration import enumerate_model
from fastmix.instances import ising_grid
from fastmix.results import Status
from fastmix.sampling.sample import sample
from fastmix.testing import assert_distributions, conformance_models
from fastmix.theory.bias import bias_after
from oracle import theory

# -- marginals --------------------------------------------------------------------------------------------------------

MODELS = dict(conformance_models())
STUCK = {"graph coloring", "couplings of a thousand", "opposed fields of a thousand"}
HOW = {
    "systematic": {},
    "counts": {"estimator": "counts"},
    "random": {"schedule": "random"},
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", [name for name in MODELS if name not in STUCK])
def test_marginals_are_within_their_errors(name, how):
    model = MODELS[name]
    result = sample(model, num_sweeps=2000, seed=17, **HOW[how])
    assert_distributions(model, result.node_marginals, None)
    assert_close_to_exact(result, enumerate_model(model).node_marginals)
    assert result.status == Status.OK, result.stats["note"]
    assert result.std_error.max(initial=0.0) < 0.02
    assert (model.log_weight(result.states) > -np.inf).all()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", sorted(STUCK))
def test_hard_models_give_no_nan(name, how):
    model = MODELS[name]
    result = sample(model, num_sweeps=300, seed=17, **HOW[how])
    assert_distributions(model, result.node_marginals, None)
    assert np.isfinite(result.std_error).all()
    assert not np.isnan(result.ess).any()
    assert not np.isnan(result.r_hat).any()
    assert result.status in (Status.OK, Status.NOT_MIXED)
    assert (model.log_weight(result.states) > -np.inf).all()


def test_no_variables():
    result = sample(MarkovRandomField.from_factors([], [((), 2.5)]), num_chains=3, num_sweeps=10, seed=0)
    assert result.status == Status.OK
    assert result.node_marginals.shape == (0,)
    assert result.states.shape == (3, 0)
    assert result.to_dict()["ess_min"] is None


def test_many_and_few_chains_and_large_degrees():
    # Few chains, and a variable with 30 neighbors, whose conditionals are not tabulated.
    star = MarkovRandomField.ising([(0, i) for i in range(1, 31)], 0.1, 0.2)
    exact = MarkovRandomField.ising([(0, 1)], 0.1, 0.2)
    leaf = sample(star, num_chains=10, num_sweeps=3000, seed=1)
    # By symmetry all leaves have the same marginal: log-odds of the center are 2 (0.2 + 30 * atanh(tanh 0.1 tanh 0.2)).
    effective = math.atanh(math.tanh(0.1) * math.tanh(0.2))
    p = 1 / (1 + math.exp(-2 * (0.2 + 30 * effective)))
    assert abs(leaf.marginal(0)[1] - p) < SIGMAS * leaf.std_error[1] + CUT
    assert_close_to_exact(sample(exact, num_chains=1, num_sweeps=20_000, seed=2), enumerate_model(exact).node_marginals)
    assert sample(exact, num_chains=1000, num_sweeps=100, seed=2).status == Status.OK


# -- starting and going on --------------------------------------------------------------------------------------------


def test_start_from_given_configurations():
    model, start = lopsided(), np.tile([0, 1, 3, 1, 0], (3, 1))
    result = sample(model, num_chains=3, num_sweeps=20, burn_in=0, start=start, seed=4)
    small = model.drop_forbidden_states()
    engine = chains_of(small, num_chains=3, seed=context_of(4).seed_of("chains"))
    engine.set_states(np.tile([0, 1, 2, 1, 0], (3, 1)))  # state 3 of c is number 2 of those allowed
    engine.sweep(20, collect=True)
    states = engine.get_states()
    states[:, 2] = np.array([0, 2, 3])[states[:, 2]]
    np.testing.assert_array_equal(result.states, states)


def test_going_on_from_a_result(monkeypatch):
    first = sample(WEAK, num_chains=6, num_sweeps=500, seed=1)
    started = []
    original = CpuChains.set_states
    monkeypatch.setattr(CpuChains, "set_states", lambda self, states: (started.append(states), original(self, states)))
    second = sample(WEAK, num_sweeps=500, start=first, seed=1)
    np.testing.assert_array_equal(started[0], first.states)
    assert second.stats["burn_in"] == 0
    assert second.stats["num_chains"] == 6
    assert second.states.shape == (6, 9)
    # The same seed again, and still other numbers: otherwise the second run would soon repeat the first. Of the 54
    # states about half agree by chance; none differing has a chance below 0.9^54.
    assert (second.states != first.states).mean() > 0.1
    assert_same(second, sample(WEAK, num_sweeps=500, start=first, seed=1))
    third = sample(WEAK, num_sweeps=500, start=second, seed=2)
    np.testing.assert_array_equal(started[2], second.states)
    exact = enumerate_model(WEAK).node_marginals
    mean = np.mean([r.node_marginals for r in (first, second, third)], axis=0)
    errors = np.sqrt(sum(r.std_error**2 for r in (first, second, third))) / 3
    assert (np.abs(mean - exact) <= SIGMAS * errors + CUT).all()


def test_frozen_chains_stay_where_they_were():
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 1e3, 0.0)
    start = np.array([[0, 0, 0], [1, 1, 1], [1, 1, 1]])
    first = sample(model, num_chains=3, num_sweeps=50, start=start, seed=1)
    second = sample(model, num_sweeps=50, start=first, seed=2)
    assert second.states.tolist() == start.tolist()
    assert second.status == Status.NOT_MIXED
    np.testing.assert_allclose(second.node_marginals, np.tile([1 / 3, 2 / 3], 3), atol=1e-6)


@pytest.mark.usefixtures("little_work_by_threads")
@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_do_not_matter(num_threads):
    options = {"num_chains": 5, "num_sweeps": 200, "seed": 6, "num_draws": 3, "edge_marginals": True}
    assert_same(sample(lopsided(), num_threads=1, **options), sample(lopsided(), num_threads=num_threads, **options))


def test_seeds_are_drawn_returned_and_repeatable():
    first = sample(WEAK, num_chains=4, num_sweeps=50)
    seed = first.provenance["seed"]
    assert isinstance(seed, int)
    assert_same(first, sample(WEAK, num_chains=4, num_sweeps=50, seed=seed))
    other = sample(WEAK, num_chains=4, num_sweeps=50)
    assert other.provenance["seed"] != seed
    assert (other.node_marginals != first.node_marginals).any()


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_chains": 0}, r"^num_chains .*got 0"),
        ({"num_sweeps": -3}, r"^num_sweeps .*got -3"),
        ({"num_sweeps": 2.5}, r"^num_sweeps .*got 2.5"),
        ({"burn_in": -1}, r"^burn_in .*got -1"),
        ({"num_draws": -1}, r"^num_draws .*got -1"),
        ({"num_draws": 51}, r"^num_draws .*got 51"),
        ({"method": "metropolis"}, r"^method .*got 'metropolis'"),
        ({"schedule": "backwards"}, r"^schedule .*got 'backwards'"),
        ({"estimator": "median"}, r"^estimator .*got 'median'"),
        ({"accuracy": 0.1}, r"^accuracy .*num_chains, num_sweeps and burn_in"),
        ({"accuracy": 1.5, "num_sweeps": None}, r"^accuracy .*got 1.5"),
        ({"accuracy": -0.1, "num_sweeps": None}, r"^accuracy .*got -0.1"),
        (
            {"accuracy": 0.1, "num_sweeps": None, "method": "swendsen-wang"},
            r"^accuracy .*'swendsen-wang'.*gibbs",
        ),
        ({"start": np.zeros((3, 9), dtype=int)}, r"^start .*got \(3, 9\)"),
        ({"start": "zeros"}, r"^start .*got 'zeros'"),
        ({"num_chains": 1, "start": np.full((1, 9), 2)}, r"^states of variable 0 .*got 2"),
        ({"num_chains": 1, "start": np.full((1, 9), -1)}, r"^states of variable 0 .*got -1"),
        ({"num_chains": 1, "start": np.full((1, 9), 0.5)}, r"^states .*whole numbers"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        sample(WEAK, **({"num_sweeps": 50} | options))


def test_forbidden_starts_are_refused():
    with pytest.raises(ValueError, match=r"^start .*forbidden"):
        sample(lopsided(), num_chains=1, num_sweeps=10, start=[[0, 0, 1, 0, 0]])
    # Cluster moves keep forbidden states in the model that they work on.
    model = WEAK.replace(log_unary=np.where(np.arange(18) == 0, -np.inf, WEAK.log_unary))
    for method in ("gibbs", "swendsen-wang"):
        with pytest.raises(ValueError, match=r"^start .*forbidden"):
            sample(model, method=method, num_chains=1, num_sweeps=10, start=np.zeros((1, 9), dtype=int))


def test_answers_cannot_be_changed():
    result = sample(WEAK, num_sweeps=50, seed=0)
    for array in (result.node_marginals, result.std_error, result.ess, result.r_hat):
        assert not array.flags.writeable


# -- accuracy and mixing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["systematic", "random"])
def test_accuracy_is_met(schedule):
    model = ising_grid(3, 3, coupling_max=0.3, field_max=1.0, seed=2)
    exact = enumerate_model(model).node_marginals
    order = model.structure.visit_order[0] if schedule == "systematic" else None
    certificate = certify(model, accuracy=0.05, schedule=schedule, per_variable=True, order=order)
    for seed in range(10):
        result = sample(model, accuracy=0.1, schedule=schedule, seed=seed)
        assert "within 0.1 with 95% confidence" in result.stats["guarantee"]
        assert "R-hat" not in result.summary()  # a single sweep has none
        assert repr(result.intervals()).count("\n") == 0
        assert result.status == Status.OK
        assert np.abs(result.node_marginals - exact).max() < 0.1
    # 2 exp(-2 C 0.05^2) <= 0.05 first for C = 738; half of the accuracy is left for the bias.
    assert result.stats["num_chains"] == 738
    assert result.stats["burn_in"] + result.stats["num_sweeps"] == certificate.num_sweeps
    assert result.stats["bias"] <= 0.05
    assert result.provenance["options"]["accuracy"] == 0.1


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@pytest.mark.parametrize("estimator", ["rao-blackwell", "counts"])
def test_the_first_sweep_averaged_comes_after_the_burn_in(schedule, estimator):
    # Intervals and ``bias`` rest on it: the law of what is averaged is that after burn_in + 1 sweeps.
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [0.5, 0.0, -0.5]], [(0, 1)], [[[1.5, 0.0, -1.0], [0.0, 0.0, 1.5]]]
    )
    chain = theory.Chain(model)
    order = None if schedule == "random" else model.structure.visit_order[0].tolist()
    kernel = chain.sweep(schedule, order)
    num_chains = 40_000
    at = {x: k for k, x in enumerate(chain.configurations)}
    for burn_in, first in ((0, (0, 0)), (1, (1, 2)), (2, (0, 2))):
        start = np.tile(first, (num_chains, 1))
        result = sample(
            model, num_chains=num_chains, num_sweeps=1, burn_in=burn_in, schedule=schedule, estimator=estimator,
            start=start, seed=burn_in,
        )  # fmt: skip
        before, after = (
            marginals_of(chain, np.linalg.matrix_power(kernel, t)[at[first]]) for t in (burn_in, burn_in + 1)
        )
        slack = SIGMAS * 0.5 / math.sqrt(num_chains)
        assert np.abs(result.node_marginals - after).max() < slack
        if burn_in == 0:
            assert np.abs(result.node_marginals - before).max() > 5 * slack  # the test would see a sweep more or less
        bias = bias_after(model, burn_in + 1, schedule=schedule, order=order, dependency="exact")
        assert (np.abs(after - marginals_of(chain, chain.target)) <= np.repeat(bias, [2, 3])).all()


def marginals_of(chain: theory.Chain, law: np.ndarray) -> np.ndarray:
    """Flat node marginals of a distribution over the configurations of a chain."""
    states, counts = np.array(chain.configurations), chain.model.num_states.tolist()
    return np.concatenate([np.bincount(states[:, i], law, minlength=k) for i, k in enumerate(counts)])


def test_accuracy_without_a_certificate_is_refused():
    with pytest.raises(UnfitMethodError, match=r"^accuracy .*certified"):
        sample(ising_grid(4, 4, coupling_max=3.0, attractive=True, seed=0), accuracy=0.1)


def test_strong_attraction_is_not_mixed():
    grid = [(r * 6 + c, s) for r in range(6) for c in range(6) for s in neighbors(r, c)]
    result = sample(MarkovRandomField.ising(grid, 1.0), num_sweeps=500, seed=1)
    assert result.status == Status.NOT_MIXED
    assert "Not mixed" in result.stats["note"]
    assert result.r_hat.max() > 1.1
    # The chains sit on both sides: the errors say so, and cover the marginal of one half.
    assert (np.abs(result.node_marginals - 0.5) <= SIGMAS * result.std_error).all()


def neighbors(r: int, c: int) -> list[int]:
    return [(r + 1) * 6 + c] * (r < 5) + [r * 6 + c + 1] * (c < 5)


def test_intervals_hold():
    model = ising_grid(3, 3, coupling_max=0.3, field_max=1.0, seed=2)
    exact = enumerate_model(model).node_marginals
    result = sample(model, num_chains=500, num_sweeps=20, burn_in=30, seed=4)
    intervals = result.intervals(confidence=0.99, simultaneous=True)
    assert ((intervals.lower <= exact + 1e-12) & (exact <= intervals.upper + 1e-12)).all()
    assert (intervals.upper - intervals.lower < 0.2).all()
    evidence = {0: 1, 4: 0}
    given = sample(model, num_chains=500, num_sweeps=20, burn_in=30, seed=4, evidence=evidence)
    exact, intervals = given_exact(model, evidence), given.intervals(simultaneous=True)
    assert ((intervals.lower <= exact + 1e-12) & (exact <= intervals.upper + 1e-12)).all()
    strong = sample(MarkovRandomField.ising(EDGES, 2.0), num_chains=16, num_sweeps=50, seed=0)
    assert strong.intervals().vacuous.all()


@pytest.mark.parametrize("num_chains", [1, 2])
def test_one_or_two_chains_are_believed_with_a_certificate_only(num_chains):
    weak, strong = (ising_grid(3, 3, coupling_max=c, seed=0) for c in (0.2, 1.0))
    order = weak.structure.visit_order[0]
    needed = certify(weak, accuracy=0.001, norm="inf", per_variable=True, order=order).num_sweeps
    assert not certify(strong, accuracy=0.01, criterion="dobrushin").certified
    options = {"num_chains": num_chains, "num_sweeps": 20_000, "seed": 1}
    assert sample(weak, burn_in=needed, **options).status == Status.OK
    for model, burn_in in ((weak, needed - 1), (strong, 300)):
        result = sample(model, burn_in=burn_in, **options)
        assert result.status == Status.NOT_MIXED
        assert "there is no certificate" in result.stats["note"]
    assert sample(strong, **(options | {"num_chains": 3})).status == Status.OK


# -- where it runs --------------------------------------------------------------------------------------------------


def test_backends_without_a_gpu():
    from fastmix.chains.cuda.device import cuda_available

    usable, reason = cuda_available()
    if usable:
        pytest.skip(f"there is a GPU: {reason}")
    with pytest.raises(UnfitMethodError, match=r"^backend .*got cuda"):
        sample(WEAK, backend="cuda", num_sweeps=10, seed=1)
    with pytest.raises(UnfitMethodError, match=r"^backend .*got cuda"):
        infer(WEAK, method="auto", backend="cuda")
    result = sample(WEAK, backend="auto", num_sweeps=100, seed=1)
    assert result.stats["backend"].startswith("cpu (")
    assert result.provenance["device"] == "cpu"
    same = sample(WEAK, num_sweeps=100, seed=1)
    assert np.array_equal(result.node_marginals, same.node_marginals)
    assert same.stats["backend"] == "cpu"
    with pytest.raises(ValueError, match=r"^backend .*'tpu'$"):
        sample(WEAK, backend="tpu", num_sweeps=10)
    attractive = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    with pytest.raises(UnfitMethodError, match=r"^backend .*swendsen-wang"):
        sample(attractive, method="swendsen-wang", backend="cuda", num_sweeps=10)


def test_groups_of_chains_count_as_chains(monkeypatch):
    """An engine that adds up its chains in groups gives the same means, and error bars of the same size."""
    plain = sample(WEAK, num_chains=64, num_sweeps=2000, seed=4)
    taken = CpuChains.take_sums

    def grouped(self):
        sums = taken(self)
        return sums.reshape(len(sums), -1, 8).sum(axis=2)

    monkeypatch.setattr(CpuChains, "group_size", 8)
    monkeypatch.setattr(CpuChains, "take_sums", grouped)
    result = sample(WEAK, num_chains=64, num_sweeps=2000, seed=4)
    np.testing.assert_allclose(result.node_marginals, plain.node_marginals, atol=1e-12)
    ratio = result.std_error[plain.std_error > 0] / plain.std_error[plain.std_error > 0]
    assert 0.7 < np.median(ratio) < 1.4
    assert result.chain_variances is None
    assert (result.intervals().upper >= result.node_marginals).all()


def test_a_method_brings_its_options_along():
    """As by name with the same options, for all three samplers."""
    model = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    for method, options in (
        (Gibbs(num_sweeps=200, burn_in=10), {"num_sweeps": 200, "burn_in": 10}),
        (SwendsenWang(num_sweeps=100), {"num_sweeps": 100}),
        (Perfect(num_draws=20), {"num_draws": 20}),
    ):
        one = sample(model, method=method, seed=3)
        two = sample(model, method=method.name, seed=3, **options)
        assert np.array_equal(one.node_marginals, two.node_marginals)
        assert one.provenance["options"] == two.provenance["options"]
    with pytest.raises(ValueError, match=r"^burn_in .*Gibbs\(\)"):
        sample(model, method=Gibbs(), burn_in=3)
    with pytest.raises(ValueError, match=r"^method .*loopy-bp"):
        sample(model, method=LoopyBP())
