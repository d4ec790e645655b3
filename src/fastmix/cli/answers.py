"""Commands that answer questions about a model: ``infer``, ``compare`` and ``sample``."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from fastmix.cli.options import (
    Accuracy,
    AnySeed,
    AsJson,
    Backend,
    BurnIn,
    CheckpointFile,
    DivergenceName,
    Evidence,
    MemoryLimit,
    Model,
    NumChains,
    NumSweeps,
    NumThreads,
    TimeLimit,
    parse_divergence,
)

__all__ = ["compare", "infer", "sample"]


def infer(
    model: Model,
    method: Annotated[
        str,
        typer.Option(help="auto, exact, mean-field, loopy-bp, gibbs, swendsen-wang, tempered or projected."),
    ] = "auto",
    evidence: Evidence = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MAR marginals, FILE.PR log10 Z, FILE.json all."),
    ] = None,
    memory_limit: MemoryLimit = None,
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    accuracy: Accuracy = None,
    divergence: DivergenceName = None,
    norm: Annotated[str | None, typer.Option(help="Norm of the projection: inf, spectral, 1 or frobenius.")] = None,
    norm_bound: Annotated[float | None, typer.Option(help="Largest norm of the projected model; 2.5.")] = None,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    backend: Backend = None,
    as_json: AsJson = False,
) -> None:
    """Marginals of every variable, and log Z where the method has it."""
    import fastmix
    from fastmix._memory import parse_bytes
    from fastmix.cli import console
    from fastmix.methods.inference import METHODS, choose_method

    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if output is not None:
        console.check_answer_name(output)
    if console.is_log_z(output):
        _check_log_z(output, method)
    console.check_outputs(model, output, checkpoint)
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    chosen = parse_divergence(divergence)
    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence), console.working(f"{method} inference") as progress:
        if console.is_log_z(output) and method == "auto":
            choice = choose_method(loaded, evidence=observed, memory_limit=limit, time_limit=time_limit)
            _check_log_z(output, choice.method)
        result = fastmix.infer(
            loaded, method=method, evidence=observed, memory_limit=limit, num_chains=num_chains, num_sweeps=num_sweeps,
            burn_in=burn_in, accuracy=accuracy, divergence=chosen, norm=cast("Any", norm), norm_bound=norm_bound,
            seed=seed, num_threads=num_threads, time_limit=time_limit, checkpoint=checkpoint,
            backend=backend, progress=progress,
        )  # fmt: skip
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


def _check_log_z(output: str | None, method: str) -> None:
    """Refuse a file for log Z from a method that gives none, before the work is done."""
    if method in ("gibbs", "swendsen-wang", "projected"):
        raise ValueError(f"the method {method} gives no log Z to write to {output}; exact and tempered do")


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
    with console.blaming_input(model, evidence), console.naming_steps("comparing") as progress:
        result = fastmix.compare(
            loaded, methods=names, evidence=observed, reference=trusted, reference_name=str(reference), seed=seed,
            time_limit=time_limit, memory_limit=limit, num_threads=num_threads, progress=progress,
        )  # fmt: skip
    written = [] if output is None else result.save(output)
    if as_json:
        console.emit_json(result.to_dict())
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
        str, typer.Option(help="gibbs, swendsen-wang, or perfect for exact draws by coupling from the past.")
    ] = "gibbs",
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    num_draws: Annotated[
        int | None, typer.Option(help="Draws kept of every chain; one by default (100 perfect ones).")
    ] = None,
    schedule: Annotated[str, typer.Option(help="Order of updates: systematic or random.")] = "systematic",
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    backend: Backend = None,
    evidence: Evidence = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Where the draws go.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw configurations by Markov chains; a summary without -o."""
    import fastmix
    from fastmix.cli import console

    if output is not None and not output.endswith(".npz"):
        raise ValueError(f"-o must name an .npz file, got {output!r}")
    console.check_outputs(model, output, checkpoint)
    loaded, observed = console.load(model, evidence)
    if method == "perfect":
        given: dict[str, object] = {"--num-chains": num_chains, "--num-sweeps": num_sweeps, "--burn-in": burn_in}
        given |= {"--time-limit": time_limit, "--checkpoint": checkpoint}
        if names := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{names[0]} must not be given with --method perfect, which takes --num-draws")
        with console.blaming_input(model, evidence), console.working("sampling", "samples") as progress:
            samples = fastmix.perfect_sample(
                loaded, num_samples=100 if num_draws is None else num_draws, evidence=observed, seed=seed,
                num_threads=num_threads, progress=progress,
            )  # fmt: skip
        if output is not None:
            console.save_perfect(samples, output)
        if as_json:
            console.emit_json(samples.to_dict())
        else:
            console.show_perfect(model, samples)
        return
    kept = num_draws if num_draws is not None else int(output is not None)
    with console.blaming_input(model, evidence), console.working("sampling") as progress:
        result = fastmix.sample(
            loaded, method=cast("Any", method), num_chains=num_chains, num_sweeps=num_sweeps, burn_in=burn_in,
            num_draws=kept, schedule=cast("Any", schedule), seed=seed, num_threads=num_threads, evidence=observed,
            time_limit=time_limit, checkpoint=checkpoint, backend=cast("Any", backend or "cpu"),
            progress=progress,
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
