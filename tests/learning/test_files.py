from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import pytest

from fastmix import FormatError, ResourceError, learn
from fastmix.learning.files import read_table


def write(folder: Path, text: str, name: str = "data.csv") -> Path:
    path = folder / name
    opener: Any = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "wt") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz", "data.csv.xz"])
@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
def test_numbers(tmp_path: Path, name: str, mark: str) -> None:
    data = read_table(write(tmp_path, f"0{mark}1{mark}2\n\n1{mark}?{mark}0\n", name))
    assert data.states.tolist() == [[0, 1, 2], [1, -1, 0]]
    assert data.variable_names is None


def test_first_rows_of_data_are_never_eaten(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, "a,b\n0,1\n1,0\n")).variable_names == ("a", "b")
    assert read_table(write(tmp_path, "1,0\n0,1\n1,0\n")).num_rows == 3
    assert read_table(write(tmp_path, "yes,no\nno,no\n")).num_rows == 2
    assert read_table(write(tmp_path, "yes,no\nno,no\n"), header=True).num_rows == 1
    assert read_table(write(tmp_path, "3,0\n0,1\n1,0\n"), header=True).variable_names == ("3", "0")
    with pytest.raises(FormatError, match=r"data.csv:1: 'a' stands in column 0"):
        read_table(write(tmp_path, "a,1\n" + "0,1\n" * 20))
    with pytest.raises(FormatError, match=r"data.csv:1: 'a' stands in column 0"):
        read_table(write(tmp_path, "a,b\n" + "0,1\n" * 20), header=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n1\n", r"data.csv:2: every row must have 2 columns, as the first, got 1"),
        ("0,1\n" * 20 + "0,x\n", r"data.csv:21: 'x' stands in column 1, which has numbers"),
        ("", "the file is empty"),
        ("a,a\n1,0\n", "must all be different"),
        ("0,1.5\n", "must hold whole numbers from 0"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_table(write(tmp_path, text))


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    model = learn(read_table(write(tmp_path, "rain,wet\n" + "yes,yes\nno,no\n" * 5), header=True)).model
    data = read_table(write(tmp_path, "wet,rain\nno,yes\n"), model=model)
    assert data.states.tolist() == [[1, 0]]
    with pytest.raises(FormatError, match="got others: dry, wet"):
        read_table(write(tmp_path, "dry,rain\nno,yes\n"), model=model, header=True)
    with pytest.raises(FormatError, match="does not know in column 1: 'maybe'"):
        read_table(write(tmp_path, "no,maybe\n"), model=model)
    with pytest.raises(ResourceError):
        read_table(write(tmp_path, "0,1\n" * 1000), max_bytes=100)
