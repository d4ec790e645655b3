"""Bounds for models of any size: covers from above, clusters from below, walks, cases and draws, as time allows.

The time is shared among them as follows.

1. Bounds that take next to no time: largest entries, one configuration, the neighbors of each variable.
2. Naive mean field: a lower bound whose sweeps are so fast that it is the best there is in little time.
3. Covers (:mod:`fastmix.bounds.upper_bound`) with tables as large as time and memory allow, and a first step.
4. Clusters (:mod:`fastmix.bounds.lower_bound`), from mean field and from variables without neighbors.
5. Whichever of the two gains more per second, until both gain little; then cases (:mod:`fastmix.bounds.case_bounds`).
6. Walks (:mod:`fastmix.bounds.walk_bounds`), which say nothing about log Z, in a last part of the time.
7. Draws (:mod:`fastmix.bounds.sampled_bounds`), if a confidence is asked for.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.bounds.bracket_run import BracketRun
from fastmix.bounds.case_bounds import CaseBounds
from fastmix.bounds.lower_bound import LowerBound, configurations_lower
from fastmix.bounds.marginal_bounds import blanket_bounds, combine
from fastmix.bounds.sampled_bounds import draw_configurations, sampled_bounds
from fastmix.bounds.tractable_parts import TractableParts
from fastmix.bounds.tuning import (
    CLUSTER_SWEEPS_PER_TURN,
    COVER_ITERATIONS_PER_TURN,
    FIRST_SWEEPS,
    LEAST_EVALUATIONS,
    LEAST_GAIN,
    LEAST_MEMORY,
    MAX_EVALUATION_SECONDS,
    MAX_TABLE_ENTRIES,
    MEAN_FIELD_STARTS,
    NUM_START_DRAWS,
    SECONDS_PER_TABLE,
    SECONDS_PER_VALUE,
    SHARE_BEFORE_DRAWS,
    SHARE_OF_COVER_TURN,
    SHARE_OF_FIRST_START,
    SHARE_OF_LOWER,
    SHARE_OF_MEAN_FIELD,
    SHARE_OF_START_TURN,
    SHARE_OF_WALKS,
    START_SECONDS_PER_ENTRY,
    TABLE_SECONDS_PER_ENTRY,
    WALK_TABLE_SECONDS,
    WANTED_EVALUATIONS,
)
from fastmix.bounds.upper_bound import UpperBound, crude_upper
from fastmix.bounds.walk_bounds import walk_bounds
from fastmix.errors import ModelError, ResourceError
from fastmix.model.rounding import log_size, rounding
from fastmix.results import Status

__all__ = ["SplitBounds"]


class SplitBounds:
    """Bounds by splitting the model into parts that exact inference can do; some for any model, in any time."""

    name = "split"

    def find(self, run: BracketRun) -> None:
        """Offer better and better bounds to the run; an OutOfTimeError where its clock ends that."""
        _SplitSearch(run).find()


class _SplitSearch:
    """One search for bounds: the covers and clusters of its model."""

    def __init__(self, run: BracketRun) -> None:
        self.run = run
        self.tables = run.reduce()
        self.upper: UpperBound | None = None
        self.lower: LowerBound | None = None
        self.mean_field_marginals: FloatArray | None = None

    def find(self) -> None:
        """Find all bounds that there is time for, see the module; an OutOfTimeError where the time ends before."""
        run = self.run
        tables = self.tables
        clock = run.clock if run.confidence is None else run.clock.part(SHARE_BEFORE_DRAWS)
        self._offer_crude(clock)
        rng = run.context.rng("draws")
        self._offer_mean_field(clock)
        clock_before_walks = clock.part(1.0 - SHARE_OF_WALKS) if (2, 2) in tables.groups else clock
        try:
            entries = self._max_entries(clock_before_walks)
            parts = TractableParts(tables.num_states, tables.factor_scopes, tables.tie_strengths, max_entries=entries)
            self._build_upper(parts, clock)
            with contextlib.suppress(OutOfTimeError):
                self._build_lower(parts, clock_before_walks.part(SHARE_OF_LOWER))
            self._improve(rng, clock_before_walks)
        except OutOfTimeError:
            pass
        finally:
            self._offer_upper()
            self._offer_lower()
        self._offer_walks(clock)
        if run.confidence is not None:
            self._offer_draws(run.confidence, rng)
        clock_before_walks.check()

    # -- limits -------------------------------------------------------------------------------------------------------

    def _max_entries(self, clock: Clock) -> float:
        """The limit on the entries of a table: what fits the memory, and lets the bound be improved many times.

        An OutOfTimeError where there is no time to make any covers.
        """
        tables = self.tables
        n = max(1, tables.num_variables)
        if clock.left() < SECONDS_PER_TABLE * tables.num_tables + SECONDS_PER_VALUE * len(tables.values):
            raise OutOfTimeError
        seconds = min(clock.left(), MAX_EVALUATION_SECONDS) / WANTED_EVALUATIONS / 2.0
        entries_in_time = seconds / TABLE_SECONDS_PER_ENTRY / n
        entries_in_memory = self.run.memory_limit / 24.0 / n
        entries = min(entries_in_time, entries_in_memory, MAX_TABLE_ENTRIES)
        largest = np.diff(tables.offsets).max(initial=2)
        return max(float(largest), 2.0 ** math.floor(math.log2(max(2.0, entries))))

    @property
    def _memory_limit(self) -> float:
        """Bytes for junction trees: at least what is always taken beside a model of this size."""
        return max(self.run.memory_limit, LEAST_MEMORY + 64.0 * len(self.tables.values))

    # -- covers and clusters ------------------------------------------------------------------------------------------

    def _build_upper(self, parts: TractableParts, clock: Clock) -> None:
        """Make covers, with smaller tables where they are over the memory after all, and a first step."""
        tables = self.tables
        rng = self.run.context.rng("covers")
        while self.upper is None:
            covers = parts.covers(rng=rng, clock=clock)
            entries = parts.max_entries
            self.run.stats |= {"table_entries": entries, "num_covers": len(covers)}
            try:
                self.upper = UpperBound(tables, covers, memory_limit=self._memory_limit)
            except ResourceError:
                smaller = max(entries / 4.0, float(np.diff(tables.offsets).max()))
                if smaller >= entries:
                    return
                parts = TractableParts(parts.num_states, parts.scopes, parts.weights, max_entries=smaller)
        self.upper.improve(clock, 1)

    def _build_lower(self, parts: TractableParts, clock: Clock) -> None:
        """Make clusters, and bounds from mean field and from the variables without their neighbors."""
        tables = self.tables
        clusters = parts.clusters(clock=clock)
        try:
            self.lower = LowerBound(tables, clusters, memory_limit=self._memory_limit)
        except ResourceError:
            return
        if self.mean_field_marginals is not None:
            self._improve_lower(self.lower, self.mean_field_marginals, clock, FIRST_SWEEPS)
        if not clock.past(SHARE_OF_FIRST_START):
            unary = tables.unary
            sums = np.logaddexp.reduceat(unary, tables.unary_starts) if len(unary) else unary
            alone = np.exp(unary - np.repeat(sums, tables.num_states))
            self._improve_lower(self.lower, alone, clock, FIRST_SWEEPS)

    def _improve_lower(self, lower: LowerBound, start: FloatArray, clock: Clock, max_sweeps: int) -> None:
        """Improve the lower bound from a start, unless forbidden pairs across clusters leave nothing there."""
        with contextlib.suppress(ModelError):
            lower.start(start)
            lower.improve(clock, max_sweeps)

    def _improve(self, rng: np.random.Generator, clock: Clock) -> None:
        """Improve the bound from below or from above, whichever gains more per second, then both by cases."""
        upper = self.upper
        if upper is None:
            return
        run = self.run
        rates = [math.inf, math.inf]  # nats per second of the last turn from below, and from above
        is_slow = False
        while upper.scaled_tables and not clock.past():
            side = 0 if is_slow or rates[0] > rates[1] else 1
            began = clock.used()
            before = run.log_z[side]
            evaluations = upper.num_evaluations
            clock.report(upper.num_evaluations, None, "iterations")
            if side == 0:
                self._turn_of_lower(upper, rng, clock.part(SHARE_OF_START_TURN))
            else:
                upper.improve(clock.part(SHARE_OF_COVER_TURN), COVER_ITERATIONS_PER_TURN)
                self._offer_upper()
            if is_slow:
                self._offer_cases(upper, clock)
                return
            gain = abs(run.log_z[side] - before) if run.log_z[side] != before else 0.0
            rates[side] = gain / max(clock.used() - began, 1e-9)
            if side == 1:
                # Where many variables are left, cases are no match for a better split of all tables.
                gains_little = gain < min(LEAST_GAIN, 0.05 * (run.log_z[1] - run.log_z[0]))
                is_judged = upper.num_evaluations - evaluations >= LEAST_EVALUATIONS
                is_slow = upper.done or (gains_little and is_judged)

    def _turn_of_lower(self, upper: UpperBound, rng: np.random.Generator, clock: Clock) -> None:
        """Improve the lower bound from the marginals of the upper one, and from the best configuration drawn."""
        tables = self.tables
        with contextlib.suppress(OutOfTimeError):
            drawn = draw_configurations(upper, NUM_START_DRAWS, rng, clock)
            self._offer_configurations(drawn)
            if self.lower is None:
                return
            best = drawn[int(np.argmax(tables.log_weights(drawn)))]
            point = np.zeros(tables.num_unary)
            point[tables.unary_starts + best] = 1.0
            for start in (upper.beliefs, point):
                self._improve_lower(self.lower, start, clock, CLUSTER_SWEEPS_PER_TURN)
        self._offer_lower()

    # -- offers -------------------------------------------------------------------------------------------------------

    def _offer_crude(self, clock: Clock) -> None:
        """Offer cheap bounds: by the largest entries, one configuration, and each variable without its neighbors."""
        run = self.run
        upper, log_weights = crude_upper(self.tables)
        run.offer("largest entries", upper=upper, log_weights_upper=log_weights)
        self._offer_configurations(self.tables.best_unary_states[None, :])
        run.offer_marginals(*blanket_bounds(self.tables, clock))

    def _offer_mean_field(self, clock: Clock) -> None:
        """Offer the bound of naive mean field.

        Where entries are forbidden it begins at configurations that are possible, as far as it finds any.
        """
        from fastmix.variational.mean_field import MeanField

        run = self.run
        small = self.tables.reduction.model
        if clock.left() < START_SECONDS_PER_ENTRY * small.num_parameters:
            return
        context = run.context.within("mean field", clock.part(SHARE_OF_MEAN_FIELD))
        try:
            found = MeanField(num_starts=MEAN_FIELD_STARTS).run(small, context)
        except (OutOfTimeError, ResourceError):  # not even time, or memory, to begin
            return
        if found.log_z_lower is not None and found.log_z_lower > -math.inf:
            self.mean_field_marginals = found.node_marginals
            error = rounding(3.0 * small.num_parameters, log_size(small))
            run.offer("mean field", lower=found.log_z_lower - error)
        if found.status is Status.INTERRUPTED:  # the inner call has a result; this one is to end, too
            raise KeyboardInterrupt

    def _offer_upper(self) -> None:
        """Offer the bounds of the covers so far."""
        if self.upper is not None:
            self.run.stats["num_evaluations"] = self.upper.num_evaluations
            if self.upper.num_evaluations:
                self.run.offer("covers", upper=self.upper.log_z, log_weights_upper=self.upper.log_weights)

    def _offer_lower(self) -> None:
        """Offer the bounds of the clusters so far."""
        if self.lower is not None:
            self.run.stats["num_sweeps"] = self.lower.num_sweeps
            if self.lower.log_z > -math.inf:
                self.run.offer("clusters", lower=self.lower.log_z, log_weights_lower=self.lower.log_weights)

    def _offer_configurations(self, states: IntArray) -> None:
        """Offer the weights of some configurations (configurations, n), added up."""
        total, log_weights = configurations_lower(self.tables, states)
        self.run.offer("configurations", lower=total, log_weights_lower=log_weights)

    def _offer_cases(self, upper: UpperBound, clock: Clock) -> None:
        """Offer bounds by cases, until the time is over or nothing is gained."""
        run = self.run
        cases = CaseBounds(upper, self.lower, run.log_z, run.log_weights, memory_limit=self._memory_limit)
        try:
            while cases.split(clock):
                clock.report(cases.num_cases, None, "cases")
        except OutOfTimeError:
            pass
        finally:
            run.offer(
                "cases",
                lower=cases.log_z[0],
                upper=cases.log_z[1],
                log_weights_lower=cases.log_weights[0],
                log_weights_upper=cases.log_weights[1],
            )
            run.stats["num_cases"] = cases.num_cases

    def _offer_walks(self, clock: Clock) -> None:
        """Offer bounds on the marginals of binary variables, from the walks around each of them."""
        run = self.run
        if clock.left() < WALK_TABLE_SECONDS * self.tables.num_tables or clock.past():
            return
        found = walk_bounds(self.tables, clock)
        if found is not None:
            run.marginals = [combine([*run.marginals, (found.lower, found.upper)], self.tables)]
            run.stats["num_walks"] = found.num_nodes
            run.methods["marginals"] = "weights of states, walks"

    def _offer_draws(self, confidence: float, rng: np.random.Generator) -> None:
        """Offer bounds by draws, which hold with a confidence."""
        run = self.run
        if self.upper is None or not self.upper.scaled_tables:
            return
        with contextlib.suppress(OutOfTimeError):
            found, drawn = sampled_bounds(self.upper, confidence, run.num_draws, rng, run.clock)
            self._offer_configurations(drawn)
            if found is None:
                return
            run.stats["num_draws"] = found.num_draws
            is_tighter = run.offer(
                "draws",
                lower=found.log_z[0],
                upper=found.log_z[1],
                log_weights_lower=found.lower,
                log_weights_upper=found.upper,
            )
            if is_tighter:
                run.held_confidence = confidence
