"""When two models are the same one, and what the constructor refuses."""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from test_mrf import arrays_of, lopsided

import oracle
import strategies
from fastmix.errors import FastmixError, ModelError
from fastmix.model import MarkovRandomField

INF = math.inf
NAN = math.nan


# -- identity -------------------------------------------------------------------------------------------------------


class TestIdentity:
    @given(strategies.models(named=True))
    def test_pickle_and_copies(self, model: MarkovRandomField) -> None:
        protocols = range(2, pickle.HIGHEST_PROTOCOL + 1)
        twins = [copy.copy(model), copy.deepcopy(model), dataclasses.replace(model)]
        twins += [pickle.loads(pickle.dumps(model, protocol)) for protocol in protocols]
        for twin in twins:
            assert twin == model
            assert twin.content_hash == model.content_hash
            assert hash(twin) == hash(model)
            oracle.assert_read_only(*arrays_of(twin))

    def test_copies_are_usable_after_caches_are_filled(self) -> None:
        model = lopsided()
        assert model.variable_index("rain") == copy.deepcopy(model).variable_index("rain")
        assert pickle.loads(pickle.dumps(model)) == model

    def test_every_part_counts(self) -> None:
        model = lopsided()
        parts = {field.name: getattr(model, field.name) for field in dataclasses.fields(model) if field.init}
        changes = {
            "log_unary": np.append(model.log_unary[:-1], np.nextafter(0.0, 1.0)),
            "log_pairwise": np.append(model.log_pairwise[:-1], -INF),
            "log_constant": 0.5,
            "variable_names": ("sun", "wind", "snow"),
            "state_names": (("no", "yes"), ("low", "mid", "high"), ("a", "b", "c", "e")),
        }
        others = [MarkovRandomField(**(parts | {name: value})) for name, value in changes.items()]
        others.append(MarkovRandomField(**(parts | {"variable_names": None})))
        others.append(MarkovRandomField(**(parts | {"state_names": None})))
        others.append(MarkovRandomField(model.num_states, model.log_unary, [], []))
        everyone = [model, *others]
        assert len({m.content_hash for m in everyone}) == len(everyone)
        assert len(set(everyone)) == len(everyone)
        for k, m in enumerate(everyone):
            assert [m == other for other in everyone] == [k == j for j in range(len(everyone))]

    def test_edges_of_equal_tables_count(self) -> None:
        one, two = MarkovRandomField.ising([(0, 1)], 1.0, [0.0] * 3), MarkovRandomField.ising([(0, 2)], 1.0, [0.0] * 3)
        assert one != two
        assert one.content_hash != two.content_hash

    def test_state_counts_of_equal_entries_count(self) -> None:
        one = MarkovRandomField.from_tables([[0.0], [0.0, 0.0]], [], [])
        two = MarkovRandomField.from_tables([[0.0, 0.0], [0.0]], [], [])
        assert one != two
        assert one.content_hash != two.content_hash

    def test_comparison_with_something_else(self) -> None:
        assert lopsided() != 3
        assert (lopsided() == "model") is False

    def test_hash_is_the_same_in_every_process(self) -> None:
        code = (
            "from fastmix.model import MarkovRandomField\n"
            "m = MarkovRandomField.ising([(1, 0), (1, 2)], [0.5, -1.25], [0, 1, -0.5], variable_names=[*'xyz'])\n"
            "print(m.content_hash)"
        )
        seen = set()
        for hash_seed in ("0", "12345"):
            environment = os.environ | {"PYTHONHASHSEED": hash_seed}
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
            )
            seen.add(done.stdout.strip())
        here = MarkovRandomField.ising([(0, 1), (1, 2)], [0.5, -1.25], [0.0, 1.0, -0.5], variable_names=list("xyz"))
        assert seen == {here.content_hash}

    @pytest.mark.parametrize(
        ("model", "text"),
        [
            (lopsided(), "MarkovRandomField(3 variables of 2 to 4 states, 3 edges, log_constant=0.75)"),
            (MarkovRandomField.from_tables([[0.0]], [], []), "MarkovRandomField(1 variable of 1 state, 0 edges)"),
            (MarkovRandomField.ising([(0, 1)], 1.0), "MarkovRandomField(2 variables of 2 states, 1 edge)"),
            (
                MarkovRandomField.from_tables([[0.0], [0, 0]], [], []),
                "MarkovRandomField(2 variables of 1 to 2 states, 0 edges)",
            ),
            (
                MarkovRandomField.ising([], 0.0, np.zeros(1234)),
                "MarkovRandomField(1,234 variables of 2 states, 0 edges)",
            ),
        ],
    )
    def test_repr(self, model: MarkovRandomField, text: str) -> None:
        assert repr(model) == text


# -- refusals -------------------------------------------------------------------------------------------------------

TWO = np.array([2, 2])
ONE_EDGE = np.array([[0, 1]])


class TestRefusals:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (([2, 0], [0, 0], [], []), r"^num_states .*got 0 for variable 1"),
            (([2.5], [0, 0], [], []), r"^num_states .*got shape \(1,\), float64"),
            (([[2]], [0, 0], [], []), r"^num_states .*got shape \(1, 1\)"),
            (([[2], [2, 2]], [0, 0], [], []), r"^num_states .*got \[\[2\], \[2, 2\]\]"),
            ((TWO, [0, 0, 0], [], []), r"^log_unary .*got shape \(3,\)"),
            ((TWO, [[0, 0], [0, 0]], [], []), r"^log_unary .*got shape \(2, 2\)"),
            ((TWO, [0, 0, NAN, 0], [], []), r"^log_unary .*got nan at entry 2"),
            ((TWO, [0, INF, 0, 0], [], []), r"^log_unary .*got inf at entry 1"),
            ((TWO, [0, 0, -INF, -INF], [], []), r"^log_unary .*variable 1 .*-inf"),
            ((TWO, "text", [], []), r"^log_unary .*got 'text'"),
            ((TWO, np.zeros(4, dtype=complex), [], []), r"^log_unary .*numbers"),
            ((TWO, [0] * 4, ONE_EDGE, [0] * 3), r"^log_pairwise .*shape \(4,\)"),
            ((TWO, [0] * 4, ONE_EDGE, [0, 0, 0, NAN]), r"^log_pairwise .*got nan"),
            ((TWO, [0] * 4, ONE_EDGE, [INF, 0, 0, 0]), r"^log_pairwise .*got inf"),
            ((TWO, [0] * 4, [[1, 0]], [0] * 4), r"^edges .*i < j"),
            ((TWO, [0] * 4, [[0, 1], [0, 1]], [0] * 8), r"^edges .*order"),
            (([2] * 3, [0] * 6, [[1, 2], [0, 1]], [0] * 8), r"^edges .*order"),
            ((TWO, [0] * 4, [[0, 2]], [0] * 4), r"^edges .*edge 0 .*\(0, 2\)"),
            ((TWO, [0] * 4, [[-1, 1]], [0] * 4), r"^edges .*from 0"),
            ((TWO, [0] * 4, [[1, 1]], [0] * 4), r"^edges .*edge 0 .*\(1, 1\)"),
            ((TWO, [0] * 4, [0, 1], [0] * 4), r"^edges .*got shape \(2,\)"),
            ((TWO, [0] * 4, [[0, 1, 2]], [0] * 4), r"^edges .*got shape \(1, 3\)"),
            ((TWO, [0] * 4, [[]], []), r"^edges .*got shape \(1, 0\)"),
            ((TWO, [0] * 4, [[0, 1], [0]], [0] * 4), r"^edges .*got \[\[0, 1\], \[0\]\]"),
            ((TWO, [0] * 4, [[0, 0.5]], [0] * 4), r"^edges .*got \[\[0, 0\.5\]\]"),
            ((TWO, [0] * 4, [[0, INF]], [0] * 4), r"^edges .*got \[\[0, inf\]\]"),
            ((TWO, [0] * 4, [["0", "1"]], [0] * 4), r"^edges .*got \[\['0', '1'\]\]"),
            ((TWO, [0] * 4, [], [], NAN), r"^log_constant .*got nan"),
            ((TWO, [0] * 4, [], [], -INF), r"^log_constant .*got -inf"),
            ((TWO, [0] * 4, [], [], "x"), r"^log_constant .*got 'x'"),
            ((TWO, [0] * 4, [], [], [1.0]), r"^log_constant .*got \[1\.0\]"),
            ((TWO, [0] * 4, [], [], 0.0, ["a"]), r"^variable_names .*got 1"),
            ((TWO, [0] * 4, [], [], 0.0, ["a", "a"]), r"^variable_names .*got 'a'"),
            ((TWO, [0] * 4, [], [], 0.0, "ab"), r"^variable_names .*got 'ab'"),
            ((TWO, [0] * 4, [], [], 0.0, 2), r"^variable_names .*got 2"),
            ((TWO, [0] * 4, [], [], 0.0, None, [["a", "b"]]), r"^state_names .*got 1"),
            (
                (TWO, [0] * 4, [], [], 0.0, None, [["a", "b"], ["a"]]),
                r"^state_names\[1\] .*got 1",
            ),
            (
                (TWO, [0] * 4, [], [], 0.0, None, [["a", "b"], ["b", "b"]]),
                r"^state_names\[1\] .*got 'b'",
            ),
            ((TWO, [0] * 4, [], [], 0.0, None, ["ab", "cd"]), r"^state_names\[0\] .*got 'ab'"),
            ((TWO, [0] * 4, [], [], 0.0, None, 7), r"^state_names .*got 7"),
        ],
    )
    def test_class(self, arguments: tuple[object, ...], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            MarkovRandomField(*arguments)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"log_unary": np.zeros(8)}, r"^log_unary .*got shape \(8,\)"),
            ({"log_pairwise": np.zeros(5)}, r"^log_pairwise .*shape \(26,\)"),
            ({"log_constant": INF}, r"^log_constant .*got inf"),
        ],
    )
    def test_replace(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(ModelError, match=message):
            lopsided().replace(**arguments)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            (np.zeros(34), r"^parameters .*got shape \(34,\)"),
            (np.full(35, NAN), r"^parameters .*got nan at entry 0"),
            (np.full(35, -INF), r"^log_unary .*variable 0 .*-inf"),
        ],
    )
    def test_with_parameters(self, parameters: np.ndarray, message: str) -> None:
        with pytest.raises(ModelError, match=message):
            lopsided().with_parameters(parameters)

    def test_a_model_error_is_a_value_error(self) -> None:
        assert issubclass(ModelError, ValueError)
        assert issubclass(ModelError, FastmixError)

    def test_one_allowed_state_is_enough(self) -> None:
        model = MarkovRandomField.from_tables([[-INF, 0.0], [2.0]], [(0, 1)], [[[-INF], [0.5]]])
        assert model.log_weight([1, 0]) == 2.5
        assert model.log_weight([0, 0]) == -INF
