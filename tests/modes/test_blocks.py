"""Moves of blocks against enumeration of the block, and the search that makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from contexts import context_of
from fastmix import MarkovRandomField, most_probable
from fastmix._clock import Clock
from fastmix.errors import ModelError
from fastmix.modes import blocks, bucket_bounds
from fastmix.modes.blocks import BlockMoves, BlockSearch
from fastmix.modes.bucket_bounds import tighten_by_buckets
from fastmix.modes.mode_run import ModeRun


def some_model(rng: np.random.Generator, *, zeros: bool = False) -> MarkovRandomField:
    """Up to seven variables of up to three states, tables over one to four of them."""
    while True:
        n = int(rng.integers(1, 8))
        counts = rng.integers(1, 4, n).tolist()
        factors = []
        for _ in range(int(rng.integers(0, 9))):
            scope = rng.permutation(n)[: int(rng.integers(1, min(n, 4) + 1))].tolist()
            table = 2.0 * rng.normal(size=[counts[v] for v in scope])
            if zeros:
                table[rng.random(table.shape) < 0.2] = -np.inf
            factors.append((scope, table))
        try:
            return MarkovRandomField.from_factors(counts, factors)
        except ModelError:
            continue


def every_state(model: MarkovRandomField) -> tuple[Any, Any]:
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    return states, np.atleast_1d(model.log_weight(states))


@pytest.mark.nojit
def test_a_move_is_best_given_what_stays() -> None:
    rng = np.random.default_rng(0)
    moved = 0
    for _ in range(300):
        model = some_model(rng)
        moves = BlockMoves(model)
        states, weights = every_state(model)
        for log_limit in (0.0, 1.2, 2.3, 20.0):
            before = rng.integers(0, model.num_states)
            fixed = rng.random(model.num_variables) < 0.2
            after = before.copy()
            is_whole = moves.move(after, np.flatnonzero(~fixed), log_limit, rng)
            assert np.array_equal(after[fixed], before[fixed])
            assert moves.value(after) == pytest.approx(model.log_weight(after) - model.log_constant, abs=1e-9)
            assert moves.value(after) >= moves.value(before) - 1e-9
            if log_limit == 20.0:
                beside = (states[:, fixed] == before[fixed]).all(axis=1)
                assert model.log_weight(after) == pytest.approx(weights[beside].max(), abs=1e-9)
                assert is_whole == (not fixed.any())
            moved += int((after != before).sum())
    assert moved > 500


def test_a_move_changes_only_a_block_that_fits() -> None:
    """Given all variables that did not change, what did is best: no block was larger than its tables may be."""
    rng = np.random.default_rng(1)
    for _ in range(100):
        model = some_model(rng)
        moves = BlockMoves(model)
        states, weights = every_state(model)
        before = rng.integers(0, model.num_states)
        after = before.copy()
        moves.move(after, np.arange(model.num_variables), 1.5, rng)
        same = after == before
        beside = (states[:, same] == before[same]).all(axis=1)
        assert model.log_weight(after) == pytest.approx(weights[beside].max(), abs=1e-9)


@pytest.mark.parametrize("seed", range(30))
def test_a_search_of_blocks_finds_and_proves_small_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = some_model(rng, zeros=seed % 2 == 0)
    _, weights = every_state(model)
    if weights.max() == -np.inf:
        return
    run = ModeRun(model, context_of(seed, clock=Clock(5.0)))
    search = BlockSearch(run)
    search.go_on(rng.integers(0, model.num_states))
    assert run.log_weight == pytest.approx(weights.max(), abs=1e-9)
    assert run.is_exact


def noisy_or(seed: int, num_causes: int, num_findings: int) -> tuple[MarkovRandomField, dict[int, int]]:
    """A bipartite network of noisy or's as chains of tables over three variables, with most findings observed."""
    rng = np.random.default_rng(seed)
    counts = [2] * num_causes
    factors: list[Any] = [([d], np.log([0.98, 0.02])) for d in range(num_causes)]
    causes = rng.random(num_causes) < 0.1
    evidence = {}
    for _ in range(num_findings):
        last = len(counts)
        counts.append(2)
        factors.append(([last], np.log([0.99, 0.01])))
        is_on = False
        for d in rng.choice(num_causes, int(rng.integers(2, 6)), replace=False).tolist():
            weight = rng.uniform(0.2, 0.95)
            table = np.array([[[1.0, 0.0], [1.0 - weight, weight]], [[0.0, 1.0], [0.0, 1.0]]])
            with np.errstate(divide="ignore"):
                factors.append(([last, d, len(counts)], np.log(table)))
            last = len(counts)
            counts.append(2)
            is_on = is_on or bool(causes[d] and rng.random() < weight)
        evidence[last] = int(is_on)
    return MarkovRandomField.from_factors(counts, factors), evidence


def test_models_of_factors_are_solved_by_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_bounds, "BUCKET_BITS", (2,))  # so that no bound ends the search
    model, evidence = noisy_or(3, 40, 40)
    truth = most_probable(model, evidence=evidence, method="exact")
    found = most_probable(model, evidence=evidence, method="search", time_limit=3.0, seed=0)
    assert found.stats["moves"]["climbs of blocks"] >= 1
    assert found.log_weight == pytest.approx(truth.log_weight)


def test_bounds_by_split_products_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    for number in range(150):
        model = some_model(rng, zeros=number % 3 == 0)
        _, weights = every_state(model)
        run = ModeRun(model, context_of())
        before = run.upper_bound
        monkeypatch.setattr(bucket_bounds, "BUCKET_BITS", (2, 3) if number % 2 else (20,))
        tighten_by_buckets(run)
        assert weights.max() - 1e-9 <= run.upper_bound <= before + 1e-9
        if model.num_factors and not number % 2 and weights.max() > -np.inf:
            assert run.upper_bound == pytest.approx(weights.max(), abs=1e-6)  # nothing was split


def test_a_bound_without_splits_ends_the_search() -> None:
    model, evidence = noisy_or(3, 30, 20)
    found = most_probable(model, evidence=evidence, method="search", time_limit=20.0, seed=0)
    assert found.exact
    assert found.log_weight == pytest.approx(most_probable(model, evidence=evidence, method="exact").log_weight)


def test_the_same_seed_moves_the_same_blocks() -> None:
    model, evidence = noisy_or(5, 20, 15)
    reduced = model.condition(evidence)
    ends = []
    for seed in (1, 1, 2):
        moves = BlockMoves(reduced)
        rng = np.random.default_rng(seed)
        states = np.zeros(reduced.num_variables, dtype=np.int64)
        for _ in range(3):
            moves.move(states, np.arange(len(states)), 3.0, rng)
        ends.append(states.tolist())
    assert ends[0] == ends[1]


def test_tables_of_a_move_have_few_entries_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = noisy_or(5, 20, 15)
    everything = np.arange(model.num_variables)
    monkeypatch.setattr(blocks, "MAX_BLOCK_ENTRIES", 8)  # tables are small then
    moves = BlockMoves(model)
    states = np.zeros(model.num_variables, dtype=np.int64)
    before = moves.value(states)
    assert not moves.move(states, everything, 50.0, np.random.default_rng(0))
    assert moves.value(states) >= before
    monkeypatch.undo()
    assert moves.move(states, everything, 50.0, np.random.default_rng(0))


def test_regions_are_connected_until_a_component_ends() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (4, 5)], coupling=1.0)
    rng = np.random.default_rng(0)
    for size in range(1, 9):
        region = BlockMoves(model).region(size, rng).tolist()
        assert len(region) == len(set(region)) == min(size, 6)
        if size <= 2:
            assert all(abs(v - region[0]) < 2 for v in region)
