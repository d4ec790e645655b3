"""Exit codes: what an exception means to the shell."""

from __future__ import annotations

import os

import typer

from fastmix.errors import BadFileError, FastmixError, NotConvergedError, printable

__all__ = ["explain"]


def explain(error: BaseException) -> tuple[str, int] | None:
    """What to say about an exception, and the exit code: 1 interrupted or not converged, 2 refused, 3 a bad file.

    None for what no command is known to raise.
    """
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return "interrupted", 1
    if isinstance(error, BadFileError):
        return str(error), 3
    if isinstance(error, NotConvergedError):
        return str(error), 1
    if isinstance(error, OSError):
        return f"{printable(os.fsdecode(error.filename or 'output'))}: {error.strerror or error}", 2
    if isinstance(error, FastmixError | ValueError | MemoryError | ImportError):
        return str(error) or type(error).__name__, 2
    if hasattr(error, "format_message"):  # a usage error of the parser
        return f"{error.format_message()} (fastmix --help shows how)", 2
    return None
