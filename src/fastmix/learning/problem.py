"""What a call of ``learn`` asks for, and how large it is."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import check_choice
from fastmix._clock import OutOfTimeError
from fastmix._context import Context
from fastmix._memory import check_memory
from fastmix.chains.cuda.device import cuda_available
from fastmix.errors import ResourceError
from fastmix.graphs import complete_bipartite_edges, complete_edges
from fastmix.graphs.edges import canonical_edges
from fastmix.learning.dataset import Dataset
from fastmix.learning.likelihood import Likelihood
from fastmix.learning.objective import LearningObjective
from fastmix.learning.result import LearnResult, NormBall
from fastmix.learning.resume import Ledger
from fastmix.learning.tuning import (
    BYTES_PER_CONTRAST_PAIR,
    BYTES_PER_EDGE,
    BYTES_PER_TABLE_ENTRY,
    MAX_COMPLETE_VARIABLES,
    SECONDS_PER_CONTRAST_PAIR,
    SECONDS_PER_EDGE,
    SECONDS_PER_MATRIX_ENTRY,
    SECONDS_PER_PRODUCT,
    SECONDS_PER_TABLE_ENTRY,
)

__all__ = ["FitSize", "Problem"]


@dataclass(frozen=True, eq=False)
class Problem:
    """What a call asks for, but the graph and the penalties.

    Attributes
    ----------
    data, validation : Dataset
        As given, without hidden variables in the first and with them in the second.
    objective : LearningObjective
    within : NormBall or None
    hidden : int
    num_chains, tol, max_iter : numbers, or None where the user gave none
    context : Context
    ledger : Ledger
        What the checkpoint has.
    rough : bool
        Whether a fit only serves to choose between penalties, so that sampled ones may be less accurate.
    judge : LearningObjective or None
        By which validation data are scored, if not by the objective.
    penalty_scale : float
        Times the penalties of the result, for this objective.
    found : list of LearnResult
        All fits so far, for an interrupt between two of them.
    """

    data: Dataset
    validation: Dataset | None
    objective: LearningObjective
    within: NormBall | None
    hidden: int
    num_chains: int | None
    tol: float | None
    max_iter: int | None
    context: Context
    ledger: Ledger
    rough: bool = False
    judge: LearningObjective | None = None
    penalty_scale: float = 1.0
    found: list[LearnResult] = field(default_factory=list)

    @property
    def on_device(self) -> bool:
        """Whether a GPU is to be used, and there is one."""
        return self.context.backend != "cpu" and cuda_available()[0]

    @property
    def is_likelihood(self) -> bool:
        """Whether the likelihood is the objective."""
        return isinstance(self.objective, Likelihood)

    @property
    def judged_by(self) -> LearningObjective:
        """The objective that scores validation data."""
        return self.judge or self.objective

    def merged(self) -> Dataset:
        """The rows with equal ones joined, hidden variables included."""
        return self.data.merged()[0].with_hidden(self.hidden)

    def graph(self, edges: str | IntArray) -> IntArray:
        """The edges (m, 2) that were asked for, in order; words that stand for a choice begin with the complete graph.

        Raises
        ------
        ResourceError
            If a complete graph is too large.
        """
        n = len(self.data.num_states)
        if not isinstance(edges, str):
            return canonical_edges(n + self.hidden, edges)
        check_choice("edges", edges, ("auto", "complete", "chow-liu", "l1", "grow"))
        if n > MAX_COMPLETE_VARIABLES:
            raise ResourceError(
                f"a complete graph of {n:,} variables is too large: give edges, or use edges='chow-liu'"
            )
        FitSize.of_complete(self.data.num_states, self.hidden).check(self)
        return complete_bipartite_edges(n, self.hidden) if self.hidden else complete_edges(n)


@dataclass(frozen=True)
class FitSize:
    """How large a fit is: edges, entries of their tables, pairs of contrasts on them, and contrasts of variables."""

    num_edges: float
    num_entries: float
    num_pairs: float
    num_contrasts: float

    @classmethod
    def of_graph(cls, num_states: IntArray, graph: IntArray) -> FitSize:
        """The size of a fit on the edges of a graph (m, 2)."""
        first, second = num_states[graph.T].astype(np.float64)
        num_pairs = float(((first - 1.0) * (second - 1.0)).sum())
        return cls(len(graph), float((first * second).sum()), num_pairs, float((num_states - 1).sum()))

    @classmethod
    def of_complete(cls, num_states: IntArray, hidden: int) -> FitSize:
        """The size of a fit on all edges, or on all between variables and hidden ones."""
        states = num_states.astype(np.float64)
        contrasts = states - 1.0
        total = float(contrasts.sum())
        if hidden:
            return cls(len(states) * hidden, 2.0 * hidden * float(states.sum()), hidden * total, total + hidden)
        num_edges = len(states) * (len(states) - 1) / 2.0
        num_entries = 0.5 * float(states.sum() ** 2 - (states**2).sum())
        num_pairs = 0.5 * float(contrasts.sum() ** 2 - (contrasts**2).sum())
        return cls(num_edges, num_entries, num_pairs, total)

    def check(self, problem: Problem) -> None:
        """A :class:`ResourceError` without the memory for a fit, an :class:`OutOfTimeError` without the time."""
        required = (
            BYTES_PER_EDGE * self.num_edges
            + BYTES_PER_TABLE_ENTRY * self.num_entries
            + BYTES_PER_CONTRAST_PAIR * self.num_pairs
        )
        what = f"a graph of {self.num_edges:,.0f} edges with {self.num_entries:.4g} entries of tables"
        if problem.hidden:
            what = f"hidden {problem.hidden:,}, with {what},"
        check_memory(required, what, "take fewer hidden variables" if problem.hidden else "give edges")
        seconds_per_pair = SECONDS_PER_MATRIX_ENTRY + SECONDS_PER_PRODUCT * len(problem.data.states)
        seconds = (
            SECONDS_PER_EDGE * self.num_edges
            + SECONDS_PER_TABLE_ENTRY * self.num_entries
            + SECONDS_PER_CONTRAST_PAIR * self.num_pairs
            + seconds_per_pair * self.num_contrasts**2
        )
        if seconds > problem.context.clock.left():
            raise OutOfTimeError
