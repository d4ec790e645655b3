"""Checkpoints: all that is needed to go on, in one file that is replaced whole or not at all.

A line has the name and version of the format and the SHA-256 sum of what follows: arrays in NumPy's npz format.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._memory import available_memory
from fastmix.errors import FormatError

__all__ = ["Checkpoint"]

_FORMAT, _VERSION = b"fastmix checkpoint", 2


class Checkpoint:
    """A checkpoint file of one run, read and verified at once if it exists; ``seed`` is that of the run in it.

    ``seconds`` is the least time between two writes. A file that is not a checkpoint, of another version or damaged is
    a :class:`FormatError`; a folder that does not exist a FileNotFoundError, now and not after the first half minute.
    """

    def __init__(self, path: str, seconds: float) -> None:
        self.path, self.seconds = path, seconds
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", folder)
        self._found = self._read() if os.path.exists(path) else None
        self.seed = None if self._found is None else int(self._found["seed"])
        self._head: dict[str, NDArray[Any]] = {}
        self.last = time.monotonic()

    def resume(self, options: str, seed: int) -> dict[str, NDArray[Any]] | None:
        """What was saved, or None if there is no file yet; ``options`` is all else that determines the run.

        A :class:`FormatError` if the file is of a run with another seed or other options.
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
        parts, self._found = self._found, None
        return {name: array for name, array in parts.items() if name not in self._head}

    def save(self, arrays: dict[str, NDArray[Any]], *, now: bool = False) -> None:
        """Replace the file if it is old enough, or at once."""
        if not now and time.monotonic() - self.last < self.seconds:
            return
        buffer = io.BytesIO()
        np.savez(buffer, **self._head, **arrays)  # type: ignore[arg-type]
        content = buffer.getvalue()
        from fastmix.io.files import atomic_write  # readers of formats are slow to load

        with atomic_write(self.path, binary=True) as stream:
            stream.write(b"%s %d %s\n" % (_FORMAT, _VERSION, hashlib.sha256(content).hexdigest().encode()))
            stream.write(content)
        self.last = time.monotonic()

    def _read(self) -> dict[str, NDArray[Any]]:
        from fastmix.io.files import read_bytes

        # What atomic_write compresses for the sake of its name is read back in the same way.
        line, _, content = read_bytes(self.path, max(1, available_memory() // 2)).partition(b"\n")
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
            with np.load(io.BytesIO(content), allow_pickle=False) as data:
                parts = dict(data)
            int(parts["seed"]), parts["key"]
        except Exception:  # where the sum is right, somebody made this: whatever goes wrong, it is no checkpoint
            raise FormatError(f"{self.path}: the checkpoint is damaged; remove the file to begin anew") from None
        return parts
