"""The public names of fastmix for editors and type checkers; written by ``make stubs``."""

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Literal, overload

from numpy.typing import ArrayLike

from fastmix._clock import Progress as Progress
from fastmix._clock import Report
from fastmix.bounds.bracket import BracketResult as BracketResult
from fastmix.bounds.bracket import bracket as bracket
from fastmix.bounds.bracket_methods import register_bracket as register_bracket
from fastmix.errors import BadFileError as BadFileError
from fastmix.errors import FastmixError as FastmixError
from fastmix.errors import FormatError as FormatError
from fastmix.errors import ImpossibleEvidenceError as ImpossibleEvidenceError
from fastmix.errors import ImpossibleModelError as ImpossibleModelError
from fastmix.errors import Interrupted as Interrupted
from fastmix.errors import ModelError as ModelError
from fastmix.errors import NotConvergedError as NotConvergedError
from fastmix.errors import ResourceError as ResourceError
from fastmix.errors import UnfitMethodError as UnfitMethodError
from fastmix.estimates import Estimate as Estimate
from fastmix.exact import ExactResult as ExactResult
from fastmix.exact import draw_exact as draw_exact
from fastmix.gradients import LogZResult as LogZResult
from fastmix.gradients import log_z as log_z
from fastmix.inference.auto import Auto as Auto
from fastmix.inference.compare import Comparison as Comparison
from fastmix.inference.compare import compare as compare
from fastmix.inference.exact import Exact as Exact
from fastmix.inference.ganak import CountedResult as CountedResult
from fastmix.inference.ganak import Ganak as Ganak
from fastmix.inference.projected import Projected as Projected
from fastmix.inference.projected import ProjectedResult as ProjectedResult
from fastmix.interop import convert as convert
from fastmix.io import register_answer as register_answer
from fastmix.io import register_format as register_format
from fastmix.learning import LearningObjective as LearningObjective
from fastmix.learning import LearnResult as LearnResult
from fastmix.learning import Mixture as Mixture
from fastmix.learning import NormBall as NormBall
from fastmix.learning import ScoreResult as ScoreResult
from fastmix.learning import WidthBall as WidthBall
from fastmix.learning import learn as learn
from fastmix.learning import register_objective as register_objective
from fastmix.learning import score as score
from fastmix.marginals import ChainResult as ChainResult
from fastmix.marginals import DrawResult as DrawResult
from fastmix.marginals import InferenceResult as InferenceResult
from fastmix.method import Method as Method
from fastmix.method import register_method as register_method
from fastmix.model import Evidence
from fastmix.model import MarkovRandomField as MarkovRandomField
from fastmix.model.laws import Logical as Logical
from fastmix.model.laws import NoisyMax as NoisyMax
from fastmix.model.laws import NoisyOr as NoisyOr
from fastmix.model.network import BayesianNetwork as BayesianNetwork
from fastmix.modes.most_probable import MostProbableResult as MostProbableResult
from fastmix.modes.most_probable import most_probable as most_probable
from fastmix.modes.routes import register_route as register_route
from fastmix.projection import KL as KL
from fastmix.projection import PAPER_STEP as PAPER_STEP
from fastmix.projection import DecreasingStep as DecreasingStep
from fastmix.projection import Divergence as Divergence
from fastmix.projection import Euclidean as Euclidean
from fastmix.projection import FixedStep as FixedStep
from fastmix.projection import LineSearch as LineSearch
from fastmix.projection import PaperDual as PaperDual
from fastmix.projection import PiecewiseKL as PiecewiseKL
from fastmix.projection import ProjectionResult as ProjectionResult
from fastmix.projection import ReversedKL as ReversedKL
from fastmix.projection import StepRule as StepRule
from fastmix.projection import project as project
from fastmix.projection import register_divergence as register_divergence
from fastmix.queries import PreparedModel as PreparedModel
from fastmix.queries import RowAnswers as RowAnswers
from fastmix.queries import impute as impute
from fastmix.queries import predict as predict
from fastmix.queries import prepare as prepare
from fastmix.queries.dynamic_network import DynamicNetwork as DynamicNetwork
from fastmix.queries.fit_network import NetworkFit as NetworkFit
from fastmix.queries.fit_network import fit_network as fit_network
from fastmix.queries.mutual_information import PairInformation as PairInformation
from fastmix.queries.mutual_information import mutual_information as mutual_information
from fastmix.queries.sensitivity import SensitivityResult as SensitivityResult
from fastmix.queries.sensitivity import sensitivity as sensitivity
from fastmix.results import Result as Result
from fastmix.results import Status as Status
from fastmix.sampling.ancestral_sample import ancestral_sample as ancestral_sample
from fastmix.sampling.anneal import Annealed as Annealed
from fastmix.sampling.anneal import AnnealedResult as AnnealedResult
from fastmix.sampling.multicanonical import Multicanonical as Multicanonical
from fastmix.sampling.multicanonical import MulticanonicalResult as MulticanonicalResult
from fastmix.sampling.perfect_sample import Perfect as Perfect
from fastmix.sampling.perfect_sample import PerfectResult as PerfectResult
from fastmix.sampling.plans import Schedule
from fastmix.sampling.results import SampleResult as SampleResult
from fastmix.sampling.sample import Gibbs as Gibbs
from fastmix.sampling.sample import SwendsenWang as SwendsenWang
from fastmix.sampling.tempering.observables import Observables as Observables
from fastmix.sampling.tempering.results import TemperedResult as TemperedResult
from fastmix.sampling.tempering.temper import Tempered as Tempered
from fastmix.theory.certificate import Certificate as Certificate
from fastmix.theory.certify import certify as certify
from fastmix.theory.criteria import register_criterion as register_criterion
from fastmix.theory.dependency import dependency_matrix as dependency_matrix
from fastmix.theory.intervals import Intervals as Intervals
from fastmix.theory.norms import Norm
from fastmix.variational.loopy_bp import LoopyBP as LoopyBP
from fastmix.variational.loopy_bp import LoopyBPResult as LoopyBPResult
from fastmix.variational.loopy_bp import MessageOrder
from fastmix.variational.mean_field import MeanField as MeanField
from fastmix.variational.mean_field import MeanFieldResult as MeanFieldResult
from fastmix.warming import WarmUpResult as WarmUpResult
from fastmix.warming import warm_up as warm_up

from . import bounds as bounds
from . import chains as chains
from . import crf as crf
from . import denoising as denoising
from . import dimod as dimod
from . import errors as errors
from . import exact as exact
from . import executors as executors
from . import experiments as experiments
from . import gradients as gradients
from . import graphs as graphs
from . import inference as inference
from . import instances as instances
from . import interop as interop
from . import io as io
from . import jax as jax
from . import learning as learning
from . import marginals as marginals
from . import method as method
from . import model as model
from . import modes as modes
from . import projection as projection
from . import queries as queries
from . import results as results
from . import sampling as sampling
from . import sklearn as sklearn
from . import testing as testing
from . import theory as theory
from . import torch as torch
from . import variational as variational

__version__: str

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

@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["auto"] = "auto",
    memory_limit: float | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> InferenceResult:
    """Marginals of every variable, by the method named or the one that fits the model.

    Parameters
    ----------
    model : MarkovRandomField
    method : str or Method
        ``auto`` (exact inference when the treewidth fits the memory and the time, otherwise by the rules of
        docs/choosing.md), ``exact``, ``mean-field``, ``loopy-bp``, ``gibbs``, ``swendsen-wang`` (attractive Ising and
        Potts models), ``tempered`` (replica exchange), ``projected`` (project the model onto one that mixes fast, then
        sample that), ``annealed`` (populations of annealed chains), ``multicanonical`` (chains that walk through all
        energies, for first-order transitions), ``perfect`` (independent exact draws), ``ganak`` (a model counter for
        many zeros, in the extra ``count``), one that was added (:func:`fastmix.register_method`), or a
        :class:`fastmix.Method` with its options, such as ``fastmix.Gibbs(burn_in=10)``.
    evidence : mapping, optional
        Observed states by variable, numbers or names. The answer still lists every variable.
    edge_marginals : bool, optional
        Whether joint probabilities of neighbors are wanted; by default exact inference alone gives them.
    log_z : bool
        Whether log Z is wanted: ``auto`` takes a method that has one, others that have none are refused.
    seed : int, optional
        Drawn and returned when not given. Methods without random numbers, such as ``exact``, make no use of it.
    num_threads : int, optional
        All cores by default. Methods that run on one core make no use of it.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sampling or replica exchange runs, see their functions. Other methods run on the CPU, and refuse
        ``cuda``; with ``auto`` it needs a GPU, which is used if one of those two is what is chosen.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned. Without it 60 seconds
        hold (``stats["time_limit"]``), except for exact and perfect inference by name, and for samplers that were told
        their ``num_sweeps``, ``accuracy`` or ``checkpoint``: those run to their end.
    progress : "auto", None or callable
        ``auto`` shows a bar on stderr, in terminals and notebooks, once the call has lasted two seconds; a function is
        called with a :class:`fastmix.Progress`.
    bracket : bool
        Add proven bounds (:func:`fastmix.bracket`) as ``bracket`` of the result, in half of the time limit. A sampler's
        answer that lies outside of them by more than four standard errors has the status ``not_mixed``.
    executor : concurrent.futures.Executor, optional
        Shares the chains of ``gibbs``, ``swendsen-wang`` or ``tempered`` out, see :func:`fastmix.sample`.
    **options
        Of the method, when it is given by name, such as ``burn_in=10`` with ``gibbs``: the fields of its class
        (:class:`fastmix.Gibbs` and so on). An option of another method is refused.

    Returns
    -------
    InferenceResult
        ``method`` is the one that ran; ``stats["guarantee"]`` says what is known about the answer, ``stats["seconds"]``
        how long it took, ``stats["compile_seconds"]`` how many of them went to compiling, ``stats["stopped_by"]`` what
        ended the run (``done``, ``accuracy``, ``time_limit``, ``interrupt``), and with ``auto`` ``stats["reason"]`` why
        the method was chosen. Where ``auto`` had to take a method that guarantees nothing, such as belief propagation,
        its status is ``unverified`` unless proven bounds show that no marginal is off by more than 0.05. Where Z = 0
        is proven, ``log_z`` is -inf, ``log_z_kind`` is ``zero`` and there are no marginals
        (:class:`fastmix.marginals.ZeroResult`).

    Raises
    ------
    ResourceError
        If the method named needs more memory or time than the limit.
    ValueError
        If the method is unknown, or an argument is not valid.
    UnfitMethodError
        If the method cannot handle the model; nothing has been run then. Also where it makes draws and the model has no
        configuration of positive probability.
    ImpossibleEvidenceError
        If the evidence has probability zero.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the answer so far, None before there is one.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0, field=[0.5, 0.0])
    >>> result = infer(model, evidence={0: 1})
    >>> result.method, result.marginal(1).round(4).tolist()
    ('exact', [0.1192, 0.8808])
    >>> infer(model, method="gibbs", burn_in=10, num_sweeps=500, seed=1).stats["burn_in"]
    10
    """

@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["exact"],
    memory_limit: float | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> InferenceResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["mean-field"],
    num_starts: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-08,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> MeanFieldResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["loopy-bp"],
    message_order: MessageOrder = "parallel",
    damping: float | None = None,
    max_iter: int | None = None,
    tol: float = 1e-09,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> LoopyBPResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["gibbs"],
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    num_draws: int = 0,
    history_at: Sequence[int] = ...,
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed",
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
    accuracy: float | None = None,
    schedule: Schedule | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["swendsen-wang"],
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    num_draws: int = 0,
    history_at: Sequence[int] = ...,
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed",
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["tempered"],
    num_replicas: int | None = None,
    num_ensembles: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    num_draws: int | None = None,
    temperatures: Sequence[float] | None = None,
    rungs: Literal["all"] | None = None,
    moves: Literal["auto"] | Sequence[str] = "auto",
    confidence: float = 0.95,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> TemperedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["projected"],
    divergence: Divergence | str | None = None,
    norm: Norm | Literal["width"] | None = None,
    norm_bound: float | None = None,
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> ProjectedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["annealed"],
    num_populations: int = 4,
    num_chains: int = 8,
    num_steps: int = 150,
    sweeps_per_step: int = 8,
    resample: bool | None = None,
    num_sweeps: int | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> AnnealedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["multicanonical"],
    num_walkers: int = 8,
    num_sweeps: int | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> MulticanonicalResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Literal["perfect"],
    num_draws: int = 100,
    max_sweeps: int = 1048576,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> PerfectResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Auto,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> InferenceResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Exact,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> InferenceResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: MeanField,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> MeanFieldResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: LoopyBP,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> LoopyBPResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Gibbs,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: SwendsenWang,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Tempered,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> TemperedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Projected,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> ProjectedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Annealed,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> AnnealedResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Multicanonical,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> MulticanonicalResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: Perfect,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> PerfectResult: ...
@overload
def infer(
    model: MarkovRandomField,
    *,
    method: str | Method,
    evidence: Evidence | None = None,
    edge_marginals: bool | None = None,
    log_z: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    bracket: bool = False,
    executor: Executor | None = None,
) -> InferenceResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: Literal["gibbs"] = "gibbs",
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    num_draws: int = 0,
    history_at: Sequence[int] = ...,
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed",
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
    accuracy: float | None = None,
    schedule: Schedule | None = None,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> SampleResult:
    """Marginals by Markov chain Monte Carlo, with standard errors and a verdict on mixing (see docs/sampling.md).

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts. Forbidden pairs are fine as long as every conditional distribution is defined.
    method : {"gibbs", "swendsen-wang", "perfect"} or Method
        Updates of single variables, or of clusters (attractive Ising and Potts models only), or exact draws by coupling
        from the past, which take ``num_draws`` and ``max_sweeps`` (see :func:`fastmix.perfect_sample`). Options of
        another method are refused. A :class:`fastmix.Gibbs`, :class:`fastmix.SwendsenWang` or :class:`fastmix.Perfect`
        brings its options along: they are not given beside it.
    num_chains : int, optional
        Independent chains; 64 by default, fewer in very large models. In models of more than 16,384 variables, or with
        as many states, at least 4. Only for ``gibbs`` and ``swendsen-wang``.
    num_sweeps : int, optional
        Sweeps averaged in every chain; 10,000 by default. With a ``time_limit`` as many as it leaves room for. Only for
        ``gibbs`` and ``swendsen-wang``.
    burn_in : int, optional
        Sweeps that every chain makes before, a tenth of ``num_sweeps`` by default. Where the time decides, a tenth of
        the time, and a quarter of it where the sweeps that are planned do not fit. Only for ``gibbs`` and ``swendsen-
        wang``.
    num_draws : int
        For ``gibbs`` and ``swendsen-wang``: configurations kept of every chain, evenly spaced.
        For ``perfect``: exact draws; 100 by default.
    history_at : sequence of int
        Numbers of sweeps after which the running marginals are noted in ``history``. Only for ``gibbs`` and ``swendsen-
        wang``.
    start : {"dispersed", "random"}, int array (num_chains, n) or SampleResult
        Where chains start: dispersed or random. ``dispersed`` starts half of the chains, 16 at most, from
        configurations of large weight, far from each other (:func:`fastmix.modes.descents.find_modes`), and the others
        at random. A result continues where its chains ended, with fresh random numbers also under its own seed. Only
        for ``gibbs`` and ``swendsen-wang``.
    checkpoint : str, optional
        File in which the run is saved, and from which it continues if it exists. It continues with its own seed when
        none is given; the answer is the same, bit by bit, as that of an uninterrupted run. A finished run stays in the
        file: remove it when what comes back is safe. Only for ``gibbs`` and ``swendsen-wang``.
    checkpoint_seconds : float
        Seconds between two writes of the checkpoint. Only for ``gibbs`` and ``swendsen-wang``.
    estimator : {"rao-blackwell", "counts"}
        What is averaged: conditional probabilities (``rao-blackwell``) or states (``counts``). Swendsen-Wang sampling
        counts the states of edges only: nodes always have the probabilities that clusters draw from. Only for ``gibbs``
        and ``swendsen-wang``.
    accuracy : float, optional
        Error to reach with 95 % confidence, instead of sweeps, for certified models. Every probability is to be within
        this (half the width of an interval, unlike the total variation distance of :func:`fastmix.certify`); refused
        for models without a certificate, which sets the burn-in. Half of it is for the bias that the burn-in leaves:
        what the certificate proves of that stands in ``bias_bound`` of the result, beside ``std_error``, which is of
        chance alone. Only for ``gibbs``.
    schedule : {"systematic", "random", "random-burn-in"}, optional
        Order of updates: systematic (default), random, or random-burn-in (random, then systematic). A systematic sweep
        updates every variable once, color by color, and a random one n variables chosen at random. ``random-burn-in``
        is the default with an ``accuracy`` that no other order is certified for. Only for ``gibbs``.
    max_sweeps : int
        Sweeps into the past at most, 2^20 by default. Draws that take longer raise an error and are never dropped:
        leaving them out would bias the rest. Only for ``perfect``.
    edge_marginals : bool
        Whether to estimate the joint probabilities of the two ends of every edge: conditional probabilities of either
        end beside the state of the other, or with the estimator ``counts`` pairs of states, averaged over about 1,000
        configurations of every chain.
    backend : {"cpu", "cuda", "auto"}
        Where Gibbs sweeps run. ``cuda`` needs an NVIDIA GPU and the extra ``gpu``; ``auto`` takes the GPU where
        there is one that fits the run, and says in ``stats["backend"]`` what it took and why.
    evidence, seed, num_threads, progress
        See :func:`fastmix.infer`. The same seed gives the same bits whatever the number of threads; CPU and GPU draw
        different numbers.
    time_limit : float, optional
        Seconds, without those of compiling, after which what has been collected is returned; burning in takes half of
        them at most (but not with a checkpoint). Without it, and without ``num_sweeps``, ``accuracy`` or
        ``checkpoint``, 60 seconds.
    executor : concurrent.futures.Executor, optional
        Shares the chains out among its workers, with the same bits: see :mod:`fastmix.executors`.

    Returns
    -------
    SampleResult
        Status ``not_mixed`` when R-hat or the effective sample size says that the chains have not met.
        ``stats["stopped_by"]`` is ``done``, ``accuracy`` or ``time_limit``. :class:`fastmix.PerfectResult` from the
        method ``perfect``.

    Raises
    ------
    UnfitMethodError
        If the method cannot handle the model.
    NotConvergedError
        If the time was over before there was anything to report.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected, None before the first batch.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> result = sample(ising_grid(3, 3, coupling_max=0.5, seed=0), num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.01)
    ('ok', True)
    """

@overload
def sample(
    model: MarkovRandomField,
    *,
    method: Literal["swendsen-wang"],
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    num_draws: int = 0,
    history_at: Sequence[int] = ...,
    start: Literal["dispersed", "random"] | ArrayLike | SampleResult = "dispersed",
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    estimator: Literal["rao-blackwell", "counts"] = "rao-blackwell",
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: Literal["perfect"],
    num_draws: int = 100,
    max_sweeps: int = 1048576,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> PerfectResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: Gibbs,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: SwendsenWang,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> SampleResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: Perfect,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> PerfectResult: ...
@overload
def sample(
    model: MarkovRandomField,
    *,
    method: str | Method,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> SampleResult | PerfectResult: ...
def anneal(
    model: MarkovRandomField,
    *,
    num_populations: int = 4,
    num_chains: int = 8,
    num_steps: int = 150,
    sweeps_per_step: int = 8,
    resample: bool | None = None,
    num_sweeps: int | None = None,
    evidence: Evidence | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> AnnealedResult:
    """Marginals and log Z by population annealing, with Swendsen-Wang sweeps where the model is attractive.

    The models ``p_s(x) ~ exp(sum_i u_i(x_i) + s sum_ij T_ij(x_i, x_j))`` (and s times the factors over more variables)
    lead from independent variables (s = 0) to the
    model (s = 1). At every step to s' the chains of a population are resampled in proportion to
    ``exp((s' - s) sum_ij T_ij)`` and then swept. At s = 1 marginals are averaged over sweeps, and populations count in
    proportion to the product of their mean weights, which is an unbiased estimate of Z over the known normalizer at
    s = 0: ``log_z`` is the logarithm of the mean. More chains or smaller steps make less error.

    Parameters
    ----------
    model : MarkovRandomField
        Any. Attractive Ising and Potts models have cluster moves; models in which pairs are forbidden keep these on the
        way, and have no ``log_z``. Models of many valleys need hundreds of chains: ``num_chains=500``.
    num_populations : int
        Independent populations of chains, at least 2. The error is told from their differences.
    num_chains : int
        Chains of every population, at least 2.
    num_steps : int
        About how many steps annealing takes. They are shorter where the energy of the couplings varies more.
    sweeps_per_step : int
        Sweeps after every step.
    resample : bool, optional
        Whether chains are resampled; where that helps by default. It does where a step changes the logarithms of the
        weights by a standard deviation of 1 at most: beyond, as in pictures of a hundred thousand pixels, a few chains
        would all descend from one. Without resampling this is plain annealing from independent starts, and has no
        ``log_z``.
    num_sweeps : int, optional
        Sweeps averaged at the end; half of those on the way by default.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default averaging stops. Where the time does not suffice,
        annealing makes fewer sweeps per step, and then larger steps.

    Returns
    -------
    AnnealedResult
        Status ``not_mixed`` when the populations disagree, or when known configurations outweigh all that they visit;
        there is no ``log_z`` then, and ``log_z_lower`` is what known configurations prove.
        Costs ``1.5 num_steps sweeps_per_step`` sweeps of every chain.

    Raises
    ------
    UnfitMethodError
        If some conditional distribution is undefined.

    References
    ----------
    Hukushima and Iba, "Population annealing and its application to a spin glass", AIP Conf. Proc. 690 (2003).
    Machta, "Population annealing with weighted averages", Phys. Rev. E 82 (2010).

    Examples
    --------
    >>> from fastmix import infer
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=2.0, attractive=True, seed=0)
    >>> result = anneal(model, num_chains=50, seed=1)
    >>> exact = infer(model, method="exact")
    >>> bool(abs(result.log_z - exact.log_z) < 4 * result.log_z_std_error)
    True
    >>> bool(abs(result.node_marginals - exact.node_marginals).max() < 0.05)
    True
    """

def loopy_bp(
    model: MarkovRandomField,
    *,
    message_order: MessageOrder = "parallel",
    damping: float | None = None,
    max_iter: int | None = None,
    tol: float = 1e-09,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> LoopyBPResult:
    """Marginals by loopy belief propagation (sum-product), exact on trees.

    The message from i to j is ``m_ij(x_j) ~ sum_{x_i} exp(u_i(x_i) + T_ij(x_i, x_j)) prod_{k != j} m_ki(x_i)``, the
    belief of i is ``b_i(x_i) ~ exp(u_i(x_i)) prod_k m_ki(x_i)``, that of an edge
    ``b_ij ~ exp(T_ij) (b_i / m_ji) (b_j / m_ij)``, and with their normalizers
    ``log Z = k + sum_ij log Z_ij + sum_i (1 - degree_i) log Z_i`` (Bethe).

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, any strength; forbidden states and pairs are fine.
    message_order : {"parallel", "residual"}
        Order of messages: parallel or residual. All messages at once, or always that one which would change most
        (Elidan, McGraw and Koller, 2006). An iteration is as many updates as there are messages, two per edge, in both.
    damping : float, optional
        Weight of the old message, from 0 to below 1; as needed by default. The weight is that in the mean of the logs,
        a geometric mean of messages. By default it is 0, and when that makes no progress 0.5 and then 0.75; on graphs
        without cycles always 0.
    max_iter : int, optional
        Iterations at most; by default as many as bring progress in the time. Messages cycle where the largest change
        has not fallen in 500 iterations of the strongest damping.
    tol : float
        Largest change of a message's log at the end. It is that before damping; messages have their largest entry at 1.
    evidence, edge_marginals, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default the messages are used as they stand.

    Returns
    -------
    LoopyBPResult
        ``status`` is ``not_converged`` when the messages still moved in the end: the marginals are
        those of the last messages, those of edges need not agree with those of variables, and ``log_z`` is None.
        ``history`` holds the changes, ``stats`` the iterations, the damping at the end, the kernel and the seconds.

    Raises
    ------
    ImpossibleEvidenceError
        If the evidence is impossible, as far as a search can show. Where that shows that the model itself has no
        configuration, a :class:`fastmix.marginals.ZeroResult` comes back.

    Notes
    -----
    An iteration costs ``O(sum over edges of L_i L_j)`` time. Memory is that of two sets of messages, ``O(sum over edges
    of L_i + L_j)``, and of a copy of the tables. Where edges share tables, one set of messages is all, and Potts and
    truncated linear tables cost ``O(L_i)`` time for an edge.

    Fixed points are stationary points of the Bethe free energy (Yedidia, Freeman and Weiss, 2005). Strongly coupled
    loopy models may have several, or none that the iteration settles in. The residual order converges more often: on
    16x16 Ising grids with mixed couplings up to 2 in 10 of 12 cases against 1 of 12, at fifty times the time. With
    forbidden pairs messages can go on growing while the marginals stand still: such a run counts as not converged.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8, field=[0.3, 0.0, 0.0])
    >>> result = loopy_bp(model)
    >>> str(result.status), round(result.log_z, 6), result.marginal(2).round(6).tolist()
    ('ok', 2.705289, [0.435774, 0.564226])
    """

def mean_field(
    model: MarkovRandomField,
    *,
    num_starts: int = 10,
    max_iter: int = 1000,
    tol: float = 1e-08,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> MeanFieldResult:
    """Marginals by naive mean field, with a lower bound on log Z.

    Maximizes ``E_q[log-weight] + entropy(q) = log Z - KL(q || p)`` over products ``q(x) = prod_i q_i(x_i)``. A sweep
    sets each variable in turn to the best given the others, ``q_i(a) ~ exp(u_i(a) + sum_j sum_b q_j(b) T_ij(a, b))``
    and the same with the means of factors over three or more variables; the bound never falls.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, any strength, factors of any size.
    num_starts : int
        Starts, of which the best bound is kept. The first is uniform, the others are drawn uniformly from all product
        distributions.
    max_iter : int
        Sweeps of every start at most. With forbidden pairs as many again are made under a penalty.
    tol : float
        Largest change of a probability at the end. A start has converged when a sweep changes none by more.
    seed : int, optional
        Drawn and returned when not given. More starts with the same seed begin with the same ones.
    evidence, edge_marginals, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default the best so far is returned. What edges get are the
        products of the marginals.

    Returns
    -------
    MeanFieldResult
        ``status`` is ``not_converged`` when the best start still moved after ``max_iter`` sweeps. ``stats`` holds the
        sweeps of all starts, the number of the best one, the history of the bound of every start, and the seconds.

    Raises
    ------
    ImpossibleEvidenceError
        If the evidence is impossible, as far as a search can show. Where that shows that the model itself has no
        configuration, a :class:`fastmix.marginals.ZeroResult` comes back.

    Notes
    -----
    A sweep costs ``O(sum over edges of L_i L_j)`` time, and for every factor its entries times its variables; with
    Potts and truncated linear tables that edges share, ``O(L_i)`` for an edge.

    With forbidden pairs a product distribution has a finite bound only if its states are all allowed beside each other.
    Each start first ascends with a large finite penalty in place of minus infinity; a search finds an allowed
    configuration that prefers its probable states, from where the start ascends in the model itself. When the search
    gives up at every start the status is ``not_converged``, the bound -inf, and ``stats["note"]`` says so.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.3, 0.0, 0.0])
    >>> result = mean_field(model, seed=0)
    >>> str(result.status), round(result.log_z_lower, 4), result.marginal(2).round(4).tolist()
    ('ok', 2.1284, [0.4843, 0.5157])
    """

def perfect_sample(
    model: MarkovRandomField,
    *,
    num_draws: int = 100,
    max_sweeps: int = 1048576,
    evidence: Evidence | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> PerfectResult:
    """Independent samples that follow the model exactly, up to the rounding of floating-point numbers.

    Coupling from the past (Propp and Wilson, 1996): Gibbs sweeps are run from all configurations at once, from further
    and further in the past and always with the same random numbers for the same moment, until all of them have met at
    the present. "All at once" is a set of possible states for every variable (a bounding chain: Huber, 2004;
    Haeggstroem and Nelander, 1999). For attractive binary models this is the monotone coupling from the two extreme
    configurations.

    Parameters
    ----------
    model : MarkovRandomField
        Attractive and binary (also after exchanging the states of some variables), or certified with a dependency norm
        below 1 (see :func:`fastmix.certify`); at most 64 states per variable.
    num_draws : int
        Exact draws; 100 by default.
    max_sweeps : int
        Sweeps into the past at most, 2^20 by default. Draws that take longer raise an error and are never dropped:
        leaving them out would bias the rest.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; there is no time limit by default, and one that is over is an error.

    Raises
    ------
    UnfitMethodError
        If the model is neither attractive and binary nor certified.
    NotConvergedError
        If some sample has not met its past after ``max_sweeps``, or not all are there within the ``time_limit``.

    Notes
    -----
    For a certified binary model the expected number of variables not yet known falls at least by the norm in every n
    random updates, so samples come within O(log n) sweeps; more states need a norm far below 1 for that, because two
    conditional distributions at distance d may select different states with probability 2 d / (1 + d). Attractive
    models take about as long as the chain needs to mix, which strong couplings make exponential.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.4, field=[0.5, 0.0, -0.2])
    >>> samples = perfect_sample(model, num_draws=1000, seed=1)
    >>> samples.states.shape, str(samples.status)
    ((1000, 3), 'ok')
    """

def temper(
    model: MarkovRandomField,
    *,
    num_replicas: int | None = None,
    num_ensembles: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    num_draws: int | None = None,
    temperatures: Sequence[float] | None = None,
    rungs: Literal["all"] | None = None,
    moves: Literal["auto"] | Sequence[str] = "auto",
    confidence: float = 0.95,
    checkpoint: str | None = None,
    checkpoint_seconds: float = 30.0,
    evidence: Evidence | None = None,
    edge_marginals: bool = False,
    seed: int | None = None,
    num_threads: int | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    time_limit: float | None = None,
    progress: Report = "auto",
    executor: Executor | None = None,
) -> TemperedResult:
    """Marginals and log Z by replica exchange, for models in which single chains get stuck.

    Replicas are sampled side by side at K rungs of a path of models, from the uniform distribution to the model itself,
    and neighboring rungs exchange their configurations: non-reversible parallel tempering (Syed, Bouchard-Côté,
    Deligiannidis and Doucet, JRSS B 84, 2022). The rungs are placed, during the burn-in, where exchanges are rejected
    equally often, and their number follows from the communication barrier Lambda that this uncovers.

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts up to 256. Forbidden pairs are kept at all rungs, as long as every conditional distribution is
        defined; there is no log Z then, because it is unknown at the start of the path.
    num_replicas : int, optional
        Rungs of a ladder, from 2 to 10,000; as many as the model needs by default. That is 2 Lambda + 1, with the
        communication barrier Lambda that the burn-in uncovers.
    num_ensembles : int, optional
        Independent runs side by side, whose spread gives the error bars; 16 by default, fewer in large models. At least
        2 can be asked for, and 4 are taken by default. With the move ``houdayer`` an ensemble is two ladders.
    num_sweeps : int, optional
        Sweeps of every replica that are averaged, with an exchange after each; 5,000 by default.
    burn_in : int, optional
        Sweeps before, in which the ladder is adapted; a quarter of ``num_sweeps`` by default, but at least 200.
    accuracy : float, optional
        Error at which the run ends, for all probabilities, with 95 % confidence for each. The intervals are
        approximate; ``num_sweeps``, a million by default, and ``time_limit`` still hold.
    num_draws : int, optional
        Configurations kept of every ladder at its highest rung, the model itself, evenly over the sweeps that are
        averaged; where the time limit decides how many sweeps there are, as many as it turns out to allow, at most
        this. They are ``draws`` of the result, which ``expect``, ``variance`` and ``estimate`` average over. None by
        default, but 1,000 with ``temperatures`` or ``rungs``.
    temperatures : sequence of float, optional
        Temperatures at which configurations are kept too: at temperature T all log-weights are divided by T. The ladder
        leads from infinite temperature down to the lowest of them, and has a rung at each beside those that exchanges
        need. The result is about the model at the lowest one; ``result.observables()`` has curves over all of them,
        ``result.at(k)`` the answer at the k-th.
    rungs : "all", optional
        Keep configurations at all rungs of the ladder, which is then one of temperatures, down to the lowest of
        ``temperatures`` or to the model itself. The rungs are numbered from hot to cold.
    moves : "auto" or sequence of {"houdayer"}
        Moves beside Gibbs sweeps: auto, none or houdayer. With ``houdayer`` two ladders exchange clusters of variables
        in which they differ; ``auto`` takes it for graphs of at most six neighbors per variable on average.
    confidence : float
        Confidence of the lower bound on log Z, ``log_z_lower``.
    checkpoint : str, optional
        File in which the run is saved, and from which it continues if it exists. It continues with its own seed when
        none is given; the answer is the same, bit by bit, as that of an uninterrupted run. No plan follows from a time
        limit then, which only says when to stop for now. On the CPU only. A finished run stays in the file: remove it
        when what comes back is safe.
    checkpoint_seconds : float
        Seconds between two writes of the checkpoint.
    edge_marginals : bool
        Whether to estimate the joint probabilities of the two ends of every edge, from the pairs of states in about
        1,000 configurations of every ladder.
    backend : {"cpu", "cuda", "auto"}
        See :func:`fastmix.sample`. On a GPU there are no cluster moves, and up to 1,024 ladders, of which 32 (binary
        variables with at most four neighbors) or 4 make an ensemble.
    evidence, seed, num_threads, progress, executor
        See :func:`fastmix.infer` and :func:`fastmix.sample`.
    time_limit : float, optional
        Seconds, without those of compiling. Without ``num_sweeps`` they are the plan: 40 % for the burn-in, the rest
        for the average. Without either, 5,000 sweeps that end after 60 seconds at the latest.

    Returns
    -------
    TemperedResult
        Status ``not_mixed`` when an ensemble (on a GPU, a ladder) made fewer than 10 round trips on average, bottom to
        top and back, or when R-hat over the ensembles is above 1.1 for some variable.

    Raises
    ------
    UnfitMethodError
        If a variable has too many states, or there is no GPU that could be used.
    ModelError
        If some conditional distribution is undefined, or the evidence is impossible.
    NotConvergedError
        If the time was over before there was anything to report, which only a checkpoint allows.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what was collected, None before the first batch.

    Notes
    -----
    A sweep takes K times the ladders times n updates, at about 1.5 ns each on one core. Lambda grows like the
    square root of n, and the memory is a byte an update of a sweep plus 4 K times the patterns of all neighborhoods.

    Examples
    --------
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=4.0, attractive=True, seed=0)
    >>> result = temper(model, num_sweeps=2000, seed=1)
    >>> str(result.status), bool(result.std_error.max() < 0.02)
    ('ok', True)
    >>> from fastmix import infer
    >>> bool(abs(result.log_z - infer(model, method="exact").log_z) < 4 * result.log_z_std_error)
    True
    """
