"""Error against the number of samples on Ising grids (figure 2 of the paper, top, and appendix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastmix.experiments import strength_grid
from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import Finding
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import effort_table, samples_figures

__all__ = ["EXPERIMENT"]

_LEFT_OUT = ("gibbs",)  # the long run shows all that the short one would


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options: those of the figure of strengths, whose rows serve here too."""
    return [call for call in strength_grid.calls(settings) if call.name not in _LEFT_OUT]


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return [Task(task.case, chosen) for task in strength_grid.tasks(replace(settings, methods=None))]


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """One figure for each kind of interaction, one panel for each strength."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    return samples_figures("samples-grid", "16x16 grids", rows, methods)


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """What a projection costs, in sweeps."""
    return [effort_table(rows)]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """The paper draws no conclusion of its own from this figure."""
    return []


EXPERIMENT = Experiment(
    name="samples-grid",
    title="Error against the number of samples, grids",
    summary=(
        "The same runs as in the figure of strengths, looked at along the way: one chain, averaged over time from its "
        "first sweep on. A second curve for the original parameters has the time of the reversed KL projection on top, "
        "spent on further sweeps."
    ),
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
