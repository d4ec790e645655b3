"""How long chains remember the configurations they started at."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import oracle
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.sampling.sample import sample
from fastmix.sampling.starts import remembered_sweeps

INF = math.inf
NORMAL_QUANTILE = 4.9
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


# -- memory ---------------------------------------------------------------------------------------------------------

BURN_IN = 200


def decaying(mean: FloatArray, modes: IntArray, times: Sequence[float]) -> FloatArray:
    """Averages (E, K) over the burn-in of binary variables that forget the states of the modes exponentially."""
    n = modes.shape[1]
    burned = np.tile(mean[:, None], (1, len(times)))
    t = np.arange(BURN_IN * 100) / 100
    for k, (mode, time) in enumerate(zip(modes, times, strict=True)):
        share = 1.0 if time == INF else float(np.exp(-t / time).mean())
        at, away = 2 * np.arange(n) + mode, 2 * np.arange(n) + 1 - mode
        burned[at, k] = mean[at] + share * (1.0 - mean[at])
        burned[away, k] = 1.0 - burned[at, k]
    return burned


def binary(num_variables: int, seed: int = 0) -> tuple[MarkovRandomField, FloatArray, IntArray]:
    """Variables without edges, marginals of theirs, and a configuration."""
    rng = np.random.default_rng(seed)
    ones = rng.uniform(0.2, 0.8, num_variables)
    model = MarkovRandomField.from_tables([np.zeros(2)] * num_variables, [], [])
    return model, np.stack([1.0 - ones, ones], axis=1).ravel(), rng.integers(2, size=(1, num_variables))


@pytest.mark.parametrize("time", [2.0, 10.0, 20.0, 60.0, 100.0, 200.0, 600.0, 4000.0])
def test_memory_is_the_time_of_the_decay(time: float) -> None:
    model, mean, modes = binary(50)
    memory = remembered_sweeps(model, modes, decaying(mean, modes, [time]), BURN_IN, mean)
    assert memory == pytest.approx(time, rel=0.1)


def test_the_longest_memory_counts() -> None:
    model, mean, first = binary(50)
    modes = np.concatenate([first, 1 - first, first])
    times = [5.0, 4000.0, 10.0]
    memory = remembered_sweeps(model, modes, decaying(mean, modes, times), BURN_IN, mean)
    assert memory == pytest.approx(4000.0, rel=0.1)
    shuffled = remembered_sweeps(model, modes[::-1], decaying(mean, modes, times)[:, ::-1], BURN_IN, mean)
    assert shuffled == memory


def test_stuck_chains_remember_for_ever() -> None:
    model, mean, modes = binary(50)
    burned = decaying(mean, modes, [INF])
    assert remembered_sweeps(model, modes, burned, BURN_IN, mean) == INF
    # An answer that came from such chains: halves of them in two modes.
    halves = np.full(100, 0.5)
    memory = remembered_sweeps(model, modes, decaying(halves, modes, [INF]), BURN_IN, halves)
    assert memory > BURN_IN


@pytest.mark.parametrize("num_variables", [2, 50])
def test_independent_draws_remember_nothing(num_variables: int) -> None:
    for seed in range(20):
        model, mean, modes = binary(num_variables, seed)
        rng = np.random.default_rng([seed, 1])
        ones = (rng.random((BURN_IN, num_variables)) < mean[1::2]).mean(axis=0)
        burned = np.stack([1.0 - ones, ones], axis=1).reshape(-1, 1)
        # The overlap has a standard deviation of at most 0.5 / sqrt(200 n) of a variable, of at least 0.2 possible.
        chance = NORMAL_QUANTILE * 0.5 / 0.2 / math.sqrt(BURN_IN * num_variables)
        assert remembered_sweeps(model, modes, burned, BURN_IN, mean) <= 1.1 * chance / (1.0 - chance) * BURN_IN


def test_modes_close_to_the_answer_show_nothing() -> None:
    # The configuration differs from the answer in 10 * 0.04 variables: everything may well stay there.
    model = MarkovRandomField.from_tables([np.zeros(2)] * 10, [], [])
    modes = np.zeros((1, 10), dtype=np.int64)
    mean = np.tile([0.96, 0.04], 10)
    assert remembered_sweeps(model, modes, decaying(mean, modes, [INF]), BURN_IN, mean) == 0.0
    mean = np.tile([0.94, 0.06], 10)
    assert remembered_sweeps(model, modes, decaying(mean, modes, [INF]), BURN_IN, mean) == INF


def test_memory_without_modes() -> None:
    model, mean, _ = binary(3)
    nothing = np.zeros((0, 3), dtype=np.int64)
    assert remembered_sweeps(model, nothing, np.zeros((6, 0)), BURN_IN, mean) == 0.0


# -- chains that start there ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["dispersed", "random"])
@pytest.mark.parametrize("num_chains", [3, 64])
def test_swendsen_wang_where_unaries_forbid_states(num_chains: int, start: str) -> None:
    unaries = [[0.0, 0.4, -INF], [0.3, -INF, 0.2], [0.0, 0.1, 0.2], [-INF, 0.0, -INF], [-INF, 1.0, 0.0]]
    edges = [(0, 1), (0, 2), (1, 2), (2, 3), (2, 4)]
    tables = [coupling * np.eye(3) for coupling in (1.0, 0.6, 0.5, 0.3, 0.8)]
    model = MarkovRandomField.from_tables(unaries, edges, tables)
    exact = np.concatenate(oracle.node_marginals(model))
    for seed in range(3):
        result = sample(model, method="swendsen-wang", num_chains=num_chains, num_sweeps=2000, start=start, seed=seed)
        assert (model.log_weight(result.states) > -INF).all()
        assert (result.node_marginals[model.log_unary == -INF] == 0.0).all()
        assert (np.abs(result.node_marginals - exact) <= 6.0 * result.std_error + oracle.ATOL).all()
        assert result.status == Status.OK, result.stats["note"]
