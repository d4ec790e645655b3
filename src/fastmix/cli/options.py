"""Options of the commands: their own, those of the functions behind them, and those of the methods of the registry.

A command is a function whose parameters are its own arguments and options. The decorator :func:`takes` adds the
arguments of a function of fastmix, which arrive in its parameter ``given``; a command with a parameter ``options`` gets
the options of methods of inference there. :func:`with_options` makes the function that the parser reads.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

import fastmix
from fastmix._context import DEFAULT_SECONDS
from fastmix._memory import parse_bytes
from fastmix._signatures import option_help
from fastmix.io import format_names

if TYPE_CHECKING:
    from dataclasses import Field

__all__ = [
    "AnswerEvidence", "AsJson", "Cluster", "Evidence", "Model", "NoEvidence", "NumWorkers", "OptionSpec", "Output",
    "arguments_of", "names_of", "option", "takes", "variable_list", "with_options", "with_signature", "words",
]  # fmt: skip

# -- options that several commands have of their own ------------------------------------------------------------------

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"{format_names()} file, plain, gzip, xz or bzip2; - is stdin.")
]
Evidence = Annotated[
    str | None,
    typer.Option("--evidence", "-e", metavar="FILE|PAIRS", help="Observed states: UAI or JSON file, or A=x,B=y."),
]
AnswerEvidence = Annotated[  # of commands that answer questions about a model
    str | None,
    typer.Option(
        "--evidence",
        "-e",
        metavar="FILE|PAIRS",
        help="Observed states: UAI or JSON file, or A=x,B=y; without it the file MODEL.evid, if there is one.",
    ),
]
NoEvidence = Annotated[bool, typer.Option("--no-evidence", help="Leave a file MODEL.evid alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
NumWorkers = Annotated[int | None, typer.Option(help="Processes to share the work with; does not change the answer.")]
Cluster = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Share the work through this Dask scheduler, such as tcp://host:8786."),
]


def words(text: str) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


_MAX_DIGITS = 18  # of the number of a variable; Python refuses to read thousands of them


def variable_list(text: str) -> list[int | str]:
    """Variables by number or name, separated by commas."""
    found = words(text)
    if not found:
        raise ValueError(f"must be names or numbers of variables, separated by commas, got {text!r}")
    return [int(word) if word.isdecimal() and len(word) <= _MAX_DIGITS else word for word in found]


# -- options that stand for arguments of a function of fastmix --------------------------------------------------------


class OptionSpec(NamedTuple):
    """The form in which an argument of a function is asked for on the command line.

    ``parse`` reads it from text, and may complain that it "must be" something; ``flags`` are the two words of a yes or
    no; ``group`` is the title above the option in the help, None for the first group.
    """

    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    flags: str = ""
    group: str | None = None


class LibraryArguments(NamedTuple):
    """The arguments of a function of fastmix that a command has as options."""

    function: str  # its name below ``fastmix``
    specs: dict[str, OptionSpec]  # by the name of the argument


_SHARED_SPECS = {
    "seed": OptionSpec("The same seed gives the same answer; drawn when not given."),
    "num_threads": OptionSpec("All cores by default; does not change the answer."),
    "memory_limit": OptionSpec("Such as 4GiB; half of the free memory by default.", "SIZE", parse_bytes),
    "backend": OptionSpec("Where gibbs, tempered run: cpu, cuda, or auto for a GPU if any."),
    "methods": OptionSpec("Separated by commas; all by default.", "NAMES", words),
}

# Seconds that a call takes without --time-limit; a test compares these texts with the functions.
_DEFAULT_LIMITS = {
    **dict.fromkeys(["certify", "project", "learn", "score", "fit_network"], "None by default"),
    **dict.fromkeys(["bracket", "map_", "denoise"], f"{DEFAULT_SECONDS:g} by default"),
    "infer": (f"{DEFAULT_SECONDS:g} by default; none for exact and perfect, nor with an amount of work such as sweeps"),
    "sample": f"{DEFAULT_SECONDS:g} by default; none for perfect, nor with an amount of work such as sweeps",
    "temper": f"{DEFAULT_SECONDS:g} by default, none with an amount of work such as sweeps",
    "compare": f"{DEFAULT_SECONDS:g} by default for every method but exact, which has none",
}

_LIBRARY_ARGUMENTS: dict[str, LibraryArguments] = {}  # by the name of the command
_COLLECTED = ("given", "options")  # parameters of commands that collect what the parser knows one by one

C = TypeVar("C", bound=Callable[..., None])


def takes(function: str, shared: str = "", **own: str | OptionSpec) -> Callable[[C], C]:
    """A decorator that gives a command options for some arguments of a function of fastmix.

    Types and defaults are those of the function; the values arrive in the parameter ``given`` of the command. Names in
    ``shared`` have the help that they have in all commands.
    """

    def mark(command: C) -> C:
        specs = {name: OptionSpec(spec) if isinstance(spec, str) else spec for name, spec in own.items()}
        for name in shared.split():
            specs[name] = _time_limit_of(command.__name__) if name == "time_limit" else _SHARED_SPECS[name]
        _LIBRARY_ARGUMENTS[command.__name__] = LibraryArguments(function, specs)
        return command

    return mark


def _time_limit_of(command: str) -> OptionSpec:
    """The option ``--time-limit`` of a command, with the limit that holds without it."""
    stated = _DEFAULT_LIMITS[command]
    text = f"Stop after this many seconds with the result so far; compiling is not counted. {stated}."
    return OptionSpec(text, "SECONDS")


def arguments_of(command: Callable[..., None]) -> set[str]:
    """Names of the arguments of a function of fastmix that a command has as options; none without such a function."""
    if command.__name__ not in _LIBRARY_ARGUMENTS:
        return set()
    return set(_LIBRARY_ARGUMENTS[command.__name__].specs)


def names_of(command: Callable[..., None]) -> set[str]:
    """Names of all options of a command except those of methods."""
    return {*inspect.signature(command).parameters, *arguments_of(command)}


# -- the function that the parser reads -------------------------------------------------------------------------------


class ParsedOption(NamedTuple):
    """An option that the parser knows and that reaches its command in ``given`` or ``options``."""

    spec: OptionSpec
    annotation: Any  # the type, as the function or the method states it
    default: Any
    collected_in: str  # one of _COLLECTED


def with_options(command: Callable[..., None], methods: Iterable[str]) -> Callable[..., None]:
    """The command with all its options, among them those of the methods named.

    Functions and methods are looked up only here, so that a command loads what it needs and nothing else.
    """
    if command.__name__ not in _LIBRARY_ARGUMENTS:
        return command
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command).parameters
    own = {name: (hints[name], p.default) for name, p in signature.items() if name not in _COLLECTED}

    parsed = _options_of_function(_LIBRARY_ARGUMENTS[command.__name__])
    parsed |= _options_of_methods(methods, known={*own, *parsed})

    def run(**values: Any) -> None:
        collected: dict[str, dict[str, Any]] = {name: {} for name in _COLLECTED if name in signature}
        for name, one in parsed.items():
            value = values.pop(name)
            if value is not None:
                collected[one.collected_in][name] = _parse(name, value, one.spec)
        command(**values, **collected)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    others = {name: option(name, one.spec, one.annotation, one.default) for name, one in parsed.items()}
    return with_signature(run, own | others)


def _options_of_function(arguments: LibraryArguments) -> dict[str, ParsedOption]:
    """Options for arguments of a function of fastmix, with its types and defaults."""
    parameters = inspect.signature(attrgetter(arguments.function)(fastmix)).parameters
    return {
        name: ParsedOption(spec, parameters[name].annotation, parameters[name].default, "given")
        for name, spec in arguments.specs.items()
    }


def _options_of_methods(methods: Iterable[str], known: set[str]) -> dict[str, ParsedOption]:
    """Options of methods of inference; one that several methods have is one option, with the help of all of them."""
    from fastmix.method import find_method, options_of

    fields: dict[str, dict[str, Field[Any]]] = {}  # by the name of the option, then by method
    chosen = tuple(methods)
    for method in chosen:
        for field in options_of(find_method(method)).values():
            if field.metadata.get("cli", True) and field.name not in known:
                fields.setdefault(field.name, {})[method] = field

    found = {}
    for name, by_method in fields.items():
        first = next(iter(by_method.values()))
        text = _help_of(name, list(by_method), alone=len(chosen) == 1)
        group = f"Options of {chosen[0]}" if len(chosen) == 1 else _group_of(by_method)
        spec = OptionSpec(text, None, first.metadata.get("parse"), group=group)
        found[name] = ParsedOption(spec, first.type, None, "options")
    return found


def _help_of(name: str, methods: Sequence[str], *, alone: bool) -> str:
    """The help of some methods for an option that they have; it says which they are, unless one is ``alone``."""
    from fastmix.method import find_method

    methods_by_text: dict[str, list[str]] = {}
    for method in methods:
        methods_by_text.setdefault(option_help(find_method(method), name), []).append(method)
    if len(methods_by_text) > 1:
        return " ".join(f"{', '.join(agreeing)}: {text}" for text, agreeing in methods_by_text.items())
    (text,) = methods_by_text
    return text if alone else f"{text} For {', '.join(methods)}.".strip()


# Titles in the help above the options of the methods of fastmix; those of others stand under the name of the method.
_GROUPS = {
    "auto": "Automatic choice",
    "exact": "Exact inference",
    "mean-field": "Variational methods",
    "loopy-bp": "Variational methods",
    "gibbs": "Sampling",
    "swendsen-wang": "Sampling",
    "perfect": "Sampling",
    "tempered": "Tempering",
    "projected": "Projection",
    "annealed": "Annealing",
    "multicanonical": "Multicanonical sampling",
}


def _group_of(methods: Iterable[str]) -> str:
    """The title above an option in the help: that of the first method that has it, other than ``auto``."""
    names = list(methods)
    first = next((name for name in names if name != "auto"), names[0])
    return _GROUPS.get(first, f"Method {first}")


def _parse(name: str, value: Any, spec: OptionSpec) -> Any:
    """The value of an option, read from its text where the option has a parser of its own."""
    if spec.parse is None:
        return value
    try:
        return spec.parse(value)
    except ValueError as error:
        text = str(error)
        raise ValueError(f"{name} {text}" if text.startswith("must") else text) from None


def option(name: str, spec: OptionSpec, annotation: Any, default: Any) -> tuple[Any, Any]:
    """Annotation and default of an option for the parser: a number, or a word, unless it is parsed by its own rule."""
    named = re.findall(r"\b(?:bool|int|float)\b", str(annotation))
    kind: Any = str
    if named and spec.parse is None:
        kind = {"bool": bool, "int": int, "float": float}[named[0]]
    if kind is str and default is not inspect.Parameter.empty and default is not None:
        default = str(default)
    # A flag that is off by default has no opposite.
    flags = [spec.flags or f"--{name.replace('_', '-')}"] if default is False else []
    written = typer.Option(*flags, metavar=spec.metavar, help=spec.help, rich_help_panel=spec.group)
    return Annotated[kind | None, written], default


def with_signature(command: Callable[..., None], parameters: Mapping[str, tuple[Any, Any]]) -> Callable[..., None]:
    """The command as if it had been written with these parameters: their annotations and defaults."""
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
        for name, (annotation, default) in parameters.items()
    ]
    command.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]  # functions take any attribute
    return command
