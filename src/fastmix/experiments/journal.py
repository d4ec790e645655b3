"""The file of an experiment: a row per trial and method, only ever appended to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastmix.errors import FormatError
from fastmix.experiments.plan import Row, canonical

__all__ = ["Journal"]


class Journal:
    """Rows of one experiment on disk, one JSON object a line.

    ``NAME.jsonl`` holds what a seed determines: it is the same, byte by byte, whatever the number of workers and
    however often the run was killed. ``NAME.seconds.jsonl`` holds what it took, by the key of the row. A line is
    written to the second file first, so that a row never lacks its seconds; a line cut short by a kill is removed when
    the file is next opened.

    Parameters
    ----------
    folder : path
    name : str
        Of the experiment.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(folder, "example")
    ...     journal.append([({"key": "a", "error": 0.5}, {"total": 1.0})])
    ...     journal.read()
    [{'error': 0.5, 'key': 'a', 'seconds': {'total': 1.0}}]
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        self.seconds_path = Path(folder) / f"{name}.seconds.jsonl"

    def read(self) -> list[Row]:
        """All complete rows with their seconds, in the order of the file.

        Raises
        ------
        FormatError
            If a line is not an object with a key, and was not merely cut short.
        """
        seconds = {line["key"]: line["seconds"] for line in _lines(self.seconds_path) if "seconds" in line}
        return [{**row, "seconds": seconds.get(row["key"], {})} for row in _lines(self.path)]

    def repair(self) -> None:
        """Remove what a kill has left of a last line."""
        for path in (self.path, self.seconds_path):
            if path.exists():
                whole = _whole_bytes(path)
                if whole < path.stat().st_size:
                    os.truncate(path, whole)

    def append(self, outcomes: Sequence[tuple[Row, dict[str, Any]]]) -> None:
        """Add rows with their seconds, and wait until they are on the disk."""
        _append(self.seconds_path, ({"key": row["key"], "seconds": seconds} for row, seconds in outcomes))
        _append(self.path, (row for row, _ in outcomes))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs away from the file while this one adds to it.

        Raises
        ------
        ValueError
            If another run has it.
        """
        try:
            import fcntl
        except ImportError:  # another system: two runs at once are up to the user there
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"output is in use: another run is writing {self.path.name} there") from None
            yield


def _append(path: Path, rows: Iterable[Row]) -> None:
    text = "".join(canonical(row) + "\n" for row in rows)
    with open(path, "ab") as stream:
        stream.write(text.encode())
        stream.flush()
        os.fsync(stream.fileno())


def _lines(path: Path) -> Iterator[Row]:
    if not path.exists():
        return
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.endswith(b"\n"):  # cut short by a kill
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FormatError(f"{path}:{number}: not a row of an experiment: {error}") from error
            if not isinstance(row, dict) or "key" not in row:
                raise FormatError(f"{path}:{number}: not a row of an experiment: it has no key")
            yield row


def _whole_bytes(path: Path) -> int:
    """Length of the file up to the end of its last complete line."""
    size = path.stat().st_size
    with open(path, "rb") as stream:
        end = size
        while end > 0:
            start = max(0, end - 65536)
            stream.seek(start)
            newline = stream.read(end - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            end = start
    return 0
