"""Missing values where every value is needed: the same fits as of whole rows, up to what is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_models import draws

import fastmix
from fastmix import MarkovRandomField, Status, learn
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import open_context
from fastmix.graphs import complete_edges
from fastmix.learning import chow_liu, gaps, read_data
from fastmix.learning.gaps import gap_tree
from fastmix.learning.tree_mixture import MixtureRows, TreeMixture


def dense_model(n: int = 8, seed: int = 0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    edges = complete_edges(n)
    return MarkovRandomField.ising(edges, rng.normal(0.0, 0.3, len(edges)), rng.normal(0.0, 0.2, n))


def with_holes(rows: Any, share: float, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.asarray(np.where(np.random.default_rng(seed).random(rows.shape) < share, -1, rows))


def test_trees_of_whole_rows_are_those_of_chow_and_liu() -> None:
    rows = draws(dense_model(), 500)
    tree = gap_tree(read_data(rows), 1.0, NO_LIMIT)
    edges = sorted(sorted((i, int(p))) for i, p in enumerate(tree.parents) if p >= 0)
    assert edges == sorted(map(sorted, chow_liu(read_data(rows)).edges.tolist()))


def test_trees_of_rows_with_gaps() -> None:
    rng = np.random.default_rng(1)
    n = 9
    tables = rng.normal(0.0, 1.0, (n - 1, 3, 3))
    chain = MarkovRandomField.from_tables(rng.normal(0.0, 0.3, (n, 3)), [(i, i + 1) for i in range(n - 1)], tables)
    rows = draws(chain, 3000)
    holes = with_holes(rows, 0.25)
    whole = learn(rows, edges="chow-liu")
    part = learn(holes, edges="chow-liu")
    assert part.status is Status.OK
    assert part.model.edges.tolist() == whole.model.edges.tolist() == [[i, i + 1] for i in range(n - 1)]
    test = draws(chain, 3000, seed=5)
    scores = [fastmix.score(found.model, test) for found in (whole, part)]
    assert abs(fastmix.log_z(chow_liu(read_data(holes))).log_z) < 1e-9
    assert 0.0 <= scores[0].log_likelihood - scores[1].log_likelihood < 0.05


def test_iterations_for_a_tree_raise_its_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    data = read_data(with_holes(draws(dense_model(), 400), 0.3))
    values = []
    for count in (1, 2, 4, 8, 16):
        monkeypatch.setattr(gaps, "TREE_ITERATIONS", count)
        monkeypatch.setattr(gaps, "TREES_OF_GAPS", (0,))
        tree = gap_tree(data, 1e-9, NO_LIMIT)
        rows = MixtureRows.of(data)
        values.append(float(rows.weights @ tree.row_logs(rows, NO_LIMIT)))
    assert (np.diff(values) > -1e-12).all()


def test_the_pseudo_likelihood_finds_the_couplings_of_whole_rows() -> None:
    rows = draws(dense_model(), 4000)
    options: dict[str, Any] = {"objective": "pseudo-likelihood", "ridge": 1e-4, "seed": 0}
    whole = learn(rows, **options)
    part = learn(with_holes(rows, 0.2), **options)
    assert part.status is Status.OK
    assert part.num_rows == 4000
    first, second = whole.model.log_pairwise, part.model.log_pairwise
    slope = float(first @ second / (first @ first))
    assert 0.93 < slope < 1.07  # draws of independent variables would have 0.8
    assert np.corrcoef(first, second)[0, 1] > 0.97
    again = learn(with_holes(rows, 0.2), **options)
    np.testing.assert_array_equal(again.model.parameters, part.model.parameters)


def test_completions_leave_what_was_observed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = with_holes(draws(dense_model(), 300), 0.2)
    data = read_data(rows)
    for most in (400, 0):  # by a pairwise model, and by the tree
        monkeypatch.setattr(gaps, "MAX_COMPLETED_CONTRASTS", most)
        with open_context("test", seed=0, progress=None) as context:
            filled = gaps._Completion(data, context).of(data, np.random.default_rng(0))
        assert not filled.has_missing
        assert filled.weights.sum() == pytest.approx(1.0)
        assert filled.num_rows == 300
        gone = np.flatnonzero((rows < 0).any(axis=1))
        copies = filled.states[300 - len(gone) :].reshape(-1, len(gone), rows.shape[1])
        assert len(copies) >= 4
        seen = rows[gone] >= 0
        assert all((copy[seen] == rows[gone][seen]).all() for copy in copies)


@pytest.mark.parametrize("options", [{"edges": "l1", "l1": 0.03}, {"edges": "grow"}, {"l1": "auto"}])
def test_graphs_are_found_in_rows_with_gaps(options: dict[str, Any]) -> None:
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3)]
    model = MarkovRandomField.ising(edges, 0.6, 0.1)
    rows = with_holes(draws(model, 3000), 0.1)
    others = with_holes(draws(model, 2000, seed=9), 0.1)
    result = learn(rows, validation=others, seed=0, **options)
    assert result.status is Status.OK
    found = set(map(tuple, result.model.edges.tolist()))
    assert {tuple(sorted(edge)) for edge in edges} <= found
    test = draws(model, 2000, seed=4)
    best = fastmix.score(model, test).log_likelihood
    assert fastmix.score(result.model, test).log_likelihood > best - 0.02


def test_one_column_and_few_rows() -> None:
    result = learn([[0], [1], [-1], [1]], objective="pseudo-likelihood", seed=0)
    assert result.model.num_variables == 1
    result = learn([[0, 1], [1, -1], [-1, 0]], objective="pseudo-likelihood", seed=0)
    assert np.isfinite(result.model.parameters).all()


def test_gaps_in_validation_data_alone() -> None:
    rows = draws(dense_model(), 1000)
    options: dict[str, Any] = {"objective": "pseudo-likelihood", "ridge": "auto", "seed": 0}
    whole = learn(rows, validation=rows, **options)
    part = learn(rows, validation=with_holes(rows, 0.1), **options)
    assert part.validation_log_likelihood == pytest.approx(whole.validation_log_likelihood, abs=0.1)


def test_a_tree_of_rows_with_too_many_gaps_to_list_has_a_value() -> None:
    rng = np.random.default_rng(4)
    steps = rng.random((60, 30)) < 0.1
    rows = with_holes(np.cumsum(steps, axis=1) % 2, 0.3)
    rows[0, 4:24] = -1
    result = learn(rows, edges="chow-liu", validation=rows)
    assert result.status is Status.OK
    assert result.value is not None
    assert result.validation_log_likelihood is not None
    assert result.value == pytest.approx(-result.validation_log_likelihood, abs=1e-9)


def test_the_tree_so_far_comes_back_when_the_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_data(with_holes(draws(dense_model(), 300), 0.2))
    clock = Clock(60.0)
    whole = TreeMixture.expected_counts
    calls: list[int] = []

    def late(self: Any, *given: Any) -> Any:
        """The counts, after which the time is over."""
        calls.append(1)
        clock.limit = 0.0 if len(calls) == 3 else clock.limit
        return whole(self, *given)

    monkeypatch.setattr(TreeMixture, "expected_counts", late)
    tree = gap_tree(rows, 1.0, clock)
    assert len(calls) == 3
    assert (tree.parents >= 0).sum() == 7
