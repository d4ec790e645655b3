"""What tests of the command line share: how it is run, how it refuses, and small files."""

from __future__ import annotations

import functools
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PROVENANCE = {"version", "seed", "options", "model_hash", "device"}

# Three variables of 2, 3 and 2 states, a pair factor and one over all three: pairwise once a variable is observed.
TRIPLE = "MARKOV\n3\n2 3 2\n2\n2 0 1\n3 0 1 2\n6\n 1 2 3 4 5 6\n12\n 1 5 2 6 3 7 4 8 5 9 6 1\n"
TRIPLE_PAIR = np.arange(1.0, 7).reshape(2, 3)
TRIPLE_TABLE = np.array([1.0, 5, 2, 6, 3, 7, 4, 8, 5, 9, 6, 1]).reshape(2, 3, 2)

# Three binary variables that must all differ: every pair is possible, no configuration is.
CONTRADICTION = "MARKOV 3 2 2 2 3 2 0 1 2 1 2 2 0 2 4 0 1 1 0 4 0 1 1 0 4 0 1 1 0"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


def replace(monkeypatch: Any, owner: Any, name: str, stand_in: Callable[..., Any]) -> None:
    """Put something in the place of a function; options are still those of its signature."""
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, functools.wraps(original)(lambda *values, **named: stand_in(*values, **named)))


def run_process(*arguments: str | Path, stdin: bytes = b"", **options: Any) -> Outcome:
    """The command line as users start it."""
    done = subprocess.run(command(*arguments), input=stdin, capture_output=True, timeout=120, **options)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def start_process(*arguments: str | Path, **options: Any) -> subprocess.Popen[Any]:
    """The command line as a process that takes Ctrl-C, which one in the background may have been told to ignore."""
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "fastmix", *map(str, arguments)]


def assert_refused(outcome: Outcome, code: int, pattern: str = "") -> None:
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert re.match(r"fastmix: \S", outcome.err), outcome.err
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    assert re.search(pattern, outcome.err), outcome.err


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}
