"""Seconds of sampling and of every projection on attractive Ising grids, beside those of the paper (its table)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastmix.experiments.figures import Figure, Table, select, values_of
from fastmix.experiments.findings import Finding, euclidean_converges_quickly
from fastmix.experiments.methods import LONG_SWEEPS, NUM_SWEEPS, projected, sampled
from fastmix.experiments.plan import Case, Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.strength_grid import SHAPE
from fastmix.experiments.styles import style
from fastmix.experiments.tables import format_seconds

__all__ = ["EXPERIMENT", "PAPER_SECONDS"]

_STRENGTHS = (1.5, 3.0)
_QUICK_TRIALS = 2
_TRIALS = 10  # seconds vary little between instances, and the tasks run one after the other
_REPEATS = 3

PAPER_SECONDS: dict[str, tuple[float, float]] = {
    "gibbs": (0.67, 0.67),
    "gibbs-long": (22.42, 22.42),
    "euclidean": (1.50, 3.26),
    "euclidean-spectral": (25.63, 164.34),
    "piecewise": (12.87, 20.73),
    "piecewise-spectral": (45.26, 211.08),
    "reversed-kl": (13.13, 20.12),
    "reversed-kl-spectral": (66.81, 254.25),
}
"""The paper's own table, for strengths 1.5 and 3.0, on one core of an Intel i7 860."""


def calls(settings: Settings) -> list[MethodCall]:
    """Everything in the paper's table, and its dual for the Euclidean projection beside our solver."""
    pieces: dict[str, Any] = {"pieces": "rows-and-columns"}
    again: dict[str, Any] = {"repeats": _REPEATS}
    found = [
        MethodCall("gibbs", sampled(NUM_SWEEPS, **again)),
        MethodCall("gibbs-long", sampled(LONG_SWEEPS)),
    ]
    for norm, suffix in (("inf", ""), ("spectral", "-spectral")):
        found += [
            MethodCall(f"euclidean{suffix}", projected("euclidean", NUM_SWEEPS, norm=norm, **again)),
            MethodCall(f"piecewise{suffix}", projected("piecewise", NUM_SWEEPS, norm=norm, **pieces, **again)),
            MethodCall(f"reversed-kl{suffix}", projected("reversed-kl", NUM_SWEEPS, norm=norm, **again)),
            MethodCall(f"euclidean-dual{suffix}", projected("euclidean", NUM_SWEEPS, norm=norm, solver="paper-once")),
        ]
    return found


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    trials = settings.trials or (_QUICK_TRIALS if settings.quick else _TRIALS)
    chosen = settings.chosen(calls(settings))
    return [
        Task(Case("ising-grid", trial, {**SHAPE, "kind": "attractive", "strength": strength}, settings.seed), chosen)
        for trial in range(trials)
        for strength in _STRENGTHS
    ]


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """None: this is a table."""
    return []


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """Our seconds, the paper's, and how many times fewer."""
    lines = []
    for call in settings.chosen(calls(settings)):
        cells = []
        for k, strength in enumerate(_STRENGTHS):
            ours = _seconds(rows, call.name, strength)
            theirs = PAPER_SECONDS[call.name][k] if call.name in PAPER_SECONDS else None
            factor = "–" if ours is None or theirs is None else f"{theirs / max(ours, 1e-9):,.0f}"
            cells += [format_seconds(ours), format_seconds(theirs), factor]
        lines.append([_label(call.name), *cells])
    columns = ["Method"]
    for strength in _STRENGTHS:
        columns += [f"d = {strength:g}, ours", "paper", "times faster"]
    caption = (
        "Processor seconds of one core on attractive 16x16 Ising grids: sampling for the first two rows, the "
        "projection alone for the others. Ours: median over trials of the best of three runs, by the fast solver; "
        "piecewise and reversed KL with 60 gradient steps as in the paper. The paper's: one core of an Intel i7 860. "
        "The last rows are the paper's dual by L-BFGS-B in our code, solved once."
    )
    return [Table("Running times", caption, columns, lines)]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the caption of the paper's table says."""
    return [euclidean_converges_quickly(rows)]


def _seconds(rows: Sequence[Row], method: str, strength: float) -> float | None:
    stage = "sample" if method.startswith("gibbs") else "project"
    values = values_of(select(rows, method, strength=strength), lambda row: row["seconds"].get(stage))
    return float(np.median(values)) if len(values) else None


def _label(method: str) -> str:
    if method == "gibbs":
        return f"Gibbs, {NUM_SWEEPS:,} sweeps"
    if method == "gibbs-long":
        return f"Gibbs, {LONG_SWEEPS:,} sweeps"
    label = style(method).label
    if method.endswith("-spectral"):
        return label
    short = label.removeprefix("Projected, ")
    return f"{short[0].upper()}{short[1:]}, infinity norm"


EXPERIMENT = Experiment(
    name="timing",
    title="Running times",
    summary=(
        "What a projection costs beside the sampling that it is meant to shorten. Tasks run one at a time on this "
        "machine, whatever the executor."
    ),
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
    alone=True,
)
