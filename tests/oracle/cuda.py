"""Gibbs sampling with loops over everything and the random numbers of the CUDA kernels, from their definition."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import oracle
from fastmix.model import MarkovRandomField


@lru_cache(maxsize=1 << 14)
def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011)."""
    a, b, c, d = counter
    k, m = key
    for _ in range(10):
        left, right = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (right >> 32) ^ b ^ k, right & oracle.MASK, (left >> 32) ^ d ^ m, left & oracle.MASK
        k, m = (k + 0x9E3779B9) & oracle.MASK, (m + 0xBB67AE85) & oracle.MASK
    return a, b, c, d


def uniform(kernel: str, key: tuple[int, int], sweep: int, place: int, chain: int) -> int:
    """The 32-bit number that a kernel compares with the thresholds of an update."""
    low, high = sweep & oracle.MASK, (sweep >> 32) << 8
    if kernel == "packed":
        word, bit = divmod(chain, 32)
        planes = [r for tag in (0, 1) for r in philox((word, place, low, high | tag), key)]
        top = sum(((r >> bit) & 1) << k for k, r in enumerate(planes))
        return (top << 24) | (philox((word, place, low, high | (16 + bit)), key)[0] >> 8)
    if kernel == "packed-field":
        word, bit = divmod(chain, 32)
        number = bit >> 2
        tag = 2 * (bit & 3) + (number >> 2)
        return philox((word, place, low, high | tag), key)[number & 3]
    if kernel == "field":
        block, rest = divmod(place, 128)
        return philox((chain, 32 * block + rest % 32, low, high), key)[rest // 32]
    return philox((chain >> 2, place, low, high), key)[chain & 3]


class NaiveCuda:
    """Chains of a kernel, update by update."""

    def __init__(
        self, model: MarkovRandomField, states: np.ndarray, kernel: str, key: tuple[int, int], sweep: int = 0
    ) -> None:
        self.kernel, self.key, self.sweep_number = kernel, key, sweep
        self.use(model)
        self.x = [list(map(int, row)) for row in states]
        self.order = model.structure.visit_order[0].tolist()
        self.counts = np.zeros((len(model.log_unary), len(self.x)))
        self.conditionals = np.zeros_like(self.counts)

    def use(self, model: MarkovRandomField) -> None:
        """Sweep with the parameters of this model from now on."""
        self.model, self.updates = model, oracle.Updates(model)

    def sweep(self) -> None:
        for c, x in enumerate(self.x):
            for place, i in enumerate(self.order):
                u = uniform(self.kernel, self.key, self.sweep_number, place, c)
                p = self.updates.update(x, i, u)
                start = self.model.unary_offsets[i]
                self.conditionals[start : start + len(p), c] += p
            for i, state in enumerate(x):
                self.counts[self.model.unary_offsets[i] + state, c] += 1
        self.sweep_number += 1

    def sums(self, estimator: str) -> np.ndarray:
        return self.conditionals if estimator == "rao-blackwell" else self.counts
