"""Slow and obvious twins of the readers and writers of model files, and what a round trip must keep.

The naive reader goes one word after another, the place of each in hand. It shares no code with the fast one, and
describes a model by plain dictionaries of log-potentials.

Tables are written divided by their largest entry, and the scales go into the constant: the parameters come back up to
a number for each table, the weights as they were.
"""

from __future__ import annotations

import decimal
import io
import itertools
import math
import re
import sys
from dataclasses import dataclass, field

import numpy as np

import oracle
from fastmix.io import atomic_write, evidence, npz, uai
from fastmix.model import MarkovRandomField
from oracle import RefusedError

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
MOST_STATES = 2**20  # plus 64 a word, see the limit in the fast reader


@dataclass
class NaiveModel:
    num_states: list[int]
    constant: float = 0.0
    unary: dict[tuple[int, int], float] = field(default_factory=dict)  # (variable, state) -> sum of logs
    pairwise: dict[tuple[int, int], dict[tuple[int, int], float]] = field(default_factory=dict)  # i < j
    larger: dict[tuple[int, ...], dict[tuple[int, ...], float]] = field(default_factory=dict)  # ascending


def split_words(text: str | bytes) -> list[tuple[str, int]]:
    if isinstance(text, bytes):
        if text[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in text:
            raise RefusedError(1, "not text")
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError:
            raise RefusedError(1, "not text") from None
    if text.startswith("\ufeff"):
        text = text[1:]
    words = []
    for number, line in enumerate(re.split("\r\n|\r|\n", text), 1):
        on_line = [w for w in re.split("[ \t\v\f]+", line.split("#")[0]) if w]
        if on_line and on_line[0] == "c":
            continue
        words.extend((w, number) for w in on_line)
    return words


class Reader:
    def __init__(self, words: list[tuple[str, int]]) -> None:
        self.words = words
        self.position = 0

    def next_word(self) -> tuple[str, int]:
        if self.position == len(self.words):
            raise RefusedError(self.words[-1][1] if self.words else 1, "the text ends")
        self.position += 1
        return self.words[self.position - 1]

    def next_count(self) -> int:
        word, line = self.next_word()
        if re.fullmatch("[0-9]+", word) is None:
            raise RefusedError(line, f"{word} is not a whole number")
        digits = word.lstrip("0") or "0"
        return int(digits) if len(digits) < 300 else sys.maxsize

    def next_log(self) -> float:
        word, line = self.next_word()
        if NUMBER.fullmatch(word) is None:
            raise RefusedError(line, f"{word} is not a number")
        try:
            exact = decimal.Decimal(word)
        except decimal.InvalidOperation:
            # No exponent of so many digits can be told from the limit, except that of a plain zero.
            if not re.search("[1-9]", re.split("[eE]", word)[0]):
                return -math.inf
            raise RefusedError(line, f"{word} is out of range") from None
        if exact < 0:
            raise RefusedError(line, f"{word} is negative")
        if exact == 0:
            return -math.inf
        value = float(word)
        if sys.float_info.min <= value < math.inf:
            return math.log(value)
        limits = decimal.Context(prec=40, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
        return float(exact.ln(limits))


def read_naive(text: str | bytes) -> NaiveModel:
    reader = Reader(split_words(text))
    header, line = reader.next_word()
    if header.upper() not in ("MARKOV", "BAYES"):
        raise RefusedError(line, f"header {header}")
    num_words = len(reader.words) - 1
    n = reader.next_count()
    if n > num_words:
        raise RefusedError(line, "more variables than words")
    num_states = [reader.next_count() for _ in range(n)]
    if any(count == 0 for count in num_states) or sum(num_states) > MOST_STATES + 64 * num_words:
        raise RefusedError(line, "state counts")
    model = NaiveModel(num_states)
    num_factors = reader.next_count()
    scopes = []
    for _ in range(num_factors):
        scope = []
        for _ in range(reader.next_count()):
            v = reader.next_count()
            if v >= n or v in scope:
                raise RefusedError(reader.words[reader.position - 1][1], f"variable {v}")
            scope.append(v)
        scopes.append(scope)
    if header.upper() == "BAYES":
        check_network(n, scopes)
    for scope in scopes:
        line = reader.words[reader.position - 1][1]
        size = math.prod(num_states[v] for v in scope)
        if reader.next_count() != size:
            raise RefusedError(reader.words[reader.position - 1][1], "number of entries")
        wide = scope if len(scope) <= 2 else [v for v in scope if num_states[v] > 1]
        if size > num_words:
            raise RefusedError(line, "too large")
        table = {}
        any_positive = False
        for states in itertools.product(*(range(num_states[v]) for v in scope)):
            value = reader.next_log()
            any_positive = any_positive or value > -math.inf
            state_of = dict(zip(scope, states, strict=True))
            table[tuple(state_of[v] for v in wide)] = value
        if not any_positive:
            raise RefusedError(line, "nothing allowed")
        if header.upper() == "BAYES":
            normalize(table, scope, num_states, line)
        add_factor(model, wide, table)
    if reader.position < len(reader.words):
        raise RefusedError(reader.words[reader.position][1], "words after the last table")
    for v in {v for v, _ in model.unary}:
        if all(model.unary[v, s] == -math.inf for s in range(num_states[v])):
            raise RefusedError(1, f"variable {v} has no state left")
    return model


def check_network(n: int, scopes: list[list[int]]) -> None:
    """Every variable has one table, in which it comes last, and parents before it in some order."""
    if sorted(scope[-1] if scope else -1 for scope in scopes) != list(range(n)):
        raise RefusedError(1, "children")
    parents = {scope[-1]: scope[:-1] for scope in scopes}
    if any(len(own) > 31 for own in parents.values()):
        raise RefusedError(1, "parents")
    done: set[int] = set()
    while len(done) < n:
        ready = [v for v in parents if v not in done and done.issuperset(parents[v])]
        if not ready:
            raise RefusedError(1, "cycle")
        done.update(ready)


def normalize(table: dict[tuple[int, ...], float], scope: list[int], num_states: list[int], line: int) -> None:
    """Divide the rows of a conditional table, logarithms here, by their sums."""
    if len(next(iter(table))) < len(scope):
        keep = scope[-1] if num_states[scope[-1]] > 1 else None
        width = num_states[scope[-1]] if keep is not None else 1
    else:
        width = num_states[scope[-1]]
    keys = list(table)
    for start in range(0, len(keys), width):
        row = keys[start : start + width]
        if any(table[key] > 709 for key in row):
            raise RefusedError(line, "a row")
        total = math.fsum(math.exp(table[key]) for key in row)
        if abs(total - 1.0) > 1e-4 + 1e-9 + min(0.05, 0.005 * width):
            raise RefusedError(line, "a row")
        for key in row:
            p = math.exp(table[key])  # what is below the range of doubles is 0 here
            table[key] = math.log(p / total) if p else -math.inf


def add_factor(model: NaiveModel, scope: list[int], table: dict[tuple[int, ...], float]) -> None:
    for states, value in table.items():
        if len(scope) == 0:
            model.constant += value
        elif len(scope) == 1:
            key = scope[0], states[0]
            model.unary[key] = model.unary.get(key, 0.0) + value
        elif len(scope) == 2:
            (i, a), (j, b) = sorted(zip(scope, states, strict=True))
            edge = model.pairwise.setdefault((i, j), {})
            edge[a, b] = edge.get((a, b), 0.0) + value
        else:
            places = sorted(zip(scope, states, strict=True))
            sums = model.larger.setdefault(tuple(v for v, _ in places), {})
            sums[tuple(s for _, s in places)] = sums.get(tuple(s for _, s in places), 0.0) + value
            for (i, a), (j, b) in itertools.combinations(places, 2):
                model.pairwise.setdefault((i, j), {}).setdefault((a, b), 0.0)


def assert_same(naive: NaiveModel, model: MarkovRandomField) -> None:
    """Both readers saw the same model, up to the rounding of logarithms."""
    assert model.num_states.tolist() == naive.num_states
    assert math.isclose(model.log_constant, naive.constant, rel_tol=1e-12, abs_tol=1e-12)
    assert [tuple(e) for e in model.edges.tolist()] == sorted(naive.pairwise)
    unary = np.zeros(sum(naive.num_states))
    starts = np.cumsum([0, *naive.num_states])
    for (v, s), value in naive.unary.items():
        unary[starts[v] + s] = value
    np.testing.assert_allclose(model.log_unary, unary, rtol=1e-12, atol=1e-12)
    tables = [
        naive.pairwise[edge][states] for edge in sorted(naive.pairwise) for states in sorted(naive.pairwise[edge])
    ]
    np.testing.assert_allclose(model.log_pairwise, tables, rtol=1e-12, atol=1e-12)
    assert [tuple(scope.tolist()) for scope in model.structure.scopes] == sorted(naive.larger)
    larger = [naive.larger[scope][states] for scope in sorted(naive.larger) for states in sorted(naive.larger[scope])]
    np.testing.assert_allclose(model.log_factors, larger, rtol=1e-12, atol=1e-12)


# -- the formats without files ----------------------------------------------------------------------------------------


def as_bytes(text: str | bytes) -> bytes:
    return text.encode("utf-8", "replace") if isinstance(text, str) else text


def parse_uai(text: str | bytes, name: str = "<string>") -> MarkovRandomField:
    found = uai.read(as_bytes(text), name)
    return found if isinstance(found, MarkovRandomField) else found.to_model()


def parse_npz(data: bytes, name: str = "<bytes>") -> MarkovRandomField:
    return npz.read(data, name)


def parse_evidence(text: str | bytes, name: str = "<string>", num_states: object = None) -> dict[int, int]:
    return evidence.evidence_in(as_bytes(text), name, num_states)


def format_uai(model: MarkovRandomField) -> str:
    stream = io.BytesIO()
    uai.write(model, stream)
    return stream.getvalue().decode()


def write_uai(model: MarkovRandomField, path: object) -> list[str]:
    """Notes on a UAI file of any name."""
    with atomic_write(path, binary=True) as stream:
        return uai.write(model, stream)


# -- round trips ------------------------------------------------------------------------------------------------------

# The constants that one double holds; others are split into equal factors of at most PIECE.
LOWEST, HIGHEST, PIECE = -708.39, 709.78, 700.0


def assert_close(model: MarkovRandomField, expected: MarkovRandomField, tol: float = 1e-12) -> None:
    """Equal up to a tolerance, relative or absolute, with -inf in the same places; names aside."""
    assert np.array_equal(model.num_states, expected.num_states)
    assert np.array_equal(model.edges, expected.edges)
    for name in ("log_unary", "log_pairwise", "log_constant"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=tol, atol=tol, err_msg=name)


def attractive_form(model: MarkovRandomField) -> MarkovRandomField:
    """The same weights with the largest entry of every vector and table moved into the constant."""
    unary, tables = oracle.unary_vectors(model), oracle.edge_tables(model)
    scales = [model.log_constant]
    for vector in unary:
        scales.append(max(vector))
        vector[:] = [value - scales[-1] for value in vector]
    for table in tables.values():
        scales.append(max(map(max, table)))
        for row in table:
            row[:] = [value - scales[-1] for value in row]
    return MarkovRandomField.from_tables(unary, list(tables), list(tables.values()), log_constant=math.fsum(scales))


def assert_same_weights(model: MarkovRandomField, expected: MarkovRandomField, tol: float = 1e-12) -> None:
    """Every configuration has the same log-weight, and so log Z is the same, relative to the largest term."""
    terms = np.concatenate([expected.parameters, model.parameters, [expected.log_constant, model.log_constant, 1.0]])
    scale = float(np.abs(terms[terms > -np.inf]).max())
    found, wanted = np.array(oracle.log_weights(model)), np.array(oracle.log_weights(expected))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tol * scale)
    assert math.isclose(oracle.log_z(model), oracle.log_z(expected), rel_tol=0, abs_tol=tol * scale)


def written_tables(text: str) -> list[tuple[tuple[int, ...], list[str]]]:
    """The scope of each factor of a UAI text, and its entries as they stand there."""
    words = iter(text.split())
    assert next(words) == "MARKOV"
    for _ in range(int(next(words))):
        next(words)
    scopes = [tuple(int(next(words)) for _ in range(int(next(words)))) for _ in range(int(next(words)))]
    tables = [(scope, [next(words) for _ in range(int(next(words)))]) for scope in scopes]
    assert next(words, None) is None
    return tables


def num_constant_factors(constant: float) -> int:
    """How many factors over no variables a constant takes."""
    if constant == 0 or LOWEST <= constant <= HIGHEST:
        return int(constant != 0)
    return math.ceil(abs(constant) / PIECE)


def assert_scaled(text: str) -> None:
    """The largest entry of every table is exactly 1; the constants are equal numbers that any double holds."""
    tables = written_tables(text)
    for scope, entries in tables:
        if scope:
            assert max(map(float, entries)) == 1.0
            assert "1.0" in entries
    constants = [entries for scope, entries in tables if not scope]
    assert all(entries == constants[0] and len(entries) == 1 for entries in constants)
    assert all(sys.float_info.min <= float(entries[0]) < math.inf for entries in constants)


def assert_survives(model: MarkovRandomField, *, weights: bool = True) -> MarkovRandomField:
    """Writing and reading keep the model up to the scales of its tables, and doing so again changes nothing.

    ``weights`` goes through all configurations, for tiny models. The model that was read comes back.
    """
    text = format_uai(model)
    assert_scaled(text)
    again = parse_uai(text)
    expected = attractive_form(model)
    assert_close(again, expected)
    constants = [entries for scope, entries in written_tables(text) if not scope]
    # Scales that cancel up to rounding may leave a constant of 1e-16, or none.
    if abs(expected.log_constant) > 1e-9:
        assert len(constants) == num_constant_factors(expected.log_constant)
    if weights:
        assert_same_weights(again, model)
    assert_close(parse_uai(format_uai(again)), again, tol=1e-15)
    return again
