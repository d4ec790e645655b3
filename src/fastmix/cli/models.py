"""Commands about model files: ``info``, ``convert`` and ``generate``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastmix.cli import console, files
from fastmix.cli.options import AsJson, Asked, Evidence, Model, Output, option, with_signature
from fastmix.io import format_names, read_model_or_network, suffix_list
from fastmix.io.files import display_name
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from fastmix.model import Evidence as Observed
    from fastmix.model import MarkovRandomField

__all__ = ["convert", "describe_model", "generate", "info"]


def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model, and whether it is a Bayesian network."""
    found, observed = None, dict[int, int]()
    if evidence is None:
        found = files.read(read_model_or_network, model)
        loaded = found.to_model() if isinstance(found, BayesianNetwork) else found
    else:
        loaded, observed = files.load(model, evidence)
    with files.answering(model, evidence):
        facts = describe_model(loaded, observed)
    facts["bayesian_network"] = None if found is None else isinstance(found, BayesianNetwork)
    if as_json:
        console.emit_json(facts, loaded, observed)
    else:
        console.show_facts(model, console.readable(facts))


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

    from fastmix.exact.search import treewidth_bounds
    from fastmix.graphs import connected_components
    from fastmix.model import check_model
    from fastmix.results import provenance

    start = time.perf_counter()
    check_model(model)
    given = model.condition(evidence) if evidence else model
    lower, upper = treewidth_bounds(given.num_variables, given.edges)
    states, degrees = given.num_states, given.adjacency.degree
    spread = [int(states.min()), int(states.max())] if len(states) else [0, 0]
    tables = np.concatenate([given.log_pairwise, given.log_factors])
    finite = tables[tables > -np.inf]
    facts: dict[str, Any] = {
        "num_variables": model.num_variables,
        "num_observed": len(evidence or {}),
        "num_states": spread,
        "num_edges": given.num_edges,
        "kind": "pairwise" if given.num_factors == 0 else "factors",
        "num_factors": given.num_factors,
        "max_scope": given.structure.max_scope,
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
    target: Annotated[
        str, typer.Argument(metavar="OUT", help=f"{suffix_list()}, or .bif of a network; - is UAI to stdout.")
    ],
    evidence: Evidence = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    if target.endswith((".bif", ".bif.gz", ".bif.xz")):
        if evidence is not None:
            raise ValueError("--evidence must not be given for a BIF file, which holds networks; write .uai or .npz")
        files.check_outputs([], [target], as_json=as_json)
        network = files.read(read_model_or_network, source)
        if not isinstance(network, BayesianNetwork):
            name = display_name(source)
            raise ValueError(f"a BIF file holds a Bayesian network, and {name} is none; write .uai or .npz")
        _save(network, target, as_json, source=source, evidence=evidence)
        return
    files.check_model_output([], target, as_json)
    loaded, observed = files.load(source, evidence)
    if observed:
        with files.answering(source, evidence):
            loaded = loaded.condition(observed)
    _save(loaded, target, as_json, source=source, evidence=evidence)


def _save(model: Any, output: str | None, as_json: bool, *, seed: int | None = None, **options: Any) -> None:
    from fastmix.results import provenance

    start = time.perf_counter()
    console.save_model(model, output, as_json)
    if as_json:
        model = model.to_model() if isinstance(model, BayesianNetwork) else model
        facts = {"num_variables": model.num_variables, "num_edges": model.num_edges, "output": output}
        facts["seconds"] = time.perf_counter() - start
        console.emit_json({**facts, "provenance": provenance(model, seed=seed, **options)})


# The commands of ``generate``, one for each function of :mod:`fastmix.instances`: what it writes, defaults of its own.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ising_grid": ("Binary variables on a rectangular grid.", {"rows": 16, "cols": 16}),
    "potts_grid": ("Potts variables on a rectangular grid.", {"rows": 8, "cols": 8}),
    "ising_random": ("Binary variables on an Erdos-Renyi graph.", {"num_variables": 10, "edge_probability": 0.5}),
    "ising_bipartite": ("Binary variables on a complete bipartite graph.", {"left": 22, "right": 22}),
    "ising_regular": ("Binary variables on a random regular graph.", {"num_variables": 100, "degree": 3}),
    "ising_tree": ("Binary variables on a random tree.", {"num_variables": 100}),
}
_SIZES = ("rows", "cols", "num_variables", "left", "right", "degree")
_HELP = {
    "rows": "Rows of the grid.", "cols": "Columns of the grid.", "num_variables": "Number of variables.",
    "edge_probability": "Of every pair.", "left": "Variables of one side.", "right": "Variables of the other side.",
    "degree": "Neighbors of every variable.", "num_states": "States of each variable.",
    "coupling_max": "Couplings are uniform up to this strength.", "torus": "Join opposite borders.",
    "attractive": "Couplings from 0, or from minus the maximum.", "seed": "The same seed gives the same model.",
    "field_max": "Fields are uniform between minus and plus this.",
}  # fmt: skip


def generate() -> typer.Typer:
    """The commands that write random models, one for each function of :mod:`fastmix.instances`."""
    group = typer.Typer(help="Write a random model.", rich_markup_mode=None)
    for kind in _KINDS:
        group.command(kind.replace("_", "-"))(_generator(kind))
    return group


def _generator(kind: str) -> Callable[..., None]:
    from fastmix import instances

    make = getattr(instances, kind)

    def command(*, output: str | None, as_json: bool, **options: Any) -> None:
        files.check_model_output([], output, as_json)
        model = make(**options)
        sizes = [options.pop(name) for name in list(options) if name in _SIZES]
        _save(model, output, as_json, kind=kind, sizes=sizes, **options)

    command.__doc__, own = _KINDS[kind]
    defaults, parameters = {"coupling_max": 1.0, "seed": 0, **own}, {}
    for name, p in inspect.signature(make).parameters.items():
        asked = Asked(_HELP[name], flags="--attractive/--mixed" if name == "attractive" else "")
        parameters[name] = option(name, asked, p.annotation, defaults.get(name, p.default))
    return with_signature(command, {**parameters, "output": (Output, None), "as_json": (AsJson, False)})
