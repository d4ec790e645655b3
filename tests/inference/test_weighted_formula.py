"""The encoding of models as formulas, by a naive weighted counter."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fastmix import MarkovRandomField
from fastmix.inference import weighted_formula
from fastmix.inference.weighted_formula import ANY, cover, encode
from formula_models import some_model, weights_of
from oracle.counting import weighted_count


@pytest.mark.parametrize("seed", range(150))
def test_the_weighted_count_is_z(seed: int) -> None:
    model = some_model(seed)
    formula = encode(model)
    states, weights = weights_of(model)
    found = weighted_count(formula.num_variables, formula.clauses, formula.log_weights)
    assert found * math.exp(formula.log_constant) == pytest.approx(weights.sum(), rel=1e-12)
    if found > 0.0:
        assert formula.log_range[0] - 1e-9 <= math.log(found) <= formula.log_range[1] + 1e-9
    # The share of each state.
    for variable, literals in enumerate(formula.literals):
        for state, literal in enumerate(literals):
            part = weighted_count(formula.num_variables, [*formula.clauses, [literal]], formula.log_weights)
            expected = weights[states[:, variable] == state].sum()
            assert part * math.exp(formula.log_constant) == pytest.approx(expected, rel=1e-12, abs=1e-300)


def test_a_counter_that_forgot_a_clause_would_be_noticed() -> None:
    model = MarkovRandomField.from_factors([2, 2], [((0, 1), np.array([[0.0, -np.inf], [0.0, 0.0]]))])
    formula = encode(model)
    assert weighted_count(formula.num_variables, formula.clauses, formula.log_weights) == 3.0
    assert weighted_count(formula.num_variables, formula.clauses[1:], formula.log_weights) == 4.0


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("most", [1 << 17, 1])
def test_cubes_hold_what_is_wanted(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighted_formula, "MAX_CUBE_ENTRIES", most)
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, rng.integers(1, 5)).tolist())
    kind = rng.integers(0, 3, shape)
    wanted, free = kind == 1, kind == 2
    held = np.zeros(shape, dtype=bool)
    for cube in cover(wanted, free):
        held[tuple(slice(None) if state == ANY else state for state in cube)] = True
    assert (held >= wanted).all()
    assert (held <= (wanted | free)).all()


def test_logical_tables_have_few_clauses() -> None:
    states = np.array(list(itertools.product((0, 1), repeat=8)))
    table = np.where(states[:, :7].any(axis=1) == (states[:, 7] == 1), 0.0, -np.inf).reshape((2,) * 8)
    formula = encode(MarkovRandomField.from_factors([2] * 8, [(tuple(range(8)), table)]))
    assert len(formula.clauses) == 8  # one for each cause, and one for none of them
    assert not formula.log_weights


def test_equal_entries_share_a_literal() -> None:
    table = np.log(np.array([[0.5, 0.25], [0.25, 0.5], [0.5, 0.1]]))
    formula = encode(MarkovRandomField.from_factors([3, 2], [((0, 1), table)]))
    assert formula.num_variables == 3 + 1 + 2
