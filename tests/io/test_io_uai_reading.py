from __future__ import annotations

import math
import re
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fastmix.errors import FormatError, ImpossibleEvidenceError, ImpossibleModelError
from fastmix.exact import infer_exact
from fastmix.io import read_model
from fastmix.model import MarkovRandomField
from oracle.uai import NaiveModel, RefusedError, assert_same, parse_uai, read_naive

PLAIN = "MARKOV\n3\n2 2 3\n3\n1 0\n2 0 1\n2 2 1\n\n2\n 0.25 0.75\n4\n 1 2 3 4\n6\n 1 2 3 4 5 6\n"


def assert_refused(text: str | bytes, message: str) -> None:
    """Both readers refuse the text, the fast one with exactly this message."""
    with pytest.raises(FormatError, match="^" + re.escape(message) + "$"):
        parse_uai(text, "f.uai")
    with pytest.raises(RefusedError):
        read_naive(text)


def assert_accepted(text: str | bytes) -> MarkovRandomField:
    """Both readers accept the text and see the same model."""
    model = parse_uai(text, "f.uai")
    assert_same(read_naive(text), model)
    return model


def test_helpers_can_fail():
    with pytest.raises(pytest.fail.Exception):
        assert_refused(PLAIN, "whatever")
    with pytest.raises(AssertionError):
        assert_refused("MARKOV x", "f.uai:1: another message")
    with pytest.raises(FormatError):
        assert_accepted("MARKOV x")
    naive, model = read_naive(PLAIN), parse_uai(PLAIN)
    assert_same(naive, model)
    for spoiled in (
        NaiveModel([2, 2, 2], naive.constant, naive.unary, naive.pairwise),
        NaiveModel(naive.num_states, 1e-6, naive.unary, naive.pairwise),
        NaiveModel(naive.num_states, 0.0, {}, naive.pairwise),
        NaiveModel(naive.num_states, 0.0, naive.unary, {}),
        NaiveModel(
            naive.num_states, 0.0, naive.unary, {**naive.pairwise, (0, 1): dict.fromkeys(naive.pairwise[0, 1], 0.0)}
        ),
    ):
        with pytest.raises(AssertionError):
            assert_same(spoiled, model)


def test_plain_file():
    model = assert_accepted(PLAIN)
    assert model.num_states.tolist() == [2, 2, 3]
    assert model.edges.tolist() == [[0, 1], [1, 2]]
    np.testing.assert_allclose(np.exp(model.unary(0)), [0.25, 0.75])
    np.testing.assert_allclose(np.exp(model.table(0, 1)), [[1, 2], [3, 4]])
    np.testing.assert_allclose(np.exp(model.table(2, 1)), [[1, 2], [3, 4], [5, 6]])
    assert model.log_constant == 0


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace("\n", " "),
        PLAIN.replace(" ", "\t").replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.replace(" ", " \v\f "),
        PLAIN.rstrip(),
        "\n\n  " + PLAIN + " \n\n",
        "\ufeff" + PLAIN,
        PLAIN.encode("utf-8-sig"),
        PLAIN.lower(),
        PLAIN.replace("MARKOV", "Markov"),
        "# a file\n" + PLAIN.replace("\n", "   # note\n"),
        "c\nc a comment 1 2 3\n  c indented\n\tc\ttabs\n" + PLAIN.replace("\n", "\nc 5 5 5\n"),
        PLAIN.replace("2 2 3\n", "2 2 3#4\n"),
        "# naïve: Größe\n" + PLAIN,
        ("# naïve: Größe\n" + PLAIN).encode(),
        PLAIN.replace("1 2 3 4\n", "+1.0 2. .3e1 4E+0\n"),
        PLAIN.replace("1 2 3 4\n", "1e0 20e-1 0.03e+2 0000000004.000\n"),
        PLAIN.replace("\n1 0\n", "\n01 000\n"),
    ],
)
def test_layouts_give_the_same_model(text):
    model, plain = assert_accepted(text), parse_uai(PLAIN)
    assert model == plain


def test_repeated_and_reversed_factors_multiply():
    model = assert_accepted(
        "MARKOV 2 2 3 6  0  1 0  2 0 1  2 1 0  1 0  0  1 5 2 1 2 6 1 2 3 4 5 6 6 1 2 3 4 5 6 2 3 4 1 7"
    )
    np.testing.assert_allclose(np.exp(model.unary(0)), [3, 8])
    np.testing.assert_allclose(np.exp(model.table(0, 1)), [[1 * 1, 2 * 3, 3 * 5], [4 * 2, 5 * 4, 6 * 6]])
    assert math.isclose(model.log_constant, math.log(35))


@pytest.mark.parametrize(
    "text", ["MARKOV 0 0", "BAYES 0 0", "BAYES 1 1 1 1 0 1 1", "MARKOV 1 5 0", "MARKOV 2 1 1 1 2 0 1 1 3"]
)
def test_small_files(text):
    assert_accepted(text)


def test_zero_is_forbidden_and_extremes_keep_their_logarithm():
    model = assert_accepted(
        "MARKOV 1 9 1 1 0 9  0 0.000000e+00 -0.0 1e-400 4.9406564584124654e-324 2e308 1e-310 0e-999 1" + "0" * 400
    )
    ln10 = math.log(10)
    logs = model.unary(0)
    assert (logs[[0, 1, 2, 7]] == -np.inf).all()
    expected = [
        -400 * ln10,
        math.log(4.9406564584124654) - 324 * ln10,
        math.log(2) + 308 * ln10,
        -310 * ln10,
        400 * ln10,
    ]
    np.testing.assert_allclose(logs[[3, 4, 5, 6, 8]], expected, rtol=1e-15)


@pytest.mark.parametrize("last", ["2e308", "1e-400", "0.00000000", "9e-309"])
def test_extreme_word_at_the_end_of_the_file(last):
    assert_accepted("MARKOV 1 2 1 1 0 2 1 " + last)


def test_bayes_network_is_normalized():
    model = assert_accepted("BAYES 2 2 2 2 1 0 2 0 1 2 0.3 0.7 4 0.9 0.1 0.2 0.8")
    weights = [math.exp(model.log_weight([a, b])) for a in range(2) for b in range(2)]
    np.testing.assert_allclose(weights, [0.27, 0.03, 0.14, 0.56])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file is empty, expected MARKOV or BAYES"),
        ("# nothing\nc at all\n", "1: the file is empty, expected MARKOV or BAYES"),
        ("Hello", "1: expected MARKOV or BAYES, got 'Hello'"),
        ("\n\nLIMID 3", "3: expected MARKOV or BAYES, got 'LIMID'"),
        ("MARKOV3 2", "1: expected MARKOV or BAYES, got 'MARKOV3'"),
        ("MARKOV", "1: the file ends where the number of variables was expected"),
        ("MARKOV\n2.0\n2 2\n0", "2: the number of variables must be a whole number, got '2.0'"),
        ("MARKOV\n1e5\n2 2\n0", "2: the number of variables must be a whole number, got '1e5'"),
        ("MARKOV\n-1\n2 2\n0", "2: the number of variables must be a whole number, got '-1'"),
        ("MARKOV\n+1\n2\n0", "2: the number of variables must be a whole number, got '+1'"),
        (
            "MARKOV\n1000000000000\n2 2\n0",
            "2: the number of variables must be at most 3, the count of numbers left in the file, got '1000000000000'",
        ),
        (
            "MARKOV\n" + "9" * 400 + "\n2 2\n0",
            "2: the number of variables must be at most 3, the count of numbers left in the file, got '"
            + "9" * 37
            + "...'",
        ),
        (
            "MARKOV\n3\n2 2",
            "2: the number of variables must be at most 2, the count of numbers left in the file, got '3'",
        ),
        ("MARKOV\n2\n2\nx", "4: expected a number, got 'x'"),
        ("MARKOV\n2\n2 2.5\n0", "3: the numbers of states must be whole numbers, got '2.5'"),
        ("MARKOV\n2\n2 0\n0", "3: the number of states of variable 1 must be at least 1, got '0'"),
        (
            "MARKOV\n1\n1000000000000\n0\n",
            "3: the variables must have at most 1048768 states in all in a file of 3 numbers; variable 0 has the most, "
            "got '1000000000000'",
        ),
        (
            "MARKOV\n2\n" + ("9" * 308 + " ") * 2 + "\n0\n",
            "3: the variables must have at most 1048832 states in all in a file of 4 numbers; variable 0 has the most, "
            "got '" + "9" * 37 + "...'",
        ),
        ("MARKOV\n2\n2 2", "3: the file ends where the number of factors was expected"),
        (
            "MARKOV\n1\n2\n99\n1 0\n",
            "4: the number of factors must be at most 2, the count of numbers left in the file, got '99'",
        ),
        ("MARKOV\n1\n2\n2 # two\n1 0\n", "5: the file ends where the scope of factor 1 was expected"),
        (
            "MARKOV\n1\n2\n1\n3 0\n2 1 1",
            "6: factor 0 must name a variable from 0 to 0, got '2'",
        ),
        (
            "MARKOV\n1\n2\n1\n70 0\n2 1 1",
            "5: the size of the scope of factor 0 must be at most 4, the count of numbers left in the file, got '70'",
        ),
        ("MARKOV\n2\n2 2\n1\n1.0 0\n2 1 1", "5: the scope of factor 0 must be given in whole numbers, got '1.0'"),
        ("MARKOV\n2\n2 2\n1\n2 0 1e0\n4 1 1 1 1", "5: the scope of factor 0 must be given in whole numbers, got '1e0'"),
        ("MARKOV\n2\n2 2\n1\n2 0 -1\n4 1 1 1 1", "5: the scope of factor 0 must be given in whole numbers, got '-1'"),
        ("MARKOV\n2\n2 2\n2\n1 0\n2 0 2\n2 1 1\n4 1 1 1 1", "6: factor 1 must name a variable from 0 to 1, got '2'"),
        ("MARKOV\n0\n1\n1 0\n2 1 1", "4: factor 0 must name no variable, because the file has none, got '0'"),
        ("MARKOV\n2\n2 2\n2\n1 0\n2 1 1\n2 1 1\n4 1 1 1 1", "6: factor 1 must name each variable once, got '1'"),
        ("MARKOV\n3\n1 1 1\n1\n3 0 1\n0\n1 1", "6: factor 0 must name each variable once, got '0'"),
        # A number of factors one too large makes the first table look like a scope.
        ("MARKOV\n1\n2\n2\n1 0\n\n2\n 0.3 0.7\n", "8: the scope of factor 1 must be given in whole numbers, got '0.3'"),
        ("MARKOV\n1\n2\n1\n1 0\n", "5: the file ends where the table of factor 0 was expected"),
        ("MARKOV\n1\n2\n1\n1 0\n3 1 1 1", "6: the table of factor 0 must have 2 entries, got '3'"),
        ("MARKOV\n1\n2\n1\n1 0\n2.0 1 1", "6: the table of factor 0 must have 2 entries, got '2.0'"),
        ("MARKOV\n2\n2 3\n1\n2 0 1\n\n5 1 1 1 1 1", "7: the table of factor 0 must have 6 entries, got '5'"),
        (
            "MARKOV\n2\n2 3\n1\n2 0 1\n\n6 1 1 1\n1 1\n",
            "8: the file ends where entry 6 of the 6 in the table of factor 0 was expected",
        ),
        ("MARKOV\n1\n2\n1\n0\n2 1 1", "6: the table of factor 0 must have 1 entries, got '2'"),
        ("MARKOV\n1\n2\n2\n1 0\n1 0\n2 1 1\n", "7: the file ends where the table of factor 1 was expected"),
        (PLAIN + "7", "15: the file must end after the last table, got '7'"),
        (PLAIN + PLAIN, "15: expected a number, got 'MARKOV'"),
        (PLAIN.replace("0.25", "-0.25"), "10: table entries must not be negative, got '-0.25'"),
        (PLAIN.replace("0.25", "-1e-400"), "10: table entries must not be negative, got '-1e-400'"),
        (PLAIN.replace("0.25", "-1e400"), "10: table entries must not be negative, got '-1e400'"),
        (PLAIN.replace("0.25", "inf"), "10: expected a number, got 'inf'"),
        (PLAIN.replace("0.25", "-inf"), "10: expected a number, got '-inf'"),
        (PLAIN.replace("0.25", "Infinity"), "10: expected a number, got 'Infinity'"),
        (PLAIN.replace("0.25", "nan"), "10: expected a number, got 'nan'"),
        (PLAIN.replace("0.25", "0x10"), "10: expected a number, got '0x10'"),
        (PLAIN.replace("0.25", "1_0"), "10: expected a number, got '1_0'"),
        (PLAIN.replace("0.25", "0,25"), "10: expected a number, got '0,25'"),
        (PLAIN.replace("0.25", "1d-3"), "10: expected a number, got '1d-3'"),
        (PLAIN.replace("0.25", "c"), "12: the table of factor 1 must have 4 entries, got '2'"),
        (PLAIN.replace("0.25", "0.2.5"), "10: expected a number, got '0.2.5'"),
        (PLAIN.replace("0.25", "1e5e5"), "10: expected a number, got '1e5e5'"),
        (PLAIN.replace("0.25", "1e"), "10: expected a number, got '1e'"),
        (PLAIN.replace("0.25", "--1"), "10: expected a number, got '--1'"),
        (PLAIN.replace("0.25", "1-1"), "10: expected a number, got '1-1'"),
        (PLAIN.replace("0.25", "."), "10: expected a number, got '.'"),
        (PLAIN.replace("0.25", "e"), "10: expected a number, got 'e'"),
        (PLAIN.replace("0.25", "٣"), "10: expected a number, got '٣'"),
        (PLAIN.replace("0.25", "1\u00a02"), "10: expected a number, got '1\\xa02'"),
        (PLAIN.replace("0.25", "1\x1c2"), "10: expected a number, got '1\\x1c2'"),
        (
            PLAIN.replace("0.25", "1e99999999999999999999"),
            "10: table entries must have an exponent of less than 19 digits, got '1e99999999999999999999'",
        ),
        (
            PLAIN.replace("0.25 0.75", "0 0.0"),
            "10: the table of factor 0 must have a positive entry, got 2 times 0",
        ),
        ("MARKOV 0\n1\n0\n1\n0e5", "5: the table of factor 0 must have a positive entry, got 1 times 0"),
        (
            "MARKOV\n1\n2\n2\n1 0\n1 0\n2\n1 0\n2\n0 1\n",
            "9: the factors must allow variable 0 a state, but with factor 1 none is left",
        ),
        ("MARKOV\n3\n2 2 2\n1\n3 0 1 2\n8\n1 1", "7: the file ends where entry 3 of the 8 in the table "
         "of factor 0 was expected"),
        ("MARKOV\n" + "x" * 100, "2: expected a number, got '" + "x" * 37 + "...'"),
    ],
)  # fmt: skip
def test_messages(text, message):
    assert_refused(text, f"f.uai:{message}")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("comment", ["", "# a\nc b\n"])
def test_line_numbers_survive_comments_and_line_ends(newline, comment):
    text = (comment + PLAIN.replace("0.75", "x")).replace("\n", newline)
    line = 10 + comment.count("\n")
    with pytest.raises(FormatError, match=rf"^f\.uai:{line}: .*'x'$"):
        parse_uai(text, "f.uai")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            PLAIN.encode("utf-16"),
            "f.uai:1: expected ASCII or UTF-8 text, got byte 0x00; "
            "the file is binary or in another encoding such as Latin-1 or UTF-16",
        ),
        (
            PLAIN.encode("utf-16-le"),
            "f.uai:1: expected ASCII or UTF-8 text, got byte 0x00; "
            "the file is binary or in another encoding such as Latin-1 or UTF-16",
        ),
        (
            b"MARKOV\n\x00",
            "f.uai:2: expected ASCII or UTF-8 text, got byte 0x00; "
            "the file is binary or in another encoding such as Latin-1 or UTF-16",
        ),
        (
            "MARKOV\n# Größe\n".encode("latin-1"),
            "f.uai:2: expected ASCII or UTF-8 text, got byte 0xf6; "
            "the file is binary or in another encoding such as Latin-1 or UTF-16",
        ),
    ],
)
def test_other_encodings(data, message):
    assert_refused(data, message)


def test_surrogates_in_a_string_are_refused_as_words():
    with pytest.raises(FormatError, match=r"^<string>:1: expected a number"):
        parse_uai("MARKOV 1 \udce9 0")


# -- factors over more than two variables ---------------------------------------------------------------------------

TERNARY = "MARKOV\n3\n2 3 2\n2\n3 0 1 2\n1 1\n\n12\n1 2 3 4 5 6\n7 8 9 10 11 12\n3\n1 2 3\n"


@pytest.mark.parametrize("evidence", [{0: 0}, {1: 2}, {2: 1}, {0: 1, 2: 0}, {0: 1, 1: 1, 2: 1}])
def test_evidence_slices_large_factors(evidence):
    model = assert_accepted(TERNARY)
    assert model.num_states.tolist() == [2, 3, 2]
    table = np.arange(1, 13).reshape(2, 3, 2)
    for x in np.ndindex(2, 3, 2):
        if all(x[v] == s for v, s in evidence.items()):
            assert math.isclose(model.log_weight(x), math.log(table[x] * (x[1] + 1)), rel_tol=1e-14)
    # The same answer as conditioning a model whose table has been given pairwise.
    assert model.condition(evidence).num_variables == 3 - len(evidence)


def test_single_state_variables_count_as_observed():
    model = assert_accepted("MARKOV 4 2 1 2 1 1 4 0 1 2 3 4 1 2 3 4")
    np.testing.assert_allclose(np.exp(model.table(0, 2)), [[1, 2], [3, 4]])
    many = 100  # beyond the number of dimensions an array can have
    scope = " ".join(map(str, range(many)))
    model = assert_accepted(f"MARKOV {many} 2 {'1 ' * (many - 1)} 1 {many} {scope} 2 3 4")
    np.testing.assert_allclose(np.exp(model.unary(0)), [3, 4])


def test_larger_factors_are_kept():
    text = "MARKOV\n4\n2 2 2 2\n3\n3 0 1 2\n1 0\n4 3 1 2 0\n8" + " 1" * 8 + "\n2 1 1\n16" + " 1" * 15 + " 5"
    model = assert_accepted(text)
    assert [scope.tolist() for scope in model.structure.scopes] == [[0, 1, 2], [0, 1, 2, 3]]
    assert model.log_weight([1, 1, 1, 1]) == pytest.approx(math.log(5))


def test_impossible_evidence():
    text = "MARKOV\n3\n2 2 2\n1\n3 0 1 2\n8\n0 0 0 0 1 1 1 1\n"
    with pytest.raises(ImpossibleModelError):
        infer_exact(assert_accepted(text).condition({0: 0}))
    dead = "MARKOV\n3\n2 2 2\n2\n1 2\n3 0 1 2\n2\n1 0\n8\n0 1 0 1 0 1 0 1\n"
    with pytest.raises(ImpossibleEvidenceError, match=r"^evidence .*variable 2"):
        parse_uai(dead, "f.uai").condition({0: 0, 1: 0})


def test_long_scopes():
    text = "MARKOV 20 " + "2 " * 20 + "1\n20 " + " ".join(map(str, range(20)))
    with pytest.raises(FormatError, match=r"^.*factor 0 .*\b1048576 .*'5'$"):
        parse_uai(text + " 5")
    huge = 3000
    text = f"MARKOV {huge} " + "2 " * huge + f"1\n{huge} " + " ".join(map(str, range(huge)))
    with pytest.raises(FormatError, match=r"file ends .*factor 0"):
        parse_uai(text)


# -- resources ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "MARKOV 1000000000000 2 2 0",
        "MARKOV 1 1000000000000 0",
        "MARKOV 2 1000000 1000000 1 2 0 1 1000000000000 1",
        "MARKOV 1 2 1000000000000 1 0",
        "MARKOV 1 2 1 1000000000000 0",
        "MARKOV 1 2 1 1 0 1000000000000 1 1",
    ],
)
def test_absurd_counts_allocate_nothing(text):
    tracemalloc.start()
    begin = time.perf_counter()
    with pytest.raises(FormatError):
        parse_uai(text)
    seconds, peak = time.perf_counter() - begin, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < 1
    assert peak < 30e6  # the state counts of the third are within the limit and cost 8 bytes each


def test_reading_scales_with_the_file(tmp_path: Path):
    n = 20_000
    pairs = "".join(f"2 {i + 1} {i}\n" for i in range(n - 1))
    path = tmp_path / "chain.uai"
    path.write_text(f"MARKOV\n{n}\n{'2 ' * n}\n{n - 1}\n{pairs}\n" + "4\n 1.5 2.5 3.5 4.5\n" * (n - 1))
    size = path.stat().st_size
    tracemalloc.start()
    model = read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.num_edges == n - 1
    np.testing.assert_allclose(np.exp(model.table(7, 8)), [[1.5, 3.5], [2.5, 4.5]])
    assert peak < 40 * size
