"""Three-state Potts models on 8x8 grids, with the true KL divergence for reference (appendix of the paper)."""

from __future__ import annotations

from collections.abc import Sequence

from fastmix.experiments.figures import Figure, Table
from fastmix.experiments.findings import (
    Finding,
    gibbs_and_loopy_bp_excel_on_mixed_potts,
    piecewise_wins_on_attractive_potts,
)
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.synthetic import KINDS, all_tasks, compared_methods, strength_panel, sweeps_note
from fastmix.experiments.tables import strength_table

__all__ = ["EXPERIMENT"]

_SHAPE = {"rows": 8, "cols": 8, "num_states": 3}
_QUICK_TRIALS = 3


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options."""
    return compared_methods(settings, pieces="rows-and-columns", true_kl=True)


def tasks(settings: Settings) -> list[Task]:
    """All cases."""
    chosen = settings.chosen(calls(settings))
    return all_tasks(settings, "potts-grid", [_SHAPE], chosen, settings.num_trials(_QUICK_TRIALS))


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
        "Potts models of 3 states on 8x8 grids; log-potentials of the states uniform on [-1, 1], couplings as for the "
        "Ising grids. The error is the mean total variation distance. The true KL needs exact inference, and is here "
        "for reference only. "
        f"{sweeps_note(settings)}"
    )
    return [Figure("potts", "Potts models", caption, panels)]


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """The numbers of the figure."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    return [strength_table(f"{kind.capitalize()} interactions", rows, methods, kind=kind) for kind in KINDS]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the caption of the figure says."""
    return [piecewise_wins_on_attractive_potts(rows), gibbs_and_loopy_bp_excel_on_mixed_potts(rows)]


EXPERIMENT = Experiment(
    name="potts",
    title="Potts models",
    summary="Variables of three states, as a test beyond binary models.",
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
