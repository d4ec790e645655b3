from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastmix import _memory, infer
from fastmix._memory import aligned_zeros, available_memory, format_bytes, parse_bytes
from fastmix.instances import ising_grid

GIB = 2**30


@pytest.mark.parametrize("shape", [(0, 3), (7,), (5, 1000), (44, 512)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.float64])
def test_aligned_zeros(shape: tuple[int, ...], dtype: type) -> None:
    arrays = [aligned_zeros(shape, dtype) for _ in range(20)]
    for k, array in enumerate(arrays):
        assert array.shape == shape
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert not array.any()
        assert array.size == 0 or array.ctypes.data % 64 == 0
        array[...] = k
    assert all((array == k).all() for k, array in enumerate(arrays))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1", 1),
        ("100", 100),
        ("1e9", 10**9),
        ("1E9", 10**9),
        ("12B", 12),
        ("500MB", 500 * 10**6),
        ("500 MB", 500 * 10**6),
        (" 4GiB ", 4 * GIB),
        ("4Gi", 4 * GIB),
        ("4G", 4 * 10**9),
        ("1.5KiB", 1536),
        (".5kB", 500),
        ("2TiB", 2 * 2**40),
        ("1PB", 10**15),
        ("1e3GB", 10**12),
    ],
)
def test_parse_bytes(text: str, count: int) -> None:
    assert parse_bytes(text) == count
    assert isinstance(parse_bytes(text), int)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "GB", "x", "-1", "-1GB", "+1GB", "0", "0GB", "0.1", "nan", "inf", "1e400", "1e308PiB", "1.2.3MB"),
        *(".", "1 2", "1XB", "1GBs", "4GiB/s", "1e", "1e-3GB", "1,000", "0x10", "²MB"),
    ],
)
def test_parse_bytes_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="size") as error:
        parse_bytes(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1000 * 1024, "1000 KiB"),
        (31586360, "30.1 MiB"),
        (3 * GIB, "3 GiB"),
        (2.5 * 2**40, "2.5 TiB"),
        (2.0**50, "1 PiB"),
        (2.0**60, "1 EiB"),
        (2.0**1000, "9.29e+282 EiB"),
        (math.inf, "inf EiB"),
    ],
)
def test_format_bytes(count: float, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(1, 2**59))
@example(1070)
def test_what_is_formatted_can_be_parsed(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.0051)


# -- available memory -----------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Files of a machine of our own, with 8 GiB available and no container; 6 GiB where they do not say."""
    (tmp_path / "meminfo").write_text(f"MemTotal: {16 * GIB // 1024} kB\nMemAvailable:   {8 * GIB // 1024} kB\n")
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
    monkeypatch.setattr(_memory, "_MEMINFO", tmp_path / "meminfo")
    newer, older = _memory._CONTROL_GROUPS
    moved = (newer._replace(folder=tmp_path / "v2"), older._replace(folder=tmp_path / "v1"))
    monkeypatch.setattr(_memory, "_CONTROL_GROUPS", moved)
    monkeypatch.setattr(_memory, "_physical", lambda: 6 * GIB)
    monkeypatch.setitem(sys.modules, "psutil", None)
    return tmp_path


def test_here() -> None:
    assert 0 < available_memory() < 2**60


def test_without_a_container(machine: Path) -> None:
    assert available_memory() == 8 * GIB


@pytest.mark.parametrize("text", [None, "", "MemFree: 5 kB\n", "MemAvailable:\n", "MemAvailable: many kB\n"])
def test_without_meminfo(machine: Path, text: str | None) -> None:
    (machine / "meminfo").unlink()
    if text is not None:
        (machine / "meminfo").write_text(text)
    assert available_memory() == 6 * GIB


def test_without_meminfo_psutil_is_asked(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (machine / "meminfo").unlink()
    tells = SimpleNamespace(virtual_memory=lambda: SimpleNamespace(available=3 * GIB))
    monkeypatch.setitem(sys.modules, "psutil", tells)
    assert available_memory() == 3 * GIB


def test_container(machine: Path) -> None:
    (machine / "v2" / "memory.max").write_text(f"{4 * GIB}\n")
    (machine / "v2" / "memory.current").write_text(f"{3 * GIB}\n")
    assert available_memory() == GIB
    (machine / "v2" / "memory.stat").write_text(f"anon {GIB}\nfile {2 * GIB}\ninactive_file {GIB // 2}\n")
    assert available_memory() == 1.5 * GIB  # files kept in memory give way
    (machine / "v2" / "memory.max").write_text("max\n")
    assert available_memory() == 8 * GIB


def test_container_of_the_older_kind(machine: Path) -> None:
    (machine / "v1" / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # how it says: no limit
    (machine / "v1" / "memory.usage_in_bytes").write_text(f"{GIB}\n")
    assert available_memory() == 8 * GIB
    (machine / "v1" / "memory.limit_in_bytes").write_text(f"{2 * GIB}\n")
    (machine / "v1" / "memory.stat").write_text(f"inactive_file 1\ntotal_inactive_file {GIB // 4}\n")
    assert available_memory() == 1.25 * GIB


def test_container_over_its_limit(machine: Path) -> None:
    (machine / "v2" / "memory.max").write_text(f"{GIB}\n")
    (machine / "v2" / "memory.current").write_text(f"{GIB + 1}\n")
    assert available_memory() == 0


def test_memory_is_assumed_where_nothing_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(_memory, "_CONTROL_GROUPS", ())
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert _memory.available_memory() == _memory.ASSUMED_PHYSICAL_BYTES
    assert infer(ising_grid(3, 3, coupling_max=1.0, seed=0)).status == "ok"
