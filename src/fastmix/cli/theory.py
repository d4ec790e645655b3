"""Commands about what is proven: ``certify``, ``bracket`` and ``project``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

import fastmix
from fastmix.cli import console, files
from fastmix.cli.options import AsJson, Asked, Evidence, Model, Output, takes
from fastmix.errors import Interrupted, NotConvergedError

if TYPE_CHECKING:
    from fastmix.model import MarkovRandomField
    from fastmix.projection import Divergence, ProjectionResult

__all__ = ["bracket", "certify", "project"]


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
    if as_json:
        console.emit_json(certificate.to_dict(), loaded.model.condition(loaded.observed), loaded.observed)
    else:
        console.show_certificate(model, certificate)
    if not certificate.certified:
        raise typer.Exit(1)


@takes(
    "bracket", "memory_limit seed time_limit",
    confidence="Tighten by draws; all bounds then hold together with this probability.",
    num_draws="Draws at most, with --confidence.",
)  # fmt: skip
def bracket(model: Model, evidence: Evidence = None, as_json: AsJson = False, *, given: dict[str, Any]) -> None:
    """Proven bounds on log Z and on every marginal, exact where that fits."""
    loaded = files.load(model, evidence)
    result = loaded.answer(fastmix.bracket, **given)
    console.finish(result, as_json, lambda: console.show_bracket(result), loaded.about)


def _solver(text: str) -> Any:
    from fastmix.projection import PaperDual

    if text not in ("fast", "paper"):
        raise ValueError(f"must be fast or paper, got {text!r}")
    return PaperDual() if text == "paper" else text


@takes(
    "project", "seed time_limit",
    norm_bound="Largest norm allowed; below 1 the result provably mixes fast.",
    norm="inf, spectral, 1, frobenius or width.",
    dependency="Dependency bound: range or linf.",
    solver=Asked("fast, or paper for the dual of the paper.", None, _solver),
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
    files.check_model_output([model], output, as_json)
    given["divergence"] = _divergence(divergence, backend)
    loaded = files.load(model, evidence)
    result = loaded.answer(_project, **given)
    console.save_model(result.model, output, as_json)
    what = "width" if result.norm == "width" else f"{result.norm}, {result.dependency}"
    summary = (
        f"norm {result.norm_before:.6g} -> {result.norm_after:.6g} ({what}), squared distance "
        f"{result.squared_distance:.6g}, {_quality(result)}, {result.stats['seconds']:.3g} s"
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


def _divergence(name: str, backend: str | None) -> Divergence:
    """The divergence with this name, with its default settings but for the backend."""
    from fastmix.projection import ReversedKL, divergence_by_name

    if backend is None:
        return divergence_by_name(name)
    if name != "reversed-kl":
        raise ValueError(f"--backend needs --divergence reversed-kl, whose chains it is for, got {name}")
    return ReversedKL(backend=cast("Any", backend))


def _quality(result: ProjectionResult) -> str:
    """How close the projection is to the closest one, as far as that is known."""
    from fastmix.projection import Euclidean

    if isinstance(result.divergence, Euclidean):
        return f"duality gap {result.duality_gap:.3g}"
    return f"divergence {result.divergence_value:.6g} after {result.stats['num_steps']} steps"
