"""The files of an experiment: a row per trial and method, only ever appended to, and the settings of the last run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from fastmix._locks import lock_file
from fastmix.errors import FormatError
from fastmix.experiments.plan import Experiment, Row, Settings, canonical
from fastmix.io.files import atomic_write, display_name

__all__ = ["Journal", "blaming", "completed_rows", "read_settings", "write_settings"]

_ROW: dict[str, tuple[type, ...]] = {
    "key": (str,), "method": (str,), "trial": (int,), "parameters": (dict,), "facts": (dict,), "trace": (list,),
    "failure": (str, type(None)), "error": (int, float, type(None)),
}  # fmt: skip
_SECONDS: dict[str, tuple[type, ...]] = {"key": (str,), "seconds": (dict,)}


class Journal:
    """Rows of one experiment on disk, one JSON object a line.

    ``NAME.jsonl`` holds what a seed determines: the same bytes, whatever the number of workers and however often a
    run was killed. ``NAME.seconds.jsonl`` holds what it took, by the key of the row, and is written first, so that no
    row lacks its seconds; a line cut short by a kill is removed when the file is next opened.
    """

    def __init__(self, folder: str | os.PathLike[str], name: str) -> None:
        self.path = Path(folder) / f"{name}.jsonl"
        self.seconds_path = Path(folder) / f"{name}.seconds.jsonl"

    def read(self) -> list[Row]:
        """All complete rows with their seconds; a :class:`FormatError` for a line that is none, and not cut short."""
        seconds = {line["key"]: line["seconds"] for line in _lines(self.seconds_path, _SECONDS)}
        return [{**row, "seconds": seconds.get(row["key"], {})} for row in _lines(self.path, _ROW)]

    def repair(self) -> None:
        """Remove what a kill has left of a last line; to be called after :meth:`read`, which knows our files."""
        for path in (self.path, self.seconds_path):
            if path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows with their seconds, and wait until they are on the disk."""
        _append(self.seconds_path, ({"key": row["key"], "seconds": row["seconds"]} for row in rows))
        _append(self.path, ({name: value for name, value in row.items() if name != "seconds"} for row in rows))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other runs away from the file while this one adds to it; a :class:`ValueError` if another has it.

        Where files have no locks, two runs at once are up to the user.
        """
        with open(self.path, "ab") as stream:
            if lock_file(stream.fileno()) is False:
                raise ValueError(f"output is in use: another run is writing {self.path.name} there")
            yield


def _append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a file, one a line, and wait until they are on the disk."""
    with open(path, "ab") as stream:
        stream.write("".join(canonical(row) + "\n" for row in rows).encode())
        stream.flush()
        os.fsync(stream.fileno())


def _lines(path: Path, fields: Mapping[str, tuple[type, ...]]) -> Iterator[Row]:
    """Objects with these fields, one a line, but for a last one that a kill cut short."""
    if not path.exists():
        return
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            whole = line.endswith(b"\n")
            with blaming(f"{path}:{number}", "a row of an experiment"):
                try:
                    row = json.loads(line)
                except ValueError:
                    if whole or not b'{"'.startswith(line[:2]):  # as our lines begin
                        raise
                    return
                for name, types in fields.items():
                    if not isinstance(row[name], types):
                        raise TypeError(f"{name} must be {types[0].__name__}, got {type(row[name]).__name__}")
            if whole:
                yield row


@contextlib.contextmanager
def blaming(path: str | os.PathLike[str], what: str) -> Iterator[None]:
    """A context in which what fails is a :class:`FormatError` of a file that has a name of ours, and is not ours."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError) as error:
        raise FormatError(f"{display_name(path)}: not {what} ({type(error).__name__}: {error})") from error


def completed_rows(folder: Path, experiment: Experiment, settings: Settings) -> tuple[list[Row], int]:
    """Rows of an experiment that belong to these settings, in the order of its plan, and how many there are in it."""
    known = {row["key"]: row for row in Journal(folder, experiment.name).read()}
    try:
        planned = [key for case in experiment.cases(settings) for key in case.row_keys()]
    except (OSError, ImportError, ValueError):  # the photographs are no longer there: show what there is of them
        planned = list(known)
    return [known[key] for key in planned if key in known], len(planned)


def read_settings(folder: Path, experiment: Experiment) -> tuple[Settings, dict[str, str], str] | None:
    """Settings of the last run of an experiment in a folder, its machine and when it began; None without a run."""
    path = folder / f"{experiment.name}.settings.json"
    if not path.exists():
        return None
    with blaming(path, "the settings of an experiment"):
        facts = json.loads(path.read_bytes())
        settings = Settings(**facts["settings"])
        experiment.calls(settings)
        if not isinstance(settings.images, str | None):
            raise TypeError(f"images must be a name, got {settings.images!r}")
        return settings, {str(name): str(value) for name, value in facts["machine"].items()}, str(facts["started"])


def write_settings(folder: Path, experiment: Experiment, settings: Settings, machine: Mapping[str, str]) -> None:
    """Write what the report needs to know about the last run of an experiment."""
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    with atomic_write(folder / f"{experiment.name}.settings.json") as stream:
        json.dump({"settings": asdict(settings), "machine": dict(machine), "started": started}, stream, indent=1)
