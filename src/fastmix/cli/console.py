"""Messages on stderr, JSON and models on stdout, workers, and the exit codes of the commands."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from fastmix._checks import check_seconds
from fastmix.errors import BadFileError, FastmixError, FormatError, NotConvergedError, printable, shortened
from fastmix.io import write_answer, write_model
from fastmix.io.answers import answer_suffix, json_text, missing_answer
from fastmix.io.bif import write_bif
from fastmix.io.files import display_name
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "abandon",
    "emit_json",
    "explain",
    "explain_status",
    "finish",
    "flush_stderr",
    "message",
    "save_model",
    "say",
    "tell_guarantee",
    "workers",
]

_OPTIONS_IN_ADVICE = ("tol", "time_limit", "max_iter", "num_chains")  # arguments that are typed with dashes

# -- messages ---------------------------------------------------------------------------------------------------------


def message(text: str) -> None:
    """Write one line to stderr, after the data."""
    sys.stdout.flush()  # where the data cannot be written, there is nothing else to say
    say(f"fastmix: {shortened(printable(text))}")


def say(text: str) -> None:
    """Write a line to stderr; one that cannot be written (a full disk, a reader that has left) is given up."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        abandon(sys.stderr)


def flush_stderr() -> None:
    """Flush what others have written to stderr, so that Python's last flush cannot fail and change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        abandon(sys.stderr)


def abandon(stream: Any) -> None:
    """Send what a stream still has to write to the null device, so that Python's last flush cannot fail."""
    with contextlib.suppress(OSError, ValueError):  # a stand-in has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


# -- errors and verdicts ----------------------------------------------------------------------------------------------


#: What an option wants, by the kind of mistake that the parser names.
_NUMBERS = {"int_parsing": "a whole number", "float_parsing": "a number"}


def explain(error: BaseException) -> tuple[str, int] | None:
    """The text to show for an exception, with the exit code; None for an exception that no command is known to raise.

    The exit code is 1 for interrupted or not converged, 2 for refused, 3 for a bad file.
    """
    if isinstance(error, KeyboardInterrupt):
        return str(error) or "interrupted", 1
    if isinstance(error, BadFileError | FormatError):
        return str(error), 3
    if isinstance(error, NotConvergedError):
        return str(error), 1
    if isinstance(error, OSError):
        return f"{printable(os.fsdecode(error.filename or 'output'))}: {error.strerror or error}", 2
    if isinstance(error, FastmixError | ValueError | MemoryError | ImportError):
        return str(error) or type(error).__name__, 2
    if hasattr(error, "format_message"):  # a usage error of the parser
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "fastmix"
        return f"{_usage_text(error)} ({command} --help shows how)", 2
    return None


def _usage_text(error: Any) -> str:
    """What is wrong with a command line; for words that are no numbers, in the form of all other messages."""
    found = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []  # newer parsers keep the word
    wanted = _NUMBERS.get(found[0]["type"]) if found else None
    if wanted is None or getattr(error, "param", None) is None:
        return str(error.format_message())
    return f"{error.param.opts[0]} must be {wanted}, got {found[0]['input']!r}"


def tell_guarantee(result: Any) -> None:
    """Say on stderr what is guaranteed about an answer."""
    if result.stats.get("guarantee"):
        message(f"guarantee: {result.stats['guarantee']}")


def explain_status(result: Any) -> str:
    """Advice for the status of a result, and what its diagnostics say beyond it."""
    note = str(getattr(result, "stats", {}).get("note") or "")
    advice = str(getattr(result, "advice", result.status.advice))
    for name in _OPTIONS_IN_ADVICE:
        advice = re.sub(rf"\b{name}\b", f"--{name.replace('_', '-')}", advice)
    return f"{advice} {note[:1].upper()}{note[1:]}".strip()


# -- workers ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def workers(
    cluster: str | None, num_workers: int | None, method: str = "gibbs", *, time_limit: float | None = None
) -> Iterator[Executor | None]:
    """An executor for ``--cluster`` or ``--num-workers``, open while the command works; None without either.

    A scheduler that does not answer within the time limit counts as gone.
    """
    from fastmix import executors
    from fastmix.method import find_method

    if cluster is not None and num_workers is not None:
        raise ValueError(f"--num-workers must not come with --cluster, which has its own, got {num_workers}")
    shared = cluster is not None or num_workers is not None
    if shared and not find_method(method).shares:
        name = "--num-workers" if cluster is None else "--cluster"
        raise ValueError(
            f"{name} must come with several models to infer, or a method that has chains (gibbs, swendsen-wang, "
            f"tempered), got one model and {method}"
        )
    if num_workers is not None:
        with executors.processes(num_workers) as executor:
            yield executor
    elif cluster is None:
        yield None
    else:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # Dask logs tracebacks when a scheduler dies: commands say what it means
        try:
            with executors.cluster(cluster, patience=check_seconds(time_limit)) as executor:
                yield executor
        finally:
            logging.disable(before)


# -- results ----------------------------------------------------------------------------------------------------------


def save_model(model: MarkovRandomField | BayesianNetwork, output: str | None, as_json: bool) -> None:
    """Write a model, or a network as BIF, with notes on what its format lost; to stdout unless JSON goes there."""
    if output is None and as_json:
        return
    path = "-" if output is None else output
    notes = write_bif(model, path) if isinstance(model, BayesianNetwork) else write_model(model, path)
    for note in notes:
        message(f"note: {note}")


def emit_json(
    data: Mapping[str, Any], model: MarkovRandomField | None = None, evidence: Mapping[int, int] | None = None
) -> None:
    """One JSON object on stdout; with the names and evidence of a model that the data are about."""
    if model is not None:
        observed = {str(variable): state for variable, state in (evidence or {}).items()}
        names = {"variable_names": model.variable_names, "state_names": model.state_names}
        data = {**data, **names, "evidence": observed}
    sys.stdout.write(json_text(data))


def finish(
    result: Any,
    as_json: bool,
    show: Callable[[], object],
    *,
    outputs: Sequence[str] = (),
    plain: str = ".mar",
    checkpoint: str | None = None,
    tell: bool = True,
    notes: Sequence[str] = (),
    **facts: Any,
) -> None:
    """Write and show an answer; where it is not to be trusted, say why and leave with exit code 1.

    Parameters
    ----------
    result : Result
        The answer.
    as_json : bool
        Whether it is shown as one JSON object, with further ``facts``.
    show : callable
        Shows it otherwise, unless it goes to ``outputs``.
    outputs : sequence of str
        Files for the answer, each in the format of its suffix; ``-`` is stdout, in the format ``plain``.
    checkpoint : str, optional
        The checkpoint of the run, which is removed once the run is over and its answer written.
    tell : bool
        Whether to say why an answer is not trusted; not needed where ``show`` does.
    notes : sequence of str
        Lines for stderr after the answer.
    """
    _write_outputs(result, outputs, plain)
    if as_json:
        emit_json({**result.to_dict(), **facts})
    elif outputs:
        tell_guarantee(result)
    else:
        show()
    for note in notes:
        message(note)
    if checkpoint is not None and result.stats["stopped_by"] not in ("interrupt", "time_limit"):
        sys.stdout.flush()  # the answer may be there
        with contextlib.suppress(FileNotFoundError):
            os.remove(checkpoint)
    backend = str(getattr(result, "stats", {}).get("backend", ""))
    if "this process went on" in backend:
        message(backend.removeprefix("cpu (").removesuffix(")"))
    if result.status != "ok":
        if tell:
            message(f"status {result.status}: {explain_status(result)}")
        raise typer.Exit(1)


def _write_outputs(result: Any, outputs: Sequence[str], plain: str) -> None:
    """Write an answer to files, in the formats of their suffixes; say so where it has nothing for one."""
    for path in outputs:
        missing = missing_answer(result, plain if path == "-" else answer_suffix(path, name="-o"))
        if missing is None:
            write_answer(result, path, plain)
        else:
            message(f"{display_name(path)} is not written: {missing}")
