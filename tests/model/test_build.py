from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField, flat

NAN, INF = math.nan, math.inf


# -- pieces ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 5)))
def test_offsets_of(sizes: list[int]) -> None:
    expected = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    assert flat.offsets_of(np.array(sizes, dtype=np.int64)).tolist() == expected


@given(strategies.models())
def test_table_positions(model: MarkovRandomField) -> None:
    expected = [
        (e, a, b)
        for e, (i, j) in enumerate(model.edges.tolist())
        for a in range(model.num_states[i])
        for b in range(model.num_states[j])
    ]
    actual = flat.table_positions(model.num_states, model.edges)
    assert list(zip(*(part.tolist() for part in actual), strict=True)) == expected


@st.composite
def pair_lists(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]], list[np.ndarray]]:
    """State counts, pairs in any direction and number, and a table for each, with -inf now and then."""
    counts = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    pairs = draw(st.lists(st.sampled_from(list(itertools.permutations(range(len(counts)), 2))), max_size=8))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tables = [rng.standard_normal((counts[i], counts[j])) for i, j in pairs]
    for table in tables:
        table[rng.random(table.shape) < 0.1] = -INF
    return counts, pairs, tables


@given(pair_lists())
def test_repeated_and_reversed_pairs_are_added_up(
    case: tuple[list[int], list[tuple[int, int]], list[np.ndarray]],
) -> None:
    counts, pairs, tables = case
    merged: dict[tuple[int, int], np.ndarray] = {}
    for (i, j), table in zip(pairs, tables, strict=True):
        key, oriented = ((i, j), table) if i < j else ((j, i), table.T)
        merged[key] = merged.get(key, 0.0) + oriented
    model = MarkovRandomField.from_tables([[0.0] * count for count in counts], pairs, tables)
    assert [tuple(edge) for edge in model.edges.tolist()] == sorted(merged)
    for (i, j), table in merged.items():
        oracle.assert_log_close(model.table(i, j), table)
        oracle.assert_log_close(model.table(j, i), table.T)


@given(pair_lists())
def test_tables_and_factors_give_the_same_model(
    case: tuple[list[int], list[tuple[int, int]], list[np.ndarray]],
) -> None:
    counts, pairs, tables = case
    unary = [np.arange(count, dtype=float) for count in counts]
    model = MarkovRandomField.from_tables(unary, pairs, tables, log_constant=0.5)
    factors = [((i,), vector) for i, vector in enumerate(unary)]
    factors += list(zip(pairs, tables, strict=True))
    assert MarkovRandomField.from_factors(counts, [*factors, ((), 0.5)]) == model
    shuffled = MarkovRandomField.from_factors(counts, [((), 0.25), *reversed(factors), ((), [0.25])])
    oracle.assert_same_weights(model, shuffled)


# -- from_tables ----------------------------------------------------------------------------------------------------


class TestFromTables:
    def test_arrays_and_lists_agree(self) -> None:
        rng = np.random.default_rng(0)
        unary, tables = rng.standard_normal((4, 3)), rng.standard_normal((3, 3, 3))
        edges = [(0, 1), (3, 2), (1, 3)]
        model = MarkovRandomField.from_tables(unary, edges, tables)
        assert MarkovRandomField.from_tables(unary.tolist(), np.array(edges), tables.tolist()) == model
        assert MarkovRandomField.from_tables(list(unary), tuple(edges), list(tables)) == model
        assert MarkovRandomField.from_tables(np.asfortranarray(unary), edges, np.asfortranarray(tables)) == model
        assert MarkovRandomField.from_tables(unary, edges, (t for t in tables)) == model
        assert MarkovRandomField.from_tables(unary, np.array(edges, dtype=float), tables) == model
        assert MarkovRandomField.from_tables(unary, np.array(edges, dtype=np.uint8), tables) == model

    def test_object_arrays_hold_ragged_vectors(self) -> None:
        ragged = np.empty(2, dtype=object)
        ragged[:] = [np.zeros(2), np.zeros(3)]
        assert MarkovRandomField.from_tables(ragged, [], []).num_states.tolist() == [2, 3]

    @pytest.mark.parametrize("edges", [[], np.zeros((0, 2), dtype=int), np.zeros((0, 2)), ()])
    @pytest.mark.parametrize("tables", [[], np.zeros((0, 2, 2)), np.zeros(0), ()])
    def test_no_edges(self, edges: object, tables: object) -> None:
        assert MarkovRandomField.from_tables([[0.0, 1.0]], edges, tables).num_edges == 0

    @pytest.mark.parametrize(
        ("unary", "edges", "tables", "message"),
        [
            (None, [], [], r"^log_unary .*got None"),
            (np.zeros(3), [], [], r"^log_unary .*got shape \(3,\)"),
            (np.zeros((2, 0)), [], [], r"^log_unary .*got shape \(2, 0\)"),
            ([[0.0], []], [], [], r"^log_unary\[1\] .*got shape \(0,\)"),
            ([0.0, 1.0], [], [], r"^log_unary\[0\] .*got shape \(\)"),
            ([[[0.0]]], [], [], r"^log_unary\[0\] .*got shape \(1, 1\)"),
            ([[0.0], ["x"]], [], [], r"^log_unary\[1\] .*got \['x'\]"),
            ([[0.0, NAN]], [], [], r"^log_unary .*got nan at entry 1"),
            ([[0.0], [-INF, -INF]], [], [], r"^log_unary .*variable 1 .*-inf"),
            ([[0, 0]] * 2, [(0, 2)], [np.zeros((2, 2))], r"^edges .*edge 0 .*\(0, 2\)"),
            ([[0, 0]] * 2, [(1, 1)], [np.zeros((2, 2))], r"^edges .*edge 0 .*\(1, 1\)"),
            ([[0, 0]] * 2, [(0, 1)], [], r"^log_pairwise .*got 0"),
            ([[0, 0]] * 2, [(0, 1)], 0.5, r"^log_pairwise .*got 0\.5"),
            ([[0, 0]] * 2, [(0, 1)], np.zeros((2, 2)), r"^log_pairwise .*\(1, L_i, L_j\)"),
            ([[0, 0]] * 2, [(0, 1)], np.zeros((2, 2, 2)), r"^log_pairwise .*shape \(2, 2, 2\)"),
            ([[0, 0]] * 2, [(0, 1)], [[[0, INF], [0, 0]]], r"^log_pairwise .*got inf"),
            (
                [[0, 0], [0, 0, 0]],
                [(1, 0)],
                [np.zeros((2, 3))],
                r"^log_pairwise\[0\] for edge \(1, 0\) .*got \(2, 3\)",
            ),
            (
                [[0, 0], [0, 0, 0]],
                [(0, 1)],
                np.zeros((1, 2, 2)),
                r"^log_pairwise\[0\] .*edge \(0, 1\) .*\(2, 3\)",
            ),
            ([[0, 0]] * 2, [(0, 1)] * 2, np.full((2, 2, 2), 1e308), r"^log_pairwise .*finite"),
        ],
    )
    def test_refusals(self, unary: object, edges: object, tables: object, message: str) -> None:
        with pytest.raises(ModelError, match=message):
            MarkovRandomField.from_tables(unary, edges, tables)


# -- from_factors ---------------------------------------------------------------------------------------------------


class TestFromFactors:
    def test_flat_tables_and_missing_factors(self) -> None:
        model = MarkovRandomField.from_factors(
            [2, 3], [((1, 0), [0, 1, 2, 3, 4, 5]), ((0,), [1, 2]), ((0,), [0.5, -INF])]
        )
        assert model.table(1, 0).tolist() == [[0, 1], [2, 3], [4, 5]]
        assert model.unary(0).tolist() == [1.5, -INF]
        assert model.unary(1).tolist() == [0, 0, 0]
        assert MarkovRandomField.from_factors([2, 3], []).log_unary.tolist() == [0.0] * 5

    def test_one_pass_over_an_iterator(self) -> None:
        factors = iter([(np.array([0]), np.array([1.0, 2.0])), (range(2), np.eye(2))])
        assert MarkovRandomField.from_factors([2, 2], factors).table(0, 1).tolist() == [[1, 0], [0, 1]]

    def test_one_entry_tables_of_any_rank(self) -> None:
        model = MarkovRandomField.from_factors([1, 1], [((0,), 1.0), ((0, 1), [2.0]), ((1, 0), [[4.0]]), ((), [8.0])])
        assert model.log_weight([0, 0]) == 15.0

    @pytest.mark.parametrize(
        ("counts", "factors", "message"),
        [
            ([2, 2], [((2,), [0, 0])], r"^factors\[0\] .*got 2"),
            ([2, 2], [((0,), [0, 0]), ((-1,), [0, 0])], r"^factors\[1\] .*got -1"),
            ([2, 2], [((0, 0), np.zeros((2, 2)))], r"^factors\[0\] .*got \[0, 0\]"),
            ([2, 2, 2], [((0, 1, 0), np.zeros(8))], r"^factors\[0\] .*got \[0, 1, 0\]"),
            (
                [2, 3],
                [((0, 1), np.zeros((3, 2)))],
                r"^factors\[0\] over variables \[0, 1\] .*got \(3, 2\)",
            ),
            ([2, 3], [((0,), np.zeros(3))], r"^factors\[0\] over variables \[0\] .*got \(3,\)"),
            ([2, 3], [((), np.zeros(2))], r"^factors\[0\] over variables \[\] .*got \(2,\)"),
            ([2], [((0,), [0, NAN])], r"^factors\[0\] .*got nan at entry 1"),
            ([2], [((), INF)], r"^factors\[0\] .*got inf at entry 0"),
            ([2], [((), -INF)], r"^log_constant .*got -inf"),
            ([2], [((0,), [-INF, 0]), ((0,), [0, -INF])], r"^log_unary .*variable 0"),
            ([2], [((0,), "ab")], r"^factors\[0\] .*got 'ab'"),
            ([2], [(0, [0, 0])], r"^factors\[0\] .*got \(0, \[0, 0\]\)"),
            ([2], [((0.7,), [0, 0])], r"^factors\[0\] .*got \(\(0\.7,\), \[0, 0\]\)"),
            ([2], [3], r"^factors\[0\] .*got 3"),
            ([2], None, r"^factors .*got None"),
            ([0], [], r"^num_states .*got 0 for variable 0"),
            (2, [], r"^num_states .*got shape \(\)"),
        ],
    )
    def test_refusals(self, counts: object, factors: object, message: str) -> None:
        with pytest.raises(ModelError, match=message):
            MarkovRandomField.from_factors(counts, factors)


# -- ising and potts ------------------------------------------------------------------------------------------------


def spins(x: tuple[int, ...]) -> list[int]:
    return [2 * state - 1 for state in x]


class TestIsing:
    @given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.data())
    def test_weights(self, n: int, seed: int, data: st.DataObject) -> None:
        rng = np.random.default_rng(seed)
        edges = [e[::-1] if rng.random() < 0.5 else e for e in data.draw(strategies.graphs(n))]
        couplings, fields = rng.normal(size=len(edges)), rng.normal(size=n)
        model = MarkovRandomField.ising(edges, couplings, fields)
        for x in oracle.all_configurations(model):
            s = spins(x)
            expected = sum(h * v for h, v in zip(fields, s, strict=True))
            expected += sum(J * s[i] * s[j] for J, (i, j) in zip(couplings, edges, strict=True))
            oracle.assert_log_close(model.log_weight(x), expected)

    def test_numbers_for_all(self) -> None:
        model = MarkovRandomField.ising([(0, 1), (1, 2)], 0.5, 0.25, num_variables=4)
        assert model == MarkovRandomField.ising([(1, 0), (2, 1)], [0.5, 0.5], [0.25] * 4)
        assert MarkovRandomField.ising([(0, 1)], 0.5).num_variables == 2
        assert MarkovRandomField.ising([], 0.5, num_variables=3).num_variables == 3
        assert MarkovRandomField.ising([], [], [1.0]).log_unary.tolist() == [-1.0, 1.0]

    def test_repeated_couplings_are_added_up(self) -> None:
        assert MarkovRandomField.ising([(0, 1), (1, 0), (0, 1)], [1, 2, 4]) == MarkovRandomField.ising([(0, 1)], 7.0)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (
                lambda: MarkovRandomField.ising([(0, 1)], [1, 2]),
                r"^coupling .*got shape \(2,\)",
            ),
            (lambda: MarkovRandomField.ising([(0, 1)], NAN), r"^coupling .*got nan for edge 0"),
            (lambda: MarkovRandomField.ising([(0, 1)], -INF), r"^coupling .*got -inf for edge 0"),
            (lambda: MarkovRandomField.ising([(0, 1)], "x"), r"^coupling .*got 'x'"),
            (lambda: MarkovRandomField.ising([(0, 1)], 1, [0, INF]), r"^field .*got inf for variable 1"),
            (
                lambda: MarkovRandomField.ising([(0, 1)], 1, [[0, 0]]),
                r"^edges .*got 1",
            ),
            (
                lambda: MarkovRandomField.ising([(0, 1)], 1, [[0], [0]]),
                r"^field .*\b2\b",
            ),
            (lambda: MarkovRandomField.ising([(0, 1)], 1, [[0], [0, 1]]), r"^field .*numbers"),
            (
                lambda: MarkovRandomField.ising([(0, 3)], 1, [0, 0]),
                r"^edges .*got 3",
            ),
            (
                lambda: MarkovRandomField.ising([(0, 1)], 1, [0, 0], num_variables=3),
                r"^field .*got shape \(2,\)",
            ),
            (lambda: MarkovRandomField.ising([(0, 3)], 1, num_variables=3), r"^edges .*3, got 3"),
            (
                lambda: MarkovRandomField.ising([], 1, num_variables=-1),
                r"^num_variables .*got -1",
            ),
            (
                lambda: MarkovRandomField.ising([], 1, num_variables=2.5),
                r"^num_variables .*got 2\.5",
            ),
            (lambda: MarkovRandomField.ising([(-1, 0)], 1), r"^edges .*edge 0 .*\(-1, 0\)"),
            (
                lambda: MarkovRandomField.ising([(0, 1)], 1, variable_names=["a"]),
                r"^variable_names .*got 1",
            ),
        ],
    )
    def test_refusals(self, call: Callable[[], object], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            call()


class TestPotts:
    @given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32 - 1), st.data())
    def test_weights(self, n: int, states: int, seed: int, data: st.DataObject) -> None:
        rng = np.random.default_rng(seed)
        edges = [e[::-1] if rng.random() < 0.5 else e for e in data.draw(strategies.graphs(n))]
        couplings, fields = rng.normal(size=len(edges)), rng.normal(size=(n, states))
        model = MarkovRandomField.potts(edges, couplings, states, fields)
        for x in oracle.all_configurations(model):
            expected = sum(fields[i, state] for i, state in enumerate(x))
            expected += sum(J * (x[i] == x[j]) for J, (i, j) in zip(couplings, edges, strict=True))
            oracle.assert_log_close(model.log_weight(x), expected)

    def test_two_states_are_an_ising_model_up_to_a_constant(self) -> None:
        edges, J, h = [(0, 1), (1, 2), (0, 2)], np.array([0.5, -1.0, 2.0]), np.array([0.1, -0.2, 0.3])
        potts = MarkovRandomField.potts(edges, 2 * J, 2, np.stack([-h, h], axis=1))
        oracle.assert_same_weights(MarkovRandomField.ising(edges, J, h), potts, shift=float(J.sum()))

    def test_a_field_may_forbid_states(self) -> None:
        model = MarkovRandomField.potts([(0, 1)], 1.0, 2, [[0.0, -INF], [0.0, 0.0]])
        assert model.log_weight([1, 0]) == -INF

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: MarkovRandomField.potts([(0, 1)], 1, 0), r"^num_states .*got 0"),
            (
                lambda: MarkovRandomField.potts([(0, 1)], 1, 2.5),
                r"^num_states .*got 2\.5",
            ),
            (
                lambda: MarkovRandomField.potts([(0, 1)], 1, True),
                r"^num_states .*got True",
            ),
            (
                lambda: MarkovRandomField.potts([(0, 1)], 1, 3, [0, 0]),
                r"^field .*got shape \(2,\)",
            ),
            (
                lambda: MarkovRandomField.potts([(0, 1)], 1, 3, np.zeros((2, 2))),
                r"^field .*\(2, 3\), got shape \(2, 2\)",
            ),
            (lambda: MarkovRandomField.potts([(0, 1)], 1, 2, [[0], [0, 1]]), r"^field .*numbers"),
            (
                lambda: MarkovRandomField.potts([(0, 1)], 1, 2, NAN),
                r"^log_unary .*got nan",
            ),
            (lambda: MarkovRandomField.potts([(0, 1)], INF, 2), r"^coupling .*got inf for edge 0"),
        ],
    )
    def test_refusals(self, call: Callable[[], object], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            call()


# -- matrices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_couplings_of_a_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    J, h = np.triu(rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.6), 1), rng.standard_normal(n)
    J = J + J.T
    model = MarkovRandomField.from_couplings(J, h)
    assert model.num_edges == np.count_nonzero(J) // 2
    for x in itertools.product((0, 1), repeat=n):
        s = 2.0 * np.array(x) - 1.0
        assert model.log_weight(x) == pytest.approx(h @ s + 0.5 * s @ J @ s, abs=1e-12)
    for sparse in (scipy.sparse.csr_array(J), scipy.sparse.coo_matrix(J)):
        assert MarkovRandomField.from_couplings(sparse, h) == model


@pytest.mark.parametrize("seed", range(20))
def test_restricted_boltzmann_machine(seed: int) -> None:
    rng = np.random.default_rng(seed)
    visible, hidden = rng.integers(0, 4, size=2)
    W, b, c = rng.standard_normal((visible, hidden)), rng.standard_normal(visible), rng.standard_normal(hidden)
    model = MarkovRandomField.rbm(W, b, c)
    assert (model.num_variables, model.num_edges) == (visible + hidden, visible * hidden)
    for x in itertools.product((0, 1), repeat=int(visible + hidden)):
        v, z = np.array(x[:visible], dtype=float), np.array(x[visible:], dtype=float)
        assert model.log_weight(x) == pytest.approx(v @ W @ z + b @ v + c @ z, abs=1e-12)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MarkovRandomField.from_couplings([[0.0, 1.0], [2.0, 0.0]]), r"coupling .* \(0, 1\)"),
        (lambda: MarkovRandomField.from_couplings([[0.0, 1.0], [0.0, 0.0]]), r"coupling .* \(0, 1\)"),
        (lambda: MarkovRandomField.from_couplings([[1.0]]), r"^coupling .*diagonal"),
        (lambda: MarkovRandomField.from_couplings([[0.0, NAN], [NAN, 0.0]]), r"^coupling .*finite"),
        (lambda: MarkovRandomField.from_couplings([1.0]), r"^coupling .*square"),
        (lambda: MarkovRandomField.from_couplings([[0.0]], [1.0, 2.0]), "field must"),
        (lambda: MarkovRandomField.rbm([1.0]), "W must be 2-D"),
        (lambda: MarkovRandomField.rbm([[INF]]), "W must be finite"),
        (lambda: MarkovRandomField.rbm([[1.0]], b=[1.0, 2.0]), "b must"),
        (lambda: MarkovRandomField.rbm([[1.0]], c=[1.0, 2.0]), "c must"),
    ],
)
def test_bad_matrices(build: Callable[[], MarkovRandomField], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        build()
