from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix.errors import ModelError
from fastmix.model import PairwiseMRF
from fastmix.reduction import Reduction, reduce_model

INF = math.inf

OPTIONS = [(drop, fold) for drop in (False, True) for fold in (False, True)]


def flat(tables: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.zeros(0), *(table.reshape(-1) for table in tables)])


def assert_same_answers(reduction: Reduction, evidence: dict[int, int]) -> None:
    """Joint distribution, log Z, marginals and configurations agree with the original model given the evidence."""
    model, small = reduction.original, reduction.model
    oracle.assert_log_close(oracle.log_z(small), oracle.log_evidence(model, evidence))

    # Every configuration of the small model, carried back, has the weight and probability of the original one.
    xs, weights = oracle.all_configurations(small), oracle.log_weights(small)
    expanded = reduction.expand_states(np.array(xs, dtype=np.int64).reshape(len(xs), small.num_variables))
    oracle.assert_log_close(weights, [oracle.log_weight(model, x) for x in expanded.tolist()])
    posterior = np.zeros(tuple(model.num_states.tolist()))
    for x, p in zip(expanded.tolist(), oracle.joint(small).reshape(-1), strict=True):
        posterior[tuple(x)] += p
    expected = np.zeros_like(posterior)
    given_evidence = oracle.condition(model, evidence)
    rest = [i for i in range(model.num_variables) if i not in evidence]
    for x in oracle.all_configurations(model):
        if oracle.agrees(x, evidence):
            expected[x] = given_evidence[tuple(x[i] for i in rest)]
    oracle.assert_probabilities_close(posterior, expected)

    # Marginals, carried back.
    nodes, edges = flat(oracle.node_marginals(small)), flat(oracle.edge_marginals(small))
    expected_nodes = [np.zeros(count) for count in model.num_states.tolist()]
    expected_edges = [np.zeros((model.num_states[i], model.num_states[j])) for i, j in model.edges.tolist()]
    for x in oracle.all_configurations(model):
        for i, state in enumerate(x):
            expected_nodes[i][state] += expected[x]
        for e, (i, j) in enumerate(model.edges.tolist()):
            expected_edges[e][x[i], x[j]] += expected[x]
    oracle.assert_probabilities_close(reduction.expand_node_marginals(nodes), flat(expected_nodes))
    oracle.assert_probabilities_close(reduction.expand_edge_marginals(nodes, edges), flat(expected_edges))


class TestAgainstTheOracle:
    @pytest.mark.parametrize(("drop", "fold"), OPTIONS)
    @given(model=strategies.models(max_variables=4), data=st.data())
    def test_answers(self, drop: bool, fold: bool, model: PairwiseMRF, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        reduction = reduce_model(model, evidence, drop_forbidden=drop, fold_single=fold)
        assert reduction.original is model
        for i, state in evidence.items():
            assert reduction.fixed[i] == state
        assert reduction.variables.tolist() == np.flatnonzero(reduction.fixed < 0).tolist()
        if drop:
            assert not (reduction.model.log_unary == -INF).any()
        if fold:
            counts = np.add.reduceat(reduction.model.log_unary > -INF, reduction.model.unary_offsets[:-1], dtype=int)
            assert (counts > 1).all()
        else:
            assert set(np.flatnonzero(reduction.fixed >= 0).tolist()) == set(evidence)
        assert_same_answers(reduction, evidence)

    @given(strategies.models(max_variables=4))
    def test_nothing_to_do(self, model: PairwiseMRF) -> None:
        assert reduce_model(model, drop_forbidden=False).model == model
        assert reduce_model(model, {}, drop_forbidden=False).model == model
        reduced = reduce_model(model)
        assert reduce_model(reduced.model).model == reduced.model
        folded = reduce_model(model, fold_single=True)
        assert reduce_model(folded.model, fold_single=True).model == folded.model

    @given(strategies.models(max_variables=4), st.data())
    def test_in_two_steps(self, model: PairwiseMRF, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        first = data.draw(st.sets(st.sampled_from(sorted(evidence)))) if evidence else set()
        partly = reduce_model(model, {i: evidence[i] for i in first}, drop_forbidden=False)
        number = {int(old): new for new, old in enumerate(partly.variables)}
        later = {number[i]: state for i, state in evidence.items() if i not in first}
        oracle.assert_same_weights(model.condition(evidence), partly.model.condition(later))

    @given(strategies.models(max_variables=4), st.data())
    def test_positions_point_at_the_original_entries(self, model: PairwiseMRF, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        reduction = reduce_model(model, evidence)
        small = reduction.model
        assert small.log_pairwise.tolist() == model.log_pairwise[reduction.pairwise_positions].tolist()
        untouched = [
            i for i in range(small.num_variables) if not set(neighbours(model, reduction.variables[i])) & set(evidence)
        ]
        for i in untouched:
            positions = reduction.unary_positions[small.unary_offsets[i] : small.unary_offsets[i + 1]]
            assert small.unary(i).tolist() == model.log_unary[positions].tolist()

    @given(strategies.models(min_variables=1, max_variables=4), st.data())
    def test_impossible_evidence(self, model: PairwiseMRF, data: st.DataObject) -> None:
        x = data.draw(strategies.configurations(model))
        everything = dict(enumerate(x))
        if oracle.log_weight(model, x) > -INF:
            assert reduce_model(model, everything).model.num_variables == 0
        else:
            with pytest.raises(ModelError, match="evidence must have positive probability"):
                reduce_model(model, everything)


def neighbours(model: PairwiseMRF, i: int) -> list[int]:
    return [a + b - i for a, b in model.edges.tolist() if i in (a, b)]


class TestByHand:
    def test_chain_of_forced_states(self) -> None:
        """Equality along a path: one observation fixes everything when single states are folded."""
        equal = [[0.0, -INF], [-INF, 0.0]]
        model = PairwiseMRF.from_tables([[0.1 * i, 0.0] for i in range(5)], [(i, i + 1) for i in range(4)], [equal] * 4)
        dropped = reduce_model(model, {0: 0})
        assert dropped.model.num_states.tolist() == [1, 2, 2, 2]
        folded = reduce_model(model, {0: 0}, fold_single=True)
        assert folded.model.num_variables == 0
        assert folded.fixed.tolist() == [0] * 5
        assert folded.model.log_constant == pytest.approx(1.0, abs=1e-15)
        assert folded.expand_states([]).tolist() == [0] * 5
        assert folded.expand_states(np.zeros((2, 0))).tolist() == [[0] * 5] * 2
        assert folded.expand_node_marginals(np.zeros(0)).tolist() == [1.0, 0.0] * 5
        assert folded.expand_edge_marginals(np.zeros(0), np.zeros(0)).tolist() == [1.0, 0.0, 0.0, 0.0] * 4

    def test_single_states_without_evidence(self) -> None:
        model = PairwiseMRF.from_tables(
            [[-INF, 2.0], [1.0, 0.0, -INF], [0.5]],
            [(0, 1), (1, 2)],
            [[[9, 9, 9], [0.25, 0.5, 9]], [[1.0], [2.0], [9.0]]],
        )
        reduction = reduce_model(model, fold_single=True)
        assert reduction.model == PairwiseMRF.from_tables([[2.25, 2.5]], [], [], log_constant=2.5)
        assert reduction.fixed.tolist() == [1, -1, 0]
        assert reduction.expand_states([[0], [1]]).tolist() == [[1, 0, 0], [1, 1, 0]]

    def test_kept_single_states_without_folding(self) -> None:
        model = PairwiseMRF.from_tables([[-INF, 2.0], [1.0, 0.0]], [(0, 1)], [[[9, 9], [0.25, 0.5]]])
        reduction = reduce_model(model)
        assert reduction.model == PairwiseMRF.from_tables([[2.0], [1.0, 0.0]], [(0, 1)], [[[0.25, 0.5]]])

    def test_folding_finds_that_nothing_is_possible(self) -> None:
        model = PairwiseMRF.from_tables([[0.0], [0.0], [0.0]], [(0, 1), (1, 2)], [[[0.0]], [[-INF]]])
        assert reduce_model(model).model == model
        with pytest.raises(ModelError, match="positive probability"):
            reduce_model(model, fold_single=True)

    def test_names_follow(self) -> None:
        model = PairwiseMRF.from_tables(
            [[0.0, -INF, 1.0], [0.0, 0.0], [0.0, 0.0]],
            [(0, 1), (1, 2)],
            [np.zeros((3, 2)), np.zeros((2, 2))],
            variable_names=["x", "y", "z"],
            state_names=[["a", "b", "c"], ["no", "yes"], ["left", "right"]],
        )
        reduction = reduce_model(model, {"y": "yes"})
        assert reduction.model.variable_names == ("x", "z")
        assert reduction.model.state_names == (("a", "c"), ("left", "right"))
        assert reduction.fixed.tolist() == [-1, 1, -1]
        assert reduction.expand_states([1, 0]).tolist() == [2, 1, 0]
        by_number = reduce_model(model, {1: 1})
        assert by_number.model == reduction.model
        kept = model.condition({"y": "no"})
        assert kept.variable_names == ("x", "z")
        assert kept.state_names == (("a", "b", "c"), ("left", "right"))

    def test_batches(self) -> None:
        reduction = reduce_model(PairwiseMRF.ising([(0, 1), (1, 2)], 1.0), {1: 1})
        x = np.random.default_rng(0).integers(0, 2, size=(2, 5, 2))
        expanded = reduction.expand_states(x)
        assert expanded.shape == (2, 5, 3)
        assert (expanded[..., 1] == 1).all()
        assert (expanded[..., [0, 2]] == x).all()
        assert reduction.expand_states(np.zeros((0, 2), dtype=int)).shape == (0, 3)

    def test_the_original_is_unchanged(self) -> None:
        model = PairwiseMRF.ising([(0, 1)], 1.0, [0.5, 0.25])
        before = model.content_hash
        reduction = reduce_model(model, {0: 1})
        reduction.expand_states([0])[:] = 5
        assert reduction.expand_states([0]).tolist() == [1, 0]
        assert PairwiseMRF.ising([(0, 1)], 1.0, [0.5, 0.25]) == model
        assert model.content_hash == before

    def test_a_reduction_can_be_compared_and_hashed(self) -> None:
        model = PairwiseMRF.ising([(0, 1)], 1.0)
        one, two = reduce_model(model, {0: 1}), reduce_model(model, {0: 1})
        assert len({one, two}) == 2
        assert one == one
        assert one != two


class TestRefusals:
    @pytest.mark.parametrize(
        ("evidence", "message"),
        [
            ({3: 0}, "variable must be from 0 to 2, got 3"),
            ({"q": 0}, "variable must be a number or a name, got 'q'"),
            ({0: 2}, "state of variable 0 must be from 0 to 1, got 2"),
            ({0: "up"}, "state of variable 0 must be one of [], got 'up'"),
            ({0: 0.5}, "state of variable 0 must be a number or a name, got 0.5"),
            ({0: 1, "a": 0}, "evidence must give each variable one state, got 1 and 0 for variable 0"),
            ({2: 0}, "evidence must have positive probability, but it is impossible: variable 2 has no state left"),
            ({0: 0, 1: 1}, "evidence must have positive probability, but it is impossible"),
            ({0: 0}, None),
        ],
    )
    def test_evidence(self, evidence: dict[int | str, int | str], message: str | None) -> None:
        model = PairwiseMRF.from_tables(
            [[0.0, 0.0], [0.0, 0.0], [-INF, 0.0]],
            [(0, 1)],
            [[[0.0, -INF], [0.0, 0.0]]],
            variable_names=["a", "b", "c"],
        )
        if message is None:
            reduce_model(model, evidence)
            return
        with pytest.raises(ModelError, match=re.escape(message)):
            reduce_model(model, evidence)
        with pytest.raises(ModelError, match=re.escape(message)):
            model.condition(evidence)

    def test_the_same_state_twice_is_no_contradiction(self) -> None:
        model = PairwiseMRF.ising([(0, 1)], 1.0, variable_names=["a", "b"])
        assert reduce_model(model, {0: 1, "a": 1}).fixed.tolist() == [1, -1]

    def test_expanding_states_that_do_not_exist(self) -> None:
        reduction = reduce_model(PairwiseMRF.ising([(0, 1)], 1.0), {0: 1})
        with pytest.raises(ModelError, match="states of variable 0 must be from 0 to 1, got 2"):
            reduction.expand_states([2])
        with pytest.raises(ModelError, match=re.escape("states must have shape (..., 1), got shape (2,)")):
            reduction.expand_states([0, 0])


class TestAssertionCanFail:
    @pytest.mark.parametrize("part", ["log_constant", "log_unary", "log_pairwise", "fixed"])
    def test_same_answers(self, part: str) -> None:
        rng = np.random.default_rng(3)
        model = oracle.random_entries(rng, [2, 3, 2, 2], [(0, 1), (1, 2), (1, 3), (2, 3)])
        good = reduce_model(model, {0: 1})
        assert_same_answers(good, {0: 1})
        small, fixed = good.model, good.fixed
        if part == "fixed":
            fixed = np.array([0, -1, -1, -1])
        elif part == "log_constant":
            small = small.replace(log_constant=small.log_constant + 1e-6)
        else:
            bent = getattr(small, part).copy()
            bent[0] += 1e-6
            small = small.replace(**{part: bent})
        bad = Reduction(model, small, good.variables, good.unary_positions, good.pairwise_positions, fixed)
        with pytest.raises(AssertionError):
            assert_same_answers(bad, {0: 1})
