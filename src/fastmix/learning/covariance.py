"""The Hessian of the log-likelihood: covariances of the features of weighted rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.learning.coordinates import Coordinates

__all__ = ["FeatureCovariance", "FloatMatrix"]

FloatMatrix = NDArray[np.float32]


class FeatureCovariance:
    """The covariance matrix of all features over weighted rows, as something to multiply by.

    It is the Hessian of the log-likelihood if the rows are draws of the model. Single precision is plenty for a
    Hessian, and half the time. Rows come in parts (rows, n), the weights of all parts together; they add up to 1.
    """

    def __init__(self, coordinates: Coordinates, rows: Sequence[NDArray[Any]], weights: FloatArray) -> None:
        self.coordinates = coordinates
        # A last column of ones, so that linear terms are quadratic as well. (Products of rows of five numbers and a
        # vector, in single precision, can warn of invalid values: OpenBLAS 0.3.31 with AVX-512 adds up what is on the
        # stack, and leaves that out of the result.)
        y = np.ones((len(weights), coordinates.num_contrasts + 1), dtype=np.float32)
        first = 0
        for part in rows:
            y[first : first + len(part), :-1] = coordinates.encode(part)
            first += len(part)
        self._keep(y, weights.astype(np.float32))

    def apply(self, v: FloatArray) -> FloatArray:
        """The covariance of every feature with the log-weight at v, (size,)."""
        d = self.coordinates.num_contrasts
        matrix = np.zeros((d + 1, d + 1), dtype=np.float32)
        matrix[:d, :d] = self.coordinates.matrix(v)
        matrix[:d, d] = v[:d]
        matrix[d, :d] = v[:d]
        image = self._multiply(matrix)
        return self.coordinates.gather(image[d, :d], image[:d, :d]).astype(np.float64)

    def _keep(self, y: FloatMatrix, weights: FloatMatrix) -> None:
        """Keep the rows y (rows, D + 1) and their weights where products are made."""
        self._y = y
        self._weights = weights

    def _multiply(self, matrix: FloatMatrix) -> NDArray[Any]:
        """``sum_r w_r (e_r - mean e) y_r y_r'`` with ``e_r = y_r' matrix y_r / 2``."""
        energies = np.float32(0.5) * np.einsum("rk,rk->r", self._y @ matrix, self._y)
        energies = self._weights * (energies - self._weights @ energies)
        return np.asarray(self._y.T @ (energies[:, None] * self._y))
