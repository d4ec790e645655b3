"""``Registry``: what users can ask for by name, whether it is of this package, of a script, or of another package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastmix._checks import describe

__all__ = ["REGISTRIES", "Registry"]

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Entries by their ``name``, in the order in which they were added.

    A package that declares an entry point of the group, under the name of its entry, need not be imported first: it is
    loaded when that name is asked for, in Python or on the command line.

    Parameters
    ----------
    kind : str
        What an entry is called in messages, such as ``method``.
    group : str
        The group of entry points, such as ``fastmix.methods``.
    reserved : sequence of str
        Names that no entry may have.
    """

    def __init__(self, kind: str, group: str, *, reserved: Sequence[str] = ()) -> None:
        self.kind = kind
        self.group = group
        self.reserved = tuple(reserved)
        self.entries: dict[str, T] = {}
        REGISTRIES.append(self)

    def add(self, entry: T) -> T:
        """The entry itself, once it is known by its name.

        A class that is defined again, as in a notebook, takes the place of the one before.

        Raises
        ------
        TypeError
            If it has no name.
        ValueError
            If another entry has the name.
        """
        name = getattr(entry, "name", None)
        if not isinstance(name, str) or not name:
            raise TypeError(f"a {self.kind} must have a name, got {describe(entry)}")
        is_taken = name in self.entries and _definition(self.entries[name]) != _definition(entry)
        if is_taken or name in self.reserved:
            raise ValueError(f"name must be one that no other {self.kind} has, got {name!r}")
        self.entries[name] = entry
        return entry

    def find(self, name: object) -> T | None:
        """The entry with a name, from another package where that has one; None where there is none."""
        if not isinstance(name, str) or name in self.reserved:  # looking for a package takes milliseconds
            return None
        if name not in self.entries:
            from importlib.metadata import entry_points

            for entry in entry_points(group=self.group, name=name):
                self.add(entry.load())
        return self.entries.get(name)

    def __getitem__(self, name: str) -> T:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


#: All registries of the modules that are loaded, so that tests can put them back as they were.
REGISTRIES: list[Registry[Any]] = []


def _definition(entry: object) -> str:
    """Where a class, or the class of an object, is defined."""
    kind = entry if isinstance(entry, type) else type(entry)
    return f"{kind.__module__}.{kind.__qualname__}"
