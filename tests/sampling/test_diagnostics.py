from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix._student import student_quantile
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.sampling import diagnostics
from fastmix.sampling.diagnostics import BatchStatistics, Summary, assess_mixing, log_odds_swings, summarize
from oracle.diagnostics import (
    INF,
    assert_sound,
    collect,
    even,
    free_model,
    indicators,
    markov,
    naive_batches,
    naive_parts,
    naive_r_hat,
    naive_summary,
    with_complement,
)

FloatArray = NDArray[np.float64]


# -- the naive twin, which keeps every draw -------------------------------------------------------------------------


def some_draws(
    rng: np.random.Generator, model: MarkovRandomField, shape: tuple[int, int], stay: float
) -> NDArray[np.int64]:
    """Allowed states (*shape, n) of chains that keep those of a variable with some probability; with 1, all stuck."""
    draws = np.zeros((*shape, model.num_variables), dtype=np.int64)
    for i, vector in enumerate(oracle.unary_vectors(model)):
        draws[:, :, i] = rng.choice([a for a, value in enumerate(vector) if value > -INF], size=shape)
    for t in range(1, shape[1]):
        kept = rng.random((shape[0], model.num_variables)) < stay
        draws[:, t] = np.where(kept, draws[:, t - 1], draws[:, t])
    return draws


@given(
    seed=st.integers(0, 2**32 - 1),
    model=strategies.models(min_variables=1, max_variables=4, scales=(0.3, 2.0)),
    num_chains=st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9]),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=9),
    stretch=st.sampled_from([1.0, 1.0, 2.0, 0.6]),
    stay=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    smooth=st.booleans(),
    change=st.sampled_from(["anything", "nothing", "model"]),
    memory=st.sampled_from([0.0, 1.0, 7.5, 1e9, INF]),
)
def test_same_as_keeping_every_draw(
    seed: int,
    model: MarkovRandomField,
    num_chains: int,
    lengths: list[int],
    stretch: float,
    stay: float,
    smooth: bool,
    change: str,
    memory: float,
) -> None:
    num_sweeps = sum(lengths)
    values = indicators(some_draws(np.random.default_rng(seed), model, (num_chains, num_sweeps), stay), model)
    if smooth:  # conditional probabilities, between these and uniform ones
        allowed = [np.array(vector) > -INF for vector in oracle.unary_vectors(model)]
        uniform = np.concatenate([row / row.sum() for row in allowed])
        values = 0.7 * values + 0.3 * uniform[:, None, None]
    swings = {"anything": None, "nothing": np.zeros(model.num_variables), "model": log_odds_swings(model)}[change]
    expected = math.ceil(stretch * num_sweeps)
    summary = summarize(collect(values, lengths, expected), model, swings=swings, memory=memory)
    naive = naive_summary(
        values, model, lengths, expected=expected, swings=None if swings is None else swings.tolist(), memory=memory
    )
    for name, value in naive.items():
        np.testing.assert_allclose(getattr(summary, name), value, rtol=1e-9, atol=1e-12, err_msg=name)
    assert (summary.memory, summary.num_chains, summary.num_sweeps) == (memory, num_chains, num_sweeps)
    assert_sound(summary, model)


def test_the_naive_twin_can_fail() -> None:
    # With other parts, or with a neighbor forgotten, it would differ.
    model = MarkovRandomField.ising([(0, 1)], 0.5, num_variables=3)
    draws = some_draws(np.random.default_rng(0), model, (3, 60), 0.8)
    draws[:, :, 1] = np.arange(60) >= 30  # the slow one
    values, lengths = indicators(draws, model), even(60, 20)
    errors = summarize(collect(values, lengths), model).std_error
    longer = naive_summary(values, model, lengths, expected=120)["std_error"]
    alone = naive_summary(values, free_model([2] * 3), lengths)["std_error"]
    assert np.abs(errors - longer).max() > 1e-3
    assert abs(errors[0] - alone[0]) > 1e-3
    np.testing.assert_allclose(errors[2:], alone[2:], rtol=1e-9)


# -- the verdict ----------------------------------------------------------------------------------------------------


def summary_of(r_hat: list[float], ess: list[float], *, memory: float = 1.0, num_chains: int = 4) -> Summary:
    n = len(r_hat)
    return Summary(
        mean=np.zeros(2 * n),
        std_error=np.zeros(2 * n),
        ess=np.array(ess),
        r_hat=np.array(r_hat),
        memory=memory,
        num_chains=num_chains,
        num_sweeps=1000,
    )


@pytest.mark.parametrize(
    ("r_hat", "ess", "status", "words"),
    [
        ([1.0, 1.009], [500.0, 800.0], Status.OK, "at most 1.009 (variable 1), the effective sample size at least 500"),
        ([1.0, 1.2, 1.011], [500.0] * 3, Status.NOT_MIXED, "R-hat is 1.2 for variable 1, above 1.01 (2 of 3 variables"),
        ([1.0, 1.0], [500.0, 399.0], Status.NOT_MIXED, "size is 399 for variable 1, below 400 (1 of 2 variables)"),
        ([INF], [0.0], Status.NOT_MIXED, "R-hat is inf"),
    ],
)
def test_verdict(r_hat: list[float], ess: list[float], status: Status, words: str) -> None:
    found, sentence = assess_mixing(summary_of(r_hat, ess))
    assert found is status
    assert words in sentence
    assert sentence.endswith(".")
    named = assess_mixing(summary_of(r_hat, ess), names=list("abc"))[1]
    assert named == sentence.replace("variable 0", "variable a").replace("variable 1", "variable b")


@pytest.mark.parametrize("num_chains", [1, 2, 3, 4, 64])
def test_one_or_two_chains_need_a_certificate(num_chains: int) -> None:
    summary = summary_of([1.0], [500.0], num_chains=num_chains)
    status, sentence = assess_mixing(summary)
    assert assess_mixing(summary, certified=True)[0] is Status.OK
    if num_chains > 2:
        assert status is Status.OK
    else:
        assert status is Status.NOT_MIXED
        assert "one or two chains cannot show that others agree, and there is no certificate" in sentence
        assert "run at least 3" in sentence
    # A certificate is no excuse for chains that disagree.
    assert assess_mixing(summary_of([1.2], [500.0], num_chains=num_chains), certified=True)[0] is Status.NOT_MIXED


@pytest.mark.parametrize(
    ("memory", "words"),
    [(0.0, None), (39.9, None), (40.1, "for 40.1 sweeps, of which all chains together made 99.8"), (INF, "inf")],
)
def test_what_is_remembered_must_fit_a_hundred_times(memory: float, words: str | None) -> None:
    # 4 chains of 1000 sweeps.
    status, sentence = assess_mixing(summary_of([1.0], [500.0], memory=memory))
    assert status is (Status.OK if words is None else Status.NOT_MIXED)
    assert words is None or words in sentence
    assert "nan" not in sentence


# -- the accumulator ------------------------------------------------------------------------------------------------


def random_statistics(seed: int, num_batches: int = 7) -> tuple[BatchStatistics, list[tuple[FloatArray, int]]]:
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(num_batches):
        length = int(rng.integers(1, 30))
        ones = rng.random((3, 4)) * length
        batches.append((np.stack([length - ones, ones], axis=1).reshape(6, 4), length))
    statistics = BatchStatistics(6, 4, sum(length for _, length in batches))
    for sums, length in batches:
        statistics.add(sums, length)
    return statistics, batches


def test_checkpoint_round_trip_is_exact() -> None:
    whole, batches = random_statistics(1)
    part = BatchStatistics(6, 4, whole.expected_sweeps)
    for k, (sums, length) in enumerate(batches):
        part.add(sums, length)
        arrays = part.to_arrays()
        part.sums[:] = part.part_sums[:] = np.nan  # the checkpoint has copies
        assert all(isinstance(value, np.ndarray) for value in arrays.values())
        part = BatchStatistics(6, 4, 1)
        part.restore({**arrays, "other": np.zeros(3)})
        assert part.num_batches == k + 1
    for name, value in whole.to_arrays().items():
        np.testing.assert_array_equal(part.to_arrays()[name], value, err_msg=name)
    left, right = summarize(part, free_model([2] * 3)), summarize(whole, free_model([2] * 3))
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def test_empty_checkpoint_round_trip() -> None:
    part = BatchStatistics(2, 3, 1)
    part.restore(BatchStatistics(2, 3, 5).to_arrays())
    part.add(np.full((2, 3), 2.5), 5)
    assert (part.num_sweeps, part.num_parts, part.num_part_sweeps) == (5, 0, 5)


@pytest.mark.parametrize(
    "change",
    [{"squares": None}, {"squares": np.zeros(5)}, {"sums": np.zeros((6, 3))}, {"part": None}, {"num_batches": [1, 2]}],
)
def test_broken_checkpoints(change: dict[str, Any]) -> None:
    arrays: dict[str, Any] = {**random_statistics(0)[0].to_arrays(), **change}
    with pytest.raises((LookupError, TypeError, ValueError)):  # which the sampler takes for a damaged file
        BatchStatistics(6, 4, 1).restore({name: value for name, value in arrays.items() if value is not None})


def test_order_of_chains() -> None:
    model = free_model([2] * 3)
    statistics, batches = random_statistics(2, num_batches=8)
    summary = summarize(statistics, model)
    shuffled = BatchStatistics(6, 4, statistics.expected_sweeps)
    for sums, length in batches:
        shuffled.add(sums[:, [2, 0, 3, 1]], length)
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_allclose(getattr(summarize(shuffled, model), name), getattr(summary, name), rtol=1e-10)


def test_order_of_batches_within_a_part() -> None:
    # The first batch gives the reference of the squares, which changes nothing but rounding.
    ones = markov(np.random.default_rng(4), (3, 8), 400, 0.3, 0.5)
    order = [3, 0, 2, 1, 6, 7, 5, 4]
    turned = ones.reshape(3, 8, 8, 50)[:, :, order].reshape(ones.shape)
    left, right = (summarize(collect(with_complement(x), even(400, 8)), free_model([2] * 3)) for x in (ones, turned))
    for name in ("mean", "std_error", "ess", "r_hat"):
        np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=1e-9)
    # Across the parts, here halves, it matters.
    other = ones.reshape(3, 8, 8, 50)[:, :, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(ones.shape)
    assert not np.allclose(
        summarize(collect(with_complement(other), even(400, 8)), free_model([2] * 3)).r_hat, left.r_hat
    )


def test_number_of_parts() -> None:
    per_chain = []
    for num_chains in range(1, 20):
        statistics = BatchStatistics(2, num_chains, 96)
        for _ in range(96):
            statistics.add(np.full((2, num_chains), 0.5), 1)
        per_chain.append(statistics.num_parts + 1)
    assert per_chain == [16, 8, 6, 4, 4, 3, 3] + [2] * 12


@pytest.mark.parametrize(
    ("num_chains", "expected", "lengths", "parts"),
    [
        (8, 100, [25] * 4, [50, 50]),
        (8, 100, [20] * 5, [60, 40]),  # the middle batch counts to the first part
        (8, 100, [40, 40, 20], [40, 60]),  # the middle of the second is at 60
        (8, 100, [90, 10], [90, 10]),
        (8, 100, [10, 90], [10, 90]),
        (8, 100, [30], [30]),  # ended early
        (8, 100, [30, 30], [60]),
        (8, 10, [8, 20, 20], [8, 40]),  # ran over
        (8, 10, [20, 20], [40]),
        (8, 0, [5, 5], [10]),
        (3, 120, [10] * 12, [20] * 6),
        (3, 120, [50, 10, 60], [50, 10, 60]),  # middles at 25, 55 and 90, in parts 1, 2 and 4 of 20 sweeps
        (3, 100, [10] * 10, [20, 10, 20, 20, 10, 20]),  # parts of 16 2/3
        (1, 160, [5] * 32, [10] * 16),
        (1, 160, [40] * 4, [40] * 4),  # fewer batches than parts
    ],
)
def test_parts(num_chains: int, expected: int, lengths: list[int], parts: list[int]) -> None:
    values = with_complement(markov(np.random.default_rng(0), (1, num_chains), sum(lengths), 0.5, 0.0))
    statistics = collect(values, lengths, expected)
    pieces = naive_batches(parts)
    assert naive_parts(lengths, num_chains, expected) == pieces
    assert (statistics.num_parts, statistics.num_part_sweeps) == (len(parts) - 1, parts[-1])
    np.testing.assert_array_equal(statistics.sums, values.sum(axis=2))
    np.testing.assert_array_equal(statistics.part_sums, values[:, :, pieces[-1][0] :].sum(axis=2))
    means = [(b - a, values[:, :, a:b].mean(axis=2)) for a, b in pieces[:-1]]
    squares = sum((n * ((m - statistics.reference[:, None]) ** 2).sum(axis=1) for n, m in means), np.zeros(2))
    np.testing.assert_allclose(statistics.part_squares, squares, atol=1e-12)
    groups = [row[a:b] for row in values[0] for a, b in pieces]
    np.testing.assert_allclose(summarize(statistics, free_model([2])).r_hat, naive_r_hat(groups), rtol=1e-9)


@pytest.mark.parametrize("num_chains", [4, 8])
def test_a_short_last_part_does_not_raise_r_hat(num_chains: int) -> None:
    ones = markov(np.random.default_rng(0), (200, num_chains), 1050, 0.5, 0.0)
    statistics = collect(with_complement(ones), [50] * 21, expected=2000)
    assert statistics.num_part_sweeps == 50
    assert summarize(statistics, free_model([2] * 200)).r_hat.max() < 1.01


def test_chain_variances() -> None:
    statistics, batches = random_statistics(4)
    means = np.sum([sums for sums, _ in batches], axis=0) / sum(length for _, length in batches)
    np.testing.assert_allclose(statistics.chain_variances(), means.var(axis=1, ddof=1))


def test_memory_stays_at_two_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnostics, "SUM_CHUNK_ENTRIES", 1 << 14)
    num_entries, num_chains = 20_000, 32
    sums = np.full((num_entries, num_chains), 5.0)
    model = free_model([2] * (num_entries // 2))
    tracemalloc.start()
    try:
        statistics = BatchStatistics(num_entries, num_chains, 100)
        for _ in range(10):
            statistics.add(sums, 10)
        summarize(statistics, model)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Two arrays, and twenty of one number an entry.
    assert peak < 8 * num_entries * (2 * num_chains + 20) + 2_000_000


def test_quantiles_of_student_variables_are_those_of_scipy():
    special = pytest.importorskip("scipy.special")
    for freedom in (*range(1, 60), 499, 500, 1000, 1001, 5000, 10**9):
        for probability in (0.5, 0.6, 0.9, 0.975, 0.99865, 0.99999):
            expected = float(special.stdtrit(freedom, probability))
            assert student_quantile(freedom, probability) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert student_quantile(0, 0.975) == math.inf
