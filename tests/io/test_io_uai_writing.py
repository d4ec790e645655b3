from __future__ import annotations

import gzip
import logging
import lzma
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from fastmix.errors import ModelError
from fastmix.io import format_uai, load_npz, parse_uai, read_model, read_uai, save_npz, write_model, write_uai
from fastmix.model import PairwiseMRF

CONSTANTS = [0.0, 0.7, -3.5, 700.0, -700.0, 1e3, -1e3, 1e4]


def assert_close(model: PairwiseMRF, expected: PairwiseMRF) -> None:
    """Equal up to 1e-12, names aside."""
    assert np.array_equal(model.num_states, expected.num_states)
    assert np.array_equal(model.edges, expected.edges)
    for name in ("log_unary", "log_pairwise", "log_constant"):
        np.testing.assert_allclose(getattr(model, name), getattr(expected, name), rtol=1e-12, atol=1e-12, err_msg=name)


def normal_form(model: PairwiseMRF) -> PairwiseMRF:
    """The same weights with the largest entry of every vector and table moved into the constant."""
    unary, tables, constant = [], [], model.log_constant
    for i in range(model.num_variables):
        unary.append(model.unary(i) - model.unary(i).max())
        constant += model.unary(i).max()
    for i, j in model.edges.tolist():
        tables.append(model.table(i, j) - model.table(i, j).max())
        constant += model.table(i, j).max()
    return PairwiseMRF.from_tables(unary, model.edges, tables, log_constant=constant)


def has(notes: list[str], words: str) -> bool:
    return any(words in note for note in notes)


def test_assert_close_can_fail():
    model = PairwiseMRF.ising([(0, 1)], 0.5, [0.1, 0.2])
    assert_close(model, model)
    assert_close(normal_form(model), normal_form(model))
    for other in (
        model.replace(log_constant=1e-9),
        model.replace(log_unary=model.log_unary + 1e-9),
        model.replace(log_pairwise=model.log_pairwise - 1e-9),
        PairwiseMRF.ising([(0, 1)], 0.5, [0.1, 0.2, 0.0]),
        PairwiseMRF.ising([(0, 2)], 0.5, [0.1, 0.2, 0.0]),
    ):
        with pytest.raises(AssertionError):
            assert_close(other, model)


@settings(max_examples=200)
@given(strategies.models(scales=(0.0, 0.3, 1.0, 5.0, 60.0)), st.sampled_from([0.0, 0.7, -3.5, 700.0, -700.0]))
def test_round_trip_of_parameters(model, constant):
    model = model.replace(log_constant=constant)
    assert_close(parse_uai(format_uai(model)), model)


@settings(max_examples=200)
@given(strategies.models(), st.sampled_from(CONSTANTS), st.booleans())
def test_round_trip_of_any_model(model, constant, named):
    model = model.replace(log_constant=constant)
    model = strategies.with_names(model) if named else model
    notes = write_uai(model, "/dev/null")
    again = parse_uai(format_uai(model))
    expected, found = normal_form(model), normal_form(again)
    assert has(notes, "names") == named
    if has(notes, "the constant"):
        assert again.log_constant == 0
        kept = [model.log_unary, model.log_pairwise]
        strong = any(a.size and np.abs(a[a > -np.inf]).max() > 700 for a in kept if (a > -np.inf).any())
        assert abs(constant) > 709 or strong
        expected, found = expected.replace(log_constant=0.0), found.replace(log_constant=0.0)
    assert_close(found, expected)
    assert np.array_equal(again.log_unary == -np.inf, model.log_unary == -np.inf)
    assert np.array_equal(again.log_pairwise == -np.inf, model.log_pairwise == -np.inf)


@settings(max_examples=100)
@given(strategies.models(named=True), st.sampled_from(CONSTANTS))
def test_npz_round_trip_is_exact(tmp_path_factory, model, constant):
    model = model.replace(log_constant=constant)
    path = tmp_path_factory.getbasetemp() / "model.npz"
    save_npz(model, path)
    assert load_npz(path) == model
    assert load_npz(path).content_hash == model.content_hash


def test_exact_text():
    model = PairwiseMRF.from_tables([[0, -np.inf], [0, 0, 0]], [(0, 1)], [np.log([[1, 2, 4], [0.5, 0.25, 0.125]])])
    text = format_uai(model)
    words = text.split()
    assert text.startswith("MARKOV\n2\n2 3\n2\n1 0\n2 0 1\n\n2\n 1.0 0.0\n6\n ")
    assert [float(word) for word in words[-6:]] == np.exp(model.log_pairwise).tolist()
    assert format_uai(PairwiseMRF([], [], [], [])) == "MARKOV\n0\n\n0\n\n"
    assert format_uai(PairwiseMRF([2], [0, 0], [], [])) == "MARKOV\n1\n2\n0\n\n"


def test_constant_is_a_factor_over_no_variables():
    assert format_uai(PairwiseMRF([2], [0, 0], [], [], 0.5)) == f"MARKOV\n1\n2\n1\n0\n\n1\n {math.exp(0.5)!r}\n"


def test_zero_tables_of_edges_are_kept():
    model = PairwiseMRF.ising([(0, 1), (1, 2)], coupling=0.0)
    assert_close(parse_uai(format_uai(model)), model)


def test_unaries_of_mixed_sizes_where_some_are_zero():
    model = PairwiseMRF.from_tables([[0, 0], [1, 2, 3], [0], [0, -1], [0, 0, 0]], [], [])
    text = format_uai(model)
    assert "\n2\n1 1\n1 3\n\n3\n" in text
    assert_close(parse_uai(text), model)


@pytest.mark.parametrize("constant", [1e3, -1e3, 1e4, 709.79, -708.4])
def test_constant_beyond_doubles_is_noted(tmp_path, caplog, constant):
    model = PairwiseMRF.ising([(0, 1)], 0.5).replace(log_constant=constant)
    with caplog.at_level(logging.WARNING):
        notes = write_uai(model, tmp_path / "a.uai")
    assert notes == [
        f"the constant exp({constant:.6g}) is outside the range of doubles and is not written: log Z of the file lacks "
        f"{constant!r}; npz files keep it"
    ]
    assert [record.message for record in caplog.records] == [f"UAI: {notes[0]}"]
    assert read_uai(tmp_path / "a.uai").log_constant == 0


def test_constant_at_the_ends_of_the_range():
    for constant in (709.78, -708.39):
        model = PairwiseMRF([2], [0, 0], [], [], constant)
        assert_close(parse_uai(format_uai(model)), model)
        assert write_uai(model, "/dev/null") == []


def test_large_models_keep_their_scale():
    # Scaling every table would put a constant of 5,000 into the file, which no double can hold.
    model = PairwiseMRF.ising([(i, i + 1) for i in range(1000)], coupling=5.0)
    assert write_uai(model, "/dev/null") == []
    assert_close(parse_uai(format_uai(model)), model)


def test_strong_tables_are_scaled_and_their_scale_kept():
    model = PairwiseMRF.from_tables([[0, 0], [0, 0]], [(0, 1)], [[[0, -720], [-730, 100.0]]])
    notes = write_uai(model, "/dev/null")
    assert len(notes) == 1
    assert notes[0].startswith(
        "2 table entries are below 2.2e-308, where doubles underflow to zero: fastmix reads such "
    )
    again = parse_uai(format_uai(model))
    assert again.log_constant == pytest.approx(100, rel=1e-14)
    np.testing.assert_allclose(again.table(0, 1), [[-100, -820], [-830, 0]], rtol=1e-14)


def test_couplings_of_a_thousand_survive():
    model = PairwiseMRF.ising([(0, 1)], 1000.0)
    (constant, tiny) = write_uai(model, "/dev/null")
    assert constant.startswith("the constant exp(1000) is")
    assert tiny.startswith("2 table entries are below 2.2e-308")
    np.testing.assert_allclose(parse_uai(format_uai(model)).table(0, 1), [[0, -2000], [-2000, 0]])


def test_subnormal_entries_keep_their_digits():
    logs = np.array([0.0, -708.5, -720.0, -740.0, -744.0, -745.5, -1000.0, -1e6, -1e12])
    model = PairwiseMRF([9], logs, [], [])
    np.testing.assert_allclose(parse_uai(format_uai(model)).log_unary, logs, rtol=1e-14)


def test_entries_beyond_any_exponent_are_noted():
    model = PairwiseMRF([3], [0.0, -1e300, -1e15], [], [])
    notes = write_uai(model, "/dev/null")
    assert len(notes) == 2
    assert has(notes, "1 table entry is below exp(-1e+15) and written as 0, so that the file forbids")
    again = parse_uai(format_uai(model))
    assert again.log_unary[1] == -np.inf
    assert again.log_unary[2] == pytest.approx(-1e15)


def test_differences_that_overflow_are_counted():
    model = PairwiseMRF([2], [1.7e308, -1.7e308], [], [])
    assert has(write_uai(model, "/dev/null"), "written as 0")


def test_names_are_noted():
    model = PairwiseMRF.ising([(0, 1)], 0.5, variable_names=["a", "b"])
    assert write_uai(model, "/dev/null") == ["names are not written, because UAI files have none; npz files keep them"]


def test_table_without_allowed_pairs_is_refused(tmp_path):
    model = PairwiseMRF([2, 2, 2], np.zeros(6), [(0, 1), (1, 2)], [0.0] * 4 + [-np.inf] * 4)
    with pytest.raises(ModelError, match=r"edge \(1, 2\) has only -inf"):
        write_uai(model, tmp_path / "a.uai")
    assert list(tmp_path.iterdir()) == []


def test_many_tables_in_several_chunks(monkeypatch):
    monkeypatch.setattr("fastmix.io.uai_writer._CHUNK_TABLES", 3)
    monkeypatch.setattr("fastmix.io.tokens._CHUNK_TOKENS", 7)
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, 11)
    edges = [(i, j) for i in range(11) for j in range(i + 1, 11) if rng.random() < 0.5]
    tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
    model = PairwiseMRF.from_tables([rng.normal(size=k) for k in counts], edges, tables, log_constant=1.5)
    assert_close(parse_uai(format_uai(model)), model)


@pytest.mark.parametrize("suffix", [".uai", ".uai.gz", ".uai.xz", ".npz", ".UAI", ".Uai.GZ", ".NPZ"])
def test_write_model_by_suffix(tmp_path, suffix):
    model = PairwiseMRF.ising([(0, 1), (1, 2)], [0.5, -0.25], [0.125, 0, 1])
    path = tmp_path / f"model{suffix}"
    assert write_model(model, path) == []
    data = path.read_bytes()
    magic = {".gz": b"\x1f\x8b", ".xz": b"\xfd7zXZ", ".uai": b"MARKOV", ".npz": b"PK"}[path.suffix.lower()]
    assert data.startswith(magic)
    assert_close(read_model(path), model)
    # The content decides, not the name.
    renamed = path.rename(tmp_path / "model.dat")
    assert_close(read_model(renamed), model)


def test_compressed_files_hold_the_same_text(tmp_path):
    model = PairwiseMRF.ising([(0, 1)], 0.5)
    for suffix, decompress in ((".gz", gzip.decompress), (".xz", lzma.decompress)):
        path = tmp_path / f"a.uai{suffix}"
        write_uai(model, path)
        assert decompress(path.read_bytes()).decode() == format_uai(model)
        first = path.read_bytes()
        write_uai(model, path)
        assert path.read_bytes() == first


def test_write_model_refuses_other_suffixes(tmp_path):
    model = PairwiseMRF.ising([(0, 1)], 0.5)
    for name in ("model", "model.txt", "model.gz", "uai"):
        with pytest.raises(ValueError, match=r"must end in \.uai, \.uai\.gz, \.uai\.xz or \.npz, got "):
            write_model(model, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_write_model_to_standard_output(capsysbinary):
    model = PairwiseMRF.ising([(0, 1)], 0.5)
    assert write_model(model, "-") == []
    assert capsysbinary.readouterr().out.decode() == format_uai(model)
