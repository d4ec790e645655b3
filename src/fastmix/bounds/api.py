"""``bracket()``: proven lower and upper bounds on log Z and on every marginal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import check_count, check_positive, check_share, choose_seed, describe
from fastmix._clock import Clock, OutOfTimeError, Report, listening
from fastmix._memory import available_memory
from fastmix.bounds.work import Work
from fastmix.errors import ImpossibleModelError, Interrupted
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import impossible
from fastmix.results import InferenceResult, Status, as_plain, plain_evidence, provenance

__all__ = ["BracketResult", "bracket"]

_DEFAULT_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class BracketResult:
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

    model: MarkovRandomField
    log_z_lower: float
    log_z_upper: float
    node_lower: FloatArray | None
    node_upper: FloatArray | None
    confidence: float | None
    methods: Mapping[str, str]
    exact: bool
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

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
        """What is between the bounds on log Z; 0 where Z = 0."""
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
        if values is None:
            return None
        return np.split(values, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def misses(self, result: InferenceResult, *, num_errors: float = 4.0) -> str | None:
        """What of an answer lies outside by more than a number of its standard errors, in a sentence; None if nothing.

        The standard error is at least that of as many independent draws from the bound itself: a state that was never
        drawn has an estimated error of zero. Answers without standard errors have an allowance of 1e-6.
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
        p, error = result.node_marginals, getattr(result, "std_error", None)
        slack = np.full(len(p), 1e-6)
        below, above = self.node_lower - p, p - self.node_upper
        if error is not None:
            num_draws = np.maximum(1.0, np.repeat(_num_draws(result), self.model.num_states))
            edge = np.where(below > above, self.node_lower, self.node_upper)
            slack += num_errors * np.maximum(error, np.sqrt(edge * (1.0 - edge) / num_draws))
        below, above = below - slack, above - slack
        worst = int(np.argmax(np.maximum(below, above))) if len(below) else 0
        if len(below) and max(below[worst], above[worst]) > 0.0:
            i = int(np.searchsorted(self.model.unary_offsets, worst, side="right")) - 1
            state = self.model.names_of_states()[i][worst - self.model.unary_offsets[i]]
            return (
                f"the probability {p[worst]:.4g} of state {state} of variable {self.model.names_of_variables()[i]} "
                f"is outside its bracket [{self.node_lower[worst]:.4g}, {self.node_upper[worst]:.4g}]"
            )
        if result.log_z is not None and result.log_z_kind in ("exact", "estimate"):
            room = 1e-6 * (1.0 + abs(result.log_z)) + num_errors * (result.log_z_std_error or 0.0)
            if not self.log_z_lower - room <= result.log_z <= self.log_z_upper + room:
                return (
                    f"log Z = {result.log_z:.6g} is outside its bracket [{self.log_z_lower:.6g}, "
                    f"{self.log_z_upper:.6g}]"
                )
        return None

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON; a bound that is not finite is None."""
        names = "log_z_lower log_z_upper log_z_kind marginals_lower marginals_upper confidence methods exact"
        return as_plain(self, names)


def _num_draws(result: InferenceResult) -> FloatArray:
    """For every variable how many independent draws an answer is worth."""
    ess = getattr(result, "ess", None)
    if ess is not None and len(ess) == result.model.num_variables:
        return np.asarray(ess, dtype=float)
    return np.full(result.model.num_variables, float(max(1, len(getattr(result, "states", ())))))


def bracket(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    time_limit: float | None = None,
    confidence: float | None = None,
    num_draws: int = 20_000,
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
        Of covers and draws; drawn and returned when not given.
    progress : "auto", None or callable
        See :func:`fastmix.infer`.

    Returns
    -------
    BracketResult

    Raises
    ------
    ModelError
        If the evidence has probability zero, as far as that is found. Without evidence that is an answer: Z = 0.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the bracket so far.

    Notes
    -----
    Where exact inference fits memory and time it gives both bounds. Otherwise the upper bound splits the model into
    covers of bounded treewidth (:mod:`fastmix.bounds.upper`), the lower bound is that of a product over clusters of
    bounded treewidth (:mod:`fastmix.bounds.lower`) or of configurations found, and bounds on the weight of every state
    come with both. Every sum has an allowance for rounding (:func:`fastmix.bounds.terms.rounding`) on the safe side.

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
    if confidence is not None:
        confidence = check_share("confidence", confidence)
    num_draws = check_count("num_draws", num_draws, least=2)
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    seed = choose_seed(seed)
    options: dict[str, Any] = {
        "evidence": plain_evidence(evidence), "memory_limit": memory_limit, "time_limit": time_limit,
        "confidence": confidence, "num_draws": num_draws,
    }  # fmt: skip
    with listening(progress, "bracket") as listener:
        clock = Clock(time_limit, default=_DEFAULT_SECONDS, listener=listener, what="bracket")
        work = Work(model, evidence, limit, clock, seed)
        stopped_by = "done"
        try:
            work.run(confidence, num_draws)
            work.finish()
        except OutOfTimeError:
            stopped_by = "time_limit"
            work.finish()
        except KeyboardInterrupt:
            if not work.has_bounds:
                raise
            stopped_by = "interrupt"
            work.finish()
        except ImpossibleModelError as error:
            if evidence:
                raise impossible(True, str(error)) from None
            work.finish_zero(str(error))
        result = BracketResult(
            model=model,
            log_z_lower=float(work.log_z[0]),
            log_z_upper=float(work.log_z[1]),
            node_lower=None if work.nodes is None else work.nodes[0],
            node_upper=None if work.nodes is None else work.nodes[1],
            confidence=work.confidence,
            methods=work.methods,
            exact=work.exact,
            status=Status.INTERRUPTED if stopped_by == "interrupt" else Status.OK,
            stats={**work.stats, "stopped_by": stopped_by, **clock.stats(), "time_limit": clock.limit},
            provenance=provenance(model, seed=seed, **options),
        )
    if stopped_by == "interrupt":
        raise Interrupted("bracket was interrupted; the bounds so far are in this exception", result)
    return result
