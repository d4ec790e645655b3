from __future__ import annotations

import itertools
import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.chains.random_kernels import fill_numbers, next_number, random_site
from oracle import Stream, rotate, xoshiro

MASK32, MASK64 = 2**32 - 1, 2**64 - 1

# -- the reference: integers of Python ------------------------------------------------------------------------------


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK64
    return x ^ (x >> 31)


def splitmix(state: int) -> tuple[int, int]:
    """The next 64 bits of SplitMix64 and its state."""
    state = (state + 0x9E3779B97F4A7C15) & MASK64
    return mix(state), state


# -- compiled callers: the kernel's own functions cannot be called from Python ----------------------------------------


@numba.njit
def draw_all(streams, out):
    for k in range(len(out)):
        fill_numbers(streams[0], streams[1], streams[2], streams[3], out[k])


@numba.njit
def draw_one(stream, out):
    a, b, d, e = stream[0], stream[1], stream[2], stream[3]
    for k in range(len(out)):
        out[k], a, b, d, e = next_number(a, b, d, e)
    stream[0], stream[1], stream[2], stream[3] = a, b, d, e


@numba.njit
def draw_sites(stream, n, out):
    a, b, d, e = stream[0], stream[1], stream[2], stream[3]
    for k in range(len(out)):
        out[k], a, b, d, e = random_site(n, a, b, d, e)


def numbers(seed: int, num_streams: int, count: int, first: int = 0) -> np.ndarray:
    """Numbers (count, num_streams) of neighboring streams."""
    out = np.empty((count, num_streams), dtype=np.uint32)
    draw_all(make_streams(seed, first, num_streams), out)
    return out


# -- draw by draw -----------------------------------------------------------------------------------------------------


def test_xoshiro_reference_is_the_published_one():
    # First outputs from the state 1, 2, 3, 4, by hand from the published definition: rotl(s0 + s3, 7) + s0.
    state = [1, 2, 3, 4]
    assert xoshiro(state) == (5 << 7) + 1
    assert state == [1 ^ 4 ^ 2, 2 ^ 3 ^ 1, 3 ^ 1 ^ (2 << 9), rotate(4 ^ 2, 11)]


def test_splitmix_reference_is_the_published_one():
    # The first outputs for the seed 1234567, as given with many implementations of SplitMix64.
    state, out = 1234567, []
    for _ in range(3):
        value, state = splitmix(state)
        out.append(value)
    assert out == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_numbers_match_the_reference_draw_by_draw(seed):
    streams = make_streams(seed, 0, 5)
    expected = [Stream(streams[:, c]) for c in range(5)]
    out = numbers(seed, 5, 200)
    assert out.tolist() == [[stream.draw() for stream in expected] for _ in range(200)]


def test_one_stream_matches_and_leaves_its_state():
    state = make_streams(3, 0, 1)[:, 0].copy()
    reference = Stream(state)
    out = np.empty(1000, dtype=np.uint32)
    draw_one(state, out)
    assert out.tolist() == [reference.draw() for _ in range(1000)]
    assert state.tolist() == reference.state


def test_middle_values_are_joined_and_the_top_is_never_reached():
    # The result of a step from (s0, ., ., s3) is rotl(s0 + s3, 7) + s0: with s0 = 0 any number can be asked for.
    for value, expected in (
        (0, 0),
        (2**31 - 2, 2**31 - 2),
        (2**31 - 1, 2**31 - 1),
        (2**31, 2**31 - 1),
        (2**31 + 1, 2**31),
        (2**32 - 1, 2**32 - 2),
    ):
        state = np.array([0, 5, 7, rotate(value, 25)], dtype=np.uint32)
        assert xoshiro([int(s) for s in state]) == value
        out = np.empty(1, dtype=np.uint32)
        draw_one(state, out)
        assert out[0] == expected


@pytest.mark.parametrize("n", [1, 2, 3, 1000, 2**31 - 1])
def test_random_sites_match_the_reference(n):
    state = make_streams(8, 4, 1)[:, 0].copy()
    reference = Stream(state)
    out = np.empty(500, dtype=np.int64)
    draw_sites(state, n, out)
    assert out.tolist() == [reference.site(n) for _ in range(500)]
    assert 0 <= out.min() <= out.max() < n


def test_extreme_numbers_give_the_last_site():
    for n in (1, 2, 7, 2**31 - 1):
        high = low = 2**32 - 2
        assert (high * n + (low * n >> 32)) >> 32 == n - 1


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**64 - 1])
def test_streams_are_filled_by_splitmix(seed):
    streams = make_streams(seed, 0, 6)
    state, words = mix(seed), []
    for _ in range(12):
        word, state = splitmix(state)
        words.append(word)
    for c in range(6):
        first, second = words[2 * c], words[2 * c + 1]
        assert streams[:, c].tolist() == [first & MASK32, first >> 32, second & MASK32, second >> 32]


def test_streams_do_not_depend_on_their_count():
    together = make_streams(7, 0, 100)
    for first, count in ((0, 1), (3, 1), (40, 25), (99, 1)):
        np.testing.assert_array_equal(make_streams(7, first, count), together[:, first : first + count])
    assert make_streams(7, 5, 0).shape == (4, 0)


def test_streams_differ_between_numbers_and_seeds():
    states = np.concatenate([make_streams(seed, 0, 5000) for seed in (0, 1, 2, 2**40)], axis=1)
    assert np.unique(states, axis=1).shape == states.shape
    # Every word for itself too, up to the birthdays among 20,000 of 2^32: 0.05 expected, more than 6 with 1e-11.
    for word in states:
        assert len(np.unique(word)) >= states.shape[1] - 6


def test_no_stream_is_all_zero():
    # SplitMix64 gives every number once, so two words in a row that are zero do not occur; the guard is for safety.
    assert (make_streams(0, 0, 10_000) != 0).any(axis=0).all()


# -- quality ----------------------------------------------------------------------------------------------------------

FALSE_ALARM = 1e-6  # of a whole test, shared by its parts


def check_uniform(u: np.ndarray, false_alarm: float = FALSE_ALARM) -> None:
    """Bytes are uniform (chi-square, too good counts as well) and bits are balanced."""
    size = u.size
    parts = 4 * 2 + 32 * 2
    for shift in (0, 8, 16, 24):
        counts = np.bincount((u.ravel() >> np.uint32(shift)) & np.uint32(0xFF), minlength=256)
        statistic = ((counts - size / 256) ** 2).sum() / (size / 256)
        assert stats.chi2.sf(statistic, 255) > false_alarm / parts, f"bytes at {shift} are not uniform: {statistic}"
        assert stats.chi2.cdf(statistic, 255) > false_alarm / parts, f"bytes at {shift} are too even: {statistic}"
    limit = stats.norm.isf(false_alarm / parts) * math.sqrt(size / 4)
    for bit in range(32):
        ones = int(((u >> np.uint32(bit)) & np.uint32(1)).sum())
        assert abs(ones - size / 2) < limit, f"bit {bit} is set {ones} times of {size}"


def check_uncorrelated(pairs: list[tuple[np.ndarray, np.ndarray]], false_alarm: float = FALSE_ALARM) -> None:
    """The mean product of standardized numbers is normal with variance 1 / size."""
    for a, b in pairs:
        x, y = ((v.ravel() + 0.5) / 2**32 - 0.5 for v in (a.astype(float), b.astype(float)))
        z = 12 * (x * y).sum() / math.sqrt(x.size)
        assert abs(z) < stats.norm.isf(false_alarm / 2 / len(pairs)), f"correlated: {z:.1f} standard errors"


@pytest.mark.parametrize("seed", [0, 1])
def test_bytes_and_bits_within_and_across_streams(seed):
    u = numbers(seed, 256, 4096)
    check_uniform(u)
    check_uniform(numbers(seed, 1 << 18, 1))  # the first number of every stream
    check_uniform(u[:, 0])


@pytest.mark.parametrize("seed", [0, 1])
def test_no_serial_correlation_within_streams(seed):
    u = numbers(seed, 256, 4096)
    check_uncorrelated([(u[:-lag], u[lag:]) for lag in (1, 2, 3, 4, 8)])
    check_uncorrelated([(u[:-1, 0], u[1:, 0])])


def test_no_correlation_between_neighboring_streams_and_seeds():
    u, v = numbers(0, 256, 4096), numbers(1, 256, 4096)
    pairs = [(w[:, :-step], w[:, step:]) for w in (u, v) for step in (1, 2)]
    check_uncorrelated([*pairs, (u, v), (u[:, :-1], v[:, 1:])])
    # Not only on average over the streams: no single pair of neighbors either.
    check_uncorrelated([(u[:, c], u[:, c + 1]) for c in range(255)])


def test_pairs_of_numbers_fill_the_square():
    u = numbers(1, 128, 8192) >> np.uint32(28)
    for a, b in ((u[0::2], u[1::2]), (u[:, 0::2], u[:, 1::2])):
        counts = np.bincount((a * 16 + b).ravel(), minlength=256)
        statistic = ((counts - a.size / 256) ** 2).sum() / (a.size / 256)
        assert stats.chi2.sf(statistic, 255) > FALSE_ALARM / 2


def test_quality_checks_can_fail():
    counter = np.arange(1 << 16, dtype=np.uint32)
    with pytest.raises(AssertionError, match="too even"):
        check_uniform(counter * np.uint32(0x01010101))
    u = numbers(0, 256, 1 << 12)
    with pytest.raises(AssertionError, match="not uniform"):
        check_uniform(np.where(np.arange(256) < 4, u | np.uint32(1 << 31), u))  # 4 of 256 streams lose their top bit
    with pytest.raises(AssertionError, match="bit 3 is set"):
        check_uniform(np.where(np.arange(u.size).reshape(u.shape) % 128 == 0, u | np.uint32(8), u))
    with pytest.raises(AssertionError, match="correlated"):
        check_uncorrelated([(u, np.where(u < 2**26, u, u[::-1]))])  # one number in 64 is the same


# -- thresholds -------------------------------------------------------------------------------------------------------


def thresholds(probabilities) -> np.ndarray:
    """Probabilities as the numbers that uniforms are compared with, as :mod:`fastmix.chains.generator` says."""
    scaled = np.rint(np.asarray(probabilities, dtype=np.float64) * 2.0**32)
    return np.minimum(scaled, float(MAX_THRESHOLD)).astype(np.uint32)


def test_thresholds_of_certainties_are_exact():
    assert thresholds([0.0, 1.0]).tolist() == [0, MAX_THRESHOLD]
    assert thresholds(0.5) == 2**31
    assert thresholds(np.zeros((2, 0))).shape == (2, 0)
    assert thresholds([1 - 2**-53, 5e-324]).tolist() == [MAX_THRESHOLD, 0]


@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=50))
def test_thresholds_are_monotone_and_close(probabilities):
    values = sorted(probabilities)
    t = thresholds(values).astype(np.int64)
    assert (np.diff(t) >= 0).all()
    assert (np.abs(t / 2.0**32 - values) <= 2.0**-32).all()


def chance_below(t: int) -> int:
    """How many of the 2^32 numbers v have a joined value below t."""
    return t + (t >= 2**31)


def test_chance_of_a_threshold_counts_the_joined_values():
    for t in (0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, MAX_THRESHOLD - 1, MAX_THRESHOLD):
        lower = min(t, 2**31)  # u = v for the first half
        upper = min(max(t - (2**31 - 1), 0), 2**31)  # u = v - 1, from 2^31 - 1 on, for the second
        assert chance_below(t) == lower + upper
    assert chance_below(MAX_THRESHOLD) == 2**32


def test_a_full_threshold_is_always_and_zero_never_chosen():
    u = np.concatenate([numbers(2, 64, 4096).ravel(), np.array([0, 2**31 - 1, 2**32 - 2], dtype=np.uint32)])
    assert (u < thresholds(1.0)).all()
    assert not (u < thresholds(0.0)).any()


@pytest.mark.parametrize("p", [1e-3, 0.3, 0.5, 0.999])
def test_thresholds_are_met_at_their_rate(p):
    u = numbers(5, 256, 4096)
    hits = int((u < thresholds(p)).sum())
    # Binomial; Bernstein's tail at 1e-6 for both sides: sqrt(2 n p q L) + L, L = ln(2e6).
    log = math.log(2 / FALSE_ALARM)
    assert abs(hits - p * u.size) < math.sqrt(2 * u.size * p * (1 - p) * log) + log


def test_small_thresholds_split_the_line_without_gaps():
    # The numbers below cumulative thresholds 0 <= t1 <= t2 fall into states 0, 1, 2; every number into exactly one.
    t = thresholds(np.cumsum([0.2, 0.0, 0.5]))
    u = numbers(9, 16, 4096).ravel()
    states = (u[:, None] >= t[None, :]).sum(axis=1)
    assert set(np.unique(states)) == {0, 2, 3}  # the state of probability 0 never
    for k, (low, high) in enumerate(itertools.pairwise([0, *t.tolist(), 2**32])):
        np.testing.assert_array_equal(states == k, (u >= low) & (u < high))
