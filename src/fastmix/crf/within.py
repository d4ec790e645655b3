"""``SetOfModels``: the log-potentials of examples projected onto a fast-mixing set, and derivatives through that."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.crf.tuning import DIFFERENCE, PROJECTION_TOL
from fastmix.learning import NormBall
from fastmix.model import MarkovRandomField
from fastmix.projection.faces import Face, nearest_with_face
from fastmix.projection.feasible import FeasibleSet

__all__ = ["SetOfModels"]


class SetOfModels:
    """The Euclidean projection of the model of some examples, side by side, onto a norm ball.

    The norm is the largest of those of its parts, so that every example is projected as if it were alone. The
    derivative of a projection onto a convex set is symmetric where there is one, because the projection is the gradient
    of a convex function (Moreau, 1965). So the product of its transpose with a vector is that of itself: for row sums
    it is the projection onto the face that the tables lie on, elsewhere a central difference of two projections gives
    it.
    """

    def __init__(self, template: MarkovRandomField, within: NormBall) -> None:
        self.template = template
        self.within = within
        self._multipliers: FloatArray | None = None
        self._face: Face | None = None
        self.seconds = 0.0

    def project(self, unary: FloatArray, tables: FloatArray, clock: Clock) -> FloatArray:
        """The projected tables (M, K, K), one for each edge, as those that are given."""
        begun = clock.used()
        if self._has_faces:
            moved, self._face = nearest_with_face(self.template, tables.reshape(1, -1), self.within.bound, clock)
            moved = moved.reshape(tables.shape)
        else:
            moved, self._multipliers = self._nearest(unary, tables, clock)
        self.seconds += clock.used() - begun
        return moved

    @property
    def _has_faces(self) -> bool:
        """Whether the set is a polyhedron, so that the derivative is that of a face."""
        return self.within.norm in ("inf", "1")

    def pull(self, unary: FloatArray, tables: FloatArray, gradient: FloatArray, clock: Clock) -> FloatArray:
        """The derivative by the tables before the last projection, from that by the projected ones; both (M, K, K)."""
        if self._has_faces:
            return gradient if self._face is None else self._face.product(gradient)
        largest = float(np.abs(gradient).max(initial=0.0))
        if largest == 0.0:
            return gradient
        begun = clock.used()
        step = DIFFERENCE * max(1.0, float(np.abs(tables).max(initial=0.0))) / largest
        above, _ = self._nearest(unary, tables + step * gradient, clock)
        below, _ = self._nearest(unary, tables - step * gradient, clock)
        self.seconds += clock.used() - begun
        return (above - below) / (2.0 * step)

    def _nearest(self, unary: FloatArray, tables: FloatArray, clock: Clock) -> tuple[FloatArray, FloatArray | None]:
        """The closest tables within the set, but for rounding, and the multipliers of the projection."""
        model = self.template.with_parameters(np.concatenate([unary.reshape(-1), tables.reshape(-1)]))
        feasible = FeasibleSet(
            model, norm_bound=self.within.bound, norm=self.within.norm, tol=PROJECTION_TOL, clock=clock
        )
        if feasible.size(model) <= self.within.bound:
            return tables, self._multipliers
        found, solution = feasible.nearest(model, start=self._multipliers)
        if solution.interrupted:
            raise KeyboardInterrupt
        clock.check()
        return found.log_pairwise.reshape(tables.shape), solution.multipliers
