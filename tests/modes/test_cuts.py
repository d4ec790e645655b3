"""Minimum cuts: the flow on lattices and on any graph, what stops it, and the proof that comes with a cut."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import maximum_flow

from contexts import Ended
from fastmix import graphs
from fastmix.modes import cuts, flows


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


def lattice_problem(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same on parts of lattices: few steps lead from every node to its neighbors."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    steps = rng.choice(np.arange(1, n), size=min(n - 1, int(rng.integers(1, 4))), replace=False)
    pairs = np.array([(i, i + step) for step in steps for i in range(n - step)])
    pairs = pairs[rng.random(len(pairs)) < 0.9]
    edges = np.concatenate([pairs, pairs[: len(pairs) // 3, ::-1]]).reshape(-1, 2)
    gain, _, _ = problem(seed)
    return np.resize(gain, n), edges, np.abs(gain).max() * rng.exponential(size=len(edges))


@pytest.fixture(params=["lattice", "arcs"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to push flow: on lattices, and over lists of arcs."""
    monkeypatch.setattr(flows, "MAX_LATTICE_ROOM", 1000 if request.param == "lattice" else 0)
    monkeypatch.setattr(flows, "MAX_LATTICE_STEPS", 60)
    return str(request.param)


def test_lattices_are_known() -> None:
    grid = graphs.grid_edges(20, 30)
    assert isinstance(flows.flow_on(600, grid), flows.LatticeFlow)
    assert isinstance(flows.flow_on(600, grid[::-1, ::-1]), flows.LatticeFlow)
    assert isinstance(flows.flow_on(600, grid[::7]), flows.ArcFlow)
    assert isinstance(flows.flow_on(600, graphs.erdos_renyi_edges(600, 0.02, seed=0)), flows.ArcFlow)
    assert isinstance(flows.flow_on(3, np.zeros((0, 2), dtype=np.int64)), flows.ArcFlow)


@pytest.mark.parametrize("seed", range(120))
def test_cuts_against_enumeration(seed: int, kind: str) -> None:
    gain, edges, coupling = problem(seed) if seed % 2 else lattice_problem(seed)
    if len(edges):
        assert isinstance(flows.flow_on(len(gain), edges), flows.LatticeFlow) == (kind == "lattice")
    states, missed = cuts.minimum_cut(gain, edges, coupling)
    every = np.array(list(np.ndindex(*[2] * len(gain))))
    best = max(value(gain, edges, coupling, x) for x in every)
    scale = np.abs(gain).sum() + coupling.sum()
    assert value(gain, edges, coupling, states) == pytest.approx(best, abs=1e-12 * scale)
    assert missed == 0.0


@pytest.mark.usefixtures("kind")
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


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("seed", range(40))
def test_a_flow_that_is_stopped_says_what_may_be_missed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gain, edges, coupling = problem(seed)
    best = value(gain, edges, coupling, cuts.minimum_cut(gain, edges, coupling)[0])
    monkeypatch.setattr(flows, "ARCS_PER_CALL", 1)
    for questions in (0, 1, 3, 10):
        states, missed = cuts.minimum_cut(gain, edges, coupling, Ended(questions))
        assert value(gain, edges, coupling, states) + missed >= best - 1e-12 * abs(best)
    resumed, missed = cuts.minimum_cut(gain, edges, coupling)  # in as many pieces as it takes
    assert missed == 0.0
    assert value(gain, edges, coupling, resumed) == pytest.approx(best)


@pytest.mark.usefixtures("kind")
def test_a_proof_for_another_cut_would_be_noticed() -> None:
    gain, edges, coupling = problem(3)
    assert len(edges)
    flow = flows.flow_on(len(gain), edges)
    best = value(gain, edges, coupling, flow.push(gain, coupling).astype(int))
    wrong = gain > 0
    assert value(gain, edges, coupling, wrong) < best
    missed = flow.missed(gain, coupling, wrong)
    assert value(gain, edges, coupling, wrong) + missed >= best - 1e-12 * abs(best)


@pytest.mark.usefixtures("kind")
def test_a_flow_is_used_for_one_cut_after_another() -> None:
    _, edges, _ = lattice_problem(7)
    n = int(edges.max()) + 1
    flow = flows.flow_on(n, edges)
    rng = np.random.default_rng(7)
    for _ in range(5):
        gain = rng.normal(size=n)
        coupling = rng.exponential(size=len(edges))
        expected, _ = cuts.minimum_cut(gain, edges, coupling)
        assert np.array_equal(flow.push(gain, coupling), expected == 1)
