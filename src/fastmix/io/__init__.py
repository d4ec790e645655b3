"""Models, evidence and answers in files.

Every reader takes plain, gzip and xz files and ``-`` for the standard input, every writer makes files that appear whole
or not at all. A format of models is one :class:`Format`; :func:`register_format` makes another one known.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

from fastmix._checks import as_path, describe, show_path
from fastmix.errors import FormatError
from fastmix.io import bif, ergo, npz, qubo, rudy, uai, xmlbif
from fastmix.io.answers import register_answer, write_answer
from fastmix.io.competition import read_mar, read_mpe, read_pr, write_mar, write_mpe, write_pr
from fastmix.io.evidence import read_evidence, write_evidence
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.model import MarkovRandomField, check_model
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
        Name of the format in messages and help texts.
    suffixes : tuple of str
        Ends of file names that choose the format for writing, in lower case. A format that writes compressed files
        lists their suffixes too, such as ``.uai.gz`` and ``.uai.xz``.
    read : callable ``(data, name, max_bytes) -> MarkovRandomField or BayesianNetwork``
        Returns the model in the unpacked content of a file. ``name`` is for messages; ``max_bytes`` is as for
        :func:`fastmix.io.read_model`. It raises a :class:`fastmix.FormatError` whose message begins with the name.
    write : callable ``(model, stream) -> list of str``, or None
        Writes bytes, and returns notes on what other programs will not read from them. None for formats that hold
        Bayesian networks only.
    matches : callable ``(data) -> bool``
        Returns whether the content of a file is in this format, by its first bytes.

    Examples
    --------
    >>> [(format.name, format.suffixes[0]) for format in formats()]
    [('UAI', '.uai'), ('npz', '.npz'), ('BIF', '.bif'), ('XMLBIF', '.bifxml'), ('rudy', '.rudy'), ('QUBO', '.qubo'),
     ('Ergo', '.erg')]
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes, str, float | None], MarkovRandomField | BayesianNetwork]
    write: Callable[[MarkovRandomField, BinaryIO], list[str]] | None
    matches: Callable[[bytes], bool]


_UAI_WORDS = (b"MARKOV", b"BAYES")
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # first bytes of a zip archive, and of an empty one
# Content that no other format claims is read as UAI, whose reader complains about the first word.
FORMATS = [
    Format("UAI", (".uai", ".uai.gz", ".uai.xz"), uai.read, uai.write, lambda _data: True),
    Format("npz", (".npz",), npz.read, npz.write, lambda data: data.startswith(_ZIP)),
    Format("BIF", (".bif",), bif.parse_bif, None, bif.is_bif),
    Format("XMLBIF", (".bifxml", ".xmlbif"), xmlbif.parse_xmlbif, None, xmlbif.is_xmlbif),
    Format("rudy", (".rudy", ".rud"), rudy.read, None, rudy.is_rudy),
    Format("QUBO", (".qubo",), qubo.read, qubo.write, qubo.is_qubo),
    Format("Ergo", (".erg",), ergo.read, None, ergo.is_ergo),
]


def register_format(new: Format) -> Format:
    """Make a format known to :func:`fastmix.io.read_model`, :func:`fastmix.io.write_model` and the command line.

    A package that declares an entry point of the group ``fastmix.formats`` need not be imported first: it is loaded for
    a file that no other format claims.

    Returns
    -------
    Format
        The format itself.

    Raises
    ------
    ValueError
        If another format has this name or one of these suffixes.

    Notes
    -----
    The content of a file is offered to the latest format first. Content that no format claims is read in the format of
    the file's suffix, which says what is wrong with it, or as UAI.
    """
    if not isinstance(new, Format):
        raise TypeError(f"new must be a Format, got {describe(new)}")
    for known in FORMATS:
        if known.name == new.name or set(known.suffixes) & set(new.suffixes):
            raise ValueError(f"a format must have a name and suffixes of its own, got {new.name!r}, {new.suffixes}")
    FORMATS.append(new)
    return new


@cache
def _load_formats() -> None:
    """Make the formats of other packages known, once."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="fastmix.formats"):
        found = entry.load()
        if found not in FORMATS:  # a package may have registered it while it was loaded
            register_format(found)


def formats() -> tuple[Format, ...]:
    """Formats that are known, UAI first."""
    return tuple(FORMATS)


def format_of(path: PathLike) -> Format:
    """Format that the end of a file's name chooses for writing; UAI for ``-``."""
    name = as_path("path", path)
    if name == "-":
        return FORMATS[0]
    found = _writable_format(name)
    if found is None:
        _load_formats()
        found = _writable_format(name)
    if found is not None:
        return found
    raise ValueError(f"the path of a model file must end in {suffix_list()}, got {show_path(name)}")


def _writable_format(name: str) -> Format | None:
    """The first of the known formats that is written under the end of a file's name."""
    writable = [known for known in FORMATS if known.write is not None]
    return next((known for known in writable if name.lower().endswith(known.suffixes)), None)


def format_names() -> str:
    """Names of all formats as a phrase for help texts, such as "UAI, npz, .. or Ergo"."""
    *most, last = (known.name for known in FORMATS)
    return f"{', '.join(most)} or {last}"


def suffix_list() -> str:
    """Suffixes of all formats that models are written in, as a phrase such as ".uai, .npz or .qubo"."""
    writable = [known for known in FORMATS if known.write is not None]
    *most, last = (suffix for known in writable for suffix in known.suffixes)
    return f"{', '.join(most)} or {last}"


def read_model(path: PathLike, *, max_bytes: float | None = None) -> MarkovRandomField:
    """Model in a file of any known format (UAI, npz, BIF, XMLBIF, rudy, QUBO, Ergo), told apart by content.

    Parameters
    ----------
    path : str or path-like
        ``-`` is the standard input.
    max_bytes : float, optional
        Refuse a file that holds more, unpacked: a few kilobytes of gzip can stand for gigabytes. The default is the
        environment variable ``FASTMIX_MAX_BYTES`` (such as ``8GiB``), else an eighth of the free memory.

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
    """Bayesian network in a BIF, XMLBIF or Ergo file, or in a UAI file that begins with ``BAYES``.

    Unlike a model, a network knows the parents of each variable. The formats are told apart by content.

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
    """Bayesian network in a file that holds one, else the model in the file.

    ``patience`` is the number of seconds to wait until somebody writes to a named pipe; None waits without end.
    """
    data = read_bytes(path, max_bytes, patience)
    name = display_name(path)
    return _format_of_content(data, name).read(data, name, max_bytes)


def _format_of_content(data: bytes, name: str) -> Format:
    """The format that claims the content of a file, from another package if need be; where none does, that of its name.

    The reader of that format then says what is wrong with the file. It is UAI if the name has no suffix of a format.
    """
    found = _claiming_format(data)
    if found is None and not data[:64].lstrip().upper().startswith(_UAI_WORDS):
        _load_formats()
        unpacked = re.sub(r"\.(gz|xz|bz2)$", "", name.lower())
        named = (known for known in FORMATS if unpacked.endswith(known.suffixes))
        found = _claiming_format(data) or next(named, None)
    return FORMATS[0] if found is None else found


def _claiming_format(data: bytes) -> Format | None:
    """The latest of the known formats, other than UAI, that claims the content of a file."""
    others = FORMATS[1:]
    return next((known for known in reversed(others) if known.matches(data)), None)


def write_model(model: MarkovRandomField, path: PathLike) -> list[str]:
    """Write a model in the format that the suffix names; return notes on what other programs will not read.

    Parameters
    ----------
    model : MarkovRandomField
    path : str or path-like
        ``.uai``, ``.uai.gz``, ``.uai.xz``, ``.npz`` (exact: reading gives an equal model, bit for bit) or ``.qubo``
        (binary variables and pairs), or the suffix of a registered format. ``-`` writes UAI text to the standard
        output.

    Returns
    -------
    list of str
        One line each, also logged as a warning. The list is empty for npz files, and for UAI files that every program
        reads as the same model. There are notes on names, which UAI files lose, on a constant outside the range of
        doubles, which is split, and on entries so small beside others of their table that other programs read them as
        0.

    Raises
    ------
    ValueError
        If the suffix names no format.
    ModelError
        If the format cannot hold the model: a table that forbids every pair of states in a UAI file, more than two
        states, larger factors or -inf in a QUBO file.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_model(MarkovRandomField.ising([(0, 1)], coupling=0.5), "two.txt")
    Traceback (most recent call last):
        ...
    ValueError: the path of a model file must end in .uai, .uai.gz, .uai.xz, .npz or .qubo, got 'two.txt'
    """
    check_model(model)
    chosen = format_of(path)
    with atomic_write(path, binary=True) as stream:
        assert chosen.write is not None
        return chosen.write(model, stream)
