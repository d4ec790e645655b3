"""The criterion ``split``: a share of every table is left to the width, the rest to the dependency matrix.

If a share theta_e of the table of every edge e has the width w and the rest the dependency matrix R of the bound
``sigmoid``, then ``C = 1 / (1 - w - ||R||)`` for variances. It suits models with few strong couplings among many weak
ones. Steps along the slopes of the sum seek the best shares; whatever comes out is proved.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import MarkovRandomField
from fastmix.theory import norms
from fastmix.theory.criterion import CriterionConstant
from fastmix.theory.dependency import edge_dependencies, rounding_margins, to_matrix
from fastmix.theory.tuning import ASCENT_PASSES_PER_STEP, MAX_SPLIT_WORK, SPLIT_START_QUANTILE, SPLIT_STEPS
from fastmix.theory.width_criterion import unfit_for_width

__all__ = ["SplitCriterion", "split_model"]


class SplitCriterion:
    """The criterion that bounds C by the width of one part of the couplings and the dependencies of the other."""

    name: ClassVar[str] = "split"

    def unfit(self, model: MarkovRandomField) -> str | None:
        """The reason why the width of a model is not defined or too large to compute; None if there is none."""
        return unfit_for_width(model)

    def find(self, model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        """The constant by the best split found, infinite where width and norm add up to 1 or more, or out of time."""
        from fastmix.theory.width import matrix_seconds, width_seconds

        # The matrix of the couplings with the edge of every entry, and the width of the whole.
        if 2.0 * matrix_seconds(model) + width_seconds(model) > clock.left():
            return CriterionConstant(math.inf, "variance", math.inf, "there was no time to split the couplings")
        width, norm = split_model(model, clock=clock)
        total = (width + norm) * (1.0 + 1e-15)
        words = f"the width {width:.4g} of one part and the norm {norm:.4g} of the other"
        if total < 1.0:
            return CriterionConstant(-math.log1p(-total) + 1e-14, "variance", width, words)
        return CriterionConstant(math.inf, "variance", width, f"{words} add up to {total:.4g}, not below 1")


def split_model(model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> tuple[float, float]:
    """Width of one part and norm of the other, both proved, for the split found that has the smallest sum.

    The splits that leave all to the width, or nothing, are among those tried.
    """
    from fastmix.theory.width import is_by_blocks, model_width

    if is_by_blocks(model):  # the entries of its couplings are too many to be split one by one
        ranges = edge_dependencies(model, dependency="sigmoid", clock=clock).max(axis=1, initial=0.0)
        ranges += rounding_margins(model, dependency="sigmoid").max(axis=1, initial=0.0)
        norm = norms.matrix_norm(to_matrix(model, ranges * (1.0 + 2e-14)), "spectral", clock=clock)
        return min((model_width(model, clock=clock).value, 0.0), (0.0, norm), key=sum)
    problem = _SplitProblem(model, clock)
    found = [(model_width(model, clock=clock).value, 0.0), problem.prove(np.zeros(model.num_edges))]
    is_promising = np.isfinite(problem.ranges).all() and min(map(sum, found)) < 4.0
    if model.num_edges and not clock.past() and is_promising:
        shares = problem.descend()
        if shares is not None:
            found.append(problem.prove(shares))
    return min(found, key=sum)


class _SplitProblem:
    """The sum ``w(theta) + r(theta)`` over shares theta (m,) of the edges, with its slopes.

    w is the width of the part that the shares take, and r the norm of the dependency matrix of the rest.
    """

    def __init__(self, model: MarkovRandomField, clock: Clock) -> None:
        from fastmix.theory.width import coupling_matrix

        matrix, error = coupling_matrix(model)
        self._model = model
        self._clock = clock
        self._matrix = matrix
        self._error = error
        ranges = edge_dependencies(model, dependency="range", clock=clock).max(axis=1, initial=0.0)
        self.ranges = ranges + rounding_margins(model, dependency="range").max(axis=1, initial=0.0)
        # The edge that each entry of the matrix of couplings belongs to.
        n = model.num_variables
        owner = np.repeat(np.arange(n), model.num_states - 1)
        self._rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        self._cols = matrix.indices.astype(np.int64)
        first = owner[self._rows]
        second = owner[self._cols]
        keys = model.edges[:, 0] * n + model.edges[:, 1]
        self._edge = np.searchsorted(keys, np.minimum(first, second) * n + np.maximum(first, second))
        self._upper = first < second

    def _rest(self, shares: FloatArray) -> FloatArray:
        """Dependencies (m,) of the part that the shares leave."""
        return np.tanh((1.0 - shares) * self.ranges * (1.0 + 1e-14))

    def prove(self, shares: FloatArray) -> tuple[float, float]:
        """Width of the part of the shares and norm of the rest, both proved."""
        from fastmix.theory.width import matrix_width

        part = self._matrix.copy()
        part.data *= shares[self._edge]
        width = matrix_width(part, clock=self._clock).value if shares.any() else 0.0
        rest = to_matrix(self._model, self._rest(shares) * (1.0 + 1e-14))
        return width + 2.0 * self._error, norms.matrix_norm(rest, "spectral", clock=self._clock)

    def descend(self) -> FloatArray | None:
        """The best shares met by projected steps along the slopes; None for models that are too large.

        1. Start from shares that cut strong couplings off.
        2. Compute the value and its slopes at the shares.
        3. Step against the slopes, and go back to 2.
        """
        from fastmix.theory.width import Ascent

        matrix = self._matrix
        m = self._model.num_edges
        work_per_step = ASCENT_PASSES_PER_STEP * 16.0 * max(1.0, matrix.nnz + 4.0 * matrix.shape[0])
        num_steps = int(min(SPLIT_STEPS, MAX_SPLIT_WORK / work_per_step))
        if num_steps < 15 or not matrix.shape[0]:
            return None

        # 1. The start.
        cut = np.quantile(self.ranges, SPLIT_START_QUANTILE)
        shares = np.minimum(1.0, cut / np.maximum(self.ranges, 1e-300))
        best = np.inf
        best_shares = shares
        ascent = Ascent(matrix)
        ascent.run(16, data=matrix.data * shares[self._edge])
        weights = matrix.data[self._upper]
        rows = self._rows[self._upper]
        cols = self._cols[self._upper]
        edge = self._edge[self._upper]
        i, j = self._model.edges.T
        for k in range(num_steps):
            # 2. Value and slopes.
            ascent.run(ASCENT_PASSES_PER_STEP, data=matrix.data * shares[self._edge])
            norm, vector = self._estimate_norm(shares)
            value = ascent.value + norm
            if value < best:
                best = value
                best_shares = shares
            down = 2.0 * vector[i] * vector[j] * (1.0 - self._rest(shares) ** 2) * self.ranges
            slope = np.bincount(edge, weights * ascent.slopes(rows, cols), minlength=m) - down
            size = float(np.sqrt((slope**2).sum()))
            if size == 0.0 or self._clock.past(0.5):
                break
            # 3. Polyak's step toward a tenth less, shorter and shorter.
            step = 0.1 * value / size**2 / np.sqrt(1.0 + 0.5 * k)
            shares = np.clip(shares - step * slope, 0.0, 1.0)
        return best_shares

    def _estimate_norm(self, shares: FloatArray) -> tuple[float, FloatArray]:
        """An estimate of r, and the eigenvector behind it."""
        rest = norms.dense_if_small(to_matrix(self._model, self._rest(shares)))
        vector = np.ones(rest.shape[0])
        for _ in range(30):
            vector = rest @ vector + 0.1 * vector
            vector /= max(math.sqrt(float(vector @ vector)), 1e-300)
        return float(vector @ (rest @ vector)), vector
