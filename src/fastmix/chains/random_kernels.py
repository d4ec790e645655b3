"""Compiled random numbers: steps of the generator xoshiro128++, whose streams :mod:`fastmix.chains.generator` makes.

A stream is four 32-bit words ``s0, s1, s2, s3``. Functions take the words and return the number that they drew with
the next words, so that a loop can keep them in registers. Every operation is wrapped in ``uint32``, because Numba
widens 32-bit integers.
"""

from __future__ import annotations

import numpy as np
from numba import uint32, uint64

from fastmix._jit import inner

__all__ = ["fill_numbers", "next_number", "next_uniform", "random_site"]


@inner
def _rotate(x, k):
    """The bits of a word, rotated to the left by k."""
    return uint32(uint32(x << uint32(k)) | uint32(x >> uint32(32 - k)))


@inner
def next_number(s0, s1, s2, s3):
    """A random number from 0 to 2^32 - 2, and the next words of the stream."""
    value = uint32(_rotate(uint32(s0 + s3), 7) + s0)
    shifted = uint32(s1 << uint32(9))
    s2 = uint32(s2 ^ s0)
    s3 = uint32(s3 ^ s1)
    s1 = uint32(s1 ^ s2)
    s0 = uint32(s0 ^ s3)
    s2 = uint32(s2 ^ shifted)
    s3 = _rotate(s3, 11)
    return uint32(value - uint32(value >> uint32(31))), s0, s1, s2, s3


@inner
def next_uniform(s0, s1, s2, s3):
    """A number strictly between 0 and 1, an odd multiple of 2^-54 made of 53 random bits, and the next words."""
    high, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
    low, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
    bits = (uint64(high) << uint64(21)) | (uint64(low) >> uint64(11))
    return (np.float64(bits) + 0.5) * (1.0 / 9007199254740992.0), s0, s1, s2, s3


@inner
def random_site(n, s0, s1, s2, s3):
    """A site below n, uniform to about 2^-32, from two random numbers, and the next words."""
    high, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
    low, s0, s1, s2, s3 = next_number(s0, s1, s2, s3)
    carry = uint64(uint64(low) * uint64(n)) >> uint64(32)
    return np.int64(uint64(uint64(high) * uint64(n) + carry) >> uint64(32)), s0, s1, s2, s3


@inner
def fill_numbers(s0, s1, s2, s3, out):
    """Draw one number of every stream into ``out``; the words are arrays here, and move on in place."""
    for c in range(len(out)):
        out[c], s0[c], s1[c], s2[c], s3[c] = next_number(s0[c], s1[c], s2[c], s3[c])
