"""What `auto` does when what it chose refuses, takes longer than it seemed to, or is cut short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import Gibbs, LoopyBP, MeanField, Status
from fastmix._context import Context
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.inference import auto
from fastmix.inference.choice import Choice
from fastmix.inference.exact import Exact
from fastmix.instances import ising_grid
from fastmix.marginals import InferenceResult
from fastmix.method import Method
from fastmix.model import MarkovRandomField

MODEL = ising_grid(3, 3, coupling_max=0.4, seed=0)
Run = Callable[..., InferenceResult]


def refusing(kind: type[Exception], told: list[str], name: str) -> Run:
    def refuse(*_: Any, **__: Any) -> InferenceResult:
        told.append(name)
        raise kind(f"{name} says no")

    return refuse


def test_another_method_takes_over_where_exact_inference_took_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Exact, "run", refusing(ResourceError, told, "exact"))
    result = fastmix.infer(MODEL, time_limit=5.0, seed=1)
    assert told == ["exact"]
    assert result.method != "exact"
    assert "exact inference" in result.stats["reason"]
    truth = fastmix.exact.enumerate_model(MODEL)
    np.testing.assert_allclose(result.node_marginals, truth.node_marginals, atol=0.05)


def test_what_guarantees_nothing_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where everything refuses, the error has every reason once, and is about resources if one of them was."""
    told: list[str] = []
    monkeypatch.setattr(auto, "choose", lambda *_: Choice(LoopyBP(), "first"))
    for kind in (UnfitMethodError, ResourceError):
        told.clear()
        monkeypatch.setattr(LoopyBP, "run", refusing(UnfitMethodError, told, "loopy-bp"))
        monkeypatch.setattr(Gibbs, "run", refusing(kind, told, "gibbs"))
        monkeypatch.setattr(MeanField, "run", refusing(UnfitMethodError, told, "mean-field"))
        with pytest.raises(kind) as refused:
            fastmix.infer(MODEL, seed=1)
        assert told == ["loopy-bp", "gibbs", "mean-field"]
        assert all(str(refused.value).count(f"{name} says no") == 1 for name in told)


@pytest.mark.parametrize(
    ("status", "stopped_by", "second", "method"),
    [
        (Status.OK, "done", "not run", "gibbs"),  # mixed in its share of the time
        (Status.OK, "time_limit", "ok", "gibbs"),  # cut short: again, with all the time
        (Status.NOT_MIXED, "done", "ok", "tempered"),
        (Status.INTERRUPTED, "interrupt", "not run", "gibbs"),
        (Status.OK, "time_limit", "nothing", "gibbs"),  # the trial is all there is
        (Status.NOT_MIXED, "done", "nothing", "gibbs"),
    ],
)
def test_trials(status: Status, stopped_by: str, second: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sampler that is tried before another one, and what becomes of its answer."""
    ran: list[str] = []
    trial = Gibbs(num_chains=4, num_sweeps=20)
    answer = fastmix.infer(MODEL, method="exact", seed=0)

    def tried(_: Any, model: MarkovRandomField, context: Context) -> InferenceResult:
        ran.append("trial")
        stats = {"stopped_by": stopped_by}
        return InferenceResult(
            model=model, method="gibbs", status=status, node_marginals=answer.node_marginals, stats=stats
        )

    def followed(again: Method, model: MarkovRandomField, context: Context) -> tuple[InferenceResult | None, str]:
        ran.append("second")
        full = InferenceResult(
            model=model, method=again.name, node_marginals=answer.node_marginals, stats={"stopped_by": "done"}
        )
        return (full, "done") if second == "ok" else (None, "time_limit")

    choice = Choice(fastmix.Tempered(), "it is strong", trial=trial)
    monkeypatch.setattr(auto, "choose", lambda *_: choice)
    monkeypatch.setattr(auto, "_run", tried)
    monkeypatch.setattr(auto, "_run_in_time", followed)
    if status is Status.INTERRUPTED:
        with pytest.raises(fastmix.Interrupted) as stopped:
            fastmix.infer(MODEL, seed=0)
        result = stopped.value.result
    else:
        result = fastmix.infer(MODEL, seed=0)
    assert ran == (["trial"] if second == "not run" else ["trial", "second"])
    assert result.method == method
    if second == "nothing":
        assert result.stats["stopped_by"] == "time_limit"
        assert result.status == status
    assert ("agree after a short run" in result.stats["reason"]) == (status == Status.OK)
