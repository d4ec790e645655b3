"""Batches of ``infer``: answers for several models, into a folder, by workers if there are any; and a table of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import typer

from fastmix.cli import console, files
from fastmix.io import write_answer
from fastmix.io.answers import missing_answer

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.executors import Pool
    from fastmix.results import InferenceResult

__all__ = ["Task", "check_batch", "is_batch", "run_batch"]

_MOST_AHEAD = 256  # models that are read before their turn
_WRITTEN = (".MAR", ".PR")
_PIPE_PATIENCE = 3.0  # seconds for somebody to write to a named pipe: folders may hold some that nobody does
# What workers may take beyond twice the time limit of a file before they count as frozen: to start, read and compile.
_WORKER_SECONDS = 60.0

T = TypeVar("T")
Refusal: TypeAlias = tuple[str, int]  # in words why there is no answer for a file, and the exit code
Outcome: TypeAlias = "InferenceResult | Refusal"


@dataclass(frozen=True)
class Task:
    """A model of a batch: the file, that of its evidence, and the name of its answers without their suffix."""

    path: str
    evidence: str | None
    place: str | None = None


def is_batch(models: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether there are several models, or a folder for the answers of one."""
    return len(models) > 1 or any(map(_names_folder, outputs))


def _names_folder(path: str) -> bool:
    has_suffix = bool(os.path.splitext(path)[1])
    return path.endswith(("/", os.sep)) or (os.path.isdir(path) and not has_suffix)


def check_batch(models: Sequence[str], outputs: Sequence[str], evidence: str | None, no_evidence: bool) -> list[Task]:
    """The tasks of a batch, after a check that no answer replaces another one or an input; makes their folder."""
    if len(outputs) > 1:
        raise ValueError(f"-o must be one folder for several models, got {', '.join(map(repr, outputs))}")
    if models.count("-") > 1:
        raise ValueError("MODEL... must have - once: stdin holds one model")
    if evidence is not None and len(models) > 1 and not _can_be_read_again(evidence):
        raise ValueError(f"--evidence must be a file for several models, which can be read again, got {evidence!r}")
    chosen = [files.choose_evidence(path, evidence, no_evidence) for path in models]
    if not outputs:
        return [Task(path, found) for path, found in zip(models, chosen, strict=True)]
    folder = outputs[0]
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"-o must be a folder for several models, got {folder!r}")
    files.check_output_folder(folder)
    places = [os.path.join(folder, "stdin" if path == "-" else os.path.basename(path)) for path in models]
    tasks = [Task(*parts) for parts in zip(models, chosen, places, strict=True)]
    _check_places(tasks)
    os.makedirs(folder, exist_ok=True)
    return tasks


def _can_be_read_again(evidence: str) -> bool:
    """Whether evidence is pairs, a file that is not there (which is said later), or a file that is no pipe."""
    return evidence != "-" and (not os.path.exists(evidence) or stat.S_ISREG(os.stat(evidence).st_mode))


def _check_places(tasks: Sequence[Task]) -> None:
    """A ValueError where two models have answers of one name, or an answer would replace a file that is read."""
    used: dict[str | None, str] = {}
    for task in tasks:
        if task.place in used:
            both = f"{used[task.place]!r} and {task.path!r}"
            raise ValueError(f"MODEL... must have different names, for the files in -o, got {both}")
        used[task.place] = task.path
    inputs = {_identity(path): path for task in tasks for path in (task.path, task.evidence) if path not in (None, "-")}
    for task in tasks:
        for suffix in _WRITTEN:
            if (replaced := inputs.get(_identity(f"{task.place}{suffix}"))) is not None:
                answer = f"the answer for {task.path!r} would replace"
                raise ValueError(f"-o must not hold the input {replaced!r}, which {answer}")


def _identity(path: str | None) -> tuple[int, int] | str:
    """What two names of one file have in common."""
    assert path is not None
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def run_batch(executor: Executor | None, tasks: Sequence[Task], options: dict[str, Any], as_json: bool) -> None:
    """Answers for several files into their folder, and a table of them; the exit code is the worst of all."""
    rows: list[dict[str, Any]] = []
    worst = 0
    try:
        for task, outcome in zip(tasks, _answers(executor, tasks, options), strict=True):
            row, code = _row(task, outcome)
            rows.append(row)
            worst = max(worst, code)
            if not isinstance(outcome, tuple) and outcome.stats.get("stopped_by") == "interrupt":
                break
    except KeyboardInterrupt:  # between two answers, or before there was one
        console.message(f"interrupted after {len(rows)} of {len(tasks)} files")
        worst = max(worst, 1)
    if as_json:
        console.emit_json({"files": rows, "num_failed": sum(row["status"] != "ok" for row in rows)})
    else:
        console.show_batch(rows)
    if worst:
        raise typer.Exit(worst)


def _row(task: Task, outcome: Outcome) -> tuple[dict[str, Any], int]:
    """The row of the table for one file, whose answer is written, and its exit code."""
    row: dict[str, Any] = {"file": task.path, "evidence": task.evidence, "method": None, "status": "", "log_z": None}
    row |= {"log_z_kind": "unknown", "seconds": None}
    if isinstance(outcome, tuple):
        note, code = outcome
        row["status"] = "bad file" if code == 3 else "refused" if code == 2 else "not_converged"
        console.message(note)
        return {**row, "note": note}, code
    row |= {name: getattr(outcome, name) for name in ("method", "status", "log_z", "log_z_kind")}
    row["seconds"] = outcome.stats["seconds"]
    code = int(outcome.status != "ok")
    note = console.explain_status(outcome) if code else ""
    refusal = None if task.place is None else _attempt(partial(_write, outcome, task.place))
    if refusal is not None:
        row["status"] = "not written"
        note, code = f"{task.path}: the answer could not be written: {refusal[0]}", 2
        console.message(note)
    return {**row, "note": note}, code


def _write(outcome: InferenceResult, place: str) -> None:
    """Write what an answer has; what it lacks, such as a log Z that means something, has no file."""
    for suffix in _WRITTEN:
        if missing_answer(outcome, suffix.lower()) is None:
            write_answer(outcome, f"{place}{suffix}")


def _attempt(call: Callable[[], T]) -> T | Refusal:
    try:
        return call()
    except Exception as error:
        if (known := console.explain(error)) is None or isinstance(error, BrokenPipeError):
            raise
        return known


def _load(task: Task) -> files.Input | Refusal:
    return _attempt(lambda: files.load(task.path, task.evidence, patience=_PIPE_PATIENCE))


def _answer(work: tuple[files.Input | Refusal, dict[str, Any]]) -> Outcome:
    """The answer for one file, wherever this is called; workers need not see the file."""
    loaded, options = work
    return _attempt(lambda: loaded.infer(**options)) if isinstance(loaded, files.Input) else loaded


def _answers(executor: Executor | None, tasks: Sequence[Task], options: dict[str, Any]) -> Iterator[Outcome]:
    """Answers by workers, if there are any, one thread each; when they are lost this process goes on."""
    from fastmix.executors import LostError, SilentError, as_pool

    rest = list(tasks)
    if executor is not None:
        pool, silent = as_pool(executor), False
        pool.ahead = min(pool.ahead, _MOST_AHEAD)
        while rest:
            try:
                for outcome in _by_workers(pool, rest.copy(), options):
                    del rest[0]
                    silent = False
                    yield outcome
            except LostError as error:
                # Workers of ours are started afresh, once for every file.
                if isinstance(error, SilentError) and pool.ours and not silent:
                    console.message(f"{error}: starting other workers")
                    silent = True
                    continue
                console.message(f"{error}: this process goes on with {len(rest)} of {len(tasks)} files")
                break
    yield from (_answer((_load(task), options)) for task in rest)


def _by_workers(pool: Pool, tasks: Sequence[Task], options: dict[str, Any]) -> Iterator[Outcome]:
    from fastmix.executors import CrashError, run_in_order
    from fastmix.methods.base import find_method

    threads = {"num_threads": 1} if find_method(options["method"]).threaded else {}
    own = {**threads, **options, "progress": None}
    work = ((_load(task), own) for task in tasks)
    for outcome in run_in_order(_answer, work, pool, patience=_patience(options)):
        yield (str(outcome), 2) if isinstance(outcome, CrashError) else outcome


def _patience(options: dict[str, Any]) -> float | None:
    """Seconds after which workers that give no answer are frozen; None where a file may take as long as it likes."""
    from fastmix.methods.base import find_method, make_method, options_of

    limit = options.get("time_limit")
    if limit is None:
        known = options_of(find_method(options["method"]))
        limit = make_method(options["method"], {name: options[name] for name in known if name in options}).budget()
    return None if limit is None else 2.0 * limit + _WORKER_SECONDS
