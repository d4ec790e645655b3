"""Threads that share the work on chains: tasks side by side, or stages of tasks one after another."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from fastmix.chains.tuning import MIN_THREADED_UPDATES

__all__ = ["Threads"]


class Threads:
    """A number of threads that share tasks; they are started when they are first needed."""

    min_updates = MIN_THREADED_UPDATES  # updates below which the calling thread makes them all

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, tasks: Sequence[Callable[[], object]], num_updates: int) -> None:
        """Run all tasks, which make ``num_updates`` updates together."""
        if self.count == 1 or len(tasks) <= 1 or num_updates < self.min_updates:
            for task in tasks:
                task()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count)
        futures = [self._pool.submit(task) for task in tasks]
        try:
            for done in futures:
                done.result()
        finally:
            for future in futures:
                future.cancel()
            wait(futures)  # also after Ctrl-C: states must not be read while threads write them

    def run_stages(self, task: Callable[[Any], object], stages: Sequence[Sequence[Any]], rounds: int) -> None:
        """Call ``task(part)`` for the parts of one stage after another, and go through all stages ``rounds`` times.

        Threads take parts by tickets that run through all rounds, and wait only until the stages before are done.
        """
        parts = [(part, k) for k, stage in enumerate(stages) for part in stage]
        before = [0, *itertools.accumulate(len(stage) for stage in stages)]
        tickets = itertools.count()
        stopped = False
        done: list[None] = []  # one entry for every part that was finished: appending is safe between threads

        def take_parts() -> None:
            nonlocal stopped
            try:
                for ticket in tickets:
                    if stopped or ticket >= rounds * len(parts):
                        return
                    number, place = divmod(ticket, len(parts))
                    part, stage = parts[place]
                    while len(done) < number * len(parts) + before[stage] and not stopped:
                        time.sleep(0)  # a fraction of a millisecond: sleeping threads would take as long to wake up
                    if not stopped:
                        task(part)
                        done.append(None)
            except BaseException:
                stopped = True
                raise

        self.run([take_parts] * self.count, self.min_updates)
