"""What signals mean to the command line; loaded before all else, so that none of them finds Python unprepared.

Ctrl-C (SIGINT) and SIGTERM, by which batch systems and ``kill`` ask for an end, both interrupt a call: what there is is
written, the last checkpoint too. The exit code is 1 after Ctrl-C, as of every answer that is not complete, and 143
after SIGTERM, 128 and the number of the signal, as shells have it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType

__all__ = ["HEARD", "exit_code", "leave_now", "listen"]

HEARD = (signal.SIGINT, signal.SIGTERM)


def exit_code(signum: int) -> int:
    """The exit code of a command that a signal has ended."""
    return 1 if signum == signal.SIGINT else 128 + signum


def leave_now(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """End the process at once, with one line: while modules load, or code is compiled, there is nothing to keep."""
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\r\x1b[2K\x1b[?25h")  # the line and the cursor that a bar took
        os.write(2, b"fastmix: interrupted\n")
    os._exit(exit_code(signum))


def listen() -> None:
    """Let :func:`leave_now` hear the signals that nobody else does."""
    for signum in HEARD:
        if signal.getsignal(signum) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(signum, leave_now)
