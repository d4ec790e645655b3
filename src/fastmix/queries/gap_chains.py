"""Chains for the holes of many rows at once, where exact inference fits no row.

Every row has two chains or more, from starts of their own, in which what is observed stays as it is. Probabilities are
means over sweeps; the halves of both chains say how far they can be trusted. Rows of which they do not agree get four
times as many sweeps, as long as there is time. Most probable completions are the best of annealed chains, unproven.
"""

from __future__ import annotations

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix.learning.clamped import ClampedChains
from fastmix.learning.coordinates import Coordinates
from fastmix.model import MarkovRandomField
from fastmix.queries.answers import RowAnswers, Wanted, worst_status
from fastmix.queries.tuning import (
    ANNEALING_SWEEPS,
    COLDEST,
    FIRST_SWEEPS,
    LARGEST_ERROR,
    MAX_ROW_SWEEPS,
    ROWS_OF_CHAINS,
    SWEEP_GROWTH,
    SWEEPS_PER_DRAW,
)
from fastmix.results import Status

__all__ = ["answer_by_chains", "fits_chains"]


def fits_chains(model: MarkovRandomField) -> bool:
    """Whether chains can move anywhere: a pairwise model that forbids nothing."""
    return not model.num_factors and not model.has_forbidden


def answer_by_chains(model: MarkovRandomField, rows: IntArray, wanted: Wanted, context: Context) -> RowAnswers:
    """Answers for rows of evidence (N, n) by chains for all of them, some rows at a time."""
    work = _RowChains(model, rows, wanted, context)
    with Ending() as ending:
        work.run()
    return work.result(ending)


class _RowChains:
    """The arrays of answers, filled block by block."""

    def __init__(self, model: MarkovRandomField, rows: IntArray, wanted: Wanted, context: Context) -> None:
        count = len(rows)
        n = model.num_variables
        self.model = model
        self.rows = rows
        self.wanted = wanted
        self.context = context
        self.rng = context.rng("chains of rows")
        self.coordinates = Coordinates(model.structure)
        self.v, _ = self.coordinates.from_parameters(model.parameters)
        self.gaps: BoolArray = np.asarray((rows < 0).any(axis=1))
        self.row_status = np.full(count, str(Status.TIME_LIMIT), dtype="<U16")
        self.marginals = np.full((count, int(model.unary_offsets[-1])), np.nan) if wanted.marginals else None
        self.completions = np.full((count, n), -1, dtype=np.int64) if wanted.most_probable else None
        self.draws = np.full((count, wanted.num_draws, n), -1, dtype=np.int64) if wanted.num_draws else None

    def run(self) -> None:
        """Whole rows at once, then blocks of the others: a first round for all, further ones for those that need it."""
        whole = np.flatnonzero(~self.gaps)
        if len(whole):
            self._keep(whole, self.coordinates.encode(self.rows[whole]), np.zeros(len(whole)))
            if self.completions is not None:
                self.completions[whole] = self.rows[whole]
            if self.draws is not None:
                self.draws[whole] = self.rows[whole][:, None]
        left = np.flatnonzero(self.gaps)
        num_sweeps = FIRST_SWEEPS
        while len(left):
            for first in range(0, len(left), ROWS_OF_CHAINS):
                self._answer(left[first : first + ROWS_OF_CHAINS], num_sweeps)
            left = left[self.row_status[left] == str(Status.NOT_MIXED)]
            num_sweeps *= SWEEP_GROWTH
            if num_sweeps > MAX_ROW_SWEEPS or not self.wanted.marginals:
                break

    def _answer(self, numbers: IntArray, num_sweeps: int) -> None:
        """Answer some rows by so many sweeps, after half as many that are not counted."""
        rows = self.rows[numbers]
        chains = ClampedChains(self.coordinates, rows, np.full(len(rows), 1.0 / len(rows)), self.rng)
        chains.clock = self.context.clock
        chains.load_contrasts(self.v)
        chains.sweep(num_sweeps // 2)
        copies = chains.num_chains // len(rows)
        halves = [chains.mean_contrasts(num_sweeps // 2).reshape(copies, len(rows), -1) for _ in range(2)]
        sides = [half[side::2].mean(axis=0) for half in halves for side in range(2)]
        errors = np.std(sides, axis=0, ddof=1).max(axis=1, initial=0.0) / np.sqrt(len(sides))
        self._keep(numbers, np.mean(sides, axis=0), errors)
        if self.draws is not None:
            for k in range(self.wanted.num_draws):
                chains.sweep(SWEEPS_PER_DRAW)
                self.draws[numbers, k] = chains.get_states()[: len(rows)]
        if self.completions is not None:
            self.completions[numbers] = self._best(chains, copies)
        done = int((self.row_status != str(Status.TIME_LIMIT)).sum())
        self.context.clock.report(done, len(self.rows), "rows")

    def _keep(self, numbers: IntArray, means: FloatArray, errors: FloatArray) -> None:
        """Keep marginals from means of contrasts (R, D) with their largest errors (R,), and the verdicts."""
        is_close = errors <= LARGEST_ERROR
        self.row_status[numbers] = np.where(is_close, str(Status.OK), str(Status.NOT_MIXED))
        if self.marginals is None:
            return
        offsets = self.model.unary_offsets
        starts = self.coordinates.starts
        for i, q in enumerate(self.coordinates.tables):
            values = 1.0 / len(q) + means[:, starts[i] : starts[i + 1]] @ q.T
            self.marginals[numbers, offsets[i] : offsets[i + 1]] = np.clip(values, 0.0, 1.0)

    def _best(self, chains: ClampedChains, copies: int) -> IntArray:
        """The most probable of the states that annealed chains of every row end in."""
        for sharpness in np.geomspace(1.0, COLDEST, ANNEALING_SWEEPS):
            chains.load_contrasts(sharpness * self.v)
            chains.sweep(1)
        states = chains.get_states().reshape(copies, -1, self.model.num_variables)
        weights = np.stack([self.model.log_weight(own) for own in states])
        best: IntArray = states[weights.argmax(axis=0), np.arange(states.shape[1])]
        return best

    def result(self, ending: Ending) -> RowAnswers:
        """The answers so far; rows that are missing are marked. Most probable completions of holes are unproven."""
        if self.completions is not None:
            is_ok = self.gaps & (self.row_status == str(Status.OK))
            self.row_status[is_ok] = str(Status.UNVERIFIED)
        status = Status.INTERRUPTED if ending.interrupted else worst_status(self.row_status)
        count = len(self.rows)
        return RowAnswers(
            model=self.model,
            status=status,
            rows=self.rows,
            node_marginals=self.marginals,
            row_log_z=np.full(count, np.nan),
            log_evidence=None,
            completions=self.completions,
            draws=self.draws,
            row_status=self.row_status,
            stats={
                "num_rows": count,
                "num_exact_rows": int((~self.gaps).sum()),
                "num_single_rows": 0,
                "num_plans": 0,
                "stopped_by": ending.by,
            },
        )
