from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import sys
import threading
import tracemalloc
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fastmix.errors import FormatError, ResourceError
from fastmix.io import atomic_write, read_model
from fastmix.io.files import check_folder, check_writable, decode_text, read_bytes

TEXT = "two words\nGröße\n"


def only(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


@pytest.fixture
def stdin(monkeypatch):
    def feed(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return feed


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("name", ["a", "a.txt", "a.gz", "a.xz"])
def test_compression_is_told_by_content(tmp_path, stdin, pack, name):
    path = tmp_path / name
    path.write_bytes(pack(TEXT.encode()))
    assert read_bytes(path) == read_bytes(str(path)) == TEXT.encode()
    stdin(path.read_bytes())
    assert read_bytes("-") == TEXT.encode()


def test_byte_order_mark():
    assert decode_text("\ufeffa\r\nb".encode(), "a") == "a\r\nb"


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_several_streams_are_one_file(tmp_path, pack):
    path = tmp_path / "a"
    path.write_bytes(pack(b"one ") + pack(b"two") + bytes(4))
    assert read_bytes(path) == b"one two"
    path.write_bytes(pack(b"one ") + pack(b"two")[:-3])
    with pytest.raises(FormatError, match="cut short"):
        read_bytes(path)


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["cut", "flip", "magic", "tail"])
def test_damaged_compression(tmp_path, pack, damage):
    data = pack(TEXT.encode() * 50)
    middle = len(data) // 2
    data = {
        "cut": data[:-9],
        "flip": data[:middle] + bytes(b ^ 255 for b in data[middle : middle + 6]) + data[middle + 6 :],
        "magic": data[:6],
        "tail": data + b"tail",
    }[damage]
    path = tmp_path / "a.uai.gz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"a\.uai\.gz: .*damaged"):
        read_bytes(path)


@pytest.mark.parametrize(
    "pack",
    [bytes, partial(gzip.compress, compresslevel=1), partial(lzma.compress, preset=0), bz2.compress],
    ids=["plain", "gzip", "xz", "bzip2"],
)
def test_content_is_limited(tmp_path, stdin, monkeypatch, pack):
    path = tmp_path / "bomb.uai.gz"
    path.write_bytes(pack(bytes(5 * 10**7)))
    for name in (path, "-"):
        stdin(path.read_bytes())
        tracemalloc.start()
        with pytest.raises(ResourceError, match=r"10 MiB .*\(max_bytes\)") as caught:
            read_model(name, max_bytes=10 * 2**20)
        if pack is not bytes:  # as a stream: no more than the limit and a block or two beyond
            assert tracemalloc.get_traced_memory()[1] < 4.8e7
        tracemalloc.stop()
        assert caught.value.limit_bytes == 10 * 2**20
    monkeypatch.setenv("FASTMIX_MAX_BYTES", "1MB")
    with pytest.raises(ResourceError, match=r"977 KiB .*\(FASTMIX_MAX_BYTES\)") as caught:
        read_model(path)
    assert caught.value.limit_bytes == 10**6
    monkeypatch.delenv("FASTMIX_MAX_BYTES")
    monkeypatch.setattr("fastmix.io.files.available_memory", lambda: 160 * 2**20)
    with pytest.raises(ResourceError, match=r"20 MiB .*\(.*memory") as caught:
        read_model(path)
    assert caught.value.limit_bytes == 20 * 2**20
    monkeypatch.undo()
    assert len(read_bytes(path, 1e8)) == 5 * 10**7


def test_bad_limits(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"MARKOV 0 0")
    for limit in (0, -1, np.nan, "1GB", True):
        with pytest.raises(ValueError, match=f"^max_bytes .*got {limit!r}$"):
            read_model(tmp_path / "a", max_bytes=limit)
    monkeypatch.setenv("FASTMIX_MAX_BYTES", "lots")
    with pytest.raises(ValueError, match=r"^FASTMIX_MAX_BYTES: .*'lots'"):
        read_model(tmp_path / "a")


def test_numbers_beyond_memory_are_refused(tmp_path, monkeypatch):
    """A text of a digit and a blank each takes fifty times its size to read."""
    (tmp_path / "a").write_bytes(b"MARKOV " + b"1 " * 10**6)
    monkeypatch.setattr("fastmix._memory.available_memory", lambda: 10**8)
    with pytest.raises(ResourceError, match=r"a: .*1000000 .*95\.4 MiB.*47\.7 MiB") as caught:
        read_model(tmp_path / "a")
    assert (caught.value.required_bytes, caught.value.limit_bytes) == (10**8, 10**8 // 2)


def test_directory_and_missing_file(tmp_path):
    with pytest.raises(FormatError, match=f"^{re.escape(str(tmp_path))}: .*directory"):
        read_model(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_model(tmp_path / "none")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("é".encode("utf-16"), "a:1: .*UTF-8 .*byte 0x00"),
        (b"a\nb\0", "a:2: .*UTF-8 .*byte 0x00"),
        (b"a\nb\n\xe9", "a:3: .*UTF-8 .*byte 0xe9"),
    ],
)
def test_other_encodings(tmp_path, data, message):
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(FormatError, match=message):
        read_model(tmp_path / "a")


def test_text_only_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert read_bytes("-") == TEXT.encode()


# -- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.xz"])
def test_write_and_read(tmp_path, name):
    with atomic_write(tmp_path / name) as stream:
        stream.write(TEXT)
        assert not (tmp_path / name).exists()
    assert only(tmp_path) == [name]
    assert read_bytes(tmp_path / name) == TEXT.encode()


def test_write_bytes(tmp_path):
    with atomic_write(tmp_path / "a", binary=True) as stream:
        stream.write(b"\0\r\n")
    assert (tmp_path / "a").read_bytes() == b"\0\r\n"


def test_lines_end_as_written(tmp_path):
    with atomic_write(tmp_path / "a") as stream:
        print("b", file=stream)
    assert (tmp_path / "a").read_bytes() == b"b\n"


@pytest.mark.parametrize("name", ["a.txt", "a.gz", "a.xz"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("exists", [True, False])
def test_error_leaves_everything_as_it_was(tmp_path, name, error, exists):
    if exists:
        (tmp_path / name).write_bytes(b"old")

    def write_half() -> None:
        with atomic_write(tmp_path / name) as stream:
            stream.write("new" * 100_000)
            raise error

    with pytest.raises(error):
        write_half()
    assert only(tmp_path) == ([name] if exists else [])
    if exists:
        assert (tmp_path / name).read_bytes() == b"old"


@pytest.mark.parametrize("function", ["replace", "fsync", "chmod"])
def test_failure_of_the_system_leaves_everything_as_it_was(tmp_path, monkeypatch, function):
    (tmp_path / "a").write_bytes(b"old")

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match="disk full"), atomic_write(tmp_path / "a") as stream:
            stream.write("new")
    assert only(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_data_are_synced_before_the_rename(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append(("fsync", os.fstat(fd).st_size)), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append(("replace", 0)), replace(a, b)))
    with atomic_write(tmp_path / "a") as stream:
        stream.write("12345")
    assert calls[:2] == [("fsync", 5), ("replace", 0)]


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_follow_the_umask(tmp_path, umask, mode):
    old = os.umask(umask)
    try:
        with atomic_write(tmp_path / "a") as stream:
            stream.write("x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode


def test_existing_permissions_are_kept(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    (tmp_path / "a").chmod(0o640)
    with atomic_write(tmp_path / "a") as stream:
        stream.write("new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert (tmp_path / "a").read_text() == "new"


def test_read_only_files_are_respected(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything, and tests may run as root
    with pytest.raises(PermissionError, match=r"a'$"), atomic_write(tmp_path / "a") as stream:
        stream.write("new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_links_are_followed(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with atomic_write(tmp_path / "link") as stream:
        stream.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_missing_folder_and_directory_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="none/a"), atomic_write(tmp_path / "none" / "a") as stream:
        stream.write("x")
    with pytest.raises(IsADirectoryError), atomic_write(tmp_path) as stream:
        stream.write("x")


def test_relative_and_long_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "x" * 255
    with atomic_write(name) as stream:
        stream.write("new")
    assert only(tmp_path) == [name]


def test_devices_and_pipes_are_not_replaced(tmp_path):
    with atomic_write("/dev/null") as stream:
        stream.write("x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    with atomic_write(pipe) as stream:
        stream.write("through")
    reader.join(10)
    assert received == ["through"]


def test_standard_output_gets_all_or_nothing(capsysbinary):
    def write_half() -> None:
        with atomic_write("-") as stream:
            stream.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert capsysbinary.readouterr().out == b""
    with atomic_write("-") as stream:
        stream.write(TEXT)
    assert capsysbinary.readouterr().out == TEXT.encode()
    with atomic_write("-", binary=True) as stream:
        stream.write(b"\0\xff")
    assert capsysbinary.readouterr().out == b"\0\xff"


def test_text_only_standard_output(monkeypatch):
    stand_in = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stand_in)
    with atomic_write("-") as stream:
        stream.write(TEXT)
    assert stand_in.getvalue() == TEXT


# -- places that are tried before they are needed --------------------------------------------------------------------


def test_trying_a_place_changes_nothing(tmp_path):
    old = tmp_path / "old"
    old.write_text(TEXT, "utf-8")
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for a reader
    before = only(tmp_path), old.stat().st_mtime_ns
    for path in (old, tmp_path / "new", tmp_path / "pipe", "/dev/null", "-"):
        check_writable(path)
    for path in (tmp_path, tmp_path / "new" / "deeper"):
        check_folder(path)
    assert (only(tmp_path), old.stat().st_mtime_ns) == before
    assert old.read_text("utf-8") == TEXT


def test_places_that_cannot_be_written(tmp_path, monkeypatch):
    old = tmp_path / "old"
    old.write_text(TEXT, "utf-8")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("nowhere/file")
    names = ["no/file", "old/file", "loop", "link", "n" * 300]
    for path in (tmp_path, *(tmp_path / name for name in names)):
        with pytest.raises(OSError, match=r"\[Errno \d+\] .*: '.*'"):
            check_writable(path)
    for path in (old, old / "folder", tmp_path / "loop", tmp_path / ("n" * 300)):
        with pytest.raises(OSError, match=r"\[Errno \d+\] .*: '.*'") as caught:
            check_folder(path)
        assert caught.value.filename == str(path)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(old))
    with pytest.raises(PermissionError):
        check_writable(old)
    assert only(tmp_path) == ["link", "loop", "old"]
