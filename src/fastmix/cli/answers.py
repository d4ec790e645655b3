"""Commands that answer questions about a model: ``infer``, ``compare``, ``sample`` and ``temper``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fastmix.cli.options import AnySeed, AsJson, Backend, Evidence, MemoryLimit, Model, NumThreads, TimeLimit

if TYPE_CHECKING:
    from fastmix.results import InferenceResult

__all__ = ["compare", "infer", "sample", "temper"]

AnswerFile = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="FILE.MAR marginals, FILE.PR log10 Z, FILE.json all."),
]


def infer(
    model: Model,
    method: Annotated[
        str,
        typer.Option(
            help="auto, exact, mean-field, loopy-bp, gibbs, swendsen-wang, tempered, projected, annealed or perfect."
        ),
    ] = "auto",
    evidence: Evidence = None,
    output: AnswerFile = None,
    log_z: Annotated[bool, typer.Option("--log-z", help="Take a method that has log Z.")] = False,
    bracket: Annotated[bool, typer.Option("--bracket", help="Add proven bounds, and hold the answer to them.")] = False,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    backend: Backend = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Marginals of every variable, and log Z where the method has it."""
    import fastmix
    from fastmix.cli import console
    from fastmix.methods.base import find_method

    _check_answer(output, as_json)
    found = find_method(method, "--method")
    if console.is_log_z(output):
        log_z = True
        if not found.gives_log_z:  # before the model is read
            raise ValueError(f"the method {method} gives no log Z to write to {output}; exact and tempered do")
    checkpoint = options.get("checkpoint")
    console.check_outputs(model, output, checkpoint)
    loaded, observed = console.load(model, evidence)
    with console.answering(model, evidence):
        result = console.salvage(
            lambda: fastmix.infer(
                loaded, method=method, evidence=observed, log_z=log_z, seed=seed, num_threads=num_threads,
                time_limit=time_limit, backend=backend, bracket=bracket, **options,
            )
        )  # fmt: skip
    _give_answer(result, output, as_json, checkpoint)


def temper(
    model: Model,
    evidence: Evidence = None,
    output: AnswerFile = None,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    backend: Backend = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Marginals and log Z by replica exchange, for models in which single chains get stuck."""
    infer(
        model, "tempered", evidence, output, seed=seed, num_threads=num_threads, time_limit=time_limit, backend=backend,
        as_json=as_json, options=options,
    )  # fmt: skip


def _check_answer(output: str | None, as_json: bool) -> None:
    from fastmix.cli import console

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if output is not None:
        console.check_answer_name(output)


def _give_answer(result: InferenceResult, output: str | None, as_json: bool, checkpoint: str | None) -> None:
    """Write and show an answer; exit code 1 unless it is to be trusted."""
    from fastmix.cli import console

    if output is not None:
        console.save_answer(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    elif output is None:
        console.show_marginals(result)
    console.forget_checkpoint(checkpoint, result)
    if result.status != "ok":
        if output is not None or as_json:
            console.message(f"status {result.status}: {console.explain_status(result)}")
        raise typer.Exit(1)


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
    evidence: Evidence = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.npz", help="Where the draws go."),
    ] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Draw configurations by Markov chains, or exactly; a summary without -o."""
    import fastmix
    from fastmix.cli import console
    from fastmix.methods.base import find_method, options_of
    from fastmix.methods.sampler import SAMPLERS
    from fastmix.model.network import BayesianNetwork

    if output is not None and not output.endswith(".npz"):
        raise ValueError(f"-o must name an .npz file, got {output!r}")
    checkpoint = options.get("checkpoint")
    console.check_outputs(model, output, checkpoint)
    network = console.load_network(model) if evidence is None and method in (None, "ancestral") else None
    if method is None:
        plain = set(options) <= {"num_draws"} and backend != "cuda"
        method = "ancestral" if plain and isinstance(network, BayesianNetwork) else "gibbs"
    allowed = ["num_draws"] if method == "ancestral" else list(options_of(find_method(method, "--method", SAMPLERS)))
    if others := [name for name in options if name not in allowed]:
        own = ", ".join(f"--{name.replace('_', '-')}" for name in allowed)
        raise ValueError(f"--{others[0].replace('_', '-')} must not be given with --method {method}, which takes {own}")
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
        options.setdefault("num_draws", 100 if method == "perfect" else int(output is not None))
        with console.answering(model, evidence):
            result = console.salvage(
                lambda: fastmix.sample(
                    loaded, method=method, seed=seed, num_threads=num_threads, evidence=observed, time_limit=time_limit,
                    backend=cast("Any", backend or "cpu"), **options,
                )
            )  # fmt: skip
    if output is not None:
        console.save_draws(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    else:
        console.show_sampling(model, result)
    console.forget_checkpoint(checkpoint, result)
    if result.status != "ok":
        raise typer.Exit(1)
