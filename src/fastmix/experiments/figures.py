"""Figures and tables as data: averages over rows, and what the experiments make of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.experiments.plan import Experiment, Row, Settings
from fastmix.experiments.trials import decode_map
from fastmix.experiments.tuning import SHOWN_PHOTOGRAPHS

__all__ = [
    "STYLES", "Figure", "Panel", "Picture", "Style", "Table", "draw_photographs", "draw_samples",
    "draw_strengths", "draw_timing", "extra_sweeps", "format_count", "gibbs_with_extra_effort", "mean_and_error",
    "median_seconds", "samples_panel", "select", "strength_panel", "values_of",
]  # fmt: skip

Point = tuple[float, float, float]  # x, mean, standard error
Errors = Mapping[float, FloatArray]  # by x: one of every trial

# -- what is drawn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Style:
    """The look of one curve: its color, Matplotlib's marker, and dashes on and off."""

    label: str
    color: str
    marker: str
    dash: tuple[float, ...] = ()
    hollow: bool = False


# Colors of Okabe and Ito, made darker until they stand out from the page; markers and dashes tell the curves apart
# without any color.
_PURPLE = "#a3438c"
_ORANGE = "#b06a00"
_GRAY = "#66707d"
_BLACK = "#101820"
_BLUE = "#0069a8"
_GREEN = "#007a5a"
_RED = "#c94f00"
_OLIVE = "#7d6b00"
_INDIGO = "#4b45b5"

STYLES: dict[str, Style] = {
    "mean-field": Style("Mean field", _PURPLE, marker="v", dash=(1, 1)),
    "loopy-bp": Style("Loopy BP", _ORANGE, marker="s", dash=(4, 1.5)),
    "gibbs": Style("Gibbs", _GRAY, marker="o", dash=(4, 1.5)),
    "gibbs-long": Style("Gibbs, long run", _BLACK, marker="o"),
    "gibbs-extra": Style("Gibbs, plus the projection's time", _GRAY, marker="X", dash=(4, 1.5, 1, 1.5)),
    "swendsen-wang": Style("Swendsen-Wang", _INDIGO, marker="*", dash=(2, 1)),
    "euclidean": Style("Projected, Euclidean", _BLUE, marker="^"),
    "piecewise": Style("Projected, piecewise KL", _GREEN, marker="D"),
    "reversed-kl": Style("Projected, reversed KL", _RED, marker="P"),
    "kl": Style("Projected, true KL (intractable)", _OLIVE, marker="*", dash=(6, 1.5)),
    "euclidean-spectral": Style("Euclidean, spectral norm", _BLUE, marker="^", dash=(1, 1.5), hollow=True),
    "piecewise-spectral": Style("Piecewise KL, spectral norm", _GREEN, marker="D", dash=(1, 1.5), hollow=True),
    "reversed-kl-spectral": Style("Reversed KL, spectral norm", _RED, marker="P", dash=(1, 1.5), hollow=True),
    "piecewise-default": Style("Piecewise KL, our default", _GREEN, marker="o", dash=(3, 1), hollow=True),
    "reversed-kl-default": Style("Reversed KL, our default", _RED, marker="s", dash=(3, 1), hollow=True),
    "euclidean-dual": Style("Euclidean, the paper's dual", _INDIGO, marker="s"),
    "euclidean-dual-spectral": Style("Euclidean, the paper's dual, spectral norm", _INDIGO, marker="s", hollow=True),
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: for every method a curve of points, x with the mean of the error and its standard error."""

    title: str
    x_label: str
    curves: Mapping[str, Sequence[Point]]
    log: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """An image: gray values (rows, cols) from 0, black, to 1, white."""

    title: str
    pixels: FloatArray


@dataclass(frozen=True, eq=False)
class Figure:
    """Panels that belong together: the name of its files, and how many panels stand side by side in them."""

    name: str
    title: str
    caption: str
    panels: Sequence[Panel | Picture]
    columns: int = 2

    @property
    def methods(self) -> list[str]:
        """Methods with a curve in some panel, in the order of the first panel that has them; none of pictures."""
        return list(dict.fromkeys(m for panel in self.panels if isinstance(panel, Panel) for m in panel.curves))

    @property
    def has_content(self) -> bool:
        """Whether there is a curve or a picture."""
        return any(isinstance(panel, Picture) or panel.curves for panel in self.panels)


@dataclass(frozen=True)
class Table:
    """A table of texts; the first column names the row."""

    title: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


# -- averages -------------------------------------------------------------------------------------------------------


def select(rows: Iterable[Row], /, method: str | None = None, **parameters: Any) -> list[Row]:
    """Rows without failure of a method and with these parameters, whichever are given."""
    return [
        row
        for row in rows
        if row["failure"] is None
        and (method is None or row["method"] == method)
        and all(row["parameters"].get(name) == value for name, value in parameters.items())
    ]


def values_of(rows: Iterable[Row], field: str, name: str | None = None) -> FloatArray:
    """Numbers of the rows that have them: a field, or the one of this name in a field, such as the seconds."""
    values = (row[field] if name is None else row[field].get(name) for row in rows)
    return np.array([value for value in values if value is not None], dtype=np.float64)


def mean_and_error(values: FloatArray) -> tuple[float, float]:
    """Mean and its standard error, ``std / sqrt(count)``, the error bars of the paper; no error for one value."""
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return float(values.mean()), error


def median_seconds(rows: Iterable[Row], stage: str = "project") -> float | None:
    """Processor seconds that a stage takes, the median over rows: the first trial of a process loads compiled code."""
    values = values_of(rows, "seconds", stage)
    return float(np.median(values)) if len(values) else None


def extra_sweeps(rows: Sequence[Row], method: str = "reversed-kl") -> float | None:
    """Gibbs sweeps that take as long as the projection, from medians of processor seconds."""
    projection = median_seconds(select(rows, method))
    long_runs = select(rows, "gibbs-long")
    rates = [row["facts"]["num_sweeps"] / taken for row in long_runs if (taken := row["seconds"].get("sample"))]
    return float(projection * np.median(rates)) if projection is not None and rates else None


def gibbs_with_extra_effort(rows: Sequence[Row], sweeps: Sequence[float]) -> FloatArray:
    """Errors (trials, points) of Gibbs sampling that is given the time of the projection on top of the sweeps.

    Read off the long run at ``sweeps + extra``, between its points in the logarithm of the sweeps; at most its end.
    """
    extra = extra_sweeps(rows)
    if extra is None:
        return np.zeros((0, len(sweeps)))
    at = np.log(np.asarray(sweeps, dtype=np.float64) + extra)
    traces = [np.array(row["trace"], dtype=np.float64) for row in select(rows, "gibbs-long")]
    return np.array([np.interp(at, np.log(trace[:, 0]), trace[:, 1]) for trace in traces])


def _budget(rows: Sequence[Row]) -> float:
    """Sweeps that the sampling after a projection makes."""
    return float(values_of(select(rows, "reversed-kl"), "facts", "num_sweeps").max(initial=0.0))


def _strengths(rows: Iterable[Row]) -> list[float]:
    """Strengths of interaction that some row has, in ascending order."""
    return sorted({row["parameters"]["strength"] for row in rows})


# -- curves ---------------------------------------------------------------------------------------------------------


def _panel(title: str, x_label: str, errors: Mapping[str, Errors], *, log: bool) -> Panel:
    """A panel of the mean errors of every method, without points that no trial has."""
    curves = {m: [(x, *mean_and_error(here)) for x, here in by_x.items() if len(here)] for m, by_x in errors.items()}
    return Panel(title, x_label, {method: points for method, points in curves.items() if points}, log)


def strength_panel(title: str, rows: Sequence[Row], methods: Sequence[str]) -> Panel:
    """A panel of the error against interaction strength."""
    by_strength = {x: select(rows, strength=x) for x in _strengths(rows)}
    errors = {m: {x: values_of(select(here, m), "error") for x, here in by_strength.items()} for m in methods}
    errors["gibbs-extra"] = {x: gibbs_with_extra_effort(here, [_budget(here)])[:, 0] for x, here in by_strength.items()}
    return _panel(title, "interaction strength", errors, log=False)


def samples_panel(title: str, rows: Sequence[Row], methods: Sequence[str], x_label: str = "Gibbs sweeps") -> Panel:
    """A panel of the error against the number of sweeps; methods without sweeps are level lines."""
    last = float(max((point[0] for row in rows for point in row["trace"]), default=1))
    errors: dict[str, Errors] = {}
    for method in methods:
        traces = [row["trace"] or [(1.0, row["error"]), (last, row["error"])] for row in select(rows, method)]
        points = zip(*traces, strict=True)
        errors[method] = {here[0][0]: np.array([error for _, error in here]) for here in points}
    sweeps = [x for x in errors.get("gibbs-long", ()) if x <= _budget(rows)]
    errors["gibbs-extra"] = dict(zip(sweeps, gibbs_with_extra_effort(rows, sweeps).T, strict=True))
    return _panel(title, x_label, errors, log=True)


# -- what the experiments show ----------------------------------------------------------------------------------------


def _names(experiment: Experiment, settings: Settings) -> list[str]:
    """Names of the methods that were asked for."""
    return [call.name for call in experiment.calls(settings)]


def _parts(experiment: Experiment, rows: Sequence[Row]) -> Iterator[tuple[float | None, str, list[Row]]]:
    """Density of edges (None where it is fixed), kind of interaction and rows, for every shape and kind."""
    drawn = {row["parameters"].get("kind") for row in rows}
    for shape in experiment.shapes:
        for kind in [kind for kind in experiment.kinds if kind in drawn] or experiment.kinds:
            yield shape.get("density"), kind, select(rows, kind=kind, **shape)


def draw_strengths(experiment: Experiment, settings: Settings, rows: Sequence[Row]) -> list[Figure | Table]:
    """Error against strength, with a panel and a table for each shape and kind of interaction."""
    methods = _names(experiment, settings)
    strengths = _strengths(rows)
    panels = []
    tables = []
    for density, kind, here in _parts(experiment, rows):
        title = f"{kind.capitalize()} interactions" if density is None else f"Edge density {density:g}, {kind}"
        panels.append(strength_panel(title, here, methods))
        known = {(m, x): format_error(*mean) for m, points in panels[-1].curves.items() for x, *mean in points}
        lines = [[STYLES[m].label, *(known.get((m, x), "–") for x in strengths)] for m in methods]
        trials = format_count(len({row["trial"] for row in here}), "trial")
        caption = f"Mean error of the marginals ± standard error, by interaction strength; {trials}."
        tables.append(Table(title, caption, ["Method", *(f"{strength:g}" for strength in strengths)], lines))
    return [Figure(experiment.name, experiment.title, experiment.caption, panels), *tables]


def draw_samples(experiment: Experiment, settings: Settings, rows: Sequence[Row]) -> list[Figure | Table]:
    """Error against sweeps, a figure for each shape and kind with a panel for each strength; cost of projections."""
    found: list[Figure | Table] = []
    for density, kind, here in _parts(experiment, rows):
        part = "" if density is None else f"-{density:g}"
        where = experiment.where if density is None else f"{experiment.where} of edge density {density:g}"
        methods = _names(experiment, settings)
        panels = [
            samples_panel(f"Interaction strength {x:g}", select(here, strength=x), methods) for x in _strengths(rows)
        ]
        caption = (
            f"Ising models on {where} with {kind} interactions. Mean over trials, bars of one standard error; methods "
            "without sweeps are level lines."
        )
        title = f"Error against the number of samples, {where}, {kind}"
        found.append(Figure(f"{experiment.name}{part}-{kind}", title, caption, panels, columns=3))
    lines = []
    for call in experiment.methods:
        seconds = median_seconds(select(rows, call.name))
        sweeps = extra_sweeps(rows, call.name)
        if seconds is not None and sweeps is not None:
            lines.append([STYLES[call.name].label, format_seconds(seconds), f"{sweeps:,.0f}"])
    caption = "Median over all trials and strengths, processor seconds of one core."
    columns = ["Projection", "Seconds", "Gibbs sweeps in that time"]
    return [*found, Table("What a projection costs", caption, columns, lines)]


def draw_timing(experiment: Experiment, settings: Settings, rows: Sequence[Row]) -> list[Figure | Table]:
    """A table of our seconds, the paper's for every strength, and how many times fewer ours are."""
    lines = []
    for call in experiment.calls(settings):
        label = STYLES[call.name].label
        stage = "project"
        if call.name.startswith("gibbs"):
            label = f"Gibbs, {call.options['num_sweeps']:,} sweeps"
            stage = "sample"
        cells = []
        for strength, theirs in zip(experiment.strengths, experiment.paper.get(call.name, (None, None)), strict=True):
            ours = median_seconds(select(rows, call.name, strength=strength), stage)
            factor = "–" if ours is None or theirs is None else f"{theirs / max(ours, 1e-9):,.0f}"
            cells += [format_seconds(ours), format_seconds(theirs), factor]
        lines.append([label, *cells])
    columns = ["Method"]
    for strength in experiment.strengths:
        columns += [f"d = {strength:g}, ours", "paper", "times faster"]
    return [Table("Running times", experiment.caption, columns, lines)]


def draw_photographs(experiment: Experiment, settings: Settings, rows: Sequence[Row]) -> list[Figure | Table]:
    """Error against sweeps, pictures of the first photographs by all methods, and costs beside the paper's."""
    methods = _names(experiment, settings)
    rows = select(rows)
    panel = samples_panel("Mean over photographs", rows, methods, "sweeps")
    found: list[Figure | Table] = [
        Figure("denoise", "Denoising: error against sweeps", experiment.caption, [panel], columns=1)
    ]
    for trial in sorted({row["trial"] for row in rows})[:SHOWN_PHOTOGRAPHS]:
        here = [row for row in rows if row["trial"] == trial]
        maps = here[0]["facts"]["maps"]
        parameters = here[0]["parameters"]
        named = [("Original", maps["clean"]), ("Noisy", maps["observed"]), ("Truth", maps["truth"])]
        named += [(STYLES[m].label, row["facts"]["map"]) for m in methods for row in select(here, m)]
        pictures = [Picture(label, decode_map(text, parameters["rows"], parameters["cols"])) for label, text in named]
        name = parameters["image"]
        file = re.sub(r"[^A-Za-z0-9-]+", "-", name)
        caption = f"{name}: black and white, with noise, true probability of white, and what each method makes of it."
        found.append(Figure(f"denoise-{file}", f"Denoising: {name}", caption, pictures, columns=min(6, len(pictures))))
    lines = []
    for name in methods:
        chosen = select(rows, name)
        if chosen:
            (theirs,) = experiment.paper.get(name, (None,))
            counts = (chosen[0]["facts"].get("num_sweeps"), extra_sweeps(rows, name), theirs)
            sweeps, cost, paper = ("–" if count is None else f"{count:,.0f}" for count in counts)
            error = format_error(*mean_and_error(values_of(chosen, "error")))
            seconds = format_seconds(median_seconds(chosen))
            lines.append([STYLES[name].label, error, sweeps, seconds, cost, paper])
    columns = ["Method", "Error at the end", "Sweeps", "Projection", "in Gibbs sweeps", "in the paper"]
    doubt = values_of(rows, "facts", "truth_error")
    sure = f" The truth is sure to {doubt.mean():.3f} on average." if len(doubt) else ""
    caption = f"Mean error of the marginals ± standard error over photographs; cost of the projection.{sure}"
    return [*found, Table("Errors and costs", caption, columns, lines)]


def format_error(mean: float, error: float) -> str:
    """A mean with its standard error, such as ``0.123 ± 0.002``."""
    return f"{mean:.3f} ± {error:.3f}"


def format_seconds(seconds: float | None) -> str:
    """Seconds in a fitting unit, such as ``2.13 ms`` and ``1.50 s``."""
    if seconds is None:
        return "–"
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def format_count(count: int, word: str) -> str:
    """A number with its noun, such as ``1 trial`` and ``1,200 rows``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
