"""Every iteration of loopy belief propagation against plain message passing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_loopy_bp import TINY, assert_equals_naive, flat

import oracle
import strategies
from fastmix import MarkovRandomField, UnfitMethodError, infer
from fastmix.instances import ising_grid, potts_grid
from fastmix.model.forms import ising_form
from fastmix.variational import loopy_bp as module
from fastmix.variational.loopy_bp import loopy_bp
from fastmix.variational.residual_messages import ResidualMessages
from oracle.variational import NaiveBP

# -- every step -----------------------------------------------------------------------------------------------------


def in_spins(model):
    """The same distribution with the fields of the tables moved to the variables, as binary messages start."""
    form = ising_form(model)
    if form is None or not model.num_variables:
        return model
    moved = MarkovRandomField.ising(model.edges, form.coupling, form.field, num_variables=model.num_variables)
    return moved.replace(log_constant=form.constant)


@given(
    strategies.models(allow_forbidden=False, min_states=2),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 0.75, 0.3, 0.6]),
)
def test_iterations_equal_plain_message_passing(model, num_iterations, damping):
    result = loopy_bp(model, damping=damping, max_iter=num_iterations, tol=TINY, edge_marginals=True)
    naive = NaiveBP(in_spins(model) if result.stats["kernel"] == "odds" else model)
    naive.parallel(result.stats["num_iterations"], damping)
    assert_equals_naive(result, naive)


@given(strategies.models(allow_forbidden=False, min_states=2), st.integers(1, 6), st.sampled_from([0.0, 0.5, 0.3]))
def test_tables_need_no_spins(model, num_iterations, damping):
    """Binary models too, when their messages are kept as vectors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ising_form", lambda model: None)
        result = loopy_bp(model, damping=damping, max_iter=num_iterations, tol=TINY, edge_marginals=True)
    assert result.stats["kernel"] == "tables"
    naive = NaiveBP(model)
    naive.parallel(result.stats["num_iterations"], damping)
    assert_equals_naive(result, naive)


@given(strategies.ising_models(max_coupling=4.0), st.integers(1, 30), st.sampled_from([0.0, 0.5, 0.3]))
def test_binary_iterations_equal_plain_message_passing(model, num_iterations, damping):
    result = loopy_bp(model, damping=damping, max_iter=num_iterations, tol=TINY, edge_marginals=True)
    assert result.stats["kernel"] == "odds"
    naive = NaiveBP(model)
    naive.parallel(result.stats["num_iterations"], damping)
    assert_equals_naive(result, naive)


@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize("seed", strategies.seeds(10, quick=4))
def test_residual_updates_equal_a_plain_search_for_the_largest(seed, damping):
    rng = np.random.default_rng(seed)
    model = oracle.random_model(rng, num_variables=5, max_states=3, edge_probability=0.7)
    state = ResidualMessages(model)
    if not model.num_edges:
        return
    naive = NaiveBP(model)
    for _ in range(25):
        made, change, converged = state.update(1, damping, 1e-12)
        if converged and made == 0:
            break
        naive.most_changed(1, damping)
        assert change == pytest.approx(max(naive.residual(*d) for d in naive.messages), rel=1e-6, abs=1e-12)
        nodes = flat([naive.node(i) for i in range(model.num_variables)])
        np.testing.assert_allclose(state.beliefs()[0], nodes, rtol=0, atol=1e-10)


@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_reported_change_is_the_undamped_one(damping):
    for model in (ising_grid(3, 3, coupling_max=1.0, seed=1), potts_grid(3, 3, coupling_max=1.0, seed=1)):
        result = loopy_bp(model, damping=damping, max_iter=4, tol=TINY)
        naive = NaiveBP(model)
        naive.parallel(3, damping)
        if result.stats["kernel"] == "odds":  # of the log-odds
            logs = {d: (naive.updated(*d), naive.messages[d]) for d in naive.messages}
            expected = max(abs(new[1] - new[0] - old[1] + old[0]) for new, old in logs.values())
        else:
            expected = max(naive.residual(*d) for d in naive.messages)
        assert result.largest_change == pytest.approx(expected, rel=1e-9)
        assert result.history[-1] == {"iteration": 4, "largest_change": result.largest_change}


# -- factors of any size: exact on trees of factors, honest elsewhere --------------------------------------------------


def tree_of_factors(seed: int) -> MarkovRandomField:
    """Each factor shares one variable with those before it."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 4, size=9)
    scopes = [(0, 1, 2), (2, 3), (3, 4, 5, 6), (7, 5, 8)]
    factors = [(scope, rng.normal(scale=1.5, size=counts[list(scope)])) for scope in scopes]
    factors[0][1][0, 0, :] = -np.inf
    factors += [((i,), rng.normal(size=counts[i])) for i in (1, 4)]
    return MarkovRandomField.from_factors(counts, factors)


@pytest.mark.parametrize("seed", range(6))
def test_exact_on_trees(seed: int) -> None:
    model = tree_of_factors(seed)
    found, exact = loopy_bp(model, edge_marginals=True), infer(model, method="exact")
    assert found.status == "ok"
    assert found.log_z == pytest.approx(exact.log_z, abs=1e-9)
    np.testing.assert_allclose(found.node_marginals, exact.node_marginals, atol=1e-9)
    np.testing.assert_allclose(found.edge_marginals, exact.edge_marginals, atol=1e-9)


def test_with_evidence_and_cycles() -> None:
    rng = np.random.default_rng(1)
    scopes = [*itertools.combinations(range(5), 3)]
    model = MarkovRandomField.from_factors([2] * 5, [(s, rng.normal(scale=0.2, size=(2, 2, 2))) for s in scopes])
    found, exact = (infer(model, method=name, evidence={0: 1}) for name in ("loopy-bp", "exact"))
    assert found.status == "ok"
    difference = np.abs(found.node_marginals - exact.node_marginals).max()
    assert 1e-9 < difference < 0.02


def test_the_residual_order_is_refused() -> None:
    with pytest.raises(UnfitMethodError, match="message_order"):
        loopy_bp(tree_of_factors(0), message_order="residual")
