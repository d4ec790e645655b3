"""Marginal inference in discrete pairwise Markov random fields, with guarantees."""

from __future__ import annotations

from fastmix.comparison import Comparison, compare
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
from fastmix.projection import (
    KL,
    PAPER_STEP,
    DecreasingStep,
    Divergence,
    Euclidean,
    FixedStep,
    LineSearch,
    PaperDual,
    PiecewiseKL,
    ProjectionResult,
    ReversedKL,
    project,
)
from fastmix.results import InferenceResult, Status
from fastmix.sampling import PerfectSamples, SampleResult, perfect_sample, sample
from fastmix.tempering import TemperResult, temper
from fastmix.variational import LoopyBPResult, MeanFieldResult, loopy_bp, mean_field

__version__ = "0.1.0"

__all__ = [
    "KL",
    "PAPER_STEP",
    "Certificate",
    "Comparison",
    "DecreasingStep",
    "Divergence",
    "Euclidean",
    "FastmixError",
    "FixedStep",
    "FormatError",
    "InferenceResult",
    "LineSearch",
    "LoopyBPResult",
    "MeanFieldResult",
    "ModelError",
    "NotConvergedError",
    "PairwiseMRF",
    "PaperDual",
    "PerfectSamples",
    "PiecewiseKL",
    "ProjectionResult",
    "ResourceError",
    "ReversedKL",
    "SampleResult",
    "Status",
    "TemperResult",
    "UnfitMethodError",
    "__version__",
    "certify",
    "compare",
    "dependency_matrix",
    "draw_exact",
    "infer",
    "loopy_bp",
    "mean_field",
    "perfect_sample",
    "project",
    "sample",
    "temper",
]
