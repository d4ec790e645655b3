"""Counting as a method of inference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, infer
from fastmix._clock import NO_LIMIT
from fastmix._engine import Engine, EngineError
from fastmix.errors import NotConvergedError, ResourceError, UnfitMethodError
from fastmix.inference import ganak
from fastmix.inference.choice import choose_counting
from fastmix.inference.ganak_worker import CountRequest
from fastmix.inference.weighted_formula import encode
from fastmix.instances import ising_grid
from formula_models import some_model, weights_of

needs_ganak = pytest.mark.extras("pyganak")


def hard_grid(side: int, *, seed: int = 0) -> MarkovRandomField:
    """No two neighbors of a square grid are both 1, and a few other pairs are neither."""
    rng = np.random.default_rng(seed)
    edges = fastmix.graphs.grid_edges(side, side)
    tables = [np.array([[0.0, 0.0], [0.0, -np.inf]])] * len(edges)
    unary = np.where(rng.random((side * side, 2)) < 0.1, 0.5, 0.0)
    return MarkovRandomField.from_tables(unary, edges, tables)


class Script:
    """An engine that says what stands in its script."""

    lines: tuple[Any, ...] = ()

    def __init__(self, *_: Any, **__: Any) -> None:
        self.left = list(self.lines)

    def __enter__(self) -> Script:
        return self

    def __exit__(self, *_: object) -> None: ...

    def receive(self, _: Any) -> Any:
        line = self.left.pop(0) if self.left else None
        if isinstance(line, BaseException):
            raise line
        return line


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Script]:
    monkeypatch.setattr(ganak, "engine_version", lambda *_: "0")
    monkeypatch.setattr(ganak, "Engine", Script)
    monkeypatch.setattr(Script, "lines", ())
    return Script


def test_without_the_library_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ganak, "engine_version", lambda *_: None)
    with pytest.raises(UnfitMethodError, match=r"pyganak.*\[count\]"):
        infer(hard_grid(3), method="ganak")
    assert choose_counting(hard_grid(3), None) is None


def test_large_tables_are_refused(engine: type[Script], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ganak, "MAX_ENCODED_ENTRIES", 10)
    with pytest.raises(UnfitMethodError, match="table entries"):
        infer(hard_grid(3), method="ganak")


def test_marginals_that_are_not_counted_are_beliefs(engine: type[Script]) -> None:
    model = hard_grid(3)
    engine.lines = (1.0, 0.25, 0.5)
    result = infer(model, method="ganak", time_limit=5.0)
    assert (str(result.status), result.log_z_kind) == ("time_limit", "exact")
    assert isinstance(result, fastmix.CountedResult)
    assert result.counted.tolist() == [True, True] + 7 * [False]
    assert result.marginal(0).tolist() == [0.75, 0.25]
    beliefs = infer(model, method="loopy-bp")
    assert result.marginal(5) == pytest.approx(beliefs.marginal(5))
    assert "beliefs" in result.advice
    assert result.provenance["options"]["ganak"] == "0"
    assert result.to_dict()["counted"][:3] == [True, True, False]


def test_what_fails(engine: type[Script]) -> None:
    with pytest.raises(NotConvergedError):
        infer(hard_grid(3), method="ganak", time_limit=5.0)
    engine.lines = (EngineError("out of memory"),)
    with pytest.raises(ResourceError, match="out of memory"):
        infer(hard_grid(3), method="ganak")
    engine.lines = (1.0, 0.25, EngineError("out of memory"))
    assert infer(hard_grid(3), method="ganak").stats["num_counted"] == 1
    engine.lines = (KeyboardInterrupt(),)
    with pytest.raises(fastmix.Interrupted) as stop:
        infer(hard_grid(3), method="ganak")
    assert stop.value.result is None
    engine.lines = (1.0, 0.25, KeyboardInterrupt())
    with pytest.raises(fastmix.Interrupted) as stop:
        infer(hard_grid(3), method="ganak")
    assert stop.value.result.stats["num_counted"] == 1


def test_auto_counts_where_zeros_are_many_and_weights_few(engine: type[Script]) -> None:
    assert choose_counting(hard_grid(4), None) is not None
    assert choose_counting(ising_grid(4, 4, coupling_max=1.0, seed=0), None) is None
    weighted = hard_grid(4).replace(log_unary=np.random.default_rng(0).normal(size=32))
    assert choose_counting(weighted, None) is not None  # weights of variables cost nothing
    rng = np.random.default_rng(0)
    tables = [np.where(rng.random((4, 4)) < 0.3, -np.inf, rng.normal(size=(4, 4))) for _ in range(12)]
    edges = fastmix.graphs.grid_edges(3, 3)
    assert choose_counting(MarkovRandomField.from_tables(np.zeros((9, 4)), edges, tables), None) is None
    engine.lines = (7.0, *[0.5] * 36)
    result = infer(hard_grid(6), memory_limit=500.0, time_limit=20.0, log_z=True)
    assert (result.method, result.status, result.log_z) == ("ganak", "ok", pytest.approx(7.0, abs=50.0))
    assert "forbid" in result.stats["reason"]
    engine.lines = ()
    other = infer(hard_grid(6), memory_limit=500.0, time_limit=5.0, log_z=True)
    assert other.method != "ganak"


# -- with the library -------------------------------------------------------------------------------------------------


@needs_ganak
def test_counts_against_enumeration() -> None:
    """150 small models in one process: log Z and every marginal."""
    requests = []
    for seed in range(150):
        formula = encode(some_model(seed))
        wanted = [state for states in formula.literals for state in states]
        requests.append(CountRequest(formula.num_variables, formula.clauses, formula.log_weights, (-9.0, 9.0), wanted))
    with Engine("engine_tasks:count_all", requests) as engine:
        for seed, request in enumerate(requests):
            model = some_model(seed)
            states, weights = weights_of(model)
            total = engine.receive(NO_LIMIT)
            if weights.sum() == 0.0:
                assert total == -np.inf
                continue
            constant = encode(model).log_constant
            assert total + constant == pytest.approx(math.log(weights.sum()), abs=1e-9)
            shares = [engine.receive(NO_LIMIT) for _ in request.literals]
            places = [(v, s) for v, count in enumerate(model.num_states) for s in range(count)]
            expected = [weights[states[:, v] == s].sum() / weights.sum() for v, s in places]
            assert shares == pytest.approx(expected, abs=1e-9)


@needs_ganak
@pytest.mark.parametrize("scale", [-2000.0, -800.0, 0.0, 900.0, 5000.0])
def test_counts_of_any_size(scale: float) -> None:
    tables = [np.array([scale, 0.0]), np.array([0.0, 0.3]), np.array([[0.1, 0.0], [0.0, -np.inf]])]
    model = MarkovRandomField.from_factors([2, 2], [((0,), tables[0]), ((1,), tables[1]), ((0, 1), tables[2])])
    result = infer(model, method="ganak")
    exact = infer(model, method="exact")
    assert result.log_z == pytest.approx(exact.log_z, rel=1e-12)
    assert result.node_marginals == pytest.approx(exact.node_marginals, abs=1e-12)


@needs_ganak
def test_a_range_that_is_wide() -> None:
    """A chain whose logs span far more than a floating-point number."""
    rng = np.random.default_rng(1)
    edges = fastmix.graphs.grid_edges(1, 30)
    tables = [np.where(rng.random((2, 2)) < 0.2, -np.inf, 300.0 * rng.normal(size=(2, 2))) for _ in edges]
    for table in tables:
        table[0, 0] = 0.0
    model = MarkovRandomField.from_tables(np.zeros((30, 2)), edges, tables)
    result = infer(model, method="ganak")
    assert result.log_z == pytest.approx(infer(model, method="exact").log_z, rel=1e-12)


@needs_ganak
def test_answers() -> None:
    model = hard_grid(5)
    result = infer(model, method="ganak", evidence={3: 0})
    exact = infer(model, method="exact", evidence={3: 0})
    assert (result.status, result.log_z_kind) == ("ok", "exact")
    assert result.log_z == pytest.approx(exact.log_z)
    assert result.node_marginals == pytest.approx(exact.node_marginals, abs=1e-9)
    odd = [np.where(np.eye(2, dtype=bool), -np.inf, 0.0)] * 3
    zero = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2), (0, 2)], odd)
    assert infer(zero, method="ganak").log_z_kind == "zero"
    empty = MarkovRandomField.ising([], 0.0)
    assert infer(empty, method="ganak").log_z == infer(empty, method="exact").log_z


@needs_ganak
@pytest.mark.slow
@pytest.mark.parametrize("name", ["2bitcomp_5", "log-1", "logistics.a"])
def test_files(shared_data: Path, name: str) -> None:
    path = shared_data / "uai-hard" / f"{name}.cnf.uai"
    model = fastmix.io.read_model(f"{path}.gz")
    evidence = fastmix.io.read_evidence(f"{path}.evid", model.num_states)
    result = infer(model, evidence=evidence, log_z=True, time_limit=200.0)
    log10_z = float(Path(f"{path}.PR").read_text().split()[-1])
    assert result.log_z / math.log(10.0) == pytest.approx(log10_z, abs=1e-9)
