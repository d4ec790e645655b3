"""``fastmix temper --checkpoint``."""

from __future__ import annotations

import json
from pathlib import Path

from cli_helpers import Run


def test_the_command_takes_a_checkpoint(run: Run, saved: str, tmp_path: Path) -> None:
    words = ("temper", saved, "--num-sweeps", "60", "--seed", "3", "--json")
    plain = run(*words)
    kept = run(*words, "--checkpoint", "run.ckpt", "--checkpoint-seconds", "0")
    assert json.loads(kept.out)["marginals"] == json.loads(plain.out)["marginals"]
    assert not (tmp_path / "run.ckpt").exists()  # the run is over, and its answer is safe


def test_a_run_out_of_time_goes_on(run: Run, saved: str, tmp_path: Path) -> None:
    words = ("temper", saved, "--num-sweeps", "60", "--seed", "3", "--json")
    stopped = run(*words, "--checkpoint", "run.ckpt", "--time-limit", "1e-9")
    assert stopped.code == 1
    assert (tmp_path / "run.ckpt").exists()
    answer = run(*words, "--checkpoint", "run.ckpt")
    assert json.loads(answer.out)["marginals"] == json.loads(run(*words).out)["marginals"]
