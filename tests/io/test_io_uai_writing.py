from __future__ import annotations

import gzip
import logging
import lzma
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from fastmix.errors import ModelError
from fastmix.graphs import grid_edges, path_edges
from fastmix.io import read_model, write_model
from fastmix.model import MarkovRandomField
from oracle import uai
from oracle.uai import (
    assert_close,
    assert_same,
    assert_same_weights,
    assert_scaled,
    assert_survives,
    attractive_form,
    format_uai,
    parse_uai,
    read_naive,
    write_uai,
    written_tables,
)

# With the number of factors that each takes in the file.
SPLIT_CONSTANTS = {709.79: 2, -708.4: 2, 1e3: 2, -1e3: 2, 1e4: 15, -1e4: 15, 1e6: 1429, -1e6: 1429}
CONSTANTS = [0.0, 0.7, -3.5, 700.0, -700.0, *SPLIT_CONSTANTS]


def has(notes: list[str], words: str) -> bool:
    return any(words in note for note in notes)


# -- the checks can fail --------------------------------------------------------------------------------------------


def test_assert_close_can_fail():
    model = MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2])
    assert_close(model, model)
    for other in (
        model.replace(log_constant=1e-9),
        model.replace(log_unary=model.log_unary + 1e-9),
        model.replace(log_pairwise=model.log_pairwise - 1e-9),
        model.replace(log_pairwise=[-np.inf, *model.log_pairwise[1:]]),
        MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2, 0.0]),
        MarkovRandomField.ising([(0, 2)], 0.5, [0.1, 0.2, 0.0]),
    ):
        with pytest.raises(AssertionError):
            assert_close(other, model)
    with pytest.raises(AssertionError):
        assert_close(model.replace(log_unary=model.log_unary + 1e-14), model, tol=1e-15)


def test_normal_form_by_hand():
    model = MarkovRandomField.from_tables([[1, 3], [-2, -np.inf]], [(0, 1)], [[[0, 5], [-np.inf, 4]]], log_constant=0.5)
    expected = MarkovRandomField.from_tables(
        [[-2, 0], [0, -np.inf]], [(0, 1)], [[[-5, 0], [-np.inf, -1]]], log_constant=6.5
    )
    assert attractive_form(model) == expected
    assert attractive_form(expected) == expected


def test_assert_same_weights_can_fail():
    model = MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2])
    assert_same_weights(attractive_form(model), model)
    for other in (
        model.replace(log_constant=1e-11),
        model.replace(log_unary=model.log_unary + np.array([0, 0, 0, 1e-11])),
        model.replace(log_pairwise=model.log_pairwise + np.array([0, 0, 1e-11, 0])),
        model.replace(log_pairwise=[*model.log_pairwise[:3], -np.inf]),
    ):
        with pytest.raises(AssertionError):
            assert_same_weights(other, model)


@pytest.mark.parametrize(
    "text",
    [
        "MARKOV 1 2 1 1 0 2 1.0000000000000002 0.5",
        "MARKOV 1 2 1 1 0 2 0.9999999999999999 0.5",
        "MARKOV 1 2 1 1 0 2 1 0.5",
        "MARKOV 1 2 3 1 0 0 0 2 1.0 0.5 1 2.5 1 2.6",
        "MARKOV 1 2 1 0 1 1e400",
        "MARKOV 1 2 1 0 1 1e-310",
        "MARKOV 1 2 1 0 2 2.5 2.5",
        "MARKOV 1 2 1 0 1 2.5 5",
    ],
)
def test_assert_scaled_can_fail(text):
    assert_scaled("MARKOV 1 2 3 1 0 0 0 2 1.0 0.5 1 2.5 1 2.5")
    with pytest.raises(AssertionError):
        assert_scaled(text)


def other_entry(model: MarkovRandomField, change: float) -> MarkovRandomField:
    return model.replace(log_pairwise=[model.log_pairwise[0] + change, *model.log_pairwise[1:]])


@pytest.mark.parametrize(
    "write",
    [
        lambda model: format_uai(model.replace(log_constant=model.log_constant + 1e-7)),
        lambda model: format_uai(other_entry(model, 1e-8)),
        lambda model: format_uai(other_entry(model, -np.inf)),
        lambda model: format_uai(attractive_form(model).replace(log_constant=model.log_constant)),
    ],
    ids=["constant", "entry", "forbidden", "without scales"],
)
def test_assert_survives_can_fail(monkeypatch, write):
    model = MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2]).replace(log_constant=2500.0)
    assert_survives(model)
    monkeypatch.setattr(uai, "format_uai", write)
    for weights in (True, False):
        with pytest.raises(AssertionError):
            assert_survives(model, weights=weights)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CONSTANT_PIECE", 600.0), ("_scaled", lambda values, _: (values, 0.0))],
    ids=["more factors", "tables as they are"],
)
def test_assert_survives_can_fail_on_the_same_model_written_otherwise(monkeypatch, name, value):
    model = MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2]).replace(log_constant=2500.0)
    monkeypatch.setattr(f"fastmix.io.uai.{name}", value)
    assert_same_weights(parse_uai(format_uai(model)), model)
    with pytest.raises(AssertionError):
        assert_survives(model)


def test_assert_survives_can_fail_on_the_second_time(monkeypatch):
    def creep(text: str) -> MarkovRandomField:
        model = parse_uai(text)
        return model.replace(log_constant=model.log_constant * (1 + 2e-14))

    model = MarkovRandomField.ising([(0, 1)], 0.5, [0.1, 0.2]).replace(log_constant=2500.0)
    monkeypatch.setattr(uai, "parse_uai", creep)
    assert_close(creep(format_uai(model)), attractive_form(model))
    with pytest.raises(AssertionError):
        assert_survives(model)


# -- round trips ----------------------------------------------------------------------------------------------------


@given(strategies.models(scales=(0.0, 0.3, 1.0, 5.0, 60.0)), st.sampled_from(CONSTANTS))
def test_round_trip_of_ordinary_models(model, constant):
    assert_survives(model.replace(log_constant=constant))


@given(strategies.models(), st.sampled_from(CONSTANTS), st.booleans())
def test_round_trip_of_any_model(model, constant, named):
    model = model.replace(log_constant=constant)
    model = strategies.with_names(model) if named else model
    notes = write_uai(model, "/dev/null")
    again = assert_survives(model)
    assert_same(read_naive(format_uai(model)), again)
    assert has(notes, "names") == named
    assert has(notes, "the constant") == (not -708.39 <= attractive_form(model).log_constant <= 709.78)
    written = attractive_form(model).parameters
    assert has(notes, "below 2.2e-308") == bool(((written < -708.39) & (written > -np.inf)).any())
    assert np.array_equal(again.log_unary == -np.inf, model.log_unary == -np.inf)
    assert np.array_equal(again.log_pairwise == -np.inf, model.log_pairwise == -np.inf)


@given(strategies.models(named=True), st.sampled_from(CONSTANTS))
def test_npz_round_trip_is_exact(tmp_path_factory, model, constant):
    model = model.replace(log_constant=constant)
    path = tmp_path_factory.getbasetemp() / "model.npz"
    write_model(model, path)
    assert read_model(path) == model
    assert read_model(path).content_hash == model.content_hash


def test_exact_text():
    model = MarkovRandomField.from_tables(
        [[0, -np.inf], [0, 0, 0]], [(0, 1)], [np.log([[1, 2, 4], [0.5, 0.25, 0.125]])]
    )
    text = format_uai(model)
    assert text.startswith("MARKOV\n2\n2 3\n3\n1 0\n2 0 1\n0\n\n2\n 1.0 0.0\n6\n ")
    assert text.endswith(f"\n1\n {math.exp(model.log_pairwise.max())!r}\n")
    unary, pairwise, constant = ([float(word) for word in words] for _, words in written_tables(text))
    assert unary == [1.0, 0.0]
    assert constant == pytest.approx([4.0], rel=1e-15)
    assert pairwise[2] == 1.0
    np.testing.assert_allclose(pairwise, [0.25, 0.5, 1, 0.125, 0.0625, 0.03125], rtol=1e-15)
    assert pairwise == np.exp(model.log_pairwise - model.log_pairwise.max()).tolist()
    assert format_uai(MarkovRandomField([], [], [], [])) == "MARKOV\n0\n\n0\n\n"
    assert format_uai(MarkovRandomField([2], [0, 0], [], [])) == "MARKOV\n1\n2\n0\n\n"


def test_constant_is_a_factor_over_no_variables():
    assert format_uai(MarkovRandomField([2], [0, 0], [], [], 0.5)) == f"MARKOV\n1\n2\n1\n0\n\n1\n {math.exp(0.5)!r}\n"


def test_zero_tables_of_edges_are_kept():
    model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.0)
    assert assert_survives(model) == model


def test_tables_of_one_number_are_kept_as_ones():
    model = MarkovRandomField.from_tables([[2, 2], [-3, -3]], [(0, 1)], [np.full((2, 2), 0.25)], log_constant=0.5)
    assert [words for _, words in written_tables(format_uai(model))][:3] == [["1.0"] * 2, ["1.0"] * 2, ["1.0"] * 4]
    again = assert_survives(model)
    assert not again.parameters.any()
    assert again.num_edges == 1
    assert again.log_constant == pytest.approx(-0.25, rel=1e-15)


def test_scales_that_cancel_leave_no_constant():
    model = MarkovRandomField.from_tables([[1.5, 0.0], [-0.5, -2.0]], [], [], log_constant=-1.0)
    assert [scope for scope, _ in written_tables(format_uai(model))] == [(0,), (1,)]
    assert write_uai(model, "/dev/null") == []
    assert assert_survives(model).log_constant == 0


def test_unaries_of_mixed_sizes_where_some_are_zero():
    model = MarkovRandomField.from_tables([[0, 0], [1, 2, 3], [0], [0, -1], [0, 0, 0]], [], [])
    text = format_uai(model)
    assert "\n3\n1 1\n1 3\n0\n\n3\n" in text
    assert_survives(model)


def note_on_constant(constant: float) -> str:
    return (
        f"the constant exp({constant:.6g}) is outside the range of doubles: "
        "programs that do not add logarithms overflow; npz files keep it as one number"
    )


@pytest.mark.parametrize(("constant", "num_factors"), SPLIT_CONSTANTS.items())
@pytest.mark.parametrize("of_table", [False, True])
def test_constant_beyond_doubles_is_split_and_noted(tmp_path, caplog, constant, num_factors, of_table):
    table = np.array([[0.0, -1.0], [-1.0, 0.0]])
    if of_table:
        model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [table + constant])
    else:
        model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [table], log_constant=constant)
    with caplog.at_level(logging.WARNING):
        notes = write_uai(model, tmp_path / "a.uai")
    assert notes == [note_on_constant(constant)]
    assert [record.message for record in caplog.records] == [f"UAI: {notes[0]}"]
    again = read_model(tmp_path / "a.uai")
    assert again.log_constant == pytest.approx(constant, rel=1e-12)
    # A sum with the constant has rounded the entries of the model, not those of the file.
    scaled = model.table(0, 1) - model.table(0, 1).max()
    np.testing.assert_allclose(again.table(0, 1), scaled, rtol=1e-12)
    assert [scope for scope, _ in written_tables((tmp_path / "a.uai").read_text())] == [(0, 1), *[()] * num_factors]
    assert_same(read_naive((tmp_path / "a.uai").read_text()), again)
    assert_same_weights(again, model)
    assert_survives(model)


def test_constant_at_the_ends_of_the_range():
    for constant in (709.78, -708.39):
        model = MarkovRandomField([2], [0, 0], [], [], constant)
        assert_close(assert_survives(model), model)
        assert write_uai(model, "/dev/null") == []
        beyond = model.replace(log_constant=constant + math.copysign(0.001, constant))
        assert_close(assert_survives(beyond), beyond)
        assert write_uai(beyond, "/dev/null") == [note_on_constant(beyond.log_constant)]


def test_a_long_chain_keeps_log_z():
    """log Z = k + log 2 + (n - 1) log(exp(J) + exp(-J)) of n spins in a row, from any scale of the tables."""
    n, coupling = 1001, 5.0
    model = MarkovRandomField.ising(path_edges(n), coupling).replace(log_constant=0.125)
    assert write_uai(model, "/dev/null") == [note_on_constant(5000.125)]
    again = assert_survives(model, weights=False)
    rows = [np.logaddexp.reduce(again.table(i, i + 1), axis=1) for i in range(n - 1)]
    assert np.ptp(rows) < 1e-15
    log_z = again.log_constant + math.log(2) + math.fsum(row[0] for row in rows)
    expected = 0.125 + math.log(2) + (n - 1) * (coupling + math.log1p(math.exp(-2 * coupling)))
    assert log_z == pytest.approx(expected, rel=1e-12)


def test_a_large_grid_keeps_log_z(tmp_path):
    """The tables come back as they were but for a number each, and the constant makes up for all of these numbers."""
    rng = np.random.default_rng(11)
    edges = grid_edges(60, 60)
    unary, tables = rng.normal(size=(3600, 2)), rng.normal(0.5, 1.0, size=(len(edges), 2, 2))
    model = MarkovRandomField.from_tables(unary, edges, tables, log_constant=-20.0)
    scales = [-20.0, *unary.max(axis=1).tolist(), *tables.max(axis=(1, 2)).tolist()]
    constant = math.fsum(scales)
    assert constant > 10_000
    notes = write_model(model, tmp_path / "grid.uai.gz")
    assert notes == [note_on_constant(constant)]
    again = read_model(tmp_path / "grid.uai.gz")
    assert np.array_equal(again.edges, edges)
    assert again.log_constant == pytest.approx(constant, rel=1e-12)
    unary_rest = unary - again.log_unary.reshape(unary.shape)
    table_rest = tables - again.log_pairwise.reshape(tables.shape)
    assert np.ptp(unary_rest, axis=1).max() < 1e-12
    assert np.ptp(table_rest.reshape(-1, 4), axis=1).max() < 1e-12
    # What the tables lost is what the constant gained, so that every weight and log Z are as before.
    lost = math.fsum([*unary_rest[:, 0].tolist(), *table_rest[:, 0, 0].tolist()])
    assert again.log_constant == pytest.approx(model.log_constant + lost, rel=1e-12)
    states = rng.integers(0, 2, size=(20, 3600))
    np.testing.assert_allclose(again.log_weight(states), model.log_weight(states), rtol=0, atol=1e-12 * constant)
    assert_survives(model, weights=False)


def test_strong_tables_are_scaled_and_their_scale_kept():
    model = MarkovRandomField.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0, -720], [-730, 100.0]]])
    notes = write_uai(model, "/dev/null")
    assert len(notes) == 1
    assert notes[0].startswith("table entries below 2.2e-308, where doubles underflow to zero: 2;")
    again = parse_uai(format_uai(model))
    assert again.log_constant == pytest.approx(100, rel=1e-14)
    np.testing.assert_allclose(again.table(0, 1), [[-100, -820], [-830, 0]], rtol=1e-14)
    assert_survives(model)


def test_couplings_of_a_thousand_survive():
    model = MarkovRandomField.ising([(0, 1)], 1000.0)
    (constant, tiny) = write_uai(model, "/dev/null")
    assert constant == note_on_constant(1000.0)
    assert tiny.startswith("table entries below 2.2e-308, where doubles underflow to zero: 2;")
    again = assert_survives(model)
    np.testing.assert_allclose(again.table(0, 1), [[0, -2000], [-2000, 0]], rtol=1e-14)
    assert again.log_constant == pytest.approx(1000.0, rel=1e-14)


def test_subnormal_entries_keep_their_digits():
    logs = np.array([0.0, -708.5, -720.0, -740.0, -744.0, -745.5, -1000.0, -1e6, -1e12])
    model = MarkovRandomField([9], logs, [], [])
    np.testing.assert_allclose(parse_uai(format_uai(model)).log_unary, logs, rtol=1e-14)


def test_entries_beyond_any_exponent_are_noted():
    model = MarkovRandomField([3], [0.0, -1e99, -1e15], [], [])
    notes = write_uai(model, "/dev/null")
    assert has(
        notes, "zero: 2; other programs take them as 0, which forbids these states, as fastmix does below exp(-1e"
    )
    again = parse_uai(format_uai(model))
    assert again.log_unary[1] == -np.inf
    assert again.log_unary[2] == pytest.approx(-1e15)


def test_differences_beyond_any_exponent_are_counted():
    model = MarkovRandomField([2], [1e99, -1e99], [], [])
    assert has(write_uai(model, "/dev/null"), "zero: 1;")


def test_differences_beyond_any_exponent_are_counted_when_the_scales_cancel():
    model = MarkovRandomField([2, 2], [1e99, -1e99, -1e99, -1e99], [], [])
    assert has(write_uai(model, "/dev/null"), "zero: 1;")
    assert parse_uai(format_uai(model)).log_unary.tolist() == [0, -np.inf, 0, 0]


def test_names_are_noted():
    model = MarkovRandomField.ising([(0, 1)], 0.5, variable_names=["a", "b"])
    assert write_uai(model, "/dev/null") == ["names are not written, because UAI files have none; npz files keep them"]


def test_table_without_allowed_pairs_is_refused(tmp_path):
    model = MarkovRandomField([2, 2, 2], np.zeros(6), [(0, 1), (1, 2)], [0.0] * 4 + [-np.inf] * 4)
    with pytest.raises(ModelError, match=r"edge \(1, 2\) .*-inf"):
        write_uai(model, tmp_path / "a.uai")
    assert list(tmp_path.iterdir()) == []


def test_many_tables_in_several_chunks(monkeypatch):
    monkeypatch.setattr("fastmix.io.uai.TABLES_PER_CHUNK", 3)
    monkeypatch.setattr("fastmix.io.tokens.NUMBERS_PER_CHUNK", 7)
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, 11)
    edges = [(i, j) for i in range(11) for j in range(i + 1, 11) if rng.random() < 0.5]
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    model = MarkovRandomField.from_tables([rng.normal(size=k) for k in counts], edges, tables, log_constant=1.5)
    # A table in the place of another would show: the tables all differ.
    assert_survives(model, weights=False)


@pytest.mark.parametrize("suffix", [".uai", ".uai.gz", ".uai.xz", ".npz", ".UAI", ".Uai.GZ", ".NPZ"])
def test_write_model_by_suffix(tmp_path, suffix):
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [0.5, -0.25], [0.125, 0, 1])
    path = tmp_path / f"model{suffix}"
    assert write_model(model, path) == []
    data = path.read_bytes()
    magic = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ", ".uai": b"MARKOV", ".npz": b"PK"}[path.suffix.lower()]
    assert data.startswith(magic)
    expected = model if suffix.lower() == ".npz" else attractive_form(model)
    assert_close(read_model(path), expected)
    assert (read_model(path) == model) == (suffix.lower() == ".npz")
    # The content decides, not the name.
    renamed = path.rename(tmp_path / "model.dat")
    assert_close(read_model(renamed), expected)


def test_compressed_files_hold_the_same_text(tmp_path):
    model = MarkovRandomField.ising([(0, 1)], 0.5)
    for suffix, decompress in ((".gz", gzip.decompress), (".xz", lzma.decompress)):
        path = tmp_path / f"a.uai{suffix}"
        write_uai(model, path)
        assert decompress(path.read_bytes()).decode() == format_uai(model)
        first = path.read_bytes()
        write_uai(model, path)
        assert path.read_bytes() == first


def test_write_model_refuses_other_suffixes(tmp_path):
    model = MarkovRandomField.ising([(0, 1)], 0.5)
    for name in ("model", "model.txt", "model.gz", "uai"):
        with pytest.raises(ValueError, match=f"{name}'$") as caught:
            write_model(model, tmp_path / name)
        assert all(suffix in str(caught.value) for suffix in (".uai", ".uai.gz", ".uai.xz", ".npz"))
    assert list(tmp_path.iterdir()) == []


def test_write_model_to_standard_output(capsysbinary):
    model = MarkovRandomField.ising([(0, 1)], 0.5)
    assert write_model(model, "-") == []
    assert capsysbinary.readouterr().out.decode() == format_uai(model)
