"""Signals before there is anything to save: which exit code they give, and whose handlers are left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest

from fastmix._stopping import HEARD, exit_code, ignore, leave_now, listen


@pytest.fixture(autouse=True)
def handlers() -> Generator[None, None, None]:
    """The handlers of this process come back after the test."""
    before = {signum: signal.getsignal(signum) for signum in HEARD}
    yield
    for signum, handler in before.items():
        signal.signal(signum, handler)


def test_exit_codes() -> None:
    assert exit_code(signal.SIGINT) == 1
    assert exit_code(signal.SIGTERM) == 143


def test_only_handlers_of_python_itself_are_replaced() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    listen()
    assert signal.getsignal(signal.SIGINT) is leave_now
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    ignore()
    assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    own = signal.signal(signal.SIGTERM, lambda *_: None)
    assert own == signal.SIG_IGN
    ignore()
    assert callable(signal.getsignal(signal.SIGTERM))


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_process_is_left_with_one_line(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    left: list[int] = []
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    monkeypatch.setattr(os, "write", lambda descriptor, text: written.append(text))
    monkeypatch.setattr(os, "_exit", left.append)
    leave_now(signal.SIGTERM, None)
    assert left == [143]
    assert written[-1] == b"fastmix: interrupted\n"
    assert len(written) == 1 + is_terminal
