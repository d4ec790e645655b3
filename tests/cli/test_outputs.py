"""Outputs of the command line: nothing is half-written, and places are tried before the work."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import resource
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Run, assert_refused, files, replace, run_process

import fastmix
from fastmix import instances
from fastmix.io import read_pr, write_model

# -- nothing half-written -------------------------------------------------------------------------------------------

WRITERS = [
    "infer model.npz -o {}.MAR",
    "infer model.npz -o {}.PR",
    "infer model.npz -o {}.json --json",
    "convert model.npz {}.uai --json",
    "convert model.npz {}.uai.gz",
    "convert model.npz {}.npz",
    "generate ising-grid -o {}.uai --json",
    "generate ising-grid -o {}.npz",
]


@pytest.mark.parametrize("line", WRITERS)
class TestFailedWrites:
    @pytest.mark.parametrize("target", ["missing/out", "model.npz/out"])
    def test_no_such_folder(self, run: Run, saved: str, tmp_path: Path, line: str, target: str) -> None:
        assert_refused(run(*line.format(target).split()), 2, re.escape(f"{target}."))
        assert files(tmp_path) == {saved}

    def test_folder_in_the_way(self, run: Run, saved: str, tmp_path: Path, line: str) -> None:
        words = line.format("out").split()
        (target,) = (word for word in words if word.startswith("out."))
        Path(target).mkdir()
        assert_refused(run(*words), 2, re.escape(target))
        assert files(tmp_path) == {saved, target}

    @pytest.mark.parametrize("there", [False, True])
    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_disk_full(
        self, run: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, step: str, there: bool
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        words = line.format("out").split()
        (target,) = (word for word in words if word.startswith("out."))
        if there:
            Path(target).write_bytes(b"old")
        before = files(tmp_path)
        monkeypatch.setattr(os, step, fail)
        assert_refused(run(*words), 2, "No space left")
        assert files(tmp_path) == before
        assert not there or Path(target).read_bytes() == b"old"


def test_file_size_limit(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    outcome = run_process("generate", "ising-grid", "-o", "grid.uai", cwd=tmp_path, preexec_fn=limit)
    assert_refused(outcome, 2, "File too large")
    assert files(tmp_path) == set()


# -- outputs are tried before the work, and what is done is not lost ------------------------------------------------


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is computed, and a picture is there to denoise."""
    from PIL import Image

    from fastmix import denoising, experiments

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the place of the output was to be tried first")

    for name in ("infer", "compare", "sample", "perfect_sample", "project"):
        replace(monkeypatch, fastmix, name, refuse)
    replace(monkeypatch, denoising, "denoise", refuse)
    replace(monkeypatch, experiments, "run_experiment", refuse)
    replace(monkeypatch, instances, "ising_grid", refuse)
    Image.new("L", (8, 8)).save(tmp_path / "picture.png")


PLACES = {
    "infer model.npz -o {}": ".MAR",
    "infer model.npz --method gibbs --checkpoint {}": ".npz",
    "sample model.npz -o {}": ".npz",
    "sample model.npz --checkpoint {}": ".npz",
    "sample model.npz --method perfect -o {}": ".npz",
    "project model.npz --norm-bound 1 -o {}": ".uai",
    "learn data.csv -o {}": ".npz",
    "learn data.csv --checkpoint {}": ".ckpt",
    "score model.npz data.csv -o {}": ".txt",
    "convert missing.uai {}": ".uai",
    "generate ising-grid -o {}": ".npz",
    "denoise picture.png -o {}": ".png",
    "compare model.npz -o {}": "",
    "experiment timing -o {}": "",
}


@pytest.mark.parametrize("line", PLACES)
def test_places_are_tried_before_the_work(run: Run, saved: str, no_work: None, tmp_path: Path, line: str) -> None:
    suffix = PLACES[line]
    folder = suffix == ""
    (tmp_path / f"there{suffix}").mkdir()
    (tmp_path / "model.npz").rename(tmp_path / "a\n\x1b[31mfile")
    write_model(instances.ising_tree(3, coupling_max=1.0, seed=0), tmp_path / "model.npz")
    before = files(tmp_path)
    for place in ["a\n\x1b[31mfile/out", "/proc/out", "n" * 300] + ([] if folder else ["missing/out", "there"]):
        words = [word.format(f"{place}{suffix}") for word in line.split()]
        assert_refused(run(*words), 2, re.escape(place.replace("\n", r"\n").replace("\x1b", r"\x1b")))
    assert files(tmp_path) == before


def test_places_that_are_not_files(run: Run, saved: str, no_work: None, tmp_path: Path) -> None:
    for verb in ("compare model.npz", "experiment timing"):
        assert_refused(run(*verb.split(), "-o", ""), 2, "-o must name a folder, got ''")
    assert_refused(run("sample", saved, "--checkpoint", "-"), 2, "--checkpoint must be a file")
    for one, other in (("out.npz", "out.npz"), ("out.npz", "./out.npz")):
        assert_refused(run("sample", saved, "-o", one, "--checkpoint", other), 2, "must be two files")
    assert_refused(run("project", saved, "--norm-bound", "1", "-o", "out.txt"), 2, "must end in .uai")
    assert files(tmp_path) == {saved, "picture.png"}


def test_outputs_do_not_replace_what_they_were_made_of(run: Run, saved: str, no_work: None, tmp_path: Path) -> None:
    for line in ("sample model.npz -o model.npz", "sample model.npz --checkpoint ./model.npz",
                 "denoise picture.png -o picture.png"):  # fmt: skip
        assert_refused(run(*line.split()), 2, "must not be the input")
    (tmp_path / "link.npz").symlink_to(saved)
    assert_refused(run("sample", saved, "-o", "link.npz"), 2, "-o must not be the input")


def test_models_may_be_replaced_by_models(run: Run, saved: str) -> None:
    before = Path(saved).read_bytes()
    assert run("convert", saved, saved) == (0, "", "")
    assert Path(saved).read_bytes() == before


def test_the_automatic_choice_has_log_z_where_it_is_wanted(run: Run) -> None:
    model = instances.ising_regular(40, 3, coupling_max=0.1, seed=0)
    write_model(model, "weak.npz")
    outcome = run("infer", "weak.npz", "-o", "out.PR", "--memory-limit", "10kB", "--time-limit", "1", "--seed", "1")
    assert outcome.code == 0, outcome
    log_z = fastmix.infer(model, method="exact").log_z
    assert math.log(10) * read_pr("out.PR") == pytest.approx(log_z, rel=1e-3)
    found = json.loads(run("infer", "weak.npz", "--log-z", "--memory-limit", "10kB", "--time-limit", "1", "--json").out)
    assert (found["method"], found["log_z_kind"]) == ("tempered", "estimate")
    for method in ("gibbs", "swendsen-wang", "projected"):
        for wanted in ("--log-z", "-oother.PR"):
            assert_refused(run("infer", "weak.npz", wanted, "--method", method), 2, f"{method} gives no log Z")
    assert not Path("other.PR").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["infer --method gibbs", "sample"])
def test_a_finished_run_outlives_a_full_disk(run: Run, saved: str, words: str, tmp_path: Path) -> None:
    verb, *rest = words.split()
    line = [verb, saved, *rest, "--num-sweeps", "300", "--seed", "1", "--checkpoint", "run.ck"]
    target = "out.json" if verb == "infer" else "out.npz"
    run(*line, "--json")
    assert not Path("run.ck").exists()  # its answer is on stdout
    Path(target).symlink_to("/dev/full")
    assert_refused(run(*line, "-o", target), 2, f"{target}: No space left")
    assert Path("run.ck").exists()
    Path(target).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastmix.chains.cpu.CpuChains.sweep", None)  # all is done already
        assert run(*line, "-o", target).code == 0
    assert files(tmp_path) == {saved, target}


def test_a_run_that_was_stopped_keeps_its_checkpoint(run: Run, saved: str) -> None:
    line = ["sample", saved, "--num-sweeps", "200000", "--seed", "1", "--checkpoint", "run.ck", "--json"]
    expected = json.loads(run(*line).out)
    assert not Path("run.ck").exists()
    run(*line, "--time-limit", "0.0001")
    assert Path("run.ck").exists()
    outcome = run(*line)
    assert json.loads(outcome.out)["marginals"] == expected["marginals"]
    assert outcome.code == 0
    assert not Path("run.ck").exists()


def test_a_mistake_of_ours_is_one_line(run: Run, saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("two\nlines")

    replace(monkeypatch, fastmix, "infer", fail)
    assert_refused(run("infer", saved), 2, "a mistake of fastmix, please report it: KeyError: ")
