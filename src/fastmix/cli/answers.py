"""Commands that answer questions about a model: ``infer``, ``map``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

import fastmix
from fastmix.cli import console, files
from fastmix.cli.options import AsJson, Asked, Cluster, Evidence, Model, NumWorkers, takes
from fastmix.io import format_names, read_model_or_network, write_answer, write_mar, write_pr
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.results import InferenceResult

__all__ = ["compare", "infer", "map_", "sample", "temper"]

AnswerFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--output", "-o", metavar="FILE",
        help="FILE.MAR marginals, FILE.PR log10 Z, FILE.csv a table, FILE.npz arrays, FILE.json all; several -o write "
        "several. A folder takes a .MAR and a .PR for every model.",
    ),
]  # fmt: skip
_MOST_AHEAD = 256  # models of a batch that are read before their turn
_MARGINALS = (".mar", ".pr", ".json", ".csv", ".npz")
_RUN = "seed num_threads time_limit backend"


@takes("infer", _RUN, log_z="Take a method that has log Z.", bracket="Add proven bounds, and hold the answer to them.")
def infer(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help=f"{format_names()} files, plain, gzip, xz or bzip2; - is stdin."),
    ],
    method: Annotated[
        str,
        typer.Option(
            help="auto, exact, mean-field, loopy-bp, gibbs, swendsen-wang, tempered, projected, annealed or perfect."
        ),
    ] = "auto",
    evidence: Evidence = None,
    output: AnswerFiles = None,
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Marginals of every variable, and log Z where the method has it; of several models, a table at the end."""
    from fastmix.methods.base import find_method

    outputs, checkpoint = output or [], options.get("checkpoint")
    is_batch = len(models) > 1 or any(
        path.endswith(("/", os.sep)) or (os.path.isdir(path) and not os.path.splitext(path)[1]) for path in outputs
    )
    found = find_method(method, "--method")
    if is_batch and checkpoint is not None:
        raise ValueError("--checkpoint must not be given with several models")
    if (shared := console.workers_option(cluster, num_workers)) and not (is_batch or found.shares):
        raise ValueError(
            f"{shared} must come with several models, or a method that has chains (gibbs, swendsen-wang, tempered), "
            f"got one model and {method}"
        )
    options = {**options, **given, "method": method}
    if is_batch:
        folder = _check_batch(models, outputs)
        with console.workers(cluster, num_workers) as executor:
            _give_batch(models, _answers(executor, models, evidence, options), folder, as_json)
        return
    for path, suffix in zip(outputs, files.check_answers(outputs, _MARGINALS), strict=True):
        if suffix == ".pr" and not found.gives_log_z:  # before the model is read
            raise ValueError(f"the method {method} gives no log Z to write to {path}; exact, tempered and annealed do")
        options["log_z"] = options.get("log_z") or suffix == ".pr"
    files.check_outputs(models, outputs, checkpoint, as_json=as_json)
    with console.workers(cluster, num_workers) as executor:
        result, *_ = files.answer(fastmix.infer, models[0], evidence, executor=executor, **options)
    _give_answer(result, outputs, as_json, console.show_marginals, ".mar", checkpoint)


@takes("infer", _RUN)
def temper(
    model: Model, evidence: Evidence = None, output: AnswerFiles = None, num_workers: NumWorkers = None,
    cluster: Cluster = None, as_json: AsJson = False, *, given: dict[str, Any], options: dict[str, Any],
) -> None:  # fmt: skip
    """Marginals and log Z by replica exchange, for models in which single chains get stuck."""
    infer([model], "tempered", evidence, output, num_workers, cluster, as_json, given=given, options=options)


def _give_answer(
    result: Any, outputs: list[str], as_json: bool, show: Callable[[Any], None], plain: str, checkpoint: str | None
) -> None:
    """Write an answer, as ``plain`` on stdout if asked, or show it."""
    for path in outputs:
        write_answer(result, path, plain)
    console.finish(result, as_json, (lambda: None) if outputs else partial(show, result), checkpoint=checkpoint)


# What there is to say about a file of a batch: an answer, or in words why there is none and the exit code.
Outcome: TypeAlias = "InferenceResult | tuple[str, int]"


def _load(path: str, evidence: str | None, options: dict[str, Any]) -> tuple[Any, ...]:
    """What :func:`_answer` needs, wherever it is called; workers need not see the files."""
    try:
        return path, evidence, files.load(path, evidence), options
    except Exception as error:
        return path, evidence, _explained(error), {}


def _answer(task: tuple[Any, ...]) -> Outcome:
    """The answer for one file of a batch."""
    path, evidence, loaded, options = task
    if isinstance(loaded[0], str):  # could not be read
        return cast("tuple[str, int]", loaded)
    try:
        with files.answering(path, evidence):
            return files.salvage(lambda: fastmix.infer(loaded[0], evidence=loaded[1], **options))
    except Exception as error:
        return _explained(error)


def _explained(error: Exception) -> tuple[str, int]:
    if (known := console.explain(error)) is None or isinstance(error, BrokenPipeError):
        raise error
    return known


def _answers(
    executor: Executor | None, models: list[str], evidence: str | None, options: dict[str, Any]
) -> Iterator[Outcome]:
    """Answers by workers, if there are any, one thread each; when they are lost this process goes on."""
    from fastmix.executors import CrashError, LostError, as_pool, run_in_order

    rest = list(models)
    if executor is not None:
        pool, own = as_pool(executor), {"num_threads": 1, **options, "progress": None}
        pool.ahead = min(pool.ahead, _MOST_AHEAD)
        try:
            for outcome in run_in_order(_answer, (_load(path, evidence, own) for path in models), pool):
                del rest[0]
                yield (str(outcome), 2) if isinstance(outcome, CrashError) else outcome
        except LostError as error:
            console.message(f"{error}: this process goes on with {len(rest)} of {len(models)} files")
    yield from (_answer(_load(path, evidence, options)) for path in rest)


def _check_batch(models: list[str], outputs: list[str]) -> str | None:
    """The folder for the answers of several models, which is made."""
    if not outputs:
        return None
    if len(outputs) > 1:
        raise ValueError(f"-o must be one folder for several models, got {', '.join(map(repr, outputs))}")
    folder, names = outputs[0], [os.path.basename(path) for path in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"MODEL... must have different names, for the files in -o, got {twice[0]!r} twice")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"-o must be a folder for several models, got {folder!r}")
    files.check_output_folder(folder)
    os.makedirs(folder, exist_ok=True)
    return folder


def _give_batch(models: list[str], answers: Iterator[Outcome], folder: str | None, as_json: bool) -> None:
    """Answers for several files into a folder, and a table of them; the exit code is the worst of all."""
    rows: list[dict[str, Any]] = []
    worst = 0
    try:
        for path, outcome in zip(models, answers, strict=True):
            row: dict[str, Any] = {"file": path, "method": None, "status": "", "log_z": None, "seconds": None}
            if isinstance(outcome, tuple):
                note, code = outcome
                row["status"] = "bad file" if code == 3 else "refused" if code == 2 else "not_converged"
                console.message(note)
            else:
                if folder is not None:
                    place = os.path.join(folder, "stdin" if path == "-" else os.path.basename(path))
                    write_mar(outcome.marginals, f"{place}.MAR")
                    if outcome.log_z is not None:
                        write_pr(outcome.log_z, f"{place}.PR")
                code = int(outcome.status != "ok")
                row |= {name: outcome.to_dict()[name] for name in ("method", "status", "log_z", "seconds")}
                note = "" if not code else console.explain_status(outcome)
            rows.append({**row, "note": note})
            worst = max(worst, code)
            if not isinstance(outcome, tuple) and outcome.stats.get("stopped_by") == "interrupt":
                break
    except KeyboardInterrupt:  # between two answers, or before there was one
        console.message(f"interrupted after {len(rows)} of {len(models)} files")
        worst = max(worst, 1)
    if as_json:
        console.emit_json({"files": rows, "num_failed": sum(row["status"] != "ok" for row in rows)})
    else:
        console.show_batch(rows)
    if worst:
        raise typer.Exit(worst)


@takes(
    "most_probable", "memory_limit seed time_limit",
    method="auto, exact, cut, expansion or search.",
    tol="Gap to the largest log-weight that is good enough.",
)  # fmt: skip
def map_(
    model: Model,
    evidence: Evidence = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MPE states, FILE.csv a table, FILE.json all."),
    ] = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """The most probable configuration, exact or with a proven gap."""
    outputs = output or []
    files.check_answers(outputs, (".mpe", ".json", ".csv"))
    files.check_outputs([model], outputs, as_json=as_json)
    result, *_ = files.answer(fastmix.most_probable, model, evidence, **given)
    _give_answer(result, outputs, as_json, console.show_most_probable, ".mpe", None)


@takes(
    "compare", "methods seed memory_limit num_threads backend",
    time_limit=Asked("For every method but exact.", "SECONDS"),
)  # fmt: skip
def compare(
    model: Model,
    evidence: Evidence = None,
    reference: Annotated[
        str | None, typer.Option(metavar="FILE.MAR", help="Marginals to trust where exact inference is too costly.")
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for a CSV file and a picture.")
    ] = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Errors, seconds and verdicts of several methods on one model."""
    if output is not None:
        files.check_output_folder(output)
    loaded, observed = files.load(model, evidence)
    if reference is not None:
        given |= {"reference": files.load_marginals(reference, loaded), "reference_name": reference}
    with files.answering(model, evidence):
        result = files.salvage(lambda: fastmix.compare(loaded, evidence=observed, **given))
    for path in [] if output is None else result.save(output):
        console.message(f"wrote {path}")
    console.finish(result, as_json, lambda: console.show_comparison(model, result), (loaded, observed))


@takes("sample", _RUN)
def sample(
    model: Model,
    method: Annotated[
        str | None,
        typer.Option(
            help="gibbs, swendsen-wang, perfect for exact draws by coupling from the past, or ancestral for those of a "
            "Bayesian network without evidence, the default there; else gibbs."
        ),
    ] = None,
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    evidence: Evidence = None,
    output: Annotated[
        list[str] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.npz",
            help="Where the draws go; FILE.MAR, FILE.csv and FILE.json for marginals, in further -o.",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Draw configurations by Markov chains, or exactly; a summary without -o."""
    from fastmix.methods.base import find_method, options_of
    from fastmix.methods.sampler import SAMPLERS

    outputs, checkpoint, on_gpu = output or [], options.get("checkpoint"), given["backend"] == "cuda"
    if "-" in outputs:
        raise ValueError("-o must name a file, got '-'")
    files.check_answers(outputs, (".npz", ".mar", ".csv", ".json"))
    files.check_outputs([model], outputs, checkpoint)
    network = files.read(read_model_or_network, model) if evidence is None and method in (None, "ancestral") else None
    if method is None:
        plain = set(options) <= {"num_draws"} and not on_gpu
        method = "ancestral" if plain and isinstance(network, BayesianNetwork) else "gibbs"
    allowed = ["num_draws"] if method == "ancestral" else list(options_of(find_method(method, "--method", SAMPLERS)))
    if others := [name for name in options if name not in allowed]:
        own = ", ".join(f"--{name.replace('_', '-')}" for name in allowed)
        raise ValueError(f"--{others[0].replace('_', '-')} must not be given with --method {method}, which takes {own}")
    if (shared := console.workers_option(cluster, num_workers)) and method not in ("gibbs", "swendsen-wang"):
        raise ValueError(f"{shared} must come with chains (gibbs, swendsen-wang), got --method {method}")
    if method == "ancestral":
        if not isinstance(network, BayesianNetwork) or on_gpu:
            raise fastmix.UnfitMethodError(
                "--method ancestral must have a Bayesian network (a BIF or XMLBIF file), without --evidence and on the "
                "CPU; use gibbs"
            )
        count = options.get("num_draws", 1000)
        result: Any = fastmix.ancestral_sample(network, seed=given.get("seed"), num_draws=count)
    else:
        if network is None:
            loaded, observed = files.load(model, evidence)
        else:
            loaded, observed = (network.to_model() if isinstance(network, BayesianNetwork) else network), {}
        options = {"num_draws": 100 if method == "perfect" else int(bool(outputs)), **options, **given}
        with console.workers(cluster, num_workers) as executor, files.answering(model, evidence):
            result = files.salvage(
                lambda: fastmix.sample(loaded, method=method, evidence=observed, executor=executor, **options)
            )
    for path in outputs:
        write_answer(result, path)
    console.finish(result, as_json, lambda: console.show_sampling(model, result), checkpoint=checkpoint, tell=False)
