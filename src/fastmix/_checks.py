"""Checks of what users hand in: every message names the argument, what came and what is allowed."""

from __future__ import annotations

import contextlib
import importlib
import math
import operator
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import FastmixError, ModelError

__all__ = [
    "INSTALL_EXTRA", "as_array", "as_edges", "as_flat", "as_float_array", "as_index", "as_list", "as_names",
    "as_number", "as_path", "as_shape", "as_state_counts", "as_state_names", "as_text", "as_variable_names",
    "check_accuracy", "check_choice", "check_count", "check_flag", "check_log_values", "check_positive",
    "check_seconds", "check_seed", "check_share", "check_threads", "choose_seed", "count_processors", "describe",
    "is_whole", "keep_checked", "per_item", "require", "show_path",
]  # fmt: skip

# Log-potentials beyond this are refused: sums of as many as fit any memory, their differences and the squares of these
# are then all far inside the range of float64, 1.8e308.
_LARGEST = 1e100
_MOST_STATES = 2**31 - 1  # of a variable: the entries of a table, a product of two of these, fit 64 bits
_MOST_THREADS = 1024
_MOST_COUNTED = 2**63 - 1  # what arrays and kernels count with
_ITEM_BYTES = 40.0  # of a number in a list
_LARGEST_SEED = 2**128 - 1  # as many bits as NumPy's generators mix
_LONGEST_SHOWN = 60  # characters of a value in a message
_LONGEST_PATH = 300
_LONGEST_COMPARED = 200  # characters of a wrong name whose nearest right one is looked for
_NOT_NUMBERS = {"M": "dates", "m": "durations", "U": "text", "S": "text", "c": "complex numbers, which have no order"}
# How the libraries of an extra are installed: fastmix itself is on no index of packages.
INSTALL_EXTRA = "pip install '.[{extra}]' in the folder of fastmix's source"


def as_array(name: str, values: ArrayLike, rule: str) -> NDArray[Any]:
    """``values`` as an array; a :class:`ModelError` with the ``rule`` when they are ragged, or masked.

    A mask would be dropped in silence.
    """
    try:
        if np.ma.is_masked(values):
            raise ValueError("some entries are masked: fill them in first")
        return np.asarray(values)
    except Exception as error:  # objects of all kinds have a say in their conversion
        raise ModelError(f"{name} must {rule}, got {describe(values)} ({_shorten(str(error))})") from None


def as_float_array(name: str, values: ArrayLike) -> FloatArray:
    """``values`` as a new float64 array; a :class:`ModelError` that names the argument when they are not numbers."""
    array = as_array(name, values, "be an array of numbers")
    check_memory(8.0 * array.size, f"{name} of {array.size:,} numbers", "give a smaller array")
    try:
        if array.dtype.kind in _NOT_NUMBERS:  # NumPy would convert most of these in silence
            raise TypeError(f"these are {_NOT_NUMBERS[array.dtype.kind]}")
        if array.dtype.kind == "O":
            _refuse_hidden_text(array)
        with np.errstate(over="ignore"):  # of extended precision: infinite, which the checks of values see
            return np.array(array, dtype=np.float64)
    except Exception as error:  # those of the objects in an array, too
        raise ModelError(
            f"{name} must be an array of numbers, got {describe(values)} ({_shorten(str(error))})"
        ) from None


def _refuse_hidden_text(array: NDArray[Any]) -> None:
    """A TypeError for text among objects: NumPy would read it as numbers in silence."""
    for entry in array.flat:
        if isinstance(entry, str | bytes):
            raise TypeError(f"these are {_NOT_NUMBERS['U']}")


def is_whole(array: NDArray[Any]) -> bool:
    """Whether every entry can become an int64 without loss."""
    if array.dtype.kind in "ib":
        return True
    if array.dtype.kind == "u":
        return array.size == 0 or int(array.max()) < 2**63
    if array.dtype.kind != "f":
        return False
    if array.dtype.itemsize < 8:  # whose range the limit is beyond
        array = array.astype(np.float64)
    # The limit keeps infinities and what int64 cannot hold away from a cast.
    return bool(np.all((np.abs(array) < 2.0**62) & (array == np.floor(array))))


def as_edges(edges: ArrayLike, num_variables: int | None = None) -> IntArray:
    """``edges`` as an int64 array of shape (m, 2), checked for shape, whole numbers, range and self-edges."""
    array = as_array("edges", edges, "have shape (m, 2)")
    check_memory(8.0 * array.size, f"edges of {array.size:,} numbers", "give fewer edges")
    if array.shape in ((0,), (0, 2)):
        return np.zeros((0, 2), dtype=np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ModelError(f"edges must have shape (m, 2), got shape {array.shape}")
    if array.dtype.kind == "b" or not is_whole(array):
        raise ModelError(f"edges must hold integers, got {describe(edges)}")
    result = array.astype(np.int64)
    if (bad := result < 0).any() or (num_variables is not None and (bad := result >= num_variables).any()):
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        limit = "" if num_variables is None else f" and below the number of variables, {num_variables}"
        raise ModelError(f"edges must hold indices from 0{limit}; edge {row} is {tuple(result[row].tolist())}")
    if (loops := result[:, 0] == result[:, 1]).any():
        row = int(np.flatnonzero(loops)[0])
        raise ModelError(
            f"edges must join two different variables; edge {row} is {tuple(result[row].tolist())} "
            "(put terms of one variable into log_unary)"
        )
    return result


def check_log_values(name: str, values: FloatArray, where: str = "entry {}") -> None:
    """A :class:`ModelError` if ``values`` holds NaN, +inf or finite numbers so large that sums would overflow.

    ``where`` is filled with the flat index of the first.
    """
    # max() is +inf or NaN exactly when some entry is: two passes and no temporary unless something is forbidden.
    if values.size == 0 or (values.max() <= _LARGEST and values.min() >= -_LARGEST):
        return
    bad = ~((values >= -_LARGEST) & (values <= _LARGEST)) & (values != -np.inf)
    if not bad.any():
        return
    index = int(np.flatnonzero(bad)[0])
    raise ModelError(
        f"{name} must hold finite numbers or -inf, got {values.flat[index]} at {where.format(index)}; -inf is the log "
        f"of a forbidden state, finite ones are from {-_LARGEST:g} to {_LARGEST:g} so that sums do not overflow"
    )


def as_state_counts(values: ArrayLike) -> IntArray:
    """State counts as a checked int64 vector."""
    array = as_whole_numbers("num_states", values)
    if (bad := np.flatnonzero((array < 1) | (array > _MOST_STATES))).size:
        raise ModelError(f"num_states must be from 1 to {_MOST_STATES}, got {array[bad[0]]} for variable {bad[0]}")
    return array


def as_whole_numbers(name: str, values: ArrayLike) -> IntArray:
    """A new int64 vector."""
    array = as_array(name, values, "be a vector of whole numbers")
    check_memory(8.0 * array.size, f"{name} of {array.size:,} numbers", "give a smaller array")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ModelError(f"{name} must be a vector of whole numbers, got shape {array.shape}, {array.dtype}")
    return array.astype(np.int64)


def as_flat(name: str, values: ArrayLike, length: int, source: str) -> FloatArray:
    """A new flat float64 array of the length that ``source`` demands, without NaN and +inf."""
    array = as_float_array(name, values)
    if array.shape != (length,):
        raise ModelError(f"{name} must have shape ({length},) to fit {source}, got shape {array.shape}")
    check_log_values(name, array)
    array += 0.0  # -0.0 becomes 0.0, so that equal models have equal hashes
    return array


def per_item(name: str, values: ArrayLike, count: int, item: str) -> FloatArray:
    """One finite number per item, from a number for all or a vector."""
    array = as_float_array(name, values)
    if array.ndim == 0:
        array = np.full(count, float(array))
    if array.shape != (count,):
        raise ModelError(f"{name} must be a number or one value per {item}, {count}, got shape {array.shape}")
    if not np.isfinite(array).all():
        k = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ModelError(f"{name} must be finite, got {array[k]} for {item} {k}")
    return array


def as_number(name: str, value: Any) -> float:
    """``value`` as a finite float, no larger than a log-potential may be."""
    array = as_float_array(name, value)
    if array.ndim != 0 or not np.isfinite(array):
        raise ModelError(f"{name} must be a finite number, got {describe(value)}")
    check_log_values(name, array, where="the only entry")
    return float(array)


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """Refuse a value that is not among the allowed ones."""
    if not isinstance(value, str) or value not in allowed:  # arrays, and others, have no single truth value
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {describe(value)}")


def check_flag(name: str, value: Any) -> bool:
    """``value`` as a bool; other things have a truth value, too, which is hardly ever what was meant: ``"no"`` is true.

    Examples
    --------
    >>> check_flag("torus", np.True_)
    True
    >>> check_flag("torus", "no")
    Traceback (most recent call last):
    ValueError: torus must be True or False, got 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {describe(value)}")
    return bool(value)


def check_backend(backend: object) -> None:
    """Refuse what is no place for chains to run."""
    if not isinstance(backend, str) or backend not in ("cpu", "cuda", "auto"):
        raise ValueError(f"backend must be cpu, cuda or auto, got {describe(backend)}")


def check_accuracy(accuracy: Any) -> float:
    """``accuracy`` as a number between 0 and 1."""
    return check_share("accuracy", accuracy, least=1e-15)


def check_share(name: str, value: Any, *, least: float | None = None) -> float:
    """``value`` as a float from ``least`` to below 1; above 0 without it."""
    number = _as_real(value)
    if not (0.0 < number < 1.0 if least is None else least <= number < 1.0):
        rule = "from 0 to below 1" if least == 0.0 else "above 0 and below 1"
        least_one = f"; the least is {least:g}" if least else ""
        raise ValueError(f"{name} must be a number {rule}, got {describe(value)}{least_one}")
    return number


def check_count(
    name: str, value: Any, *, least: int, most: int | None = None, error: type[ValueError] = ValueError
) -> int:
    """``value`` as a whole number of at least ``least``, and at most ``most``.

    Use what comes back: NumPy's numbers would wrap where Python's grow.
    """
    return _as_count(name, value, least, most, _MOST_COUNTED, error)


def _as_count(
    name: str, value: Any, least: int, most: int | None, beyond: int, error: type[ValueError] = ValueError
) -> int:
    """:func:`check_count`, where ``beyond`` is a limit that no message mentions unless it is passed."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    largest = beyond if most is None else most
    if whole and least <= int(value) <= largest:
        return int(value)
    stated = most is not None or (whole and int(value) > beyond)
    limits = f"from {least} to {largest}" if stated else f"of at least {least}"
    raise error(f"{name} must be a whole number {limits}, got {describe(value)}")


def check_positive(
    name: str, value: Any, what: str = "number", *, or_zero: bool = False, most: float | None = None
) -> float:
    """``value`` as a positive finite float of at most ``most``, or 0 where that is allowed."""
    number = _as_real(value)
    allowed = 0.0 < number < math.inf or (or_zero and number == 0.0)
    if not allowed or (most is not None and number > most):
        rule = f"a {what} of at least 0" if or_zero else f"a positive {what}"
        if most is not None and number > most:  # which is no matter to others
            rule = f"{rule} and at most {most:g}"
        raise ValueError(f"{name} must be {rule}, got {describe(value)}")
    return number


def keep_checked(options: Any, **values: Any) -> None:
    """Put what the checks gave back into the fields of a frozen dataclass, in place of what was handed in."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


def _as_real(value: Any) -> float:
    """A real number as a float; NaN for anything else, also for truth values and for numbers beyond all floats."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool | np.timedelta64):
        return math.nan
    try:
        with np.errstate(over="ignore"):  # of extended precision
            return float(value)
    except OverflowError:
        return math.nan


def check_seconds(time_limit: Any) -> float | None:
    """``time_limit`` as a positive number of seconds; None is no limit."""
    return None if time_limit is None else check_positive("time_limit", time_limit, "number of seconds")


def check_seed(seed: Any) -> int:
    """``seed`` as a whole number from 0."""
    return _as_count("seed", seed, 0, None, _LARGEST_SEED)


def choose_seed(seed: Any) -> int:
    """``seed``, checked, or one from the operating system for callers that gave none."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    return check_seed(seed)


def check_threads(num_threads: Any) -> int:
    """``num_threads`` as a whole number from 1; all processors where None is given."""
    if num_threads is None:
        return count_processors()
    return check_count("num_threads", num_threads, least=1, most=_MOST_THREADS)


@cache
def count_processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def as_text(name: str, value: Any) -> str:
    """``value`` as text, which objects of all kinds have."""
    try:
        return str(value)
    except Exception:  # of whatever objects there are
        raise ModelError(f"{name} must be text, got {describe(value)}") from None


def as_path(name: str, path: Any) -> str:
    """``path`` as text that the system takes for the name of a file or folder."""
    if isinstance(path, str | os.PathLike):
        try:
            text = os.fspath(path)
            if isinstance(text, str) and "\0" not in os.fsencode(text).decode("latin-1"):
                return text
        except Exception as error:  # of whatever objects there are
            raise ValueError(f"{name} must be the name of a file, got {describe(path)}") from error
    kind = ValueError if isinstance(path, str) else TypeError
    raise kind(f"{name} must be the name of a file, as text or a path, got {describe(path)}")


def show_path(path: str) -> str:
    """A path for an error message: its end, which tells one from the other, where it is longer than paths are."""
    return repr(path if len(path) <= _LONGEST_PATH else f"..{path[-_LONGEST_PATH:]}")


def as_index(what: str, given: Any, names: Mapping[str, int], count: int) -> int:
    """Number of a variable or a state, from that number or its name."""
    if isinstance(given, str) and given in names:
        return names[given]
    with contextlib.suppress(Exception):  # of whatever objects there are
        # States are often called true and false, in any order: True is none of them, and not number 1.
        if not isinstance(given, bool | np.bool_) and 0 <= (index := operator.index(given)) < count:
            return index
    rule, hint = f"{what} must be a whole number from 0 to {count - 1}{' or a name' if names else ''}", ""
    if not count:
        rule = f"{what} must be one that there is, and there is none"
    if names and isinstance(given, str) and len(given) <= _LONGEST_COMPARED:
        from difflib import get_close_matches

        hint = f"; the nearest is {get_close_matches(given, list(names), 1, 0.0)[0]!r}"
    raise ModelError(f"{rule}, got {describe(given)}{hint}")


def as_variable_names(names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """Variable names as a tuple, one per variable, all different."""
    return None if names is None else as_names("variable_names", names, count, "variable")


def as_shape(shape: object, num_variables: int) -> tuple[int, ...] | None:
    """The shape of an array with one entry per variable."""
    if shape is None:
        return None
    try:
        sizes = tuple(operator.index(size) for size in shape)  # type: ignore[attr-defined]
    except Exception:  # of whatever objects there are
        raise ModelError(f"shape must be a tuple of whole numbers, got {describe(shape)}") from None
    if min(sizes, default=0) < 1 or math.prod(sizes) != num_variables:
        raise ModelError(f"shape must have one entry for each of the {num_variables} variables, got {sizes}")
    return sizes


def as_state_names(names: Sequence[Sequence[str]] | None, num_states: IntArray) -> tuple[tuple[str, ...], ...] | None:
    """State names as tuples, one per state, different within a variable."""
    if names is None:
        return None
    lists = as_list("state_names", names, "a list of lists of names")
    if len(lists) != len(num_states):
        raise ModelError(f"state_names must have one list per variable, {len(num_states)}, got {len(lists)}")
    counts = num_states.tolist()
    return tuple(as_names(f"state_names[{i}]", states, counts[i], "state") for i, states in enumerate(lists))


def as_list(name: str, values: Any, rule: str) -> list[Any]:
    """The items of an iterable that is no text, which would be taken letter by letter; a :class:`ModelError` else."""
    cause: Exception | None = None
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        try:
            check_memory(_ITEM_BYTES * operator.length_hint(values), name, "give a shorter one")
            return list(values)
        except FastmixError:  # of a generator of ours
            raise
        except Exception as error:  # of whatever objects there are
            cause = error
    raise ModelError(f"{name} must be {rule}, got {describe(values)}") from cause


def as_names(argument: str, names: Any, count: int, item: str) -> tuple[str, ...]:
    """Names as a tuple, one per item, all different."""
    given = as_list(argument, names, "a list of names")
    try:
        result = tuple(str(name) for name in given)
    except Exception:  # of whatever objects there are
        raise ModelError(f"{argument} must be a list of names, got {describe(names)}") from None
    if len(result) != count:
        raise ModelError(f"{argument} must have one name per {item}, {count}, got {len(result)}")
    if len(set(result)) < count:
        twice = Counter(result).most_common(1)[0][0]
        raise ModelError(f"{argument} must all be different, got {twice!r} more than once")
    return result


def describe(value: Any) -> str:
    """A short description of any value for an error message."""
    if isinstance(value, int) and value.bit_length() > 4 * _LONGEST_SHOWN:
        digits = 1 + int(math.log10(abs(value)))
        return f"a whole number of about {digits:,} digits"
    name = type(value).__name__
    kind = f"an {name}" if name[:1] in "aeiouAEIO" else f"a {name}"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be shown
        return kind
    return text if len(text) <= _LONGEST_SHOWN else kind


def _shorten(text: str) -> str:
    """The beginning of a text, on one line, for a message."""
    line = " ".join(text.split())
    return line if len(line) <= 3 * _LONGEST_SHOWN else f"{line[: 3 * _LONGEST_SHOWN]} .."


def require(module: str, *, extra: str, purpose: str, library: str | None = None) -> Any:
    """The module of that name; an :class:`ImportError` of one line that names the extra if it is not installed."""
    root = module.split(".")[0]
    try:
        importlib.import_module(root)  # a part that is loaded already says nothing about the whole
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != root:
            raise  # it is installed, and something it needs is not
        raise ImportError(f"{purpose} need {library or root}: {INSTALL_EXTRA.format(extra=extra)}", name=root) from None
