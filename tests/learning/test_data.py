from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from fastmix import MarkovRandomField, ModelError, learn, score
from fastmix.learning.data import read_data


def model_of(data: Any) -> MarkovRandomField:
    table = read_data(data)
    return MarkovRandomField(
        table.num_states, np.zeros(int(table.num_states.sum())), np.zeros((0, 2), int), np.zeros(0),
        variable_names=table.variable_names, state_names=table.state_names,
    )  # fmt: skip


@pytest.mark.parametrize(
    "data",
    [
        [[0, 1, 2], [1, -1, 0]],
        [[0, 1, 2], [1, None, 0]],
        np.array([[0.0, 1.0, 2.0], [1.0, np.nan, 0.0]]),
        np.array([[0, 1, 2], [1, -1, 0]], dtype=np.int8),
        np.array([[0.0, 1.0, 2.0], [1.0, np.nan, 0.0]], dtype=np.float16),
        np.ma.masked_array([[0, 1, 2], [1, 9, 0]], mask=[[0, 0, 0], [0, 1, 0]]),
        np.ma.masked_array(np.array([[0, 1, 2], [1, "x", 0]], dtype=object), mask=[[0, 0, 0], [0, 1, 0]]),
    ],
)
def test_arrays(data: Any) -> None:
    table = read_data(data)
    assert table.states.tolist() == [[0, 1, 2], [1, -1, 0]]
    assert table.num_states.tolist() == [2, 2, 3]
    assert table.weights.tolist() == [0.5, 0.5]
    assert table.has_missing
    assert table.variable_names is None
    assert "2 rows of 3 variables, with missing" in repr(table)


def test_booleans_and_sparse_matrices_are_binary() -> None:
    dense = np.array([[True, False], [False, False]])
    for data in (dense, sparse.csr_array(dense), sparse.coo_matrix(dense.astype(float))):
        table = read_data(data)
        assert table.states.tolist() == [[1, 0], [0, 0]]
        assert table.num_states.tolist() == [2, 2]
        for form in ("lil", "dok"):
            assert read_data(sparse.csr_array(data).asformat(form)).states.tolist() == [[1, 0], [0, 0]]
    with pytest.raises(ModelError, match=r"^data must .*got 3$"):
        read_data(sparse.csr_array([[0, 3]]))
    twice = sparse.coo_array(([1, 1], ([0, 0], [1, 1])), shape=(2, 2))  # which adds up to 2
    with pytest.raises(ModelError, match=r"^data must .*got 2$"):
        read_data(twice)
    with pytest.raises(ModelError, match=r"^data must .*got shape \(3,\)$"):
        read_data(sparse.coo_array(np.array([0, 1, 1])))


def test_text_can_be_masked_and_bytes() -> None:
    text = np.array([["a", "x"], ["b", "y"]])
    masked = read_data(np.ma.masked_array(text, mask=[[0, 0], [0, 1]]))
    assert (masked.state_names, masked.states.tolist()) == ((("a", "b"), ("x",)), [[0, 0], [1, -1]])
    assert read_data(text.astype(bytes)).state_names == (("a", "b"), ("x", "y"))


def test_frames_keep_names_and_states() -> None:
    frame = pd.DataFrame(
        {
            "color": ["red", "blue", None, "red"],
            "size": pd.Categorical(["s", "l", "m", "s"], categories=["s", "m", "l", "xl"]),
            "count": [10, 2, 2, np.nan],
            "flag": [True, False, True, True],
        }
    )
    table = read_data(frame)
    assert table.variable_names == ("color", "size", "count", "flag")
    assert table.state_names == (("blue", "red"), ("s", "m", "l", "xl"), ("2", "10"), ("False", "True"))
    assert table.states.tolist() == [[1, 0, 1, 1], [0, 2, 0, 0], [-1, 1, 0, 1], [1, 0, -1, 1]]
    model = model_of(frame)
    again = read_data(frame[["flag", "count", "size", "color"]], model=model)
    assert again.states.tolist() == table.states.tolist()


def test_unseen_states_and_columns_are_named() -> None:
    model = model_of(pd.DataFrame({"color": ["red", "blue"], "size": ["s", "l"]}))
    with pytest.raises(ModelError, match=r"'color': 'green'$"):
        read_data(pd.DataFrame({"color": ["green"], "size": ["s"]}), model=model)
    with pytest.raises(ModelError, match=r"^data must .*'size' .*'weight'$"):
        read_data(pd.DataFrame({"color": ["red"], "weight": ["s"]}), model=model)
    with pytest.raises(ModelError, match="below 2 in column 'color', got 2 in row 1"):
        read_data([[0, 0], [2, 0]], model=model)
    assert read_data([["red", "l"]], model=model).states.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[0, 1], [1]], "^data must"),
        ([0, 1], r"got shape \(2,\)"),
        (np.zeros((0, 3)), "^data must .*shape"),
        (np.zeros((3, 0)), "^data must .*shape"),
        ([[0.5, 1.0]], "got 0.5 in row 0, column 0; put a measured"),
        ([[0, -2]], "NaN for a missing value, got -2"),
        ([[0, np.inf]], "got inf in row 0, column 1"),
        ([[0, np.nan], [1, np.nan]], "^data must .*column 1$"),
        ([["a", None]], "^data must .*column 1$"),
        ([[0, 5000]], "states below 1000"),
        (np.array([[1 + 2j]]), "must hold states"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "must hold states"),
        (pd.DataFrame({"x": np.arange(2000)}), "at most 1000 categories"),
        (pd.Series([1, 2]), "must be a frame"),
        ("rows.csv", "got a path: fastmix.learning.read_table reads files"),
    ],
)
def test_what_is_no_table_of_states_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_data(data)


def test_weights() -> None:
    table = read_data([[0, 1], [1, 1], [0, 0]], weights=[1, 0, 3])
    assert table.states.tolist() == [[0, 1], [0, 0]]
    assert table.weights.tolist() == [0.25, 0.75]
    for weights, message in (
        ([1, 2], "^weights must .*shape"),
        ([1, -1, 1], "none negative"),
        ([0, 0, 0], "some positive"),
    ):
        with pytest.raises(ModelError, match=message):
            read_data([[0, 1], [1, 1], [0, 0]], weights=weights)
    assert read_data([[0], [1]], weights=[1e308, 1e308]).weights.tolist() == [0.5, 0.5]
    with pytest.raises(ModelError, match=r"^data must .*column 1$"):
        read_data([[0, 1], [1, -1]], weights=[0, 1])
    for_model = read_data([[0, 1], [1, 1]], weights=[1, 0], model=model_of([[0, 1], [1, 1]]))
    assert for_model.weights.tolist() == [1.0, 0.0]


def test_equal_rows_are_joined() -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(-1, 3, size=(500, 4))
    table = read_data(states, weights=rng.random(500))
    merged, where = table.merged()
    assert len(np.unique(merged.states, axis=0)) == len(merged.states) < 256
    assert np.array_equal(merged.states[where], table.states)
    np.testing.assert_allclose(merged.weights, np.bincount(where, table.weights))


def test_data_that_were_read_for_another_model_are_refused() -> None:
    table = read_data(pd.DataFrame({"a": ["no", "yes"], "b": ["x", "y"]}))
    model = table.blank_model()
    assert read_data(table, model=model) is table
    for frame, message in (
        (
            {"a": ["maybe", "yes"], "b": ["x", "y"]},
            r"^data must .*\('no', 'yes'\), got \('maybe', 'yes'\)",
        ),
        ({"b": ["no", "yes"], "a": ["x", "y"]}, "^data must .*'a', got 'b'"),
    ):
        with pytest.raises(ModelError, match=message):
            read_data(read_data(pd.DataFrame(frame)), model=model)


def test_state_counts_can_be_given() -> None:
    assert read_data([[0, 1]], num_states=[3, 2]).num_states.tolist() == [3, 2]
    assert read_data([[0, 1]], num_states=4).num_states.tolist() == [4, 4]
    with pytest.raises(ModelError, match="below 2 in column 1, got 2 in row 0"):
        read_data([[0, 2]], num_states=2)
    with pytest.raises(ModelError, match=r"^num_states must"):
        read_data([["a"]], num_states=2)
    with pytest.raises(ModelError, match=r"^num_states must .*\b3, .*got shape \(2,\)$"):
        read_data([[0, 1, 0]], num_states=[2, 2])


def test_polars_frames() -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": ["x", None, "y"], "b": pl.Series([1, 2, 1])})
    table = read_data(frame)
    assert (table.variable_names, table.state_names) == (("a", "b"), (("x", "y"), ("1", "2")))
    assert table.states.tolist() == [[0, 0], [-1, 1], [1, 0]]
    with pytest.raises(ModelError, match=r"LazyFrame.*: collect"):
        read_data(frame.lazy())
    # All columns of this type share their categories, with those of other frames: they say nothing about a column.
    shared = pl.DataFrame({"a": ["y", "x"], "b": ["p", "p"]}).cast(pl.Categorical)
    assert read_data(shared).state_names == (("x", "y"), ("p",))
    listed = pl.DataFrame({"a": ["y", "x"]}).cast(pl.Enum(["z", "y", "x"]))
    assert read_data(listed).state_names == (("z", "y", "x"),)


def test_edges_can_be_given_by_names() -> None:
    frame = pd.DataFrame({"rain": [0, 1, 1, 0], "wet": [0, 1, 1, 1], "cold": [1, 1, 0, 0]})
    assert learn(frame, edges=[("wet", "rain"), (1, 2)]).model.edges.tolist() == [[0, 1], [1, 2]]
    assert learn(frame, edges=np.array([["wet", "rain"]])).model.edges.tolist() == [[0, 1]]
    assert learn(frame, edges=[("rain", "hidden 0"), ("wet", "hidden 0")], hidden=1, seed=0).model.num_edges == 2
    with pytest.raises(ModelError, match="column 'snow'"):
        learn(frame, edges=[("rain", "snow")])
    with pytest.raises(ValueError, match=r"^ridge must .*got 'yes'$"):
        learn(frame, ridge="yes")


@pytest.mark.parametrize("make", [list, np.array, np.ma.array, lambda x: np.array(x, dtype=float)])
@pytest.mark.parametrize("seed", range(3))
def test_tables_of_spins_are_refused(make: Any, seed: int) -> None:
    spins = np.random.default_rng(seed).choice([-1, 1], size=(20, 3)).tolist()
    model = MarkovRandomField.ising([(0, 1)], 0.5, np.zeros(3))
    for call in (learn, partial(score, model), partial(read_data, model=model)):
        with pytest.raises(ModelError, match=r"-1 .* without any 0.*missing="):
            call(make(spins))
    read = read_data(make(spins), missing=None)
    assert read.state_names == (("-1", "1"),) * 3
    np.testing.assert_array_equal(2 * read.states - 1, spins)
    gone = read_data(make(spins), missing=-1)
    np.testing.assert_array_equal(gone.states, spins)
    assert gone.has_missing


def test_another_number_can_stand_for_missing_values() -> None:
    assert read_data([[0, 9], [1, 1]], missing=9).states.tolist() == [[0, -1], [1, 1]]
    assert read_data([[0, -1], [1, 1]]).states.tolist() == [[0, -1], [1, 1]]
    frame = pd.DataFrame({"x": [-9, 3, 5], "y": [1.0, -9.0, 2.0]})
    read = read_data(frame, missing=-9)
    assert (read.states.tolist(), read.state_names) == ([[-1, 0], [0, -1], [1, 1]], (("3", "5"), ("1", "2")))
    with pytest.raises(ModelError, match="whole numbers from 0"):
        read_data([[0, -1], [1, 1]], missing=9)
    for wrong in (True, 0.5, "none", [1]):
        with pytest.raises(ValueError, match=r"^missing must"):
            read_data([[0, 1]], missing=wrong)


def test_measured_columns_of_frames_are_refused() -> None:
    rng = np.random.default_rng(0)
    for column in (rng.normal(size=30), [0.5, 1.0, None]):
        with pytest.raises(ModelError, match=r"^data must .*column 'x';"):
            read_data(pd.DataFrame({"x": column}))
    assert read_data(pd.DataFrame({"x": [1.0, None, 2.0]})).state_names == (("1", "2"),)
    listed = pd.DataFrame({"x": pd.Categorical([0.5, 1.5])})
    assert read_data(listed).state_names == (("0.5", "1.5"),)


@pytest.mark.parametrize("names", [3, "ab", ["a"], ["a", "a"], ["a", "b", "c"]])
@pytest.mark.parametrize("make", [lambda table: table, lambda table: table.astype(str)])
def test_columns_have_one_name_each(names: Any, make: Any) -> None:
    table = make(np.random.default_rng(0).integers(0, 2, size=(10, 2)))
    with pytest.raises(ModelError, match="names must"):
        read_data(table, names=names)
    assert read_data(table, names=["a", "b"]).variable_names == ("a", "b")


def test_the_model_of_data_must_be_one() -> None:
    with pytest.raises(TypeError, match="model must"):
        read_data([[0, 1]], model=3)


@pytest.mark.parametrize("missing", [10**400, -(2**70), 2.5, "no", True])
def test_numbers_for_missing_values_fit_tables(missing: Any) -> None:
    for table in ([[0, 1]], [[0.0, np.nan], [1.0, 1.0]]):
        with pytest.raises(ValueError, match="missing must"):
            read_data(table, missing=missing)
