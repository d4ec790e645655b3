"""``bracket()``: proven lower and upper bounds on log Z and on every marginal."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_positive, choose_seed
from fastmix._clock import Clock, OutOfTimeError, Report, listening
from fastmix._memory import available_memory
from fastmix.bounds.branch import Cases
from fastmix.bounds.covers import Parts
from fastmix.bounds.draws import draw_configurations, sampled_bounds
from fastmix.bounds.lower import Lower, configurations_lower
from fastmix.bounds.marginals import blanket_bounds, combine, tighten
from fastmix.bounds.terms import Terms, find_terms, rounding, spread
from fastmix.bounds.upper import Upper, crude_upper
from fastmix.bounds.walks import walk_bounds
from fastmix.errors import Interrupted, ModelError, ResourceError
from fastmix.exact import plan_exact
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import InferenceResult, Status, jsonable, plain_evidence, provenance

__all__ = ["BracketResult", "bracket"]


_DEFAULT_SECONDS = 60.0
_SECONDS_PER_ENTRY = 4e-9
_EVALUATIONS = 40.0  # wanted in the time there is: the limit on tables follows from it
_MOST_ENTRIES = 2.0**20
_SECONDS_PER_TERM = 3e-5  # of making terms and plans
_SHARE_OF_WALKS = 0.1  # of the time, and what is left in the end
_SHARE_OF_LOWER = 0.6  # of what the covers and a first step leave
_SHARE_OF_FIRST_START = 0.3  # of the time for starts of the lower bound: if it takes more there is no second one
_SHARE_BEFORE_DRAWS = 0.6  # of the time, where there are to be draws
_LEAST_MEMORY = 2.0**20  # bytes that are taken beside the model, whatever the limit
_STEPS = 30  # of the optimiser, between improvements of the lower bound
_LEAST_GAIN = 0.3  # nats by so many steps; where they gain less, cases gain more
_LEAST_EVALUATIONS = 8  # by which that is judged
_DRAWN = 64  # configurations looked at for a start


@dataclass(frozen=True, eq=False)
class BracketResult:
    """Bounds on log Z and on the probability of every state.

    Attributes
    ----------
    model : MarkovRandomField
    log_z_lower, log_z_upper : float
        Log Z lies between them; the lower one is -inf where no configuration was found.
    node_lower, node_upper : float arrays, aligned with ``model.log_unary``
        The probability of each state lies between them.
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
    node_lower: FloatArray
    node_upper: FloatArray
    confidence: float | None
    methods: Mapping[str, str]
    exact: bool
    status: Status
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        between = f"{self.log_z_lower:.6g} <= log Z <= {self.log_z_upper:.6g}"
        held = "proven" if self.confidence is None else f"confidence {self.confidence:g}"
        return f"BracketResult({between}, {held}, {self.model})"

    @property
    def gap(self) -> float:
        """What is between the bounds on log Z."""
        return self.log_z_upper - self.log_z_lower

    @property
    def marginals_lower(self) -> list[FloatArray]:
        """Lower bounds, one vector per variable."""
        return self._split(self.node_lower)

    @property
    def marginals_upper(self) -> list[FloatArray]:
        """Upper bounds, one vector per variable."""
        return self._split(self.node_upper)

    def marginal(self, variable: int | str) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on the probabilities of one variable, given by number or name."""
        i = self.model.variable_index(variable)
        place = slice(int(self.model.unary_offsets[i]), int(self.model.unary_offsets[i + 1]))
        return self.node_lower[place], self.node_upper[place]

    def _split(self, values: FloatArray) -> list[FloatArray]:
        return np.split(values, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def misses(self, result: InferenceResult, *, num_errors: float = 4.0) -> str | None:
        """What of an answer lies outside by more than a number of its standard errors, in a sentence; None if nothing.

        The standard error is at least that of as many independent draws from the bound itself: a state that was never
        drawn has an estimated error of zero. Answers without standard errors have an allowance of 1e-6.
        """
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
            return (
                f"the probability {p[worst]:.4g} of state {worst - self.model.unary_offsets[i]} of "
                f"variable {i} is outside its bracket [{self.node_lower[worst]:.4g}, {self.node_upper[worst]:.4g}]"
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
        return {
            "log_z_lower": jsonable(self.log_z_lower),
            "log_z_upper": jsonable(self.log_z_upper),
            "marginals_lower": jsonable([v.tolist() for v in self.marginals_lower]),
            "marginals_upper": jsonable([v.tolist() for v in self.marginals_upper]),
            "confidence": self.confidence,
            "methods": dict(self.methods),
            "exact": self.exact,
            "status": str(self.status),
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
        }


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
        If the evidence, or the model itself, has probability zero as far as that is found.
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
    if confidence is not None and not 0.0 < (confidence := check_positive("confidence", confidence)) < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
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
        work = _Work(model, evidence, limit, clock, seed)
        stopped_by = "done"
        try:
            work.run(confidence, num_draws)
        except OutOfTimeError:
            stopped_by = "time_limit"
        except KeyboardInterrupt:
            stopped_by = "interrupt"
        if work.terms is None and not work.exact:
            if stopped_by == "interrupt":
                raise Interrupted("bracket was interrupted before there was anything to tell")
            work.terms = find_terms(model, evidence)
            work.take_crude()
        result = work.result(stopped_by, provenance(model, seed=seed, **options))
    if stopped_by == "interrupt":
        raise Interrupted("bracket was interrupted; the bounds so far are in this exception", result)
    return result


class _Work:
    """One call: the best bounds so far, and how they came about."""

    def __init__(
        self, model: MarkovRandomField, evidence: Evidence | None, memory: float, clock: Clock, seed: int
    ) -> None:
        self.model, self.evidence, self.memory, self.clock, self.seed = model, evidence, memory, clock, seed
        self.terms: Terms | None = None
        self.exact = False
        self.log_z = -math.inf, math.inf
        self.nodes = np.zeros(0), np.zeros(0)
        self.states = np.zeros(0), np.zeros(0)
        self.methods = {"lower": "none", "upper": "none", "marginals": "weights of states"}
        self.stats: dict[str, Any] = {}
        self.confidence: float | None = None
        self.local: list[tuple[FloatArray, FloatArray]] = []
        self.upper: Upper | None = None
        self.lower: Lower | None = None
        self.product: FloatArray | None = None  # marginals of mean field

    def run(self, confidence: float | None, num_draws: int) -> None:
        """All that there is time for; an OutOfTimeError where it ends before."""
        if self._solve():
            return
        terms = find_terms(self.model, self.evidence)
        clock = self.clock if confidence is None else self.clock.part(_SHARE_BEFORE_DRAWS)
        self.terms = terms
        self.take_crude()
        if not terms.num_variables:
            return
        rng = np.random.default_rng(self.seed)
        self._take_mean_field(terms, clock)
        # Walks say nothing about log Z: the last part of the time is theirs.
        most = clock.part(1.0 - _SHARE_OF_WALKS) if (2, 2) in terms.groups else clock
        try:
            scopes = terms.scopes[terms.num_variables :]
            parts = Parts(terms.num_states, scopes, terms.weights, max_entries=self._table_entries(terms, most))
            self._build_upper(terms, parts, clock)
            with contextlib.suppress(OutOfTimeError):
                self._build_lower(terms, parts, most.part(_SHARE_OF_LOWER))
            self._improve(rng, most)
        except OutOfTimeError:
            pass
        finally:
            self._take_upper()
            self._take_lower()
        self._take_walks(terms, clock)
        if confidence is not None:
            self._draw(confidence, num_draws, rng)
        most.check()

    def _improve(self, rng: np.random.Generator, clock: Clock) -> None:
        """Bounds from below and from above, whichever gains more per second, then by cases, until nothing is gained."""
        upper = self.upper
        if upper is None:
            return
        slow, rates = False, [math.inf, math.inf]  # nats per second of the last turn from below, from above
        while upper.parts and not clock.past():
            side = 0 if slow or rates[0] > rates[1] else 1
            began, before, made = clock.used(), self.log_z[side], upper.num_evaluations
            clock.report(upper.num_evaluations, None, "iterations")
            if side == 0:
                self._start(rng, clock.part(0.25))
            else:
                upper.improve(clock.part(0.6), _STEPS)
                self._take_upper()
            if slow:
                self._split(clock)
                return
            gain = abs(self.log_z[side] - before) if self.log_z[side] != before else 0.0
            rates[side] = gain / max(clock.used() - began, 1e-9)
            # Where many variables are left, cases are no match for a better split of all tables.
            little = gain < min(_LEAST_GAIN, 0.05 * (self.log_z[1] - self.log_z[0]))
            slow = side == 1 and (upper.done or (little and upper.num_evaluations - made >= _LEAST_EVALUATIONS))

    def _split(self, clock: Clock) -> None:
        """Bounds by cases, until time is over or nothing is gained."""
        assert self.upper is not None
        assert self.terms is not None
        memory = self._memory(self.terms)
        cases = Cases(self.upper, self.lower, self.log_z, self.states, memory_limit=memory)
        try:
            while cases.split(clock):
                clock.report(cases.num_parts, None, "cases")
        except OutOfTimeError:
            pass
        finally:
            self._take("cases", cases.log_z, cases.states)
            self.stats["num_cases"] = cases.num_parts

    def _solve(self) -> bool:
        """Whether exact inference gave the answer."""
        try:
            plan = plan_exact(self.model, evidence=self.evidence, memory_limit=self.memory, clock=self.clock.part(0.15))
            if plan.seconds > 0.7 * self.clock.left():
                return False
            answer = plan.run(self.clock)
        except ResourceError:
            return False
        assert answer.log_z is not None
        model = plan.reduction.model
        size = float(np.abs(model.parameters[model.parameters > -np.inf]).sum()) + abs(model.log_constant)
        error = rounding(3.0 * model.num_parameters, size)
        relative = rounding(3.0 * model.num_parameters, 0.0) + error
        self.log_z = answer.log_z - error, answer.log_z + error
        p = answer.node_marginals
        certain = (p == 0.0) | (p == 1.0)
        self.nodes = np.where(certain, p, np.maximum(p * (1.0 - relative), 0.0)), np.minimum(p * (1.0 + relative), 1.0)
        self.methods = {"lower": "exact", "upper": "exact", "marginals": "exact"}
        self.stats["treewidth"] = plan.tree.treewidth
        self.exact = True
        return True

    def take_crude(self) -> None:
        """Bounds that take no time."""
        terms = self.terms
        assert terms is not None
        bound, states = crude_upper(terms)
        self.log_z = -math.inf, bound
        self.states = np.full(terms.num_unary, -np.inf), states
        self.methods["upper"] = "largest entries"
        self.local = [blanket_bounds(terms)]
        if not terms.num_variables:  # all are observed, or have a single state
            self.log_z = 2.0 * terms.log_constant - bound, bound
            self.methods = {"lower": "exact", "upper": "exact", "marginals": "exact"}
            self.exact = True
            nodes = terms.reduction.expand_node_marginals(np.zeros(0))
            self.nodes = nodes, nodes.copy()
            return
        best = np.zeros((1, terms.num_variables), dtype=np.int64)
        for v, vector in enumerate(terms.cut(terms.values, range(terms.num_variables))):
            best[0, v] = int(np.argmax(vector))
        self._take_configurations(best)

    def _table_entries(self, terms: Terms, clock: Clock) -> float:
        """The limit on tables: what fits memory, and the time often enough."""
        n = max(1, terms.num_variables)
        if clock.left() < _SECONDS_PER_TERM * len(terms.scopes):
            raise OutOfTimeError
        seconds = min(clock.left(), 60.0) / _EVALUATIONS / 2.0
        entries = min(seconds / _SECONDS_PER_ENTRY / n, self.memory / 24.0 / n, _MOST_ENTRIES)
        largest = max([math.prod([terms.num_states[v] for v in s]) for s in terms.scopes], default=2)
        return max(float(largest), 2.0 ** math.floor(math.log2(max(2.0, entries))))

    def _memory(self, terms: Terms) -> float:
        return max(self.memory, _LEAST_MEMORY + 64.0 * len(terms.values))

    def _build_lower(self, terms: Terms, parts: Parts, clock: Clock) -> None:
        """Clusters, and the bound from the marginals of the variables without their neighbors."""
        clusters = parts.clusters(clock=clock)
        with contextlib.suppress(ResourceError):
            self.lower = Lower(terms, clusters, memory_limit=self._memory(terms))
            unary = terms.values[: terms.num_unary]
            sums = np.logaddexp.reduceat(unary, terms.offsets[: terms.num_variables]) if len(unary) else unary
            for start in (self.product, np.exp(unary - np.repeat(sums, terms.num_states))):
                if start is None or (start is not self.product and clock.past(_SHARE_OF_FIRST_START)):
                    continue
                with contextlib.suppress(ModelError):  # forbidden pairs across clusters leave nothing
                    self.lower.start(start)
                    self.lower.improve(clock, 20)

    def _build_upper(self, terms: Terms, parts: Parts, clock: Clock) -> None:
        """Covers, with smaller tables where they are over the memory after all, and a first step."""
        while self.upper is None:
            covers, entries = parts.covers(seed=self.seed, clock=clock), parts.max_entries
            self.stats |= {"table_entries": entries, "num_covers": len(covers)}
            try:
                self.upper = Upper(terms, covers, memory_limit=self._memory(terms))
            except ResourceError:
                smaller = max(entries / 4.0, float(np.diff(terms.offsets).max()))
                if smaller >= entries:
                    return
                parts = Parts(parts.num_states, parts.scopes, parts.weights, max_entries=smaller)
        self.upper.improve(clock, 1)

    def _start(self, rng: np.random.Generator, clock: Clock) -> None:
        """Improve the lower bound from the marginals of the upper one, and from the best configuration drawn."""
        upper, lower, terms = self.upper, self.lower, self.terms
        assert upper is not None
        assert terms is not None
        with contextlib.suppress(OutOfTimeError):
            drawn = draw_configurations(upper, _DRAWN, rng, clock)
            self._take_configurations(drawn)
            best = drawn[int(np.argmax(terms.log_weights(drawn)))]
            if lower is None:
                return
            point = np.zeros(terms.num_unary)
            point[terms.offsets[: terms.num_variables] + best] = 1.0
            for start in (upper.beliefs, point):
                with contextlib.suppress(ModelError):
                    lower.start(start)
                    lower.improve(clock, 200)
        self._take_lower()

    def _take_mean_field(self, terms: Terms, clock: Clock) -> None:
        """Naive mean field, whose sweeps are so fast that it is the best there is for large models in little time.

        Where entries are forbidden it begins at configurations that are possible, as far as it finds any.
        """
        from fastmix.methods.mean_field import mean_field

        try:
            found = mean_field(
                self.model,
                evidence=self.evidence,
                num_starts=2,
                seed=self.seed,
                time_limit=clock.rest(0.1),
                progress=None,
            )
        except ResourceError:  # not even time to begin
            return
        if not found.log_z_lower > -math.inf:
            return
        self.product = found.node_marginals[terms.kept]
        size = spread(terms.values, terms.offsets) + abs(terms.log_constant)
        self._take("mean field", (found.log_z_lower - rounding(3.0 * len(terms.values), size), math.inf))

    def _take_walks(self, terms: Terms, clock: Clock) -> None:
        """Bounds on the marginals of binary variables, from the walks around each of them."""
        found = None if clock.past() else walk_bounds(terms, clock)
        if found is not None:
            self.local = [combine([*self.local, (found.lower, found.upper)], terms)]
            self.stats["num_walks"] = self.stats.get("num_walks", 0) + found.num_nodes
            self.methods["marginals"] = "weights of states, walks"

    def _take(self, name: str, log_z: tuple[float, float], states: tuple[Any, Any] = (-math.inf, math.inf)) -> None:
        """Keep what is tighter of bounds on log Z and on the log-weights of all states, and by whom."""
        low, high = self.log_z
        self.states = np.maximum(self.states[0], states[0]), np.minimum(self.states[1], states[1])
        self.log_z = max(low, log_z[0]), min(high, log_z[1])
        for side, tighter in (("lower", log_z[0] > low), ("upper", log_z[1] < high)):
            self.methods[side] = name if tighter else self.methods[side]

    def _take_upper(self) -> None:
        if self.upper is not None and self.upper.num_evaluations:
            self._take("covers", (-math.inf, self.upper.log_z), (-np.inf, self.upper.states))

    def _take_lower(self) -> None:
        if self.lower is not None and self.lower.log_z > -math.inf:
            self._take("clusters", (self.lower.log_z, math.inf), (self.lower.states, np.inf))

    def _take_configurations(self, drawn: IntArray) -> None:
        assert self.terms is not None
        total, states = configurations_lower(self.terms, drawn)
        self._take("configurations", (total, math.inf), (states, np.inf))

    def _draw(self, confidence: float, num_draws: int, rng: np.random.Generator) -> None:
        if self.upper is None or not self.upper.parts:
            return
        with contextlib.suppress(OutOfTimeError):
            found, drawn = sampled_bounds(self.upper, confidence, num_draws, rng, self.clock)
            self._take_configurations(drawn)
            if found is None:
                return
            self.stats["num_draws"] = found.num_draws
            before = np.concatenate([self.log_z, *self.states])
            self._take("draws", found.log_z, (found.states_lower, found.states_upper))
            if not np.array_equal(before, np.concatenate([self.log_z, *self.states])):
                self.confidence = confidence

    def result(self, stopped_by: str, origin: dict[str, Any]) -> BracketResult:
        """The bounds in terms of the user's model."""
        if not self.exact:
            terms = self.terms
            assert terms is not None
            self.log_z, *nodes = tighten(self.log_z, *self.states, terms)
            lower, upper = combine([(nodes[0], nodes[1]), *self.local], terms)
            expand = terms.reduction.expand_node_marginals
            self.nodes = expand(lower), expand(upper)
        if self.upper is not None:
            self.stats["num_evaluations"] = self.upper.num_evaluations
        if self.lower is not None:
            self.stats["num_sweeps"] = self.lower.num_sweeps
        return BracketResult(
            model=self.model,
            log_z_lower=self.log_z[0],
            log_z_upper=self.log_z[1],
            node_lower=self.nodes[0],
            node_upper=self.nodes[1],
            confidence=self.confidence,
            methods=self.methods,
            exact=self.exact,
            status=Status.INTERRUPTED if stopped_by == "interrupt" else Status.OK,
            stats={**self.stats, "stopped_by": stopped_by, **self.clock.stats(), "time_limit": self.clock.limit},
            provenance=origin,
        )
