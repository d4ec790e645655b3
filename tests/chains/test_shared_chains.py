"""Chains of models that share tables make the draws, sums and means that the same tables in full lead to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix.chains.base import ParameterSets
from fastmix.chains.cpu import CpuChains
from fastmix.model import MarkovRandomField
from fastmix.model.inputs import image_edges
from fastmix.model.shared import SharedTables, TableUse
from strategies import Shared

LABELS = 6


def picture(kind: str, *, strength: float = 1.0) -> MarkovRandomField:
    """A picture with weights of both signs, of Potts form or with one pattern that is not symmetric."""
    rng = np.random.default_rng(0)
    edges, _ = image_edges((25, 25), 4, None, None)
    pattern: Any = 1.0 if kind == "potts" else rng.normal(size=(LABELS, LABELS))
    weights = strength * rng.normal(size=len(edges))
    return MarkovRandomField.image(rng.normal(size=(25, 25, LABELS)), pattern, weights=weights)


def in_full(model: MarkovRandomField) -> MarkovRandomField:
    """The same model with its tables in full."""
    return MarkovRandomField(model.num_states, model.log_unary, model.edges, model.log_pairwise)


def twin_chains(shared: MarkovRandomField, full: MarkovRandomField, **options: Any) -> tuple[CpuChains, CpuChains]:
    """Chains with the shared tables, and chains with the full ones, from the same seed."""
    ours = CpuChains(shared.structure, **options)
    ours.load_model(shared)
    theirs = CpuChains(full.structure, **options)
    theirs.load_model(full)
    return ours, theirs


@pytest.mark.parametrize("kind", ["potts", "uneven"])
@pytest.mark.parametrize("options", [{}, {"schedule": "random"}, {"estimator": "counts"}, {"num_chains": 3}])
def test_draws_of_a_picture(kind: str, options: dict[str, Any]) -> None:
    model = picture(kind)
    full = in_full(model)
    ours, theirs = twin_chains(model, full, **{"num_chains": 1, "seed": 3, "kernel": "product", **options})
    for _ in range(3):
        ours.sweep(4, collect=True)
        theirs.sweep(4, collect=True)
        np.testing.assert_array_equal(ours.get_states(), theirs.get_states())
    np.testing.assert_allclose(ours.take_sums(), theirs.take_sums(), atol=1e-5)
    uneven = kind != "potts" and "schedule" not in options
    assert ours.kernel == ("pattern" if uneven else "product")


@given(strategies.shared_models(min_variables=1), st.integers(1, 3))
def test_draws_of_small_models(twins: Shared, num_chains: int) -> None:
    """Mixtures of patterns, mixed state counts, forbidden pairs, isolated variables."""
    options: dict[str, Any] = {"num_chains": num_chains, "seed": 7, "kernel": "product"}
    ours, theirs = twin_chains(twins.shared, twins.full, **options)
    states = np.zeros((num_chains, twins.full.num_variables), dtype=np.int64)
    if twins.full.log_weight(states[0]) == -np.inf:
        return  # no chain may start there
    for chains in (ours, theirs):
        chains.set_states(states)
        chains.sweep(6, collect=True)
    np.testing.assert_array_equal(ours.get_states(), theirs.get_states())
    np.testing.assert_allclose(ours.take_sums(), theirs.take_sums(), atol=1e-5)
    log_weights = np.array(twins.full.log_weight(ours.get_states()))
    np.testing.assert_allclose(ours.energies()[0], log_weights - twins.full.log_constant, rtol=1e-11, atol=1e-11)
    pairs = [np.zeros(len(twins.full.log_pairwise)) for _ in range(4)]
    for k, average in enumerate((False, True)):
        ours.add_pairs(pairs[2 * k], average=average)
        theirs.add_pairs(pairs[2 * k + 1], average=average)
        np.testing.assert_allclose(pairs[2 * k], pairs[2 * k + 1], atol=1e-9)


@given(strategies.shared_models(min_variables=1, allow_forbidden=False), st.booleans())
def test_moments(twins: Shared, with_weights: bool) -> None:
    """Derivatives of the mean log-weight by unaries and weights, and by patterns, from the moments of full tables."""
    num_chains = 5
    ours, theirs = twin_chains(twins.shared, twins.full, num_chains=num_chains, seed=1, kernel="product")
    ours.sweep(2)
    theirs.set_states(ours.get_states())
    weights = np.random.default_rng(0).random(num_chains) if with_weights else None
    full = theirs.moments(weights)
    split = len(twins.full.log_unary)
    model = twins.shared
    shared = model.shared_tables
    assert shared is not None
    found = ours.moments(weights)
    np.testing.assert_allclose(found[:split], full[:split], atol=1e-12)
    by_pattern = np.zeros(len(shared.patterns))
    by_weight = np.zeros((2, model.num_edges))
    for e, (i, j) in enumerate(model.edges.tolist()):
        pairs = full[split + model.pairwise_offsets[e] : split + model.pairwise_offsets[e + 1]]
        pairs = pairs.reshape(model.num_states[i], model.num_states[j])
        pairs = pairs.T if shared.use.turned[e] else pairs
        k = int(shared.use.of_edge[e])
        followers = [0.0 if shared.next_weights is None else shared.next_weights[e]]
        for place, weight in enumerate([shared.weights[e], *followers]):
            if place and shared.next_weights is None:
                continue
            by_weight[place, e] = (shared.pattern(k + place) * pairs).sum()
            begin, end = shared.use.starts[k + place : k + place + 2]
            by_pattern[begin:end] += weight * pairs.reshape(-1)
    num_rows = 1 if shared.next_weights is None else 2
    np.testing.assert_allclose(found[split:], by_weight[:num_rows].reshape(-1), atol=1e-11)
    np.testing.assert_allclose(ours.pattern_moments(weights), by_pattern, atol=1e-11)


@given(strategies.shared_models(min_variables=1, allow_mixtures=False), st.integers(0, 99))
def test_several_sets(twins: Shared, seed: int) -> None:
    """Sets that mix the unaries alone with the whole model, as in annealing."""
    shared, full = twins
    rng = np.random.default_rng(seed)
    coefficients = np.stack([1.0 - rng.random(3), rng.random(3)], axis=1)
    thetas = np.stack([shared.weight_parameters, shared.weight_parameters])
    thetas[0, len(shared.log_unary) :] = 0.0
    full_thetas = np.stack([full.parameters, full.parameters])
    full_thetas[0, len(shared.log_unary) :] = 0.0
    ours = CpuChains(shared.structure, num_chains=2, num_sets=3, seed=5, kernel="product")
    theirs = CpuChains(full.structure, num_chains=2, num_sets=3, seed=5, kernel="product")
    assert shared.shared_tables is not None
    ours.load_shared(thetas, shared.shared_tables, coefficients)
    theirs.load(full_thetas, coefficients)
    if full.log_weight(np.zeros(full.num_variables, dtype=np.int64)) == -np.inf:
        return  # no chain may start there
    ours.sweep(5)
    theirs.sweep(5)
    np.testing.assert_array_equal(ours.get_states(), theirs.get_states())
    np.testing.assert_allclose(ours.energies(), theirs.energies(), rtol=1e-5, atol=1e-5)  # partly single precision


def test_the_kernel_follows_what_is_loaded() -> None:
    potts = picture("potts")
    strong = picture("potts", strength=500.0)
    uneven = picture("uneven")
    chains = CpuChains(potts.structure, num_chains=1, seed=0, kernel="product")
    expected = CpuChains(potts.structure, num_chains=1, seed=0, kernel="product")
    for model in (potts, strong, uneven, potts):
        chains.load_model(model)
        expected.load(model.parameters)
        for each in (chains, expected):
            each.sweep(2, collect=True)
        np.testing.assert_array_equal(chains.get_states(), expected.get_states())
    np.testing.assert_allclose(chains.take_sums(), expected.take_sums(), atol=1e-5)


def test_chains_with_thresholds_take_tables_in_full() -> None:
    edges = [(0, 1), (1, 2)]
    model = MarkovRandomField.from_patterns(np.zeros((3, 3)), edges, [np.eye(3)], 0, [0.5, -1.0])
    ours, theirs = twin_chains(model, in_full(model), num_chains=16, seed=0)
    assert ours.kernel == "table"
    ours.sweep(3)
    theirs.sweep(3)
    np.testing.assert_array_equal(ours.get_states(), theirs.get_states())


def test_wrong_lengths_are_refused() -> None:
    model = picture("potts")
    chains = CpuChains(model.structure, num_chains=1, seed=0)
    assert model.shared_tables is not None
    with pytest.raises(ValueError, match="thetas"):
        chains.load_shared(model.weight_parameters[:-1], model.shared_tables)
    with pytest.raises(ValueError, match="tables"):
        chains.pattern_moments()
    assert ParameterSets.of(model.weight_parameters).tables is None


@pytest.mark.nojit
@pytest.mark.parametrize("kind", ["potts", "uneven", "mixed"])
def test_a_few_sweeps_of_a_tiny_model(kind: str) -> None:
    """Small enough for the kernels without the compiler: sweeps, energies, moments and pairs."""
    rng = np.random.default_rng(2)
    patterns = np.eye(3)[None] if kind == "potts" else rng.normal(size=(2, 3, 3))
    edges = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    shapes = np.full((len(patterns), 2), 3)
    use = TableUse(shapes, np.zeros(4, dtype=np.int32), np.array([False, kind != "potts", False, False]))
    following = rng.normal(size=4) if kind == "mixed" else None
    tables = SharedTables.checked(use, patterns.reshape(-1), rng.normal(size=4), following)
    model = MarkovRandomField(np.full(4, 3), rng.normal(size=12), edges, np.zeros(0), shared_tables=tables)
    for options in ({"estimator": "counts"}, {}, {"schedule": "random"}):
        ours, theirs = twin_chains(model, in_full(model), num_chains=2, seed=0, kernel="product", **options)
        for chains in (ours, theirs):
            chains.sweep(3, collect=True)
        np.testing.assert_array_equal(ours.get_states(), theirs.get_states())
        np.testing.assert_allclose(ours.take_sums(), theirs.take_sums(), atol=1e-5)
    np.testing.assert_allclose(ours.energies(), theirs.energies(), atol=1e-12)
    derivative = ours.moments()[12:] @ np.concatenate([tables.weights, [] if following is None else following])
    assert ours.pattern_moments() @ tables.patterns == pytest.approx(derivative)
    pairs = np.zeros((2, len(model.log_pairwise)))
    for chains, out in zip((ours, theirs), pairs, strict=True):
        chains.add_pairs(out, average=True)
    np.testing.assert_allclose(pairs[0], pairs[1], atol=1e-12)
