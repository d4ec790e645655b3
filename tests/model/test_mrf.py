from __future__ import annotations

import copy
import dataclasses
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import strategies
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField

NAN, INF = math.nan, math.inf


def arrays_of(model: MarkovRandomField) -> list[np.ndarray]:
    return [
        model.num_states,
        model.log_unary,
        model.edges,
        model.log_pairwise,
        model.unary_offsets,
        model.pairwise_offsets,
    ]


def lopsided() -> MarkovRandomField:
    """Three variables of 2, 3 and 4 states in a triangle, every entry different."""
    return MarkovRandomField.from_tables(
        [[0.1, 0.2], [0.3, -0.4, 0.5], [1.0, 2.0, -3.0, 0.0]],
        [(0, 1), (0, 2), (1, 2)],
        [np.arange(6.0).reshape(2, 3), np.arange(8.0).reshape(2, 4) / 7, -np.arange(12.0).reshape(3, 4) / 5],
        log_constant=0.75,
        variable_names=["sun", "wind", "rain"],
        state_names=[["no", "yes"], ["low", "mid", "high"], ["a", "b", "c", "d"]],
    )


# -- storage --------------------------------------------------------------------------------------------------------


class TestStorage:
    def test_flat_arrays_and_offsets(self) -> None:
        model = lopsided()
        assert model.num_states.tolist() == [2, 3, 4]
        assert model.unary_offsets.tolist() == [0, 2, 5, 9]
        assert model.pairwise_offsets.tolist() == [0, 6, 14, 26]
        assert model.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
        assert (model.num_variables, model.num_edges, model.num_parameters) == (3, 3, 9 + 26)
        assert all(a.dtype in (np.dtype(np.int64), np.dtype(np.float64)) for a in arrays_of(model))

    def test_no_variables(self) -> None:
        for model in (
            MarkovRandomField.from_tables([], [], []),
            MarkovRandomField.from_factors([], []),
            MarkovRandomField.ising([], 1.0),
            MarkovRandomField.potts([], 1.0, 3),
            MarkovRandomField(np.zeros(0, dtype=int), np.zeros(0), np.zeros((0, 2), dtype=int), np.zeros(0)),
        ):
            assert (model.num_variables, model.num_edges, model.num_parameters) == (0, 0, 0)
            assert model.log_weight([]) == 0.0
            assert model.log_weight(np.zeros((3, 0))).tolist() == [0.0, 0.0, 0.0]
            assert model.sufficient_statistics([]).shape == (0,)
            assert model.edges.shape == (0, 2)
            assert not model.has_forbidden
            assert repr(model) == "MarkovRandomField(0 variables, 0 edges)"
            assert model.condition({}) == model.drop_forbidden_states() == model
            assert pickle.loads(pickle.dumps(model)) == model

    @given(strategies.models())
    def test_arrays_are_read_only(self, model: MarkovRandomField) -> None:
        oracle.assert_read_only(*arrays_of(model))
        for i in range(model.num_variables):
            oracle.assert_read_only(model.unary(i))
        for i, j in model.edges.tolist():
            oracle.assert_read_only(model.table(i, j), model.table(j, i))

    def test_writing_fails(self) -> None:
        model = lopsided()
        for array in arrays_of(model):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            model.log_constant = 1.0

    def test_parameters_is_a_new_array(self) -> None:
        model = lopsided()
        before = model.content_hash
        model.parameters[:] = 7.0
        assert copy.copy(model).content_hash == before

    def test_mutating_the_arguments_changes_nothing(self) -> None:
        counts, unary = np.array([2, 2]), np.array([0.0, 1.0, 2.0, 3.0])
        edges, tables = np.array([[0, 1]]), np.array([1.0, 2.0, 3.0, 4.0])
        names, states = ["a", "b"], [["x", "y"], ["x", "y"]]
        built = {
            "class": MarkovRandomField(counts, unary, edges, tables, 0.5, names, states),
            "tables": MarkovRandomField.from_tables(unary.reshape(2, 2), edges, tables.reshape(1, 2, 2)),
            "list of views": MarkovRandomField.from_tables(
                [unary[:2], unary[2:]], edges, [tables.reshape(2, 2)], variable_names=names, state_names=states
            ),
            "factors": MarkovRandomField.from_factors(counts, [((0, 1), tables), ((0,), unary[:2])]),
            "ising": MarkovRandomField.ising(edges, tables[:1], unary[:2]),
            "potts": MarkovRandomField.potts(edges, tables[:1], 2, unary.reshape(2, 2)),
        }
        before = {key: (model.content_hash, copy.deepcopy(model)) for key, model in built.items()}
        counts[:], unary[:], edges[:], tables[:] = 9, 9.0, 0, 9.0
        names.append("c")
        states[0].append("z")
        for key, model in built.items():
            content_hash, twin = before[key]
            assert model == twin, key
            assert copy.copy(model).content_hash == content_hash, key

    def test_arguments_stay_writable(self) -> None:
        unary, tables = np.zeros((2, 2)), np.zeros((1, 2, 2))
        MarkovRandomField.from_tables(unary, [(0, 1)], tables)
        assert unary.flags.writeable
        assert tables.flags.writeable

    def test_negative_zero_is_zero(self) -> None:
        minus = MarkovRandomField.from_tables([[-0.0, 0.0]] * 2, [(0, 1)], [[[-0.0, 0.0]] * 2], log_constant=-0.0)
        plus = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[0.0, 0.0]] * 2])
        assert minus == plus
        assert minus.content_hash == plus.content_hash

    def test_has_forbidden(self) -> None:
        assert not lopsided().has_forbidden
        assert MarkovRandomField.from_tables([[0.0, -INF]], [], []).has_forbidden
        assert MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[0, 0], [0, -INF]]]).has_forbidden


# -- looking things up ----------------------------------------------------------------------------------------------


class TestAccess:
    @given(strategies.models(named=True))
    def test_vectors_and_tables(self, model: MarkovRandomField) -> None:
        for i, vector in enumerate(oracle.unary_vectors(model)):
            assert model.unary(i).tolist() == model.unary(f"v{i}").tolist() == vector
        for e, ((i, j), table) in enumerate(oracle.edge_tables(model).items()):
            assert model.edge_index(i, j) == model.edge_index(j, f"v{i}") == e
            assert model.table(i, j).tolist() == table
            assert model.table(f"v{j}", i).T.tolist() == table

    @given(strategies.models(min_variables=2))
    def test_no_such_edge(self, model: MarkovRandomField) -> None:
        present = {tuple(edge) for edge in model.edges.tolist()}
        for i in range(model.num_variables):
            for j in range(model.num_variables):
                if (min(i, j), max(i, j)) not in present:
                    with pytest.raises(ModelError, match="edge between"):
                        model.table(i, j)

    def test_names(self) -> None:
        model = lopsided()
        assert model.variable_index("wind") == model.variable_index(np.int32(1)) == 1
        assert model.state_index("wind", "high") == model.state_index(1, np.uint8(2)) == 2
        assert model.log_weight([1, 2, 0]) == pytest.approx(0.75 + 0.2 + 0.5 + 1.0 + 5.0 + 4 / 7 - 8 / 5)

    @pytest.mark.parametrize(
        ("variable", "message"),
        [
            ("snow", r"^variable .*got 'snow'.*'sun'"),
            (3, r"^variable .*got 3"),
            (-1, r"^variable .*got -1"),
            (1.7, r"^variable .*got 1\.7"),
            (None, r"^variable .*got None"),
        ],
    )
    def test_unknown_variable(self, variable: object, message: str) -> None:
        for call in (lopsided().unary, lopsided().variable_index, lambda v: lopsided().condition({v: 0})):
            with pytest.raises(ModelError, match=message):
                call(variable)

    @pytest.mark.parametrize(
        ("state", "message"),
        [
            ("windy", r"^state of variable 'wind' .*got 'windy'.*'mid'"),
            (3, r"^state of variable 'wind' .*got 3"),
            (-1, r"^state of variable 'wind' .*got -1"),
            (0.9, r"^state of variable 'wind' .*got 0\.9"),
            (None, r"^state of variable 'wind' .*got None"),
        ],
    )
    def test_unknown_state(self, state: object, message: str) -> None:
        for call in (lopsided().state_index, lambda v, s: lopsided().condition({v: s})):
            with pytest.raises(ModelError, match=message):
                call("wind", state)

    def test_names_of_a_model_without_any(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0)
        with pytest.raises(ModelError, match=r"^variable .* 1, got 'a'$"):
            model.unary("a")
        with pytest.raises(ModelError, match=r"state .* 1, got 'up'$"):
            model.state_index(0, "up")


# -- probabilities --------------------------------------------------------------------------------------------------


class TestProbabilities:
    @given(strategies.models())
    def test_log_weight(self, model: MarkovRandomField) -> None:
        expected = oracle.log_weights(model)
        xs = oracle.all_configurations(model)
        oracle.assert_log_close(model.log_weight(xs), expected)
        one = model.log_weight(xs[-1])
        assert isinstance(one, float)
        oracle.assert_log_close(one, expected[-1])

    @given(strategies.models(max_variables=3), st.data())
    def test_batch_shapes(self, model: MarkovRandomField, data: st.DataObject) -> None:
        n = model.num_variables
        shape = data.draw(st.sampled_from([(), (1,), (4,), (0,), (2, 3), (2, 0, 3), (1, 2, 2)]))
        rng = np.random.default_rng(0)
        x = rng.integers(0, model.num_states, size=(*shape, n))
        weights = model.log_weight(x)
        assert np.shape(weights) == shape
        f = model.sufficient_statistics(x)
        assert f.shape == (*shape, model.num_parameters)
        flat = x.reshape(-1, n) if n else np.zeros((int(np.prod(shape)), 0), dtype=int)
        for k, row in enumerate(flat):
            oracle.assert_log_close(np.reshape(weights, -1)[k], oracle.log_weight(model, row.tolist()))

    def test_many_configurations_are_cut_into_chunks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = lopsided()
        xs = oracle.all_configurations(model)
        whole = model.log_weight(xs)
        monkeypatch.setattr("fastmix.model.mrf.GATHERED_ENTRIES", 13)  # two configurations of six entries at a time
        assert model.log_weight(xs).tolist() == whole.tolist()
        oracle.assert_log_close(whole, oracle.log_weights(model))

    @pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.float64, bool])
    def test_types_of_states(self, kind: type) -> None:
        model = MarkovRandomField.ising([(0, 1), (1, 2)], [0.5, -1.0], [0.1, 0.2, 0.3])
        x = np.array([[0, 1, 1], [1, 0, 1]])
        assert model.log_weight(x.astype(kind)).tolist() == model.log_weight(x).tolist()

    def test_many_states(self) -> None:
        table = np.arange(300.0 * 2).reshape(300, 2)
        model = MarkovRandomField.from_tables([np.arange(300.0), [0.0, 0.5]], [(0, 1)], [table])
        assert model.log_weight([299, 1]) == 299.0 + 0.5 + 599.0

    @given(strategies.models(allow_forbidden=False))
    def test_sufficient_statistics(self, model: MarkovRandomField) -> None:
        xs = oracle.all_configurations(model)
        f = model.sufficient_statistics(xs)
        assert set(np.unique(f)) <= {0.0, 1.0}
        assert (f.sum(axis=1) == model.num_variables + model.num_edges).all()
        assert model.parameters.tolist() == [*model.log_unary.tolist(), *model.log_pairwise.tolist()]
        oracle.assert_log_close(f @ model.parameters + model.log_constant, oracle.log_weights(model))

    @given(strategies.models())
    def test_expected_statistics_are_the_marginals(self, model: MarkovRandomField) -> None:
        f = model.sufficient_statistics(oracle.all_configurations(model))
        mean = oracle.joint(model).reshape(-1) @ f
        tables = [*oracle.node_marginals(model), *(t.reshape(-1) for t in oracle.edge_marginals(model))]
        oracle.assert_probabilities_close(mean, np.concatenate([np.zeros(0), *tables]))

    @pytest.mark.parametrize(
        ("states", "message"),
        [
            ([0, 0], r"^states .*got shape \(2,\)"),
            (0, r"^states .*got shape \(\)"),
            (np.zeros((3, 2), dtype=int), r"^states .*got shape \(3, 2\)"),
            ([[0, 0, 0], [0, 0]], r"^states .*got \[\[0, 0, 0\], \[0, 0\]\]"),
            ([0, 3, 0], r"^states of variable 1 .*got 3"),
            ([[0, 0, 0], [0, 0, -1]], r"^states of variable 2 .*got -1"),
            ([256, 0, 0], r"^states of variable 0 .*got 256"),
            ([2**32, 0, 0], r"^states of variable 0 .*got 4294967296"),
            ([2**64, 0, 0], r"^states .*whole numbers"),
            ([0, 0.5, 0], r"^states .*got \[0, 0\.5, 0\]"),
            ([0, NAN, 0], r"^states .*got \[0, nan, 0\]"),
            ([0, INF, 0], r"^states .*got \[0, inf, 0\]"),
            (["no", "low", "a"], r"^states .*got \['no', 'low', 'a'\]"),
            (None, r"^states .*got None"),
        ],
    )
    def test_bad_states(self, states: object, message: str) -> None:
        model = lopsided()
        for call in (model.log_weight, model.sufficient_statistics):
            with pytest.raises(ModelError, match=message):
                call(states)


# -- properties -----------------------------------------------------------------------------------------------------


class TestProperties:
    @given(strategies.models(), st.data())
    def test_relabeling_and_edge_reversal(self, model: MarkovRandomField, data: st.DataObject) -> None:
        order = data.draw(st.permutations(range(model.num_variables)))
        other = strategies.relabel(model, order)
        oracle.assert_same_weights(model, other, order)
        oracle.assert_probabilities_close(oracle.joint(other), oracle.joint(model).transpose(order))

    @given(strategies.models())
    def test_relabeling_back_gives_the_same_model(self, model: MarkovRandomField) -> None:
        backwards = list(reversed(range(model.num_variables)))
        assert strategies.relabel(strategies.relabel(model, backwards), backwards) == model

    @given(strategies.models(), st.floats(-1e3, 1e3))
    def test_constant_shift_moves_log_z_only(self, model: MarkovRandomField, shift: float) -> None:
        other = model.replace(log_constant=model.log_constant + shift)
        oracle.assert_same_weights(model, other, shift=shift)
        oracle.assert_log_close(oracle.log_z(other), oracle.log_z(model) + shift)
        oracle.assert_probabilities_close(oracle.joint(other), oracle.joint(model))

    @given(strategies.models(min_variables=1), st.floats(-1e3, 1e3))
    def test_shift_of_a_unary_or_table_moves_log_z_only(self, model: MarkovRandomField, shift: float) -> None:
        others = [
            model.replace(log_unary=model.log_unary + shift * (np.arange(len(model.log_unary)) < model.num_states[0]))
        ]
        if model.num_edges:
            first = np.arange(len(model.log_pairwise)) < model.pairwise_offsets[1]
            others.append(model.replace(log_pairwise=model.log_pairwise + shift * first))
        for other in others:
            oracle.assert_same_weights(model, other, shift=shift)

    @given(strategies.models())
    def test_replace(self, model: MarkovRandomField) -> None:
        assert model.replace() == model
        assert model.with_parameters(model.parameters) == model
        assert model.replace(log_unary=model.log_unary, log_pairwise=model.log_pairwise) == model
        halved = model.with_parameters(model.parameters / 2).replace(log_constant=1.0)
        assert halved.log_constant == 1.0
        assert halved.log_unary.tolist() == (model.log_unary / 2).tolist()
        assert halved.log_pairwise.tolist() == (model.log_pairwise / 2).tolist()

    def test_models_on_one_graph_share_its_structure(self) -> None:
        model = lopsided()
        order = model.structure.visit_order
        for other in (model.replace(log_unary=np.zeros(9)), model.with_parameters(np.zeros(35))):
            assert other.structure is model.structure
            assert other.structure.visit_order is order
            assert other.adjacency is model.adjacency
            oracle.assert_read_only(other.log_unary, other.log_pairwise)
        given = np.zeros(35)
        other = model.with_parameters(given)
        given[:] = 1.0
        assert not other.parameters.any()  # what was given is copied

    def test_replace_keeps_names_and_the_old_model(self) -> None:
        model = lopsided()
        other = model.replace(log_unary=np.zeros(9))
        assert other.variable_names == model.variable_names
        assert other.state_names == model.state_names
        assert other.log_constant == model.log_constant
        assert model == lopsided()

    @given(strategies.models(), st.data())
    def test_condition_is_the_joint_of_the_rest(self, model: MarkovRandomField, data: st.DataObject) -> None:
        evidence = data.draw(strategies.evidences(model))
        rest = model.condition(evidence)
        oracle.assert_log_close(oracle.log_z(rest), oracle.log_evidence(model, evidence))
        oracle.assert_probabilities_close(oracle.joint(rest), oracle.condition(model, evidence))

    @given(strategies.models())
    def test_drop_forbidden_states(self, model: MarkovRandomField) -> None:
        small = model.drop_forbidden_states()
        assert not (small.log_unary == -INF).any()
        keep = [[a for a, v in enumerate(u) if v > -INF] for u in oracle.unary_vectors(model)]
        assert small.num_states.tolist() == [len(states) for states in keep]
        oracle.assert_log_close(oracle.log_z(small), oracle.log_z(model))
        oracle.assert_probabilities_close(oracle.joint(small), oracle.joint(model)[np.ix_(*keep)] if keep else 1.0)


@given(strategies.models())
def test_terms_add_up_to_the_log_weight(model: MarkovRandomField) -> None:
    """With a factor over three variables where there are as many."""
    if model.num_variables >= 3:
        scope = [0, 1, 2]
        table = np.arange(float(np.prod(model.num_states[scope]))).reshape(model.num_states[scope])
        terms = [(list(variables), values) for variables, values in model.terms()]
        model = MarkovRandomField.from_factors(model.num_states, [*terms, (scope, table)])
    states = np.zeros(model.num_variables, dtype=int)
    parts = [table[tuple(states[variables])] for variables, table in model.terms()]
    assert model.log_weight(states) == pytest.approx(model.log_constant + math.fsum(parts), abs=1e-9)
