"""Commands about a model itself: ``info``, ``certify``, ``bracket``, ``project``, ``convert`` and ``generate``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import fastmix
from fastmix._checks import check_choice
from fastmix.cli import console, files
from fastmix.cli.options import (
    AnswerEvidence,
    AsJson,
    Asked,
    Evidence,
    Model,
    NoEvidence,
    Output,
    option,
    takes,
    with_signature,
)  # fmt: skip
from fastmix.errors import Interrupted, NotConvergedError
from fastmix.io import format_names, suffix_list
from fastmix.io.files import display_name
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from fastmix.model import Evidence as Observed
    from fastmix.projection import ProjectionResult

__all__ = ["bracket", "certify", "convert", "describe_model", "generate", "info", "project"]


def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model, and whether it is a Bayesian network."""
    loaded = files.load(model, evidence)
    facts = loaded.answer(describe_model)
    facts["bayesian_network"] = loaded.network is not None
    if as_json:
        console.emit_json(facts, *loaded.about)
    else:
        console.show_facts(model, console.readable(facts))
    if loaded.network is None and (note := _numbering(loaded.model)):
        console.message(f"note: {note}")


def _numbering(model: MarkovRandomField) -> str | None:
    """A note on edges that seem to be numbered from 1; a first variable with potentials of its own was meant."""
    from fastmix.model.build import note_on_numbering

    if not model.num_variables or len(set(model.unary(0).tolist())) > 1:
        return None
    return note_on_numbering(model.num_variables, model.edges)


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


@takes(
    "certify", "time_limit",
    criterion="auto, dobrushin, width, path or split; all but dobrushin are for random updates.",
    dependency="Dependency bound: exact, field, sigmoid, range, l1 or linf.",
    norm="spectral, inf, 1 or frobenius; the smallest of them by default.",
    schedule="Order of updates: systematic or random; what the criterion is for by default.",
    per_variable="Accuracy of every marginal instead of the joint distribution.",
    max_updates="More random updates count as not certified; 5e9 by default, inf for no limit.",
    margin="How far all couplings could grow.",
)  # fmt: skip
def certify(
    model: Model,
    accuracy: Annotated[float, typer.Option(help="Total variation distance to reach, between 0 and 1.")] = 0.01,
    evidence: Evidence = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Whether Gibbs sampling provably mixes, and in how many sweeps; exit code 1 when not certified."""
    loaded = files.load(model, evidence)
    certificate = loaded.answer(fastmix.certify, accuracy=accuracy, **given)
    about = certificate.model, loaded.observed
    console.finish(certificate, as_json, lambda: console.show_certificate(model, certificate), about, tell=False)


@takes(
    "bracket", "memory_limit seed time_limit",
    confidence="Tighten by draws; all bounds then hold together with this probability.",
    num_draws="Draws at most, with --confidence.",
)  # fmt: skip
def bracket(
    model: Model, evidence: AnswerEvidence = None, no_evidence: NoEvidence = False, as_json: AsJson = False,
    *, given: dict[str, Any],
) -> None:  # fmt: skip
    """Proven bounds on log Z and on every marginal, exact where that fits."""
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    result = loaded.answer(fastmix.bracket, **given)
    console.finish(result, as_json, lambda: console.show_bracket(result), loaded.about, notes=loaded.notes)


@takes(
    "project", "seed time_limit",
    norm_bound="Largest norm allowed; below 1 the result provably mixes fast.",
    norm="inf, spectral, 1, frobenius or width.",
    dependency="Dependency bound: range or linf.",
    solver="fast, or paper for the dual of the paper.",
    tol="Relative duality gap.",
    max_iter="Iterations allowed.",
)  # fmt: skip
def project(
    model: Model,
    divergence: Annotated[
        str, typer.Option(help="euclidean, kl, piecewise-kl or reversed-kl: what closest means.")
    ] = "euclidean",
    backend: Annotated[
        str | None,
        typer.Option(
            help="Where the chains of reversed-kl run: cpu (default), cuda, or auto for a GPU if there is one."
        ),
    ] = None,
    evidence: Evidence = None,
    output: Output = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """The closest model with a bounded dependency norm; UAI text on stdout without -o and --json."""
    from fastmix.projection import PaperDual, ReversedKL, divergence_by_name

    files.check_model_output([model], output, as_json)
    chosen = divergence_by_name(divergence)
    if backend is not None:
        if not isinstance(chosen, ReversedKL):
            raise ValueError(f"--backend needs --divergence reversed-kl, whose chains it is for, got {divergence}")
        chosen = ReversedKL(backend=cast("Any", backend))
    check_choice("solver", given["solver"], ("fast", "paper"))
    if given["solver"] == "paper":
        given["solver"] = PaperDual()
    loaded = files.load(model, evidence)
    result = loaded.answer(_project, divergence=chosen, **given)
    console.save_model(result.model, output, as_json)
    what = "width" if result.norm == "width" else f"{result.norm}, {result.dependency}"
    quality = f"duality gap {result.duality_gap:.3g}"
    if "num_steps" in result.stats:
        quality = f"divergence {result.divergence_value:.6g} after {result.stats['num_steps']} steps"
    summary = (
        f"norm {result.norm_before:.6g} -> {result.norm_after:.6g} ({what}), squared distance "
        f"{result.squared_distance:.6g}, {quality}, {result.stats['seconds']:.3g} s"
    )
    console.finish(result, as_json, lambda: console.message(summary), (result.model, loaded.observed), tell=False)


def _project(model: MarkovRandomField, **options: Any) -> ProjectionResult:
    """The projection, also one that was stopped before it was proven to be the closest."""
    try:
        return fastmix.project(model, **options)
    except (NotConvergedError, Interrupted) as error:
        if error.result is None:
            raise
        console.message(str(error))
        return error.result


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=f"{format_names()} file; - is stdin.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help=f"{suffix_list()}, or .bif of a network; - is UAI to stdout.")
    ],
    evidence: Evidence = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    holds_networks = target.endswith((".bif", ".bif.gz", ".bif.xz"))
    if holds_networks:
        if evidence is not None:
            raise ValueError("--evidence must not be given for a BIF file, which holds networks; write .uai or .npz")
        files.check_outputs([], [target], as_json=as_json)
    else:
        files.check_model_output([], target, as_json)
    loaded = files.load(source, evidence)
    model = loaded.answer(MarkovRandomField.condition) if loaded.observed else loaded.model
    if holds_networks and loaded.network is None:
        name = display_name(source)
        raise ValueError(f"a BIF file holds a Bayesian network, and {name} is none; write .uai or .npz")
    _save(model, target, as_json, loaded.network if holds_networks else None, source=source, evidence=evidence)


def _save(
    model: MarkovRandomField,
    output: str | None,
    as_json: bool,
    network: BayesianNetwork | None = None,
    *,
    seed: int | None = None,
    **options: Any,
) -> None:
    from fastmix.results import provenance

    start = time.perf_counter()
    console.save_model(model if network is None else network, output, as_json)
    if as_json:
        facts: dict[str, Any] = {"num_variables": model.num_variables, "num_edges": model.num_edges, "output": output}
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
