"""The order in which bounds are found, and how the time is shared among them."""

from __future__ import annotations

import contextlib
import math
from functools import cached_property
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.bounds.branch import Cases
from fastmix.bounds.covers import Parts
from fastmix.bounds.lower import Lower, configurations_lower
from fastmix.bounds.terms import Terms, blanket_bounds, combine, find_terms, rounding, spread, tighten
from fastmix.bounds.upper import Upper, crude_upper, draw_configurations, sampled_bounds
from fastmix.bounds.walks import walk_bounds
from fastmix.errors import ModelError, ResourceError
from fastmix.exact import plan_exact
from fastmix.model import Evidence, MarkovRandomField

__all__ = ["Work"]

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


class Work:
    """One call: the best bounds so far, and how they came about."""

    def __init__(
        self, model: MarkovRandomField, evidence: Evidence | None, memory: float, clock: Clock, seed: int
    ) -> None:
        self.model, self.evidence, self.memory, self.clock, self.seed = model, evidence, memory, clock, seed
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

    @cached_property
    def terms(self) -> Terms:
        """The model given the evidence."""
        return find_terms(self.model, self.evidence)

    def run(self, confidence: float | None, num_draws: int) -> None:
        """All that there is time for; an OutOfTimeError where it ends before."""
        if self._solve():
            return
        terms = self.terms
        clock = self.clock if confidence is None else self.clock.part(_SHARE_BEFORE_DRAWS)
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
                self._start(upper, rng, clock.part(0.25))
            else:
                upper.improve(clock.part(0.6), _STEPS)
                self._take_upper()
            if slow:
                self._split(upper, clock)
                return
            gain = abs(self.log_z[side] - before) if self.log_z[side] != before else 0.0
            rates[side] = gain / max(clock.used() - began, 1e-9)
            # Where many variables are left, cases are no match for a better split of all tables.
            little = gain < min(_LEAST_GAIN, 0.05 * (self.log_z[1] - self.log_z[0]))
            slow = side == 1 and (upper.done or (little and upper.num_evaluations - made >= _LEAST_EVALUATIONS))

    def _split(self, upper: Upper, clock: Clock) -> None:
        """Bounds by cases, until time is over or nothing is gained."""
        cases = Cases(upper, self.lower, self.log_z, self.states, memory_limit=self._memory(self.terms))
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

    def _start(self, upper: Upper, rng: np.random.Generator, clock: Clock) -> None:
        """Improve the lower bound from the marginals of the upper one, and from the best configuration drawn."""
        lower, terms = self.lower, self.terms
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

    def finish(self) -> None:
        """Turn bounds on the weights of states into those on the marginals of the user's model."""
        if not self.exact:
            self.log_z, *nodes = tighten(self.log_z, *self.states, self.terms)
            lower, upper = combine([(nodes[0], nodes[1]), *self.local], self.terms)
            expand = self.terms.reduction.expand_node_marginals
            self.nodes = expand(lower), expand(upper)
        if self.upper is not None:
            self.stats["num_evaluations"] = self.upper.num_evaluations
        if self.lower is not None:
            self.stats["num_sweeps"] = self.lower.num_sweeps
