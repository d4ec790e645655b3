"""Evidence as people type it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix import MarkovRandomField
from fastmix.io.answers import number_observations, parse_observations, parse_observations_json

NAMES = ["SAO2", "BP", "a, b", 'quo"te', "x=y", "7"]
STATES = [["LOW", "NORMAL", "HIGH"], ["LOW", "HIGH"], ["0", "1"], ["on, off", "on"], ["=", "=="], ["1", "0"]]


def model() -> MarkovRandomField:
    unary = [[0.0] * len(states) for states in STATES]
    return MarkovRandomField.from_tables(unary, [], [], variable_names=NAMES, state_names=STATES)


def from_json(text: str) -> dict[int, Any]:
    return number_observations(parse_observations_json(text), model())


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 10)))
def test_what_is_written_is_read(choice: dict[int, int]) -> None:
    observed = {i: k % len(STATES[i]) for i, k in choice.items()}
    if not observed:
        return
    text = " , ".join(f"{quoted(NAMES[i])} = {quoted(STATES[i][k])}" for i, k in observed.items())
    assert parse_observations(text, model()) == observed
    named = json.dumps({NAMES[i]: STATES[i][k] for i, k in observed.items()})
    assert from_json(named) == observed


def test_numbers_names_first() -> None:
    assert parse_observations("SAO2=2,1=0", model()) == {0: 2, 1: 0}
    assert parse_observations("7=1", model()) == {5: 0}  # a variable called 7, whose first state is called 1
    assert from_json('{"BP": 1, "0": "LOW"}') == {1: 1, 0: 0}
    assert from_json('{"BP": [1, 0.5]}') == {1: [1, 0.5]}  # likelihoods


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SAO3=LOW", "got 'SAO3'; the nearest is 'SAO2'"),
        ("SAO2=HIHG", "got 'HIHG'; the nearest is 'HIGH'"),
        ("SAO2=LOW,SAO2=LOW", "'SAO2' twice"),
        ("SAO2=LOW,0=LOW", "'0' twice"),
        ("SAO2", "pairs such as"),
        ("SAO2=", "pairs such as"),
        ("", "evidence must be pairs"),
        ("SAO2=LOW,,BP=LOW", "evidence must be pairs"),
        ('"SAO2=LOW', "evidence must be pairs"),
        ("SAO2=7", "state of variable 'SAO2' must be a whole number from 0 to 2 or a name, got 7"),
        ("99=0", "evidence: variable must be a whole number from 0 to 5 or a name, got 99"),
    ],
)
def test_mistakes_are_named(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="evidence") as caught:
        parse_observations(text, model())
    assert said in str(caught.value)


BAD = ["[1]", "3", "{", '{"SAO2": null}', '{"SAO2": true}', '{"SAO2": ["LOW"]}', "[" * 9999]


@pytest.mark.parametrize("text", BAD)
def test_bad_json(text: str) -> None:
    with pytest.raises(ValueError, match="evidence"):
        from_json(text)


def test_a_model_without_names() -> None:
    plain = MarkovRandomField.ising([(0, 1)], 1.0)
    assert parse_observations("0=1", plain) == {0: 1}
    with pytest.raises(ValueError, match="variable must be a whole number from 0 to 1, got 'A'"):
        parse_observations("A=1", plain)
