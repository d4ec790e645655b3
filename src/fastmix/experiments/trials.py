"""A task done: the rows of one instance."""

from __future__ import annotations

import platform
import re
import time
from typing import Any

import numpy as np

from fastmix import __version__
from fastmix.experiments.methods import run_method
from fastmix.experiments.plan import Case, MethodCall, Row, Task, row_key
from fastmix.experiments.problems import Instance, build, mean_error
from fastmix.results import jsonable

__all__ = ["failed_rows", "run_task", "was_lost"]

Outcome = tuple[Row, dict[str, Any]]

# Failures that early versions recorded though an executor, and not the row, was at fault.
_NOT_ITS_OWN = re.compile(
    r"(Futures?CancelledError|CancelledError|CommClosedError|KilledWorker|ClosedClientError|Broken\w+):"
    r"|CrashError: the executor cancelled this trial"
)


def run_task(task: Task) -> list[Outcome]:
    """The rows of a task with the seconds each took, one for every method.

    The instance is built and solved once. A method that raises gives a row with the error in ``failure`` and none in
    ``error``; the others go on.

    Examples
    --------
    >>> case = Case("ising-grid", 0, {"rows": 3, "cols": 3, "kind": "mixed", "strength": 0.5}, seed=0)
    >>> [(row, seconds)] = run_task(Task(case, (MethodCall("loopy-bp"),)))
    >>> row["method"], row["failure"], 0 < row["error"] < 0.1
    ('loopy-bp', None, True)
    """
    start = time.process_time()
    try:
        instance = build(task.case)
    except Exception as error:
        return failed_rows(task, error)
    truth_seconds = time.process_time() - start
    outcomes = []
    for call in task.calls:
        start = time.process_time()
        try:
            row, stages = _run(task.case, call, instance)
        except Exception as error:
            row, stages = _row(task.case, call, failure=error), {}
        seconds = {**stages, "total": time.process_time() - start, "truth": truth_seconds}
        outcomes.append((row, seconds))
    return outcomes


def failed_rows(task: Task, error: Exception) -> list[Outcome]:
    """Rows that say why a whole task came to nothing."""
    return [(_row(task.case, call, failure=error), {}) for call in task.calls]


def was_lost(row: Row) -> bool:
    """Whether a row in a file tells only that its executor was gone, and must be run again.

    Examples
    --------
    >>> was_lost({"failure": "CrashError: the executor cancelled this trial"}), was_lost({"failure": None})
    (True, False)
    """
    return row["failure"] is not None and _NOT_ITS_OWN.match(row["failure"]) is not None


def _run(case: Case, call: MethodCall, instance: Instance) -> tuple[Row, dict[str, float]]:
    model = instance.model
    answer = run_method(model, call, seed=_method_seed(case, call))
    row = _row(case, call)
    row["error"] = mean_error(instance.truth, answer.node_marginals, model.num_variables)
    row["trace"] = [[sweeps, mean_error(instance.truth, p, model.num_variables)] for sweeps, p in answer.trace]
    row["facts"] = jsonable({**instance.facts, **answer.facts, "model_hash": model.content_hash})
    if "maps" in instance.facts:
        from fastmix.experiments.photographs import encode_map

        shape = case.parameters["rows"], case.parameters["cols"]
        row["facts"]["map"] = encode_map(answer.node_marginals[1::2].reshape(shape))
    return row, answer.seconds


def _method_seed(case: Case, call: MethodCall) -> int:
    return case.derive_seed(call.name)


def _row(case: Case, call: MethodCall, *, failure: Exception | None = None) -> Row:
    return {
        "key": row_key(case, call),
        "problem": case.problem,
        "parameters": dict(case.parameters),
        "trial": case.trial,
        "root_seed": case.seed,
        "method": call.name,
        "options": dict(call.options),
        "seed": _method_seed(case, call),
        "versions": {"fastmix": __version__, "numpy": np.__version__, "python": platform.python_version()},
        "failure": None if failure is None else f"{type(failure).__name__}: {failure}",
        "error": None,
        "trace": [],
        "facts": {},
    }
