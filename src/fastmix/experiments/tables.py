"""Tables of errors from rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastmix.experiments.figures import Table, mean_and_error, select, values_of
from fastmix.experiments.plan import Row
from fastmix.experiments.styles import style

__all__ = ["format_count", "format_error", "format_seconds", "strength_table"]


def strength_table(title: str, rows: Sequence[Row], methods: Sequence[str], **parameters: Any) -> Table:
    """Mean error and standard error for every method and strength."""
    here = [row for row in rows if all(row["parameters"].get(k) == v for k, v in parameters.items())]
    strengths = sorted({row["parameters"]["strength"] for row in here})
    lines = []
    for method in methods:
        cells = []
        for strength in strengths:
            values = values_of(select(here, method, strength=strength), lambda row: row["error"])
            cells.append(format_error(*mean_and_error(values)))
        lines.append([style(method).label, *cells])
    trials = len({row["trial"] for row in here})
    caption = f"Mean error of the marginals ± standard error, by interaction strength; {format_count(trials, 'trial')}."
    return Table(title, caption, ["Method", *(f"{strength:g}" for strength in strengths)], lines)


def format_error(mean: float, error: float) -> str:
    """A mean with its standard error.

    Examples
    --------
    >>> format_error(0.12345, 0.0021)
    '0.123 ± 0.002'
    """
    return "–" if not math.isfinite(mean) else f"{mean:.3f} ± {error:.3f}"


def format_seconds(seconds: float | None) -> str:
    """Seconds in a fitting unit, three digits.

    Examples
    --------
    >>> format_seconds(0.00213), format_seconds(1.5), format_seconds(None)
    ('2.13 ms', '1.50 s', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 1e-3:
        return f"{1e6 * seconds:.3g} µs"
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.2f} s" if seconds < 1000 else f"{seconds:.0f} s"


def format_count(count: int, word: str) -> str:
    """A number with its noun.

    Examples
    --------
    >>> format_count(1, "trial"), format_count(1200, "row")
    ('1 trial', '1,200 rows')
    """
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
