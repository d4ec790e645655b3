"""Support of answers by bounds: the bounds on errors, and what follows from them."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from contexts import context_of
from fastmix import ImpossibleModelError, MarkovRandomField, ResourceError, Status, infer
from fastmix._context import Context
from fastmix.inference import support
from fastmix.inference.compare import marginal_errors
from fastmix.inference.support import error_bounds

bracket_module = importlib.import_module("fastmix.bounds.bracket")


@pytest.mark.parametrize("seed", range(20))
def test_no_error_is_larger_than_its_bound(seed):
    """Of any distributions between the bounds; for two states some come close."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, size=6)
    model = MarkovRandomField.from_tables([np.zeros(k) for k in counts], [], [])
    flat = [rng.dirichlet(np.ones(k), size=40) for k in counts]
    lower = np.concatenate([points.min(axis=0) for points in flat])
    upper = np.concatenate([points.max(axis=0) for points in flat])
    answer = np.concatenate([points[0] for points in flat])
    bounds = error_bounds(model, answer, lower, upper)
    errors = [marginal_errors(model, answer, np.concatenate([points[k] for points in flat])) for k in range(40)]
    largest = np.max(errors, axis=0)
    assert (largest <= bounds + 1e-12).all()
    np.testing.assert_allclose(bounds[counts == 2], largest[counts == 2], atol=1e-12)


def coloring():
    different = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
    rng = np.random.default_rng(1)
    edges = [(i, (i + 1) % 6) for i in range(6)] + [(0, 3)]
    tables = [different + 0.05 * rng.normal(size=(3, 3)) for _ in edges]
    return MarkovRandomField.from_tables(np.zeros((6, 3)), edges, tables)


def by_messages(monkeypatch):
    """The answer of auto where only belief propagation is left."""
    from fastmix.inference import auto
    from fastmix.inference.choice import Choice
    from fastmix.variational.loopy_bp import LoopyBP

    monkeypatch.setattr(auto, "choose", lambda *_: Choice(LoopyBP(), "nothing else is left"))
    return infer(coloring(), time_limit=5.0, seed=1)


def test_bounds_make_an_answer_ok(monkeypatch):
    result = by_messages(monkeypatch)
    assert result.status == Status.OK
    assert 0.0 < result.stats["largest_error_bound"] <= support.TOLERANCE
    exact = infer(coloring(), method="exact")
    error = marginal_errors(coloring(), result.node_marginals, exact.node_marginals).max()
    assert error <= result.stats["largest_error_bound"]
    assert result.log_z_lower <= exact.log_z


def test_wide_bounds_and_none_do_not(monkeypatch):
    monkeypatch.setattr(support, "TOLERANCE", 1e-9)
    assert by_messages(monkeypatch).status == Status.UNVERIFIED

    def refuse(*_, **__):
        raise ResourceError("no room for bounds")

    monkeypatch.setattr("fastmix.bounds.bracket.find_bracket", refuse)
    result = by_messages(monkeypatch)
    assert result.status == Status.UNVERIFIED
    assert "no room for bounds" in result.stats["note"]
    assert result.node_marginals is not None


def test_interrupts_keep_the_answer(monkeypatch):
    from fastmix import Interrupted

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastmix.bounds.bracket.find_bracket", interrupt)
    with pytest.raises(Interrupted) as stopped:
        by_messages(monkeypatch)
    assert stopped.value.result.status == Status.INTERRUPTED
    assert len(stopped.value.result.node_marginals) == 18


def test_a_model_without_variables_has_no_errors() -> None:
    empty = MarkovRandomField.from_tables([], [], [])
    assert error_bounds(empty, np.zeros(0), np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize(
    ("off", "is_asked", "status"), [(0.0, True, "ok"), (1.0, True, "unverified"), (1.0, False, "ok")]
)
def test_log_z_needs_support_where_it_was_asked_for(off: float, is_asked: bool, status: str) -> None:
    model = coloring()
    exact = infer(model, method="exact")
    answer = replace(exact, log_z=exact.log_z + off, log_z_kind="estimate")
    result = support.supported(answer, context_of(limit=5.0, log_z=is_asked), None)
    assert result.status == status
    if status == "unverified":
        assert "log Z" in result.stats["note"]
        assert result.log_z_lower <= exact.log_z


def test_bounds_that_narrow_have_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bracket has a multiple of the time of the one before, until one is enough or narrows nothing."""
    limits: list[float] = []
    widths = iter([0.5, 0.2, 0.0])
    model = MarkovRandomField.ising([(0, 1)], 0.3)
    exact = infer(model, method="exact")

    def found(model: MarkovRandomField, context: Context, memory: float) -> Any:
        limits.append(context.clock.limit)
        width = next(widths)
        p = exact.node_marginals
        return SimpleNamespace(
            node_lower=p - width, node_upper=p + width, log_z_lower=0.0, log_z_upper=2.0, stats={"stopped_by": "x"}
        )

    monkeypatch.setattr(bracket_module, "find_bracket", found)
    result = support.supported(exact, context_of(limit=100.0), None)
    assert result.status == "ok"
    assert len(limits) == 3
    assert limits[1] == pytest.approx(support.SUPPORT_GROWTH * limits[0])


def test_a_proof_that_nothing_is_possible_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    none = SimpleNamespace(node_lower=None, node_upper=None, stats={"reason": "no configuration"})
    monkeypatch.setattr(bracket_module, "find_bracket", lambda *_, **__: none)
    exact = infer(coloring(), method="exact")
    with pytest.raises(ImpossibleModelError, match="no configuration"):
        support.supported(exact, context_of(limit=5.0), None)
