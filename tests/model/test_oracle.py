"""The naive oracle against sums by hand; its assertions can fail."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from test_mrf import lopsided

import oracle
import strategies
from fastmix.model import MarkovRandomField

INF = math.inf
NAN = math.nan


# -- the oracle itself ----------------------------------------------------------------------------------------------


class TestOracle:
    def test_two_spins_by_hand(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 0.7, [0.2, 0.0])
        z = 2 * math.cosh(0.2) * 2 * math.cosh(0.7)
        assert oracle.log_z(model) == pytest.approx(math.log(z), abs=1e-14)
        up = math.exp(0.2) / (2 * math.cosh(0.2))
        assert oracle.node_marginals(model)[0][1] == pytest.approx(up, abs=1e-14)
        assert oracle.joint(model)[1, 1] == pytest.approx(math.exp(0.9) / z, abs=1e-14)
        assert oracle.edge_marginals(model)[0][0, 1] == pytest.approx(math.exp(-0.9) / z, abs=1e-14)
        same = 1 / (1 + math.exp(-1.4))
        assert oracle.conditional(model, 1, (0, 0)) == pytest.approx([same, 1 - same], abs=1e-14)
        assert oracle.condition(model, {0: 0}) == pytest.approx([same, 1 - same], abs=1e-14)
        assert oracle.log_evidence(model, {0: 1}) == pytest.approx(math.log(z * up), abs=1e-14)

    def test_no_variables(self) -> None:
        model = MarkovRandomField.from_tables([], [], [], log_constant=1.5)
        assert oracle.all_configurations(model) == [()]
        assert oracle.log_z(model) == 1.5
        assert oracle.joint(model) == 1.0

    @given(strategies.models())
    def test_marginals_agree_with_each_other(self, model: MarkovRandomField) -> None:
        nodes = oracle.node_marginals(model)
        for p in nodes:
            assert p.sum() == pytest.approx(1.0, abs=1e-12)
        for (i, j), table in zip(model.edges.tolist(), oracle.edge_marginals(model), strict=True):
            oracle.assert_probabilities_close(table.sum(axis=1), nodes[i])
            oracle.assert_probabilities_close(table.sum(axis=0), nodes[j])

    def test_random_models_allow_something(self) -> None:
        rng = np.random.default_rng(0)
        hard = [oracle.random_model(rng, 4, 3, 0.8, 10.0, 0.9) for _ in range(50)]
        assert all(oracle.log_z(model) > -INF for model in hard)
        assert any(model.has_forbidden for model in hard)
        assert {1, 2, 3} == {count for model in hard for count in model.num_states.tolist()}

    def test_impossible_models_and_evidence_are_refused(self) -> None:
        impossible = MarkovRandomField.from_tables([[0.0], [0.0]], [(0, 1)], [[[-INF]]])
        with pytest.raises(ValueError, match="allows no configuration"):
            oracle.joint(impossible)
        with pytest.raises(ValueError, match="evidence is impossible"):
            oracle.condition(impossible, {0: 0})
        assert oracle.conditional(impossible, 0, (0, 0)) is None


class TestAssertionsCanFail:
    @pytest.mark.parametrize(
        ("actual", "expected"),
        [(0.0, 1e-6), (-INF, 0.0), (0.0, -INF), (NAN, NAN), (INF, INF), ([0.0], 0.0), (1e3, 1e3 + 1e-6)],
    )
    def test_log_close(self, actual: object, expected: object) -> None:
        with pytest.raises(AssertionError):
            oracle.assert_log_close(actual, expected)

    @pytest.mark.parametrize(
        ("actual", "expected"),
        [([0.5, 0.5], [0.5 + 1e-7, 0.5]), ([NAN, 1.0], [NAN, 1.0]), ([-1e-12, 1.0], [0.0, 1.0]), ([1.0], 1.0)],
    )
    def test_probabilities_close(self, actual: object, expected: object) -> None:
        with pytest.raises(AssertionError):
            oracle.assert_probabilities_close(actual, expected)

    def test_same_weights(self) -> None:
        model = lopsided()
        order = [2, 0, 1]
        other = strategies.relabel(model, order)
        oracle.assert_same_weights(model, other, order)
        bent = model.parameters
        bent[-1] += 1e-6
        for bad, bad_order, shift in (
            (other, [0, 1, 2], 0.0),
            (other, [1, 0, 2], 0.0),
            (other, order, 1e-6),
            (model.with_parameters(bent), None, 0.0),
        ):
            with pytest.raises(AssertionError):
                oracle.assert_same_weights(model, bad, bad_order, shift)

    def test_same_weights_sees_swapped_variables_of_equal_counts(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0, [0.5, 0.1])
        with pytest.raises(AssertionError):
            oracle.assert_same_weights(model, strategies.relabel(model, [1, 0]))

    def test_read_only(self) -> None:
        with pytest.raises(AssertionError):
            oracle.assert_read_only(lopsided().log_unary, np.zeros(3))
