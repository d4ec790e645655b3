"""Files that a run is saved in, and from which it goes on."""

from __future__ import annotations

import errno
import hashlib
import io
import logging
import os
import time
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import describe
from fastmix.errors import FormatError, printable

__all__ = ["Checkpoint"]

_LOG = logging.getLogger(__name__)
_FORMAT = b"fastmix checkpoint"
_VERSION = 2


class Checkpoint:
    """A checkpoint file of one run, which is read and verified at once if it exists.

    The first line of the file has the name and version of the format and the SHA-256 sum of what follows: arrays in
    NumPy's npz format. Where the file cannot be written later, because the disk is full, a warning says so once; the
    run goes on, and tries again.

    Parameters
    ----------
    path : str or path
        The file.
    seconds : float
        Least time between two writes.

    Attributes
    ----------
    seed : int or None
        The seed of the run in the file; None where there is no file yet.

    Raises
    ------
    FormatError
        If the file is no checkpoint, is damaged or of another version.
    OSError
        If the place cannot be written: now, and not after the first half minute.
    """

    def __init__(self, path: str, seconds: float) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise ValueError(f"checkpoint must be the name of a file, got {describe(path)}")
        self.path = os.fspath(path)
        self.seconds = seconds
        self._failed = False  # whether the latest write failed
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        from fastmix.io.files import check_writable  # readers of formats are slow to load

        check_writable(self.path)
        exists = os.path.exists(path)
        if exists and not os.path.isfile(path):
            # Reading a device or a pipe need not end, and a file cannot take its place.
            raise ValueError(f"checkpoint must name a regular file, got {describe(self.path)}: a device or a pipe")
        self._found = self._read() if exists else None
        self.seed = None if self._found is None else int(self._found["seed"])
        self._head: dict[str, NDArray[Any]] = {}
        self.last = time.monotonic()

    def resume(self, options: str, seed: int) -> dict[str, NDArray[Any]] | None:
        """The arrays that were saved, by name; None if there is no file yet.

        ``options`` is a text of all that determines the run beside its seed. A :class:`FormatError` is raised if the
        file belongs to a run with another seed or other options.
        """
        key = hashlib.sha256(options.encode()).hexdigest()
        self._head = {"seed": np.array(str(seed)), "key": np.array(key)}
        if self._found is None:
            return None
        if self.seed != seed:
            raise FormatError(
                f"{self.path}: the checkpoint belongs to a run with seed {self.seed}, got seed {seed}; leave the seed "
                "out to go on with it"
            )
        if str(self._found["key"]) != key:
            raise FormatError(f"{self.path}: the checkpoint belongs to a run with another model or other options")
        arrays = {name: array for name, array in self._found.items() if name not in self._head}
        self._found = None  # which may be large
        return arrays

    def restore(self, options: str, seed: int, put: Callable[[dict[str, NDArray[Any]]], None]) -> bool:
        """Hand the arrays that were saved to a function that continues the run; false if there is no file yet.

        A :class:`FormatError` is raised where the file belongs to another run, as for :meth:`resume`, or does not hold
        the arrays that the function looks for: its sum is right then, but somebody else made it.
        """
        arrays = self.resume(options, seed)
        if arrays is None:
            return False
        try:
            put(arrays)
        except (AttributeError, LookupError, TypeError, ValueError):
            raise FormatError(f"{self.path}: the checkpoint is damaged; remove the file to begin anew") from None
        return True

    def save(self, arrays: dict[str, NDArray[Any]], *, now: bool = False) -> None:
        """Replace the file if it is old enough, or ``now``; where that fails, a warning is logged once."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        try:
            self._write(arrays)
            self._failed = False
        except OSError as error:
            if not self._failed:
                path = printable(self.path)
                reason = error.strerror or str(error)
                _LOG.warning("fastmix: the checkpoint %s cannot be written (%s): the run goes on", path, reason)
            self._failed = True
        self.last = time.monotonic()

    def _write(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Replace the file by one with these arrays."""
        from fastmix.io.files import atomic_write  # readers of formats are slow to load

        buffer = io.BytesIO()
        np.savez(buffer, **self._head, **arrays)  # type: ignore[arg-type]  # which takes names of arrays as options
        content = buffer.getvalue()
        digest = hashlib.sha256(content).hexdigest()
        with atomic_write(self.path, binary=True) as stream:
            stream.write(b"%s %d %s\n" % (_FORMAT, _VERSION, digest.encode()))
            stream.write(content)

    def _read(self) -> dict[str, NDArray[Any]]:
        """The arrays in the file, with the seed and the key of the run; a :class:`FormatError` if it is damaged."""
        from fastmix.io.files import read_bytes

        # A file whose name ends in .gz is compressed. It is unpacked within the same limit as models are: a few
        # kilobytes can stand for gigabytes.
        line, _, content = read_bytes(self.path).partition(b"\n")
        words = line.removeprefix(_FORMAT).decode("ascii", "replace").split()
        if not line.startswith(_FORMAT) or len(words) != 2:
            raise FormatError(f"{self.path}: not a checkpoint of fastmix")
        if words[0] != str(_VERSION):
            raise FormatError(
                f"{self.path}: a checkpoint of version {words[0]}, this fastmix reads version {_VERSION}; remove the "
                "file to begin anew"
            )
        try:
            if hashlib.sha256(content).hexdigest() != words[1]:
                raise ValueError
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                # Nothing is compressed: a file that claims to hold more than there is would be a bomb.
                if sum(member.file_size for member in archive.infolist()) > len(content):
                    raise ValueError
            with np.load(io.BytesIO(content), allow_pickle=False) as data:
                arrays = dict(data)
            int(arrays["seed"])
            arrays["key"]
        except Exception:  # where the sum is right, somebody made this: whatever goes wrong, it is no checkpoint
            raise FormatError(f"{self.path}: the checkpoint is damaged; remove the file to begin anew") from None
        return arrays
