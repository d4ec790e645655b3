"""The work of :meth:`fastmix.PreparedModel.ask`: plans that are kept, and rows answered by them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, Ending
from fastmix._context import Context
from fastmix.errors import FastmixError, ImpossibleEvidenceError, ImpossibleModelError, ResourceError
from fastmix.exact.batch import BatchAnswer, BatchElimination, plan_batch
from fastmix.inference.infer import infer
from fastmix.model import MarkovRandomField
from fastmix.modes.most_probable import most_probable
from fastmix.queries.answers import RowAnswers, Wanted, worst_status
from fastmix.queries.gap_chains import answer_by_chains, fits_chains
from fastmix.queries.row_beliefs import answer_by_messages, fits_messages
from fastmix.queries.tuning import (
    MAX_KEPT_PLANS,
    MAX_PLANNED_PATTERNS,
    MAX_SINGLE_ROWS,
    PATTERN_SECONDS,
    ROWS_PER_REPORT,
)
from fastmix.results import Status

if TYPE_CHECKING:
    from fastmix.queries.prepare import PreparedModel

__all__ = ["Asking", "Plans"]


class Plans:
    """Plans by the variables that are observed in all of their rows; None where exact inference does not fit."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], BatchElimination | None] = {}
        self._lock = threading.Lock()

    def take(self, other: Plans, model: MarkovRandomField) -> None:
        """Keep the plans of the same structure for another model."""
        with other._lock:
            known = dict(other._found)
        self._found = {given: None if plan is None else plan.with_model(model) for given, plan in known.items()}

    def of(self, prepared: PreparedModel, given: tuple[int, ...], clock: Clock) -> BatchElimination | None:
        """The plan for rows that all observe ``given``, made where it is not kept."""
        with self._lock:
            if given in self._found:
                return self._found[given]
        open_parts = [_open_part(query, given) for query in prepared.queries]
        sets = [part for part in open_parts if part]
        try:
            plan = plan_batch(prepared.model, given=given, sets=sets, memory_limit=prepared.memory_limit, clock=clock)
        except ResourceError:
            plan = None
        with self._lock:
            if len(self._found) >= MAX_KEPT_PLANS:
                kept = prepared.evidence_variables
                self._found = {key: value for key, value in self._found.items() if key == kept}
            self._found[given] = plan
        return plan


class Asking:
    """One call of :meth:`PreparedModel.ask`: the arrays of answers, filled part by part."""

    def __init__(
        self, prepared: PreparedModel, rows: IntArray, wanted: Wanted, context: Context, otherwise: str = "auto"
    ) -> None:
        model = prepared.model
        count = len(rows)
        n = model.num_variables
        self.prepared = prepared
        self.rows = rows
        self.wanted = wanted
        self.context = context
        self.otherwise = otherwise
        self.rng = context.rng("draws") if wanted.num_draws else None
        self.row_status = np.full(count, str(Status.TIME_LIMIT), dtype="<U16")
        self.log_z = np.full(count, np.nan)
        self.marginals = np.full((count, int(model.unary_offsets[-1])), np.nan) if wanted.marginals else None
        self.completions = np.full((count, n), -1, dtype=np.int64) if wanted.most_probable else None
        self.draws = np.full((count, wanted.num_draws, n), -1, dtype=np.int64) if wanted.num_draws else None
        self.joints: dict[tuple[int, ...], FloatArray] = {}
        if wanted.marginals:
            for query in prepared.queries:
                self.joints[query] = np.full((count, *model.num_states[list(query)]), np.nan)
        self.stats = {"num_rows": count, "num_exact_rows": 0, "num_single_rows": 0, "num_plans": 0}
        self.num_done = 0

    def run(self) -> None:
        """Answer all rows: by the plan for all of them where it is cheap, else by the variables they observe."""
        prepared = self.prepared
        clock = self.context.clock
        plan = prepared.plans.of(prepared, prepared.evidence_variables, clock)
        if plan is not None and plan.seconds_per_row <= PATTERN_SECONDS:
            self._answer(plan, prepared.evidence_variables, np.arange(len(self.rows)))
            return
        fits_many = fits_messages(prepared.model)
        unfit: list[IntArray] = []
        for given, numbers in _patterns(self.rows):
            if fits_many and len(unfit) > MAX_PLANNED_PATTERNS:  # where so many do not fit, others are not tried
                unfit.append(numbers)
                continue
            own = plan if given == prepared.evidence_variables else prepared.plans.of(prepared, given, clock)
            if own is None:
                unfit.append(numbers)
            else:
                self._answer(own, given, numbers)
        self._answer_otherwise(np.sort(np.concatenate([np.zeros(0, dtype=np.int64), *unfit])))

    def _answer_otherwise(self, numbers: IntArray) -> None:
        """Answer rows whose tables do not fit: all at once where there are many, or it was asked for."""
        if not len(numbers):
            return
        model = self.prepared.model
        is_many = len(numbers) > MAX_SINGLE_ROWS
        wants_draws = self.draws is not None
        if self.otherwise == "loopy-bp":
            self._answer_at_once(numbers, "loopy-bp")
        elif fits_chains(model) and (is_many or wants_draws or self.otherwise == "chains"):
            self._answer_at_once(numbers, "chains")
        elif fits_messages(model) and is_many and not wants_draws:
            self._answer_at_once(numbers, "loopy-bp")
        else:
            self._infer(numbers)

    def _answer(self, plan: BatchElimination, given: tuple[int, ...], numbers: IntArray) -> None:
        """Answer some rows, which all observe ``given``, exactly by their plan, a part of them at a time."""
        clock = self.context.clock
        threads = self.context.num_threads
        self.stats["num_plans"] += 1
        for first in range(0, len(numbers), ROWS_PER_REPORT):
            part = numbers[first : first + ROWS_PER_REPORT]
            rows = self.rows[part]
            found = plan.answer(
                rows, marginals=self.wanted.marginals, num_draws=self.wanted.num_draws, rng=self.rng,
                num_threads=threads, clock=clock,
            )  # fmt: skip
            self.log_z[part] = found.log_z
            self.stats["num_single_rows"] += found.num_single
            if self.marginals is not None:
                self.marginals[part] = found.marginals
            self._keep_joints(plan, given, part, found)
            if self.draws is not None and found.states is not None:
                self.draws[part] = found.states
            if self.completions is not None:
                best = plan.answer(rows, most_probable=True, num_threads=threads, clock=clock)
                assert best.states is not None
                self.completions[part] = best.states[:, 0]
            self.row_status[part] = str(Status.OK)
            self.stats["num_exact_rows"] += len(part)
            self._report(len(part))

    def _keep_joints(self, plan: BatchElimination, given: tuple[int, ...], part: IntArray, found: BatchAnswer) -> None:
        """Put the joint distributions of a part of the rows where they belong.

        What the plan takes as given has no place in its tables: there all is at the state that was observed.
        """
        tables = {tuple(known): table for known, table in zip(plan.sets, found.joints, strict=False)}
        for query, joint in self.joints.items():
            left = _open_part(query, given)
            table = tables[left] if left else np.where(found.log_z > -np.inf, 1.0, np.nan)
            sizes = [joint.shape[1 + axis] for axis, variable in enumerate(query) if variable in left]
            table = table.reshape(-1, *sizes)
            possible = ~np.isnan(table.reshape(len(part), -1)).any(axis=1)
            joint[part[possible]] = 0.0
            states = [slice(None) if variable in left else self.rows[part, variable] for variable in query]
            _assign_rows(joint, [part, *states], table)

    def _answer_at_once(self, numbers: IntArray, method: str) -> None:
        """Answer rows whose tables do not fit side by side, with a verdict on every row."""
        self._refuse_joints(numbers)
        context = self.context.within(method)
        answer = answer_by_chains if method == "chains" else answer_by_messages
        found = answer(self.prepared.model, self.rows[numbers], self.wanted, context)
        self.row_status[numbers] = found.row_status
        self.log_z[numbers] = found.row_log_z
        self.stats["num_single_rows"] += found.stats["num_single_rows"]
        if self.marginals is not None:
            self.marginals[numbers] = found.node_marginals
        if self.completions is not None and found.completions is not None:
            self.completions[numbers] = found.completions
        if self.draws is not None and found.draws is not None:
            self.draws[numbers] = found.draws
        if found.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        self._report(len(numbers))

    def _refuse_joints(self, numbers: IntArray) -> None:
        """Raise a :class:`ResourceError` where joint distributions are wanted of rows whose tables do not fit."""
        if self.joints:
            raise ResourceError(
                f"queries need exact inference, whose tables do not fit for row {numbers[0]}: "
                "raise memory_limit, or observe more variables"
            )

    def _infer(self, numbers: IntArray) -> None:
        """Answer rows whose tables do not fit one by one, by the method that :func:`fastmix.infer` finds for each."""
        if not len(numbers):
            return
        self._refuse_joints(numbers)
        if self.draws is not None:
            raise ResourceError(
                f"num_draws needs exact inference, whose tables do not fit for row {numbers[0]}, or a model of pairs "
                "without forbidden states: raise memory_limit, or observe more variables"
            )
        model = self.prepared.model
        for number in numbers.tolist():
            row = self.rows[number]
            evidence = {v: int(row[v]) for v in np.flatnonzero(row >= 0).tolist()}
            left = len(self.rows) - self.num_done
            limit = None if self.context.clock.limit is None else self.context.clock.left() / max(1, left)
            self.context.clock.check()
            try:
                found = infer(
                    model, evidence=evidence, seed=self.context.seed_of("row", number), time_limit=limit, progress=None
                )
            except (ImpossibleEvidenceError, ImpossibleModelError):
                self.log_z[number] = -np.inf
                self.row_status[number] = str(Status.OK)
                self._report(1)
                continue
            self.row_status[number] = str(found.status)
            if found.log_z is not None:
                self.log_z[number] = found.log_z
            if self.marginals is not None:
                self.marginals[number] = found.node_marginals
            if self.completions is not None:
                best = most_probable(model, evidence=evidence, time_limit=limit, seed=found.seed, progress=None)
                self.completions[number] = best.states
                self.row_status[number] = str(best.status if found.status == Status.OK else found.status)
            self._report(1)

    def _report(self, count: int) -> None:
        """Tell the listener that more rows are answered."""
        self.num_done += count
        self.context.clock.report(self.num_done, len(self.rows), "rows")

    def result(self, ending: Ending) -> RowAnswers:
        """The answers so far; rows that are missing are marked."""
        status = Status.INTERRUPTED if ending.interrupted else worst_status(self.row_status)
        return RowAnswers(
            model=self.prepared.model,
            status=status,
            rows=self.rows,
            node_marginals=self.marginals,
            row_log_z=self.log_z,
            log_evidence=self._log_evidence(),
            completions=self.completions,
            draws=self.draws,
            joints=self.joints,
            row_status=self.row_status,
            stats={**self.stats, "stopped_by": ending.by},
        )

    def _log_evidence(self) -> FloatArray | None:
        """Log-probabilities of the rows; None where log Z of the model cannot be had exactly."""
        prepared = self.prepared
        try:
            plan = prepared.plans.of(prepared, (), NO_LIMIT)
            if plan is None:
                return None
            nothing = np.full((1, prepared.model.num_variables), -1)
            total = plan.answer(nothing, marginals=False, clock=NO_LIMIT).log_z[0]
        except FastmixError:
            return None
        return self.log_z - total if np.isfinite(total) else None


def _open_part(query: tuple[int, ...], given: tuple[int, ...]) -> tuple[int, ...]:
    """The variables of a set that are not given, in their order."""
    return tuple(variable for variable in query if variable not in given)


def _assign_rows(joint: FloatArray, places: list[Any], tables: FloatArray) -> None:
    """Put the table of each row at its place: the numbers of the rows, and states, or a slice, for each variable."""
    for k, table in enumerate(tables):
        joint[tuple(place if isinstance(place, slice) else place[k] for place in places)] = table


def _patterns(rows: IntArray) -> Iterator[tuple[tuple[int, ...], IntArray]]:
    """Sets of variables that rows observe, and the numbers of the rows that observe just these."""
    seen: NDArray[np.bool_] = rows >= 0
    _, first, inverse = np.unique(np.packbits(seen, axis=1), axis=0, return_index=True, return_inverse=True)
    order = np.argsort(inverse.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(inverse.reshape(-1), minlength=len(first)))
    for k, numbers in enumerate(np.split(order, ends[:-1]) if len(first) else []):
        yield tuple(np.flatnonzero(seen[first[k]]).tolist()), numbers
