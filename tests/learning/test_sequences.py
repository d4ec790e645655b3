"""Alignments: files, weights, contacts and mutants against obvious versions."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import FormatError, MarkovRandomField, ModelError
from fastmix.learning import contact_scores, mutant_energies, rank_contacts, read_fasta, sequence_weights


def family(n: int = 6, count: int = 5, seed: int = 0, scale: float = 0.5) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    edges = list(itertools.combinations(range(n), 2))
    tables = scale * rng.standard_normal((len(edges), count, count))
    letters = ("-", *"ACDEFGHIK"[: count - 1])
    return MarkovRandomField.from_tables(
        rng.standard_normal((n, count)), edges, tables, state_names=[letters] * n
    )  # fmt: skip


def test_alignments_are_read(tmp_path: Path) -> None:
    path = tmp_path / "family.a2m"
    path.write_text(">one description\nAC.d-\nW\n\n>two\n-CX\nY\n; a comment\n")
    data = read_fasta(path)
    letters = "-ACDEFGHIKLMNPQRSTVWY"
    assert ["".join(letters[s] if s >= 0 else "?" for s in row) for row in data.states] == ["AC-W", "-C?Y"]
    assert data.variable_names == ("1", "2", "3", "4")
    assert data.num_states.tolist() == [21] * 4
    open_gaps = read_fasta(path, gaps="missing")
    assert open_gaps.states[0].tolist() == [0, 1, -1, 18]
    assert open_gaps.num_states.tolist() == [20] * 4
    rna = tmp_path / "rna.fasta"
    rna.write_text(">a\nACGTU\n")
    assert read_fasta(rna, alphabet="rna").states.tolist() == [[1, 2, 3, 4, 4]]
    assert read_fasta(rna, alphabet="dna").states.tolist() == [[1, 2, 3, 4, 4]]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("AC\n>one\nAC\n", ":1"),
        ("", "no sequence"),
        (">one\nAC\n>two\nACD\n", ":3.*2 positions"),
        (">one\n>two\n", ":1"),
    ],
)
def test_bad_alignments_have_a_place(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "bad.fasta"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"bad.fasta.*{where}" if ":" not in where[:1] else f"bad.fasta{where}"):
        read_fasta(path)


@pytest.mark.parametrize("seed", range(5))
def test_weights_are_one_over_the_number_of_neighbors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, size=(40, 7))
    rows[rng.random(rows.shape) < 0.1] = -1
    rows[0] = 0
    expected = []
    for a in rows:
        near = 0
        for b in rows:
            both = (a >= 0) & (b >= 0)
            near += int((a[both] == b[both]).sum() >= 0.6 * both.sum() - 1e-9)
        expected.append(1.0 / near)
    np.testing.assert_allclose(sequence_weights(rows, identity=0.6), expected)


def test_contacts_do_not_depend_on_the_gauge() -> None:
    model = family()
    rng = np.random.default_rng(1)
    shifted = [model.table(i, j) + rng.standard_normal((5, 1)) + rng.standard_normal(5) for i, j in model.edges]
    other = MarkovRandomField.from_tables(
        np.zeros((6, 5)), model.edges, shifted, state_names=model.state_names
    )  # fmt: skip
    for options in ({}, {"apc": False}, {"gap": None}):
        np.testing.assert_allclose(contact_scores(model, **options), contact_scores(other, **options), atol=1e-9)
    raw = contact_scores(model, apc=False)
    assert raw[0, 0] == 0.0
    assert raw[1, 4] < contact_scores(model, apc=False, gap=None)[1, 4]
    corrected = contact_scores(model)
    means = raw.sum(axis=1) / 5
    assert corrected[2, 3] == pytest.approx(raw[2, 3] - means[2] * means[3] / (raw.sum() / 30))


def test_contacts_of_a_known_model_are_found() -> None:
    rng = np.random.default_rng(0)
    n = 14
    contacts = {(0, 6), (1, 8), (3, 11), (5, 13)}
    pairs = [*((i, i + 1) for i in range(n - 1)), *contacts]
    tables = rng.normal(0.0, 1.0, (len(pairs), 4, 4))
    model = MarkovRandomField.from_tables(rng.normal(0.0, 0.3, (n, 4)), pairs, tables)
    rows = np.asarray(fastmix.draw_exact(model, num_draws=3000, seed=1))
    weights = sequence_weights(rows, identity=0.8)
    fit = fastmix.learn(rows, weights=weights, objective="pseudo-likelihood", num_states=4, ridge=0.01, seed=0)
    ranked = rank_contacts(contact_scores(fit.model), separation=4, num_contacts=4)
    assert {tuple(pair) for pair in ranked.tolist()} == contacts


@pytest.mark.parametrize("seed", range(5))
def test_mutants_are_differences_of_weights(seed: int) -> None:
    model = family(seed=seed)
    sequence = np.random.default_rng(seed).integers(0, 5, 6)
    found = mutant_energies(model, sequence)
    for i, own in enumerate(found):
        for s in range(5):
            mutant = sequence.copy()
            mutant[i] = s
            assert own[s] == pytest.approx(model.log_weight(mutant) - model.log_weight(sequence), abs=1e-10)


def test_what_is_no_potts_model_is_refused() -> None:
    factor = MarkovRandomField.from_factors([2] * 3, [((0, 1, 2), np.zeros((2, 2, 2)))])
    calls: list[Any] = [lambda: contact_scores(factor), lambda: mutant_energies(factor, [0, 0, 0])]
    for call in calls:
        with pytest.raises(ModelError, match="pairs"):
            call()
    with pytest.raises(ModelError):
        mutant_energies(family(), [0, 0, 0, 0, 0, 9])
    with pytest.raises(ValueError, match="scores"):
        rank_contacts([[1.0, 2.0]])
