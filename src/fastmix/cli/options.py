"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

if TYPE_CHECKING:
    from fastmix.projection import Divergence

__all__ = [
    "Accuracy", "AnySeed", "AsJson", "Backend", "BurnIn", "CheckpointFile", "DivergenceName", "Evidence",
    "MemoryLimit", "Model", "NumChains", "NumSweeps", "NumThreads", "Output", "TimeLimit",
    "parse_divergence",
]  # fmt: skip

Model = Annotated[str, typer.Argument(metavar="MODEL", help="UAI or npz file, plain, gzip or xz; - is stdin.")]
Evidence = Annotated[str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Observed states (UAI).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
NumChains = Annotated[int | None, typer.Option(help="Independent chains; 64 by default, fewer for very large models.")]
NumSweeps = Annotated[int | None, typer.Option(help="Sweeps averaged in every chain; 10,000 by default.")]
BurnIn = Annotated[int | None, typer.Option(help="Sweeps before; a tenth of --num-sweeps by default.")]
Accuracy = Annotated[
    float | None, typer.Option(help="Instead of sweeps: error to reach with 95 % confidence, for certified models.")
]
AnySeed = Annotated[int | None, typer.Option(help="The same seed gives the same answer; drawn when not given.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Return what there is then; compiling and files are not counted."),
]
Backend = Annotated[
    str | None,
    typer.Option(help="Where gibbs, tempered, loopy-bp run: cpu (default), cuda, or auto for a GPU if any."),
]
NumThreads = Annotated[int | None, typer.Option(help="All cores by default; does not change the answer.")]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; half of the free memory by default.")
]
DivergenceName = Annotated[
    str | None, typer.Option("--divergence", help="euclidean, kl, piecewise-kl or reversed-kl: what closest means.")
]
CheckpointFile = Annotated[
    str | None, typer.Option("--checkpoint", metavar="FILE", help="Save the run here, and go on from it if it exists.")
]


def parse_divergence(name: str | None, backend: str | None = None) -> Divergence | None:
    """The divergence with this name, with its default settings but for the backend; None stays None."""
    if name is backend is None:
        return None
    from fastmix.projection import ReversedKL, divergence_by_name

    if backend is not None:
        if name != ReversedKL.name:
            raise ValueError(f"--backend needs --divergence reversed-kl, whose chains it is for, got {name or 'none'}")
        if backend not in ("cpu", "cuda", "auto"):
            raise ValueError(f"--backend must be cpu, cuda or auto, got {backend!r}")
        return ReversedKL(backend=cast("Any", backend))
    try:
        return divergence_by_name(str(name))
    except ValueError as error:
        raise ValueError(f"--{error}") from None
