"""Runs that are interrupted, and go on from a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix import FormatError, Interrupted, LearnResult, MarkovRandomField, NormBall, Progress, Status, learn
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges
from fastmix.learning.persistent import PersistentChains

N = 5
RNG = np.random.default_rng(3)
MODEL = MarkovRandomField.ising(complete_edges(N), 0.5 * RNG.standard_normal(10), 0.4 * RNG.standard_normal(N))
ROWS = np.asarray(draw_exact(MODEL, num_draws=600, seed=0))
CASES: list[dict[str, Any]] = [
    {"moments": "sampled", "tol": 1e-6, "max_iter": 7},
    {"moments": "sampled", "tol": 1e-6, "max_iter": 5, "within": NormBall("spectral", 0.6)},
    {"moments": "sampled", "tol": 1e-6, "max_iter": 5, "l1": 0.02},
    {"moments": "sampled", "ridge": "auto", "validation": ROWS[:100], "max_iter": 4},
    {"ridge": "auto", "validation": ROWS[:100]},
    {"objective": "pseudo-likelihood", "l1": "auto", "validation": ROWS[:100]},
    {"moments": "sampled", "l1": "auto", "ridge": "auto", "validation": ROWS[:100], "max_iter": 2},
    {"moments": "sampled", "hidden": 2, "max_iter": 4},  # a machine
    {"moments": "tempered", "tol": 1e-9, "max_iter": 3},
]


def interrupting(after: int) -> Any:
    """A listener that presses Ctrl-C at a report."""
    count = 0

    def listen(progress: Progress) -> None:
        nonlocal count
        assert progress.what.startswith("learn")
        count += 1
        if count == after:
            raise KeyboardInterrupt

    return listen


def until_interrupted(**options: Any) -> LearnResult:
    """What a run gives, or had when Ctrl-C ended it."""
    try:
        return learn(ROWS, **options)
    except Interrupted as stop:
        return stop.result


@pytest.mark.parametrize("options", CASES)
def test_interrupted_runs_end_with_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    path = str(tmp_path / "run.ckpt")
    whole = learn(ROWS, seed=11, num_chains=64, progress=None, **options)
    stops = 0
    for after in (3, 1, 2, 9, 30, 10**9):
        result = until_interrupted(
            seed=11 if stops == 0 else None, num_chains=64, checkpoint=path, checkpoint_seconds=0.0,
            progress=interrupting(after), **options,
        )  # fmt: skip
        assert np.isfinite(result.model.parameters).all()
        if result.status is not Status.INTERRUPTED:
            break
        assert result.stats["stopped_by"] == "interrupt"
        stops += 1
    assert stops > 0
    assert result.model == whole.model
    assert (result.seed, result.status, result.ridge, result.l1) == (11, whole.status, whole.ridge, whole.l1)
    assert result.validation_log_likelihood == whole.validation_log_likelihood
    assert [e["iteration"] for e in result.history] == [e["iteration"] for e in whole.history]
    assert [e["moment_error"] for e in result.history] == [e["moment_error"] for e in whole.history]
    again = learn(ROWS, num_chains=64, checkpoint=path, **options)  # all is there
    assert again.model == whole.model


def test_an_interrupt_in_the_middle_of_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"moments": "sampled", "tol": 1e-6, "max_iter": 5, "num_chains": 64, "progress": None}
    whole = learn(ROWS, seed=1, **options)
    path = str(tmp_path / "run.ckpt")
    calls = 0
    sweep = PersistentChains.sweep

    def stop(self: Any, count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 40:
            raise KeyboardInterrupt
        sweep(self, count)

    monkeypatch.setattr(PersistentChains, "sweep", stop)
    result = until_interrupted(seed=1, checkpoint=path, **options)
    assert result.status is Status.INTERRUPTED
    assert 0 < len(result.history) < len(whole.history)
    assert learn(ROWS, checkpoint=path, **options).model == whole.model


def test_interrupts_before_the_first_round_give_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, count: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PersistentChains, "sweep", stop)
    result = until_interrupted(seed=1, moments="sampled")
    start = learn(ROWS, objective="pseudo-likelihood")
    assert (result.status, result.moment_error) == (Status.INTERRUPTED, None)
    np.testing.assert_allclose(result.model.parameters, start.model.parameters, atol=0.02)


def test_an_interrupted_validation_keeps_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("fastmix.learning.likelihood.log_normalizer", stop)
    result = until_interrupted(validation=ROWS[:50])
    assert (result.status, result.validation_log_likelihood) == (Status.INTERRUPTED, None)
    assert result.model.num_edges == 10


@pytest.mark.parametrize(
    ("options", "after"),
    [({"ridge": "auto"}, 3), ({"l1": "auto"}, 3), ({"edges": "grow"}, 2), ({"edges": "l1", "l1": 0.02}, 2)],
)
def test_an_interrupt_between_two_fits_keeps_the_best(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], after: int
) -> None:
    from fastmix.learning import fit

    prepare = fit.moments_of_contrasts
    calls = 0

    def stop(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt
        return prepare(*args)

    monkeypatch.setattr(fit, "moments_of_contrasts", stop)
    result = until_interrupted(validation=ROWS[:50], seed=5, **options)
    assert (result.status, result.stats["stopped_by"], result.seed) == (Status.INTERRUPTED, "interrupt", 5)
    assert result.validation_log_likelihood is not None


def test_an_interrupt_after_a_fit_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastmix.learning import fit

    norms, calls, last = fit.model_norms, 0, 0

    def stop(model: MarkovRandomField, *clock: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == last:
            raise KeyboardInterrupt
        return norms(model, *clock)

    monkeypatch.setattr(fit, "model_norms", stop)
    whole = learn(ROWS)
    last, calls = calls, 0
    result = until_interrupted()
    assert (result.status, result.model, result.norms) == (Status.INTERRUPTED, whole.model, whole.norms)


def test_checkpoints_of_other_runs_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run.ckpt")
    options: dict[str, Any] = {"moments": "sampled", "num_chains": 64, "max_iter": 2, "checkpoint": path}
    learn(ROWS, seed=1, **options)
    with pytest.raises(FormatError, match="seed 1, got seed 2"):
        learn(ROWS, seed=2, **options)
    for rows, more in ((ROWS[1:], {}), (ROWS, {"ridge": 0.1}), (ROWS, {"edges": [(0, 1)]})):
        with pytest.raises(FormatError, match="other options"):
            learn(rows, **options, **more)
    Path(path).write_bytes(b"something else\n")
    with pytest.raises(FormatError, match="not a checkpoint"):
        learn(ROWS, **options)
    with pytest.raises(FileNotFoundError):
        learn(ROWS, checkpoint=str(tmp_path / "nowhere" / "run.ckpt"))


def test_time_limits_add_up(tmp_path: Path) -> None:
    path = str(tmp_path / "run.ckpt")
    options: dict[str, Any] = {"moments": "sampled", "tol": 1e-9, "max_iter": 5, "num_chains": 64}
    whole = learn(ROWS, seed=1, **options)
    rounds = []
    for _ in range(200):
        result = learn(ROWS, seed=1, checkpoint=path, checkpoint_seconds=0.0, time_limit=0.1, **options)
        rounds.append(result.stats["num_iterations"])
        if result.stats["stopped_by"] == "done":
            break
        assert result.stats["stopped_by"] == "time_limit"
    assert rounds == sorted(rounds)
    assert result.model == whole.model
