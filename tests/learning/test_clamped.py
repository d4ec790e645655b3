"""Chains given what is observed, for rows whose missing values have too many joint states to list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix import Interrupted, MarkovRandomField, NormBall, Progress, ResourceError, Status, learn, score
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges
from fastmix.learning import data_moments
from fastmix.learning.clamped import ClampedChains
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import read_data
from fastmix.learning.data_moments import DataTerm
from oracle.learning import random_model

MODEL = random_model([2, 3, 2, 4, 2], complete_edges(5), 1)


def with_gaps(rows: np.ndarray, share: float) -> np.ndarray:
    """The rows with so many values gone, at least one left in each."""
    gone = np.random.default_rng(0).random(rows.shape) < share
    gone[gone.all(axis=1), 0] = False
    return np.where(gone, np.nan, rows)


DATA = with_gaps(draw_exact(MODEL, num_draws=60, seed=0).states, 0.5)


def clamped(model: MarkovRandomField, rows: np.ndarray) -> tuple[ClampedChains, DataTerm, np.ndarray]:
    coordinates, data = Coordinates(model.structure), read_data(rows, model=model)
    v = coordinates.from_parameters(model.parameters)[0]
    chains = ClampedChains(coordinates, data.states, data.weights, np.random.default_rng(0))
    chains.load_contrasts(v)
    return chains, DataTerm(coordinates, data), v


def test_moments_are_those_of_listing_all_states() -> None:
    chains, term, v = clamped(MODEL, DATA)
    exact = term.evaluate(v)[1]
    chains.sweep(50)
    halves, correlation = chains.measure(600)
    spread = np.abs(halves[0] - halves[1]).max()
    assert 0.0 < spread < 0.02
    np.testing.assert_allclose(0.5 * (halves[0] + halves[1]), exact, atol=0.005)
    assert abs(correlation) < 0.2
    chains.load_contrasts(0.0 * v)  # other parameters have other moments
    chains.sweep(50)
    assert np.abs(chains.measure(200)[0][0] - exact).max() > 0.03


def test_they_are_read_as_other_chains() -> None:
    chains, _, _ = clamped(MODEL, DATA)
    chains.load(MODEL.parameters)
    chains.sweep(5)
    states = chains.get_states()
    np.testing.assert_allclose(chains.energies()[0], MODEL.log_weight(states), atol=1e-4)
    shares = chains.moments()[MODEL.unary_offsets[1] : MODEL.unary_offsets[2]]
    np.testing.assert_allclose(shares, np.bincount(states[:, 1], minlength=3) / len(states))

    stream = chains.get_random_state()
    chains.sweep(3, collect=True)
    sums = chains.take_sums()
    np.testing.assert_array_equal(np.add.reduceat(sums, MODEL.unary_offsets[:-1]), 3.0)
    after = chains.get_states()
    chains.set_states(states)
    chains.set_random_state(stream)
    chains.sweep(3)
    np.testing.assert_array_equal(chains.get_states(), after)
    assert not chains.take_sums().any()


def test_what_is_observed_stays_as_it_is() -> None:
    chains, _, _ = clamped(MODEL, DATA)
    before = chains.get_states()
    chains.sweep(20)
    after, given = chains.get_states(), np.tile(DATA, (len(before) // len(DATA), 1))
    assert len(before) >= 512
    seen = ~np.isnan(given)
    np.testing.assert_array_equal(after[seen], given[seen])
    assert ((after >= 0) & (after < MODEL.num_states)).all()
    assert (after[~seen] != before[~seen]).mean() > 0.3


def test_chains_that_do_not_forget_are_seen() -> None:
    model = MarkovRandomField.ising(complete_edges(9), 1.0)
    chains, _, _ = clamped(model, np.full((4, 9), np.nan))
    chains.sweep(50)
    assert chains.measure(100)[1] > 0.9
    chains.load(np.zeros(chains.num_parameters))
    assert abs(chains.measure(100)[1]) < 0.2


def test_variables_are_visited_in_the_order_of_other_chains() -> None:
    """Bounds on the bias after some sweeps are for that order."""
    model = MarkovRandomField.ising([(0, 1), (1, 2)], 20.0)
    assert model.structure.visit_order[0].tolist() == [0, 2, 1]
    chains, _, _ = clamped(model, np.array([[1.0, np.nan, np.nan]]))
    chains.set_states(np.tile([1, 0, 1], (len(chains.get_states()), 1)))
    chains.sweep(1)
    assert not chains.get_states()[:, 2].any()


@pytest.fixture
def as_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes back is the fit that was asked for, also where it has not converged and a tree is better."""
    monkeypatch.setattr("fastmix.learning.cheap.CheapModels.best", lambda _, result, learn: result)


@pytest.mark.usefixtures("few_states", "as_fitted")
def test_the_bound_on_the_bias_counts_both_kinds_of_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    within, bounds = NormBall("spectral", 0.5), []
    rows = np.vstack([DATA, draw_exact(MODEL, num_draws=180, seed=3)])
    gaps = (np.where(np.isnan(rows), MODEL.num_states, 1).prod(axis=1) > 2).mean()  # one bit needs no list
    for most in (1, 10**6):
        monkeypatch.setattr(data_moments, "FEW_COMPLETIONS", most)
        monkeypatch.setattr("fastmix.learning.sampled_gradient.bias_after", lambda model, *_, **__: np.full(5, 1e-6))
        result = learn(rows, num_states=MODEL.num_states, within=within, moments="sampled", max_iter=1, seed=0)
        bounds.append(result.bias_bound)
    assert bounds == pytest.approx([2e-6 * (1.0 + gaps), 2e-6], rel=1e-9)


def test_rows_are_listed_where_that_is_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_moments, "FEW_COMPLETIONS", 6)
    data = read_data(DATA, model=MODEL)
    term = DataTerm(Coordinates(MODEL.structure), data, sampled=True)
    states = np.where(data.states < 0, MODEL.num_states, 1).prod(axis=1)
    np.testing.assert_array_equal(np.sort(term.beyond), np.flatnonzero(states > 6))
    listed = np.concatenate([pattern.rows for pattern in term.patterns])
    np.testing.assert_array_equal(np.sort(listed), np.flatnonzero((states > 1) & (states <= 6)))


@pytest.fixture
def few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing values whose states can be listed are few."""
    monkeypatch.setattr(data_moments, "FEW_COMPLETIONS", 1)


@pytest.mark.usefixtures("few_states")
def test_learning_ends_where_exact_moments_do() -> None:
    model = random_model([2] * 5, complete_edges(5), 4)
    rows = with_gaps(draw_exact(model, num_draws=2000, seed=1).states, 0.3)
    exact = learn(rows, moments="exact", ridge=0.01)
    sampled = learn(rows, moments="sampled", ridge=0.01, seed=0)
    assert (exact.status, sampled.status) == (Status.OK, Status.OK)
    best, found = (score(result.model, rows).log_likelihood for result in (exact, sampled))
    assert best - 0.002 < found < best + 0.0005  # the penalty is part of what is least
    np.testing.assert_allclose(sampled.model.parameters, exact.model.parameters, atol=0.06)


@pytest.mark.usefixtures("as_fitted")
def test_what_cannot_be_listed_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_moments, "MAX_COMPLETIONS", 4)
    monkeypatch.setattr(data_moments, "FEW_COMPLETIONS", 4)
    ring = [(4 + k, 4 + (k + 1) % 5) for k in range(5)] + [(4 + k, k % 4) for k in range(5)]
    rows = draw_exact(random_model([2] * 4, complete_edges(4), 0), num_draws=200, seed=0)
    options: dict[str, Any] = {"edges": ring, "hidden": 5, "max_iter": 2, "seed": 0}
    with pytest.raises(ResourceError, match=r"^missing values must .*\b4 .*moments='sampled'"):
        learn(rows, moments="exact", **options)
    result = learn(rows, **options)
    assert (result.moments, result.model.num_variables) == ("sampled", 9)
    assert np.abs(result.model.log_pairwise).max() > 1e-3


@pytest.mark.usefixtures("few_states")
def test_a_run_that_goes_on_has_the_same_bits(tmp_path: Path) -> None:
    options: dict[str, Any] = {"moments": "sampled", "num_chains": 64, "max_iter": 4, "tol": 1e-9}
    whole = learn(DATA, seed=5, **options)

    def stop(progress: Progress) -> None:
        if progress.done == 2:
            raise KeyboardInterrupt

    path = tmp_path / "run.ckpt"
    with pytest.raises(Interrupted):
        learn(DATA, seed=5, checkpoint=path, checkpoint_seconds=0.0, progress=stop, **options)
    result = learn(DATA, checkpoint=path, **options)
    assert result.model == whole.model
    assert [entry["gap"] for entry in result.history] == [entry["gap"] for entry in whole.history]
