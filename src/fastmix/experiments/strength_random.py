"""Error against interaction strength on random graphs (figure 1 of the paper, bottom, and appendix)."""

from __future__ import annotations

from collections.abc import Sequence

from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import Finding, projection_is_competitive
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import KINDS, all_tasks, compared_methods, strength_panel, sweeps_note
from fastmix.experiments.tables import strength_table

__all__ = ["DENSITIES", "EXPERIMENT", "SHAPES"]

DENSITIES = (0.3, 0.5, 0.7)
SHAPES = [{"num_variables": 10, "density": density} for density in DENSITIES]
_QUICK_TRIALS = 5


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options."""
    return compared_methods(settings, pieces="spanning-trees")


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return all_tasks(settings, "ising-random", SHAPES, chosen, settings.num_trials(_QUICK_TRIALS))


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """One panel for each density and kind of interaction."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    panels = []
    for density in DENSITIES:
        for kind in KINDS:
            here = [r for r in rows if r["parameters"]["kind"] == kind and r["parameters"]["density"] == density]
            panels.append(strength_panel(f"Edge density {density:g}, {kind}", here, methods))
    caption = (
        "Ising models on random graphs of 10 variables, each edge present with the given probability; fields and "
        "couplings as for the grids. Mean over trials, bars of one standard error. "
        f"{sweeps_note(settings)}"
    )
    return [Figure("strength-random", "Error against interaction strength, random graphs", caption, panels)]


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """The numbers of the figure."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    return [
        strength_table(f"Edge density {density:g}, {kind}", rows, methods, kind=kind, density=density)
        for density in DENSITIES
        for kind in KINDS
    ]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the paper says about this figure."""
    return projection_is_competitive(rows, "random graphs")


EXPERIMENT = Experiment(
    name="strength-random",
    title="Error against interaction strength, random graphs",
    summary="As on the grids, for graphs of 10 variables and three densities of edges.",
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
