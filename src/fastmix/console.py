"""What the command line shows: data on stdout, messages on stderr, and the exit codes."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from fastmix.errors import BadFileError, FormatError, ModelError
from fastmix.io import read_evidence, read_model, write_mar, write_model, write_pr
from fastmix.io.files import atomic_write
from fastmix.model import PairwiseMRF
from fastmix.results import InferenceResult, Status, jsonable

__all__ = ["emit_json", "load", "message", "save_answer", "save_model", "show_facts", "show_marginals", "working"]

_ROWS = 25  # variables shown on a terminal before the rest is only counted


def message(text: str) -> None:
    """One line on stderr."""
    print(f"fastmix: {text}", file=sys.stderr)


def load(path: str, evidence_path: str | None = None) -> tuple[PairwiseMRF, dict[int, int]]:
    """Model and evidence from files; anything wrong with them is a :class:`BadFileError`."""
    try:
        evidence = read_evidence(evidence_path) if evidence_path else {}
        model = read_model(path, evidence=evidence or None)
        if evidence_path:
            for variable, state in evidence.items():
                model.state_index(variable, state)
    except OSError as error:
        raise BadFileError(f"{error.filename or path}: {error.strerror or error}") from error
    except (FormatError, ModelError) as error:
        raise BadFileError(str(error)) from error
    return model, evidence


def save_model(model: PairwiseMRF, path: str) -> None:
    """Write a model, passing on what its format could not hold."""
    for note in write_model(model, path):
        message(f"note: {note}")


def save_answer(result: InferenceResult, path: str) -> None:
    """Write marginals as MAR, log Z as PR or everything as JSON, by the suffix."""
    if path.lower().endswith(".json"):
        with atomic_write(path) as file:
            file.write(_json(result.to_dict()))
    elif path.lower().endswith(".pr"):
        if result.log_z is None:
            raise ValueError(f"the method {result.method} gives no log Z to write to {path}")
        write_pr(result.log_z, path)
    else:
        write_mar(result.marginals, path)


def emit_json(data: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    sys.stdout.write(_json(data))


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(jsonable(data), allow_nan=False) + "\n"


def show_facts(title: str, facts: Mapping[str, str]) -> None:
    """A two-column table on stdout."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    for name, value in facts.items():
        table.add_row(name, value)
    Console(highlight=False).print(table)


def show_marginals(result: InferenceResult) -> None:
    """Marginals on stdout: a table for a terminal, MAR text for a pipe; the summary goes to stderr."""
    if sys.stdout.isatty():
        _marginal_table(result)
    else:
        write_mar(result.marginals, "-")
    log_z = "" if result.log_z is None else f", log Z = {result.log_z:.6f}"
    seconds = result.stats.get("seconds")
    message(f"method {result.method}, status {result.status}{log_z}, {seconds:.3g} s")
    if result.status != Status.OK:
        message(result.status.advice)


def _marginal_table(result: InferenceResult) -> None:
    from rich.console import Console
    from rich.table import Table

    model = result.model
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("variable", "most probable", "probability of each state"):
        table.add_column(heading, justify="left")
    for i, vector in enumerate(result.marginals[:_ROWS]):
        name = model.variable_names[i] if model.variable_names else str(i)
        best = int(vector.argmax())
        label = model.state_names[i][best] if model.state_names else str(best)
        shown = "  ".join(f"{p:.4f}" for p in vector[:8]) + ("  ..." if len(vector) > 8 else "")
        table.add_row(name, label, shown)
    Console(highlight=False).print(table)
    if model.num_variables > _ROWS:
        message(f"{model.num_variables - _ROWS:,} more variables: -o FILE.MAR or --json gives all of them")


@contextlib.contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner on stderr while something long runs, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield
