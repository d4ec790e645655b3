"""Functions that engines of the tests run, in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from fastmix._engine import Speaker


def double(numbers: list[int], say: Speaker) -> None:
    print("a library that prints")
    os.write(1, b"and one that writes")
    for number in numbers:
        say(2 * number)


def fail(request: Any, say: Speaker) -> None:
    say("first")
    raise ValueError(f"no {request}")


def die(_: Any, say: Speaker) -> None:
    say("first")
    time.sleep(0.2)
    os._exit(9)


def sleep_until_hurried(_: Any, say: Speaker) -> None:
    stopped = []
    signal.signal(signal.SIGVTALRM, lambda *_: stopped.append(True))
    say(os.getpid())
    while not stopped:
        time.sleep(0.01)
    say("so far")


def allocate(num_bytes: int, say: Speaker) -> None:
    say(len(bytearray(num_bytes)))


def minimize_all(networks: list[Any], say: Speaker) -> None:
    from fastmix.modes.toulbar2_worker import solve

    for network in networks:
        solve(network, say)


def count_all(requests: list[Any], say: Speaker) -> None:
    from fastmix.inference.ganak_worker import count

    for request in requests:
        count(request, say)
