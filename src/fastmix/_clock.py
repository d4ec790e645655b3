"""The one clock of a call: its time limit, compiling not counted, and what it tells while it runs."""

from __future__ import annotations

import contextlib
import gc
import logging
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from fastmix._checks import check_seconds, describe
from fastmix.errors import Interrupted, printable

__all__ = [
    "NO_LIMIT", "Clock", "Ending", "Listener", "OutOfTimeError", "Progress", "Report", "add_compiled", "bar_shown",
    "compiling", "is_compiling", "listening", "plain_console",
]  # fmt: skip

_LOGGER = logging.getLogger(__name__)
_SHORTEST_LIMIT = 1e-3  # seconds that an inner call has at least, so that it gives an answer
LOG_SECONDS = 10.0  # between two lines in the log, where nobody watches. Not measured.
BAR_DELAY = 2.0  # seconds before a bar appears; what is over by then needs none. Not measured.
_MIN_COLUMNS = 80  # of a terminal: with fewer, or none (COLUMNS=0), rich would cut lines and numbers


class OutOfTimeError(Exception):
    """The limit of a clock has passed; for whoever began the work, never for users."""


class _Compiled:
    """Seconds during which at least one thread of this process was compiling, or loading what was compiled.

    Python does not look for garbage meanwhile: a compiler makes many objects that live until it is done, and looking
    at them again and again is a tenth of its time (``benchmarks/cold_start.py``).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0  # compilations under way: those within another and those of other threads count once
        self._since = 0.0
        self._total = 0.0
        self._collects = False  # whether garbage was collected before

    def seconds(self, now: float) -> float:
        """Seconds of compiling up to a moment of ``time.perf_counter``."""
        with self._lock:
            return self._total + (now - self._since if self._active else 0.0)

    def active(self) -> bool:
        """Whether anything is being compiled at present."""
        return self._active > 0

    def _change(self, by: int) -> None:
        """Note that a compilation has begun (1) or ended (-1)."""
        with self._lock:
            now = time.perf_counter()
            if self._active:
                self._total += now - self._since
            self._since = now
            if not self._active:
                self._collects = gc.isenabled()
                gc.disable()
            self._active += by
            if not self._active and self._collects:
                gc.enable()

    @contextlib.contextmanager
    def within(self) -> Iterator[None]:
        """A context around one compilation."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def add(self, seconds: float) -> None:
        """Count seconds that were just spent waiting for another process that compiled."""
        with self._lock:
            self._total += seconds


_COMPILED = _Compiled()
compiling = _COMPILED.within  # whose time is not counted by any clock; fastmix._jit compiles in it
add_compiled = _COMPILED.add
is_compiling = _COMPILED.active


@dataclass(frozen=True)
class Progress:
    """How far a call has come.

    Attributes
    ----------
    done : int
    total : int or None
        What ``done`` will be in the end, where that is known.
    unit : str
        Unit of both: ``sweeps`` (sampling, annealing), ``scales`` and ``percent of learning`` (multicanonical
        sampling), ``iterations`` and ``rounds`` (projections, belief propagation, bounds, learning, searches),
        ``starts`` (mean field), ``draws`` (perfect draws, bounds), ``passes``, ``moves without a gain`` and ``reads``
        (most probable configurations), ``walks`` and ``cases`` (bounds), ``marginals`` (counting), ``methods``
        (comparisons), ``rows`` (experiments) or ``parts`` (the warm-up).
    per_second : float
        Updates of single variables per second for samplers, otherwise units per second.
    seconds : float
        Since the call began.
    what : str
        What is being done, such as the name of the method.
    details : mapping
        What else is known by now, such as the moment error of learning.
    """

    done: int
    total: int | None
    unit: str
    per_second: float
    seconds: float
    what: str
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def seconds_left(self) -> float | None:
        """An estimate, by the speed so far; None where nothing is known."""
        speed = self.per_second
        if self.unit == "sweeps":  # whose speed is that of updates
            speed = self.done / self.seconds if self.seconds else 0.0
        return None if self.total is None or not speed else (self.total - self.done) / speed

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        speed = f", {self.per_second:.3g} updates/s" if self.unit == "sweeps" else ""
        left = ""
        seconds = self.seconds_left
        if seconds is not None:
            left = f", {seconds:.0f} s left" if seconds < 120.0 else f", {seconds / 60.0:.1f} min left"
        more = "".join(f", {name.replace('_', ' ')} {value:.3g}" for name, value in self.details.items())
        return f"{self.what}: {self.done:,}{of} {self.unit}{speed}{more}{left}"


_WITHIN: ContextVar[bool] = ContextVar("within", default=False)  # another call of this thread

Listener = Callable[[Progress], None]
Report = Literal["auto"] | Listener | None  # what users may ask for


def bar_shown() -> bool:
    """Whether somebody watches stderr: a terminal, or a notebook."""
    return "ipykernel" in sys.modules or bool(sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def listening(progress: Report, what: str) -> Iterator[Listener | None]:
    """A context around a whole call: gives the function to call with every progress, None where nobody listens.

    ``progress`` is what the user asked for; ``auto`` is a bar once the call has lasted two seconds, or, where nobody
    watches stderr, a line in the log every ten seconds, at level info. Within another call ``auto`` is nobody: that one
    has the bar, or was told to have none. A KeyboardInterrupt that nothing in the call could make a result of becomes
    an :class:`fastmix.Interrupted` without one.
    """
    automatic = isinstance(progress, str) and progress == "auto"
    if progress is not None and not automatic and not callable(progress):
        raise ValueError(f"progress must be 'auto', None or a function of a Progress, got {describe(progress)}")
    bar: _Bar | _Log | None = None
    if automatic and not _WITHIN.get():
        if bar_shown():
            bar = _Bar(what)
        elif _LOGGER.isEnabledFor(logging.INFO):
            bar = _Log(what)
    within = _WITHIN.set(True)
    try:
        yield bar if automatic else progress  # type: ignore[misc]  # which is no text here
    except Interrupted:
        raise
    except KeyboardInterrupt:
        raise Interrupted("interrupted before there was anything to report") from None
    finally:
        _WITHIN.reset(within)
        if bar is not None:
            bar.close()


def plain_console(*, stderr: bool = False) -> Any:
    """A console of rich that shows text as it is: brackets and colons in names mean nothing."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, _MIN_COLUMNS)
    return console


class _Bar:
    """A bar on stderr that appears after a while, from a thread of its own: not every loop reports."""

    def __init__(self, what: str) -> None:
        self._text = printable(what)
        self._latest: tuple[int, int | None] = 0, None
        self._lock = threading.Lock()
        self._display: Any = None
        self._timer = threading.Timer(BAR_DELAY, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, progress: Progress) -> None:
        self._text = printable(str(progress))
        self._latest = (progress.done, progress.total)
        if self._display is not None:
            self._update()

    def close(self) -> None:
        """Take the bar away."""
        self._timer.cancel()
        with self._lock:
            if self._display is not None:
                self._display.stop()
            self._timer = None  # type: ignore[assignment]  # closed: a timer that has fired already shows nothing

    def _show(self) -> None:
        """Make the bar appear, unless the call is over."""
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Display

        with self._lock:
            if self._timer is None:
                return
            text = TextColumn("{task.description}", markup=False)
            display = Display(SpinnerColumn(), text, BarColumn(20), console=plain_console(stderr=True), transient=True)
            display.add_task(self._text, total=None)
            display.start()
            self._display = display
            self._update()

    def _update(self) -> None:
        """Show the latest progress in the bar."""
        done, total = self._latest
        self._display.update(self._display.task_ids[0], description=self._text, completed=done, total=total)


class _Log:
    """A line in the log every ten seconds, from a thread of its own: not every loop reports."""

    def __init__(self, what: str) -> None:
        self._text = printable(what)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def __call__(self, progress: Progress) -> None:
        self._text = printable(str(progress))

    def close(self) -> None:
        """Write no further line."""
        self._over.set()

    def _write(self) -> None:
        """Write the latest progress, again and again until the call is over."""
        while not self._over.wait(LOG_SECONDS):
            _LOGGER.info("%s", self._text)


class Clock:
    """Time since a call began, the limit on it, and whom to tell how far it has come.

    ``limit`` is in seconds, compiling not included, ``default`` that of callers who gave none. ``asked`` remembers what
    they gave: only a limit that was asked for is a plan to be filled. :meth:`report` calls the ``listener`` with a
    :class:`fastmix.Progress`; ``what`` names the work.
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
        self.listener = listener
        self._what = what
        self._begin = time.perf_counter()
        self._before = _COMPILED.seconds(self._begin)

    def seconds(self) -> float:
        """Seconds since the call, compiling included."""
        return time.perf_counter() - self._begin

    def compile_seconds(self) -> float:
        """Seconds since the call that went to compiling, or to loading what an earlier process compiled."""
        return _COMPILED.seconds(time.perf_counter()) - self._before

    def used(self) -> float:
        """Seconds since the call, without compiling."""
        now = time.perf_counter()  # one look: between two of them another thread can have compiled
        return max(0.0, now - self._begin - (_COMPILED.seconds(now) - self._before))

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

    def part(self, share: float, what: str | None = None, *, quiet: bool = False, least: float = 0.0) -> Clock:
        """A clock that ends when a share of what is left of this one is used up; a quiet one tells nobody.

        ``least`` is a share of the whole limit that there is in any case, for what must be known when the time is over.
        """
        part = Clock(listener=None if quiet else self.listener, what=what or self._what)
        part.limit = None if self.limit is None else max(share * self.left(), least * self.limit)
        part.asked = None if self.asked is None else part.limit
        return part

    def rest(self, share: float = 1.0) -> float | None:
        """The limit of a call to make now, more than 0: an answer must come even when the time is over."""
        return None if self.limit is None else max(_SHORTEST_LIMIT, share * self.left())

    def report(
        self,
        done: int,
        total: int | None,
        unit: str,
        *,
        per_second: float | None = None,
        details: Mapping[str, float] | None = None,
    ) -> None:
        """Tell whoever listens how far the work has come."""
        if self.listener is not None:
            seconds = self.seconds()
            speed = done / max(seconds, _SHORTEST_LIMIT) if per_second is None else per_second
            self.listener(Progress(done, total, unit, speed, seconds, self._what, details or {}))

    def stats(self) -> dict[str, float]:
        """The time of the call as results hold it: ``seconds``, and ``compile_seconds`` among them."""
        return {"seconds": self.seconds(), "compile_seconds": self.compile_seconds()}


NO_LIMIT = Clock()


class Ending:
    """A context around work that its time limit or Ctrl-C may end, which it lets neither through nor forgets.

    Whoever does the work keeps what there is so far where it can be reached from outside of the context.

    Attributes
    ----------
    by : {"done", "time_limit", "interrupt"}
        What ended the work; ``done`` also while it goes on.
    result : object
        The result so far of the inner call that was interrupted (:class:`fastmix.Interrupted`), if that had one.

    Examples
    --------
    >>> with Ending() as ending:
    ...     raise OutOfTimeError
    >>> ending.by
    'time_limit'
    """

    def __init__(self) -> None:
        self.by: Literal["done", "time_limit", "interrupt"] = "done"
        self.result: Any = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the work."""
        return self.by == "interrupt"

    def __enter__(self) -> Ending:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, OutOfTimeError):
            self.by = "time_limit"
            return True
        if isinstance(error, KeyboardInterrupt):
            self.by = "interrupt"
            self.result = error.result if isinstance(error, Interrupted) else None
            return True
        return False
