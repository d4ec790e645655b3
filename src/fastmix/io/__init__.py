"""Models, evidence and answers in files.

Every reader takes plain, gzip and xz files and ``-`` for the standard input, every writer makes files that appear whole
or not at all. A format of models is one :class:`Format`; :func:`register_format` makes another one known.
"""

# ruff: noqa: I001
from __future__ import annotations

import logging

from fastmix.errors import FormatError
from fastmix.io import bif, npz, uai, xmlbif
from fastmix.io.answers import (
    read_evidence, read_mar, read_mpe, read_pr, register_answer, write_answer, write_evidence, write_mar, write_mpe,
    write_pr,
)  # fmt: skip
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.io.formats import Format, format_of, formats, register_format
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = [
    "Format", "atomic_write", "format_of", "formats", "read_evidence", "read_mar", "read_model",
    "read_model_or_network", "read_mpe", "read_network", "read_pr", "register_answer", "register_format",
    "write_answer", "write_evidence", "write_mar", "write_model", "write_mpe", "write_pr",
]  # fmt: skip

register_format(uai.FORMAT)
register_format(npz.FORMAT)
register_format(bif.FORMAT)
register_format(xmlbif.FORMAT)
# Notes come back from the writers as well: without this they would also appear on stderr when nobody set up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def read_model(path: PathLike, *, max_bytes: float | None = None) -> MarkovRandomField:
    """The model in a UAI, npz, BIF or XMLBIF file, or one of a registered format, told apart by content.

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
    """The Bayesian network in a BIF or XMLBIF file, told apart by content; for what a model does not keep: parents.

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
        raise FormatError(f"{display_name(path)}:1: expected a Bayesian network, which BIF and XMLBIF files hold")
    return found


def read_model_or_network(path: PathLike, *, max_bytes: float | None = None) -> MarkovRandomField | BayesianNetwork:
    """The Bayesian network in a file that holds one, else its model."""
    data, known = read_bytes(path, max_bytes), formats()
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
    ValueError: the name of a model file must end in .uai, .uai.gz, .uai.xz or .npz, got 'two.txt'
    """
    chosen = format_of(path)
    with atomic_write(path, binary=True) as stream:
        assert chosen.write is not None
        return chosen.write(model, stream)
