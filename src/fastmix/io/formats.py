"""The registry of formats: each is one :class:`Format` in a file of its own, here or outside of the package."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from fastmix.io.files import PathLike
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["Format", "format_names", "format_of", "formats", "register_format", "suffix_list"]


@dataclass(frozen=True)
class Format:
    """A format of model files.

    Parameters
    ----------
    name : str
        As people call it.
    suffixes : tuple of str
        Ends of file names that choose it for writing, in lower case; those of compressed files, ``.gz`` and ``.xz``,
        must be among them if they are meant to.
    read : callable ``(data, name, max_bytes) -> MarkovRandomField or BayesianNetwork``
        The model in the unpacked content of a file; ``name`` is for messages, ``max_bytes`` as for
        :func:`fastmix.io.read_model`. It raises a :class:`fastmix.FormatError` whose message begins with the name.
    write : callable ``(model, stream) -> list of str``, or None
        Writes bytes; what other programs will not read from them comes back as notes. None for formats that only hold
        Bayesian networks.
    matches : callable ``(data) -> bool``
        Whether the content of a file is in this format, by its first bytes.

    Examples
    --------
    >>> [(format.name, format.suffixes[0]) for format in formats()]
    [('UAI', '.uai'), ('npz', '.npz'), ('BIF', '.bif'), ('XMLBIF', '.bifxml')]
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes, str, float | None], MarkovRandomField | BayesianNetwork]
    write: Callable[[MarkovRandomField, BinaryIO], list[str]] | None
    matches: Callable[[bytes], bool]


_FORMATS: list[Format] = []


def register_format(new: Format) -> None:
    """Make a format known to :func:`fastmix.io.read_model`, :func:`fastmix.io.write_model` and the command line.

    Raises
    ------
    ValueError
        If its name or a suffix is taken.

    Notes
    -----
    Content is offered to the latest format first; what none of them claims is read in the first, UAI.
    """
    for known in _FORMATS:
        if known.name == new.name or set(known.suffixes) & set(new.suffixes):
            raise ValueError(f"a format must have a name and suffixes of its own, got {new.name!r}, {new.suffixes}")
    _FORMATS.append(new)


def formats() -> tuple[Format, ...]:
    """All formats that are known, UAI first."""
    return tuple(_FORMATS)


def format_of(path: PathLike) -> Format:
    """The format that the end of a file's name chooses for writing; the first, UAI, for ``-``."""
    name = os.fspath(path)
    if name == "-":
        return _FORMATS[0]
    for known in _FORMATS:
        if known.write is not None and name.lower().endswith(known.suffixes):
            return known
    raise ValueError(f"the name of a model file must end in {suffix_list()}, got {name!r}")


def format_names() -> str:
    """The names of all formats in a sentence, for help texts: UAI, npz, BIF or XMLBIF."""
    *most, last = (known.name for known in _FORMATS)
    return f"{', '.join(most)} or {last}"


def suffix_list() -> str:
    """The suffixes of all formats that models are written in, in a sentence."""
    *most, last = (suffix for known in _FORMATS if known.write is not None for suffix in known.suffixes)
    return f"{', '.join(most)} or {last}"
