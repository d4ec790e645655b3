"""Damaged and crafted files: a model or an error of ours; the two readers of UAI agree on which and on the model."""

from __future__ import annotations

import io
import json
import random
import re
import resource
import struct
import zipfile

import numpy as np
import pytest
from fuzzing import agree, assert_can_fail, mutate
from hypothesis import given
from hypothesis import strategies as st

import oracle
from fastmix.errors import FormatError, ModelError, ResourceError, UnfitMethodError
from fastmix.io import ergo, write_model
from oracle.uai import (
    assert_same,
    format_uai,
    parse_evidence,
    parse_npz,
    parse_uai,
    read_naive,
)

HAND_WRITTEN = [
    b"MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 2 1\n\n2\n 0.25 0.75\n4\n 1 2 3 4\n6\n 1 2 3 4 5 6\n",
    b"BAYES 2 2 2 2 1 0 2 0 1 2 0.3 0.7 4 0.9 0.1 0.2 0.8",
    b"MARKOV\r\n3\r\n2 1 2\r\n2\r\n3 0 1 2\r\n0\r\n\r\n4\r\n1e-400 0 5 1e308\r\n1\r\n2e-3\r\n",
    b"c comment\nmarkov 2 # two\n3 2\n4\n2 1 0\n2 0 1\n1 1\n0\n6 1 2 3 4 5 6\n6 0 1 0 1 0 1\n2 0 1\n1 7\n",
    b"MARKOV 4\n2 2 2 2\n2\n4 0 1 2 3\n3 2 1 0\n16 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7\n8 0 0 0 0 1 1 1 1\n",
    b"MARKOV 0 1 0 1 2.5\n",
    b"MARKOV 1 5 0",
    b"BAYES 4\n2 1 3 2\n4\n2 1 3\n1 1\n3 3 0 2\n2 3 0\n2 1 0\n1 1\n12 .1 .2 .7 1 0 0 .3 .3 .4 0 1e-400 1\n4 0 1 .99 0",
]
SIZES = [0, 1, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**64, 10**30, -1, -(2**31), -(2**62), -(2**63)]
POOL = (
    b"0 1 2 3 4 5 6 8 12 00 01 -1 -0 +2 2.0 1e1 1e0 0.5 .5 5. 0.0 0e0 1e-400 -1e-400 1e400 2e308 9e-309 inf nan -inf "
    b"1_0 0x1 . e + - c # # MARKOV BAYES x 1000000 1000000000000 99999999999999999999 1e99999999999999999999 "
    b"0e99999999999999999999 \xc3\xa9 \xe9 \x00 \xef\xbb\xbf 1\x1c2 1\x0b2 \n \r \r\n c\n #\n \nc"
).split(b" ") + [b"%d" % size for size in SIZES]


LETTERS = b"0123456789 .-+eEc#\n\r\t\x00\xff" + bytes(range(256))


def damage(data: bytes, rng: random.Random) -> bytes:
    return mutate(data, rng, POOL, words=rb"\s+|[^\s]+", letters=LETTERS, mark=b"# ")


def check_agreement(data: bytes) -> bool:
    """Whether both readers accept; an AssertionError if they disagree."""
    model, _ = agree(
        lambda: read_naive(data),
        lambda: parse_uai(data, "f.uai"),
        assert_same,
        message=r"f\.uai:\d+: ",
        refusals=(FormatError, ModelError, UnfitMethodError),
    )
    return model is not None


def test_the_check_can_fail(monkeypatch):
    data = HAND_WRITTEN[0]
    wrong = parse_uai(data.replace(b"0.25", b"0.26"))
    assert_can_fail(check_agreement, data, wrong, "test_io_fuzz.parse_uai", monkeypatch)


@pytest.mark.parametrize(
    ("each", "seed"), [(50, 20240657), *(pytest.param(1700, 20242307 + k, marks=pytest.mark.slow) for k in range(4))]
)
def test_damaged_files(each, seed, tell):
    rng = random.Random(seed)
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
        assert check_agreement(data)
        for _ in range(each):
            accepted += check_agreement(damage(data, rng))
    assert each / 2 < accepted < 0.55 * each * len(files), accepted  # neither nothing nor everything is damage
    if each > 1000:
        total = each * len(files)
        tell("damaged files", f"UAI, seed {seed}: two readers agree", f"{total} of {total}")


ERGO = b"""/* a network */
3
2 2 3

0
1 0
2 0 1

/* Probabilities */
2
 0.25 0.75
4 /* rows */
 0.1 0.9
 0.4 0.6
12
 1 0 0  0.2 0.3 0.5  0.3 0.3 0.4  0.3333 0.3333 0.3333

/* Names */
a
b
c

/* Labels */
no yes
no yes
low mid high
"""
ERGO_POOL = [*POOL, *b"/* */ a b no /* Names */|/* Labels */|/* Probabilities */|/*".split(b"|")]


@pytest.mark.parametrize("count", [1500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_damaged_ergo(count, tell):
    """A network whose rows sum to 1, or an error that names the place."""
    rng = random.Random(count)
    accepted = 0
    for number in range(count):
        data = ERGO if number == 0 else mutate(ERGO, rng, ERGO_POOL, words=rb"\s+|[^\s]+", letters=LETTERS, mark=b"/*")
        try:
            network = ergo.read(data, "f.erg")
        except FormatError as error:
            assert number, error  # noqa: PT017
            assert re.match(r"f\.erg:\d+: [^\n]+$", str(error)), error  # noqa: PT017
            continue
        except Exception as error:
            raise AssertionError(f"{data!r}") from error
        accepted += 1
        assert all(np.allclose(table.sum(axis=-1), 1.0, rtol=1e-12) for table in network.tables)
        assert network.to_model().num_variables == network.num_variables
    assert 0.02 * count < accepted < 0.6 * count, accepted
    if count > 10_000:
        tell("damaged files", "Ergo: a network or an error", f"{count} of {count}")


# -- npz --------------------------------------------------------------------------------------------------------------

ARRAYS = ("num_states", "log_unary", "edges", "log_pairwise", "log_constant")


def npy(array: np.ndarray, shape: object = None) -> bytes:
    """An array as a file, which may claim another shape."""
    head = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape if shape is None else shape}
    text = repr(head).encode() + b" \n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + array.tobytes()


def crafted_npz(rng: random.Random) -> bytes:
    """A small model file with sizes, types, claims or bytes that are wrong, mostly one at a time."""
    header = {"format": "fastmix pairwise mrf", "version": 1, "variable_names": None, "state_names": None}
    arrays = {
        "num_states": np.array([2, 3, 2]),
        "log_unary": np.array([0.0, 1.0, -np.inf, 0.5, 0.0, 0.0, 2.0]),
        "edges": np.array([[0, 1], [1, 2]]),
        "log_pairwise": np.arange(12.0),
        "log_constant": np.array(0.5),
    }
    shapes: dict[str, object] = {}
    compression, wrong_claim, damage = zipfile.ZIP_STORED, False, False
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.randrange(9)
        name = rng.choice(ARRAYS)
        size = rng.choice(SIZES)
        if kind == 0:  # a wrong count or end of an edge
            target = arrays[rng.choice(["num_states", "edges"])].reshape(-1)
            if target.size and target.dtype.kind == "i":
                target[rng.randrange(target.size)] = np.array(size % 2**64, dtype=np.uint64).astype(np.int64)
        elif kind == 1:  # the same of all, whose sum may wrap
            counts = np.full(rng.choice([1, 2, 4, 8]), size % 2**64, dtype=np.uint64)
            arrays["num_states"] = counts.astype(np.int64)
            if rng.random() < 0.7:
                arrays |= {"log_unary": np.zeros(0), "edges": np.zeros((0, 2), dtype=np.int64)}
                arrays |= {"log_pairwise": np.zeros(0)}
        elif kind == 2:
            shapes[name] = rng.choice([(size,), (size, 2), (2, size), (), (size, size), size, "x", (1.5,)])
        elif kind == 3:
            dtype = rng.choice(["<i8", "<f8", "<f4", ">i8", "|u1", "<U3", "<M8[D]", "<c16"])
            arrays[name] = np.zeros(arrays[name].shape, dtype=dtype)
        elif kind == 4:
            arrays[name] = rng.choice([np.zeros(0), np.zeros((0, 2)), arrays[name].reshape(-1)[:-1], np.zeros(10**5)])
        elif kind == 5:
            value = rng.choice([size, None, "x", [], ["a"] * 3, [["a", "b"]] * 3, {"a": 1}, 1e308])
            header[rng.choice([*header, "more"])] = value
        elif kind == 6:
            compression = zipfile.ZIP_DEFLATED
        elif kind == 7:
            wrong_claim = True
        else:
            damage = True
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr("header.npy", npy(np.frombuffer(json.dumps(header).encode(), np.uint8)))
        for name, array in arrays.items():
            archive.writestr(f"{name}.npy", npy(array, shapes.get(name)))
    data = bytearray(stream.getvalue())
    if wrong_claim:  # in the table of contents: the size of a member, packed or not, or where it starts
        entries = [match.start() for match in re.finditer(b"PK\x01\x02", data)]
        place = rng.choice(entries) + rng.choice([20, 24, 42])
        data[place : place + 4] = struct.pack("<I", rng.choice(SIZES) % 2**32)
    if damage and rng.random() < 0.5:
        place = rng.randrange(len(data))
        data[place : place + rng.choice([1, 1, 4, 30])] = rng.randbytes(rng.choice([0, 1, 4]))
    elif damage:
        del data[rng.randrange(len(data)) :]
    return bytes(data)


@pytest.mark.parametrize("count", [500, pytest.param(50_000, marks=pytest.mark.slow)])
def test_crafted_npz(count):
    rng = random.Random(count)
    accepted = 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        data, message = crafted_npz(rng), "f.npz: "
        try:
            model = parse_npz(data, "f.npz")
            accepted += 1
        except (FormatError, ResourceError) as error:
            model, message = None, str(error)
        except Exception as error:
            raise AssertionError(f"number {number}: {data!r}") from error
        assert message.startswith("f.npz: ")
        if model is not None:
            assert len(model.log_unary) == sum(model.num_states.tolist()) <= 10**5
            assert model.adjacency.num_variables == model.num_variables
            model.log_weight(np.zeros(model.num_variables, dtype=int))
    assert 0.05 * count < accepted < 0.5 * count, accepted
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB: no claim was believed


def test_what_crafting_starts_from(tmp_path):
    """With nothing wrong the archive is a model, so that what is refused is refused for what is wrong."""

    class Calm(random.Random):
        def randrange(self, *arguments):
            return 6  # compressed, and nothing else

    model = parse_npz(crafted_npz(Calm(0)))
    write_model(model, tmp_path / "a.npz")
    assert model.num_states.tolist() == [2, 3, 2]


# -- any bytes --------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from([*POOL, b" ", b" ", b"2", b"1"]), max_size=40).map(b" ".join))
def test_heaps_of_words(data):
    check_agreement(b"MARKOV " + data)


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
