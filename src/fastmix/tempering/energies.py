"""Energies of replicas: what exchanges between rungs and estimates of log Z are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.tempering.path import Path

__all__ = ["Energies"]

FloatArray = NDArray[np.float64]


class Energies:
    """The sums U, V_1, .. of a path for configurations side by side."""

    def __init__(self, path: Path) -> None:
        model = path.model
        n, edges = model.num_variables, model.edges
        self._count = 1 + len(path.tables)
        constants = np.zeros(self._count)
        self._binary = bool((model.num_states == 2).all())
        if not self._binary:
            self._arrays: tuple[Any, ...] = (
                model.num_states.astype(np.uint32), model.unary_offsets, model.log_unary.astype(np.float32),
                edges.astype(np.int32), model.pairwise_offsets, np.array(path.tables, dtype=np.float32), constants,
            )  # fmt: skip
            return
        constants[0] = model.log_unary[::2].sum()
        linear, weights = np.zeros((len(path.tables), n)), np.zeros((len(path.tables), len(edges)))
        for d, flat in enumerate(path.tables):
            t = flat.reshape(-1, 2, 2)
            constants[d + 1] = t[:, 0, 0].sum()
            linear[d] = np.bincount(edges[:, 0], t[:, 1, 0] - t[:, 0, 0], minlength=n)
            linear[d] += np.bincount(edges[:, 1], t[:, 0, 1] - t[:, 0, 0], minlength=n)
            weights[d] = t[:, 1, 1] - t[:, 1, 0] - t[:, 0, 1] + t[:, 0, 0]
        self._arrays = (
            (model.log_unary[1::2] - model.log_unary[::2]).astype(np.float32), linear.astype(np.float32),
            np.searchsorted(edges[:, 0], np.arange(n + 1)), edges[:, 1].astype(np.int32), weights.astype(np.float32),
            constants,
        )  # fmt: skip

    def __call__(self, x: NDArray[np.uint8]) -> FloatArray:
        """Values (components, W) of configurations (n, W)."""
        from fastmix.tempering import kernels

        out = np.empty((self._count, x.shape[1]))
        room = np.empty(out.shape, dtype=np.float32)
        run: Any = kernels.binary_energies if self._binary else kernels.general_energies
        run(x, *self._arrays, room, out)
        return out
