"""How the documentation is built: ``make docs``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fastmix

project = "fastmix"
author = project_copyright = "the fastmix developers"
release = version = fastmix.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "numpydoc", "sphinx.ext.viewcode"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"fastmix {version}"
html_static_path, html_css_files = ["_static"], ["site.css"]
exclude_patterns = ["_build"]
autodoc_mock_imports = ["jax", "torch"]  # extras that are large
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are in the parameter lists
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
nitpicky = False


def _write_command_reference() -> None:
    """The help of every command, as the command line prints it now."""
    lines = [
        "# Command line", "",
        "`fastmix VERB MODEL [options]`: data go to stdout or `-o`, messages and progress to stderr; `-` is stdin; "
        "`--json` gives one JSON object on stdout. Exit codes: 0 done; 1 the answer is there but not to be trusted "
        "(not converged, not mixed, not certified, interrupted); 2 refused or wrong usage; 3 a bad file.", "",
    ]  # fmt: skip
    names = [[name] for name in _commands_in(_help()) if name != "generate"]
    for command in names + [["generate", name] for name in _commands_in(_help("generate"))]:
        lines += [f"## fastmix {' '.join(command)}", "", "```text", _help(*command).rstrip(), "```", ""]
        if command == ["infer"]:
            lines += _options_of_methods()
    target = Path(__file__).parent / "command_line.md"
    content = "\n".join(lines)
    if not target.exists() or target.read_text("utf-8") != content:
        target.write_text(content, "utf-8")


def _help(*command: str) -> str:
    arguments = [sys.executable, "-m", "fastmix", *command, "--help"]
    environment = {**os.environ, "COLUMNS": "104", "TERMINAL_WIDTH": "104", "NO_COLOR": "1"}
    return subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment).stdout


def _options_of_methods() -> list[str]:
    """What the help of ``infer`` adds for each method, as a page has it."""
    lines = []
    for method in fastmix.method.method_names():
        options = _help("infer", "--method", method).partition(f"\nOptions of {method}:\n")[2].rstrip()
        if options and method != "auto":
            lines += [f"### `--method {method}`", "", "```text", options, "```", ""]
    return lines


def _commands_in(text: str) -> list[str]:
    """Names in the lists of commands at the end of a help."""
    return re.findall(r"^  (\S+)", text.partition("\nCommands")[2], flags=re.MULTILINE)


def _end_examples(app: Any, page: str, source: list[str]) -> None:  # noqa: ARG001
    """Take out the blank line that ends an example: a doctest of the text needs it, a reader does not."""
    kept: list[str] = []
    inside = False
    for line in source[0].splitlines():
        if line.lstrip().startswith("```"):
            if inside and not kept[-1].strip():
                kept.pop()
            inside = not inside
        kept.append(line)
    source[0] = "\n".join(kept) + "\n"


def setup(app: Any) -> None:
    """Register what is done to the text of every page."""
    app.connect("source-read", _end_examples)


_write_command_reference()
