"""The command line in this process, and models as files."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import TRIPLE, Outcome, Run

from fastmix import cli, instances
from fastmix import method as base
from fastmix.cli import parser
from fastmix.io import write_model
from fastmix.model import MarkovRandomField

make_new = parser.make_parser
parsers: dict[tuple[str, tuple[str, ...]], Any] = {}


def make_parser(arguments: list[str]) -> Any:
    """The parser of the command that is called, kept for later calls: making it takes most of a short one."""
    called = arguments[0] if arguments else ""
    commands = [command for group in parser.COMMANDS.values() for command in group]
    found = [command for command in commands if parser.command_name(command) == called]
    key = called, parser.methods_of(found[0], arguments) if found else ()
    if base.ADDED:  # by a test, with options of its own
        return make_new(arguments)
    if key not in parsers:
        parsers[key] = make_new(arguments)
    return parsers[key]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, in an empty folder; ``stdin`` is what it finds on its standard input."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "make_parser", make_parser)
    # Which command is the first to compile depends on the tests before it.
    monkeypatch.setattr("fastmix._jit.told", {"compiling"})

    def call(*arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        code = cli.run_command([str(a) for a in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


@pytest.fixture
def model() -> MarkovRandomField:
    return instances.ising_grid(2, 3, coupling_max=1.5, seed=3)


@pytest.fixture
def saved(model: MarkovRandomField, tmp_path: Path) -> str:
    """The model as an npz file, which holds it exactly."""
    write_model(model, tmp_path / "model.npz")
    return "model.npz"


@pytest.fixture
def triple(tmp_path: Path) -> str:
    (tmp_path / "triple.uai").write_text(TRIPLE)
    return "triple.uai"
