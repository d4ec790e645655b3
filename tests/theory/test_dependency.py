from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix import instances
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField
from fastmix.theory import conditionals
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.dependency import (
    DEPENDENCIES,
    dependency_matrix,
    edge_dependencies,
    rounding_margins,
)
from oracle import theory

INF = math.inf


def assert_dependencies_close(
    model: MarkovRandomField, actual: np.ndarray, expected: np.ndarray, dependency: str
) -> None:
    """Equal up to the rounding that the library states for itself, and as much for the oracle."""
    assert actual.shape == expected.shape
    infinite = np.isinf(expected)
    assert (np.isinf(actual) == infinite).all()
    slack = 2 * rounding_margins(model, dependency=dependency) + 1e-14 + 1e-13 * np.where(infinite, 0.0, expected)
    assert (np.abs(np.where(infinite, 0.0, actual) - np.where(infinite, 0.0, expected)) <= slack).all()


# -- against the definition -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dependency", ["sigmoid", "range", "l1", "linf"])
@given(model=strategies.models())
def test_the_formulas_match_loops_over_columns(model: MarkovRandomField, dependency: str) -> None:
    expected = theory.edge_dependencies(model, dependency)
    assert_dependencies_close(model, edge_dependencies(model, dependency=dependency), expected, dependency)


@given(model=strategies.models(max_variables=4, max_states=3))
def test_exact_matches_the_definition(model: MarkovRandomField) -> None:
    expected = theory.edge_dependencies(model, "exact")
    assert_dependencies_close(model, edge_dependencies(model, dependency="exact"), expected, "exact")


@given(model=strategies.models(max_variables=5, max_states=3))
def test_bounds_are_ordered(model: MarkovRandomField) -> None:
    value = {dependency: edge_dependencies(model, dependency=dependency) for dependency in DEPENDENCIES}
    slack = 1 + 1e-15
    for smaller, larger in (("exact", "sigmoid"), ("sigmoid", "range"), ("range", "l1"), ("range", "linf")):
        assert (value[smaller] <= value[larger] * slack).all(), (smaller, larger)
    assert (value["sigmoid"] <= 1.0).all()
    assert (value["exact"] >= 0.0).all()


def test_sigmoid_is_the_largest_over_all_fields() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = rng.normal(size=(3, 2))
        difference = table[:, 0] - table[:, 1]
        high, low = int(difference.argmax()), int(difference.argmin())
        # All weight on the two extreme states, in equal measure half-way between the two columns.
        field = np.full(3, -1e3)
        field[[high, low]] = -table[[high, low]].mean(axis=1)
        model = MarkovRandomField.from_tables([field, [0.0, 0.0]], [(0, 1)], [table])
        exact, sigmoid = edge_dependencies(model, dependency="exact"), edge_dependencies(model)
        assert exact[0, 0] == pytest.approx(sigmoid[0, 0], abs=1e-12)


# -- invariances ----------------------------------------------------------------------------------------------------


@given(model=strategies.models(max_variables=4, max_states=3), data=st.data())
def test_relabeling_and_reversing_edges_only_moves_entries(model: MarkovRandomField, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(model.num_variables)))
    other = strategies.relabel(model, order)
    for dependency in DEPENDENCIES:
        before = dependency_matrix(model, dependency=dependency).toarray()[np.ix_(order, order)]
        after = dependency_matrix(other, dependency=dependency).toarray()
        scale = np.abs(model.log_pairwise[np.isfinite(model.log_pairwise)]).max(initial=1.0)
        np.testing.assert_allclose(after, before, rtol=1e-12, atol=1e-12 * scale)


@given(model=strategies.models(min_variables=2, scales=(0.3, 1.0)), seed=st.integers(0, 2**32 - 1))
def test_functions_of_one_variable_leave_range_and_sigmoid_alone(model: MarkovRandomField, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tables = model.log_pairwise.copy()
    for (i, j), start in zip(model.edges.tolist(), model.pairwise_offsets[:-1].tolist(), strict=True):
        rows, cols = int(model.num_states[i]), int(model.num_states[j])
        extra = rng.normal(size=(rows, 1)) + rng.normal(size=(1, cols))
        tables[start : start + rows * cols] += extra.ravel()
    other = model.replace(log_pairwise=tables)
    for dependency in ("range", "sigmoid"):
        before, after = edge_dependencies(model, dependency=dependency), edge_dependencies(other, dependency=dependency)
        np.testing.assert_allclose(after, before, atol=1e-13)


@given(model=strategies.models(allow_forbidden=False))
def test_range_and_sigmoid_are_symmetric_without_forbidden_pairs(model: MarkovRandomField) -> None:
    for dependency in ("range", "sigmoid"):
        values = edge_dependencies(model, dependency=dependency)
        assert (values[:, 0] == values[:, 1]).all()


@given(model=strategies.models())
def test_a_state_that_a_unary_forbids_counts_for_nothing(model: MarkovRandomField) -> None:
    for dependency in DEPENDENCIES:
        dropped = model.drop_forbidden_states()
        np.testing.assert_array_equal(
            edge_dependencies(model, dependency=dependency), edge_dependencies(dropped, dependency=dependency)
        )


# -- known values ---------------------------------------------------------------------------------------------------


def test_ising_and_potts_have_closed_forms() -> None:
    couplings = np.array([0.7, -1.3, 0.0])
    ising = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3)], couplings)
    potts = MarkovRandomField.potts([(0, 1), (1, 2), (2, 3)], couplings, 4)
    for dependency in ("range", "linf"):
        assert edge_dependencies(ising, dependency=dependency).tolist() == np.abs([couplings, couplings]).T.tolist()
        assert (
            edge_dependencies(potts, dependency=dependency).tolist() == (np.abs([couplings, couplings]).T / 2).tolist()
        )
    np.testing.assert_allclose(edge_dependencies(ising)[:, 0], np.tanh(np.abs(couplings)), rtol=1e-15)


def test_the_column_is_the_one_that_moves_the_other() -> None:
    # Functions of one variable are seen by l1 and linf: those of x_0 move nothing in x_0 but do in x_1.
    model = MarkovRandomField.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [[[4.0, 4.0, 4.0], [0.0, 0.0, 0.0]]])
    assert edge_dependencies(model, dependency="linf").tolist() == [[0.0, 2.0]]
    assert edge_dependencies(model, dependency="l1").tolist() == [[0.0, 3.0]]
    assert dependency_matrix(model, dependency="linf").toarray().tolist() == [[0.0, 0.0], [2.0, 0.0]]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[0.0, -INF], [0.0, 0.0]], [[INF, INF]]),  # a row open under one column only
        ([[-INF, -INF], [0.0, 1.0]], [[0.0, INF]]),  # a row that nothing opens: one state is left in effect
        ([[-INF, 0.0], [-INF, 0.0]], [[INF, 0.0]]),  # a column that closes everything
        ([[0.0, -INF], [-INF, 0.0]], [[INF, INF]]),  # disjoint supports
    ],
)
def test_forbidden_pairs_follow_their_rules(table: list[list[float]], expected: list[list[float]]) -> None:
    model = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [table])
    for dependency in ("range", "l1", "linf"):
        values = edge_dependencies(model, dependency=dependency)
        assert (np.isinf(values) == np.isinf(expected)).all()
    sigmoid = edge_dependencies(model)
    assert sigmoid.tolist() == np.tanh(expected).tolist()


def test_two_columns_that_close_everything_leave_nothing_defined() -> None:
    table = [[-INF, -INF, 0.0], [-INF, -INF, 0.0]]
    model = MarkovRandomField.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [table])
    assert edge_dependencies(model)[0, 0] == 1.0
    assert edge_dependencies(model, dependency="range")[0, 0] == INF


def test_huge_entries_give_no_nan() -> None:
    big = 1e100
    for table in ([[big, -big], [big, -big]], [[big, -big], [-big, big]], [[big, big], [big, big]]):
        model = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [table])
        for dependency in ("sigmoid", "range", "l1", "linf"):
            values = edge_dependencies(model, dependency=dependency)
            assert not np.isnan(values).any()
            assert (values >= 0.0).all()


def test_one_state_variables_depend_on_nothing() -> None:
    model = MarkovRandomField.from_tables([[0.0], [0.0, 1.0]], [(0, 1)], [[[1.0, 5.0]]])
    for dependency in ("exact", "sigmoid", "range"):
        assert edge_dependencies(model, dependency=dependency).tolist() == [[0.0, 0.0]]


def test_without_edges_there_is_nothing() -> None:
    for n in (0, 3):
        model = MarkovRandomField.ising([], [], num_variables=n)
        for dependency in DEPENDENCIES:
            assert edge_dependencies(model, dependency=dependency).shape == (0, 2)
            assert rounding_margins(model, dependency=dependency).shape == (0, 2)
            assert dependency_matrix(model, dependency=dependency).shape == (n, n)


def test_large_tables_match_loops() -> None:
    model = instances.random_tables([(0, 1), (0, 2), (1, 2), (1, 3)], [9, 12, 9, 12], scale=1.0, seed=0)
    for dependency in ("sigmoid", "range", "l1", "linf"):
        expected = theory.edge_dependencies(model, dependency)
        assert_dependencies_close(model, edge_dependencies(model, dependency=dependency), expected, dependency)


def test_the_matrix_is_the_values_of_the_edges() -> None:
    model = instances.random_tables([(0, 3), (1, 3), (1, 2)], [2, 3, 2, 4, 2], scale=1.0, seed=1)
    for dependency in DEPENDENCIES:
        matrix = dependency_matrix(model, dependency=dependency)
        np.testing.assert_allclose(matrix.toarray(), theory.dependency_matrix(model, dependency), rtol=1e-12)
        assert matrix.nnz == 2 * model.num_edges
        assert matrix.has_sorted_indices


# -- the enumeration ------------------------------------------------------------------------------------------------


def test_equal_couplings_of_a_star() -> None:
    leaves, coupling, field = 14, 0.3, 0.2
    model = MarkovRandomField.ising([(0, k) for k in range(1, leaves + 1)], coupling, [field] + [0.0] * leaves)

    def up(total: float) -> float:
        return 1.0 / (1.0 + math.exp(-2.0 * (field + coupling * total)))

    expected = max(up(s + 1) - up(s - 1) for s in range(-(leaves - 1), leaves, 2))
    values = edge_dependencies(model, dependency="exact")
    np.testing.assert_allclose(values[:, 0], expected, rtol=1e-12)
    np.testing.assert_allclose(values[:, 1], math.tanh(coupling), rtol=1e-12)


def test_a_large_degree_is_refused_with_the_estimate_and_the_alternative() -> None:
    rng = np.random.default_rng(0)
    model = MarkovRandomField.ising([(0, k) for k in range(1, 41)], rng.normal(size=40))
    with pytest.raises(ResourceError, match=r"1\.1e\+12 .*\b40\b.*dependency='sigmoid'"):
        edge_dependencies(model, dependency="exact")


def test_many_small_enumerations_are_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditionals, "MAX_EVALUATIONS", 100)
    with pytest.raises(ResourceError, match="limit of 100 "):
        edge_dependencies(instances.ising_grid(5, 5, coupling_max=1.0, seed=0), dependency="exact")


def test_an_unknown_bound_is_named_with_the_known_ones() -> None:
    model = MarkovRandomField.ising([(0, 1)], 0.5)
    with pytest.raises(ValueError, match=r"^dependency .*'l2'$") as caught:
        edge_dependencies(model, dependency="l2")
    assert all(name in str(caught.value) for name in ("exact", "field", "sigmoid", "range", "l1", "linf"))


def test_importing_the_theory_loads_neither_scipy_nor_numba() -> None:
    code = "import fastmix.theory.certify, sys; sys.exit(sum(name in sys.modules for name in ('scipy', 'numba')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- conditionals without an allowed state --------------------------------------------------------------------------


@given(model=strategies.models(max_variables=4, max_states=4))
def test_undefined_conditionals_are_found(model):
    small = model.drop_forbidden_states()
    patterns = [(i, x) for x in oracle.all_configurations(small) for i in range(small.num_variables)]
    undefined = [i for i, x in patterns if oracle.conditional(small, i, x) is None]
    found = undefined_conditional(model)
    assert found == undefined_conditional(small)
    if undefined:
        i = min(undefined)
        assert found == (i, f"variable {i} has no allowed state for some states of its neighbors")
    else:
        assert found is None


@pytest.mark.parametrize(("num_neighbors", "undefined"), [(39, False), (40, True)])
def test_colorings_of_many_states_are_checked_by_counting(num_neighbors, undefined):
    # Each neighbor takes one color away: with more colors than neighbors one is always left.
    table = np.where(np.eye(40, dtype=bool), -np.inf, 0.0)
    edges = [(0, k + 1) for k in range(num_neighbors)]
    star = MarkovRandomField.from_tables(np.zeros((num_neighbors + 1, 40)), edges, [table] * num_neighbors)
    assert (undefined_conditional(star) is not None) == undefined
