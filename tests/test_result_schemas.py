"""Results of all verbs: one class, the same names, and plain data as docs/schemas/results.json says."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, Result
from fastmix.crf import ConditionalRandomField
from fastmix.exact import conditioning, plan_exact
from fastmix.experiments import ExperimentResult
from fastmix.inference import auto, ganak
from fastmix.inference.choice import Choice
from fastmix.instances import ising_grid, potts_grid
from result_schemas import FILE, classes, complaints, documented_keys, produced_keys, properties, schemas

jsonschema = pytest.importorskip("jsonschema")

PRINTED = {"Description", "ModelFile", "Batch"}  # tests/cli/test_json.py
BY_COMMANDS = {"DenoiseResult": {"output"}, "LearnResult": {"note"}, "ScoreResult": {"note"}, "NetworkFit": {"note"}}

Call = Callable[[], Any]


def impossible_model() -> MarkovRandomField:
    """Three variables that must all differ, of two states each: Z = 0."""
    differ = [[-math.inf, 0.0], [0.0, -math.inf]]
    return MarkovRandomField.from_tables([[0.0, 0.0]] * 3, [(0, 1), (1, 2), (0, 2)], [differ] * 3)


def network() -> fastmix.BayesianNetwork:
    """Rain, and a street that is wet when it rains."""
    names = [["no", "yes"], ["dry", "wet"]]
    tables = [np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])]
    return fastmix.BayesianNetwork(["rain", "street"], names, [[], [0]], tables)


def supported_answer(model: MarkovRandomField) -> Any:
    """The answer of ``auto`` where it is left with a method that guarantees nothing."""
    left = Choice(fastmix.LoopyBP(), "nothing else is left")
    with mock.patch.object(auto, "choose", return_value=left):
        return fastmix.infer(model, seed=1)


def counted_answer(model: MarkovRandomField) -> Any:
    """An answer of ``ganak``, whose counter says no more than log Z."""
    engine = mock.MagicMock()
    engine.return_value.__enter__.return_value.receive.side_effect = [1.0, None]
    with mock.patch.multiple(ganak, Engine=engine, engine_version=lambda *_: "0"):
        return fastmix.infer(model, method="ganak")


def answer_by_cases(model: MarkovRandomField) -> Any:
    """An exact answer under a memory limit that the tables of the model miss."""
    whole = plan_exact(model).elimination.required_bytes
    with mock.patch.object(conditioning, "LEAST_CONDITIONED_BYTES", 0.0):
        return fastmix.infer(model, method="exact", memory_limit=whole / 4)


def calls() -> Iterator[tuple[str, Call]]:
    """Calls that together give every key that there is."""
    pair = MarkovRandomField.from_tables(
        [[0.0, 0.3], [0.1, 0.0, 0.2]], [(0, 1)], [[[0.5, 0.0, 0.0], [0.0, 0.2, 0.0]]],
        variable_names=["rain", "street"], state_names=[["no", "yes"], ["dry", "damp", "wet"]],
    )  # fmt: skip
    weak = ising_grid(3, 4, coupling_max=0.1, seed=0)
    grid = ising_grid(4, 4, coupling_max=0.8, seed=1)
    attractive = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    rows = np.random.default_rng(0).integers(0, 2, (40, 3))
    triple = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3)
    short: dict[str, Any] = {"num_sweeps": 60, "burn_in": 6, "seed": 1}
    tiny: dict[str, Any] = {"seed": 1, "max_iter": 2}

    yield "infer", partial(fastmix.infer, pair, evidence={"rain": "yes"})
    yield "infer with a bracket", partial(fastmix.infer, pair, method="exact", bracket=True)
    yield "infer without Z", partial(fastmix.infer, impossible_model())
    yield "infer with support", partial(supported_answer, attractive)
    yield "infer by cases", partial(answer_by_cases, ising_grid(11, 11, coupling_max=0.5, seed=0))
    yield "infer by counting", partial(counted_answer, pair)
    yield "mean_field", partial(fastmix.mean_field, pair, seed=1)
    yield "loopy_bp", partial(fastmix.loopy_bp, grid)
    yield "sample", partial(fastmix.sample, weak, accuracy=0.1, seed=1, time_limit=5.0)
    yield "sample edges", partial(fastmix.sample, pair, edge_marginals=True, **short)
    yield "swendsen-wang", partial(fastmix.sample, attractive, method="swendsen-wang", **short)
    yield "temper", partial(fastmix.temper, grid, edge_marginals=True, **short)
    yield "projected", partial(fastmix.infer, grid, method="projected", **short)
    yield "multicanonical", partial(fastmix.infer, pair, method="multicanonical", num_sweeps=50, seed=1)
    yield "anneal", partial(fastmix.anneal, attractive, num_steps=5, seed=1)
    yield "draw_exact", partial(fastmix.draw_exact, pair, num_draws=3, seed=1)
    yield "ancestral_sample", partial(fastmix.ancestral_sample, network(), num_draws=3, seed=1)
    yield "perfect_sample", partial(fastmix.perfect_sample, weak, num_draws=3, seed=1)
    yield "most_probable", partial(fastmix.most_probable, pair)
    yield "most_probable of some", partial(fastmix.most_probable, pair, variables=["rain"])
    yield "several most_probable", partial(fastmix.most_probable, pair, num_solutions=3)
    yield "most_probable by cut", partial(fastmix.most_probable, attractive, method="cut")
    frustrated = potts_grid(21, 21, num_states=3, coupling_max=2.0, seed=5)
    yield "most_probable by search", partial(fastmix.most_probable, frustrated, method="search", seed=1, time_limit=2.0)
    yield "bracket", partial(fastmix.bracket, pair)
    yield "bracket without Z", partial(fastmix.bracket, impossible_model())
    rough: dict[str, Any] = {"memory_limit": 1500.0, "seed": 1, "time_limit": 2.0}
    yield "bracket by parts", partial(fastmix.bracket, grid, **rough)
    yield "bracket by draws", partial(fastmix.bracket, grid, confidence=0.95, num_draws=500, **rough)
    yield "certify", partial(fastmix.certify, weak, margin=True)
    yield "certify random updates", partial(fastmix.certify, grid, schedule="random")
    yield "project", partial(fastmix.project, grid, norm_bound=0.9)
    yield "project by the paper", partial(fastmix.project, grid, norm_bound=0.9, solver=fastmix.PaperDual(), tol=1e-2)
    pieces = {"divergence": fastmix.PiecewiseKL(), "step": fastmix.FixedStep(0.01, 3)}
    yield "project by pieces", partial(fastmix.project, grid, norm_bound=0.9, **pieces)
    chains = fastmix.ReversedKL(pool_size=20, num_starts=1)
    yield "project by chains", partial(fastmix.project, grid, norm_bound=0.9, divergence=chains, seed=1)
    factor = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    yield "project factors", partial(fastmix.project, factor, norm_bound=0.9)
    yield "learn", partial(fastmix.learn, rows, moments="exact", **tiny)
    yield (
        "learn by chains",
        partial(fastmix.learn, rows, moments="sampled", num_chains=64, within=fastmix.NormBall(bound=0.9), **tiny),
    )
    yield "learn hidden", partial(fastmix.learn, rows, hidden="auto", validation=rows[:10], **tiny)
    yield "learn a mixture", partial(fastmix.learn, rows, hidden=fastmix.Mixture(), **tiny)
    yield "learn penalties", partial(fastmix.learn, rows, ridge="auto", validation=rows[:10], **tiny)
    yield "fit_network", partial(fastmix.fit_network, [[0, 1], [1, -1], [1, 1]], structure={1: [0]}, seed=1)
    words = (np.random.default_rng(0).random((60, 24)) < 0.1).astype(int)
    yield "learn a grown graph", partial(fastmix.learn, words[:40], edges="grow", validation=words[40:], seed=1)
    yield "score", partial(fastmix.score, triple, rows)
    yield "score by annealing", partial(fastmix.score, triple, rows, method="annealing", num_chains=64, seed=1, tol=1.0)
    prepared = fastmix.prepare(pair, queries=[("rain", "street")])
    yield "ask", partial(prepared.ask, [{"rain": "yes"}, {}], most_probable=True, num_draws=2, seed=1)
    yield "log_z", partial(fastmix.log_z, pair)
    yield "sensitivity", partial(fastmix.sensitivity, pair, "rain", evidence={"street": "wet"})
    yield "mutual_information", partial(fastmix.mutual_information, pair)
    chains = [[[0.5], [1.0], [-1.0]], [[0.0], [-1.0]]]
    labels = [[0, 1, 1], [1, 0]]
    for name, options in (("fit", {"within": fastmix.NormBall("inf", 0.1)}), ("fit by chains", {"moments": "sampled"})):
        field = ConditionalRandomField(max_iter=4, random_state=1, **options)
        yield name, lambda field=field: field.fit(chains, labels).result_
    yield "compare", partial(fastmix.compare, pair, methods=["loopy-bp"], seed=1)
    picture = np.random.default_rng(0).random((6, 6))
    yield "denoise", partial(fastmix.denoising.denoise, picture, noise=1.25, method="mean-field", seed=0)


@cache
def answers() -> dict[str, Any]:
    """The results of all calls by name."""
    found = {name: call() for name, call in calls()}
    # As warm_up() and run_experiment() give them, without what takes them long.
    facts = found["project"]
    counts = ("seconds", "compile_seconds", "stopped_by", "time_limit")
    own: dict[str, Any] = {
        "model": MarkovRandomField.from_tables([], [], []),
        "stats": {name: facts.stats[name] for name in counts},
        "provenance": facts.provenance,
    }
    found["warm_up"] = fastmix.WarmUpResult(parts={"exact": 0.1}, **own)
    names = ("strength-grid",)
    page = Path("report.html")
    found["run_experiment"] = ExperimentResult(
        experiments=names, report=page, figures=(page,), num_rows=3, num_run=2, num_failed=0, **own
    )
    return found


def plain(result: Any) -> dict[str, Any]:
    """A result as JSON and back."""
    data: dict[str, Any] = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    return data


def test_the_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(schemas())
    assert complaints({"type": "Comparison"}, "Comparison")


def test_every_class_of_results_has_a_schema() -> None:
    public = {name for name in fastmix.__all__ if isinstance(getattr(fastmix, name), type)}
    results = {name for name in public if issubclass(getattr(fastmix, name), Result)}
    abstract = {"Result", "InferenceResult", "ChainResult"}
    elsewhere = {"ZeroResult", "ConditionalFit", "DenoiseResult", "ExperimentResult"}
    assert results - abstract | elsewhere == set(classes()) - PRINTED


def test_results_are_as_their_schemas_say() -> None:
    wrong = {call: complaints(plain(result), type(result).__name__) for call, result in answers().items()}
    assert {call: texts for call, texts in wrong.items() if texts} == {}


def test_an_undocumented_key_is_found() -> None:
    data = plain(answers()["sample"])
    assert complaints(data, "SampleResult") == []
    assert complaints({**data, "magic": 1}, "SampleResult")
    assert complaints({**data, "stats": {**data["stats"], "magic": 1}}, "SampleResult")
    assert complaints({key: value for key, value in data.items() if key != "log_z"}, "SampleResult")
    assert complaints(data, "TemperedResult")


def test_every_documented_key_is_produced() -> None:
    seen: dict[str, set[str]] = {name: set() for name in classes() if name not in PRINTED}
    for result in answers().values():
        seen[type(result).__name__] |= set(produced_keys(plain(result)))
    # What every method of inference may have is looked for in all of them together.
    shared = {key for name in seen for key in seen[name]} & {
        "bracket", *(f"stats.{key}" for key in properties(schemas()["$defs"]["stats_of_inference"])),
        *(f"stats.{key}" for key in properties(schemas()["$defs"]["stats_of_chains"])),
    }  # fmt: skip
    missing = {
        name: sorted(set(documented_keys(name)) - keys - shared - BY_COMMANDS.get(name, set()))
        for name, keys in seen.items()
    }
    assert {name: keys for name, keys in missing.items() if keys} == {}


def test_one_name_has_one_type_in_all_results() -> None:
    """The types of a key, but for null; a whole number is a number."""
    of_the_answer = {"std_error", "bias_bound"}  # a number for an answer that is one, a list for each probability
    types: dict[str, set[str]] = {}
    for result in answers().values():
        for key, value in plain(result).items():
            kind = {int: "number", float: "number"}.get(type(value), type(value).__name__)
            if value is not None and key not in of_the_answer:
                types.setdefault(key, set()).add(kind)
    assert {key: kinds for key, kinds in types.items() if len(kinds) > 1} == {}


def test_every_result_shows_itself() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pytest.importorskip("pandas")
    for call, result in answers().items():
        assert isinstance(result, Result), call
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.status = "ok"
        assert result.advice.endswith("."), call
        assert result.summary().startswith(f"{result.title()}: {result.status}. {result.advice}\n"), call
        assert str(result.status) in result._repr_html_(), call
        assert type(result).__name__ in repr(result) or isinstance(result, fastmix.Comparison), call
        if type(result).__name__ == "ZeroResult" or (call == "bracket without Z"):
            continue  # there are no marginals to show
        columns = result.columns()
        assert list(result.to_frame().columns) == list(columns), call
        assert len({len(column) for column in columns.values()}) == 1, call
        axes = result.plot()
        assert callable(axes.set_title), call
        pyplot.close(axes.figure)


def test_the_page_explains_every_key_of_the_statistics() -> None:
    page = (FILE.parents[1] / "results.md").read_text()
    documented = {key.removeprefix("stats.") for name in classes() for key in documented_keys(name) if "stats." in key}
    told = set(re.findall(r"^\| `(\w+)` \|", page.partition("## Statistics")[2].partition("\n## ")[0], re.MULTILINE))
    assert told == documented
    for name in classes():
        assert f"`{name}`" in page
