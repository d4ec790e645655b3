"""``Conditionals``: marginals of all entries given evidence, and given evidence and one more state, row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_positive
from fastmix._clock import OutOfTimeError
from fastmix._context import Context
from fastmix._memory import available_memory
from fastmix.errors import ImpossibleEvidenceError, ResourceError
from fastmix.gradients.partition import LogPartition
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.evidence import observed_unary
from fastmix.queries.tuning import CONDITIONAL_BYTES

__all__ = ["Conditionals", "Row", "information", "joint_with"]

#: What is observed beside the evidence: a state by the number of its variable.
Row = dict[int, int]


class Conditionals:
    """Exact marginals of a model given evidence, in the layout of its parameters, for rows of further observations.

    Attributes
    ----------
    fixed : int array (n,)
        The observed state of every variable, -1 for those that evidence leaves open.
    log_z : float
        Log of the mass of the evidence.
    marginals : float array (P,)
        Given the evidence alone.
    """

    def __init__(
        self, model: MarkovRandomField, evidence: Evidence | None, memory_limit: float | None, context: Context
    ) -> None:
        self.model = model
        self.context = context
        self.evidence = evidence
        unary, self.fixed = observed_unary(model, evidence)
        self._theta = np.concatenate([unary, model.log_pairwise, model.log_factors])
        limit = available_memory() / 2
        if memory_limit is not None:
            limit = check_positive("memory_limit", memory_limit, "number of bytes")
        try:
            self._partition = LogPartition.of(model.structure, limit, context.clock)
        except OutOfTimeError:
            raise self._too_late() from None
        ((log_z, marginals),) = self.rows([{}])
        if log_z == -np.inf:
            raise ImpossibleEvidenceError("evidence must have a positive probability, and this has none")
        self.log_z = log_z + model.log_constant
        self.marginals = marginals

    def rows(self, observed: Sequence[Row]) -> Iterator[tuple[float, FloatArray]]:
        """Log of the mass, and marginals (P,), given the evidence and each row; -inf and NaN for what cannot be."""
        yield from self._answer([self._given(row) for row in observed])

    def without(self, variables: Sequence[int]) -> Iterator[FloatArray]:
        """Marginals (P,) given the evidence but for one variable, for each of some variables."""
        given = {name: self.model.variable_index(name) for name in self.evidence or ()}
        thetas = []
        for variable in variables:
            rest = {name: state for name, state in (self.evidence or {}).items() if given[name] != variable}
            unary = observed_unary(self.model, rest)[0]
            thetas.append(np.concatenate([unary, self._theta[len(unary) :]]))
        for _, marginals in self._answer(thetas):
            yield marginals

    def states_of(self, variable: int, entries: FloatArray) -> FloatArray:
        """The entries of the states of a variable, in any array (.., P)."""
        first, end = self.model.unary_offsets[variable : variable + 2]
        return entries[..., first:end]

    def _given(self, row: Row) -> FloatArray:
        """The parameters with all other states of the observed variables forbidden."""
        theta = self._theta
        if row:
            theta = theta.copy()
            for variable, state in row.items():
                own = self.states_of(variable, theta)
                kept = own[state]
                own[:] = -np.inf
                own[state] = kept
        return theta

    def _answer(self, thetas: Sequence[FloatArray]) -> Iterator[tuple[float, FloatArray]]:
        """Log Z and gradients of rows of parameters, some of them at a time."""
        context = self.context
        at_a_time = max(1, CONDITIONAL_BYTES // (16 * max(1, len(self._theta))))
        for first in range(0, len(thetas), at_a_time):
            part = np.stack(thetas[first : first + at_a_time])
            try:
                found = self._partition.gradients(part, num_threads=context.num_threads, clock=context.clock)
            except OutOfTimeError:
                raise self._too_late() from None
            context.clock.report(min(first + at_a_time, len(thetas)), len(thetas), "rows")
            yield from zip(found.log_z.tolist(), found.gradient, strict=True)

    def _too_late(self) -> ResourceError:
        """The error for a call that cannot end within the limit of its clock."""
        limit = self.context.clock.limit
        return ResourceError(f"exact inference takes longer than the time limit of {limit:.3g} s: give it more time")


def joint_with(conditionals: Conditionals, variable: int) -> tuple[FloatArray, FloatArray]:
    """Joint probabilities (states, sum of num_states) of a variable with each variable, and rows (states, P) given it.

    Both are given the evidence; rows of states that cannot be are 0.
    """
    shares = conditionals.states_of(variable, conditionals.marginals)
    rows: Sequence[Row] = [{variable: state} for state in range(len(shares))]
    given = np.stack([np.nan_to_num(marginals) for _, marginals in conditionals.rows(rows)])
    num_unary = len(conditionals.model.log_unary)
    return shares[:, None] * given[:, :num_unary], given


def information(joint: FloatArray, offsets: IntArray) -> FloatArray:
    """Mutual information (n,) of one variable with each variable, in nats, from joint probabilities (states, ..)."""
    products = joint.sum(axis=1, keepdims=True) / max(1, len(offsets) - 1) * joint.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0.0, joint * np.log(joint / products), 0.0)
    found = np.add.reduceat(terms.sum(axis=0), offsets[:-1]) if len(offsets) > 1 else np.zeros(0)
    return np.maximum(found, 0.0)
