"""Marginal inference in discrete Markov random fields, with guarantees.

Names are loaded when they are first used: a program that only samples does not wait for the rest.
"""

# ruff: noqa: F401, I001
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# fmt: off
if TYPE_CHECKING:  # for the type checker, which cannot read the table below
    from fastmix._clock import Progress
    from fastmix.bounds import BracketResult, bracket
    from fastmix.errors import (
        BadFileError, FastmixError, FormatError, ImpossibleEvidenceError, ImpossibleModelError, Interrupted, ModelError,
        NotConvergedError, ResourceError, UnfitMethodError,
    )
    from fastmix.estimates import Estimate
    from fastmix.exact import ExactResult, draw_exact
    from fastmix.interop import convert
    from fastmix.learning.learn import learn
    from fastmix.learning.result import LearnResult, NormBall, WidthBall
    from fastmix.learning.score import ScoreResult, score
    from fastmix.methods.annealed import Annealed, AnnealedResult, anneal
    from fastmix.methods.auto import Auto, Exact
    from fastmix.methods.base import Context, Method, register
    from fastmix.methods.comparison import Comparison, compare
    from fastmix.methods.inference import infer
    from fastmix.methods.loopy_bp import LoopyBP, LoopyBPResult, loopy_bp
    from fastmix.methods.mean_field import MeanField, MeanFieldResult, mean_field
    from fastmix.methods.most_probable import MostProbableResult, most_probable
    from fastmix.methods.perfect import Perfect, PerfectSamples, ancestral_sample, perfect_sample
    from fastmix.methods.projected import Projected, ProjectedResult
    from fastmix.methods.sample_result import SampleResult
    from fastmix.methods.sampler import Gibbs, SwendsenWang, sample
    from fastmix.methods.tempering import TemperResult, Tempered, temper
    from fastmix.model import MarkovRandomField
    from fastmix.projection import (
        KL, PAPER_STEP, DecreasingStep, Divergence, Euclidean, FixedStep, LineSearch, Objective, PaperDual,
        PiecewiseKL, ProjectionResult, ReversedKL, StepRule, project,
    )
    from fastmix.results import DrawResult, InferenceResult, Status
    from fastmix.theory.certificates import Certificate, certify
    from fastmix.theory.dependency import dependency_matrix
    from fastmix.theory.intervals import Intervals
    from fastmix.warming import WarmUpResult, warm_up
# fmt: on

__version__ = "0.1.0"

# Where names live. They are loaded when they are first used, and packages and modules are attributes too.
_HOMES = {
    name: home
    for home, names in {
        "_clock": "Progress",
        "bounds": "BracketResult bracket",
        "errors": "BadFileError FastmixError FormatError ImpossibleEvidenceError ImpossibleModelError Interrupted "
        "ModelError NotConvergedError ResourceError UnfitMethodError",
        "estimates": "Estimate",
        "exact": "ExactResult draw_exact",
        "interop": "convert",
        "learning": "LearnResult NormBall ScoreResult WidthBall learn score",
        "methods.annealed": "Annealed AnnealedResult anneal",
        "methods.auto": "Auto Exact",
        "methods.base": "Context Method register",
        "methods.comparison": "Comparison compare",
        "methods.inference": "infer",
        "methods.loopy_bp": "LoopyBP LoopyBPResult loopy_bp",
        "methods.mean_field": "MeanField MeanFieldResult mean_field",
        "methods.most_probable": "MostProbableResult most_probable",
        "methods.perfect": "Perfect PerfectSamples ancestral_sample perfect_sample",
        "methods.projected": "Projected ProjectedResult",
        "methods.sample_result": "SampleResult",
        "methods.sampler": "Gibbs SwendsenWang sample",
        "methods.tempering": "TemperResult Tempered temper",
        "model": "MarkovRandomField",
        "projection": "KL PAPER_STEP DecreasingStep Divergence Euclidean FixedStep LineSearch Objective PaperDual "
        "PiecewiseKL ProjectionResult ReversedKL StepRule project",
        "results": "DrawResult InferenceResult Status",
        "theory.certificates": "Certificate certify",
        "theory.dependency": "dependency_matrix",
        "theory.intervals": "Intervals",
        "warming": "WarmUpResult warm_up",
    }.items()
    for name in names.split()
}
_MODULES = (
    "bounds", "chains", "denoising", "errors", "exact", "experiments", "graphs", "instances", "interop", "io",
    "learning", "methods", "model", "projection", "results", "testing", "theory",
)  # fmt: skip

__all__ = [*sorted(_HOMES), "__version__"]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fastmix.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fastmix' has no attribute {name!r}")
    value = getattr(import_module(f"fastmix.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__doc__", "__file__", "__name__", "__path__"})
