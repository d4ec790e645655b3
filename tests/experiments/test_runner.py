from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastmix.experiments import EXPERIMENTS, Progress, Settings, run_experiment, trials
from fastmix.experiments.journal import Journal
from fastmix.experiments.runner import completed_rows
from fastmix.results import Status

pytest.importorskip("matplotlib")

METHODS = ("loopy-bp", "euclidean")
OPTIONS: dict[str, Any] = {"trials": 2, "quick": True, "methods": METHODS, "seed": 3}
NUM_ROWS = 2 * 3 * 2 * 5 * len(METHODS)


class InThisProcess(Executor):
    """Tasks run when they are handed over."""

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(scope="module", autouse=True)
def quick_report() -> Iterator[None]:
    """No figures: drawing them takes longer than everything else here, and they have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for experiment in ("strength-random", "samples-random"):
            patch.setitem(EXPERIMENTS, experiment, replace(EXPERIMENTS[experiment], figures=lambda settings, rows: []))
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    result = run_experiment("strength-random", folder, executor=InThisProcess(), **OPTIONS)
    assert (result.num_rows, result.num_run, result.num_failed) == (NUM_ROWS, NUM_ROWS, 0)
    return folder


def test_rows_say_how_to_run_them_again(reference: Path) -> None:
    row = Journal(reference, "strength-random").read()[1]
    assert row["method"] == "euclidean"
    assert row["options"]["norm_bound"] == 2.5
    assert row["failure"] is None
    assert 0 <= row["error"] < 1
    assert row["trace"][-1] == [30_000, row["error"]]
    assert set(row["versions"]) >= {"fastmix", "numpy", "python"}
    assert row["seconds"]["project"] >= 0
    assert row["seconds"]["sample"] > 0
    assert isinstance(row["seed"], int)


def test_the_same_instance_for_every_method(reference: Path) -> None:
    rows = Journal(reference, "strength-random").read()
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        assert first["facts"]["model_hash"] == second["facts"]["model_hash"]
        assert first["seed"] != second["seed"]


def test_finished_trials_are_not_run_again(reference: Path) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("nothing is left to run")

    executor = InThisProcess()
    executor.submit = refuse  # type: ignore[method-assign]
    before = (reference / "strength-random.jsonl").read_bytes()
    result = run_experiment("strength-random", reference, executor=executor, **OPTIONS)
    assert (result.num_rows, result.num_run) == (NUM_ROWS, 0)
    assert (reference / "strength-random.jsonl").read_bytes() == before


def test_experiments_share_their_runs(reference: Path) -> None:
    result = run_experiment("samples-random", reference, executor=InThisProcess(), **OPTIONS)
    assert (result.num_rows, result.num_run) == (NUM_ROWS, 0)
    rows = Journal(reference, "samples-random").read()
    assert all(row["seconds"]["total"] >= 0 for row in rows)


def test_threads_give_the_same_file(reference: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    with ThreadPoolExecutor(3) as executor:
        run_experiment("strength-random", tmp_path, executor=executor, progress=seen.append, **OPTIONS)
    assert (tmp_path / "strength-random.jsonl").read_bytes() == (reference / "strength-random.jsonl").read_bytes()
    assert [p.done for p in seen] == list(range(2, NUM_ROWS + 1, 2))
    assert {p.total for p in seen} == {NUM_ROWS}
    assert seen[-1].seconds_left == 0.0
    assert all(p.seconds_left is not None and p.seconds_left >= 0 for p in seen)


def test_another_seed_gives_other_rows(reference: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "seed": 4, "trials": 1}
    run_experiment("strength-random", tmp_path, executor=InThisProcess(), **options)
    ours, theirs = (Journal(folder, "strength-random").read() for folder in (tmp_path, reference))
    assert not {row["key"] for row in ours} & {row["key"] for row in theirs}


def test_a_failing_method_is_recorded_and_the_rest_goes_on(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trials.run_method

    def sometimes(model: Any, call: Any, *, seed: int) -> Any:
        if call.name == "loopy-bp" and seed % 3 == 0:
            raise ValueError("a bad day")
        return run(model, call, seed=seed)

    monkeypatch.setattr(trials, "run_method", sometimes)
    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **OPTIONS)
    rows = Journal(tmp_path, "strength-random").read()
    failed = [row for row in rows if row["failure"] is not None]
    assert result.num_failed == len(failed) > 0
    assert {row["failure"] for row in failed} == {"ValueError: a bad day"}
    good = {row["key"]: row["error"] for row in Journal(reference, "strength-random").read()}
    assert all(row["error"] == good[row["key"]] for row in rows if row["failure"] is None)
    assert "a bad day" in result.report.read_text()


def test_an_instance_that_cannot_be_built_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: Any) -> Any:
        raise MemoryError("too large")

    monkeypatch.setattr(trials, "build", refuse)
    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **{**OPTIONS, "trials": 1})
    assert result.num_failed == result.num_rows == NUM_ROWS // 2
    assert result.report.exists()


def test_rows_of_other_settings_are_left_out(reference: Path) -> None:
    experiment = EXPERIMENTS["strength-random"]
    one = Settings(trials=1, quick=True, methods=("loopy-bp",), seed=3)
    rows = completed_rows(reference, experiment, one)
    assert len(rows) == 30
    assert {row["method"] for row in rows} == {"loopy-bp"}


def test_bad_arguments_leave_nothing_behind(tmp_path: Path) -> None:
    for name, options, message in (
        ("magic", {}, "experiment must be one of"),
        ("timing", {"methods": ["mean-field"]}, "methods must be among"),
        ("timing", {"trials": 0}, "trials must be"),
        ("denoise", {"images": str(tmp_path / "none")}, "images must be a folder"),
        ("timing", {"num_workers": 2, "executor": InThisProcess()}, "num_workers must not come with an executor"),
    ):
        with pytest.raises(ValueError, match=message):
            run_experiment(name, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_interrupt_leaves_a_report_and_goes_on_later(reference: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done >= 10:
            raise KeyboardInterrupt

    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), progress=stop, **OPTIONS)
    assert result.status == Status.INTERRUPTED
    assert result.num_rows == 10
    assert "Not complete: 10 of" in result.report.read_text()
    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **OPTIONS)
    assert (result.status, result.num_run) == (Status.OK, NUM_ROWS - 10)
    assert (tmp_path / "strength-random.jsonl").read_bytes() == (reference / "strength-random.jsonl").read_bytes()


def test_an_interrupt_counts_the_rows_it_leaves(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done >= 10:
            raise KeyboardInterrupt

    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), progress=stop, **OPTIONS)
    assert (result.num_rows, result.num_run) == (10, 10)


# -- lost -----------------------------------------------------------------------------------------------------------


class Dying(InThisProcess):
    """After some tasks, an executor that fails those in hand, or refuses more."""

    def __init__(self, tasks: int, error: Exception, *, at_submission: bool = False) -> None:
        self.left, self.error, self.at_submission = tasks, error, at_submission

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        self.left -= 1
        if self.left >= 0:
            return super().submit(function, *arguments, **options)
        if self.at_submission:
            raise self.error
        future: Future[Any] = Future()
        future.set_exception(self.error)
        return future


@pytest.mark.parametrize("at_submission", [False, True])
@pytest.mark.parametrize(
    "error",
    [CancelledError(), OSError("the connection was closed"), BrokenExecutor("gone"), ImportError("no fastmix here")],
    ids=lambda error: type(error).__name__,
)
def test_rows_that_the_executor_lost_run_again(
    reference: Path, tmp_path: Path, error: Exception, at_submission: bool
) -> None:
    executor = Dying(5, error, at_submission=at_submission)
    lost = run_experiment("strength-random", tmp_path, executor=executor, **OPTIONS)
    assert lost.status == Status.INTERRUPTED
    assert type(error).__name__ in lost.note
    assert lost.num_failed == 0
    assert lost.num_rows == lost.num_run <= 10
    assert lost.num_rows == 10 or at_submission
    assert f"Not complete: {lost.num_rows} of {NUM_ROWS}" in lost.report.read_text()
    again = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **OPTIONS)
    assert (again.status, again.num_run, again.note) == (Status.OK, NUM_ROWS - lost.num_rows, "")
    assert (tmp_path / "strength-random.jsonl").read_bytes() == (reference / "strength-random.jsonl").read_bytes()


def test_a_task_that_kills_its_process_is_a_failure(tmp_path: Path) -> None:
    class Worker(InThisProcess):
        def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(type("KilledWorker", (Exception,), {})("four workers died"))
            return future

    result = run_experiment("strength-random", tmp_path, executor=Worker(), **{**OPTIONS, "trials": 1})
    assert (result.status, result.num_failed) == (Status.OK, NUM_ROWS // 2)
    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **{**OPTIONS, "trials": 1})
    assert (result.num_run, result.num_failed) == (0, NUM_ROWS // 2)  # such rows stay


@pytest.mark.parametrize(
    "failure",
    [
        "CrashError: the executor cancelled this trial",
        "CommClosedError: in <TCP (closed)>: Stream is closed",
        "FutureCancelledError: run_task-1 cancelled for reason: scheduler-connection-lost.",
        "KilledWorker: Attempted to run task 'run_task-1' on 4 different workers",
        "BrokenProcessPool: A process in the process pool was terminated abruptly",
    ],
)
def test_lost_rows_of_old_files_run_again(reference: Path, tmp_path: Path, failure: str) -> None:
    rows = [json.loads(line) for line in (reference / "strength-random.jsonl").read_text().splitlines()]
    for row in rows[4:]:
        row |= {"failure": failure, "error": None, "trace": [], "facts": {}}
    rows[5]["failure"] = "ModelError: its own"
    Journal(tmp_path, "strength-random").append([(row, {}) for row in rows])
    result = run_experiment("strength-random", tmp_path, executor=InThisProcess(), **OPTIONS)
    assert (result.num_rows, result.num_run, result.num_failed) == (NUM_ROWS, NUM_ROWS - 5, 1)
    good = {row["key"]: row["error"] for row in Journal(reference, "strength-random").read()}
    found = completed_rows(tmp_path, EXPERIMENTS["strength-random"], Settings(2, True, METHODS, 3))
    assert all(row["error"] == good[row["key"]] for row in found if row["failure"] is None)


# -- killed ---------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
from dataclasses import replace
from fastmix.experiments import EXPERIMENTS, run_experiment
if __name__ == "__main__":
    name = "strength-random"
    EXPERIMENTS[name] = replace(EXPERIMENTS[name], figures=lambda settings, rows: [])
    run_experiment("strength-random", sys.argv[1], num_workers=2, **{options})
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that cannot be caught")
def test_a_killed_run_ends_with_the_same_file(reference: Path, tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "out"
    script.write_text(SCRIPT.replace("{options}", repr(OPTIONS)))
    expected = (reference / "strength-random.jsonl").read_bytes()
    path = folder / "strength-random.jsonl"
    process = subprocess.Popen([sys.executable, str(script), str(folder)])
    try:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 8:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.kill()
        process.wait()
    partial = path.read_bytes()
    assert partial.count(b"\n") < NUM_ROWS
    assert expected.startswith(partial[: partial.rfind(b"\n") + 1])
    with open(path, "ab") as stream:  # and the line that it was about to write
        stream.write(expected[len(partial) : len(partial) + 40].rstrip(b"\n"))
    done = subprocess.run([sys.executable, str(script), str(folder)], timeout=120)
    assert done.returncode == 0
    assert path.read_bytes() == expected
    assert len(Journal(folder, "strength-random").read()) == NUM_ROWS
    settings = json.loads((folder / "strength-random.settings.json").read_text())
    assert settings["settings"]["seed"] == 3


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs the list of processes from Linux")
def test_workers_do_not_outlive_a_killed_run(tmp_path: Path) -> None:
    script, folder = tmp_path / "orphans.py", tmp_path / "out"
    script.write_text(SCRIPT.replace("{options}", repr({**OPTIONS, "trials": 50})))
    process = subprocess.Popen([sys.executable, str(script), str(folder)])
    path = folder / "strength-random.jsonl"
    while not path.exists() or not path.stat().st_size:
        assert process.poll() is None
        time.sleep(0.02)
    children = descendants(process.pid)
    assert len(children) >= 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{child}") for child in children):
        assert time.monotonic() < deadline, "workers go on without anybody to collect their results"
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
    found = [child for child, parent in parents.items() if parent == pid]
    return found + [grandchild for child in found for grandchild in descendants(child)]
