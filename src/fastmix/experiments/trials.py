"""A task done: instances with their truth, methods run on them, and the rows that come of it."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastmix import __version__, instances
from fastmix._arrays import FloatArray
from fastmix._checks import check_choice
from fastmix.errors import NotConvergedError
from fastmix.exact import infer_exact
from fastmix.experiments.photographs import encode_map, photograph_instance
from fastmix.experiments.plan import Case, MethodCall, Row, derive_seed
from fastmix.methods.loopy_bp import loopy_bp
from fastmix.methods.mean_field import mean_field
from fastmix.methods.sampler import sample
from fastmix.model import MarkovRandomField
from fastmix.projection import PAPER_STEP, PaperDual, ProjectionResult, divergence_by_name, project
from fastmix.results import jsonable

__all__ = ["Answer", "build", "failed_rows", "mean_error", "run_case", "run_method", "trace_points"]

Instance = tuple[MarkovRandomField, FloatArray, Mapping[str, Any]]  # the model, its true marginals, facts for the rows

_POINTS_PER_DECADE = 4

# -- instances ------------------------------------------------------------------------------------------------------


def build(case: Case) -> Instance:
    """The model of a case with its true marginals, the same wherever and whenever it is built."""
    if case.problem == "photograph":
        return photograph_instance(case)
    fixed = {name: value for name, value in case.parameters.items() if name != "strength"}
    # The same for all strengths: graph, fields and the pattern of the couplings stay, their strength alone changes.
    seed = derive_seed(case.seed, case.problem, sorted(fixed.items()), case.trial, "instance")
    attractive = fixed.pop("kind") == "attractive"
    if "density" in fixed:
        fixed["edge_probability"] = fixed.pop("density")
    generate = getattr(instances, case.problem.replace("-", "_"))
    model = generate(**fixed, coupling_max=case.parameters["strength"], attractive=attractive, seed=seed)
    return model, infer_exact(model).node_marginals, {}


def mean_error(truth: FloatArray, answer: FloatArray, num_variables: int) -> float:
    """Mean over variables of the total variation distance; ``|p(X=1) - q(X=1)|`` for binary ones."""
    return float(0.5 * np.abs(truth - answer).sum() / num_variables)


# -- methods --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a method found; aside from the seconds, determined by the seed."""

    node_marginals: FloatArray  # aligned with model.log_unary
    trace: list[tuple[int, FloatArray]]  # sweeps and node marginals on the way
    facts: dict[str, Any]
    seconds: dict[str, float]  # of the processor, by stage, the best of the repeats


def trace_points(num_sweeps: int) -> list[int]:
    """Numbers of sweeps at which the error is noted, evenly spaced in their logarithm."""
    decades = np.log10(num_sweeps)
    points = 10.0 ** (np.arange(int(decades * _POINTS_PER_DECADE) + 1) / _POINTS_PER_DECADE)
    return sorted({round(float(point)) for point in points} | {num_sweeps})


def run_method(model: MarkovRandomField, call: MethodCall, *, seed: int) -> Answer:
    """The answer of a method to a model.

    With a ``divergence`` among the options, :func:`fastmix.project` by the name of the divergence and its own
    arguments, then :func:`fastmix.sample`; with ``num_sweeps`` alone, :func:`fastmix.sample`. ``step="paper"`` is
    :data:`fastmix.projection.PAPER_STEP`, ``solver="paper-once"`` a smoothed step of its dual. ``repeats`` runs
    everything so often, for the seconds; the answer is the same every time.
    """
    options = dict(call.options)
    answers = [_run_once(model, call.name, options, seed) for _ in range(options.pop("repeats", 1))]
    best = {stage: min(answer.seconds[stage] for answer in answers) for stage in answers[0].seconds}
    return replace(answers[0], seconds=best)


def _run_once(model: MarkovRandomField, name: str, options: Mapping[str, Any], seed: int) -> Answer:
    seconds, facts = dict[str, float](), dict[str, Any]()
    if "divergence" in options:
        with _timed(seconds, "project"):
            result = _project(model, options, seed)
        facts = {"status": result.status, "norm_after": result.norm_after}
        if "inner_iterations" in result.stats:
            facts["inner_iterations"] = int(result.stats["inner_iterations"])
        model, seed = result.model, seed ^ 1
    if "num_sweeps" in options:
        # One chain from a random start, every sweep counted from the first on, as in the paper's figures.
        points = trace_points(options["num_sweeps"])
        own = {option: options[option] for option in ("num_sweeps", "estimator", "method") if option in options}
        with _timed(seconds, "sample"):
            run = sample(model, num_chains=1, burn_in=0, history_at=points, seed=seed, num_threads=1, **own)
        facts = {"status": "ok", "num_sweeps": options["num_sweeps"], **facts}
        return Answer(run.node_marginals, run.history, facts, seconds)
    check_choice("a method without sweeps", name, ["mean-field", "loopy-bp"])
    with _timed(seconds, "infer"):
        found = mean_field(model, seed=seed) if name == "mean-field" else loopy_bp(model)
    return Answer(found.node_marginals, [], {"status": found.status}, seconds)


def _project(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> ProjectionResult:
    divergence = divergence_by_name(options["divergence"])
    own = {name: options[name] for name in vars(divergence) if name in options}
    try:
        return project(
            model,
            norm_bound=options["norm_bound"],
            norm=options["norm"],
            divergence=type(divergence)(**own),
            solver=PaperDual(exact=False) if options.get("solver") == "paper-once" else "fast",
            step=PAPER_STEP if options.get("step") == "paper" else None,
            seed=seed,
            progress=None,
        )
    except NotConvergedError as error:
        return error.result  # within the bound, and its status says that it may be improved on


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Note the processor seconds of this process: other work on the machine counts for little in them."""
    start = time.process_time()
    yield
    seconds[stage] = time.process_time() - start


# -- rows -----------------------------------------------------------------------------------------------------------


def run_case(case: Case) -> list[Row]:
    """The rows of a case, one for every method.

    The instance is built and solved once. A method that raises gives a row with the error in ``failure`` and none in
    ``error``; the others go on.
    """
    seconds: dict[str, float] = {}
    try:
        with _timed(seconds, "truth"):
            model, truth, facts = build(case)
    except Exception as error:
        return failed_rows(case, error)
    rows = []
    for call in case.calls:
        row = _empty_row(case, call)
        with _timed(seconds, "total"):
            try:
                answer = run_method(model, call, seed=row["seed"])
                row["error"] = mean_error(truth, answer.node_marginals, model.num_variables)
                row["trace"] = [[sweeps, mean_error(truth, p, model.num_variables)] for sweeps, p in answer.trace]
                row["facts"] = jsonable({**facts, **answer.facts, "model_hash": model.content_hash})
                if case.payload:
                    shape = case.parameters["rows"], case.parameters["cols"]
                    row["facts"]["map"] = encode_map(answer.node_marginals[1::2].reshape(shape))
                row["seconds"] = answer.seconds
            except Exception as error:
                row = _empty_row(case, call, error)
        row["seconds"] |= seconds
        rows.append(row)
    return rows


def failed_rows(case: Case, error: Exception) -> list[Row]:
    """Rows that say why a whole case came to nothing."""
    return [_empty_row(case, call, error) for call in case.calls]


def _empty_row(case: Case, call: MethodCall, failure: Exception | None = None) -> Row:
    return {
        "key": case.row_key(call),
        "problem": case.problem,
        "parameters": dict(case.parameters),
        "trial": case.trial,
        "root_seed": case.seed,
        "method": call.name,
        "options": dict(call.options),
        "seed": case.derive_seed(call.name),
        "versions": {"fastmix": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
        "error": None,
        "trace": [],
        "facts": {},
        "seconds": {},
    }
