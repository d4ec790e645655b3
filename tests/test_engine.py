"""Work of other libraries in processes that can be ended."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from fastmix._clock import NO_LIMIT, Clock
from fastmix._engine import Engine, EngineError, engine_version


def test_messages_come_in_order_and_what_is_printed_goes_nowhere() -> None:
    with Engine("engine_tasks:double", [1, 2, 3]) as engine:
        assert [engine.receive(NO_LIMIT) for _ in range(4)] == [2, 4, 6, None]


def test_large_requests_pass() -> None:
    numbers = list(range(200_000))
    with Engine("engine_tasks:double", numbers) as engine:
        assert engine.receive(NO_LIMIT) == 0


@pytest.mark.parametrize(("task", "words"), [("fail", "ValueError: no wonder"), ("die", "code 9"), ("none", "none")])
def test_failures_are_errors(task: str, words: str) -> None:
    with Engine(f"engine_tasks:{task}", "wonder") as engine, pytest.raises(EngineError, match=words):
        list(iter(lambda: engine.receive(NO_LIMIT), None))


@pytest.mark.skipif(not hasattr(signal, "SIGVTALRM"), reason="needs the signals of POSIX")
def test_an_engine_is_hurried_and_then_ended() -> None:
    with Engine("engine_tasks:sleep_until_hurried", None) as engine:
        process = engine.receive(NO_LIMIT)
        assert engine.receive(Clock(0.1)) is None
        engine.hurry()
        assert engine.receive(NO_LIMIT) == "so far"
    with Engine("engine_tasks:sleep_until_hurried", None) as engine:
        process = engine.receive(NO_LIMIT)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs limits that Linux keeps")
def test_memory_is_limited() -> None:
    large = Engine("engine_tasks:allocate", 2**31, memory_limit=2.0**30)
    with large as engine, pytest.raises(EngineError, match="MemoryError"):
        engine.receive(NO_LIMIT)


def test_ending_takes_no_time() -> None:
    begun = time.monotonic()
    with Engine("engine_tasks:sleep_until_hurried", None):
        pass
    assert time.monotonic() - begun < 30.0


def test_versions() -> None:
    assert engine_version("no_such_library", "no-such-library") is None
    assert engine_version("numpy", "numpy") is not None
    assert engine_version("numpy", "no-such-library") == "unknown"
