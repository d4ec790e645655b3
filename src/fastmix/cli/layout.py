"""How ``--help`` is laid out: options in named groups, and every line of a list of commands as a whole sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["GroupedCommand", "UncutGroup"]

COMMON_OPTIONS = "Options"  # the title above options that are in no group
_PANELS = {  # of options that several commands have
    "Method": ("method", "log_z", "bracket"),
    "Evidence": ("evidence", "no_evidence"),
    "Output": ("output", "form", "as_json"),
    "Seed, time and machine": (
        "seed", "time_limit", "num_threads", "num_workers", "cluster", "backend", "memory_limit",
    ),
}  # fmt: skip
_PANEL_OF = {name: title for title, names in _PANELS.items() for name in names}


class GroupedCommand(TyperCommand):
    """A command whose help lists options under the titles of their groups (``rich_help_panel``), as plain text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of a command; a ValueError if a command that writes one file is given several outputs."""
        takes_one = any(p.name == "output" and not p.multiple for p in self.get_params(ctx))
        given = [word for word in args if word in ("-o", "--output") or word.startswith("--output=")]
        if takes_one and len(given) > 1:
            raise ValueError(f"-o must be given once: {ctx.info_name} writes one file, got {len(given)} of them")
        return list(super().parse_args(ctx, args))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the line of usage: names of arguments as they are, without braces."""
        pieces = super().collect_usage_pieces(ctx)
        bare = (re.sub(r"^\{(\w+)(\.*)\}\.*$", r"\1\2", piece) for piece in pieces)
        return [re.sub(r"^\[\[(.*)\]\]$", r"[\1]", piece) for piece in bare]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options of no group, those that commands share, and those of each method."""
        arguments: list[tuple[str, str]] = []
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in (COMMON_OPTIONS, *_PANELS)}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                name, text = record
                arguments.append((name.partition(" <")[0], text))  # that all of them are text goes without saying
            else:
                shared = _PANEL_OF.get(parameter.name or "", COMMON_OPTIONS)
                title = getattr(parameter, "rich_help_panel", None) or shared
                groups.setdefault(title, []).append(record)
        write_sections(formatter, [("Arguments", arguments), *groups.items()])


class UncutGroup(TyperGroup):
    """A command with subcommands whose help has one whole sentence for each, under the titles of their groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of the subcommands and the first paragraphs of their help."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            command: Any = self.get_command(ctx, name)
            title = getattr(command, "rich_help_panel", None) or "Commands"
            paragraph = (command.help or "").split("\n\n")[0]
            groups.setdefault(title, []).append((name, " ".join(paragraph.split())))
        write_sections(formatter, groups.items())


def write_sections(formatter: Any, sections: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    """Write titles and two-column lists with one common width of the first column; empty lists are left out."""
    for title, records in sections:
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
