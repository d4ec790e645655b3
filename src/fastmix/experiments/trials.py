"""A task done: instances, random or noisy photographs, with their truth; methods run on them; and their rows."""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix import __version__, instances
from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import check_choice, require
from fastmix._context import stream_seed
from fastmix.denoising import add_noise, anneal, binarize, denoising_model, load_image
from fastmix.denoising.images import PICTURES, resize
from fastmix.denoising.posterior import as_gray
from fastmix.errors import FormatError, NotConvergedError
from fastmix.exact import infer_exact
from fastmix.experiments.plan import Case, Experiment, MethodCall, Row, Settings, canonical
from fastmix.experiments.tuning import (
    PHOTOGRAPH_SIZE,
    POINTS_PER_DECADE,
    QUICK_PHOTOGRAPH_SIZE,
    QUICK_TRUTH_EFFORT,
    TRUTH_EFFORT,
)
from fastmix.model import MarkovRandomField
from fastmix.projection import PAPER_STEP, PaperDual, ProjectionResult, divergence_by_name, project
from fastmix.results import jsonable
from fastmix.sampling.sample import sample
from fastmix.variational.loopy_bp import loopy_bp
from fastmix.variational.mean_field import mean_field

__all__ = [
    "Answer", "build", "decode_map", "encode_map", "failed_rows", "load_photographs", "mean_error", "photograph_case",
    "photograph_cases", "run_case", "run_method", "trace_points",
]  # fmt: skip

Instance = tuple[MarkovRandomField, FloatArray, Mapping[str, Any]]  # the model, its true marginals, facts for the rows

# Photographs that are part of the scikit-image package itself, so that nothing is downloaded.
_CARRIED = ("astronaut", "brick", "camera", "chelsea", "clock", "coffee", "coins", "gravel", "moon", "rocket")

# -- instances ------------------------------------------------------------------------------------------------------


def build(case: Case) -> Instance:
    """The model of a case with its true marginals, the same wherever and whenever it is built."""
    if case.problem == "photograph":
        return _photograph_instance(case)
    fixed = {name: value for name, value in case.parameters.items() if name != "strength"}
    # The same for all strengths: graph, fields and the pattern of the couplings stay, their strength alone changes.
    seed = stream_seed(case.seed, case.problem, canonical(fixed), case.trial, "instance")
    attractive = fixed.pop("kind") == "attractive"
    if "density" in fixed:
        fixed["edge_probability"] = fixed.pop("density")
    generate = getattr(instances, case.problem.replace("-", "_"))
    model = generate(**fixed, coupling_max=case.parameters["strength"], attractive=attractive, seed=seed)
    return model, infer_exact(model).node_marginals, {}


def mean_error(truth: FloatArray, answer: FloatArray, num_variables: int) -> float:
    """Mean over variables of the total variation distance; ``|p(X=1) - q(X=1)|`` for binary ones."""
    return float(0.5 * np.abs(truth - answer).sum() / num_variables)


def photograph_cases(experiment: Experiment, settings: Settings) -> list[Case]:
    """One case for every photograph; more trials than photographs do not make more."""
    size = QUICK_PHOTOGRAPH_SIZE if settings.quick else PHOTOGRAPH_SIZE
    effort = QUICK_TRUTH_EFFORT if settings.quick else TRUTH_EFFORT
    pictures = load_photographs(settings.images, size, experiment.num_trials(settings))
    return [photograph_case(*picture, trial, settings.seed, effort) for trial, picture in enumerate(pictures)]


def photograph_case(name: str, clean: BoolArray, trial: int, seed: int, effort: Mapping[str, int]) -> Case:
    """The case of a black-and-white picture; its pixels travel with it, so that workers need no files."""
    rows, cols = clean.shape
    bits = np.packbits(clean).tobytes()
    digest = hashlib.sha256(bits).hexdigest()[:16]
    parameters = {"image": name, "rows": rows, "cols": cols, "pixels": digest, "truth": dict(effort)}
    return Case("photograph", trial, parameters, seed, bits)


def load_photographs(folder: str | None, size: tuple[int, int], most: int) -> list[tuple[str, BoolArray]]:
    """Names and photographs of a folder, or of scikit-image: black and white at their mean, scaled to a size."""
    if folder is None:
        images = _carried(most)
    else:
        if not os.path.isdir(folder):
            raise ValueError(f"images must be a folder of photographs, got {folder!r}")
        names = sorted(name for name in os.listdir(folder) if name.lower().endswith(PICTURES))
        if not names:
            raise ValueError(f"images must be a folder with {', '.join(PICTURES)} files, got {folder!r} without any")
        images = [(os.path.splitext(name)[0], load_image(os.path.join(folder, name))) for name in names[:most]]
    return [(name, binarize(_fit(image, size))) for name, image in images]


def _carried(most: int) -> list[tuple[str, FloatArray]]:
    """Names and gray values of photographs that the installed scikit-image carries."""
    data = require("skimage.data", extra="image", purpose="photographs")
    found = []
    for name in _CARRIED:
        try:
            found.append((name, as_gray(getattr(data, name)())))
        except (AttributeError, OSError, ModuleNotFoundError, ValueError):  # not in this version: it would be fetched
            continue
        if len(found) == most:
            break
    if not found:
        raise FormatError("scikit-image carries none of the photographs: give a folder of images")
    return found


def _fit(image: FloatArray, size: tuple[int, int]) -> FloatArray:
    """The largest part in the middle that has the proportions of a size, scaled to it; upright ones to it turned."""
    rows, cols = image.shape
    is_upright = rows > cols
    width = min(size) if is_upright else max(size)
    height = max(size) if is_upright else min(size)
    part_cols = min(cols, round(rows * width / height))
    part_rows = min(rows, round(cols * height / width))
    top = (rows - part_rows) // 2
    left = (cols - part_cols) // 2
    return resize(image[top : top + part_rows, left : left + part_cols], height, width)


def _photograph_instance(case: Case) -> Instance:
    """The posterior of a noisy photograph, its marginals by annealed populations of Swendsen-Wang chains, and facts.

    Chains of Swendsen-Wang from different starts do not meet on these posteriors, however long they run, so the truth
    comes from population annealing with the same sweeps; how far two independent populations differ says how far it
    can be trusted, and is in the facts as ``truth_error``.
    """
    parameters = case.parameters
    rows = parameters["rows"]
    cols = parameters["cols"]
    bits = np.unpackbits(np.frombuffer(case.payload, dtype=np.uint8), count=rows * cols)
    clean = bits.reshape(rows, cols).astype(bool)
    observed = add_noise(clean, seed=stream_seed(case.seed, "noise", parameters["image"], case.trial))
    model = denoising_model(observed)
    truth = anneal(model, seed=case.seed_of("truth"), num_threads=1, **parameters["truth"])
    marginals = truth.node_marginals
    maps = {"clean": clean, "observed": observed, "truth": marginals[1::2].reshape(rows, cols)}
    facts = {
        "truth_error": truth.stats["mean_std_error"],
        "maps": {name: encode_map(values) for name, values in maps.items()},
    }
    return model, marginals, facts


def encode_map(values: NDArray[Any]) -> str:
    """Gray values (rows, cols) from 0 to 1 as text: 16 shades, compressed."""
    shades = np.round(15.0 * np.asarray(values, dtype=np.float64)).astype(np.uint8).reshape(-1)
    return base64.b64encode(zlib.compress(shades.tobytes(), 9)).decode()


def decode_map(text: str, rows: int, cols: int) -> FloatArray:
    """Gray values (rows, cols) from text of :func:`encode_map`."""
    shades = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return shades.reshape(rows, cols) / 15.0


# -- methods --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Marginals that a method found, and what they took; all but the seconds follow from the seed."""

    node_marginals: FloatArray  # aligned with model.log_unary
    trace: list[tuple[int, FloatArray]]  # sweeps and node marginals on the way
    facts: dict[str, Any]
    seconds: dict[str, float]  # of the processor, by stage, the best of the repeats


def trace_points(num_sweeps: int) -> list[int]:
    """Numbers of sweeps at which the error is noted, evenly spaced in their logarithm."""
    decades = np.log10(num_sweeps)
    points = 10.0 ** (np.arange(int(decades * POINTS_PER_DECADE) + 1) / POINTS_PER_DECADE)
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
    """The answer of a method by its name and options, run a single time."""
    seconds: dict[str, float] = {}
    facts: dict[str, Any] = {}
    if "divergence" in options:
        with _timed(seconds, "project"):
            result = _project(model, options, seed)
        facts = {"status": result.status, "norm_after": result.norm_after}
        if "num_inner_iterations" in result.stats:
            facts["inner_iterations"] = int(result.stats["num_inner_iterations"])
        model = result.model
        seed = stream_seed(seed, "sample")
    if "num_sweeps" in options:
        # One chain from a random start, every sweep counted from the first on, as in the paper's figures.
        points = trace_points(options["num_sweeps"])
        own = {option: options[option] for option in ("num_sweeps", "estimator", "method") if option in options}
        with _timed(seconds, "sample"):
            run = sample(model, num_chains=1, burn_in=0, history_at=points, seed=seed, num_threads=1, **own)
        facts = {"status": "ok", "num_sweeps": options["num_sweeps"], **facts}
        history = [(entry["sweep"], entry["marginals"]) for entry in run.history]
        return Answer(run.node_marginals, history, facts, seconds)
    check_choice("a method without sweeps", name, ["mean-field", "loopy-bp"])
    with _timed(seconds, "infer"):
        found = mean_field(model, seed=seed) if name == "mean-field" else loopy_bp(model)
    return Answer(found.node_marginals, [], {"status": found.status}, seconds)


def _project(model: MarkovRandomField, options: Mapping[str, Any], seed: int) -> ProjectionResult:
    """The projection that options of a method ask for, also where it may still be improved on."""
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
        return error.result  # within the bound; its status says that it may be improved on


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
    """The row of a method without an answer, with the reason where it has failed."""
    return {
        "key": case.row_key(call),
        "problem": case.problem,
        "parameters": dict(case.parameters),
        "trial": case.trial,
        "root_seed": case.seed,
        "method": call.name,
        "options": dict(call.options),
        "seed": case.seed_of(call.name),
        "versions": {"fastmix": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
        "error": None,
        "trace": [],
        "facts": {},
        "seconds": {},
    }
