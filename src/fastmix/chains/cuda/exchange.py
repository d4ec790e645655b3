"""Replica exchange on an NVIDIA GPU: the energies that rounds compare, and what they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray
from fastmix.chains.base import Exchanges
from fastmix.chains.cuda.reading import DeviceChains
from fastmix.model.build import offsets_of

__all__ = ["ReplicaExchange"]


class ReplicaExchange:
    """Arrays on the device that rounds of some chains read and write; see ``rounds_kernel`` of the kernels.

    Attributes
    ----------
    terms, pieces
        The terms of all energies, and where those of each begin.
    ladder
        Differences of coefficients, shifts, room for energies and masks, counts, who started where, where it is
        heading, and round trips.
    """

    def __init__(self, chains: DeviceChains, num_units: int) -> None:
        self._chains, zeros = chains, chains._zeros
        self._shifts, self._masks = zeros(chains.num_sets - 1, np.float64), zeros(num_units, np.uint32)
        self._counts = zeros(6 * (chains._total - chains.num_chains), np.float64)
        carrier = np.repeat(np.arange(chains.num_sets, dtype=np.int64), chains.num_chains)
        self._carrier, self._heading = chains._cuda.to_device(carrier), zeros(chains._total, np.uint8)
        self._trips = zeros(chains.num_chains, np.int64)

    def load(self) -> None:
        """Take the terms of every theta that are not zero, and how coefficients differ from set to set."""
        chains, thetas = self._chains, self._chains.sets.thetas
        constants = np.zeros(len(thetas))
        if chains._packed:
            lists, numbers, constants = [], [], thetas[:, chains._term_offsets[:-1]].sum(axis=1)
            for theta in thetas:
                weights = self._binary_weights(theta)
                lists.append(np.flatnonzero(weights))
                numbers.append(weights[lists[-1]])
            rows = chains._describe(np.concatenate(lists))[0]
            arrays: tuple[NDArray[Any], ...] = rows, np.concatenate(numbers)
        else:
            lists = [np.flatnonzero(np.add.reduceat(theta != 0.0, chains._term_offsets[:-1])) for theta in thetas]
            owner = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
            rows, steps, offsets, *starts = chains._describe(np.concatenate(lists))
            offsets = offsets + (owner * chains.num_parameters).astype(np.uint64)
            arrays = rows, steps, offsets, *starts, thetas
        terms = tuple(chains._put(f"term {k}", a) for k, a in enumerate(arrays))
        self.terms: tuple[Any, ...] = (terms[:-1], terms[-1]) if chains._factors else terms
        pieces = offsets_of(np.array([len(part) for part in lists]))
        self.pieces = chains._put("term pieces", pieces.astype(np.uint32))
        gaps = np.diff(chains.sets.coefficients, axis=0)
        gaps = np.concatenate([gaps, (gaps @ constants)[:, None]], axis=1)
        self.ladder = (
            chains._put("gaps", gaps), self._shifts, chains._room("energies of all", len(lists) * chains._capacity),
            self._masks, self._counts, self._carrier, self._heading, self._trips,
        )  # fmt: skip

    def _binary_weights(self, theta: FloatArray) -> FloatArray:
        """Weights of variables in state 1, and of edges whose ends differ: ``theta @ f(x)`` but for a constant.

        With ``s = 1 - 2 x`` a table is ``a + b s_i + c s_j + d s_i s_j``, and ``s_i s_j = 1 - 2 [x_i != x_j]``.
        """
        n, edges = self._chains._n, self._chains.structure.edges
        t00, t01, t10, t11 = theta[2 * n :].reshape(-1, 4).T
        weights = theta[1 : 2 * n : 2] - theta[: 2 * n : 2]
        weights -= np.bincount(edges[:, 0], 0.5 * ((t00 + t01) - (t10 + t11)), minlength=n)
        weights -= np.bincount(edges[:, 1], 0.5 * ((t00 + t10) - (t01 + t11)), minlength=n)
        return np.concatenate([weights, 0.5 * ((t01 + t10) - (t00 + t11))])

    def set_shifts(self, shifts: ArrayLike) -> None:
        """Guesses (K - 1,) of ``log Z_{k+1} / Z_k``."""
        self._shifts.copy_to_device(np.ascontiguousarray(shifts, dtype=np.float64))

    def counts(self) -> Exchanges:
        """What exchanges have added up."""
        shape = 6, self._chains.num_sets - 1, self._chains.num_chains
        return Exchanges(self._counts.copy_to_host().reshape(shape), self._trips.copy_to_host())

    def clear(self) -> None:
        """Forget it."""
        for array in (self._counts, self._trips):
            array.copy_to_device(np.zeros(array.size, dtype=array.dtype))
