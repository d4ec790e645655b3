"""Files that claim more than they hold: refused before anything of that size is allocated."""

from __future__ import annotations

import io
import json
import lzma
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from test_io_fuzz import npy

from fastmix.errors import FormatError, ModelError, ResourceError
from fastmix.io import read_evidence, read_mar, read_model, read_mpe, read_pr

REFUSALS = (FormatError, ModelError, ResourceError)
MOST = 2e7  # bytes at the peak, of files of a few kilobytes


def refused_in_little_memory(path: Path, reader=read_model, **options: object) -> Exception:
    tracemalloc.start()
    try:
        with pytest.raises(REFUSALS) as caught:
            reader(path, **options)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST, f"{peak / 1e6:.0f} MB for {path.stat().st_size} bytes"
    return caught.value


def bif_with_default(num_parents: int, num_states: int) -> str:
    states = ", ".join(f"s{k}" for k in range(num_states))
    row = ", ".join(["1"] + ["0"] * (num_states - 1))
    names = [f"p{k}" for k in range(num_parents)]
    text = "network n {}\n"
    for name in [*names, "child"]:
        text += f"variable {name} {{ type discrete [ {num_states} ] {{ {states} }}; }}\n"
    for name in names:
        text += f"probability ( {name} ) {{ table {row}; }}\n"
    return text + f"probability ( child | {', '.join(names)} ) {{ default {row}; }}\n"


@pytest.mark.parametrize("size", [(20, 2), (25, 2), (31, 2), (14, 3), (11, 4), (31, 30), (4, 60)])
def test_defaults_of_bif_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]) -> None:
    path = tmp_path / "a.bif"
    path.write_text(bif_with_default(*size))
    for name in ("fastmix._memory.available_memory", "fastmix.io.files.available_memory"):
        monkeypatch.setattr(name, lambda: 2.0**29)
    error = refused_in_little_memory(path)
    assert isinstance(error, ResourceError)
    assert "a.bif" in str(error)
    assert isinstance(refused_in_little_memory(path, max_bytes=2**24), ResourceError)


def test_defaults_that_fit_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.bif").write_text(bif_with_default(10, 2))
    assert read_model(tmp_path / "a.bif", max_bytes=2**20).num_factors == 1
    with pytest.raises(ResourceError, match="max_bytes"):
        read_model(tmp_path / "a.bif", max_bytes=2**16)


HUGE = ["1000000", "99999999", "2147483647", "4294967297", "999999999999", "18446744073709551617", "9" * 400]


@pytest.mark.parametrize("huge", HUGE)
def test_counts_of_text_files(tmp_path: Path, huge: str) -> None:
    wide = " ".join(map(str, range(40)))
    binary = "2 " * 40
    texts = {
        "a.uai": [f"MARKOV {huge} 2 2", f"MARKOV 2 2 2 {huge} 1 0", f"MARKOV 2 2 2 1 {huge} 0 1",
                  f"MARKOV 2 2 {huge}{huge} 1 1 1 2 1 1", f"MARKOV 2 2 2 1 1 0 {huge} 1 1",
                  f"MARKOV 40 {binary} 1 40 {wide} {huge} 1 1", f"BAYES 40 {binary} 40 40 {wide} {huge} 1 1"],
        "a.erg": [f"{huge} 2 /* Probabilities */ 1", f"1 {huge} 0 /* Probabilities */ {huge} 1",
                  f"2 2 2 {huge} 0 /* Probabilities */ 2 .5 .5"],
        "a.MAR": [f"MAR {huge} 2 .5 .5", f"MAR 1 {huge} .5 .5"],
        "a.MPE": [f"MPE {huge} 1 0", f"MPE 2 0 {huge}{huge}{huge}"],
        "a.PR": [f"PR {huge} 1 1"],
        "a.evid": [f"{huge} 0 1", f"1 {huge} 1 0 1", f"1 {huge}{huge}{huge} 0"],
    }  # fmt: skip
    readers = {".MAR": read_mar, ".MPE": read_mpe, ".PR": read_pr, ".evid": read_evidence}
    for name, contents in texts.items():
        for text in contents:
            path = tmp_path / name
            path.write_text(text)
            refused_in_little_memory(path, readers.get(path.suffix, read_model))


@pytest.mark.parametrize("shape", [(10**9,), (2**40,), (10**5, 10**5), (2**62, 4), (0, 2**40)])
def test_shapes_of_npz_files(tmp_path: Path, shape: tuple[int, ...]) -> None:
    header = {"format": "fastmix pairwise mrf", "version": 1, "variable_names": None, "state_names": None}
    arrays = {
        "header": np.frombuffer(json.dumps(header).encode(), np.uint8), "num_states": np.array([2, 2]),
        "log_unary": np.zeros(4), "edges": np.array([[0, 1]]), "log_pairwise": np.zeros(4),
        "log_constant": np.array(0.0),
    }  # fmt: skip
    for claimed in arrays:
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                archive.writestr(f"{name}.npy", npy(array, shape if name == claimed else None))
        (tmp_path / "a.npz").write_bytes(stream.getvalue())
        refused_in_little_memory(tmp_path / "a.npz")
    for most in (2**31, 2**62):
        arrays["num_states"] = np.array([most, most])
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                archive.writestr(f"{name}.npy", npy(array))
        (tmp_path / "a.npz").write_bytes(stream.getvalue())
        refused_in_little_memory(tmp_path / "a.npz")


def test_dictionaries_of_xz_files(tmp_path: Path) -> None:
    """The header says how much memory unpacking takes; one of a few bytes may say gigabytes."""
    data = bytearray(lzma.compress(b"MARKOV 1 2 0", preset=0))
    size = 4 * (data[12] + 1)
    place = data.index(b"\x21\x01", 12, 12 + size) + 2
    data[place] = 40  # 4 GiB
    data[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(data[12 : 12 + size - 4]))
    (tmp_path / "a.uai.xz").write_bytes(data)
    refused_in_little_memory(tmp_path / "a.uai.xz")
    (tmp_path / "b.uai.xz").write_bytes(lzma.compress(b"MARKOV 1 2 0", preset=9))
    assert read_model(tmp_path / "b.uai.xz").num_variables == 1
