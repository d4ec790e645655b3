"""What the experiments on random Ising and Potts models share: strengths, methods, and curves from rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.experiments.figures import Figure, Line, Panel, Table, line_of, mean_and_error, select, values_of
from fastmix.experiments.methods import LONG_SWEEPS, NUM_SWEEPS, projected, sampled
from fastmix.experiments.plan import Case, MethodCall, Row, Settings, Task
from fastmix.experiments.styles import style
from fastmix.experiments.tables import format_seconds

__all__ = [
    "KINDS",
    "all_tasks",
    "compared_methods",
    "effort_table",
    "extra_sweeps",
    "gibbs_with_extra_effort",
    "samples_figures",
    "samples_panel",
    "strength_panel",
    "strengths",
    "sweeps_note",
]

FloatArray = NDArray[np.float64]

KINDS = ("attractive", "mixed")
_STRENGTHS = tuple(0.5 * k for k in range(9))
_QUICK_STRENGTHS = (0.0, 1.0, 2.0, 3.0, 4.0)
_QUICK_LONG_SWEEPS = 100_000
_ERROR = "mean error of the marginals"


def strengths(settings: Settings) -> tuple[float, ...]:
    """Interaction strengths d of the paper, 0, 0.5 to 4; whole numbers in a quick run."""
    return _QUICK_STRENGTHS if settings.quick else _STRENGTHS


def compared_methods(settings: Settings, *, pieces: str, true_kl: bool = False) -> list[MethodCall]:
    """Methods of the paper's figures, and the projections with our own defaults.

    Parameters
    ----------
    settings : Settings
    pieces : str
        Subgraphs of the piecewise divergence, see :class:`fastmix.projection.PiecewiseKL`.
    true_kl : bool
        Whether to add the intractable KL.
    """
    long_run = _QUICK_LONG_SWEEPS if settings.quick else LONG_SWEEPS
    calls = [
        MethodCall("mean-field"),
        MethodCall("loopy-bp"),
        MethodCall("gibbs", sampled(NUM_SWEEPS)),
        MethodCall("gibbs-long", sampled(long_run)),
        MethodCall("euclidean", projected("euclidean", NUM_SWEEPS)),
        MethodCall("piecewise", projected("piecewise", NUM_SWEEPS, pieces=pieces)),
        MethodCall("reversed-kl", projected("reversed-kl", NUM_SWEEPS)),
        MethodCall("piecewise-default", projected("piecewise", NUM_SWEEPS, step="default")),
        MethodCall("reversed-kl-default", projected("reversed-kl", NUM_SWEEPS, step="default")),
    ]
    if true_kl:
        calls.append(MethodCall("kl", projected("kl", NUM_SWEEPS)))
    return calls


def sweeps_note(settings: Settings) -> str:
    """How long the chains on the original parameters are, for captions."""
    long_run = _QUICK_LONG_SWEEPS if settings.quick else LONG_SWEEPS
    return f"Gibbs sampling: {NUM_SWEEPS:,} sweeps of one chain; long run: {long_run:,}."


def all_tasks(
    settings: Settings, problem: str, shapes: Sequence[Mapping[str, Any]], calls: Sequence[MethodCall], trials: int
) -> list[Task]:
    """Every method on every shape, kind, strength and trial.

    Trials come first: a run that is stopped early has all points of the figures, from fewer trials.
    """
    return [
        Task(Case(problem, trial, {**shape, "kind": kind, "strength": strength}, settings.seed), tuple(calls))
        for trial in range(trials)
        for shape in shapes
        for kind in KINDS
        for strength in strengths(settings)
    ]


def strength_panel(title: str, rows: Sequence[Row], methods: Sequence[str]) -> Panel:
    """Error against interaction strength."""
    lines = []
    xs = sorted({row["parameters"]["strength"] for row in rows})
    for method in methods:
        points = [(x, *mean_and_error(_errors(select(rows, method, strength=x)))) for x in xs]
        lines.append(line_of(method, points))
    if "gibbs-long" in methods and "reversed-kl" in methods:
        points = []
        for x in xs:
            here = select(rows, strength=x)
            budget = _budget(here)
            points.append((x, *mean_and_error(gibbs_with_extra_effort(here, [budget])[:, 0])))
        lines.append(line_of("gibbs-extra", points))
    return Panel(title, "interaction strength", _ERROR, [line for line in lines if line is not None])


def samples_panel(title: str, rows: Sequence[Row], methods: Sequence[str]) -> Panel:
    """Error against the number of sweeps; methods without sweeps are level lines."""
    lines: list[Line | None] = []
    last = max((point[0] for row in rows for point in row["trace"]), default=1)
    for method in methods:
        chosen = select(rows, method)
        if not chosen:
            continue
        if not chosen[0]["trace"]:
            mean, error = mean_and_error(_errors(chosen))
            lines.append(line_of(method, [(x, mean, error) for x in (1.0, float(last))]))
            continue
        sweeps = [point[0] for point in chosen[0]["trace"]]
        values = np.array([[point[1] for point in row["trace"]] for row in chosen])
        lines.append(line_of(method, [(x, *mean_and_error(values[:, k])) for k, x in enumerate(sweeps)]))
    if "gibbs-long" in methods and extra_sweeps(rows) is not None:
        sweeps = [point[0] for point in select(rows, "gibbs-long")[0]["trace"]]
        sweeps = [x for x in sweeps if x <= _budget(rows)]
        values = gibbs_with_extra_effort(rows, sweeps)
        lines.append(line_of("gibbs-extra", [(x, *mean_and_error(values[:, k])) for k, x in enumerate(sweeps)]))
    found = [line for line in lines if line is not None]
    return Panel(title, "Gibbs sweeps", _ERROR, found, x_log=True, y_log=True)


def samples_figures(name: str, where: str, rows: Sequence[Row], methods: Sequence[str]) -> list[Figure]:
    """Error against sweeps: a figure for each kind of interaction, a panel for each strength."""
    found = []
    for kind in KINDS:
        panels = []
        for strength in sorted({row["parameters"]["strength"] for row in rows}):
            here = [r for r in rows if r["parameters"]["kind"] == kind and r["parameters"]["strength"] == strength]
            panels.append(samples_panel(f"Interaction strength {strength:g}", here, methods))
        caption = (
            f"Ising models on {where} with {kind} interactions. Mean over trials, bars of one standard error; methods "
            "without sweeps are level lines."
        )
        title = f"Error against the number of samples, {where}, {kind}"
        found.append(Figure(f"{name}-{kind}", title, caption, panels, columns=3))
    return found


def effort_table(rows: Sequence[Row]) -> Table:
    """The time of each projection, also as the Gibbs sweeps that take as long."""
    lines = []
    for method in ("euclidean", "piecewise", "reversed-kl", "piecewise-default", "reversed-kl-default"):
        seconds = values_of(select(rows, method), lambda row: row["seconds"].get("project"))
        sweeps = extra_sweeps(rows, method)
        if len(seconds) and sweeps is not None:
            lines.append([style(method).label, format_seconds(float(np.median(seconds))), f"{sweeps:,.0f}"])
    caption = "Median over all trials and strengths, processor seconds of one core."
    return Table("What a projection costs", caption, ["Projection", "Seconds", "Gibbs sweeps in that time"], lines)


def extra_sweeps(rows: Sequence[Row], method: str = "reversed-kl") -> float | None:
    """Gibbs sweeps that take as long as the projection; the median over trials, from processor seconds.

    The first trial of a process pays for loading the compiled code, which the median leaves out.
    """
    projections = values_of(select(rows, method), lambda row: row["seconds"].get("project"))
    rates = values_of(
        select(rows, "gibbs-long") or select(rows, "gibbs"),
        lambda row: row["facts"]["num_sweeps"] / taken if (taken := row["seconds"].get("sample")) else None,
    )
    if not len(projections) or not len(rates):
        return None
    return float(np.median(projections) * np.median(rates))


def gibbs_with_extra_effort(rows: Sequence[Row], sweeps: Sequence[float]) -> FloatArray:
    """Errors (trials, points) of Gibbs sampling that is given the time of the projection on top of the sweeps.

    Read off the long run at ``sweeps + extra``, between its points in the logarithm of the sweeps; at most its end.
    """
    chosen = select(rows, "gibbs-long")
    extra = extra_sweeps(rows)
    if not chosen or extra is None:
        return np.full((1, len(sweeps)), math.nan)
    at = np.log(np.asarray(sweeps, dtype=np.float64) + extra)
    traces = [np.array(row["trace"], dtype=np.float64) for row in chosen]
    return np.array([np.interp(at, np.log(trace[:, 0]), trace[:, 1]) for trace in traces])


def _budget(rows: Sequence[Row]) -> float:
    """Sweeps after projection."""
    found = [row["facts"]["num_sweeps"] for row in select(rows, "reversed-kl")]
    return float(max(found, default=NUM_SWEEPS))


def _errors(rows: Sequence[Row]) -> FloatArray:
    return values_of(rows, lambda row: row["error"])
