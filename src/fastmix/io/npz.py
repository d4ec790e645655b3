"""Models in NumPy's npz format: exact, compact, without pickles, the same bytes for the same model.

The archive holds the arrays of :class:`fastmix.MarkovRandomField` in little-endian 64-bit numbers, and ``header``, the
bytes of a JSON object with the name and version of the format and the names of variables and states. ``numpy.load``
opens it.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any, BinaryIO, NoReturn

import numpy as np

from fastmix._checks import describe
from fastmix.errors import FormatError, ModelError, ResourceError
from fastmix.io.files import check_content_size
from fastmix.model import MarkovRandomField, check_model

__all__ = ["read", "write"]

_FORMAT = "fastmix pairwise mrf"
# Member, element type and number of dimensions.
_PAIRS = {
    "header": ("|u1", 1),
    "num_states": ("<i8", 1),
    "log_unary": ("<f8", 1),
    "edges": ("<i8", 2),
    "log_pairwise": ("<f8", 1),
    "log_constant": ("<f8", 0),
}
_LARGER = {"scope_starts": ("<i8", 1), "scope_variables": ("<i8", 1), "log_factors": ("<f8", 1)}
_MEMBERS = {1: _PAIRS, 2: _PAIRS | _LARGER}  # by version: of models of pairs, and of those with larger factors
_NAMES = ("variable_names", "state_names", "shape")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold


def write(model: MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model, not compressed: 8 bytes per entry and 16 bytes per edge. There is nothing to note."""
    check_model(model)
    version = 1 + bool(model.num_factors)
    header = {"format": _FORMAT, "version": version, **{name: getattr(model, name) for name in _NAMES}}
    if model.shape is None:
        del header["shape"]
    members = _MEMBERS[version]
    arrays: dict[str, Any] = {name: getattr(model, name, None) for name in members}
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, (dtype, _) in members.items():
            # An own member header, because numpy.savez would put in the time of day.
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(info, "w", force_zip64=True) as member:
                array = np.asarray(arrays[name], dtype=dtype)
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return []


def read(data: bytes, name: str, max_bytes: float | None = None) -> MarkovRandomField:
    """The model in the content of an npz file."""
    header, arguments = _read_archive(data, name, max_bytes)
    arguments.update((key, header.get(key)) for key in _NAMES)
    try:
        return MarkovRandomField(**arguments)
    except ModelError as error:
        _fail(name, str(error))


def _read_archive(data: bytes, name: str, max_bytes: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header, whose version says what else there is to find, and the arrays."""
    # Reading is from memory, so that whatever goes wrong, in zipfile, zlib or the array headers, is a damaged file.
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = sorted(archive.namelist())
            # What a member claims is what zipfile reads of it at most.
            check_content_size(name, sum(member.file_size for member in archive.infolist()), max_bytes)
            header = _parse_header(_read_member(archive, name, "header"), name) if "header.npy" in found else {}
            members = _MEMBERS[header.get("version", 1)]
            if found != sorted(f"{member}.npy" for member in members):
                _fail(name, f"the arrays must be {', '.join(members)}, got {', '.join(found)[:200] or 'none'}")
            arrays = {member: _read_member(archive, name, member) for member in members if member != "header"}
    except (FormatError, ResourceError):
        raise
    except Exception as error:
        _fail(name, f"the archive is damaged ({type(error).__name__}: {error})")
    return header, arrays


def _parse_header(content: np.ndarray[Any, Any], name: str) -> dict[str, Any]:
    try:
        header = json.loads(content.tobytes())
    except (ValueError, RecursionError) as error:
        _fail(name, f"the header is not JSON ({error})")
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        _fail(name, f"the header does not name the format {_FORMAT!r}")
    if (version := header.get("version")) not in (1, 2):
        raise FormatError(
            f"{name}: a model file of version {describe(version)}, this fastmix reads version 1 and 2; "
            "write it again with the fastmix that reads it, as UAI for instance"
        )
    return header


def _read_member(archive: zipfile.ZipFile, name: str, member: str) -> np.ndarray[Any, Any]:
    kind, ndim = _MEMBERS[2][member]
    dtype, data = np.dtype(kind), archive.read(f"{member}.npy")
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        _fail(name, f"{member} must be an array in version 1.0 of the npy format")
    shape, fortran_order, found = np.lib.format.read_array_header_1_0(stream)
    if found != dtype or len(shape) != ndim:
        _fail(name, f"{member} must be a {ndim}-dimensional array of {dtype.str}, got shape {shape} of {found.str}")
    start = stream.tell()
    # Before anything is allocated: a header may claim any shape.
    if len(data) - start != math.prod(shape) * dtype.itemsize:
        _fail(name, f"{member} must hold as many numbers as its shape {shape} says")
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if fortran_order else "C")


def _fail(name: str, reason: str) -> NoReturn:
    raise FormatError(f"{name}: not a model file of fastmix: {reason}")
