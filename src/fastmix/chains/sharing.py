"""Chains shared out to the workers of an executor, in groups, with the same bits as in one process."""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from fastmix._clock import NO_LIMIT, Clock, add_compiled
from fastmix.chains.tuning import (
    ANSWER_REPEATS,
    ANSWER_SHARE,
    MAX_GROUPS,
    MAX_WORKER_TWINS,
    MIN_ANSWER_SECONDS,
    SHARED_STEP_SECONDS,
    SHARED_UPDATES_PER_STEP,
)
from fastmix.errors import ResourceError
from fastmix.executors import CrashError, LostError, Pool, run_in_order

__all__ = ["Sharing"]

_TWINS: dict[tuple[bytes, int], Any] = {}  # in a worker: chains that were made for the latest groups
_LOG = logging.getLogger(__name__)


class Sharing:
    """Calls of a method of chains that workers make, each on a twin that holds a group of the chains.

    A chain depends on its own random numbers only, so that neither the groups nor the workers change a bit. Nothing
    changes in this process until all groups of a call are back: a worker that dies is replaced by another, and when all
    of them are gone (``lost`` says why) this process makes the call itself.

    With a limit on the ``clock``, workers that do not answer (frozen ones, a cluster that has none) count as gone while
    there is still time to make the call here.

    Parameters
    ----------
    pool : Pool
        The workers.
    make : callable
        ``make(count)`` returns a twin with ``count`` chains and the same parameters. It is pickled once.
    num_chains : int
    least : int
        All groups but the last have a multiple of so many chains.
    clock : Clock
    """

    updates_per_step = SHARED_UPDATES_PER_STEP
    step_seconds = SHARED_STEP_SECONDS

    def __init__(
        self, pool: Pool, make: Callable[[int], Any], num_chains: int, *, least: int = 1, clock: Clock = NO_LIMIT
    ) -> None:
        self.pool = pool
        self.lost = ""  # why the workers are gone
        self._clock = clock
        self._longest = 0.0  # seconds of the longest call so far
        self._recipe = pickle.dumps(make, protocol=pickle.HIGHEST_PROTOCOL)
        self._key = hashlib.sha256(self._recipe).digest()
        size = least * -(-num_chains // (least * MAX_GROUPS))
        self.bounds = [*range(0, num_chains, max(1, size)), num_chains]

    def __str__(self) -> str:
        groups = len(self.bounds) - 1
        shared = f"{groups} group{'' if groups == 1 else 's'} of chains shared with an executor"
        if self.lost:
            return f"{shared}; {self.lost}, and this process went on"
        return shared

    def call(self, chains: Any, name: str, *arguments: Any, **options: Any) -> bool:
        """Whether workers called a method on all groups; if not, no worker is left and nothing has changed.

        Chains, or ladders of them, have ``pack(first, last)``, which returns the state of some, and ``unpack(first,
        last, parts)``, which lets some continue from such a state.
        """
        if self.lost:
            return False
        groups = list(pairwise(self.bounds))
        tasks = (
            (self._key, self._recipe, last - first, chains.pack(first, last), name, arguments, options)
            for first, last in groups
        )
        try:
            begun = self._clock.seconds()
            answers = list(run_in_order(_call, tasks, self.pool, patience=self._patience(), in_all=True))
            self._longest = max(self._longest, self._clock.seconds() - begun)
        except LostError as error:
            self.lost = str(error)
            _LOG.warning("%s: this process goes on", error)
            return False

        # Workers compile at the same time: the longest counts.
        compiled = 0.0
        for (first, last), answer in zip(groups, answers, strict=True):
            if isinstance(answer, CrashError):
                raise ResourceError(f"{answer}: try fewer chains or workers")
            chains.unpack(first, last, answer[0])
            compiled = max(compiled, answer[1])
        add_compiled(compiled)
        return True

    def _patience(self) -> float | None:
        """Seconds that an answer may take from now on; None without a limit."""
        if self._clock.limit is None:
            return None
        return max(ANSWER_SHARE * self._clock.left(), ANSWER_REPEATS * self._longest, MIN_ANSWER_SECONDS)


def _call(task: tuple[bytes, bytes, int, Any, str, tuple[Any, ...], dict[str, Any]]) -> tuple[Any, float]:
    """The new state of a group and the seconds spent compiling; this runs in a worker."""
    key, recipe, count, parts, name, arguments, options = task
    clock = Clock()
    twin = _TWINS.pop((key, count), None)
    if twin is None:
        twin = pickle.loads(recipe)(count)
        while len(_TWINS) >= MAX_WORKER_TWINS:
            del _TWINS[next(iter(_TWINS))]
    twin.unpack(0, count, parts)
    getattr(twin, name)(*arguments, **options)
    result = twin.pack(0, count)
    _TWINS[key, count] = twin  # the latest is the last to go
    return result, clock.compile_seconds()
