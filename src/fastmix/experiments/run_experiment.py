"""``run_experiment()``: plan, run what is missing, write figures and the report."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from fastmix import __version__
from fastmix._checks import as_path, check_choice, describe, require
from fastmix._clock import Clock, Ending, Listener, Progress, Report
from fastmix._context import open_context
from fastmix.errors import Interrupted
from fastmix.executors import CrashError, LostError, Pool, as_pool, count_processors, processes, run_in_order
from fastmix.experiments.journal import Journal, completed_rows, read_settings, write_settings
from fastmix.experiments.plan import Case, Experiment, Settings
from fastmix.experiments.report import MATPLOTLIB, write_report
from fastmix.experiments.specs import EXPERIMENTS
from fastmix.experiments.trials import failed_rows, run_case
from fastmix.model import MarkovRandomField
from fastmix.results import Result, Status

__all__ = ["ExperimentResult", "Progress", "describe_machine", "run_experiment"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ExperimentResult(Result):
    """The files that a run has left in its folder, and the numbers of rows in them.

    Attributes
    ----------
    experiments : tuple of str
        Names of the experiments.
    status : Status
        ``interrupted`` after Ctrl-C, or where what ran the tasks was lost; the report then shows what there is.
    report : Path
        The page.
    figures : tuple of Path
    num_rows, num_run, num_failed : int
        Rows of these experiments, those among them that this call has made, and those that tell of a failure.
    note : str
        What stopped the run, if it was not Ctrl-C.
    stats, provenance : mapping
        As for every :class:`fastmix.results.Result`; ``model`` is an empty one.
    """

    experiments: tuple[str, ...]
    report: Path
    figures: tuple[Path, ...]
    num_rows: int
    num_run: int
    num_failed: int
    note: str = ""

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.OK: "The report has all rows that were asked for.",
        Status.INTERRUPTED: "The report shows what there is; the same call runs what is missing.",
    }

    def __repr__(self) -> str:
        what = f"{', '.join(self.experiments)}, {self.num_rows} rows, {self.num_run} of them new"
        return f"ExperimentResult({what}, status={str(self.status)!r}, report={str(self.report)!r})"

    def title(self) -> str:
        """Names of the experiments."""
        return ", ".join(self.experiments)

    def facts(self) -> dict[str, str]:
        """The numbers of rows, and where the report is."""
        counts = {"rows": self.num_rows, "new rows": self.num_run, "failed rows": self.num_failed}
        return {**{name: str(count) for name, count in counts.items()}, "report": str(self.report)}

    def contents(self) -> dict[str, Any]:
        """The numbers of rows, the report and the figures, and what stopped the run."""
        return {
            "experiments": self.experiments,
            "report": str(self.report),
            "figures": [str(path) for path in self.figures],
            "num_rows": self.num_rows,
            "num_run": self.num_run,
            "num_failed": self.num_failed,
            "note": self.note,
        }

    def plot(self, axes: Any = None) -> Any:
        """The numbers of rows as bars (Matplotlib, extra ``plot``); the figures themselves are files."""
        axes = super().plot(axes)
        axes.barh(["rows", "new", "failed"], [self.num_rows, self.num_run, self.num_failed])
        return axes


def run_experiment(
    name: str,
    output: str | os.PathLike[str],
    *,
    num_trials: int | None = None,
    quick: bool = False,
    methods: Sequence[str] | None = None,
    kinds: Sequence[str] | None = None,
    strengths: Sequence[float] | None = None,
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
    num_trials : int, optional
        Random instances for every point; 50 by default, and a few when ``quick``.
    quick : bool
        A small version: minutes instead of hours.
    methods : sequence of str, optional
        Methods to compare; all by default.
    kinds : sequence of {"attractive", "mixed"}, optional
        Kinds of couplings; those of the experiment by default.
    strengths : sequence of float, optional
        Largest couplings; those of the experiment by default.
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
    require("matplotlib", **MATPLOTLIB)  # before the hours, not after
    if executor is not None and num_workers is not None:
        raise ValueError(f"num_workers must not come with an executor, which has its own, got {describe(num_workers)}")
    pool = Pool(num_workers) if executor is None else as_pool(executor)
    settings = Settings(num_trials, quick, methods, seed, images, kinds, strengths)
    check_choice("name of the experiment", name, [*EXPERIMENTS, "all"])
    folder = Path(as_path("output", output))
    chosen = {name: settings}
    if name == "all":
        chosen = {experiment.name: experiment.restrict(settings) for experiment in EXPERIMENTS.values()}
    plans = [(EXPERIMENTS[name], own, EXPERIMENTS[name].cases(own)) for name, own in chosen.items()]
    folder.mkdir(parents=True, exist_ok=True)
    for experiment in EXPERIMENTS.values():  # what the report will need, before the hours
        read_settings(folder, experiment)
    status = Status.OK
    note = ""
    made = set[str]()
    ending = Ending()
    asked = {key: value for key, value in asdict(settings).items() if key != "seed"}
    options = {"name": name, **asked}
    with open_context(name, MarkovRandomField.ising([], 0.0), seed=seed, progress=progress, options=options) as context:
        try:
            with ending:
                for experiment, own, cases in plans:
                    write_settings(folder, experiment, own, describe_machine())
                    run_cases(experiment, cases, folder, pool, context.clock.listener, made)
        except LostError as error:
            status = Status.INTERRUPTED
            note = f"{error}; the same call runs what is missing"
        finally:
            if ending.interrupted:
                status = Status.INTERRUPTED
            pool.close(now=status == Status.INTERRUPTED)
        report, figures = write_report(folder)
        rows = [row for experiment, own, _ in plans for row in completed_rows(folder, experiment, own)[0]]
        assert context.model is not None
        result = ExperimentResult(
            model=context.model,
            status=status,
            stats={"stopped_by": "done" if status == Status.OK else "interrupt"},
            experiments=tuple(chosen),
            report=report,
            figures=figures,
            num_rows=len(rows),
            num_run=len(made & {row["key"] for row in rows}),  # an interrupt can come while a row is written
            num_failed=sum(row["failure"] is not None for row in rows),
            note=note,
        )
        result = context.complete(result)
    if status == Status.INTERRUPTED and not note:
        raise Interrupted("the experiment was interrupted; what there is so far is in this exception", result)
    return result


def run_cases(
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
        done = total - sum(len(case.calls) for case in missing)
        before = len(made)
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
        after = Path("/proc/cpuinfo").read_text("utf-8").split("model name", 1)[1]
        facts["Processor"] = after.split("\n")[0].lstrip("\t :")
    return facts
