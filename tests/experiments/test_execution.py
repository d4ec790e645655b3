from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastmix.experiments.execution import CrashError, LocalPool, SharedExecutor, cluster, run_in_order

sys.path.insert(0, str(Path(__file__).parent))  # spawned workers inherit the path and import the tasks by name
import tasks


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    pool = LocalPool(2)
    yield pool
    pool.close()


def test_results_come_in_order(pool: LocalPool) -> None:
    assert list(run_in_order(tasks.double, range(20), pool)) == [2 * x for x in range(20)]
    assert list(run_in_order(tasks.double, [], pool)) == []


def test_an_exception_is_a_result(pool: LocalPool) -> None:
    results = list(run_in_order(tasks.fail_on_three, range(6), pool))
    assert isinstance(results[3], RuntimeError)
    assert [r for k, r in enumerate(results) if k != 3] == [0, 1, 2, 4, 5]


def test_a_process_that_dies_takes_only_its_task_with_it(pool: LocalPool) -> None:
    results = list(run_in_order(tasks.die_on_three, range(8), pool))
    assert isinstance(results[3], CrashError)
    assert [r for k, r in enumerate(results) if k != 3] == [0, 1, 2, 4, 5, 6, 7]


def test_a_process_killed_from_outside_is_replaced(pool: LocalPool, tmp_path: Path) -> None:
    marker = str(tmp_path / "died")
    assert list(run_in_order(tasks.die_once, [(x, marker) for x in range(6)], pool)) == list(range(6))
    assert os.path.exists(marker)


def test_workers_have_one_thread_and_leave_the_environment_alone(pool: LocalPool) -> None:
    before = dict(os.environ)
    results = list(run_in_order(tasks.threads, range(20), pool))
    assert {threads for _, threads, _ in results} == {"1"}
    assert len({process for process, _, _ in results}) == 2
    assert all(deaf for _, _, deaf in results)  # to Ctrl-C, which is for the process that collects the results
    assert dict(os.environ) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_any_executor_will_do() -> None:
    with ThreadPoolExecutor(3) as executor:
        assert list(run_in_order(tasks.double, range(9), SharedExecutor(executor))) == [2 * x for x in range(9)]


def test_stopping_early_cancels_the_rest() -> None:
    started = []

    def note(x: int) -> int:
        started.append(x)
        return tasks.double(x)

    with ThreadPoolExecutor(1) as executor:
        results = run_in_order(note, range(50), SharedExecutor(executor))
        next(results)
        results.close()
    assert len(started) < 10


def test_a_broken_executor_of_the_caller_is_reported() -> None:
    class Broken:
        def submit(self, *arguments: Any) -> Future[Any]:
            raise BrokenExecutor("gone")

    with pytest.raises(BrokenExecutor):
        list(run_in_order(tasks.double, [1], SharedExecutor(Broken())))  # type: ignore[arg-type]


class KilledWorker(Exception):  # noqa: N818, the name is Dask's
    pass


class Given:
    """An executor whose futures have what they are given, in turn."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)

    def submit(self, function: Any, argument: Any) -> Future[Any]:
        future: Future[Any] = Future()
        outcome = self.outcomes.pop(0)
        if outcome == "cancelled":
            future.cancel()
        elif isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(function(argument))
        return future


def test_what_an_executor_cancels_is_no_crash() -> None:
    executor: Any = Given(None, "cancelled", OSError("the connection was closed"), None)
    results = list(run_in_order(tasks.double, range(4), SharedExecutor(executor)))
    assert [type(result).__name__ for result in results] == ["int", "CancelledError", "OSError", "int"]


def test_a_task_that_dask_gave_up_is_tried_once_more() -> None:
    executor: Any = Given(KilledWorker("four died"), None, None)
    assert list(run_in_order(tasks.double, [3, 4], SharedExecutor(executor))) == [6, 8]
    executor = Given(KilledWorker("four died"), None, KilledWorker("four more"))
    results = list(run_in_order(tasks.double, [3, 4], SharedExecutor(executor)))
    assert isinstance(results[0], CrashError)
    assert results[1] == 8


def test_bad_numbers_and_addresses() -> None:
    with pytest.raises(ValueError, match="num_workers must be"):
        LocalPool(0)
    pytest.importorskip("distributed")
    with pytest.raises(ValueError, match="scheduler must be the address"), cluster("not an address"):
        pass
