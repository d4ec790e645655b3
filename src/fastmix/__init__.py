"""Inference and learning in discrete Markov random fields, with guarantees.

The verbs, each of which takes a model (or data) and returns a result that says what it is worth:

=================  =====================================================================================
``infer``          marginals and log Z, by the method that fits the model or one that is named
``certify``        how many sweeps of Gibbs sampling provably suffice, from how variables depend on each other
``project``        the closest model whose Gibbs sampler provably mixes fast
``sample``         marginals by Gibbs or Swendsen-Wang sampling, or from exact draws, with error bars
``temper``         the same by replica exchange, for models in which single chains get stuck
``bracket``        proven bounds on marginals and log Z, where nothing mixes
``most_probable``  the configuration of largest probability, with an upper bound on it
``learn``          a model from rows of data
``score``          log-probabilities of rows under a model
``compare``        several methods on one model, side by side
=================  =====================================================================================

Models are :class:`MarkovRandomField` objects, built from arrays or read from files (:mod:`fastmix.io`). The methods
themselves (:class:`Gibbs`, :class:`Tempered`, :class:`LoopyBP`, ..) are small objects that hold options. Also here:
``prepare`` makes a model ready for many rows of evidence, ``fit_network`` fits Bayesian networks, ``log_z`` is log Z of
parameters with its gradient,
``denoising`` cleans pictures, ``draw_exact``, ``perfect_sample`` and ``ancestral_sample`` draw exactly, ``anneal``,
``mean_field`` and ``loopy_bp`` are single methods as functions, and ``warm_up`` compiles everything once.

>>> import fastmix
>>> model = fastmix.MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8, field=[0.3, 0.0, 0.0])
>>> fastmix.infer(model).marginal(2).round(4).tolist()
[0.4358, 0.5642]

Names are loaded when they are first used: a program that only samples does not wait for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Where names live. They are loaded when they are first used, and packages and modules are attributes too.
_HOMES = {
    name: home
    for home, names in {
        "_clock": "Progress",
        "bounds.bracket": "BracketResult bracket",
        "bounds.bracket_methods": "register_bracket",
        "modes.routes": "register_route",
        "errors": "BadFileError FastmixError FormatError ImpossibleEvidenceError ImpossibleModelError Interrupted "
        "ModelError NotConvergedError ResourceError UnfitMethodError",
        "estimates": "Estimate",
        "exact": "ExactResult draw_exact",
        "gradients": "LogZResult log_z",
        "interop": "convert",
        "io": "register_answer register_format",
        "learning": "LearnResult LearningObjective Mixture NormBall ScoreResult WidthBall learn register_objective "
        "score",
        "sampling.anneal": "Annealed AnnealedResult anneal",
        "sampling.multicanonical": "Multicanonical MulticanonicalResult",
        "inference.auto": "Auto",
        "inference.exact": "Exact",
        "method": "Method register_method",
        "inference.compare": "Comparison compare",
        "inference.infer": "infer",
        "inference.ganak": "CountedResult Ganak",
        "variational.loopy_bp": "LoopyBP LoopyBPResult loopy_bp",
        "variational.mean_field": "MeanField MeanFieldResult mean_field",
        "modes.most_probable": "MostProbableResult most_probable",
        "sampling.ancestral_sample": "ancestral_sample",
        "sampling.perfect_sample": "Perfect PerfectResult perfect_sample",
        "inference.projected": "Projected ProjectedResult",
        "sampling.results": "SampleResult",
        "sampling.sample": "Gibbs SwendsenWang sample",
        "sampling.tempering.observables": "Observables",
        "sampling.tempering.results": "TemperedResult",
        "sampling.tempering.temper": "Tempered temper",
        "model": "MarkovRandomField",
        "model.laws": "Logical NoisyMax NoisyOr",
        "model.network": "BayesianNetwork",
        "projection": "KL PAPER_STEP DecreasingStep Divergence Euclidean FixedStep LineSearch PaperDual "
        "PiecewiseKL ProjectionResult ReversedKL StepRule project register_divergence",
        "marginals": "ChainResult DrawResult InferenceResult",
        "queries": "PreparedModel RowAnswers impute predict prepare",
        "queries.dynamic_network": "DynamicNetwork",
        "queries.fit_network": "NetworkFit fit_network",
        "queries.mutual_information": "PairInformation mutual_information",
        "queries.sensitivity": "SensitivityResult sensitivity",
        "results": "Result Status",
        "theory.certificate": "Certificate",
        "theory.certify": "certify",
        "theory.criteria": "register_criterion",
        "theory.dependency": "dependency_matrix",
        "theory.intervals": "Intervals",
        "warming": "WarmUpResult warm_up",
    }.items()
    for name in names.split()
}
_MODULES = (
    "bounds", "chains", "crf", "denoising", "errors", "exact", "executors", "experiments", "gradients", "graphs",
    "inference", "instances", "interop", "io", "learning", "marginals", "method", "model", "modes", "projection",
    "queries", "results", "sampling", "sklearn", "testing", "theory", "variational",
)  # fmt: skip
# Rooms that need an extra, loaded like the others where it is installed.
_EXTRA_MODULES = ("dimod", "jax", "torch")

__all__ = [
    "KL",
    "PAPER_STEP",
    "Annealed",
    "AnnealedResult",
    "Auto",
    "BadFileError",
    "BayesianNetwork",
    "BracketResult",
    "Certificate",
    "ChainResult",
    "Comparison",
    "CountedResult",
    "DecreasingStep",
    "Divergence",
    "DrawResult",
    "DynamicNetwork",
    "Estimate",
    "Euclidean",
    "Exact",
    "ExactResult",
    "FastmixError",
    "FixedStep",
    "FormatError",
    "Ganak",
    "Gibbs",
    "ImpossibleEvidenceError",
    "ImpossibleModelError",
    "InferenceResult",
    "Interrupted",
    "Intervals",
    "LearnResult",
    "LearningObjective",
    "LineSearch",
    "LogZResult",
    "Logical",
    "LoopyBP",
    "LoopyBPResult",
    "MarkovRandomField",
    "MeanField",
    "MeanFieldResult",
    "Method",
    "Mixture",
    "ModelError",
    "MostProbableResult",
    "Multicanonical",
    "MulticanonicalResult",
    "NetworkFit",
    "NoisyMax",
    "NoisyOr",
    "NormBall",
    "NotConvergedError",
    "Observables",
    "PairInformation",
    "PaperDual",
    "Perfect",
    "PerfectResult",
    "PiecewiseKL",
    "PreparedModel",
    "Progress",
    "Projected",
    "ProjectedResult",
    "ProjectionResult",
    "ResourceError",
    "Result",
    "ReversedKL",
    "RowAnswers",
    "SampleResult",
    "ScoreResult",
    "SensitivityResult",
    "Status",
    "StepRule",
    "SwendsenWang",
    "Tempered",
    "TemperedResult",
    "UnfitMethodError",
    "WarmUpResult",
    "WidthBall",
    "__version__",
    "ancestral_sample",
    "anneal",
    "bracket",
    "certify",
    "compare",
    "convert",
    "dependency_matrix",
    "draw_exact",
    "fit_network",
    "impute",
    "infer",
    "learn",
    "log_z",
    "loopy_bp",
    "mean_field",
    "most_probable",
    "mutual_information",
    "perfect_sample",
    "predict",
    "prepare",
    "project",
    "register_answer",
    "register_bracket",
    "register_criterion",
    "register_divergence",
    "register_format",
    "register_method",
    "register_objective",
    "register_route",
    "sample",
    "score",
    "sensitivity",
    "temper",
    "warm_up",
]


def __getattr__(name: str) -> Any:
    """A public name or room, loaded now."""
    if name in _MODULES or name in _EXTRA_MODULES:
        return import_module(f"fastmix.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'fastmix' has no attribute {name!r}")
    value = getattr(import_module(f"fastmix.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names and rooms, loaded or not."""
    return sorted({*__all__, *_MODULES, "__doc__", "__file__", "__name__", "__path__"})
