from __future__ import annotations

import itertools
import lzma
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix.errors import FormatError, ModelError
from fastmix.io import (
    answers,
    read_evidence,
    read_mar,
    read_model,
    read_mpe,
    read_pr,
    register_answer,
    write_answer,
    write_mar,
    write_mpe,
    write_pr,
)


def mar(tmp_path, text):
    path = tmp_path / "a.MAR"
    path.write_text(text)
    return [vector.tolist() for vector in read_mar(path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("MAR\n2 2 0.25 0.75 3 0 0.5 0.5", [[0.25, 0.75], [0, 0.5, 0.5]]),
        ("MAR\n1\n2 2 0.25 0.75 3 0 0.5 0.5", [[0.25, 0.75], [0, 0.5, 0.5]]),
        ("mar 1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR 1 1 2 0.25 0.75", [[0.25, 0.75]]),
        ("MAR 1 1 1", [[1]]),
        ("MAR 1 1 1 1", [[1]]),
        ("MAR 0", []),
        ("MAR 1 0", []),
        ("MAR 2 1 1 1 1", [[1], [1]]),
        ("MAR 1 2 1 1 1 1", [[1], [1]]),
        ("MAR 1 4 0.25 0.25 0.25 0.25", [[0.25] * 4]),
        ("MAR\n1 2 0.5 0.5\n-BEGIN-\n1 2 0.25 0.75\n", [[0.25, 0.75]]),
        ("MAR\n1 2 0.5 broken -BEGIN- 1\n1 2 0.25 0.75\n", [[0.25, 0.75]]),
    ],
)
def test_mar_layouts(tmp_path, text, expected):
    assert mar(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: .*empty.*MAR"),
        ("PR 1", "1: .*MAR, got 'PR'"),
        ("MAR", "1: .*ends .*number "),
        ("MAR\n2.0 2 1 0", r"2: .*number of variables .*got '2\.0'"),
        ("MAR\n9 2 1 0", "2: .*number of variables .* 3, .*got '9'"),
        ("MAR\n2 2 1 0\n", "2: .*ends .*variable 1"),
        ("MAR\n2 2 1 0\n3 1 0", "3: .*marginal of variable 1 .* 2, .*got '3'"),
        ("MAR\n2 2 1 0\n2.0 1 0", r"3: .*marginal of variable 1 .*got '2\.0'"),
        ("MAR\n2 2 1 0\n0", "3: .*marginal of variable 1 .*got '0'"),
        ("MAR\n2 2 1 0 2 1\n1.5", r"3: probabilities .*got '1\.5'"),
        ("MAR\n2 2 1 0 2 1\n-0.5", r"3: probabilities .*got '-0\.5'"),
        ("MAR\n2 2 1 0 2 1\nnan", "3: .*number, got 'nan'"),
        ("MAR\n2 2 1 0 2 1 0\n7", "3: .*end .*got '7'"),
        ("MAR\n1 2 1 0\n-BEGIN-\n2 2 1 x", "4: .*number, got 'x'"),
    ],
)
def test_mar_messages(tmp_path, text, message):
    with pytest.raises(FormatError, match=rf"^{re.escape(str(tmp_path))}/a\.MAR:{message}"):
        mar(tmp_path, text)


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), max_size=5))
def test_mar_round_trip_keeps_every_digit(tmp_path_factory, marginals):
    path = tmp_path_factory.getbasetemp() / "a.MAR.xz"
    write_mar(marginals, path)
    assert path.read_bytes().startswith(lzma.compress(b"")[:6])
    assert [vector.tolist() for vector in read_mar(path)] == marginals


@pytest.mark.parametrize("wrong", [[[0.5, np.nan]], [[0.5, np.inf]], [[1.5, -0.5]], [[]], [0.5], [[[0.5]]]])
def test_write_mar_refuses(tmp_path, wrong):
    with pytest.raises(ValueError, match=r"^marginals\[0\] must "):
        write_mar(wrong, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_pr_is_base_ten(tmp_path):
    path = tmp_path / "a.PR"
    write_pr(math.log(1000.0), path)
    assert path.read_text() in ("PR\n3.0\n", "PR\n2.9999999999999996\n")
    assert read_pr(path) * math.log(10) == pytest.approx(math.log(1000.0), rel=1e-15)
    write_pr(-12345.678, path)
    assert read_pr(path) * math.log(10) == pytest.approx(-12345.678, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PR\n-0.2008\n", -0.2008), ("pr 1\n13.5", 13.5), ("PR 1", 1.0), ("PR 1 1", 1.0), ("PR\n1\n-BEGIN-\n2\n", 2.0)],
)
def test_pr_layouts(tmp_path, text, expected):
    (tmp_path / "a").write_text(text)
    assert read_pr(tmp_path / "a") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("PR", "1: .*ends .*logarithm of Z"),
        ("PR\n1.5\n7", "3: .*end .*got '7'"),
        ("PR\n1\n2\n3", "3: .*end .*got '2'"),
        ("PR\n-inf", "2: .*number, got '-inf'"),
        ("PR\n1e999", "2: .*logarithm of Z .*got '1e999'"),
        ("MAR\n1", "1: .*PR, got 'MAR'"),
    ],
)
def test_pr_messages(tmp_path, text, message):
    path = tmp_path / "a.PR"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"^{re.escape(str(path))}:{message}"):
        read_pr(path)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_write_pr_refuses(tmp_path, value):
    with pytest.raises(ValueError, match=f"^natural_log_z .*{value}"):
        write_pr(value, tmp_path / "a")


# -- MPE, and answers by suffix ---------------------------------------------------------------------------------------


def test_states_come_back(tmp_path: Path) -> None:
    for states in ([], [0], [1, 0, 2], [3] * 50):
        write_mpe(states, tmp_path / "a.MPE.gz")
        assert read_mpe(tmp_path / "a.MPE.gz").tolist() == states
    for text, states in (("MPE 3 1 0 2", [1, 0, 2]), ("MPE 1 3 1 0 2", [1, 0, 2]), ("MPE 1 0", [0]),
                         ("MPE 2 0 0 -BEGIN- 2 1 1", [1, 1])):  # fmt: skip
        (tmp_path / "b.MPE").write_text(text)
        assert read_mpe(tmp_path / "b.MPE").tolist() == states
    for text in ("MAR 1 0", "MPE", "MPE 3 1 0", "MPE 2 1 0 1", "MPE 2 1 x", "MPE 2 1 -1", "MPE 2 1 0.5"):
        (tmp_path / "b.MPE").write_text(text)
        with pytest.raises(FormatError, match=r"b\.MPE:1: "):
            read_mpe(tmp_path / "b.MPE")
    for states in ([[1, 0]], [-1], [0.5]):
        with pytest.raises(ValueError, match="states must be"):
            write_mpe(states, tmp_path / "c.MPE")


def test_suffixes_choose_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "WRITERS", dict(answers.WRITERS))
    register_answer(".txt", lambda result, path: Path(path).write_text(str(result)) and None)
    write_answer("an answer", tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "an answer"
    with pytest.raises(ValueError, match=r"^suffix .*'\.mar'"):
        register_answer(".mar", lambda result, path: None)
    with pytest.raises(ValueError, match=r"^path .*\.txt.*b\.doc"):
        write_answer("an answer", tmp_path / "b.doc")


# -- numbers that are too long, too large or not whole ----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_states_that_no_double_holds_are_refused(tmp_path, seed):
    rng = np.random.default_rng(seed)
    states = [int(k) for k in rng.integers(0, 2**53, size=5)]
    path = tmp_path / "a.MPE"
    path.write_text(f"MPE\n5 {' '.join(map(str, states))}\n")
    assert read_mpe(path).tolist() == states
    place = int(rng.integers(5))
    for wrong in (str(2**53), str(2**63 - 1), str(2**63), str(2**64 + 1), "9" * 5000):
        words = [*map(str, states[:place]), wrong, *map(str, states[place + 1 :])]
        path.write_text(f"MPE\n5\n{' '.join(words)}\n")
        with pytest.raises(FormatError, match=rf"a\.MPE:3: states .*{wrong[:16]}") as refused:
            read_mpe(path)
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize("count", ["1.", "1.0", "1e0", "+1", "01."])
def test_the_number_of_samples_is_a_whole_number(tmp_path, count):
    path = tmp_path / "a.MAR"
    path.write_text("MAR\n1 2 2 0.5 0.5 2 0.25 0.75\n")
    assert len(read_mar(path)) == 2
    for text in (f"MAR\n{count} 2 2 0.5 0.5 2 0.25 0.75\n", f"MAR\n{count} 2 0.5 0.5\n", f"MAR\n1 {count} 1.0\n"):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"a\.MAR:2: .* whole number"):
            read_mar(path)


DIGITS = ["9" * 5000, "-" + "9" * 5000, "0." + "9" * 5000, "1e" + "9" * 5000, "0" * 5000 + "1"]
PLACES = {
    "a.uai": "MARKOV 2 2 2 1 2 0 1 4 1 2 3 4",
    "b.uai": "BAYES 2 2 2 2 1 0 2 0 1 2 0.5 0.5 4 0.5 0.5 0.5 0.5",
    "a.MAR": "MAR 2 2 0.5 0.5 2 0.5 0.5",
    "a.PR": "PR 1.5",
    "a.MPE": "MPE 2 1 0",
    "a.evid": "2 0 1 1 0",
    "a.erg": "2 2 2 0 1 0 /* Probabilities */ 2 0.5 0.5 4 0.5 0.5 0.5 0.5",
    "a.bif": "variable a { type discrete [ 2 ] { 0 , 1 } ; } probability ( a ) { table 0.5 , 0.5 ; }",
}


@pytest.mark.parametrize("name", list(PLACES))
def test_numbers_of_thousands_of_digits_are_read_or_refused(tmp_path, name):
    """In every place of every format: an answer, or an error that names the place and fits a screen."""
    reader = {".MAR": read_mar, ".PR": read_pr, ".MPE": read_mpe, ".evid": read_evidence}
    words = PLACES[name].split()
    path = tmp_path / name
    for k, digits in itertools.product(range(len(words)), DIGITS):
        path.write_text(" \n".join([*words[:k], digits, *words[k + 1 :]]))
        message = f"{path}:1: "
        try:
            reader.get(path.suffix, read_model)(path)
        except FormatError as error:
            message = str(error)
        except ModelError as error:
            message += str(error)
        assert re.match(rf"{re.escape(str(path))}:\d+: ", message), message
        assert len(message) <= 1200
