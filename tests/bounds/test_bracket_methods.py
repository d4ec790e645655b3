"""The registry of ways to find a bracket: each named one holds, others can be added, and auto takes what fits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bounds_models import assert_holds, random_small

import fastmix
from fastmix.bounds.bracket_methods import BRACKETS, register_bracket
from fastmix.bounds.bracket_run import BracketRun


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(BRACKETS, "entries", dict(BRACKETS))


class Trivial:
    """The largest entry of every table, and the probabilities 0 and 1."""

    name = "trivial"

    def find(self, run: BracketRun) -> None:
        tables = run.reduce()
        parts = tables.split(tables.values, range(tables.num_tables))
        sizes = math.log(math.prod(tables.num_states))
        upper = tables.log_constant + sum(float(part.max()) for part in parts) + sizes
        run.offer(self.name, upper=upper + 1e-9)
        run.offer_marginals(np.zeros(tables.num_unary), np.ones(tables.num_unary))


def test_an_own_method_is_known_by_its_name() -> None:
    assert register_bracket(Trivial()).name == "trivial"
    assert list(BRACKETS) == ["exact", "split", "trivial"]
    model = random_small(4, forbidden=False)
    result = fastmix.bracket(model, method="trivial", seed=0)
    assert_holds(result)
    assert (result.methods["upper"], result.methods["lower"], result.exact) == ("trivial", "none", False)


@pytest.mark.parametrize("method", [None, object(), "exact", type("Nameless", (), {"find": print})])
def test_what_is_no_method_is_refused(method: Any) -> None:
    with pytest.raises(TypeError):
        register_bracket(method)
    assert list(BRACKETS) == ["exact", "split"]


@pytest.mark.parametrize("name", ["auto", "exact"])
def test_names_are_taken_once(name: str) -> None:
    other = Trivial()
    other.name = name
    with pytest.raises(ValueError, match=f"^name .*got '{name}'$"):
        register_bracket(other)


@pytest.mark.parametrize("seed", range(6))
def test_each_method_holds(seed: int) -> None:
    model = random_small(seed)
    exact = fastmix.bracket(model, method="exact", seed=seed)
    assert exact.exact
    assert_holds(exact)
    split = fastmix.bracket(model, method="split", time_limit=0.1, seed=seed)
    assert not split.exact
    assert_holds(split)


def test_what_does_not_fit_is_refused_by_name_and_passed_over_by_auto() -> None:
    model = fastmix.instances.ising_grid(8, 8, coupling_max=1.0, seed=0)
    with pytest.raises(fastmix.ResourceError) as refused:
        fastmix.bracket(model, method="exact", memory_limit=1000)
    assert refused.value.limit_bytes == 1000
    with pytest.raises(fastmix.ResourceError, match=r"time_limit"):
        fastmix.bracket(model, method="exact", time_limit=1e-4)
    assert not fastmix.bracket(model, memory_limit=1000, time_limit=0.2, seed=0).exact
    with pytest.raises(ValueError, match=r"^method .*'magic'"):
        fastmix.bracket(model, method="magic")
