"""``bracket()``: proven lower and upper bounds on log Z and on every marginal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_positive, check_share, describe
from fastmix._clock import Ending, Report
from fastmix._context import Context, open_context
from fastmix._memory import available_memory
from fastmix.bounds.bracket_methods import check_bracket_method, run_bracket_method
from fastmix.bounds.bracket_run import DEFAULT_DRAWS, BracketRun
from fastmix.errors import ImpossibleModelError
from fastmix.marginals import ChainResult, DrawResult, InferenceResult
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import impossible
from fastmix.results import Result, Status

__all__ = ["DEFAULT_DRAWS", "BracketResult", "bracket", "find_bracket"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BracketResult(Result):
    """Bounds on log Z and on the probability of every state.

    Attributes
    ----------
    model : MarkovRandomField
    log_z_lower, log_z_upper : float
        Log Z lies between them; the lower one is -inf where no configuration was found. Both are -inf where Z = 0 is
        proven: no configuration has positive probability.
    node_lower, node_upper : float arrays, aligned with ``model.log_unary``
        The probability of each state lies between them. None where Z = 0: there are no marginals, and what is made of
        them is None, or refused with an :class:`fastmix.ImpossibleModelError`.
    confidence : float or None
        None: the bounds are proven outright. A number: draws made some of them tighter, and all of them hold together
        with this probability.
    methods : mapping
        What gave the bounds: ``lower``, ``upper`` and ``marginals``.
    exact : bool
        Whether exact inference gave them, so that only rounding is between them.
    status : Status
        ``ok``, or ``interrupted``: the bounds hold all the same.
    stats, provenance : mapping
        Counts and seconds; what is needed to run it again.
    """

    log_z_lower: float
    log_z_upper: float
    node_lower: FloatArray | None
    node_upper: FloatArray | None
    confidence: float | None
    methods: Mapping[str, str]
    exact: bool

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.OK: "The bounds hold; more time or memory can make them tighter.",
        Status.INTERRUPTED: "The bounds hold all the same; more time can make them tighter.",
    }

    def __repr__(self) -> str:
        if self.log_z_kind == "zero":
            return f"BracketResult(Z = 0, proven, {self.model})"
        between = f"{self.log_z_lower:.6g} <= log Z <= {self.log_z_upper:.6g}"
        held = "proven" if self.confidence is None else f"confidence {self.confidence:g}"
        return f"BracketResult({between}, {held}, {self.model})"

    @property
    def log_z_kind(self) -> Literal["exact", "bound", "zero"]:
        """What is known of log Z: only rounding is between the bounds, they are bounds, or Z = 0 is proven."""
        if self.log_z_upper == -math.inf:
            return "zero"
        return "exact" if self.exact else "bound"

    @property
    def gap(self) -> float:
        """The difference of the bounds on log Z; 0 where Z = 0."""
        return 0.0 if self.log_z_kind == "zero" else self.log_z_upper - self.log_z_lower

    @property
    def marginals_lower(self) -> list[FloatArray] | None:
        """Lower bounds, one vector per variable."""
        return self._split(self.node_lower)

    @property
    def marginals_upper(self) -> list[FloatArray] | None:
        """Upper bounds, one vector per variable."""
        return self._split(self.node_upper)

    def marginal(self, variable: int | str) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on the probabilities of one variable, given by number or name."""
        i = self.model.variable_index(variable)
        if self.node_lower is None or self.node_upper is None:
            raise ImpossibleModelError("the model has no marginals: Z = 0, no configuration has positive probability")
        place = slice(int(self.model.unary_offsets[i]), int(self.model.unary_offsets[i + 1]))
        return self.node_lower[place], self.node_upper[place]

    def _split(self, values: FloatArray | None) -> list[FloatArray] | None:
        """The parts of a flat vector that belong to each variable."""
        if values is None:
            return None
        return np.split(values, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def misses(self, result: InferenceResult, *, num_errors: float = 4.0) -> str | None:
        """A sentence on what of an answer lies outside of the bracket; None if nothing does.

        Parameters
        ----------
        result : InferenceResult
            An answer about the same model.
        num_errors : float
            Standard errors that an answer may be outside by. The standard error is at least that of as many independent
            draws from the bound itself: a state that was never drawn has an estimated error of zero. Answers without
            standard errors have an allowance of 1e-6.

        Raises
        ------
        TypeError, ValueError
            If ``result`` is no answer with marginals, or one about another model.
        """
        if not isinstance(result, InferenceResult):
            raise TypeError(f"result must be an answer with marginals, such as infer gives, got {describe(result)}")
        if not np.array_equal(result.model.num_states, self.model.num_states):
            raise ValueError(f"result must be about the model of these bounds, {self.model}, got {result.model}")
        num_errors = check_positive("num_errors", num_errors, or_zero=True)
        if self.node_lower is None or self.node_upper is None:
            return None if result.log_z_kind == "zero" else "no configuration has positive probability: Z = 0 is proven"
        if result.log_z_kind == "zero":
            return None
        missed = self._missed_state(result, num_errors, self.node_lower, self.node_upper)
        return self._missed_log_z(result, num_errors) if missed is None else missed

    def _missed_state(
        self, result: InferenceResult, num_errors: float, lower: FloatArray, upper: FloatArray
    ) -> str | None:
        """A sentence on the probability that is farthest outside of its bounds; None if none is."""
        p = result.node_marginals
        if not len(p):
            return None
        below = lower - p
        above = p - upper
        slack = np.full(len(p), 1e-6)
        if result.std_error is not None:
            num_draws = np.maximum(1.0, np.repeat(_num_draws(result), self.model.num_states))
            edge = np.where(below > above, lower, upper)
            slack += num_errors * np.maximum(result.std_error, np.sqrt(edge * (1.0 - edge) / num_draws))
        outside = np.maximum(below - slack, above - slack)
        worst = int(np.argmax(outside))
        if not outside[worst] > 0.0:
            return None
        i = int(np.searchsorted(self.model.unary_offsets, worst, side="right")) - 1
        state = self.model.names_of_states()[i][worst - self.model.unary_offsets[i]]
        return (
            f"the probability {p[worst]:.4g} of state {state} of variable {self.model.names_of_variables()[i]} "
            f"is outside its bracket [{lower[worst]:.4g}, {upper[worst]:.4g}]"
        )

    def _missed_log_z(self, result: InferenceResult, num_errors: float) -> str | None:
        """A sentence on log Z if it is outside of its bounds; None if it is not, or not known."""
        if result.log_z is None or result.log_z_kind not in ("exact", "estimate"):
            return None
        room = 1e-6 * (1.0 + abs(result.log_z)) + num_errors * (result.log_z_std_error or 0.0)
        if self.log_z_lower - room <= result.log_z <= self.log_z_upper + room:
            return None
        return f"log Z = {result.log_z:.6g} is outside its bracket [{self.log_z_lower:.6g}, {self.log_z_upper:.6g}]"

    def title(self) -> str:
        """The verb, with the confidence that the bounds hold with where they are not proven."""
        return "bracket" if self.confidence is None else f"bracket (confidence {self.confidence:g})"

    def facts(self) -> dict[str, str]:
        """The bounds on log Z, and what gave them."""
        if self.log_z_kind == "zero":
            return {"log Z": "-inf, proven"}
        between = f"{self.log_z_lower:.8g} to {self.log_z_upper:.8g}"
        return {"log Z": between, **{name: str(how) for name, how in self.methods.items()}}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name, with a row for every state."""
        if self.node_lower is None:
            raise ImpossibleModelError("the model has no marginals: Z = 0, no configuration has positive probability")
        names = self.model.names_of_variables()
        states = self.model.names_of_states()
        return {
            "variable": [name for name, of in zip(names, states, strict=True) for _ in of],
            "state": [state for of_variable in states for state in of_variable],
            "lower": self.node_lower,
            "upper": self.node_upper,
        }

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The first of the columns; no rows where Z = 0."""
        return super().shown_rows() if self.node_lower is not None else (("variable", "state"), [])

    def plot(self, axes: Any = None) -> Any:
        """The bounds on the probability of the last state of every variable (Matplotlib, extra ``plot``)."""
        if self.node_lower is None or self.node_upper is None:
            raise ImpossibleModelError("the model has no marginals: Z = 0, no configuration has positive probability")
        last = self.model.unary_offsets[1:] - 1
        return _show.intervals(super().plot(axes), self.node_lower[last], self.node_upper[last])

    def contents(self) -> dict[str, Any]:
        """Bounds on log Z and on the marginals by variable; a bound that is not finite is None."""
        return {
            "log_z_lower": self.log_z_lower,
            "log_z_upper": self.log_z_upper,
            "log_z_kind": self.log_z_kind,
            "marginals_lower": self.marginals_lower,
            "marginals_upper": self.marginals_upper,
            "confidence": self.confidence,
            "methods": self.methods,
            "exact": self.exact,
        }


def _num_draws(result: InferenceResult) -> FloatArray:
    """The number of independent draws that an answer is worth, for every variable."""
    if isinstance(result, ChainResult):
        return np.asarray(result.ess, dtype=float)
    num_draws = len(result.states) if isinstance(result, DrawResult) else 1
    return np.full(result.model.num_variables, float(max(1, num_draws)))


def bracket(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    method: str = "auto",
    memory_limit: float | None = None,
    time_limit: float | None = None,
    confidence: float | None = None,
    num_draws: int = DEFAULT_DRAWS,
    seed: int | None = None,
    progress: Report = "auto",
) -> BracketResult:
    """Proven bounds on log Z and on every marginal, without any assumption on mixing.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, factors of any size, forbidden states.
    evidence : mapping, optional
        Observed states by variable, numbers or names.
    method : str
        ``exact`` by exact inference, ``split`` by covers and clusters that exact inference can do, or the name of a
        method that was added (:func:`fastmix.register_bracket`). ``auto`` is exact where that
        fits memory and time, otherwise split.
    memory_limit : float, optional
        Bytes of tables; half of the memory that is free by default, a MiB beside the model at least. More memory means
        larger tables and tighter bounds.
    time_limit : float, optional
        Seconds, without those of compiling; 60 by default. It ends earlier where nothing more can be gained.
    confidence : float, optional
        Between 0 and 1: tighten by draws; all bounds then hold together with this probability.
    num_draws : int
        Draws at most, with ``confidence``.
    seed : int, optional
        Seed of covers and draws; drawn and returned when not given.
    progress : "auto", None or callable
        See :func:`fastmix.infer`.

    Returns
    -------
    BracketResult

    Raises
    ------
    ModelError
        If the evidence has probability zero, as far as that is found. Without evidence that is an answer: Z = 0.
    ResourceError
        If the method named needs more memory or time than allowed; ``auto`` and ``split`` always answer.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the bracket so far.

    Notes
    -----
    Where exact inference fits memory and time it gives both bounds. Otherwise the upper bound splits the model into
    covers of bounded treewidth (:mod:`fastmix.bounds.upper_bound`), the lower bound is that of a product over clusters
    of bounded treewidth (:mod:`fastmix.bounds.lower_bound`) or of configurations found, and bounds on the weight of
    every state come with both. Every sum has an allowance for rounding
    (:func:`fastmix.model.rounding.rounding`) on the safe side.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(6, 6, coupling_max=0.5, seed=0)
    >>> exact = bracket(model, seed=0)
    >>> rough = bracket(model, memory_limit=1500, time_limit=1, seed=0)
    >>> exact.exact, rough.exact, rough.log_z_lower < exact.log_z_lower < rough.log_z_upper < rough.log_z_lower + 4.0
    (True, False, True)
    """
    check_model(model)
    check_bracket_method(method)
    if confidence is not None:
        confidence = check_share("confidence", confidence)
    num_draws = check_count("num_draws", num_draws, least=2)
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    options = {"method": method, "memory_limit": memory_limit, "confidence": confidence, "num_draws": num_draws}
    with open_context(
        "bracket", model, evidence=evidence, seed=seed, time_limit=time_limit, progress=progress, options=options
    ) as context:
        run = BracketRun(model, context, memory_limit=limit, confidence=confidence, num_draws=num_draws)
        return context.finish(_result(model, run, method))


def find_bracket(model: MarkovRandomField, context: Context, *, memory: float) -> BracketResult:
    """The bounds that there is time and memory (bytes) for, in the context of any call; see :func:`bracket`."""
    return _result(model, BracketRun(model, context, memory_limit=memory), "auto")


def _result(model: MarkovRandomField, run: BracketRun, method: str) -> BracketResult:
    """The bounds that a method finds in a run on a model, as a result without seconds and provenance."""
    context = run.context
    reason = None  # why Z = 0
    with Ending() as ending:
        try:
            run_bracket_method(method, run)
        except ImpossibleModelError as error:
            if context.given:
                raise impossible(True, str(error)) from None
            reason = str(error)
    if ending.interrupted and not run.has_bounds:
        context.raise_nothing(ending.by)
    if reason is None:
        run.finish()
    else:
        run.finish_zero(reason)
    lower, upper = (None, None) if run.node_bounds is None else run.node_bounds
    return BracketResult(
        model=model,
        log_z_lower=float(run.log_z[0]),
        log_z_upper=float(run.log_z[1]),
        node_lower=lower,
        node_upper=upper,
        confidence=run.held_confidence,
        methods=run.methods,
        exact=run.exact,
        status=Status.INTERRUPTED if ending.interrupted else Status.OK,
        stats={**run.stats, "stopped_by": ending.by},
    )
