"""The one clock of a call: what is used and left of its time limit, compiling not counted."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator

from fastmix._checks import check_seconds
from fastmix._progress import Listener, Progress

__all__ = ["NO_LIMIT", "Clock", "OutOfTimeError", "compiling", "is_compiling"]


class OutOfTimeError(Exception):
    """The limit of a clock has passed; for whoever began the work, never for users."""


class _Compiled:
    """Seconds during which at least one thread of this process was compiling, or loading what was compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0  # compilations under way: those within another and those of other threads count once
        self._since = self._total = 0.0

    def seconds(self, now: float) -> float:
        with self._lock:
            return self._total + (now - self._since if self._active else 0.0)

    @property
    def active(self) -> bool:
        return self._active > 0

    def change(self, by: int) -> None:
        with self._lock:
            now = time.perf_counter()
            if self._active:
                self._total += now - self._since
            self._since, self._active = now, self._active + by


_COMPILED = _Compiled()


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Time within this is not counted by any clock; :mod:`fastmix._jit` compiles in it."""
    _COMPILED.change(1)
    try:
        yield
    finally:
        _COMPILED.change(-1)


def is_compiling() -> bool:
    """Whether some thread of this process is compiling."""
    return _COMPILED.active


class Clock:
    """Time since a call began, the limit on it, and whom to tell how far it has come.

    Parameters
    ----------
    limit : float, optional
        Seconds, compiling not included; no limit by default.
    default : float, optional
        The limit of callers who gave none. ``asked`` remembers what they gave: only a limit that was asked for is a
        plan to be filled.
    listener : callable, optional
        Called with a :class:`fastmix.Progress` by :meth:`report`.
    what : str
        Name of the work.

    Examples
    --------
    >>> clock = Clock(60.0)
    >>> clock.past(), clock.left() <= 60.0, Clock().left()
    (False, True, inf)
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        default: float | None = None,
        listener: Listener | None = None,
        what: str = "",
    ) -> None:
        self.asked = check_seconds(limit)
        self.limit = default if self.asked is None else self.asked
        self._listener, self._what = listener, what
        self._begin = time.perf_counter()
        self._before = _COMPILED.seconds(self._begin)

    def seconds(self) -> float:
        """Seconds since the call, compiling included."""
        return time.perf_counter() - self._begin

    def compile_seconds(self) -> float:
        """Those of them that were spent compiling, or loading what an earlier process compiled."""
        return _COMPILED.seconds(time.perf_counter()) - self._before

    def used(self) -> float:
        """Seconds since the call, without compiling."""
        now = time.perf_counter()
        return now - self._begin - (_COMPILED.seconds(now) - self._before)

    def left(self) -> float:
        """Seconds that are left, 0 at least; infinite without a limit."""
        return math.inf if self.limit is None else max(0.0, self.limit - self.used())

    def past(self, share: float = 1.0) -> bool:
        """Whether a share of the limit is used up; never without a limit."""
        return self.limit is not None and self.used() > share * self.limit

    def check(self) -> None:
        """An :class:`OutOfTimeError` once the limit is used up."""
        if self.past():
            raise OutOfTimeError

    def part(self, share: float) -> Clock:
        """A clock that ends when a share of what is left of this one is used up."""
        part = Clock(listener=self._listener, what=self._what)
        part.limit = None if self.limit is None else max(_LEAST, share * self.left())
        part.asked = None if self.asked is None else part.limit
        return part

    def rest(self, share: float = 1.0) -> float | None:
        """The limit of a call to make now, more than 0: an answer must come even when the time is over."""
        return None if self.limit is None else max(_LEAST, share * self.left())

    def report(self, done: int, total: int | None, unit: str, *, per_second: float | None = None) -> None:
        """Tell whoever listens how far the work has come."""
        if self._listener is not None:
            seconds = self.seconds()
            speed = done / seconds if per_second is None else per_second
            self._listener(Progress(done, total, unit, speed, seconds, self._what))

    def stats(self) -> dict[str, float]:
        """What a result says about its time: ``seconds``, and ``compile_seconds`` among them."""
        return {"seconds": self.seconds(), "compile_seconds": self.compile_seconds()}


_LEAST = 1e-3  # seconds
NO_LIMIT = Clock()
