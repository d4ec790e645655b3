"""Damaged files: both readers refuse them, or both accept them and see the same model."""

from __future__ import annotations

import contextlib
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_uai import NaiveModel, RefusedError, assert_same, read_naive

import oracle
from fastmix.errors import FormatError, ModelError
from fastmix.io import format_uai, parse_evidence, parse_uai
from fastmix.model import PairwiseMRF

HAND_WRITTEN = [
    b"MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 2 1\n\n2\n 0.25 0.75\n4\n 1 2 3 4\n6\n 1 2 3 4 5 6\n",
    b"BAYES 2 2 2 2 1 0 2 0 1 2 0.3 0.7 4 0.9 0.1 0.2 0.8",
    b"MARKOV\r\n3\r\n2 1 2\r\n2\r\n3 0 1 2\r\n0\r\n\r\n4\r\n1e-400 0 5 1e308\r\n1\r\n2e-3\r\n",
    b"c comment\nmarkov 2 # two\n3 2\n4\n2 1 0\n2 0 1\n1 1\n0\n6 1 2 3 4 5 6\n6 0 1 0 1 0 1\n2 0 1\n1 7\n",
    b"MARKOV 4\n2 2 2 2\n2\n4 0 1 2 3\n3 2 1 0\n16 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\n8 0 0 0 0 1 1 1 1\n",
    b"MARKOV 0 1 0 1 2.5\n",
    b"MARKOV 1 5 0",
]
POOL = (
    b"0 1 2 3 4 5 6 8 12 00 01 -1 -0 +2 2.0 1e1 1e0 0.5 .5 5. 0.0 0e0 1e-400 -1e-400 1e400 2e308 9e-309 inf nan -inf "
    b"1_0 0x1 . e + - c # # MARKOV BAYES x 1000000 1000000000000 99999999999999999999 1e99999999999999999999 "
    b"0e99999999999999999999 \xc3\xa9 \xe9 \x00 \xef\xbb\xbf 1\x1c2 1\x0b2 \n \r \r\n c\n #\n \nc"
).split(b" ")


def mutate(data: bytes, rng: random.Random) -> bytes:
    pieces = re.findall(rb"\s+|[^\s]+", data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.randrange(9)
        k = rng.randrange(len(pieces)) if pieces else 0
        if kind == 0 and pieces:
            del pieces[k]
        elif kind == 1 and pieces:
            pieces.insert(k, pieces[k])
        elif kind in (2, 3) and pieces:
            pieces[k] = rng.choice(POOL)
        elif kind == 4:
            pieces.insert(k, b" " + rng.choice(POOL) + b" ")
        elif kind == 5 and pieces:
            j = rng.randrange(len(pieces))
            pieces[k], pieces[j] = pieces[j], pieces[k]
        elif kind == 6:
            whole = b"".join(pieces)
            pieces = [whole[: rng.randrange(len(whole) + 1)]]
        elif kind == 7:
            whole = bytearray(b"".join(pieces))
            if whole:
                whole[rng.randrange(len(whole))] = rng.choice(b"0123456789 .-+eEc#\n\r\t\x00\xff" + bytes(range(256)))
            pieces = [bytes(whole)]
        elif kind == 8:
            lines = b"".join(pieces).splitlines(keepends=True)
            if lines:
                line = rng.randrange(len(lines))
                lines[line : line + 1] = rng.choice([[], [lines[line]] * 2, [b"# " + lines[line]]])
            pieces = lines
    return b"".join(pieces)


def check_agreement(data: bytes, evidence: dict[int, int] | None = None) -> bool:
    """Whether both readers accept; an AssertionError if they disagree."""
    naive: NaiveModel | None = None
    model: PairwiseMRF | None = None
    message = ""
    with contextlib.suppress(RefusedError):
        naive = read_naive(data, evidence)
    try:
        model = parse_uai(data, "f.uai", evidence)
    except (FormatError, ModelError) as error:
        message = str(error)
    if model is None:
        assert naive is None, f"refused by the fast reader only: {message}"
        assert re.match(r"f\.uai:\d+: |evidence ", message), message
        return False
    assert naive is not None, "accepted by the fast reader only"
    assert_same(naive, model)
    return True


def test_the_check_can_fail(monkeypatch):
    data = HAND_WRITTEN[0]
    assert check_agreement(data)
    assert not check_agreement(data + b"1")
    wrong = parse_uai(data.replace(b"0.25", b"0.26"))
    monkeypatch.setattr("test_io_uai_fuzz.parse_uai", lambda *_: wrong)
    with pytest.raises(AssertionError):
        check_agreement(data)
    with pytest.raises(AssertionError, match="accepted by the fast reader only"):
        check_agreement(data + b"1")

    def refuse(*_):
        raise FormatError("f.uai:1: no")

    monkeypatch.setattr("test_io_uai_fuzz.parse_uai", refuse)
    with pytest.raises(AssertionError, match="refused by the fast reader only"):
        check_agreement(data)


def test_damaged_files():
    rng = random.Random(20240607)
    entries = np.random.default_rng(5)
    accepted = 0
    files = list(HAND_WRITTEN)
    for _ in range(25):
        n = int(entries.integers(0, 6))
        counts = entries.integers(1, 4, n).tolist()
        edges = [(i, j) for i in range(n) for j in range(i + 1, n) if entries.random() < 0.4]
        model = oracle.random_entries(entries, counts, edges, float(entries.choice([0.0, 1.0, 300.0])), 0.2)
        files.append(format_uai(model).encode())
    for data in files:
        evidence = {0: 0, 3: 1} if data == HAND_WRITTEN[4] else None
        assert check_agreement(data, evidence)
        for _ in range(400):
            accepted += check_agreement(mutate(data, rng), rng.choice([evidence, evidence, None, {0: 0}]))
    assert 200 < accepted < 400 * len(files) - 5000, accepted  # neither nothing nor everything is damage


@settings(max_examples=300)
@given(st.lists(st.sampled_from([*POOL, b" ", b" ", b"2", b"1"]), max_size=40).map(b" ".join))
def test_heaps_of_words(data):
    check_agreement(b"MARKOV " + data)


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_any_bytes(data):
    check_agreement(data)
    check_agreement(b"MARKOV 1 2 " + data)
    message = "<string>:1: "
    try:
        parse_evidence(data)
    except FormatError as error:
        message = str(error)
    assert re.match(r"<string>:\d+: ", message)
