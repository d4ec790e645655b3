"""Work of another library in a process of its own, which can be ended at any time, whatever the library does.

Compiled libraries hold the interpreter while they work: neither Ctrl-C nor a time limit would get through to them, and
one that runs out of memory would take the caller along. The process is started by its own command, so that scripts
which call fastmix need no guard around their work, and talks by pickled messages through pipes.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import threading
from typing import IO, Any, Protocol

from fastmix._clock import Clock

__all__ = ["Engine", "EngineError", "Speaker", "engine_version"]

#: Seconds between two looks at the clock while an engine works. Not measured.
POLL_SECONDS = 0.05
#: Seconds that a process has to end once its pipe is closed. Not measured.
GRACE_SECONDS = 1.0
#: Seconds of processor time by which an engine outlives its limit at most, if nobody ends it. Not measured.
SPARE_SECONDS = 30.0

_LENGTH = struct.Struct("<Q")  # of the message that follows

# What a process that is started runs; the folders of modules come through its environment.
_COMMAND = "from fastmix._engine import serve; serve()"


def engine_version(module: str, distribution: str) -> str | None:
    """The version of a library that an engine needs, None where it is not installed; it is not loaded here."""
    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


class EngineError(RuntimeError):
    """The library behind an engine failed; the message says how."""


class Speaker(Protocol):
    """What a function that runs in an engine calls, with every message for the caller."""

    def __call__(self, message: Any) -> None:
        """Send a message."""


class Engine:
    """A function that runs in a process of its own, and the messages that it sends; a context that ends the process.

    Parameters
    ----------
    target : str
        The function, as ``module:name``. It is called with the request and a :class:`Speaker`.
    request : object
        What it is to do; anything that can be pickled.
    seconds : float, optional
        Processor time after which the system ends the process, should the caller be gone.
    memory_limit : float, optional
        Bytes that the process may allocate, where the system can limit that.
    """

    def __init__(
        self, target: str, request: Any, *, seconds: float | None = None, memory_limit: float | None = None
    ) -> None:
        limits = (None if seconds is None else seconds + SPARE_SECONDS, memory_limit)
        self._first = pickle.dumps((target, limits, request), protocol=pickle.HIGHEST_PROTOCOL)
        self._messages: queue.Queue[tuple[str, Any]] = queue.Queue()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Engine:
        folders = [folder for folder in sys.path if folder]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        threading.Thread(target=self._listen, args=(self._process,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        process = self._process
        assert process is not None
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def receive(self, clock: Clock) -> Any:
        """The next message; None where the function has returned, or the time of a clock is over.

        Raises
        ------
        EngineError
            If the function has raised an error, or the process has died.
        """
        while True:
            try:
                kind, message = self._messages.get(timeout=POLL_SECONDS)
            except queue.Empty:
                if clock.past():
                    return None
                continue
            if kind == "error":
                raise EngineError(message)
            return message

    def hurry(self) -> None:
        """Tell the engine that the time is over: the signal of an interval timer, where the system has that."""
        if self._process is not None and hasattr(signal, "SIGVTALRM"):
            with contextlib.suppress(OSError):
                self._process.send_signal(signal.SIGVTALRM)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Hand over the request, and put all messages into the queue, from a thread of its own."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, self._first)
            while True:
                kind, message = pickle.loads(_read(process.stdout))
                self._messages.put((kind, message))
                if kind != "message":
                    return
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):
            self._messages.put(("error", _last_words(process)))


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """What is said of a process that has died before it was done."""
    try:
        code = process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return "its process fell silent"
    return f"its process ended with code {code}, perhaps for want of memory"


def _write(pipe: IO[bytes], text: bytes) -> None:
    """Write a message of any length to a pipe."""
    pipe.write(_LENGTH.pack(len(text)))
    pipe.write(text)
    pipe.flush()


def _read(pipe: IO[bytes]) -> bytes:
    """The next message of a pipe; an EOFError where there is none."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    text = pipe.read(length)
    if len(text) < length:
        raise EOFError
    return text


# -- in the process of the engine -------------------------------------------------------------------------------------


def serve() -> None:
    """Run the function that the first message on standard input asks for, and send what it says to standard output.

    What libraries print goes nowhere. Ctrl-C is for the caller, who ends this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    target, limits, request = pickle.loads(_read(sys.stdin.buffer))
    _limit(*limits)
    threading.Thread(target=_end_with_caller, daemon=True).start()

    def say(message: Any, kind: str = "message") -> None:
        _write(pipe, pickle.dumps((kind, message), protocol=pickle.HIGHEST_PROTOCOL))

    try:
        module, _, name = target.partition(":")
        getattr(importlib.import_module(module), name)(request, say)
        say(None, "done")
    except BaseException as error:
        say(f"{type(error).__name__}: {error}", "error")
    os._exit(0)  # what a library still does is of no use any more


def _end_with_caller() -> None:
    """End this process once the caller is gone: nothing else ever comes through its standard input."""
    with contextlib.suppress(OSError):
        sys.stdin.buffer.read()
    os._exit(1)


def _limit(seconds: float | None, num_bytes: float | None) -> None:
    """Limit the processor time and the memory of this process, where the system can do that."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    with contextlib.suppress(OSError, ValueError):
        if seconds is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    with contextlib.suppress(OSError, ValueError):
        if num_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (int(num_bytes), int(num_bytes)))
