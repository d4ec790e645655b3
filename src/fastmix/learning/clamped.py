"""Moments given what is observed, by chains: for rows whose missing values have too many joint states to list.

The missing values of a row are updated one after another given the others and what is observed, which stays as it is.
Chains go on from round to round while the parameters change. There are two for every row, or more, from starts of their
own: how they differ tells whether they forget where they were, whatever the observed values do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING

__all__ = ["ClampedRows"]

_PAIRS = 256  # of chains at least, so that a correlation over them means something


class ClampedRows:
    """C pairs of chains for each of some rows (R, n), and means over them with their weights (R,) among all data."""

    def __init__(
        self, coordinates: Coordinates, states: NDArray[Any], weights: FloatArray, rng: np.random.Generator
    ) -> None:
        structure, count = coordinates.structure, 2 * -(-_PAIRS // len(states))
        check_memory(
            20.0 * count * len(states) * coordinates.num_contrasts, "chains for rows with missing values",
            "learn from fewer rows",
        )  # fmt: skip
        self.coordinates, self.rng = coordinates, rng
        self._weights = np.tile(weights / count, count)
        self.share = float(weights.sum())  # of all data
        self.size = 1.0 / float(self._weights @ self._weights)  # chains of equal weight that have as little noise
        given = np.tile(states, (count, 1))
        gone = given == MISSING
        self.set_states(np.where(gone, rng.integers(structure.num_states, size=given.shape), given))
        bounds = np.concatenate([[0], np.cumsum(gone.sum(axis=1))])
        order = structure.visit_order[0].astype(np.int64)  # that of other chains: bounds on their bias hold for these
        self._where = bounds, order[np.nonzero(gone[:, order])[1]]  # the missing variables of all rows

    def get_states(self) -> IntArray:
        """Configurations (2 C R, n), second chains after all first ones."""
        return self._states.copy()

    def set_states(self, states: NDArray[Any]) -> None:
        """Go on from these."""
        self._states = np.asarray(states, dtype=np.int64)
        self._y = self.coordinates.encode(self._states)

    def load(self, v: FloatArray) -> None:
        """Let the parameters be v."""
        self._c, self._matrix = v[: self.coordinates.num_contrasts], self.coordinates.matrix(v)

    def sweep(self, num_sweeps: int, check: Callable[[], None]) -> None:
        """Update all missing values of every row, so many times; ``check`` is called after each."""
        from fastmix.learning.kernels import clamped_sweep

        own, (bounds, missing) = self.coordinates, self._where
        for _ in range(num_sweeps):
            uniforms = self.rng.random(len(missing))
            clamped_sweep(
                self._y, self._states, bounds, missing, uniforms, self._c, self._matrix, own.structure.num_states,
                own.starts, *own.flat_tables,
            )  # fmt: skip
            check()

    def measure(self, num_sweeps: int, check: Callable[[], None]) -> tuple[list[FloatArray], float]:
        """Moments (size,) from either half of the sweeps, an even number, and how much chains still know afterwards:

        the correlation, from one end to the other, of the difference between the two chains of every row in the
        direction in which these differ most.
        """
        rows, d = len(self._y) // 2, self.coordinates.num_contrasts
        before = self._y[:rows] - self._y[rows:]
        halves = []
        for _ in range(2):
            means, products = np.zeros(d), np.zeros((d, d))
            for _ in range(num_sweeps // 2):
                self.sweep(1, check)
                weighted = self._weights[:, None] * self._y
                means += weighted.sum(axis=0)
                products += weighted.T @ self._y
            halves.append(self.coordinates.gather(means, products) / (num_sweeps // 2))
        axis = np.linalg.eigh(before.T @ before)[1][:, -1]
        first, last = before @ axis, (self._y[:rows] - self._y[rows:]) @ axis
        size = float(np.linalg.norm(first) * np.linalg.norm(last))
        return halves, float(first @ last) / size if size else 0.0
