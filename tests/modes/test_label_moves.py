"""Expansion and swap moves: the best of all moves, tables of every kind, and what stops them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import strategies
from contexts import Ended
from fastmix import MarkovRandomField, graphs, most_probable
from fastmix._clock import NO_LIMIT, OutOfTimeError
from fastmix.errors import UnfitMethodError
from fastmix.modes import label_moves


def metric_model(seed: int, *, shared: bool) -> MarkovRandomField:
    """A cycle of variables with weights on one metric, the edges of which are given in both directions."""
    rng = np.random.default_rng(seed)
    k = 4
    n = 6
    points = rng.normal(size=k)
    metric = -np.minimum(np.abs(points[:, None] - points), 1.0) + rng.normal()
    edges = graphs.cycle_edges(n)
    weights = rng.exponential(size=n)
    unary = rng.normal(size=(n, k))
    if shared:
        return MarkovRandomField.from_patterns(unary, edges, [metric], 0, weights)
    return MarkovRandomField(np.full(n, k), unary.reshape(-1), edges, (weights[:, None, None] * metric).reshape(-1))


def best_of_moves(model: MarkovRandomField, x: np.ndarray, labels: tuple[int, ...]) -> float:
    """The largest log-weight that one move reaches, by trying all of them."""
    choices = [
        {x[i], labels[0]} if len(labels) == 1 else set(labels) if x[i] in labels else {x[i]} for i in range(len(x))
    ]
    return max(float(model.log_weight(np.array(states))) for states in itertools.product(*choices))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("num_labels", [1, 2])
def test_every_move_is_the_best(seed: int, num_labels: int) -> None:
    model = metric_model(seed, shared=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 4, model.num_variables)
    for labels in itertools.combinations(range(4), num_labels):
        moves = label_moves._LabelMoves(model, start)
        moves._improve(labels, NO_LIMIT)
        assert moves._value == pytest.approx(model.log_weight(moves.states))
        assert moves._value == pytest.approx(best_of_moves(model, start, labels))


@pytest.mark.parametrize("seed", range(40))
def test_moves_do_not_depend_on_how_tables_are_kept(seed: int) -> None:
    twins = strategies.picture_twins(seed, scale=1.0)
    start = np.random.default_rng(seed).integers(0, twins.full.num_states)
    for best in (label_moves.best_expansion, label_moves.best_swap):
        states, num_moves = best(twins.shared, start)
        others, num_others = best(twins.full, start)
        assert num_moves == num_others
        np.testing.assert_array_equal(states, others)
        assert twins.full.log_weight(states) >= twins.full.log_weight(start)
    assert "log_pairwise" not in vars(twins.shared)


@pytest.mark.parametrize("seed", range(40))
def test_tables_are_checked_one_pattern_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 5))
    edges = graphs.cycle_edges(5)
    points = rng.normal(size=k)
    metric = -np.minimum(np.abs(points[:, None] - points) ** (1 + seed % 3), 1.0)
    tables = np.array([metric * rng.exponential() for _ in edges])
    if seed % 2:
        tables[rng.integers(len(edges))] += rng.normal(scale=[0.1, 2.0][seed // 2 % 2], size=(k, k))
    model = MarkovRandomField(np.full(5, k), rng.normal(size=5 * k), edges, tables.reshape(-1))
    of_metrics = min(
        t[a, b] + t[c, c] - t[a, c] - t[c, b] for t in tables for a in range(k) for b in range(k) for c in range(k)
    )
    of_pairs = min(t[a, a] + t[c, c] - t[a, c] - t[c, a] for t in tables for a in range(k) for c in range(k))
    for most in (1, 1 << 20):
        monkeypatch.setattr(label_moves, "MAX_CHECKED_NUMBERS", most)
        for slack, check in ((of_metrics, label_moves.check_expansion), (of_pairs, label_moves.check_swap)):
            if slack >= -1e-12:
                check(model)
            else:
                with pytest.raises(UnfitMethodError):
                    check(model)
            with pytest.raises(OutOfTimeError):
                check(model, Ended(0))


def test_weights_below_zero_turn_a_metric_around() -> None:
    rng = np.random.default_rng(0)
    signs = {}
    for weight in (1.0, -1.0):
        model = MarkovRandomField.from_patterns(
            rng.normal(size=(3, 5)), [(0, 1), (1, 2)], [np.eye(5)], 0, [1.0, weight]
        )
        assert model.shared_tables is not None
        try:
            label_moves.check_expansion(model)
            label_moves.check_swap(model)
            signs[weight] = True
        except UnfitMethodError:
            signs[weight] = False
    assert signs == {1.0: True, -1.0: False}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("method", ["expansion", "swap"])
def test_moves_without_a_check_of_the_tables(seed: int, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any table: a move is made only if it is a gain, and moves are counted."""
    rng = np.random.default_rng(seed)
    k, edges = 3, graphs.grid_edges(3, 3)
    model = MarkovRandomField(np.full(9, k), rng.normal(size=9 * k), edges, rng.normal(size=len(edges) * k * k))
    start = rng.integers(0, k, 9)
    best = getattr(label_moves, f"best_{method}")
    states, moves = best(model, start)
    assert moves >= k
    assert model.log_weight(states) >= model.log_weight(start)
    assert np.array_equal(best(model, start, Ended(0))[0], start)

    def late(*_: object) -> None:
        raise OutOfTimeError

    monkeypatch.setattr(f"fastmix.modes.{method}_route.check_{method}", late)
    result = most_probable(model, method=method, seed=0)
    assert result.stats["moves"][f"{method}s"] >= k
    assert result.log_weight == pytest.approx(model.log_weight(result.states))


@pytest.mark.parametrize("power", [1, 2])
def test_auto_swaps_where_expansions_do_not_fit(power: int) -> None:
    """Truncated quadratic tables are no metrics; those of truncated linear form are."""
    rng = np.random.default_rng(1)
    apart = np.abs(np.subtract.outer(np.arange(6), np.arange(6)))
    model = MarkovRandomField.image(rng.normal(size=(30, 30, 6)), -0.3 * np.minimum(apart**power, 4.0))
    if power == 2:
        with pytest.raises(UnfitMethodError):
            most_probable(model, method="expansion")
    result = most_probable(model, seed=0, time_limit=2.0)
    swaps = "swaps" in result.stats["moves"]
    assert (swaps or result.exact) if power == 2 else not swaps
    alone = most_probable(model.replace(), method="swap", seed=0, time_limit=2.0)
    assert "log_pairwise" not in vars(alone.model)
    assert alone.stats["moves"]["swaps"] >= 15
    assert alone.log_weight > model.log_weight(model.log_unary.reshape(-1, 6).argmax(axis=1))
