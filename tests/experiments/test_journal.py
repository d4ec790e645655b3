from __future__ import annotations

from pathlib import Path

import pytest

from fastmix.errors import FormatError
from fastmix.experiments.journal import Journal
from fastmix.experiments.plan import Row

ROW = {"error": 0.1, "facts": {}, "failure": None, "method": "m", "parameters": {}, "trace": [], "trial": 0}


def rows(*keys: str) -> list[Row]:
    return [{**ROW, "key": key, "seconds": {"total": 1.0}} for key in keys]


def test_rows_come_back_in_order_with_their_seconds(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    assert journal.read() == []
    journal.append(rows("b", "a"))
    journal.append(rows("c"))
    assert [row["key"] for row in journal.read()] == ["b", "a", "c"]
    assert journal.read()[0] == {**ROW, "key": "b", "seconds": {"total": 1.0}}
    assert "seconds" not in journal.path.read_text()


@pytest.mark.parametrize("cut", [1, 5, 20, -1])
def test_a_torn_line_is_dropped(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(rows("a", "b"))
    whole = journal.path.read_bytes()
    second = whole.index(b"\n") + 1
    journal.path.write_bytes(whole[: second + cut] if cut > 0 else whole[:cut])
    assert [row["key"] for row in journal.read()] == ["a"]
    journal.repair()
    assert journal.path.read_bytes() == whole[:second]
    journal.append(rows("b"))
    assert journal.path.read_bytes() == whole


def test_a_file_torn_in_its_first_line_starts_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.path.write_bytes(b'{"key":' + b" " * 100_000)
    journal.repair()
    assert journal.path.read_bytes() == b""


def test_seconds_of_a_row_that_was_lost_do_no_harm(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(rows("a"))
    with open(journal.seconds_path, "a") as stream:  # killed between the two files
        stream.write('{"key":"b","seconds":{"total":5.0}}\n')
    journal.append(rows("b"))
    assert [row["seconds"] for row in journal.read()] == [{"total": 1.0}, {"total": 1.0}]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(rows("a"))
    line = journal.path.read_text()
    wrong = line.strip().replace('"trial":0', '"trial":"x"')
    for text in ("nonsense", "[1]", '{"a": 1}', "\x00", "[" * 100_000, wrong):
        journal.path.write_text(f"{line}{text}\n{line}")
        with pytest.raises(FormatError, match=r"x\.jsonl:2: not a row"):
            journal.read()


@pytest.mark.parametrize(
    "content", [b"\x89PNG no newline", b"mine", b'{"mine": 1}', b"[1, 2", b"\xff\xfe\n\x00", b" {"]
)
@pytest.mark.parametrize("name", ["x.jsonl", "x.seconds.jsonl"])
def test_a_file_that_is_not_ours_is_named_and_left_alone(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=rf"{name}:1: not a row"):
        Journal(tmp_path, "x").read()
    assert (tmp_path / name).read_bytes() == content


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        Journal(tmp_path, "x").lock(),
        pytest.raises(ValueError, match=r"^output "),
        Journal(tmp_path, "x").lock(),
    ):
        pass
    with Journal(tmp_path, "x").lock():  # free again
        pass
