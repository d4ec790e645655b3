"""One call on random sets of many kinds: never worse than the tree on the rows that it is chosen by."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import learn
from fastmix.learning import read_data
from fastmix.results import Status

pytestmark = pytest.mark.slow


def synthetic_set(seed: int) -> Any:
    """The name and the rows of a random set of the benchmark."""
    path = Path(__file__).parents[2] / "benchmarks" / "learning_sets.py"
    spec = importlib.util.spec_from_file_location("learning_sets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.synthetic_set(seed)


@pytest.mark.parametrize("seed", range(100, 124))
def test_no_random_set_ends_below_its_tree(seed: int) -> None:
    _, rows = synthetic_set(seed)
    counts = read_data(rows).num_states
    train, valid, test = np.split(rows, [len(rows) // 2, 3 * len(rows) // 4])
    given = {"validation": read_data(valid, num_states=counts), "num_states": counts, "seed": 0}
    tree = learn(train, edges="chow-liu", **given)
    result = learn(train, ridge="auto", time_limit=20.0, **given)
    assert tree.validation_log_likelihood is not None
    assert result.validation_log_likelihood is not None
    assert result.validation_log_likelihood >= tree.validation_log_likelihood - 1e-9
    # On fresh rows, no worse than by chance.
    fresh = read_data(test, num_states=counts)
    ours, base = (fastmix.score(r.model, fresh, seed=0, time_limit=20.0) for r in (result, tree))
    apart = ours.per_row - base.per_row
    error = float(np.hypot(apart.std() / np.sqrt(len(apart)), ours.std_error))
    assert float(apart.mean()) > -3.0 * error - 1e-9
    if ours.log_z_kind == "exact" and result.status is Status.OK:
        scored = fastmix.score(result.model, given["validation"])
        assert result.validation_log_likelihood == pytest.approx(scored.log_likelihood, abs=0.1)
