"""Random numbers of CUDA kernels: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, 2011).

It is a bijection of 128 bits, keyed by the seed, applied to the place where the numbers are used (sweep, variable,
chains). There is no state to keep, and neither the shape of a launch nor the number of chains can change what a chain
draws.
"""
# Types inside kernels are those of their compiler, which mypy does not know.
# mypy: ignore-errors

from __future__ import annotations

from numba import cuda, uint32, uint64

__all__ = ["counter_top", "philox"]

_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85

# Numba widens mixed integers, and takes a signed index for one that may count from the end: hence all the casts.


@cuda.jit(device=True)
def philox(a, b, c, d, key0, key1):
    """Four random words for the counter (a, b, c, d); a product of 32-bit words is one instruction."""
    for _ in range(10):
        p = uint64(a) * uint64(_MULTIPLIER_0)
        q = uint64(c) * uint64(_MULTIPLIER_1)
        a = uint32(uint32(q >> uint64(32)) ^ b ^ key0)
        c = uint32(uint32(p >> uint64(32)) ^ d ^ key1)
        b = uint32(q)
        d = uint32(p)
        key0 = uint32(uint64(key0) + uint64(_WEYL_0))
        key1 = uint32(uint64(key1) + uint64(_WEYL_1))
    return a, b, c, d


@cuda.jit(device=True)
def counter_top(sweep, tag):
    """The last word of a counter: a tag below 256, and the sweep beyond 32 bits."""
    return uint32(((sweep >> uint64(32)) << uint64(8)) | uint64(tag))
