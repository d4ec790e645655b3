"""Belief propagation for many rows at once, where exact inference fits no row.

Messages of all rows lie side by side (:mod:`fastmix.variational.row_messages`). Rows whose messages converge are
``unverified``: nothing supports their beliefs, which are exact on graphs without cycles only. Rows in which products of
messages are out of range, or impossible, are answered one by one in logs.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import IntArray
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError
from fastmix.marginals import ZeroResult
from fastmix.model import MarkovRandomField
from fastmix.modes.most_probable import most_probable
from fastmix.queries.answers import RowAnswers, Wanted, worst_status
from fastmix.queries.tuning import ROWS_PER_REPORT
from fastmix.results import Status
from fastmix.variational.loopy_bp import loopy_bp
from fastmix.variational.row_messages import RowBeliefs, RowMessages

__all__ = ["answer_by_messages", "fits_messages"]


def fits_messages(model: MarkovRandomField) -> bool:
    """Whether messages of rows can lie side by side: a pairwise model."""
    return not model.num_factors


def answer_by_messages(model: MarkovRandomField, rows: IntArray, wanted: Wanted, context: Context) -> RowAnswers:
    """Answers for rows of evidence (N, n) by belief propagation for all of them; there are no draws."""
    work = _RowBeliefs(model, rows, wanted, context)
    with Ending() as ending:
        work.run()
    return work.result(ending)


class _RowBeliefs:
    """The arrays of answers, filled part by part."""

    def __init__(self, model: MarkovRandomField, rows: IntArray, wanted: Wanted, context: Context) -> None:
        count = len(rows)
        self.model = model
        self.rows = rows
        self.context = context
        self.row_status = np.full(count, str(Status.TIME_LIMIT), dtype="<U16")
        self.log_z = np.full(count, np.nan)
        self.marginals = np.full((count, int(model.unary_offsets[-1])), np.nan)
        self.wants_marginals = wanted.marginals
        self.completions = None
        if wanted.most_probable:
            self.completions = np.full((count, model.num_variables), -1, dtype=np.int64)
        self.num_single = 0

    def run(self) -> None:
        """Beliefs of all rows, then what has to be done row by row."""
        messages = RowMessages(self.model)
        clock = self.context.clock
        for first in range(0, len(self.rows), ROWS_PER_REPORT):
            part = slice(first, first + ROWS_PER_REPORT)
            found = messages.unanswered(len(self.rows[part]))
            try:
                messages.answer(self.rows[part], found, num_threads=self.context.num_threads, clock=clock)
            finally:
                self._keep(part, found, Status.OK if messages.is_forest else Status.UNVERIFIED)
            for number in (first + np.flatnonzero(found.is_lost)).tolist():
                clock.check()
                self._answer_alone(number)
            if self.completions is not None:
                for number in range(first, first + len(self.rows[part])):
                    clock.check()
                    self._complete(number)
            clock.report(min(first + ROWS_PER_REPORT, len(self.rows)), len(self.rows), "rows")

    def _keep(self, part: slice, found: RowBeliefs, settled: Status) -> None:
        """Keep the beliefs of rows; those that have none were not answered."""
        is_known = ~np.isnan(found.node_marginals).any(axis=1)
        verdicts = np.where(found.converged, str(settled), str(Status.NOT_CONVERGED))
        self.marginals[part] = found.node_marginals
        self.log_z[part] = found.log_z
        self.row_status[part] = np.where(is_known, verdicts, self.row_status[part])

    def _evidence(self, number: int) -> dict[int | str, int | str]:
        """What a row observes."""
        row = self.rows[number]
        return {v: int(row[v]) for v in np.flatnonzero(row >= 0).tolist()}

    def _answer_alone(self, number: int) -> None:
        """Answer one row in logs, or find that it is impossible."""
        self.num_single += 1
        try:
            found = loopy_bp(self.model, evidence=self._evidence(number), progress=None)
        except (ImpossibleEvidenceError, ImpossibleModelError):
            found = None
        if found is None or isinstance(found, ZeroResult):
            self.log_z[number] = -np.inf
            self.row_status[number] = str(Status.OK)
            return
        self.marginals[number] = found.node_marginals
        if found.log_z is not None:
            self.log_z[number] = found.log_z
        is_exact = found.log_z_kind == "exact"
        status = Status.UNVERIFIED if found.converged and not is_exact else found.status
        self.row_status[number] = str(status)

    def _complete(self, number: int) -> None:
        """Find the most probable completion of a row, by the method that suits it."""
        if self.log_z[number] == -np.inf:
            return
        assert self.completions is not None
        best = most_probable(
            self.model, evidence=self._evidence(number), seed=self.context.seed_of("row", number), progress=None
        )
        self.completions[number] = best.states
        if self.row_status[number] == str(Status.OK):
            self.row_status[number] = str(best.status)

    def result(self, ending: Ending) -> RowAnswers:
        """The answers so far; rows that are missing are marked."""
        status = Status.INTERRUPTED if ending.interrupted else worst_status(self.row_status)
        return RowAnswers(
            model=self.model,
            status=status,
            rows=self.rows,
            node_marginals=self.marginals if self.wants_marginals else None,
            row_log_z=self.log_z,
            log_evidence=None,
            completions=self.completions,
            row_status=self.row_status,
            stats={
                "num_rows": len(self.rows),
                "num_exact_rows": 0,
                "num_single_rows": self.num_single,
                "num_plans": 0,
                "stopped_by": ending.by,
            },
        )
