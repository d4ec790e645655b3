"""Chains shared out: groups of them are swept by the workers of an executor, and come back bit by bit the same."""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from fastmix._clock import NO_LIMIT, Clock, add_compiled
from fastmix.errors import ResourceError
from fastmix.executors import CrashError, LostError, Pool, run_in_order

__all__ = ["Sharing"]

_MOST_GROUPS = 32
_KEPT = 4  # twins that a worker keeps
_TWINS: dict[tuple[bytes, int], Any] = {}
# How long an answer of the workers may take where a clock has a limit: a share of what is left, which leaves time to go
# on here; but so many times as long as the longest so far, and a moment, because batches are cut to fit the rest.
_SHARE, _TIMES, _LEAST_SECONDS = 0.6, 3.0, 0.25
_LOG = logging.getLogger(__name__)


class Sharing:
    """Calls made by workers, each on a twin with a group of the chains, and put together here.

    A chain depends on its own random numbers only, so that neither the groups nor the workers change a bit. Until all
    groups of a call are back nothing here has changed: a worker that dies is replaced by another, and when all of them
    are gone (``lost`` says why) this process goes on from there. ``make(count)`` is a twin with as many chains and the
    same parameters, what it is made of is pickled once; all groups but the last have a multiple of ``least`` chains.

    With a limit on the ``clock``, workers that do not answer (frozen ones, a cluster that has none) count as gone while
    there is time to go on here.
    """

    updates_per_step, step_seconds = 1e9, 1.0  # of a call that is worth the way to a worker and back

    def __init__(
        self, pool: Pool, make: Callable[[int], Any], num_chains: int, *, least: int = 1, clock: Clock = NO_LIMIT
    ) -> None:
        self.pool, self.lost = pool, ""
        self._clock, self._longest = clock, 0.0
        self._recipe = pickle.dumps(make, protocol=pickle.HIGHEST_PROTOCOL)
        self._key = hashlib.sha256(self._recipe).digest()
        size = least * -(-num_chains // (least * _MOST_GROUPS))
        self.bounds = [*range(0, num_chains, max(1, size)), num_chains]

    def __str__(self) -> str:
        groups = len(self.bounds) - 1
        shared = f"{groups} group{'' if groups == 1 else 's'} of chains shared with an executor"
        return f"{shared}; {self.lost}, and this process went on" if self.lost else shared

    def call(self, chains: Any, name: str, *arguments: Any, **options: Any) -> bool:
        """Call a method on all groups; False, and nothing is done, if there is nobody left to do it.

        Chains, or ladders of them, have ``pack(first, last)``, all that changes about some, and ``unpack(first, last,
        parts)``, which lets some go on from what others were.
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
        compiled = 0.0
        for (first, last), answer in zip(groups, answers, strict=True):
            if isinstance(answer, CrashError):
                raise ResourceError(f"{answer}: try fewer chains or workers")
            chains.unpack(first, last, answer[0])
            compiled = max(compiled, answer[1])
        add_compiled(compiled)
        return True

    def _patience(self) -> float | None:
        """Seconds that an answer may take now."""
        if self._clock.limit is None:
            return None
        return max(_SHARE * self._clock.left(), _TIMES * self._longest, _LEAST_SECONDS)


def _call(task: tuple[bytes, bytes, int, Any, str, tuple[Any, ...], dict[str, Any]]) -> tuple[Any, float]:
    """In a worker: what has become of a group, and the seconds of compiling."""
    key, recipe, count, parts, name, arguments, options = task
    clock, twin = Clock(), _TWINS.pop((key, count), None)
    if twin is None:
        twin = pickle.loads(recipe)(count)
        while len(_TWINS) >= _KEPT:
            del _TWINS[next(iter(_TWINS))]
    twin.unpack(0, count, parts)
    getattr(twin, name)(*arguments, **options)
    result = twin.pack(0, count)
    _TWINS[key, count] = twin  # the latest is the last to go
    return result, clock.compile_seconds()
