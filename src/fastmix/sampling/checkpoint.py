"""Runs that survive: everything needed to go on, in one file that is replaced whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import time
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import FormatError
from fastmix.io.files import atomic_write, read_bytes

__all__ = ["Checkpoint"]

_FORMAT = "fastmix checkpoint 1"


class Checkpoint:
    """A checkpoint file of one run.

    Parameters
    ----------
    path : str
    options : str
        All that determines the run; a file written with other options is refused.
    seconds : float
        Least time between two writes.
    """

    def __init__(self, path: str, options: str, seconds: float) -> None:
        self.path = path
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):  # now, not after the first half minute of work
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        self.key = hashlib.sha256(options.encode()).hexdigest()
        self.seconds = seconds
        self.last = time.monotonic()

    def load(self) -> dict[str, NDArray[Any]] | None:
        """What was saved, or None if there is no file yet.

        Raises
        ------
        FormatError
            If the file is not a checkpoint, or is one of another run.
        """
        if not os.path.exists(self.path):
            return None
        try:
            # What atomic_write compresses for the sake of its name is read back in the same way.
            with np.load(io.BytesIO(read_bytes(self.path)), allow_pickle=False) as data:
                parts = dict(data)
        except (ValueError, TypeError, KeyError, NotImplementedError, EOFError, zipfile.BadZipFile) as error:
            raise FormatError(f"{self.path}: not a checkpoint ({type(error).__name__} when reading it)") from None
        if str(parts.pop("format", "")) != _FORMAT:
            raise FormatError(f"{self.path}: not a checkpoint of this version")
        if str(parts.pop("key", "")) != self.key:
            raise FormatError(f"{self.path}: the checkpoint belongs to a run with another model, seed or options")
        if parts.pop("names", np.array(None)).tolist() != sorted(parts):  # sums protect the arrays, not their names
            raise FormatError(f"{self.path}: the checkpoint is damaged")
        return parts

    def save(self, arrays: dict[str, NDArray[Any]], *, now: bool = False) -> None:
        """Replace the file if it is old enough, or at once."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        buffer = io.BytesIO()
        head = {"format": np.array(_FORMAT), "key": np.array(self.key), "names": np.array(sorted(arrays))}
        np.savez(buffer, **head, **arrays)  # type: ignore[arg-type]
        with atomic_write(self.path, binary=True) as stream:
            stream.write(buffer.getvalue())
        self.last = time.monotonic()
