from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fastmix import Interrupted
from fastmix.experiments import EXPERIMENTS, Progress, Settings, run_experiment, trials
from fastmix.experiments.journal import Journal, completed_rows
from fastmix.results import Status

sys.path.insert(0, str(Path(__file__).parent))
from experiment_helpers import InThisProcess, small

pytest.importorskip("matplotlib")

NAME = "strength-random"
METHODS = ("loopy-bp", "euclidean")
OPTIONS: dict[str, Any] = {"num_trials": 2, "quick": True, "methods": METHODS, "seed": 3}
NUM_ROWS = 2 * 2 * 2 * len(METHODS)


@pytest.fixture(scope="module", autouse=True)
def quick_report() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for experiment in (NAME, "samples-random"):
            patch.setitem(EXPERIMENTS, experiment, small(experiment))
        yield


def run(folder: Path, executor: Any = None, **options: Any) -> Any:
    return run_experiment(NAME, folder, executor=executor or InThisProcess(), **{**OPTIONS, **options})


def file_of(folder: Path) -> bytes:
    return (folder / f"{NAME}.jsonl").read_bytes()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    result = run(folder)
    assert (result.num_rows, result.num_run, result.num_failed) == (NUM_ROWS, NUM_ROWS, 0)
    return folder


def test_rows_say_how_to_run_them_again(reference: Path) -> None:
    rows = Journal(reference, NAME).read()
    row = rows[1]
    assert (row["method"], row["failure"], row["options"]["norm_bound"]) == ("euclidean", None, 2.5)
    assert 0 <= row["error"] < 1
    assert row["trace"][-1] == [2000, row["error"]]
    assert set(row["versions"]) >= {"fastmix", "numpy", "python"}
    assert row["seconds"]["project"] >= 0
    assert row["seconds"]["sample"] > 0
    for first, second in zip(rows[::2], rows[1::2], strict=True):  # the same instance for every method
        assert first["facts"]["model_hash"] == second["facts"]["model_hash"]
        assert first["seed"] != second["seed"]


def test_nothing_is_run_twice(reference: Path) -> None:
    before = file_of(reference)
    refusing = InThisProcess(0, AssertionError("nothing is left to run"))
    again = run(reference, refusing)
    assert (again.status, again.num_rows, again.num_run) == (Status.OK, NUM_ROWS, 0)
    assert file_of(reference) == before
    shared = run_experiment("samples-random", reference, executor=refusing, **OPTIONS)
    assert (shared.status, shared.num_rows, shared.num_run) == (Status.OK, NUM_ROWS, 0)
    assert all(row["seconds"]["total"] >= 0 for row in Journal(reference, "samples-random").read())


def test_threads_give_the_same_file(reference: Path, tmp_path: Path) -> None:
    seen: list[Progress] = []
    with ThreadPoolExecutor(3) as executor:
        run(tmp_path, executor, progress=seen.append)
    assert file_of(tmp_path) == file_of(reference)
    assert [p.done for p in seen] == list(range(2, NUM_ROWS + 1, 2))
    assert {p.total for p in seen} == {NUM_ROWS}
    assert seen[-1].seconds_left == 0.0
    assert all(p.seconds_left is not None and p.seconds_left >= 0 for p in seen)


def test_rows_of_other_settings_are_left_out(reference: Path, tmp_path: Path) -> None:
    run(tmp_path, num_trials=1, seed=4)
    ours, theirs = (Journal(folder, NAME).read() for folder in (tmp_path, reference))
    assert not {row["key"] for row in ours} & {row["key"] for row in theirs}
    one = Settings(num_trials=1, quick=True, methods=("loopy-bp",), seed=3)
    rows, planned = completed_rows(reference, EXPERIMENTS[NAME], one)
    assert len(rows) == planned
    assert [row["method"] for row in rows] == ["loopy-bp"] * (NUM_ROWS // 4)


def test_a_failing_method_is_recorded_and_the_rest_goes_on(
    reference: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = trials.run_method

    def sometimes(model: Any, call: Any, *, seed: int) -> Any:
        if call.name == "loopy-bp" and seed % 3 == 0:
            raise ValueError("a bad day")
        return usual(model, call, seed=seed)

    monkeypatch.setattr(trials, "run_method", sometimes)
    result = run(tmp_path)
    rows = Journal(tmp_path, NAME).read()
    failed = [row for row in rows if row["failure"] is not None]
    assert result.num_failed == len(failed) > 0
    assert {row["failure"] for row in failed} == {"ValueError: a bad day"}
    good = {row["key"]: row["error"] for row in Journal(reference, NAME).read()}
    assert all(row["error"] == good[row["key"]] for row in rows if row["failure"] is None)
    assert "a bad day" in result.report.read_text()


def test_an_instance_that_cannot_be_built_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: Any) -> Any:
        raise MemoryError(f"too large: {case.problem}")

    monkeypatch.setattr(trials, "build", refuse)
    result = run(tmp_path, num_trials=1)
    assert result.num_failed == result.num_rows == NUM_ROWS // 2
    assert result.report.exists()


def test_bad_arguments_leave_nothing_behind(tmp_path: Path) -> None:
    for name, options, message in (
        ("magic", {}, r"^name of .*experiment .*got 'magic'"),
        ("timing", {"methods": ["mean-field"]}, r"^methods .*'mean-field'"),
        ("timing", {"methods": []}, r"^methods "),
        ("timing", {"num_trials": 0}, r"^num_trials "),
        ("timing", {"num_workers": 0}, "num_workers must be"),
        ("denoise", {"images": str(tmp_path / "none")}, r"^images .*folder"),
        ("timing", {"num_workers": 2, "executor": InThisProcess()}, r"^num_workers .*executor"),
    ):
        with pytest.raises(ValueError, match=message):
            run_experiment(name, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# -- interrupted, lost ----------------------------------------------------------------------------------------------


def test_interrupt_leaves_a_report_and_goes_on_later(reference: Path, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        run(tmp_path, progress=stop)
    result = stopped.value.result
    assert (result.status, result.num_rows, result.num_run) == (Status.INTERRUPTED, 10, 10)
    assert "Not complete: 10 of" in result.report.read_text()
    result = run(tmp_path)
    assert (result.status, result.num_run) == (Status.OK, NUM_ROWS - 10)
    assert file_of(tmp_path) == file_of(reference)


LOSSES = [CancelledError(), OSError("closed"), BrokenExecutor("gone"), ImportError("no fastmix here")]


@pytest.mark.parametrize(
    ("error", "at_submission"),
    [
        pytest.param(error, late, marks=[] if late == k % 2 else pytest.mark.slow)
        for k, error in enumerate(LOSSES)
        for late in (False, True)
    ],
)
def test_rows_that_the_executor_lost_run_again(
    reference: Path, tmp_path: Path, error: Exception, at_submission: bool
) -> None:
    lost = run(tmp_path, InThisProcess(5, error, at_submission=at_submission))
    assert (lost.status, lost.num_failed) == (Status.INTERRUPTED, 0)
    assert type(error).__name__ in lost.note
    assert lost.num_rows == lost.num_run <= 10
    assert lost.num_rows == 10 or at_submission
    assert f"Not complete: {lost.num_rows} of {NUM_ROWS}" in lost.report.read_text()
    again = run(tmp_path)
    assert (again.status, again.num_run, again.note) == (Status.OK, NUM_ROWS - lost.num_rows, "")
    assert file_of(tmp_path) == file_of(reference)


def test_a_task_that_kills_its_process_is_a_failure(tmp_path: Path) -> None:
    killed = type("KilledWorker", (Exception,), {})("four workers died")
    result = run(tmp_path, InThisProcess(0, killed), num_trials=1)
    assert (result.status, result.num_failed) == (Status.OK, NUM_ROWS // 2)
    result = run(tmp_path, num_trials=1)
    assert (result.num_run, result.num_failed) == (0, NUM_ROWS // 2)  # such rows stay


# -- killed ---------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, time
sys.path.insert(0, {helpers!r})
from experiment_helpers import small
from fastmix.experiments import EXPERIMENTS, run_experiment
if __name__ == "__main__":
    EXPERIMENTS[{name!r}] = small({name!r})
    wait = lambda progress: time.sleep(0.1)  # so that it does not end before it is killed
    run_experiment({name!r}, sys.argv[1], num_workers=2, progress=wait, **{options!r})
"""


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs the list of processes from Linux")
def test_a_killed_run_leaves_no_workers_and_ends_with_the_same_file(tmp_path: Path) -> None:
    options = {"num_trials": 5}
    run(tmp_path / "reference", **options)
    expected, folder, script = file_of(tmp_path / "reference"), tmp_path / "out", tmp_path / "script.py"
    script.write_text(SCRIPT.format(helpers=str(Path(__file__).parent), name=NAME, options={**OPTIONS, **options}))
    path = folder / f"{NAME}.jsonl"
    process = subprocess.Popen([sys.executable, str(script), str(folder)])
    try:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 4:
            assert process.poll() is None, "the run ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGSTOP)
        children = descendants(process.pid)
    finally:
        process.kill()
        process.wait()
    assert len(children) >= 2
    partial = path.read_bytes()
    assert partial.count(b"\n") < expected.count(b"\n")
    assert expected.startswith(partial[: partial.rfind(b"\n") + 1])
    with open(path, "ab") as stream:  # and the line that it was about to write
        stream.write(expected[len(partial) : len(partial) + 40].rstrip(b"\n"))
    deadline = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{child}") for child in children):
        assert time.monotonic() < deadline, "workers go on without anybody to collect their results"
        time.sleep(0.05)
    run(folder, **options)
    assert path.read_bytes() == expected
    assert json.loads((folder / f"{NAME}.settings.json").read_text())["settings"]["seed"] == 3


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
