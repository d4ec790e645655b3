"""Denoising photographs: error against sweeps, and what a projection costs (figure 4 of the paper)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from fastmix.experiments.figures import Figure, Panel, Picture, Table, mean_and_error, select, values_of
from fastmix.experiments.findings import (
    Finding,
    projected_sampling_converges_on_photographs,
    swendsen_wang_mixes_on_photographs,
)
from fastmix.experiments.methods import LONG_SWEEPS, NUM_SWEEPS, projected, sampled
from fastmix.experiments.photographs import decode_map, load_photographs
from fastmix.experiments.plan import Experiment, MethodCall, Row, Settings, Task
from fastmix.experiments.styles import style
from fastmix.experiments.synthetic import extra_sweeps, samples_panel
from fastmix.experiments.tables import format_error, format_seconds

__all__ = ["EXPERIMENT", "PAPER_COST"]

PAPER_COST = {"euclidean": 1e5, "reversed-kl": 4.8e5}
"""Gibbs sweeps that take as long as the projection, as the paper says."""

_SIZE, _QUICK_SIZE = (120, 80), (60, 40)
_QUICK_TRIALS = 3
# Chains, steps and sweeps of the truth.
_EFFORT = {"num_populations": 2, "num_chains": 64, "num_steps": 150, "sweeps_per_step": 16}
_QUICK_EFFORT = {"num_populations": 2, "num_chains": 16, "num_steps": 75, "sweeps_per_step": 16}
_SHOWN = 3  # photographs in the figure of pictures


def calls(settings: Settings) -> list[MethodCall]:
    """Methods with their options; Swendsen-Wang as the paper's source of truth."""
    long_run, sweeps, cluster_sweeps = LONG_SWEEPS, NUM_SWEEPS, 10_000
    if settings.quick:
        long_run, cluster_sweeps = 100_000, 2_000
    return [
        MethodCall("mean-field"),
        MethodCall("loopy-bp"),
        MethodCall("gibbs-long", sampled(long_run)),
        MethodCall("swendsen-wang", sampled(cluster_sweeps, method="swendsen-wang")),
        MethodCall("euclidean", projected("euclidean", sweeps)),
        MethodCall("piecewise", projected("piecewise", sweeps, pieces="rows-and-columns")),
        MethodCall("reversed-kl", projected("reversed-kl", sweeps)),
        MethodCall("reversed-kl-default", projected("reversed-kl", sweeps, step="default")),
    ]


def tasks(settings: Settings) -> list[Task]:
    """One case for every photograph; more trials than photographs do not make more."""
    chosen = settings.chosen(calls(settings))
    size, effort = (_QUICK_SIZE, _QUICK_EFFORT) if settings.quick else (_SIZE, _EFFORT)
    photographs = load_photographs(settings.images, size, settings.num_trials(_QUICK_TRIALS))
    return [Task(picture.case(trial, settings.seed, effort), chosen) for trial, picture in enumerate(photographs)]


def figures(settings: Settings, rows: Sequence[Row]) -> list[Figure]:
    """Error against sweeps, and the pictures."""
    methods = [call.name for call in settings.chosen(calls(settings))]
    panel = samples_panel("Mean over photographs", rows, methods)
    panel = Panel(panel.title, "sweeps", panel.y_label, panel.lines, x_log=True, y_log=True)
    caption = (
        "Posterior of noisy black-and-white photographs, coupling 0.7, data weight 0.25. Error of the marginals of one "
        "chain averaged over time, mean over photographs with bars of one standard error. The truth comes from "
        "annealed populations of Swendsen-Wang chains."
    )
    found = [Figure("denoise", "Denoising: error against sweeps", caption, [panel], columns=1)]
    for name, pictures in _pictures(rows, methods):
        caption = f"{name}: black and white, with noise, true probability of white, and what each method makes of it."
        file = re.sub(r"[^A-Za-z0-9-]+", "-", name)
        found.append(Figure(f"denoise-{file}", f"Denoising: {name}", caption, pictures, columns=len(pictures)))
    return found


def tables(settings: Settings, rows: Sequence[Row]) -> list[Table]:
    """Errors, and the cost of projections in sweeps beside the paper's figures."""
    lines = []
    for call in settings.chosen(calls(settings)):
        chosen = select(rows, call.name)
        if not chosen:
            continue
        sweeps = chosen[0]["facts"].get("num_sweeps")
        seconds = values_of(chosen, lambda row: row["seconds"].get("project"))
        cost = extra_sweeps(rows, call.name)
        paper = PAPER_COST.get(call.name)
        lines.append(
            [
                style(call.name).label,
                format_error(*mean_and_error(values_of(chosen, lambda row: row["error"]))),
                "–" if sweeps is None else f"{sweeps:,}",
                format_seconds(float(np.median(seconds)) if len(seconds) else None),
                "–" if cost is None else f"{cost:,.0f}",
                "–" if paper is None else f"{paper:,.0f}",
            ]
        )
    columns = ["Method", "Error at the end", "Sweeps", "Projection", "in Gibbs sweeps", "in the paper"]
    doubt = values_of(select(rows), lambda row: row["facts"].get("truth_error"))
    sure = f" The truth is sure to {doubt.mean():.3f} on average." if len(doubt) else ""
    caption = f"Mean error of the marginals ± standard error over photographs, and the cost of the projection.{sure}"
    return [Table("Errors and costs", caption, columns, lines)]


def findings(settings: Settings, rows: Sequence[Row]) -> list[Finding]:
    """What the paper says about denoising."""
    return [*projected_sampling_converges_on_photographs(rows), swendsen_wang_mixes_on_photographs(rows)]


def _pictures(rows: Sequence[Row], methods: Sequence[str]) -> list[tuple[str, list[Picture]]]:
    """The first photographs, each with the answers of all methods."""
    found = []
    for trial in sorted({row["trial"] for row in select(rows)})[:_SHOWN]:
        here = [row for row in select(rows) if row["trial"] == trial]
        facts, parameters = here[0]["facts"], here[0]["parameters"]
        shape = parameters["rows"], parameters["cols"]
        pictures = [
            Picture(label, decode_map(facts["maps"][key], *shape))
            for key, label in (("clean", "Original"), ("observed", "Noisy"), ("truth", "Truth"))
        ]
        answers = [row for method in methods for row in select(here, method)]
        pictures += [Picture(style(row["method"]).label, decode_map(row["facts"]["map"], *shape)) for row in answers]
        found.append((parameters["image"], pictures))
    return found


EXPERIMENT = Experiment(
    name="denoise",
    title="Denoising photographs",
    summary=(
        "Photographs scaled to 120x80 pixels (60x40 in a quick run) and made black and white, with the paper's noise "
        "and model. How fast do samplers find the posterior marginals, and what does the projection before cost?"
    ),
    calls=calls,
    tasks=tasks,
    figures=figures,
    tables=tables,
    findings=findings,
)
