"""Derivatives of marginals along a direction of the parameters: one run through a program, with tangents beside it.

Every step of the junction tree is a sum of products, so that its derivative is two such sums. The result is the
covariance of the statistics times the direction: a product of the Hessian of log Z with a vector.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact import program_kernels as kernels
from fastmix.exact.elimination import FactorElimination
from fastmix.exact.program import Program, ProgramRun, UnderflowError

__all__ = ["TangentMarginals", "run_tangents"]


class TangentMarginals(NamedTuple):
    """Log Z, the marginals of all factors, one after another, and their derivatives along the direction."""

    log_z: float
    marginals: FloatArray
    tangents: FloatArray


def run_tangents(
    elimination: FactorElimination, values: FloatArray, directions: FloatArray, clock: Clock = NO_LIMIT
) -> TangentMarginals:
    """Marginals of all factors and their derivatives along a direction of the logs of their tables.

    Takes about four times as long as the marginals alone. An :class:`fastmix.ImpossibleModelError` where no
    configuration has positive probability.
    """
    plan = elimination.plan
    if plan.program is None:
        plan.program = Program(elimination.factors, plan, clock)
    try:
        return _TangentRun(plan.program, values, directions, "linear", clock).tangent_marginals()
    except UnderflowError:
        return _TangentRun(plan.program, values, directions, "log", clock).tangent_marginals()


class _TangentRun(ProgramRun):
    """A run through a program in which every entry has its tangent."""

    def __init__(
        self, program: Program, values: FloatArray, directions: FloatArray, arithmetic: str, clock: Clock
    ) -> None:
        self.tangents = np.zeros(program.end)
        self.tangents[program.values : program.spare] = directions
        super().__init__(program, values, arithmetic, clock, backward=True, compiled=True)

    def _choose_kernel(self, compiled: bool) -> None:
        """Set the loop over the steps, which also takes the tangents."""
        from fastmix.exact.tangent_kernels import run_tangent_steps

        del compiled  # always
        self.kernel = run_tangent_steps
        self.inputs = (self.program.steps, self.program.groups)
        self.changed.append(self.tangents)

    def _exponentiate_leaves(self) -> None:
        """Turn the leaves from logs into ordinary arithmetic, and their tangents with them."""
        super()._exponentiate_leaves()
        end = self.program.leaf_end
        self.tangents[:end] *= self.w[:end]

    def _multiply(self, start: int) -> None:
        """Do the step that is a product of matrices, and its tangent."""
        super()._multiply(start)
        parts = self.program.products[start]
        left, right, _ = [part.view(self.w) for part in parts]
        d_left, d_right, d_out = [part.view(self.tangents) for part in parts]
        np.matmul(d_left, right, out=d_out)
        d_out += np.matmul(left, d_right)

    def tangent_marginals(self) -> TangentMarginals:
        """Marginals of all factors and their derivatives."""
        program = self.program
        if program.leaf_end:
            self._normalize_leaves()
        self._go(program.joints[0], program.joints[-1], kernels.LINEAR)
        own = slice(program.joint, program.end)
        return TangentMarginals(self.log_z, self.w[own].copy(), self.tangents[own].copy())

    def _normalize_leaves(self) -> FloatArray:
        """Turn the derivatives by leaves, in place, into the marginals of their scopes, with tangents."""
        program = self.program
        own = slice(program.back, program.slopes)
        beliefs = self.w[own]
        slopes = self.tangents[own]
        tables = self.w[: program.leaf_end]
        d_tables = self.tangents[: program.leaf_end]
        if self.mode == kernels.LINEAR:
            np.copyto(slopes, slopes * tables + beliefs * d_tables, where=program.changed)
            divisors = super()._normalize_leaves()
            slopes /= divisors
        else:  # these are derivatives of logs
            np.add(slopes, d_tables, out=slopes, where=program.changed)
            divisors = super()._normalize_leaves()
            slopes *= beliefs
        totals = np.add.reduceat(slopes, program.leaf_starts)
        slopes -= beliefs * totals.repeat(program.leaf_sizes)
        return divisors
