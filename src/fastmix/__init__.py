"""Marginal inference in discrete pairwise Markov random fields, with guarantees."""

from __future__ import annotations

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
from fastmix.model import PairwiseMRF
from fastmix.results import InferenceResult, Status

__version__ = "0.1.0"

__all__ = [
    "FastmixError",
    "FormatError",
    "InferenceResult",
    "ModelError",
    "NotConvergedError",
    "PairwiseMRF",
    "ResourceError",
    "Status",
    "UnfitMethodError",
    "__version__",
    "draw_exact",
    "infer",
]
