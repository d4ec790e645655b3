"""Support of answers by bounds: the bounds on errors, and what follows from them."""

from __future__ import annotations

import numpy as np
import pytest

from fastmix import MarkovRandomField, ResourceError, Status, infer
from fastmix.methods import support
from fastmix.methods.comparison import marginal_errors
from fastmix.methods.support import error_bounds


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
    from fastmix.methods import auto
    from fastmix.methods.loopy_bp import LoopyBP

    monkeypatch.setattr(auto, "_choose", lambda *_: auto.Choice(LoopyBP(), "nothing else is left"))
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

    monkeypatch.setattr("fastmix.bounds.bracket", refuse)
    result = by_messages(monkeypatch)
    assert result.status == Status.UNVERIFIED
    assert "no room for bounds" in result.stats["note"]
    assert result.node_marginals is not None


def test_interrupts_keep_the_answer(monkeypatch):
    from fastmix import Interrupted

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fastmix.bounds.bracket", interrupt)
    with pytest.raises(Interrupted) as stopped:
        by_messages(monkeypatch)
    assert stopped.value.result.status == Status.INTERRUPTED
    assert len(stopped.value.result.node_marginals) == 18
