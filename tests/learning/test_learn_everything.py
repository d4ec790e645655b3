"""One call on random sets of many kinds, those of ``benchmarks/learning_families.py``: no promise is broken."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

#: Sets of up to 12 variables, one or more of every family.
SMALL_SETS = (2, 6, 9, 16, 20, 35, 43, 69, 71)


@pytest.fixture(scope="module")
def families() -> Any:
    """The benchmark as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "learning_families.py"
    spec = importlib.util.spec_from_file_location("learning_families", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # for its dataclass
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", SMALL_SETS)
def test_no_promise_is_broken_on_small_sets(families: Any, seed: int) -> None:
    assert families.check(families.random_set(seed), 60.0, {})[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 224))
def test_no_promise_is_broken(families: Any, seed: int) -> None:
    assert families.check(families.random_set(seed), 20.0, {})[1] == []


def test_the_checks_can_fail(families: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = families.random_set(2)
    learn = families.fastmix.learn

    def careless(rows: Any, **options: Any) -> Any:
        """The independent model, said to be what was asked for."""
        result = learn(rows, **options)
        if options.get("edges") is not None:
            edges = options["edges"] if not isinstance(options["edges"], str) else None
            return result if edges is None else replace(result, model=learn(1 - rows, **options).model)
        blank = learn(rows, **{**options, "edges": [], "validation": None, "ridge": 1.0})
        return replace(result, model=blank.model, validation_log_likelihood=-100.0)

    monkeypatch.setattr(families.fastmix, "learn", careless)
    broken = families.check(given, 60.0, {})[1]
    assert any("validation score" in text for text in broken)
    assert any("fresh rows" in text for text in broken)
    assert any("from the optimum" in text for text in broken)
