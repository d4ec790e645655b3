"""Figures and tables as data, and the averages that go into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.experiments.plan import Row

__all__ = ["Figure", "Line", "Panel", "Picture", "Table", "line_of", "mean_and_error", "select", "values_of"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Line:
    """One curve: a method, and mean and standard error at every x."""

    method: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] = ()


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    x_log: bool = False
    y_log: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """An image: grey values (rows, cols) from 0, black, to 1, white."""

    title: str
    pixels: FloatArray


@dataclass(frozen=True)
class Figure:
    """Panels that belong together.

    Attributes
    ----------
    name : str
        Of the files that it is written to.
    title, caption : str
    panels : sequence of Panel or of Picture
    columns : int
        Panels in a row, in the files.
    legend : bool
        Whether the files have a legend.
    """

    name: str
    title: str
    caption: str
    panels: Sequence[Panel | Picture]
    columns: int = 2
    legend: bool = True

    @property
    def methods(self) -> list[str]:
        """Methods with a curve in some panel, in the order of the first panel that has them."""
        lines = (line for panel in self.panels if isinstance(panel, Panel) for line in panel.lines)
        return list(dict.fromkeys(line.method for line in lines))


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names the row."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default_factory=list)


def select(rows: Iterable[Row], method: str | None = None, **parameters: Any) -> list[Row]:
    """Rows without failure of a method and with these parameters, whichever are given.

    Examples
    --------
    >>> rows = [{"method": "gibbs", "parameters": {"kind": "mixed"}, "failure": None}]
    >>> len(select(rows, "gibbs", kind="mixed")), len(select(rows, kind="attractive"))
    (1, 0)
    """
    return [
        row
        for row in rows
        if row["failure"] is None
        and (method is None or row["method"] == method)
        and all(row["parameters"].get(name) == value for name, value in parameters.items())
    ]


def values_of(rows: Iterable[Row], read: Callable[[Row], float | None]) -> FloatArray:
    """A number of every row that has it."""
    return np.array([value for row in rows if (value := read(row)) is not None], dtype=np.float64)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean and its standard error, ``std / sqrt(count)``, the error bars of the paper; no error for one value.

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 2.0, 3.0]))
    (2.0, 0.5773502691896258)
    """
    if len(values) == 0:
        return math.nan, math.nan
    if len(values) == 1:
        return float(values[0]), 0.0
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def line_of(method: str, points: Iterable[tuple[float, float, float]]) -> Line | None:
    """A curve from (x, mean, standard error), without the points that have no mean; None if none has."""
    known = [point for point in points if math.isfinite(point[1])]
    return Line(method, *(tuple(column) for column in zip(*known, strict=True))) if known else None
