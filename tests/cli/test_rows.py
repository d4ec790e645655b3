"""``fastmix infer --rows``: a table of evidence in, a table of answers out."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from cli_helpers import Run, assert_refused

NETWORK = """network n { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable street { type discrete [ 3 ] { dry, damp, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( street | rain ) { (no) 0.9, 0.05, 0.05; (yes) 0.1, 0.2, 0.7; }
"""


@pytest.fixture
def network(tmp_path: Path) -> str:
    path = tmp_path / "weather.bif"
    path.write_text(NETWORK, "utf-8")
    return str(path)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_row_is_answered(run: Run, network: str, tmp_path: Path) -> None:
    rows = tmp_path / "evidence.csv"
    rows.write_text("street\nwet\n?\ndry\n", "utf-8")
    outcome = run("infer", network, "--rows", str(rows))
    assert outcome.code == 0
    lines = table(outcome.out)
    assert [line["status"] for line in lines] == ["ok"] * 3
    assert [round(float(line["rain=yes"]), 4) for line in lines] == [0.7778, 0.2, 0.027]
    written = tmp_path / "answers.csv"
    assert run("infer", network, "--rows", str(rows), "-o", str(written)).out == ""
    assert table(written.read_text("utf-8")) == lines
    by_messages = table(run("infer", network, "--rows", str(rows), "--method", "loopy-bp").out)  # exact on a tree
    assert [line["status"] for line in by_messages] == ["ok"] * 3
    assert [round(float(line["rain=yes"]), 4) for line in by_messages] == [0.7778, 0.2, 0.027]
    told = json.loads(run("infer", network, "--rows", str(rows), "--json").out)
    assert told["type"] == "RowAnswers"
    assert told["marginals"][1][0] == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize(
    ("content", "more", "code", "named"),
    [
        ("street\nicy\n", (), 3, "evidence.csv:2"),
        ("snow\nyes\n", (), 3, "'snow'"),
        ("street\n", (), 3, "evidence.csv"),
        ("street\nwet\n", ("--method", "gibbs"), 2, "--method"),
        ("street\nwet\n", ("--evidence", "rain=no"), 2, "--rows"),
        ("street\nwet\n", ("--num-sweeps", "10"), 2, "--num-sweeps"),
        ("street\nwet\n", ("-o", "answers.mar"), 2, "-o"),
    ],
)
def test_what_cannot_be_answered_is_refused(
    run: Run, network: str, tmp_path: Path, content: str, more: tuple[str, ...], code: int, named: str
) -> None:
    rows = tmp_path / "evidence.csv"
    rows.write_text(content, "utf-8")
    assert_refused(run("infer", network, "--rows", str(rows), *more), code, named)
