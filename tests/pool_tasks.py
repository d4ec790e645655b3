"""Functions that worker processes import by name, and with them nothing that takes time to load."""

from __future__ import annotations

import os
import signal
import time


def double(x: float) -> float:
    time.sleep(0.02 * (x % 3))  # later ones finish first
    return 2 * x


def die_on_three(x: int) -> int:
    if x == 3:
        os._exit(9)
    return x


def die_once(task: tuple[int, str]) -> int:
    x, marker = task
    if x == 2 and not os.path.exists(marker):
        open(marker, "w").close()
        os._exit(9)
    return x


def threads(_: int) -> tuple[int, str | None, bool]:
    time.sleep(0.1)  # so that every worker has some
    deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return os.getpid(), os.environ.get("OMP_NUM_THREADS"), deaf
