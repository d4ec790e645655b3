"""Commands about data: ``learn`` and ``score``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fastmix.cli.options import AnySeed, AsJson, Model

if TYPE_CHECKING:
    from fastmix.learning import LearnResult, ScoreResult

__all__ = ["learn", "score"]

Data = Annotated[str, typer.Argument(metavar="DATA", help="Table of states (CSV), plain, gzip or xz; - is stdin.")]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first row has names; only if it cannot be data by default."),
]
Weights = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The column with weights of rows, by name or number from 0.")
]
Limit = Annotated[
    float | None,
    typer.Option("--time-limit", metavar="SECONDS", help="Return what there is then; none by default."),
]
Where = Annotated[str, typer.Option("--backend", help="Where chains run: cpu, cuda, or auto for a GPU if any.")]


def learn(
    data: Data,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes; npz keeps all names.")
    ] = None,
    header: Header = None,
    edges: Annotated[
        str, typer.Option(metavar="GRAPH", help="complete, chow-liu, l1, grow, or a file with two columns per line.")
    ] = "complete",
    objective: Annotated[str, typer.Option(help="likelihood or pseudo-likelihood.")] = "likelihood",
    moments: Annotated[str, typer.Option(help="auto, exact, sampled or tempered: of the likelihood.")] = "auto",
    within: Annotated[
        str | None,
        typer.Option(
            metavar="NORM:BOUND",
            help="Stay in a set, such as spectral:2.5 or width:0.95; below 1 it provably mixes fast.",
        ),
    ] = None,
    ridge: Annotated[
        str, typer.Option(metavar="NUMBER|auto", help="Weight of the squares of all parameters.")
    ] = "1e-3",
    l1: Annotated[str, typer.Option(metavar="NUMBER|auto", help="Weight of the norms of tables: removes edges.")] = "0",
    validation: Annotated[
        str | None, typer.Option(metavar="FILE", help="Data on which auto chooses, and that are scored.")
    ] = None,
    hidden: Annotated[int, typer.Option(help="Binary variables that are never observed.")] = 0,
    weights: Weights = None,
    num_states: Annotated[
        str | None,
        typer.Option(metavar="COUNTS", help="Of the columns, such as 3 or 2,3,2; as seen by default."),
    ] = None,
    num_chains: Annotated[int | None, typer.Option(help="Persistent chains; 1,024 to 4,096 by default.")] = None,
    tol: Annotated[float | None, typer.Option(help="When to stop; see the docs.")] = None,
    max_iter: Annotated[int | None, typer.Option(help="Iterations or rounds allowed.")] = None,
    seed: AnySeed = None,
    time_limit: Limit = None,
    backend: Where = "cpu",
    checkpoint: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to save the run in, and to go on from if it exists.")
    ] = None,
    checkpoint_seconds: Annotated[float, typer.Option(help="Seconds between two writes of the checkpoint.")] = 30.0,
    as_json: AsJson = False,
) -> None:
    """A model fitted to a table of states; UAI text on stdout without -o and --json."""
    import fastmix
    from fastmix.cli import console
    from fastmix.learning.result import ball_by_name

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if data == validation == "-":
        raise ValueError("DATA and --validation must not both be -: stdin holds one of them")
    ball = None if within is None else _naming("within", lambda: ball_by_name(within))
    penalties = {name: _penalty(name, text) for name, text in (("ridge", ridge), ("l1", l1))}
    if "auto" in penalties.values() and validation is None:
        name = next(name for name, value in penalties.items() if value == "auto")
        raise ValueError(f"--{name} auto is chosen on validation data: give --validation")
    counts = None if num_states is None else _counts(num_states)
    for source in (data, *([] if validation is None else [validation])):
        console.check_outputs(source, [] if output is None else [output], checkpoint)
    console.check_model_output(output)
    table = console.load_table(data, header=header, weights=weights, num_states=counts)
    others = None
    if validation is not None:
        others = console.load_table(validation, header=header, weights=weights, model=table.blank_model())
    graph = (
        edges
        if edges in ("complete", "chow-liu", "l1", "grow")
        else console.load_edges(edges, table.with_hidden(hidden))
    )
    with console.blaming_checkpoint():
        result = fastmix.learn(
            table, edges=cast("Any", graph), objective=cast("Any", objective), moments=cast("Any", moments),
            within=ball, ridge=cast("Any", penalties["ridge"]), l1=cast("Any", penalties["l1"]), hidden=hidden,
            validation=others, num_chains=num_chains, tol=tol, max_iter=max_iter, seed=seed, time_limit=time_limit,
            backend=backend, checkpoint=checkpoint, checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
    if output or not as_json:
        console.save_model(result.model, output or "-")
    if as_json:
        console.emit_json(result.to_dict())
    elif output in (None, "-"):
        console.message(", ".join(f"{name} {value}" for name, value in _learnt(result).items()))
    else:
        console.show_facts(output, _learnt(result))
    console.forget_checkpoint(checkpoint, result)
    if result.status != "ok":
        console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


def score(
    model: Model,
    data: Data,
    header: Header = None,
    weights: Weights = None,
    target: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Also the probability of these variables given the others.")
    ] = None,
    method: Annotated[str, typer.Option(help="auto, exact or annealing: how log Z is found.")] = "auto",
    tol: Annotated[float, typer.Option(help="Standard error of log Z to reach.")] = 0.01,
    num_chains: Annotated[int, typer.Option(help="Of the annealing.")] = 1024,
    seed: AnySeed = None,
    time_limit: Limit = None,
    backend: Where = "cpu",
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="For the log-likelihood of every row.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How probable data are under a model: mean log-likelihood, with its standard error."""
    import fastmix
    from fastmix.cli import console

    if model == data == "-":
        raise ValueError("MODEL and DATA must not both be -: stdin holds one of them")
    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    for source in (model, data):
        console.check_outputs(source, [] if output is None else [output])
    loaded, _ = console.load(model)
    table = console.load_table(data, header=header, weights=weights, model=loaded)
    chosen = None if target is None else [_variable(word.strip()) for word in target.split(",") if word.strip()]
    result = fastmix.score(
        loaded, table, target=chosen, method=cast("Any", method), tol=tol, num_chains=num_chains, seed=seed,
        time_limit=time_limit, backend=backend,
    )  # fmt: skip
    if output is not None:
        console.save_rows(result.per_row, output)
    if as_json:
        console.emit_json(result.to_dict())
    elif output != "-":
        console.show_facts(data, _scored(result))
    if result.status != "ok":
        console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


def _learnt(result: LearnResult) -> dict[str, str]:
    """What is worth a line."""
    model = result.model
    facts = {
        "status": str(result.status),
        "data": f"{result.num_rows:,} rows",
        "model": f"{model.num_variables:,} variables, {model.num_edges:,} edges",
        "objective": result.objective + ("" if result.moments == "none" else f" ({result.moments})"),
        "ridge": f"{result.ridge:g}",
        "l1": f"{result.l1:g}",
        "norms": ", ".join(f"{name} {value:.4g}" for name, value in result.norms.items()),
    }
    if result.within is not None:
        facts["within"] = str(result.within)
    for name in ("moment_error", "bias_bound", "validation_log_likelihood"):
        if (value := getattr(result, name)) is not None:
            facts[name.replace("_", " ")] = f"{value:.6g}"
    return {**facts, "seed": str(result.seed), "seconds": f"{result.stats['seconds']:.3g}"}


def _scored(result: ScoreResult) -> dict[str, str]:
    facts = {
        "status": str(result.status),
        "rows": f"{result.num_rows:,}",
        "log-likelihood": f"{result.log_likelihood:.6g} per row",
        "standard error of log Z": f"{result.std_error:.2g}",
        "standard error of the data": f"{result.std_error_data:.2g}",
        "log Z": f"{result.log_z:.6g} ({result.log_z_method})",
    }
    if result.log_z_bracket is not None:
        facts["log Z from below and above"] = " to ".join(f"{value:.6g}" for value in result.log_z_bracket)
    for name in ("pseudo_log_likelihood", "conditional_log_likelihood"):
        if (value := getattr(result, name)) is not None:
            facts[name.replace("_log_likelihood", " log-likelihood")] = f"{value:.6g}"
    return {**facts, "seconds": f"{result.stats['seconds']:.3g}"}


def _naming(name: str, call: Any) -> Any:
    """What a call gives; its complaint names the option."""
    try:
        return call()
    except ValueError as error:
        raise ValueError(str(error).replace(name, f"--{name.replace('_', '-')}", 1)) from None


def _penalty(name: str, text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--{name} must be a number or auto, got {text!r}") from None


def _counts(text: str) -> list[int] | int:
    try:
        counts = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"--num-states must be whole numbers such as 3 or 2,3,2, got {text!r}") from None
    return counts[0] if len(counts) == 1 else counts


def _variable(word: str) -> int | str:
    return int(word) if word.isdecimal() else word
