from __future__ import annotations

import io
import json
import random
import sys
import zipfile

import numpy as np
import pytest

from fastmix.errors import FormatError, ResourceError
from fastmix.io import npz, read_model, write_model
from fastmix.model import MarkovRandomField
from oracle.uai import parse_npz

MODEL = MarkovRandomField.from_tables(
    [[0.1, -np.inf], [1 / 3, 0, -1e99]],
    [(0, 1)],
    [[[1, 2, 3], [-np.inf, 5, 1e-300]]],
    log_constant=-1e4,
    variable_names=["a\0", "Größe \ud800"],
    state_names=[["", "0"], ["x", "y ", "z\n"]],
)


def arrays_of(model: MarkovRandomField, tmp_path) -> dict[str, np.ndarray]:
    write_model(model, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz", allow_pickle=False) as archive:
        return dict(archive)


def packed(arrays: dict[str, np.ndarray]) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def header(**changes: object) -> np.ndarray:
    content = {"format": "fastmix pairwise mrf", "version": 1, "variable_names": None, "state_names": None} | changes
    return np.frombuffer(json.dumps(content).encode(), np.uint8)


@pytest.mark.parametrize(
    "model", [MODEL, MarkovRandomField([], [], [], []), MarkovRandomField([3], [0, 0, 0.5], [], [])]
)
def test_exact(tmp_path, model):
    write_model(model, tmp_path / "a.npz")
    again = read_model(tmp_path / "a.npz")
    assert again == model
    assert again.variable_names == model.variable_names
    assert again.state_names == model.state_names
    assert read_model(tmp_path / "a.npz") == model


def test_same_model_same_bytes(tmp_path):
    write_model(MODEL, tmp_path / "a.npz")
    write_model(MODEL, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_numpy_reads_and_writes_it(tmp_path):
    arrays = arrays_of(MODEL, tmp_path)
    np.testing.assert_array_equal(arrays["log_unary"], MODEL.log_unary)
    assert json.loads(arrays["header"].tobytes())["version"] == 1
    assert parse_npz(packed(arrays)) == MODEL
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    assert parse_npz(stream.getvalue()) == MODEL
    assert parse_npz(packed(arrays | {"edges": np.asfortranarray(arrays["edges"])})) == MODEL


def test_standard_output(tmp_path, capsysbinary):
    npz.write(MODEL, sys.stdout.buffer)
    assert parse_npz(capsysbinary.readouterr().out) == MODEL


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"header": np.zeros(3, np.uint8)}, "the header is not JSON"),
        ({"header": np.frombuffer(b"[" * 100_000, np.uint8)}, "the header is not JSON"),
        ({"header": np.frombuffer(b"[1]", np.uint8)}, "the header does not name the format"),
        ({"header": header(format="other")}, "the header does not name the format 'fastmix pairwise mrf'"),
        ({"header": header(variable_names="ab")}, "variable_names must be a list of names"),
        ({"header": header(variable_names=["a"])}, "variable_names must have one name per variable, 2, got 1"),
        ({"header": header(state_names=["ab", "cde"])}, "state_names[0] must be a list of names"),
        ({"num_states": np.array([2.0, 3.0])}, "num_states must be a 1-dimensional array of <i8, got shape (2,)"),
        ({"num_states": np.array([[2, 3]])}, "num_states must be a 1-dimensional array"),
        ({"num_states": np.array([2, 0])}, "num_states must be from 1 to"),
        ({"num_states": np.array([2, 2])}, "log_unary must have shape (4,)"),
        ({"log_unary": np.full(5, np.nan)}, "log_unary must hold finite numbers or -inf"),
        ({"edges": np.array([[1, 0]])}, "edges must have i < j"),
        ({"edges": np.array([[0, 5]])}, "edges must hold indices"),
        ({"log_pairwise": np.zeros(5)}, "log_pairwise must have shape (6,)"),
        ({"log_constant": np.array(np.inf)}, "log_constant must be"),
        ({"log_constant": np.array([0.0])}, "log_constant must be a 0-dimensional array"),
        ({"extra": np.zeros(1)}, "the arrays must be header, num_states, log_unary, edges, log_pairwise, log_const"),
    ],
)  # fmt: skip
def test_wrong_content(tmp_path, changes, message):
    data = packed(arrays_of(MODEL, tmp_path) | changes)
    with pytest.raises(FormatError) as caught:
        parse_npz(data, "m.npz")
    assert str(caught.value).startswith("m.npz: not a model file of fastmix: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("version", [4, 0, None, "one", 2**62])
def test_other_versions_are_named(tmp_path, version):
    """The version is told before anything else is looked at: another one may hold other arrays."""
    arrays = {"header": header(version=version), "tables": np.zeros(3)}
    with pytest.raises(FormatError, match=rf"^m\.npz: .*version {version!r}, .*versions 1"):
        parse_npz(packed(arrays), "m.npz")


def test_claimed_sizes_are_limited(tmp_path):
    stream = io.BytesIO()
    np.savez_compressed(stream, header=header(), log_unary=np.zeros(10**6))
    (tmp_path / "bomb.npz").write_bytes(stream.getvalue())
    assert len(stream.getvalue()) < 20_000
    with pytest.raises(ResourceError, match=r"bomb\.npz: .*\(max_bytes\)") as caught:
        read_model(tmp_path / "bomb.npz", max_bytes=2**20)
    assert caught.value.limit_bytes == 2**20


def test_missing_member_and_pickles(tmp_path):
    arrays = arrays_of(MODEL, tmp_path)
    del arrays["edges"]
    with pytest.raises(FormatError, match=r"arrays .*edges") as caught:
        parse_npz(packed(arrays))
    assert "edges" not in str(caught.value).rpartition("got")[2]
    objects = np.array([{}, {}], dtype=object)
    with pytest.raises(FormatError, match=r"edges .*2-dimensional .*<i8"):
        parse_npz(packed(arrays | {"edges": objects}))
    with pytest.raises(FormatError, match=r"arrays .*none$"):
        parse_npz(packed({}))


def test_claimed_shape_is_not_believed(tmp_path):
    write_model(MODEL, tmp_path / "a.npz")
    out = io.BytesIO()
    with zipfile.ZipFile(tmp_path / "a.npz") as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            target.writestr(name, data.replace(b"'shape': (6,), }         ", b"'shape': (60000000000,), }"))
    with pytest.raises(FormatError, match=r"log_pairwise .*shape"):
        parse_npz(out.getvalue())


def test_other_files(tmp_path):
    with pytest.raises(FormatError, match=r"^a: .*damaged"):
        parse_npz(b"MARKOV 0 0", "a")
    with pytest.raises(FormatError, match="damaged"):
        parse_npz(b"")
    (tmp_path / "a").write_bytes(b"PK\x03\x04 but no archive")
    with pytest.raises(FormatError, match="damaged"):
        read_model(tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none.npz")


def test_damaged_bytes(tmp_path):
    write_model(MODEL, tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    rng = random.Random(7)
    refused = 0
    for _ in range(800):
        data = bytearray(whole)
        kind = rng.randrange(3)
        k = rng.randrange(len(data))
        if kind == 0:
            data[k] = rng.randrange(256)
        elif kind == 1:
            del data[k : k + rng.randrange(1, 40)]
        else:
            data = data[:k]
        try:
            model = parse_npz(bytes(data))
        except FormatError:
            refused += 1
        else:
            assert model == MODEL  # the damage hit what does not matter, such as a date
    assert refused > 400
