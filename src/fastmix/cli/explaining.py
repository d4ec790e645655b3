"""The command ``explain``: what a status, an exit code or another word of an answer means, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from fastmix._checks import describe
from fastmix.cli import console, tables
from fastmix.cli.options import AsJson
from fastmix.results import Status

__all__ = ["EXPLANATIONS", "explain"]

_EXIT_CODES = {
    "0": "Done, and the answer meets what the method promises.",
    "1": "The answer is there, with its outputs, but is not to be trusted as it is: its status says why. certify "
    "leaves with 1 where nothing is certified.",
    "2": "Wrong usage, or a request that is refused: the method does not fit the model, the evidence is impossible, a "
    "limit of memory is passed. One line on stderr names the way out; there is no output.",
    "3": "A file is missing or damaged: one line on stderr names the file, the line and the word.",
    "143": "SIGTERM: outputs and the last checkpoint are written.",
}
_LOG_Z_KINDS = {
    "exact": "log_z_kind: log Z is exact up to rounding.",
    "estimate": "log_z_kind: log Z is an estimate, with log_z_std_error where the method has one.",
    "bound": "log_z_kind: there is no number but a proven bound, log_z_lower.",
    "zero": "log_z_kind: Z = 0 is proven, no configuration is possible.",
    "unknown": "log_z_kind: the method has no log Z. infer --log-z takes one that has.",
}
# And `time_limit`, which is a status, too: its advice serves for both.
_STOPPED_BY = {
    "done": "stopped_by: the sweeps, iterations or rule of the method were done.",
    "accuracy": "stopped_by: the accuracy that was asked for was reached.",
    "interrupt": "stopped_by: Ctrl-C or SIGTERM.",
}

#: Words of answers, each with what it means; statuses say what to do.
EXPLANATIONS: dict[str, str] = {
    **{str(status): f"status: {status.advice}" for status in Status},
    **{code: f"exit code: {text}" for code, text in _EXIT_CODES.items()},
    **_LOG_Z_KINDS,
    **_STOPPED_BY,
}


def explain(
    word: Annotated[
        str | None, typer.Argument(metavar="[STATUS|CODE]", help="Such as not_mixed, or 2; all of them without.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What a status or an exit code means, and what to do about it.

    Knows also the words of log_z_kind and stopped_by.
    """
    chosen = EXPLANATIONS
    if word is not None:
        name = word.replace("-", "_")
        if name not in EXPLANATIONS:
            raise ValueError(f"STATUS must be one of {', '.join(EXPLANATIONS)}, got {describe(word)}")
        chosen = {name: EXPLANATIONS[name]}
    if as_json:
        console.emit_json({"explanations": chosen})
    elif word is not None:
        print(next(iter(chosen.values())))
    else:
        tables.show_facts("words of answers", chosen)
