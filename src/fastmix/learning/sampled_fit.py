"""A fit of the likelihood whose moments are sampled: where it begins, with how many chains, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix.chains.annealing import make_pool
from fastmix.chains.base import Chains
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import Dataset
from fastmix.learning.likelihood import Likelihood
from fastmix.learning.minimize import Search, minimize
from fastmix.learning.penalty import Penalty
from fastmix.learning.problem import Problem
from fastmix.learning.pseudo_likelihood import PseudoLikelihood
from fastmix.learning.rbm import is_machine, learn_machine
from fastmix.learning.result import WidthBall
from fastmix.learning.resume import Rounds, Saved
from fastmix.learning.sampled import Sampled, SampledPlan, sampled_likelihood
from fastmix.learning.sampled_gradient import SampledProblem
from fastmix.learning.scaling import Scaling
from fastmix.learning.tuning import (
    CHANCE_SHARE,
    DEVICE_CHAINS,
    FEW_CONTRASTS,
    FIT_TIME_SHARE,
    LEAST_SAMPLED_TOLERANCE,
    MANY_CHAINS,
    MAX_ROUGH_TOLERANCE,
    MAX_ROUNDS,
    MAX_TAME_ROWS,
    MIN_CHAINS,
    MIN_SAMPLED_TOLERANCE,
    PAIRS_PER_SECOND,
    RBM_CHAINS,
    ROUGH_FACTOR,
    SMALL_CHANCE_SHARE,
    SMALL_MODEL_CHAINS,
    SMALL_MODEL_CONTRASTS,
    SWEEP_TIME_SHARE,
    TAME_ITERATIONS,
    TAME_L1_FACTOR,
    TAME_RIDGE,
    TAME_SMALL_TOLERANCE,
    TAME_TOLERANCE,
)
from fastmix.model import MarkovRandomField

__all__ = ["SampledFit"]


class SampledFit:
    """One fit with sampled moments: by rounds of persistent chains, or, of a Boltzmann machine, by many small steps.

    Attributes
    ----------
    place : str
        Where chains ran.
    """

    def __init__(
        self, problem: Problem, template: MarkovRandomField, data: Dataset, scaling: Scaling, penalty: Penalty,
        history: list[dict[str, Any]], report: Callable[..., None],
    ) -> None:  # fmt: skip
        self.problem = problem
        self.template = template
        self.data = data
        self.scaling = scaling
        self.coordinates = scaling.coordinates
        self.penalty = penalty
        self.history = history
        self.report = report
        self.place = "cpu"
        self._num_made = 0

    @property
    def is_tempered(self) -> bool:
        """Whether chains are to be ladders of replica exchange from the beginning."""
        objective = self.problem.objective
        return isinstance(objective, Likelihood) and objective.moments == "tempered"

    def run(self, v: FloatArray, *, anew: bool) -> Sampled:
        """The maximum of the likelihood, from v on, or from where a checkpoint was written.

        ``anew`` says that v is no earlier model: chains then begin at an optimum of the pseudo-likelihood.
        """
        context = self.problem.context
        saved = self.problem.ledger.take_state()
        simple = self.penalty.is_smooth and not self.problem.data.has_missing and not self.is_tempered
        as_machine = simple and is_machine(self.template.structure, self.problem.hidden)
        data_term = None if as_machine else DataTerm(self.coordinates, self.data, sampled=True, clock=context.clock)
        if data_term is not None and data_term.fixed and anew and saved is None:
            first = self._tame_optimum(v)
            v = first.v
            if first.stopped_by == "interrupt":
                return Sampled(v, stopped_by="interrupt")
        if context.clock.past():
            return Sampled(v, stopped_by="time_limit")

        clock = context.clock
        if self.problem.validation is not None or clock.limit is not None:  # it will be compared with what is cheap
            clock = clock.part(FIT_TIME_SHARE)
        rounds = self._rounds(saved)
        if data_term is None:
            return learn_machine(
                self._make_chains(self.problem.num_chains or RBM_CHAINS, 1),
                self.problem.data.with_hidden(self.problem.hidden),
                self.coordinates,
                v,
                ridge=self.penalty.ridge,
                num_passes=self.problem.max_iter,
                context=context,
                clock=clock,
                rounds=rounds,
            )
        return self._run_rounds(data_term, v, rounds, clock)

    def _tame_optimum(self, v: FloatArray) -> Search:
        """The search for an optimum of the pseudo-likelihood, with a ridge of its own.

        With little ridge its optimum can be far from that of the likelihood, with modes of its own.
        """
        ridge = self.penalty.ridge
        tol = TAME_SMALL_TOLERANCE
        if self.coordinates.num_contrasts > SMALL_MODEL_CONTRASTS:
            ridge = max(ridge, TAME_RIDGE)
            tol = TAME_TOLERANCE
        penalty = replace(self.penalty, ridge=ridge, l1=TAME_L1_FACTOR * self.penalty.l1)
        loss = PseudoLikelihood().start(self.coordinates, self._some_rows(), self.problem.context)
        clock = self.problem.context.clock
        return minimize(loss, v, self.scaling, penalty, tol=tol, max_iter=TAME_ITERATIONS, clock=clock)

    def _some_rows(self) -> Dataset:
        """The rows, or, of very many, some that are drawn: they only say where to begin."""
        data = self.data
        if len(data.states) <= MAX_TAME_ROWS:
            return data
        chosen = np.sort(self.problem.context.rng("rows to begin with").permutation(len(data.states))[:MAX_TAME_ROWS])
        weights = data.weights[chosen]
        return replace(data, states=data.states[chosen], weights=weights / weights.sum())

    def _rounds(self, saved: Saved | None) -> Rounds:
        """What the rounds report and keep; the history of those that a checkpoint has is there already."""
        if saved is not None:
            self.history += saved[1]["history"]
        ledger = self.problem.ledger

        def keep(arrays: dict[str, NDArray[Any]], facts: dict[str, Any], *, now: bool) -> None:
            """Save the state of a fit, with the history so far."""
            ledger.keep_state(arrays, {**facts, "history": self.history}, now=now)

        return Rounds(keep if ledger.keeps else None, self.report, saved)

    def _make_chains(self, num_chains: int, num_sets: int) -> Chains:
        """Chains on the structure of the model, with random numbers of their own."""
        self._num_made += 1
        context = self.problem.context
        seed = context.seed_of("chains", self._num_made)
        chains, self.place = make_pool(
            self.template, context.backend, num_chains=num_chains, num_sets=num_sets, seed=seed
        )
        return chains

    def _run_rounds(self, data_term: DataTerm, v: FloatArray, rounds: Rounds, clock: Clock) -> Sampled:
        """The maximum by rounds of persistent chains."""
        within = self.problem.within
        # By Dobrushin's criterion, whose bias the rounds follow; widths are for random updates.
        certified = within is not None and within.certified and not isinstance(within, WidthBall)
        problem = SampledProblem(self.template, self.data, data_term, self.scaling, self.penalty, certified)
        plan = SampledPlan(
            tol=self.problem.tol or self._default_tolerance(v),
            max_iter=self.problem.max_iter or MAX_ROUNDS,
            num_chains=self.problem.num_chains or self._default_chains(),
            tempered=self.is_tempered,
        )
        rng = self.problem.context.rng("starts")
        return sampled_likelihood(problem, plan, v, self._make_chains, rounds, rng=rng, clock=clock)

    def _default_tolerance(self, v: FloatArray) -> float:
        """The gain in the mean log-likelihood that decides nothing: a small share of what chance makes.

        Parameters fitted to N rows are worth about 1/(2 N) each, by chance (Bottou and Bousquet, 2008). Tables that an
        l1 term has made 0 are no parameters, and no more of them are by chance than there are rows.
        """
        num_rows = self.problem.data.num_rows
        num_parameters = np.count_nonzero(v) if self.penalty.l1 else self.coordinates.size
        is_large = self.coordinates.num_contrasts > FEW_CONTRASTS
        share = CHANCE_SHARE if is_large else SMALL_CHANCE_SHARE
        each = min(max(MIN_SAMPLED_TOLERANCE, 0.5 * share / num_rows), 0.5 * CHANCE_SHARE / num_rows)
        each = max(each, LEAST_SAMPLED_TOLERANCE)
        enough = each * min(num_parameters, num_rows)
        if self.problem.rough:
            enough = max(enough, min(ROUGH_FACTOR * enough, MAX_ROUGH_TOLERANCE))
        return enough

    def _default_chains(self) -> int:
        """How many chains there are if nobody says so: fewer where a sweep of all would take long."""
        usual = SMALL_MODEL_CHAINS if self.coordinates.num_contrasts <= SMALL_MODEL_CONTRASTS else MANY_CHAINS
        if self.problem.on_device:
            usual = DEVICE_CHAINS
        # The limit that was given, not what is left of it: chains do not depend on speed.
        limit = self.problem.context.clock.limit
        if limit is None:
            return usual
        affordable = SWEEP_TIME_SHARE * limit * PAIRS_PER_SECOND / max(1, self.template.num_edges)
        return max(MIN_CHAINS, min(usual, int(affordable)))
