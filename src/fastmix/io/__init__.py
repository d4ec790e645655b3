"""Models, evidence and answers in files.

:func:`read_model` and :func:`write_model` choose the format; the functions of each format are here as well. Every
reader takes plain, gzip and xz files and ``-`` for the standard input, every writer makes files that appear whole or
not at all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from fastmix.io.answers import read_mar, read_pr, write_mar, write_pr
from fastmix.io.evidence import parse_evidence, read_evidence, write_evidence
from fastmix.io.files import PathLike, atomic_write, display_name, read_bytes
from fastmix.io.npz import is_npz, load_npz, parse_npz, save_npz
from fastmix.io.uai import format_uai, parse_uai, read_uai, write_uai
from fastmix.model import MarkovRandomField

__all__ = [
    "atomic_write",
    "check_model_name",
    "format_uai",
    "load_npz",
    "parse_evidence",
    "parse_uai",
    "read_evidence",
    "read_mar",
    "read_model",
    "read_pr",
    "read_uai",
    "save_npz",
    "write_evidence",
    "write_mar",
    "write_model",
    "write_pr",
    "write_uai",
]

# Notes come back from the writers as well: without this they would also appear on stderr when nobody set up logging.
logging.getLogger(__name__).addHandler(logging.NullHandler())


def read_model(
    path: PathLike, evidence: Mapping[int, int] | None = None, *, max_bytes: float | None = None
) -> MarkovRandomField:
    """The model in a UAI or npz file, told apart by content.

    Parameters
    ----------
    path : str or path-like
        ``-`` is the standard input.
    evidence : mapping, optional
        Observed state by variable. It is used only to make factors of a UAI file over more than two variables
        pairwise, see :func:`read_uai`; the model still has every variable and is still to be conditioned.
    max_bytes : float, optional
        Refuse a file that holds more, unpacked: a few kilobytes of gzip can stand for gigabytes. By default what the
        environment variable ``FASTMIX_MAX_BYTES`` says (such as ``8GiB``), or an eighth of the free memory.

    Raises
    ------
    FormatError
        If the file is in neither format.
    ModelError
        If the evidence does not fit the model.
    UnfitMethodError
        If a UAI file has factors over more than two variables that the evidence leaves free.
    ResourceError
        If the file holds more than ``max_bytes``, or more than there is memory for.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "two.npz")
    ...     notes = write_model(MarkovRandomField.ising([(0, 1)], coupling=0.5), path)
    ...     read_model(path)
    MarkovRandomField(2 variables of 2 states, 1 edge)
    """
    data, name = read_bytes(path, max_bytes), display_name(path)
    if not is_npz(data):
        return parse_uai(data, name, evidence)
    model = parse_npz(data, name, max_bytes)
    for variable, state in (evidence or {}).items():
        model.state_index(variable, state)
    return model


def write_model(model: MarkovRandomField, path: PathLike) -> list[str]:
    """Write a model in the format that the suffix names; what others will not read from it comes back as notes.

    Parameters
    ----------
    model : MarkovRandomField
    path : str or path-like
        ``.uai``, ``.uai.gz``, ``.uai.xz`` (see :func:`write_uai`) or ``.npz`` (exact). ``-`` writes UAI text to the
        standard output.

    Returns
    -------
    list of str
        Empty for npz files, and for UAI files that every program reads as the same model.

    Raises
    ------
    ValueError
        If the suffix names no format.
    ModelError
        If the model cannot be written as a UAI file.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> write_model(MarkovRandomField.ising([(0, 1)], coupling=0.5), "two.txt")
    Traceback (most recent call last):
        ...
    ValueError: the name of a model file must end in .uai, .uai.gz, .uai.xz or .npz, got 'two.txt'
    """
    check_model_name(path)
    if os.fspath(path).lower().endswith(".npz"):
        save_npz(model, path)
        return []
    return write_uai(model, path)


def check_model_name(path: PathLike) -> None:
    """Raise the ValueError of :func:`write_model` if the suffix names no format."""
    name = os.fspath(path)
    if name != "-" and not name.lower().endswith((".uai", ".uai.gz", ".uai.xz", ".npz")):
        raise ValueError(f"the name of a model file must end in .uai, .uai.gz, .uai.xz or .npz, got {name!r}")
