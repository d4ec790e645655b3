"""The pseudo-likelihood on an NVIDIA GPU, in double precision: a search for its optimum compares values."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.chains.cuda.device import start_kernel
from fastmix.learning import pseudo_likelihood
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.cuda.product_kernels import MAX_BLOCKS, MAX_STATES, Products, residual_kernel
from fastmix.learning.dataset import Dataset

__all__ = ["PseudoLikelihoodLoss"]


class PseudoLikelihoodLoss(pseudo_likelihood.PseudoLikelihoodLoss):
    """Minus the mean log-pseudo-likelihood of data, by the device, for variables of up to 64 states."""

    def __init__(self, coordinates: Coordinates, data: Dataset) -> None:
        super().__init__(coordinates, data)
        self._products = Products(np.column_stack([self._y, np.ones(len(self._y))]))
        structure = coordinates.structure
        arrays = (
            self._states.astype(np.int64).reshape(-1),
            self._weights,
            structure.num_states.astype(np.int64),
            coordinates.starts,
            *coordinates.flat_tables,
        )
        put = self._products.cuda.to_device
        self._arrays = tuple(put(np.ascontiguousarray(a) if a.size else np.zeros(1, a.dtype)) for a in arrays)
        self._ones = put(np.ones(len(self._y)))
        self._logs = put(np.zeros(MAX_BLOCKS))

    @staticmethod
    def fits(coordinates: Coordinates) -> bool:
        """Whether the kernels can hold the states of every variable, and there are some."""
        return coordinates.num_contrasts > 0 and int(coordinates.structure.num_states.max()) <= MAX_STATES

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value at v and its derivative."""
        products = self._products
        threads = products.threads
        d = self.coordinates.num_contrasts
        matrix = np.zeros((d + 1, d + 1))
        matrix[:d, :d] = self.coordinates.matrix(v)
        matrix[d, :d] = v[:d]
        products.multiply(matrix)
        num_variables = len(self._arrays[2])
        blocks = max(1, min(MAX_BLOCKS, products.rows * num_variables // threads))
        start_kernel(
            residual_kernel(threads),
            (blocks, threads),
            products.product,
            *self._arrays,
            products.rows,
            products.width,
            self._logs,
        )
        moments = products.gram(products.product, self._ones)[:d]
        value = -float(self._logs.copy_to_host()[:blocks].sum())
        return value, self.coordinates.gather(moments[:, d], moments[:, :d] + moments[:, :d].T)
