"""What a model must keep when it is written as UAI text and read again, checked in plain loops.

Tables are written divided by their largest entry, and the scales go into the constant: the parameters come back up to
a number for each table, the weights as they were.
"""

from __future__ import annotations

import math
import sys

import numpy as np

import oracle
from fastmix.io import format_uai, parse_uai
from fastmix.model import MarkovRandomField

# The constants that one double holds; others are split into equal factors of at most PIECE.
LOWEST, HIGHEST, PIECE = -708.39, 709.78, 700.0


def assert_close(model: MarkovRandomField, expected: MarkovRandomField, tol: float = 1e-12) -> None:
    """Equal up to a tolerance, relative or absolute, with -inf in the same places; names aside."""
    assert np.array_equal(model.num_states, expected.num_states)
    assert np.array_equal(model.edges, expected.edges)
    for name in ("log_unary", "log_pairwise", "log_constant"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=tol, atol=tol, err_msg=name)


def normal_form(model: MarkovRandomField) -> MarkovRandomField:
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
    expected = normal_form(model)
    assert_close(again, expected)
    constants = [entries for scope, entries in written_tables(text) if not scope]
    # Scales that cancel up to rounding may leave a constant of 1e-16, or none.
    if abs(expected.log_constant) > 1e-9:
        assert len(constants) == num_constant_factors(expected.log_constant)
    if weights:
        assert_same_weights(again, model)
    assert_close(parse_uai(format_uai(again)), again, tol=1e-15)
    return again
