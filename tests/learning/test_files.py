from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix import FormatError, ResourceError, learn, score
from fastmix.learning.files import read_edges, read_table


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
    assert read_table(write(tmp_path, "yes,no\n?,?\n")).num_rows == 2
    assert read_table(write(tmp_path, "yes,no\nno,no\n"), header=True).num_rows == 1
    assert read_table(write(tmp_path, "3,0\n0,1\n1,0\n"), header=True).variable_names == ("3", "0")
    with pytest.raises(FormatError, match=r"data.csv:1: 'a' .*column 0, [^;]*$"):
        read_table(write(tmp_path, "a,1\n" + "0,1\n" * 20))
    with pytest.raises(FormatError, match=r"data.csv:1: 'a' .*column 0, [^;]*$"):
        read_table(write(tmp_path, "a,b\n" + "0,1\n" * 20), header=False)
    with pytest.raises(FormatError, match=r"data.csv:1: 'a' .*column 0, .*--header \(header=True\)$"):
        read_table(write(tmp_path, "a,b\n0,1\n1,x\n0,1\n"))
    with pytest.raises(FormatError, match=r"data.csv:2: 'x' .*column 'b', [^;]*$"):
        read_table(write(tmp_path, "a,b\n0,x\n1,1\n0,1\n"), header=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n1\n", r"data.csv:2: .*\b2 columns, .*got 1$"),
        ("0,1\n" * 20 + "0,x\n", r"data.csv:21: 'x' .*column 1,"),
        ("", r"data.csv: "),
        ("a,a\n1,0\n", r"data.csv:1: names "),
        ("0,1\n\n0,1.5\n", r"data.csv:3: .*got 1.5 in column 1"),
        ("0,1\n1,x\n0,1\n", r"data.csv:2: 'x' .*column 1,"),
        ("0,1\n0,-2\n", r"data.csv:2: .*got -2 in column 1"),
        ("0,1,\n0\n", r"data.csv:2: .*\b3 columns"),
        ("0 1\n0 1 1\n", r"data.csv:2: .*\b2 columns"),
        ("0,?\n1,?\n", r"data.csv:1: .*column 1$"),
        ("0,5000\n", r"data.csv:1: .*\b1000\b"),
        ("\n \n", r"data.csv: "),
        ('x,"a\n",b\n', r"data.csv: .*quoted cell"),
        ('"a\nb",c\nx,y\n', r"data.csv: .*quoted cell"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_table(write(tmp_path, text))


@pytest.mark.parametrize("text", ['"a b", "c"\n"x", "y"\n', '"a b" "c"\n "x"  "y"\n', '"a b";c\nx;"y"\n'])
def test_quotes_are_no_part_of_names(tmp_path: Path, text: str) -> None:
    assert read_table(write(tmp_path, text)).state_names == (("a b", "x"), ("c", "y"))
    assert read_table(write(tmp_path, '"x"\n"y"\n')).state_names == (("x", "y"),)


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    model = learn(read_table(write(tmp_path, "rain,wet\n" + "yes,yes\nno,no\n" * 5), header=True)).model
    data = read_table(write(tmp_path, "wet,rain\nno,yes\n"), model=model)
    assert data.states.tolist() == [[1, 0]]
    with pytest.raises(FormatError, match=r"data.csv:1: .*'wet' .*'dry'"):
        read_table(write(tmp_path, "dry,rain\nno,yes\n"), model=model, header=True)
    with pytest.raises(FormatError, match=r"data.csv:1: .*column 'wet': 'maybe'$"):
        read_table(write(tmp_path, "no,maybe\nno,no\n"), model=model)
    with pytest.raises(FormatError, match=r"data.csv:1: .*: 'a'.*--header"):
        read_table(write(tmp_path, "a,b\nno,no\n"), model=model)
    with pytest.raises(ResourceError):
        read_table(write(tmp_path, "0,1\n" * 1000), max_bytes=100)


def test_messages_name_columns_as_the_file_does(tmp_path: Path) -> None:
    nameless = learn(np.array([[0, 1], [1, 0], [1, 1]])).model  # as from a UAI file
    cells = "rain,wet\n0,1\n1,0\n"
    for text, model, message in (
        (cells + "2,0\n", nameless, "data.csv:4: .*below 2 in column 'rain', got 2"),
        (cells + "0,0.5\n", nameless, r"data.csv:4: .*got 0.5 in column 'wet'"),
        (cells + "0,0.5\n", None, r"data.csv:4: .*got 0.5 in column 'wet'"),
        (cells + "0,x\n", None, r"data.csv:4: 'x' .*column 'wet',"),
        ("rain,wet\n0,?\n1,?\n", None, "got only missing ones in column 'wet'"),
        ("wet,rain\n0,2\n", learn(read_table(write(tmp_path, cells))).model, "below 2 in column 'rain', got 2"),
    ):
        with pytest.raises(FormatError, match=message):
            read_table(write(tmp_path, text), model=model, header=True)


def test_weights_are_a_column(tmp_path: Path) -> None:
    for column, text, header in (("w", "a,w,b\n0,2,1\n1,0.5,0\n", None), ("1", "0,2,1\n1,0.5,0\n", False)):
        data = read_table(write(tmp_path, text), weights=column, header=header)
        assert data.states.tolist() == [[0, 1], [1, 0]]
        assert data.weights.tolist() == [0.8, 0.2]
    assert read_table(write(tmp_path, "0,2,1\n1,6,0\n"), weights="1").weights.tolist() == [0.25, 0.75]
    for text, column, message in (
        ("a,w\n0,2\n", "v", "data.csv:1: .*'v' with weights; .*a, w$"),
        ("0,2\n", "2", r"column '2' .*below 2$"),
        ("0,2\n0,-1\n", "1", "data.csv:2: .*weight .*got '-1'$"),
        ("a,w\n0,2\n\n0,x\n", "w", "data.csv:4: a weight must be"),
        ("0,0\n0,0\n", "1", "weights must"),
    ):
        with pytest.raises(FormatError, match=message):
            read_table(write(tmp_path, text), weights=column, header=text[0] == "a")


def test_both_ways_of_reading_agree(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = rng.integers(-1, 4, size=(50, 7))
    text = "\r\n\r\n".join(",".join(map(str, row)) for row in table)
    quick = read_table(write(tmp_path, text))
    slow = read_table(write(tmp_path, text.replace("-1", "NA")))
    assert quick.states.tolist() == slow.states.tolist() == table.tolist()
    assert quick.num_states.tolist() == slow.num_states.tolist()


def test_data_for_models_with_hidden_variables_need_no_columns_for_them(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 2, size=(40, 3))
    model = learn(rows, hidden=2, seed=0, max_iter=3).model
    assert model.variable_names == ("0", "1", "2", "hidden 0", "hidden 1")
    data = read_table(write(tmp_path, "0,1,2\n".replace("2", "1")), model=model)
    assert data.states.tolist() == [[0, 1, 1, -1, -1]]
    named = read_table(write(tmp_path, "2,0,1\n1,0,1\n"), model=model, header=True)
    assert named.states.tolist() == [[0, 1, 1, -1, -1]]
    for given in (rows, np.hstack([rows, np.full((40, 2), -1)]), rows.tolist()):
        assert score(model, given).num_rows == 40
    with pytest.raises(FormatError, match=r"\b5 variables, got 4$"):
        read_table(write(tmp_path, "0,1,1,1\n"), model=model)


def test_edges(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, "a,b,c\n0,1,1\n1,0,1\n"))
    assert read_edges(write(tmp_path, "a,b\nb c\n0,2\n".replace(" ", ",")), table=table).tolist() == [
        [0, 1],
        [1, 2],
        [0, 2],
    ]
    for text, message in (
        ("a,b\na,d\n", "data.csv:2: .*column 'd'"),
        ("a,b\na\n", "data.csv:2: .*edge .*got 1$"),
        ("a,3\n", "no column '3'"),
        ("a,0\n", r"data.csv:\d: .*edge .*twice$"),
    ):
        with pytest.raises(FormatError, match=message):
            read_edges(write(tmp_path, text), table=table)


@pytest.mark.parametrize("text", ["-1,1\n1,-1\n1,1\n", "a,b\n-1,1\n1,?\n1,-1\n"])
def test_files_of_spins(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spins.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=r"spins.csv.* without any 0.*--missing"):
        read_table(path)
    assert read_table(path, missing=None).state_names == (("-1", "1"),) * 2
    assert read_table(path, missing=-1).states[0].tolist() == [-1, 1]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("w\n1\n2\n", {"weights": "w", "header": True}, r"data.csv:1: .*weights"),
        ("0,1\n0," + "1" * 200_000 + "\nx,1\n", {"header": False}, "data.csv:2: .*131072"),
        ("0,1\n0," + "9" * 5000 + "\n", {}, "data.csv:2: "),
        ("0,1\n0,1\n", {"weights": "7" * 5000}, r"data.csv:1: .*column "),
        ("0,1\n0,1\n", {"weights": "x" * 100_000}, r"data.csv:1: .*column "),
    ],
)
def test_hostile_tables(tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FormatError, match=message) as refused:
        read_table(path, **options)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("options", [{"num_states": 999_999_999}, {"hidden": 1_000_000_000}, {"hidden": 100_000_000}])
def test_memory_is_checked_before_it_is_taken(options: dict[str, int]) -> None:
    with pytest.raises(ResourceError, match=r"num_states|hidden|edges"):
        learn(np.eye(4, dtype=int), **options)
