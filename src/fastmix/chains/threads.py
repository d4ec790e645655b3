"""Threads that share the work on chains."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

__all__ = ["Threads"]


class Threads:
    """So many threads, which are started when they are first needed."""

    few = 1 << 15  # updates below which one thread makes them: handing work over takes 50 microseconds

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def run(self, tasks: Sequence[Callable[[], object]], num_updates: int) -> None:
        """Do all tasks, which make so many updates together."""
        if self.count == 1 or len(tasks) <= 1 or num_updates < self.few:
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
        """Call ``task(part)`` for the parts of one stage after another, and all stages in as many rounds.

        Threads take parts by tickets that run through all rounds, and wait only until the stages before are done.
        """
        parts = [(part, k) for k, stage in enumerate(stages) for part in stage]
        before = [0, *itertools.accumulate(len(stage) for stage in stages)]
        tickets, stopped = itertools.count(), False
        done: list[None] = []  # as long as there are parts that were finished

        def work() -> None:
            nonlocal stopped
            try:
                while not stopped and (ticket := next(tickets)) < rounds * len(parts):
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

        self.run([work] * self.count, self.few)
