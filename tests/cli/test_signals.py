"""Signals, full disks and streams that cannot be written: what there is is kept, and exit codes stay true."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, assert_refused, command, files, run_process, start_process

from fastmix import instances
from fastmix._locks import lock_file
from fastmix.io import files as io_files
from fastmix.io import write_model
from fastmix.io.files import _host, atomic_write

LONG = ["--num-sweeps", "3000000", "--burn-in", "10", "--num-chains", "64", "--seed", "1"]


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# -- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["sample", "infer --method gibbs", "infer --method projected --divergence euclidean"])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_does_not_end_a_run(
    run: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, step: str
) -> None:
    name, *rest = verb.split()
    line = [name, saved, *rest, "--num-sweeps", "500", "--seed", "1", "--json"]
    expected = json.loads(run(*line).out)
    with monkeypatch.context() as patch:
        patch.setattr(os, step, full_disk)
        outcome = run(*line, "--checkpoint", "run.ck", "--checkpoint-seconds", "0")
    assert outcome.code in (0, 1)
    assert json.loads(outcome.out)["marginals"] == expected["marginals"]
    assert len(re.findall("run.ck cannot be written .*No space left.*the run goes on", outcome.err)) == 1
    assert files(tmp_path) == {saved}


def test_a_disk_that_is_full_for_a_while(run: Run, saved: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failures = iter([True])
    replace = os.replace

    def sometimes(*arguments: Any) -> None:
        if next(failures, False):
            full_disk()
        replace(*arguments)

    monkeypatch.setattr(os, "replace", sometimes)
    line = ["sample", saved, "--num-sweeps", "10000000", "--burn-in", "1", "--seed", "1", "--checkpoint", "run.ck"]
    outcome = run(*line, "--checkpoint-seconds", "0", "--time-limit", "0.3")
    assert outcome.err.count("the run goes on") == 1
    assert Path("run.ck").exists()


@pytest.mark.parametrize("place", ["", ".", "missing/run.ck", "model.npz/run.ck", "locked"])
@pytest.mark.parametrize("verb", ["sample model.npz", "infer model.npz --method gibbs", "learn data.csv"])
def test_bad_places_of_checkpoints_are_noticed_at_the_start(run: Run, saved: str, verb: str, place: str) -> None:
    Path("data.csv").write_text("0,1\n1,0\n1,1\n")
    if place == "locked":
        place = "/proc/run.ck"
    assert_refused(run(*verb.split(), "--checkpoint", place), 2, "checkpoint|run.ck|directory")


# -- signals ----------------------------------------------------------------------------------------------------------


def stopped(folder: Path, signum: int, *words: str) -> tuple[int, str, str]:
    """Exit code and streams of a command that gets a signal once its checkpoint is there."""
    process = start_process(*words, "--checkpoint", "run.ck", "--checkpoint-seconds", "0.05", cwd=folder)
    deadline = time.monotonic() + 100
    while not (folder / "run.ck").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(3.0)  # a batch of sweeps takes less than one
    process.send_signal(signum)
    out, err = process.communicate(timeout=60)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("signum", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_signals_leave_an_answer_and_a_checkpoint(tmp_path: Path, signum: int) -> None:
    write_model(instances.ising_grid(6, 6, coupling_max=0.5, seed=0), tmp_path / "model.npz")
    code, out, err = stopped(tmp_path, signum, "sample", "model.npz", *LONG, "--json", "-o", "out.MAR")
    assert code == (143 if signum == signal.SIGTERM else 1)
    answer = json.loads(out)
    assert answer["status"] == "interrupted"
    assert answer["stats"]["stopped_by"] == "interrupt"
    assert "Traceback" not in err
    assert files(tmp_path) == {"model.npz", "run.ck", "out.MAR"}
    going_on = [
        "sample",
        "model.npz",
        *LONG,
        "--checkpoint",
        "run.ck",
        "--time-limit",
        "0.2",
        "--json",
        "-o",
        "out.MAR",
    ]
    again = run_process(*going_on, cwd=tmp_path)
    assert json.loads(again.out)["stats"]["num_sweeps"] > answer["stats"]["num_sweeps"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("trial", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 30))])
def test_signals_while_modules_are_loaded(tmp_path: Path, signum: int, trial: int) -> None:
    """From the moment that the package is entered on no signal is a traceback."""
    write_model(instances.ising_grid(3, 3, coupling_max=0.5, seed=0), tmp_path / "model.npz")
    process = start_process("infer", "model.npz", cwd=tmp_path)
    heard = Path(f"/proc/{process.pid}/status")
    while True:  # until the signal that Python itself does not hear has a handler
        caught = re.search(r"SigCgt:\s*([0-9a-f]+)", heard.read_text())
        if caught is None or int(caught[1], 16) >> (signal.SIGTERM - 1) & 1:
            break
        time.sleep(0.001)
    time.sleep(random.Random(trial).uniform(0.0, 0.6))
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err.decode()
    assert process.returncode in (0, 1 if signum == signal.SIGINT else 143)


# -- a stderr that cannot be written ----------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("infer model.uai", 0), ("infer missing.uai", 3), ("infer model.uai --method magic", 2),
     ("infer model.uai missing.uai", 3)],
)  # fmt: skip
@pytest.mark.parametrize("redirection", ["2>/dev/full", pytest.param("2>&-", marks=pytest.mark.slow)])
def test_exit_codes_do_not_depend_on_stderr(tmp_path: Path, words: str, expected: int, redirection: str) -> None:
    (tmp_path / "model.uai").write_text("MARKOV 1 2 0")
    script = ["sh", "-c", f'"$@" {redirection}', "sh", *command(*words.split())]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (expected, b"")
    assert bool(done.stdout) == (expected == 0 or "model.uai missing" in words)


# -- what killed runs leave behind ------------------------------------------------------------------------------------


def test_leftovers_of_killed_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that nobody writes any more, and nothing else."""
    monkeypatch.setattr(io_files, "SWEPT", set())
    dead, alive = (tmp_path / f".fastmix-{_host()}-{k:016x}.tmp" for k in range(2))
    others = [tmp_path / ".fastmix-00000000-0123456789abcdef.tmp", tmp_path / ".fastmix-0123456789abcdef.tmp"]
    others += [tmp_path / f".fastmix-{_host()}-x.txt", tmp_path / "x.tmp"]
    link = tmp_path / f".fastmix-{_host()}-{9:016x}.tmp"
    for path in (dead, alive, *others):
        path.write_text("half")
    link.symlink_to(others[0])
    descriptor = os.open(alive, os.O_WRONLY)
    assert lock_file(descriptor)
    with atomic_write(tmp_path / "out.txt") as stream:
        stream.write("whole")
    assert {path.name for path in tmp_path.iterdir()} == {p.name for p in (alive, link, *others)} | {"out.txt"}
    os.close(descriptor)
    monkeypatch.setattr(io_files, "SWEPT", set())
    with atomic_write(tmp_path / "out.txt") as stream:
        stream.write("whole")
    assert not alive.exists()


def test_files_that_are_being_written_are_no_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with atomic_write(tmp_path / "one.txt") as one:
        one.write("first")
        monkeypatch.setattr(io_files, "SWEPT", set())
        with atomic_write(tmp_path / "two.txt") as two:
            two.write("second")
    assert (tmp_path / "one.txt").read_text() == "first"
    assert files(tmp_path) == {"one.txt", "two.txt"}


def test_a_killed_run_leaves_nothing_for_ever(tmp_path: Path) -> None:
    write_model(instances.ising_grid(6, 6, coupling_max=0.5, seed=0), tmp_path / "model.npz")
    script = "import os, signal\nfrom fastmix.io import atomic_write\n"
    script += "with atomic_write('out.txt') as stream:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    subprocess.run([command()[0], "-c", script], cwd=tmp_path, timeout=60)
    assert len(files(tmp_path)) == 2
    assert run_process("infer", "model.npz", "-o", "out.MAR", cwd=tmp_path).code == 0
    assert files(tmp_path) == {"model.npz", "out.MAR"}
