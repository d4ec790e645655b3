from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix import graphs
from fastmix.errors import ModelError
from fastmix.instances import ising_grid, potts_grid
from fastmix.model import MarkovRandomField
from fastmix.projection import project
from fastmix.theory import comparison as module
from fastmix.theory.comparison import ComparisonBounds, comparison_bounds, original_intervals
from fastmix.theory.intervals import rigorous_intervals
from oracle import theory

FloatArray = NDArray[np.float64]
INF = math.inf
ROUNDING = 1e-12  # of marginals by enumeration


def distances(left: MarkovRandomField, right: MarkovRandomField) -> FloatArray:
    """Exact total variation distances of the marginals."""
    pairs = zip(oracle.node_marginals(left), oracle.node_marginals(right), strict=True)
    return np.array([theory.total_variation(p, q) for p, q in pairs])


def naive_conditional_bounds(projected: MarkovRandomField, original: MarkovRandomField) -> FloatArray:
    """The formula for b by loops, for tables without -inf."""
    sizes = []
    left, right = oracle.unary_vectors(projected), oracle.unary_vectors(original)
    for u, v in zip(left, right, strict=True):
        difference = np.subtract(u, v)
        sizes.append(float(difference.max() - difference.min()))
    other = oracle.edge_tables(original)
    for (i, j), table in oracle.edge_tables(projected).items():
        difference = np.subtract(table, other[i, j])
        sizes[i] += max(float(c.max() - c.min()) for c in difference.T)
        sizes[j] += max(float(r.max() - r.min()) for r in difference)
    return np.array([math.tanh(size / 4) for size in sizes])


def exact_conditional_distances(projected: MarkovRandomField, original: MarkovRandomField) -> FloatArray:
    """The largest distance of the conditionals over all configurations possible in the original."""
    result = np.zeros(original.num_variables)
    joint = oracle.joint(original)
    for x in oracle.all_configurations(original):
        if joint[x] > 0:
            for i in range(original.num_variables):
                p, q = oracle.conditional(projected, i, x), oracle.conditional(original, i, x)
                assert q is not None
                result[i] = max(result[i], 1.0 if p is None else theory.total_variation(p, q))
    return result


def assert_within(projected: MarkovRandomField, original: MarkovRandomField, bounds: FloatArray) -> None:
    for i, (distance, bound) in enumerate(zip(distances(projected, original), bounds, strict=True)):
        assert distance <= bound + ROUNDING, f"variable {i} is {distance} away, promised {bound}"


def assert_sound(comparison: ComparisonBounds, n: int) -> None:
    assert comparison.bounds.shape == comparison.conditional_bounds.shape == comparison.vacuous.shape == (n,)
    assert (comparison.bounds >= 0.0).all()
    assert (comparison.bounds <= 1.0).all()
    np.testing.assert_array_equal(comparison.vacuous, comparison.bounds >= 1.0)
    oracle.assert_read_only(comparison.bounds, comparison.conditional_bounds, comparison.vacuous)
    assert comparison.advice.endswith(".")
    assert "nan" not in comparison.advice


def dense_bounds(projected: MarkovRandomField, original: MarkovRandomField, dependency: str) -> FloatArray | None:
    """``(I - R)^-1 b`` cut at 1, or None where the spectral radius is not below 1."""
    R = theory.dependency_matrix(projected, dependency)
    if len(R) and np.abs(np.linalg.eigvals(R)).max() >= 1 - 1e-9:
        return None
    return np.minimum(np.linalg.solve(np.eye(len(R)) - R, naive_conditional_bounds(projected, original)), 1.0)


@given(
    model=strategies.models(min_variables=1, max_variables=5, max_states=3, allow_forbidden=False, scales=(0.3, 1.0)),
    norm_bound=st.sampled_from([0.3, 0.7, 0.95]),
    norm=st.sampled_from(["inf", "spectral"]),
    dependency=st.sampled_from(["sigmoid", "range", "exact"]),
)
def test_originals_of_projected_models(model: MarkovRandomField, norm_bound: float, norm: Any, dependency: Any) -> None:
    projected = project(model, norm_bound=norm_bound, norm=norm).model
    comparison = comparison_bounds(projected, model, dependency=dependency)
    assert_sound(comparison, model.num_variables)
    assert_within(projected, model, comparison.bounds)
    # Never above the formula, by more than what rounding and the solver are given.
    formula = dense_bounds(projected, model, dependency)
    assert formula is not None
    assert (comparison.bounds <= formula * (1 + 1e-4) + 1e-9).all()
    np.testing.assert_allclose(comparison.conditional_bounds, naive_conditional_bounds(projected, model), atol=1e-12)


@given(data=st.data())
def test_any_two_models_on_a_graph(data: st.DataObject) -> None:
    # Also with forbidden entries, strong couplings, and unaries that differ.
    left = data.draw(strategies.models(min_variables=1, max_variables=4, max_states=3, scales=(0.1, 0.5, 2.0)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = data.draw(st.sampled_from([0.0, 0.05, 1.0]))
    right = left.with_parameters(left.parameters + scale * rng.normal(size=left.num_parameters))
    if data.draw(st.booleans()):  # other forbidden entries
        holes = np.where(rng.random(left.num_parameters) < 0.1, -INF, right.parameters)
        try:
            right = right.with_parameters(holes)
            oracle.joint(right)
        except (ModelError, ValueError, ZeroDivisionError):
            assume(False)
    assume(np.isfinite(oracle.log_z(right)) and np.isfinite(oracle.log_z(left)))
    comparison = comparison_bounds(left, right)
    assert_sound(comparison, left.num_variables)
    assert_within(left, right, comparison.bounds)
    assert (exact_conditional_distances(left, right) <= comparison.conditional_bounds + ROUNDING).all()


def sabotages() -> list[tuple[str, Callable[[pytest.MonkeyPatch], None]]]:
    """Twins of the comparison that are wrong, each in one place."""

    def halve_b(patch: pytest.MonkeyPatch) -> None:
        true = module._conditional_distances
        patch.setattr(module, "_conditional_distances", lambda *models: 0.5 * true(*models))

    def forget_neighbors(patch: pytest.MonkeyPatch) -> None:
        true = module.safe_matrix
        patch.setattr(module, "safe_matrix", lambda *arguments: 0.0 * true(*arguments))

    return [("half of b", halve_b), ("no dependencies", forget_neighbors)]


@pytest.mark.parametrize("sabotage", [f for _, f in sabotages()], ids=[name for name, _ in sabotages()])
def test_a_sabotaged_comparison_fails(sabotage: Callable[[pytest.MonkeyPatch], None]) -> None:
    # A chain whose first field changes: the comparison is tight to first order at the first variable.
    projected = MarkovRandomField.ising(graphs.path_edges(3), 0.3)
    original = MarkovRandomField.ising(graphs.path_edges(3), 0.3, [0.2, 0.0, 0.0])
    assert_within(projected, original, comparison_bounds(projected, original).bounds)
    with pytest.MonkeyPatch.context() as patch:
        sabotage(patch)
        wrong = comparison_bounds(projected, original).bounds
    with pytest.raises(AssertionError, match="promised"):
        assert_within(projected, original, wrong)


def test_columns_and_rows_of_a_difference() -> None:
    # The difference depends on x_1 only within a column: x_0 is not moved by it, x_1 is.
    left = MarkovRandomField.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [np.zeros((2, 3))])
    right = MarkovRandomField.from_tables([[0, 0], [0, 0, 0]], [(0, 1)], [[[0.0, 0.4, 1.0], [0.0, 0.4, 1.0]]])
    b = comparison_bounds(left, right).conditional_bounds
    np.testing.assert_allclose(b, [0.0, math.tanh(0.25)], atol=1e-14)


def test_equal_models() -> None:
    weak, strong = (ising_grid(4, 4, coupling_max=top, seed=0) for top in (0.2, 5.0))
    for model in (weak, strong):  # however strong the couplings
        comparison = comparison_bounds(model, model)
        assert (comparison.bounds == 0.0).all()
        assert "at most 0 apart" in comparison.advice
    shifted = weak.replace(log_unary=weak.log_unary + 1.0, log_pairwise=weak.log_pairwise - 1.0, log_constant=3.0)
    assert comparison_bounds(weak, shifted).bounds.max() < 1e-13


def test_only_one_of_two_parts_differs() -> None:
    edges, couplings = [(0, 1), (2, 3), (4, 5)], np.array([0.4, 3.0, 3.0])
    left = MarkovRandomField.ising(edges, couplings)
    right = MarkovRandomField.ising(edges, couplings, [0.1, 0.0, 0.0, 0.0, 0.2, 0.0])
    comparison = comparison_bounds(left, right)
    # A weak part that differs, a strong part that does not, and one that does.
    np.testing.assert_allclose(
        comparison.bounds[:2], np.linalg.solve([[1, -math.tanh(0.4)], [-math.tanh(0.4), 1]], [math.tanh(0.05), 0])
    )
    assert comparison.bounds[2:4].tolist() == [0.0, 0.0]
    assert comparison.bounds[4:].max() <= 1.0
    assert comparison.bounds[4:].min() > 0.9
    assert_within(left, right, comparison.bounds)


def test_equal_conditionals_are_not_enough_with_forbidden_pairs() -> None:
    # Both conditionals are certain, yet the weights of the two configurations differ.
    left = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0.0, -INF], [-INF, 0.0]]])
    right = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0.0, -INF], [-INF, 5.0]]])
    comparison = comparison_bounds(left, right)
    assert comparison.conditional_bounds.max() < 1e-14
    assert comparison.bounds.tolist() == [1.0, 1.0]
    assert_within(left, right, comparison.bounds)


def test_entries_forbidden_in_one_model_only() -> None:
    soft = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [np.zeros((2, 2)), np.zeros((2, 2))])
    hard = MarkovRandomField.from_tables(
        np.zeros((3, 2)), [(0, 1), (1, 2)], [np.array([[0.0, -INF], [0.0, 0.0]]), np.zeros((2, 2))]
    )
    for left, right in ((soft, hard), (hard, soft)):
        comparison = comparison_bounds(left, right)
        assert comparison.conditional_bounds.tolist() == [1.0, 1.0, 0.0]
        assert_within(left, right, comparison.bounds)
    # A state forbidden by one of the unaries concerns the variable and its neighbors.
    closed = soft.replace(log_unary=[0.0, -INF, 0, 0, 0, 0])
    for left, right in ((soft, closed), (closed, soft)):
        comparison = comparison_bounds(left, right)
        assert comparison.conditional_bounds.tolist() == [1.0, 1.0, 0.0]
        assert_within(left, right, comparison.bounds)
    # Forbidden in both, it concerns nobody, whatever the tables have there.
    other = closed.replace(log_pairwise=[0.0, 0.0, 5.0, -3.0, 0, 0, 0, 0])
    assert comparison_bounds(closed, other).bounds.tolist() == [0.0, 0.0, 0.0]


def test_strong_projected_models_are_vacuous_with_a_reason() -> None:
    model = ising_grid(4, 4, coupling_max=3.0, seed=1)
    other = model.replace(log_unary=model.log_unary * 1.5)
    comparison = comparison_bounds(model, other)
    assert comparison.vacuous.all()
    assert "Nothing is known about every variable" in comparison.advice
    assert "norm" in comparison.advice
    far = project(model, norm_bound=0.5).model
    comparison = comparison_bounds(far, model)
    assert comparison.vacuous.any()
    assert "differ too much" in comparison.advice


def test_huge_differences() -> None:
    left = MarkovRandomField.ising([(0, 1)], 0.1)
    right = MarkovRandomField.ising([(0, 1)], 1e99)
    assert comparison_bounds(left, right).bounds.tolist() == [1.0, 1.0]
    assert_sound(comparison_bounds(right, left), 2)


def test_mixed_state_counts_and_every_bound() -> None:
    model = oracle.random_entries(np.random.default_rng(4), [2, 3, 4, 2], [(0, 1), (0, 3), (1, 2), (2, 3)], 0.5, 0.0)
    projected = project(model, norm_bound=0.8).model
    found = {
        dependency: comparison_bounds(projected, model, dependency=dependency).bounds
        for dependency in ("exact", "sigmoid", "range", "l1", "linf")
    }
    for tight, loose in (("exact", "sigmoid"), ("sigmoid", "range"), ("range", "l1"), ("range", "linf")):
        assert (found[tight] <= found[loose] * (1 + 1e-5)).all()
    assert_within(projected, model, found["exact"])


def test_comparison_without_variables() -> None:
    empty = MarkovRandomField.from_tables([], [], [])
    comparison = comparison_bounds(empty, empty)
    assert_sound(comparison, 0)
    isolated = MarkovRandomField.from_tables([[0.0, 1.0]], [], [])
    other = MarkovRandomField.from_tables([[0.0, 0.5]], [], [])
    np.testing.assert_allclose(comparison_bounds(isolated, other).bounds, math.tanh(0.125), rtol=1e-12)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (MarkovRandomField.ising([(0, 1), (1, 2)], 0.1, num_variables=4), "state counts"),
        (MarkovRandomField.potts([(0, 1), (1, 2)], 0.1, 3), "state counts"),
        (MarkovRandomField.ising([(0, 1), (0, 2)], 0.1), "edges"),
    ],
)
def test_models_that_cannot_be_compared(other: MarkovRandomField, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        comparison_bounds(MarkovRandomField.ising([(0, 1), (1, 2)], 0.1), other)
    with pytest.raises(ValueError, match=r"^dependency .*'tight'"):
        comparison_bounds(other, other, dependency="tight")


def test_large_models() -> None:
    # 90,000 variables in under a second; a loop over edges would take minutes.
    original = ising_grid(300, 300, coupling_max=0.3, seed=0)
    projected = project(original, norm_bound=0.9).model
    comparison = comparison_bounds(projected, original)
    assert_sound(comparison, 90_000)
    assert not comparison.vacuous.any()
    assert comparison.bounds.mean() < 0.05
    potts = potts_grid(60, 60, num_states=3, coupling_max=0.4, seed=0)
    nearby = project(potts, norm_bound=0.7).model
    assert_sound(comparison_bounds(nearby, potts), 3600)


# -- intervals for the original -------------------------------------------------------------------------------------


def test_original_intervals() -> None:
    original = MarkovRandomField.ising(graphs.cycle_edges(4), 0.55, [0.3, -0.2, 0.0, 0.1])
    projected = project(original, norm_bound=0.9).model
    exact = np.concatenate(oracle.node_marginals(projected))
    narrow = rigorous_intervals(projected, exact, num_chains=10**6, bias=0.0, confidence=0.99, simultaneous=True)
    comparison = comparison_bounds(projected, original)
    wide = original_intervals(original, narrow, comparison)
    shift = np.repeat(comparison.bounds, 2)
    np.testing.assert_allclose(wide.lower, np.maximum(narrow.lower - shift, 0))
    np.testing.assert_allclose(wide.upper, np.minimum(narrow.upper + shift, 1))
    truth = np.concatenate(oracle.node_marginals(original))
    assert ((wide.lower <= truth) & (truth <= wide.upper)).all()
    assert (wide.confidence, wide.simultaneous) == (0.99, True)
    # The narrow ones hold the wrong model's marginals.
    assert not ((narrow.lower <= truth) & (truth <= narrow.upper)).all()


def test_original_intervals_that_say_nothing() -> None:
    model = MarkovRandomField.from_tables([[0.0, 0.0], [0.0, -INF]], [], [])
    narrow = rigorous_intervals(model, [0.5, 0.5, 1.0, 0.0], num_chains=1000, bias=0.0)
    nothing = ComparisonBounds(np.ones(2), np.ones(2), np.ones(2, dtype=bool), "Nothing is known.")
    wide = original_intervals(model, narrow, nothing)
    assert wide.vacuous.tolist() == [True, True, False, False]
    assert wide.lower.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert wide.upper.tolist() == [1.0, 1.0, 1.0, 0.0]


def test_nothing_is_said_where_a_conditional_of_the_projected_model_is_undefined():
    model = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1)], [[[0.0, 0.0], [-math.inf, -math.inf]]])
    comparison = comparison_bounds(model, model.replace(log_unary=[0.1, 0.0] * 3))
    assert comparison.vacuous.all()
    assert "variable 1 has no allowed state" in comparison.advice
