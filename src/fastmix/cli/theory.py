"""Commands about what is proven: ``certify``, ``bracket`` and ``project``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from fastmix.projection import Divergence, ProjectionResult

from fastmix.cli.options import AnySeed, AsJson, DivergenceName, Evidence, MemoryLimit, Model, TimeLimit
from fastmix.errors import NotConvergedError

__all__ = ["bracket", "certify", "project"]


def certify(
    model: Model,
    accuracy: Annotated[float, typer.Option(help="Total variation distance to reach, between 0 and 1.")] = 0.01,
    criterion: Annotated[
        str, typer.Option(help="auto, dobrushin, width, path or split; all but dobrushin are for random updates.")
    ] = "auto",
    dependency: Annotated[
        str, typer.Option(help="Dependency bound: exact, field, sigmoid, range, l1 or linf.")
    ] = "sigmoid",
    norm: Annotated[
        str | None, typer.Option(help="spectral, inf, 1 or frobenius; the smallest of them by default.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Order of updates: systematic or random; what the criterion is for by default.")
    ] = None,
    per_variable: Annotated[
        bool, typer.Option("--per-variable", help="Accuracy of every marginal instead of the joint distribution.")
    ] = False,
    max_updates: Annotated[
        float | None, typer.Option(help="More random updates count as not certified; 5e9 by default, inf for no limit.")
    ] = None,
    margin: Annotated[bool, typer.Option("--margin", help="How far all couplings could grow.")] = False,
    evidence: Evidence = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Whether Gibbs sampling provably mixes, and in how many sweeps; exit code 1 when not certified."""
    import fastmix
    from fastmix._clock import listening
    from fastmix.cli import console

    loaded, observed = console.load(model, evidence)
    with listening("auto", "certify"), console.answering(model, evidence):
        certificate = fastmix.certify(
            loaded,
            accuracy=accuracy,
            evidence=observed,
            criterion=criterion,
            dependency=cast("Any", dependency),  # checked by the call
            norm=cast("Any", norm),
            schedule=cast("Any", schedule),
            per_variable=per_variable,
            max_updates=max_updates,
            margin=margin,
            time_limit=time_limit,
        )
    if as_json:
        console.emit_json(certificate.to_dict(), loaded.condition(observed), observed)
    else:
        console.show_certificate(model, certificate)
    if not certificate.certified:
        raise typer.Exit(1)


def bracket(
    model: Model,
    confidence: Annotated[
        float | None, typer.Option(help="Tighten by draws; all bounds then hold together with this probability.")
    ] = None,
    num_draws: Annotated[int, typer.Option(help="Draws at most, with --confidence.")] = 20_000,
    memory_limit: MemoryLimit = None,
    seed: AnySeed = None,
    time_limit: TimeLimit = None,
    evidence: Evidence = None,
    as_json: AsJson = False,
) -> None:
    """Proven bounds on log Z and on every marginal, exact where that fits."""
    import fastmix
    from fastmix._memory import parse_bytes
    from fastmix.cli import console

    limit = None if memory_limit is None else parse_bytes(memory_limit)
    loaded, observed = console.load(model, evidence)
    with console.blaming_input(model, evidence):
        result = console.salvage(
            lambda: fastmix.bracket(
                loaded, evidence=observed, memory_limit=limit, time_limit=time_limit, confidence=confidence,
                num_draws=num_draws, seed=seed,
            )
        )  # fmt: skip
    if as_json:
        console.emit_json(result.to_dict(), loaded, observed)
    else:
        console.show_bracket(result)
    if result.status != "ok":
        console.message(f"status {result.status}: {result.status.advice}")
        raise typer.Exit(1)


def project(
    model: Model,
    norm_bound: Annotated[float, typer.Option(help="Largest norm allowed; below 1 the result provably mixes fast.")],
    norm: Annotated[str, typer.Option(help="inf, spectral, 1, frobenius or width.")] = "inf",
    divergence: DivergenceName = None,
    dependency: Annotated[str, typer.Option(help="Dependency bound: range or linf.")] = "range",
    solver: Annotated[str, typer.Option(help="fast, or paper for the dual of the paper.")] = "fast",
    tol: Annotated[float, typer.Option(help="Relative duality gap.")] = 1e-6,
    max_iter: Annotated[int, typer.Option(help="Iterations allowed.")] = 10_000,
    seed: AnySeed = None,
    time_limit: TimeLimit = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help="Where the chains of reversed-kl run: cpu (default), cuda, or auto for a GPU if there is one."
        ),
    ] = None,
    evidence: Evidence = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Where the projected model goes.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The closest model with a bounded dependency norm; UAI text on stdout without -o and --json."""
    import fastmix
    from fastmix.cli import console
    from fastmix.projection import PaperDual

    if output == "-" and as_json:
        raise ValueError("--json and -o - must not both write to stdout")
    if solver not in ("fast", "paper"):
        raise ValueError(f"--solver must be fast or paper, got {solver!r}")
    chosen = _divergence(divergence, backend)
    console.check_model_output(output)
    loaded, observed = console.load(model, evidence)
    code = 0
    with console.answering(model, evidence):
        try:
            result = fastmix.project(
                loaded,
                norm_bound=norm_bound,
                evidence=observed,
                norm=cast("Any", norm),  # checked by the call
                divergence=chosen,
                dependency=cast("Any", dependency),
                seed=seed,
                time_limit=time_limit,
                tol=tol,
                max_iter=max_iter,
                solver="fast" if solver == "fast" else PaperDual(),
            )
        except NotConvergedError as error:
            console.message(str(error))
            result, code = error.result, 1
    if output or not as_json:
        console.save_model(result.model, output or "-")
    if as_json:
        console.emit_json(result.to_dict(), result.model, observed)
    else:
        what = norm if norm == "width" else f"{norm}, {dependency}"
        console.message(
            f"norm {result.norm_before:.6g} -> {result.norm_after:.6g} ({what}), "
            f"squared distance {result.squared_distance:.6g}, {_quality(result)}, {result.stats['seconds']:.3g} s"
        )
    if code or result.status != "ok":
        raise typer.Exit(1)


def _divergence(name: str | None, backend: str | None) -> Divergence:
    """The divergence with this name, with its default settings but for the backend."""
    from fastmix.projection import ReversedKL, divergence_by_name

    if backend is None:
        try:
            return divergence_by_name("euclidean" if name is None else name)
        except ValueError as error:
            raise ValueError(f"--{error}") from None
    if name != "reversed-kl":
        raise ValueError(f"--backend needs --divergence reversed-kl, whose chains it is for, got {name or 'none'}")
    if backend not in ("cpu", "cuda", "auto"):
        raise ValueError(f"--backend must be cpu, cuda or auto, got {backend!r}")
    return ReversedKL(backend=cast("Any", backend))


def _quality(result: ProjectionResult) -> str:
    """How close the projection is to the closest one, as far as that is known."""
    from fastmix.projection import Euclidean

    if isinstance(result.divergence, Euclidean):
        return f"duality gap {result.duality_gap:.3g}"
    return f"divergence {result.divergence_value:.6g} after {result.stats['num_steps']} steps"
