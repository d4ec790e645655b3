"""Third moments and counts of data beside a model, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, ModelError, Status
from fastmix.learning import compare_moments, moment_check


def pairwise(n: int = 5, seed: int = 0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    edges = list(itertools.combinations(range(n), 2))
    return MarkovRandomField.ising(edges, rng.normal(0.0, 0.4, len(edges)), rng.normal(-0.5, 0.3, n))


@pytest.mark.parametrize("exact", [True, False])
def test_moments_of_the_model_are_those_of_enumeration(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exact:

        def refuse(*_: object, **__: object) -> None:
            raise fastmix.ResourceError("too large")

        monkeypatch.setattr(moment_check, "draw_exact", refuse)
    model = pairwise()
    rows = np.asarray(fastmix.draw_exact(model, num_draws=4000, seed=1))
    found = compare_moments(model, rows, seed=0)
    assert found.status is Status.OK
    states = np.array(list(itertools.product((0, 1), repeat=5)))
    weights = np.exp(model.log_weight(states))
    weights /= weights.sum()
    centered = states - weights @ states
    expected = [weights @ centered[:, list(triple)].prod(axis=1) for triple in found.triples]
    assert len(found.triples) == 10
    assert np.abs(found.model_third - expected).max() < 0.01
    assert (np.abs(found.data_third - found.model_third) < 6.0 * found.third_errors).all()
    counts = np.bincount(states.sum(axis=1), weights)
    assert np.abs(found.model_counts - counts).max() < 0.02
    assert (np.abs(found.data_counts - found.model_counts) < 6.0 * found.count_errors + 1e-12).all()


def test_other_models_are_told_apart() -> None:
    model = pairwise(seed=3)
    rows = np.asarray(fastmix.draw_exact(model, num_draws=4000, seed=1))
    alone = fastmix.learn(rows, edges=[], seed=0)
    found = compare_moments(alone.model, rows, seed=0)
    assert (np.abs(found.data_counts - found.model_counts) > 6.0 * found.count_errors).any()


def test_some_triples_are_enough() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (50, 12))
    model = MarkovRandomField.ising([(0, 1)], 0.1, num_variables=12)
    found = compare_moments(model, rows, num_triples=20, num_draws=100, seed=0)
    assert found.triples.shape == (20, 3)
    assert len({tuple(triple) for triple in found.triples.tolist()}) == 20


def test_pictures_and_refusals() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    model = pairwise()
    rows = np.asarray(fastmix.draw_exact(model, num_draws=200, seed=1))
    assert compare_moments(model, rows, num_draws=200, seed=0).plot().get_xlabel() == "third moments of the data"
    pyplot.close("all")
    with pytest.raises(ModelError, match="missing"):
        compare_moments(model, np.where(np.arange(5) == 1, -1, rows))
    with pytest.raises(ModelError, match="0 and 1"):
        compare_moments(MarkovRandomField.from_tables([[0.0] * 3], [], []), [[0]])
