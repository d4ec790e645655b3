"""Marginal inference in discrete pairwise Markov random fields, with guarantees.

Names are loaded when they are first used: a program that only samples does not wait for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from fastmix.model import MarkovRandomField
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
    from fastmix.variational.loopy_bp import LoopyBPResult, loopy_bp
    from fastmix.variational.mean_field import MeanFieldResult, mean_field
    from fastmix.warming import WarmUpResult, warm_up

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
    "MarkovRandomField",
    "MeanFieldResult",
    "ModelError",
    "NotConvergedError",
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
    "WarmUpResult",
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
    "warm_up",
]

# Where names live; every module is also an attribute.
_MODULES = {
    "comparison": ("Comparison", "compare"),
    "dependency": ("dependency_matrix",),
    "errors": (
        "FastmixError", "FormatError", "ModelError", "NotConvergedError", "ResourceError", "UnfitMethodError",
    ),
    "exact": ("draw_exact",),
    "inference": ("infer",),
    "instances": (),
    "io": (),
    "mixing": ("Certificate", "certify"),
    "model": ("MarkovRandomField",),
    "projection": (
        "KL", "PAPER_STEP", "DecreasingStep", "Divergence", "Euclidean", "FixedStep", "LineSearch", "PaperDual",
        "PiecewiseKL", "ProjectionResult", "ReversedKL", "project",
    ),
    "results": ("InferenceResult", "Status"),
    "sampling": ("PerfectSamples", "SampleResult", "perfect_sample", "sample"),
    "tempering": ("TemperResult", "temper"),
    "variational": ("LoopyBPResult", "MeanFieldResult", "loopy_bp", "mean_field"),
    "warming": ("WarmUpResult", "warm_up"),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastmix.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fastmix' has no attribute {name!r}")
    value = getattr(import_module(f"fastmix.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
