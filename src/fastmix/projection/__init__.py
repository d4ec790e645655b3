"""Projection onto models whose Gibbs sampler mixes fast."""

from __future__ import annotations

from fastmix.projection.balls import project_inf_norm_ball, project_l1_ball, project_spectral_norm_ball
from fastmix.projection.euclidean import ProjectionResult, project
from fastmix.projection.paper_dual import PaperDual

__all__ = [
    "PaperDual",
    "ProjectionResult",
    "project",
    "project_inf_norm_ball",
    "project_l1_ball",
    "project_spectral_norm_ball",
]
