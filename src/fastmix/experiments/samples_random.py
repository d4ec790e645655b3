"""Error against the number of samples on random graphs (figure 2 of the paper, bottom, and appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastmix.experiments import strength_random
from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import Finding
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import effort_table, samples_figures

__all__ = ["EXPERIMENT"]

_LEFT_OUT = ("gibbs",)


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options: those of the figure of strengths, whose rows serve here too."""
    return [call for call in strength_random.calls(settings) if call.name not in _LEFT_OUT]


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return [Task(task.case, chosen) for task in strength_random.tasks(replace(settings, methods=None))]


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """One figure for each density and kind of interaction, one panel for each strength."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    found = []
    for density in strength_random.DENSITIES:
        here = [row for row in rows if row["parameters"]["density"] == density]
        found += samples_figures(
            f"samples-random-{density:g}", f"random graphs of edge density {density:g}", here, methods
        )
    return found


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """What a projection costs, in sweeps."""
    return [effort_table(rows)]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """The paper draws no conclusion of its own from this figure."""
    return []


EXPERIMENT = Experiment(
    name="samples-random",
    title="Error against the number of samples, random graphs",
    summary="As on the grids, for graphs of 10 variables and three densities of edges.",
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
