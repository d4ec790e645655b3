"""What memory and a time limit leave room for in a run of replica exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastmix._clock import Clock
from fastmix._memory import available_memory, check_memory
from fastmix.chains.layout import tables_fit
from fastmix.sampling.plans import visits_per_sweep
from fastmix.sampling.tempering.ladder import Ladder
from fastmix.sampling.tuning import (
    BYTES_PER_SUM,
    DEVICE_BURN_SHARE,
    DEVICE_LADDERS,
    DEVICE_STATES,
    ENTRY_SECONDS,
    FIRST_LADDER_CHAINS,
    FIRST_LADDER_STATES,
    FIRST_LADDER_SWEEPS,
    FORBIDDEN_START_SWEEPS,
    LADDER_SHARE,
    MAX_ENSEMBLES,
    MAX_RUNGS,
    MIN_ENSEMBLES,
    MIN_ENSEMBLES_IN_HASTE,
    MIN_LADDER_ROUNDS,
    MIN_POPULATION,
    MIN_ROUNDS_OF_ENSEMBLES,
    ROUND_UPDATES,
    RUN_SHARE,
    TEMPERED_BURN_SHARE,
    VISIT_SECONDS,
)

if TYPE_CHECKING:
    from fastmix.sampling.tempering.temper import Tempered

__all__ = ["Capacity"]


class Capacity:
    """Room for ensembles, rungs and configurations, by the free memory and by a clock that decisions may depend on.

    Attributes
    ----------
    burn_share : float
        Share of a time limit up to which the burn-in may go on.
    max_rungs : int
        Rungs of a ladder that the memory allows for.
    """

    def __init__(self, ladder: Ladder, plan: Tempered, clock: Clock) -> None:
        self.ladder = ladder
        self.plan = plan
        self.clock = clock
        self.on_device = ladder.device != "cpu"
        self.burn_share = DEVICE_BURN_SHARE if self.on_device else TEMPERED_BURN_SHARE
        self._min_ensembles = plan.num_ensembles or MIN_ENSEMBLES
        self.max_rungs = self._find_max_rungs()

    def _find_max_rungs(self) -> int:
        """Rungs that the memory allows for; refuses ensembles whose replicas and sums would not fit."""
        model = self.ladder.path.model
        structure = model.structure
        num_replicas = self.plan.num_replicas or 3
        ensembles = self._min_ensembles
        # Configurations, twice while rungs change, generators and tables of all ladders.
        tables = 4.0 * structure.pattern_entries if tables_fit(structure, num_sets=3) else 16.0
        bytes_each = 10.0 * ensembles * self.ladder.per_ensemble * (structure.num_variables + 20.0) + tables
        sums = BYTES_PER_SUM * ensembles * len(model.log_unary)
        what = f"num_ensembles {ensembles}" if self.plan.num_ensembles else f"a ladder of {num_replicas} rungs"
        check_memory(bytes_each * num_replicas + sums, what, "run fewer ensembles, or fewer replicas")
        kept = num_replicas if self.plan.rungs == "all" else max(1, len(self.plan.pinned_positions()))
        self.check_draws(kept, ensembles * self.ladder.per_ensemble)
        return max(3, int(min(MAX_RUNGS, available_memory() / 2 / bytes_each)))

    def check_draws(self, num_rungs: int, num_ladders: int) -> None:
        """Refuse draws of so many rungs and ladders that would not fit the memory."""
        count = self.plan.num_draws or 0
        drawn = 2.0 * count * num_rungs * num_ladders * self.ladder.path.model.num_variables
        what = f"num_draws {count} of {num_ladders} ladders"
        check_memory(
            drawn, what if num_rungs == 1 else f"{what} at {num_rungs} rungs", "keep fewer, or run fewer ensembles"
        )

    def rungs_in_time(self, seconds_each: float) -> int:
        """Rungs of which a few rounds fit the time that is left, by the seconds of a sweep of one configuration."""
        if self.clock.asked is None or seconds_each <= 0.0:
            return self.max_rungs
        left = max(0.0, RUN_SHARE * self.clock.asked - self.clock.used())
        ladders = self._min_ensembles * self.ladder.per_ensemble
        return int(np.clip(left / (MIN_LADDER_ROUNDS * ladders * seconds_each), 2, self.max_rungs))

    def first_configurations(self) -> int:
        """Configurations that place the first ladder, with which the ensembles also begin.

        Large models have few ensembles, and each of their configurations says much about where rungs belong.
        """
        together = self.ladder.per_ensemble
        num_variables = self.ladder.path.model.num_variables
        least = max(MIN_ENSEMBLES * together, FIRST_LADDER_STATES // max(1, num_variables))
        size = max(min(FIRST_LADDER_CHAINS, least), (self.plan.num_ensembles or 0) * together)
        if self.plan.num_ensembles is None and self.on_device:
            return DEVICE_LADDERS
        if self.clock.asked is not None:
            enough_side_by_side = max(MIN_POPULATION, self._min_ensembles * together)
            return max(enough_side_by_side, min(size, self._affordable_configurations(self.clock.asked)))
        return size

    def _affordable_configurations(self, limit: float) -> int:
        """Configurations whose first sweeps, up to the end of a path at once, take the share of the first ladder."""
        sweeps = 1 + FIRST_LADDER_SWEEPS + (FORBIDDEN_START_SWEEPS if self.ladder.path.forbidden else 0)
        return int(LADDER_SHARE * limit / (VISIT_SECONDS * sweeps * self._visits()))

    def has_time_to_anneal(self, size: int) -> bool:
        """Whether configurations come to the end of the path within the burn-in, by a guess before anything is run."""
        clock = self.clock
        if clock.asked is None:
            return True
        path = self.ladder.path
        sweeps = 1 + (FORBIDDEN_START_SWEEPS if path.forbidden else 0)
        seconds = ENTRY_SECONDS * path.model.num_parameters + VISIT_SECONDS * self._visits() * size * sweeps
        return clock.used() + seconds <= self.burn_share * clock.asked

    def _visits(self) -> float:
        """Neighbors that a sweep of one configuration looks at, at least 1."""
        return visits_per_sweep(self.ladder.path.model.structure)

    def ensembles_of(self, num_rungs: int, num_configurations: int, sweep_seconds: float) -> int:
        """Number of ensembles, for ladders of so many rungs and as many configurations as each rung has at the start.

        Large models get fewer ensembles, which can then run for long enough to mix; fewer still where a sweep of one
        configuration takes so many seconds that hardly any rounds fit the time.
        """
        if self.plan.num_ensembles is not None:
            return self.plan.num_ensembles
        together = self.ladder.per_ensemble
        num_replicas = self.plan.num_replicas or num_rungs
        updates = num_replicas * self.ladder.path.model.num_variables * together
        least = MIN_ENSEMBLES
        if self.clock.asked is not None:
            left = RUN_SHARE * self.clock.asked - self.clock.used()
            seconds = sweep_seconds * num_replicas * together * MIN_ENSEMBLES
            least = MIN_ENSEMBLES if MIN_ROUNDS_OF_ENSEMBLES * seconds <= left else MIN_ENSEMBLES_IN_HASTE
        most = MAX_ENSEMBLES
        wanted = ROUND_UPDATES
        if self.on_device:
            most = num_configurations // together
            wanted = DEVICE_STATES
        most = max(least, min(most, num_configurations // together))
        return int(np.clip(wanted // max(1, updates), least, most))
