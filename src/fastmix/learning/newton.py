"""Newton steps for sampled likelihoods: the quadratic model of the penalized objective, and its least value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.learning.covariance import FeatureCovariance
from fastmix.learning.dataset import Dataset
from fastmix.learning.penalty import Penalty
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    AXIS_STEPS,
    EIGENVALUE_MARGIN,
    EIGENVALUE_STEPS,
    EIGENVALUE_TOLERANCE,
    FINAL_SOLVER_STEPS,
    LIPSCHITZ_GROWTH,
    MAX_HESSIAN_DATA_ROWS,
    ROWS_PER_PARAMETER,
    SHRINKAGE,
    SOLVER_STEPS,
    SOLVER_TOLERANCE,
    STEP_ROUNDING,
)

__all__ = ["NewtonModel", "energy_axis"]


def energy_axis(axis: FloatArray, size: int) -> FloatArray:
    """The v (size,) of a function that is linear in the contrasts, with these coefficients (D,)."""
    return np.concatenate([axis, np.zeros(size - len(axis))])


class NewtonModel:
    """The quadratic model of the penalized objective at a point z, from configurations of the model.

    The Hessian is the covariance of the features over configurations of the last round and over the data, which are
    alike at the end. It gives steps, what they gain, and what noise in the gradient would seem to gain.

    Attributes
    ----------
    axis : float array (D,)
        The direction in which configurations differ most, in contrasts.
    largest_eigenvalue : float
        Of the Hessian, or a little more, so that proximal steps are short enough.
    """

    def __init__(self, scaling: Scaling, penalty: Penalty, clock: Clock, *, device: str = "cpu") -> None:
        self.scaling = scaling
        self.coordinates = scaling.coordinates
        self.penalty = penalty
        self.clock = clock
        self.axis = np.full(self.coordinates.num_contrasts, 1.0)
        self._top = np.random.default_rng(0).standard_normal(self.coordinates.size)  # becomes the eigenvector
        self.largest_eigenvalue = 1.0
        self._shrink = 0.0
        self._covariance_of: type[FeatureCovariance] = FeatureCovariance
        if device != "cpu":
            from fastmix.learning.cuda import covariance  # importing Numba takes half a second

            self._covariance_of = covariance.FeatureCovariance

    def pack(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs: arrays and plain data."""
        return {"top": self._top, "axis": self.axis}, {"largest": self.largest_eigenvalue}

    def restore(self, arrays: dict[str, NDArray[Any]], facts: dict[str, Any]) -> None:
        """Go on from what :meth:`pack` gave."""
        self._top = arrays["top"]
        self.axis = arrays["axis"]
        self.largest_eigenvalue = facts["largest"]

    # -- the Hessian --------------------------------------------------------------------------------------------------

    def build(self, snapshots: list[NDArray[Any]], data: Dataset | None) -> None:
        """Take configurations (C, n) of the chains, and rows of data without missing values, for the Hessian."""
        rows = snapshots
        weights = np.full(sum(map(len, rows)), 1.0)
        if data is not None:
            step = max(1, len(data.states) // MAX_HESSIAN_DATA_ROWS)
            weights_of_data = data.weights[::step]
            rows = [*rows, data.states[::step]]
            weights = np.concatenate([weights, weights_of_data * (len(weights_of_data) / weights_of_data.sum())])
        weights /= weights.sum()
        self._hessian = self._covariance_of(self.coordinates, rows, weights)

        # A covariance of few rows has eigenvalues that are much too small: something is added to its diagonal.
        self._rows_each = 1.0 / (self.coordinates.size * float((weights**2).sum()))
        self._shrink = min(1.0, SHRINKAGE / self._rows_each**2)
        for _ in range(AXIS_STEPS):
            self.clock.check()
            direction = self._hessian.apply(energy_axis(self.axis, self.coordinates.size))
            self.axis = direction[: len(self.axis)]
            self.axis /= max(1e-300, float(np.linalg.norm(self.axis)))
        if not self.penalty.is_smooth:
            self._find_largest_eigenvalue()

    def _find_largest_eigenvalue(self) -> None:
        """Estimate the largest eigenvalue of the Hessian by the power method, from where it ended before."""
        for _ in range(EIGENVALUE_STEPS):
            before = self.largest_eigenvalue
            self.largest_eigenvalue = float(np.linalg.norm(self._top))
            if abs(self.largest_eigenvalue - before) < EIGENVALUE_TOLERANCE * before:
                break
            self._top = self._apply(self._top / self.largest_eigenvalue)
        self.largest_eigenvalue *= EIGENVALUE_MARGIN

    def _apply(self, direction: FloatArray) -> FloatArray:
        """The Hessian times a direction, in scaled coordinates."""
        self.clock.check()
        v = self.scaling.to_v(direction)
        return self.scaling.pull(self._hessian.apply(v) + self.penalty.ridge * v) + self._shrink * direction

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, z: FloatArray, gradient: FloatArray, num_steps: int = SOLVER_STEPS) -> tuple[FloatArray, float]:
        """The step from z to the least value of the quadratic model, and what it gains there."""
        if self.penalty.is_smooth:
            step = -self._conjugate(gradient, num_steps)
            return step, -0.5 * float(gradient @ step)
        return self._proximal(z, gradient)

    def remaining(self, z: FloatArray, gradient: FloatArray) -> float:
        """What is left to gain by the quadratic model as it is, where its rows are many enough for it.

        What is added to its diagonal makes steps shorter, and hides what flat directions promise.
        """
        added = self._shrink
        if self._rows_each >= ROWS_PER_PARAMETER / 2.0:
            self._shrink = 0.0
        _, gain = self.step(z, gradient, FINAL_SOLVER_STEPS)
        self._shrink = added
        return gain

    def noise(self, half_difference: FloatArray) -> float:
        """The gain that noise alone would promise, from half of the difference of two gradients."""
        if self.penalty.is_smooth:
            return 0.5 * float(half_difference @ self._conjugate(half_difference, SOLVER_STEPS // 4))
        return 0.5 * float(half_difference @ half_difference) / (1.0 + self._shrink)

    def _conjugate(self, gradient: FloatArray, num_steps: int) -> FloatArray:
        """The inverse of the Hessian times a gradient, by conjugate gradients."""
        from scipy.sparse.linalg import LinearOperator, cg

        shape = (len(gradient), len(gradient))
        hessian = LinearOperator(shape, matvec=self._apply, dtype=np.float64)
        options = {"rtol": SOLVER_TOLERANCE, "maxiter": num_steps, "callback": lambda _: self.clock.check()}
        return np.asarray(cg(hessian, gradient, **options)[0])

    def _proximal(self, z: FloatArray, gradient: FloatArray) -> tuple[FloatArray, float]:
        """The step and its gain with an l1 term or a set, by accelerated proximal steps on the quadratic model."""
        at = z
        ahead = z
        t = 1.0
        # The Hessian times what these points are away from z.
        image_of_at = np.zeros(len(z))
        image_of_ahead = image_of_at
        for _ in range(2 * SOLVER_STEPS):
            while True:
                self.clock.check()
                step = (gradient + image_of_ahead) / self.largest_eigenvalue
                new = self.penalty.backward(self.scaling, ahead - step, self.largest_eigenvalue)
                image_of_new = self._apply(new - z)
                moved = new - ahead
                rounding = STEP_ROUNDING * float(np.linalg.norm(moved) * np.linalg.norm(image_of_new))
                rise = float(moved @ (image_of_new - image_of_ahead))
                if rise <= self.largest_eigenvalue * float(moved @ moved) + rounding:
                    break
                # A direction that the power method had missed: longer steps would diverge.
                self.largest_eigenvalue *= LIPSCHITZ_GROWTH
            if float((ahead - new) @ (new - at)) > 0.0:
                t = 1.0
            later = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * t * t))
            momentum = (t - 1.0) / later
            moved = new - at
            ahead = new + momentum * moved
            image_of_ahead = image_of_new + momentum * (image_of_new - image_of_at)
            at = new
            image_of_at = image_of_new
            t = later
            if float(moved @ moved) <= 1e-6 * float((at - z) @ (at - z)):
                break
        step = at - z
        before, after = (self.penalty.table_cost(self.coordinates, self.scaling.to_v(some)) for some in (z, at))
        gain = -float(gradient @ step) - 0.5 * float(step @ image_of_at) - after + before
        return step, max(gain, 0.0)
