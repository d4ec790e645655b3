"""The parser of a command line: the commands, and the options of the one that is called."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer

from fastmix import __version__
from fastmix.cli import answers, applications, explaining, learning, models
from fastmix.cli.layout import GroupedCommand, UncutGroup
from fastmix.cli.options import names_of, with_options
from fastmix.errors import FastmixError

__all__ = ["COMMANDS", "command_name", "join_evidence", "make_parser", "methods_of"]

#: The functions of the commands, under the titles of the list in ``fastmix --help``.
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Commands that answer": (
        answers.infer,
        answers.map_,
        answers.sample,
        answers.temper,
        answers.compare,
        applications.denoise,
    ),
    "Commands that prove": (models.certify, models.bracket),
    "Commands that change a model": (models.project,),
    "Commands that learn": (learning.learn, learning.fit_network, learning.score),
    "Commands for files": (models.info, models.convert),
    "Commands of the paper": (applications.experiment,),
    "Commands about fastmix": (explaining.explain, applications.warm_up),
}
_GENERATE = "generate"  # the one command with subcommands
_HELP_FLAGS = ("-h", "--help")
_EVIDENCE_FLAGS = ("-e", "--evidence")


def make_parser(arguments: list[str]) -> Any:
    """The parser for a command line; it knows the options of the command that is called, and of no other."""
    app = typer.Typer(
        help="Marginals, samples, best states and learning for discrete graphical models, with guarantees.",
        cls=UncutGroup,
        add_completion=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(_HELP_FLAGS)},
    )
    app.callback()(_root)
    commands = {command_name(command): command for group in COMMANDS.values() for command in group}
    called = arguments[0] if arguments else ""
    if called == _GENERATE:
        app.add_typer(models.generate(), name=called)
    elif called in commands:
        command = commands[called]
        app.command(called, cls=GroupedCommand)(with_options(command, methods_of(command, arguments)))
    else:
        _add_names(app)
    return typer.main.get_command(app)


def join_evidence(arguments: list[str]) -> list[str]:
    """A command line in which the pairs of a repeated ``--evidence`` stand in one: all of them were observed.

    A ValueError if one of several is a file.
    """
    kept: list[str] = []
    values: list[str] = []
    place = 0  # of the first one
    words = iter(arguments)
    for word in words:
        if word == "--":
            kept += [word, *words]
            break
        value = None
        if word in _EVIDENCE_FLAGS:
            value = next(words, None)
        elif word.startswith("--evidence="):
            value = word.partition("=")[2]
        elif word.startswith("-e") and len(word) > 2:
            value = word[2:]
        if value is None:
            kept.append(word)
        else:
            place = place if values else len(kept)
            values.append(value)
    if len(values) < 2:
        return arguments
    if files := [value for value in values if "=" not in value]:
        raise ValueError(f"--evidence must be given once where it is a file, got {files[0]!r} beside others")
    return [*kept[:place], "--evidence", ",".join(values), *kept[place:]]


def command_name(command: Callable[..., None]) -> str:
    """The name of a command as it is typed."""
    return command.__name__.rstrip("_").replace("_", "-")


def _add_names(app: typer.Typer) -> None:
    """Add all commands without their options, for a list of what there is."""
    for title, group in COMMANDS.items():
        for command in group:
            app.command(command_name(command), help=command.__doc__, rich_help_panel=title)(_nothing)
        if models.convert in group:
            app.command(_GENERATE, help="Write a random model.", rich_help_panel=title)(_nothing)


def _nothing() -> None:
    """A stand-in for a command that is not called."""


def methods_of(command: Callable[..., None], arguments: list[str]) -> tuple[str, ...]:
    """The methods of inference whose options a command takes.

    That is the method which the command line names, or the default, if it has all options that are given, and for a
    help in any case. Otherwise these are all methods: an option of another one is then known, and refused with the
    names of the methods that take it.
    """
    if "options" not in inspect.signature(command).parameters:
        return ()
    if command is answers.temper:
        return ("tempered",)
    from fastmix.method import find_method, method_names, options_of

    if command is answers.sample:
        from fastmix.sampling.sample import SAMPLERS

        return SAMPLERS

    named = _named_method(arguments)
    wants_help = any(flag in arguments for flag in _HELP_FLAGS)
    if named is None:
        named = "auto" if command is answers.infer else "annealed"
    if wants_help and named in method_names():
        return (named,)
    given = {word[2:].partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")}
    known = {"json", "help", *names_of(command)}
    with contextlib.suppress(FastmixError):  # which may be of a package that is not imported yet
        if given <= known | set(options_of(find_method(named))):
            return (named,)
    return method_names()


def _named_method(arguments: list[str]) -> str | None:
    """The value of the last ``--method`` of a command line; None if there is none."""
    named = None
    for before, word in pairwise(["", *arguments]):
        if before == "--method" or word.startswith("--method="):
            named = word.removeprefix("--method=")
    return named


def _show_version(value: bool) -> None:
    """Print the version and leave, if ``--version`` was given."""
    if value:
        print(f"fastmix {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Hold the options that are given before the name of a command."""
