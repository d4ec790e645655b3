"""Evidence by names, as people type it: ``SAO2=LOW,BP=HIGH``, or a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fastmix.errors import FormatError, ModelError
from fastmix.model import MarkovRandomField

__all__ = ["number_observations", "parse_observations", "parse_observations_json"]


_WORD = r'("(?:[^"]|"")*"|[^",=\s][^",=]*)'
_PAIR = re.compile(rf"\s*{_WORD}\s*=\s*{_WORD}\s*(?:(,)|$)")


def parse_observations(text: str, model: MarkovRandomField) -> dict[int, int]:
    """Observed states by variable, as numbers, from pairs such as ``SAO2=LOW, 3=1``.

    Variables and states are names or numbers; a name that holds a comma or an equals sign stands in double quotes
    (two of them for a quote inside).
    """
    return number_observations(_pairs(text), model)


def parse_observations_json(text: str, name: str = "<string>") -> list[tuple[str, Any]]:
    """Variables and states as they stand in a JSON object, ``{"SAO2": "LOW", "3": 1}``, repeated ones included."""
    what = "evidence must be a JSON object of variables and states"
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{name}:{getattr(error, 'lineno', 1)}: {what}: {error}") from None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise FormatError(f"{name}:1: {what}")
    return pairs


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    place, more = 0, True
    while more:
        match = _PAIR.match(text, place)
        if match is None:
            raise ValueError(f"evidence must be pairs such as A=x,B=y, got {text[place:].strip()!r}")
        name, state, comma = match.groups()
        yield _unquoted(name), _unquoted(state)
        place, more = match.end(), bool(comma)


def _unquoted(text: str) -> str:
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.strip()


def number_observations(pairs: Iterable[tuple[str, Any]], model: MarkovRandomField) -> dict[int, Any]:
    """Observed states by variable, as numbers, from names or numbers; errors as for :func:`parse_observations`.

    A list of numbers, likelihoods by state, stays as it is (soft evidence).
    """
    observed: dict[int, Any] = {}
    for name, state in pairs:
        given = _number_in(name, model.variable_names)
        try:
            variable = model.variable_index(given)
            if not (isinstance(state, list) and state and all(type(number) in (int, float) for number in state)):
                names = None if model.state_names is None else model.state_names[variable]
                state = model.state_index(given, _number_in(state, names))
        except ModelError as error:
            raise ValueError(f"evidence: {error}") from None
        if variable in observed:
            raise ValueError(f"evidence must name each variable once, got {name!r} twice")
        observed[variable] = state
    return observed


def _number_in(given: Any, names: Sequence[str] | None) -> Any:
    """A number that is given as text, unless that is a name."""
    text = isinstance(given, str) and given not in (names or ()) and given.isascii() and given.isdigit()
    return int(given) if text else given
