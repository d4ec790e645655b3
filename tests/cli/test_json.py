"""What every command prints with ``--json`` is as docs/schemas/results.json says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Run
from PIL import Image

from fastmix import MarkovRandomField
from fastmix.cli import parser
from fastmix.io import write_model
from result_schemas import complaints, documented_keys

pytest.importorskip("jsonschema")

SHORT = ("--num-sweeps", 60, "--burn-in", 6, "--seed", 1)
# Every command, with what it takes beside --json, and the class of results or the part of the schemas it prints.
COMMANDS: list[tuple[str, tuple[Any, ...], str]] = [
    ("infer", ("model.npz", "-e", "rain=yes"), "ExactResult"),
    ("infer", ("model.npz", "-o", "out", "model.npz.uai"), "Batch"),
    ("sample", ("model.npz", *SHORT), "SampleResult"),
    ("temper", ("model.npz", *SHORT), "TemperedResult"),
    ("map", ("model.npz", "-e", "rain=yes"), "MostProbableResult"),
    ("compare", ("model.npz", "--methods", "loopy-bp"), "Comparison"),
    ("bracket", ("model.npz", "-e", "rain=yes"), "BracketResult"),
    ("certify", ("model.npz", "-e", "rain=yes"), "Certificate"),
    ("project", ("model.npz", "--norm-bound", 0.9, "-o", "near.npz"), "ProjectionResult"),
    ("info", ("model.npz", "-e", "rain=yes"), "Description"),
    ("convert", ("model.npz", "other.uai"), "ModelFile"),
    ("generate", ("ising-grid", "--rows", 2, "--cols", 2, "--coupling-max", 1, "-o", "new.npz"), "ModelFile"),
    ("learn", ("rows.csv", "-o", "learnt.npz", "--max-iter", 2, "--seed", 1), "LearnResult"),
    ("fit-network", ("rows.csv", "-o", "fitted.bif"), "NetworkFit"),
    ("score", ("model.npz", "rows.csv"), "ScoreResult"),
    ("denoise", ("noisy.png", "-o", "clean.png", "--method", "mean-field", "--seed", 1), "DenoiseResult"),
]
ELSEWHERE = {"experiment", "warm-up"}  # test_applications.py, tests/test_warming.py: they take long
ELSEWHERE |= {"explain"}  # test_cli.py: it is no answer about a model


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> None:
    """A model in two formats, rows of data and a picture, in the folder that commands run in."""
    pair = MarkovRandomField.from_tables(
        [[0.0, 0.3], [0.1, 0.0, 0.2]], [(0, 1)], [[[0.5, 0.0, 0.0], [0.0, 0.2, 0.0]]],
        variable_names=["rain", "street"], state_names=[["no", "yes"], ["dry", "damp", "wet"]],
    )  # fmt: skip
    write_model(pair, "model.npz")
    write_model(pair, "model.npz.uai")
    Path("rows.csv").write_text("rain,street\nno,dry\nyes,wet\nyes,damp\nno,dry\n")
    noise = np.random.default_rng(0).integers(0, 256, (6, 8), dtype=np.uint8)
    Image.fromarray(noise).save("noisy.png")


def outputs(run: Run) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The name of every command, the part of the schemas that it follows, and what it prints."""
    for command, words, part in COMMANDS:
        outcome = run(command, *words, "--json")
        assert outcome.code in (0, 1), outcome
        yield command, part, json.loads(outcome.out)


@pytest.mark.usefixtures("folder")
def test_what_commands_print_is_as_the_schemas_say(run: Run) -> None:
    seen: dict[str, set[str]] = {}
    for command, part, data in outputs(run):
        assert complaints(data, part) == [], command
        assert data.get("type", part) == part
        seen.setdefault(part, set()).update(data)
    # What only commands print, and all that the answers which are no results have.
    assert "output" in seen["DenoiseResult"]
    assert "note" in seen["LearnResult"] & seen["ScoreResult"]
    for part in ("Description", "ModelFile", "Batch"):
        assert set(documented_keys(part)) == seen[part]


def test_every_command_is_asked() -> None:
    commands = {parser.command_name(command) for group in parser.COMMANDS.values() for command in group}
    assert {command for command, _, _ in COMMANDS} | ELSEWHERE >= commands
