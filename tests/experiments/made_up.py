"""Rows as an experiment would leave them, made up instead of run."""

from __future__ import annotations

from typing import Any

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Row, row_key


def made_up_rows(name: str, settings: Settings, errors: dict[str, float] | None = None, **facts: Any) -> list[Row]:
    """A row for every key of an experiment's plan; errors by method, a little larger in later trials."""
    rows = []
    for task in EXPERIMENTS[name].tasks(settings):
        for call in task.calls:
            error = (errors or {}).get(call.name, 0.1) * (1.0 + 0.01 * task.case.trial)
            sweeps = call.options.get("num_sweeps")
            trace = [[1, 4 * error], [100, 2 * error], [sweeps, error]] if sweeps else []
            found = {"num_sweeps": sweeps} if sweeps else {}
            rows.append(
                {
                    "key": row_key(task.case, call),
                    "problem": task.case.problem,
                    "parameters": dict(task.case.parameters),
                    "trial": task.case.trial,
                    "method": call.name,
                    "options": dict(call.options),
                    "failure": None,
                    "error": error,
                    "trace": trace,
                    "facts": {**found, **facts},
                    "seconds": {"project": 2.0, "sample": 1.0, "total": 3.0, "truth": 0.5},
                }
            )
    return rows
