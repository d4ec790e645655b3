"""Commands built on everything else: ``denoise``, ``experiment`` and ``warm-up``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

import fastmix
from fastmix.cli import console, files, tables
from fastmix.cli.options import AsJson, Cluster, OptionSpec, takes, words
from fastmix.errors import printable

if TYPE_CHECKING:
    from fastmix.denoising.denoise import DenoiseResult

__all__ = ["denoise", "experiment", "warm_up"]

PAPER_SIZE = "120x80"  # pixels of the photographs in the paper's experiment


def _numbers(text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(word) for word in words(text)]
    except ValueError:
        raise ValueError(f"must be numbers separated by commas, got {text!r}") from None


@takes(
    "denoising.denoise", "seed num_threads time_limit backend",
    num_labels=OptionSpec("Gray levels of the result; found from the picture by default.", "K"),
    noise=OptionSpec("Exponent of the noise of --simulate-noise; 1.25 by default.", "EXPONENT"),
    coupling="How strongly neighbors want to agree; learned from the picture by default.",
    data_weight="How much a pixel believes its gray value; learned by default.",
    method="A method of fastmix infer; annealed by default, loopy-bp for photographs. "
    "Options of a method: fastmix denoise --method gibbs --help.",
)  # fmt: skip
def denoise(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="PNG, JPEG or another picture; colors become gray.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="OUT.png", help="The clean picture.")],
    panels: Annotated[bool, typer.Option("--panels", help="Noisy, probabilities and result side by side.")] = False,
    simulate_noise: Annotated[
        bool, typer.Option("--simulate-noise", help="The paper's experiment: black and white, then noise, then clean.")
    ] = False,
    size: Annotated[
        str | None, typer.Option(metavar="WxH", help="Scale down to fit; 120x80 by default with --simulate-noise.")
    ] = None,
    full_size: Annotated[bool, typer.Option("--full-size", help="Full size with --simulate-noise too.")] = False,
    max_pixels: Annotated[
        int | None, typer.Option(metavar="N", help="Refuse larger pictures; 1,000,000 by default.")
    ] = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
    options: dict[str, Any],
) -> None:
    """The clean picture behind a noisy one.

    For photographs in gray, or in black and white.
    """
    from fastmix.denoising import denoise as run
    from fastmix.denoising import load_image, parse_size, write_comparison, write_picture
    from fastmix.denoising.images import MAX_PIXELS, PICTURES
    from fastmix.denoising.posterior import NOISE

    if "noise" in given and not simulate_noise:
        raise ValueError("--noise must come with --simulate-noise, which adds it")
    if full_size and size is not None:
        raise ValueError("--full-size and --size must not both be given")
    if simulate_noise and size is None and not full_size:
        size = PAPER_SIZE
    box = None if size is None else parse_size(size)
    if not output.lower().endswith(PICTURES):
        raise ValueError(f"-o must name a picture such as out.png, got {output!r}")
    files.check_outputs([image], [output])
    limit = MAX_PIXELS if max_pixels is None else max_pixels
    picture = files.read(load_image, image, size=box, max_pixels=limit)
    if simulate_noise:
        given.setdefault("noise", NOISE)
    result = files.salvage(lambda: run(picture, **given, **options))
    write = write_comparison if panels else write_picture
    write(result, output)
    console.finish(result, as_json, lambda: _show_denoised(result, output), tell=False, output=output)


def _show_denoised(result: DenoiseResult, output: str) -> None:
    """Say on stderr what was done, and what is guaranteed about it."""
    console.message(_denoising_summary(result, output))
    console.tell_guarantee(result)


def _denoising_summary(result: DenoiseResult, output: str) -> str:
    """A line about a clean picture: its size, the settings found, and where it is."""
    rows, cols = result.observed.shape
    settings = f"coupling {result.stats['coupling']:.3g}, data weight {result.stats['data_weight']:.3g}"
    wrong = "" if result.error_rate is None else f", {100 * result.error_rate:.1f} % of the pixels wrong"
    return (
        f"{cols}x{rows} pixels, {len(result.levels)} labels, {settings}, method {result.inference.method}, status "
        f"{result.status}{wrong}, {result.stats['seconds']:.3g} s: {output}"
    )


@takes(
    "experiments.run_experiment", "methods",
    num_trials="Instances for every point; 50 by default.",
    quick="A small version: minutes instead of hours.",
    kinds=OptionSpec("attractive, mixed or both, separated by commas; all by default.", "NAMES", words),
    strengths=OptionSpec("Largest couplings, separated by commas; those of the paper by default.", "NUMBERS", _numbers),
    images=OptionSpec("Photographs for denoise.", "DIR"),
    seed="Root of all randomness.",
)  # fmt: skip
def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help="strength-grid, potts, .., or all; see the docs.")],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Rows, figures and report.html.")],
    num_workers: Annotated[int | None, typer.Option(help="Processes; as many as processors by default.")] = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Reproduce a figure or table of Liu and Domke (2014).

    Rows that are in the folder already are not run again; stdout has the path of the report.
    """
    from fastmix import experiments

    files.check_output_folder(output)
    with console.workers(cluster, num_workers) as executor, files.blaming_input(output):
        result = files.salvage(lambda: experiments.run_experiment(name, output, executor=executor, **given))
    if as_json:
        console.emit_json(result.to_dict())
    else:
        failed = f", {result.num_failed} failed" if result.num_failed else ""
        print(printable(str(result.report)))
        console.message(
            f"{result.num_rows} rows, {result.num_run} of them new{failed}, {result.stats['seconds']:.0f} s"
        )
    if result.note:
        console.message(result.note)
    if result.status != "ok" or result.num_failed:
        raise typer.Exit(1)


def warm_up(as_json: AsJson = False) -> None:
    """Compile everything once, so that no later command has to."""
    result = fastmix.warm_up()
    if as_json:
        console.emit_json(result.to_dict())
    else:
        facts = {name: f"{seconds:.2f} s" for name, seconds in result.parts.items()}
        tables.show_facts(f"compiled or loaded in {result.stats['compile_seconds']:.1f} s", facts)
