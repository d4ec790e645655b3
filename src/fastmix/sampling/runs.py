"""A run of independent chains, batch by batch: what is swept, collected, recorded and saved."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checkpoint import Checkpoint
from fastmix._clock import NO_LIMIT, Clock, Ending
from fastmix.chains.base import Chains
from fastmix.model import MarkovRandomField
from fastmix.sampling.diagnostics import BatchStatistics, summarize
from fastmix.sampling.plans import ChainPlan, visits_per_sweep
from fastmix.sampling.tuning import (
    BURN_SHARE,
    EDGE_CONFIGURATIONS,
    FIRST_STEP_DIVISOR,
    FIRST_STEP_VISITS,
    LEAST_BURN_SHARE,
    MIN_BATCH_SWEEPS,
    MIN_BATCH_SWEEPS_OF_MANY,
    NUM_BATCHES,
    NUM_CHAINS,
    PAIR_SHARE,
    PLANNING_MARGIN,
    SUM_SECONDS,
    UPDATES_PER_BATCH,
)

if TYPE_CHECKING:
    from fastmix.sampling.sample import ChainSampler

__all__ = ["ChainRun", "edge_averages"]


class ChainRun:
    """A run of chains in progress: what is done, what is collected, and what a checkpoint holds.

    Attributes
    ----------
    done : int
        Sweeps so far, counted from the end of the burn-in: negative while chains burn in.
    statistics : BatchStatistics
        Sums over the batches so far, with one chain for every group of chains of the engine.
    mode_groups : int array
        The groups of chains that start at modes; ``burn_sums`` has their sums over the burn-in.
    history, draws : list
        Running marginals, as pairs of a number of sweeps and marginals, and configurations that were kept.
    pairs : float array, or None
        Sums over the pairs of states of all edges, where edge marginals are wanted.
    fills_time, fills_burn_in : bool
        Whether a time limit decides the number of sweeps, and that of the burn-in.
    burns_in_proportion : bool
        Whether a burn-in may be cut to its part of the time: nobody asked for its length.
    following : callable, or None
        Makes the chains that go on after the burn-in, where these are others.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        engine: Chains,
        plan: ChainPlan,
        method: ChainSampler,
        edges: bool,
        mode_groups: IntArray,
    ) -> None:
        self.model = model
        self.engine = engine
        self.plan = plan
        self.done = -plan.burn_in
        self.seconds = 0.0  # of the sweeps
        self.mode_groups = mode_groups
        self.burn_sums = np.zeros((len(model.log_unary), len(mode_groups)))
        self.statistics = BatchStatistics(len(model.log_unary), engine.num_chains // engine.group_size, plan.num_sweeps)
        self.history_at = [sweep for sweep in method.history_at if 0 < sweep <= plan.num_sweeps]
        self.history: list[tuple[int, FloatArray]] = []
        self.draws: list[NDArray[Any]] = []
        self.num_draws = method.num_draws
        self.averages_conditionals = method.estimator == "rao-blackwell"
        self.pairs = np.zeros(int(model.pairwise_offsets[-1])) if edges else None
        self.fills_time = False
        self.fills_burn_in = False
        self.burns_in_proportion = method.burn_in is None and method.asked_accuracy is None
        self.following: Callable[[], Chains] | None = None
        self._timed = (0, 0.0)  # sweeps and seconds of the burn-in when it was last planned
        self._batch_begin = 0  # sweeps before the batch under way
        self._snapshot: dict[str, NDArray[Any]] | None = None  # where a later process can go on
        self._set_stops()

    def go(self, clock: Clock, checkpoint: Checkpoint | None) -> str:
        """Sweep until the run is ``done``, or a ``time_limit`` or an ``interrupt`` ends it; says which of these.

        1. Sweep to the next number of sweeps at which something is recorded, in steps short enough for the clock.
        2. Collect: sums of chains that remember their modes, batches, draws and pairs.
        3. Save where the run is.
        4. Cut a burn-in that takes too much of the time, and stop when the time is over.
        """
        updates_per_sweep = max(1, self.model.num_variables * self.engine.num_chains)
        longest_step = max(1, int(self.engine.updates_per_step / updates_per_sweep))
        step = longest_step
        if clock.limit is not None:
            visits = visits_per_sweep(self.model.structure) * self.engine.num_chains
            step = max(1, min(longest_step // FIRST_STEP_DIVISOR, int(FIRST_STEP_VISITS / visits)))
        share = self._share_of_sweeps(clock)
        self._batch_begin = self.done
        self._snapshot = None
        # Sweeps that were planned to fill the time end where the time does, give or take how well it was foreseen.
        at_the_end = "time_limit" if self.fills_time else "done"
        stopped_by = at_the_end
        ending = Ending()
        try:
            with ending:
                while self.done < self.plan.num_sweeps:
                    # 1. Sweep.
                    if self.done >= 0:
                        self._change_over()
                    burns_in = self.done < 0
                    target = 0 if burns_in else self.next_stop()
                    seconds = self._sweep(min(step, target - self.done), clock)
                    if clock.limit is not None:
                        is_slow = seconds > self.engine.step_seconds
                        step = max(1, step // 2) if is_slow else min(longest_step, 2 * step)
                    cut = self.done < 0 and checkpoint is None and self._burns_too_long(clock, share)

                    # 2. Collect.
                    ends_here = checkpoint is not None or self.done == 0 or cut
                    if burns_in and len(self.mode_groups) and ends_here:
                        self.burn_sums += self._take_sums()[:, self.mode_groups]
                    if self.done == 0:
                        if self.fills_time:
                            self._fill_time(clock)
                        self._batch_begin = self.done
                    if self.done == target and self.done > 0:
                        self._record(clock if checkpoint is None else NO_LIMIT)
                    total = self.plan.burn_in + self.plan.num_sweeps
                    clock.report(self.done + self.plan.burn_in, total, "sweeps", per_second=self.updates_per_second())

                    # 3. Save. Sums are part of the statistics only where a batch ends.
                    if checkpoint is not None and (self._batch_begin == self.done or self.done < 0):
                        self._snapshot = self.arrays()
                        checkpoint.save(self._snapshot)

                    # 4. Cut the burn-in, or stop.
                    if cut:
                        self.plan = replace(self.plan, burn_in=self.plan.burn_in + self.done)
                        self.done = 0
                        self._batch_begin = 0
                    elif clock.past(share) and self._has_something(checkpoint):
                        if self.done > max(0, self._batch_begin):
                            self.statistics.add(self._take_sums(), self.done - self._batch_begin)
                        stopped_by = at_the_end if self.done == self.plan.num_sweeps else "time_limit"
                        break
        finally:
            if checkpoint is not None and self._snapshot is not None:
                checkpoint.save(self._snapshot, now=True)
        return "interrupt" if ending.interrupted else stopped_by

    def _burns_too_long(self, clock: Clock, share: float) -> bool:
        """Whether a burn-in under way must end, so that there is time for what the answer is made of.

        Half of the share of the time for sweeps is for that in any case. Where nobody asked for this burn-in, and not
        all sweeps that were planned fit the time, the burn-in has its part of the time alone.
        """
        if clock.past(0.5 * share):
            return True
        if clock.limit is None or not self.burns_in_proportion:
            return False
        planned = self.plan.burn_in + self.plan.num_sweeps
        begin = clock.used() - self.seconds  # about: of the sweeps
        time = share * clock.limit - begin
        made = self.plan.burn_in + self.done
        fits = self.seconds * planned <= made * time
        return not fits and self.seconds > time * max(LEAST_BURN_SHARE, self.plan.burn_in / planned)

    def _share_of_sweeps(self, clock: Clock) -> float:
        """Share of the time limit at which sweeping ends: the rest is for what comes after the last sweep.

        That is a third of the seconds before the first sweep, and a look at all sums.
        """
        if clock.limit is None:
            return 1.0
        num_sums = len(self.model.log_unary) * self.engine.num_chains / self.engine.group_size
        seconds_after = clock.used() / 3.0 + SUM_SECONDS * num_sums
        return max(0.5, 1.0 - seconds_after / (clock.limit or 1e-3))

    def _sweep(self, count: int, clock: Clock) -> float:
        """Make sweeps of all chains; returns the seconds that they took."""
        start = clock.used()
        collects = self.done >= 0 or len(self.mode_groups) > 0
        self.engine.sweep(count, collect=collects)
        self.done += count
        seconds = clock.used() - start
        self.seconds += seconds
        return seconds

    def _has_something(self, checkpoint: Checkpoint | None) -> bool:
        """Whether there is something to report, or, with a checkpoint, to go on from.

        With a checkpoint a run goes on until it can be saved: runs of any length then add up to the answer.
        """
        return self.done > 0 if checkpoint is None else self._snapshot is not None

    def _change_over(self) -> None:
        """After the burn-in, go on with the chains that follow it, from where it ended."""
        if self.following is None:
            return
        states = self.engine.get_states()
        self.engine = self.following()
        self.engine.set_states(states)
        self.following = None

    def _fill_time(self, clock: Clock) -> None:
        """Plan what the time leaves room for: a burn-in of a tenth of the limit, and sweeps for the rest of it."""
        timed_sweeps, timed_seconds = self._timed
        # The latest sweeps tell the speed: the first steps are small and slow.
        seconds_each = (self.seconds - timed_seconds) / max(1, self.plan.burn_in - timed_sweeps)
        self._timed = (self.plan.burn_in, self.seconds)
        planned = BURN_SHARE * (clock.limit or 0.0)
        left = planned - clock.used()
        if self.fills_burn_in and left > 0.2 * planned and seconds_each > 0.0:
            more = max(1, int(left / seconds_each))
            self.plan = replace(self.plan, burn_in=self.plan.burn_in + more)
            self.done = -more
            return
        affordable = int(PLANNING_MARGIN * clock.left() / seconds_each) if seconds_each > 0.0 else 0
        self.plan = replace(self.plan, num_sweeps=max(self.plan.num_sweeps, affordable))
        self._set_stops()

    def _set_stops(self) -> None:
        """Set the sweep counts at which draws, pairs and batches are recorded, by the number that is planned."""
        planned = self.plan.num_sweeps
        num_chains = self.engine.num_chains
        self.draw_every = planned // self.num_draws if self.num_draws else 0
        self.pair_every = max(1, planned // EDGE_CONFIGURATIONS)
        # Long runs have more batches, so that an interrupt loses a second of work at most.
        longest = int(UPDATES_PER_BATCH / max(1, self.model.num_variables * num_chains))
        shortest = MIN_BATCH_SWEEPS_OF_MANY if num_chains >= NUM_CHAINS else MIN_BATCH_SWEEPS
        wanted = math.ceil(planned / NUM_BATCHES)
        self.batch = min(planned, max(shortest, min(longest, wanted)))
        self.statistics.expected_sweeps = planned

    def next_stop(self) -> int:
        """The next number of sweeps at which something is recorded."""
        stops = [self.plan.num_sweeps, _next_multiple(self.done, self.batch)]
        stops += [sweep for sweep in self.history_at if sweep > self.done][:1]
        if self.draw_every:
            stops.append(_next_multiple(self.done, self.draw_every))
        if self.pairs is not None:
            stops.append(_next_multiple(self.done, self.pair_every))
        return min(stop for stop in stops if stop > self.done)

    def _record(self, clock: Clock) -> None:
        """Record what is due after this number of sweeps: a batch, marginals, draws and pairs of states."""
        done = self.done
        if done % self.batch == 0 or done in self.history_at or done == self.plan.num_sweeps:
            self.statistics.add(self._take_sums(), done - self._batch_begin)
            self._batch_begin = done
        if done in self.history_at:
            self.history.append((done, summarize(self.statistics, self.model).mean))
        if self.draw_every and done % self.draw_every == 0 and len(self.draws) < self.num_draws:
            self.draws.append(_in_few_bits(self.engine.get_states()))
        if self.pairs is not None and done % self.pair_every == 0:
            # One look takes half of what is left at most; nothing that a checkpoint holds depends on the time.
            limited = clock.part(0.5, least=PAIR_SHARE)
            self.engine.add_pairs(self.pairs, average=self.averages_conditionals, clock=limited)

    def _take_sums(self) -> FloatArray:
        """Sums of single chains, or means over the chains of a group, which count as one chain from here on."""
        sums = self.engine.take_sums()
        return sums / self.engine.group_size if self.engine.group_size > 1 else sums

    def updates_per_second(self) -> float:
        """Updates of single variables per second so far."""
        sweeps = self.done + self.plan.burn_in
        updates = float(sweeps) * self.model.num_variables * self.engine.num_chains
        return updates / self.seconds if self.seconds else 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a later process needs to go on, by name."""
        parts: dict[str, NDArray[Any]] = {
            "done": np.array([self.done]),
            "seconds": np.array([self.seconds]),
            "states": self.engine.get_states().astype(np.uint16),
            "random": self.engine.get_random_state(),
            "draws": np.array(self.draws, dtype=None if self.draws else np.uint8),
            "trace": np.array([marginals for _, marginals in self.history]),
            "pairs": np.zeros(0) if self.pairs is None else self.pairs.copy(),
            "burn_sums": self.burn_sums.copy(),
        }
        return parts | {f"statistics_{name}": value for name, value in self.statistics.to_arrays().items()}

    def restore(self, parts: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`arrays` gave."""
        self.done = int(parts["done"][0])
        self.seconds = float(parts["seconds"][0])
        if self.done > 0:  # at 0 the states are still those of the burn-in
            self._change_over()
        self.engine.set_states(parts["states"].astype(np.int64))
        self.engine.set_random_state(parts["random"])
        self.draws = [_in_few_bits(states) for states in parts["draws"]]
        self.history = list(zip(self.history_at, parts["trace"], strict=False))
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        self.burn_sums = parts["burn_sums"].copy()
        self.statistics.restore({name.removeprefix("statistics_"): value for name, value in parts.items()})


def _next_multiple(number: int, step: int) -> int:
    """The smallest multiple of a step that is larger than a number."""
    return (number // step + 1) * step


def _in_few_bits(states: NDArray[Any]) -> NDArray[Any]:
    """Configurations in 8 bits where these hold them, otherwise in 16."""
    return states.astype(np.uint8 if states.max(initial=0) < 256 else np.uint16)


def edge_averages(model: MarkovRandomField, pairs: FloatArray | None) -> FloatArray | None:
    """Joint probabilities of every edge from sums of :meth:`fastmix.chains.base.Chains.add_pairs`; None for None.

    The sums of the first edge say how many configurations were added up.
    """
    if pairs is None:
        return None
    if not len(pairs):
        return pairs
    first_edge = pairs[: model.pairwise_offsets[1]]
    averages: FloatArray = pairs / max(first_edge.sum(), 1.0)
    return averages
