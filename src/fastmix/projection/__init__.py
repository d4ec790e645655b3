"""Projection onto models whose Gibbs sampler mixes fast."""

from __future__ import annotations

from fastmix.projection.api import ProjectionResult, project
from fastmix.projection.descent import (
    DIVERGENCES,
    PAPER_STEP,
    DecreasingStep,
    Divergence,
    Euclidean,
    FixedStep,
    LineSearch,
    Objective,
    StepRule,
    Trace,
    divergence_by_name,
)
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.kl import KL, PiecewiseKL
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.reversed_kl import ReversedKL

__all__ = [
    "DIVERGENCES", "KL", "PAPER_STEP", "DecreasingStep", "Divergence", "Euclidean", "FeasibleSet", "FixedStep",
    "LineSearch", "Objective", "PaperDual", "PiecewiseKL", "ProjectionResult", "ReversedKL", "StepRule", "Trace",
    "divergence_by_name", "project",
]  # fmt: skip
