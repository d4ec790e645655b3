from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastmix.experiments import EXPERIMENTS, Progress, cluster, run_experiment
from fastmix.experiments.journal import Journal
from fastmix.results import Status

pytest.importorskip("distributed")
pytest.importorskip("matplotlib")

OPTIONS: dict[str, Any] = {"trials": 2, "quick": True, "methods": ("loopy-bp", "gibbs"), "seed": 5}
NUM_ROWS = 2 * 3 * 2 * 5 * 2


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Address of a real scheduler on loopback, its process and those of two workers, each with one thread."""
    contact = tmp_path / "scheduler.json"
    common = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}

    def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
        return subprocess.Popen(command, env=environment, **common)  # type: ignore[call-overload]

    processes = [start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(contact))]
    try:
        deadline = time.monotonic() + 60
        while not contact.exists() or not contact.read_text().strip():
            assert processes[0].poll() is None, "the scheduler did not start"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        address = json.loads(contact.read_text())["address"]
        # Without a nanny a killed worker stays dead.
        arguments = (address, "--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path))
        processes += [start("dask_worker", *arguments) for _ in range(2)]
        yield address, processes
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@pytest.mark.filterwarnings("ignore")  # of the library, about its own insides
def test_a_cluster_that_loses_a_worker_gives_the_same_file(
    scheduler: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "strength-random"
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], figures=lambda settings, rows: []))
    with ThreadPoolExecutor(1) as executor:
        run_experiment(name, tmp_path / "local", executor=executor, **OPTIONS)
    address, (_, *workers) = scheduler
    killed = []

    def kill_one(progress: Progress) -> None:
        if progress.done >= NUM_ROWS // 4 and not killed:
            workers[0].kill()
            killed.append(progress.done)

    with cluster(address) as executor:
        client = executor._client
        client.wait_for_workers(2, timeout=60)
        result = run_experiment(name, tmp_path / "cluster", executor=executor, progress=kill_one, **OPTIONS)
        assert len(client.scheduler_info()["workers"]) == 1
    assert killed
    assert killed[0] < NUM_ROWS
    assert (result.num_rows, result.num_run, result.num_failed) == (NUM_ROWS, NUM_ROWS, 0)
    local, remote = (tmp_path / folder / f"{name}.jsonl" for folder in ("local", "cluster"))
    assert local.read_bytes() == remote.read_bytes()
    assert len(Journal(tmp_path / "cluster", name).read()) == NUM_ROWS


@pytest.mark.filterwarnings("ignore")
def test_rows_lost_with_the_scheduler_run_again(
    scheduler: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "strength-random"
    monkeypatch.setitem(EXPERIMENTS, name, replace(EXPERIMENTS[name], figures=lambda settings, rows: []))
    address, processes = scheduler

    def kill_scheduler(progress: Progress) -> None:
        if progress.done >= NUM_ROWS // 4:
            processes[0].kill()

    with cluster(address) as executor:
        executor._client.wait_for_workers(2, timeout=60)
        lost = run_experiment(name, tmp_path / "cluster", executor=executor, progress=kill_scheduler, **OPTIONS)
    assert lost.status == Status.INTERRUPTED
    assert "the executor failed" in lost.note
    assert NUM_ROWS // 4 <= lost.num_rows == lost.num_run < NUM_ROWS
    assert lost.num_failed == 0
    with ThreadPoolExecutor(1) as executor:
        again = run_experiment(name, tmp_path / "cluster", executor=executor, **OPTIONS)
        run_experiment(name, tmp_path / "local", executor=executor, **OPTIONS)
    assert (again.status, again.num_rows, again.num_failed) == (Status.OK, NUM_ROWS, 0)
    assert again.num_run == NUM_ROWS - lost.num_rows
    local, remote = (tmp_path / folder / f"{name}.jsonl" for folder in ("local", "cluster"))
    assert local.read_bytes() == remote.read_bytes()
