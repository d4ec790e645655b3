"""The command line of denoise and experiment."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Run, assert_refused, files, start_process

from fastmix.experiments import EXPERIMENTS
from result_schemas import complaints

# -- applications ----------------------------------------------------------------------------------------------------


def test_denoise(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    rows, cols = np.mgrid[:15, :20]
    Image.fromarray(np.where((rows - 7) ** 2 + (cols - 10) ** 2 < 30, 255, 0).astype(np.uint8)).save("disc.png")
    simulate = ["--simulate-noise", "--method", "loopy-bp", "--size", "20x15", "--seed", "1", "--panels"]
    outcome = run("denoise", "disc.png", "-o", "out.png", *simulate)
    assert outcome.code in (0, 1), outcome
    assert "20x15 pixels, 2 labels, coupling 0.7, data weight 0.25, method loopy-bp" in outcome.err
    assert "guarantee: none, except on forests" in outcome.err
    with Image.open("out.png") as sheet:
        assert sheet.size[0] > 4 * 20
    answer = json.loads(run("denoise", "disc.png", "-o", "two.png", "--method", "mean-field", "--json").out)
    assert (answer["shape"], answer["error_rate"], answer["num_labels"]) == ([15, 20], None, 2)
    with Image.open("two.png") as alone:
        assert alone.size == (20, 15)
    given = ["--num-labels", "3", "--coupling", "0.5", "--data-weight", "9", "--seed", "1", "--json"]
    answer = json.loads(run("denoise", "disc.png", "-o", "three.png", *given).out)
    assert (answer["num_labels"], answer["coupling"], answer["data_weight"]) == (3, 0.5, 9.0)
    assert_refused(run("denoise", "missing.png", "-o", "out.png"), 3, "missing.png")
    Path("text.png").write_text("no picture")
    assert_refused(run("denoise", "text.png", "-o", "out.png"), 3, "text.png")
    assert_refused(run("denoise", "disc.png", "-o", "out.txt"), 2, "must name a picture")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--noise", "2"), 2, "--noise must come with")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--max-pixels", "99"), 2, "disc.png: 20x15 pixels are")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--size", "big"), 2, "size must be WIDTHxHEIGHT")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--method", "magic"), 2, "method must be")
    both = ["--full-size", "--size", "20x15"]
    assert_refused(run("denoise", "disc.png", "-o", "out.png", *both), 2, "--full-size .*--size")


def test_experiment(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Figures take longest; that of the experiment below which is stopped is drawn.
    monkeypatch.setitem(EXPERIMENTS, "strength-random", replace(EXPERIMENTS["strength-random"], draw=lambda *_: ()))
    options = ["-o", "out", "--quick", "--num-trials", "1", "--methods", "loopy-bp", "--num-workers", "1"]
    outcome = run("experiment", "strength-random", *options)
    assert outcome.code == 0, outcome
    assert outcome.out.strip().endswith("report.html")
    assert (tmp_path / "out" / "report.html").exists()
    again = json.loads(run("experiment", "strength-random", *options, "--json").out)
    assert again["num_run"] == 0
    assert complaints(again, "ExperimentResult") == []
    assert_refused(run("experiment", "magic", "-o", "out"), 2, "magic")
    assert_refused(run("experiment", "potts", "-o", "out", "--num-trials", "0"), 2, "num-trials must be")
    assert_refused(run("experiment", "potts", "-o", "out", "--cluster", "[/red]"), 2, "cluster must be the address")


@pytest.mark.parametrize("name", ["strength-random.jsonl", "strength-random.settings.json", "timing.settings.json"])
@pytest.mark.parametrize("content", [b"\x89PNG", b"mine\n", b'{"mine": 1}\n', b"[1]"])
def test_files_that_are_not_ours(run: Run, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    before = files(tmp_path)
    options = ["--quick", "--num-trials", "1", "--methods=loopy-bp", "--num-workers=1"]
    outcome = run("experiment", "strength-random", "-o", "out", *options)
    assert_refused(outcome, 3, re.escape(f"out/{name}"))
    assert (tmp_path / "out" / name).read_bytes() == content
    assert files(tmp_path) - before <= {"out/strength-random.settings.json"}


def test_interrupted_experiment_counts_its_rows(tmp_path: Path) -> None:
    words = [
        "experiment",
        "strength-random",
        "-o",
        "out",
        "--num-trials",
        "50",
        "--methods",
        "loopy-bp",
        "--num-workers",
        "1",
    ]
    process = start_process(*words, cwd=tmp_path, text=True, start_new_session=True)
    path = tmp_path / "out" / "strength-random.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    rows = path.read_bytes().count(b"\n")
    assert process.returncode == 1
    assert re.fullmatch(rf"fastmix: {rows} rows, {rows} of them new, \d+ s\n", err), err
    assert out.strip().endswith("report.html")


@pytest.mark.parametrize("words", ["sample", "infer --method gibbs", "infer --method projected --divergence euclidean"])
def test_a_checkpoint_brings_its_seed(run: Run, saved: str, words: str) -> None:
    verb, *rest = words.split()
    line = [verb, saved, *rest, "--num-sweeps", "50000", "--burn-in", "0", "--checkpoint", "run.ck", "--json"]
    run(*line, "--time-limit", "0.0001", "--seed", "7")
    assert Path("run.ck").exists()
    answer = json.loads(run(*line).out)
    assert answer["provenance"]["seed"] == 7
    assert not Path("run.ck").exists()
    assert json.loads(run(*line, "--seed", "7").out)["marginals"] == answer["marginals"]
