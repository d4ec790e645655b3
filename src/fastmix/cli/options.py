"""Arguments and options that several commands share, and those that come from the fields of the methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from fastmix.io.formats import format_names

if TYPE_CHECKING:
    from fastmix.methods.base import Method

__all__ = [
    "AnySeed", "AsJson", "Backend", "Cluster", "DivergenceName", "Evidence", "MemoryLimit", "Model", "NumThreads",
    "NumWorkers", "Output", "TimeLimit", "with_method_options", "with_signature",
]  # fmt: skip

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"{format_names()} file, plain, gzip, xz or bzip2; - is stdin.")
]
Evidence = Annotated[
    str | None,
    typer.Option("--evidence", "-e", metavar="FILE|PAIRS", help="Observed states: UAI or JSON file, or A=x,B=y."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
Output = Annotated[str | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - is stdout.")]
AnySeed = Annotated[int | None, typer.Option(help="The same seed gives the same answer; drawn when not given.")]
TimeLimit = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Return what there is then (60 by default); compiling is not counted."),
]
Backend = Annotated[
    str | None,
    typer.Option(help="Where gibbs, tempered run: cpu (default), cuda, or auto for a GPU if any."),
]
NumThreads = Annotated[int | None, typer.Option(help="All cores by default; does not change the answer.")]
NumWorkers = Annotated[int | None, typer.Option(help="Processes to share the work with; does not change the answer.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of a running Dask scheduler, such as tcp://host:8786.")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Such as 4GiB; half of the free memory by default.")
]
DivergenceName = Annotated[
    str | None, typer.Option("--divergence", help="euclidean, kl, piecewise-kl or reversed-kl: what closest means.")
]


def with_method_options(command: Callable[..., None], names: Iterable[str]) -> Callable[..., None]:
    """The command with an option for every field of the methods named, which it gets as a dict in ``options``."""
    from fastmix.methods.base import find_method, options_of

    types: dict[str, Any] = get_type_hints(command, include_extras=True)
    fixed = {name: (types[name], p.default) for name, p in inspect.signature(command).parameters.items()}
    del fixed["options"]
    parameters, parsers = dict(fixed), {}
    for name in names:
        method = find_method(name)
        for field in options_of(method).values():
            if not field.metadata.get("cli", True) or field.name in parameters:
                continue
            kind: Any = str if field.metadata.get("parse") else _plain_type(method, field.name)
            parameters[field.name] = Annotated[kind | None, typer.Option(help=field.metadata.get("help", ""))], None
            parsers[field.name] = field.metadata.get("parse")

    def run(**given: Any) -> None:
        own = {name: given.pop(name) for name in list(given) if name not in fixed}
        chosen = {name: _parse(name, parsers[name], value) for name, value in own.items() if value is not None}
        command(**given, options=chosen)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return with_signature(run, parameters)


def with_signature(command: Callable[..., None], parameters: Mapping[str, tuple[Any, Any]]) -> Callable[..., None]:
    """The command as if it had been written with these parameters: their annotations and defaults."""
    kind = inspect.Parameter.KEYWORD_ONLY
    listed = [inspect.Parameter(n, kind, annotation=a, default=d) for n, (a, d) in parameters.items()]
    command.__annotations__ = {name: annotation for name, (annotation, _) in parameters.items()}
    command.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    return command


def _parse(name: str, parse: Callable[[str], Any] | None, value: Any) -> Any:
    try:
        return value if parse is None else parse(value)
    except ValueError as error:
        raise ValueError(str(error).replace(name, f"--{name.replace('_', '-')}", 1)) from None


def _plain_type(method: type[Method], name: str) -> type:
    """What the command line reads a field as: the first of the types that it may have."""
    hint = get_type_hints(method)[name]
    kinds = [kind for kind in (hint, *get_args(hint)) if kind in (bool, int, float)]
    return kinds[0] if kinds else str
