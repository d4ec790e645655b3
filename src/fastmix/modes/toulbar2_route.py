"""The route by toulbar2, which searches a tree with pruning by soft local consistency (extra ``map``)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import INSTALL_EXTRA
from fastmix._clock import OutOfTimeError
from fastmix._engine import Engine, EngineError, engine_version
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.exact.elimination import model_factors
from fastmix.exact.planner import Factors
from fastmix.model.reduce import impossible
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.toulbar2_worker import Network, Outcome
from fastmix.modes.tuning import (
    COST_ROUNDING,
    LEAST_ENGINE_BYTES,
    MAX_COST_ENTRIES,
    MAX_SUM_OF_COSTS,
    MIN_TOULBAR2_SECONDS,
    SHARE_BEFORE_HURRY,
    SHARE_OF_TOULBAR2,
)

__all__ = ["CostScale", "Toulbar2Route"]

_WORKER = "fastmix.modes.toulbar2_worker:solve"


class Toulbar2Route:
    """The most probable configuration by the solver toulbar2, with its proof where it ends in time.

    It runs in a process of its own, from the best configuration so far, and a search goes on where it proves nothing.
    """

    name = "toulbar2"
    is_final = False

    def find(self, run: ModeRun) -> None:
        """Offer what toulbar2 has found, and its bound.

        Raises
        ------
        UnfitMethodError
            If toulbar2 is not installed.
        ResourceError
            If the tables are too large to be handed over, or toulbar2 has failed.
        OutOfTimeError
            If there is too little time to start it.
        """
        version = engine_version("pytoulbar2", "pytoulbar2")
        if version is None:
            how = INSTALL_EXTRA.format(extra="map")
            raise UnfitMethodError(f"the method toulbar2 needs the library pytoulbar2: {how}")
        num_entries = float(len(run.model.log_unary) + run.model.pairwise_offsets[-1] + len(run.model.log_factors))
        if num_entries > MAX_COST_ENTRIES:
            raise ResourceError(
                f"toulbar2 is given at most {MAX_COST_ENTRIES:,} table entries, the model has {num_entries:,.0f}; "
                "use method='search'"
            )
        if run.clock.left() < MIN_TOULBAR2_SECONDS:
            raise OutOfTimeError
        run.engines["toulbar2"] = version
        self._solve(run)

    def _solve(self, run: ModeRun) -> None:
        """Scale the costs, have them minimized, and translate what comes back."""
        factors = model_factors(run.model)
        costs = CostScale.of(factors, run.model.log_constant, run.tol)
        present = None if run.states is None else costs.of_states(factors, run.states)
        seed = run.context.seed_of("toulbar2") % 2**31
        network = Network(list(factors.num_states), costs.functions(factors), present, seed)
        if run.apart is not None:
            network = network._replace(
                counted=run.apart.counted.tolist(), apart=run.apart.states.tolist(), distance=run.apart.distance
            )
        try:
            outcome = _minimize(network, run)
        except EngineError as error:
            raise ResourceError(f"toulbar2 has failed: {error}; use method='search'") from error
        if outcome is None:
            return
        if outcome.states is not None:
            run.offer(np.array(outcome.states, dtype=np.int64))
        run.count("nodes of toulbar2", outcome.num_nodes)
        known = [] if present is None else [present]
        if outcome.states is not None:
            known.append(costs.of_states(factors, np.array(outcome.states, dtype=np.int64)))
        if outcome.is_complete:
            if not known:
                raise impossible(run.context.given)
            counts = costs.rounding <= max(COST_ROUNDING, run.tol)
            run.prove(costs.largest_weight(min(known)), costs.rounding, counts=counts)
            run.stats["rounding"] = costs.rounding
        elif math.isfinite(outcome.lower_bound):
            run.lower_bound(costs.largest_weight(outcome.lower_bound) + costs.rounding, 0.0)


def _minimize(network: Network, run: ModeRun) -> Outcome | None:
    """What toulbar2 finds in its share of the time; None where it has nothing to say by then."""
    clock = run.clock.part(1.0 if run.is_alone else SHARE_OF_TOULBAR2)
    early = clock.part(SHARE_BEFORE_HURRY)
    with Engine(
        _WORKER, network, seconds=clock.limit, memory_limit=max(run.memory_limit, LEAST_ENGINE_BYTES)
    ) as engine:
        outcome: Outcome | None = engine.receive(early)
        if outcome is None:
            engine.hurry()
            outcome = engine.receive(clock)
    return outcome


class CostScale:
    """Log-potentials as whole costs: the distance from the largest entry of a table, times ``scale``, rounded down.

    So a configuration of cost c has a log-weight of at most ``top - c / scale``, up to ``rounding``, and of at least
    that less the number of tables over ``scale``.

    Attributes
    ----------
    top : float
        Sum of the largest entries of all tables.
    scale : float
        Costs per unit of the log-weight.
    rounding : float
        A bound on all rounding, in units of the log-weight.
    """

    def __init__(self, tops: FloatArray, constant: float, scale: float, starts: IntArray) -> None:
        self.top = constant + float(tops.sum())
        self.scale = scale
        # One cost for each table that is rounded down, and one for the rounding of products and of sums.
        self.rounding = 2.0 * len(tops) / scale
        self._tops = tops
        self._starts = starts

    @classmethod
    def of(cls, factors: Factors, constant: float, tol: float = 0.0) -> CostScale:
        """The scale at which rounding is negligible, or the largest at which sums of costs are exact."""
        sizes = [math.prod([factors.num_states[v] for v in scope]) for scope in factors.scopes]
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)
        values = factors.values
        tops = np.maximum.reduceat(values, starts[:-1]) if len(sizes) else np.zeros(0)
        tops = np.where(tops > -np.inf, tops, 0.0)
        least = np.minimum.reduceat(np.where(values > -np.inf, values, np.inf), starts[:-1]) if len(sizes) else tops
        spread = float(np.where(least < np.inf, tops - least, 0.0).sum())
        wanted = 2.0 * max(1, len(sizes)) / max(COST_ROUNDING, tol / 4.0)
        wanted *= 1.0 + 1e-9  # so that the sum of roundings is not above what was wanted
        return cls(tops, constant, min(wanted, MAX_SUM_OF_COSTS / max(spread, 1e-300)), starts)

    def functions(self, factors: Factors) -> list[tuple[tuple[int, ...], FloatArray]]:
        """The scope and the costs of every table that does not cost the same everywhere, or that costs something."""
        found = []
        for number, (scope, (begin, end)) in enumerate(zip(factors.scopes, pairwise(self._starts), strict=True)):
            costs = np.floor(self.scale * (self._tops[number] - factors.values[begin:end]))
            if costs.any():
                found.append((tuple(scope), costs))
        return found

    def of_states(self, factors: Factors, states: IntArray) -> int:
        """The cost of a configuration that nothing forbids."""
        total = 0
        for number, (scope, begin) in enumerate(zip(factors.scopes, self._starts[:-1], strict=True)):
            at = 0
            for v in scope:
                at = at * factors.num_states[v] + int(states[v])
            total += math.floor(self.scale * (self._tops[number] - factors.values[begin + at]))
        return total

    def largest_weight(self, cost: float) -> float:
        """What the log-weight of a configuration of at least this cost is at most, but for rounding."""
        return self.top - cost / self.scale
