"""Euclidean projection onto the models whose width is at most a bound, with the diagonal free.

In the coordinates of :func:`fastmix.theory.width.coupling_matrix` the squared distance of the tables is ``2 ||A -
B||^2`` over the entries of edges, and the set is ``||A + diag(d)|| <= h``, half of the bound, for some d. The dual is

    max  <Y, B> - ||Y||^2 / 2 - h ||Y||_*        over symmetric Y with diagonal 0,

where the first two terms count entries of edges only and the last is the sum of the absolute eigenvalues; other entries
of Y are free. Any Y gives a lower bound, four times its value, on the squared distance. Two solvers:

- dense graphs: with M the matrix X cut to eigenvalues in [-h, h], ``X <- B`` on edges, M on the diagonal and ``X - M``
  elsewhere is the splitting of Douglas and Rachford (Eckstein and Bertsekas 1992), over-relaxed. Every step takes one
  eigendecomposition, and a complete graph about six steps. The dual point is ``X - M``, its positive and its negative
  part brought to the same diagonal.
- sparse graphs: ``Y = U U^T - V V^T`` of low rank with rows of U and V of the same length (Burer and Monteiro 2003), by
  L-BFGS. The diagonal follows from the conditions of optimality, and A is scaled into the set.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import OutOfTimeError
from fastmix._memory import check_memory
from fastmix.model import MarkovRandomField
from fastmix.projection.solution import Goal, Solution, descend_dual, repeat
from fastmix.projection.tuning import (
    WIDTH_NORM_SHARE,
    WIDTH_RANK,
    WIDTH_RELAXATION,
    WIDTH_STEP_SHARE,
    WIDTH_STEPS_PER_ITERATION,
)
from fastmix.projection.width_kernels import dual_value
from fastmix.theory.dense import eigenvalue_seconds, eigenvector_seconds, product_seconds
from fastmix.theory.width import Width, couplings, eigenvalue_error, norm_estimate, symmetric_matrix

__all__ = ["WidthProblem", "solve_dense", "solve_sparse"]


class WidthProblem:
    """One projection: entries of edges, and half of the bound.

    Attributes
    ----------
    size : int
        The number of coordinates: states of all variables but one of each.
    half : float
        Half of the bound on the width, which the spectral norm of the matrix may have.
    rows, cols, b : int, int and float arrays
        The entries of edges above the diagonal of the coupling matrix B.
    half_of_best : float
        A bound on the norm of the best point so far; infinite where that is only estimated.
    """

    def __init__(self, model: MarkovRandomField, bound: float) -> None:
        self.size = int((model.num_states - 1).sum())
        self.half = 0.5 * bound
        self.rows, self.cols, self.b, _ = couplings(model)
        self.half_of_best = np.inf

    @property
    def density(self) -> float:
        """Share of all pairs of coordinates that are entries of edges."""
        return 2.0 * len(self.b) / max(1.0, self.size * (self.size - 1.0))

    def cost(self, a: FloatArray) -> float:
        """The squared distance of the tables."""
        return 4.0 * float(np.sum((a - self.b) ** 2))

    def begin(self, width: Width, goal: Goal, multipliers: FloatArray) -> Solution:
        """A solution that holds the model scaled into the set."""
        solution = Solution(np.zeros(0), multipliers)
        self.take(solution, self.b, width.diagonal, 0.5 * width.value, 0.0, 0.0, goal)
        return solution

    def take(
        self, solution: Solution, a: FloatArray, d: FloatArray, norm: float, error: float, dual: float, goal: Goal
    ) -> bool:
        """Give a solution the point with these entries and diagonal, scaled into the set, and a lower bound.

        ``norm`` is that of the point, known to an ``error`` (infinite for an estimate from below). Returns whether the
        gap is small enough.
        """
        factor = min(1.0, 0.5 * goal.cap / norm) if norm > 0.0 else 1.0
        entries = factor * a
        cost = self.cost(entries)
        if cost < solution.primal:
            self.half_of_best = factor * (norm + error) * (1.0 + 4.0 * float(np.finfo(np.float64).eps))
        return solution.update(cost, dual, np.concatenate([entries, factor * d]), goal.tol)


# -- dense graphs ---------------------------------------------------------------------------------------------------


def solve_dense(problem: WidthProblem, width: Width, goal: Goal) -> Solution:
    """The solution by eigendecompositions; the multipliers are X outside of the edges, above and on the diagonal."""
    check_memory(8.0 * problem.size**2 * 12, "norm='width'", "use norm='spectral'")
    solver = _Splitting(problem, width, goal)
    if not solver.solution.converged:
        repeat(solver.step, solver.solution, goal)
    return solver.solution


class _Splitting:
    """The splitting of Douglas and Rachford for the entries of X outside of the edges, which are its ``state``."""

    def __init__(self, problem: WidthProblem, width: Width, goal: Goal) -> None:
        self.problem = problem
        self.goal = goal
        n = problem.size
        is_edge = np.zeros((n, n), dtype=bool)
        is_edge[problem.rows, problem.cols] = True
        self.free_rows, self.free_cols = np.nonzero(~is_edge & np.triu(np.ones((n, n), dtype=bool)))
        self.on_diagonal = self.free_rows == self.free_cols
        #: Whether all pairs of coordinates are entries of edges: the cut matrix is feasible then.
        self.complete = bool(self.on_diagonal.all())

        self.state = np.zeros(len(self.free_rows))
        self.state[self.on_diagonal] = width.diagonal
        if goal.start is not None and goal.start.shape == self.state.shape:
            self.state = np.array(goal.start)
        self.solution = problem.begin(width, goal, self.state)
        self.step_seconds = eigenvector_seconds(n) + product_seconds(n)
        self.step_seconds += 0.0 if self.complete else eigenvalue_seconds(n)

        #: The matrix B.
        self.base = np.zeros((n, n))
        self.base[problem.rows, problem.cols] = problem.b
        self.base[problem.cols, problem.rows] = problem.b

    def step(self) -> bool:
        """Make one step; returns whether the gap is small enough, or there is no time for a step."""
        problem = self.problem
        clock = self.goal.clock
        if clock.left() < self.step_seconds:
            self.solution.late = True
            return True
        seconds_before = clock.used()

        # The cut matrix M.
        matrix = self.base.copy()
        matrix[self.free_rows, self.free_cols] = self.state
        matrix[self.free_cols, self.free_rows] = self.state
        above, below = _beyond(matrix, problem.half)
        cut = matrix - above + below
        self.solution.iterations += 1

        # Its entries of edges and its diagonal are a point, whose norm is known where there are no other entries.
        a = cut[problem.rows, problem.cols]
        d = np.diagonal(cut).copy()
        norm = problem.half if self.complete else self._norm_of_point(a, d)
        error = eigenvalue_error(problem.size, float(np.linalg.norm(matrix)))
        self.solution.multipliers = self.state
        lower_bound = _lower_bound(above, below, problem)
        done = problem.take(self.solution, a, d, norm, error, lower_bound, self.goal)

        free_entries = cut[self.free_rows, self.free_cols]
        change = np.where(self.on_diagonal, free_entries - self.state, -free_entries)
        self.state = self.state + WIDTH_RELAXATION * change
        self.step_seconds = max(self.step_seconds, clock.used() - seconds_before)
        return done

    def _norm_of_point(self, a: FloatArray, d: FloatArray) -> float:
        """The spectral norm of the matrix with these entries of edges and this diagonal."""
        n = self.problem.size
        point = np.zeros((n, n))
        point[self.problem.rows, self.problem.cols] = a
        point[self.problem.cols, self.problem.rows] = a
        point[np.arange(n), np.arange(n)] = d
        values = np.linalg.eigvalsh(point)
        return float(max(-values[0], values[-1]))


def _beyond(matrix: FloatArray, h: float) -> tuple[FloatArray, FloatArray]:
    """The parts of a matrix above h and below -h, to be taken away and added: two positive semidefinite matrices."""
    values, vectors = np.linalg.eigh(matrix)
    high = vectors[:, values > h]
    low = vectors[:, values < -h]
    above = (high * (values[values > h] - h)) @ high.T
    below = (low * (-h - values[values < -h])) @ low.T
    return above, below


def _lower_bound(above: FloatArray, below: FloatArray, problem: WidthProblem) -> float:
    """The value of the dual, in squared distances of tables, next to ``above - below``.

    Both parts are scaled by rows and columns to the mean of their diagonals, which keeps their traces; the best
    multiple of the whole is known.
    """
    high = np.diagonal(above)
    low = np.diagonal(below)
    mean = np.where((high > 0.0) & (low > 0.0), 0.5 * (high + low), 0.0)
    up = np.sqrt(mean / np.where(high > 0.0, high, 1.0))
    down = np.sqrt(mean / np.where(low > 0.0, low, 1.0))

    rows = problem.rows
    cols = problem.cols
    y = above[rows, cols] * up[rows] * up[cols] - below[rows, cols] * down[rows] * down[cols]
    slope = 2.0 * float(y @ problem.b) - 2.0 * problem.half * float(mean.sum())
    square = 2.0 * float(y @ y)
    if slope > 0.0 and square > 0.0:
        return 2.0 * slope * slope / square
    return 0.0


# -- sparse graphs --------------------------------------------------------------------------------------------------


def solve_sparse(problem: WidthProblem, width: Width, goal: Goal) -> Solution:
    """The solution by the dual of low rank; the multipliers are U and V side by side, V up to lengths of rows.

    They have the shape (N, 2 rank).
    """
    check_memory(8.0 * problem.size * 2 * WIDTH_RANK * 40, "norm='width'", "use norm='spectral'")
    solver = _LowRankAscent(problem, width, goal)
    solution = solver.solution
    if solution.converged:
        return solution
    descend_dual(solver.value, solution, solver.after_step, WIDTH_STEPS_PER_ITERATION * goal.max_iter)
    if solver.has_moved and not (solution.converged or solution.interrupted):
        solver.judge()
    return solution


class _LowRankAscent:
    """The ascent on the dual of low rank, which looks at the gap once in a while."""

    def __init__(self, problem: WidthProblem, width: Width, goal: Goal) -> None:
        self.problem = problem
        self.goal = goal
        shape = (problem.size, 2 * WIDTH_RANK)
        self.x = np.random.default_rng(0).normal(scale=0.5 * np.sqrt(problem.half / WIDTH_RANK), size=shape)
        if goal.start is not None and goal.start.shape == shape:
            self.x = np.array(goal.start)
        self.solution = problem.begin(width, goal, self.x)
        self.num_steps = 0
        self.next_look = 2 * WIDTH_STEPS_PER_ITERATION
        self.has_moved = False  # since the last look at the gap

    def value(self, flat: FloatArray) -> tuple[float, FloatArray]:
        """The negative of the dual at U and V, and its gradient; an OutOfTimeError where a step takes too long."""
        if self.goal.clock.past(WIDTH_STEP_SHARE):
            raise OutOfTimeError
        gradient = np.empty(self.x.shape)
        problem = self.problem
        dual = dual_value(problem.rows, problem.cols, problem.b, flat.reshape(self.x.shape), problem.half, gradient)
        return -dual, -gradient.ravel()

    def after_step(self, flat: FloatArray) -> None:
        """Count a step, and look at the gap where it is time to; a StopIteration when the solver is done."""
        solution = self.solution
        self.x = flat.reshape(self.x.shape).copy()
        self.num_steps += 1
        self.has_moved = True
        solution.iterations = -(-self.num_steps // WIDTH_STEPS_PER_ITERATION)
        late = self.goal.clock.past(WIDTH_STEP_SHARE)
        if self.num_steps >= self.next_look or late:
            self.judge()
            self.next_look = self.num_steps + max(WIDTH_STEPS_PER_ITERATION, self.num_steps // 3)
            self.goal.clock.report(solution.iterations, None, "iterations")
        solution.late = late and not solution.converged
        if solution.converged or late:
            raise StopIteration

    def judge(self) -> None:
        """Give the solution the point next to U and V, with its diagonal and an estimate of its norm."""
        self.has_moved = False
        problem = self.problem
        rows = problem.rows
        cols = problem.cols
        lengths, u, v = _rows_of_equal_length(self.x)
        squares = lengths**2
        y = np.einsum("er,er->e", u[rows], u[cols]) - np.einsum("er,er->e", v[rows], v[cols])
        a = problem.b - y

        # The diagonal by the conditions of optimality; h cancels, because the lengths are equal.
        d = np.zeros(problem.size)
        pulls = _row_products(rows, cols, a, u) + _row_products(rows, cols, a, v)
        np.divide(-pulls, 2.0 * squares, out=d, where=squares > 1e-12 * squares.max(initial=0.0))

        matrix = symmetric_matrix(problem.size, rows, cols, a)
        estimate = norm_estimate(matrix, d, clock=self.goal.clock.part(WIDTH_NORM_SHARE))
        size = float(np.sqrt(matrix.data @ matrix.data + d @ d))
        error = eigenvalue_error(problem.size, size) if estimate.complete else np.inf
        dual = 2.0 * float(y @ problem.b) - float(y @ y) - 2.0 * problem.half * float(squares.sum())
        problem.take(self.solution, a, d, estimate.value, error, 4.0 * dual, self.goal)
        self.solution.multipliers = self.x


def _rows_of_equal_length(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The lengths of the rows of U, U itself, and V with rows of the same lengths."""
    u = x[:, :WIDTH_RANK]
    v = x[:, WIDTH_RANK:]
    lengths = np.sqrt((u * u).sum(axis=1))
    own_lengths = np.maximum(np.sqrt((v * v).sum(axis=1)), 1e-300)
    return lengths, u, v * (lengths / own_lengths)[:, None]


def _row_products(rows: IntArray, cols: IntArray, a: FloatArray, u: FloatArray) -> FloatArray:
    """``u_i . sum_j A_ij u_j`` of every row."""
    products = a * np.einsum("er,er->e", u[rows], u[cols])
    return np.asarray(np.bincount(rows, products, len(u)) + np.bincount(cols, products, len(u)), dtype=np.float64)
