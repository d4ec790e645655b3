"""Euclidean projection onto the models whose width is at most a bound, with the diagonal free.

In the coordinates of :func:`fastmix.theory.width.coupling_matrix` the squared distance of the tables is ``2 ||A -
B||^2`` over the entries of edges, and the set is ``||A + diag(d)|| <= h``, half of the bound, for some d. The dual is

    max  <Y, B> - ||Y||^2 / 2 - h ||Y||_*        over symmetric Y with diagonal 0,

where the first two terms count entries of edges only and the last is the sum of the absolute eigenvalues; other entries
of Y are free. Any Y gives a lower bound, four times its value, on the squared distance. Two solvers:

- dense graphs: with M the matrix X cut to eigenvalues in [-h, h], ``X <- B`` on edges, M on the diagonal and ``X - M``
  elsewhere is the splitting of Douglas and Rachford (Eckstein and Bertsekas 1992), over-relaxed. One eigendecomposition
  a step; on a complete graph about six steps. The dual point is ``X - M``, its positive and its negative part brought
  to the same diagonal.
- sparse graphs: ``Y = U U^T - V V^T`` of low rank with rows of U and V of the same length (Burer and Monteiro 2003), by
  L-BFGS. The diagonal follows from the conditions of optimality, and A is scaled into the set.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._jit import njit
from fastmix._memory import check_memory
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection.euclidean import Solution, Target, descend_dual, repeat
from fastmix.projection.feasible import FeasibleSet
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.width import (
    Width,
    add_couplings,
    coupling_matrix,
    couplings,
    model_width,
    norm_estimate,
    norm_from_above,
    remember_width,
    symmetric_matrix,
)

__all__ = ["WidthSet"]

_MOST_DENSE = 3000  # coordinates up to which matrices are decomposed
_LEAST_DENSITY = 0.1  # of edges among pairs; below, the splitting takes hundreds of steps
_RELAXATION = 1.6  # below 2; complete graphs take half as many steps as with 1
_RANK = 8  # more change the sixth digit of the distance, 3-regular graph of 200 variables
_STEPS = 20  # of L-BFGS that count as one iteration
# Least relative gaps: of the low-rank dual, whose last digits take ten times as long (the distance to the set falls
# with the square root of the error of the dual), and beyond _MOST_DENSE, where the norm is proved to 2e-3.
_SPARSE_TOL, _LARGE_TOL = 1e-3, 5e-3


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
        clock = self.clock if clock is None else clock
        z = edge_dependencies(model, dependency="range", clock=clock).max(axis=1, initial=0.0)
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
        problem = _Problem(model, self.norm_bound)
        dense = problem.size <= _MOST_DENSE and problem.density >= _LEAST_DENSITY
        least = 0.0 if dense else _SPARSE_TOL if problem.size <= _MOST_DENSE else _LARGE_TOL
        target = Target(self.norm_bound, max(self.tol, least), self.max_iter, start, clock)
        solution = (_solve_dense if dense else _solve_sparse)(problem, width, target)
        entries = solution.z[: len(problem.b)]
        self._diagonal = solution.z[len(problem.b) :].copy()
        return add_couplings(model, entries - problem.b), solution

    def shrunk(self, theta: MarkovRandomField, factor: float) -> MarkovRandomField:
        """The model with all couplings, and the diagonal that proves its width, multiplied by a factor."""
        if self._diagonal is not None:
            self._diagonal = factor * self._diagonal
        return add_couplings(theta, (factor - 1.0) * couplings(theta)[2])

    def remember(self, model: MarkovRandomField) -> None:
        """Let :func:`fastmix.certify` know the width of the model that was settled, with all its variables."""
        if self._known is not None and not model.has_forbidden:
            remember_width(model, self._known)


class _Problem:
    """The entries of edges above the diagonal (rows, cols, b), the number of coordinates and half of the bound."""

    def __init__(self, model: MarkovRandomField, bound: float) -> None:
        self.size, self.half = int((model.num_states - 1).sum()), 0.5 * bound
        self.rows, self.cols, self.b, _ = couplings(model)

    @property
    def density(self) -> float:
        """Share of all pairs of coordinates that are entries of edges."""
        return 2.0 * len(self.b) / max(1.0, self.size * (self.size - 1.0))

    def cost(self, a: FloatArray) -> float:
        """The squared distance of the tables."""
        return 4.0 * float(np.sum((a - self.b) ** 2))

    def scaled(self, a: FloatArray, d: FloatArray, norm: float, target: Target) -> tuple[float, FloatArray]:
        """Cost and entries, diagonal after them, of the point scaled into the set."""
        factor = min(1.0, 0.5 * target.cap / norm) if norm > 0.0 else 1.0
        return self.cost(factor * a), np.concatenate([factor * a, factor * d])

    def begin(self, width: Width, target: Target, multipliers: FloatArray) -> Solution:
        """A solution that holds the model scaled into the set."""
        solution = Solution(np.zeros(0), multipliers)
        cost, z = self.scaled(self.b, width.diagonal, 0.5 * width.value, target)
        solution.update(cost, 0.0, z, target.tol)
        return solution


# -- dense graphs ---------------------------------------------------------------------------------------------------


def _solve_dense(problem: _Problem, width: Width, target: Target) -> Solution:
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
    solution = problem.begin(width, target, state)
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


# -- sparse graphs --------------------------------------------------------------------------------------------------


def _solve_sparse(problem: _Problem, width: Width, target: Target) -> Solution:
    """By the dual of low rank; the multipliers are U and V beside each other (N, 2 rank), V up to lengths of rows."""
    n, h, rows, cols, b = problem.size, problem.half, problem.rows, problem.cols, problem.b
    shape = (n, 2 * _RANK)
    check_memory(8.0 * n * 2 * _RANK * 40, "norm='width'", "use norm='spectral'")
    x = np.random.default_rng(0).normal(scale=0.5 * np.sqrt(h / _RANK), size=shape)
    if target.start is not None and target.start.shape == shape:
        x = np.array(target.start)
    solution = problem.begin(width, target, x)
    if solution.converged:
        return solution
    state: dict[str, Any] = {"x": x, "steps": 0, "next": 2 * _STEPS}

    def value(flat: FloatArray) -> tuple[float, FloatArray]:
        gradient = np.empty(shape)
        return -dual_value(rows, cols, b, flat.reshape(shape), h, gradient), -gradient.ravel()

    def judge() -> None:
        lengths, u, v = _factors(state["x"])
        y = np.einsum("er,er->e", u[rows], u[cols]) - np.einsum("er,er->e", v[rows], v[cols])
        a, squares = b - y, lengths**2
        d = np.zeros(n)
        pulls = _row_products(rows, cols, a, u) + _row_products(rows, cols, a, v)  # h cancels: the lengths are equal
        np.divide(-pulls, 2.0 * squares, out=d, where=squares > 1e-12 * squares.max(initial=0.0))
        norm = norm_estimate(symmetric_matrix(n, rows, cols, a), d)
        cost, z = problem.scaled(a, d, norm, target)
        dual = 2.0 * float(y @ b) - float(y @ y) - 2.0 * h * float(squares.sum())
        solution.update(cost, 4.0 * dual, z, target.tol)
        solution.multipliers = state["x"]

    def after(flat: FloatArray) -> None:
        state["x"], state["steps"] = flat.reshape(shape).copy(), state["steps"] + 1
        solution.iterations = -(-state["steps"] // _STEPS)
        late = target.clock.past(0.6)
        if state["steps"] >= state["next"] or late:
            judge()
            state["next"] = state["steps"] + max(_STEPS, state["steps"] // 3)
            target.clock.report(solution.iterations, None, "iterations")
        solution.late = late and not solution.converged
        if solution.converged or late:
            raise StopIteration

    descend_dual(value, solution, after, _STEPS * target.max_iter)
    if not (solution.converged or solution.late or solution.interrupted):
        judge()
    return solution


def _factors(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The lengths of rows, U, and V with rows of the same lengths."""
    u, v = x[:, :_RANK], x[:, _RANK:]
    lengths = np.sqrt((u * u).sum(axis=1))
    return lengths, u, v * (lengths / np.maximum(np.sqrt((v * v).sum(axis=1)), 1e-300))[:, None]


def _row_products(rows: IntArray, cols: IntArray, a: FloatArray, u: FloatArray) -> FloatArray:
    """``u_i . sum_j A_ij u_j`` of every row."""
    products = a * np.einsum("er,er->e", u[rows], u[cols])
    return np.asarray(np.bincount(rows, products, len(u)) + np.bincount(cols, products, len(u)), dtype=np.float64)


@njit(cache=True, error_model="numpy")
def dual_value(rows, cols, b, x, h, gradient):  # type: ignore[no-untyped-def]
    """``<Y, B> - ||Y||^2 / 2 - h ||Y||_*``, from below, and its derivatives by x = (U, V), V of any row lengths."""
    n, rank = x.shape[0], x.shape[1] // 2
    v = np.empty((n, rank))
    lengths, own = np.empty(n), np.empty(n)
    value = 0.0
    for i in range(n):
        up, down = 0.0, 0.0
        for r in range(rank):
            up += x[i, r] * x[i, r]
            down += x[i, rank + r] * x[i, rank + r]
        value -= 2.0 * h * up
        lengths[i], own[i] = np.sqrt(up), max(np.sqrt(down), 1e-300)
        for r in range(rank):
            v[i, r] = x[i, rank + r] * (lengths[i] / own[i])
            gradient[i, r] = -4.0 * h * x[i, r]
            gradient[i, rank + r] = 0.0
    for e in range(len(b)):
        i, j = rows[e], cols[e]
        y = 0.0
        for r in range(rank):
            y += x[i, r] * x[j, r] - v[i, r] * v[j, r]
        value += (2.0 * b[e] - y) * y
        pull = 2.0 * (b[e] - y)
        for r in range(rank):
            gradient[i, r] += pull * x[j, r]
            gradient[j, r] += pull * x[i, r]
            gradient[i, rank + r] -= pull * v[j, r]
            gradient[j, rank + r] -= pull * v[i, r]
    for i in range(n):
        # v = length(u) times the direction of what stands for it: the part along it acts on u.
        along = 0.0
        for r in range(rank):
            along += gradient[i, rank + r] * x[i, rank + r] / own[i]
        for r in range(rank):
            gradient[i, r] += along * x[i, r] / max(lengths[i], 1e-300)
            part = gradient[i, rank + r] - along * x[i, rank + r] / own[i]
            gradient[i, rank + r] = part * lengths[i] / own[i]
    return value
