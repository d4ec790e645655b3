"""Minimum cuts and expansion moves: the flow, what stops it, and the proof that comes with a cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow

from fastmix import MarkovRandomField, graphs, most_probable
from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import UnfitMethodError
from fastmix.modes import cuts


class Ended(Clock):
    """A clock whose limit has passed after it was asked a number of times."""

    def __init__(self, questions: int) -> None:
        super().__init__(1.0)
        self.questions = questions

    def past(self, share: float = 1.0) -> bool:
        self.questions -= 1
        return self.questions < 0


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains, edges (some of them twice) and couplings, of sizes that differ by many powers of ten."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 11))
    pairs = np.array([pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6], dtype=int).reshape(
        -1, 2
    )
    edges = np.concatenate([pairs, pairs[: len(pairs) // 3, ::-1]])
    scale = 10.0 ** rng.integers(-6, 7)
    coupling = scale * rng.exponential(size=len(edges)) * (rng.random(len(edges)) < 0.8)
    gain = scale * rng.normal(size=n) * 10.0 ** rng.integers(-3, 2, size=n) * (rng.random(n) < 0.9)
    return gain, edges, coupling


def value(gain: np.ndarray, edges: np.ndarray, coupling: np.ndarray, states: np.ndarray) -> float:
    i, j = edges.T
    return float(gain @ states + coupling @ (states[i] == states[j]))


@pytest.mark.parametrize("seed", range(60))
def test_cuts_against_enumeration(seed: int) -> None:
    gain, edges, coupling = problem(seed)
    states, missed = cuts.minimum_cut(gain, edges, coupling)
    every = np.array(list(np.ndindex(*[2] * len(gain))))
    best = max(value(gain, edges, coupling, x) for x in every)
    scale = np.abs(gain).sum() + coupling.sum()
    assert value(gain, edges, coupling, states) == pytest.approx(best, abs=1e-12 * scale)
    assert missed == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_cuts_of_larger_graphs_against_whole_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 400
    star = np.column_stack([np.zeros(n - 1, dtype=int), np.arange(1, n)])
    edges = [graphs.grid_edges(20, 20), graphs.erdos_renyi_edges(n, 0.02, seed=seed), star][seed % 3]
    coupling, gain = rng.integers(0, 50, len(edges)), rng.integers(-100, 101, n)
    rows = np.concatenate([np.full(n, n), np.arange(n), edges[:, 0], edges[:, 1]])
    cols = np.concatenate([np.arange(n), np.full(n, n + 1), edges[:, 1], edges[:, 0]])
    capacity = np.concatenate([np.maximum(gain, 0), np.maximum(-gain, 0), coupling, coupling])
    flow = maximum_flow(coo_matrix((capacity, (rows, cols)), (n + 2, n + 2)).tocsr().astype(np.int32), n, n + 1)
    states, missed = cuts.minimum_cut(gain.astype(float), edges, coupling.astype(float))
    best = np.maximum(gain, 0).sum() + coupling.sum() - flow.flow_value
    assert missed == 0.0
    assert value(gain, edges, coupling, states) == best


@pytest.mark.parametrize("seed", range(40))
def test_a_flow_that_is_stopped_says_what_may_be_missed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gain, edges, coupling = problem(seed)
    best = value(gain, edges, coupling, cuts.minimum_cut(gain, edges, coupling)[0])
    monkeypatch.setattr(cuts, "ARCS_PER_CALL", 1)
    for questions in (0, 1, 3, 10):
        states, missed = cuts.minimum_cut(gain, edges, coupling, Ended(questions))
        assert value(gain, edges, coupling, states) + missed >= best - 1e-12 * abs(best)
    resumed, missed = cuts.minimum_cut(gain, edges, coupling)  # in as many pieces as it takes
    assert missed == 0.0
    assert value(gain, edges, coupling, resumed) == pytest.approx(best)


def test_a_proof_for_another_cut_would_be_noticed() -> None:
    gain, edges, coupling = problem(3)
    assert len(edges)
    residual, reached = np.repeat(coupling, 2), gain > 0
    worst = cuts._missed(gain, edges, coupling, gain, residual, reached)  # nothing flows yet
    best = value(gain, edges, coupling, cuts.minimum_cut(gain, edges, coupling)[0])
    assert value(gain, edges, coupling, reached.astype(int)) + worst >= best > value(gain, edges, coupling, reached)


@pytest.mark.parametrize("seed", range(30))
def test_tables_of_expansion_moves_are_checked_one_label_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    k, edges = int(rng.integers(2, 5)), graphs.cycle_edges(5)
    points = rng.normal(size=k)
    metric = -np.minimum(np.abs(points[:, None] - points), 1.0)
    tables = np.array([metric * rng.exponential() for _ in edges])
    if seed % 2:
        tables[rng.integers(len(edges))] += rng.normal(scale=2.0, size=(k, k))
    model = MarkovRandomField(np.full(5, k), rng.normal(size=5 * k), edges, tables.reshape(-1))
    slack = min(
        t[a, b] + t[c, c] - t[a, c] - t[c, b] for t in tables for a in range(k) for b in range(k) for c in range(k)
    )
    for most in (1, 20, 1 << 20):
        monkeypatch.setattr(cuts, "MAX_CHECKED_NUMBERS", most)
        if slack >= -1e-12:
            cuts.check_expansion(model)
        else:
            with pytest.raises(UnfitMethodError):
                cuts.check_expansion(model)
    with pytest.raises(OutOfTimeError):
        cuts.check_expansion(model, Ended(0))


@pytest.mark.parametrize("seed", range(5))
def test_expansion_moves_without_a_check_of_the_tables(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any table: a move is made only if it is a gain, and moves are counted."""
    rng = np.random.default_rng(seed)
    k, edges = 3, graphs.grid_edges(3, 3)
    model = MarkovRandomField(np.full(9, k), rng.normal(size=9 * k), edges, rng.normal(size=len(edges) * k * k))
    start = rng.integers(0, k, 9)
    states, moves = cuts.best_expansion(model, start)
    assert moves >= k
    assert model.log_weight(states) >= model.log_weight(start)

    def late(*_: object) -> None:
        raise OutOfTimeError

    monkeypatch.setattr("fastmix.modes.expansion_route.check_expansion", late)
    result = most_probable(model, method="expansion", seed=0)
    assert result.stats["moves"]["expansions"] >= k
    assert result.log_weight == pytest.approx(model.log_weight(result.states))
