"""Commands that answer questions about a model: ``infer``, ``map``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

import typer

import fastmix
from fastmix.cli import console, files
from fastmix.cli.options import AsJson, Cluster, Evidence, Model, NumWorkers, takes
from fastmix.io import format_names, write_answer
from fastmix.io.answers import answer_suffix, missing_answer

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


@takes(
    "infer", _RUN,
    method="auto, exact, mean-field, loopy-bp, gibbs, swendsen-wang, tempered, projected, annealed or perfect.",
    log_z="Take a method that has log Z.",
    bracket="Add proven bounds, and hold the answer to them.",
)  # fmt: skip
def infer(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help=f"{format_names()} files, plain, gzip, xz or bzip2; - is stdin."),
    ],
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

    method = given["method"]
    find_method(method)  # before anything is read
    outputs, checkpoint = output or [], options.get("checkpoint")
    is_batch = len(models) > 1 or any(
        path.endswith(("/", os.sep)) or (os.path.isdir(path) and not os.path.splitext(path)[1]) for path in outputs
    )
    options |= given
    if is_batch:
        if checkpoint is not None:
            raise ValueError("--checkpoint must not be given with several models")
        folder = _check_batch(models, outputs)
        with console.workers(cluster, num_workers) as executor:
            _give_batch(models, _answers(executor, models, evidence, options), folder, as_json)
        return
    files.check_outputs(models, outputs, checkpoint, allowed=_MARGINALS, as_json=as_json)
    if any(path != "-" and answer_suffix(path) == ".pr" for path in outputs):
        options["log_z"] = True
    with console.workers(cluster, num_workers, method) as executor:
        result = files.load(models[0], evidence).answer(fastmix.infer, executor=executor, **options)
    show = partial(console.show_marginals, result)
    console.finish(result, as_json, show, outputs=outputs, checkpoint=checkpoint)


@takes("infer", _RUN)
def temper(
    model: Model, evidence: Evidence = None, output: AnswerFiles = None, num_workers: NumWorkers = None,
    cluster: Cluster = None, as_json: AsJson = False, *, given: dict[str, Any], options: dict[str, Any],
) -> None:  # fmt: skip
    """Marginals and log Z by replica exchange, for models in which single chains get stuck."""
    given["method"] = "tempered"
    infer([model], evidence, output, num_workers, cluster, as_json, given=given, options=options)


T = TypeVar("T")
Refusal: TypeAlias = tuple[str, int]  # in words why there is no answer for a file of a batch, and the exit code
Outcome: TypeAlias = "InferenceResult | Refusal"


def _attempt(call: Callable[[], T]) -> T | Refusal:
    try:
        return call()
    except Exception as error:
        if (known := console.explain(error)) is None or isinstance(error, BrokenPipeError):
            raise
        return known


def _answer(task: tuple[files.Input | Refusal, dict[str, Any]]) -> Outcome:
    """The answer for one file of a batch, wherever this is called; workers need not see the file."""
    loaded, options = task
    return _attempt(lambda: loaded.answer(fastmix.infer, **options)) if isinstance(loaded, files.Input) else loaded


def _answers(
    executor: Executor | None, models: list[str], evidence: str | None, options: dict[str, Any]
) -> Iterator[Outcome]:
    """Answers by workers, if there are any, one thread each; when they are lost this process goes on."""
    from fastmix.executors import CrashError, LostError, as_pool, run_in_order
    from fastmix.methods.base import find_method

    rest = list(models)

    def tasks(own: dict[str, Any]) -> Iterator[Any]:
        return ((_attempt(partial(files.load, path, evidence)), own) for path in rest.copy())

    if executor is not None:
        pool, threads = as_pool(executor), {"num_threads": 1} if find_method(options["method"]).threaded else {}
        pool.ahead = min(pool.ahead, _MOST_AHEAD)
        try:
            for outcome in run_in_order(_answer, tasks({**threads, **options, "progress": None}), pool):
                del rest[0]
                yield (str(outcome), 2) if isinstance(outcome, CrashError) else outcome
        except LostError as error:
            console.message(f"{error}: this process goes on with {len(rest)} of {len(models)} files")
    yield from map(_answer, tasks(options))


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
            row: dict[str, Any] = {
                "file": path,
                "method": None,
                "status": "",
                "log_z": None,
                "log_z_kind": "unknown",
                "seconds": None,
            }
            if isinstance(outcome, tuple):
                note, code = outcome
                row["status"] = "bad file" if code == 3 else "refused" if code == 2 else "not_converged"
                console.message(note)
            else:
                if folder is not None:
                    place = os.path.join(folder, "stdin" if path == "-" else os.path.basename(path))
                    for suffix in (".MAR", ".PR"):
                        if missing_answer(outcome, suffix.lower()) is None:
                            write_answer(outcome, f"{place}{suffix}")
                code = int(outcome.status != "ok")
                row |= {name: getattr(outcome, name) for name in ("method", "status", "log_z", "log_z_kind")}
                row["seconds"] = outcome.stats["seconds"]
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
    method="auto, or what it tries in this order: cut, exact, expansion, search.",
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
    files.check_outputs([model], outputs, allowed=(".mpe", ".json", ".csv"), as_json=as_json)
    result = files.load(model, evidence).answer(fastmix.most_probable, **given)
    console.finish(result, as_json, partial(console.show_most_probable, result), outputs=outputs, plain=".mpe")


@takes(
    "compare", "methods seed memory_limit num_threads backend time_limit",
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
    loaded = files.load(model, evidence)
    if reference is not None:
        given |= {"reference": files.load_marginals(reference, loaded.model), "reference_name": reference}
    result = loaded.answer(fastmix.compare, **given)
    for path in [] if output is None else result.save(output):
        console.message(f"wrote {path}")
    console.finish(result, as_json, lambda: console.show_comparison(model, result), loaded.about)


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
    outputs, checkpoint, count = output or [], options.get("checkpoint"), options.get("num_draws")
    if "-" in outputs:
        raise ValueError("-o must name a file, got '-'")
    files.check_outputs([model], outputs, checkpoint, allowed=(".npz", ".mar", ".csv", ".json"))
    loaded = files.load(model, evidence)
    chains = [name for name in options if name != "num_draws"]
    # Whether the network itself can be drawn from.
    direct = loaded.network is not None and evidence is None and given["backend"] != "cuda"
    if method is None:
        method = "ancestral" if direct and not chains and cluster is num_workers is None else "gibbs"
    if method == "ancestral":
        if loaded.network is None or not direct:
            raise fastmix.UnfitMethodError(
                "--method ancestral must have a Bayesian network (a BIF, XMLBIF or Ergo file, or UAI BAYES), without "
                "--evidence and on the CPU; use gibbs"
            )
        if chains or not cluster is num_workers is None:
            other = chains[0].replace("_", "-") if chains else "num-workers" if cluster is None else "cluster"
            raise ValueError(f"--{other} must not be given with --method ancestral, which takes --num-draws")
        count = 1000 if count is None else count
        result: Any = fastmix.ancestral_sample(loaded.network, seed=given.get("seed"), num_draws=count)
    else:
        options = {"num_draws": 100 if method == "perfect" else int(bool(outputs)), **options, **given}
        with console.workers(cluster, num_workers, method) as executor:
            result = loaded.answer(fastmix.sample, method=method, executor=executor, **options)
    for path in outputs:
        write_answer(result, path)
    console.finish(result, as_json, lambda: console.show_sampling(model, result), checkpoint=checkpoint, tell=False)
