"""The Hessian of the log-likelihood on an NVIDIA GPU: a matrix goes there and one comes back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.cuda.device import start_kernel
from fastmix.learning import covariance
from fastmix.learning.covariance import FloatMatrix
from fastmix.learning.cuda.product_kernels import Products, center_kernel, energy_kernel

__all__ = ["FeatureCovariance"]


class FeatureCovariance(covariance.FeatureCovariance):
    """The covariance matrix of all features over weighted rows, whose products are made on the device."""

    def _keep(self, y: FloatMatrix, weights: FloatMatrix) -> None:
        """Keep the rows y (rows, D + 1) and their weights on the device."""
        self._products = Products(y)
        self._device_weights = self._products.cuda.to_device(weights)
        self._energies = self._products.cuda.device_array(len(weights), np.float32)

    def _multiply(self, matrix: FloatMatrix) -> NDArray[Any]:
        """``sum_r w_r (e_r - mean e) y_r y_r'`` with ``e_r = y_r' matrix y_r / 2``."""
        products = self._products
        threads = products.threads
        side = math.isqrt(threads)
        products.multiply(matrix)
        shape = (-(-products.rows // side), (side, side))
        start_kernel(
            energy_kernel(side), shape, products.product, products.y, products.rows, products.width, self._energies
        )
        start_kernel(center_kernel(threads), (1, threads), self._energies, self._device_weights, products.rows)
        return products.gram(products.y, self._energies)
