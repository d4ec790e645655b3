"""Where work goes past this process: processes of this machine, a Dask cluster, or any executor.

``executor=`` of :func:`fastmix.sample`, :func:`fastmix.temper`, :func:`fastmix.infer` and
:func:`fastmix.experiments.run_experiment` takes what :func:`processes` or :func:`cluster` gives.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_all
from multiprocessing.connection import wait
from typing import Any, TypeVar

from fastmix._checks import check_count, count_processors, require

__all__ = [
    "CrashError", "LostError", "Pool", "SilentError", "as_pool", "cluster", "count_processors", "processes",
    "run_in_order",
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")

_THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_MOST_WORKERS = 1024
_AHEAD = 8  # tasks in hand for every worker: enough to keep all busy while an early one takes its time
_GLANCE = 0.2  # seconds between two looks at what else has come back
_WELCOME = 10.0  # seconds in which a scheduler is to answer
_FAREWELL = 5.0  # seconds in which a worker without a task, or a scheduler, is to end


class CrashError(RuntimeError):
    """The process that ran a task died, again and again: that is a result of the task."""


class LostError(RuntimeError):
    """What runs the tasks is gone, or gave one up for reasons of its own: that is no result of any task."""


class SilentError(LostError):
    """Nothing came back for as long as could be waited: a frozen worker or scheduler, or a cluster without workers."""


class Pool(Executor):
    """Processes on this machine, one thread each, started afresh after a crash; or an executor of the caller.

    By default there are as many as processors; the workers of an executor are not ours to count, start or stop. Ours
    are spawned, which is safe beside threads and the same on every system.
    """

    def __init__(self, num_workers: int | None = None, executor: Executor | None = None) -> None:
        if num_workers is not None:
            num_workers = check_count("num_workers", num_workers, least=1, most=_MOST_WORKERS)
        self.num_workers = num_workers or count_processors()
        self.ours = executor is None
        self.ahead = _AHEAD * self.num_workers if self.ours else math.inf  # tasks that it takes at once
        self._executor = executor
        self._workers: list[Any] = []
        self._futures: list[Future[Any]] = []  # of our workers, those that may be under way

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Hand over one task; any of the first may start a worker."""
        if self._executor is None:
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.num_workers, mp_context=context, initializer=_start_worker)
        if not self.ours:
            return self._executor.submit(function, *arguments, **options)
        self._futures = [future for future in self._futures if not future.done()]
        before = set(multiprocessing.active_children())
        with _quiet_and_single_threaded():
            future = self._executor.submit(function, *arguments, **options)
        self._workers += [child for child in multiprocessing.active_children() if child not in before]
        self._futures.append(future)
        return future

    def close(self, *, now: bool = False) -> None:
        """Stop our workers, ``now`` also in the middle of a task; the next task starts others."""
        if not self.ours or self._executor is None:
            return
        if not now:
            self._executor.shutdown(wait=False, cancel_futures=True)
            wait_for_all(self._futures)
            deadline = time.monotonic() + _FAREWELL
            for worker in self._workers:
                worker.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            worker.kill()  # one that is frozen hears nothing else; for one that has ended it means nothing
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor, self._workers, self._futures = None, [], []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Stop our workers."""
        self.close()


def as_pool(executor: Any) -> Pool:
    """What an argument ``executor`` stands for; a ValueError if that is no executor."""
    if isinstance(executor, Pool):
        return executor
    if not callable(getattr(executor, "submit", None)):
        raise ValueError(
            "executor must be one of concurrent.futures, or what fastmix.executors.processes or .cluster gives, got "
            f"{type(executor).__name__}"
        )
    return Pool(executor=executor)


@contextlib.contextmanager
def processes(num_workers: int | None = None) -> Iterator[Executor]:
    """An executor of processes on this machine, one thread each; one that dies is replaced.

    They are spawned, so that a script that uses them must guard its own work with ``if __name__ == "__main__":``.

    Parameters
    ----------
    num_workers : int, optional
        As many as there are processors by default.

    Examples
    --------
    >>> with processes(2) as executor:
    ...     executor.submit(abs, -3).result()
    3
    """
    pool = Pool(num_workers)
    try:
        yield pool
    except BaseException:
        pool.close(now=True)
        raise
    pool.close()


def run_in_order(
    function: Callable[[T], R], tasks: Iterable[T], pool: Pool, *, patience: float | None = None, in_all: bool = False
) -> Generator[R | CrashError, None, None]:
    """Results of a function on every task, in the order of the tasks, whichever finishes first.

    Tasks are taken from an iterator when they are handed over. A :class:`SilentError` once none of those in hand has
    come back for ``patience`` seconds, or ``in_all`` after so many seconds altogether; our own workers are stopped
    then. Without a number it waits for ever.

    The function, importable by name where the pool runs it, keeps its own errors in its results. A task whose process
    dies is tried once more, alone; if the process dies again its result is a :class:`CrashError`, and the others go on.
    """
    waiting, begun = iter(tasks), time.monotonic() if in_all else None
    flying: deque[tuple[T, Future[R] | None]] = deque()  # None: was in hand when a process died, to be run alone
    try:
        while True:
            _submit_ahead(function, waiting, flying, pool)
            if not flying:
                return
            task, future = flying.popleft()
            result = _result(future, flying, patience, begun)
            if isinstance(result, BrokenExecutor) and pool.ours:
                pool.close(now=True)
                for k, (other, pending) in enumerate(flying):
                    whole = pending is not None and pending.done() and not isinstance(_result(pending), Exception)
                    flying[k] = other, pending if whole else None
                result = None
            if result is None or _killed_workers(result):
                # Dask gives a task up when some workers have died with it in hand, its fault or not: one more time.
                result = _alone(function, task, pool, tries=2 if result is None else 1, patience=patience)
            if isinstance(result, Exception) and not isinstance(result, CrashError):
                raise result
            yield result
    except SilentError:
        pool.close(now=True)
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
        raise LostError(f"the executor failed ({reason})") from error
    finally:
        for _, future in flying:
            if future is not None:
                with contextlib.suppress(Exception):  # a cluster that is gone cannot be told
                    future.cancel()


def _submit_ahead(
    function: Callable[[T], R], waiting: Iterator[T], flying: deque[tuple[T, Future[R] | None]], pool: Pool
) -> None:
    """Hand over as many tasks as the pool takes; none while one of those in hand may have killed a process."""
    while len(flying) < pool.ahead and all(future is not None for _, future in flying):
        for task in itertools.islice(waiting, 1):
            try:
                flying.append((task, pool.submit(function, task)))
            except BrokenExecutor:
                if not pool.ours:
                    raise
                if not flying:
                    pool.close(now=True)
                flying.append((task, None))  # the results of the others tell what happened; then alone
            break
        else:
            return


def _result(
    future: Future[Any] | None,
    others: Iterable[tuple[Any, Any]] = (),
    patience: float | None = None,
    begun: float | None = None,
) -> Any:
    """The result, or the exception in its place; None for a task that is yet to be run alone.

    A :class:`SilentError` is raised once neither it nor any of the others has come back for ``patience`` seconds, or
    so many seconds after all of them were ``begun``.
    """
    if future is None:
        return None
    if patience is not None:
        _wait(future, [other for _, other in others if other is not None], patience, begun)
    try:
        return future.result(patience)
    except TimeoutError as error:  # of a task; or of Dask, where a worker that had the result does not give it away
        if getattr(future, "status", "") == "finished":
            raise SilentError(f"a worker did not hand over its result for {patience:.3g} s") from None
        return error
    except Exception as error:
        return error


def _wait(future: Future[Any], others: list[Future[Any]], patience: float, begun: float | None) -> None:
    """Wait until a task is done, for as long as any of those in hand comes back within the patience."""
    finished, since = 0, time.monotonic() if begun is None else begun
    while not future.done():
        now = time.monotonic()
        count = sum(other.done() for other in others)
        if count > finished:
            finished = count
            since = now if begun is None else begun
        if now - since > patience:
            missing, total = 1 + len(others) - finished, 1 + len(others)
            raise SilentError(f"the executor gave no answer for {patience:.3g} s ({missing} of {total} tasks in hand)")
        with contextlib.suppress(Exception):  # what it raises is looked at when it is done
            future.result(min(_GLANCE, patience))


def _killed_workers(error: Any) -> bool:
    return type(error).__name__ == "KilledWorker"  # of Dask, which need not be installed


def _alone(function: Callable[[T], R], task: T, pool: Pool, *, tries: int, patience: float | None) -> R | Exception:
    """One task with nothing else in hand, so that it is known what a crash is due to."""
    for _ in range(tries):
        result = _result(pool.submit(function, task), patience=patience)
        if isinstance(result, BrokenExecutor) and pool.ours:
            pool.close(now=True)
        elif not _killed_workers(result):
            return result
    return CrashError(
        "the process that ran this task died twice (killed, out of memory, or started from a script without "
        'if __name__ == "__main__":)'
    )


@contextlib.contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """An executor on a running Dask cluster.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``tcp://127.0.0.1:8786``. Its workers need fastmix, and one thread each where seconds
        shall mean something (``dask worker ADDRESS --nthreads 1``).

    Raises
    ------
    ImportError
        If Dask is not installed; the message names the extra.
    ValueError
        If nothing answers at the address.
    """
    distributed = require("distributed", extra="cluster", purpose="a cluster")
    try:
        # A client of an address that is none is closed only when the process ends, with a traceback.
        distributed.comm.get_address_host_port(address if "://" in address else f"tcp://{address}", strict=True)
        client = _connect(distributed, address)
    except (OSError, ValueError) as error:
        raise ValueError(f"cluster must be the address of a running Dask scheduler, got {address!r}: {error}") from None
    try:
        yield _ClusterExecutor(client)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is frozen or gone cannot be told
            client.close(timeout=_FAREWELL)


def _connect(distributed: Any, address: str) -> Any:
    """A client of a scheduler; a TimeoutError, which is an OSError, if it does not answer: Dask may wait for ever."""
    found: Future[Any] = Future()

    def connect() -> None:
        try:
            found.set_result(distributed.Client(address, set_as_default=False, timeout=_WELCOME))
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        return found.result(1.5 * _WELCOME)
    except TimeoutError:
        raise TimeoutError(f"no answer for {1.5 * _WELCOME:g} s") from None


class _ClusterExecutor(Executor):
    """Dask's own futures, which are enough like those of an executor.

    Those of ``Client.get_executor`` wait for ever when the scheduler dies while a result is on its way.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        # Not pure: a task has its own identity, and must not be answered from a cache of the scheduler.
        return self._client.submit(function, *arguments, pure=False, **options)


def _start_worker() -> None:
    # Ctrl-C reaches the whole group of processes; the one that collects the results decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    """End this worker when the process that started it dies: nobody would be left to stop it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextlib.contextmanager
def _quiet_and_single_threaded() -> Iterator[None]:
    """Processes started within use one thread for linear algebra: there is a process for every core already.

    They do not hear Ctrl-C from the start, and a Ctrl-C meanwhile reaches this process afterwards.
    """
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if hasattr(signal, "pthread_sigmask") else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
