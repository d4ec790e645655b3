from __future__ import annotations

import math
import pickle
import time
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import strategies
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError
from fastmix.graphs import grid_edges, path_edges
from fastmix.model import MarkovRandomField, supports
from fastmix.model import reduce as reduction_module
from fastmix.model.forms import move_constants, take_offsets
from fastmix.model.reduce import Reduction, reduce_model

INF = math.inf

OPTIONS = [(drop, fold) for drop in (False, True) for fold in (False, True)]
EQUAL = np.array([[0.0, -INF], [-INF, 0.0]])
# Forced variables are followed in a loop that is compiled for large models: never, and always.
IN_PYTHON = [10**9, -1]


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
    def test_answers(self, drop: bool, fold: bool, model: MarkovRandomField, data: st.DataObject) -> None:
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
    def test_nothing_to_do(self, model: MarkovRandomField) -> None:
        moved = move_constants(model)
        assert reduce_model(model, drop_forbidden=False).model == moved
        assert reduce_model(model, {}, drop_forbidden=False).model == moved
        reduced = reduce_model(model)
        assert reduce_model(reduced.model).model == reduced.model
        folded = reduce_model(model, fold_single=True)
        assert reduce_model(folded.model, fold_single=True).model == folded.model

    @given(strategies.models(max_variables=4), st.data())
    def test_in_two_steps(self, model: MarkovRandomField, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        first = data.draw(st.sets(st.sampled_from(sorted(evidence)))) if evidence else set()
        partly = reduce_model(model, {i: evidence[i] for i in first}, drop_forbidden=False)
        number = {int(old): new for new, old in enumerate(partly.variables)}
        later = {number[i]: state for i, state in evidence.items() if i not in first}
        oracle.assert_same_weights(model.condition(evidence), partly.model.condition(later))

    @given(strategies.models(max_variables=4), st.data())
    def test_positions_point_at_the_original_entries(self, model: MarkovRandomField, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        reduction = reduce_model(model, evidence)
        small = reduction.model
        moved = move_constants(model)
        kept = moved.log_pairwise[reduction.pairwise_positions]
        assert small.log_pairwise.tolist() == take_offsets(kept, small.pairwise_offsets)[0].tolist()
        untouched = [
            i for i in range(small.num_variables) if not set(neighbors(model, reduction.variables[i])) & set(evidence)
        ]
        for i in untouched:
            positions = reduction.unary_positions[small.unary_offsets[i] : small.unary_offsets[i + 1]]
            kept = moved.log_unary[positions]
            assert small.unary(i).tolist() == take_offsets(kept, np.array([0, len(kept)]))[0].tolist()

    @given(strategies.models(min_variables=1, max_variables=4), st.data())
    def test_impossible_evidence(self, model: MarkovRandomField, data: st.DataObject) -> None:
        x = data.draw(strategies.configurations(model))
        everything = dict(enumerate(x))
        if oracle.log_weight(model, x) > -INF:
            assert reduce_model(model, everything).model.num_variables == 0
        else:
            with pytest.raises(ImpossibleEvidenceError, match=r"^evidence "):
                reduce_model(model, everything)


def naive_left(model: MarkovRandomField, evidence: Mapping[int, int]) -> list[list[int]]:
    """States of every variable that have a partner left beside every neighbor, by passes over everything."""
    unary, tables = oracle.unary_vectors(model), oracle.edge_tables(model)
    left = [
        [s for s in range(count) if unary[i][s] > -INF and evidence.get(i, s) == s]
        for i, count in enumerate(model.num_states.tolist())
    ]
    before = -1
    while before != (before := sum(map(len, left))):
        for (a, b), table in tables.items():
            left[a] = [s for s in left[a] if any(table[s][t] > -INF for t in left[b])]
            left[b] = [t for t in left[b] if any(table[s][t] > -INF for s in left[a])]
    return left


@st.composite
def hard_models(draw: st.DrawFn) -> MarkovRandomField:
    """Models full of forbidden pairs: long chains of forced states, and many without any possible configuration."""
    n = draw(st.integers(1, 9))
    edges = draw(strategies.graphs(n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = rng.integers(1, 4, n)
    density = draw(st.sampled_from([0.3, 0.5, 0.7]))
    unary = [rng.normal(size=count) for count in counts]
    if draw(st.booleans()):
        for vector in unary:
            vector[1:][rng.random(len(vector) - 1) < 0.5] = -INF
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    for table in tables:
        table[rng.random(table.shape) < density] = -INF
    return MarkovRandomField.from_tables(unary, edges, tables, log_constant=0.25)


class TestForcedStates:
    @pytest.mark.parametrize("most", IN_PYTHON)
    @given(model=hard_models(), data=st.data())
    def test_against_passes_over_everything(self, most: int, model: MarkovRandomField, data: st.DataObject) -> None:
        observed = data.draw(st.sets(st.integers(0, model.num_variables - 1), max_size=2))
        evidence = {i: data.draw(st.integers(0, int(model.num_states[i]) - 1)) for i in sorted(observed)}
        left = naive_left(model, evidence)
        with mock.patch.object(supports, "MAX_PYTHON_SUPPORTS", most):
            if [] in left:
                kind = ImpossibleEvidenceError if evidence else ImpossibleModelError
                with pytest.raises(kind, match=r"(variable|edge) "):
                    reduce_model(model, evidence, fold_single=True)
                return
            reduction = reduce_model(model, evidence, fold_single=True)
        assert reduction.fixed.tolist() == [states[0] if len(states) == 1 else -1 for states in left]
        assert reduction.model.num_states.tolist() == [len(states) for states in left if len(states) > 1]
        if reduction.model.num_variables <= 5 and oracle.log_evidence(model, evidence) > -INF:
            assert_same_answers(reduction, evidence)

    def test_the_models_are_of_every_kind(self) -> None:
        kinds = set()

        @settings(max_examples=120, database=None)
        @given(hard_models())
        def collect(model: MarkovRandomField) -> None:
            single = {len(states) == 1 for states in naive_left(model, {})}
            kinds.add("none" if [] in naive_left(model, {}) else str(sorted(single)))

        collect()
        assert kinds == {"none", "[False]", "[False, True]", "[True]"}

    @pytest.mark.parametrize("most", IN_PYTHON)
    @pytest.mark.parametrize("first", [0, 1999, 700])
    def test_a_path_takes_two_passes(self, most: int, first: int) -> None:
        model = MarkovRandomField.from_tables(
            np.tile([0.25, 0.5], (2000, 1)), path_edges(2000), np.tile(EQUAL, (1999, 1, 1))
        )
        with (
            mock.patch.object(supports, "MAX_PYTHON_SUPPORTS", most),
            mock.patch.object(reduction_module, "_fold", wraps=reduction_module._fold) as fold,
        ):
            reduction = reduce_model(model, {first: 1}, fold_single=True)
        assert fold.call_count == 2
        assert reduction.fixed.tolist() == [1] * 2000
        assert reduction.model == MarkovRandomField([], [], [], [], 1000.0)

    @pytest.mark.parametrize("most", IN_PYTHON)
    def test_a_contradiction_far_away(self, most: int) -> None:
        tables = np.tile(EQUAL, (50, 1, 1))
        tables[40] = [[0.0, -INF], [-INF, -INF]]
        model = MarkovRandomField.from_tables(np.zeros((51, 2)), path_edges(51), tables)
        with (
            mock.patch.object(supports, "MAX_PYTHON_SUPPORTS", most),
            pytest.raises(ImpossibleEvidenceError, match=r"variable 4[01]\b"),
        ):
            reduce_model(model, {0: 1}, fold_single=True)

    def test_time_is_linear_on_a_path(self) -> None:
        """A pass over everything for each forced variable took 30 s and more here."""
        n = 20_000
        model = MarkovRandomField.from_tables(np.zeros((n, 2)), path_edges(n), np.tile(EQUAL, (n - 1, 1, 1)))
        begin = time.process_time()
        assert (reduce_model(model, {0: 1}, fold_single=True).fixed == 1).all()
        assert time.process_time() - begin < 5


class TestNothingToDo:
    def test_the_same_object(self) -> None:
        model = MarkovRandomField.from_tables(
            [[0.0, 1.0], [0.0, 2.0, 1.0]], [(0, 1)], [[[0.0, -INF, 1.0], [2.0, 3.0, -INF]]], log_constant=0.5
        )
        for evidence in (None, {}):
            for drop, fold in OPTIONS:
                reduction = reduce_model(model, evidence, drop_forbidden=drop, fold_single=fold)
                assert reduction.model is model
                assert reduction.original is model
                assert reduction.fixed.tolist() == [-1, -1]
                assert reduction.variables.tolist() == [0, 1]
                assert reduction.unary_positions.tolist() == list(range(5))
                assert reduction.pairwise_positions.tolist() == list(range(6))
                for name in ("fixed", "variables", "unary_positions", "pairwise_positions"):
                    assert getattr(reduction, name).dtype == np.int64
                assert_same_answers(reduction, {})

    def test_only_when_nothing_is_asked_of_the_model(self) -> None:
        forbidden = MarkovRandomField.from_tables([[0.0, 1.0, -INF], [0.0, 2.0]], [(0, 1)], [np.zeros((3, 2))])
        assert reduce_model(forbidden, drop_forbidden=False).model is forbidden
        assert reduce_model(forbidden).model.num_states.tolist() == [2, 2]
        kept = reduce_model(forbidden, drop_forbidden=False, fold_single=True)
        assert kept.model == forbidden
        single = MarkovRandomField.from_tables([[3.0], [0.0, 2.0]], [(0, 1)], [np.zeros((1, 2))])
        assert reduce_model(single).model is single
        assert reduce_model(single, fold_single=True).fixed.tolist() == [0, -1]
        down_to_one = MarkovRandomField.from_tables([[3.0, -INF], [0.0, 2.0]], [(0, 1)], [np.zeros((2, 2))])
        assert reduce_model(down_to_one, drop_forbidden=False, fold_single=True).fixed.tolist() == [0, -1]
        empty = MarkovRandomField([], [], [], [])
        assert reduce_model(empty, fold_single=True).model is empty

    @pytest.mark.parametrize(
        ("evidence", "bytes_an_entry"),
        [(None, 12), ({5: 1}, 60), (dict.fromkeys(range(0, 3600, 2), 1), 30)],
    )
    def test_memory(self, evidence: dict[int, int] | None, bytes_an_entry: int) -> None:
        """Positions take 8 bytes an entry; a copy of the tables and its check come on top when there is evidence."""
        model = MarkovRandomField.potts(grid_edges(60, 60), 0.5, 3)
        reduce_model(model, evidence)
        tracemalloc.start()
        reduce_model(model, evidence)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < bytes_an_entry * len(model.log_pairwise)


def neighbors(model: MarkovRandomField, i: int) -> list[int]:
    return [a + b - i for a, b in model.edges.tolist() if i in (a, b)]


class TestByHand:
    def test_chain_of_forced_states(self) -> None:
        """Equality along a path: one observation fixes everything when single states are folded."""
        equal = [[0.0, -INF], [-INF, 0.0]]
        model = MarkovRandomField.from_tables(
            [[0.1 * i, 0.0] for i in range(5)], [(i, i + 1) for i in range(4)], [equal] * 4
        )
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
        model = MarkovRandomField.from_tables(
            [[-INF, 2.0], [1.0, 0.0, -INF], [0.5]],
            [(0, 1), (1, 2)],
            [[[9, 9, 9], [0.25, 0.5, 9]], [[1.0], [2.0], [9.0]]],
        )
        reduction = reduce_model(model, fold_single=True)
        assert reduction.model == MarkovRandomField.from_tables([[2.25, 2.5]], [], [], log_constant=2.5)
        assert reduction.fixed.tolist() == [1, -1, 0]
        assert reduction.expand_states([[0], [1]]).tolist() == [[1, 0, 0], [1, 1, 0]]

    def test_kept_single_states_without_folding(self) -> None:
        model = MarkovRandomField.from_tables([[-INF, 2.0], [1.0, 0.0]], [(0, 1)], [[[9, 9], [0.25, 0.5]]])
        reduction = reduce_model(model)
        assert reduction.model == MarkovRandomField.from_tables([[2.0], [1.0, 0.0]], [(0, 1)], [[[0.25, 0.5]]])

    def test_folding_finds_that_nothing_is_possible(self) -> None:
        model = MarkovRandomField.from_tables([[0.0], [0.0], [0.0]], [(0, 1), (1, 2)], [[[0.0]], [[-INF]]])
        assert reduce_model(model).model == model
        for evidence in (None, {}):
            with pytest.raises(ImpossibleModelError, match=r"^the model .*variable 1"):
                reduce_model(model, evidence, fold_single=True)
        with pytest.raises(ImpossibleEvidenceError, match=r"^evidence .*variable 1"):
            reduce_model(model, {0: 0}, fold_single=True)

    def test_a_model_without_possible_states_is_to_blame_itself(self) -> None:
        """One state of variable 0 and one of variable 2 forbid both states of variable 1 between them."""
        model = MarkovRandomField.from_tables(
            [[0.0], [0.0, 0.0], [0.0, -INF]], [(0, 1), (1, 2)], [[[0.0, -INF]], [[-INF, 0.0], [0.0, 0.0]]]
        )
        for evidence in (None, {}):
            with pytest.raises(ImpossibleModelError, match="variable 1 "):
                reduce_model(model, evidence, fold_single=True)
        with pytest.raises(ImpossibleEvidenceError, match=r"^evidence .*variable 1 "):
            reduce_model(model, {0: 0, 2: 0}, fold_single=True)

    def test_names_follow(self) -> None:
        model = MarkovRandomField.from_tables(
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
        reduction = reduce_model(MarkovRandomField.ising([(0, 1), (1, 2)], 1.0), {1: 1})
        x = np.random.default_rng(0).integers(0, 2, size=(2, 5, 2))
        expanded = reduction.expand_states(x)
        assert expanded.shape == (2, 5, 3)
        assert (expanded[..., 1] == 1).all()
        assert (expanded[..., [0, 2]] == x).all()
        assert reduction.expand_states(np.zeros((0, 2), dtype=int)).shape == (0, 3)

    def test_the_original_is_unchanged(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0, [0.5, 0.25])
        before = model.content_hash
        reduction = reduce_model(model, {0: 1})
        reduction.expand_states([0])[:] = 5
        assert reduction.expand_states([0]).tolist() == [1, 0]
        assert MarkovRandomField.ising([(0, 1)], 1.0, [0.5, 0.25]) == model
        assert model.content_hash == before

    def test_a_reduction_can_be_compared_and_hashed(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0)
        one, two = reduce_model(model, {0: 1}), reduce_model(model, {0: 1})
        assert len({one, two}) == 2
        assert one == one
        assert one != two


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
        assert good.kept is not None
        kept = good.kept._replace(fixed=fixed)
        bad = Reduction(model, small, kept)
        with pytest.raises(AssertionError):
            assert_same_answers(bad, {0: 1})


def test_a_reduction_of_nothing_makes_its_maps_when_they_are_asked_for():
    model = MarkovRandomField.ising(grid_edges(3, 4), 0.3)
    reduction = reduce_model(model)
    assert reduction.model is model
    assert not {"variables", "unary_positions", "pairwise_positions", "fixed"} & vars(reduction).keys()
    for copy in (pickle.loads(pickle.dumps(reduction)), replace(reduction, model=model)):
        assert copy.variables.tolist() == list(range(12))
        assert copy.unary_positions.tolist() == list(range(24))
        assert copy.pairwise_positions.tolist() == list(range(4 * 17))
        assert copy.fixed.tolist() == [-1] * 12
    name = "states"
    with pytest.raises(AttributeError, match=name):
        getattr(reduction, name)
