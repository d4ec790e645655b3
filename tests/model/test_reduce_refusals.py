"""Evidence that is refused, and that the assertion of the other tests can fail."""

from __future__ import annotations

import math
import re
from types import MappingProxyType

import numpy as np
import pytest

from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import reduce_model

INF = math.inf


class TestRefusals:
    @pytest.mark.parametrize(
        ("evidence", "message"),
        [
            ({3: 0}, r"^variable .*got 3"),
            ({"q": 0}, r"^variable .*got 'q'"),
            ({0: 2}, r"^state of variable 0 .*got 2"),
            ({0: "up"}, r"^state of variable 0 .*got 'up'"),
            ({0: 0.5}, r"^state of variable 0 .*got 0\.5"),
            ({0: 1, "a": 0}, r"^evidence .*got 1 and 0 for variable a"),
            ({2: 0}, r"^evidence .*variable c "),
            (
                {0: 0, 1: 1},
                r"^evidence .*edge \(a, b\) .* 0 and 1",
            ),
            ({0: 0}, None),
        ],
    )
    def test_evidence(self, evidence: dict[int | str, int | str], message: str | None) -> None:
        model = MarkovRandomField.from_tables(
            [[0.0, 0.0], [0.0, 0.0], [-INF, 0.0]],
            [(0, 1)],
            [[[0.0, -INF], [0.0, 0.0]]],
            variable_names=["a", "b", "c"],
        )
        if message is None:
            reduce_model(model, evidence)
            return
        with pytest.raises(ModelError, match=message):
            reduce_model(model, evidence)
        with pytest.raises(ModelError, match=message):
            model.condition(evidence)

    @pytest.mark.parametrize(
        ("evidence", "got"),
        [
            ([(0, 1)], "[(0, 1)]"),
            ([], "[]"),
            ("a=1", "'a=1'"),
            ("", "''"),
            (0, "0"),
            ({0}, "{0}"),
            (np.zeros(50, dtype=int), "a ndarray"),
        ],
    )
    def test_evidence_that_is_no_mapping(self, evidence: object, got: str) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0, variable_names=["a", "b"])
        message = f"^evidence .*got {re.escape(got)}$"
        with pytest.raises(ModelError, match=message):
            reduce_model(model, evidence)
        with pytest.raises(ModelError, match=message):
            model.condition(evidence)

    def test_any_mapping_will_do(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0)
        assert reduce_model(model, MappingProxyType({0: 1})).fixed.tolist() == [1, -1]

    def test_the_same_state_twice_is_no_contradiction(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0, variable_names=["a", "b"])
        assert reduce_model(model, {0: 1, "a": 1}).fixed.tolist() == [1, -1]

    def test_expanding_states_that_do_not_exist(self) -> None:
        reduction = reduce_model(MarkovRandomField.ising([(0, 1)], 1.0), {0: 1})
        with pytest.raises(ModelError, match=r"^states .*variable 0 .*2$"):
            reduction.expand_states([2])
        with pytest.raises(ModelError, match=r"^states .*shape .*\(2,\)"):
            reduction.expand_states([0, 0])
