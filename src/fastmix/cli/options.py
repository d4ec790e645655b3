"""Arguments and options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "Accuracy", "AnySeed", "AsJson", "BurnIn", "CheckpointFile", "Evidence", "Model", "NumChains", "NumSweeps",
    "Output", "TimeLimit",
]  # fmt: skip

Model = Annotated[str, typer.Argument(metavar="MODEL", help="UAI or npz file, plain, gzip or xz; - is stdin.")]
Evidence = Annotated[str | None, typer.Option("--evidence", "-e", metavar="FILE", help="Observed states (UAI).")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
NumChains = Annotated[int | None, typer.Option(help="Independent chains; 64 by default.")]
NumSweeps = Annotated[int | None, typer.Option(help="Sweeps averaged in every chain; 10,000 by default.")]
BurnIn = Annotated[int | None, typer.Option(help="Sweeps before; a tenth of --num-sweeps by default.")]
Accuracy = Annotated[
    float | None, typer.Option(help="Instead of sweeps: error to reach with 95 % confidence, for certified models.")
]
AnySeed = Annotated[int | None, typer.Option(help="The same seed gives the same answer; drawn when not given.")]
TimeLimit = Annotated[float | None, typer.Option(metavar="SECONDS", help="Return what there is after this time.")]
CheckpointFile = Annotated[
    str | None, typer.Option("--checkpoint", metavar="FILE", help="Save the run here, and go on from it if it exists.")
]
