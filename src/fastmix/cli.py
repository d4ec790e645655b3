"""The command line: ``fastmix VERB MODEL [options]``."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from fastmix import __version__
from fastmix.errors import BadFileError, FastmixError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Marginal inference in discrete pairwise Markov random fields, with guarantees.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
generate = typer.Typer(help="Write a random model.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(generate, name="generate")

Model = Annotated[str, typer.Argument(metavar="MODEL", help="UAI or npz file, plain, gzip or xz; - is stdin.")]
Evidence = Annotated[str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Observed states (UAI).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]


def _version(value: bool) -> None:
    if value:
        print(f"fastmix {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model."""
    from fastmix import console
    from fastmix.description import describe_model

    loaded, observed = console.load(model, evidence)
    facts = describe_model(loaded, observed)
    if as_json:
        console.emit_json(facts)
    else:
        console.show_facts(model, {k.replace("_", " "): _readable(v) for k, v in facts.items() if k != "provenance"})


@app.command()
def infer(
    model: Model,
    method: Annotated[str, typer.Option(help="exact: junction tree, for small treewidth.")] = "exact",
    evidence: Evidence = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="FILE.MAR marginals, FILE.PR log10 Z, FILE.json all."),
    ] = None,
    memory_limit: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; half of the free memory by default.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Marginals of every variable, and log Z."""
    import fastmix
    from fastmix import console
    from fastmix.inference import METHODS
    from fastmix.resources import parse_bytes

    if method not in METHODS:
        raise ValueError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    limit = parse_bytes(memory_limit) if memory_limit else None
    loaded, observed = console.load(model, evidence)
    with console.working(f"{method} inference"):
        result = fastmix.infer(loaded, method=method, evidence=observed, memory_limit=limit)
    if output:
        console.save_answer(result, output)
    if as_json:
        console.emit_json(result.to_dict())
    elif not output:
        console.show_marginals(result)
    if result.status != "ok":
        raise typer.Exit(1)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="UAI or npz file; - is stdin.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help=".uai, .uai.gz, .uai.xz or .npz; - is UAI to stdout.")],
    evidence: Annotated[
        str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Condition on these states first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    from fastmix import console

    loaded, observed = console.load(source, evidence)
    _save(loaded.condition(observed) if observed else loaded, target, as_json, source=source, evidence=evidence)


def _save(model: Any, output: str | None, as_json: bool, *, seed: int | None = None, **options: Any) -> None:
    from fastmix import console
    from fastmix.results import provenance

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    start = time.perf_counter()
    if output or not as_json:
        console.save_model(model, output or "-")
    if as_json:
        facts = {"num_variables": model.num_variables, "num_edges": model.num_edges, "output": output}
        facts["seconds"] = time.perf_counter() - start
        console.emit_json({**facts, "provenance": provenance(model, seed=seed, **options)})


CouplingMax = Annotated[float, typer.Option(help="Couplings are uniform up to this strength.")]
Attractive = Annotated[bool, typer.Option("--attractive/--mixed", help="Couplings from 0, or from minus the maximum.")]
FieldMax = Annotated[float, typer.Option(help="Fields are uniform between minus and plus this.")]
Torus = Annotated[bool, typer.Option("--torus", help="Join opposite borders.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same model.")]
Rows = Annotated[int, typer.Option(help="Rows of the grid.")]
Cols = Annotated[int, typer.Option(help="Columns of the grid.")]
Variables = Annotated[int, typer.Option("--num-variables", help="Number of variables.")]


@generate.command("ising-grid")
def _ising_grid(
    rows: Rows = 16, cols: Cols = 16, coupling_max: CouplingMax = 1.0, attractive: Attractive = False,
    field_max: FieldMax = 1.0, torus: Torus = False, seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a rectangular grid."""
    _generate("ising_grid", output, as_json, rows, cols, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, torus=torus, seed=seed)  # fmt: skip


@generate.command("potts-grid")
def _potts_grid(
    rows: Rows = 8, cols: Cols = 8, num_states: Annotated[int, typer.Option(help="States of each variable.")] = 3,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, torus: Torus = False,
    seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Potts variables on a rectangular grid."""
    _generate("potts_grid", output, as_json, rows, cols, num_states=num_states, coupling_max=coupling_max,
              attractive=attractive, field_max=field_max, torus=torus, seed=seed)  # fmt: skip


@generate.command("ising-random")
def _ising_random(
    num_variables: Variables = 10, edge_probability: Annotated[float, typer.Option(help="Of every pair.")] = 0.5,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on an Erdos-Renyi graph."""
    _generate("ising_random", output, as_json, num_variables, edge_probability=edge_probability,
              coupling_max=coupling_max, attractive=attractive, field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-bipartite")
def _ising_bipartite(
    left: Annotated[int, typer.Option(help="Variables of one side.")] = 22,
    right: Annotated[int, typer.Option(help="Variables of the other side.")] = 22,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a complete bipartite graph."""
    _generate("ising_bipartite", output, as_json, left, right, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-regular")
def _ising_regular(
    num_variables: Variables = 100, degree: Annotated[int, typer.Option(help="Neighbours of every variable.")] = 3,
    coupling_max: CouplingMax = 1.0, attractive: Attractive = False, field_max: FieldMax = 1.0, seed: Seed = 0,
    output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a random regular graph."""
    _generate("ising_regular", output, as_json, num_variables, degree, coupling_max=coupling_max,
              attractive=attractive, field_max=field_max, seed=seed)  # fmt: skip


@generate.command("ising-tree")
def _ising_tree(
    num_variables: Variables = 100, coupling_max: CouplingMax = 1.0, attractive: Attractive = False,
    field_max: FieldMax = 1.0, seed: Seed = 0, output: Output = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Binary variables on a random tree."""
    _generate("ising_tree", output, as_json, num_variables, coupling_max=coupling_max, attractive=attractive,
              field_max=field_max, seed=seed)  # fmt: skip


def _generate(kind: str, output: str | None, as_json: bool, *sizes: int, seed: int, **options: Any) -> None:
    from fastmix import instances

    model = getattr(instances, kind)(*sizes, seed=seed, **options)
    _save(model, output, as_json, seed=seed, kind=kind, sizes=list(sizes), **options)


def _readable(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return " to ".join(f"{v:,}" for v in sorted(set(value)))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code; errors become one line on stderr, never a traceback."""
    sys.exit(_run(sys.argv[1:] if arguments is None else arguments))


def _run(arguments: list[str]) -> int:
    try:
        code = app(arguments, prog_name="fastmix", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return done.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", 1)
    except BrokenPipeError:  # the reader of our stdout has left: nothing to say, and nobody to say it to
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except BadFileError as error:
        return _fail(str(error), 3)
    except OSError as error:
        return _fail(f"{error.filename or 'output'}: {error.strerror or error}", 2)
    except (FastmixError, ValueError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, 2)
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error of the parser
            return _fail(f"{error.format_message()} (fastmix --help shows how)", 2)
        raise


def _fail(text: str, code: int) -> int:
    print(f"fastmix: {' '.join(text.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
