"""Swendsen-Wang sweeps at every rung of a ladder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.errors import UnfitMethodError
from fastmix.methods.swendsen_wang import _normal_form, check_swendsen_wang
from fastmix.methods.tempering.path import TemperingPath

__all__ = ["SwendsenWangMoves", "check_swendsen_wang_moves", "fits_swendsen_wang_moves"]


def check_swendsen_wang_moves(path: TemperingPath) -> None:
    """Raise unless every model of the path is one for Swendsen-Wang sweeps."""
    for position in (1.0,) if path.kind != "projected" else (0.5, 0.75, 1.0):
        check_swendsen_wang(path.model_at(position))


class SwendsenWangMoves:
    """One sweep of clusters for every replica of a block of ladders, with generators that are changed in place."""

    def __init__(self, path: TemperingPath, positions: FloatArray, random: NDArray[np.uint32]) -> None:
        model = path.model
        self._binary = bool((model.num_states == 2).all())
        self._offsets = model.unary_offsets
        self.random = random
        self._rungs: list[tuple[Any, ...]] = []
        for position in positions.tolist():
            form = _normal_form(path.model_at(position))
            flips = form.flips if form.flips.any() else None
            self._rungs.append((form.heads, form.tails, *form.for_kernels(self._binary), flips))

    def __call__(self, x: NDArray[np.uint8]) -> None:
        """Sweep the lanes (n, K * C), rung by rung."""
        from fastmix.methods import swendsen_wang_kernels as kernels

        width = self.random.shape[1]
        nothing = np.zeros((1, 0))
        for k, (heads, tails, bonds, unary, flips) in enumerate(self._rungs):
            lanes = x[:, k * width : (k + 1) * width]
            states = np.ascontiguousarray(lanes.T)
            if flips is not None:
                states ^= flips
            common = (states, self.random[k], nothing, 0, width, 1, False)
            with np.errstate(over="ignore"):  # random numbers wrap around when Numba's compiler is switched off
                if self._binary:
                    kernels.run_binary(heads, tails, bonds, unary, *common)
                else:
                    kernels.run_general(heads, tails, bonds, self._offsets, unary, *common)
            if flips is not None:
                states ^= flips
            lanes[...] = states.T


def fits_swendsen_wang_moves(path: TemperingPath) -> bool:
    """Whether :func:`check_swendsen_wang_moves` accepts the path."""
    try:
        check_swendsen_wang_moves(path)
    except UnfitMethodError:
        return False
    return True
