"""The structure against plain loops over variables and edges."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError
from fastmix.model import Structure
from fastmix.model import structure as structure_module


@given(strategies.models())
def test_entries_are_found_in_both_directions(model: MarkovRandomField) -> None:
    graph, directed = model.adjacency, model.structure.directed
    tables = oracle.edge_tables(model)
    for i in range(model.num_variables):
        for k in range(graph.indptr[i], graph.indptr[i + 1]):
            j = int(graph.neighbors[k])
            assert directed.owner[k] == i
            for s in range(model.num_states[i]):
                for t in range(model.num_states[j]):
                    place = directed.starts[k] + s * directed.own_steps[k] + t * directed.other_steps[k]
                    expected = tables[i, j][s][t] if i < j else tables[j, i][t][s]
                    assert model.log_pairwise[place] == expected


@given(strategies.models())
def test_a_sweep_visits_every_variable_once_and_no_neighbors_together(model: MarkovRandomField) -> None:
    order, starts = model.structure.visit_order
    assert sorted(order.tolist()) == list(range(model.num_variables))
    edges = {tuple(edge) for edge in model.edges.tolist()}
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        members = order[first:last].tolist()
        assert members == sorted(members)
        assert not any((i, j) in edges for i in members for j in members)


def test_a_wrong_coloring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure_module, "color_graph", lambda n, edges, graph: np.zeros(n, dtype=np.int64))
    with pytest.raises(ModelError, match=r"^colors "):
        _ = Structure.of([2, 2], [(0, 1)]).visit_order


@given(strategies.models())
def test_patterns_are_counted(model: MarkovRandomField) -> None:
    around: dict[int, int] = {}
    for i, j in model.edges.tolist():
        around[i] = around.get(i, 1) * int(model.num_states[j])
        around[j] = around.get(j, 1) * int(model.num_states[i])
    expected = sum((int(count) - 1) * around.get(i, 1) for i, count in enumerate(model.num_states))
    assert math.isclose(model.structure.pattern_entries, expected, rel_tol=1e-9)


@given(strategies.models())
def test_pickles_are_locked_and_equal(model: MarkovRandomField) -> None:
    copy = pickle.loads(pickle.dumps(model.structure))
    for name in ("num_states", "edges", "unary_offsets", "pairwise_offsets", "factor_offsets"):
        np.testing.assert_array_equal(getattr(copy, name), getattr(model.structure, name))
        oracle.assert_read_only(getattr(copy, name))


def test_scopes_of_any_size_have_their_places() -> None:
    """No model has larger terms yet, but a structure knows where their entries are."""
    counts = np.array([2, 3, 4, 5])
    structure = Structure(
        counts, np.zeros((0, 2), dtype=np.int64), np.array([0, 3, 7]), np.array([0, 1, 2, 0, 1, 2, 3])
    )
    assert structure.num_factors == 2
    assert structure.factor_offsets.tolist() == [0, 24, 24 + 120]
    assert Structure.of(counts, []).factor_offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("counts", "edges", "message"),
    [
        ([2, 2], [(1, 0)], r"^edges .*i < j"),
        ([2, 2, 2], [(0, 2), (0, 1)], r"^edges .*order"),
        ([2, 2], [(0, 1), (0, 1)], r"^edges .*order"),
        ([2, 0], [], r"^num_states .*got 0 for variable 1"),
        ([2], [(0, 1)], r"^edges .*below .*1"),
    ],
)
def test_refusals(counts: list[int], edges: list[tuple[int, int]], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Structure.of(counts, edges)
