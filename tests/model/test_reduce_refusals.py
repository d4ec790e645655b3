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
            ({3: 0}, "variable must be from 0 to 2, got 3"),
            ({"q": 0}, "variable must be a number or a name, got 'q'"),
            ({0: 2}, "state of variable 0 must be from 0 to 1, got 2"),
            ({0: "up"}, "state of variable 0 must be one of [], got 'up'"),
            ({0: 0.5}, "state of variable 0 must be a number or a name, got 0.5"),
            ({0: 1, "a": 0}, "evidence must give each variable one state, got 1 and 0 for variable a"),
            ({2: 0}, "evidence must have positive probability, but it is impossible: variable c has no state left"),
            (
                {0: 0, 1: 1},
                "evidence must have positive probability, but it is impossible: edge (a, b) forbids states 0 and 1, "
                "the only ones left of its ends",
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
        with pytest.raises(ModelError, match=re.escape(message)):
            reduce_model(model, evidence)
        with pytest.raises(ModelError, match=re.escape(message)):
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
        message = f"evidence must be a mapping from variables to states, such as {{0: 1}}, or None, got {got}"
        with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
            reduce_model(model, evidence)
        with pytest.raises(ModelError, match=f"^{re.escape(message)}$"):
            model.condition(evidence)

    def test_any_mapping_will_do(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0)
        assert reduce_model(model, MappingProxyType({0: 1})).fixed.tolist() == [1, -1]

    def test_the_same_state_twice_is_no_contradiction(self) -> None:
        model = MarkovRandomField.ising([(0, 1)], 1.0, variable_names=["a", "b"])
        assert reduce_model(model, {0: 1, "a": 1}).fixed.tolist() == [1, -1]

    def test_expanding_states_that_do_not_exist(self) -> None:
        reduction = reduce_model(MarkovRandomField.ising([(0, 1)], 1.0), {0: 1})
        with pytest.raises(ModelError, match="states of variable 0 must be from 0 to 1, got 2"):
            reduction.expand_states([2])
        with pytest.raises(ModelError, match=re.escape("states must have shape (..., 1), got shape (2,)")):
            reduction.expand_states([0, 0])

    @pytest.mark.parametrize("evidence", [{}, {0: 1}])
    def test_expanding_marginals_of_the_wrong_length(self, evidence: dict[int, int]) -> None:
        model = MarkovRandomField.ising([(0, 1), (1, 2)], 1.0)
        reduction = reduce_model(model, evidence)
        n, m = len(reduction.model.log_unary), len(reduction.model.log_pairwise)
        nodes, edges = np.full(n, 0.5), np.full(m, 0.25)
        assert len(reduction.expand_node_marginals(nodes)) == 6
        assert len(reduction.expand_edge_marginals(nodes, edges)) == 8
        # One number, alone or in a vector, would be spread over all states.
        for shape in ((), (1,), (n - 1,), (n + 1,), (1, n)):
            wrong = np.full(shape, 0.5)
            tail = f" must have shape ({n},), one number per state of the reduced model, got shape {shape}"
            with pytest.raises(ModelError, match=f"^{re.escape('marginals' + tail)}$"):
                reduction.expand_node_marginals(wrong)
            with pytest.raises(ModelError, match=f"^{re.escape('node_marginals' + tail)}$"):
                reduction.expand_edge_marginals(wrong, edges)
        for shape in ((), (1,), (m - 1,), (m + 1,), (m, 1)):
            tail = f" must have shape ({m},), one number per table entry of the reduced model, got shape {shape}"
            with pytest.raises(ModelError, match=f"^{re.escape('edge_marginals' + tail)}$"):
                reduction.expand_edge_marginals(nodes, np.full(shape, 0.25))


def test_much_evidence_by_numbers_is_the_same_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    unaries = [np.zeros(k) for k in (2, 3, 2, 2)]
    model = MarkovRandomField.from_tables(unaries, [(0, 1), (2, 3)], [np.ones((2, 3)), np.eye(2)])
    right, wrong = (
        ({0: 1, 1: 2, 3: 0}, {0: 1, 3: [0.5, 0.5]}, {0: True, 1: 2}),
        ({1: 3}, {4: 0}, {-1: 0}, {1: -1}, {2**70: 0}),
    )
    for evidence in (*right, *({0: 1, **part} for part in wrong)):
        answers = []
        for many in (0, 10):
            monkeypatch.setattr("fastmix.model.reduce._MANY_OBSERVED", many)
            try:
                answers.append(str(reduce_model(model, evidence).fixed))
            except ModelError as error:
                answers.append(str(error))
        assert answers[0] == answers[1]
