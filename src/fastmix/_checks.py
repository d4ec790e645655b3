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
    "INSTALL_EXTRA",
    "MAX_COUNT",
    "MAX_LOG_VALUE",
    "MAX_STATES",
    "as_array",
    "as_edges",
    "as_flat",
    "as_float_array",
    "as_index",
    "as_list",
    "as_names",
    "as_number",
    "as_path",
    "as_shape",
    "as_state_counts",
    "as_state_names",
    "as_text",
    "as_variable_names",
    "as_whole_numbers",
    "check_accuracy",
    "check_backend",
    "check_choice",
    "check_count",
    "check_flag",
    "check_log_values",
    "check_positive",
    "check_seconds",
    "check_seed",
    "check_share",
    "check_threads",
    "choose_seed",
    "count_processors",
    "describe",
    "is_whole",
    "keep_checked",
    "per_item",
    "require",
    "show_path",
]

# -- limits on what users hand in: of number formats and memory, nothing that tunes -----------------------------------

#: Log-potentials beyond this are refused: sums of as many as fit any memory, their differences and the squares of these
#: are then all far inside the range of float64, 1.8e308.
MAX_LOG_VALUE = 1e100
#: States of a variable: the entries of a table, a product of two of these, fit 64 bits.
MAX_STATES = 2**31 - 1
#: Threads of one call.
MAX_THREADS = 1024
#: Whole numbers that arrays and kernels count with.
MAX_COUNT = 2**63 - 1
#: Seconds of a time limit, thirty thousand years; larger ones become this, so that plans stay finite.
MAX_SECONDS = 1e12
#: Seeds, of as many bits as NumPy's generators mix.
MAX_SEED = 2**128 - 1
#: Bytes that a number in a list takes.
LIST_ITEM_BYTES = 40.0

# -- lengths of texts in messages -------------------------------------------------------------------------------------

#: Characters of a value in a message.
MAX_SHOWN_LENGTH = 60
#: Characters of a path in a message.
MAX_PATH_LENGTH = 300
#: Characters of a wrong name whose nearest right one is looked for.
MAX_COMPARED_LENGTH = 200
#: Characters of all right names together that a message lists where none of them is near.
MAX_LISTED_LENGTH = 100

_NOT_NUMBERS = {"M": "dates", "m": "durations", "U": "text", "S": "text", "c": "complex numbers, which have no order"}
# How the libraries of an extra are installed: fastmix itself is on no index of packages.
INSTALL_EXTRA = "pip install '.[{extra}]' in the folder of fastmix's source"


def as_array(name: str, values: ArrayLike, rule: str) -> NDArray[Any]:
    """``values`` as an array; a :class:`ModelError` with the ``rule`` when they are ragged or masked."""
    try:
        if np.ma.is_masked(values):  # which NumPy would forget in silence
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
        with np.errstate(over="ignore"):  # extended precision becomes infinite, which the checks of values see
            return np.array(array, dtype=np.float64)
    except Exception as error:  # also errors of the objects in an array
        raise ModelError(
            f"{name} must be an array of numbers, got {describe(values)} ({_shorten(str(error))})"
        ) from None


def _refuse_hidden_text(array: NDArray[Any]) -> None:
    """Refuse text in an array of objects by a TypeError: NumPy would read it as numbers in silence."""
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
    if array.dtype.itemsize < 8:  # the limit below is out of range of half precision
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
    outside = result < 0
    if num_variables is not None and not outside.any():
        outside = result >= num_variables
    if outside.any():
        row = int(np.flatnonzero(outside.any(axis=1))[0])
        limit = "" if num_variables is None else f" and below the number of variables, {num_variables}"
        raise ModelError(f"edges must hold indices from 0{limit}; edge {row} is {tuple(result[row].tolist())}")
    loops = result[:, 0] == result[:, 1]
    if loops.any():
        row = int(np.flatnonzero(loops)[0])
        raise ModelError(
            f"edges must join two different variables; edge {row} is {tuple(result[row].tolist())} "
            "(put terms of one variable into log_unary)"
        )
    return result


def check_log_values(name: str, values: FloatArray, where: str = "entry {}") -> None:
    """Refuse NaN, +inf and finite numbers so large that sums would overflow, by a :class:`ModelError`.

    ``where`` is filled with the flat index of the first of them.
    """
    # max() is +inf or NaN exactly when some entry is: two passes and no temporary unless something is forbidden.
    if values.size == 0 or (values.max() <= MAX_LOG_VALUE and values.min() >= -MAX_LOG_VALUE):
        return
    bad = ~((values >= -MAX_LOG_VALUE) & (values <= MAX_LOG_VALUE)) & (values != -np.inf)
    if not bad.any():
        return
    index = int(np.flatnonzero(bad)[0])
    raise ModelError(
        f"{name} must hold finite numbers or -inf, got {values.flat[index]} at {where.format(index)}; -inf is the log "
        f"of a forbidden state, finite ones are from {-MAX_LOG_VALUE:g} to {MAX_LOG_VALUE:g} so that sums do not "
        "overflow"
    )


def as_state_counts(values: ArrayLike) -> IntArray:
    """State counts as a checked int64 vector."""
    array = as_whole_numbers("num_states", values)
    outside = np.flatnonzero((array < 1) | (array > MAX_STATES))
    if outside.size:
        first = outside[0]
        raise ModelError(f"num_states must be from 1 to {MAX_STATES}, got {array[first]} for variable {first}")
    return array


def as_whole_numbers(name: str, values: ArrayLike) -> IntArray:
    """``values`` as a new int64 vector; a :class:`ModelError` unless they are a vector of whole numbers."""
    array = as_array(name, values, "be a vector of whole numbers")
    check_memory(8.0 * array.size, f"{name} of {array.size:,} numbers", "give a smaller array")
    if array.size == 0:
        return np.zeros(0, dtype=np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ModelError(f"{name} must be a vector of whole numbers, got shape {array.shape}, {array.dtype}")
    return array.astype(np.int64)


def as_flat(name: str, values: ArrayLike, length: int, source: str) -> FloatArray:
    """``values`` as a new vector of log-potentials, of the length that ``source`` demands."""
    array = as_float_array(name, values)
    if array.shape != (length,):
        raise ModelError(f"{name} must have shape ({length},) to fit {source}, got shape {array.shape}")
    check_log_values(name, array)
    array += 0.0  # -0.0 becomes 0.0, so that equal models have equal hashes
    return array


def per_item(name: str, values: ArrayLike, count: int, item: str) -> FloatArray:
    """A finite number for each item, from one number for all or from a vector."""
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
    """Refuse a value that is not among the allowed ones by a ValueError that lists them."""
    if not isinstance(value, str) or value not in allowed:  # first the type: comparing an array gives an array
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {describe(value)}")


def check_flag(name: str, value: Any) -> bool:
    """``value`` as a bool; a ValueError for anything else, because the truth value of ``"no"`` is true.

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
    """Refuse a name that is no backend: no place where chains can run."""
    if not isinstance(backend, str) or backend not in ("cpu", "cuda", "auto"):
        raise ValueError(f"backend must be cpu, cuda or auto, got {describe(backend)}")


def check_accuracy(accuracy: Any) -> float:
    """``accuracy`` as a float above 0 and below 1."""
    return check_share("accuracy", accuracy, least=1e-15)


def check_share(name: str, value: Any, *, least: float | None = None) -> float:
    """``value`` as a float from ``least`` to below 1; above 0 without it."""
    number = _as_real(value)
    is_large_enough = number > 0.0 if least is None else number >= least
    if is_large_enough and number < 1.0:
        return number
    rule = "from 0 to below 1" if least == 0.0 else "above 0 and below 1"
    smallest = f"; the least is {least:g}" if least else ""
    raise ValueError(f"{name} must be a number {rule}, got {describe(value)}{smallest}")


def check_count(
    name: str, value: Any, *, least: int, most: int | None = None, error: type[ValueError] = ValueError
) -> int:
    """``value`` as a whole number from ``least`` to ``most``.

    The result is a number of Python, which grows where a number of NumPy would wrap around.
    """
    return _as_count(name, value, least, most, MAX_COUNT, error)


def _as_count(
    name: str, value: Any, least: int, most: int | None, beyond: int, error: type[ValueError] = ValueError
) -> int:
    """``value`` as a whole number; without ``most`` the limit is ``beyond``, which is named only where it is passed."""
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
    is_allowed = 0.0 < number < math.inf or (or_zero and number == 0.0)
    is_too_large = most is not None and number > most
    if is_allowed and not is_too_large:
        return number
    rule = f"a {what} of at least 0" if or_zero else f"a positive {what}"
    if is_too_large:  # the limit is named only where it is passed
        rule = f"{rule} and at most {most:g}"
    raise ValueError(f"{name} must be {rule}, got {describe(value)}")


def keep_checked(options: Any, **values: Any) -> None:
    """Replace fields of a frozen dataclass by the values that their checks gave, within ``__post_init__``."""
    for name, value in values.items():
        object.__setattr__(options, name, value)


def _as_real(value: Any) -> float:
    """A real number as a float; NaN for anything else, such as truth values and numbers too large for a float."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool | np.timedelta64):
        return math.nan
    try:
        with np.errstate(over="ignore"):  # extended precision becomes infinite
            return float(value)
    except OverflowError:
        return math.nan


def check_seconds(time_limit: Any) -> float | None:
    """``time_limit`` as a positive number of seconds, at most :data:`MAX_SECONDS`; None is no limit.

    Work is planned by dividing the limit by a measured cost, which must give a finite number.
    """
    if time_limit is None:
        return None
    return min(check_positive("time_limit", time_limit, "number of seconds"), MAX_SECONDS)


def check_seed(seed: Any) -> int:
    """``seed`` as a whole number from 0 to :data:`MAX_SEED`."""
    return _as_count("seed", seed, 0, None, MAX_SEED)


def choose_seed(seed: Any) -> int:
    """``seed``, checked; a seed from the operating system where None is given."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    return check_seed(seed)


def check_threads(num_threads: Any) -> int:
    """``num_threads`` as a whole number from 1; all processors where None is given."""
    if num_threads is None:
        return count_processors()
    return check_count("num_threads", num_threads, least=1, most=MAX_THREADS)


@cache
def count_processors() -> int:
    """Processors that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        return os.cpu_count() or 1


def as_text(name: str, value: Any) -> str:
    """``value`` as text; a :class:`ModelError` for an object that has none."""
    try:
        return str(value)
    except Exception:  # objects may raise anything
        raise ModelError(f"{name} must be text, got {describe(value)}") from None


def as_path(name: str, path: Any) -> str:
    """``path`` as text that the system accepts as the name of a file or folder."""
    if isinstance(path, str | os.PathLike):
        try:
            text = os.fspath(path)
            if isinstance(text, str) and "\0" not in os.fsencode(text).decode("latin-1"):
                return text
        except Exception as error:  # objects may raise anything
            raise ValueError(f"{name} must be the name of a file, got {describe(path)}") from error
    kind = ValueError if isinstance(path, str) else TypeError
    raise kind(f"{name} must be the name of a file, as text or a path, got {describe(path)}")


def show_path(path: str) -> str:
    """A path for an error message; of a very long one the end, which tells it from others."""
    return repr(path if len(path) <= MAX_PATH_LENGTH else f"..{path[-MAX_PATH_LENGTH:]}")


def as_index(what: str, given: Any, names: Mapping[str, int], count: int) -> int:
    """Number of a variable or a state, from that number or its name."""
    if isinstance(given, str) and given in names:
        return names[given]
    # States are often called true and false, in any order: True is none of them, and not number 1.
    if not isinstance(given, bool | np.bool_):
        with contextlib.suppress(Exception):  # objects may raise anything
            index = operator.index(given)
            if 0 <= index < count:
                return index

    rule = f"{what} must be a whole number from 0 to {count - 1}{' or a name' if names else ''}"
    if not count:
        rule = f"{what} must be one that there is, and there is none"
    hint = ""
    if names and isinstance(given, str) and len(given) <= MAX_COMPARED_LENGTH:
        from difflib import get_close_matches

        if close := get_close_matches(given, list(names), 1):
            hint = f"; the nearest is {close[0]!r}"
        elif sum(map(len, names)) <= MAX_LISTED_LENGTH:
            hint = f"; the names are {', '.join(map(repr, names))}"
    raise ModelError(f"{rule}, got {describe(given)}{hint}")


def as_variable_names(names: Sequence[str] | None, count: int) -> tuple[str, ...] | None:
    """Variable names as a tuple, one per variable, all different."""
    return None if names is None else as_names("variable_names", names, count, "variable")


def as_shape(shape: object, num_variables: int) -> tuple[int, ...] | None:
    """``shape`` as a tuple of sizes whose product is the number of variables; None is no shape."""
    if shape is None:
        return None
    try:
        sizes = tuple(operator.index(size) for size in shape)  # type: ignore[attr-defined]  # refused below if it fails
    except Exception:  # objects may raise anything
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
    """The items of an iterable as a list; a :class:`ModelError` for anything else, and for text, which is one item."""
    cause: Exception | None = None
    if isinstance(values, Iterable) and not isinstance(values, str | bytes):
        try:
            check_memory(LIST_ITEM_BYTES * operator.length_hint(values), name, "give a shorter one")
            return list(values)
        except FastmixError:  # raised by a generator of fastmix
            raise
        except Exception as error:  # objects may raise anything
            cause = error
    raise ModelError(f"{name} must be {rule}, got {describe(values)}") from cause


def as_names(argument: str, names: Any, count: int, item: str) -> tuple[str, ...]:
    """Names as a tuple, one per item, all different."""
    given = as_list(argument, names, "a list of names")
    try:
        result = tuple(str(name) for name in given)
    except Exception:  # objects may raise anything
        raise ModelError(f"{argument} must be a list of names, got {describe(names)}") from None
    if len(result) != count:
        raise ModelError(f"{argument} must have one name per {item}, {count}, got {len(result)}")
    if len(set(result)) < count:
        twice = Counter(result).most_common(1)[0][0]
        raise ModelError(f"{argument} must all be different, got {twice!r} more than once")
    return result


def describe(value: Any) -> str:
    """A short description of any value for an error message."""
    if isinstance(value, int) and value.bit_length() > 4 * MAX_SHOWN_LENGTH:
        digits = 1 + int(math.log10(abs(value)))
        return f"a whole number of about {digits:,} digits"
    name = type(value).__name__
    kind = f"an {name}" if name[:1] in "aeiouAEIO" else f"a {name}"
    try:
        text = repr(value)
    except Exception:  # an object that cannot be shown
        return kind
    return text if len(text) <= MAX_SHOWN_LENGTH else kind


def _shorten(text: str) -> str:
    """The beginning of a text, on one line, for a message."""
    line = " ".join(text.split())
    length = 3 * MAX_SHOWN_LENGTH
    return line if len(line) <= length else f"{line[:length]} .."


def require(module: str, *, extra: str, purpose: str, library: str | None = None) -> Any:
    """A module of another library; an :class:`ImportError` that names the extra if the library is not installed."""
    root = module.split(".")[0]
    try:
        importlib.import_module(root)  # a submodule may be loaded although the library itself is not there
        return importlib.import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != root:
            raise  # it is installed, and something it needs is not
        raise ImportError(f"{purpose} need {library or root}: {INSTALL_EXTRA.format(extra=extra)}", name=root) from None
