"""Signatures and documentation of functions whose options are those of methods.

A method is a frozen dataclass: its fields are its options, and the Parameters section of its docstring says what each
of them is for. That is the only place where either is written. A function such as :func:`fastmix.temper` ends with
``**options`` and is decorated with :func:`takes_options`; the command line asks :func:`option_help`; and the stub of
the package, which editors and type checkers read, is written from the same signatures (``make stubs``).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from fastmix.method import Method, options_of

__all__ = ["OptionEntry", "option_entries", "option_help", "takes_options"]

F = TypeVar("F", bound=Callable[..., Any])

_INDENT = "    "
_WIDTH = 112  # of the text of an entry, for lines of 120 characters
_ROLE = re.compile(r":\w+:`~?\.?([^`]+)`")
_LITERAL = re.compile(r"``([^`]+)``")
_FIRST_SENTENCE = re.compile(r"(.*?[.])(?=\s+[A-Z`]|\s*$)", re.DOTALL)


class OptionEntry(NamedTuple):
    """The entry of one option in a docstring."""

    kind: str  #: the type, as it is written after the colon
    text: str  #: the description, without indentation

    def lines(self, name: str) -> list[str]:
        """The entry of a Parameters section for an option of this name."""
        body = [f"{_INDENT}{line}" if line else "" for line in self.text.splitlines()]
        return [f"{name} : {self.kind}" if self.kind else name, *body]


def option_entries(method: type[Method]) -> dict[str, OptionEntry]:
    """Entries of all options of a method by name, from its docstring and those of its base classes.

    The docstring of a class wins over those of the classes that it is derived from.
    """
    entries: dict[str, OptionEntry] = {}
    for kind in reversed(method.__mro__):
        entries |= _entries_of(kind.__dict__.get("__doc__") or "")
    return {name: entries[name] for name in options_of(method) if name in entries}


def _entries_of(docstring: str) -> dict[str, OptionEntry]:
    """The entries of the Parameters section of a docstring, by name."""
    entries: dict[str, OptionEntry] = {}
    name = ""
    kind = ""
    body: list[str] = []
    for line in [*_section(inspect.cleandoc(docstring).splitlines(), "Parameters"), "end"]:
        if line.startswith(_INDENT) or not line:
            body.append(line[len(_INDENT) :])
            continue
        if name:
            entries[name] = OptionEntry(kind, "\n".join(body).strip())
        name, _, kind = (part.strip() for part in line.partition(" : "))
        body = []
    return entries


def _section(lines: list[str], title: str) -> list[str]:
    """The lines of a section of a docstring, without its title; none where there is no such section."""
    start, end = _section_bounds(lines, title)
    return lines[start:end]


def _section_bounds(lines: list[str], title: str) -> tuple[int, int]:
    """The first line of a section of a docstring below its title, and the line after its last."""
    titles = [i for i, line in enumerate(lines[1:]) if line and not line.strip("-")]
    for position, i in enumerate(titles):
        if lines[i].strip() == title:
            following = titles[position + 1 :]
            return i + 2, following[0] if following else len(lines)
    return 0, 0


def option_help(method: type[Method], name: str) -> str:
    """The first sentence about an option, as a line of help of the command line; empty where nothing is said.

    Names of options become flags: ``num_sweeps`` is ``--num-sweeps`` there.
    """
    entry = option_entries(method).get(name)
    if entry is None:
        return ""
    text = " ".join(entry.text.split())
    found = _FIRST_SENTENCE.match(text)
    sentence = text if found is None else found.group(1)
    sentence = _ROLE.sub(lambda match: match.group(1), sentence)
    options = options_of(method)

    def spoken(match: re.Match[str]) -> str:
        word = match.group(1)
        return f"--{word.replace('_', '-')}" if word in options or word == "time_limit" else word

    return _LITERAL.sub(spoken, sentence)


def takes_options(*methods: type[Method]) -> Callable[[F], F]:
    """A decorator: the ``**options`` of a function are the options of these methods.

    The signature that users and tools see has them after the positional parameters, and the docstring has their entries
    where it says ``**options``. Where methods have different defaults the signature says None, for that of the method.
    """

    def decorate(function: F) -> F:
        function.__signature__ = _signature(function, methods)  # type: ignore[attr-defined]
        function.__doc__ = _documentation(function.__doc__ or "", methods)
        return function

    return decorate


def _signature(function: Callable[..., Any], methods: tuple[type[Method], ...]) -> inspect.Signature:
    """The signature of a function with the options of methods in place of ``**options``."""
    own = list(inspect.signature(function).parameters.values())
    positional = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = [p for p in own if p.kind is p.KEYWORD_ONLY]
    options = []
    for name, fields in _fields_by_name(methods).items():
        defaults = {repr(field.default): field.default for field in fields.values()}
        shared = len(defaults) == 1 and len(fields) == len(methods)
        annotation = _annotation([str(field.type) for field in fields.values()], optional=not shared)
        default = next(iter(defaults.values())) if shared else None
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation))
    # The choice of a method comes before its options, what every call takes after them.
    first = [p for p in keywords if p.name == "method"]
    rest = [p for p in keywords if p.name != "method"]
    return inspect.signature(function).replace(parameters=[*positional, *first, *options, *rest])


def _fields_by_name(methods: tuple[type[Method], ...]) -> dict[str, dict[type[Method], dataclasses.Field[Any]]]:
    """The options of methods: by name, and by the methods that have one of this name."""
    found: dict[str, dict[type[Method], dataclasses.Field[Any]]] = {}
    for method in methods:
        for name, field in options_of(method).items():
            found.setdefault(name, {})[method] = field
    return found


def _annotation(types: list[str], *, optional: bool) -> str:
    """The annotation of an option that several methods have, which may be None where it is for one of them."""
    kinds = list(dict.fromkeys(types))
    text = " | ".join(kinds)
    if optional and "None" not in text.split(" | ") and text != "Any":
        text += " | None"
    return text


def _documentation(docstring: str, methods: tuple[type[Method], ...]) -> str:
    """A docstring with the entries of options in place of the entry ``**options`` of its Parameters section."""
    lines = inspect.cleandoc(docstring).splitlines()
    start, end = _section_bounds(lines, "Parameters")
    try:
        place = lines.index("**options", start, end)
    except ValueError:
        raise ValueError("the docstring must have an entry **options in its section Parameters") from None
    after = place + 1
    while after < len(lines) and (lines[after].startswith(_INDENT)):
        after += 1
    entries: list[str] = []
    for name, fields in _fields_by_name(methods).items():
        entries += _shared_entry(name, list(fields), all_of_them=len(fields) == len(methods)).lines(name)
    return "\n".join([*lines[:place], *entries, *lines[after:]])


def _shared_entry(name: str, methods: list[type[Method]], *, all_of_them: bool) -> OptionEntry:
    """The entry of an option of several methods: with their names where they differ, or where others lack it."""
    entries: Mapping[type[Method], OptionEntry] = {method: option_entries(method)[name] for method in methods}
    texts: dict[str, list[str]] = {}
    for method, entry in entries.items():
        texts.setdefault(entry.text, []).append(f"``{method.name}``")
    kind = next(iter(entries.values())).kind
    if len(texts) > 1:
        told = [_wrapped(f"For {' and '.join(names)}: {text[0].lower()}{text[1:]}") for text, names in texts.items()]
        return OptionEntry(kind, "\n".join(told))
    text, names = next(iter(texts.items()))
    return OptionEntry(kind, text if all_of_them else _wrapped(f"{text} Only for {' and '.join(names)}."))


def _wrapped(text: str) -> str:
    """A text in lines that fit a docstring."""
    return textwrap.fill(" ".join(text.split()), _WIDTH)
