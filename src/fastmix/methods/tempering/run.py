"""A run of replica exchange: the first ladder, its adaptation, the averages, and the bound on log Z."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import available_memory, check_memory
from fastmix.chains.layout import tables_fit
from fastmix.methods.diagnostics import BatchStatistics, student_quantile
from fastmix.methods.sampling_run import Checkpoint
from fastmix.methods.tempering import rungs
from fastmix.methods.tempering.ladder import Ladder, derive_seed
from fastmix.methods.tempering.phases import enter_phases, find_phases, spread_phases

if TYPE_CHECKING:
    from fastmix.methods.tempering.api import Tempered

__all__ = ["Run"]

_BATCHES = 64
_FIRST_STEP, _FIRST_PHASE = 4, 16  # rounds, while their time is not known, and before the ladder is first adapted
_FIRST_UPDATES = 10_000_000  # of variables, in first rounds: with more of them in a round, one round is the first step
_PAIR_SHARE = 0.05  # of a time limit, that pairs of states have in any case
_EDGE_COUNTS = 1000  # configurations a ladder that edge marginals are averaged over
_POPULATION, _POPULATION_STATES = 64, 1 << 24  # configurations that place the first ladder, and their variables
_LEAST_POPULATION = 8  # configurations: with fewer, kernels for dense graphs take longer to set up
_VISIT_SECONDS = 1e-8  # of an update for every neighbor, in large models
_LEAST_ENSEMBLES, _MOST_ENSEMBLES = 4, 16
_ROUND_UPDATES = 2_000_000  # of a round, that more ensembles than the fewest may take
_DEVICE_LADDERS, _DEVICE_STATES = 1024, 1 << 28  # ladders on a GPU, and the states of all their replicas
_ANNEALED = 128  # independent runs behind the bound on log Z
_ANNEAL_SWEEPS = 3
_LEAST_STEPS, _MOST_STEPS = 16, 1 << 16  # of annealing, for a bound to be worth it, and that a GPU has time for
_SUM_BYTES = 100.0  # of an ensemble and a state
_SETTLED = 100  # rounds after which replicas that have missed a phase have missed it for good
# Shares of a time limit: up to where the first ladder, its adaptation, the burn-in and the averages may go on; the
# rest is for the bound on log Z. Without a limit the bound takes as many updates beyond the run as this leaves.
_LADDER_SHARE, _ADAPT_SHARE, _BURN_SHARE, _RUN_SHARE = 0.1, 0.15, 0.4, 0.92
_BOUND_SHARE = 0.08
_DEVICE_BURN_SHARE = 0.5  # on a GPU, whose many ladders leave little noise for what is left of the start to hide in
_ACCURACY_BATCHES, _ACCURACY_BATCH = 8, 64  # batches before an accuracy can be believed, and their least length
_CONFIDENCE = 0.95
_SNAPSHOT_SECONDS = 0.5  # between two that are kept for an interrupt, and its cost is a tenth of that at most
_ADAPTING, _SETTLING, _COLLECTING = range(3)  # stages of a run, after its first ladder


class _PausedError(Exception):
    """The time is over, and what a later process can go on from has been saved."""


class Run:
    """A run in progress; ``statistics`` has one chain per ensemble, ``pairs`` sums over the pairs of states of edges.

    ``num_sweeps`` and ``burn_in`` of the plan are None where the time limit decides, ``num_ensembles`` where the first
    ladder does. ``burned`` counts the rounds of the burn-in, ``updates`` those of single variables so far.

    With a checkpoint no decision depends on the time, which only says when to stop: what was saved by then is where
    a later run of the same seed goes on, to the same bits.
    """

    def __init__(
        self, ladder: Ladder, plan: Tempered, clock: Clock, *, edge_marginals: bool, saved: Checkpoint | None = None
    ) -> None:
        model = ladder.path.model
        self.ladder, self.plan, self.clock = ladder, plan, clock
        self._saved = saved
        self._deciding = clock if saved is None else NO_LIMIT  # what choices may depend on
        self._most_rungs = self._find_most_rungs()
        self.num_ensembles = plan.num_ensembles or _MOST_ENSEMBLES
        self.phases = find_phases(ladder.path, seed=ladder.seed, clock=self._deciding.part(0.1))
        self._rng = np.random.default_rng([ladder.seed, 4])
        self.statistics = BatchStatistics(len(model.log_unary), self.num_ensembles, plan.num_sweeps or 0)
        self.pairs = np.zeros(len(model.log_pairwise)) if edge_marginals else None
        self.burned = self.updates = 0
        self._burn_share = _BURN_SHARE if ladder.device == "cpu" else _DEVICE_BURN_SHARE
        self._seconds = 0.0  # of the rounds
        self._round_seconds = 0.0  # of the latest rounds, each
        self._stage = _ADAPTING
        self._length = _FIRST_PHASE  # of the phase of adaptation under way
        self._done = 0  # rounds of this phase, of settling or of this batch
        self._ready = False  # whether there is a ladder
        self._moved = False  # whether there was a round in this process
        self._snapshot: dict[str, NDArray[Any]] | None = None
        self._snapshot_at = self._snapshot_cost = 0.0

    def go(self) -> str:
        """Run until it is ``done``, to the ``accuracy``, the ``time_limit`` or an ``interrupt``: which of these."""
        try:
            if not self._ready:
                self._first_ladder()
                self._ready = True
            self._burn_in()
            stopped_by = self._collect()
            self._keep(now=True)
            return stopped_by
        except _PausedError:
            if self._stage == _COLLECTING and self._done:  # what there is by now; a later run adds it up anew
                self._add_batch(self._done)
            return "time_limit"
        except KeyboardInterrupt:
            if not self.statistics.num_batches:
                raise
            return "interrupt"
        finally:
            if self._saved is not None and self._snapshot is not None:
                self._saved.save(self._snapshot, now=True)

    def updates_per_second(self) -> float:
        """Speed of the rounds so far."""
        return self.updates / self._seconds if self._seconds else 0.0

    def _first_ladder(self) -> None:
        ladder, plan, n = self.ladder, self.plan, self.ladder.path.model.num_variables
        together = ladder.per_ensemble
        # Large models have few ensembles, and each of their configurations says much about where rungs belong.
        least = min(_POPULATION, max(_LEAST_ENSEMBLES * together, _POPULATION_STATES // max(1, n)))
        size = max(least, (plan.num_ensembles or 0) * together)
        if plan.num_ensembles is None and ladder.device != "cpu":
            size = _DEVICE_LADDERS
        elif self._deciding.asked is not None:
            size = max(self._least_population(), min(size, self._affordable_population(self._deciding.asked)))
        population = rungs.start_population(ladder.path, size, seed=derive_seed(ladder.seed, 0, 1))
        positions, states = rungs.first_ladder(
            ladder.path, population, num_sweeps=_ANNEAL_SWEEPS, most=self._most_rungs,
            stop=lambda: self._deciding.past(_LADDER_SHARE),
        )  # fmt: skip
        if plan.num_ensembles is None:
            # Large models get fewer ensembles, which can then run for long enough to mix.
            updates = (plan.num_replicas or len(positions)) * n * together
            most, wanted = _MOST_ENSEMBLES, _ROUND_UPDATES
            if ladder.device != "cpu":
                most, wanted = size // together, _DEVICE_STATES
            most = max(_LEAST_ENSEMBLES, min(most, size // together))
            self.num_ensembles = int(np.clip(wanted // max(1, updates), _LEAST_ENSEMBLES, most))
        stacked = np.stack([x[: self.num_ensembles * together] for x in states])
        if plan.num_replicas is not None and plan.num_replicas != len(positions):
            equal = np.full(len(positions) - 1, rungs.REJECTION)
            positions, source = rungs.respace(positions, equal, plan.num_replicas)
            stacked = stacked[source]
        spread_phases(stacked, ladder.path, self.phases, self._rng)
        ladder.set_rungs(positions, stacked)
        self.statistics = BatchStatistics(len(ladder.path.model.log_unary), self.num_ensembles, plan.num_sweeps or 0)

    def _least_population(self) -> int:
        """Configurations that the ensembles start from, and enough to be swept side by side."""
        return max(_LEAST_POPULATION, (self.plan.num_ensembles or _LEAST_ENSEMBLES) * self.ladder.per_ensemble)

    def _affordable_population(self, limit: float) -> int:
        """Configurations whose first sweeps, up to the end of a path at once, take the share of the first ladder."""
        structure = self.ladder.path.model.structure
        sizes = np.diff(structure.scope_starts).astype(np.float64)
        visits = structure.num_variables + 2.0 * structure.num_edges + float(sizes @ sizes)
        return int(_LADDER_SHARE * limit / (_VISIT_SECONDS * (1 + _ANNEAL_SWEEPS) * max(1.0, visits)))

    def _find_most_rungs(self) -> int:
        """Rungs that the memory allows for; refuses ensembles whose replicas and sums would not fit."""
        model, structure = self.ladder.path.model, self.ladder.path.model.structure
        replicas, ensembles = self.plan.num_replicas or 3, self.plan.num_ensembles or _LEAST_ENSEMBLES
        # Configurations, twice while rungs change, generators and tables of all ladders.
        tables = 4.0 * structure.pattern_entries if tables_fit(structure, num_sets=3) else 16.0
        bytes_each = 10.0 * ensembles * self.ladder.per_ensemble * (structure.num_variables + 20.0) + tables
        sums = _SUM_BYTES * ensembles * len(model.log_unary)
        what = f"num_ensembles {ensembles}" if self.plan.num_ensembles else f"a ladder of {replicas} rungs"
        check_memory(bytes_each * replicas + sums, what, "run fewer ensembles, or fewer replicas")
        return max(3, int(min(rungs.MOST_RUNGS, available_memory() / 2 / bytes_each)))

    def _burn_in(self) -> None:
        """Phases that double in length, with the ladder adapted after each, and then the rest: half of it at least."""
        asked, clock = self.plan.burn_in, self.clock
        share = self._burn_share if asked is None else 1.0
        while self._stage == _ADAPTING:
            begun, length = self.burned - self._done, self._length
            if asked is not None and begun + length > asked // 2:
                break
            expected = clock.used() + length * self._round_seconds
            if asked is None and clock.limit and expected > _ADAPT_SHARE * clock.limit:
                break
            self._advance(length - self._done, collect=False, share=share)
            self._done = 0
            if self._deciding.past(share):
                break
            self._length = 2 * length
            last = asked is not None and self.burned + self._length > asked // 2
            self._adapt(settled=last or self.burned >= _SETTLED)
        if self._stage == _ADAPTING:
            self.ladder.chains.clear()
            self._stage = _SETTLING
        if self._stage == _SETTLING:
            self._advance(None if asked is None else asked - self.burned, collect=False, share=share)
            sums = self.ladder.chains.exchanges().sums
            if sums[0].all():
                self._set_shifts(self.ladder.positions, rungs.guess_steps(sums, self.ladder.shifts))
            self.ladder.chains.clear()
            self._done = 0
            self._stage = _COLLECTING

    def _adapt(self, *, settled: bool) -> None:
        """Place the rungs anew; once the replicas have settled, also in phases that they have missed."""
        ladder, exchanges = self.ladder, self.ladder.chains.exchanges()
        positions, source = rungs.respace(ladder.positions, exchanges.rejection, self.plan.num_replicas)
        old, steps = ladder.positions, rungs.guess_steps(exchanges.sums, ladder.shifts)
        states = ladder.get_states()[source]
        if settled and ladder.path.log_z is not None:
            log_z = ladder.path.log_z + np.concatenate([[0.0], np.cumsum(steps)])
            enter_phases(states, ladder.path, positions, np.interp(positions, old, log_z), self.phases, self._rng)
        ladder.set_rungs(positions, states)
        self._set_shifts(old, steps)

    def _set_shifts(self, positions: FloatArray, steps: FloatArray) -> None:
        """Aim the acceptance ratio estimator at what is known of log Z between positions on the path."""
        values = np.concatenate([[0.0], np.cumsum(steps)])
        self.ladder.set_shifts(np.diff(np.interp(self.ladder.positions, positions, values)))

    def _advance(self, num_rounds: int | None, *, collect: bool, share: float = 1.0) -> int:
        """Rounds, in steps short enough to watch the clock, until a share of the time is used; how many were run."""
        done = 0
        first = collect and not self.statistics.num_batches  # something must be collected, however late it is
        while num_rounds is None or done < num_rounds:
            if self._saved is not None:
                self._keep(pause=self._moved and self.clock.past())
            elif self.clock.past(share) and (done or not first):
                break
            step = int(self.ladder.step_seconds / self._round_seconds) if self._round_seconds else self._first_step()
            step = max(1, step if num_rounds is None else min(step, num_rounds - done))
            start = self.clock.used()
            self.ladder.advance(step, collect=collect)
            seconds = self.clock.used() - start
            self._round_seconds = seconds / step
            self._seconds += seconds
            self.updates += (
                step * self.ladder.num_rungs * self.ladder.num_ladders * self.ladder.path.model.num_variables
            )
            done += step
            self._done += step
            self._moved = True
            self.burned += 0 if collect else step
            self._report(collect)
        return done

    def _first_step(self) -> int:
        """Rounds to begin with, while their time is not known."""
        ladder = self.ladder
        updates = ladder.num_rungs * ladder.num_ladders * ladder.path.model.num_variables
        return int(np.clip(_FIRST_UPDATES // max(1, updates), 1, _FIRST_STEP))

    def _keep(self, *, now: bool = False, pause: bool = False) -> None:
        """Note where the run is, at once or if that is due, and save it now and then; a pause ends the run there."""
        if self._saved is None:
            return
        age = time.monotonic() - self._snapshot_at
        due = time.monotonic() - self._saved.last >= self._saved.seconds
        if now or pause or due or age >= max(_SNAPSHOT_SECONDS, 10.0 * self._snapshot_cost):
            begun = time.monotonic()
            self._snapshot = self.arrays()
            self._saved.save(self._snapshot)
            self._snapshot_at = time.monotonic()
            self._snapshot_cost = self._snapshot_at - begun
        if pause:
            raise _PausedError

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a later process needs to go on."""
        ladder = self.ladder
        chains, shifts, rounds = ladder.pack(0, ladder.num_ladders)
        facts = {
            "stage": self._stage, "length": self._length, "done": self._done, "burned": self.burned,
            "updates": self.updates, "seconds": self._seconds, "num_ensembles": self.num_ensembles,
            "rounds": rounds, "phase": ladder.phase, "rng": self._rng.bit_generator.state,
        }  # fmt: skip
        parts = {f"chains_{name}": np.array(value) for name, value in chains.items() if value is not None}
        parts |= {f"statistics_{name}": value for name, value in self.statistics.to_arrays().items()}
        if self.pairs is not None:
            parts["pairs"] = self.pairs.copy()
        return parts | {"facts": np.array(json.dumps(facts)), "positions": ladder.positions, "shifts": shifts}

    def restore(self, parts: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`arrays` gave."""
        facts = json.loads(str(parts["facts"]))
        self._stage, self._length, self._done = (int(facts[name]) for name in ("stage", "length", "done"))
        self.burned, self.updates, self._seconds = int(facts["burned"]), int(facts["updates"]), float(facts["seconds"])
        self._rng.bit_generator.state = facts["rng"]
        self.num_ensembles = int(facts["num_ensembles"])
        chains: dict[str, Any] = {
            name.removeprefix("chains_"): value for name, value in parts.items() if name.startswith("chains_")
        }
        chains["counts"] = tuple(int(count) for count in chains["counts"])
        chains.setdefault("totals", None)
        self.ladder.go_on(parts["positions"], self.num_ensembles * self.ladder.per_ensemble, int(facts["phase"]))
        self.ladder.unpack(0, self.ladder.num_ladders, (chains, parts["shifts"], int(facts["rounds"])))
        model = self.ladder.path.model
        self.statistics = BatchStatistics(len(model.log_unary), self.num_ensembles, self.plan.num_sweeps or 0)
        self.statistics.restore(
            {k.removeprefix("statistics_"): v for k, v in parts.items() if k.startswith("statistics_")}
        )
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        self._ready = True

    def _report(self, collect: bool) -> None:
        plan, clock = self.plan, self.clock
        finished = self.burned + (self.statistics.num_sweeps + self._done if collect else 0)
        if plan.num_sweeps is not None and plan.burn_in is not None:
            total = plan.burn_in + plan.num_sweeps
        else:
            used = min(1.0, clock.used() / (clock.limit or 1.0))
            total = max(finished, int(finished / max(used, 1e-3)))
        clock.report(finished, total, "sweeps", per_second=self.updates_per_second())

    def _collect(self) -> str:
        plan, clock = self.plan, self.clock
        planned = plan.num_sweeps
        if planned is None:
            left = max(0.0, _RUN_SHARE * (clock.limit or 0.0) - clock.used())
            planned = max(_FIRST_STEP, int(left / self._round_seconds) if self._round_seconds else 0)
        self.statistics.expected_sweeps = planned
        batch = max(1, math.ceil(planned / _BATCHES))
        every = max(1, planned // _EDGE_COUNTS)
        share = _RUN_SHARE if plan.num_sweeps is None else 1.0
        if self._saved is not None and self._done == 0 and plan.accuracy is not None and self._accurate(plan.accuracy):
            return "accuracy"  # in an earlier process
        while plan.num_sweeps is None or self.statistics.num_sweeps < plan.num_sweeps:
            collected = self.statistics.num_sweeps
            if plan.accuracy is not None:  # looked at when an eighth has been added
                batch = max(_ACCURACY_BATCH, collected // 8)
            wanted = batch if plan.num_sweeps is None else min(batch, plan.num_sweeps - collected)
            short = 0
            while self._done < wanted and not short:
                target = wanted - self._done
                if self.pairs is not None:
                    target = min(every - self._done % every, target)
                short = target - self._advance(target, collect=True, share=share)
                if self.pairs is not None:
                    pair_clock = self._deciding.part(0.5, least=_PAIR_SHARE)
                    self.ladder.chains.add_pairs(self.pairs, average=True, clock=pair_clock)
            done = self._done
            if done:
                self._add_batch(done)
            self._done = 0
            if self._saved is None and (done < wanted or clock.past(share)):
                finished = plan.num_sweeps is not None and self.statistics.num_sweeps >= plan.num_sweeps
                return "done" if finished else "time_limit"
            if plan.accuracy is not None and self._accurate(plan.accuracy):
                return "accuracy"
        return "done"

    def _add_batch(self, num_rounds: int) -> None:
        """Add what was collected in so many rounds to the statistics."""
        sums = self.ladder.chains.take_sums()  # of every ladder, or of those of an ensemble together
        parts = sums.reshape(len(sums), self.num_ensembles, sums.shape[1] // self.num_ensembles)
        self.statistics.add(parts.sum(axis=2) / self.ladder.per_ensemble, num_rounds)

    def _accurate(self, accuracy: float) -> bool:
        if self.statistics.num_batches < _ACCURACY_BATCHES:
            return False
        trips = float(self.ladder.chains.exchanges().trips.sum())
        spread, overlooked = self.spread().max(initial=0.0), 1.0 / (trips + 1.0)
        quantile = student_quantile(self.num_ensembles - 1, 0.5 + 0.5 * _CONFIDENCE)
        return bool(quantile * np.hypot(spread, overlooked) <= accuracy)

    def spread(self) -> FloatArray:
        """Standard error of every probability by the spread of the ensembles."""
        return np.sqrt(self.statistics.chain_variances() / self.num_ensembles)

    def log_z(self) -> tuple[float, float]:
        """The log-ratio of the normalisers of the ends of the path, and its standard error."""
        sums = self.ladder.chains.exchanges().sums
        ensembles = sums.reshape(*sums.shape[:2], self.num_ensembles, -1).sum(axis=3)
        return rungs.bridge(ensembles, self.ladder.shifts)

    def bound(self, confidence: float) -> float | None:
        """A lower bound on that ratio by annealed importance sampling; None where there is no time for it."""
        ladder = self.ladder
        n = max(1, ladder.path.model.num_variables)
        updates = self.clock.left() * self.updates_per_second()  # that there is time for
        if ladder.path.log_z is None or self.clock.past(1.0) or updates < _LEAST_STEPS * _ANNEALED * n:
            return None
        steps = min(_MOST_STEPS, int(_BOUND_SHARE * self.updates / n / _ANNEALED))
        rejection = ladder.chains.exchanges().rejection
        positions, _ = rungs.respace(ladder.positions, rejection, max(2 * ladder.num_rungs, steps))
        population = rungs.start_population(ladder.path, _ANNEALED, seed=derive_seed(ladder.seed, 0, 2))
        clock = self.clock.part(1.0)
        if ladder.device != "cpu":  # whose updates cannot be compared with those of annealing
            clock = Clock(max(1e-3, min(clock.left(), _BOUND_SHARE * self._seconds)))
        return rungs.lower_bound(rungs.annealed_weights(ladder.path, population, positions, clock=clock), confidence)
