"""A run of chains in batches: how many there are, what a certificate says about them, what is collected and saved."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import math
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.chains.base import Chains
from fastmix.errors import FastmixError, FormatError, UnfitMethodError, printable
from fastmix.methods.diagnostics import BatchStatistics, summarise
from fastmix.methods.sample_result import CONFIDENCE, SampleResult
from fastmix.model import MarkovRandomField
from fastmix.theory.certificates import Certificate, certify
from fastmix.theory.norms import Norm

if TYPE_CHECKING:
    from fastmix.methods.base import Context
    from fastmix.methods.sampler import _Sampler

__all__ = [
    "MOST_BURN_IN", "NUM_SWEEPS", "SCHEDULES", "Checkpoint", "Plan", "Run", "Schedule", "certified_sweeps",
    "certify_quickly", "default_chains", "edge_averages", "make_plan", "promise",
]  # fmt: skip

Schedule = Literal["systematic", "random", "random-burn-in"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)

_LOG = logging.getLogger(__name__)
_MANY_CHAINS = 64
NUM_SWEEPS = 10_000
# Variables, and their states but one, of all chains together by default, and chains: beyond that, more sweeps of fewer
# chains are worth more in the same time, because every chain burns in and has its sums.
_MOST_SITES, _MOST_CUTS, _LEAST_CHAINS = 1 << 20, 1 << 22, 4
_MOST_CERTIFIED = 1e12  # updates of all chains together to burn in: about an hour
_BIAS = 1e-3  # of every marginal, where burning in is certified
MOST_BURN_IN = NUM_SWEEPS // 2  # then
_CHAIN_BYTES = 48  # beside its states and sums
_DRAW_BYTES = 34  # a state of a draw: one as kept, one stacked, and four 8-byte arrays in mapping it to the original
_BURN_SHARE, _MARGIN = 0.1, 1.05  # of a time limit to burn in; more sweeps than fit the rest, which then ends them
_BATCHES = 64
_BATCH_UPDATES = 2e8
_LEAST_BATCH, _LEAST_OF_MANY = 4, 25  # sweeps, of few chains and of many: taking sums costs more than some sweeps
_FIRST_STEP = 64  # a time limit is looked at after every step: the first is this part of what a step can be
_FORMAT, _VERSION = b"fastmix checkpoint", 2
_PAIR_SHARE = 0.05  # of a time limit, that pairs of states have in any case
_EDGE_COUNTS = 1000  # configurations a chain that edge marginals are counted from


@dataclass(frozen=True)
class Plan:
    """The numbers of a run; ``bias`` is what a certificate promises about what is averaged.

    ``biases`` (n,) has the same by variable. It is no part of what tells runs apart: the rest follows from it.
    """

    num_chains: int
    num_sweeps: int
    burn_in: int
    bias: float | None = None
    biases: FloatArray | None = field(default=None, repr=False, compare=False)


def make_plan(model: MarkovRandomField, method: _Sampler, context: Context) -> tuple[Plan, Schedule]:
    """The numbers of a run and the order of updates; refused where they do not fit the memory."""
    accuracy, asked = getattr(method, "accuracy", None), getattr(method, "schedule", None)
    if accuracy is not None:
        plan, schedule = _certified_plan(model, accuracy, asked, context.clock)
    else:
        going_on = isinstance(method.start, SampleResult)
        chains = method.num_chains or (len(method.start.states) if going_on else default_chains(model))
        sweeps = method.num_sweeps or NUM_SWEEPS
        default = 0 if going_on else sweeps // 10
        burn_in = default if method.burn_in is None else method.burn_in
        plan, schedule = Plan(int(chains), int(sweeps), int(burn_in)), asked or "systematic"
    _check_plan(model, plan, method.num_draws, accuracy, context.backend)
    noted = len(method.history_at)
    check_memory(8.0 * noted * len(model.log_unary), f"history_at {noted:,} numbers of sweeps", "give fewer")
    return plan, schedule


def _certified_plan(
    model: MarkovRandomField, accuracy: float, schedule: Schedule | None, clock: Clock
) -> tuple[Plan, Schedule]:
    """What brings every probability within an accuracy, with 95 % confidence, and the order of updates."""
    # Hoeffding: exp(-2 C (accuracy / 2)^2) * 2 <= 1 - confidence.
    chains = math.ceil(math.log(2.0 / (1.0 - CONFIDENCE)) / (2.0 * (accuracy / 2) ** 2))
    orders: tuple[Schedule, ...] = ("systematic", "random-burn-in") if schedule is None else (schedule,)
    tried = []
    for order in orders:
        most, seconds = _MOST_CERTIFIED / chains, clock.rest(0.2)
        certificate = certify_chains(model, accuracy / 2, order, max_updates=most, time_limit=seconds)
        tried.append(certificate)
        if certificate.certified:
            break
    else:
        raise UnfitMethodError(
            f"accuracy needs a certified model, and this one has a dependency norm of {tried[0].norm_value:.3g}: "
            "give num_sweeps instead, or project the model first"
        )
    # The sweep that is averaged is the last of those that Dobrushin's criterion counts, in the same order.
    counted = order != "random-burn-in" and certificate.criterion == "dobrushin"
    burn_in = max(0, certified_sweeps(certificate) - counted)
    # Else what is certified comes before the sweep that is averaged: of it the accuracy of the certificate is known.
    biases = np.minimum(certificate.bias, accuracy / 2) if counted else np.full(model.num_variables, accuracy / 2)
    return Plan(chains, 1, burn_in, float(biases.max(initial=0.0)), biases), order


def certify_chains(
    model: MarkovRandomField,
    accuracy: float,
    schedule: str,
    *,
    norm: Norm | None = None,
    max_updates: float | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """The certificate for marginals of chains of a schedule; of the joint distribution, if that may change."""
    if schedule == "systematic":
        return certify(
            model, accuracy=accuracy, criterion="dobrushin", schedule="systematic", per_variable=True, norm=norm,
            order=model.structure.visit_order[0].astype(np.int64), time_limit=time_limit,
        )  # fmt: skip
    return certify(
        model, accuracy=accuracy, schedule="random", per_variable=schedule != "random-burn-in", max_updates=max_updates,
        time_limit=time_limit,
    )  # fmt: skip


def certified_sweeps(certificate: Certificate) -> int:
    """Sweeps of a certified model, of n random updates each where those are what is certified."""
    if certificate.num_sweeps is not None:
        return certificate.num_sweeps
    assert certificate.num_updates is not None
    return -(-certificate.num_updates // max(1, len(certificate.bias)))


def default_chains(model: MarkovRandomField) -> int:
    """Chains of a run that was not told how many: 64, but fewer for large models."""
    n, cuts = model.num_variables, len(model.log_unary) - model.num_variables
    most = min(_MOST_SITES // max(1, n), _MOST_CUTS // max(1, cuts))
    return int(np.clip(most, _LEAST_CHAINS, _MANY_CHAINS))


def certify_quickly(model: MarkovRandomField, schedule: str, clock: Clock) -> Certificate:
    """The certificate for a bias of 0.001 after a burn-in of a usual length, in a tenth of the time that is left.

    A twentieth of the limit is there for it in any case: sampling may have used up all.
    """
    most = float(MOST_BURN_IN) * max(1, model.num_variables)
    # The cheapest of the norms.
    return certify_chains(
        model, _BIAS, schedule, norm="inf", max_updates=most, time_limit=clock.part(0.1, least=0.05).rest()
    )


def promise(model: MarkovRandomField, burn_in: int, schedule: str, clock: Clock) -> str | None:
    """What the certificate guarantees after the burn-in, if anything."""
    try:
        certificate = certify_quickly(model, "random-burn-in" if schedule == "random" else schedule, clock)
    except FastmixError:  # too large for a certificate: nothing to promise
        return None
    if not certificate.certified or certified_sweeps(certificate) > burn_in:
        return None
    bias = certificate.accuracy
    return f"after {burn_in} sweeps no marginal is off by more than {bias:g} but for chance; intervals() are proven"


def _check_plan(model: MarkovRandomField, plan: Plan, num_draws: int, accuracy: float | None, backend: str) -> None:
    """Refuse chains whose configurations, draws and, but for groups of chains on a GPU, sums do not fit the memory."""
    n, chains = model.num_variables, plan.num_chains
    each = _CHAIN_BYTES + 24.0 * n + (24.0 * len(model.log_unary) if backend == "cpu" else 0.0)
    what, way_out = f"num_chains {chains}", "run fewer chains"
    if accuracy is not None:
        what, way_out = f"accuracy {accuracy:g}, which takes {chains} chains,", "ask for less accuracy"
    check_memory(chains * each, what, way_out)
    if num_draws > plan.num_sweeps:
        raise ValueError(f"num_draws must be at most num_sweeps, {plan.num_sweeps}, got {num_draws}")
    required = float(chains) * num_draws * n * _DRAW_BYTES
    check_memory(required, f"num_draws {num_draws} of {chains} chains", "keep fewer, or run fewer chains")


class Run:
    """A run in progress: what is done, what is collected, and what a checkpoint holds."""

    def __init__(
        self, model: MarkovRandomField, engine: Chains, plan: Plan, method: _Sampler, edges: bool, watch: IntArray
    ) -> None:
        self.watch = watch  # some groups of chains, and their sums over the burn-in
        self.burn_sums = np.zeros((len(model.log_unary), len(watch)))
        self.model, self.engine, self.plan = model, engine, plan
        self.done = -plan.burn_in  # sweeps, negative while burning in
        self.statistics = BatchStatistics(len(model.log_unary), engine.num_chains // engine.group_size, plan.num_sweeps)
        self.history_at = [t for t in method.history_at if 0 < t <= plan.num_sweeps]
        self.history: list[tuple[int, FloatArray]] = []
        self.draws: list[NDArray[Any]] = []
        self.num_draws, self.averages = method.num_draws, method.estimator == "rao-blackwell"
        self.pairs = np.zeros(len(model.log_pairwise)) if edges else None
        self._set_stops()
        self.seconds = 0.0
        self.fills_time = self.fills_burn_in = False  # whether a time limit is to be used up
        self.timed = 0, 0.0  # sweeps and seconds of the burn-in when it was last planned
        self.following: Callable[[], Chains] | None = None  # what sweeps after the burn-in, if not the same

    def _change_over(self) -> None:
        """Go on with what sweeps after the burn-in, from where it ended."""
        if self.following is not None:
            states, self.engine, self.following = self.engine.get_states(), self.following(), None
            self.engine.set_states(states)

    def _set_stops(self) -> None:
        """When to note what, by the number of sweeps that are planned."""
        engine, planned = self.engine, self.plan.num_sweeps
        self.draw_every = planned // self.num_draws if self.num_draws else 0
        self.pair_every = max(1, planned // _EDGE_COUNTS)
        # Long runs have more batches, so that an interrupt loses a second of work at most.
        most = int(_BATCH_UPDATES / max(1, self.model.num_variables * engine.num_chains))
        least = _LEAST_OF_MANY if engine.num_chains >= _MANY_CHAINS else _LEAST_BATCH
        self.batch = min(planned, max(least, min(most, math.ceil(planned / _BATCHES))))
        self.statistics.expected_sweeps = planned

    def _fill_time(self, clock: Clock) -> None:
        """After the burn-in, plan what the time leaves room for: first a tenth of it to burn in."""
        sweeps, seconds = self.timed
        each = (self.seconds - seconds) / max(1, self.plan.burn_in - sweeps)  # latest: first steps are small and slow
        self.timed = self.plan.burn_in, self.seconds
        rest = _BURN_SHARE * (clock.limit or 0.0) - clock.used()
        if self.fills_burn_in and rest > 0.2 * _BURN_SHARE * (clock.limit or 0.0) and each > 0.0:
            more = max(1, int(rest / each))
            self.plan, self.done = replace(self.plan, burn_in=self.plan.burn_in + more), -more
            return
        affordable = int(_MARGIN * clock.left() / each) if each > 0.0 else 0
        self.plan = replace(self.plan, num_sweeps=max(self.plan.num_sweeps, affordable))
        self._set_stops()

    def next_stop(self) -> int:
        """The next number of sweeps at which something has to be noted."""
        stops = [self.plan.num_sweeps, (self.done // self.batch + 1) * self.batch]
        stops += [t for t in self.history_at if t > self.done][:1]
        if self.draw_every:
            stops.append((self.done // self.draw_every + 1) * self.draw_every)
        if self.pairs is not None:
            stops.append((self.done // self.pair_every + 1) * self.pair_every)
        return min(stop for stop in stops if stop > self.done)

    def go(self, clock: Clock, checkpoint: Checkpoint | None) -> str:
        """Run to the end (``done``), the time limit (``time_limit``) or an interrupt (``interrupt``)."""
        most = max(1, int(self.engine.updates_per_step / max(1, self.model.num_variables * self.engine.num_chains)))
        step = most if clock.limit is None else max(1, most // _FIRST_STEP)
        # What comes after the last sweep takes about a third of what came before the first.
        share = 1.0 if clock.limit is None else max(0.5, 1.0 - clock.used() / (3.0 * (clock.limit or 1e-3)))
        since_batch = self.done  # sums are taken at batches and trace points only
        snapshot: dict[str, NDArray[Any]] | None = None  # where a later process can go on; saved last of all
        try:
            while self.done < self.plan.num_sweeps:
                if self.done >= 0:
                    self._change_over()
                target = 0 if self.done < 0 else self.next_stop()
                start = clock.used()
                count = min(step, target - self.done)
                watched = self.done < 0 and len(self.watch) > 0
                self.engine.sweep(count, collect=self.done >= 0 or watched)
                self.done += count
                seconds = clock.used() - start
                self.seconds += seconds
                if clock.limit is not None:
                    step = max(1, step // 2) if seconds > self.engine.step_seconds else min(most, 2 * step)
                cut = self.done < 0 and clock.past(0.5 * share) and checkpoint is None
                if watched and (checkpoint is not None or self.done == 0 or cut):
                    self.burn_sums += self._take_sums()[:, self.watch]
                if self.done == 0:
                    if self.fills_time:
                        self._fill_time(clock)
                    since_batch = self.done
                if self.done == target and self.done > 0:
                    since_batch = self._note(since_batch, clock if checkpoint is None else NO_LIMIT)
                total = self.plan.burn_in + self.plan.num_sweeps
                clock.report(self.done + self.plan.burn_in, total, "sweeps", per_second=self.updates_per_second())
                if checkpoint is not None and (since_batch == self.done or self.done < 0):
                    snapshot = self.arrays()
                    checkpoint.save(snapshot)
                if cut:  # half of the time must be left for what the answer is made of
                    self.plan = replace(self.plan, burn_in=self.plan.burn_in + self.done)
                    self.done = since_batch = 0
                elif clock.past(share) and (self.done > 0 if checkpoint is None else snapshot is not None):
                    # A run with a checkpoint goes on until it can be saved: runs of any length add up to the answer.
                    if self.done > max(0, since_batch):
                        self.statistics.add(self._take_sums(), self.done - since_batch)
                    return "done" if self.done == self.plan.num_sweeps else "time_limit"
        except KeyboardInterrupt:
            return "interrupt"
        finally:
            if checkpoint is not None and snapshot is not None:
                checkpoint.save(snapshot, now=True)
        return "done"

    def _take_sums(self) -> FloatArray:
        """Sums of single chains, or means over the chains of a group, which count as one chain from here on."""
        sums = self.engine.take_sums()
        return sums / self.engine.group_size if self.engine.group_size > 1 else sums

    def _pairs_clock(self, clock: Clock) -> Clock:
        """The time for one look at pairs: half of what is left; nothing that a checkpoint holds depends on it."""
        return clock.part(0.5, least=_PAIR_SHARE)

    def _note(self, since_batch: int, clock: Clock) -> int:
        done = self.done
        if done % self.batch == 0 or done in self.history_at or done == self.plan.num_sweeps:
            self.statistics.add(self._take_sums(), done - since_batch)
            since_batch = done
        if done in self.history_at:
            self.history.append((done, summarise(self.statistics, self.model).mean))
        if self.draw_every and done % self.draw_every == 0 and len(self.draws) < self.num_draws:
            states = self.engine.get_states()
            self.draws.append(_smallest(states))
        if self.pairs is not None and done % self.pair_every == 0:
            self.engine.add_pairs(self.pairs, average=self.averages, clock=self._pairs_clock(clock))
        return since_batch

    def updates_per_second(self) -> float:
        """Updates of single variables per second so far."""
        sweeps = self.done + self.plan.burn_in
        updates = float(sweeps) * self.model.num_variables * self.engine.num_chains
        return updates / self.seconds if self.seconds else 0.0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything that a later process needs to go on."""
        parts: dict[str, NDArray[Any]] = {
            "done": np.array([self.done]),
            "seconds": np.array([self.seconds]),
            "states": self.engine.get_states().astype(np.uint16),
            "random": self.engine.get_random_state(),
            "draws": np.array(self.draws, dtype=None if self.draws else np.uint8),
            "trace": np.array([m for _, m in self.history]),
            "pairs": np.zeros(0) if self.pairs is None else self.pairs.copy(),
            "burn_sums": self.burn_sums.copy(),
        }
        return parts | {f"statistics_{k}": v for k, v in self.statistics.to_arrays().items()}

    def restore(self, parts: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`arrays` gave."""
        self.done, self.seconds = int(parts["done"][0]), float(parts["seconds"][0])
        if self.done > 0:  # at 0 the states are those of the burn-in still
            self._change_over()
        self.engine.set_states(parts["states"].astype(np.int64))
        self.engine.set_random_state(parts["random"])
        self.draws = [_smallest(states) for states in parts["draws"]]
        self.history = list(zip(self.history_at, parts["trace"], strict=False))
        if self.pairs is not None:
            self.pairs = parts["pairs"].copy()
        self.burn_sums = parts["burn_sums"].copy()
        self.statistics.restore({k.removeprefix("statistics_"): v for k, v in parts.items()})


def _smallest(states: NDArray[Any]) -> NDArray[Any]:
    """Configurations in 8 bits where these hold them, else in 16."""
    return states.astype(np.uint8 if states.max(initial=0) < 256 else np.uint16)


def edge_averages(model: MarkovRandomField, pairs: FloatArray | None) -> FloatArray | None:
    """Joint probabilities of every edge from sums of :meth:`Chains.add_pairs`; None for None."""
    if pairs is None:
        return None
    return np.asarray(pairs / max(pairs[: model.pairwise_offsets[1]].sum() if len(pairs) else 1.0, 1.0))


class Checkpoint:
    """A checkpoint file of one run, read and verified at once if it exists; ``seed`` is that of the run in it.

    A line has the name and version of the format and the SHA-256 sum of what follows: arrays in NumPy's npz format.
    ``seconds`` is the least time between two writes. A file that is not a checkpoint, of another version or damaged is
    a :class:`FormatError`; a place that cannot be written an OSError, now and not after the first half minute. What
    cannot be written later, because the disk is full, is a warning: the run goes on, and tries again.
    """

    def __init__(self, path: str, seconds: float) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(f"checkpoint must be the name of a file, got {describe(path)}")
        self.path, self.seconds = os.fspath(path), seconds
        self._failed = False  # whether the latest write did
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        from fastmix.io.files import check_writable  # readers of formats are slow to load

        check_writable(self.path)
        exists = os.path.exists(path)
        if exists and not os.path.isfile(path):
            # Reading a device or a pipe need not end, and a file cannot take its place.
            raise ValueError(f"checkpoint must name a regular file, got {describe(self.path)}: a device or a pipe")
        self._found = self._read() if exists else None
        self.seed = None if self._found is None else int(self._found["seed"])
        self._head: dict[str, NDArray[Any]] = {}
        self.last = time.monotonic()

    def resume(self, options: str, seed: int) -> dict[str, NDArray[Any]] | None:
        """What was saved, or None if there is no file yet; ``options`` is all else that determines the run.

        A :class:`FormatError` if the file is of a run with another seed or other options.
        """
        key = hashlib.sha256(options.encode()).hexdigest()
        self._head = {"seed": np.array(str(seed)), "key": np.array(key)}
        if self._found is None:
            return None
        if self.seed != seed:
            raise FormatError(
                f"{self.path}: the checkpoint belongs to a run with seed {self.seed}, got seed {seed}; leave the seed "
                "out to go on with it"
            )
        if str(self._found["key"]) != key:
            raise FormatError(f"{self.path}: the checkpoint belongs to a run with another model or other options")
        parts, self._found = self._found, None
        return {name: array for name, array in parts.items() if name not in self._head}

    def save(self, arrays: dict[str, NDArray[Any]], *, now: bool = False) -> None:
        """Replace the file if it is old enough, or at once; a warning, once, if that fails."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        try:
            self._write(arrays)
            self._failed = False
        except OSError as error:
            if not self._failed:
                path = printable(self.path)
                reason = error.strerror or str(error)
                _LOG.warning("fastmix: the checkpoint %s cannot be written (%s): the run goes on", path, reason)
            self._failed = True
        self.last = time.monotonic()

    def _write(self, arrays: dict[str, NDArray[Any]]) -> None:
        buffer = io.BytesIO()
        np.savez(buffer, **self._head, **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
        from fastmix.io.files import atomic_write  # readers of formats are slow to load

        with atomic_write(self.path, binary=True) as stream:
            stream.write(b"%s %d %s\n" % (_FORMAT, _VERSION, hashlib.sha256(content).hexdigest().encode()))
            stream.write(content)

    def _read(self) -> dict[str, NDArray[Any]]:
        from fastmix.io.files import read_bytes

        # What atomic_write compresses for the sake of its name is read back in the same way, and within the same limit
        # as models: a few kilobytes can stand for gigabytes.
        line, _, content = read_bytes(self.path).partition(b"\n")
        words = line.removeprefix(_FORMAT).decode("ascii", "replace").split()
        if not line.startswith(_FORMAT) or len(words) != 2:
            raise FormatError(f"{self.path}: not a checkpoint of fastmix")
        if words[0] != str(_VERSION):
            raise FormatError(
                f"{self.path}: a checkpoint of version {words[0]}, this fastmix reads version {_VERSION}; remove the "
                "file to begin anew"
            )
        try:
            if hashlib.sha256(content).hexdigest() != words[1]:
                raise ValueError
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                # Nothing is compressed: a file that claims to hold more than there is would be a bomb.
                if sum(member.file_size for member in archive.infolist()) > len(content):
                    raise ValueError
            with np.load(io.BytesIO(content), allow_pickle=False) as data:
                parts = dict(data)
            int(parts["seed"]), parts["key"]
        except Exception:  # where the sum is right, somebody made this: whatever goes wrong, it is no checkpoint
            raise FormatError(f"{self.path}: the checkpoint is damaged; remove the file to begin anew") from None
        return parts
