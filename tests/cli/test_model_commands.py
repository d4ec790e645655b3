"""The command line of info, convert and generate."""

from __future__ import annotations

import json
import math
import zlib
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import PROVENANCE, TRIPLE_PAIR, TRIPLE_TABLE, Run

import fastmix
from fastmix import instances
from fastmix.exact import enumerate_model
from fastmix.io import read_mar, read_model, write_evidence, write_model
from fastmix.model import MarkovRandomField

# -- info -----------------------------------------------------------------------------------------------------------


def test_info_shows_a_table(run: Run, saved: str) -> None:
    outcome = run("info", saved)
    assert (outcome.code, outcome.err) == (0, "")
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[0] == saved
    assert "num variables 6" in lines
    assert "num edges 7" in lines
    assert "treewidth 2" in lines


def test_info_json(run: Run, saved: str, model: MarkovRandomField) -> None:
    outcome = run("info", saved, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    facts = json.loads(outcome.out)
    assert facts["num_variables"] == 6
    assert facts["num_observed"] == 0
    assert facts["num_states"] == [2, 2]
    assert facts["num_edges"] == 7
    assert facts["max_degree"] == 3
    assert facts["num_components"] == 1
    assert facts["treewidth"] == [2, 2]
    assert facts["num_forbidden_states"] == facts["num_forbidden_pairs"] == 0
    assert facts["largest_table_entry"] == np.abs(model.log_pairwise).max()
    assert facts["seconds"] >= 0
    assert facts["provenance"].keys() >= PROVENANCE
    assert facts["provenance"]["model_hash"] == model.content_hash


def test_info_with_evidence(run: Run, saved: str) -> None:
    write_evidence({1: 0, 4: 1}, "given")  # the middle column: two pairs are left
    facts = json.loads(run("info", saved, "-e", "given", "--json").out)
    assert (facts["num_variables"], facts["num_observed"], facts["num_edges"]) == (6, 2, 2)
    assert (facts["num_components"], facts["treewidth"]) == (2, [1, 1])
    assert facts["provenance"]["options"] == {"evidence": {"1": 0, "4": 1}}


def test_info_makes_a_triple_pairwise(run: Run, triple: str) -> None:
    write_evidence({1: 2}, "given")
    facts = json.loads(run("info", triple, "-e", "given", "--json").out)
    assert (facts["num_variables"], facts["num_edges"], facts["num_states"]) == (3, 1, [2, 2])


def test_info_of_nothing(run: Run) -> None:
    facts = json.loads(run("info", "-", "--json", stdin="MARKOV 0 0").out)
    assert (facts["num_variables"], facts["num_edges"], facts["num_states"]) == (0, 0, [0, 0])
    assert run("info", "-", stdin="MARKOV 0 0").code == 0


@pytest.mark.parametrize("name", ["[red]model.uai", "a[/b", "long" * 40 + ".uai"])
def test_info_shows_any_name(run: Run, name: str) -> None:
    folder = Path(name).parent
    folder.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("MARKOV 1 2 0")
    outcome = run("info", name)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0] == name


# -- convert --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.uai", "out.UAI", "out.uai.gz", "out.uai.xz", "out.npz"])
def test_convert(run: Run, saved: str, model: MarkovRandomField, name: str) -> None:
    assert run("convert", saved, name) == (0, "", "")
    written = read_model(name)
    assert np.array_equal(written.edges, model.edges)
    states = enumerate_model(model).configurations
    np.testing.assert_allclose(written.log_weight(states), model.log_weight(states), rtol=0, atol=1e-12)
    assert run("convert", name, "back.npz") == (0, "", "")
    if name == "out.npz":
        assert read_model("back.npz") == model


def test_convert_json(run: Run, saved: str, model: MarkovRandomField) -> None:
    outcome = run("convert", saved, "out.uai", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    facts = json.loads(outcome.out)
    assert (facts["num_variables"], facts["num_edges"], facts["output"]) == (6, 7, "out.uai")
    assert facts["seconds"] >= 0
    assert facts["provenance"].keys() >= PROVENANCE
    assert facts["provenance"]["options"] == {"source": saved, "evidence": None}
    assert Path("out.uai").exists()


def test_convert_through_pipes(run: Run, saved: str) -> None:
    outcome = run("convert", saved, "-")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("MARKOV\n6\n")
    assert run("convert", "-", "-", stdin=outcome.out) == outcome
    assert run("convert", saved, "out.uai").code == 0
    assert Path("out.uai").read_text() == outcome.out


def test_convert_given_evidence(run: Run, triple: str) -> None:
    write_evidence({1: 2}, "given")
    assert run("convert", triple, "out.npz", "-e", "given") == (0, "", "")
    model = read_model("out.npz")
    assert model.num_states.tolist() == [2, 2]
    weights = TRIPLE_PAIR[:, 2, None] * TRIPLE_TABLE[:, 2, :]
    exact = enumerate_model(model)
    assert exact.log_z == pytest.approx(math.log(weights.sum()), abs=1e-12)
    np.testing.assert_allclose(exact.probabilities, weights.reshape(-1) / weights.sum(), atol=1e-12)


def test_convert_notes_what_is_lost(run: Run) -> None:
    named = MarkovRandomField.from_tables([[0.0, 1.0]], [], [], variable_names=["rain"])
    write_model(named, "named.npz")
    outcome = run("convert", "named.npz", "-")
    assert outcome.code == 0
    assert outcome.out.startswith("MARKOV")
    assert outcome.err.startswith("fastmix: note: ")


# -- generate -------------------------------------------------------------------------------------------------------

STRENGTH = ["--coupling-max", "3", "--attractive", "--seed", "5"]
KINDS = {
    "ising-grid": (["--rows", "3", "--cols", "4"], lambda **k: instances.ising_grid(3, 4, **k)),
    "ising-grid --torus": (["--rows", "3", "--cols", "4"], lambda **k: instances.ising_grid(3, 4, torus=True, **k)),
    "potts-grid": (
        ["--rows", "2", "--cols", "3", "--num-states", "4"],
        lambda **k: instances.potts_grid(2, 3, num_states=4, **k),
    ),
    "ising-random": (
        ["--num-variables", "7", "--edge-probability", "0.4"],
        lambda **k: instances.ising_random(7, edge_probability=0.4, **k),
    ),
    "ising-bipartite": (["--left", "2", "--right", "3"], lambda **k: instances.ising_bipartite(2, 3, **k)),
    "ising-regular": (["--num-variables", "8", "--degree", "3"], lambda **k: instances.ising_regular(8, 3, **k)),
    "ising-tree": (["--num-variables", "9"], lambda **k: instances.ising_tree(9, **k)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_generate(run: Run, kind: str) -> None:
    sizes, build = KINDS[kind]
    model = build(coupling_max=3.0, attractive=True, seed=5)
    arguments = ["generate", *kind.split(), *sizes, *STRENGTH]
    assert run(*arguments, "-o", "out.npz") == (0, "", "")
    assert read_model("out.npz") == model
    assert run(*arguments, "--mixed", "--field-max", "0.25", "-o", "mixed.npz").code == 0
    assert read_model("mixed.npz") == build(coupling_max=3.0, attractive=False, field_max=0.25, seed=5)
    text = run(*arguments)
    assert (text.code, text.err) == (0, "")
    assert text.out.startswith("MARKOV\n")
    assert run(*arguments, "-o", "-") == text
    assert run(*arguments, "-o", "out.uai") == (0, "", "")
    assert Path("out.uai").read_text() == text.out
    outcome = run(*arguments, "-o", "out.npz", "--json")
    facts = json.loads(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert (facts["num_variables"], facts["num_edges"]) == (model.num_variables, model.num_edges)
    assert facts["output"] == "out.npz"
    assert facts["provenance"]["seed"] == 5
    assert facts["provenance"]["model_hash"] == model.content_hash
    assert facts["provenance"]["options"]["coupling_max"] == 3.0
    assert json.loads(run(*arguments, "--json").out)["output"] is None


@pytest.mark.parametrize("kind", sorted({kind.split()[0] for kind in KINDS}))
def test_generate_has_defaults(run: Run, kind: str) -> None:
    outcome = run("generate", kind)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == run("generate", kind, "--seed", "0").out
    assert outcome.out != run("generate", kind, "--seed", "1").out


def test_from_a_seed_to_marginals(run: Run) -> None:
    options = ["--rows", "16", "--cols", "16", "--coupling-max", "3", "--attractive", "--seed", "0"]
    assert run("generate", "ising-grid", *options, "-o", "grid.uai").code == 0
    facts = json.loads(run("info", "grid.uai", "--json").out)
    assert (facts["num_variables"], facts["num_edges"]) == (256, 480)
    assert run("infer", "grid.uai", "--method", "exact", "-o", "grid.MAR") == (
        0,
        "",
        "fastmix: guarantee: exact up to rounding\n",
    )
    model = instances.ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    np.testing.assert_allclose(np.concatenate(read_mar("grid.MAR")), fastmix.infer(model).node_marginals, atol=1e-9)


# -- edges that seem to be numbered from 1 ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_first_variable_that_is_left_alone_gets_a_note(run: Run, tmp_path: Path, seed: int, caplog) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    tree = np.array([[i, rng.integers(i)] for i in range(1, n)]) + 1  # numbered from 1
    with caplog.at_level("WARNING"):
        model = MarkovRandomField.ising(tree, 0.3)
    assert "subtract 1" in caplog.text
    caplog.clear()
    path = str(tmp_path / "a.npz")
    write_model(model, path)
    told = run("info", path)
    assert (told.code, told.err.count("\n")) == (0, 1)
    assert "variable 0 has no edge" in told.err
    pairs = [((i, j), np.eye(2)) for i, j in [(0, n + 1), *tree.tolist()]]
    # Not where variable 0 was meant: with a field, with an edge, with others that have none, or counted by the caller.
    with caplog.at_level("WARNING"):
        for other in (
            MarkovRandomField.ising(tree, 0.3, np.eye(n + 1)[0]),
            MarkovRandomField.ising(tree - 1, 0.3),
            MarkovRandomField.ising(tree, 0.3, num_variables=n + 2),
            MarkovRandomField.from_factors([2] * (n + 2), pairs),
        ):
            write_model(other, path)
            assert run("info", path).err == ""
    assert "subtract" not in caplog.text


def test_edges_for_learning_that_leave_the_first_column_alone(run: Run, tmp_path: Path) -> None:
    data, edges = tmp_path / "data.csv", tmp_path / "edges.txt"
    rows = np.random.default_rng(0).integers(0, 2, (30, 4))
    data.write_text("\n".join(",".join(map(str, row)) for row in rows))
    edges.write_text("1 2\n2 3\n")
    options = ("-o", str(tmp_path / "m.uai"), "--time-limit", "5")
    assert "subtract 1" in run("learn", str(data), "--edges", str(edges), *options).err
    edges.write_text("0 1\n1 2\n2 3\n")
    assert "subtract 1" not in run("learn", str(data), "--edges", str(edges), *options).err


@pytest.mark.parametrize(
    ("kind", "sides"),
    [
        ("ising-grid", ["rows", "cols"]),
        ("potts-grid", ["rows", "cols"]),
        ("ising-random", ["num-variables"]),
        ("ising-bipartite", ["left", "right"]),
        ("ising-regular", ["num-variables"]),
    ],
)
def test_random_models_that_are_too_large(kind: str, sides: list[str], run: Run) -> None:
    """Refused with the memory that they would take."""
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    size = 2 * int(10.0 ** rng.uniform(8.0, 9.0))
    outcome = run("generate", kind, *(word for side in sides for word in (f"--{side}", size)), "-o", "model.uai")
    assert outcome.code == 2
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1
    assert "over the limit of" in outcome.err
