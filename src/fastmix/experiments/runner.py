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
from fastmix._clock import Clock, Listener, Progress, Report, listening
from fastmix._memory import format_bytes
from fastmix.errors import Interrupted
from fastmix.executors import CrashError, LostError, Pool, as_pool, count_processors, run_in_order
from fastmix.experiments.journal import Journal, completed_rows, read_settings, write_settings
from fastmix.experiments.plan import Case, Experiment, Row, Settings
from fastmix.experiments.plotting import require_matplotlib
from fastmix.experiments.report import write_report
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.experiments.trials import failed_rows, run_case
from fastmix.results import Status

__all__ = ["ExperimentResult", "Progress", "describe_machine", "run_experiment"]


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
        Runs the tasks, for instance that of :func:`fastmix.executors.cluster`; processes on this machine by default.
    num_workers : int, optional
        How many of these; as many as there are processors by default.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; told after every task.

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
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is what there is so far; the report is written.

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
    pool = Pool(num_workers) if executor is None else as_pool(executor)
    settings = Settings(trials, quick, None if methods is None else tuple(methods), seed, images)
    if name not in (*EXPERIMENTS, "all"):
        raise ValueError(f"experiment must be one of {', '.join([*EXPERIMENTS, 'all'])}, got {name!r}")
    chosen = list(EXPERIMENTS.values()) if name == "all" else [EXPERIMENTS[name]]
    plans = []
    for experiment in chosen:
        own = experiment.restrict(settings) if name == "all" else settings
        plans.append((experiment, own, experiment.cases(own)))
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS.values():  # what the report will need, before the hours
        if read_settings(folder, experiment) is not None:
            Journal(folder, experiment.name).read()
    status, note = Status.OK, ""
    wanted: list[tuple[Journal, set[str]]] = []
    try:
        with listening(progress, name) as listener:
            for experiment, own, cases in plans:
                write_settings(folder, experiment, own, describe_machine())
                _run(experiment, cases, folder, pool, listener, wanted)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except LostError as error:
        status, note = Status.INTERRUPTED, f"{error}; the same call runs what is missing"
    finally:
        pool.close(now=status == Status.INTERRUPTED)
    report, figures = write_report(folder)
    rows = [row for experiment, own, _ in plans for row in completed_rows(folder, experiment, own)]
    result = ExperimentResult(
        experiments=tuple(experiment.name for experiment in chosen),
        status=status,
        report=report,
        figures=figures,
        num_rows=len(rows),
        # By what is on disk: an interrupt can come between writing a row and counting it.
        num_run=sum(len(keys & {row["key"] for row in journal.read()}) for journal, keys in wanted),
        num_failed=sum(row["failure"] is not None for row in rows),
        seconds=time.perf_counter() - begin,
        note=note,
    )
    if status == Status.INTERRUPTED and not note:
        raise Interrupted("the experiment was interrupted; what there is so far is in this exception", result)
    return result


def _run(
    experiment: Experiment,
    cases: list[Case],
    folder: Path,
    pool: Pool,
    listener: Listener | None,
    wanted: list[tuple[Journal, set[str]]],
) -> None:
    """Run what is missing of a plan, and note its journal and the keys of the rows to make in ``wanted`` first."""
    journal = Journal(folder, experiment.name)
    with journal.lock():
        known = {row["key"]: row for row in journal.read()}
        journal.repair()
        shared = _rows_elsewhere(folder, experiment)
        missing = [rest for case in cases if (rest := case.without(known)).calls]
        pending = [rest for case in missing if (rest := case.without(shared)).calls]
        wanted.append((journal, {key for case in pending for key in case.row_keys()}))
        total = sum(len(case.calls) for case in cases)
        done, num_made = total - sum(len(case.calls) for case in missing), 0
        alone = Pool(1) if experiment.alone else None
        clock = Clock(listener=listener, what=experiment.name)
        results = run_in_order(run_case, pending, alone or pool)
        try:
            for case in missing:
                rest = case.without(shared)
                fresh = next(results) if rest.calls else []
                rows = failed_rows(rest, fresh) if isinstance(fresh, CrashError) else fresh
                made = {row["key"]: row for row in rows}
                journal.append([made[key] if key in made else shared[key] for key in case.row_keys()])
                num_made += len(rest.calls)
                done += len(case.calls)
                clock.report(done, total, "rows", per_second=num_made / clock.seconds())
        finally:
            results.close()
            if alone is not None:
                alone.close(now=True)


def _rows_elsewhere(folder: Path, experiment: Experiment) -> dict[str, Row]:
    """Rows of the other experiments in the folder; not for one whose result is the seconds."""
    others = [other for other in EXPERIMENTS.values() if other.name != experiment.name and not other.alone]
    return {row["key"]: row for other in others if not experiment.alone for row in Journal(folder, other.name).read()}


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
    with contextlib.suppress(ValueError, OSError, AttributeError, IndexError):  # another system
        facts["Memory"] = format_bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        facts["Processor"] = Path("/proc/cpuinfo").read_text().split("model name", 1)[1].split("\n")[0].lstrip("\t :")
    return facts
