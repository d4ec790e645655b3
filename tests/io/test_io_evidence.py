from __future__ import annotations

import gzip
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix.errors import FormatError, ModelError
from fastmix.io import read_evidence, write_evidence
from oracle.uai import parse_evidence

COUNTS = [2, 3, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("  \n# nothing\n", {}),
        ("0", {}),
        ("0\n", {}),
        ("1 0", {}),
        ("1\n0\n", {}),
        ("1 0 1", {0: 1}),
        ("1 2 1", {2: 1}),
        ("1 1 0 1", {0: 1}),
        ("1\n1 2 1", {2: 1}),
        ("2 0 1 2 0", {0: 1, 2: 0}),
        ("1\n2 0 1 2 0\n", {0: 1, 2: 0}),
        ("2 1 0 1 0", {1: 0}),  # read as pairs, not as two samples
        ("3 0 1 1 2 2 1 # all\n", {0: 1, 1: 2, 2: 1}),
        ("1 3 0 1\r\n1 2\r\n2 1", {0: 1, 1: 2, 2: 1}),
        ("c observed\n1 0 01", {0: 1}),
    ],
)
def test_layouts(text, expected):
    assert parse_evidence(text) == expected
    assert parse_evidence(text.encode(), "e", COUNTS) == expected
    assert parse_evidence(text, num_states=np.array(COUNTS)) == expected


SINGLE = r"1: evidence .*single sample.* {} words, got '{}'$"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "1: .*number, got 'x'$"),
        ("1 0 -1", "1: evidence .*got '-1'$"),
        ("1\n1 0 1.0", r"2: evidence .*got '1\.0'$"),
        ("1", SINGLE.format(1, 1)),
        ("2 0 1", SINGLE.format(3, 2)),
        ("5 0", SINGLE.format(2, 5)),
        ("1\n3 0 1 1 1", SINGLE.format(6, 1)),
        ("0 0 1", SINGLE.format(3, 0)),
        ("2\n1 0 1\n1 0 0\n", SINGLE.format(7, 2)),
        ("3 0 0 0", SINGLE.format(4, 3)),
        ("1\n3 1", "2: observed variables .* 3, got '3'$"),
        ("2\n0 1\n1 3", "3: .*state of variable 1 .* 2, got '3'$"),
        ("2 1 0 1 1", "1: variable 1 .* 0, got '1'$"),
        ("9" * 400, SINGLE.format(1, "9{37}" + r"\.\.\.")),
        ("1 " + "9" * 400 + " 0", r"1: observed variables .* 3, got '9{37}\.\.\.'$"),
    ],
)
def test_messages(text, message):
    with pytest.raises(FormatError, match=rf"^e\.evid:{message}"):
        parse_evidence(text, "e.evid", COUNTS)


def test_without_a_model_only_the_form_is_checked():
    assert parse_evidence("1 1000 77") == {1000: 77}
    with pytest.raises(FormatError, match=r"1: observed variables .*'9{20}'$"):
        parse_evidence("1 99999999999999999999 0")
    with pytest.raises(FormatError, match=r"1: .*state of variable 1 .*'9{20}'$"):
        parse_evidence("1 1 99999999999999999999")
    with pytest.raises(FormatError, match=r"1: observed variables .* 0, .*'0'$"):
        parse_evidence("1 0 0", num_states=[])


@given(st.dictionaries(st.integers(0, 10**6), st.integers(0, 50), max_size=8))
def test_round_trip(tmp_path_factory, evidence):
    path = tmp_path_factory.getbasetemp() / "a.evid"
    write_evidence(evidence, path)
    assert read_evidence(path) == evidence
    path.write_bytes(gzip.compress(b"1\n" + path.read_bytes()))
    assert read_evidence(str(path)) == evidence


def test_write(tmp_path):
    write_evidence({np.int64(3): np.int32(1), 0: 2}, tmp_path / "a")
    assert (tmp_path / "a").read_text() == "2 0 2 3 1\n"
    write_evidence({}, tmp_path / "a")
    assert (tmp_path / "a").read_text() == "0\n"
    for wrong in ({"a": 1}, {0: 0.5}, {-1: 0}, {0: -1}):
        with pytest.raises(ModelError, match="evidence must"):
            write_evidence(wrong, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_read_names_the_path(tmp_path):
    path = tmp_path / "a.evid"
    path.write_text("1\n2 x")
    with pytest.raises(FormatError, match=f"^{re.escape(str(path))}:2: .*'x'$"):
        read_evidence(path)
