"""Seeds of random numbers: xoshiro128++ streams, one per chain (or per chunk of a large chain), from a single seed.

The generator is that of Blackman and Vigna (2021): 128 bits of state, period 2^128 - 1, passing the usual batteries of
tests in all its output bits. States are filled by SplitMix64 (Steele, Lea and Flood, 2014) from the seed and the number
of the stream, so streams start at unrelated points of the period: with a million streams of 2^40 numbers each, the
chance that any two overlap is about 2^(2 * 20 + 40 - 128) = 2^-48.

A number u of a stream is compared with thresholds t = round(p * 2^32), at most 2^32 - 1; u runs to 2^32 - 2 only (the
two middle values are joined), so that the largest threshold is a certainty: a probability is met to 1.5 * 2^-32, and 0
and 1 exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmix._memory import aligned_zeros

__all__ = ["MAX_THRESHOLD", "make_streams"]

MAX_THRESHOLD = 2**32 - 1

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def make_streams(seed: int, first: int, count: int) -> NDArray[np.uint32]:
    """The states (4, count) of the streams ``first`` to ``first + count - 1`` of a seed."""
    # SplitMix64 adds a constant per number, so that each can be computed by itself; a stream takes two of 64 bits.
    base = _mix(np.array([seed & (2**64 - 1)], dtype=np.uint64))
    numbers = np.arange(first, first + count, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = [_mix(base + (np.uint64(2) * numbers + np.uint64(j + 1)) * _GOLDEN) for j in range(2)]
    streams = aligned_zeros((4, count), np.uint32)
    for j, word in enumerate(words):
        streams[2 * j] = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        streams[2 * j + 1] = (word >> np.uint64(32)).astype(np.uint32)
    streams[0, (streams == 0).all(axis=0)] = 1  # the one state that the generator would never leave
    return streams


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
