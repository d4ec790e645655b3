"""Replica exchange that is stopped, and goes on from its checkpoint to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix import Interrupted, MarkovRandomField, NotConvergedError, TemperedResult, infer, temper
from fastmix.errors import FormatError, UnfitMethodError
from fastmix.instances import ising_grid, ising_random, potts_grid

FIELDS = (
    "node_marginals", "edge_marginals", "std_error", "ess", "r_hat", "states", "positions", "rejection", "round_trips",
)  # fmt: skip
NUMBERS = ("status", "log_z", "log_z_kind", "log_z_std_error", "log_z_lower", "log_z_confidence")


def random_run(seed: int) -> tuple[MarkovRandomField, dict[str, Any]]:
    """A model and options that lead to chains of different kinds, with cluster moves and without."""
    rng = np.random.default_rng([seed, 61])
    models = (
        ising_grid(4, 5, coupling_max=2.0, seed=seed),
        potts_grid(3, 3, num_states=3, coupling_max=1.5, seed=seed),
        ising_random(18, edge_probability=1.0, coupling_max=0.5, seed=seed),
    )
    model = models[seed % 3]
    options: dict[str, Any] = {"num_sweeps": int(rng.integers(60, 200)), "burn_in": int(rng.integers(30, 120))}
    if seed % 2:
        options = {"accuracy": 0.2, "num_sweeps": 4000, "burn_in": 60}
    return model, options | {"seed": seed, "num_threads": 1, "num_ensembles": 4, "edge_marginals": seed % 4 < 2}


class Stop:
    """Listens to a run, and interrupts it once it has come so far."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, report: Any) -> None:
        if report.done >= self.after:
            raise KeyboardInterrupt


def assert_same(result: TemperedResult, expected: TemperedResult) -> None:
    for name in FIELDS:
        one, other = getattr(result, name), getattr(expected, name)
        assert (one is None) == (other is None)
        assert one is None or (one.dtype == other.dtype and np.array_equal(one, other)), name
    assert [getattr(result, name) for name in NUMBERS] == [getattr(expected, name) for name in NUMBERS]
    assert result.stats["num_sweeps"] == expected.stats["num_sweeps"]


@pytest.mark.parametrize("seed", range(6))
def test_interrupted_runs_go_on_to_the_same_bits(seed: int, tmp_path: Path) -> None:
    model, options = random_run(seed)
    expected = temper(model, **options)
    total = expected.stats["num_sweeps"] + expected.stats["burn_in"]
    path = str(tmp_path / "run.ckpt")
    assert_same(temper(model, checkpoint=path, **options), expected)
    assert_same(temper(model, checkpoint=path, **options), expected)  # it is over: nothing is left to do
    Path(path).unlink()
    for after in sorted(np.random.default_rng(seed).integers(1, total, size=4).tolist()):
        with pytest.raises(Interrupted):
            temper(model, checkpoint=path, checkpoint_seconds=0.0, progress=Stop(after), **options)
    assert_same(temper(model, checkpoint=path, **options), expected)


def test_a_time_limit_only_says_when_to_stop(tmp_path: Path) -> None:
    model, options = random_run(0)
    expected, path, calls = temper(model, **options), str(tmp_path / "run.ckpt"), 0
    while True:
        calls += 1
        try:
            result = temper(model, checkpoint=path, time_limit=1e-9, **options)
        except NotConvergedError:
            continue
        if result.stats["stopped_by"] == "done":
            break
    assert calls > 10
    # No time was left for a bound by annealing.
    assert_same(temper(model, checkpoint=path, **options), expected)


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    model, options = random_run(0)
    path = str(tmp_path / "run.ckpt")
    with pytest.raises(Interrupted):
        temper(model, checkpoint=path, checkpoint_seconds=0.0, progress=Stop(40), **options)
    for other in ({"num_sweeps": 55}, {"num_ensembles": 6}, {"edge_marginals": False}, {"seed": 1}, {"moves": ()}):
        with pytest.raises(FormatError, match=r"run\.ckpt: .*run with"):
            temper(model, checkpoint=path, **(options | other))
    with pytest.raises(FormatError, match="another model"):
        temper(ising_grid(4, 5, coupling_max=2.0, seed=7), checkpoint=path, **options)
    seedless = {name: value for name, value in options.items() if name != "seed"}
    assert infer(model, method="tempered", checkpoint=path, **seedless).provenance["seed"] == options["seed"]


def test_a_checkpoint_needs_the_cpu_and_a_positive_number_of_seconds(tmp_path: Path) -> None:
    model, options = random_run(0)
    with pytest.raises(UnfitMethodError, match="checkpoint"):
        temper(model, checkpoint=str(tmp_path / "run.ckpt"), backend="cuda", **options)
    with pytest.raises(ValueError, match="checkpoint_seconds"):
        temper(model, checkpoint=str(tmp_path / "run.ckpt"), checkpoint_seconds=-1.0, **options)
    with pytest.raises(FileNotFoundError):
        temper(model, checkpoint=str(tmp_path / "nowhere" / "run.ckpt"), **options)
