"""Euclidean projection onto the models whose width is at most a bound, with the diagonal free.

In the coordinates of :func:`fastmix.theory.width.coupling_matrix` the squared distance of the tables is ``2 ||A -
B||^2`` over the entries of edges, and the set is ``||A + diag(d)|| <= h``, half of the bound, for some d. The dual is

    max  <Y, B> - ||Y||^2 / 2 - h ||Y||_*        over symmetric Y with diagonal 0,

where the first two terms count entries of edges only and the last is the sum of the absolute eigenvalues; other entries
of Y are free. Any Y gives a lower bound, four times its value, on the squared distance.

With M the matrix X cut to eigenvalues in [-h, h], ``X <- B`` on edges, M on the diagonal and ``X - M`` elsewhere is the
splitting of Douglas and Rachford (Eckstein and Bertsekas 1992), over-relaxed. One eigendecomposition a step; on a
complete graph about six steps, on sparse graphs, where the norms of R move the tables less, hundreds. The dual point is
``X - M``, its positive and its negative part brought to the same diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection.euclidean import Solution, Target, repeat
from fastmix.projection.feasible import FeasibleSet
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.width import (
    Width,
    add_couplings,
    coupling_matrix,
    model_width,
    norm_estimate,
    norm_from_above,
    remember_width,
)

__all__ = ["WidthSet"]

_MOST = 3000  # coordinates up to which matrices are decomposed
_RELAXATION = 1.6  # below 2; complete graphs take half as many steps as with 1


@dataclass(eq=False)
class WidthSet(FeasibleSet):
    """Models on one graph whose width is bounded."""

    _diagonal: FloatArray | None = field(default=None, init=False)
    _known: Width | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.model.num_factors:
            raise UnfitMethodError(
                f"norm='width' takes no factors over three or more variables, of which the model has "
                f"{self.model.num_factors}; the other norms scale them"
            )

    def measure(self, model: MarkovRandomField, clock: Clock | None = None) -> tuple[FloatArray, float]:
        """The dependency of every edge (m,), bound ``range``, and the width from above."""
        z = edge_dependencies(model, dependency="range").max(axis=1, initial=0.0)
        clock = self.clock if clock is None else clock
        if self._diagonal is None:
            self._known = model_width(model, clock=clock)
            return z, self._known.value
        matrix, error = coupling_matrix(model)
        estimate = norm_estimate(matrix, self._diagonal)
        half, proof = norm_from_above(matrix, self._diagonal, estimate, clock=clock) if estimate else (0.0, "none")
        value = float(np.nextafter(2.0 * half * (1.0 + 1e-15), np.inf)) + 2.0 * error
        self._known = Width(value, self._diagonal, proof)
        return z, value

    def nearest(
        self,
        model: MarkovRandomField,
        *,
        start: FloatArray | None = None,
        weights: FloatArray | None = None,
        clock: Clock | None = None,
    ) -> tuple[MarkovRandomField, Solution]:
        """The model with the closest tables, but for rounding, and how it was found; the unaries stay as they are."""
        assert weights is None
        clock = self.clock if clock is None else clock
        width = self._known if self._known is not None else model_width(model, clock=clock.part(0.2))
        problem = _Problem(coupling_matrix(model)[0], self.norm_bound)
        if problem.size > _MOST:
            raise UnfitMethodError(
                f"norm='width' takes at most {_MOST} coordinates (states of all variables but one of each), got "
                f"{problem.size}; use norm='spectral'"
            )
        solution = _solve(problem, width, Target(self.norm_bound, self.tol, self.max_iter, start, clock))
        entries = solution.z[: len(problem.b)]
        self._diagonal = solution.z[len(problem.b) :].copy()
        return add_couplings(model, problem.rows, problem.cols, entries - problem.b), solution

    def shrunk(self, theta: MarkovRandomField, factor: float) -> MarkovRandomField:
        """The model with all couplings, and the diagonal that proves its width, multiplied by a factor."""
        if self._diagonal is not None:
            self._diagonal = factor * self._diagonal
        rows, cols, b = _upper(coupling_matrix(theta)[0])
        return add_couplings(theta, rows, cols, (factor - 1.0) * b)

    def remember(self, model: MarkovRandomField) -> None:
        """Let :func:`fastmix.certify` know the width of the model that was settled, with all its variables."""
        if self._known is not None and not model.has_forbidden:
            remember_width(model, self._known)


class _Problem:
    """The entries of edges above the diagonal (rows, cols, b), the number of coordinates and half of the bound."""

    def __init__(self, matrix: Any, bound: float) -> None:
        self.size, self.half = matrix.shape[0], 0.5 * bound
        self.rows, self.cols, self.b = _upper(matrix)

    def cost(self, a: FloatArray) -> float:
        """The squared distance of the tables."""
        return 4.0 * float(np.sum((a - self.b) ** 2))

    def scaled(self, a: FloatArray, d: FloatArray, norm: float, target: Target) -> tuple[float, FloatArray]:
        """Cost and entries, diagonal after them, of the point scaled into the set."""
        factor = min(1.0, 0.5 * target.cap / norm) if norm > 0.0 else 1.0
        return self.cost(factor * a), np.concatenate([factor * a, factor * d])


def _upper(matrix: Any) -> tuple[IntArray, IntArray, FloatArray]:
    from scipy.sparse import coo_array

    entries = coo_array(matrix)
    rows, cols = entries.coords
    kept = rows < cols
    return rows[kept].astype(np.int64), cols[kept].astype(np.int64), entries.data[kept]


def _solve(problem: _Problem, width: Width, target: Target) -> Solution:
    """By eigendecompositions; the multipliers are X outside of the edges, above and on the diagonal."""
    n, h, rows, cols = problem.size, problem.half, problem.rows, problem.cols
    check_memory(8.0 * n * n * 12, "norm='width'", "use norm='spectral'")
    edge = np.zeros((n, n), dtype=bool)
    edge[rows, cols] = True
    free_rows, free_cols = np.nonzero(~edge & np.triu(np.ones((n, n), dtype=bool)))
    on_diagonal = free_rows == free_cols
    complete = bool(on_diagonal.all())
    state = np.zeros(len(free_rows))
    state[on_diagonal] = width.diagonal
    if target.start is not None and target.start.shape == state.shape:
        state = np.array(target.start)
    solution = Solution(np.zeros(0), state)
    cost, z = problem.scaled(problem.b, width.diagonal, 0.5 * width.value, target)
    solution.update(cost, 0.0, z, target.tol)
    base = np.zeros((n, n))
    base[rows, cols] = base[cols, rows] = problem.b

    def step() -> bool:
        nonlocal state
        began = target.clock.used()
        whole = base.copy()
        whole[free_rows, free_cols] = whole[free_cols, free_rows] = state
        above, below = _beyond(whole, h)
        cut = whole - above + below
        change = np.where(on_diagonal, cut[free_rows, free_cols] - state, -cut[free_rows, free_cols])
        solution.iterations += 1
        a, d = cut[rows, cols], np.diagonal(cut).copy()
        norm = h
        if not complete:
            point = np.zeros((n, n))
            point[rows, cols] = point[cols, rows] = a
            point[np.arange(n), np.arange(n)] = d
            values = np.linalg.eigvalsh(point)
            norm = float(max(-values[0], values[-1]))
        cost, z = problem.scaled(a, d, norm, target)
        solution.multipliers = state
        done = solution.update(cost, _lower_bound(above, below, problem), z, target.tol)
        state = state + _RELAXATION * change
        if not done and target.clock.left() < 2.0 * (target.clock.used() - began):
            solution.late = True
        return done or solution.late

    if not solution.converged:
        repeat(step, solution, target)
    return solution


def _beyond(matrix: FloatArray, h: float) -> tuple[FloatArray, FloatArray]:
    """What has to be taken away above h and added below -h: two positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(matrix)
    high, low = vectors[:, values > h], vectors[:, values < -h]
    return (high * (values[values > h] - h)) @ high.T, (low * (-h - values[values < -h])) @ low.T


def _lower_bound(above: FloatArray, below: FloatArray, problem: _Problem) -> float:
    """The value of the dual, in squared distances of tables, next to ``above - below``.

    Both parts are scaled by rows and columns to the mean of their diagonals, which keeps their traces; the best
    multiple of the whole is known.
    """
    high, low = np.diagonal(above), np.diagonal(below)
    mean = np.where((high > 0.0) & (low > 0.0), 0.5 * (high + low), 0.0)
    up = np.sqrt(mean / np.where(high > 0.0, high, 1.0))
    down = np.sqrt(mean / np.where(low > 0.0, low, 1.0))
    rows, cols = problem.rows, problem.cols
    y = above[rows, cols] * up[rows] * up[cols] - below[rows, cols] * down[rows] * down[cols]
    slope, square = 2.0 * float(y @ problem.b) - 2.0 * problem.half * float(mean.sum()), 2.0 * float(y @ y)
    return 2.0 * slope * slope / square if slope > 0.0 and square > 0.0 else 0.0
