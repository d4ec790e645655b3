"""The command line: ``fastmix VERB MODEL [options]``.

:func:`main` runs a command line from its words to its exit code. :mod:`~fastmix.cli.parser` reads the words, the
commands are in :mod:`~fastmix.cli.answers`, :mod:`~fastmix.cli.models`, :mod:`~fastmix.cli.learning` and
:mod:`~fastmix.cli.applications`, :mod:`~fastmix.cli.files` reads models and tries the places of outputs, and
:mod:`~fastmix.cli.console` writes to stdout and stderr.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

import typer

from fastmix._clock import is_compiling
from fastmix._stopping import HEARD, exit_code, leave_now
from fastmix.cli.console import abandon, explain, flush_stderr, say
from fastmix.cli.parser import join_evidence, make_parser
from fastmix.errors import printable, shortened

__all__ = ["main", "run_command"]

_RECEIVED: list[int] = []  # signals that have come


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; errors become one line on stderr, never a traceback."""
    with _hearing():
        code = run_command(sys.argv[1:] if arguments is None else arguments)
    flush_stderr()
    if _RECEIVED:
        # An interrupt in an import may stay in Python's memory and change its exit code, although it was handled here.
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        terminated = signal.SIGTERM in _RECEIVED and code < 2
        os._exit(exit_code(signal.SIGTERM) if terminated else code)
    sys.exit(code)


def run_command(arguments: list[str]) -> int:
    """Run a command line in this process; its exit code comes back."""
    with _showing_messages():
        try:
            _prepare_streams()
            return _invoke(arguments)
        except (BrokenPipeError, SystemExit):  # the parser and rich leave with SystemExit when a pipe is closed
            abandon(sys.stdout)  # its reader has left: nothing to say, and nobody to say it to
            return 0
        except (Exception, KeyboardInterrupt) as error:
            if isinstance(error, OSError):
                abandon(sys.stdout)
            known = explain(error)
            if known is not None:
                text, code = known
                return _fail(_as_typed(text, arguments), code)
            if sys.flags.dev_mode:
                raise
            text = f"{type(error).__name__}: {error}"
            return _fail(f"a mistake of fastmix, please report it: {text} (python -X dev -m fastmix shows where)", 2)


def _invoke(arguments: list[str]) -> int:
    """Parse a command line and run its command; the exit code comes back, errors go through."""
    if "_FASTMIX_COMPLETE" in os.environ:  # a shell that completes a line has its words in the environment
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        make_parser(line.split()[1:])(prog_name="fastmix")
    code = 0
    arguments = join_evidence(arguments)
    parser = make_parser(arguments)
    try:
        with parser.make_context("fastmix", arguments or ["--help"]) as context:
            parser.invoke(context)
    except typer.Exit as done:
        code = done.exit_code
    sys.stdout.flush()
    return code


# -- signals ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _hearing() -> Iterator[None]:
    """Turn signals that nobody else handles into interrupts of the work within.

    Only the main thread gets signals; in another one nothing changes.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {signum: signal.getsignal(signum) for signum in HEARD}
    ours = (signal.SIG_DFL, signal.default_int_handler, leave_now)
    for signum, handler in before.items():
        if handler in ours:
            signal.signal(signum, _interrupt)
    try:
        yield
    finally:
        for signum, handler in before.items():
            if signal.getsignal(signum) is _interrupt:
                signal.signal(signum, handler)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Handle a signal: raise a KeyboardInterrupt, or end the process at once while something is being compiled."""
    if is_compiling():  # callbacks of LLVM swallow exceptions or crash on them
        leave_now(signum, frame)
    _RECEIVED.append(signum)
    raise KeyboardInterrupt


# -- streams and messages ---------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _showing_messages() -> Iterator[None]:
    """Show on stderr what is logged about compiling, the one message below a warning, and about checkpoints."""
    handler = logging.StreamHandler()
    compiling = logging.getLogger("fastmix._jit")
    checkpoints = logging.getLogger("fastmix._checkpoint")
    before = compiling.level
    for logger in (compiling, checkpoints):
        logger.addHandler(handler)
    compiling.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger in (compiling, checkpoints):
            logger.removeHandler(handler)
        compiling.setLevel(before)


class _StandardStream(NamedTuple):
    """A standard stream, with how its stand-in is opened where the caller has closed it."""

    name: str
    flags: int
    mode: str


# Opened for the wrong direction, the null device answers with "Bad file descriptor" when it is used.
_STREAMS = (
    _StandardStream("stdin", os.O_WRONLY, "r"),
    _StandardStream("stdout", os.O_RDONLY, "w"),
    _StandardStream("stderr", os.O_WRONLY, "w"),
)


def _prepare_streams() -> None:
    """Make standard streams that the caller has closed fail when they are used, instead of being None."""
    for stream in _STREAMS:
        if getattr(sys, stream.name) is None:
            setattr(sys, stream.name, os.fdopen(os.open(os.devnull, stream.flags), stream.mode))
    if isinstance(sys.stdout, io.TextIOWrapper):  # what an encoding cannot show is escaped, as stderr does by itself
        sys.stdout.reconfigure(errors="backslashreplace")


def _as_typed(text: str, arguments: list[str]) -> str:
    """A message of the library, where the name of an argument at its beginning becomes the option that was typed."""
    name, _, rest = text.partition(" ")
    option = f"--{name.replace('_', '-')}"
    typed = any(word.partition("=")[0] == option for word in arguments)
    return f"{option} {rest}" if typed and rest.startswith("must") else text


def _fail(text: str, code: int) -> int:
    """Say in one line on stderr what went wrong; the exit code comes back."""
    say(f"fastmix: {shortened(printable(' '.join(text.split())))}")
    return code
