"""An upper bound on log Z, and on the log-weight of every state, from covers that exact inference can do.

For covers C with shares r_C that sum to one, and tables phi_C that sum to those of the model, Hölder's inequality gives
``log Z <= sum_C r_C log Z(phi_C / r_C)`` (Wainwright, Jaakkola and Willsky 2005, for trees). The right-hand side is
convex in shares and tables together: its derivatives are the marginals and the entropies of the covers, and L-BFGS
tightens it while there is time. Every point on the way gives a bound. With x_i = a everywhere it bounds the weight of
that state in the same way, ``log Z(x_i = a) <= sum_C r_C (log Z_C + log p_C(x_i = a))``, so one pass bounds them all.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock, OutOfTimeError
from fastmix.bounds.reduced_tables import ReducedTables
from fastmix.bounds.tractable_parts import Cover
from fastmix.bounds.tuning import LEAST_SHARE, MAX_CORRECTIONS, MIN_CORRECTIONS, PROBABILITY_FLOOR
from fastmix.exact.elimination import FactorElimination, plan_elimination
from fastmix.exact.planner import Factors
from fastmix.model.flat import offsets_of, reduce_tables
from fastmix.model.rounding import rounding, spread

__all__ = ["UpperBound", "crude_upper"]


def crude_upper(tables: ReducedTables) -> tuple[float, FloatArray]:
    """Upper bounds on log Z and on all log-weights of states in no time: factors count by their largest entries."""
    n = tables.num_variables
    starts = tables.offsets
    total = tables.log_constant
    unary = tables.unary
    if not tables.is_product:
        inner = tables.values[tables.num_unary :]
        total += float(reduce_tables(np.maximum, inner, starts[n:] - tables.num_unary).sum())
    if n:
        sums = reduce_tables(np.logaddexp, unary, starts[: n + 1])
        total += float(sums.sum())
        unary = unary - np.repeat(sums, tables.num_states)
    total += rounding(tables.num_tables + max(tables.num_states, default=0), tables.size)
    return total, total + unary


class _Split(NamedTuple):
    """How a point of the optimization splits the tables of the model among the covers.

    The shares of the covers; by entry the sum of the shares of those that have it; and the tables of each cover, not
    yet divided by its share.
    """

    shares: FloatArray
    covered: FloatArray
    tables: list[FloatArray]


class _Answers(NamedTuple):
    """What exact inference finds for the covers of a split.

    The bound on log Z without the constant and without allowances; the sum of the rounding errors of the covers; bounds
    on the log-weights of states without the constant; and by cover log Z, the tables divided by the share, the
    marginals of its tables, and the entropy of its distribution.
    """

    total: float
    error: float
    log_weights: FloatArray
    log_parts: list[float]
    scaled: list[FloatArray]
    beliefs: list[FloatArray]
    entropies: FloatArray


class UpperBound:
    """The bound of some covers, its tables and shares optimized in steps.

    Parameters
    ----------
    tables : ReducedTables
        The model.
    covers : list of Cover
        Together they must have every factor.
    memory_limit : float
        Bytes for the junction tree of a cover, and for the steps that the optimizer remembers; a
        :class:`fastmix.ResourceError` where a tree needs more.

    Attributes
    ----------
    log_z : float
        The best bound so far, inf before :meth:`improve`.
    log_weights : float array (num_unary,)
        The best bounds so far on the log-weights of all states.
    beliefs : float array (num_unary,)
        Geometric means of the marginals of the covers, normalized: a guess at the marginals.
    point : float array
        The best point so far: what each cover has more of every table than its share, then the logits of the shares.
    trees : list of FactorElimination
        The junction trees of the covers.
    positions : list of int arrays
        By cover, the positions of its entries among those of the model.
    shares, log_parts, scaled_tables
        At the best point the shares of the covers, their log Z, and their tables; empty before there is one.
    num_evaluations : int
        Evaluations of the bound so far.
    done : bool
        Whether going on would gain nothing.
    """

    def __init__(self, tables: ReducedTables, covers: list[Cover], *, memory_limit: float = math.inf) -> None:
        self.tables = tables
        n = tables.num_variables
        self.log_z = math.inf
        self.log_weights = np.full(tables.num_unary, np.inf)
        self.beliefs = np.zeros(tables.num_unary)
        self._members = [np.concatenate([np.arange(n), n + cover.members]) for cover in covers]
        self.positions = [tables.positions(members) for members in self._members]
        self.trees: list[FactorElimination] = []
        for cover, members in zip(covers, self._members, strict=True):
            factors = Factors(tables.num_states, [tables.scopes[table] for table in members], np.zeros(0))
            self.trees.append(plan_elimination(factors, order=cover.order, memory_limit=memory_limit).run_often())
        self._count = np.zeros(len(tables.values))  # covers that have each entry
        for positions in self.positions:
            self._count[positions] += 1.0
        if len(self._count) and not self._count.min() > 0.0:
            raise ValueError("covers must have every factor")
        self._soft = tables.values > -np.inf
        sizes = [len(positions) for positions in self.positions]
        self._ends = offsets_of(np.array(sizes, dtype=np.int64))
        self.point = np.zeros(self._ends[-1] + len(covers))
        # Each step that the optimizer remembers takes twice the size of the point.
        room = memory_limit / (32.0 * max(1, len(self.point)))
        self._num_corrections = int(np.clip(room, MIN_CORRECTIONS, MAX_CORRECTIONS))
        self.done = False
        self.num_evaluations = 0
        self.shares = np.full(len(covers), 1.0 / len(covers))
        self.log_parts: list[float] = []
        self.scaled_tables: list[FloatArray] = []

    def with_tables(self, tables: ReducedTables, point: FloatArray) -> UpperBound:
        """A copy for a model of the same scopes, which goes on from a point of the optimization; trees are shared."""
        other = copy.copy(self)
        other.tables = tables
        other._soft = tables.values > -np.inf
        other.point = point
        other.log_z = math.inf
        other.log_weights = np.full(tables.num_unary, np.inf)
        other.done = False
        other.num_evaluations = 0
        other.scaled_tables = []
        return other

    def improve(self, clock: Clock, max_iter: int = 10**6) -> None:
        """Tighten the bound until the time is over or nothing is gained.

        There is at least one evaluation, unless the time is over before.
        """
        from scipy.optimize import minimize

        if self.done:
            return
        before = self.log_z
        options = {
            "maxiter": max_iter,
            "maxfun": 10**9,
            "maxcor": self._num_corrections,
            "ftol": 1e-12,
            "gtol": 1e-9,
        }
        try:
            result = minimize(self._evaluate, self.point, args=(clock,), jac=True, method="L-BFGS-B", options=options)
        except OutOfTimeError:
            return
        gained = before - self.log_z
        self.done = bool(result.nit < max_iter) and not gained > 1e-9 * (1.0 + abs(self.log_z))

    def _evaluate(self, point: FloatArray, clock: Clock) -> tuple[float, FloatArray]:
        """The value and the slope that the optimizer asks for at a point; the bounds there are kept if tighter."""
        split = self._split_tables(point)
        answers = self._infer(split, clock)
        self._keep(point, split, answers)
        return answers.total, self._slope(split, answers)

    def _part(self, vector: FloatArray, cover: int) -> FloatArray:
        """The part of a point, or of a slope, that belongs to the tables of a cover."""
        return vector[self._ends[cover] : self._ends[cover + 1]]

    def _split_tables(self, point: FloatArray) -> _Split:
        """The shares and the tables of the covers at a point.

        Each cover has every table in proportion to its share, plus what the point moves to it from the others.
        """
        tables = self.tables
        logits = point[self._ends[-1] :]
        shares = np.exp(logits - logits.max())
        shares = np.maximum(shares / shares.sum(), LEAST_SHARE)
        # A sum of shares above one gives a bound as well; one below it does not.
        shares *= (1.0 + 8.0 * np.finfo(float).eps * len(shares)) / shares.sum()
        covered = np.zeros(len(tables.values))
        mean = np.zeros(len(tables.values))
        for k, positions in enumerate(self.positions):
            covered[positions] += shares[k]
            mean[positions] += self._part(point, k)
        mean /= self._count
        base = tables.values / covered
        parts = []
        for k, positions in enumerate(self.positions):
            moved = np.where(self._soft[positions], self._part(point, k) - mean[positions], 0.0)
            parts.append(shares[k] * base[positions] + moved)
        return _Split(shares, covered, parts)

    def _infer(self, split: _Split, clock: Clock) -> _Answers:
        """Exact inference in every cover; an OutOfTimeError between two of them when the clock runs out."""
        tables = self.tables
        total = 0.0
        error = 0.0
        log_weights = np.zeros(tables.num_unary)
        log_parts = []
        scaled_tables = []
        all_beliefs = []
        entropies = np.zeros(len(split.shares))
        sizes = np.diff(tables.offsets)
        for k, tree in enumerate(self.trees):
            clock.check()
            share = split.shares[k]
            scaled = split.tables[k] / share
            answer = tree.marginals(scaled, of_factors=True, clock=clock)
            beliefs = answer.factor_marginals
            num_operations = 3 * tree.num_tables + sum(tables.num_states)
            error += share * rounding(num_operations, spread(scaled, offsets_of(sizes[self._members[k]])))
            total += share * answer.log_z
            possible = np.maximum(beliefs[: tables.num_unary], PROBABILITY_FLOOR)
            log_weights += share * (answer.log_z + np.log(possible))
            finite = beliefs > 0.0
            entropies[k] = answer.log_z - float(beliefs[finite] @ scaled[finite])
            log_parts.append(answer.log_z)
            scaled_tables.append(scaled)
            all_beliefs.append(beliefs)
        return _Answers(total, error, log_weights, log_parts, scaled_tables, all_beliefs, entropies)

    def _keep(self, point: FloatArray, split: _Split, answers: _Answers) -> None:
        """Keep what is tighter of the bounds at a point, with allowances for rounding."""
        tables = self.tables
        error = answers.error
        # What the tables of the covers do not add up to, by rounding, is made up for.
        summed = np.zeros(len(tables.values))
        for positions, part in zip(self.positions, split.tables, strict=True):
            summed[positions] += part
        missing = np.subtract(tables.values, summed, out=np.zeros(len(summed)), where=self._soft)
        if tables.num_tables:
            error += float(np.maximum(np.maximum.reduceat(missing, tables.offsets[:-1]), 0.0).sum())
        error += rounding(2 * len(self.trees), tables.size)
        bound = answers.total + tables.log_constant + error
        log_weights = answers.log_weights + tables.log_constant + error
        self.num_evaluations += 1
        self.log_weights = np.minimum(self.log_weights, log_weights)
        if bound < self.log_z:
            self.log_z = bound
            self.point = point.copy()
            self.shares = split.shares
            self.log_parts = answers.log_parts
            self.scaled_tables = answers.scaled
            self._set_beliefs(log_weights)

    def _set_beliefs(self, log_weights: FloatArray) -> None:
        """Normalize the weights of the states of every variable."""
        tables = self.tables
        if not tables.num_variables:
            return
        starts = tables.unary_starts
        largest = np.maximum.reduceat(log_weights, starts)
        weights = np.exp(log_weights - np.repeat(largest, tables.num_states))
        self.beliefs = weights / np.repeat(np.add.reduceat(weights, starts), tables.num_states)

    def _slope(self, split: _Split, answers: _Answers) -> FloatArray:
        """The derivatives of the bound by the coordinates of the point.

        Those by tables are the marginals of a cover, less their mean over the covers that have an entry. Those by
        shares are the entropies of the covers, to which comes the part of the tables that follows the shares: the
        model's tables, divided in proportion to the shares.
        """
        tables = self.tables
        mean = np.zeros(len(tables.values))
        shared_mean = np.zeros(len(tables.values))
        for k, positions in enumerate(self.positions):
            mean[positions] += answers.beliefs[k]
            shared_mean[positions] += split.shares[k] * answers.beliefs[k]
        mean /= self._count
        shared_mean /= split.covered
        base = np.divide(tables.values, split.covered, out=np.zeros(len(split.covered)), where=self._soft)
        slope = np.zeros(len(self.point))
        entropies = answers.entropies.copy()
        for k, positions in enumerate(self.positions):
            beliefs = answers.beliefs[k]
            entropies[k] += float(base[positions] @ (beliefs - shared_mean[positions]))
            slope[self._ends[k] : self._ends[k + 1]] = np.where(self._soft[positions], beliefs - mean[positions], 0.0)
        slope[self._ends[-1] :] = split.shares * (entropies - float(split.shares @ entropies))
        return slope
