"""Dependencies, certificates and comparison of models with factors over three or more variables."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_certificates import TINY_SCALES, assert_never_beaten
from test_comparison import assert_within, exact_conditional_distances
from test_dependency import assert_dependencies_close

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, ResourceError, UnfitMethodError, certify
from fastmix.model.factor_forms import center_factors
from fastmix.theory import factors as factor_theory
from fastmix.theory.comparison import comparison_bounds
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.criteria import CRITERIA
from fastmix.theory.dependency import (
    DEPENDENCIES,
    dependency_matrix,
    edge_dependencies,
    factor_dependencies,
)
from oracle import theory


def ring(n: int = 6, scale: float = 0.1, seed: int = 0) -> MarkovRandomField:
    """Overlapping factors around a ring."""
    rng = np.random.default_rng(seed)
    factors = [((k, (k + 1) % n, (k + 2) % n), scale * rng.normal(size=(2, 2, 2))) for k in range(n)]
    return MarkovRandomField.from_factors([2] * n, factors)


@pytest.mark.parametrize("dependency", ["exact", "sigmoid", "range", "l1", "linf"])
@given(model=strategies.factor_models())
def test_bounds_match_loops_over_columns_and_configurations(model: MarkovRandomField, dependency: str) -> None:
    model = model.drop_forbidden_states()
    expected = theory.edge_dependencies(model, dependency)
    assert_dependencies_close(model, edge_dependencies(model, dependency=dependency), expected, dependency)


@given(model=strategies.factor_models())
def test_no_bound_is_below_the_definition(model: MarkovRandomField) -> None:
    value = {name: edge_dependencies(model, dependency=name) for name in DEPENDENCIES}
    slack = 1e-12 * (1.0 + np.abs(model.parameters[np.isfinite(model.parameters)]).max(initial=0.0))
    order = (("exact", "field"), ("field", "sigmoid"), ("sigmoid", "range"), ("range", "l1"), ("range", "linf"))
    for smaller, larger in order:
        assert (value[smaller] <= value[larger] * (1 + 1e-14) + slack).all(), (smaller, larger)


@given(model=strategies.factor_models(allow_forbidden=False), scale=st.floats(0.0, 2.0))
def test_what_a_factor_adds_grows_with_it(model: MarkovRandomField, scale: float) -> None:
    for dependency in ("range", "linf"):
        parts = factor_dependencies(model, dependency)
        scaled = factor_dependencies(model.replace(log_factors=scale * model.log_factors), dependency)
        np.testing.assert_allclose(scaled, scale * parts, rtol=1e-10, atol=1e-12 * (1 + parts.max()))
        alone = edge_dependencies(model.replace(log_factors=0.0 * model.log_factors), dependency=dependency)
        for end in (0, 1):
            added = np.bincount(model.structure.scope_pairs, parts[:, end], minlength=model.num_edges)
            whole = edge_dependencies(model, dependency=dependency)[:, end]
            np.testing.assert_allclose(alone[:, end] + added, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("schedule", ["systematic", "random"])
@given(model=strategies.factor_models(scales=TINY_SCALES, allow_forbidden=False), data=st.data())
def test_the_bias_is_never_beaten(model: MarkovRandomField, schedule: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(model.num_variables))) if schedule == "systematic" else None
    for dependency in ("exact", "field", "sigmoid"):
        assert_never_beaten(model, dependency_matrix(model, dependency=dependency), schedule, order, num_sweeps=4)


def test_half_of_it_would_be_beaten() -> None:
    model = ring(4, 0.8)
    matrix = dependency_matrix(model, dependency="exact")
    assert_never_beaten(model, matrix, "systematic")
    with pytest.raises(AssertionError, match="promised"):
        assert_never_beaten(model, 0.3 * matrix, "systematic")


def test_a_certificate_holds_at_the_exact_distance() -> None:
    model = ring(5, 0.15)
    certificate = certify(model, accuracy=0.01)
    assert certificate.certified
    assert certificate.criterion == "dobrushin"
    assert {other["criterion"] for other in certificate.others} == set(CRITERIA)
    assert all("three or more variables" in other["reason"] for other in certificate.others)
    chain = theory.Chain(model)
    kernel = np.linalg.matrix_power(chain.sweep("systematic"), certificate.num_sweeps)
    assert chain.distances(kernel)[0] <= 0.01
    margin = certify(model, accuracy=0.01, margin=True).margin
    assert margin is not None
    assert certify(model.with_parameters(0.99 * margin * model.parameters), accuracy=0.01).certified


@pytest.mark.parametrize("criterion", list(CRITERIA))
def test_other_criteria_do_not_apply(criterion: str) -> None:
    with pytest.raises(UnfitMethodError, match=f"criterion='{criterion}'"):
        certify(ring(), accuracy=0.01, criterion=criterion)


@given(model=strategies.factor_models(scales=(1.0,)))
def test_undefined_conditionals_are_found(model: MarkovRandomField) -> None:
    starts = model.unary_offsets[:-1]
    defined = all(
        oracle.conditional(model, i, list(x)) is not None
        for x in oracle.all_configurations(model)
        if (model.log_unary[starts + np.array(x, dtype=int)] > -np.inf).all()
        for i in range(model.num_variables)
    )
    assert (undefined_conditional(model) is None) == defined
    if not defined:
        assert certify(model, accuracy=0.1).norm_value == math.inf


def test_factors_that_share_neighbors_forbid_together() -> None:
    # Each factor alone can forbid either state of variable 0, but not both of them in the same configuration.
    one, two = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    one[0, 0, 0] = two[1, 1, 0] = -math.inf
    model = MarkovRandomField.from_factors([2] * 4, [((0, 1, 2), one), ((0, 1, 3), two)])
    assert undefined_conditional(model) is None
    two = np.zeros((2, 2, 2))
    two[1, 0, 0] = -math.inf
    model = MarkovRandomField.from_factors([2] * 4, [((0, 1, 2), one), ((0, 1, 3), two)])
    found = undefined_conditional(model)
    assert found is not None
    assert found[0] == 0


def test_the_limit_of_an_enumeration() -> None:
    scopes = list(itertools.combinations(range(40), 3))[:780]
    large = MarkovRandomField.from_factors([2] * 40, [(scope, np.zeros((2, 2, 2))) for scope in scopes])
    with pytest.raises(ResourceError, match="dependency='sigmoid'"):
        edge_dependencies(large, dependency="exact")


@given(data=st.data())
def test_two_models_are_never_further_apart_than_compared(data: st.DataObject) -> None:
    left = data.draw(strategies.factor_models(scales=(0.05, 0.2, 1.0)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scale = data.draw(st.sampled_from([0.0, 0.02, 0.5]))
    right = left.with_parameters(left.parameters + scale * rng.normal(size=left.num_parameters))
    comparison = comparison_bounds(left, right)
    assert_within(left, right, comparison.bounds)
    assert (exact_conditional_distances(left, right) <= comparison.conditional_bounds + 1e-12).all()


@given(model=strategies.factor_models(allow_forbidden=False))
def test_centering_changes_no_weight_and_leaves_nothing_of_low_order(model: MarkovRandomField) -> None:
    centered = center_factors(model)
    states = np.array(oracle.all_configurations(model))
    scale = 1.0 + np.abs(model.parameters).max()
    np.testing.assert_allclose(centered.log_weight(states), model.log_weight(states), atol=1e-12 * scale)
    for scope, table in centered.factors:
        for pair in itertools.combinations(range(len(scope)), 2):
            means = table.mean(axis=tuple(a for a in range(len(scope)) if a not in pair))
            np.testing.assert_allclose(means, 0.0, atol=1e-12 * scale)
    bound = comparison_bounds(centered, model).conditional_bounds
    assert (bound <= 1e-10 * scale).all()


def test_centering_needs_finite_factors() -> None:
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = -math.inf
    with pytest.raises(ModelError, match="-inf"):
        center_factors(MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), table)]))


def test_no_certificate_where_a_start_is_undefined() -> None:
    """A state to which factors leave nothing was taken out before anybody looked, though chains may start there."""
    rng = np.random.default_rng(7)
    refused = 0
    for _ in range(60):
        table = rng.normal(scale=0.02, size=(2, 3, 2))
        table[rng.random(table.shape) < 0.2] = -math.inf
        table[:, rng.integers(3), :] = -math.inf if rng.random() < 0.5 else 0.0
        if not np.isfinite(table).any():
            continue
        model = MarkovRandomField.from_factors([2, 3, 2], [((0, 1, 2), table)])
        defined = all(
            oracle.conditional(model, i, list(x)) is not None
            for x in oracle.all_configurations(model)
            for i in range(model.num_variables)
        )
        found = certify(model, accuracy=0.1)
        assert defined or not found.certified
        refused += not defined
    assert refused > 20


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("at_once", [1.0, 1e9])
@pytest.mark.parametrize("kind", ["range", "l1", "linf"])
def test_sizes_of_factors_are_those_of_their_tables_over_two_variables(
    kind: str, at_once: float, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factor_theory, "MAX_PYTHON_COMPARISONS", 0 if compiled else math.inf)
    monkeypatch.setattr(factor_theory, "ENTRIES_PER_CLOCK_CHECK", at_once)
    rng = np.random.default_rng(7)
    norms = {"range": np.ptp, "l1": lambda d: np.abs(d).sum(), "linf": lambda d: np.abs(d).max()}
    for _ in range(6):
        counts = rng.integers(1, 5, size=6)
        scopes = [sorted(rng.permutation(6)[: int(rng.integers(3, 6))].tolist()) for _ in range(3)]
        model = MarkovRandomField.from_factors(
            counts.tolist(), [(scope, rng.normal(size=counts[scope])) for scope in scopes]
        )
        sizes = factor_theory.factor_sizes(model, kind)
        for k, (scope, table) in enumerate(model.factors):
            pairs = itertools.combinations(range(len(scope)), 2)
            for place, (p, q) in enumerate(pairs, model.structure.first_pairs[k]):
                slices = np.moveaxis(table, (p, q), (0, 1)).reshape(*counts[scope[[p, q]]], -1)
                for end, one_way in enumerate((slices, slices.swapaxes(0, 1))):
                    columns = itertools.combinations(range(one_way.shape[1]), 2)
                    largest = max(
                        (
                            norms[kind](one_way[:, a, r] - one_way[:, b, r])
                            for a, b in columns
                            for r in range(one_way.shape[2])
                        ),
                        default=0.0,
                    )
                    assert sizes[place, end] == pytest.approx(largest, abs=1e-14)
