"""Configurations that updates of single variables lead through, and models that these do not cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix import MarkovRandomField, UnfitMethodError
from fastmix.chains import conditionals
from fastmix.chains.conditionals import _num_groups, check_conditionals


def test_an_edge_that_no_single_update_crosses_is_refused():
    apart = np.array([[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [-np.inf, -np.inf, 0.0]])
    joined = np.array([[0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [-np.inf, 0.0, 0.0]])
    for table, refused in ((apart, True), (joined, False)):
        model = MarkovRandomField.from_tables(np.zeros((3, 3)), [(0, 1), (1, 2)], [np.zeros((3, 3)), table])
        if refused:
            with pytest.raises(UnfitMethodError, match=r"\(1, 2\).* 2 groups"):
                check_conditionals(model)
        else:
            check_conditionals(model)


@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=5), seed=st.integers(0, 99))
def test_groups_are_what_changes_of_single_coordinates_lead_through(shape: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    allowed = rng.random(shape) < rng.choice([0.1, 0.3, 0.6, 0.9])
    label = np.where(allowed, np.arange(allowed.size).reshape(allowed.shape), allowed.size)
    for _ in range(allowed.size):  # the smallest number of a group spreads along the axes
        for axis in range(allowed.ndim):
            label = np.where(allowed, label.min(axis=axis, keepdims=True), allowed.size)
    for compiled in (False, True):
        assert _num_groups(allowed, compiled=compiled) == len(np.unique(label[allowed]))


def test_groups_of_many_tables_are_found_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is small enough for Python, all together are not."""
    seen = []
    monkeypatch.setattr(conditionals, "MAX_PYTHON_ENTRIES", 3000)
    monkeypatch.setattr(conditionals, "_num_groups", lambda allowed, *, compiled: seen.append(compiled) or 1)
    rng = np.random.default_rng(0)
    tables = []
    for k in range(20):
        table = np.where(rng.random((2,) * 8) < 0.1, -np.inf, 0.0)
        tables.append((range(k, k + 8), table))
    check_conditionals(MarkovRandomField.from_factors([2] * 28, tables))
    assert seen == [256 * (k + 1) > 3000 for k in range(20)]


@pytest.mark.parametrize("seed", strategies.seeds(30, quick=10))
def test_groups_of_allowed_pairs_match_a_search(seed):
    rng = np.random.default_rng(seed)
    allowed = rng.random((rng.integers(1, 6), rng.integers(1, 6))) < 0.35
    cells = {(int(r), int(c)) for r, c in np.argwhere(allowed)}
    groups = 0
    while cells:
        groups += 1
        waiting = [cells.pop()]
        while waiting:
            r, c = waiting.pop()
            near = {cell for cell in cells if cell[0] == r or cell[1] == c}
            cells -= near
            waiting += near
    assert _num_groups(allowed) == groups
