from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pool_tasks
from fastmix import sample, temper
from fastmix.executors import CrashError, LostError, Pool, SilentError, processes, run_in_order
from fastmix.experiments import EXPERIMENTS, Progress, cluster, run_experiment
from fastmix.instances import ising_grid
from fastmix.results import Status

sys.path.insert(0, str(Path(__file__).parent / "experiments"))
import experiment_helpers as helpers


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(2)
    yield pool
    pool.close()


def test_results_come_in_order(pool: Pool) -> None:
    assert list(run_in_order(pool_tasks.double, range(20), pool)) == [2 * x for x in range(20)]
    assert list(run_in_order(pool_tasks.double, [], pool)) == []
    with ThreadPoolExecutor(3) as executor:
        assert list(run_in_order(pool_tasks.double, range(9), Pool(executor=executor))) == [2 * x for x in range(9)]


def test_workers_have_one_thread_and_leave_the_environment_alone(pool: Pool) -> None:
    before = dict(os.environ)
    results: list[Any] = list(run_in_order(pool_tasks.threads, range(12), pool))
    assert {threads for _, threads, _ in results} == {"1"}
    assert len({process for process, _, _ in results}) == 2
    assert all(deaf for _, _, deaf in results)  # to Ctrl-C, which is for the process that collects the results
    assert dict(os.environ) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_process_that_dies_takes_only_its_task_with_it(pool: Pool, tmp_path: Path) -> None:
    results = list(run_in_order(pool_tasks.die_on_three, range(8), pool))
    assert isinstance(results[3], CrashError)
    assert [r for k, r in enumerate(results) if k != 3] == [0, 1, 2, 4, 5, 6, 7]
    marker = str(tmp_path / "died")  # killed from outside: replaced
    assert list(run_in_order(pool_tasks.die_once, [(x, marker) for x in range(6)], pool)) == list(range(6))
    assert os.path.exists(marker)


def test_stopping_early_cancels_the_rest() -> None:
    started = []

    def note(x: int) -> float:
        started.append(x)
        return pool_tasks.double(x)

    with ThreadPoolExecutor(1) as executor:
        results = run_in_order(note, range(50), Pool(executor=executor))
        next(results)
        results.close()
    assert len(started) < 10


class KilledWorker(Exception):  # noqa: N818, the name is Dask's
    pass


class Given(Executor):
    """An executor whose futures have what they are given, in turn."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(function(*arguments, **options))
        return future


@pytest.mark.parametrize("error", [CancelledError(), OSError("closed"), BrokenExecutor("gone"), RuntimeError("three")])
def test_what_an_executor_raises_is_no_result(error: Exception) -> None:
    results = run_in_order(pool_tasks.double, range(4), Pool(executor=Given(None, error, None, None)))
    assert next(results) == 0
    with pytest.raises(LostError, match=type(error).__name__):
        next(results)


def test_a_task_that_dask_gave_up_is_tried_once_more() -> None:
    given = Given(KilledWorker("four died"), None, None)
    assert list(run_in_order(pool_tasks.double, [3, 4], Pool(executor=given))) == [6, 8]
    given = Given(KilledWorker("four died"), None, KilledWorker("four more"))
    results = list(run_in_order(pool_tasks.double, [3, 4], Pool(executor=given)))
    assert isinstance(results[0], CrashError)
    assert results[1] == 8


def test_bad_numbers_and_addresses() -> None:
    with pytest.raises(ValueError, match=r"^num_workers .*0$"):
        Pool(0)
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=r"^cluster must"), cluster("not an address"):
        pass


# -- a cluster ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["silent", "web"])
def no_scheduler(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of something that takes connections and is no scheduler: it never says a word, or those of the web."""
    pytest.importorskip("distributed")
    open_ones = []

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = server.accept()
                open_ones.append(connection)
                if request.param == "web":
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in open_ones:
        connection.close()


@pytest.mark.timeout(12)  # with the 15 s of callers without a limit it does not end
@pytest.mark.filterwarnings("ignore")  # of the library, about its own insides
def test_who_waits_for_a_scheduler_says_for_how_long(no_scheduler: str) -> None:
    with pytest.raises(ValueError, match=f"^cluster must .*{no_scheduler}"), cluster(no_scheduler, patience=0.5):
        pass


def test_a_command_that_finds_no_scheduler_says_so_in_one_line(no_scheduler: str, tmp_path: Path) -> None:
    (tmp_path / "model.uai").write_text("MARKOV\n1\n2\n1\n1 0\n2\n 1 3\n")
    words = ["sample", "model.uai", "--cluster", no_scheduler, "--time-limit", "2"]
    done = subprocess.run([sys.executable, "-m", "fastmix", *words], cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 2
    assert done.stdout == b""
    assert len(done.stderr.splitlines()) == 1


def test_patience_is_a_positive_number() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match=r"^patience must be"), cluster("tcp://127.0.0.1:9", patience=0.0):
        pass


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Address of a real scheduler on loopback, its process and those of two workers, each with one thread."""
    pytest.importorskip("distributed")
    contact = tmp_path / "scheduler.json"
    common = {"cwd": tmp_path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

    def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
        return subprocess.Popen(command, env={**os.environ, "PYTHONWARNINGS": "ignore"}, **common)

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


@pytest.mark.first
@pytest.mark.filterwarnings("ignore")  # of the library, about its own insides
def test_a_cluster_that_loses_a_worker_and_its_scheduler_gives_the_same_file(
    scheduler: tuple[str, list[subprocess.Popen[bytes]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    name, total = "strength-random", 4 * 2 * 2 * 2
    options: dict[str, Any] = {"num_trials": 4, "quick": True, "methods": ("loopy-bp", "gibbs"), "seed": 5}
    monkeypatch.setitem(EXPERIMENTS, name, helpers.small(name))
    run_experiment(name, tmp_path / "local", executor=helpers.InThisProcess(), **options)
    expected = (tmp_path / "local" / f"{name}.jsonl").read_bytes()
    address, processes = scheduler

    def kill(process: subprocess.Popen[bytes], progress: Progress) -> None:
        if progress.done >= total // 4:
            process.kill()

    with cluster(address) as executor:
        client: Any = executor._client  # type: ignore[attr-defined]
        client.wait_for_workers(2, timeout=60)
        result = run_experiment(
            name, tmp_path / "one", executor=executor, progress=lambda now: kill(processes[1], now), **options
        )
        assert len(client.scheduler_info()["workers"]) == 1
        assert (result.num_rows, result.num_run, result.num_failed) == (total, total, 0)
        assert (tmp_path / "one" / f"{name}.jsonl").read_bytes() == expected
        lost = run_experiment(
            name, tmp_path / "two", executor=executor, progress=lambda now: kill(processes[0], now), **options
        )
    assert lost.status == Status.INTERRUPTED
    assert "the executor failed" in lost.note
    assert total // 4 <= lost.num_rows == lost.num_run < total
    assert lost.num_failed == 0
    again = run_experiment(name, tmp_path / "two", executor=helpers.InThisProcess(), **options)
    assert (again.status, again.num_rows, again.num_run) == (Status.OK, total, total - lost.num_rows)
    assert (tmp_path / "two" / f"{name}.jsonl").read_bytes() == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the library, about its own insides
def test_chains_on_a_cluster_that_loses_a_worker_and_its_scheduler(
    scheduler: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    model = ising_grid(5, 5, coupling_max=0.7, seed=0)
    options: dict[str, Any] = {"num_chains": 32, "num_sweeps": 300, "seed": 2}
    alone, ladder = sample(model, **options), temper(model, num_sweeps=100, seed=2)
    address, processes = scheduler

    def kill(process: subprocess.Popen[bytes], progress: Progress) -> None:
        if progress.done >= 150:
            process.kill()

    with cluster(address) as executor:
        client: Any = executor._client  # type: ignore[attr-defined]
        client.wait_for_workers(2, timeout=60)
        shared = temper(model, num_sweeps=100, seed=2, executor=executor)
        assert np.array_equal(shared.node_marginals, ladder.node_marginals)
        assert (shared.log_z, "went on" in shared.stats["backend"]) == (ladder.log_z, False)
        for process, lost in ((processes[1], False), (processes[0], True)):
            shared = sample(model, executor=executor, progress=partial(kill, process), **options)
            assert np.array_equal(shared.node_marginals, alone.node_marginals)
            assert np.array_equal(shared.states, alone.states)
            assert ("this process went on" in shared.stats["backend"]) == lost


# -- what does not answer ---------------------------------------------------------------------------------------------


def freeze(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def assert_goes_on(result: Any, alone: Any) -> None:
    """The limit ended the run with what there was, made here, and the result says why."""
    assert "the executor gave no answer for" in result.stats["backend"]
    assert "this process went on" in result.stats["backend"]
    assert result.stats["seconds"] - result.stats["compile_seconds"] < 30.0
    assert np.abs(result.node_marginals - alone.node_marginals).max() < 0.1


@pytest.mark.parametrize("verb", [sample, pytest.param(temper, marks=pytest.mark.slow)])
@pytest.mark.parametrize("which", [[0], [0, 1]])
def test_frozen_workers_do_not_outlive_a_limit(verb: Any, which: list[int]) -> None:
    model = ising_grid(4, 4, coupling_max=0.3, seed=0)
    alone = verb(model, num_sweeps=2000, seed=1, progress=None)
    with processes(2) as executor:
        pool: Any = executor
        list(run_in_order(pool_tasks.double, range(4), pool))  # both have started
        freeze([pool._workers[k].pid for k in which])
        result = verb(model, time_limit=1.0, seed=1, executor=executor, progress=None)
        if len(which) == 2:  # a worker that is not frozen may have had all the work
            assert_goes_on(result, alone)
        # Workers that are frozen while they have nothing to do keep nobody from leaving.
        list(run_in_order(pool_tasks.double, range(4), pool))
        freeze([worker.pid for worker in pool._workers])


def test_frozen_workers_of_a_pool_of_the_caller() -> None:
    model = ising_grid(4, 4, coupling_max=0.3, seed=0)
    alone = sample(model, num_sweeps=2000, seed=1, progress=None)
    executor = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
    executor.submit(abs, -1).result()
    pids = list(executor._processes)
    try:
        freeze(pids)
        assert_goes_on(sample(model, time_limit=1.0, seed=1, executor=executor, progress=None), alone)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        executor.shutdown()


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.parametrize("in_all", [False, True])
def test_patience_is_for_silence(in_all: bool) -> None:
    """Tasks that come back one by one are waited for, unless all of them together have a limit."""
    with ThreadPoolExecutor(1) as executor:
        pool = Pool(executor=executor)
        results = run_in_order(sleep, [0.15] * 8, pool, patience=0.6, in_all=in_all)
        if not in_all:
            assert list(results) == [0.15] * 8
        else:
            with pytest.raises(SilentError, match=r"no answer for 0\.6 s"):
                list(results)


def test_errors_of_tasks_are_no_silence() -> None:
    given = Given(TimeoutError("of the task"))
    with pytest.raises(LostError, match="TimeoutError"):
        list(run_in_order(pool_tasks.double, [1], Pool(executor=given), patience=5.0))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the library, about its own insides
def test_a_cluster_without_workers_and_a_frozen_scheduler(
    scheduler: tuple[str, list[subprocess.Popen[bytes]]],
) -> None:
    model = ising_grid(4, 4, coupling_max=0.3, seed=0)
    alone = sample(model, num_sweeps=2000, seed=1, progress=None)
    address, started = scheduler
    begun = time.monotonic()
    with cluster(address) as executor:
        executor._client.wait_for_workers(2, timeout=60)  # type: ignore[attr-defined]
        freeze([worker.pid for worker in started[1:]])
        assert_goes_on(sample(model, time_limit=2.0, seed=1, executor=executor, progress=None), alone)
        for worker in started[1:]:
            worker.kill()
        assert_goes_on(sample(model, time_limit=2.0, seed=1, executor=executor, progress=None), alone)
        freeze([started[0].pid])
        assert_goes_on(sample(model, time_limit=2.0, seed=1, executor=executor, progress=None), alone)
    with pytest.raises(ValueError, match=r"^cluster must"), cluster(address):
        pass
    assert time.monotonic() - begun < 120.0
