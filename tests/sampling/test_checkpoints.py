"""Runs that are stopped, and go on from their checkpoints to the same bits."""

from __future__ import annotations

import gzip
import hashlib
import io
import itertools
import lzma
import os
import re
import signal
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from sampler_checks import WEAK, assert_same, lopsided, stop_after

import fastmix
import strategies
from fastmix import (
    FormatError,
    Interrupted,
    ResourceError,
    _checkpoint,
)
from fastmix.chains.cpu import CpuChains
from fastmix.instances import ising_grid
from fastmix.results import Status
from fastmix.sampling import runs as sampling_run
from fastmix.sampling.plans import ChainPlan
from fastmix.sampling.sample import Gibbs, sample
from fastmix.testing import assert_distributions


def test_an_interrupt_returns_what_was_collected(monkeypatch):
    options = {"num_chains": 4, "num_sweeps": 640, "burn_in": 10, "seed": 3}
    stop_after(monkeypatch, 34, torn=True)  # one call for the burn-in, then batches of 10 sweeps
    with pytest.raises(Interrupted) as stopped:
        sample(WEAK, **options)
    result = stopped.value.result
    assert result.status == Status.INTERRUPTED
    assert result.stats["num_sweeps"] == 320
    monkeypatch.undo()
    trace = sample(WEAK, history_at=[320], **options).history
    np.testing.assert_allclose(result.node_marginals, trace[0]["marginals"], rtol=0, atol=1e-12)
    assert np.isfinite(result.std_error).all()
    assert "interrupted" in result.status.advice


def test_an_interrupt_while_burning_in_has_nothing_to_report(monkeypatch):
    stop_after(monkeypatch, 1)
    with pytest.raises(Interrupted) as stopped:
        sample(WEAK, num_chains=4, num_sweeps=640, seed=3)
    assert stopped.value.result is None


def test_time_limit(monkeypatch):
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 4 * 9 * 50)
    result = sample(WEAK, num_chains=4, num_sweeps=10_000_000, burn_in=0, time_limit=0.2, seed=1)
    assert (result.status, result.stats["stopped_by"]) == (Status.OK, "time_limit")
    # A batch would be 156,250 sweeps: what has been collected of the first one counts.
    assert 0 < result.stats["num_sweeps"] < 10_000_000
    assert "R-hat" in result.stats["note"]
    assert_distributions(WEAK, result.node_marginals, None)
    assert result.stats["seconds"] < 30
    finished = sample(WEAK, num_chains=4, num_sweeps=50, burn_in=0, time_limit=1e-9, seed=1)
    assert finished.stats["num_sweeps"] < 50
    # A burn-in is cut short, and said to be as long as it was, so that something is left to report.
    cut = sample(WEAK, num_chains=4, num_sweeps=1000, burn_in=1000, time_limit=1e-9, seed=1)
    assert (cut.status, cut.stats["stopped_by"]) == (Status.NOT_MIXED, "time_limit")
    assert cut.stats["burn_in"] == 1  # the first step is small, whatever the speed turns out to be
    monkeypatch.setattr(sampling_run, "FIRST_STEP_DIVISOR", 1)
    assert sample(WEAK, num_chains=4, num_sweeps=1000, burn_in=1000, time_limit=1e-9, seed=1).stats["burn_in"] == 50
    assert cut.stats["num_sweeps"] > 0
    assert sample(WEAK, num_chains=4, num_sweeps=50, time_limit=1e9, seed=1).stats["stopped_by"] == "done"


def test_sweeps_planned_to_fill_a_limit_end_by_it_however_fast_they_are(monkeypatch):
    monkeypatch.setattr(sampling_run, "PLANNING_MARGIN", 0.0)  # as if busy while the speed was measured
    result = sample(WEAK, num_chains=2, time_limit=1.0, seed=1)
    assert (result.stats["num_sweeps"], result.stats["stopped_by"]) == (10_000, "time_limit")


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 4 * 9 * 50)
    told = []
    sample(WEAK, num_chains=4, num_sweeps=640, burn_in=120, seed=1, progress=told.append)
    done = [report.done for report in told]
    assert done == sorted(set(done))
    assert done[:3] == [50, 100, 120]
    assert done[-1] == 760
    assert {(report.total, report.unit, report.what) for report in told} == {(760, "sweeps", "gibbs")}
    assert all(report.per_second >= 0 for report in told)


# -- checkpoints ------------------------------------------------------------------------------------------------------

RUN = {"num_chains": 8, "num_sweeps": 640, "burn_in": 60, "seed": 5, "edge_marginals": True, "num_draws": 7,
       "history_at": [100, 333]}  # fmt: skip

CHILD = """
import itertools, os, signal, sys
sys.path[:0] = {paths!r}
from sampler_checks import lopsided
from fastmix.chains.base import Chains
from fastmix.sampling.sample import sample

Chains.updates_per_step = {step}
number = itertools.count(1)

def progress(report):
    if next(number) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

sample(lopsided(), checkpoint=sys.argv[1], checkpoint_seconds=0.0, progress=progress, **{run!r})
"""


def test_killed_runs_go_on_to_the_same_bits(tmp_path):
    expected = sample(lopsided(), **RUN)
    path = tmp_path / "run.npz"
    here = os.path.dirname(__file__)
    script = CHILD.format(paths=[here, os.path.dirname(here)], step=8 * 5 * 7, run=RUN)  # 7 sweeps between two looks
    digests = []
    for stop in (4, 300):  # while burning in, and while collecting
        command = [sys.executable, "-W", "error", "-c", script, str(path), str(stop)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == -signal.SIGKILL, done.stderr
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
        assert os.listdir(tmp_path) == ["run.npz"]
    assert len(set(digests)) == 2
    assert np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2]))["done"][0] > 100
    told = []
    result = sample(lopsided(), checkpoint=str(path), progress=lambda report: told.append(report.done), **RUN)
    assert told[0] > 160  # it went on, it did not start anew
    assert_same(result, expected)


@pytest.mark.parametrize(
    ("kind", "stop"), strategies.each(["plain", "counts", "everything"], itertools.product([2, 30, 69], [False, True]))
)
def test_interrupted_runs_go_on_to_the_same_bits(kind, stop, tmp_path, monkeypatch):
    calls, torn = stop
    options = {"num_chains": 3, "num_sweeps": 640, "burn_in": 60, "seed": 5}
    if kind == "counts":
        options["estimator"] = "counts"
    if kind == "everything":  # edges are counted after every sweep, so that the interrupt comes between two batches
        options |= {"edge_marginals": True, "num_draws": 40, "history_at": [3, 25]}
    expected = sample(lopsided(), **options)
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 5 * 10)
    path = tmp_path / "run.npz"
    stop_after(monkeypatch, calls, torn=torn)
    with pytest.raises(Interrupted) as stopped:
        sample(lopsided(), checkpoint=path, checkpoint_seconds=1e9, **options)
    result = stopped.value.result
    assert result is None if calls == 2 else result.status == Status.INTERRUPTED  # the second call burns in
    assert path.exists()
    monkeypatch.undo()
    assert_same(sample(lopsided(), checkpoint=str(path), **options), expected)


def test_a_finished_run_stays_until_its_file_is_removed(tmp_path):
    path = tmp_path / "run.npz"
    expected = sample(lopsided(), checkpoint=str(path), **RUN)  # too short for a save before the last
    assert path.exists()
    told = []
    assert_same(sample(lopsided(), checkpoint=str(path), progress=told.append, **RUN), expected)
    assert told == []  # nothing was left to do
    assert path.exists()


def test_runs_over_their_time_go_on_to_the_same_bits(tmp_path, monkeypatch):
    options = {"num_chains": 3, "num_sweeps": 640, "burn_in": 0, "seed": 5}
    expected = sample(lopsided(), **options)
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 5 * 10)
    monkeypatch.setattr(sampling_run, "FIRST_STEP_DIVISOR", 1)  # a whole batch: what a checkpoint can keep
    path = str(tmp_path / "run.npz.gz")  # compressed, for its name
    for _ in range(3):
        limited = sample(lopsided(), checkpoint=path, time_limit=1e-9, **options)
        assert limited.stats["stopped_by"] == "time_limit"
    assert limited.stats["num_sweeps"] == 30
    assert_same(sample(lopsided(), checkpoint=path, **options), expected)


def test_checkpoints_of_other_runs_are_refused(tmp_path, monkeypatch):
    path = str(tmp_path / "run.npz")
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=path, checkpoint_seconds=0.0, time_limit=1e-9, **options)
    others = [
        {"num_sweeps": 65},
        {"num_chains": 4},
        {"burn_in": 1},
        {"schedule": "random"},
        {"estimator": "counts"},
        {"num_draws": 1},
        {"edge_marginals": True},
        {"history_at": [5]},
        {"start": np.zeros((3, 9), dtype=int)},
        {"evidence": {0: 1}},
    ]
    for other in others:
        with pytest.raises(FormatError, match=rf"^{re.escape(path)}: .*model .*options"):
            sample(WEAK, checkpoint=path, **(options | other))
    with pytest.raises(FormatError, match="another model"):
        sample(ising_grid(3, 3, coupling_max=0.5, seed=1), checkpoint=path, **options)
    assert sample(WEAK, checkpoint=path, **options).stats["num_sweeps"] == 64


@pytest.mark.parametrize("verb", [sample, fastmix.temper])
def test_devices_and_pipes_are_no_checkpoints(verb, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (os.devnull, "/dev/zero", pipe):
        if os.path.exists(place):
            with pytest.raises(ValueError, match="checkpoint"):
                verb(WEAK, num_sweeps=10, checkpoint=str(place))


def test_the_seed_of_a_checkpoint_is_taken(tmp_path):
    path = str(tmp_path / "run.npz")
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0}
    begun = sample(WEAK, checkpoint=path, checkpoint_seconds=0.0, time_limit=1e-9, **options)
    seed = begun.provenance["seed"]
    with pytest.raises(FormatError, match=rf"seed {seed}, got seed {seed + 1}\b"):
        sample(WEAK, checkpoint=path, seed=seed + 1, **options)
    result = sample(WEAK, checkpoint=path, **options)
    assert result.provenance["seed"] == seed
    assert_same(result, sample(WEAK, seed=seed, **options))


def test_projected_runs_take_the_seed_of_their_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    options = {"divergence": fastmix.Euclidean(), "num_chains": 3, "num_sweeps": 640, "burn_in": 0}
    monkeypatch.setattr(sampling_run.Chains, "updates_per_step", 3 * 9 * 10)
    stop_after(monkeypatch, 30, torn=False)
    with pytest.raises(Interrupted) as stopped:
        fastmix.infer(WEAK, method="projected", checkpoint=str(path), **options)
    begun = stopped.value.result
    monkeypatch.undo()
    assert path.exists()
    result: Any = fastmix.infer(WEAK, method="projected", checkpoint=str(path), **options)
    assert result.provenance["seed"] == begun.provenance["seed"]
    again: Any = fastmix.infer(WEAK, method="projected", seed=begun.provenance["seed"], **options)
    assert_same(result.sampled, again.sampled)


@pytest.mark.parametrize("suffix", [".npz", ".npz.gz", ".npz.xz"])
def test_damaged_checkpoints_are_refused(tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=str(path), checkpoint_seconds=0.0, time_limit=1e-9, **options)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    expected = sample(WEAK, **options)
    refused = 0
    for place in rng.integers(0, len(whole), size=100).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << rng.integers(8))]) + whole[place + 1 :])
        try:
            # Some bytes of gzip's header carry nothing.
            assert_same(sample(WEAK, checkpoint=str(path), **options), expected)
        except FormatError:
            refused += 1
    assert refused == 100 if suffix == ".npz" else refused > 90
    for length in [0, *rng.integers(1, len(whole), size=30).tolist(), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"run\.npz.*: .*(damaged|not a checkpoint)"):
            sample(WEAK, checkpoint=str(path), **options)
    for other in (np.save, np.savez):
        with path.open("wb") as file:
            other(file, np.zeros(3))
        with pytest.raises(FormatError, match=r"run\.npz.*: not a checkpoint"):
            sample(WEAK, checkpoint=str(path), **options)


def test_altered_checkpoints_are_refused(tmp_path):
    path = tmp_path / "run.npz"
    options = {"num_chains": 3, "num_sweeps": 64, "burn_in": 0, "seed": 5}
    sample(WEAK, checkpoint=str(path), checkpoint_seconds=0.0, time_limit=1e-9, **options)
    head, _, content = path.read_bytes().partition(b"\n")
    arrays = dict(np.load(io.BytesIO(content)))
    for name, array in arrays.items():  # whole archives, each with one array that is not what was saved
        altered = io.BytesIO()
        np.savez(altered, **(arrays | {name: np.append(array, array.dtype.type(1)) if array.ndim else np.array("7")}))
        path.write_bytes(head + b"\n" + altered.getvalue())
        with pytest.raises(FormatError, match=r"run\.npz.*: .*damaged; remove"):
            sample(WEAK, checkpoint=str(path), **options)
    lacking = io.BytesIO()
    np.savez(lacking, **{name: array for name, array in arrays.items() if name != "states"})
    bomb = io.BytesIO()
    np.savez_compressed(bomb, **arrays, more=np.zeros(1 << 20))
    for crafted in (b"", b"PK", lacking.getvalue(), bomb.getvalue()):  # with a sum that is right
        path.write_bytes(b"fastmix checkpoint 2 %s\n" % hashlib.sha256(crafted).hexdigest().encode() + crafted)
        with pytest.raises(FormatError, match=r"run\.npz.*: .*damaged"):
            sample(WEAK, checkpoint=str(path), **options)


def test_checkpoints_of_other_versions_are_named(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"fastmix checkpoint 3 0123\nwhatever it holds")
    with pytest.raises(FormatError, match=r"run\.npz: .*version 3, .*version 2; remove"):
        sample(WEAK, checkpoint=str(path))


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
@pytest.mark.parametrize("honest", [True, False])
def test_checkpoints_that_unpack_to_gigabytes_are_refused(tmp_path, monkeypatch, pack, honest):
    """Whatever their name, and although the sum in them is right."""
    buffer = io.BytesIO()
    np.savez(buffer, more=np.zeros(1 << 23))  # of 64 MiB: a small one, so that the limit is made small here
    content = buffer.getvalue() if honest else bytes(1 << 26)
    path = tmp_path / "run.npz"
    head = b"%s %d %s\n" % (_checkpoint._FORMAT, _checkpoint._VERSION, hashlib.sha256(content).hexdigest().encode())
    path.write_bytes(pack(head + content))
    assert path.stat().st_size < 200_000
    monkeypatch.setattr("fastmix.io.files.available_memory", lambda: 1 << 27)
    tracemalloc.start()
    with pytest.raises(ResourceError, match=r"run\.npz: .*16 MiB"):
        sample(ising_grid(2, 2, coupling_max=1.0, seed=0), num_sweeps=10, checkpoint=str(path))
    assert tracemalloc.get_traced_memory()[1] < 6e7
    tracemalloc.stop()


class Stopped:
    """A clock that stands still at a time of its limit."""

    def __init__(self, limit: float, used: float) -> None:
        self.limit = limit
        self._used = used

    def used(self) -> float:
        return self._used

    def past(self, share: float = 1.0) -> bool:
        return self._used > share * self.limit


@pytest.mark.parametrize(
    ("asked", "done", "seconds", "ends"),
    [
        (None, 50, 4.0, True),  # 1,100 sweeps would take 88 of 10 seconds
        (None, 50, 2.0, False),  # but a quarter of the time is left to it
        (None, 50, 0.4, False),  # all fit
        (100, 50, 4.0, False),  # asked for
        (100, 50, 5.5, True),  # half of the time
    ],
)
def test_a_burn_in_takes_its_part_of_the_time(asked: int | None, done: int, seconds: float, ends: bool) -> None:
    plan = ChainPlan(4, 1000, 100)
    chains = CpuChains(WEAK.structure, num_chains=4, seed=0)
    run = sampling_run.ChainRun(WEAK, chains, plan, Gibbs(burn_in=asked), False, np.zeros(0, dtype=np.int64))
    run.done = done - plan.burn_in
    run.seconds = seconds
    assert run._burns_too_long(Stopped(10.0, seconds), 1.0) is ends
