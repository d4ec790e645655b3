"""Marginal inference in discrete pairwise Markov random fields, with guarantees.

Names are loaded when they are first used: a program that only samples does not wait for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmix.errors import (
        FastmixError as FastmixError,
    )
    from fastmix.errors import (
        FormatError as FormatError,
    )
    from fastmix.errors import (
        ModelError as ModelError,
    )
    from fastmix.errors import (
        NotConvergedError as NotConvergedError,
    )
    from fastmix.errors import (
        ResourceError as ResourceError,
    )
    from fastmix.errors import (
        UnfitMethodError as UnfitMethodError,
    )
    from fastmix.exact import draw_exact as draw_exact
    from fastmix.learning.learn import LearnResult as LearnResult
    from fastmix.learning.learn import NormBall as NormBall
    from fastmix.learning.learn import learn as learn
    from fastmix.learning.score import ScoreResult as ScoreResult
    from fastmix.learning.score import score as score
    from fastmix.methods.comparison import Comparison as Comparison
    from fastmix.methods.comparison import compare as compare
    from fastmix.methods.inference import infer as infer
    from fastmix.methods.loopy_bp import LoopyBPResult as LoopyBPResult
    from fastmix.methods.loopy_bp import loopy_bp as loopy_bp
    from fastmix.methods.mean_field import MeanFieldResult as MeanFieldResult
    from fastmix.methods.mean_field import mean_field as mean_field
    from fastmix.methods.perfect import PerfectSamples as PerfectSamples
    from fastmix.methods.perfect import perfect_sample as perfect_sample
    from fastmix.methods.sampler import SampleResult as SampleResult
    from fastmix.methods.sampler import sample as sample
    from fastmix.methods.tempering import TemperResult as TemperResult
    from fastmix.methods.tempering import temper as temper
    from fastmix.model import MarkovRandomField as MarkovRandomField
    from fastmix.projection import (
        KL as KL,
    )
    from fastmix.projection import (
        PAPER_STEP as PAPER_STEP,
    )
    from fastmix.projection import (
        DecreasingStep as DecreasingStep,
    )
    from fastmix.projection import (
        Divergence as Divergence,
    )
    from fastmix.projection import (
        Euclidean as Euclidean,
    )
    from fastmix.projection import (
        FixedStep as FixedStep,
    )
    from fastmix.projection import (
        LineSearch as LineSearch,
    )
    from fastmix.projection import (
        PaperDual as PaperDual,
    )
    from fastmix.projection import (
        PiecewiseKL as PiecewiseKL,
    )
    from fastmix.projection import (
        ProjectionResult as ProjectionResult,
    )
    from fastmix.projection import (
        ReversedKL as ReversedKL,
    )
    from fastmix.projection import (
        project as project,
    )
    from fastmix.results import InferenceResult as InferenceResult
    from fastmix.results import Status as Status
    from fastmix.theory.certificates import Certificate as Certificate
    from fastmix.theory.certificates import certify as certify
    from fastmix.theory.dependency import dependency_matrix as dependency_matrix
    from fastmix.warming import WarmUpResult as WarmUpResult
    from fastmix.warming import warm_up as warm_up

__version__ = "0.1.0"

# Where names live. They are loaded when they are first used, and packages and modules are attributes too.
_HOMES = {
    name: home
    for home, names in {
        "errors": "FastmixError FormatError ModelError NotConvergedError ResourceError UnfitMethodError",
        "exact": "draw_exact",
        "learning": "LearnResult NormBall ScoreResult learn score",
        "methods.comparison": "Comparison compare",
        "methods.inference": "infer",
        "methods.loopy_bp": "LoopyBPResult loopy_bp",
        "methods.mean_field": "MeanFieldResult mean_field",
        "methods.perfect": "PerfectSamples perfect_sample",
        "methods.sampler": "SampleResult sample",
        "methods.tempering": "TemperResult temper",
        "model": "MarkovRandomField",
        "projection": "KL PAPER_STEP DecreasingStep Divergence Euclidean FixedStep LineSearch PaperDual PiecewiseKL "
        "ProjectionResult ReversedKL project",
        "results": "InferenceResult Status",
        "theory.certificates": "Certificate certify",
        "theory.dependency": "dependency_matrix",
        "warming": "WarmUpResult warm_up",
    }.items()
    for name in names.split()
}
_MODULES = (
    "chains", "denoising", "errors", "exact", "experiments", "graphs", "instances", "io", "learning", "methods",
    "model", "projection", "results", "testing", "theory",
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
    return sorted({*globals(), *__all__, *_MODULES})
