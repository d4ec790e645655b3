"""Chains given what is observed: for rows whose missing values have too many joint states to list.

The missing values of a row are updated one after another given the others and what is observed, which stays as it is.
There are two chains for every row, or more, from starts of their own: how they differ tells whether they forget where
they were, whatever the observed values do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix._memory import check_memory
from fastmix.chains.base import ParameterSets
from fastmix.chains.host import HostChains
from fastmix.chains.layout import Layout
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING
from fastmix.learning.tuning import MIN_CLAMPED_PAIRS

__all__ = ["ClampedChains"]


class ClampedChains(HostChains):
    """C pairs of chains for each of some rows (R, n), in which what is observed never changes.

    Configurations (2 C R, n) are first chains of all rows, C times, then second chains. They are chains as others are,
    and read in the same way; what learning needs of them beside is :meth:`measure`. They have a sweep of their own:
    every row has other variables to update, where other chains share their tables.

    Attributes
    ----------
    weight_share : float
        Weight of the rows among all data.
    effective_size : float
        Number of chains of equal weight whose means have as much noise.
    """

    def __init__(
        self, coordinates: Coordinates, states: NDArray[Any], weights: FloatArray, rng: np.random.Generator
    ) -> None:
        copies = 2 * -(-MIN_CLAMPED_PAIRS // len(states))
        check_memory(
            20.0 * copies * len(states) * coordinates.num_contrasts,
            "chains for rows with missing values",
            "learn from fewer rows",
        )
        self.coordinates = coordinates
        self.structure = coordinates.structure
        self.layout = Layout(self.structure, block_sites=1)
        self.num_chains = copies * len(states)
        self.weight_share = float(weights.sum())
        self._weights = np.tile(weights / copies, copies)
        self.effective_size = 1.0 / float(self._weights @ self._weights)
        self._rng = rng
        self._counts = np.zeros((int(self.structure.unary_offsets[-1]), self.num_chains))

        # Missing values begin anywhere.
        given = np.tile(states, (copies, 1))
        gone = given == MISSING
        drawn = rng.integers(self.structure.num_states, size=given.shape)
        self.set_states(np.where(gone, drawn, given))

        # The missing variables of all rows, in the order of other chains: bounds on their bias hold for these.
        order = self.structure.visit_order[0].astype(np.int64)
        self._bounds = np.concatenate([[0], np.cumsum(gone.sum(axis=1))])
        self._missing = order[np.nonzero(gone[:, order])[1]]

    # -- parameters ---------------------------------------------------------------------------------------------------

    def load(self, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> None:
        """Let the parameters be ``coefficients[0] @ thetas``, without -inf."""
        self.sets = self._read_sets(thetas, coefficients)
        v, _ = self.coordinates.from_parameters(self.sets.theta(0))
        self._set_contrasts(v)

    def load_contrasts(self, v: FloatArray) -> None:
        """Let the parameters be v, in coordinates."""
        self.sets = ParameterSets.of(self.coordinates.to_parameters(v))
        self._set_contrasts(v)

    def _set_contrasts(self, v: FloatArray) -> None:
        """Keep the fields and the matrix of couplings that sweeps read."""
        self._fields = v[: self.coordinates.num_contrasts]
        self._matrix = self.coordinates.matrix(v)

    # -- configurations -----------------------------------------------------------------------------------------------

    def _lanes(self) -> NDArray[Any]:
        """Configurations (n, 2 C R), not to be changed."""
        kind = np.uint8 if self.structure.num_states.max(initial=1) <= 256 else np.uint16
        return np.ascontiguousarray(self._states.T, dtype=kind)

    def _put(self, lanes: NDArray[Any]) -> None:
        """Continue from configurations (n, 2 C R)."""
        self._states = np.ascontiguousarray(lanes.T, dtype=np.int64)
        self._y = self.coordinates.encode(self._states)

    def get_random_state(self) -> NDArray[np.uint64]:
        """The state of the generator: two numbers of 128 bits, and the half of a draw that is left."""
        state = self._rng.bit_generator.state
        numbers = [state["state"]["state"], state["state"]["inc"]]
        parts = [part for number in numbers for part in (number & (2**64 - 1), number >> 64)]
        return np.array([*parts, state["has_uint32"], state["uinteger"]], dtype=np.uint64)

    def set_random_state(self, state: NDArray[np.uint64]) -> None:
        """Continue with the random numbers that follow a state from :meth:`get_random_state`."""
        parts = [int(part) for part in state]
        self._rng.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": parts[0] | parts[1] << 64, "inc": parts[2] | parts[3] << 64},
            "has_uint32": parts[4],
            "uinteger": parts[5],
        }

    # -- moving -------------------------------------------------------------------------------------------------------

    def sweep(self, num_sweeps: int, *, collect: bool = False) -> None:
        """Update all missing values of every row, so many times; with ``collect`` states are counted after each."""
        from fastmix.learning.residual_kernels import clamped_sweep

        for _ in range(num_sweeps):
            clamped_sweep(
                self._y,
                self._states,
                self._bounds,
                self._missing,
                self._rng.random(len(self._missing)),
                self._fields,
                self._matrix,
                self.structure.num_states,
                self.coordinates.starts,
                *self.coordinates.flat_tables,
            )
            if collect:
                entries = self.structure.unary_offsets[:-1] + self._states
                self._counts[entries, np.arange(self.num_chains)[:, None]] += 1.0
                self._swept += 1
            self.clock.check()

    def take_sums(self) -> FloatArray:
        """Numbers of sweeps that ended in each state since the last call, (entries of log_unary, 2 C R)."""
        result = self._counts
        self._counts = np.zeros_like(result)
        self._swept = 0
        return result

    def mean_contrasts(self, num_sweeps: int) -> FloatArray:
        """Means of the contrasts of all variables over so many further sweeps, (2 C R, D)."""
        total = np.zeros_like(self._y)
        for _ in range(num_sweeps):
            self.sweep(1)
            total += self._y
        return total / num_sweeps

    def measure(self, num_sweeps: int) -> tuple[list[FloatArray], float]:
        """Moments (size,) from either half of the sweeps, an even number, and how much chains still know afterwards.

        Moments are weighted means among all data. What chains know is the correlation, from one end to the other, of
        the difference between the two chains of every row in the direction in which these differ most.
        """
        rows = self.num_chains // 2
        before = self._y[:rows] - self._y[rows:]
        halves = [self._mean_of_sweeps(num_sweeps // 2) for _ in range(2)]
        axis = np.linalg.eigh(before.T @ before)[1][:, -1]
        first = before @ axis
        last = (self._y[:rows] - self._y[rows:]) @ axis
        size = float(np.linalg.norm(first) * np.linalg.norm(last))
        return halves, float(first @ last) / size if size else 0.0

    def _mean_of_sweeps(self, num_sweeps: int) -> FloatArray:
        """Weighted moments (size,) over so many further sweeps."""
        d = self.coordinates.num_contrasts
        means = np.zeros(d)
        products = np.zeros((d, d))
        for _ in range(num_sweeps):
            self.sweep(1)
            weighted = self._weights[:, None] * self._y
            means += weighted.sum(axis=0)
            products += weighted.T @ self._y
        return self.coordinates.gather(means, products) / num_sweeps
