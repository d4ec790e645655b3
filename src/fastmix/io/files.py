"""Files as bytes: any compression, ``-`` for the standard streams, and writes that happen whole or never."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import lzma
import os
import platform
import secrets
import select
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import IO, Any, BinaryIO, Literal, TextIO, cast, overload

from fastmix._checks import as_path, check_positive
from fastmix._locks import lock_file
from fastmix._memory import available_memory, format_bytes, parse_bytes
from fastmix.errors import FormatError, ResourceError, printable
from fastmix.io.tuning import (
    BLOCK_BYTES,
    MAX_SHOWN_CHARACTERS,
    MEMORY_SHARE,
    PIPE_POLL_SECONDS,
    SPOOL_BYTES,
    XZ_MEMORY_BYTES,
)

__all__ = [
    "PathLike", "atomic_write", "check_content_size", "check_folder", "check_writable", "decode_text", "display_name",
    "read_bytes", "shown",
]  # fmt: skip

PathLike = str | os.PathLike[str]

_LIMIT_VARIABLE = "FASTMIX_MAX_BYTES"
_GZIP_MAGIC = b"\x1f\x8b"
# Decompressors of other formats, by their first bytes.
_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES),
    b"BZh": bz2.BZ2Decompressor,
}
# Folders whose leftovers this process has removed.
SWEPT: set[str] = set()


def display_name(path: PathLike) -> str:
    """The path as it stands in messages, on one line; ``<stdin>`` for ``-``."""
    name = as_path("path", path)
    return "<stdin>" if name == "-" else printable(name)


def shown(word: str | bytes) -> str:
    """A word of a file as it stands in a message: quoted, and cut if it is long."""
    text = word if isinstance(word, str) else word.decode("utf-8", "replace")
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[: MAX_SHOWN_CHARACTERS - 3] + "..."
    return repr(text)


def read_bytes(path: PathLike, max_bytes: float | None = None, patience: float | None = None) -> bytes:
    """Content of a file, decompressed if its first bytes belong to gzip, xz or bzip2; ``-`` is the standard input.

    Parameters
    ----------
    path : str or path-like
    max_bytes : float, optional
        Largest content, as for :func:`fastmix.io.read_model`. No more than that is unpacked.
    patience : float, optional
        Seconds to wait until somebody opens a named pipe to write; by default there is no end to the wait.

    Raises
    ------
    FormatError
        If the path is a directory, the compressed data are damaged, or nobody writes to the pipe.
    ResourceError
        If the content is larger than ``max_bytes``.

    Notes
    -----
    Memory: the file and, if it is compressed, its content.
    """
    name = display_name(path)
    if os.fspath(path) == "-":
        data = _read_stdin(name, max_bytes)
    elif os.path.isdir(path):
        raise FormatError(f"{name}: is a directory, expected a file")
    elif patience is not None and stat.S_ISFIFO(os.stat(path).st_mode):
        data = _join(_pipe_blocks(path, name, patience), name, max_bytes)
    else:
        with open(path, "rb") as file:
            data = _join(_blocks(file), name, max_bytes)
    try:
        if data.startswith(_GZIP_MAGIC):
            return _join(_blocks(gzip.open(io.BytesIO(data))), name, max_bytes)
        for magic, new_stream in _PACKED.items():
            if data.startswith(magic):
                return _join(_unpacked(data, new_stream), name, max_bytes)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        # Nothing is read from disk here, so that an OSError is a complaint of gzip about the data.
        raise FormatError(f"{name}: the compressed file is damaged or cut short ({error})") from None
    return data


def _read_stdin(name: str, max_bytes: float | None) -> bytes:
    """Content of the standard input; a stand-in for it that has text only is encoded."""
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        return sys.stdin.read().encode()
    return _join(_blocks(stream), name, max_bytes)


def check_content_size(name: str, size: float, max_bytes: float | None) -> None:
    """Raise a :class:`ResourceError` if the content of a file has more bytes than are allowed.

    The limit is ``max_bytes``, else the value of the environment variable, else a share of the free memory.
    """
    text = os.environ.get(_LIMIT_VARIABLE)
    if max_bytes is not None:
        limit = check_positive("max_bytes", max_bytes, "number of bytes")
        source = "max_bytes"
    elif text:
        try:
            limit = float(parse_bytes(text))
        except ValueError as error:
            raise ValueError(f"{_LIMIT_VARIABLE}: {error}") from None
        source = _LIMIT_VARIABLE
    elif size <= BLOCK_BYTES:  # so little is not worth asking the system for its memory
        return
    else:
        limit = available_memory() * MEMORY_SHARE
        source = "an eighth of the free memory"
    if size > limit:
        raise ResourceError(
            f"{name}: holds more than {format_bytes(limit)} unpacked, the limit ({source}); if that is right, raise it "
            f"by max_bytes or the environment variable {_LIMIT_VARIABLE}, such as 8GiB",
            required_bytes=int(size),
            limit_bytes=int(limit),
        )


def _join(blocks: Iterator[bytes], name: str, max_bytes: float | None) -> bytes:
    """Blocks of a file in one piece; its size is checked after every block."""
    content = io.BytesIO()  # hands out its content without a copy
    for block in blocks:
        content.write(block)
        check_content_size(name, content.tell(), max_bytes)
    return content.getvalue()


def _blocks(stream: IO[bytes] | gzip.GzipFile) -> Iterator[bytes]:
    """Blocks of an open stream until its end."""
    while block := stream.read(BLOCK_BYTES):
        yield block


def _pipe_blocks(path: PathLike, name: str, patience: float) -> Iterator[bytes]:
    """Blocks of a named pipe, from when somebody writes to it until nobody does.

    Opening does not wait, so that a pipe without a writer can be refused after ``patience`` seconds.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    deadline = time.monotonic() + patience
    written = False
    try:
        while True:
            try:
                block = os.read(descriptor, BLOCK_BYTES)
            except BlockingIOError:  # there is a writer, which has written nothing yet
                written = True
                select.select([descriptor], [], [])
                continue
            if block:
                written = True
                yield block
            elif written:
                return
            elif time.monotonic() > deadline:
                raise FormatError(f"{name}: is a pipe that nobody writes to")
            else:
                time.sleep(PIPE_POLL_SECONDS)
    finally:
        os.close(descriptor)


def _unpacked(data: bytes, new_stream: Callable[[], Any]) -> Iterator[bytes]:
    """Blocks of the content of an xz or bzip2 file, which may hold several streams one after another.

    The file classes of ``lzma`` and ``bz2`` would silently pass over data after the last stream that are no stream.
    """
    while data:
        stream = new_stream()
        while not stream.eof:
            block = stream.decompress(data, BLOCK_BYTES)
            if not block and stream.needs_input:
                raise EOFError("the file ends within a compressed stream")
            yield block
            data = b""
        data = stream.unused_data.lstrip(b"\0")


def decode_text(data: bytes, name: str) -> str:
    """Text in the content of a file, without a byte order mark.

    Raises
    ------
    FormatError
        If the data are not UTF-8 text; the message names the first byte that is wrong.
    """
    try:
        position = data.find(b"\0")
        if position < 0:
            return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        position = error.start
    line = data.count(b"\n", 0, position) + 1
    raise FormatError(
        f"{name}:{line}: expected ASCII or UTF-8 text, got byte 0x{data[position]:02x}; "
        "the file is binary or in another encoding such as Latin-1 or UTF-16"
    )


@overload
def atomic_write(path: PathLike, *, binary: Literal[False] = False) -> AbstractContextManager[TextIO]: ...
@overload
def atomic_write(path: PathLike, *, binary: Literal[True]) -> AbstractContextManager[BinaryIO]: ...
def atomic_write(path: PathLike, *, binary: bool = False) -> AbstractContextManager[TextIO | BinaryIO]:
    r"""Stream whose content becomes the file when the block ends without an error, and is thrown away otherwise.

    The data go to a temporary file in the same folder, are synced to disk and renamed over the target, so that other
    programs see the old file or the new one and never half of it. A symbolic link is followed. The permissions of an
    existing file are kept, a new one gets those of the umask. What is not a regular file (a pipe, ``/dev/null``) is
    written to at the end of the block.

    Parameters
    ----------
    path : str or path-like
        A suffix ``.gz`` or ``.xz`` compresses. ``-`` is the standard output, which gets all or nothing as well.
    binary : bool
        Bytes instead of UTF-8 text with ``\n`` at the ends of lines.
    """
    name = as_path("path", path)
    if name == "-":
        return _write_spooled(None, "", binary)
    suffix = os.path.splitext(name)[1].lower()
    # Devices and pipes are opened by the name given: what /dev/stdout links to need not be a path.
    if os.path.exists(name) and not stat.S_ISREG(os.stat(name).st_mode):
        return _write_spooled(name, suffix, binary)
    return _write_renamed(os.path.realpath(name), suffix, binary)


def check_writable(path: PathLike) -> None:
    """Raise the error that :func:`atomic_write` would raise about a path; a file that is there stays as it is.

    Long work calls this before it starts. Whether there will be room on the disk remains to be seen.
    """
    name = as_path("path", path)
    if name == "-":
        return
    with contextlib.suppress(FileNotFoundError):
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):  # a pipe or a device: opening it may wait for a reader
            if not os.access(name, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
            return
    _try_beside(os.path.realpath(name))


def check_folder(path: PathLike) -> None:
    """Raise the OSError that creating a folder, if it is not there, and a file in it would raise.

    Nothing is created.
    """
    folder = os.path.realpath(as_path("folder", path))
    try:
        while True:
            with contextlib.suppress(FileNotFoundError):
                os.lstat(folder)
                break
            folder = os.path.dirname(folder)
        _try_beside(os.path.join(folder, "file"))
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _try_beside(target: str) -> None:
    """Create and remove a file in the folder of a target, for the error that this may raise."""
    temporary, descriptor = _create_beside(target)
    os.close(descriptor)
    os.unlink(temporary)


def _create_beside(target: str) -> tuple[str, int]:
    """Path and descriptor of a new file in the folder of a target, open for writing and locked.

    Errors name the target.
    """
    folder = os.path.dirname(target)
    if folder not in SWEPT:
        SWEPT.add(folder)
        _remove_leftovers(folder)
    while True:
        temporary, descriptor = _create_new(folder, target)
        if lock_file(descriptor) is not False:
            with contextlib.suppress(FileNotFoundError):
                os.stat(temporary)
                return temporary, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _create_new(folder: str, target: str) -> tuple[str, int]:
    """Path and descriptor of a new file in a folder, open for writing; errors name the target."""
    # The name of the target is no part of this name, because it may have the greatest length allowed already.
    temporary = os.path.join(folder, f".fastmix-{_host()}-{secrets.token_hex(8)}.tmp")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        # A rename needs no permission of the file that it replaces; a read-only file is respected all the same.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        # The kernel takes the umask off 0o666; tempfile would make a private file instead.
        return temporary, os.open(temporary, flags, 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, target) from None


def _remove_leftovers(folder: str) -> None:
    """Remove the temporary files in a folder that killed processes of this host have left: those without a lock.

    The system releases the locks of a process when it ends, whatever its number, container or user. Files of other
    hosts on a shared disk, whose locks may be invisible here, are left alone, as are all other files.
    """
    begin = f".fastmix-{_host()}-"
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(begin) and entry.name.endswith(".tmp"):
                _remove_leftover(entry.path)


def _remove_leftover(path: str) -> None:
    """Remove one temporary file if it is a regular file of this user whose lock is free.

    Where files have no locks or no owners (Windows), nothing tells a leftover from a file in use, and all of them stay.
    """
    if not hasattr(os, "getuid"):
        return
    flags = os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    with contextlib.suppress(OSError):
        descriptor = os.open(path, flags)
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and lock_file(descriptor):
                os.unlink(path)
        finally:
            os.close(descriptor)


@cache
def _host() -> str:
    """Digits that tell this host from others that share its disks, as a part of file names."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@contextmanager
def _write_renamed(target: str, suffix: str, binary: bool) -> Iterator[TextIO | BinaryIO]:
    """Stream to a temporary file, which is renamed to the target at the end of the block."""
    temporary, descriptor = _create_beside(target)
    # A second descriptor keeps the lock until the file has its name; other systems do not rename an open file.
    held = os.dup(descriptor) if os.name == "posix" else None
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with _encoded(raw, suffix, binary) as stream:
                yield stream
            raw.flush()
            os.fsync(raw.fileno())
        with contextlib.suppress(FileNotFoundError):
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        _name_target(error, target)
        raise
    finally:
        if held is not None:
            os.close(held)
    # The rename is durable once the folder is on disk. Some file systems refuse to sync a folder; nothing else is lost.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _write_spooled(target: str | None, suffix: str, binary: bool) -> Iterator[TextIO | BinaryIO]:
    """Stream to a buffer, which is copied to a device, a pipe or, for None, the standard output at the end."""
    with tempfile.SpooledTemporaryFile(max_size=SPOOL_BYTES) as spool:
        with _encoded(cast(IO[bytes], spool), suffix, binary) as stream:
            yield stream
        spool.seek(0)
        if target is not None:
            try:
                with open(target, "wb") as file:
                    shutil.copyfileobj(spool, file)
            except OSError as error:
                _name_target(error, target)
                raise
            return
        sys.stdout.flush()
        out = getattr(sys.stdout, "buffer", None)
        if out is None:  # a stand-in that takes text only
            sys.stdout.write(spool.read().decode())
        else:
            shutil.copyfileobj(spool, out)
        sys.stdout.flush()


@contextmanager
def _encoded(raw: IO[bytes], suffix: str, binary: bool) -> Iterator[TextIO | BinaryIO]:
    """Stream over ``raw`` that compresses, as the suffix says, and encodes text; ``raw`` stays open."""
    with contextlib.ExitStack() as stack:
        stream = raw
        if suffix == ".gz":
            # The header gets no name and no time, so that the same content gives the same bytes.
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0)
            stream = cast(IO[bytes], stack.enter_context(packed))
        elif suffix == ".xz":
            stream = cast(IO[bytes], stack.enter_context(lzma.LZMAFile(raw, "wb", preset=3)))
        if binary:
            yield cast(BinaryIO, stream)
            return
        text = io.TextIOWrapper(cast(BinaryIO, stream), encoding="utf-8", newline="\n")
        try:
            yield text
        finally:
            text.detach()


def _name_target(error: BaseException, target: str) -> None:
    """Put the path of the target into an error that names no file, such as the error of a full disk."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = target
