"""Commands that answer questions about a model: ``infer``, ``map``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

import fastmix
from fastmix._checks import check_choice
from fastmix.cli import console, files, tables
from fastmix.cli.batch import check_batch, is_batch, run_batch
from fastmix.cli.options import (
    AnswerEvidence,
    AsJson,
    Cluster,
    Model,
    NoEvidence,
    NumWorkers,
    OptionSpec,
    takes,
    variable_list,
)
from fastmix.errors import UnfitMethodError
from fastmix.io import format_names, write_answer
from fastmix.io.answers import answer_suffix

__all__ = ["compare", "infer", "map_", "sample", "temper"]

AnswerFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="FILE.MAR marginals, FILE.PR log10 Z, FILE.csv a table, FILE.npz arrays, FILE.json all; several -o write "
        "several. A folder takes a .MAR and a .PR for every model.",
    ),
]
MarginalFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="table|mar|csv",
        help="What stdout gets: a table with all names, the bare numbers of a MAR file, or csv.",
    ),
]
StateFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="table|mpe|csv",
        help="What stdout gets: a table with all names, the bare numbers of an MPE file, or csv.",
    ),
]
EvidenceRows = Annotated[
    str | None,
    typer.Option(
        "--rows",
        metavar="FILE",
        help="A table with a row of evidence in every line: columns of some variables by name, gaps for what is asked. "
        "The answer is a table with a line for each row, and all probabilities.",
    ),
]
_MARGINAL_SUFFIXES = (".mar", ".pr", ".json", ".csv", ".npz")
_RUN = "seed num_threads time_limit backend"

#: Draws of ``sample`` by default: along the order of a network, and by coupling from the past.
NUM_ANCESTRAL_DRAWS = 1000
NUM_PERFECT_DRAWS = 100


@takes(
    "infer",
    _RUN,
    method="auto, exact, mean-field, loopy-bp, gibbs, swendsen-wang, tempered, projected, annealed, multicanonical, "
    "perfect or ganak. Options of a method: fastmix infer --method gibbs --help.",
    log_z="Take a method that has log Z.",
    bracket="Add proven bounds, and hold the answer to them.",
)
def infer(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help=f"{format_names()} files, plain, gzip, xz or bzip2; - is stdin."),
    ],
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
    output: AnswerFiles = None,
    form: MarginalFormat = "table",
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    rows: EvidenceRows = None,
    *,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Marginals of every variable, and log Z where it is known.

    Of several models, the answers go to a folder, and stdout has a table of them. With --rows there is a line for every
    row of evidence.
    """
    from fastmix.method import find_method

    method = given["method"]
    find_method(method)  # before anything is read
    _check_format(form, ("table", "mar", "csv"), as_json)
    outputs = output or []
    if rows is not None:
        if len(models) > 1 or evidence is not None:
            raise ValueError("--rows must be given with one model, and without --evidence")
        _infer_rows(models[0], rows, outputs, as_json, given, options)
        return
    checkpoint = options.get("checkpoint")
    limit = given.get("time_limit")
    options |= given

    if is_batch(models, outputs):
        if checkpoint is not None:
            raise ValueError("--checkpoint must not be given with several models")
        if form != "table":
            raise ValueError(f"--format must be table with several models, got {form!r}")
        tasks = check_batch(models, outputs, evidence, no_evidence)
        with console.workers(cluster, num_workers, time_limit=limit) as executor:
            run_batch(executor, tasks, options, as_json)
        return

    evidence = files.choose_evidence(models[0], evidence, no_evidence)
    files.check_outputs(models, outputs, checkpoint, allowed=_MARGINAL_SUFFIXES, as_json=as_json)
    if any(path != "-" and answer_suffix(path, name="-o") == ".pr" for path in outputs):
        options["log_z"] = True
    with console.workers(cluster, num_workers, method, time_limit=limit) as executor:
        loaded = files.load(models[0], evidence)
        result = loaded.infer(executor=executor, **options)
    console.finish(
        result,
        as_json,
        partial(tables.show_marginals, result, form),
        outputs=outputs,
        plain=".mar" if form == "table" else f".{form}",
        checkpoint=checkpoint,
        notes=loaded.notes,
    )


def _infer_rows(
    model: str, rows: str, outputs: list[str], as_json: bool, given: dict[str, Any], options: dict[str, Any]
) -> None:
    """Answer all rows of a file, by a plan that is made once."""
    from fastmix.queries.rows import read_rows_file

    method = given["method"]
    if method not in ("auto", "exact", "loopy-bp"):
        raise ValueError(f"--method must be auto, exact or loopy-bp with --rows, got {method!r}")
    for name, value in options.items():
        if value is not None and name not in ("memory_limit", "progress"):
            raise ValueError(f"--{name.replace('_', '-')} must not come with --rows")
    if model == rows == "-":
        raise ValueError("MODEL and --rows must not both be -: stdin holds one of them")
    files.check_outputs([model], outputs, allowed=(".csv", ".json"), as_json=as_json)
    loaded = files.load(model)
    states = files.read(read_rows_file, rows, model=loaded.model)
    asked: dict[str, Any] = {name: given.get(name) for name in ("seed", "num_threads", "time_limit")}
    if method == "loopy-bp":
        result = fastmix.predict(loaded.model, states, method="loopy-bp", **asked)
    else:
        prepared = fastmix.prepare(loaded.model, memory_limit=options.get("memory_limit"))
        result = prepared.ask(states, **asked)
    console.finish(
        result, as_json, partial(write_answer, result, "-", ".csv"), outputs=outputs, plain=".csv", notes=loaded.notes
    )


def _check_format(form: str, allowed: tuple[str, ...], as_json: bool) -> None:
    """Refuse a format of stdout that there is not, or one beside ``--json``."""
    check_choice("--format", form, allowed)
    if as_json and form != "table":
        raise ValueError(f"--format must not come with --json, which is a format of its own, got {form!r}")


@takes("infer", _RUN)
def temper(
    model: Model,
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
    output: AnswerFiles = None,
    form: MarginalFormat = "table",
    num_workers: NumWorkers = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """Marginals and log Z by replica exchange.

    For models in which single chains get stuck.
    """
    given["method"] = "tempered"
    infer([model], evidence, no_evidence, output, form, num_workers, cluster, as_json, given=given, options=options)


@takes(
    "most_probable",
    "memory_limit seed time_limit",
    method="auto, or what it tries in this order: cut, exact, messages, toulbar2, expansion, swap, search.",
    tol="Gap to the largest log-weight that is good enough.",
    variables=OptionSpec(
        "Find the most probable states of these alone, all others summed out.", "NAMES", variable_list
    ),
    num_solutions="Configurations to find at most, the best first.",
    min_distance="In how many variables any two of them differ at least.",
)
def map_(
    model: Model,
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MPE states, FILE.csv a table, FILE.json all."),
    ] = None,
    form: StateFormat = "table",
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """The most probable configuration, exact or with a proven gap.

    With --num-solutions several, with --variables the best states of some variables (marginal MAP).

    In Python this is fastmix.most_probable: map is taken there.
    """
    outputs = output or []
    of_some = given.get("variables") is not None  # whose states no MPE file can hold
    _check_format(form, ("table", "csv") if of_some else ("table", "mpe", "csv"), as_json)
    allowed = (".json", ".csv") if of_some else (".mpe", ".json", ".csv")
    files.check_outputs([model], outputs, allowed=allowed, as_json=as_json)
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    result = loaded.answer(fastmix.most_probable, **given)
    console.finish(
        result,
        as_json,
        partial(tables.show_most_probable, result, form),
        outputs=outputs,
        plain=f".{form}" if form != "table" else ".csv" if of_some else ".mpe",
        notes=loaded.notes,
    )


@takes("compare", "methods seed memory_limit num_threads backend time_limit")
def compare(
    model: Model,
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
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
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    if reference is not None:
        given |= {"reference": files.load_marginals(reference, loaded.model), "reference_name": reference}
    result = loaded.answer(fastmix.compare, **given)
    if output is not None:
        for path in result.save(output):
            console.message(f"wrote {path}")
    show = partial(tables.show_comparison, model, result)
    console.finish(result, as_json, show, notes=loaded.notes)


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
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
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
    """Draw configurations by Markov chains, or exactly.

    Without -o stdout has a summary.
    """
    outputs = output or []
    checkpoint = options.get("checkpoint")
    if "-" in outputs:
        raise ValueError("-o must name a file, got '-'")
    files.check_outputs([model], outputs, checkpoint, allowed=(".npz", ".mar", ".csv", ".json"))
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))

    # What only chains understand: no draws along the order of a network where one of these is given.
    for_chains = [name for name in options if name != "num_draws"]
    for_chains += ["num_workers"] if num_workers is not None else []
    for_chains += ["cluster"] if cluster is not None else []
    is_direct = _can_draw_directly(loaded, given)
    if method is None:
        method = "ancestral" if is_direct and not for_chains else "gibbs"

    result: Any
    if method == "ancestral":
        result = _draw_ancestral(loaded, is_direct, for_chains, given.get("seed"), options.get("num_draws"))
    else:
        num_draws = NUM_PERFECT_DRAWS if method == "perfect" else int(bool(outputs))
        options = {"num_draws": num_draws, **options, **given}
        with console.workers(cluster, num_workers, method, time_limit=given.get("time_limit")) as executor:
            result = loaded.answer(fastmix.sample, method=method, executor=executor, **options)
    for path in outputs:
        write_answer(result, path)
    show = partial(tables.show_sampling, model, result)
    console.finish(result, as_json, show, checkpoint=checkpoint, tell=False, notes=loaded.notes)


def _can_draw_directly(loaded: files.Input, given: dict[str, Any]) -> bool:
    """Whether the file holds a network that can be drawn from in the order of its variables."""
    return loaded.network is not None and loaded.evidence is None and given["backend"] != "cuda"


def _draw_ancestral(
    loaded: files.Input, is_direct: bool, for_chains: list[str], seed: int | None, num_draws: int | None
) -> Any:
    """Draws along the order of a network; refused where there is none, or where an option is for chains."""
    if loaded.network is None or not is_direct:
        raise UnfitMethodError(
            "--method ancestral must have a Bayesian network (a BIF, XMLBIF or Ergo file, or UAI BAYES), without "
            "--evidence and on the CPU; use gibbs"
        )
    if for_chains:
        option = for_chains[0].replace("_", "-")
        raise ValueError(f"--{option} must not be given with --method ancestral, which takes --num-draws")
    count = NUM_ANCESTRAL_DRAWS if num_draws is None else num_draws
    return fastmix.ancestral_sample(loaded.network, seed=seed, num_draws=count)
