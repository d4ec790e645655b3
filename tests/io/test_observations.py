"""Evidence as people type it."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastmix import MarkovRandomField
from fastmix.io.evidence import number_observations, parse_observations, parse_observations_json, split_pairs

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
    with pytest.raises(ValueError, match=r"variable .* 1, got 'A'$"):
        parse_observations("A=1", plain)


# -- typed by anybody: as before where that came to an end, and in linear time -----------------------------------------

_WORD = r'("(?:[^"]|"")*"|[^",=\s][^",=]*)'
_PAIR = re.compile(rf"\s*{_WORD}\s*=\s*{_WORD}\s*(?:(,)|$)")


def by_expression(text: str) -> list[tuple[str, str]] | None:
    """Pairs by one regular expression, whose time is a high power of the blanks; None where there are none."""
    pairs, place, more = [], 0, True
    while more:
        match = _PAIR.match(text, place)
        if match is None:
            return None
        words = [w[1:-1].replace('""', '"') if w.startswith('"') else w.strip() for w in match.groups()[:2]]
        pairs.append((words[0], words[1]))
        place, more = match.end(), bool(match[3])
    return pairs


@settings(max_examples=2000, deadline=None)
@given(st.text(st.sampled_from("ab1 \t\n\x1c\u2003\",='" + '"=,'), max_size=14))
def test_pairs_are_read_as_one_expression_reads_them(text: str) -> None:
    expected = by_expression(text)
    if expected is None:
        with pytest.raises(ValueError, match=r"^evidence must") as caught:
            list(split_pairs(text))
        assert len(str(caught.value)) < 200
    else:
        assert list(split_pairs(text)) == expected


@pytest.mark.parametrize("piece", [" ", '""', '"', "a ", "a=", "=", 'a="b"', '"a"=b,', "\t\n", 'a=" ', "a=b,"])
@pytest.mark.parametrize("ends", [("", ""), ("a", "="), ("a = ", "b"), ('"', ""), ("a=b", '"')])
def test_long_text_is_read_at_once(piece: str, ends: tuple[str, str]) -> None:
    """An expression needs hours for some of these; the time limit of tests would tell."""
    text = ends[0] + piece * (100_000 // len(piece)) + ends[1]
    with contextlib.suppress(ValueError):
        list(split_pairs(text))


@pytest.mark.parametrize("digits", [18, 19, 300, 4300, 5000, 100_000])
def test_numbers_of_any_length(digits: int) -> None:
    zeros = "0" * digits + "1"
    assert parse_observations(f"{zeros}={zeros}", model()) == {1: 1}
    for text in (f"{'9' * digits}=LOW", f"SAO2={'9' * digits}"):
        with pytest.raises(ValueError, match=r"^evidence: .*variable .* got ") as caught:
            parse_observations(text, model())
        assert len(str(caught.value)) < 200
    for text in (f'{{"SAO2": {"9" * digits}}}', f'{{"{"9" * digits}": 0}}', f'{{"SAO2": [1, {"9" * digits}]}}'):
        try:
            found = from_json(text)
        except ValueError as error:
            assert "sys." not in str(error)  # noqa: PT017
            assert len(str(error)) < 300  # noqa: PT017
        else:
            assert "[" in text
            assert digits <= 300
            assert list(found) == [0]
