"""What is learnt is never worse than the independent model and the best tree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import NormBall, learn
from fastmix.learning import chow_liu, graph_search, read_data
from fastmix.results import Status


def rows_of(seed: int) -> tuple[np.ndarray, int]:
    """Rows of one of several kinds, and how many of them to learn from."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    count = int(rng.integers(12, 300))
    kind = seed % 5
    if kind == 0:  # sparse
        rows = rng.random((2 * count, n)) < 0.1
    elif kind == 1:  # two modes
        rows = rng.random((2 * count, n)) < np.where(rng.random((2 * count, 1)) < 0.5, 0.05, 0.95)
    elif kind == 2:  # a chain
        steps = rng.random((2 * count, n)) < 0.15
        rows = np.cumsum(steps, axis=1) % 2
    elif kind == 3:  # no dependence at all
        rows = rng.random((2 * count, n)) < 0.5
    else:  # constant and equal columns
        rows = np.repeat(rng.random((2 * count, 1)) < 0.4, n, axis=1)
        rows[:, 0] = True
    return rows.astype(int), count


def least_score(train: np.ndarray, valid: np.ndarray) -> float:
    """The better one of the scores of the tree and of the independent model."""
    tree = chow_liu(read_data(train, num_states=2))
    shares = 0.99 * train.mean(axis=0) + 0.005
    independent = np.where(valid == 1, np.log(shares), np.log(1.0 - shares)).sum(axis=1).mean()
    return max(independent, fastmix.score(tree, valid).log_likelihood)


@pytest.mark.parametrize("seed", range(25))
def test_no_score_is_below_those_of_cheap_models(seed: int) -> None:
    rows, count = rows_of(seed)
    options: dict[str, Any] = ({}, {"ridge": "auto"}, {"ridge": 1e-6}, {"moments": "sampled", "num_chains": 64})[
        seed % 4
    ]
    result = learn(rows[:count], validation=rows[count:], num_states=2, seed=seed, max_iter=20, **options)
    score = fastmix.score(result.model, rows[count:]).log_likelihood
    assert score >= least_score(rows[:count], rows[count:]) - 1e-9
    assert result.validation_log_likelihood == pytest.approx(score, abs=0.05)
    names = [entry["model"] for entry in result.stats["compared"]]
    assert names == ["fit", "independent", "chow-liu"]


def test_a_fit_whose_chains_were_lost_gives_way_to_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, count = rows_of(2)
    lost = learn(1 - rows, ridge=1e-6, num_states=2)
    lost = fastmix.LearnResult(**{**vars(lost), "status": Status.NOT_MIXED})
    monkeypatch.setattr(graph_search, "fit_with_penalties", lambda *_: lost)
    for options in ({}, {"validation": rows[count:]}):
        result = learn(rows[:count], num_states=2, seed=0, **options)
        assert (result.status, result.moments) == (Status.NOT_MIXED, "closed form")
        np.testing.assert_allclose(
            fastmix.score(result.model, rows).log_likelihood,
            fastmix.score(chow_liu(read_data(rows[:count], num_states=2)), rows).log_likelihood,
        )


def test_few_rows_are_compared_on_a_tenth_of_them() -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(60, 12))
    result = learn(rows, ridge=1e-6, num_states=2, seed=0)
    assert result.status is Status.OK
    assert result.moments in ("none", "closed form")
    assert result.validation_log_likelihood is None or result.stats["compared"]
    many = learn(np.tile(rows, (100, 1)), seed=0)
    assert many.moments == "enumeration"
    assert "compared" not in many.stats


def test_cheap_models_stay_in_the_set_and_on_the_graph() -> None:
    rows, count = rows_of(2)
    inside = learn(rows[:count], validation=rows[count:], within=NormBall("inf", 0.2), seed=0)
    assert inside.norms["inf"] <= 0.2 + 1e-9
    graph = [(0, 2), (1, 2)]
    given = learn(rows[:count], edges=graph, validation=rows[count:], seed=0)
    assert given.model.edges.tolist() == [[0, 2], [1, 2]]
