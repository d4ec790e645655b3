"""The search for bounds by parts, where memory or time are short of what it would take."""

from __future__ import annotations

import time

import pytest
from bounds_models import assert_holds, random_small

import fastmix
from fastmix.bounds import split_bounds
from fastmix.errors import ResourceError


@pytest.mark.parametrize("seed", range(4))
def test_without_memory_for_any_part_the_first_bounds_are_left(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables become smaller until nothing is left to give up, and then there are neither covers nor clusters."""
    model = random_small(seed, forbidden=False)
    monkeypatch.setattr(split_bounds, "LEAST_MEMORY", -1e9)
    result = fastmix.bracket(model, method="split", memory_limit=8, time_limit=0.2, seed=seed)
    assert_holds(result)
    assert result.methods["upper"] in ("largest entries", "none")
    assert "num_evaluations" not in result.stats


def test_smaller_tables_are_tried_where_covers_are_over_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fastmix.instances.ising_grid(6, 6, coupling_max=0.5, seed=0)
    refused: list[float] = []
    make = split_bounds.UpperBound

    def tight(tables: object, covers: object, **options: float) -> object:
        if len(refused) < 2:
            refused.append(options["memory_limit"])
            raise ResourceError("no")
        return make(tables, covers, **options)

    usual = fastmix.bracket(model, method="split", time_limit=0.2, seed=0)
    monkeypatch.setattr(split_bounds, "UpperBound", tight)
    result = fastmix.bracket(model, method="split", time_limit=0.2, seed=0)
    assert len(refused) == 2
    assert result.stats["table_entries"] < usual.stats["table_entries"]
    exact = fastmix.infer(model, method="exact")
    assert result.misses(exact) is None


def test_without_clusters_configurations_bound_from_below(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("no")

    model = fastmix.instances.ising_grid(4, 4, coupling_max=0.5, seed=0)
    monkeypatch.setattr(split_bounds, "LowerBound", refuse)
    began = time.process_time()
    result = fastmix.bracket(model, method="split", time_limit=0.2, seed=0)
    assert time.process_time() - began - result.stats["compile_seconds"] < 5.0  # cases end with the time, too
    assert result.methods["lower"] in ("mean field", "configurations", "cases")
    assert result.misses(fastmix.infer(model, method="exact")) is None


def test_models_without_factors_are_done_at_once() -> None:
    model = fastmix.MarkovRandomField.from_tables([[0.0, 1.0], [0.5, -0.5, 2.0]], [], [])
    result = fastmix.bracket(model, method="split", time_limit=1.0, seed=0)
    assert_holds(result)
    assert result.gap < 1e-9
