"""Graphs in rudy format and QUBO files: against their definition by all configurations, and damaged."""

from __future__ import annotations

import io
import itertools
import random
import re
from pathlib import Path

import numpy as np
import pytest

from fastmix import FormatError, MarkovRandomField, ModelError, ResourceError, most_probable
from fastmix.cli import run_command
from fastmix.io import qubo, read_model, rudy, write_model

GSET = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "gset"


def configurations(n: int) -> np.ndarray:
    return np.array(list(itertools.product([0, 1], repeat=n)))


def random_edges(rng: np.random.Generator, n: int) -> np.ndarray:
    pairs = np.array(list(itertools.combinations(range(n), 2)), dtype=int).reshape(-1, 2)
    return pairs[rng.random(len(pairs)) < 0.6]


@pytest.mark.parametrize("seed", range(20))
def test_log_weight_is_the_weight_of_the_cut(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    edges = random_edges(rng, n)
    weights = rng.integers(-5, 6, len(edges)) if seed % 3 else np.ones(len(edges), dtype=int)
    rows = [f"{i + 1} {j + 1}" + (f" {w}" if seed % 3 else "") for (i, j), w in zip(edges, weights, strict=True)]
    rng.shuffle(rows)
    text = f"{n} {len(edges)}\n" + "".join(f"{row}\n" for row in rows)
    assert rudy.is_rudy(text.encode())
    model = rudy.read(text.encode(), "g")
    states = configurations(n)
    cuts = ((states[:, edges[:, 0]] != states[:, edges[:, 1]]) * weights).sum(axis=1)
    assert np.array_equal(model.log_weight(states), cuts)


@pytest.mark.parametrize("seed", range(20))
def test_log_weight_is_minus_the_energy(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    edges = random_edges(rng, n)
    diagonal = rng.integers(-5, 6, n)
    others = rng.integers(-5, 6, len(edges))
    lines = ["c a problem", f"p qubo 0 {n} {n} {len(edges)}", *(f"{i} {i} {value}" for i, value in enumerate(diagonal))]
    lines += [f"{i} {j} {value}" for (i, j), value in zip(edges, others, strict=True)]
    data = "\n".join(lines).encode()
    assert qubo.is_qubo(data)
    states = configurations(n)
    energies = states @ diagonal + (states[:, edges[:, 0]] * states[:, edges[:, 1]]) @ others
    assert np.array_equal(qubo.read(data, "q").log_weight(states), -energies)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_written_has_the_same_weights(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 7))
    edges = random_edges(rng, n)
    tables = rng.normal(size=(len(edges), 2, 2))
    model = MarkovRandomField.from_tables(rng.normal(size=(n, 2)), edges, tables, log_constant=float(rng.normal()))
    stream = io.BytesIO()
    notes = qubo.write(model, stream)
    again = qubo.read(stream.getvalue(), "q")
    states = configurations(n)
    constant = float(re.search(r"constant (\S+)", notes[0])[1])
    np.testing.assert_allclose(again.log_weight(states) + constant, model.log_weight(states), atol=1e-12)


def test_models_that_a_qubo_file_cannot_hold(tmp_path):
    hard = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0, -np.inf], [0, 0]]])
    triple = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), np.arange(8.0).reshape(2, 2, 2))])
    for model in (hard, triple, MarkovRandomField.potts([(0, 1)], num_states=3, coupling=0.5)):
        with pytest.raises(ModelError, match="QUBO"):
            write_model(model, tmp_path / "m.qubo")
        assert not (tmp_path / "m.qubo").exists()


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("3 2\n1 2 1\n2 4 1\n", 3, "4"),
        ("3 2\n1 2 1\n0 3 1\n", 3, "0"),
        ("3 2\n1 2 1\n2 2 1\n", 3, "2"),
        ("3 2\n1 2 1\n1.5 2 1\n", 3, "1.5"),
        ("3 2\n1 2 1\n2 3 1e101\n", 3, "1e101"),
        ("3 2\n1 2 1\n2 3 x\n", 3, "x"),
        ("3 2\n1 2 1\n2 3 1 7\n", 1, "2"),
        ("3 3\n1 2 1\n", 1, "3"),
    ],
)
def test_damaged_graphs(text, line, word):
    with pytest.raises(FormatError, match=rf"^g:{line}: [^\n]*{re.escape(word)}"):
        rudy.read(text.encode(), "g")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("p qubo 0 2 1\n0 0 1\n", 1),
        ("c x\np qubo 0 2 1 1\n0 0 1\n0 2 1\n", 4),
        ("p qubo 0 2 1 1\n0 0 1\n0 1 nan\n", 3),
        ("p qubo 0 2 1 1\n0 0 1\n", 3),
        ("p qubo 0 2 1 1\n0 1 1\n0 1 1\n", 1),
        ("p qubo 0 2 1 1\np qubo 0 2 1 1\n0 0 1\n0 1 1\n", 2),
        ("0 0 1\n", 1),
    ],
)
def test_damaged_problems(text, line):
    with pytest.raises(FormatError, match=rf"^q:{line}: "):
        qubo.read(text.encode(), "q")


def test_sizes_are_checked_before_memory_is_taken():
    for reader, text in ((rudy, "999999999999999 0\n"), (qubo, "p qubo 0 99999999999999 0 0\n")):
        with pytest.raises(ResourceError):
            reader.read(text.encode(), "f")


@pytest.mark.parametrize("reader", [rudy, qubo])
def test_random_damage_is_an_error_or_a_model(reader):
    text = (
        "5 4\n1 2 1\n2 3 -2.5\n3 4 1e3\n4 5 7\n"
        if reader is rudy
        else "c x\np qubo 0 4 2 2\n0 0 1\n3 3 -2\n0 1 2\n1 3 4\n"
    )
    rng = random.Random(0)
    pool = ["", "0", "-1", "1e400", "nan", "c", "p qubo 0 1 1 0", "99999999999999999999", "\0", "#", "\n", "1.", "0x1"]
    accepted = 0
    for _ in range(1500):
        words = re.split(r"(\s+)", text)
        for _ in range(rng.randint(1, 3)):
            words[rng.randrange(len(words))] = rng.choice(pool)
        try:
            model = reader.read("".join(words).encode(), "f")
        except (FormatError, ResourceError) as error:
            assert re.match(r"f(:\d+)?: [^\n]+$", str(error)), error  # noqa: PT017
            continue
        accepted += 1
        assert np.isfinite(model.parameters).all()
    assert 10 < accepted < 1000


def test_the_command_line_cuts_a_graph(tmp_path, capsys):
    (tmp_path / "ring").write_text("5 5\n1 2 1\n2 3 1\n3 4 1\n4 5 1\n5 1 1\n")
    assert run_command(["map", str(tmp_path / "ring"), "--json"]) == 0
    assert '"log_weight": 4.0' in capsys.readouterr().out
    (tmp_path / "broken").write_text("5 5\n1 2 1\n2 3 1\n3 4 1\n4 5 1\n5 9 1\n")
    assert run_command(["map", str(tmp_path / "broken")]) == 3
    printed = capsys.readouterr()
    assert not printed.out
    assert "broken:6: a vertex must be a whole number from 1 to 5, got '9'" in printed.err
    assert run_command(["convert", str(tmp_path / "ring"), str(tmp_path / "ring.qubo")]) == 0
    assert most_probable(read_model(tmp_path / "ring.qubo")).log_weight == 4.0


@pytest.mark.skipif(not GSET.exists(), reason="needs the shared data")
def test_graphs_of_the_gset():
    sizes = {"G1": (800, 19_176), "G22": (2_000, 19_990), "G43": (1_000, 9_990), "G81": (20_000, 40_000)}
    for name, (vertices, edges) in sizes.items():
        model = read_model(GSET / f"{name}.gz")
        assert (model.num_variables, model.num_edges) == (vertices, edges)
