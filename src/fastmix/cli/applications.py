"""Commands built on everything else: ``denoise`` and ``experiment``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import fastmix
from fastmix.cli import console, files
from fastmix.cli.options import AsJson, Asked, Cluster, takes
from fastmix.errors import printable

__all__ = ["denoise", "experiment", "warm_up"]


@takes(
    "denoising.denoise", "seed num_threads time_limit backend",
    labels=Asked("Grey levels of the result; found from the picture by default.", "K"),
    noise=Asked("Of the noise of --simulate-noise; 1.25 by default.", "EXPONENT"),
    coupling="How strongly neighbors want to agree; learnt from the picture by default.",
    data_weight="How much a pixel believes its grey value; learnt by default.",
    method="One of fastmix infer; annealed by default, loopy-bp for photographs.",
)  # fmt: skip
def denoise(
    image: Annotated[str, typer.Argument(metavar="IMAGE", help="PNG, JPEG or another picture; colors become grey.")],
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
    """The clean picture behind a noisy one: photographs in grey, or black and white."""
    from fastmix.denoising import denoise as run
    from fastmix.denoising import load_image, parse_size, write_comparison, write_picture
    from fastmix.denoising.images import MAX_PIXELS, PICTURES
    from fastmix.denoising.posterior import NOISE

    if "noise" in given and not simulate_noise:
        raise ValueError("--noise must come with --simulate-noise, which adds it")
    if full_size and size is not None:
        raise ValueError("--full-size and --size must not both be given")
    if simulate_noise and size is None and not full_size:
        size = "120x80"
    box = None if size is None else parse_size(size)
    if not output.lower().endswith(PICTURES):
        raise ValueError(f"-o must name a picture such as out.png, got {output!r}")
    files.check_outputs([image], [output])
    most = MAX_PIXELS if max_pixels is None else max_pixels
    picture = files.read(load_image, image, size=box, max_pixels=most)
    if simulate_noise:
        given.setdefault("noise", NOISE)
    result = files.salvage(lambda: run(picture, **given, **options))
    (write_comparison if panels else write_picture)(result, output)
    wrong = "" if result.error_rate is None else f", {100 * result.error_rate:.1f} % of the pixels wrong"
    rows, cols = result.observed.shape
    learnt = f"coupling {result.stats['coupling']:.3g}, data weight {result.stats['data_weight']:.3g}"
    summary = (
        f"{cols}x{rows} pixels, {len(result.levels)} labels, {learnt}, method {result.inference.method}, status "
        f"{result.status}{wrong}, {result.stats['seconds']:.3g} s: {output}"
    )
    console.finish(result, as_json, lambda: console.message(summary), tell=False, output=output)


@takes(
    "experiments.run_experiment", "methods",
    trials="Instances for every point; 50 by default.",
    quick="A small version: minutes instead of hours.",
    images=Asked("Photographs for denoise.", "DIR"),
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
    """A figure or table of the paper, or what is missing of it; ends with the path of its report."""
    from fastmix import experiments

    files.check_output_folder(output)
    with console.workers(cluster, num_workers) as executor, files.blaming_input(output):
        result = files.salvage(lambda: experiments.run_experiment(name, output, executor=executor, **given))
    if as_json:
        console.emit_json(result.to_dict())
    else:
        failed = f", {result.num_failed} failed" if result.num_failed else ""
        print(printable(str(result.report)))
        console.message(f"{result.num_rows} rows, {result.num_run} of them new{failed}, {result.seconds:.0f} s")
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
        console.show_facts(f"compiled or loaded in {result.stats['compile_seconds']:.1f} s", facts)
