"""The set of models whose width is at most a bound, and what is known of the width of a model in it.

The width bounds the couplings of all variables together (:mod:`fastmix.theory.width`). The nearest model is found by
the solvers of :mod:`fastmix.projection.width_solvers`; a diagonal that comes with it proves its width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.solution import Goal, Solution
from fastmix.projection.tuning import (
    WIDTH_BEFORE_SHARE,
    WIDTH_HASTE,
    WIDTH_LARGE_TOL,
    WIDTH_LEAST_DENSITY,
    WIDTH_MAX_DENSE,
    WIDTH_SPARSE_TOL,
)
from fastmix.projection.width_solvers import WidthProblem, solve_dense, solve_sparse
from fastmix.theory.dense import eigenvalue_seconds
from fastmix.theory.dependency import edge_dependencies
from fastmix.theory.width import (
    Width,
    add_couplings,
    couplings,
    matrix_seconds,
    model_width,
    norm_estimate,
    norm_from_above,
    remember_width,
    symmetric_matrix,
    width_seconds,
)

__all__ = ["WidthSet"]


@dataclass(frozen=True, eq=False)
class _Proof:
    """Entries of edges, and a bound on the spectral norm of their matrix with the diagonal that came with them."""

    entries: FloatArray
    half: float
    name: str
    is_measured: bool  # another measurement of the same couplings, or of a multiple of them, would only repeat it


@dataclass(eq=False)
class WidthSet(FeasibleSet):
    """Models of pairs on one graph whose width is bounded."""

    #: The diagonal that came with the nearest model; None before there is one.
    _diagonal: FloatArray | None = field(default=None, init=False)
    #: The width that was measured last.
    _known: Width | None = field(default=None, init=False)
    #: A proof of the solver's, for want of time for another one, or the one that was measured last.
    _proof: _Proof | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.model.num_factors:
            raise UnfitMethodError(
                f"norm='width' takes no factors over three or more variables, of which the model has "
                f"{self.model.num_factors}; the other norms scale them"
            )

    def measure(self, model: MarkovRandomField, clock: Clock | None = None) -> tuple[FloatArray, float]:
        """The dependency of every edge (m,) by the bound ``range``, and a safe upper bound on the width."""
        clock = self.clock if clock is None else clock
        z = edge_dependencies(model, dependency="range", clock=clock).max(axis=1, initial=0.0)
        return z, self.size(model, clock)

    def size(self, model: MarkovRandomField, clock: Clock | None = None) -> float:
        """A safe upper bound on the width; with the diagonal of the nearest model where there is one."""
        clock = self.clock if clock is None else clock
        if self._diagonal is None and _has_time(width_seconds(model), clock):
            self._known = model_width(model, clock=clock)
        elif self._diagonal is None:
            self._known = self._width_by_row_sums(model)
        else:
            self._known = self._width_with_diagonal(model, self._diagonal, clock)
        return self._known.value

    def _width_with_diagonal(self, model: MarkovRandomField, diagonal: FloatArray, clock: Clock) -> Width:
        """The width that a diagonal proves.

        By an earlier proof where that says as much, or where there is no time for another one, and for want of both by
        the largest row sum.
        """
        rows, cols, entries, error = couplings(model)
        n = len(diagonal)
        has_time = (
            eigenvalue_seconds(n) <= clock.left() if n <= WIDTH_MAX_DENSE else _has_time(matrix_seconds(model), clock)
        )
        if self._proof is not None and (self._proof.is_measured or not has_time):
            half = self._proof.half + _largest_row_sum(n, rows, cols, entries - self._proof.entries)
            return _width_of(half, error, diagonal, self._proof.name)
        proof = "none"
        half = 0.0
        if has_time or n <= WIDTH_MAX_DENSE:
            matrix = symmetric_matrix(n, rows, cols, entries)
            estimate = norm_estimate(matrix, diagonal, clock=clock)
            if estimate.value:
                half, proof = norm_from_above(matrix, diagonal, estimate, clock=clock)
        else:
            proof = "row sums"
            half = _largest_row_sum(n, rows, cols, entries) + float(np.abs(diagonal).max(initial=0.0))
        self._proof = _Proof(entries, half, proof, is_measured=True)
        return _width_of(half, error, diagonal, proof)

    def _width_by_row_sums(self, model: MarkovRandomField) -> Width:
        """The width that the largest row sum proves, without a diagonal."""
        rows, cols, entries, error = couplings(model)
        n = int((model.num_states - 1).sum())
        half = _largest_row_sum(n, rows, cols, entries)
        return _width_of(half, error, np.zeros(n), "row sums")

    def nearest(
        self,
        model: MarkovRandomField,
        *,
        start: FloatArray | None = None,
        weights: FloatArray | None = None,
        clock: Clock | None = None,
    ) -> tuple[MarkovRandomField, Solution]:
        """The model of the set with the closest tables, but for rounding, and how it was found.

        Unaries stay as they are; there are no ``weights``, because only the Euclidean divergence bounds the width.
        """
        assert weights is None
        clock = self.clock if clock is None else clock
        self._proof = None
        width = self._known
        if width is None:
            width = model_width(model, clock=clock.part(WIDTH_BEFORE_SHARE))

        problem = WidthProblem(model, self.norm_bound)
        solution = self._solve_for_width(problem, width, start, clock)

        num_entries = len(problem.b)
        entries = solution.z[:num_entries]
        self._diagonal = solution.z[num_entries:].copy()
        if problem.half_of_best < np.inf:
            self._proof = _Proof(entries.copy(), problem.half_of_best, "eigenvalues", is_measured=False)
        return add_couplings(model, entries - problem.b), solution

    def _solve_for_width(self, problem: WidthProblem, width: Width, start: FloatArray | None, clock: Clock) -> Solution:
        """The solution of the solver that suits the graph, to the gap that this one can reach."""
        small = problem.size <= WIDTH_MAX_DENSE
        if small and problem.density >= WIDTH_LEAST_DENSITY:
            solve = solve_dense
            tol = self.tol
        else:
            solve = solve_sparse
            tol = max(self.tol, WIDTH_SPARSE_TOL if small else WIDTH_LARGE_TOL)
        return solve(problem, width, Goal(self.norm_bound, tol, self.max_iter, start, clock))

    def shrunk(self, theta: MarkovRandomField, factor: float) -> MarkovRandomField:
        """The model with all couplings, and the diagonal that proves its width, multiplied by a factor."""
        if self._diagonal is not None:
            self._diagonal = factor * self._diagonal
        if self._proof is not None:
            half = float(np.nextafter(factor * self._proof.half, np.inf))
            self._proof = replace(self._proof, entries=factor * self._proof.entries, half=half)
        return add_couplings(theta, (factor - 1.0) * couplings(theta)[2])

    def remember(self, model: MarkovRandomField) -> None:
        """Let :func:`fastmix.certify` know the width of the model that was settled, with all its variables."""
        if self._known is not None and not model.has_forbidden:
            remember_width(model, self._known)


def _has_time(seconds: float, clock: Clock) -> bool:
    """Whether what is estimated to take so many seconds about fits what is left of the time."""
    return seconds <= WIDTH_HASTE * clock.left()


def _width_of(half: float, error: float, diagonal: FloatArray, proof: str) -> Width:
    """The width by a bound on the norm of the matrix with its diagonal, and on the rounding errors of the matrix."""
    return Width(float(np.nextafter(2.0 * half * (1.0 + 1e-15), np.inf)) + 2.0 * error, diagonal, proof)


def _largest_row_sum(n: int, rows: IntArray, cols: IntArray, entries: FloatArray) -> float:
    """The largest sum of absolute values of a row of a symmetric matrix, which bounds its norm, from above."""
    size = np.abs(entries)
    sums = np.bincount(rows, size, minlength=n) + np.bincount(cols, size, minlength=n)
    return float(sums.max(initial=0.0)) * (1.0 + (n + 4) * float(np.finfo(np.float64).eps))
