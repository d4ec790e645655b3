"""Bayesian networks in UAI files that begin with BAYES and in Ergo files, compared with BIF."""

from __future__ import annotations

import logging
import math
import re
from pathlib import Path

import numpy as np
import pytest

from fastmix import ancestral_sample, infer, most_probable
from fastmix.errors import FormatError
from fastmix.io import read_evidence, read_model, read_model_or_network, read_network
from fastmix.io.bif import write_bif
from fastmix.model.network import BayesianNetwork


def random_network(seed: int, num_variables: int = 7) -> BayesianNetwork:
    """Up to three parents for each variable, anywhere in the numbering; zeros, and variables of one state."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 4, num_variables).tolist()
    order = rng.permutation(num_variables)
    parents: list[list[int]] = [[] for _ in counts]
    for k, v in enumerate(order):
        parents[v] = rng.permutation(order[:k])[: rng.integers(0, 4)].tolist()
    tables = []
    for v, own in enumerate(parents):
        table = rng.exponential(size=[*(counts[p] for p in own), counts[v]])
        table[rng.random(table.shape) < 0.15] = 0.0
        table[..., 0] += 1e-3
        tables.append(table / table.sum(axis=-1, keepdims=True))
    names = [f"v{i}" for i in range(num_variables)]
    return BayesianNetwork(names, [[f"s{k}" for k in range(c)] for c in counts], parents, tables)


def words_of(table: np.ndarray, digits: int | None) -> str:
    return " ".join(repr(float(p)) if digits is None else f"{p:.{digits}f}" for p in table.reshape(-1))


def bayes_text(network: BayesianNetwork, rng: np.random.Generator, digits: int | None = None) -> str:
    """The network as UAI text, its tables in any order."""
    order = rng.permutation(network.num_variables).tolist()
    lines = ["BAYES", str(network.num_variables), " ".join(map(str, network.num_states.tolist())), str(len(order))]
    lines += [" ".join(map(str, [len(network.parents[v]) + 1, *network.parents[v], v])) for v in order]
    lines += [f"\n{network.tables[v].size}\n{words_of(network.tables[v], digits)}" for v in order]
    return "\n".join(lines) + "\n"


def ergo_text(network: BayesianNetwork, digits: int | None = None, sections: int = 3) -> str:
    lines = ["/* A network,", "   made by chance */", str(network.num_variables)]
    lines += [" ".join(map(str, network.num_states.tolist())), ""]
    lines += [" ".join(map(str, [len(own), *own])) for own in network.parents]
    lines += ["", "/* Probabilities */"]
    for v, table in enumerate(network.tables):
        lines += [f"{table.size} /* of {v} */", words_of(table, digits), ""]
    if sections > 1:
        lines += ["/* Names */", *network.variable_names, ""]
    if sections > 2:
        lines += ["/* Labels  */", *(" ".join(states) for states in network.state_names)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(12))
def test_all_formats_of_networks_give_the_same(tmp_path: Path, seed: int) -> None:
    network = random_network(seed)
    rng = np.random.default_rng(seed)
    write_bif(network, tmp_path / "a.bif")
    (tmp_path / "a.uai").write_text(bayes_text(network, rng))
    (tmp_path / "a.erg").write_text(ergo_text(network))
    bif, ergo, bayes = (read_network(tmp_path / f"a.{suffix}") for suffix in ("bif", "erg", "uai"))
    assert ergo == bif
    assert bayes.parents == bif.parents
    assert all(map(np.array_equal, bayes.tables, bif.tables))
    expected = read_model(tmp_path / "a.bif")
    assert read_model(tmp_path / "a.erg") == expected
    model = read_model(tmp_path / "a.uai")
    assert (model.variable_names, model.state_names) == (None, None)
    assert np.array_equal(model.parameters, expected.parameters)
    assert np.array_equal(model.edges, expected.edges)
    assert infer(model).log_z == pytest.approx(0.0, abs=1e-12)
    states = np.array(list(np.ndindex(*network.num_states.tolist())))
    np.testing.assert_allclose(np.exp(model.log_weight(states)).sum(), 1.0, rtol=1e-12)
    # Draws go along the order of the network, and are the same.
    one, two = (ancestral_sample(found, num_draws=50, seed=3) for found in (bayes, bif))
    assert np.array_equal(one.states, two.states)
    assert (one.log_z, one.log_z_kind) == (0.0, "exact")
    observed = {0: int(one.states[0, 0])}
    assert infer(model, evidence=observed).log_z <= 1e-12
    assert most_probable(model).log_weight == pytest.approx(most_probable(expected).log_weight)


@pytest.mark.parametrize("sections", [1, 2, 3])
def test_sections_with_names_may_be_missing(tmp_path: Path, sections: int) -> None:
    network = random_network(3)
    path = tmp_path / "a.erg"
    path.write_text(ergo_text(network, sections=sections).replace("\n", "\r\n" if sections == 2 else "\n"))
    found = read_network(path)
    assert found.parents == network.parents
    assert found.variable_names == (network.variable_names if sections > 1 else tuple("0123456"))
    assert found.state_names[1] == (
        network.state_names[1] if sections > 2 else ("0", "1", "2")[: len(found.state_names[1])]
    )
    path.write_text("/* Evidence */\n 2 /* of them */\n 1 0\n 3 0\n")
    assert read_evidence(path) == {1: 0, 3: 0}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["uai", "erg"])
def test_probabilities_of_few_digits_are_normalized(tmp_path: Path, seed: int, kind: str, caplog) -> None:
    network = random_network(seed)
    path = tmp_path / f"a.{kind}"
    for digits in (2, 3, 6):
        caplog.clear()
        text = ergo_text(network, digits) if kind == "erg" else bayes_text(network, np.random.default_rng(0), digits)
        path.write_text(text)
        found = read_network(path)
        off = 0.0
        for table, own in zip(found.tables, network.tables, strict=True):
            np.testing.assert_allclose(table.sum(axis=-1), 1.0, rtol=1e-14)
            np.testing.assert_allclose(table, own, atol=2.0 * 10.0**-digits)
            printed = np.round(own, digits)
            off = max(off, float(np.abs(printed.sum(axis=-1) - 1.0).max()))
        assert infer(read_model(path)).log_z == pytest.approx(0.0, abs=1e-12)
        told = [record for record in caplog.records if record.levelno >= logging.WARNING]
        if off > 2e-4 or off < 5e-5:
            assert bool(told) == (off > 1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_rows_that_are_none_name_their_variable(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(seed)
    v = int(rng.choice(np.flatnonzero(network.num_states > 1)))
    for factor in (0.5, 0.9, 1.1, 30.0):
        tables = [table.copy() for table in network.tables]
        rows = tables[v].reshape(-1, tables[v].shape[-1])
        rows[rng.integers(len(rows))] *= factor
        broken = BayesianNetwork.__new__(BayesianNetwork)
        broken.__dict__.update({**network.__dict__, "tables": tuple(tables)})
        for kind in ("uai", "erg"):
            path = tmp_path / f"a.{kind}"
            path.write_text(ergo_text(broken) if kind == "erg" else bayes_text(broken, rng))
            with pytest.raises(FormatError, match=rf"a\.{kind}:\d+: .*variable {v} .*sum"):
                read_model(path)
    # As factors they are a model.
    path.with_suffix(".uai").write_text((tmp_path / "a.uai").read_text().replace("BAYES", "MARKOV"))
    assert math.isfinite(infer(read_model(tmp_path / "a.uai")).log_z)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("BAYES 2 2 2\n 2 1 0 1 0 2 .5 .5 2 .5 .5", 2, "of one factor"),
        ("BAYES 2 2 2\n 1 1 0 2 .5 .5", 2, "variable 1 "),
        ("BAYES 2 2 2 3\n 1 0 1 1\n 0 2 .5 .5 2 .5 .5 1 1", 3, "factor 2 "),
        ("BAYES 2 2 2 2\n 2 1 0 2 0 1 4 .5 .5 .5 .5 4 .5 .5 .5 .5", 1, "cycle"),
        ("BAYES 2 2 2 2\n 2 0 0 1 1 4 .5 .5 .5 .5 2 .5 .5", 2, "its own parent"),
        ("BAYES 2 2 2 2 1 0 1 2 2 .5 .5 2 .5 .5", 1, "a variable from 0 to 1"),
        ("BAYES 1 2 1 1 0 2 .5 -.5", 1, "negative"),
        ("2 2 2\n1 1\n1 0\n/* Probabilities */ 4 .5 .5 .5 .5 4 .5 .5 .5 .5", 2, "cycle"),
        ("2 2 2\n1 0\n1 0\n/* Probabilities */ 4 .5 .5 .5 .5 4 .5 .5 .5 .5", 2, "its own parent"),
        ("1 2 0\n/* Probabilities */ 2 .5 .5\n/* Names */ a\nb", 3, "1 names"),
        ("1 2 0\n/* Probabilities */ 2 .5 .5 /* Names */ a\n/* Labels */ x", 3, "2 names of states"),
        ("1 2 0\n/* Probabilities */ 2 .5 .5 /* Names */ a\n/* Labels */ x x", 3, "different"),
        ("2 1 1 0 0\n/* Probabilities */ 1 1 1 1\n/* Names */ a a", 3, "different"),
        ("1 2 0\n/* Names */ a /* Probabilities */ 2 .5 .5", 1, "sections"),
        ("1 2 0\n/* Probabilities */ 3 .5 .5 0", 2, "2 entries"),
        ("1 2 0\n/* Probabilities */ 2 .5\n/* no end .5", 3, "must end"),
        ("9 /* Probabilities */", 1, "at most 0"),
    ],
)
def test_what_is_no_network_is_refused(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "model"
    path.write_text(text)
    with pytest.raises(FormatError, match=rf"model:{line}: .*{re.escape(what)}"):
        read_model_or_network(path)


def test_too_many_parents_are_refused(tmp_path: Path) -> None:
    """Of one state each, so that the table is small."""
    for count, right in ((31, True), (32, False)):
        n = count + 1
        scopes = "".join(f"1 {v} " for v in range(count)) + f"{n} {' '.join(map(str, range(n)))}"
        path = tmp_path / "a.uai"
        path.write_text(f"BAYES {n} {'1 ' * n} {n} {scopes} {'1 1 ' * n}")
        if right:
            assert read_model(path).num_variables == n
        else:
            with pytest.raises(FormatError, match="at most 31 parents"):
                read_model(path)
