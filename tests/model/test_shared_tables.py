"""Models that share tables: every accessor gives what the model with the tables in full gives."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix.errors import ModelError, ResourceError
from fastmix.io import npz
from fastmix.model import MarkovRandomField
from fastmix.model.attractive import attractive_form, is_attractive
from fastmix.model.forms import center_pairs, couplings_of, fields_of, move_constants
from fastmix.model.inputs import image_edges
from fastmix.model.reduce import forbid_others, reduce_model
from fastmix.model.rounding import log_size
from fastmix.model.shared import SharedTables, TableUse
from fastmix.model.sharing import find_shared
from fastmix.model.tuning import MIN_SHARED_ENTRIES
from strategies import Shared

INF = np.inf
LABELS = 6
DISTANCE = -np.minimum(np.abs(np.subtract.outer(np.arange(LABELS), np.arange(LABELS))), 2.0)


def is_laid_out(model: MarkovRandomField) -> bool:
    """Whether the full tables of a model have been made."""
    return "log_pairwise" in vars(model)


def assert_same_model(one: MarkovRandomField, other: MarkovRandomField) -> None:
    """Equal arrays, and equal identity."""
    for name in ("num_states", "edges", "log_unary", "unary_offsets", "pairwise_offsets", "log_pairwise"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.log_constant == other.log_constant
    assert one.content_hash == other.content_hash
    assert one == other
    assert hash(one) == hash(other)


# -- accessors --------------------------------------------------------------------------------------------------------


@given(strategies.shared_models())
def test_identity_is_that_of_full_tables(twins: Shared) -> None:
    assert twins.shared.content_hash == twins.full.content_hash
    assert not is_laid_out(twins.shared)
    assert_same_model(twins.shared, twins.full)


@given(strategies.shared_models(min_variables=2), st.integers(0, 2**32 - 1))
def test_accessors(twins: Shared, seed: int) -> None:
    shared, full = twins
    rng = np.random.default_rng(seed)
    for i, j in full.edges.tolist():
        np.testing.assert_array_equal(shared.table(i, j), full.table(i, j))
        np.testing.assert_array_equal(shared.table(j, i), full.table(j, i))
        assert not shared.table(i, j).flags.writeable
    for (ends, table), (other_ends, other) in zip(shared.terms(), full.terms(), strict=True):
        assert list(ends) == list(other_ends)
        np.testing.assert_array_equal(table, other)
    assert shared.has_forbidden == full.has_forbidden
    assert shared.tables_forbid == full.tables_forbid
    assert shared.num_parameters == full.num_parameters
    assert repr(shared) == repr(full)
    states = rng.integers(0, full.num_states, size=(5, full.num_variables))
    np.testing.assert_array_equal(shared.log_weight(states), full.log_weight(states))
    np.testing.assert_array_equal(shared.sufficient_statistics(states), full.sufficient_statistics(states))
    np.testing.assert_array_equal(shared.least_of_tables(), full.least_of_tables())
    np.testing.assert_array_equal(shared.largest_of_tables(), full.largest_of_tables())
    np.testing.assert_array_equal(shared.sizes_of_tables(), full.sizes_of_tables())
    assert log_size(shared) == log_size(full)
    assert not is_laid_out(shared)
    np.testing.assert_array_equal(shared.parameters, full.parameters)


@given(strategies.shared_models())
def test_tables_by_shape(twins: Shared) -> None:
    for num_rows, num_cols, members in twins.full.structure.table_shapes:
        for edges in (members, members[::-1]):
            ours = twins.shared.edge_tables(edges, num_rows, num_cols)
            np.testing.assert_array_equal(ours, twins.full.edge_tables(edges, num_rows, num_cols))
        for row, col in itertools.product(range(num_rows), range(num_cols)):
            ours = twins.shared.table_entries(members, np.array(row), np.array(col))
            np.testing.assert_array_equal(ours, twins.full.table_entries(members, np.array(row), np.array(col)))
    assert not is_laid_out(twins.shared)


@given(strategies.shared_models())
def test_copies_and_files(twins: Shared) -> None:
    shared = twins.shared
    stream = io.BytesIO()
    npz.write(shared, stream)
    for twin in (
        copy.copy(shared),
        copy.deepcopy(shared),
        pickle.loads(pickle.dumps(shared)),
        npz.read(stream.getvalue(), "m"),
    ):
        assert twin.shared_tables is not None
        assert not is_laid_out(twin)
        assert_same_model(twin, twins.full)
        oracle.assert_read_only(twin.shared_tables.weights, twin.shared_tables.patterns)
    again = io.BytesIO()
    npz.write(npz.read(stream.getvalue(), "m"), again)
    assert again.getvalue() == stream.getvalue()


# -- other parameters -------------------------------------------------------------------------------------------------


@given(strategies.shared_models(min_variables=1))
def test_other_parameters(twins: Shared) -> None:
    shared, full = twins
    moved = shared.replace(log_unary=2.0 * full.log_unary)
    assert moved.shared_tables is shared.shared_tables
    assert moved.structure is shared.structure
    assert_same_model(moved, full.replace(log_unary=2.0 * full.log_unary))
    tables = np.where(full.log_pairwise > -INF, full.log_pairwise + 1.0, -INF)
    in_full = shared.replace(log_pairwise=tables)
    assert in_full.shared_tables is None
    assert in_full.structure.table_use is None
    assert_same_model(in_full, full.replace(log_pairwise=tables))
    assert_same_model(shared.with_parameters(full.parameters), full)


@given(strategies.shared_models(min_variables=1), st.data())
def test_evidence_and_reductions(twins: Shared, data: st.DataObject) -> None:
    shared, full = twins
    observed = {i: data.draw(st.integers(-1, int(count) - 1)) for i, count in enumerate(full.num_states)}
    evidence = {i: state for i, state in observed.items() if state >= 0}
    forbidden = data.draw(st.sampled_from([0.0, 0.3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    unary = np.where(rng.random(len(full.log_unary)) < forbidden, -INF, full.log_unary)
    unary[full.unary_offsets[:-1] + rng.integers(0, full.num_states)] = 0.5
    for options in ({}, {"drop_forbidden": False}, {"fold_single": True}):
        expected = outcome(full.replace(log_unary=unary), evidence, **options)
        found = outcome(shared.replace(log_unary=unary), evidence, **options)
        assert type(found) is type(expected)
        if isinstance(expected, str):
            assert found == expected
            continue
        assert_same_model(found.model, expected.model)
        for name in ("variables", "unary_positions", "pairwise_positions", "fixed"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        edges = rng.random(len(expected.model.log_pairwise))
        nodes = rng.random(len(expected.model.log_unary))
        np.testing.assert_array_equal(
            found.expand_edge_marginals(nodes, edges), expected.expand_edge_marginals(nodes, edges)
        )
    whole = forbid_others(full, evidence)
    other = forbid_others(shared, evidence)
    assert (whole is None) == (other is None)
    if whole is not None and other is not None:
        assert_same_model(other.model, whole.model)


def outcome(model: MarkovRandomField, evidence: dict[int, int], **options: Any) -> Any:
    """A reduction, or the words of the error that it ends with."""
    try:
        return reduce_model(model, evidence, **options)
    except ModelError as error:
        return str(error)


def test_a_reduced_model_still_shares_its_tables() -> None:
    unary = np.zeros((40, 40, LABELS))
    unary[3:20, :, 4] = -INF
    model = MarkovRandomField.image(unary, DISTANCE, connectivity=8)
    given_some = reduce_model(model, {5: 1, 700: 2}).model
    assert given_some.shared_tables is not None
    assert given_some.shared_tables.use.num_patterns <= 4
    assert not is_laid_out(model)
    assert not is_laid_out(given_some)


# -- forms ------------------------------------------------------------------------------------------------------------


@given(strategies.shared_models(allow_forbidden=False))
def test_centered_pairs(twins: Shared) -> None:
    for means_only in (False, True):
        ours = center_pairs(twins.shared, means_only=means_only)
        theirs = center_pairs(twins.full, means_only=means_only)
        np.testing.assert_allclose(ours.log_unary, theirs.log_unary, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(ours.log_pairwise, theirs.log_pairwise, rtol=1e-12, atol=1e-12)
        assert ours.log_constant == pytest.approx(theirs.log_constant, rel=1e-12, abs=1e-12)


@given(strategies.shared_models(scales=(1.0, 1e3, 1e9)))
def test_constants_are_moved_alike(twins: Shared) -> None:
    assert_same_model(move_constants(twins.shared), move_constants(twins.full))


def test_forms_of_a_potts_picture() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30, 30, LABELS))
    edges, _ = image_edges((30, 30), 4, None, None)
    weights = rng.uniform(0.2, 2.0, len(edges))
    model = MarkovRandomField.image(scores, 0.5, weights=weights)
    full = MarkovRandomField(model.num_states, model.log_unary, model.edges, model.log_pairwise)
    assert model.shared_tables is not None
    np.testing.assert_allclose(couplings_of(model), 0.5 * weights, rtol=1e-12)
    np.testing.assert_allclose(fields_of(model), fields_of(full), atol=1e-12)
    assert is_attractive(model)
    np.testing.assert_allclose(attractive_form(model).couplings, attractive_form(full).couplings, rtol=1e-12)


# -- what users give --------------------------------------------------------------------------------------------------


@given(strategies.shared_models(allow_mixtures=False, min_variables=2), st.data())
def test_from_patterns(twins: Shared, data: st.DataObject) -> None:
    """Edges in any order and direction, patterns given as they are or transposed, and pairs given twice."""
    full = twins.full
    shared = twins.shared.shared_tables
    assert shared is not None
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    patterns = [shared.pattern(k) for k in range(shared.use.num_patterns)]
    twice = bool(rng.integers(2)) and not full.tables_forbid
    pairs: list[list[int]] = []
    numbers: list[int] = []
    weights: list[float] = []
    for e in rng.permutation(full.num_edges).tolist():
        ends = full.edges[e].tolist()
        number = int(shared.use.of_edge[e])
        if shared.use.turned[e]:
            ends = ends[::-1]
        if rng.integers(2):  # the same table by the transpose of the pattern
            ends = ends[::-1]
            number += len(patterns)
        for share in (0.25, 0.75) if twice else (1.0,):
            pairs.append(ends)
            numbers.append(number)
            weights.append(share * shared.weights[e])
    unary = np.split(full.log_unary, full.unary_offsets[1:-1])
    both = [*patterns, *(pattern.T for pattern in patterns)]
    model = MarkovRandomField.from_patterns(unary, pairs, both, numbers, weights, log_constant=0.25)
    assert model.shared_tables is not None
    assert model.shared_tables.use.num_patterns <= len(patterns)
    np.testing.assert_allclose(model.log_pairwise, full.log_pairwise, rtol=1e-13)
    if not twice:
        assert_same_model(model, full)


def test_repeated_pairs_of_other_patterns_are_added_up() -> None:
    rng = np.random.default_rng(0)
    one, two = rng.normal(size=(2, 3, 3))
    model = MarkovRandomField.from_patterns(
        np.zeros((3, 3)), [(1, 0), (0, 1), (2, 1), (1, 0)], [one, two], [0, 1, 0, 1], [2.0, 1.0, 3.0, 0.5]
    )
    np.testing.assert_allclose(model.table(0, 1), 2.0 * one.T + two + 0.5 * two.T)
    np.testing.assert_allclose(model.table(2, 1), 3.0 * one)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patterns": [np.zeros((2, 3))]}, "patterns"),
        ({"patterns": [np.zeros(3)]}, "patterns"),
        ({"patterns": [np.full((3, 3), np.nan)]}, "patterns"),
        ({"pattern_of_edge": 1}, "pattern_of_edge"),
        ({"pattern_of_edge": [0]}, "pattern_of_edge"),
        ({"weights": [1.0]}, "weights"),
        ({"weights": np.inf}, "weights"),
        ({"weights": 1e101}, "weights"),
        ({"patterns": [np.diag([-INF, 0, 0])], "weights": -1.0}, "weights"),
    ],
)
def test_refusals(changes: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"patterns": [np.eye(3)], "pattern_of_edge": 0, "weights": 1.0} | changes
    with pytest.raises(ModelError, match=words):
        MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], **arguments)


def test_weights_of_zero_forbid_nothing() -> None:
    hard = np.where(np.eye(3, dtype=bool), -INF, 0.0)
    model = MarkovRandomField.from_patterns(np.zeros((3, 3)), [(0, 1), (1, 2)], [hard], 0, [0.0, 2.0])
    assert model.table(0, 1).tolist() == np.zeros((3, 3)).tolist()
    assert model.table(1, 2).tolist() == hard.tolist()
    assert model.tables_forbid
    assert not MarkovRandomField.from_patterns(np.zeros((2, 3)), [(0, 1)], [hard], 0, 0.0).tables_forbid


def test_other_full_tables_beside_shared_ones_are_refused() -> None:
    model = MarkovRandomField.from_patterns(np.zeros((2, 3)), [(0, 1)], [np.eye(3)])

    def with_full(tables: Any) -> MarkovRandomField:
        return MarkovRandomField(
            model.num_states, model.log_unary, model.edges, tables, shared_tables=model.shared_tables
        )

    assert with_full(model.log_pairwise) == model
    with pytest.raises(ModelError, match="log_pairwise"):
        with_full(model.log_pairwise + 1.0)


def test_mixtures_need_a_following_pattern() -> None:
    use = TableUse(np.array([[2, 2], [2, 3]]), np.array([0], dtype=np.int32), np.array([False]))
    with pytest.raises(ModelError, match="next_weights"):
        SharedTables.checked(use, np.zeros(10), np.ones(1), np.ones(1))


# -- found by content -------------------------------------------------------------------------------------------------


def many_tables(patterns: list[Any], weights: Any, *, turned: bool = False) -> tuple[Any, Any]:
    """Edges of a chain, and a table for each: patterns in turn, times the weights."""
    count = len(weights)
    chain = np.column_stack([np.arange(count), np.arange(1, count + 1)])
    tables = np.stack([patterns[e % len(patterns)] for e in range(count)])
    if turned:
        tables[::3] = tables[::3].transpose(0, 2, 1)
    return chain, weights[:, None, None] * tables


COUNT = 2 * MIN_SHARED_ENTRIES // LABELS**2


@pytest.mark.parametrize("kind", ["equal", "potts", "truncated", "uneven", "two", "turned"])
def test_shared_tables_are_found(kind: str) -> None:
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.1, 2.0, COUNT)
    weights[5] = 0.0
    uneven = rng.normal(size=(2, LABELS, LABELS))
    patterns = {
        "equal": [uneven[0]], "potts": [np.eye(LABELS)], "truncated": [DISTANCE], "uneven": [uneven[0]],
        "two": [uneven[0], np.eye(LABELS)], "turned": [uneven[0]],
    }[kind]  # fmt: skip
    if kind == "equal":
        weights = np.ones(COUNT)
    edges, tables = many_tables(patterns, weights, turned=kind == "turned")
    unary = np.zeros((COUNT + 1, LABELS))
    model = MarkovRandomField.from_tables(unary, edges, tables)
    assert model.shared_tables is not None
    assert model.shared_tables.use.num_patterns == len(patterns)
    exactly = kind in ("equal", "potts", "truncated")
    np.testing.assert_allclose(model.log_pairwise, tables.reshape(-1), rtol=0.0 if exactly else 2e-15)


def test_forbidden_entries_are_found_too() -> None:
    edges, tables = many_tables([np.where(np.eye(LABELS, dtype=bool), -INF, 0.0)], np.ones(COUNT))
    model = MarkovRandomField.from_tables(np.zeros((COUNT + 1, LABELS)), edges, tables)
    assert model.shared_tables is not None
    np.testing.assert_array_equal(model.log_pairwise, tables.reshape(-1))


def test_tables_that_are_all_different_stay_in_full() -> None:
    rng = np.random.default_rng(2)
    edges, tables = many_tables([np.eye(LABELS)], np.ones(COUNT))
    tables = tables + rng.normal(size=tables.shape)
    model = MarkovRandomField.from_tables(np.zeros((COUNT + 1, LABELS)), edges, tables)
    assert model.shared_tables is None
    np.testing.assert_array_equal(model.log_pairwise, tables.reshape(-1))


def test_one_table_that_is_different_is_a_pattern_of_its_own() -> None:
    rng = np.random.default_rng(3)
    edges, tables = many_tables([np.eye(LABELS)], rng.uniform(1.0, 2.0, COUNT))
    tables[COUNT // 2, 0, 1] = 0.125
    model = MarkovRandomField.from_tables(np.zeros((COUNT + 1, LABELS)), edges, tables)
    assert model.shared_tables is not None
    assert model.shared_tables.use.num_patterns == 2
    np.testing.assert_array_equal(model.log_pairwise, tables.reshape(-1))


def test_small_tables_stay_in_full() -> None:
    ends = np.full((MIN_SHARED_ENTRIES, 2), 3)
    assert find_shared(ends, np.zeros(9 * MIN_SHARED_ENTRIES)) is None
    assert MarkovRandomField.potts([(0, 1)], 1.0, 21).shared_tables is None


def test_builders_share_what_they_know_to_be_shared() -> None:
    edges, _ = image_edges((40, 40), 4, None, None)
    assert MarkovRandomField.potts(edges, np.linspace(-1, 1, len(edges)), LABELS).shared_tables is not None
    scores = np.zeros((40, 40, LABELS))
    picture = np.random.default_rng(0).random((40, 40))
    for connectivity in (4, 8):
        for options in ({}, {"contrast": picture}):
            model = MarkovRandomField.image(scores, DISTANCE, connectivity=connectivity, **options)
            assert model.shared_tables is not None
            pairs, weights = image_edges((40, 40), connectivity, options.get("contrast"), None)
            tables = weights[:, None, None] * DISTANCE + 0.0
            assert model == MarkovRandomField(model.num_states, model.log_unary, pairs, tables.reshape(-1))
            given = MarkovRandomField.image(scores, DISTANCE, weights=weights, connectivity=connectivity)
            assert given == model
    with pytest.raises(ModelError, match="weights"):
        MarkovRandomField.image(scores, DISTANCE, weights=1.0, contrast=picture)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_a_large_picture_is_small_and_its_full_tables_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    edges, _ = image_edges((120, 160), 4, None, None)
    model = MarkovRandomField.image(rng.normal(size=(120, 160, 21)), 1.0, weights=rng.random(len(edges)))
    arrays = [model.log_unary, model.num_states, model.edges, model.unary_offsets, model.pairwise_offsets]
    assert model.shared_tables is not None
    assert sum(array.nbytes for array in arrays) + model.shared_tables.num_bytes < 0.12e9 / 16
    monkeypatch.setattr("fastmix._memory.available_memory", lambda: 1 << 26)
    with pytest.raises(ResourceError):
        model.log_pairwise  # noqa: B018
    assert model.table(0, 1).shape == (21, 21)
