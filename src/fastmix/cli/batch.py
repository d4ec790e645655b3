"""Batches of ``infer``: several models, whose answers go to a folder, and a table of them on stdout."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import typer

from fastmix._clock import Ending
from fastmix.cli import console, files, tables
from fastmix.cli.tuning import MAX_TASKS_AHEAD, PIPE_PATIENCE_SECONDS, WORKER_GRACE_SECONDS
from fastmix.io import write_answer
from fastmix.io.answers import missing_answer

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fastmix.executors import Pool
    from fastmix.marginals import InferenceResult

__all__ = ["BatchTask", "check_batch", "is_batch", "run_batch"]

_WRITTEN_SUFFIXES = (".MAR", ".PR")

T = TypeVar("T")


class Refusal(NamedTuple):
    """The reason why there is no answer for a file, and the exit code that it means."""

    reason: str
    code: int


Outcome: TypeAlias = "InferenceResult | Refusal"


@dataclass(frozen=True)
class BatchTask:
    """A model of a batch."""

    path: str  # the file of the model
    evidence: str | None  # the file of its evidence
    place: str | None = None  # the name of its answers without their suffix; None where they are not written


def is_batch(models: Sequence[str], outputs: Sequence[str]) -> bool:
    """Whether there are several models, or a folder for the answers of one."""
    return len(models) > 1 or any(map(_names_folder, outputs))


def _names_folder(path: str) -> bool:
    """Whether an output is a folder: it ends as one, or is there and has no suffix."""
    has_suffix = bool(os.path.splitext(path)[1])
    return path.endswith(("/", os.sep)) or (os.path.isdir(path) and not has_suffix)


def check_batch(
    models: Sequence[str], outputs: Sequence[str], evidence: str | None, no_evidence: bool
) -> list[BatchTask]:
    """The tasks of a batch; a ValueError where an answer would replace another one or an input.

    The folder of the answers is made, if one is given.
    """
    if len(outputs) > 1:
        raise ValueError(f"-o must be one folder for several models, got {', '.join(map(repr, outputs))}")
    if models.count("-") > 1:
        raise ValueError("MODEL... must have - once: stdin holds one model")
    if evidence is not None and len(models) > 1 and not _can_be_read_again(evidence):
        raise ValueError(f"--evidence must be a file for several models, which can be read again, got {evidence!r}")
    chosen = [files.choose_evidence(path, evidence, no_evidence) for path in models]
    if not outputs:
        return [BatchTask(path, found) for path, found in zip(models, chosen, strict=True)]
    folder = outputs[0]
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"-o must be a folder for several models, got {folder!r}")
    files.check_output_folder(folder)
    tasks = []
    for path, found in zip(models, chosen, strict=True):
        name = "stdin" if path == "-" else os.path.basename(path)
        tasks.append(BatchTask(path, found, os.path.join(folder, name)))
    _check_places(tasks)
    os.makedirs(folder, exist_ok=True)
    return tasks


def _can_be_read_again(evidence: str) -> bool:
    """Whether evidence can be read for several models: pairs, or a file that is no pipe.

    A file that is not there counts too, since reading it gives the better message.
    """
    return evidence != "-" and (not os.path.exists(evidence) or stat.S_ISREG(os.stat(evidence).st_mode))


def _check_places(tasks: Sequence[BatchTask]) -> None:
    """Refuse two models whose answers have one name, and an answer that would replace a file that is read."""
    used: dict[str | None, str] = {}
    inputs: dict[tuple[int, int] | str, str] = {}
    for task in tasks:
        if task.place in used:
            both = f"{used[task.place]!r} and {task.path!r}"
            raise ValueError(f"MODEL... must have different names, for the files in -o, got {both}")
        used[task.place] = task.path
        for path in (task.path, task.evidence):
            if path is not None and path != "-":
                inputs[_identity(path)] = path
    for task in tasks:
        for suffix in _WRITTEN_SUFFIXES:
            replaced = inputs.get(_identity(f"{task.place}{suffix}"))
            if replaced is not None:
                answer = f"the answer for {task.path!r} would replace"
                raise ValueError(f"-o must not hold the input {replaced!r}, which {answer}")


def _identity(path: str) -> tuple[int, int] | str:
    """The device and number of a file, which all of its names share; its full path where it is not there yet."""
    try:
        found = os.stat(path)
    except OSError:
        return os.path.realpath(path)
    return found.st_dev, found.st_ino


def run_batch(executor: Executor | None, tasks: Sequence[BatchTask], options: dict[str, Any], as_json: bool) -> None:
    """Answers for several files into their folder, and a table of them; the exit code is the worst of all."""
    rows: list[dict[str, Any]] = []
    worst = 0
    with Ending() as ending:
        for task, outcome in zip(tasks, _answers(executor, tasks, options), strict=True):
            row, code = _row(task, outcome)
            rows.append(row)
            worst = max(worst, code)
            if not isinstance(outcome, Refusal) and outcome.stats.get("stopped_by") == "interrupt":
                break
    if ending.interrupted:  # between two answers, or before there was one
        console.message(f"interrupted after {len(rows)} of {len(tasks)} files")
        worst = max(worst, 1)
    if as_json:
        console.emit_json({"files": rows, "num_failed": sum(row["status"] != "ok" for row in rows)})
    else:
        tables.show_batch(rows)
    if worst:
        raise typer.Exit(worst)


def _row(task: BatchTask, outcome: Outcome) -> tuple[dict[str, Any], int]:
    """The row of the table for one file, whose answer is written, and its exit code."""
    row: dict[str, Any] = {"file": task.path, "evidence": task.evidence, "method": None, "status": "", "log_z": None}
    row |= {"log_z_kind": "unknown", "seconds": None}
    if isinstance(outcome, Refusal):
        row["status"] = {3: "bad file", 2: "refused"}.get(outcome.code, "not_converged")
        console.message(outcome.reason)
        return {**row, "note": outcome.reason}, outcome.code

    row |= {name: getattr(outcome, name) for name in ("method", "status", "log_z", "log_z_kind")}
    row["seconds"] = outcome.stats["seconds"]
    code = int(outcome.status != "ok")
    note = console.explain_status(outcome) if code else ""
    refusal = None if task.place is None else _attempt(partial(_write, outcome, task.place))
    if refusal is not None:
        row["status"] = "not written"
        note = f"{task.path}: the answer could not be written: {refusal.reason}"
        code = 2
        console.message(note)
    return {**row, "note": note}, code


def _write(outcome: InferenceResult, place: str) -> None:
    """Write an answer to its files; what it does not have, such as a log Z that means something, gets no file."""
    for suffix in _WRITTEN_SUFFIXES:
        if missing_answer(outcome, suffix.lower()) is None:
            write_answer(outcome, f"{place}{suffix}")


def _attempt(call: Callable[[], T]) -> T | Refusal:
    """The result of a call, or the reason why it failed, for errors that commands are known to raise."""
    try:
        return call()
    except Exception as error:
        known = console.explain(error)
        if known is None or isinstance(error, BrokenPipeError):
            raise
        return Refusal(*known)


def _load(task: BatchTask) -> files.Input | Refusal:
    """The model and evidence of a task, or why they cannot be read."""
    return _attempt(lambda: files.load(task.path, task.evidence, patience=PIPE_PATIENCE_SECONDS))


def _answer(work: tuple[files.Input | Refusal, dict[str, Any]]) -> Outcome:
    """The answer for one file that has been read already, so that a worker need not see the file."""
    loaded, options = work
    return _attempt(lambda: loaded.infer(**options)) if isinstance(loaded, files.Input) else loaded


def _answers(executor: Executor | None, tasks: Sequence[BatchTask], options: dict[str, Any]) -> Iterator[Outcome]:
    """Answers in the order of the tasks, by workers if there are any; when these are lost, this process goes on."""
    rest = list(tasks)
    if executor is not None:
        yield from _answers_by_workers(executor, rest, options)
    for task in rest:
        yield _answer((_load(task), options))


def _answers_by_workers(executor: Executor, rest: list[BatchTask], options: dict[str, Any]) -> Iterator[Outcome]:
    """Answers by workers until they are lost; tasks that have been answered are taken out of ``rest``."""
    from fastmix.executors import LostError, SilentError, as_pool

    num_tasks = len(rest)
    pool = as_pool(executor)
    pool.ahead = min(pool.ahead, MAX_TASKS_AHEAD)
    restarted = False  # for the task that is next
    while rest:
        try:
            for outcome in _by_workers(pool, rest.copy(), options):
                del rest[0]
                restarted = False
                yield outcome
        except LostError as error:
            # Workers of ours are started afresh, once for every file.
            if isinstance(error, SilentError) and pool.ours and not restarted:
                console.message(f"{error}: starting other workers")
                restarted = True
                continue
            console.message(f"{error}: this process goes on with {len(rest)} of {num_tasks} files")
            return


def _by_workers(pool: Pool, tasks: Sequence[BatchTask], options: dict[str, Any]) -> Iterator[Outcome]:
    """Answers by workers, which have one thread each; a task whose process dies is refused."""
    from fastmix.executors import CrashError, run_in_order
    from fastmix.method import find_method

    threads = {"num_threads": 1} if find_method(options["method"]).threaded else {}
    own = {**threads, **options, "progress": None}
    work = ((_load(task), own) for task in tasks)
    for outcome in run_in_order(_answer, work, pool, patience=_patience(options)):
        yield Refusal(str(outcome), 2) if isinstance(outcome, CrashError) else outcome


def _patience(options: dict[str, Any]) -> float | None:
    """Seconds without an answer after which workers count as frozen; None where a file may take as long as it likes."""
    from fastmix.method import find_method, make_method, options_of

    limit = options.get("time_limit")
    if limit is None:
        known = options_of(find_method(options["method"]))
        own = {name: options[name] for name in known if name in options}
        limit = make_method(options["method"], own).default_limit()
    return None if limit is None else 2.0 * limit + WORKER_GRACE_SECONDS
