"""Kinds of tables are found by content, and give the tables back."""

from __future__ import annotations

import numpy as np
import pytest

import strategies
from fastmix import MarkovRandomField
from fastmix.model.pattern_forms import ANY, POTTS, EdgeForms, edge_forms, tables_as_patterns


def tables_of(forms: EdgeForms, num_states: int) -> list[np.ndarray | None]:
    """The tables that forms say, None for those of any form."""
    states = np.arange(num_states)
    distance = np.abs(np.subtract.outer(states, states))
    tables: list[np.ndarray | None] = []
    for kind, level, step, reach in zip(*forms, strict=True):
        sizes = np.eye(num_states) if kind == POTTS else np.minimum(distance, reach)
        tables.append(None if kind == ANY else level + step * sizes)
    return tables


@pytest.mark.parametrize("seed", range(60))
def test_forms_give_the_tables_back(seed: int) -> None:
    twins = strategies.picture_twins(seed)
    for model in twins:
        count = int(model.num_states[0])
        forms = edge_forms(tables_as_patterns(model))
        full = model.log_pairwise.reshape(-1, count, count)
        for table, found in zip(full, tables_of(forms, count), strict=True):
            if found is not None:
                np.testing.assert_allclose(found, table, rtol=0, atol=1e-14)
    tables = twins.shared.shared_tables
    assert tables is not None
    is_mixed = False if tables.next_weights is None else tables.next_weights != 0.0
    assert (edge_forms(tables).kind[(tables.use.of_edge < 5) & ~np.asarray(is_mixed)] != ANY).all()


def test_other_tables_have_no_form() -> None:
    almost = np.eye(3)
    almost[0, 2] = 1e-9
    hard = np.where(np.eye(3) > 0, 0.0, -np.inf)
    wide = np.arange(6.0).reshape(2, 3)
    edges = [(0, 1), (1, 2), (0, 3)]
    model = MarkovRandomField.from_tables([np.zeros(3)] * 3 + [np.zeros(2)], edges, [almost, hard, wide.T])
    assert (edge_forms(tables_as_patterns(model)).kind == ANY).all()
