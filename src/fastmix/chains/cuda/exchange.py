"""Replica exchange on an NVIDIA GPU: the energies that rounds compare, and what they add up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
        Differences of coefficients, ``shifts``, room for energies and masks, ``counts``, who started where, where it is
        heading, and round ``trips``.
    """

    def __init__(self, chains: DeviceChains, num_units: int) -> None:
        self._chains, zeros = chains, chains._zeros
        self.shifts, self._masks = zeros(chains.num_sets - 1, np.float64), zeros(num_units, np.uint32)
        self.counts = zeros(6 * (chains._total - chains.num_chains), np.float64)
        carrier = np.repeat(np.arange(chains.num_sets, dtype=np.int64), chains.num_chains)
        self._carrier, self._heading = chains._cuda.to_device(carrier), zeros(chains._total, np.uint8)
        self.trips = zeros(chains.num_chains, np.int64)

    def load(self) -> None:
        """Take the terms of every theta that are not zero, and how coefficients differ from set to set."""
        chains, thetas = self._chains, self._chains.sets.thetas
        constants = np.zeros(len(thetas))
        if (
            chains._packed
        ):  # weights of variables in state 1, and of edges whose ends differ, half of x_i + x_j less x_i x_j
            linear, joint, constants = chains._layout.binary_terms(thetas)
            for end in chains.structure.edges.T:
                linear += [np.bincount(end, 0.5 * weights, minlength=chains._n) for weights in joint]
            weights = np.concatenate([linear, -0.5 * joint], axis=1)
            lists = [np.flatnonzero(row) for row in weights]
            numbers = [row[part] for row, part in zip(weights, lists, strict=True)]
            rows = chains._describe(np.concatenate(lists))[0]
            arrays: tuple[NDArray[Any], ...] = rows, np.concatenate(numbers)
        else:
            lists = [np.flatnonzero(np.add.reduceat(theta != 0.0, chains._term_offsets[:-1])) for theta in thetas]
            owner = np.repeat(np.arange(len(lists)), [len(part) for part in lists])
            rows, steps, offsets, starts = chains._describe_members(np.concatenate(lists))
            offsets = offsets + (owner * chains.num_parameters).astype(np.uint64)
            arrays = rows, steps, offsets, starts, thetas
        terms = tuple(chains._put(f"term {k}", a) for k, a in enumerate(arrays))
        self.terms: tuple[Any, ...] = terms if chains._packed else (terms[:-1], terms[-1])
        pieces = offsets_of(np.array([len(part) for part in lists]))
        self.pieces = chains._put("term pieces", pieces.astype(np.uint32))
        gaps = np.diff(chains.sets.coefficients, axis=0)
        gaps = np.concatenate([gaps, (gaps @ constants)[:, None]], axis=1)
        self.ladder = (
            chains._put("gaps", gaps), self.shifts, chains._room("energies of all", len(lists) * chains._capacity),
            self._masks, self.counts, self._carrier, self._heading, self.trips,
        )  # fmt: skip
