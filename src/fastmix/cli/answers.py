"""Commands that answer questions about a model: ``infer``, ``map``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from fastmix.cli.options import (
    AnySeed,
    AsJson,
    Backend,
    Cluster,
    Evidence,
    MemoryLimit,
    Model,
    NumThreads,
    NumWorkers,
    TimeLimit,
)  # fmt: skip
from fastmix.io.formats import format_names

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
    log_z: Annotated[bool, typer.Option("--log-z", help="Take a method that has log Z.")] = False,
    bracket: Annotated[bool, typer.Option("--bracket", help="Add proven bounds, and hold the answer to them.")] = False,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    backend: Backend = None,
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Marginals of every variable, and log Z where the method has it; of several models, a table at the end."""
    import os

    import fastmix
    from fastmix.cli import console
    from fastmix.methods.base import find_method

    outputs, checkpoint = output or [], options.get("checkpoint")
    is_batch = len(models) > 1 or any(
        path.endswith(("/", os.sep)) or (os.path.isdir(path) and not os.path.splitext(path)[1]) for path in outputs
    )
    found = find_method(method, "--method")

    if is_batch and checkpoint is not None:
        raise ValueError("--checkpoint must not be given with several models")
    shared = "--cluster" if cluster is not None else "--num-workers" if num_workers is not None else None
    if shared is not None and not (is_batch or found.shares):
        raise ValueError(
            f"{shared} must come with several models, or a method that has chains (gibbs, swendsen-wang, tempered), "
            f"got one model and {method}"
        )
    options = {
        **options, "method": method, "seed": seed, "num_threads": num_threads, "time_limit": time_limit,
        "backend": backend, "bracket": bracket, "log_z": log_z,
    }  # fmt: skip
    if is_batch:
        folder = _check_batch(models, outputs)
        with console.workers(cluster, num_workers) as executor:
            answers = (
                map(partial(_answer, evidence=evidence, options=options), models)
                if executor is None
                else _answers_elsewhere(executor, models, evidence, options)
            )
            _give_batch(models, answers, folder, as_json)
        return
    for path, suffix in zip(outputs, console.check_answers(outputs, as_json, _MARGINALS), strict=True):
        if suffix == ".pr" and not found.gives_log_z:  # before the model is read
            raise ValueError(f"the method {method} gives no log Z to write to {path}; exact, tempered and annealed do")
        options["log_z"] |= suffix == ".pr"
    console.check_outputs(models[0], outputs, checkpoint)
    with console.workers(cluster, num_workers) as executor:
        loaded, observed = console.load(models[0], evidence)
        with console.answering(models[0], evidence):
            result = console.salvage(lambda: fastmix.infer(loaded, evidence=observed, executor=executor, **options))
    _give_answer(result, outputs, as_json, checkpoint, console.show_marginals, ".mar")


# What there is to say about a file of a batch: an answer, or in words why there is none and the exit code.
Outcome: TypeAlias = "InferenceResult | tuple[str, int]"


def _answer(path: str, evidence: str | None, options: dict[str, Any]) -> Outcome:
    """The answer for one file of a batch."""
    return _answer_loaded(_load(path, evidence, options))


def _load(path: str, evidence: str | None, options: dict[str, Any]) -> tuple[Any, ...]:
    """What :func:`_answer_loaded` needs, wherever it is called; workers need not see the files."""
    from fastmix.cli import console

    try:
        return path, evidence, console.load(path, evidence), options
    except Exception as error:
        return path, evidence, _explained(error), {}


def _answer_loaded(task: tuple[Any, ...]) -> Outcome:
    import fastmix
    from fastmix.cli import console

    path, evidence, loaded, options = task
    if isinstance(loaded[0], str):  # could not be read
        return cast("tuple[str, int]", loaded)
    try:
        with console.answering(path, evidence):
            return console.salvage(lambda: fastmix.infer(loaded[0], evidence=loaded[1], **options))
    except Exception as error:
        return _explained(error)


def _explained(error: Exception) -> tuple[str, int]:
    from fastmix.cli.failures import explain

    if (known := explain(error)) is None or isinstance(error, BrokenPipeError):
        raise error
    return known


def _answers_elsewhere(
    executor: Executor, models: list[str], evidence: str | None, options: dict[str, Any]
) -> Iterator[Outcome]:
    """The same by workers, one thread each; when they are lost this process goes on."""
    from fastmix.cli import console
    from fastmix.executors import CrashError, LostError, as_pool, run_in_order

    pool, rest = as_pool(executor), list(models)
    pool.ahead = min(pool.ahead, _MOST_AHEAD)
    own = {**options, "num_threads": options["num_threads"] or 1, "progress": None}
    try:
        for outcome in run_in_order(_answer_loaded, (_load(path, evidence, own) for path in models), pool):
            del rest[0]
            yield (str(outcome), 2) if isinstance(outcome, CrashError) else outcome
    except LostError as error:
        console.message(f"{error}: this process goes on with {len(rest)} of {len(models)} files")
    yield from (_answer(path, evidence, options) for path in rest)


def _check_batch(models: list[str], outputs: list[str]) -> str | None:
    """The folder for the answers of several models, which is made."""
    import os

    from fastmix.cli import console

    if not outputs:
        return None
    if len(outputs) > 1:
        raise ValueError(f"-o must be one folder for several models, got {', '.join(map(repr, outputs))}")
    folder, names = outputs[0], [os.path.basename(path) for path in models]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"MODEL... must have different names, for the files in -o, got {twice[0]!r} twice")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"-o must be a folder for several models, got {folder!r}")
    console.check_output_folder(folder)
    os.makedirs(folder, exist_ok=True)
    return folder


def _give_batch(models: list[str], answers: Iterator[Outcome], folder: str | None, as_json: bool) -> None:
    """Answers for several files into a folder, and a table of them; the exit code is the worst of all."""
    import os

    from fastmix.cli import console
    from fastmix.io import write_mar, write_pr

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


def temper(
    model: Model,
    evidence: Evidence = None,
    output: AnswerFiles = None,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    backend: Backend = None,
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Marginals and log Z by replica exchange, for models in which single chains get stuck."""
    infer(
        [model], "tempered", evidence, output, seed=seed, num_threads=num_threads, time_limit=time_limit,
        backend=backend, num_workers=num_workers, cluster=cluster, as_json=as_json, options=options,
    )  # fmt: skip


def _give_answer(
    result: Any, outputs: list[str], as_json: bool, checkpoint: str | None, show: Callable[[Any], None], plain: str
) -> None:
    """Write and show an answer, as ``plain`` on stdout if asked; exit code 1 unless it is to be trusted."""
    from fastmix.cli import console
    from fastmix.io import write_answer

    for path in outputs:
        write_answer(result, path, plain)
    if as_json:
        console.emit_json(result.to_dict())
    elif not outputs:
        show(result)
    console.forget_checkpoint(checkpoint, result)
    console.tell_lost(result)
    if result.status != "ok":
        if outputs or as_json:
            console.message(f"status {result.status}: {console.explain_status(result)}")
        raise typer.Exit(1)


def map_(
    model: Model,
    method: Annotated[str, typer.Option(help="auto, exact, cut, expansion or search.")] = "auto",
    tol: Annotated[float, typer.Option(help="Gap to the largest log-weight that is good enough.")] = 0.0,
    evidence: Evidence = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MPE states, FILE.csv a table, FILE.json all."),
    ] = None,
    seed: AnySeed = None,
    time_limit: TimeLimit = None,
    memory_limit: MemoryLimit = None,
    as_json: AsJson = False,
) -> None:
    """The most probable configuration, exact or with a proven gap."""
    import fastmix
    from fastmix._checks import check_choice, check_positive
    from fastmix._memory import parse_bytes
    from fastmix.cli import console
    from fastmix.methods.most_probable import METHODS

    check_choice("--method", method, METHODS)
    check_positive("--tol", tol, "number", or_zero=True)
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    outputs = output or []
    console.check_answers(outputs, as_json, (".mpe", ".json", ".csv"))
    console.check_outputs(model, outputs)
    loaded, observed = console.load(model, evidence)
    with console.answering(model, evidence):
        result = console.salvage(
            lambda: fastmix.most_probable(
                loaded, evidence=observed, method=cast("Any", method), tol=tol, memory_limit=limit, seed=seed,
                time_limit=time_limit,
            )
        )  # fmt: skip
    _give_answer(result, outputs, as_json, None, console.show_most_probable, ".mpe")


def compare(
    model: Model,
    methods: Annotated[str | None, typer.Option(metavar="NAMES", help="Separated by commas; all by default.")] = None,
    evidence: Evidence = None,
    reference: Annotated[
        str | None, typer.Option(metavar="FILE.MAR", help="Marginals to trust where exact inference is too costly.")
    ] = None,
    seed: AnySeed = None,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="For every method but exact.")] = None,
    memory_limit: MemoryLimit = None,
    num_threads: NumThreads = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="DIR", help="Folder for a CSV file and a picture.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Errors, seconds and verdicts of several methods on one model."""
    import fastmix
    from fastmix._memory import parse_bytes
    from fastmix.cli import console

    limit = None if memory_limit is None else parse_bytes(memory_limit)
    names = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    if output is not None:
        console.check_output_folder(output)
    loaded, observed = console.load(model, evidence)
    trusted = None if reference is None else console.load_marginals(reference, loaded)
    with console.answering(model, evidence):
        result = console.salvage(
            lambda: fastmix.compare(
                loaded, methods=names, evidence=observed, reference=trusted, reference_name=str(reference), seed=seed,
                time_limit=time_limit, memory_limit=limit, num_threads=num_threads,
            )
        )  # fmt: skip
    written = [] if output is None else result.save(output)
    if as_json:
        console.emit_json(result.to_dict(), loaded, observed)
    else:
        console.show_comparison(model, result)
    for path in written:
        console.message(f"wrote {path}")
    if result.status != "ok":
        console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


def sample(
    model: Model,
    method: Annotated[
        str | None,
        typer.Option(
            help="gibbs, swendsen-wang, perfect for exact draws by coupling from the past, or ancestral for those of a "
            "Bayesian network without evidence, the default there; else gibbs."
        ),
    ] = None,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    backend: Backend = None,
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
    options: dict[str, Any],
) -> None:
    """Draw configurations by Markov chains, or exactly; a summary without -o."""
    import fastmix
    from fastmix.cli import console
    from fastmix.io import write_answer
    from fastmix.methods.base import find_method, options_of
    from fastmix.methods.sampler import SAMPLERS
    from fastmix.model.network import BayesianNetwork

    outputs, checkpoint = output or [], options.get("checkpoint")
    if "-" in outputs:
        raise ValueError("-o must name a file, got '-'")
    console.check_answers(outputs, as_json, (".npz", ".mar", ".csv", ".json"))
    console.check_outputs(model, outputs, checkpoint)
    network = console.load_network(model) if evidence is None and method in (None, "ancestral") else None
    if method is None:
        plain = set(options) <= {"num_draws"} and backend != "cuda"
        method = "ancestral" if plain and isinstance(network, BayesianNetwork) else "gibbs"
    allowed = ["num_draws"] if method == "ancestral" else list(options_of(find_method(method, "--method", SAMPLERS)))
    if others := [name for name in options if name not in allowed]:
        own = ", ".join(f"--{name.replace('_', '-')}" for name in allowed)
        raise ValueError(f"--{others[0].replace('_', '-')} must not be given with --method {method}, which takes {own}")
    if (cluster is not None or num_workers is not None) and method not in ("gibbs", "swendsen-wang"):
        shared = "--cluster" if cluster is not None else "--num-workers"
        raise ValueError(f"{shared} must come with chains (gibbs, swendsen-wang), got --method {method}")
    if method == "ancestral":
        if not isinstance(network, BayesianNetwork) or backend == "cuda":
            raise fastmix.UnfitMethodError(
                "--method ancestral must have a Bayesian network (a BIF or XMLBIF file), without --evidence and on the "
                "CPU; use gibbs"
            )
        result: Any = fastmix.ancestral_sample(network, seed=seed, num_draws=options.get("num_draws", 1000))
    else:
        if network is None:
            loaded, observed = console.load(model, evidence)
        else:
            loaded, observed = (network.to_model() if isinstance(network, BayesianNetwork) else network), {}
        options.setdefault("num_draws", 100 if method == "perfect" else int(bool(outputs)))
        with console.workers(cluster, num_workers) as executor, console.answering(model, evidence):
            result = console.salvage(
                lambda: fastmix.sample(
                    loaded, method=method, seed=seed, num_threads=num_threads, evidence=observed, time_limit=time_limit,
                    backend=cast("Any", backend or "cpu"), executor=executor, **options,
                )
            )  # fmt: skip
    for path in outputs:
        write_answer(result, path)
    if as_json:
        console.emit_json(result.to_dict())
    else:
        console.show_sampling(model, result)
    console.forget_checkpoint(checkpoint, result)
    console.tell_lost(result)
    if result.status != "ok":
        raise typer.Exit(1)
