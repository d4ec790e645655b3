"""Files in and out: compression seen through, ``-`` for the standard streams, writes that happen whole or never."""

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
from fastmix._memory import available_memory, format_bytes, parse_bytes
from fastmix.errors import FormatError, ResourceError, printable

__all__ = [
    "PathLike", "atomic_write", "check_content_size", "check_folder", "check_writable", "decode_text", "display_name",
    "read_bytes", "shown",
]  # fmt: skip

PathLike = str | os.PathLike[str]

_GZIP_MAGIC = b"\x1f\x8b"
_PACKED: dict[bytes, Callable[[], Any]] = {
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_BYTES),
    b"BZh": bz2.BZ2Decompressor,
}
_XZ_BYTES = 1 << 27  # of memory that unpacking may take: the header asks for it, xz -9 for half of this
_SWEPT: set[str] = set()  # folders whose leftovers this process has removed
_BLOCK = 1 << 22  # bytes read at a time
_LIMIT_VARIABLE = "FASTMIX_MAX_BYTES"
_PIPE_GLANCE = 0.02  # seconds between two looks whether somebody writes to a pipe
_SPOOL_BYTES = 1 << 26  # output for a stream is held in memory up to this size, on disk beyond it


def display_name(path: PathLike) -> str:
    """The path as it stands in messages, on one line; ``-`` is the standard input."""
    name = as_path("path", path)
    return "<stdin>" if name == "-" else printable(name)


def shown(word: str | bytes) -> str:
    """A word of a file as it stands in a message: quoted, and cut if it is long."""
    text = word if isinstance(word, str) else word.decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def read_bytes(path: PathLike, max_bytes: float | None = None, patience: float | None = None) -> bytes:
    """Everything in a file, decompressed when its first bytes are those of gzip, xz or bzip2; ``-`` is standard input.

    A :class:`FormatError` if the path is a directory or the compressed data are damaged, a :class:`ResourceError` if
    there are more than ``max_bytes`` (:func:`fastmix.io.read_model`): no more than that has been unpacked then. A
    named pipe that nobody opens to write within the ``patience``, in seconds, is a :class:`FormatError`; None waits.
    Memory: the file and, if it is compressed, its content.
    """
    name = display_name(path)
    if os.fspath(path) == "-":
        stream = getattr(sys.stdin, "buffer", None)
        data = sys.stdin.read().encode() if stream is None else _join(_blocks(stream), name, max_bytes)
    else:
        if os.path.isdir(path):
            raise FormatError(f"{name}: is a directory, expected a file")
        if patience is not None and stat.S_ISFIFO(os.stat(path).st_mode):
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
        # Nothing is read from disk here: an OSError is gzip's own complaint about the data.
        raise FormatError(f"{name}: the compressed file is damaged or cut short ({error})") from None
    return data


def check_content_size(name: str, size: float, max_bytes: float | None) -> None:
    """A :class:`ResourceError` if a file holds more bytes than ``max_bytes``, by default than there is room for."""
    text = os.environ.get(_LIMIT_VARIABLE)
    if max_bytes is not None:
        limit, source = check_positive("max_bytes", max_bytes, "number of bytes"), "max_bytes"
    elif text:
        limit, source = float(parse_bytes(text)), _LIMIT_VARIABLE
    elif size <= _BLOCK:  # not worth the question
        return
    else:
        limit, source = available_memory() / 8, "an eighth of the free memory"
    if size > limit:
        raise ResourceError(
            f"{name}: holds more than {format_bytes(limit)} unpacked, the limit ({source}); if that is right, raise it "
            f"by max_bytes or the environment variable {_LIMIT_VARIABLE}, such as 8GiB",
            required_bytes=int(size),
            limit_bytes=int(limit),
        )


def _join(blocks: Iterator[bytes], name: str, max_bytes: float | None) -> bytes:
    content = io.BytesIO()  # which gives up what it holds without a copy
    for block in blocks:
        content.write(block)
        check_content_size(name, content.tell(), max_bytes)
    return content.getvalue()


def _blocks(stream: Any) -> Iterator[bytes]:
    while block := stream.read(_BLOCK):
        yield block


def _pipe_blocks(path: PathLike, name: str, patience: float) -> Iterator[bytes]:
    """Blocks of a named pipe from when somebody writes to it until nobody does; opening it does not wait."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    written, deadline = False, time.monotonic() + patience
    try:
        while True:
            try:
                block = os.read(descriptor, _BLOCK)
            except BlockingIOError:  # there is a writer, which has nothing yet
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
                time.sleep(_PIPE_GLANCE)
    finally:
        os.close(descriptor)


def _unpacked(data: bytes, new_stream: Callable[[], Any]) -> Iterator[bytes]:
    # The file classes of both modules pass over what follows the last stream and is none.
    while data:
        stream = new_stream()
        while not stream.eof:
            if not (block := stream.decompress(data, _BLOCK)) and stream.needs_input:
                raise EOFError("the file ends within a compressed stream")
            yield block
            data = b""
        data = stream.unused_data.lstrip(b"\0")


def decode_text(data: bytes, name: str) -> str:
    """``data`` as text without a byte order mark, or a :class:`FormatError` that says why it is no UTF-8 text."""
    try:
        if (position := data.find(b"\0")) < 0:
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
    r"""A stream whose content becomes the file when the block ends without an error, and is thrown away otherwise.

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
    """Raise what :func:`atomic_write` would raise about this place; what is there stays as it is.

    To be called before long work. Whether there will be room on the disk remains to be seen.
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
    """Raise the OSError that making this folder, if it is not there, and a file in it would raise; nothing is made."""
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
    temporary, descriptor = _create_beside(target)
    os.close(descriptor)
    os.unlink(temporary)


def _create_beside(target: str) -> tuple[str, int]:
    """A new file in the folder of a target, open for writing and locked; its errors are about the target."""
    folder = os.path.dirname(target)
    if folder not in _SWEPT:
        _SWEPT.add(folder)
        _remove_leftovers(folder)
    while True:
        temporary, descriptor = _create_new(folder, target)
        if _lock(descriptor):
            with contextlib.suppress(FileNotFoundError):
                os.stat(temporary)
                return temporary, descriptor
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _create_new(folder: str, target: str) -> tuple[str, int]:
    # The name does not contain the target's, which may be of the greatest length allowed already.
    temporary = os.path.join(folder, f".fastmix-{_host()}-{secrets.token_hex(8)}.tmp")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        # A rename needs no leave of the file it replaces; a file marked read-only is respected all the same.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
    try:
        # The kernel takes the umask off 0o666; tempfile would make a private file instead.
        return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, target) from None


def _remove_leftovers(folder: str) -> None:
    """Remove temporary files of processes of this host that were killed: those that nobody holds the lock of.

    The system gives up the locks of a process with the process, whatever its number, container or user. Files of other
    hosts on a shared disk, whose locks need not be seen here, are left alone, as is all that is not ours.
    """
    begin = f".fastmix-{_host()}-"
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(begin) and entry.name.endswith(".tmp"):
                _remove_leftover(entry.path)


def _remove_leftover(path: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and _lock(descriptor, or_none=False):
                os.unlink(path)
        finally:
            os.close(descriptor)


def _lock(descriptor: int, *, or_none: bool = True) -> bool:
    """Whether this process now holds the lock of a file; ``or_none`` is the answer where there are no locks."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):  # another system, or a file system without locks: nothing is removed there either
        return or_none
    return True


@cache
def _host() -> str:
    """What tells this host from others that share its disks, as a part of a name."""
    return hashlib.sha256(platform.node().encode()).hexdigest()[:8]


@contextmanager
def _write_renamed(target: str, suffix: str, binary: bool) -> Iterator[TextIO | BinaryIO]:
    temporary, descriptor = _create_beside(target)
    # Keeps the lock until the file has its name; other systems do not rename what is open.
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
        _name(error, target)
        raise
    finally:
        if held is not None:
            os.close(held)
    # The rename itself is durable once the folder is on disk; some file systems refuse this, which costs nothing else.
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.dirname(target), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _write_spooled(target: str | None, suffix: str, binary: bool) -> Iterator[TextIO | BinaryIO]:
    with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
        with _encoded(cast(IO[bytes], spool), suffix, binary) as stream:
            yield stream
        spool.seek(0)
        if target is not None:
            try:
                with open(target, "wb") as file:
                    shutil.copyfileobj(spool, file)
            except OSError as error:
                _name(error, target)
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
    """A stream over ``raw`` that compresses and encodes; ``raw`` stays open."""
    with contextlib.ExitStack() as stack:
        stream = raw
        if suffix == ".gz":
            # No name and no time in the header: the same content gives the same bytes.
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


def _name(error: BaseException, target: str) -> None:
    """Let the error of a full disk say which file it is about."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        error.filename = target
