"""What a long call tells while it runs: one object for every loop, and a bar on stderr for those who watch."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fastmix.errors import printable

__all__ = ["Listener", "Progress", "Report", "bar_shown", "listening"]

_PATIENCE = 2.0  # seconds before a bar appears
_LEAST_COLUMNS = 80  # of a terminal: with fewer, or none (COLUMNS=0), rich would cut the line


@dataclass(frozen=True)
class Progress:
    """How far a call has come.

    Attributes
    ----------
    done : int
    total : int or None
        What ``done`` will be in the end, where that is known.
    unit : str
        Of both: ``sweeps``, ``iterations``, ``starts``, ``draws``, ``methods``, ``parts`` or ``rows``.
    per_second : float
        Updates of single variables per second for samplers, otherwise units per second.
    seconds : float
        Since the call began.
    what : str
        What is being done, such as the name of the method.
    """

    done: int
    total: int | None
    unit: str
    per_second: float
    seconds: float
    what: str

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total:,}"
        left, speed = "", f", {self.per_second:.3g} updates/s" if self.unit == "sweeps" else ""
        each = self.done / self.seconds if speed and self.seconds else self.per_second  # units per second
        if self.total is not None and each:
            seconds = (self.total - self.done) / each
            left = f", {seconds:.0f} s left" if seconds < 120.0 else f", {seconds / 60.0:.1f} min left"
        return f"{self.what}: {self.done:,}{of} {self.unit}{speed}{left}"


Listener = Callable[[Progress], None]
Report = Literal["auto"] | Listener | None  # what users may ask for


def bar_shown() -> bool:
    """Whether somebody watches stderr: a terminal, or a notebook."""
    return "ipykernel" in sys.modules or bool(sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def listening(progress: Report, what: str) -> Iterator[Listener | None]:
    """Whom to tell, from what a user asked for: ``auto`` is a bar once the call has lasted two seconds."""
    if progress is not None and progress != "auto" and not callable(progress):
        raise ValueError(f"progress must be 'auto', None or a function of a Progress, got {progress!r}")
    if progress != "auto":
        yield progress
    elif not bar_shown():
        yield None
    else:
        bar = _Bar(what)
        try:
            yield bar
        finally:
            bar.close()


class _Bar:
    """A bar on stderr that appears after a while, from a thread of its own: not every loop reports."""

    def __init__(self, what: str) -> None:
        self._text = printable(what)
        self._latest: tuple[int, int | None] = 0, None
        self._lock = threading.Lock()
        self._display: Any = None
        self._timer = threading.Timer(_PATIENCE, self._show)
        self._timer.daemon = True
        self._timer.start()

    def __call__(self, progress: Progress) -> None:
        self._text, self._latest = printable(str(progress)), (progress.done, progress.total)
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
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Display

        with self._lock:
            if self._timer is None:
                return
            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            console.width = max(console.width, _LEAST_COLUMNS)
            text = TextColumn("{task.description}", markup=False)
            display = Display(SpinnerColumn(), text, BarColumn(20), console=console, transient=True)
            display.add_task(self._text, total=None)
            display.start()
            self._display = display
            self._update()

    def _update(self) -> None:
        done, total = self._latest
        self._display.update(self._display.task_ids[0], description=self._text, completed=done, total=total)
