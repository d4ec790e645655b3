"""Where work goes past this process: processes of this machine, a Dask cluster, or any executor.

``executor=`` of :func:`fastmix.sample`, :func:`fastmix.temper`, :func:`fastmix.infer` and
:func:`fastmix.experiments.run_experiment` takes what :func:`processes` or :func:`cluster` gives.
"""

from __future__ import annotations

import contextlib
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
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, TypeVar

from fastmix._checks import check_count, check_positive, count_processors, require

__all__ = [
    "CrashError", "LostError", "Pool", "SilentError", "as_pool", "cluster", "count_processors", "processes",
    "run_in_order",
]  # fmt: skip

T = TypeVar("T")
R = TypeVar("R")

_THREAD_VARIABLES = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# None of these is measured by a script: they bound waiting, and change no answer.

#: Workers of one pool at most.
MAX_WORKERS = 1024
#: Tasks in hand for every worker: enough to keep all busy while an early one takes its time.
TASKS_AHEAD_PER_WORKER = 8
#: Seconds between two looks at which of the tasks in hand have come back.
POLL_SECONDS = 0.2
#: Seconds in which a scheduler must answer, where the caller has no time limit, and at most.
CONNECT_SECONDS = 15.0
#: Share of that time after which Dask itself gives up, and says why.
DASK_CONNECT_SHARE = 2.0 / 3.0
#: Seconds in which a worker without a task, or a scheduler, must end.
CLOSE_SECONDS = 5.0


class CrashError(RuntimeError):
    """The process that ran a task died twice: the task is to blame."""


class LostError(RuntimeError):
    """The executor died or dropped a task; no task is to blame."""


class SilentError(LostError):
    """No task came back in time: a worker or the scheduler is frozen, or the cluster has no workers."""


class Pool(Executor):
    """Processes on this machine, one thread each, started afresh after a crash; or an executor of the caller.

    Attributes
    ----------
    num_workers : int
        Processes of a pool without an executor of the caller; as many as processors by default.
    ours : bool
        Whether the workers belong to this pool. It starts, counts and stops no workers of an executor of the caller.
        Its own are spawned, which is safe beside threads and the same on every system.
    ahead : int or float
        Tasks that the pool takes at once.
    """

    def __init__(self, num_workers: int | None = None, executor: Executor | None = None) -> None:
        if num_workers is not None:
            num_workers = check_count("num_workers", num_workers, least=1, most=MAX_WORKERS)
        self.num_workers = num_workers or count_processors()
        self.ours = executor is None
        self.ahead = TASKS_AHEAD_PER_WORKER * self.num_workers if self.ours else math.inf
        self._executor = executor
        self._workers: list[Any] = []
        self._futures: list[Future[Any]] = []  # tasks of our workers that may be under way

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Hand over one task, and start a worker for it if there are fewer than there should be."""
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
        """Stop our workers: after their tasks, or ``now``, in the middle of them. The next task starts others."""
        if not self.ours or self._executor is None:
            return
        if not now:
            self._executor.shutdown(wait=False, cancel_futures=True)
            wait_for_all(self._futures)
            deadline = time.monotonic() + CLOSE_SECONDS
            for worker in self._workers:
                worker.join(max(0.0, deadline - time.monotonic()))
        for worker in self._workers:
            worker.kill()  # one that is frozen hears nothing else; for one that has ended it means nothing
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None
        self._workers = []
        self._futures = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002
        """Stop our workers after their tasks."""
        self.close()


def as_pool(executor: Any) -> Pool:
    """A pool of the workers of an argument ``executor``; a ValueError if that is no executor."""
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
        Number of processes; as many as there are processors by default.

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


# -- running tasks ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patience:
    """How long results are waited for."""

    seconds: float | None = None  # None: for ever
    since: float | None = None  # the moment from which they count; None: anew whenever a task comes back


def run_in_order(
    function: Callable[[T], R], tasks: Iterable[T], pool: Pool, *, patience: float | None = None, in_all: bool = False
) -> Generator[R | CrashError, None, None]:
    """Results of a function on every task, in the order of the tasks, whichever finishes first.

    Parameters
    ----------
    function : callable
        Importable by name where the pool runs it. It keeps its own errors in its results.
    tasks : iterable
        They are taken from it when they are handed over.
    pool : Pool
        Where the tasks run.
    patience : float, optional
        Seconds without any result after which a :class:`SilentError` is raised, and our own workers are stopped; for
        ever by default.
    in_all : bool
        Whether these are the seconds for all tasks together.

    Yields
    ------
    object
        The result of a task. A task whose process dies is tried once more, alone; if the process dies again the result
        is a :class:`CrashError`, and the others go on.

    Raises
    ------
    SilentError
        Where the patience is over.
    LostError
        Where the executor fails for reasons of its own.
    """
    waiting = iter(tasks)
    limit = Patience(patience, time.monotonic() if in_all else None)
    # In the order of the tasks; without a future: was in hand when a process died, to be run alone.
    in_hand: deque[tuple[T, Future[R] | None]] = deque()
    try:
        while True:
            _submit_ahead(function, waiting, in_hand, pool)
            if not in_hand:
                return
            task, future = in_hand.popleft()
            was_lost = future is None
            result: Any = None
            if future is not None:
                result = _result(future, [other for _, other in in_hand], limit)
                if isinstance(result, BrokenExecutor) and pool.ours:
                    _restart(pool, in_hand)
                    was_lost = True
            if was_lost:
                result = _run_alone(function, task, pool, tries=2, patience=patience)
            elif _killed_workers(result):
                # Dask gives a task up when some workers have died with it in hand, its fault or not: one more time.
                result = _run_alone(function, task, pool, tries=1, patience=patience)
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
        for _, future in in_hand:
            if future is not None:
                with contextlib.suppress(Exception):  # a cluster that is gone cannot be told
                    future.cancel()


def _submit_ahead(
    function: Callable[[T], R], waiting: Iterator[T], in_hand: deque[tuple[T, Future[R] | None]], pool: Pool
) -> None:
    """Hand over as many tasks as the pool takes; none while one of those in hand may have killed a process."""
    while len(in_hand) < pool.ahead and all(future is not None for _, future in in_hand):
        try:
            task = next(waiting)
        except StopIteration:
            return
        try:
            in_hand.append((task, pool.submit(function, task)))
        except BrokenExecutor:
            if not pool.ours:
                raise
            if not in_hand:
                pool.close(now=True)
            in_hand.append((task, None))  # the results of the others tell what happened; then alone


def _restart(pool: Pool, in_hand: deque[tuple[Any, Future[Any] | None]]) -> None:
    """Stop the workers of a pool after a crash; tasks in hand without a result are to be run alone."""
    pool.close(now=True)
    for k, (task, future) in enumerate(in_hand):
        is_whole = future is not None and future.done() and not isinstance(_result(future), Exception)
        in_hand[k] = (task, future if is_whole else None)


def _result(future: Future[Any], others: Iterable[Future[Any] | None] = (), limit: Patience | None = None) -> Any:
    """The result of a task, or the exception in its place.

    A :class:`SilentError` is raised where neither the task nor any of the others comes back within the limit.
    """
    patience = None if limit is None else limit.seconds
    if limit is not None and patience is not None:
        _wait(future, [other for other in others if other is not None], patience, limit.since)
    try:
        return future.result(patience)
    except TimeoutError as error:  # raised by the task; or by Dask, where a worker does not hand over its result
        if getattr(future, "status", "") == "finished":
            raise SilentError(f"a worker did not hand over its result for {patience:.3g} s") from None
        return error
    except Exception as error:
        return error


def _wait(future: Future[Any], others: list[Future[Any]], patience: float, since: float | None) -> None:
    """Wait until a task is done, as long as some task in hand comes back within the patience."""
    num_finished = 0
    last = time.monotonic() if since is None else since  # when the seconds began to count
    while not future.done():
        now = time.monotonic()
        count = sum(other.done() for other in others)
        if count > num_finished:
            num_finished = count
            last = now if since is None else since
        if now - last > patience:
            total = 1 + len(others)
            missing = total - num_finished
            raise SilentError(f"the executor gave no answer for {patience:.3g} s ({missing} of {total} tasks in hand)")
        with contextlib.suppress(Exception):  # an error of the task is looked at when it is done
            future.result(min(POLL_SECONDS, patience))


def _killed_workers(error: Any) -> bool:
    """Whether an exception is Dask's KilledWorker; Dask need not be installed."""
    return type(error).__name__ == "KilledWorker"


def _run_alone(function: Callable[[T], R], task: T, pool: Pool, *, tries: int, patience: float | None) -> R | Exception:
    """The result of one task with nothing else in hand, so that the cause of a crash is known."""
    for _ in range(tries):
        result: R | Exception = _result(pool.submit(function, task), limit=Patience(patience))
        if isinstance(result, BrokenExecutor) and pool.ours:
            pool.close(now=True)
        elif not _killed_workers(result):
            return result
    return CrashError(
        "the process that ran this task died twice (killed, out of memory, or started from a script without "
        'if __name__ == "__main__":)'
    )


# -- clusters ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def cluster(address: str, *, patience: float | None = None) -> Iterator[Executor]:
    """An executor on a running Dask cluster.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``tcp://127.0.0.1:8786``. Its workers need fastmix, and one thread each where
        seconds shall mean something (``dask worker ADDRESS --nthreads 1``).
    patience : float, optional
        Seconds in which the scheduler must answer, 15 at most and by default: the time limit of the work there.

    Raises
    ------
    ImportError
        If Dask is not installed; the message names the extra.
    ValueError
        If nothing answers at the address, or something that is no scheduler.
    """
    if patience is not None:
        patience = check_positive("patience", patience, "number of seconds")
    seconds = CONNECT_SECONDS if patience is None else min(patience, CONNECT_SECONDS)
    distributed = require("distributed", extra="cluster", purpose="a cluster")
    try:
        # A client of an address that is none is closed only when the process ends, with a traceback.
        distributed.comm.get_address_host_port(address if "://" in address else f"tcp://{address}", strict=True)
        client = _connect(distributed, address, seconds)
    except (OSError, ValueError, MemoryError) as error:  # Dask takes the words of a web server for an enormous size
        raise ValueError(f"cluster must be the address of a running Dask scheduler, got {address!r}: {error}") from None
    try:
        yield _ClusterExecutor(client)
    finally:
        with contextlib.suppress(Exception):  # a scheduler that is frozen or gone cannot be told
            client.close(timeout=CLOSE_SECONDS)


def _connect(distributed: Any, address: str, seconds: float) -> Any:
    """A client of a scheduler; a TimeoutError, which is an OSError, if the scheduler does not answer in time.

    Dask's own limit does not hold for a scheduler that accepts a connection and then is silent.
    """
    found: Future[Any] = Future()

    def connect() -> None:
        client = distributed.Client.__new__(distributed.Client)
        try:
            client.__init__(address, set_as_default=False, timeout=DASK_CONNECT_SHARE * seconds)
        except BaseException as error:
            # One that is left half made is closed when the process ends, with a traceback.
            with contextlib.suppress(Exception):
                client.close(timeout=CLOSE_SECONDS)
            found.set_exception(error)
        else:
            found.set_result(client)

    threading.Thread(target=connect, daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError as error:
        if str(error):  # Dask's own, with its reason
            raise
        raise TimeoutError(f"no answer for {seconds:g} s") from None


class _ClusterExecutor(Executor):
    """An executor whose futures are Dask's own, which are similar enough to those of the standard library.

    The futures of ``Client.get_executor`` wait for ever when the scheduler dies while a result is on its way.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        """Hand over one task."""
        # Not pure: a task has its own identity, and must not be answered from a cache of the scheduler.
        future: Future[Any] = self._client.submit(function, *arguments, pure=False, **options)
        return future


# -- processes --------------------------------------------------------------------------------------------------------


def _start_worker() -> None:
    """Prepare a new worker: deaf to Ctrl-C, and gone with the process that started it."""
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
    """Let processes that are started within be deaf to Ctrl-C, and use one thread for linear algebra.

    There is a process for every core already. A Ctrl-C meanwhile reaches this process afterwards.
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
