"""Models, evidence and answers in files.

Every reader takes plain, gzip and xz files and ``-`` for the standard input, every writer makes files that appear whole
or not at all. A format of models is one :class:`Format`; :func:`register_format` makes another one known.
"""

# ruff: noqa: I001
from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from fastmix._checks import as_path, describe, show_path
from fastmix.errors import FormatError
from fastmix.io import bif, ergo, npz, uai, xmlbif
from fastmix.io.answers import (
    read_evidence, read_mar, read_mpe, read_pr, register_answer, write_answer, write_evidence, write_mar, write_mpe,
    write_pr,
)  # fmt: skip
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.model import check_model, MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = [
    "Format", "atomic_write", "format_names", "format_of", "formats", "read_evidence", "read_mar", "read_model",
    "read_model_or_network", "read_mpe", "read_network", "read_pr", "register_answer", "register_format", "suffix_list",
    "write_answer", "write_evidence", "write_mar", "write_model", "write_mpe", "write_pr",
]  # fmt: skip

# Notes come back from the writers as well: without this they would also appear on stderr when nobody set up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())


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
    [('UAI', '.uai'), ('npz', '.npz'), ('BIF', '.bif'), ('XMLBIF', '.bifxml'), ('Ergo', '.erg')]
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes, str, float | None], MarkovRandomField | BayesianNetwork]
    write: Callable[[MarkovRandomField, BinaryIO], list[str]] | None
    matches: Callable[[bytes], bool]


# What no other format claims is read as UAI, for the message about its first word.
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_FORMATS = [
    Format("UAI", (".uai", ".uai.gz", ".uai.xz"), uai.read, uai.write, lambda _data: True),
    Format("npz", (".npz",), npz.read, npz.write, lambda data: data.startswith(_ZIP)),
    Format("BIF", (".bif",), bif.parse_bif, None, bif.is_bif),
    Format("XMLBIF", (".bifxml", ".xmlbif"), xmlbif.parse_xmlbif, None, xmlbif.is_xmlbif),
    Format("Ergo", (".erg",), ergo.read, None, ergo.is_ergo),
]


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
    if not isinstance(new, Format):
        raise TypeError(f"new must be a Format, got {describe(new)}")
    for known in _FORMATS:
        if known.name == new.name or set(known.suffixes) & set(new.suffixes):
            raise ValueError(f"a format must have a name and suffixes of its own, got {new.name!r}, {new.suffixes}")
    _FORMATS.append(new)


def formats() -> tuple[Format, ...]:
    """All formats that are known, UAI first."""
    return tuple(_FORMATS)


def format_of(path: PathLike) -> Format:
    """The format that the end of a file's name chooses for writing; the first, UAI, for ``-``."""
    name = as_path("path", path)
    if name == "-":
        return _FORMATS[0]
    for known in _FORMATS:
        if known.write is not None and name.lower().endswith(known.suffixes):
            return known
    raise ValueError(f"the path of a model file must end in {suffix_list()}, got {show_path(name)}")


def format_names() -> str:
    """The names of all formats in a sentence, for help texts: UAI, npz, BIF, XMLBIF or Ergo."""
    *most, last = (known.name for known in _FORMATS)
    return f"{', '.join(most)} or {last}"


def suffix_list() -> str:
    """The suffixes of all formats that models are written in, in a sentence."""
    *most, last = (suffix for known in _FORMATS if known.write is not None for suffix in known.suffixes)
    return f"{', '.join(most)} or {last}"


def read_model(path: PathLike, *, max_bytes: float | None = None) -> MarkovRandomField:
    """The model in a UAI, npz, BIF, XMLBIF or Ergo file, or one of a registered format, told apart by content.

    Parameters
    ----------
    path : str or path-like
        ``-`` is the standard input.
    max_bytes : float, optional
        Refuse a file that holds more, unpacked: a few kilobytes of gzip can stand for gigabytes. By default what the
        environment variable ``FASTMIX_MAX_BYTES`` says (such as ``8GiB``), or an eighth of the free memory.

    Raises
    ------
    FormatError
        If the file is in no known format; the message starts with ``path:line`` and holds the word that is wrong.
    ResourceError
        If the file holds more than ``max_bytes``, or more than there is memory for.
    OSError
        If the file cannot be read.

    Notes
    -----
    UAI: about a microsecond and 100 bytes of memory at the peak for each number in the file. npz: the file and the
    model; no object is unpickled.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.uai.xz")
    ...     notes = write_model(MarkovRandomField.ising([(0, 1)], coupling=0.5), path)
    ...     read_model(path)
    MarkovRandomField(2 variables of 2 states, 1 edge, log_constant=0.5)
    """
    found = read_model_or_network(path, max_bytes=max_bytes)
    return found.to_model() if isinstance(found, BayesianNetwork) else found


def read_network(path: PathLike, *, max_bytes: float | None = None) -> BayesianNetwork:
    """The Bayesian network in a file that holds one, told apart by content; for what a model does not keep: parents.

    BIF, XMLBIF and Ergo files hold one, and UAI files that begin with ``BAYES``.

    Parameters
    ----------
    path, max_bytes
        As for :func:`read_model`, which also raises the same errors.

    Examples
    --------
    >>> import os, tempfile
    >>> network = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.25, 0.75]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "coin.bif")
    ...     notes = bif.write_bif(network, path)
    ...     read_network(path).sample(5, seed=1).shape
    (5, 1)
    """
    found = read_model_or_network(path, max_bytes=max_bytes)
    if not isinstance(found, BayesianNetwork):
        raise FormatError(f"{display_name(path)}:1: expected a Bayesian network: BIF, XMLBIF, Ergo or UAI BAYES")
    return found


def read_model_or_network(
    path: PathLike, *, max_bytes: float | None = None, patience: float | None = None
) -> MarkovRandomField | BayesianNetwork:
    """The Bayesian network in a file that holds one, else its model; ``patience`` as for :func:`read_bytes`."""
    data, known = read_bytes(path, max_bytes, patience), formats()
    chosen = next((one for one in known[:0:-1] if one.matches(data)), known[0])
    return chosen.read(data, display_name(path), max_bytes)


def write_model(model: MarkovRandomField, path: PathLike) -> list[str]:
    """Write a model in the format that the suffix names; what others will not read from it comes back as notes.

    Parameters
    ----------
    model : MarkovRandomField
    path : str or path-like
        ``.uai``, ``.uai.gz``, ``.uai.xz`` or ``.npz`` (exact: reading gives an equal model, bit for bit), or the suffix
        of a registered format. ``-`` writes UAI text to the standard output.

    Returns
    -------
    list of str
        One line each, also logged as a warning. Empty for npz files, and for UAI files that every program reads as the
        same model; there are notes on names, which UAI files lose; on a constant outside the range of doubles, which is
        split; on entries so small beside others of their table that other programs read them as 0.

    Raises
    ------
    ValueError
        If the suffix names no format.
    ModelError
        If the model cannot be written as a UAI file: a table forbids every pair of states.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_model(MarkovRandomField.ising([(0, 1)], coupling=0.5), "two.txt")
    Traceback (most recent call last):
        ...
    ValueError: the path of a model file must end in .uai, .uai.gz, .uai.xz or .npz, got 'two.txt'
    """
    check_model(model)
    chosen = format_of(path)
    with atomic_write(path, binary=True) as stream:
        assert chosen.write is not None
        return chosen.write(model, stream)
