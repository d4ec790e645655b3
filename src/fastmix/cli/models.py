"""Commands about a model itself: ``info``, ``certify``, ``bracket``, ``project``, ``convert`` and ``generate``."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

import fastmix
from fastmix._checks import check_choice
from fastmix.cli import console, files, tables
from fastmix.cli.layout import GroupedCommand, UncutGroup
from fastmix.cli.options import (
    AnswerEvidence,
    AsJson,
    Evidence,
    Model,
    NoEvidence,
    OptionSpec,
    Output,
    option,
    takes,
    with_signature,
)
from fastmix.errors import Interrupted, NotConvergedError
from fastmix.io import format_names, suffix_list
from fastmix.io.files import display_name
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from fastmix.projection import Divergence, ProjectionResult

__all__ = ["bracket", "certify", "convert", "generate", "info", "project"]

TableFiles = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", metavar="FILE", help="FILE.csv a table, FILE.json all; several -o write several."),
]
_TABLE_SUFFIXES = (".csv", ".json")

# -- facts and guarantees ---------------------------------------------------------------------------------------------


def info(model: Model, evidence: Evidence = None, as_json: AsJson = False) -> None:
    """Size, state counts, zeros and treewidth of a model.

    Says also whether the file holds a Bayesian network.
    """
    from fastmix.describe import describe_model

    loaded = files.load(model, evidence)
    facts = loaded.answer(describe_model)
    facts["bayesian_network"] = loaded.network is not None
    if as_json:
        console.emit_json(facts, *loaded.about)
    else:
        tables.show_facts(model, tables.readable(facts))
    note = None if loaded.network is not None else _numbering(loaded.model)
    if note is not None:
        console.message(f"note: {note}")


def _numbering(model: MarkovRandomField) -> str | None:
    """A note where the edges seem to be numbered from 1; None where variable 0 has potentials of its own."""
    from fastmix.model.inputs import note_on_numbering

    if not model.num_variables or len(set(model.unary(0).tolist())) > 1:
        return None
    return note_on_numbering(model.num_variables, model.edges)


@takes(
    "certify",
    "time_limit",
    criterion="auto, dobrushin, width, path or split; all but dobrushin are for random updates.",
    dependency="Dependency bound: exact, field, sigmoid, range, l1 or linf.",
    norm="spectral, inf, 1 or frobenius; the smallest of them by default.",
    schedule="Order of updates: systematic or random; what the criterion is for by default.",
    per_variable="Accuracy of every marginal instead of the joint distribution.",
    max_updates="More random updates count as not certified; 5e9 by default, inf for no limit.",
    margin="Find how far all couplings could grow.",
)
def certify(
    model: Model,
    accuracy: Annotated[float, typer.Option(help="Total variation distance to reach, between 0 and 1.")] = 0.01,
    evidence: Evidence = None,
    output: TableFiles = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Whether Gibbs sampling provably mixes, and in how many sweeps.

    The exit code is 1 where that is not certified.
    """
    outputs = output or []
    files.check_outputs([model], outputs, allowed=_TABLE_SUFFIXES, as_json=as_json)
    loaded = files.load(model, evidence)
    certificate = loaded.answer(fastmix.certify, accuracy=accuracy, **given)
    show = partial(tables.show_certificate, model, certificate)
    console.finish(certificate, as_json, show, outputs=outputs, plain=".csv", tell=bool(outputs))


@takes(
    "bracket",
    "memory_limit seed time_limit",
    method="auto, or what it tries in this order: exact, split.",
    confidence="Tighten by draws; all bounds then hold together with this probability.",
    num_draws="Draws at most, with --confidence.",
)
def bracket(
    model: Model,
    evidence: AnswerEvidence = None,
    no_evidence: NoEvidence = False,
    output: TableFiles = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Proven bounds on log Z and on every marginal.

    They are exact where exact inference fits the memory and the time.
    """
    outputs = output or []
    files.check_outputs([model], outputs, allowed=_TABLE_SUFFIXES, as_json=as_json)
    loaded = files.load(model, files.choose_evidence(model, evidence, no_evidence))
    result = loaded.answer(fastmix.bracket, **given)
    show = partial(tables.show_bracket, result)
    console.finish(result, as_json, show, outputs=outputs, plain=".csv", notes=loaded.notes)


# -- other models -----------------------------------------------------------------------------------------------------


@takes(
    "project",
    "seed time_limit",
    norm_bound="Largest norm allowed; below 1 the result provably mixes fast.",
    norm="inf, spectral, 1, frobenius or width.",
    dependency="Dependency bound: range or linf.",
    solver="fast, or paper for the dual of the paper.",
    tol="Relative duality gap.",
    max_iter="Iterations allowed.",
)
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
    """The closest model with a bounded dependency norm.

    UAI text on stdout without -o and --json.
    """
    from fastmix.projection import PaperDual

    files.check_model_output([model], output, as_json)
    chosen = _divergence(divergence, backend)
    check_choice("solver", given["solver"], ("fast", "paper"))
    if given["solver"] == "paper":
        given["solver"] = PaperDual()
    loaded = files.load(model, evidence)
    result = loaded.answer(_project, divergence=chosen, **given)
    console.save_model(result.model, output, as_json)
    console.finish(result, as_json, lambda: console.message(_summary(result)), tell=False)


def _divergence(name: str, backend: str | None) -> Divergence:
    """The divergence with a name, whose chains run where ``--backend`` says."""
    from fastmix.projection import ReversedKL, divergence_by_name

    chosen = divergence_by_name(name)
    if backend is None:
        return chosen
    if not isinstance(chosen, ReversedKL):
        raise ValueError(f"--backend needs --divergence reversed-kl, whose chains it is for, got {name}")
    return ReversedKL(backend=cast("Any", backend))  # which checks the word


def _project(model: MarkovRandomField, **options: Any) -> ProjectionResult:
    """The projection of a model, also one that was stopped before it was proven to be the closest."""
    try:
        return fastmix.project(model, **options)
    except (NotConvergedError, Interrupted) as error:
        if error.result is None:
            raise
        console.message(str(error))
        result: ProjectionResult = error.result
        return result


def _summary(result: ProjectionResult) -> str:
    """A line about a projection: its norms, its distance and its quality."""
    what = "width" if result.norm == "width" else f"{result.norm}, {result.dependency}"
    quality = f"duality gap {result.duality_gap:.3g}"
    if "num_steps" in result.stats:
        quality = f"divergence {result.divergence_value:.6g} after {result.stats['num_steps']} steps"
    return (
        f"norm {result.norm_before:.6g} -> {result.norm_after:.6g} ({what}), squared distance "
        f"{result.squared_distance:.6g}, {quality}, {result.stats['seconds']:.3g} s"
    )


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help=f"{format_names()} file; - is stdin.")],
    target: Annotated[
        str | None,
        typer.Argument(metavar="[OUT]", help=f"{suffix_list()}, or .bif of a network; - is UAI to stdout. Or -o OUT."),
    ] = None,
    evidence: Evidence = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Write a model in another format, optionally given evidence."""
    if target is not None and output is not None:
        raise ValueError(f"-o must not be given beside OUT, got {target!r} and {output!r}")
    target = output if target is None else target
    if target is None:
        raise ValueError("Missing argument 'OUT', which may also be given by -o")
    holds_networks = target.endswith((".bif", ".bif.gz", ".bif.xz"))
    if holds_networks:
        if evidence is not None:
            raise ValueError("--evidence must not be given for a BIF file, which holds networks; write .uai or .npz")
        files.check_outputs([], [target], as_json=as_json)
    else:
        files.check_model_output([], target, as_json)
    loaded = files.load(source, evidence)
    if not holds_networks:
        model = loaded.answer(MarkovRandomField.condition) if loaded.observed else loaded.model
        _save(model, target, as_json, source=source, evidence=evidence)
    elif loaded.network is not None:
        _save(loaded.model, target, as_json, loaded.network, source=source, evidence=evidence)
    else:
        name = display_name(source)
        raise ValueError(f"a BIF file holds a Bayesian network, and {name} is none; write .uai or .npz")


def _save(
    model: MarkovRandomField,
    output: str | None,
    as_json: bool,
    network: BayesianNetwork | None = None,
    *,
    seed: int | None = None,
    **options: Any,
) -> None:
    """Write a model, or the network that it stands for; as JSON what it is and how it was made."""
    from fastmix.results import provenance

    start = time.perf_counter()
    console.save_model(model if network is None else network, output, as_json)
    if as_json:
        facts: dict[str, Any] = {"num_variables": model.num_variables, "num_edges": model.num_edges, "output": output}
        facts["seconds"] = time.perf_counter() - start
        console.emit_json({**facts, "provenance": provenance(model, seed=seed, **options)})


# -- random models ----------------------------------------------------------------------------------------------------


class Generator(NamedTuple):
    """A command of ``generate``, which stands for the function of its name in :mod:`fastmix.instances`."""

    help: str
    defaults: dict[str, Any]  # that the function itself does not have


_GENERATORS = {
    "ising_grid": Generator("Binary variables on a rectangular grid.", {"rows": 16, "cols": 16}),
    "potts_grid": Generator("Potts variables on a rectangular grid.", {"rows": 8, "cols": 8}),
    "ising_random": Generator(
        "Binary variables on an Erdos-Renyi graph.", {"num_variables": 10, "edge_probability": 0.5}
    ),
    "ising_bipartite": Generator("Binary variables on a complete bipartite graph.", {"left": 22, "right": 22}),
    "ising_regular": Generator("Binary variables on a random regular graph.", {"num_variables": 100, "degree": 3}),
    "ising_tree": Generator("Binary variables on a random tree.", {"num_variables": 100}),
}
_COMMON_DEFAULTS = {"coupling_max": 1.0, "seed": 0}
_SIZES = ("rows", "cols", "num_variables", "left", "right", "degree")
_OPTION_HELP = {
    "rows": "Rows of the grid.",
    "cols": "Columns of the grid.",
    "num_variables": "Number of variables.",
    "edge_probability": "Probability of each edge.",
    "left": "Variables of one side.",
    "right": "Variables of the other side.",
    "degree": "Neighbors of every variable.",
    "num_states": "States of each variable.",
    "coupling_max": "Couplings are uniform up to this strength.",
    "torus": "Join opposite borders.",
    "attractive": "Couplings from 0, or from minus the maximum.",
    "seed": "The same seed gives the same model.",
    "field_max": "Fields are uniform between minus and plus this.",
}


def generate() -> typer.Typer:
    """The commands that write random models, one for each function of :mod:`fastmix.instances`."""
    group = typer.Typer(help="Write a random model.", cls=UncutGroup, rich_markup_mode=None)
    for kind in _GENERATORS:
        group.command(kind.replace("_", "-"), cls=GroupedCommand)(_generator(kind))
    return group


def _generator(kind: str) -> Callable[..., None]:
    """The command that writes a random model of a kind."""
    from fastmix import instances

    make = getattr(instances, kind)
    generator = _GENERATORS[kind]

    def command(*, output: str | None, as_json: bool, **options: Any) -> None:
        files.check_model_output([], output, as_json)
        model = make(**options)
        sizes = [options.pop(name) for name in list(options) if name in _SIZES]
        _save(model, output, as_json, kind=kind, sizes=sizes, **options)

    command.__doc__ = generator.help
    defaults = {**_COMMON_DEFAULTS, **generator.defaults}
    parameters = {}
    for name, parameter in inspect.signature(make).parameters.items():
        spec = OptionSpec(_OPTION_HELP[name], flags="--attractive/--mixed" if name == "attractive" else "")
        default = defaults.get(name, parameter.default)
        parameters[name] = option(name, spec, parameter.annotation, default)
    return with_signature(command, {**parameters, "output": (Output, None), "as_json": (AsJson, False)})
