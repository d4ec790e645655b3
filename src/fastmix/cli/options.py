"""Options of the commands: their own, those of the functions behind them, and those of the methods of the registry."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

import fastmix
from fastmix._memory import parse_bytes
from fastmix.io import format_names
from fastmix.methods.base import DEFAULT_SECONDS

__all__ = [
    "AnswerEvidence", "AsJson", "Asked", "Cluster", "Evidence", "Model", "NoEvidence", "NumWorkers", "Output",
    "names_of", "option", "takes", "with_options", "with_signature", "words",
]  # fmt: skip

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
        "--evidence", "-e", metavar="FILE|PAIRS",
        help="Observed states: UAI or JSON file, or A=x,B=y; without it the file MODEL.evid, if there is one.",
    ),
]  # fmt: skip
NoEvidence = Annotated[bool, typer.Option("--no-evidence", help="Leave a file MODEL.evid alone.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
NumWorkers = Annotated[int | None, typer.Option(help="Processes to share the work with; does not change the answer.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a running Dask scheduler, such as tcp://host:8786.")
]


class Asked(NamedTuple):
    """How an argument of a function is asked for.

    ``parse`` reads it from text, and may complain that it "must be" something; ``flags`` are those of a yes or no.
    """

    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    flags: str = ""


def words(text: str) -> list[str]:
    """Words separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


_SHARED = {
    "seed": Asked("The same seed gives the same answer; drawn when not given."),
    "num_threads": Asked("All cores by default; does not change the answer."),
    "memory_limit": Asked("Such as 4GiB; half of the free memory by default.", "SIZE", parse_bytes),
    "backend": Asked("Where gibbs, tempered run: cpu (default), cuda, or auto for a GPU if any."),
    "methods": Asked("Separated by commas; all by default.", "NAMES", words),
}
# Seconds that a call takes without --time-limit; a test compares these texts with the functions.
_LIMITS = {
    **dict.fromkeys(["certify", "project", "learn", "score"], "none by default"),
    **dict.fromkeys(["bracket", "map_"], f"{DEFAULT_SECONDS:g} by default"),
    **dict.fromkeys(
        ["infer", "temper", "sample"], f"{DEFAULT_SECONDS:g} by default, none with an amount of work such as sweeps"
    ),
    "compare": f"{DEFAULT_SECONDS:g} by default for every method but exact, which has none",
    "denoise": f"{DEFAULT_SECONDS:g} by default, beside what learning the settings takes",
}
_TAKEN: dict[str, tuple[str, dict[str, Asked]]] = {}  # by the name of the command
_REST = ("given", "options")

C = TypeVar("C", bound=Callable[..., None])


def takes(function: str, shared: str = "", **own: str | Asked) -> Callable[[C], C]:
    """A decorator: a command has options for these arguments of a function of fastmix, and gets them in ``given``.

    Their types and defaults are those of the function. A command with ``options`` gets those of methods there.
    """

    def mark(command: C) -> C:
        asked = {name: Asked(text) if isinstance(text, str) else text for name, text in own.items()}
        asked |= {name: _limit(command.__name__) if name == "time_limit" else _SHARED[name] for name in shared.split()}
        _TAKEN[command.__name__] = function, asked
        return command

    return mark


def _limit(command: str) -> Asked:
    """The option ``--time-limit`` of a command, with what holds without it."""
    text = _LIMITS[command]
    return Asked(f"Return what there is then; compiling is not counted. {text[0].upper()}{text[1:]}.", "SECONDS")


def names_of(command: Callable[..., None]) -> set[str]:
    """The options of a command but for those of methods."""
    return {*inspect.signature(command).parameters, *_TAKEN[command.__name__][1]}


def with_options(command: Callable[..., None], methods: Iterable[str]) -> Callable[..., None]:
    """The command with all its options, those of the methods named among them; they are looked up only here."""
    if command.__name__ not in _TAKEN:
        return command
    from fastmix.methods.base import find_method, options_of

    types: dict[str, Any] = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command).parameters
    parameters = {name: (types[name], p.default) for name, p in signature.items() if name not in _REST}
    function, taken = _TAKEN[command.__name__]
    arguments = inspect.signature(attrgetter(function)(fastmix)).parameters
    asked = {name: (one, arguments[name].annotation, arguments[name].default) for name, one in taken.items()}
    found: dict[str, dict[str, Any]] = {}  # fields of the methods: by name, and by method
    for method in methods:
        for field in options_of(find_method(method)).values():
            if field.metadata.get("cli", True) and field.name not in {*parameters, *taken}:
                found.setdefault(field.name, {})[method] = field
    for name, fields in found.items():
        first = next(iter(fields.values()))
        asked[name] = Asked(_help_of(fields), None, first.metadata.get("parse")), first.type, None
    parameters |= {name: option(name, *one) for name, one in asked.items()}

    def run(**values: Any) -> None:
        parts: dict[str, dict[str, Any]] = {name: {} for name in _REST if name in signature}
        for name, (one, _, _) in asked.items():
            if (value := values.pop(name)) is not None:
                try:
                    value = value if one.parse is None else one.parse(value)
                except ValueError as error:
                    text = str(error)
                    raise ValueError(f"{name} {text}" if text.startswith("must") else text) from None
                parts["given" if name in taken else "options"][name] = value
        command(**values, **parts)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return with_signature(run, parameters)


def _help_of(fields: Mapping[str, Any]) -> str:
    """What methods say about an option that all of them have: each with its name, unless they say the same."""
    said: dict[str, list[str]] = {}
    for method, field in fields.items():
        said.setdefault(field.metadata.get("help", ""), []).append(method)
    return " ".join(text if len(said) == 1 else f"{', '.join(of)}: {text}" for text, of in said.items())


def option(name: str, asked: Asked, annotation: Any, default: Any) -> tuple[Any, Any]:
    """Annotation and default of an option: a number, or a word, unless it is parsed."""
    named = re.findall(r"\b(?:bool|int|float)\b", str(annotation))
    kind: Any = str if asked.parse or not named else {"bool": bool, "int": int, "float": float}[named[0]]
    if default is not inspect.Parameter.empty and default is not None:
        default = str(default) if kind is str else default
    flag = [asked.flags or f"--{name.replace('_', '-')}"] if default is False else []
    return Annotated[kind | None, typer.Option(*flag, metavar=asked.metavar, help=asked.help)], default


def with_signature(command: Callable[..., None], parameters: Mapping[str, tuple[Any, Any]]) -> Callable[..., None]:
    """The command as if it had been written with these parameters: their annotations and defaults."""
    kind = inspect.Parameter.KEYWORD_ONLY
    listed = [inspect.Parameter(n, kind, annotation=a, default=d) for n, (a, d) in parameters.items()]
    command.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    return command
