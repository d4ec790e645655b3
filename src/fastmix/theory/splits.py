"""The constant of a model whose couplings are split between the width and Dobrushin's condition.

If a share theta_e of the table of every edge has the width w and the rest the dependency matrix R of the bound
``sigmoid``, then the variance of every function is at most ``1 / (1 - w - ||R||)`` times the sum of its conditional
variances (see docs/theory.md). The shares that make ``w + ||R||`` smallest are sought by steps along its slopes;
whatever comes out is proved.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.dependency import edge_dependencies, rounding_margins, to_matrix
from fastmix.theory.width import Ascent, coupling_matrix, matrix_width, model_width

__all__ = ["split_model"]

_STEPS = 40
_PASSES = 4  # of the ascent behind the width, for every step
_MAX_WORK = 5e8  # numbers visited by all passes; larger models are not split
_CUT = 0.7  # quantile of the dependencies that the first split leaves to the width


def split_model(model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> tuple[float, float]:
    """Width of one part and norm of the other, both proved, of the split found that has the smallest sum.

    All to the width, and nothing, are among those tried.
    """
    matrix, error = coupling_matrix(model)
    ranges = edge_dependencies(model, dependency="range").max(axis=1, initial=0.0)
    ranges = ranges + rounding_margins(model, dependency="range").max(axis=1, initial=0.0)
    problem = _Problem(model, matrix, error, ranges, clock)
    m = model.num_edges
    whole = model_width(model, clock=clock)
    found = [(whole.value, 0.0), problem.prove(np.zeros(m))]
    if m and not clock.past() and np.isfinite(ranges).all() and min(map(sum, found)) < 4.0:
        shares = problem.descend()
        if shares is not None:
            found.append(problem.prove(shares))
    return min(found, key=sum)


class _Problem:
    """``w(theta) + r(theta)`` over shares theta of the edges, with slopes."""

    def __init__(self, model, matrix, error, ranges, clock):  # type: ignore[no-untyped-def]
        self._model, self._matrix, self._error, self._ranges, self._clock = model, matrix, error, ranges, clock
        sizes = model.num_states - 1
        owner = np.repeat(np.arange(model.num_variables), sizes)
        self._rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self._cols = matrix.indices.astype(np.int64)
        first, second = owner[self._rows], owner[self._cols]
        n = model.num_variables
        keys = model.edges[:, 0] * n + model.edges[:, 1]
        self._edge = np.searchsorted(keys, np.minimum(first, second) * n + np.maximum(first, second))
        self._upper = first < second

    def _rest(self, shares: FloatArray) -> FloatArray:
        return np.tanh((1.0 - shares) * self._ranges * (1.0 + 1e-14))

    def prove(self, shares: FloatArray) -> tuple[float, float]:
        """Width and norm of both parts, proved."""
        part = self._matrix.copy()
        part.data *= shares[self._edge]
        width = matrix_width(part, clock=self._clock).value if shares.any() else 0.0
        rest = to_matrix(self._model, self._rest(shares) * (1.0 + 1e-14))
        return width + 2.0 * self._error, norms.matrix_norm(rest, "spectral", clock=self._clock)

    def descend(self) -> FloatArray | None:
        """Shares by projected steps along the slopes."""
        matrix, m = self._matrix, self._model.num_edges
        if not matrix.shape[0]:
            return None
        passes = _STEPS * _PASSES * 16.0 * (matrix.nnz + 4.0 * matrix.shape[0])
        steps = int(min(_STEPS, _STEPS * _MAX_WORK / passes))
        if steps < 15:
            return None
        # Strong couplings are cut off for a start.
        cut = np.quantile(self._ranges, _CUT)
        shares = np.minimum(1.0, cut / np.maximum(self._ranges, 1e-300))
        best, best_shares = np.inf, shares
        ascent = Ascent(matrix)
        ascent.run(16, data=matrix.data * shares[self._edge])
        weights = matrix.data[self._upper]
        rows, cols, edge = self._rows[self._upper], self._cols[self._upper], self._edge[self._upper]
        for k in range(steps):
            ascent.run(_PASSES, data=matrix.data * shares[self._edge])
            value, vector = self._value(ascent, shares)
            if value < best:
                best, best_shares = value, shares
            i, j = self._model.edges.T
            down = 2.0 * vector[i] * vector[j] * (1.0 - self._rest(shares) ** 2) * self._ranges
            slope = np.bincount(edge, weights * ascent.slopes(rows, cols), minlength=m) - down
            size = float(np.sqrt((slope**2).sum()))
            if size == 0.0 or self._clock.past(0.5):
                break
            # Polyak's step towards a tenth less, shorter and shorter.
            step = 0.1 * value / size**2 / np.sqrt(1.0 + 0.5 * k)
            shares = np.clip(shares - step * slope, 0.0, 1.0)
        return best_shares

    def _value(self, ascent: Ascent, shares: FloatArray) -> tuple[float, FloatArray]:
        rest = norms.dense_if_small(to_matrix(self._model, self._rest(shares)))
        vector = np.ones(rest.shape[0])
        for _ in range(30):
            vector = rest @ vector + 0.1 * vector
            vector /= max(math.sqrt(float(vector @ vector)), 1e-300)
        return ascent.value + float(vector @ (rest @ vector)), vector
