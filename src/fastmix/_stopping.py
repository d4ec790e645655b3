"""Signals of the command line. This module is loaded before everything else, so that no signal comes unexpected.

Ctrl-C (SIGINT) and SIGTERM, which batch systems and ``kill`` send, both interrupt a call: the result so far is written,
and so is the last checkpoint. The exit code is 1 after Ctrl-C, as for every incomplete answer, and 143 after SIGTERM:
128 plus the number of the signal, which is the convention of shells.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

__all__ = ["HEARD", "exit_code", "ignore", "leave_now", "listen"]

HEARD = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2  # file descriptor: Python's stream may not be usable in a signal handler
_CLEAR_LINE = b"\r\x1b[2K\x1b[?25h"  # removes a progress bar from the terminal and shows the cursor again


def exit_code(signum: int) -> int:
    """The exit code of a command that was ended by a signal."""
    return 1 if signum == signal.SIGINT else 128 + signum


def leave_now(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End the process at once, with one line on stderr.

    It is the handler of signals while modules load or code is compiled, when there is no result to save.
    """
    with contextlib.suppress(OSError):
        if os.isatty(_STDERR):
            os.write(_STDERR, _CLEAR_LINE)
        os.write(_STDERR, b"fastmix: interrupted\n")
    os._exit(exit_code(signum))


def listen() -> None:
    """Make :func:`leave_now` the handler of every signal that has only Python's default handler."""
    for signum in HEARD:
        if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, leave_now)


def ignore() -> None:
    """Let signals pass that :func:`leave_now` would handle.

    While Python ends it has no handlers, and a signal would kill the process in place of its exit code.
    """
    for signum in HEARD:
        if signal.getsignal(signum) is leave_now:
            signal.signal(signum, signal.SIG_IGN)
