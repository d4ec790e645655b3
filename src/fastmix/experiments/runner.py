"""``run_experiment()``: plan, run what is missing, write figures and the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastmix import __version__
from fastmix._checks import as_path, check_choice, describe, require
from fastmix._clock import Clock, Listener, Progress, Report, listening
from fastmix.errors import Interrupted
from fastmix.executors import CrashError, LostError, Pool, as_pool, count_processors, processes, run_in_order
from fastmix.experiments.journal import Journal, completed_rows, read_settings, write_settings
from fastmix.experiments.plan import Case, Experiment, Settings
from fastmix.experiments.report import MATPLOTLIB, write_report
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.experiments.trials import failed_rows, run_case
from fastmix.results import Status

__all__ = ["ExperimentResult", "Progress", "describe_machine", "run_experiment"]


@dataclass(frozen=True)
class ExperimentResult:
    """What a run has left in its folder."""

    experiments: tuple[str, ...]
    status: Status  # interrupted after Ctrl-C, or when what ran the tasks was lost; the report then shows what there is
    report: Path  # the page
    figures: tuple[Path, ...]
    num_rows: int  # of these experiments
    num_run: int  # rows that this call has made
    num_failed: int  # rows that tell of a failure
    seconds: float
    note: str = ""  # what stopped the run, if it was not Ctrl-C

    def to_dict(self) -> dict[str, Any]:
        """The facts as plain data, the shape of the command line's JSON."""
        paths = {"report": str(self.report), "figures": [str(path) for path in self.figures]}
        return {**vars(self), "experiments": list(self.experiments), "status": str(self.status), **paths}


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
    progress: Report = "auto",
) -> ExperimentResult:
    """Run a figure or table of the paper, or what is missing of it, and write its report.

    Parameters
    ----------
    name : str
        One of :data:`EXPERIMENTS`, or ``all``.
    output : path
        Folder for rows, figures and ``report.html``. Rows that are there already are not run again; several experiments
        share a folder, its report, and the runs that they have in common.
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
        Runs the tasks, for instance that of :func:`fastmix.executors.cluster`; processes on this machine by default.
    num_workers : int, optional
        How many of these; as many as there are processors by default.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; told after every task.

    Raises
    ------
    ValueError
        If an argument is not valid, or another run is writing to the folder.
    FormatError
        If the folder holds files with the names of ours that are not ours.
    ImportError
        If Matplotlib, or for ``denoise`` scikit-image, is not installed; the message names the extra.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what there is so far; the report is written.

    Notes
    -----
    What a method raises is a row. What the executor raises (a cluster whose scheduler died, workers without fastmix) is
    none: the run stops with the status ``interrupted``, and the same call goes on.
    """
    begin = time.perf_counter()
    require("matplotlib", **MATPLOTLIB)  # before the hours, not after
    if executor is not None and num_workers is not None:
        raise ValueError(f"num_workers must not come with an executor, which has its own, got {describe(num_workers)}")
    pool = Pool(num_workers) if executor is None else as_pool(executor)
    settings = Settings(trials, quick, methods, seed, images)
    check_choice("name of the experiment", name, [*EXPERIMENTS, "all"])
    folder = Path(as_path("output", output))
    chosen = {name: settings}
    if name == "all":
        chosen = {experiment.name: experiment.restrict(settings) for experiment in EXPERIMENTS.values()}
    plans = [(EXPERIMENTS[name], own, EXPERIMENTS[name].cases(own)) for name, own in chosen.items()]
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS.values():  # what the report will need, before the hours
        read_settings(folder, experiment)
    status, note, made = Status.OK, "", set[str]()
    try:
        with listening(progress, name) as listener:
            for experiment, own, cases in plans:
                write_settings(folder, experiment, own, describe_machine())
                _run(experiment, cases, folder, pool, listener, made)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except LostError as error:
        status, note = Status.INTERRUPTED, f"{error}; the same call runs what is missing"
    finally:
        pool.close(now=status == Status.INTERRUPTED)
    report, figures = write_report(folder)
    rows = [row for experiment, own, _ in plans for row in completed_rows(folder, experiment, own)[0]]
    result = ExperimentResult(
        experiments=tuple(chosen),
        status=status,
        report=report,
        figures=figures,
        num_rows=len(rows),
        num_run=len(made & {row["key"] for row in rows}),  # an interrupt can come while a row is written
        num_failed=sum(row["failure"] is not None for row in rows),
        seconds=time.perf_counter() - begin,
        note=note,
    )
    if status == Status.INTERRUPTED and not note:
        raise Interrupted("the experiment was interrupted; what there is so far is in this exception", result)
    return result


def _run(
    experiment: Experiment, cases: list[Case], folder: Path, pool: Pool, listener: Listener | None, made: set[str]
) -> None:
    """Run what is missing of a plan; ``made`` gets keys of rows. Those that other experiments there have are copied."""
    journal = Journal(folder, experiment.name)
    with journal.lock(), processes(1) if experiment.alone else contextlib.nullcontext(pool) as executor:
        known = {row["key"] for row in journal.read()}
        journal.repair()
        sharing = [name for name, other in EXPERIMENTS.items() if other.alone == experiment.alone]
        rows = {row["key"]: row for name in sharing for row in Journal(folder, name).read()}
        missing = [rest for case in cases if (rest := case.without(known)).calls]
        pending = [case.without(rows) for case in missing]
        total = sum(len(case.calls) for case in cases)
        done, before = total - sum(len(case.calls) for case in missing), len(made)
        clock = Clock(listener=listener, what=experiment.name)
        tasks = [rest for rest in pending if rest.calls]
        with contextlib.closing(run_in_order(run_case, tasks, as_pool(executor))) as results:
            for case, rest in zip(missing, pending, strict=True):
                fresh = next(results) if rest.calls else []
                fresh = failed_rows(rest, fresh) if isinstance(fresh, CrashError) else fresh
                rows |= {row["key"]: row for row in fresh}
                made |= {row["key"] for row in fresh}
                journal.append([rows[key] for key in case.row_keys()])
                done += len(case.calls)
                clock.report(done, total, "rows", per_second=(len(made) - before) / clock.seconds())


def describe_machine() -> dict[str, str]:
    """Facts about this machine by name, without anything that names a place or a person."""
    facts = {
        "Processor": platform.processor() or platform.machine(),
        "Processors": str(count_processors()),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "System": f"{platform.system()} {platform.release()}",
        "fastmix": __version__,
        **{name: importlib.metadata.version(name) for name in ("matplotlib", "numba", "numpy", "scipy")},
    }
    with contextlib.suppress(OSError, IndexError):  # another system
        facts["Processor"] = Path("/proc/cpuinfo").read_text().split("model name", 1)[1].split("\n")[0].lstrip("\t :")
    return facts
