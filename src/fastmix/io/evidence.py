"""Evidence: files of observed states, and evidence by names as people type it.

Files have two layouts: ``k v1 s1 .. vk sk``, and the same after the number of samples, ``1 k v1 s1 .. vk sk``. They
cannot be confused, because the first has an odd number of words and the second an even one. An empty file, ``0`` and
``1 0`` mean that nothing is observed. More than one sample is refused.

Evidence by names is ``SAO2=LOW,BP=HIGH``, or a JSON object, ``{"SAO2": "LOW", "BP": "HIGH"}``.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from numpy.typing import ArrayLike

from fastmix._checks import as_state_counts, describe
from fastmix.errors import FormatError, ModelError
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes, shown
from fastmix.io.tokens import LARGEST_INDEX, NumberText, blank_blocks, strip_comments
from fastmix.model import MarkovRandomField
from fastmix.model.evidence import check_evidence

__all__ = [
    "evidence_in", "number_observations", "parse_observations", "parse_observations_json", "read_evidence",
    "split_pairs", "write_evidence",
]  # fmt: skip

# Parts of pairs that people type. No expression can match the same text in two ways: reading is linear.
_BLANKS = re.compile(r"\s*")
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)*"')
_PLAIN = re.compile(r'[^",=]+')
_MOST_DIGITS = 18  # of the number of a variable or a state: longer numbers belong to nothing, and fit no 64 bits
_MOST_JSON_DIGITS = 300  # of a whole number in JSON: longer ones are no likelihoods, either


# -- files ------------------------------------------------------------------------------------------------------------


def read_evidence(path: PathLike, num_states: ArrayLike | None = None) -> dict[int, int]:
    """The observed state of each observed variable, from an evidence file.

    Parameters
    ----------
    path : str or path-like
        Plain text, gzip or xz; ``-`` is the standard input.
    num_states : int array (n,), optional
        State counts of the model, ``model.num_states``; when given, variables and states are checked against them.

    Raises
    ------
    FormatError
        If the file is not in the format, holds several samples, observes a variable in two states, or names a variable
        or state that the model does not have; the message starts with ``path:line``.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.uai.evid")
    ...     write_evidence({3: 1, 0: 2}, path)
    ...     read_evidence(path)
    {0: 2, 3: 1}
    """
    return evidence_in(read_bytes(path), display_name(path), num_states)


def evidence_in(data: bytes, name: str, num_states: ArrayLike | None = None) -> dict[int, int]:
    r"""The observed states in the content of an evidence file; ``name`` is the name of the file, for messages."""
    numbers = NumberText(strip_comments(blank_blocks(data, name), name), name)
    num_words = len(numbers)
    if num_words == 0:
        return {}
    numbers.require_whole(0, num_words, "evidence")
    values = numbers.values
    has_samples = num_words % 2 == 0
    first = 2 if has_samples else 1  # where the pairs begin
    num_observed = values[first - 1]
    if num_words != first + 2 * num_observed or (has_samples and values[0] != 1):
        rule = "the number of observed variables, and a variable and a state for each"
        numbers.fail(0, f"evidence must hold a single sample: {rule}; the first of {num_words} words")
    counts = None if num_states is None else as_state_counts(num_states)
    num_variables = LARGEST_INDEX if counts is None else len(counts)
    evidence: dict[int, int] = {}
    for k in range(first, num_words, 2):
        if values[k] >= num_variables:
            numbers.fail(k, f"observed variables must be below their number, {num_variables}")
        variable = int(values[k])
        count = LARGEST_INDEX if counts is None else int(counts[variable])
        if values[k + 1] >= count:
            numbers.fail(k + 1, f"the state of variable {variable} must be from 0 to {count - 1}")
        state = int(values[k + 1])
        if evidence.setdefault(variable, state) != state:
            numbers.fail(k + 1, f"variable {variable} must be observed in one state, {evidence[variable]}")
    return evidence


def write_evidence(evidence: Mapping[int, int], path: PathLike) -> None:
    """Write observed states as one line, ``k v1 s1 .. vk sk``, in the order of the variables.

    A :class:`ModelError` is raised if a variable or state is not a whole number from 0.

    Examples
    --------
    >>> write_evidence({5: 0, 1: 1}, "-")
    2 1 1 5 0
    """
    check_evidence(evidence)
    pairs: list[tuple[int, int]] = []
    for variable, state in evidence.items():
        try:
            pair = (operator.index(variable), operator.index(state))
        except Exception:  # of whatever objects there are
            came = f"{describe(variable)}: {describe(state)}"
            raise ModelError(f"evidence must map variables to states by number, got {came}") from None
        if min(pair) < 0:
            raise ModelError(f"evidence must have variables and states from 0, got {variable!r}: {state!r}")
        pairs.append(pair)
    words = [str(len(pairs))]
    for number, observed in sorted(pairs):
        words += [str(number), str(observed)]
    with atomic_write(path) as stream:
        stream.write(" ".join(words) + "\n")


# -- by names, as people type it --------------------------------------------------------------------------------------


def parse_observations(text: str, model: MarkovRandomField) -> dict[int, int]:
    """Observed states by variable, as numbers, from pairs such as ``SAO2=LOW, 3=1``.

    Variables and states are names or numbers. A name that holds a comma or an equals sign stands in double quotes, with
    two of them for a quote inside.

    Raises
    ------
    ValueError
        If the text is not made of such pairs, or names a variable twice or one that does not exist.
    """
    return number_observations(split_pairs(text), model)


def parse_observations_json(text: str, name: str = "<string>") -> list[tuple[str, Any]]:
    """Variables and states as they stand in a JSON object, ``{"SAO2": "LOW", "3": 1}``, repeated ones included.

    ``name`` is the name of the file in the :class:`FormatError` for a text that is no such object.
    """
    what = "evidence must be a JSON object of variables and states"
    try:
        pairs = json.loads(text, object_pairs_hook=list, parse_int=_whole_number)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise FormatError(f"{name}:{line}: {what}: {error}") from None
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        raise FormatError(f"{name}:1: {what}")
    return pairs


def number_observations(pairs: Iterable[tuple[str, Any]], model: MarkovRandomField) -> dict[int, Any]:
    """Observed states by variable, as numbers, from pairs of names or numbers.

    A list of numbers, likelihoods by state, stays as it is (soft evidence). The errors are those of
    :func:`parse_observations`.
    """
    observed: dict[int, Any] = {}
    known = frozenset(model.variable_names or ())
    for name, state in pairs:
        given_variable = _number_in(name, known)
        try:
            variable = model.variable_index(given_variable)
            if not _is_likelihood(state):
                names = () if model.state_names is None else model.state_names[variable]
                state = model.state_index(given_variable, _number_in(state, names))
        except ModelError as error:
            raise ValueError(f"evidence: {error}") from None
        if variable in observed:
            raise ValueError(f"evidence must name each variable once, got {name!r} twice")
        observed[variable] = state
    return observed


def split_pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names of variables and of states, pair by pair, in time linear in the text."""
    place = 0
    has_more = True
    while has_more:
        start = place
        name, place = _word_at(text, start)
        has_equals = text[place : place + 1] == "="
        state, place = _word_at(text, place + 1)
        has_more = text[place : place + 1] == ","
        has_ended = place == len(text)
        if not (name and has_equals and state) or not (has_more or has_ended):
            raise ValueError(f"evidence must be pairs such as A=x,B=y, got {shown(text[start:].strip())}")
        yield _unquoted(name), _unquoted(state)
        place += 1


def _word_at(text: str, place: int) -> tuple[str, int]:
    """The word at a place, in quotes or up to the next separator, and where the blanks after it end; "" for none."""
    begin = _after_blanks(text, place)
    word = _QUOTED.match(text, begin) or _PLAIN.match(text, begin)
    if word is None:
        return "", begin
    return word[0], _after_blanks(text, word.end())


def _after_blanks(text: str, place: int) -> int:
    """The first place from here on that is no blank, or the end."""
    blanks = _BLANKS.match(text, place)
    return place if blanks is None else blanks.end()


def _unquoted(text: str) -> str:
    """A word without its quotes, or without the blanks around it."""
    return text[1:-1].replace('""', '"') if text.startswith('"') else text.strip()


def _whole_number(digits: str) -> int:
    """A whole number in JSON; Python's own complaint about thousands of digits is about Python."""
    if len(digits) > _MOST_JSON_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits is none of a variable, a state or a likelihood")
    return int(digits)


def _is_likelihood(state: Any) -> bool:
    """Whether a state is given as a list of numbers, one for each state of the variable."""
    return isinstance(state, list) and bool(state) and all(type(number) in (int, float) for number in state)


def _number_in(given: Any, names: Collection[str]) -> Any:
    """The number that is given as text, unless the text is a name, or longer than the number of anything can be."""
    is_number = isinstance(given, str) and given not in names and given.isascii() and given.isdigit()
    if not is_number:
        return given
    digits = given.lstrip("0") or "0"
    return int(digits) if len(digits) <= _MOST_DIGITS else given
