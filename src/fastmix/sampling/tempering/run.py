"""A run of replica exchange: the burn-in with its adaptation, the averages, and the bound on log Z."""

from __future__ import annotations

import json
import math
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import Clock, Ending, OutOfTimeError
from fastmix._context import Context
from fastmix._student import student_quantile
from fastmix.sampling.diagnostics import BatchStatistics
from fastmix.sampling.tempering import rungs
from fastmix.sampling.tempering.capacity import Capacity
from fastmix.sampling.tempering.first_ladder import place_first_ladder
from fastmix.sampling.tempering.ladder import Ladder
from fastmix.sampling.tempering.phases import enter_phases, find_phases, spread_phases
from fastmix.sampling.tuning import (
    ACCURACY_CHECK_SWEEPS,
    ACCURACY_MIN_BATCHES,
    ADAPT_SHARE,
    BATCH_ROUNDS,
    BATCHES_AT_END,
    BOUND_CHAINS,
    BOUND_MAX_STEPS,
    BOUND_MIN_STEPS,
    BOUND_SHARE,
    EDGE_CONFIGURATIONS,
    FIRST_PHASE_ROUNDS,
    FIRST_STEP_ROUNDS,
    FIRST_STEP_UPDATES,
    MAX_ENSEMBLES,
    NUM_BATCHES,
    PAIR_SHARE,
    RUN_SHARE,
    SETTLED_ROUNDS,
    SNAPSHOT_SECONDS,
)

if TYPE_CHECKING:
    from fastmix.sampling.tempering.temper import Tempered

__all__ = ["LadderRun"]

_CONFIDENCE = 0.95  # with which the half-widths of an asked accuracy hold


class _Stage(IntEnum):
    """Stages of a run once it has its first ladder."""

    ADAPTING = 0
    SETTLING = 1
    COLLECTING = 2


class LadderRun:
    """A run of replica exchange in progress.

    With a checkpoint no decision depends on the time, which only says when to stop: what was saved by then is where
    a later run of the same seed goes on, to the same bits.

    Attributes
    ----------
    plan : Tempered
        The method, whose ``num_sweeps`` and ``burn_in`` are None where the time limit decides, and ``num_ensembles``
        where the first ladder does.
    num_ensembles : int
    statistics : BatchStatistics
        Sums over the batches so far, with one chain for every ensemble.
    pairs : float array, or None
        Sums over the pairs of states of all edges, where edge marginals are wanted.
    kept_rungs : int array (R,)
        The rungs whose configurations are kept; the highest alone where no others are asked for.
    draws : list of uint8 arrays (R, ladders, n)
        Configurations at these rungs.
    bridges : list of float arrays (2, K - 1, ensembles)
        The sums of the acceptance ratio estimator when draws were kept, where other rungs are asked for.
    phases : list of Phase
        What is known of configurations of large weight.
    burned, updates : int
        Rounds of the burn-in so far, and updates of single variables.
    """

    def __init__(self, ladder: Ladder, plan: Tempered, context: Context) -> None:
        model = ladder.path.model
        self.ladder = ladder
        self.plan = plan
        self.context = context
        self.clock = context.clock
        self._saved = context.checkpoint
        self._deciding = context.deciding_clock()
        self.capacity = Capacity(ladder, plan, self._deciding)
        self.num_ensembles = plan.num_ensembles or MAX_ENSEMBLES
        self.phases = find_phases(ladder.path, rng=context.rng("modes"), clock=self._deciding.part(0.1))
        self._rng = context.rng("phases")
        self.statistics = BatchStatistics(len(model.log_unary), self.num_ensembles, plan.num_sweeps or 0)
        self.pairs = np.zeros(int(model.pairwise_offsets[-1])) if context.edge_marginals else None
        self.kept_rungs = np.zeros(0, dtype=np.int64)
        self.draws: list[NDArray[np.uint8]] = []  # (R, ladders, n) each
        self.bridges: list[FloatArray] = []
        self._pinned = plan.pinned_positions()
        self._draw_every = 0  # rounds between two of them; 0 where none are kept
        self.burned = 0
        self.updates = 0
        self._seconds = 0.0  # of the rounds
        self._round_seconds = 0.0  # of the latest rounds, each
        self._sweep_seconds = 0.0  # of one configuration, before there were rounds; 0 where that is not known
        self._setup_seconds = 0.0  # of the latest ladder
        self._batch_seconds = 0.0  # of the latest batch, to add it to the statistics
        self._stage = _Stage.ADAPTING
        self._length = FIRST_PHASE_ROUNDS  # of the phase of adaptation under way
        self._done = 0  # rounds of this phase, of settling or of this batch
        self._ready = False  # whether there is a ladder
        self._moved = False  # whether there was a round in this process
        self._snapshot: dict[str, NDArray[Any]] | None = None
        self._snapshot_at = 0.0
        self._snapshot_cost = 0.0

    def go(self) -> str:
        """Run until it is ``done``, to the ``accuracy``, the ``time_limit`` or an ``interrupt``: which of these.

        1. Place the first ladder, unless a checkpoint has one.
        2. Burn in: phases that double in length, with the ladder adapted after each, and then the rest.
        3. Collect averages in batches.
        """
        stopped_by = "done"
        ending = Ending()
        try:
            with ending:
                if not self._ready:
                    self._start_ladder()
                    self._ready = True
                self._burn_in()
                stopped_by = self._collect()
                self._keep(now=True)
        finally:
            if self._saved is not None and self._snapshot is not None:
                self._saved.save(self._snapshot, now=True)
        if ending.by == "time_limit" and self._stage is _Stage.COLLECTING and self._done:
            self._add_batch(self._done)  # what there is by now; a later run adds it up anew
        return stopped_by if ending.by == "done" else ending.by

    def updates_per_second(self) -> float:
        """Speed of the rounds so far, in updates of single variables."""
        return self.updates / self._seconds if self._seconds else 0.0

    def _updates_per_round(self) -> int:
        """Updates of single variables that one round of all replicas makes."""
        return self.ladder.num_rungs * self.ladder.num_ladders * self.ladder.path.model.num_variables

    # -- 1. The first ladder.

    def _start_ladder(self) -> None:
        """Place the first ladder, with one ladder in four started in a phase that is known."""
        first = place_first_ladder(self.capacity, self.context)
        self.num_ensembles = first.num_ensembles
        self._sweep_seconds = first.sweep_seconds
        positions, source = rungs.pin(first.positions, np.arange(len(first.positions)), self._pinned, first.positions)
        states = first.states[source]
        spread_phases(states, self.ladder.path, self.phases, self._rng)
        self._set_rungs(positions, states)
        num_entries = len(self.ladder.path.model.log_unary)
        self.statistics = BatchStatistics(num_entries, self.num_ensembles, self.plan.num_sweeps or 0)

    # -- 2. The burn-in.

    def _burn_in(self) -> None:
        """Adapt the ladder until half of the burn-in is over, and let the replicas settle in the other half."""
        asked = self.plan.burn_in
        share = self.capacity.burn_share if asked is None else 1.0
        if self._stage is _Stage.ADAPTING:
            self._adapt_in_phases(asked, share)
            self.ladder.chains.clear()
            self._stage = _Stage.SETTLING
        if self._stage is _Stage.SETTLING:
            self._advance(None if asked is None else asked - self.burned, collect=False, share=share)
            sums = self.ladder.chains.exchanges().sums
            if sums[0].all():
                self._set_shifts(self.ladder.positions, rungs.guess_steps(sums, self.ladder.shifts))
            self.ladder.chains.clear()
            self._done = 0
            self._stage = _Stage.COLLECTING

    def _adapt_in_phases(self, asked: int | None, share: float) -> None:
        """Run phases that double in length, and adapt the ladder after each, while that leaves time to settle."""
        while True:
            begun = self.burned - self._done
            if asked is not None and begun + self._length > asked // 2:
                return
            expected = self.clock.used() + self._length * self._round_seconds
            if asked is None and self.clock.limit and expected > ADAPT_SHARE * self.clock.limit:
                return
            wanted = self._length - self._done
            is_short = self._advance(wanted, collect=False, share=share) < wanted
            self._done = 0
            if is_short or self._deciding.past(share) or not self._has_time_to_adapt(share):
                return
            self._length *= 2
            is_last = asked is not None and self.burned + self._length > asked // 2
            self._adapt(settled=is_last or self.burned >= SETTLED_ROUNDS)

    def _has_time_to_adapt(self, share: float) -> bool:
        """Whether a ladder twice as long can be set up before a share of the time is used."""
        clock = self._deciding
        return clock.asked is None or clock.used() + 2.0 * self._setup_seconds <= share * clock.asked

    def _adapt(self, *, settled: bool) -> None:
        """Place the rungs anew; once the replicas have settled, also in phases that they have missed."""
        ladder = self.ladder
        old = ladder.positions
        exchanges = ladder.chains.exchanges()
        positions, source = rungs.respace(old, exchanges.rejection, self.plan.num_replicas)
        seconds_each = self._round_seconds / max(1, ladder.num_rungs * ladder.num_ladders)
        most = self.capacity.rungs_in_time(seconds_each)
        if self.plan.num_replicas is None and len(positions) > most:
            positions, source = rungs.respace(old, exchanges.rejection, most)
        positions, source = rungs.pin(positions, source, self._pinned, old)
        steps = rungs.guess_steps(exchanges.sums, ladder.shifts)
        states = ladder.get_states()[source]
        if settled and ladder.path.log_z is not None:
            log_z = ladder.path.log_z + np.concatenate([[0.0], np.cumsum(steps)])
            enter_phases(states, ladder.path, positions, np.interp(positions, old, log_z), self.phases, self._rng)
        self._set_rungs(positions, states)
        self._set_shifts(old, steps)

    def _set_rungs(self, positions: FloatArray, states: NDArray[np.uint8]) -> None:
        """Set new rungs of the ladder, and note the time that they take to set up."""
        begin = self.clock.used()
        self.ladder.set_rungs(positions, states)
        self._setup_seconds = self.clock.used() - begin

    def _set_shifts(self, positions: FloatArray, steps: FloatArray) -> None:
        """Aim the acceptance ratio estimator at what is known of log Z between positions on the path."""
        values = np.concatenate([[0.0], np.cumsum(steps)])
        self.ladder.set_shifts(np.diff(np.interp(self.ladder.positions, positions, values)))

    # -- Rounds, for the burn-in and the averages alike.

    def _advance(self, num_rounds: int | None, *, collect: bool, share: float = 1.0) -> int:
        """Rounds that were run, in steps short enough to watch the clock, until a share of the time is used."""
        done = 0
        must_run = collect and not self.statistics.num_batches  # something must be collected, however late it is
        while num_rounds is None or done < num_rounds:
            if self._saved is not None:
                self._keep(pause=self._moved and self.clock.past())
            elif self._is_too_late(share) and (done or not must_run):
                break
            step = int(self.ladder.step_seconds / self._round_seconds) if self._round_seconds else self._first_step()
            step = max(1, step if num_rounds is None else min(step, num_rounds - done))
            start = self.clock.used()
            self.ladder.advance(step, collect=collect)
            seconds = self.clock.used() - start
            self._round_seconds = seconds / step
            self._seconds += seconds
            self.updates += step * self._updates_per_round()
            done += step
            self._done += step
            self._moved = True
            self.burned += 0 if collect else step
            self._report(collect)
        return done

    def _is_too_late(self, share: float) -> bool:
        """Whether most of another round would come after a share of the time."""
        limit = self.clock.limit
        seconds = self._round_seconds
        if not seconds and self._deciding.asked is not None:
            seconds = self._sweep_seconds * self.ladder.num_rungs * self.ladder.num_ladders
        return limit is not None and self.clock.used() + 0.5 * seconds > share * limit

    def _first_step(self) -> int:
        """Rounds to begin with, while their time is not known."""
        return int(np.clip(FIRST_STEP_UPDATES // max(1, self._updates_per_round()), 1, FIRST_STEP_ROUNDS))

    def _report(self, collect: bool) -> None:
        """Tell the clock how many rounds there were, of those planned or of as many as the time seems to allow."""
        plan = self.plan
        finished = self.burned + (self.statistics.num_sweeps + self._done if collect else 0)
        if plan.num_sweeps is not None and plan.burn_in is not None:
            total = plan.burn_in + plan.num_sweeps
        else:
            used = min(1.0, self.clock.used() / (self.clock.limit or 1.0))
            total = max(finished, int(finished / max(used, 1e-3)))
        self.clock.report(finished, total, "sweeps", per_second=self.updates_per_second())

    # -- 3. The averages.

    def _collect(self) -> str:
        """Collect batches until the run is ``done``, accurate (``accuracy``) or out of time (``time_limit``)."""
        plan = self.plan
        planned = self._planned_sweeps()
        self.statistics.expected_sweeps = planned
        pair_every = max(1, planned // EDGE_CONFIGURATIONS)
        if plan.num_draws:
            self._draw_every = max(1, planned // plan.num_draws)
            self.kept_rungs = self._rungs_to_keep()
            self.capacity.check_draws(len(self.kept_rungs), self.ladder.num_ladders)
        if self._saved is not None and self._done == 0 and self._is_accurate():
            return "accuracy"  # in an earlier process
        while plan.num_sweeps is None or self.statistics.num_sweeps < plan.num_sweeps:
            wanted, share = self._next_batch(planned)
            self._collect_rounds(wanted, share, pair_every)
            done = self._done
            if done:
                self._add_batch(done)
            self._done = 0
            if self._saved is None and (done < wanted or self._is_too_late(share)):
                finished = plan.num_sweeps is not None and self.statistics.num_sweeps >= plan.num_sweeps
                return "done" if finished else "time_limit"
            if self._is_accurate():
                return "accuracy"
        return "done"

    def _rungs_to_keep(self) -> NDArray[np.int64]:
        """The rungs at which draws are kept: all of them, those of the temperatures asked for, or the last one."""
        positions = self.ladder.positions
        if self.plan.rungs == "all":
            return np.arange(len(positions))
        if self.plan.temperatures is None:
            return np.array([len(positions) - 1])
        return np.searchsorted(positions, self._pinned)

    def _planned_sweeps(self) -> int:
        """Sweeps to average over: those of the plan, or as many as the time leaves room for."""
        if self.plan.num_sweeps is not None:
            return self.plan.num_sweeps
        left = max(0.0, RUN_SHARE * (self.clock.limit or 0.0) - self.clock.used())
        return max(FIRST_STEP_ROUNDS, int(left / self._round_seconds) if self._round_seconds else 0)

    def _next_batch(self, planned: int) -> tuple[int, float]:
        """Rounds of the next batch, and the share of the time at which averaging ends.

        Where adding up takes long, there are fewer batches, and time is kept for the last and the answer.
        """
        plan = self.plan
        collected = self.statistics.num_sweeps
        length = max(1, math.ceil(planned / NUM_BATCHES))
        if plan.accuracy is not None:  # looked at when an eighth has been added
            length = max(ACCURACY_CHECK_SWEEPS, collected // 8)
        if plan.num_sweeps is not None:
            return min(length, plan.num_sweeps - collected), 1.0
        share = RUN_SHARE
        asked = self.clock.asked
        if asked is not None and plan.accuracy is None and self._round_seconds:
            length = max(length, int(BATCH_ROUNDS * self._batch_seconds / self._round_seconds))
            share = max(0.5, RUN_SHARE - BATCHES_AT_END * self._batch_seconds / max(asked, 1e-3))
        return length, share

    def _collect_rounds(self, wanted: int, share: float, pair_every: int) -> None:
        """Run the rounds of a batch that are left, as far as the time goes, and keep pairs of states and draws."""
        is_short = False
        while self._done < wanted and not is_short:
            target = wanted - self._done
            if self.pairs is not None:
                target = min(pair_every - self._done % pair_every, target)
            if self._rounds_to_draw():
                target = min(self._rounds_to_draw(), target)
            is_short = self._advance(target, collect=True, share=share) < target
            self._keep_draw()
            if self.pairs is not None:
                pair_clock = self._deciding.part(0.5, least=PAIR_SHARE)
                self.ladder.chains.add_pairs(self.pairs, average=True, clock=pair_clock)

    def _rounds_to_draw(self) -> int:
        """Rounds until the next configurations are kept; 0 where no more are."""
        if not self._draw_every or len(self.draws) >= self.plan.count_draws():
            return 0
        collected = self.statistics.num_sweeps + self._done
        return max(1, self._draw_every * (len(self.draws) + 1) - collected)

    def _keep_draw(self) -> None:
        """Keep the configurations at the highest rung if that is due."""
        if not self._draw_every or len(self.draws) >= self.plan.count_draws():
            return
        if self.statistics.num_sweeps + self._done >= self._draw_every * (len(self.draws) + 1):
            chains = self.ladder.chains
            self.draws.append(chains.get_states_of(self.kept_rungs).astype(np.uint8, order="C"))
            if self.plan.measures:
                sums = chains.exchanges().sums[4:]
                self.bridges.append(sums.reshape(*sums.shape[:2], self.num_ensembles, -1).sum(axis=3))

    def all_draws(self) -> NDArray[np.uint8] | None:
        """The configurations that were kept, (R, ladders, draws, n); None where none were asked for."""
        if not self.plan.num_draws:
            return None
        if not self.draws:
            shape = (max(1, len(self.kept_rungs)), self.ladder.num_ladders, 0, self.ladder.path.model.num_variables)
            return np.zeros(shape, dtype=np.uint8)
        return np.stack(self.draws, axis=2)

    def _add_batch(self, num_rounds: int) -> None:
        """Add what was collected in so many rounds to the statistics."""
        begin = self.clock.used()
        sums = self.ladder.chains.take_sums()  # of every ladder, or of those of an ensemble together
        parts = sums.reshape(len(sums), self.num_ensembles, sums.shape[1] // self.num_ensembles)
        total = parts[:, :, 0].copy()
        for k in range(1, parts.shape[2]):  # a sum over a short axis takes ten times as long
            total += parts[:, :, k]
        total /= self.ladder.per_ensemble
        self.statistics.add(total, num_rounds)
        self._batch_seconds = self.clock.used() - begin

    def _is_accurate(self) -> bool:
        """Whether all probabilities are within the accuracy that was asked for; never where none was."""
        accuracy = self.plan.accuracy
        if accuracy is None or self.statistics.num_batches < ACCURACY_MIN_BATCHES:
            return False
        trips = float(self.ladder.chains.exchanges().trips.sum())
        spread = self.spread().max(initial=0.0)
        overlooked = 1.0 / (trips + 1.0)
        quantile = student_quantile(self.num_ensembles - 1, 0.5 + 0.5 * _CONFIDENCE)
        return bool(quantile * np.hypot(spread, overlooked) <= accuracy)

    # -- What a checkpoint holds.

    def _keep(self, *, now: bool = False, pause: bool = False) -> None:
        """Note where the run is, at once or if that is due, and save it now and then; a pause ends the run there."""
        if self._saved is None:
            return
        age = time.monotonic() - self._snapshot_at
        is_due = time.monotonic() - self._saved.last >= self._saved.seconds
        if now or pause or is_due or age >= max(SNAPSHOT_SECONDS, 10.0 * self._snapshot_cost):
            begun = time.monotonic()
            self._snapshot = self.arrays()
            self._saved.save(self._snapshot)
            self._snapshot_at = time.monotonic()
            self._snapshot_cost = self._snapshot_at - begun
        if pause:
            raise OutOfTimeError  # what a later process can go on from has been saved

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a later process needs to go on, by name."""
        ladder = self.ladder
        chains, shifts, rounds = ladder.pack(0, ladder.num_ladders)
        facts = {
            "stage": self._stage,
            "length": self._length,
            "done": self._done,
            "burned": self.burned,
            "updates": self.updates,
            "seconds": self._seconds,
            "num_ensembles": self.num_ensembles,
            "rounds": rounds,
            "phase": ladder.phase,
            "rng": self._rng.bit_generator.state,
        }
        parts = {f"chains_{name}": np.array(value) for name, value in chains.items() if value is not None}
        parts |= {f"statistics_{name}": value for name, value in self.statistics.to_arrays().items()}
        if self.pairs is not None:
            parts["pairs"] = self.pairs.copy()
        if self.draws:
            parts["draws"] = np.stack(self.draws)
        if self.bridges:
            parts["bridges"] = np.stack(self.bridges)
        return parts | {"facts": np.array(json.dumps(facts)), "positions": ladder.positions, "shifts": shifts}

    def restore(self, parts: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`arrays` gave."""
        facts = json.loads(str(parts["facts"]))
        self._stage = _Stage(int(facts["stage"]))
        self._length = int(facts["length"])
        self._done = int(facts["done"])
        self.burned = int(facts["burned"])
        self.updates = int(facts["updates"])
        self._seconds = float(facts["seconds"])
        self._rng.bit_generator.state = facts["rng"]
        self.num_ensembles = int(facts["num_ensembles"])
        chains: dict[str, Any] = _named(parts, "chains_")
        chains["counts"] = tuple(int(count) for count in chains["counts"])
        chains.setdefault("totals", None)
        self.ladder.go_on(parts["positions"], self.num_ensembles * self.ladder.per_ensemble, int(facts["phase"]))
        self.ladder.unpack(0, self.ladder.num_ladders, (chains, parts["shifts"], int(facts["rounds"])))
        num_entries = len(self.ladder.path.model.log_unary)
        self.statistics = BatchStatistics(num_entries, self.num_ensembles, self.plan.num_sweeps or 0)
        self.statistics.restore(_named(parts, "statistics_"))
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        self.draws = list(parts["draws"]) if "draws" in parts else []
        self.bridges = list(parts["bridges"]) if "bridges" in parts else []
        self._ready = True

    # -- What the run says.

    def spread(self) -> FloatArray:
        """Standard error of every probability by the spread of the ensembles, (entries of log_unary,)."""
        return np.sqrt(self.statistics.chain_variances() / self.num_ensembles)

    def log_z(self) -> tuple[float, float]:
        """The log-ratio of the normalizers of the ends of the path, and its standard error."""
        sums = self.ladder.chains.exchanges().sums
        ensembles = sums.reshape(*sums.shape[:2], self.num_ensembles, -1).sum(axis=3)
        return rungs.bridge(ensembles, self.ladder.shifts)

    def bound(self, confidence: float) -> float | None:
        """A lower bound on that log-ratio by annealed importance sampling; None where there is no time for it."""
        ladder = self.ladder
        n = max(1, ladder.path.model.num_variables)
        updates = self.clock.left() * self.updates_per_second()  # that there is time for
        if ladder.path.log_z is None or self.clock.past(1.0) or updates < BOUND_MIN_STEPS * BOUND_CHAINS * n:
            return None
        steps = min(BOUND_MAX_STEPS, int(BOUND_SHARE * self.updates / n / BOUND_CHAINS))
        rejection = ladder.chains.exchanges().rejection
        positions, _ = rungs.respace(ladder.positions, rejection, max(2 * ladder.num_rungs, steps))
        population = rungs.start_population(ladder.path, BOUND_CHAINS, self.context.within("bound"))
        clock = self.clock.part(1.0)
        if ladder.device != "cpu":  # whose updates cannot be compared with those of annealing
            clock = Clock(max(1e-3, min(clock.left(), BOUND_SHARE * self._seconds)))
        return rungs.lower_bound(rungs.annealed_weights(ladder.path, population, positions, clock=clock), confidence)


def _named(parts: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in parts.items() if name.startswith(prefix)}
