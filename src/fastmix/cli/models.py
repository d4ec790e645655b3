"""Commands about model files: ``info``, ``convert`` and ``generate``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastmix.cli.options import AsJson, Evidence, Model, Output
from fastmix.io.formats import format_names, suffix_list

if TYPE_CHECKING:
    from fastmix.model import Evidence as Observed
    from fastmix.model import MarkovRandomField

__all__ = ["convert", "describe_model", "generate", "info"]

generate = typer.Typer(help="Write a random model.", rich_markup_mode=None)


def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model."""
    from fastmix.cli import console

    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence):
        facts = describe_model(loaded, observed)
    if as_json:
        console.emit_json(facts)
    else:
        console.show_facts(model, {k.replace("_", " "): _readable(v) for k, v in facts.items() if k != "provenance"})


def describe_model(model: MarkovRandomField, evidence: Observed | None = None) -> dict[str, Any]:
    """Facts about a model as plain data, cheap also for a million variables.

    The graph facts (components, degrees, treewidth) are those of the model given the evidence.

    Examples
    --------
    >>> from fastmix import MarkovRandomField
    >>> facts = describe_model(MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.5))
    >>> facts["num_variables"], facts["treewidth"]
    (3, [2, 2])
    """
    import numpy as np

    from fastmix.exact.orders import treewidth_bounds
    from fastmix.graphs import connected_components
    from fastmix.model import check_model
    from fastmix.results import provenance

    start = time.perf_counter()
    check_model(model)
    given = model.condition(evidence) if evidence else model
    lower, upper = treewidth_bounds(given.num_variables, given.edges)
    states, degrees = given.num_states, given.adjacency.degree
    spread = [int(states.min()), int(states.max())] if len(states) else [0, 0]
    finite = given.log_pairwise[given.log_pairwise > -np.inf]
    facts: dict[str, Any] = {
        "num_variables": model.num_variables,
        "num_observed": len(evidence or {}),
        "num_states": spread,
        "num_edges": given.num_edges,
        "max_degree": int(degrees.max(initial=0)),
        "num_components": int(connected_components(given.num_variables, given.edges)[0]),
        "treewidth": [lower, upper],
        "num_forbidden_states": int((given.log_unary == -np.inf).sum()),
        "num_forbidden_pairs": int((given.drop_forbidden_states().log_pairwise == -np.inf).sum()),
        "largest_table_entry": float(np.abs(finite).max(initial=0.0)),
        "log_constant": given.log_constant,
    }
    facts["seconds"] = time.perf_counter() - start
    facts["provenance"] = provenance(model, evidence={str(k): v for k, v in (evidence or {}).items()})
    return facts


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=f"{format_names()} file; - is stdin.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help=f"{suffix_list()}; - is UAI to stdout.")],
    evidence: Annotated[
        str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Condition on these states first.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    from fastmix.cli import console

    console.check_model_output(target)
    loaded, observed = console.load(source, evidence)
    if observed:
        with console.blaming_input(source, evidence):
            loaded = loaded.condition(observed)
    _save(loaded, target, as_json, source=source, evidence=evidence)


def _save(model: Any, output: str | None, as_json: bool, *, seed: int | None = None, **options: Any) -> None:
    from fastmix.cli import console
    from fastmix.results import provenance

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    start = time.perf_counter()
    if output is not None or not as_json:
        console.save_model(model, "-" if output is None else output)
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
    from fastmix.cli import console

    console.check_model_output(output)
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
