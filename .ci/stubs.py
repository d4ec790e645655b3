"""Writes ``src/fastmix/__init__.pyi``, by which editors and type checkers know the public names of fastmix.

    python .ci/stubs.py [--check]

Names are loaded when they are first used, and functions that take the options of methods get their signatures from
these methods: neither can be read from the source. So the stub spells both out: an import for every name, and for
functions that take a method by name one overload for each method. ``--check`` only says whether the file is current.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import fastmix
from fastmix.method import METHODS, Method, find_method, options_of

STUB = Path(__file__).resolve().parent.parent / "src" / "fastmix" / "__init__.pyi"

# Functions that take a method by name, the default first.
CHOOSING = {"infer": METHODS, "sample": ("gibbs", "swendsen-wang", "perfect")}
# What they return where the type checker knows no more than that there is a method.
ANY_RESULT = {"infer": "InferenceResult", "sample": "SampleResult | PerfectResult"}
# Functions whose options are those of one method.
THIN = ("anneal", "loopy_bp", "mean_field", "perfect_sample", "temper")

KEYWORD = inspect.Parameter.KEYWORD_ONLY


class Imports:
    """The imports that annotations of the stub need."""

    def __init__(self) -> None:
        self.lines: set[str] = set()

    def annotation(self, text: str, modules: Iterable[str]) -> str:
        """An annotation, after its names are imported from where the first of these modules has them from."""
        for node in ast.walk(ast.parse(text, mode="eval")):
            if isinstance(node, ast.Name) and not hasattr(builtins, node.id):
                self.lines.add(f"from {self._origin(node.id, modules)} import {node.id}")
        return text

    @staticmethod
    def _origin(name: str, modules: Iterable[str]) -> str:
        """The module that a name of an annotation comes from."""
        if name == "Literal":
            return "typing"
        if name in fastmix.__all__:
            return f"fastmix.{fastmix._HOMES[name]}"
        for module in modules:
            if name in origins(module):
                return origins(module)[name]
        raise LookupError(f"none of {', '.join(modules)} has the name {name}")


@cache
def origins(module: str) -> dict[str, str]:
    """The modules that the names of a module come from, those that it imports for type checkers alone included."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.asname or alias.name: node.module for alias in node.names}
        elif isinstance(node, ast.ClassDef):
            found[node.name] = module
        elif isinstance(node, ast.Assign):
            found |= {target.id: module for target in node.targets if isinstance(target, ast.Name)}
    return found


def function_text(
    imports: Imports,
    name: str,
    parameters: list[inspect.Parameter],
    returned: str,
    modules: list[str],
    *,
    overloaded: bool = False,
    docstring: str | None = None,
) -> str:
    """The lines of a function in the stub."""
    lines = ["@overload"] if overloaded else []
    lines.append(f"def {name}(")
    keywords = [p.name for p in parameters if p.kind is KEYWORD]
    for p in parameters:
        if keywords and p.name == keywords[0]:
            lines.append("    *,")
        lines.append(f"    {parameter_text(imports, p, modules)},")
    lines.append(f") -> {imports.annotation(returned, modules)}:")
    body = "..." if docstring is None else f'"""{docstring.strip()}\n"""'
    lines.append(textwrap.indent(body, "    "))
    return "\n".join(lines)


def parameter_text(imports: Imports, p: inspect.Parameter, modules: list[str]) -> str:
    """A parameter of a function in the stub; its default is written out where it is a plain value."""
    text = f"{p.name}: {imports.annotation(str(p.annotation), modules)}"
    if p.default is p.empty:
        return text
    plain = p.default is None or isinstance(p.default, bool | int | float | str)
    return f"{text} = {p.default!r}" if plain else f"{text} = ..."


def modules_of(method: type[Method]) -> list[str]:
    """The modules that the annotations of a method are written in."""
    return [kind.__module__ for kind in method.__mro__ if kind.__module__.startswith("fastmix")]


def returned_by(method: type[Method]) -> str:
    """The annotation of what a method returns."""
    return str(inspect.signature(method.run).return_annotation)


def chosen(annotation: str, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """The parameter ``method`` of an overload."""
    return inspect.Parameter("method", KEYWORD, annotation=annotation, default=default)


def overloads(imports: Imports, name: str, methods: tuple[str, ...]) -> list[str]:
    """A function that takes a method: by its name with its options, as an object, or by a name known at run time."""
    imports.lines.add("from typing import overload")
    function = getattr(fastmix, name)
    kinds = {method: find_method(method) for method in methods}
    options = {option for kind in kinds.values() for option in options_of(kind)} | {"method", "options"}
    shared = [p for p in inspect.signature(function).parameters.values() if p.name not in options]
    positional = [p for p in shared if p.kind is not KEYWORD]
    keywords = [p for p in shared if p.kind is KEYWORD]
    home = [function.__module__]
    texts = []
    for method, kind in kinds.items():
        is_default = method == methods[0]
        by_name = chosen(f"Literal['{method}']", method if is_default else inspect.Parameter.empty)
        own = [
            inspect.Parameter(option, KEYWORD, annotation=str(field.type), default=field.default)
            for option, field in options_of(kind).items()
        ]
        texts.append(
            function_text(
                imports, name, [*positional, by_name, *own, *keywords], returned_by(kind), [*modules_of(kind), *home],
                overloaded=True, docstring=inspect.getdoc(function) if is_default else None,
            )
        )  # fmt: skip
    for kind in kinds.values():
        parameters = [*positional, chosen(kind.__name__), *keywords]
        texts.append(
            function_text(imports, name, parameters, returned_by(kind), [*modules_of(kind), *home], overloaded=True)
        )
    parameters = [*positional, chosen("str | Method"), *keywords]
    texts.append(function_text(imports, name, parameters, ANY_RESULT[name], ["fastmix.method", *home], overloaded=True))
    return texts


def thin(imports: Imports, name: str) -> str:
    """A function whose options are those of one method."""
    function = getattr(fastmix, name)
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    # The annotations of options are written in the modules of its method.
    kinds = [find_method(method) for method in METHODS]
    modules = [function.__module__, *(module for kind in kinds for module in modules_of(kind))]
    returned = str(signature.return_annotation)
    return function_text(imports, name, parameters, returned, modules, docstring=inspect.getdoc(function))


def stub_text() -> str:
    """The whole stub."""
    imports = Imports()
    functions = [text for name, methods in CHOOSING.items() for text in overloads(imports, name, methods)]
    functions += [thin(imports, name) for name in THIN]
    written = {*CHOOSING, *THIN, "__version__"}
    for name in fastmix.__all__:
        if name not in written:
            home = f"fastmix.{fastmix._HOMES[name]}"
            imports.lines.discard(f"from {home} import {name}")
            imports.lines.add(f"from {home} import {name} as {name}")
    imports.lines |= {f"from . import {module} as {module}" for module in (*fastmix._MODULES, *fastmix._EXTRA_MODULES)}
    head = '"""The public names of fastmix for editors and type checkers; written by ``make stubs``."""'
    names = ", ".join(repr(name) for name in fastmix.__all__)
    parts = [head, "\n".join(sorted(imports.lines)), "__version__: str", f"__all__ = [{names},]", *functions]
    return formatted("\n\n".join(parts) + "\n")


def formatted(text: str) -> str:
    """The text as the linter sorts and lays it out."""
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check", "--fix", "--quiet", "--select", "I"], ["format", "--quiet"]):
        call = [str(ruff), *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(call, input=text, capture_output=True, text=True, check=True).stdout
    return text


def main() -> int:
    """Write the stub, or say that it is not current."""
    text = stub_text()
    if "--check" not in sys.argv[1:]:
        STUB.write_text(text)
        return 0
    if STUB.read_text() == text:
        return 0
    print(f"{STUB.name} is not current: make stubs", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
