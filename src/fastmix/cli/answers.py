"""Commands that answer questions about a model: ``infer`` and ``sample``."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from fastmix.cli.options import (
    Accuracy,
    AnySeed,
    AsJson,
    BurnIn,
    CheckpointFile,
    Evidence,
    Model,
    NumChains,
    NumSweeps,
    TimeLimit,
)

__all__ = ["infer", "sample"]


def infer(
    model: Model,
    method: Annotated[
        str, typer.Option(help="exact: junction tree, for small treewidth; gibbs, swendsen-wang: sampling.")
    ] = "exact",
    evidence: Evidence = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MAR marginals, FILE.PR log10 Z, FILE.json all."),
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; half of the free memory by default.")
    ] = None,
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    accuracy: Accuracy = None,
    seed: AnySeed = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    as_json: AsJson = False,
) -> None:
    """Marginals of every variable, and log Z where the method has it."""
    import fastmix
    from fastmix import console
    from fastmix.inference import METHODS
    from fastmix.resources import parse_bytes

    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    limit = None if memory_limit is None else parse_bytes(memory_limit)
    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence), console.working(f"{method} inference") as progress:
        result = fastmix.infer(
            loaded, method=method, evidence=observed, memory_limit=limit, num_chains=num_chains, num_sweeps=num_sweeps,
            burn_in=burn_in, accuracy=accuracy, seed=seed, time_limit=time_limit, checkpoint=checkpoint,
            progress=progress,
        )  # fmt: skip
    if output is not None:
        console.save_answer(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    elif output is None:
        console.show_marginals(result)
    if result.status != "ok":
        if output is not None or as_json:
            console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


def sample(
    model: Model,
    method: Annotated[str, typer.Option(help="gibbs or swendsen-wang.")] = "gibbs",
    num_chains: NumChains = None,
    num_sweeps: NumSweeps = None,
    burn_in: BurnIn = None,
    num_draws: Annotated[int | None, typer.Option(help="Draws kept of every chain; one by default.")] = None,
    schedule: Annotated[str, typer.Option(help="Order of updates: systematic or random.")] = "systematic",
    seed: AnySeed = None,
    num_threads: Annotated[int | None, typer.Option(help="All cores by default; does not change the draws.")] = None,
    time_limit: TimeLimit = None,
    checkpoint: CheckpointFile = None,
    evidence: Evidence = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE.npz", help="Where the draws go.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw configurations by Markov chains; a summary without -o."""
    import fastmix
    from fastmix import console

    if output is not None and not output.endswith(".npz"):
        raise ValueError(f"-o must name an .npz file, got {output!r}")
    loaded, observed = console.load(model, evidence)
    kept = num_draws if num_draws is not None else int(output is not None)
    with console.blaming_input(model, evidence), console.working("sampling") as progress:
        result = fastmix.sample(
            loaded, method=cast("Any", method), num_chains=num_chains, num_sweeps=num_sweeps, burn_in=burn_in,
            num_draws=kept, schedule=cast("Any", schedule), seed=seed, num_threads=num_threads, evidence=observed,
            time_limit=time_limit, checkpoint=checkpoint, progress=progress,
        )  # fmt: skip
    if output is not None:
        console.save_draws(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    else:
        console.show_sampling(model, result)
    if result.status != "ok":
        raise typer.Exit(1)
