"""An upper bound on log Z, and on the log-weight of every state, from covers that exact inference can do.

For covers C with shares r_C that sum to one, and tables phi_C that sum to those of the model, Hölder's inequality gives
``log Z <= sum_C r_C log Z(phi_C / r_C)`` (Wainwright, Jaakkola and Willsky 2005, for trees). The right-hand side is
convex in shares and tables together: its derivatives are the marginals and the entropies of the covers, and L-BFGS
tightens it while there is time. Every point of the way is a bound. With x_i = a everywhere it bounds the weight of that
state in the same way, ``log Z(x_i = a) <= sum_C r_C (log Z_C + log p_C(x_i = a))``, so one pass bounds them all.

``f(x) = exp(U) prod_C p_C(x)^r_C <= exp(U) sum_C r_C p_C(x)``: drawn from the mixture of the covers, weights lie
between 0 and exp(U) (Liu, Fisher and Ihler 2015, for mini-buckets).
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.bounds.covers import Cover
from fastmix.bounds.terms import Terms, rounding, spread
from fastmix.exact.junction_tree import Tree, plan_tree
from fastmix.exact.planner import Factors
from fastmix.model.build import offsets_of, reduce_tables
from fastmix.theory.intervals import bernstein_half_width

__all__ = ["Sampled", "Upper", "crude_upper", "draw_configurations", "sampled_bounds"]


_FLOOR = 1e-280  # of a probability that may have underflown
_LEAST_SHARE = 1e-3
_BATCH = 1000  # draws at once


def crude_upper(terms: Terms) -> tuple[float, FloatArray]:
    """Largest entries of the tables over two and more variables, and sums of the others: a bound in no time."""
    n, starts = terms.num_variables, terms.offsets
    total = terms.log_constant
    unary = terms.values[: terms.num_unary]
    if not terms.is_product:
        inner = terms.values[terms.num_unary :]
        total += float(reduce_tables(np.maximum, inner, starts[n:] - terms.num_unary).sum())
    if n:
        sums = reduce_tables(np.logaddexp, unary, starts[: n + 1])
        total += float(sums.sum())
        unary = unary - np.repeat(sums, terms.num_states)
    total += rounding(terms.num_terms + max(terms.num_states, default=0), terms.size)
    return total, total + unary


class Upper:
    """The bound of some covers, its tables and shares optimised in steps.

    ``log_z`` is the best bound so far, inf before :meth:`improve`, ``states`` are those on the log-weights of all
    states, and ``beliefs`` geometric means of the marginals of the covers, normalised: a guess at the marginals.
    """

    def __init__(self, terms: Terms, covers: list[Cover], *, memory_limit: float = math.inf) -> None:
        self.terms = terms
        n = terms.num_variables
        self.log_z, self.states = math.inf, np.full(terms.num_unary, np.inf)
        self.beliefs = np.zeros(terms.num_unary)
        self.members = [np.concatenate([np.arange(n), n + cover.members]) for cover in covers]
        self.positions = [terms.positions(members) for members in self.members]
        self.trees: list[Tree] = []
        for cover, members in zip(covers, self.members, strict=True):
            factors = Factors(terms.num_states, [terms.scopes[f] for f in members], np.zeros(0))
            self.trees.append(plan_tree(factors, order=cover.order, memory_limit=memory_limit).run_often())
        self.count = np.zeros(len(terms.values))
        for p in self.positions:
            self.count[p] += 1.0
        if len(self.count) and not self.count.min() > 0.0:
            raise ValueError("covers must have every factor")
        self.soft = terms.values > -np.inf
        sizes = [len(p) for p in self.positions]
        self.ends = offsets_of(np.array(sizes, dtype=np.int64))
        self.point = np.zeros(self.ends[-1] + len(covers))
        # Of the steps that the optimiser remembers; each takes twice the size of the point.
        self.memory = int(np.clip(memory_limit / (32.0 * max(1, len(self.point))), 2, 12))
        self.done = False
        self.num_evaluations = 0
        self.log_parts: list[float] = []
        self.parts: list[FloatArray] = []
        self.shares = np.full(len(covers), 1.0 / len(covers))

    def on(self, terms: Terms, point: FloatArray) -> Upper:
        """The same covers for other tables, from a point of the optimisation; trees are shared."""
        other = copy.copy(self)
        other.terms, other.soft, other.point = terms, terms.values > -np.inf, point
        other.log_z, other.states = math.inf, np.full(terms.num_unary, np.inf)
        other.done, other.num_evaluations, other.parts = False, 0, []
        return other

    @property
    def seconds(self) -> float:
        """Estimate of the time of one evaluation."""
        return sum(tree.seconds for tree in self.trees)

    def improve(self, clock: Clock, max_iter: int = 10**6) -> None:
        """Tighten the bound until time is over or nothing is gained; at least one evaluation unless time is over."""
        from scipy.optimize import minimize

        if self.done:
            return
        before = self.log_z
        try:
            result = minimize(
                self._evaluate, self.point, args=(clock,), jac=True, method="L-BFGS-B",
                options={"maxiter": max_iter, "maxfun": 10**9, "maxcor": self.memory, "ftol": 1e-12, "gtol": 1e-9},
            )  # fmt: skip
        except OutOfTimeError:
            return
        gained = before - self.log_z
        self.done = bool(result.nit < max_iter) and not gained > 1e-9 * (1.0 + abs(self.log_z))

    def _tables(self, point: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
        """Shares, their sum over the covers of every entry, tables of each cover (not yet divided by its share)."""
        terms, moves = self.terms, point[: self.ends[-1]]
        logits = point[self.ends[-1] :]
        shares = np.exp(logits - logits.max())
        shares = np.maximum(shares / shares.sum(), _LEAST_SHARE)
        # A sum of shares above one is a bound as well; one below it is not.
        shares *= (1.0 + 8.0 * np.finfo(float).eps * len(shares)) / shares.sum()
        covered, mean = np.zeros(len(terms.values)), np.zeros(len(terms.values))
        for k, p in enumerate(self.positions):
            covered[p] += shares[k]
            mean[p] += moves[self.ends[k] : self.ends[k + 1]]
        mean /= self.count
        base = terms.values / covered
        tables = []
        for k, p in enumerate(self.positions):
            own = np.where(self.soft[p], moves[self.ends[k] : self.ends[k + 1]] - mean[p], 0.0)
            tables.append(shares[k] * base[p] + own)
        return shares, covered, tables

    def _evaluate(self, point: FloatArray, clock: Clock) -> tuple[float, FloatArray]:
        terms = self.terms
        shares, covered, tables = self._tables(point)
        total, states = 0.0, np.zeros(terms.num_unary)
        slope, entropies = np.zeros(len(point)), np.zeros(len(shares))
        mean, summed, shared = np.zeros((3, len(terms.values)))
        log_parts, error = [], 0.0
        for k, tree in enumerate(self.trees):
            clock.check()
            p, scaled = self.positions[k], tables[k] / shares[k]
            offsets = offsets_of(np.diff(terms.offsets)[self.members[k]])
            answer = tree.marginals(scaled, of_factors=True, clock=clock)
            beliefs = answer.factor_marginals
            error += shares[k] * rounding(3 * len(tree.sequence.sizes) + sum(terms.num_states), spread(scaled, offsets))
            total += shares[k] * answer.log_z
            log_parts.append(answer.log_z)
            states += shares[k] * (answer.log_z + np.log(np.maximum(beliefs[: terms.num_unary], _FLOOR)))
            finite = beliefs > 0.0
            entropies[k] = answer.log_z - float(beliefs[finite] @ scaled[finite])
            slope[self.ends[k] : self.ends[k + 1]] = beliefs
            mean[p] += beliefs
            shared[p] += shares[k] * beliefs  # in the end the mean, by shares, of the covers that have an entry
            summed[p] += tables[k]
        mean /= self.count
        # What the tables do not add up to, by rounding, is made up for.
        missing = np.subtract(terms.values, summed, out=np.zeros(len(summed)), where=self.soft)
        if terms.num_terms:
            error += float(np.maximum(np.maximum.reduceat(missing, terms.offsets[:-1]), 0.0).sum())
        error += rounding(2 * len(self.trees), terms.size)
        bound, states = total + terms.log_constant + error, states + terms.log_constant + error
        self.num_evaluations += 1
        self.states = np.minimum(self.states, states)
        if bound < self.log_z:
            self.log_z, self.point, self.shares, self.log_parts = bound, point.copy(), shares, log_parts
            self.parts = [table / share for table, share in zip(tables, shares, strict=True)]
            if terms.num_variables:
                starts = terms.offsets[: terms.num_variables]
                weights = np.exp(states - np.repeat(np.maximum.reduceat(states, starts), terms.num_states))
                self.beliefs = weights / np.repeat(np.add.reduceat(weights, starts), terms.num_states)
        # The part of the tables that follows the shares is the model's, shared out in their proportion.
        shared /= covered
        base = np.divide(terms.values, covered, out=np.zeros(len(covered)), where=self.soft)
        for k, p in enumerate(self.positions):
            part = slope[self.ends[k] : self.ends[k + 1]]
            entropies[k] += float(base[p] @ (part - shared[p]))
            slope[self.ends[k] : self.ends[k + 1]] = np.where(self.soft[p], part - mean[p], 0.0)
        slope[self.ends[-1] :] = shares * (entropies - float(shares @ entropies))
        return total, slope


# -- draws from the mixture of covers: bounds that hold with a stated confidence --------------------------------------


class Sampled(NamedTuple):
    """Bounds on log Z and on the log-weights of all states, that hold together with the confidence asked for."""

    log_z: tuple[float, float]
    states_lower: FloatArray
    states_upper: FloatArray
    num_draws: int


def draw_configurations(upper: Upper, num_draws: int, rng: np.random.Generator, clock: Clock) -> IntArray:
    """Independent configurations (num_draws, n) from the mixture of the covers, by their shares."""
    shares = upper.shares / upper.shares.sum()
    counts = np.bincount(rng.choice(len(shares), size=num_draws, p=shares), minlength=len(shares))
    parts = []
    for k, tree in enumerate(upper.trees):
        if counts[k]:
            parts.append(tree.draw(int(counts[k]), rng, clock, values=upper.parts[k]))
    return np.concatenate(parts)


def sampled_bounds(
    upper: Upper, confidence: float, num_draws: int, rng: np.random.Generator, clock: Clock
) -> tuple[Sampled | None, IntArray]:
    """Bounds by the empirical Bernstein inequality of Maurer and Pontil (2009), and the last batch of draws.

    A weight ``f(x) / (exp(U) q(x))`` lies between 0 and 1, and :func:`fastmix.theory.intervals.bernstein_half_width`
    bounds how far its mean is from the average of n; the probability of failure is shared out among log Z and all
    states. The number of draws depends on time, never on the weights.
    """
    terms = upper.terms
    n, num_entries = terms.num_variables, terms.num_unary
    tables = []
    for part, p in zip(upper.parts, upper.positions, strict=True):
        full = np.zeros(len(terms.values))
        full[p] = part
        tables.append(full)
    log_shares = np.log(upper.shares / upper.shares.sum())
    first, second = np.zeros(num_entries + 1), np.zeros(num_entries + 1)
    done = 0
    states = np.zeros((0, n), dtype=np.int64)
    while done < num_draws and not (done and clock.past()):
        states = draw_configurations(upper, min(_BATCH, num_draws - done), rng, clock)
        logs = np.stack(
            [s + terms.log_weights(states, t) - z for s, t, z in zip(log_shares, tables, upper.log_parts, strict=True)]
        )
        weights = np.exp(np.minimum(terms.log_weights(states) - np.logaddexp.reduce(logs, axis=0) - upper.log_z, 0.0))
        index = (terms.offsets[:n] + states).reshape(-1)
        for power, sums in ((1, first), (2, second)):
            sums[:-1] += np.bincount(index, np.repeat(weights**power, n), minlength=num_entries)
            sums[-1] += float((weights**power).sum())
        done += len(states)
        clock.report(done, num_draws, "draws")
    if done < 2:
        return None, states
    mean = first / done
    variance = np.maximum(0.0, (second - done * mean**2) / (done - 1)) * (1.0 + 1e-9) + 1e-11 * mean**2
    width = bernstein_half_width(variance, done, failure=(1.0 - confidence) / (num_entries + 1))
    size = terms.size + sum(spread(t, terms.offsets) for t in tables)
    error = rounding(len(tables) * terms.num_terms + done, size)
    with np.errstate(divide="ignore"):
        low = np.log(np.maximum(mean - width, 0.0)) + upper.log_z - error
        high = np.minimum(0.0, np.log(mean + width)) + upper.log_z + error
    return Sampled((float(low[-1]), float(high[-1])), low[:-1], high[:-1], done), states
