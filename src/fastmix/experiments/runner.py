"""``run_experiment()``: plan, run what is missing, write figures and the report."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastmix._clock import Progress
from fastmix.errors import FormatError
from fastmix.experiments.environment import describe_machine
from fastmix.experiments.execution import CrashError, LocalPool, LostError, Pool, SharedExecutor, run_in_order
from fastmix.experiments.journal import Journal
from fastmix.experiments.plan import Experiment, Row, Settings, Task
from fastmix.experiments.plotting import require_matplotlib
from fastmix.experiments.registry import EXPERIMENTS, find_experiment
from fastmix.experiments.trials import failed_rows, run_task, was_lost
from fastmix.io.files import atomic_write, display_name
from fastmix.results import Status

__all__ = ["ExperimentResult", "Progress", "completed_rows", "read_settings", "run_experiment"]


@dataclass(frozen=True)
class ExperimentResult:
    """What a run has left in its folder.

    Attributes
    ----------
    experiments : tuple of str
    status : Status
        ``interrupted`` after Ctrl-C, or when what ran the tasks was lost; the report then shows what there is.
    report : Path
        The page.
    figures : tuple of Path
    num_rows, num_run, num_failed : int
        Rows of these experiments, how many of them this call has made, and how many tell of a failure.
    seconds : float
    note : str
        What stopped the run, if it was not Ctrl-C.
    """

    experiments: tuple[str, ...]
    status: Status
    report: Path
    figures: tuple[Path, ...]
    num_rows: int
    num_run: int
    num_failed: int
    seconds: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain data, the shape of the command line's JSON."""
        return {
            "experiments": list(self.experiments),
            "status": str(self.status),
            "report": str(self.report),
            "figures": [str(path) for path in self.figures],
            "num_rows": self.num_rows,
            "num_run": self.num_run,
            "num_failed": self.num_failed,
            "seconds": self.seconds,
            "note": self.note,
        }


def run_experiment(
    name: str,
    output: str | os.PathLike[str],
    *,
    trials: int | None = None,
    quick: bool = False,
    methods: Sequence[str] | None = None,
    seed: int = 0,
    images: str | None = None,
    executor: Executor | None = None,
    num_workers: int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> ExperimentResult:
    """Run a figure or table of the paper, or what is missing of it, and write its report.

    Parameters
    ----------
    name : str
        One of :data:`fastmix.experiments.EXPERIMENTS`, or ``all``.
    output : path
        Folder for rows, figures and ``report.html``; made if missing. Rows that are there already are not run again, so
        that a killed run goes on with the same call; several experiments share a folder, its report, and the runs that
        they have in common.
    trials : int, optional
        Random instances for every point; 50 by default, and a few when ``quick``.
    quick : bool
        A small version: minutes instead of hours.
    methods : sequence of str, optional
        Methods to compare; all by default.
    seed : int
        Root of all randomness. The rows depend on it and on nothing else.
    images : str, optional
        Folder of photographs for ``denoise``.
    executor : concurrent.futures.Executor, optional
        Runs the tasks, for instance that of :func:`fastmix.experiments.cluster`; processes on this machine by default.
    num_workers : int, optional
        How many of these; as many as there are processors by default.
    progress : callable, optional
        Called with a :class:`Progress` after every task.

    Returns
    -------
    ExperimentResult

    Raises
    ------
    ValueError
        If an argument is not valid, or another run is writing to the folder.
    FormatError
        If the folder holds files with the names of ours that are not ours.
    ImportError
        If Matplotlib, or for ``denoise`` scikit-image, is not installed; the message names the extra.

    Notes
    -----
    ``NAME.jsonl`` has a row for every trial and method, in an order that does not depend on which finished first, and
    is the same byte by byte for the same seed; seconds are in ``NAME.seconds.jsonl``. What a method raises is a row.
    What the executor raises (a cluster whose scheduler died, workers without fastmix) is none: the run stops with the
    status ``interrupted``, and the same call goes on.
    """
    begin = time.perf_counter()
    require_matplotlib()  # before the hours, not after
    if executor is not None and num_workers is not None:
        raise ValueError(f"num_workers must not come with an executor, which has its own, got {num_workers}")
    settings = Settings(trials, quick, None if methods is None else tuple(methods), seed, images)
    chosen = list(EXPERIMENTS.values()) if name == "all" else [find_experiment(name)]
    plans = []
    for experiment in chosen:
        own = settings.restricted(experiment.calls(settings)) if name == "all" else settings
        plans.append((experiment, own, experiment.tasks(own)))
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS.values():  # what the report will need, before the hours
        if read_settings(folder, experiment) is not None:
            Journal(folder, experiment.name).read()
    status, note = Status.OK, ""
    wanted: list[tuple[Journal, set[str]]] = []
    local = LocalPool(num_workers)
    pool: Pool = local if executor is None else SharedExecutor(executor)
    try:
        for experiment, own, tasks in plans:
            _write_settings(folder, experiment, own)
            _run(experiment, tasks, folder, pool, progress, wanted)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except LostError as error:
        status, note = Status.INTERRUPTED, str(error)
    finally:
        local.close(now=status == Status.INTERRUPTED)
    from fastmix.experiments.report import write_report

    report, figures = write_report(folder)
    rows = [row for experiment, own, _ in plans for row in completed_rows(folder, experiment, own)]
    return ExperimentResult(
        experiments=tuple(experiment.name for experiment in chosen),
        status=status,
        report=report,
        figures=figures,
        num_rows=len(rows),
        # By what is on disk: an interrupt can come between writing a row and counting it.
        num_run=sum(
            len(keys & {row["key"] for row in journal.read() if not was_lost(row)}) for journal, keys in wanted
        ),
        num_failed=sum(row["failure"] is not None for row in rows),
        seconds=time.perf_counter() - begin,
        note=note,
    )


def completed_rows(folder: str | os.PathLike[str], experiment: Experiment, settings: Settings) -> list[Row]:
    """Rows of an experiment that belong to these settings, in the order of its plan."""
    rows = [row for row in Journal(folder, experiment.name).read() if not was_lost(row)]
    try:
        tasks = experiment.tasks(settings)
    except (OSError, ImportError, ValueError):  # the photographs are no longer there: show what there is of them
        return rows
    known = {row["key"]: row for row in rows}
    keys = (key for task in tasks for key in task.row_keys())
    return [known[key] for key in keys if key in known]


def _run(
    experiment: Experiment,
    tasks: list[Task],
    folder: Path,
    pool: Pool,
    progress: Callable[[Progress], None] | None,
    wanted: list[tuple[Journal, set[str]]],
) -> None:
    """Run what is missing of a plan, and note its journal and the keys of the rows to make in ``wanted`` first."""
    journal = Journal(folder, experiment.name)
    with journal.lock():
        known = {row["key"] for row in journal.read() if not was_lost(row)}
        journal.repair()
        total = sum(len(task.calls) for task in tasks)
        shared = _rows_elsewhere(folder, experiment)
        missing = [_without(task, known) for task in tasks]
        pending = [rest for task in missing if (rest := _without(task, shared.keys())).calls]
        wanted.append((journal, {key for task in pending for key in task.row_keys()}))
        alone = LocalPool(1) if experiment.alone and pending else None
        begin, made = time.perf_counter(), 0
        done = total - sum(len(task.calls) for task in missing)
        results = run_in_order(run_task, pending, alone or pool)
        try:
            for task in missing:
                if not task.calls:
                    continue
                rest = _without(task, shared.keys())
                fresh = _outcomes(rest, results) if rest.calls else []
                journal.append(_merged(task, fresh, shared))
                made += len(rest.calls)
                done += len(task.calls)
                if progress is not None:
                    seconds = time.perf_counter() - begin
                    progress(Progress(done, total, "rows", made / seconds, seconds, experiment.name))
        finally:
            results.close()
            if alone is not None:
                alone.close(now=True)


def _without(task: Task, keys: Any) -> Task:
    return replace(
        task, calls=tuple(call for call, key in zip(task.calls, task.row_keys(), strict=True) if key not in keys)
    )


def _outcomes(task: Task, results: Iterator[Any]) -> list[tuple[Row, dict[str, Any]]]:
    """Rows of the next result; a :class:`LostError` if it has none."""
    try:
        result = next(results)
    except Exception as error:
        result = error
    if isinstance(result, CrashError):
        return failed_rows(task, result)
    if isinstance(result, Exception):  # a task keeps its own errors in its rows: this one is the executor's
        reason = " ".join(f"{type(result).__name__}: {result}".split()).rstrip(":")
        raise LostError(f"the executor failed ({reason}); the same call runs what is missing") from result
    return result


def _merged(
    task: Task, fresh: list[tuple[Row, dict[str, Any]]], shared: dict[str, Row]
) -> list[tuple[Row, dict[str, Any]]]:
    """New rows and those that another experiment has, in the order of the task."""
    by_key = {row["key"]: (row, seconds) for row, seconds in fresh}
    outcomes = []
    for key in task.row_keys():
        if key in by_key:
            outcomes.append(by_key[key])
        else:
            row = dict(shared[key])
            outcomes.append((row, row.pop("seconds")))
    return outcomes


def _rows_elsewhere(folder: Path, experiment: Experiment) -> dict[str, Row]:
    """Rows of the other experiments in the folder; not for one whose result is the seconds."""
    if experiment.alone:
        return {}
    found: dict[str, Row] = {}
    for other in EXPERIMENTS.values():
        if other.name != experiment.name and not other.alone:
            found |= {row["key"]: row for row in Journal(folder, other.name).read() if not was_lost(row)}
    return found


def read_settings(folder: Path, experiment: Experiment) -> tuple[Settings, dict[str, str], str] | None:
    """Settings of the last run of an experiment in a folder, its machine and when it began; None without a run.

    Raises
    ------
    FormatError
        If the file of that name is not ours.
    """
    path = folder / f"{experiment.name}.settings.json"
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_bytes())
        values = dict(facts["settings"])
        values["methods"] = None if values["methods"] is None else tuple(values["methods"])
        settings = Settings(**values)
        settings.chosen(experiment.calls(settings))
        if not isinstance(settings.images, str | None):
            raise TypeError(f"images must be a name, got {settings.images!r}")
        return settings, {str(name): str(value) for name, value in facts["machine"].items()}, str(facts["started"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise FormatError(f"{display_name(path)}: not the settings of an experiment ({reason})") from error


def _write_settings(folder: Path, experiment: Experiment, settings: Settings) -> None:
    """What the report needs to know about the last run of an experiment."""
    facts: dict[str, Any] = {"settings": asdict(settings), "machine": describe_machine()}
    facts["started"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with atomic_write(folder / f"{experiment.name}.settings.json") as stream:
        json.dump(facts, stream, indent=1)
        stream.write("\n")
