"""The methods that experiments compare: what each is called, and how it is run on a model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import NotConvergedError
from fastmix.experiments.plan import MethodCall
from fastmix.methods.loopy_bp import loopy_bp
from fastmix.methods.mean_field import mean_field
from fastmix.methods.sampler import sample
from fastmix.model import MarkovRandomField
from fastmix.projection import KL, PAPER_STEP, Euclidean, PaperDual, PiecewiseKL, ProjectionResult, ReversedKL, project
from fastmix.projection.divergence import Divergence

__all__ = ["Answer", "projected", "run_method", "sampled", "trace_points"]

FloatArray = NDArray[np.float64]

NORM_BOUND = 2.5  # the paper's c
NUM_SWEEPS = 30_000
LONG_SWEEPS = 1_000_000
_POINTS_PER_DECADE = 4


@dataclass
class Answer:
    """What a method found.

    Attributes
    ----------
    node_marginals : float array, aligned with ``model.log_unary``
    trace : list of (sweeps, node marginals)
        On the way, for samplers.
    facts : mapping
        Plain data for the row; determined by the seed.
    seconds : mapping
        Processor seconds of this process by stage, the best of the repeats.
    """

    node_marginals: FloatArray
    trace: list[tuple[int, FloatArray]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def sampled(num_sweeps: int, **options: Any) -> dict[str, Any]:
    """Options of a sampler.

    One chain from a random start, every sweep counted from the first on, states counted as they are: the paper names
    neither a burn-in nor an estimator, and its figures are of a single chain averaged over time.
    """
    return {"num_sweeps": num_sweeps, "estimator": "counts", **options}


def projected(
    divergence: str, num_sweeps: int, *, norm: str = "inf", step: str = "paper", **options: Any
) -> dict[str, Any]:
    """Options of sampling after a projection.

    ``step="paper"`` is the paper's: 60 steps of 0.1 (in indicator coordinates) from one start, the largest piece of the
    piecewise divergence as it is; ``"default"`` is what the divergences do by default.
    """
    chosen = {"divergence": divergence, "norm": norm, "norm_bound": NORM_BOUND, **sampled(num_sweeps), **options}
    return chosen if divergence == "euclidean" else {**chosen, "step": step}


def trace_points(num_sweeps: int) -> list[int]:
    """Numbers of sweeps at which the error is noted, evenly spaced in their logarithm.

    Examples
    --------
    >>> trace_points(100)
    [1, 2, 3, 6, 10, 18, 32, 56, 100]
    """
    decades = np.log10(num_sweeps)
    points = 10.0 ** (np.arange(int(decades * _POINTS_PER_DECADE) + 1) / _POINTS_PER_DECADE)
    return sorted({round(float(point)) for point in points} | {num_sweeps})


def run_method(model: MarkovRandomField, call: MethodCall, *, seed: int) -> Answer:
    """The answer of a method to a model.

    Parameters
    ----------
    model : MarkovRandomField
    call : MethodCall
        Its option ``repeats`` runs everything so often, for the seconds; the answer is the same every time.
    seed : int

    Raises
    ------
    ValueError
        If the method is not known.
    """
    options = dict(call.options)
    repeats = int(options.pop("repeats", 1))
    run = _runner(call.name, options)
    answer = run(model, options, seed)
    for _ in range(repeats - 1):
        again = run(model, options, seed).seconds
        answer.seconds = {stage: min(taken, again[stage]) for stage, taken in answer.seconds.items()}
    return answer


def _runner(name: str, options: Mapping[str, Any]) -> Callable[[MarkovRandomField, Mapping[str, Any], int], Answer]:
    if "divergence" in options:
        return _run_projected
    if name in ("mean-field", "loopy-bp"):
        return _run_mean_field if name == "mean-field" else _run_loopy_bp
    if "num_sweeps" in options:
        return _run_sampler
    raise ValueError(f"method {name!r} has neither a divergence nor a number of sweeps among its options")


def _run_mean_field(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> Answer:
    seconds: dict[str, float] = {}
    with _timed(seconds, "infer"):
        result = mean_field(model, seed=seed, **options)
    return Answer(result.node_marginals, facts={"status": str(result.status)}, seconds=seconds)


def _run_loopy_bp(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> Answer:
    seconds: dict[str, float] = {}
    with _timed(seconds, "infer"):
        result = loopy_bp(model, **options)
    facts = {"status": str(result.status), "iterations": int(result.stats["iterations"])}
    return Answer(result.node_marginals, facts=facts, seconds=seconds)


def _run_sampler(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> Answer:
    seconds: dict[str, float] = {}
    num_sweeps = options["num_sweeps"]
    with _timed(seconds, "sample"):
        result = sample(
            model, num_chains=1, burn_in=0, history_at=trace_points(num_sweeps), seed=seed, num_threads=1, **options
        )
    return Answer(result.node_marginals, result.history, {"status": "ok", "num_sweeps": num_sweeps}, seconds)


def _run_projected(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> Answer:
    seconds: dict[str, float] = {}
    with _timed(seconds, "project"):
        result = _project(model, options, seed)
    facts = {
        "status": str(result.status),
        "norm_before": result.norm_before,
        "norm_after": result.norm_after,
        "squared_distance": result.squared_distance,
        "iterations": int(result.stats.get("iterations", 0)),
    }
    if (
        result.solver_state is not None
        and (inner := getattr(result.solver_state, "inner_iterations", None)) is not None
    ):
        facts["inner_iterations"] = int(inner)
    answer = _run_sampler(
        result.model, {"num_sweeps": options["num_sweeps"], "estimator": options["estimator"]}, seed ^ 1
    )
    answer.facts |= facts
    answer.seconds |= seconds
    return answer


def _project(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> ProjectionResult:
    kind = options["divergence"]
    euclidean = kind == "euclidean"
    dual = options.get("solver")
    try:
        return project(
            model,
            norm_bound=options["norm_bound"],
            norm=options["norm"],
            divergence=_divergence(kind, options),
            solver="fast" if dual is None else PaperDual(exact=dual == "paper-exact"),
            step=PAPER_STEP if not euclidean and options.get("step") == "paper" else None,
            seed=None if euclidean else seed,
        )
    except NotConvergedError as error:
        if error.result is None:
            raise
        return error.result  # within the bound, and its status says that it may be improved on


def _divergence(kind: str, options: Mapping[str, Any]) -> Divergence:
    if kind == "euclidean":
        return Euclidean()
    as_in_paper = options.get("step") == "paper"
    if kind == "piecewise":
        pieces = options.get("pieces", "auto")
        return PiecewiseKL(pieces=pieces, smoothing=0.0) if as_in_paper else PiecewiseKL(pieces=pieces)
    if kind == "reversed-kl":
        return ReversedKL(num_starts=1) if as_in_paper else ReversedKL()
    if kind == "kl":
        return KL()
    raise ValueError(f"divergence must be euclidean, piecewise, reversed-kl or kl, got {kind!r}")


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the processor seconds of this process: other work on the machine counts for little in them."""
    start = time.process_time()
    yield
    seconds[stage] = time.process_time() - start
