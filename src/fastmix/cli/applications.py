"""Commands built on everything else: ``denoise`` and ``experiment``."""

from __future__ import annotations

import contextlib
import logging
from typing import Annotated, Any

import typer

from fastmix.cli.options import AnySeed, AsJson, NumThreads, TimeLimit

__all__ = ["denoise", "experiment", "warm_up"]


def denoise(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="PNG, JPEG or another picture.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT.png", help="Noisy, marginals, labels.")],
    noise: Annotated[
        str, typer.Option(metavar="EXPONENT", help="Of the noise that is added; none takes the picture as noisy.")
    ] = "1.25",
    method: Annotated[str | None, typer.Option(help="annealed (default), or one of fastmix infer.")] = None,
    size: Annotated[str, typer.Option(metavar="WxH", help="Scale the picture down to fit.")] = "120x80",
    full_size: Annotated[bool, typer.Option("--full-size", help="Take the picture as large as it is.")] = False,
    seed: AnySeed = None,
    num_threads: NumThreads = None,
    time_limit: TimeLimit = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """A black-and-white picture behind a noisy one, with the probability of every pixel."""
    from fastmix.cli import console
    from fastmix.denoising import DEFAULT_METHOD, load_image, parse_size, write_comparison
    from fastmix.denoising import denoise as run

    exponent = None if noise == "none" else _number("--noise", noise)
    box = None if full_size else parse_size(size)
    console.check_picture_name(output)
    console.check_outputs(image, [output])
    picture = console.load_picture(lambda: load_image(image, box), image)
    result = console.salvage(
        lambda: run(
            picture, noise=exponent, method=method or DEFAULT_METHOD, seed=seed, num_threads=num_threads,
            time_limit=time_limit, **options,
        )
    )  # fmt: skip
    write_comparison(result, output)
    if as_json:
        console.emit_json({**result.to_dict(), "output": output})
    else:
        wrong = "" if result.error_rate is None else f", {100 * result.error_rate:.1f} % of the pixels wrong"
        rows, cols = result.observed.shape
        console.message(
            f"{cols}x{rows} pixels, method {result.inference.method}, status {result.inference.status}{wrong}, "
            f"{result.stats['seconds']:.3g} s: {output}"
        )
    if result.inference.status != "ok":
        raise typer.Exit(1)


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="strength-grid, potts, .., or all; see the docs.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Rows, figures and report.html.")],
    trials: Annotated[int | None, typer.Option(help="Instances for every point; 50 by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small version: minutes instead of hours.")] = False,
    methods: Annotated[str | None, typer.Option(metavar="NAMES", help="Separated by commas; all by default.")] = None,
    images: Annotated[str | None, typer.Option(metavar="DIR", help="Photographs for denoise.")] = None,
    seed: Annotated[int, typer.Option(help="Root of all randomness.")] = 0,
    num_workers: Annotated[int | None, typer.Option(help="Processes; as many as processors by default.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Of a running Dask scheduler, such as tcp://host:8786.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A figure or table of the paper, or what is missing of it; ends with the path of its report."""
    from fastmix import experiments
    from fastmix._clock import Report, bar_shown
    from fastmix.cli import console

    chosen = None if methods is None else [word.strip() for word in methods.split(",") if word.strip()]
    console.check_output_folder(output)
    with contextlib.ExitStack() as stack:
        if cluster is not None:  # Dask logs tracebacks when a scheduler dies: what that means is said below
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
        executor = None if cluster is None else stack.enter_context(experiments.cluster(cluster))
        progress: Report = "auto" if bar_shown() else console.rows_told()
        stack.enter_context(console.blaming_input(output))
        result = experiments.run_experiment(
            name, output, trials=trials, quick=quick, methods=chosen, seed=seed, images=images, executor=executor,
            num_workers=num_workers, progress=progress,
        )  # fmt: skip
    if as_json:
        console.emit_json(result.to_dict())
    else:
        failed = f", {result.num_failed} failed" if result.num_failed else ""
        console.show_path(result.report)
        console.message(f"{result.num_rows} rows, {result.num_run} of them new{failed}, {result.seconds:.0f} s")
    if result.note:
        console.message(result.note)
    if result.status != "ok" or result.num_failed:
        raise typer.Exit(1)


def warm_up(as_json: AsJson = False) -> None:
    """Compile everything once, so that no later command has to."""
    import fastmix
    from fastmix.cli import console

    result = fastmix.warm_up()
    if as_json:
        console.emit_json(result.to_dict())
    else:
        facts = {name: f"{seconds:.2f} s" for name, seconds in result.parts.items()}
        console.show_facts(f"compiled or loaded in {result.stats['compile_seconds']:.1f} s", facts)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number or none, got {text!r}") from None
