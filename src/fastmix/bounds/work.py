"""The order in which bounds are found, and how the time is shared among them."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.bounds.branch import Cases
from fastmix.bounds.covers import Parts
from fastmix.bounds.lower import Lower, configurations_lower
from fastmix.bounds.terms import (
    Terms,
    blanket_bounds,
    combine,
    find_terms,
    folding_error,
    log_size,
    outwards,
    rounding,
    tighten,
)
from fastmix.bounds.upper import Upper, crude_upper, draw_configurations, sampled_bounds
from fastmix.bounds.walks import walk_bounds
from fastmix.errors import ModelError, ResourceError
from fastmix.exact import plan_exact
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.centre import move_constants
from fastmix.model.reduce import observed_unary

__all__ = ["Work"]

_SECONDS_PER_ENTRY = 4e-9
_EVALUATIONS = 40.0  # wanted in the time there is: the limit on tables follows from it
_MOST_ENTRIES = 2.0**20
_SHARE_OF_PLAN = 0.15  # of the time, for a plan of exact inference
_SHARE_OF_EXACT = 0.7  # of what is left then: its estimates are on the safe side
_SHARE_OF_MEAN_FIELD = 0.1  # of what is left
_SECONDS_PER_START = 1e-7  # of an entry, for what mean field begins with
_SECONDS_PER_PAIR = 2e-6  # of making the fields that walks go through
_SECONDS_PER_TERM = 3e-5  # of making terms and plans
_SECONDS_PER_VALUE = 4e-7  # of an entry, of making covers and of the first step
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
        # All is computed without the constants of the model's terms: their rounding enters once, in the end.
        moved = move_constants(model, unseen=0.0, of_spread=2.0)
        self.constant = moved.log_constant
        self.constant_error = 0.0 if moved is model else math.ulp(moved.log_constant)
        self.model = moved.replace(log_constant=0.0)
        self.evidence, self.memory, self.clock, self.seed = evidence, memory, clock, seed
        self.exact = False
        self.terms: Terms | None = None  # the model given the evidence, once it is known
        self.fold_error = 0.0
        self.log_z = -math.inf, math.inf
        self.nodes: tuple[FloatArray, FloatArray] | None = None
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
        terms = self._reduce()
        if terms.is_product:
            self._take_product(terms)
            return
        if self._solve(terms):
            return
        clock = self.clock if confidence is None else self.clock.part(_SHARE_BEFORE_DRAWS)
        self._take_crude(terms, clock)
        rng = np.random.default_rng(self.seed)
        self._take_mean_field(terms, clock)
        # Walks say nothing about log Z: the last part of the time is theirs.
        most = clock.part(1.0 - _SHARE_OF_WALKS) if (2, 2) in terms.groups else clock
        try:
            entries = self._table_entries(terms, most)
            scopes = terms.scopes[terms.num_variables :]
            parts = Parts(terms.num_states, scopes, terms.weights, max_entries=entries)
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

    def _reduce(self) -> Terms:
        """The terms of the model given the evidence, from which all else is computed."""
        terms = find_terms(self.model, self.evidence, self.clock)
        self.terms = terms
        self.fold_error = folding_error(self.model, self.evidence, terms.reduction)
        return terms

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
        cases = Cases(upper, self.lower, self.log_z, self.states, memory_limit=self._memory(upper.terms))
        try:
            while cases.split(clock):
                clock.report(cases.num_parts, None, "cases")
        except OutOfTimeError:
            pass
        finally:
            self._take("cases", cases.log_z, cases.states)
            self.stats["num_cases"] = cases.num_parts

    def _solve(self, terms: Terms) -> bool:
        """Whether exact inference gave the answer."""
        model = terms.reduction.model
        try:
            plan = plan_exact(model, memory_limit=self.memory, clock=self.clock.part(_SHARE_OF_PLAN), reduced=True)
            if plan.seconds > _SHARE_OF_EXACT * self.clock.left():
                return False
            # Where the estimate was wrong there is time left for something else.
            answer = plan.run(self.clock.part(_SHARE_OF_EXACT), edge_marginals=False)
        except ResourceError:
            return False
        assert answer.log_z is not None
        size = log_size(model)
        error = rounding(3.0 * model.num_parameters, size)
        self.log_z = answer.log_z - error, answer.log_z + error
        p = answer.node_marginals
        self._take_exact(outwards(p, p, rounding(3.0 * model.num_parameters, 0.0) + 2.0 * error))
        self.stats["treewidth"] = plan.tree.treewidth
        return True

    def _take_product(self, terms: Terms) -> None:
        """The answer for a model without tables over two and more variables."""
        upper, states = crude_upper(terms)
        error = rounding(terms.num_terms + max(terms.num_states, default=0), terms.size)
        self.log_z = upper - 2.0 * error, upper
        p = np.exp(states - upper)
        self._take_exact(outwards(p, p, 2.0 * error))

    def _take_exact(self, nodes: tuple[FloatArray, FloatArray]) -> None:
        """Keep bounds that only rounding is between."""
        self.nodes = nodes
        self.methods = {"lower": "exact", "upper": "exact", "marginals": "exact"}
        self.exact = True

    def _take_crude(self, terms: Terms, clock: Clock) -> None:
        """Bounds that take next to no time."""
        bound, states = crude_upper(terms)
        self.log_z = -math.inf, bound
        self.states = np.full(terms.num_unary, -np.inf), states
        self.methods["upper"] = "largest entries"
        self._take_configurations(terms, terms.best_alone[None, :])
        self.local = [blanket_bounds(terms, clock)]

    def _take_widest(self) -> None:
        """The bound of the largest entries, where not even evidence and forbidden states were taken out in time."""
        model = self.model
        offsets = model.unary_offsets
        unary, fixed = observed_unary(model, self.evidence)
        upper = float(np.logaddexp.reduceat(unary, offsets[:-1]).sum()) if model.num_variables else 0.0
        tables = ((model.log_pairwise, model.pairwise_offsets), (model.log_factors, model.factor_offsets))
        for values, starts in tables:
            if values.size:
                upper += float(np.maximum.reduceat(values, starts[:-1]).sum())
        self.log_z = -math.inf, upper + rounding(model.num_parameters, log_size(model))
        self.methods["upper"] = "largest entries"
        lower = np.zeros(len(unary))
        observed = np.flatnonzero(fixed >= 0)
        lower[offsets[observed] + fixed[observed]] = 1.0
        self.nodes = lower, (unary > -np.inf).astype(float)

    def _table_entries(self, terms: Terms, clock: Clock) -> float:
        """The limit on tables: what fits memory, and the time often enough."""
        n = max(1, terms.num_variables)
        if clock.left() < _SECONDS_PER_TERM * terms.num_terms + _SECONDS_PER_VALUE * len(terms.values):
            raise OutOfTimeError
        seconds = min(clock.left(), 60.0) / _EVALUATIONS / 2.0
        entries = min(seconds / _SECONDS_PER_ENTRY / n, self.memory / 24.0 / n, _MOST_ENTRIES)
        largest = np.diff(terms.offsets).max(initial=2)
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
        lower = self.lower
        terms = upper.terms
        with contextlib.suppress(OutOfTimeError):
            drawn = draw_configurations(upper, _DRAWN, rng, clock)
            self._take_configurations(terms, drawn)
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
        from fastmix.methods.base import Context
        from fastmix.methods.mean_field import MeanField

        small = terms.reduction.model
        if clock.left() < _SECONDS_PER_START * small.num_parameters:
            return
        context = Context(self.seed, clock.part(_SHARE_OF_MEAN_FIELD), given=bool(self.evidence))
        try:
            found = MeanField(num_starts=2).run(small, context)
        except (OutOfTimeError, ResourceError):  # not even time, or memory, to begin
            return
        if not found.log_z_lower > -math.inf:
            return
        self.product = found.node_marginals
        error = rounding(3.0 * small.num_parameters, log_size(small))
        self._take("mean field", (found.log_z_lower - error, math.inf))

    def _take_walks(self, terms: Terms, clock: Clock) -> None:
        """Bounds on the marginals of binary variables, from the walks around each of them."""
        late = clock.left() < _SECONDS_PER_PAIR * terms.num_terms
        found = None if late or clock.past() else walk_bounds(terms, clock)
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

    def _take_configurations(self, terms: Terms, drawn: IntArray) -> None:
        total, states = configurations_lower(terms, drawn)
        self._take("configurations", (total, math.inf), (states, np.inf))

    def _draw(self, confidence: float, num_draws: int, rng: np.random.Generator) -> None:
        if self.upper is None or not self.upper.parts:
            return
        with contextlib.suppress(OutOfTimeError):
            found, drawn = sampled_bounds(self.upper, confidence, num_draws, rng, self.clock)
            self._take_configurations(self.upper.terms, drawn)
            if found is None:
                return
            self.stats["num_draws"] = found.num_draws
            before = np.concatenate([self.log_z, *self.states])
            self._take("draws", found.log_z, (found.states_lower, found.states_upper))
            if not np.array_equal(before, np.concatenate([self.log_z, *self.states])):
                self.confidence = confidence

    @property
    def has_bounds(self) -> bool:
        """Whether there is anything to report."""
        return self.exact or bool(self.local)

    def finish_zero(self, reason: str) -> None:
        """Z = 0, which is proven: there are no marginals."""
        self.log_z = -math.inf, -math.inf
        self.nodes = None
        self.stats["reason"] = reason
        self.methods = dict.fromkeys(self.methods, "no configuration")
        self.confidence = None
        self.exact = True

    def finish(self) -> None:
        """Turn bounds on the weights of states into those on log Z and on the marginals of the user's model."""
        if self.terms is None:
            self._take_widest()
        else:
            if self.nodes is None:
                self.log_z, *nodes = tighten(self.log_z, *self.states, self.terms)
                self.nodes = combine([(nodes[0], nodes[1]), *self.local], self.terms)
            lower, upper = outwards(*self.nodes, 2.0 * self.fold_error)
            expand = self.terms.reduction.expand_node_marginals
            self.nodes = expand(lower), expand(upper)
        self.log_z = self._with_constant(self.log_z)
        if self.upper is not None:
            self.stats["num_evaluations"] = self.upper.num_evaluations
        if self.lower is not None:
            self.stats["num_sweeps"] = self.lower.num_sweeps

    def _with_constant(self, log_z: tuple[float, float]) -> tuple[float, float]:
        """Bounds on log Z with the constant of the model, apart by the rounding of folding and of both sums."""
        error = self.fold_error + self.constant_error
        if not self.constant and not error:
            return log_z
        # Rounded to the next float where the sum of three is not one.
        low = math.nextafter(math.fsum([self.constant, log_z[0], -error]), -math.inf)
        return low, math.nextafter(math.fsum([self.constant, log_z[1], error]), math.inf)
