"""Rows made up instead of run, small experiments, and an executor."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Experiment, Row


def made_up_rows(name: str, settings: Settings, errors: dict[str, float] | None = None, **facts: Any) -> list[Row]:
    """A row for every key of an experiment's plan; errors by method, a little larger in later trials."""
    rows = []
    for case in EXPERIMENTS[name].cases(settings):
        for call in case.calls:
            error = (errors or {}).get(call.name, 0.1) * (1.0 + 0.01 * case.trial)
            sweeps = call.options.get("num_sweeps")
            rows.append(
                {
                    "key": case.row_key(call),
                    "problem": case.problem,
                    "parameters": dict(case.parameters),
                    "trial": case.trial,
                    "method": call.name,
                    "options": dict(call.options),
                    "failure": None,
                    "error": error,
                    "trace": [[1, 4 * error], [100, 2 * error], [sweeps, error]] if sweeps else [],
                    "facts": {**({"num_sweeps": sweeps} if sweeps else {}), **facts},
                    "seconds": {"project": 2.0, "sample": 1.0, "total": 3.0, "truth": 0.5},
                }
            )
    return rows


def small(name: str, strengths: Sequence[float] = (0.0, 2.0), num_sweeps: int = 2000) -> Experiment:
    """An experiment of few points and sweeps, without figures, whose drawing takes longest and has its tests."""
    experiment = EXPERIMENTS[name]
    calls = [
        replace(call, quick={**call.quick, **({"num_sweeps": num_sweeps} if "num_sweeps" in call.options else {})})
        for call in experiment.methods
    ]
    return replace(
        experiment,
        draw=lambda *_: (),
        methods=tuple(calls),
        shapes=experiment.shapes[:1],
        quick_strengths=tuple(strengths),
    )


class InThisProcess(Executor):
    """Tasks run when they are handed over; after some of them, futures have, or handing over raises, an error."""

    def __init__(self, tasks: int = 1000, error: Exception | None = None, *, at_submission: bool = False) -> None:
        self.left, self.error, self.at_submission = tasks, error, at_submission

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        self.left -= 1
        future: Future[Any] = Future()
        try:
            if self.left < 0 and self.error is not None:
                raise self.error
            future.set_result(function(*arguments, **options))
        except Exception as error:
            if self.at_submission:
                raise
            future.set_exception(error)
        return future
