"""The file of an experiment: a row per trial and method, only ever appended to."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastmix.errors import FormatError
from fastmix.experiments.plan import Row, canonical
from fastmix.io.files import display_name

__all__ = ["Journal"]

_ROW: dict[str, tuple[type, ...]] = {
    "key": (str,), "method": (str,), "trial": (int,), "parameters": (dict,), "facts": (dict,), "trace": (list,),
    "failure": (str, type(None)), "error": (int, float, type(None)),
}  # fmt: skip
_SECONDS: dict[str, tuple[type, ...]] = {"key": (str,), "seconds": (dict,)}


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
    ...     row = {"key": "a", "method": "gibbs", "trial": 0, "parameters": {}, "facts": {}, "trace": []}
    ...     journal.append([({**row, "failure": None, "error": 0.5}, {"total": 1.0})])
    ...     journal.read()[0]["seconds"]
    {'total': 1.0}
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        self.seconds_path = Path(folder) / f"{name}.seconds.jsonl"

    def read(self) -> list[Row]:
        """All complete rows with their seconds, in the order of the file.

        Raises
        ------
        FormatError
            If a line is not a row, and was not merely cut short.
        """
        seconds = {line["key"]: line["seconds"] for line in _lines(self.seconds_path, _SECONDS)}
        return [{**row, "seconds": seconds.get(row["key"], {})} for row in _lines(self.path, _ROW)]

    def repair(self) -> None:
        """Remove what a kill has left of a last line; to be called after :meth:`read`, which knows our files."""
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


def _lines(path: Path, fields: Mapping[str, tuple[type, ...]]) -> Iterator[Row]:
    """Objects with these fields, one a line, but for a last one that a kill cut short."""
    if not path.exists():
        return
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            whole = line.endswith(b"\n")
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                if not whole and b'{"'.startswith(line[:2]):  # as our lines begin
                    return
                raise _foreign(path, number, str(error)) from error
            if not isinstance(row, dict):
                raise _foreign(path, number, f"got {type(row).__name__}")
            for name, types in fields.items():
                if not isinstance(row.get(name, ...), types):
                    got = "nothing" if name not in row else type(row[name]).__name__
                    raise _foreign(path, number, f"{name} must be {types[0].__name__}, got {got}")
            if whole:
                yield row


def _foreign(path: Path, number: int, reason: str) -> FormatError:
    return FormatError(f"{display_name(path)}:{number}: not a row of an experiment: {reason}")


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
