"""Error against interaction strength on Ising grids (figure 1 of the paper, top, and appendix)."""

from __future__ import annotations

from collections.abc import Sequence

from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import Finding, projection_is_competitive
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import KINDS, all_tasks, compared_methods, strength_panel, sweeps_note
from fastmix.experiments.tables import strength_table

__all__ = ["EXPERIMENT", "SHAPE"]

SHAPE = {"rows": 16, "cols": 16}
_QUICK_TRIALS = 3


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options."""
    return compared_methods(settings, pieces="rows-and-columns")


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return all_tasks(settings, "ising-grid", [SHAPE], chosen, settings.num_trials(_QUICK_TRIALS))


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
        "Ising models on 16x16 grids, fields uniform on [-1, 1], couplings uniform on [0, d] (attractive) or [-d, d] "
        "(mixed) for strength d. Mean over trials, bars of one standard error. Projected: onto the infinity-norm ball "
        "of radius 2.5, then 30,000 sweeps of one chain. "
        f"{sweeps_note(settings)}"
    )
    return [Figure("strength-grid", "Error against interaction strength, grids", caption, panels)]


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """The numbers of the figure."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    return [strength_table(f"{kind.capitalize()} interactions", rows, methods, kind=kind) for kind in KINDS]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the paper says about this figure."""
    return projection_is_competitive(rows, "16x16 grids")


EXPERIMENT = Experiment(
    name="strength-grid",
    title="Error against interaction strength, grids",
    summary=(
        "Every method answers the same random Ising models on 16x16 grids; the error is the mean over variables of the "
        "difference between its marginal and the exact one (junction tree)."
    ),
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
