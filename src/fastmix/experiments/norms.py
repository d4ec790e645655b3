"""Infinity norm against spectral norm on Ising grids (figure 3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

from fastmix.experiments import strength_grid
from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import Finding, infinity_norm_is_faster
from fastmix.experiments.methods import NUM_SWEEPS, projected
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import KINDS, all_tasks, strength_panel
from fastmix.experiments.tables import strength_table

__all__ = ["EXPERIMENT"]

_QUICK_TRIALS = 3
_PROJECTED = ("euclidean", "piecewise", "reversed-kl")


def calls(settings: Settings) -> list[MethodCall]:
    """Three divergences in two norms; those in the infinity norm are rows of the figure of strengths."""
    inf = [call for call in strength_grid.calls(settings) if call.name in _PROJECTED]
    spectral = [
        MethodCall("euclidean-spectral", projected("euclidean", NUM_SWEEPS, norm="spectral")),
        MethodCall(
            "piecewise-spectral", projected("piecewise", NUM_SWEEPS, norm="spectral", pieces="rows-and-columns")
        ),
        MethodCall("reversed-kl-spectral", projected("reversed-kl", NUM_SWEEPS, norm="spectral")),
    ]
    return inf + spectral


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return all_tasks(settings, "ising-grid", [strength_grid.SHAPE], chosen, settings.num_trials(_QUICK_TRIALS))


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """One panel for each kind of interaction."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    panels = [
        strength_panel(
            f"{kind.capitalize()} interactions", [r for r in rows if r["parameters"]["kind"] == kind], methods
        )
        for kind in KINDS
    ]
    caption = (
        "Projection onto the balls of radius 2.5 in the infinity norm (full lines) and the spectral norm (dotted), "
        "then 30,000 sweeps, on 16x16 Ising grids. The spectral ball is the larger one, so that the model changes less."
    )
    return [Figure("norms", "Infinity norm against spectral norm", caption, panels)]


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """The numbers of the figure."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    return [strength_table(f"{kind.capitalize()} interactions", rows, methods, kind=kind) for kind in KINDS]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the paper says about the norms."""
    return [infinity_norm_is_faster(rows, rows)]


EXPERIMENT = Experiment(
    name="norms",
    title="Infinity norm against spectral norm",
    summary="What is lost in accuracy by the norm that is so much easier to project onto.",
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
