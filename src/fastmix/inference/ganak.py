"""``Ganak``: log Z and marginals by a model counter, for models with many zeros (extra ``count``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import INSTALL_EXTRA, check_positive, check_share, keep_checked
from fastmix._clock import Clock, Ending, OutOfTimeError
from fastmix._engine import Engine, EngineError, engine_version
from fastmix._memory import available_memory, parse_bytes
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.inference.ganak_worker import CountRequest
from fastmix.inference.tuning import COUNTED_MARGINALS_SHARE, MAX_ENCODED_ENTRIES
from fastmix.inference.weighted_formula import WeightedFormula, encode
from fastmix.marginals import InferenceResult
from fastmix.method import Context, Method, option
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction, impossible
from fastmix.results import Status

__all__ = ["CountedResult", "Ganak"]

_WORKER = "fastmix.inference.ganak_worker:count"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CountedResult(InferenceResult):
    """Log Z that a model counter has found, and marginals, which take a count for each state.

    ``log_z`` is exact, up to rounding. Where the time did not do for all marginals the status is ``time_limit``, and
    those of the variables that are left are beliefs of loopy belief propagation, without any guarantee.

    Attributes
    ----------
    counted : bool array (n,)
        The variables whose marginals were counted, or have a single state.
    """

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.TIME_LIMIT: "Log Z is exact, but the marginals that were not counted in the time are beliefs of "
        "belief propagation: allow more time."
    }

    counted: BoolArray

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields of the result for the original model."""
        every = np.ones(len(reduction.fixed), dtype=bool)
        every[reduction.fixed < 0] = self.counted
        return {**super().expansion(reduction), "counted": every}

    def contents(self) -> dict[str, Any]:
        """Adds ``counted``."""
        return {**super().contents(), "counted": self.counted}


@dataclass(frozen=True, kw_only=True)
class Ganak(Method):
    """Log Z and marginals by the model counter Ganak, for models with many zeros.

    Parameters
    ----------
    memory_limit : float, optional
        Memory in bytes that it may use, such as 4GiB; half of the free memory by default.
    patience : float
        Share of the time within which log Z must be there, below 1. Marginals take what is left.
    """

    name: ClassVar[str] = "ganak"
    guarantee: ClassVar[str] = "exact up to rounding, but for marginals that were not counted in the time"
    seeded: ClassVar[bool] = False
    threaded: ClassVar[bool] = False
    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    takes_laws: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True

    memory_limit: float | None = option(None, parse=parse_bytes)
    patience: float = 0.9

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            limit = check_positive("memory_limit", self.memory_limit, "number of bytes")
            keep_checked(self, memory_limit=limit)
        keep_checked(self, patience=check_share("patience", self.patience))

    def check(self, model: MarkovRandomField) -> None:
        """Refuse where the library is not installed, or tables are too large to become clauses."""
        if engine_version("pyganak", "pyganak") is None:
            raise UnfitMethodError(f"the method ganak needs the library pyganak: {INSTALL_EXTRA.format(extra='count')}")
        num_entries = float(model.pairwise_offsets[-1] + len(model.log_factors))
        if num_entries > MAX_ENCODED_ENTRIES:
            raise UnfitMethodError(
                f"ganak is given at most {MAX_ENCODED_ENTRIES:,} table entries, the model has {num_entries:,.0f}"
            )

    def run(self, model: MarkovRandomField, context: Context) -> CountedResult:
        """Log Z, and as many marginals as there is time for.

        Raises
        ------
        NotConvergedError
            If the time is over before log Z is known.
        ResourceError
            If the counter has failed, as for want of memory.
        """
        try:
            formula = encode(model, context.clock)
        except OutOfTimeError:
            context.raise_nothing("time_limit")
        counting = _Counting(model, formula)
        with Ending() as ending:
            if model.num_variables:
                counting.run(context.clock, self.patience, self.memory_limit)
        if counting.log_z is None:
            context.raise_nothing("interrupt" if ending.interrupted else "time_limit")
        if counting.log_z == -np.inf:
            raise impossible(context.given)
        return counting.result(self.name, context, ending)


class _Counting:
    """What is known of a model while it is counted."""

    def __init__(self, model: MarkovRandomField, formula: WeightedFormula) -> None:
        self.model = model
        self.formula = formula
        self.log_z: float | None = None if model.num_variables else model.log_constant
        self.marginals: FloatArray = np.zeros(len(model.log_unary))
        self.counted: BoolArray = np.zeros(model.num_variables, dtype=bool)

    def run(self, clock: Clock, patience: float, memory_limit: float | None) -> None:
        """Count log Z within a share of the time, and then marginals, variable by variable."""
        formula = self.formula
        wanted = [state for states in formula.literals for state in states[1:]]
        request = CountRequest(
            formula.num_variables, formula.clauses, formula.log_weights, formula.log_range, wanted
        )  # fmt: skip
        memory = available_memory() / 2 if memory_limit is None else memory_limit
        seconds = None if clock.limit is None else clock.left()
        try:
            with Engine(_WORKER, request, seconds=seconds, memory_limit=memory) as engine:
                total = engine.receive(clock.part(patience))
                if total is None:
                    return
                self.log_z = total + formula.log_constant
                if total > -np.inf:
                    self._read_marginals(engine, clock)
        except EngineError as error:
            if self.log_z is None:
                raise ResourceError(f"ganak has failed: {error}") from error

    def _read_marginals(self, engine: Engine, clock: Clock) -> None:
        """Read the shares of all states but the first of every variable, until the time is over."""
        part = clock.part(COUNTED_MARGINALS_SHARE)
        starts = self.model.unary_offsets
        for variable, count in enumerate(self.model.num_states.tolist()):
            others = []
            for _ in range(count - 1):
                share = engine.receive(part)
                if share is None:
                    return
                others.append(share)
            self.marginals[starts[variable] : starts[variable + 1]] = [max(0.0, 1.0 - sum(others)), *others]
            self.counted[variable] = True
            clock.report(variable + 1, self.model.num_variables, "marginals")

    def result(self, name: str, context: Context, ending: Ending) -> CountedResult:
        """The answer, with beliefs in place of marginals that were not counted."""
        status = Status.OK
        if not self.counted.all():
            status = Status.TIME_LIMIT
            self._believe_others(context)
        if ending.interrupted:
            status = Status.INTERRUPTED
        stopped_by = "done" if status is Status.OK else "interrupt" if ending.interrupted else "time_limit"
        return CountedResult(
            model=self.model,
            method=name,
            status=status,
            node_marginals=self.marginals,
            log_z=self.log_z,
            log_z_kind="exact",
            counted=self.counted,
            stats={
                "num_counted": int(self.counted.sum()),
                "num_clauses": len(self.formula.clauses),
                "num_literals": self.formula.num_variables,
                "num_weights": len(self.formula.log_weights) // 2,
                "stopped_by": stopped_by,
                "backend": "cpu",
            },
            provenance={"options": {"ganak": engine_version("pyganak", "pyganak")}},
        )

    def _believe_others(self, context: Context) -> None:
        """Fill in beliefs of belief propagation where nothing was counted."""
        from fastmix.variational.loopy_bp import LoopyBP

        quiet = replace(context, clock=context.clock.part(1.0, quiet=True, least=1.0 - COUNTED_MARGINALS_SHARE))
        beliefs = LoopyBP().run(self.model, replace(quiet, edge_marginals=False))
        missing = np.repeat(~self.counted, self.model.num_states)
        self.marginals[missing] = beliefs.node_marginals[missing]
