"""The command line of fit_network, with good input and with bad."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import Run, assert_refused

import fastmix
from fastmix import BayesianNetwork
from fastmix.io import read_model, read_network
from fastmix.io.bif import write_bif


def small_network() -> BayesianNetwork:
    """Rain and a sprinkler that wet the grass."""
    return BayesianNetwork(
        ["rain", "sprinkler", "grass"],
        [["no", "yes"], ["off", "on"], ["dry", "wet"]],
        [[], [0], [0, 1]],
        [[0.7, 0.3], [[0.4, 0.6], [0.9, 0.1]], [[[1.0, 0.0], [0.2, 0.8]], [[0.1, 0.9], [0.05, 0.95]]]],
    )


@pytest.fixture
def run(run: Run) -> Run:
    """The command line in this process, in a folder with a network and rows of it."""
    network = small_network()
    write_bif(network, "garden.bif")
    rows = network.sample(300, seed=0)
    names = np.array([["no", "yes"], ["off", "on"], ["dry", "wet"]])

    def lines(columns: list[int], gaps: float) -> str:
        gone = np.random.default_rng(1).random(rows.shape) < gaps
        head = ",".join(network.variable_names[v] for v in columns) + "\n"
        cells = [["" if gone[k, v] else names[v, rows[k, v]] for v in columns] for k in range(len(rows))]
        return head + "".join(",".join(row) + "\n" for row in cells)

    Path("rows.csv").write_text(lines([2, 0, 1], 0.0))
    Path("gaps.csv").write_text(lines([0, 1, 2], 0.2))
    Path("some.csv").write_text(lines([2, 0], 0.0))
    return run


def test_tables_for_the_graph_of_a_network(run: Run) -> None:
    code, out, err = run(
        "fit-network", "rows.csv", "--structure", "garden.bif", "-o", "fitted.bif", "--pseudo-count", 2
    )
    assert (code, err) == (0, "")
    assert "log-likelihood per row" in out
    truth = small_network()
    expected = fastmix.fit_network(truth.sample(300, seed=0), structure=truth, pseudo_count=2.0).network
    fitted = read_network("fitted.bif")
    for one, other in zip(fitted.tables, expected.tables, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    code, out, err = run("fit-network", "rows.csv", "--structure", "garden.bif")
    assert code == 0
    assert out.startswith("network")
    assert "log-likelihood per row" in err


def test_gaps_and_missing_columns(run: Run) -> None:
    facts = json.loads(run("fit-network", "gaps.csv", "--structure", "garden.bif", "--seed", 0, "--json").out)
    assert (facts["type"], facts["num_rows"], facts["parents"]) == ("NetworkFit", 300, [[], [0], [0, 1]])
    assert facts["num_missing"] > 100
    facts = json.loads(run("fit-network", "some.csv", "--structure", "garden.bif", "--start", "network", "--json").out)
    assert facts["num_missing"] == 300
    code, _, err = run("fit-network", "gaps.csv", "--structure", "garden.bif", "--max-iter", 1, "-o", "one.npz")
    assert code == 1
    assert "--max-iter" in err
    assert read_model("one.npz").variable_names == ("rain", "sprinkler", "grass")


def test_graphs_found_in_data_or_given_by_parents(run: Run) -> None:
    assert run("fit-network", "rows.csv", "--header", "-o", "tree.bif").code == 0
    assert sum(len(own) for own in read_network("tree.bif").parents) == 2
    words = ("--header", "--structure", "tree-augmented", "--target", "grass", "-o", "class.bif")
    assert run("fit-network", "rows.csv", *words).code == 0
    network = read_network("class.bif")
    assert all(network.variable_index("grass") in own for own in network.parents if own)
    Path("graph.json").write_text('{"grass": ["rain"]}')
    assert run("fit-network", "rows.csv", "--header", "--structure", "graph.json", "-o", "given.bif").code == 0
    assert sum(len(own) for own in read_network("given.bif").parents) == 1


@pytest.mark.parametrize(
    ("words", "code", "pattern"),
    [
        ("missing.csv", 3, "missing.csv: No such file"),
        ("rows.csv --structure missing.bif", 3, "missing.bif: No such file"),
        ("rows.csv --structure rows.csv", 3, "rows.csv:1:"),
        ("rows.csv --structure model.npz", 2, "--structure"),
        ("rows.csv --structure broken.json", 3, "broken.json"),
        ("rows.csv --structure flat.json", 3, "flat.json"),
        ("rows.csv --structure garden.bif --weights grass", 3, "rows.csv:2"),
        ("other.csv --structure garden.bif", 3, "other.csv"),
        ("rows.csv --header --structure tree-augmented", 2, "target"),
        ("rows.csv --header --target snow", 2, "snow"),
        ("rows.csv --pseudo-count -1 --header", 2, "--pseudo-count"),
        ("rows.csv --start network --header", 2, "structure"),
        ("rows.csv --max-iter 0 --header", 2, "--max-iter"),
        ("rows.csv --header --json -o -", 2, "--json"),
        ("rows.csv -o rows.csv", 2, "-o"),
        ("rows.csv --structure garden.bif -o garden.bif", 2, "-o"),
        ("rows.csv -o fitted.txt", 2, "fitted.txt"),
        ("- --structure -", 2, "--structure"),
    ],
)
def test_refused(run: Run, words: str, code: int, pattern: str) -> None:
    from fastmix.instances import ising_grid
    from fastmix.io import write_model

    write_model(ising_grid(2, 2, coupling_max=1.0, seed=0), "model.npz")
    Path("broken.json").write_text("{")
    Path("flat.json").write_text('{"grass": "rain"}')
    Path("other.csv").write_text("rain,grass\nyes,damp\n")
    assert_refused(run("fit-network", *words.split()), code, pattern)
