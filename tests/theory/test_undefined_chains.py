"""No certificate where a pattern of neighbors leaves a variable no state."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_certificates import ROUNDING, assert_consistent, certify, cycle

import oracle
import strategies
from fastmix import instances
from fastmix.model import MarkovRandomField
from fastmix.sampling.sample import sample
from fastmix.theory import bias as bias_module
from fastmix.theory import dobrushin
from fastmix.theory.bias import bias_after
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.dependency import DEPENDENCIES, dependency_matrix
from fastmix.theory.norms import NORMS, matrix_norm
from oracle import theory

INF = math.inf


# -- conditionals without an allowed state --------------------------------------------------------------------------


def is_defined(model: MarkovRandomField) -> bool:
    """Whether every conditional of a tiny model is defined, whatever the states of the others."""
    everywhere = itertools.product(oracle.all_configurations(model), range(model.num_variables))
    return all(oracle.conditional(model, i, x) is not None for x, i in everywhere)


@pytest.mark.parametrize(
    ("dependency", "norm", "schedule"), strategies.each(DEPENDENCIES, [None, *NORMS], ["systematic", "random"])
)
def test_an_undefined_chain_is_not_certified(dependency: Any, norm: Any, schedule: Any) -> None:
    model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0.0, 0.0], [-INF, -INF]]])
    for per_variable in (False, True):
        c = certify(model, accuracy=0.9, dependency=dependency, norm=norm, schedule=schedule, per_variable=per_variable)
        assert not c.certified
        assert c.norm_value == INF
        assert c.offending == ((1, INF),)
        assert "variable 1 has no allowed state for some states of its neighbors" in c.advice
        assert c.to_dict()["norm_value"] is None
        assert_consistent(c, model)
    assert bias_after(model, 50, dependency=dependency, schedule=schedule).tolist() == [1.0, 1.0]
    # Where the unary forbids the state at fault, the sampler drops it, and the chain is fine.
    assert certify(model.replace(log_unary=[0.0, -INF, 0.0, 0.0]), accuracy=0.9, dependency=dependency).certified


@given(
    model=strategies.models(min_variables=1, max_variables=4, max_states=3, scales=(0.0, 0.1, 0.5)),
    dependency=st.sampled_from(["exact", "sigmoid"]),
    schedule=st.sampled_from(["systematic", "random"]),
)
def test_certified_chains_are_defined_and_meet_the_certificate(
    model: MarkovRandomField, dependency: Any, schedule: Any
) -> None:
    small = model.drop_forbidden_states()
    order = None if schedule == "random" else small.structure.visit_order[0].astype(np.int64)
    c = certify(model, accuracy=0.05, dependency=dependency, schedule=schedule, order=order)
    assert_consistent(c, model)
    if not is_defined(small):
        assert not c.certified
        assert "variable" in c.advice
        assert (bias_after(model, 5, dependency=dependency, schedule=schedule, order=order) == 1.0).all()
    if not c.certified:
        return
    assert c.num_sweeps is not None
    chain = theory.Chain(small)
    kernel = chain.sweep(schedule, None if order is None else order.tolist())
    joint, marginals = chain.distances(np.linalg.matrix_power(kernel, c.num_sweeps))
    assert joint <= 0.05 + ROUNDING
    assert all(distance <= bias + ROUNDING for distance, bias in zip(marginals, c.bias.tolist(), strict=True))
    result = sample(model, num_chains=2, num_sweeps=4, schedule=schedule, seed=0)
    assert np.isfinite(result.node_marginals).all()


def test_states_forbidden_by_a_unary_make_no_difference() -> None:
    model = MarkovRandomField.from_tables([[0, 0, -INF], [0, 0]], [(0, 1)], [[[0.1, 0.0], [0.0, 0.1], [9.0, -9.0]]])
    c = certify(model, accuracy=0.01, dependency="range")
    assert c.certified
    assert c.num_sweeps == certify(model.drop_forbidden_states(), accuracy=0.01, dependency="range").num_sweeps


def test_a_one_way_dependency_is_certified_though_every_norm_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    # Only one direction of each edge matters to l1 when the tables are functions of one variable: R is triangular.
    tables = [[[8.0, 8.0], [0.0, 0.0]]] * 3
    model = MarkovRandomField.from_tables(np.zeros((4, 2)), [(0, 1), (1, 2), (2, 3)], tables)
    assert matrix_norm(dependency_matrix(model, dependency="linf"), "spectral") > 1.0
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        c = certify(model, accuracy=0.01, dependency="linf", order=order)
        assert c.certified
        assert c.num_updates is None
        assert c.offending
    monkeypatch.setattr(bias_module, "rounding_margins", lambda model, dependency: np.zeros((model.num_edges, 2)))
    # In exact arithmetic everything is right after one sweep down the chain, and after as many as links against it.
    assert certify(model, accuracy=0.01, dependency="linf").num_sweeps == 1
    assert certify(model, accuracy=0.01, dependency="linf", order=[3, 2, 1, 0]).num_sweeps == 4


def test_limits_end_the_search_without_a_norm_below_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MarkovRandomField.from_tables(np.zeros((4, 2)), [(0, 1), (1, 2), (2, 3)], [[[8.0, 8.0], [0.0, 0.0]]] * 3)
    for schedule in ("systematic", "random"):
        c = certify(model, accuracy=1e-6, dependency="linf", schedule=schedule, max_sweeps=1, order=None)
        if schedule == "random":
            assert not c.certified
            assert "limit of 1 sweeps" in c.advice
    monkeypatch.setattr(dobrushin, "MAX_CERTIFICATE_VISITS", 0.0)
    c = certify(model, accuracy=1e-6, dependency="linf")
    assert not c.certified
    assert c.stats["num_iterated"] == 0
    assert_consistent(c, model)


def test_models_without_variables_or_edges() -> None:
    for schedule in ("systematic", "random"):
        c = certify(MarkovRandomField.ising([], [], num_variables=0), accuracy=0.1, schedule=schedule)
        assert (c.certified, c.num_sweeps, c.num_updates, c.max_bias, c.total_bias) == (True, 0, 0, 0.0, 0.0)
        assert bias_after(np.zeros((0, 0)), 3, schedule=schedule).shape == (0,)
        c = certify(MarkovRandomField.ising([], [], num_variables=1), accuracy=0.1, schedule=schedule)
        assert (c.num_sweeps, c.max_bias) == (1, 0.0)
    model = MarkovRandomField.ising([], [], num_variables=5)
    c = certify(model, accuracy=0.1)
    assert (c.certified, c.num_sweeps, c.total_bias, c.norm_value) == (True, 1, 0.0, 0.0)
    # Five random updates may well miss a variable.
    c = certify(model, accuracy=0.1, schedule="random")
    assert c.num_sweeps == math.ceil(math.log(5 / 0.1) / (5 * math.log(5 / 4)))
    assert_consistent(c, model)


def test_asking_for_each_marginal_takes_fewer_sweeps() -> None:
    model = instances.ising_grid(10, 10, coupling_max=0.3, seed=1)
    joint, each = (certify(model, accuracy=0.01, per_variable=flag) for flag in (False, True))
    assert joint.num_sweeps is not None
    assert each.num_sweeps is not None
    assert each.num_sweeps < joint.num_sweeps
    assert each.total_bias > 0.01 >= each.max_bias
    assert "every marginal" in each.advice
    assert "the joint distribution" in joint.advice


def test_certificates_do_not_depend_on_the_numbering() -> None:
    model = instances.ising_grid(6, 6, coupling_max=0.3, seed=2)
    order = np.random.default_rng(0).permutation(36)
    other = strategies.relabel(model, order.tolist())
    a = certify(model, accuracy=0.01, order=order)
    b = certify(other, accuracy=0.01)
    assert a.num_sweeps == b.num_sweeps
    np.testing.assert_allclose(a.bias[order], b.bias, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accuracy": 0.0}, r"^accuracy .*got 0\.0"),
        ({"accuracy": 1.0}, r"^accuracy .*got 1\.0"),
        ({"accuracy": math.nan}, r"^accuracy .*got nan"),
        ({"accuracy": "0.1"}, r"^accuracy .*got '0.1'"),
        ({"accuracy": None}, r"^accuracy .*got None"),
        (
            {"accuracy": 0.1, "dependency": "l2"},
            r"^dependency .*got 'l2'",
        ),
        ({"accuracy": 0.1, "norm": "max"}, r"^norm .*got 'max'"),
        ({"accuracy": 0.1, "schedule": "x"}, r"^schedule .*got 'x'"),
        ({"accuracy": 0.1, "max_sweeps": 0}, r"^max_sweeps .*got 0"),
        ({"accuracy": 0.1, "order": [0, 1, 2]}, r"^order .*got shape \(3,\)"),
        ({"accuracy": 0.1, "order": [0, 1, 2, 2]}, r"^order .*0 to 3"),
        (
            {"accuracy": 0.1, "order": [0, 1, 2, 3], "schedule": "random"},
            r"^order .*schedule='random'",
        ),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        certify(cycle(), **arguments)


def test_bad_arguments_of_the_bias_are_named() -> None:
    for arguments, message in (
        ({"num_sweeps": -1}, r"^num_sweeps .*got -1"),
        ({"num_sweeps": 1, "schedule": "x"}, r"^schedule .*'x'"),
        ({"num_sweeps": 1, "dependency": "x"}, r"^dependency .*'x'"),
    ):
        with pytest.raises(ValueError, match=message):
            bias_after(cycle(), **arguments)
    with pytest.raises(ValueError, match=r"^model_or_R .*square"):
        bias_after([[0.0, 0.5]], 1)


# -- hubs -----------------------------------------------------------------------------------------------------------


def hub(num_leaves: int, *, num_states: int = 3, num_colors: int = 1) -> MarkovRandomField:
    """A variable of which some neighbors must have another state, and leaves that can forbid its state 0."""
    differ = np.where(np.eye(num_states) > 0, -INF, 0.0)
    leaf = np.zeros((num_states, 2))
    leaf[0, 0] = -INF
    unary = [np.zeros(num_states)] * (1 + num_colors) + [np.zeros(2)] * num_leaves
    edges = [(0, k) for k in range(1, len(unary))]
    return MarkovRandomField.from_tables(unary, edges, [differ] * num_colors + [leaf] * num_leaves)


@pytest.mark.parametrize("num_leaves", [2, 40])
def test_many_neighbors_can_be_checked_by_what_they_forbid(num_leaves: int) -> None:
    weights = np.array([2.0 * 0.5**num_leaves, 2.0, 2.0])  # of the hub: colors of the other end times states of leaves
    found = sample(hub(num_leaves), num_chains=64, num_sweeps=500, seed=0)
    np.testing.assert_allclose(found.node_marginals[:3], weights / weights.sum(), atol=0.05)
    with pytest.raises(ValueError, match=r"variable 0\b"):
        sample(hub(num_leaves, num_colors=2), num_chains=16, num_sweeps=50, seed=0)


def test_sets_of_forbidden_states_agree_with_trying_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, verdicts = np.random.default_rng(0), []
    for _ in range(60):
        tables = [np.where(rng.random((3, 2)) < 0.35, -INF, 0.0) for _ in range(3)]
        model = MarkovRandomField.from_tables([np.zeros(3)] + [np.zeros(2)] * 3, [(0, 1), (0, 2), (0, 3)], tables)
        found = undefined_conditional(model)
        with monkeypatch.context() as patch:
            patch.setattr("fastmix.theory.conditionals.MAX_JOINT_STATES", 0.5)
            assert undefined_conditional(model) == found
        verdicts.append(found is None)
    assert 5 < sum(verdicts) < 55
