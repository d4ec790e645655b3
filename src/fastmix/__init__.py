"""Marginal inference in discrete pairwise Markov random fields, with guarantees."""

from __future__ import annotations

from fastmix.dependency import dependency_matrix
from fastmix.errors import (
    FastmixError,
    FormatError,
    ModelError,
    NotConvergedError,
    ResourceError,
    UnfitMethodError,
)
from fastmix.exact import draw_exact
from fastmix.inference import infer
from fastmix.mixing import Certificate, certify
from fastmix.model import PairwiseMRF
from fastmix.projection import PaperDual, ProjectionResult, project
from fastmix.results import InferenceResult, Status
from fastmix.sampling import SampleResult, sample

__version__ = "0.1.0"

__all__ = [
    "Certificate",
    "FastmixError",
    "FormatError",
    "InferenceResult",
    "ModelError",
    "NotConvergedError",
    "PairwiseMRF",
    "PaperDual",
    "ProjectionResult",
    "ResourceError",
    "SampleResult",
    "Status",
    "UnfitMethodError",
    "__version__",
    "certify",
    "dependency_matrix",
    "draw_exact",
    "infer",
    "project",
    "sample",
]
