"""Sets that widen: ``within="auto"``."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, NormBall, learn
from fastmix.learning import fit, set_path
from fastmix.results import Status


def halves(scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a ring with couplings of this size, to learn from and to choose by."""
    n = 8
    model = MarkovRandomField.ising([(i, (i + 1) % n) for i in range(n)], scale)
    rows = fastmix.draw_exact(model, num_draws=2000, seed=seed).states
    return rows[:1200], rows[1200:]


@pytest.mark.parametrize("seed", range(3))
def test_sets_widen_until_they_hold_nothing_back(seed: int) -> None:
    train, valid = halves(0.4, seed)
    result = learn(train, validation=valid, within="auto", ridge="auto", seed=seed)
    path = result.stats["path"]
    bounds = [entry["bound"] for entry in path]
    assert bounds == sorted(bounds)
    assert result.status is Status.OK
    assert result.validation_log_likelihood is not None
    assert result.validation_log_likelihood >= max(entry["validation_log_likelihood"] for entry in path) - 1e-6
    # Each entry is what the set alone gives.
    one = learn(train, validation=valid, within=NormBall("spectral", bounds[1]), ridge=1e-4, seed=seed)
    first = next(c for c in one.stats["compared"] if c["model"] == "fit")
    assert path[1]["validation_log_likelihood"] == pytest.approx(first["validation_log_likelihood"], abs=1e-3)
    assert len(path) < len(set_path.SET_BOUNDS)  # the free model is within one of them


def test_chains_that_are_lost_end_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = halves(0.8, 0)
    plain = fit.fit

    def lost(problem, *arguments):
        result = plain(problem, *arguments)
        if problem.within.bound < 1.5:
            return result
        return fastmix.LearnResult(**{**vars(result), "status": Status.NOT_MIXED})

    monkeypatch.setattr(set_path, "fit", lost)
    result = learn(train, validation=valid, within="auto", seed=0)
    assert [entry["status"] for entry in result.stats["path"]] == ["ok", "ok", "not_mixed"]
    assert result.status is Status.OK
    chosen = {entry["model"]: entry for entry in result.stats["compared"]}["fit"]
    assert chosen["status"] == "ok"


def test_a_path_needs_validation_data_and_no_l1_term() -> None:
    train, valid = halves(0.4, 0)
    with pytest.raises(ValueError, match=r"within='auto' .*validation="):
        learn(train, within="auto")
    with pytest.raises(ValueError, match="l1"):
        learn(train, within="auto", validation=valid, l1=0.1)
    with pytest.raises(TypeError, match="within"):
        learn(train, within="wide")
