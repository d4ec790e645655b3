"""Arguments of all kinds for every public function: a sample here, all of them in ``tests/statistical``."""

from __future__ import annotations

import zlib
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from fastmix import io, warming
from fastmix import method as base
from fastmix.bounds.bracket_methods import BRACKETS
from fastmix.io import answers
from fastmix.learning import LEARNING_OBJECTIVES
from fastmix.projection import DIVERGENCES
from fastmix.theory.criteria import CRITERIA
from hostile import VALUES, Target, fault, targets
from hostile_examples import EXAMPLES, HOOKS, INTERNAL, OPEN, RECEIVERS, RECORDS

TARGETS = [t for t in targets(RECEIVERS, hooks=HOOKS, records=RECORDS) if t.parameters and t.name not in INTERNAL]


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Files go to a folder of the test, and what a call registers is gone after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(io, "FORMATS", list(io.FORMATS))
    monkeypatch.setattr(answers, "WRITERS", dict(answers.WRITERS))
    for registry in (base.ADDED, BRACKETS, CRITERIA, DIVERGENCES, LEARNING_OBJECTIVES):
        monkeypatch.setattr(registry, "entries", dict(registry))
    monkeypatch.setattr(warming, "PARTS", {})
    running = import_module("fastmix.experiments.run_experiment")  # whose function has its name in the room
    monkeypatch.setattr(running, "run_cases", lambda *_: None)  # hours of rows, which are judged before they are made


def test_every_public_function_has_an_example() -> None:
    missing = [target.name for target in TARGETS if target.name not in EXAMPLES]
    assert not missing, "valid arguments for these belong into hostile_examples.py"


@pytest.mark.parametrize("target", [t for t in TARGETS if t.name not in OPEN], ids=lambda target: target.name)
def test_some_calls(target: Target) -> None:
    """A few values for every function, other ones for each."""
    rng = np.random.default_rng(zlib.crc32(target.name.encode()))
    found = [
        fault(target, EXAMPLES[target.name](), parameter, label)
        for parameter in target.names
        for label in rng.choice(list(VALUES), size=2, replace=False).tolist()
    ]
    assert [text for text in found if text] == []


def test_faults_are_found() -> None:
    def loose(count: int) -> int:
        return [1, 2, 3][count]

    import inspect

    target = Target("loose", loose, tuple(inspect.signature(loose).parameters.values()))
    found = {label: fault(target, {"count": 0}, "count", label) for label in VALUES}
    assert found["1"] is None
    assert "IndexError" in found["3"]
    assert "TypeError" in found["None"]
