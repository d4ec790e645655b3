"""Projection onto models whose Gibbs sampler mixes fast."""

from __future__ import annotations

from fastmix.projection.descent import PAPER_STEP, DecreasingStep, FixedStep, LineSearch, StepRule, Trace
from fastmix.projection.divergence import (
    DIVERGENCES,
    Divergence,
    Euclidean,
    Objective,
    divergence_by_name,
    register_divergence,
)
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.kl import KL, PiecewiseKL
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.project import project
from fastmix.projection.result import ProjectionResult
from fastmix.projection.reversed_kl import ReversedKL

__all__ = [
    "DIVERGENCES", "KL", "PAPER_STEP", "DecreasingStep", "Divergence", "Euclidean", "FeasibleSet", "FixedStep",
    "LineSearch", "Objective", "PaperDual", "PiecewiseKL", "ProjectionResult", "ReversedKL", "StepRule", "Trace",
    "divergence_by_name", "project", "register_divergence",
]  # fmt: skip
