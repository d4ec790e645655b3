"""Calls with arguments of all kinds: every parameter of every public function and method, found by their signatures.

A call may succeed, or refuse with a ValueError or TypeError that names an argument, or with an error of fastmix. It
may not end in another exception, warn, hang, or change what it was given.
"""

from __future__ import annotations

import datetime
import inspect
import math
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import fastmix
from fastmix._clock import Clock

MODULES = (
    "fastmix", "fastmix.crf", "fastmix.denoising", "fastmix.exact", "fastmix.experiments", "fastmix.graphs",
    "fastmix.instances", "fastmix.interop", "fastmix.io", "fastmix.learning", "fastmix.model", "fastmix.model.network",
)  # fmt: skip
ELSEWHERE = (  # what the documentation names in modules that are otherwise our own
    "fastmix.executors.processes", "fastmix.theory.bias.bias_after", "fastmix.theory.comparison.comparison_bounds",
    "fastmix.theory.dependency.edge_dependencies", "fastmix.theory.norms.matrix_norm",
)  # fmt: skip
SECONDS = 6.0  # of processor time for one call: a guard against calls that never end


# -- what is handed in -------------------------------------------------------------------------------------------------


class Rude:
    """An object none of whose methods answers."""

    def _refuse(self, *_: Any) -> Any:
        raise RuntimeError("not for you")

    __repr__ = __str__ = __len__ = __iter__ = __index__ = __float__ = __array__ = __eq__ = __bool__ = _refuse
    __getitem__ = __contains__ = __int__ = __lt__ = __gt__ = __hash__ = __fspath__ = _refuse


class Mute:
    """An object that cannot be shown, and is otherwise like any other."""

    def __repr__(self) -> str:
        raise KeyError("no words")


class Endless:
    """A sequence that is longer than it can be."""

    def __len__(self) -> int:
        return 2**62

    def __getitem__(self, place: Any) -> int:
        raise IndexError(place)


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def _looped() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


def anything(*arguments: Any, **options: Any) -> object:
    """A function that takes everything and gives nothing of use."""
    del arguments, options
    return object()


# Made anew for every call: some are used up, and what is changed must be seen.
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "np.True_": lambda: np.True_,
    "0": lambda: 0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "3": lambda: 3,
    "2**31": lambda: 2**31,
    "2**63": lambda: 2**63,
    "-2**63-1": lambda: -(2**63) - 1,
    "10**400": lambda: 10**400,
    "int8": lambda: np.int8(-128),
    "uint8": lambda: np.uint8(200),
    "int64": lambda: np.int64(2),
    "uint64": lambda: np.uint64(2**64 - 1),
    "float16": lambda: np.float16(0.25),
    "float32": lambda: np.float32(0.1),
    "float64": lambda: np.float64(0.5),
    "longdouble": lambda: np.longdouble("1e4000"),
    "0.0": lambda: 0.0,
    "-0.5": lambda: -0.5,
    "0.5": lambda: 0.5,
    "2.5": lambda: 2.5,
    "1e-320": lambda: 1e-320,
    "1e308": lambda: 1e308,
    "nan": lambda: math.nan,
    "inf": lambda: math.inf,
    "-inf": lambda: -math.inf,
    "complex": lambda: 1j,
    "Decimal": lambda: Decimal("0.5"),
    "Decimal nan": lambda: Decimal("sNaN"),
    "Fraction": lambda: Fraction(1, 3),
    "datetime": lambda: datetime.datetime(2020, 1, 1),
    "timedelta": lambda: datetime.timedelta(seconds=1),
    "datetime64": lambda: np.datetime64("2020-01-01"),
    "timedelta64": lambda: np.timedelta64(3, "s"),
    "empty text": lambda: "",
    "word": lambda: "no",
    "auto": lambda: "auto",
    "zeros": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "long text": lambda: "x" * 100_000,
    "digits": lambda: "9" * 5000,
    "bytes": lambda: b"0 1",
    "no file": lambda: Path("nowhere") / "model.uai",
    "a folder": lambda: Path("/"),
    "empty list": list,
    "list": lambda: [0, 1],
    "words": lambda: ["a", "a"],
    "ragged": lambda: [[1.0], [1.0, 2.0]],
    "pairs": lambda: [(0, 1), (1, 0), (0, 0)],
    "far pair": lambda: [(0, 10**18)],
    "huge numbers": lambda: [10**400, 1],
    "nested": lambda: _nested(200),
    "looped": _looped,
    "tuple": lambda: (1, None),
    "dict": lambda: {0: 0, "a": None},
    "dict of far": lambda: {10**30: 1},
    "dict of lists": lambda: {0: [math.nan, "x"]},
    "dict of rude": lambda: {0: Rude()},
    "set": lambda: {3, 1, 2},
    "generator": lambda: (k for k in range(3)),
    "range": lambda: range(3),
    "array 0-d": lambda: np.array(1.5),
    "array 1-d": lambda: np.array([0.25, -1.5, 2.0]),
    "array 3-d": lambda: np.ones((2, 3, 2)),
    "empty array": lambda: np.zeros((0, 2)),
    "array of nan": lambda: np.array([math.nan, math.inf]),
    "array of bools": lambda: np.array([True, False]),
    "array of objects": lambda: np.array([None, "a", Rude], dtype=object),
    "array of text": lambda: np.array(["1", "2"]),
    "array of complex": lambda: np.array([[1j, 0]]),
    "array of dates": lambda: np.array(["2020-01-01"], dtype="datetime64[D]"),
    "records": lambda: np.zeros(2, dtype=[("a", int), ("b", float)]),
    "masked": lambda: np.ma.masked_array([[0, 1]], mask=[[True, False]]),
    "matrix": lambda: np.eye(3),
    "large counts": lambda: np.array([2**62, 2**62]),
    "memoryview": lambda: memoryview(b"abc"),
    "function": lambda: anything,
    "class": lambda: int,
    "module": lambda: math,
    "ellipsis": lambda: ...,
    "model": lambda: fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.3),
    "mute": Mute,
    "rude": Rude,
    "endless": Endless,
    "list of rude": lambda: [Rude()],
    "list of mute": lambda: [Mute(), Mute()],
}


def picture_of(value: Any) -> Any:
    """What can be compared, after a call, with what it was before; None for what nobody could change."""
    if isinstance(value, np.ma.MaskedArray):
        return picture_of(value.data), picture_of(value.mask)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.flags.writeable, value.tobytes() if value.dtype.kind != "O" else None
    if isinstance(value, dict):
        return [(key, picture_of(entry)) for key, entry in value.items() if not isinstance(entry, Rude | Mute)]
    if isinstance(value, list | set | tuple) and not any(isinstance(entry, Rude | Mute) for entry in value):
        return type(value).__name__, repr(value)
    return None


# -- what is called ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A function, class or method, with the parameters that it has and arguments that it takes."""

    name: str
    function: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(parameter.name for parameter in self.parameters)


def targets(
    receivers: dict[str, Callable[[], Any]], *, hooks: frozenset[str], records: frozenset[str]
) -> Iterator[Target]:
    """All public functions and classes of the modules, and the methods of the classes.

    ``receivers`` make objects by the name of their class. ``hooks`` are methods that fastmix calls and users write,
    ``records`` are classes whose objects fastmix makes and users read: only their methods are called.
    """
    seen: set[int] = set()
    for path in ELSEWHERE:
        module_name, _, name = path.rpartition(".")
        function = getattr(import_module(module_name), name)
        yield Target(name, function, _parameters(function))
    for module_name in MODULES:
        module = import_module(module_name)
        for name in module.__all__:
            found = getattr(module, name)
            known = id(found) in seen or not callable(found) or getattr(found, "__module__", "")[:7] != "fastmix"
            seen.add(id(found))
            if known or (inspect.isclass(found) and issubclass(found, BaseException)):
                continue
            if not inspect.isclass(found) or name not in records:
                yield Target(name, found, _parameters(found))
            if inspect.isclass(found):
                yield from _methods(name, found, receivers, hooks, seen)


def _methods(
    name: str, owner: type, receivers: dict[str, Callable[[], Any]], hooks: frozenset[str], seen: set[int]
) -> Iterator[Target]:
    for method_name in dir(owner):
        static = inspect.getattr_static(owner, method_name)
        function = static.__func__ if isinstance(static, classmethod | staticmethod) else static
        if method_name.startswith("_") or method_name in hooks or not inspect.isfunction(function):
            continue
        if id(function) in seen or not function.__module__.startswith("fastmix"):
            continue
        bound = static is not function
        parameters = _parameters(getattr(owner, method_name)) if bound else _parameters(function)[1:]
        if not parameters:
            continue
        seen.add(id(function))
        label = f"{name}.{method_name}"
        if bound:
            yield Target(label, getattr(owner, method_name), parameters)
        elif name in receivers:
            receiver = receivers[name]

            def call(*args: Any, _receiver: Any = receiver, _method: str = method_name, **options: Any) -> Any:
                return getattr(_receiver(), _method)(*args, **options)

            yield Target(label, call, parameters)
        else:
            yield Target(label, function, parameters)  # which has no example, and is found missing


def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Those of its signature, without the clock, which fastmix hands on."""
    return tuple(p for p in inspect.signature(function).parameters.values() if p.name != "clock")


# -- the calls ---------------------------------------------------------------------------------------------------------


class HangError(BaseException):
    """A call took too long."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """A :class:`HangError` in the block after so many seconds of processor time."""

    def stop(*_: Any) -> None:
        raise HangError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def fault(target: Target, example: dict[str, Any], parameter: str, label: str) -> str | None:
    """What is wrong with the call in which one argument of the example is replaced; None where nothing is.

    A call that takes too long is made once more where it has compiled: only the second one counts then.
    """
    clock = Clock()
    found = _fault(target, example, parameter, label)
    if found is not None and found.endswith(" s") and clock.compile_seconds() > 0.0:
        return _fault(target, example, parameter, label)
    return found


def _fault(target: Target, example: dict[str, Any], parameter: str, label: str) -> str | None:
    """What is wrong with one call."""
    value = VALUES[label]()
    before = picture_of(value)
    kind = next(p.kind for p in target.parameters if p.name == parameter)
    positional, options = arguments(target, example, parameter, value, kind)
    where = f"{target.name}({parameter}={label})"
    began = time.process_time()
    try:
        with warnings.catch_warnings(), limited(SECONDS):
            warnings.simplefilter("error")
            result = target.function(*positional, **options)
            if inspect.isgenerator(result):
                for _ in zip(result, range(3), strict=False):
                    pass
    except HangError:
        return f"{where} did not end in {SECONDS:g} s"
    except BaseException as error:
        if (found := judge(error, target, parameter, value)) is not None:
            return f"{where}: {found}"
    if time.process_time() - began > SECONDS / 2:
        return f"{where} took {time.process_time() - began:.1f} s"
    if before is not None and repr(picture_of(value)) != repr(before):
        return f"{where} changed its argument"
    return None


def arguments(
    target: Target, example: dict[str, Any], parameter: str, value: Any, kind: Any
) -> tuple[list[Any], dict[str, Any]]:
    """Positional arguments and options of a call."""
    given = {**example, parameter: value}
    positional: list[Any] = []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    if any(p.kind in by_position for p in target.parameters):
        for p in target.parameters:
            if p.kind is inspect.Parameter.VAR_POSITIONAL:
                rest = given.pop(p.name, ())
                positional += [rest] if p.name == parameter else list(rest)
            elif p.kind is not inspect.Parameter.KEYWORD_ONLY and p.name in given:
                positional.append(given.pop(p.name))
    if kind is inspect.Parameter.VAR_KEYWORD:
        given["unknown_option"] = given.pop(parameter)
    return positional, given


# Where a function of the user is called, its errors are the user's.
_FUNCTIONS = {"function", "progress", "read", "write", "matches", "draw", "problem", "findings", "axes", "method"}
_PATHS = {"path", "folder", "output", "checkpoint", "images", "data", "plain", "text"}


def judge(error: BaseException, target: Target, parameter: str, value: Any) -> str | None:
    """What is wrong with an exception, in a line; None if it is one that may come."""
    text = f"{type(error).__name__}: {str(error)[:150]}"
    if isinstance(error, fastmix.FastmixError):
        return None if len(str(error)) <= 2000 else f"a message of {len(str(error))} characters"
    if isinstance(error, Warning):
        return text
    if callable(value) and parameter in _FUNCTIONS:
        return None
    if isinstance(error, OSError) and not _PATHS.isdisjoint(target.names):
        return None
    if isinstance(error, ImportError) and "pip install" in str(error):
        return None
    if isinstance(error, ValueError | TypeError):
        if len(str(error)) > 2000:
            return f"a message of {len(str(error))} characters"
        words = set(re.findall(r"\w+", str(error)))
        owner = target.name.rpartition(".")[2]
        named = words & {*target.names, owner, "unknown_option"}
        return None if named else text
    return text
