"""Arguments of all kinds for every parameter of every public function and method."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hostile import VALUES, Target, fault
from hostile_examples import EXAMPLES, OPEN
from test_hostile import TARGETS, nothing_is_left

__all__ = ["nothing_is_left"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_all_calls(target: Target, tell: Callable[[str, str, str], None]) -> None:
    found = [fault(target, EXAMPLES[target.name](), parameter, label) for parameter in target.names for label in VALUES]
    faults = [text for text in found if text]
    counted = f"{len(faults)} of {len(found)} end in anything but an answer or a clear error"
    tell("hostile calls", "all parameters of all public functions", counted)  # one row: what says the same is added
    if target.name in OPEN and faults:
        pytest.xfail(f"{len(faults)} of {len(found)} calls are not refused in clear words")
    assert faults == []
