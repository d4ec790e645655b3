"""What is removed before the variational methods start, the search for allowed configurations, and models in spins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix import ImpossibleModelError, MarkovRandomField, ModelError
from fastmix.graphs import complete_edges, cycle_edges, path_edges
from fastmix.model.forms import ising_form
from fastmix.modes.allowed import find_allowed, reduce_to_supported
from oracle import variational as naive

DIFFERENT = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)


@given(strategies.models(max_variables=6))
def test_states_left_are_those_with_partners(model):
    reduction = reduce_to_supported(model, None)
    left = [set() for _ in range(model.num_variables)]
    for i, state in enumerate(reduction.fixed.tolist()):
        if state >= 0:
            left[i].add(state)
    owner = np.repeat(np.arange(model.num_variables), model.num_states)
    for position in reduction.unary_positions.tolist():
        left[owner[position]].add(position - int(model.unary_offsets[owner[position]]))
    assert left == naive.supported(model)
    assert (reduction.model.num_states > 1).all()
    # Nothing of positive probability is lost: the sum of all weights stays.
    if reduction.model.num_variables <= 5:
        assert oracle.log_z(reduction.model) == pytest.approx(oracle.log_z(model), rel=1e-11, abs=1e-9)


@given(strategies.models(max_variables=6), st.data())
def test_evidence(model, data):
    evidence = data.draw(strategies.evidences(model))
    reduction = reduce_to_supported(model, evidence)
    assert all(reduction.fixed[i] == state for i, state in evidence.items())
    if reduction.model.num_variables <= 5:
        expected = oracle.log_evidence(model, evidence)
        assert oracle.log_z(reduction.model) == pytest.approx(expected, rel=1e-11, abs=1e-9)


def test_long_chain_of_consequences():
    n = 20_000
    same = np.where(np.eye(2, dtype=bool), 0.0, -np.inf)
    forced = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    model = MarkovRandomField.from_tables(np.zeros((n, 2)), path_edges(n), [forced, *[same] * (n - 2)])
    assert (reduce_to_supported(model, None).fixed == 0).all()


# -- the search -----------------------------------------------------------------------------------------------------


def random_constraints(rng, num_variables, num_states, probability):
    """A model whose tables forbid pairs at random, with no promise that anything is allowed."""
    edges = complete_edges(num_variables)
    tables = np.where(rng.random((len(edges), num_states, num_states)) < probability, -np.inf, 0.0)
    return MarkovRandomField.from_tables(np.zeros((num_variables, num_states)), edges, tables)


@pytest.mark.parametrize("seed", strategies.seeds(120, quick=30))
def test_search_decides_as_enumeration_does(seed):
    rng = np.random.default_rng(seed)
    model = random_constraints(rng, 6, 3, rng.choice([0.2, 0.35, 0.5]))
    scores = rng.random(18)
    possible = max(oracle.log_weights(model)) > -math.inf
    if possible:
        states = find_allowed(model, scores)
        assert oracle.log_weight(model, states.tolist()) == 0.0
    else:
        with pytest.raises(ImpossibleModelError):
            find_allowed(model, scores)


def test_both_outcomes_occur():
    """Of the models above: the test is one only if some are possible and some are not."""
    outcomes = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        outcomes.append(
            max(oracle.log_weights(random_constraints(rng, 6, 3, rng.choice([0.2, 0.35, 0.5])))) > -math.inf
        )
    assert 5 < sum(outcomes) < 25


def test_search_prefers_high_scores_and_gives_up(monkeypatch):
    model = MarkovRandomField.from_tables(np.zeros((3, 2)), path_edges(3), [DIFFERENT] * 2)
    assert find_allowed(model, np.array([1, 0, 0, 0, 0, 0.0])).tolist() == [0, 1, 0]
    assert find_allowed(model, np.array([0, 1, 0, 0, 0, 0.0])).tolist() == [1, 0, 1]
    # As many pigeons as make the proof longer than the search may be.
    hard = np.where(np.eye(9, dtype=bool), -np.inf, 0.0)
    pigeons = MarkovRandomField.from_tables(np.zeros((10, 9)), complete_edges(10), [hard] * 45)
    monkeypatch.setattr("fastmix.modes.allowed.MAX_SUPPORT_CHOICES", 1000)
    assert find_allowed(pigeons, np.zeros(90)) is None
    assert reduce_to_supported(pigeons, None).model == pigeons


def test_messages_say_whose_fault_it_is():
    odd = MarkovRandomField.from_tables(np.zeros((3, 2)), cycle_edges(3), [DIFFERENT] * 3)
    with pytest.raises(ImpossibleModelError):
        reduce_to_supported(odd, None)
    square = MarkovRandomField.from_tables(np.zeros((5, 2)), cycle_edges(5), [DIFFERENT] * 4 + [np.zeros((2, 2))])
    assert reduce_to_supported(square, None).model.num_variables == 5
    with pytest.raises(ModelError, match="evidence"):
        reduce_to_supported(square, {0: 0, 1: 0})


# -- spins ----------------------------------------------------------------------------------------------------------


@given(strategies.models(allow_forbidden=False, min_states=2, max_states=2))
def test_spins_give_the_same_weights(model):
    form = ising_form(model)
    for x, weight in zip(oracle.all_configurations(model), oracle.log_weights(model), strict=True):
        s = 2 * np.array(x, dtype=np.float64) - 1
        value = form.constant + form.field @ s
        value += sum(J * s[i] * s[j] for J, (i, j) in zip(form.coupling, model.edges, strict=True))
        assert value == pytest.approx(weight, rel=1e-12, abs=1e-11 * max(1.0, np.abs(model.parameters).max(initial=0)))


def test_models_without_spins():
    assert ising_form(MarkovRandomField.from_tables([[0, 0, 0], [0, 0]], [], [])) is None
    assert ising_form(MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [DIFFERENT])) is None
