"""Gibbs sampling by blocks, for networks with laws: some variables at once, with all hidden ones, drawn exactly.

The hidden variables of a law are nearly determined by its parents, so that updates of one variable at a time would
never leave a configuration. A block has many variables that are near each other in the graph, and all hidden ones; it
is drawn from its conditional distribution given the other variables by exact inference, for all chains side by side.
What is left of a law whose other parents are given is still a chain, so that its tables stay small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Ending
from fastmix._context import Context
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.exact.batch import BatchElimination, plan_batch
from fastmix.exact.elimination import model_factors
from fastmix.exact.search import find_order
from fastmix.method import Method
from fastmix.model import MarkovRandomField
from fastmix.modes.most_probable import most_probable
from fastmix.results import Status
from fastmix.sampling.diagnostics import BatchStatistics, assess_mixing, summarize
from fastmix.sampling.results import SampleResult
from fastmix.sampling.starts import random_states
from fastmix.sampling.tuning import BLOCK_CHAINS, BLOCK_ENTRIES, BLOCK_SWEEPS, NUM_BATCHES

if TYPE_CHECKING:
    from fastmix.sampling.sample import Gibbs

__all__ = ["BlockGibbs"]


@dataclass(frozen=True)
class BlockGibbs(Method):
    """Gibbs sampling by blocks, with the options of Gibbs sampling that mean something to it."""

    name: ClassVar[str] = "gibbs"
    guarantee: ClassVar[str] = "exact in the limit of many sweeps; the standard errors are estimates"
    takes_factors: ClassVar[bool] = True

    options: Gibbs

    def check(self, model: MarkovRandomField) -> None:  # noqa: ARG002 (any model will do)
        """Refuse options that blocks do not have."""
        options = self.options
        plain = isinstance(options.start, str)
        for name in ("accuracy", "schedule", "checkpoint"):
            if getattr(options, name) is not None:
                raise UnfitMethodError(f"{name} must be left out for a network with laws, which is sampled by blocks")
        if options.history_at or not plain:
            raise UnfitMethodError("history_at and start must be left out for a network with laws")

    def run(self, model: MarkovRandomField, context: Context) -> SampleResult:
        """Marginals by averages of conditional distributions of blocks."""
        if context.edge_marginals or context.pool is not None or context.backend == "cuda":
            raise UnfitMethodError("edge_marginals, executors and GPUs are not for a network with laws")
        return _Run(self.options, model, context).result()


class _Run:
    """A run of chains by blocks.

    1. Find blocks that cover all variables that are not hidden, as large as their tables allow.
    2. Start chains at allowed configurations at random, and burn in.
    3. Sweep: draw every block in turn, and add up its conditional probabilities.
    4. Judge by R-hat and effective sample sizes, as for all chains.
    """

    def __init__(self, options: Gibbs, model: MarkovRandomField, context: Context) -> None:
        self.model = model
        self.context = context
        self.options = options
        assert context.reduction is not None
        shown = context.reduction.original.num_shown
        self.visible = np.flatnonzero(context.reduction.variables < shown)
        self.num_chains = options.num_chains or BLOCK_CHAINS
        self.num_sweeps = options.num_sweeps or BLOCK_SWEEPS
        self.burn_in = max(1, self.num_sweeps // 10) if options.burn_in is None else options.burn_in
        self.rng = context.rng("chains")
        self.sums = np.zeros((len(model.log_unary), self.num_chains))
        self.num_sums = 0
        self.draws: list[IntArray] = []

    def result(self) -> SampleResult:
        """The answer about the reduced model."""
        model = self.model
        clock = self.context.clock
        statistics = BatchStatistics(len(model.log_unary), self.num_chains, self.num_sweeps)
        states = self._starts()
        plans = self._plans()
        covers = np.zeros(model.num_variables)
        for plan in plans:
            covers[plan.free] += 1.0
        weight = np.repeat(1.0 / np.maximum(covers, 1.0), model.num_states)
        batch = max(1, self.num_sweeps // NUM_BATCHES)
        every = max(1, self.num_sweeps // max(1, self.options.num_draws))
        done = -self.burn_in
        with Ending() as ending:
            while done < self.num_sweeps:
                if clock.past() and statistics.num_batches:
                    ending.by = "time_limit"
                    break
                states = self._sweep(plans, states, weight if done >= 0 else None)
                done += 1
                clock.report(done + self.burn_in, self.num_sweeps + self.burn_in, "sweeps")
                if done <= 0:
                    continue
                self.num_sums += 1
                if done % batch == 0 or done == self.num_sweeps or clock.past():
                    statistics.add(self.sums, self.num_sums)
                    self.sums[...] = 0.0
                    self.num_sums = 0
                if self.options.num_draws and done % every == 0 and len(self.draws) < self.options.num_draws:
                    self.draws.append(states.copy())
        if not statistics.num_batches:
            self.context.raise_nothing(ending.by)
        return self._answer(statistics, states, max(1, done), len(plans), ending)

    def _starts(self) -> IntArray:
        """Allowed configurations at random; where none are found near random ones, a most probable one for all chains.

        Chains that start together disagree less than they should while they have not mixed.
        """
        clock = self.context.clock
        try:
            return random_states(self.model, self.num_chains, self.context.rng("starts"), clock)
        except UnfitMethodError as error:
            try:
                seed = self.context.seed_of("first")
                best = most_probable(self.model, seed=seed, time_limit=clock.rest(0.2), progress=None)
            except ResourceError:
                raise error from None
            return np.repeat(best.states[None], self.num_chains, axis=0)

    def _sweep(self, plans: list[BatchElimination], states: IntArray, weight: FloatArray | None) -> IntArray:
        """The configurations after all blocks were drawn once; conditional probabilities are added up if asked for."""
        for plan in plans:
            rows = states.copy()
            rows[:, plan.free] = -1
            found = plan.answer(rows, marginals=weight is not None, num_draws=1, rng=self.rng, clock=self.context.clock)
            assert found.states is not None
            states = found.states[:, 0]
            if weight is not None:
                assert found.marginals is not None
                own = np.repeat(np.isin(np.arange(self.model.num_variables), plan.free), self.model.num_states)
                self.sums[own] += (found.marginals * weight).T[own]
        return states

    def _plans(self) -> list[BatchElimination]:
        """Plans of blocks that together have all variables; each begins at one that no other has yet."""
        waiting = set(self.visible.tolist())
        plans: list[BatchElimination] = []
        rng = self.context.rng("blocks")
        while waiting or not plans:
            block = self._block(int(rng.choice(sorted(waiting)))) if waiting else []
            waiting.difference_update(block)
            given = [v for v in self.visible.tolist() if v not in set(block)]
            plans.append(plan_batch(self.model, given=given, clock=self.context.clock))
        return plans

    def _block(self, seed: int) -> list[int]:
        """Variables around one of them, as many as exact inference takes with small tables."""
        adjacency = self.model.adjacency
        hidden = set(range(self.model.num_variables)) - set(self.visible.tolist())
        near = [seed]
        seen = {seed}
        for v in near:
            for u in adjacency.neighbors[adjacency.indptr[v] : adjacency.indptr[v + 1]].tolist():
                if u not in seen:
                    seen.add(u)
                    near.append(u)
        order = [v for v in near if v not in hidden]
        fitting = 1
        step = len(order)
        while step:
            if fitting + step <= len(order) and self._entries([*order[: fitting + step], *hidden]) <= BLOCK_ENTRIES:
                fitting += step
            else:
                step //= 2
        return order[:fitting]

    def _entries(self, block: list[int]) -> float:
        """Entries of the tables of exact inference for a block given all other variables."""
        number = {v: k for k, v in enumerate(block)}
        factors = model_factors(self.model)
        scopes = [tuple(number[v] for v in scope if v in number) for scope in factors.scopes]
        counts = self.model.num_states[block]
        return find_order(counts, [scope for scope in scopes if scope], effort=0.0).total_entries

    def _answer(
        self, statistics: BatchStatistics, states: IntArray, done: int, num_blocks: int, ending: Ending
    ) -> SampleResult:
        """The result, with the verdict on the chains."""
        model = self.model
        summary = summarize(statistics, model)
        status, note = assess_mixing(summary, names=model.variable_names)
        seconds = max(self.context.clock.used(), 1e-9)
        updates = (done + self.burn_in) * model.num_variables * self.num_chains
        options = {"num_chains": self.num_chains, "num_sweeps": done, "burn_in": self.burn_in}
        stats: dict[str, Any] = {
            **options,
            "num_sweeps": statistics.num_sweeps,
            "num_updates": updates,
            "updates_per_second": updates / seconds,
            "bias": None,
            "note": f"{note} Drawn by {num_blocks} blocks of variables with all hidden ones.",
            "stopped_by": ending.by,
            "backend": "cpu",
        }
        return SampleResult(
            model=model,
            method="gibbs",
            status=Status.INTERRUPTED if ending.interrupted else status,
            node_marginals=summary.mean,
            stats=stats,
            provenance={"device": "cpu", "options": {**options, "schedule": "blocks"}},
            std_error=summary.std_error,
            ess=summary.ess,
            r_hat=summary.r_hat,
            states=states,
            draws=np.stack(self.draws, axis=1) if self.draws else None,
        )
