from __future__ import annotations

from pathlib import Path

import pytest

from fastmix.errors import FormatError
from fastmix.experiments.journal import Journal


def outcomes(*keys: str) -> list[tuple[dict, dict]]:
    return [({"key": key, "error": 0.1}, {"total": 1.0}) for key in keys]


def test_rows_come_back_in_order_with_their_seconds(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    assert journal.read() == []
    journal.append(outcomes("b", "a"))
    journal.append(outcomes("c"))
    assert [row["key"] for row in journal.read()] == ["b", "a", "c"]
    assert journal.read()[0] == {"key": "b", "error": 0.1, "seconds": {"total": 1.0}}
    assert "seconds" not in journal.path.read_text()


@pytest.mark.parametrize("cut", [1, 5, 20, 23])
def test_a_torn_line_is_dropped(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(outcomes("a", "b"))
    whole = journal.path.read_bytes()
    second = whole.index(b"\n") + 1
    journal.path.write_bytes(whole[: second + cut])
    assert [row["key"] for row in journal.read()] == ["a"]
    journal.repair()
    assert journal.path.read_bytes() == whole[:second]
    journal.append(outcomes("b"))
    assert journal.path.read_bytes() == whole


def test_a_file_torn_in_its_first_line_starts_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.path.write_bytes(b'{"key":' + b" " * 100_000)
    journal.repair()
    assert journal.path.read_bytes() == b""


def test_seconds_of_a_row_that_was_lost_do_no_harm(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(outcomes("a"))
    with open(journal.seconds_path, "a") as stream:  # killed between the two files
        stream.write('{"key":"b","seconds":{"total":5.0}}\n')
    journal.append(outcomes("b"))
    assert [row["seconds"] for row in journal.read()] == [{"total": 1.0}, {"total": 1.0}]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "x")
    journal.append(outcomes("a"))
    for text in ("nonsense", "[1]", '{"a": 1}'):
        journal.path.write_text(f'{{"key":"a"}}\n{text}\n{{"key":"b"}}\n')
        with pytest.raises(FormatError, match=r"x\.jsonl:2: not a row"):
            journal.read()


def test_two_runs_do_not_write_to_one_file(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        Journal(tmp_path, "x").lock(),
        pytest.raises(ValueError, match="output is in use"),
        Journal(tmp_path, "x").lock(),
    ):
        pass
    with Journal(tmp_path, "x").lock():  # free again
        pass
