"""Projection onto models whose Gibbs sampler mixes fast."""

from __future__ import annotations

from fastmix.projection.api import project
from fastmix.projection.divergence import Divergence, Euclidean, Objective
from fastmix.projection.feasible import FeasibleSet
from fastmix.projection.kl import KL
from fastmix.projection.paper_dual import PaperDual
from fastmix.projection.piecewise import PiecewiseKL
from fastmix.projection.result import ProjectionResult
from fastmix.projection.reversed_kl import ReversedKL
from fastmix.projection.steps import PAPER_STEP, DecreasingStep, FixedStep, LineSearch, StepRule, Trace

__all__ = [
    "KL",
    "PAPER_STEP",
    "DecreasingStep",
    "Divergence",
    "Euclidean",
    "FeasibleSet",
    "FixedStep",
    "LineSearch",
    "Objective",
    "PaperDual",
    "PiecewiseKL",
    "ProjectionResult",
    "ReversedKL",
    "StepRule",
    "Trace",
    "project",
]
