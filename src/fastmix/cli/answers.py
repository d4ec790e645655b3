"""Commands that answer questions about a model: ``infer``, ``map``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

import fastmix
from fastmix.cli import console, files
from fastmix.cli.batch import check_batch, is_batch, run_batch
from fastmix.cli.options import AnswerEvidence, AsJson, Cluster, Model, NoEvidence, NumWorkers, takes
from fastmix.io import format_names, write_answer
from fastmix.io.answers import answer_suffix

__all__ = ["compare", "infer", "map_", "sample", "temper"]

AnswerFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--output", "-o", metavar="FILE",
        help="FILE.MAR marginals, FILE.PR log10 Z, FILE.csv a table, FILE.npz arrays, FILE.json all; several -o write "
        "several. A folder takes a .MAR and a .PR for every model.",
    ),
]  # fmt: skip
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
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
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
    options |= given
    if is_batch(models, outputs):
        if checkpoint is not None:
            raise ValueError("--checkpoint must not be given with several models")
        tasks = check_batch(models, outputs, evidence, no_evidence)
        with console.workers(cluster, num_workers) as executor:
            run_batch(executor, tasks, options, as_json)
        return
    evidence = files.choose_evidence(models[0], evidence, no_evidence)
    files.check_outputs(models, outputs, checkpoint, allowed=_MARGINALS, as_json=as_json)
    if any(path != "-" and answer_suffix(path, name="-o") == ".pr" for path in outputs):
        options["log_z"] = True
    with console.workers(cluster, num_workers, method) as executor:
        loaded = files.load(models[0], evidence)
        result = loaded.infer(executor=executor, **options)
    show = partial(console.show_marginals, result)
    console.finish(result, as_json, show, outputs=outputs, checkpoint=checkpoint, notes=loaded.notes)


@takes("infer", _RUN)
def temper(
    model: Model, evidence: AnswerEvidence = None, no_evidence: NoEvidence = False, output: AnswerFiles = None,
    num_workers: NumWorkers = None, cluster: Cluster = None, as_json: AsJson = False,
    *, given: dict[str, Any], options: dict[str, Any],
) -> None:  # fmt: skip
    """Marginals and log Z by replica exchange, for models in which single chains get stuck."""
    given["method"] = "tempered"
    infer([model], evidence, no_evidence, output, num_workers, cluster, as_json, given=given, options=options)


@takes(
    "most_probable", "memory_limit seed time_limit",
    method="auto, or what it tries in this order: cut, exact, expansion, search.",
    tol="Gap to the largest log-weight that is good enough.",
)  # fmt: skip
def map_(
    model: Model,
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
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
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    result = loaded.answer(fastmix.most_probable, **given)
    show = partial(console.show_most_probable, result)
    console.finish(result, as_json, show, outputs=outputs, plain=".mpe", notes=loaded.notes)


@takes(
    "compare", "methods seed memory_limit num_threads backend time_limit",
)  # fmt: skip
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
    for path in [] if output is None else result.save(output):
        console.message(f"wrote {path}")
    show = partial(console.show_comparison, model, result)
    console.finish(result, as_json, show, loaded.about, notes=loaded.notes)


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
    """Draw configurations by Markov chains, or exactly; a summary without -o."""
    outputs, checkpoint, count = output or [], options.get("checkpoint"), options.get("num_draws")
    if "-" in outputs:
        raise ValueError("-o must name a file, got '-'")
    files.check_outputs([model], outputs, checkpoint, allowed=(".npz", ".mar", ".csv", ".json"))
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    chains = [name for name in options if name != "num_draws"]
    # Whether the network itself can be drawn from.
    direct = loaded.network is not None and loaded.evidence is None and given["backend"] != "cuda"
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
    show = partial(console.show_sampling, model, result)
    console.finish(result, as_json, show, checkpoint=checkpoint, tell=False, notes=loaded.notes)
