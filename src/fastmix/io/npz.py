"""Models in NumPy's npz format: exact, compact, without pickles, the same bytes for the same model.

The archive holds the arrays of :class:`fastmix.MarkovRandomField` in little-endian 64-bit numbers, and ``header``, the
bytes of a JSON object with the name and version of the format and the names of variables and states. ``numpy.load``
opens it. A model of pairs is version 1, one with larger factors version 2, and one whose edges share tables version 3:
that holds the patterns, and for every edge the number of its pattern, whether it is turned, and its weights, in place
of ``log_pairwise``.
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
from fastmix.model.shared import SharedTables, TableUse

__all__ = ["read", "write"]

_FORMAT = "fastmix pairwise mrf"
# Element type and number of dimensions of the array in each member of the archive.
_PAIRS = {
    "header": ("|u1", 1),
    "num_states": ("<i8", 1),
    "log_unary": ("<f8", 1),
    "edges": ("<i8", 2),
    "log_pairwise": ("<f8", 1),
    "log_constant": ("<f8", 0),
}
_LARGER = {"scope_starts": ("<i8", 1), "scope_variables": ("<i8", 1), "log_factors": ("<f8", 1)}
_SHARED = {
    "pattern_shapes": ("<i8", 2),
    "patterns": ("<f8", 1),
    "pattern_of_edge": ("<i4", 1),
    "turned": ("|b1", 1),
    "weights": ("<f8", 1),
    "next_weights": ("<f8", 1),  # empty where no table lies between two patterns
}
# By version: models of pairs, models with larger factors, and models of pairs that share tables.
_MEMBERS = {
    1: _PAIRS,
    2: _PAIRS | _LARGER,
    3: {name: kind for name, kind in _PAIRS.items() if name != "log_pairwise"} | _SHARED,
}
_KINDS = _PAIRS | _LARGER | _SHARED
_NAMES = ("variable_names", "state_names", "shape")  # attributes of a model that stand in the header
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold


def write(model: MarkovRandomField, stream: BinaryIO) -> list[str]:
    """Write a model to a stream, not compressed; the list of notes that comes back is empty.

    The archive takes 8 bytes per entry and 16 bytes per edge, or 29 bytes per edge where tables are shared.
    """
    check_model(model)
    shared = model.shared_tables
    version = 1
    if model.num_factors:
        version = 2
    elif shared is not None:
        version = 3
    header: dict[str, Any] = {"format": _FORMAT, "version": version}
    for name in _NAMES:
        header[name] = getattr(model, name)
    if model.shape is None:
        del header["shape"]
    members = _MEMBERS[version]
    arrays: dict[str, Any] = {} if shared is None else _shared_arrays(shared)
    for name in members:
        if name not in arrays and name != "header":
            arrays[name] = getattr(model, name)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, (dtype, _) in members.items():
            # The member gets a header of ours, because numpy.savez would put the time of day into it.
            info = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(info, "w", force_zip64=True) as member:
                array = np.asarray(arrays[name], dtype=dtype)
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
    return []


def _shared_arrays(shared: SharedTables) -> dict[str, Any]:
    """The members of an archive that hold shared tables."""
    return {
        "pattern_shapes": shared.use.shapes,
        "patterns": shared.patterns,
        "pattern_of_edge": shared.use.of_edge,
        "turned": shared.use.turned,
        "weights": shared.weights,
        "next_weights": np.zeros(0) if shared.next_weights is None else shared.next_weights,
    }


def _take_shared(arguments: dict[str, Any]) -> None:
    """Replace the members that hold shared tables by the argument that the constructor of a model takes."""
    shapes, patterns, of_edge, turned, weights, following = (arguments.pop(name) for name in _SHARED)
    if (shapes < 1).any() or shapes.shape[1] != 2 or float(shapes.prod(axis=1, dtype=np.float64).sum()) > 2.0**62:
        raise ModelError("pattern_shapes must hold rows and columns, at least 1 each")
    counts = arguments["num_states"]
    edges = arguments["edges"]
    if edges.shape[1] != 2 or (edges.size and not 0 <= edges.min() <= edges.max() < len(counts)):
        raise ModelError(f"edges must hold pairs of variables from 0 to {len(counts) - 1}")
    use = TableUse.checked(shapes, of_edge, turned, counts[edges])
    arguments["shared_tables"] = SharedTables.checked(use, patterns, weights, following if len(following) else None)
    arguments["log_pairwise"] = ()


def read(data: bytes, name: str, max_bytes: float | None = None) -> MarkovRandomField:
    """Model in the content of an npz file; ``name`` is the name of the file, for messages."""
    header, arguments = _read_archive(data, name, max_bytes)
    for key in _NAMES:
        arguments[key] = header.get(key)
    try:
        if "patterns" in arguments:
            _take_shared(arguments)
        return MarkovRandomField(**arguments)
    except ModelError as error:
        _fail(name, str(error))


def _read_archive(data: bytes, name: str, max_bytes: float | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header of an archive, and its other arrays by name; the version in the header says which these are."""
    # The bytes are in memory, so that any error, of zipfile, zlib or the array headers, means that the file is damaged.
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            found = sorted(archive.namelist())
            # zipfile reads no more of a member than the size that it claims.
            claimed = sum(member.file_size for member in archive.infolist())
            check_content_size(name, claimed, max_bytes)
            header: dict[str, Any] = {}
            if "header.npy" in found:
                header = _parse_header(_read_member(archive, name, "header"), name)
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
    """Header of a model file as a dict, from its bytes; another format or an unknown version is refused."""
    try:
        header = json.loads(content.tobytes())
    except (ValueError, RecursionError) as error:
        _fail(name, f"the header is not JSON ({error})")
    if not isinstance(header, dict) or header.get("format") != _FORMAT:
        _fail(name, f"the header does not name the format {_FORMAT!r}")
    if (version := header.get("version")) not in tuple(_MEMBERS):
        raise FormatError(
            f"{name}: a model file of version {describe(version)}, this fastmix reads versions 1 to 3; "
            "write it again with the fastmix that reads it, as UAI for instance"
        )
    return header


def _read_member(archive: zipfile.ZipFile, name: str, member: str) -> np.ndarray[Any, Any]:
    """Array in a member of an archive, whose element type and number of dimensions must be those of the format."""
    kind, ndim = _KINDS[member]
    dtype = np.dtype(kind)
    data = archive.read(f"{member}.npy")
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        _fail(name, f"{member} must be an array in version 1.0 of the npy format")
    shape, fortran_order, found = np.lib.format.read_array_header_1_0(stream)
    if found != dtype or len(shape) != ndim:
        _fail(name, f"{member} must be a {ndim}-dimensional array of {dtype.str}, got shape {shape} of {found.str}")
    start = stream.tell()
    # A header may claim any shape, which is checked before anything is allocated.
    if len(data) - start != math.prod(shape) * dtype.itemsize:
        _fail(name, f"{member} must hold as many numbers as its shape {shape} says")
    return np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if fortran_order else "C")


def _fail(name: str, reason: str) -> NoReturn:
    """Raise a :class:`FormatError` that says why a file is no model file of this format."""
    raise FormatError(f"{name}: not a model file of fastmix: {reason}")
