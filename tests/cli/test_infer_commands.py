"""The command line of infer and compare."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import PROVENANCE, TRIPLE_PAIR, TRIPLE_TABLE, Run, assert_refused, files, replace

import fastmix
from fastmix import Status, instances
from fastmix.exact import enumerate_model
from fastmix.io import read_mar, read_pr, write_evidence, write_model
from fastmix.model import MarkovRandomField

GUARANTEED = "fastmix: guarantee: exact up to rounding\n"  # what is said beside files

# -- infer ----------------------------------------------------------------------------------------------------------


def test_infer_prints_mar_and_says_log_z(run: Run, saved: str, model: MarkovRandomField) -> None:
    outcome = run("infer", saved, "--method", "exact", "--format", "mar")
    assert outcome.code == 0
    Path("out.MAR").write_text(outcome.out)
    exact = enumerate_model(model)
    np.testing.assert_allclose(np.concatenate(read_mar("out.MAR")), exact.node_marginals, atol=1e-12)
    assert re.fullmatch(rf"fastmix: method exact, status ok, log Z = {exact.log_z:.6f}, \S+ s\n.*\n", outcome.err), (
        outcome.err
    )
    assert "fastmix: guarantee: exact up to rounding" in outcome.err


def test_infer_json(run: Run, saved: str, model: MarkovRandomField) -> None:
    outcome = run("infer", saved, "--json", "--memory-limit", "1GiB")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.count("\n") == 1
    answer = json.loads(outcome.out)
    assert answer.keys() >= {"method", "status", "log_z", "marginals", "seconds", "provenance"}
    assert (answer["method"], answer["status"]) == ("exact", "ok")
    exact = enumerate_model(model)
    assert answer["log_z"] == pytest.approx(exact.log_z, abs=1e-12)
    assert [len(vector) for vector in answer["marginals"]] == [2] * 6
    np.testing.assert_allclose(np.concatenate(answer["marginals"]), exact.node_marginals, atol=1e-12)
    assert answer["seconds"] >= 0
    assert answer["provenance"].keys() >= PROVENANCE
    assert answer["provenance"]["version"] == fastmix.__version__
    assert answer["provenance"]["model_hash"] == model.content_hash
    assert answer["provenance"]["options"]["memory_limit"] == 2**30


def test_infer_with_evidence_lists_every_variable(run: Run, saved: str, model: MarkovRandomField) -> None:
    write_evidence({1: 0, 5: 1}, "given")
    answer = json.loads(run("infer", saved, "--evidence", "given", "--json").out)
    assert len(answer["marginals"]) == 6
    assert answer["marginals"][1] == [1.0, 0.0]
    assert answer["marginals"][5] == [0.0, 1.0]
    exact = enumerate_model(model)
    fits = (exact.configurations[:, 1] == 0) & (exact.configurations[:, 5] == 1)
    mass = exact.probabilities[fits].sum()
    assert answer["log_z"] == pytest.approx(exact.log_z + math.log(mass), abs=1e-12)
    for i, vector in enumerate(answer["marginals"]):
        expected = exact.probabilities[fits & (exact.configurations[:, i] == 1)].sum() / mass
        assert vector[1] == pytest.approx(expected, abs=1e-12)
    assert answer["provenance"]["options"]["evidence"] == {"1": 0, "5": 1}


@pytest.mark.parametrize(("observed", "state"), [(v, s) for v, n in enumerate((2, 3, 2)) for s in range(n)])
def test_infer_with_evidence_inside_a_triple(run: Run, triple: str, observed: int, state: int) -> None:
    write_evidence({observed: state}, "given")
    outcome = run("infer", triple, "-e", "given", "--json")
    assert outcome.code == 0
    answer = json.loads(outcome.out)
    weights = {x: TRIPLE_PAIR[x[:2]] * TRIPLE_TABLE[x] for x in itertools.product(range(2), range(3), range(2))}
    weights = {x: w for x, w in weights.items() if x[observed] == state}
    total = sum(weights.values())
    assert answer["log_z"] == pytest.approx(math.log(total), abs=1e-12)
    for i, count in enumerate((2, 3, 2)):
        expected = [sum(w for x, w in weights.items() if x[i] == s) / total for s in range(count)]
        assert answer["marginals"][i] == pytest.approx(expected, abs=1e-12)


def test_everything_observed(run: Run, saved: str, model: MarkovRandomField) -> None:
    write_evidence(dict.fromkeys(range(6), 1), "given")
    answer = json.loads(run("infer", saved, "-e", "given", "--json").out)
    assert answer["marginals"] == [[0.0, 1.0]] * 6
    assert answer["log_z"] == pytest.approx(float(model.log_weight([1] * 6)), abs=1e-12)


def test_empty_evidence(run: Run, saved: str) -> None:
    Path("given").write_text("0\n")
    plain, given = run("infer", saved), run("infer", saved, "-e", "given")
    assert given.code == 0
    assert given.out == plain.out


@pytest.mark.parametrize("name", ["out.MAR", "out.mar", "out.MAR.gz", "out.uai.MAR.xz"])
def test_infer_writes_mar(run: Run, saved: str, model: MarkovRandomField, name: str) -> None:
    assert run("infer", saved, "-o", name) == (0, "", GUARANTEED)
    np.testing.assert_allclose(np.concatenate(read_mar(name)), enumerate_model(model).node_marginals, atol=1e-12)


@pytest.mark.parametrize("name", ["out.PR", "out.pr", "out.PR.gz"])
def test_infer_writes_pr(run: Run, saved: str, model: MarkovRandomField, name: str) -> None:
    assert run("infer", saved, "-o", name) == (0, "", GUARANTEED)
    assert read_pr(name) * math.log(10) == pytest.approx(enumerate_model(model).log_z, abs=1e-12)


@pytest.mark.parametrize("name", ["out.json", "out.JSON", "out.json.gz"])
def test_infer_writes_json(run: Run, saved: str, name: str) -> None:
    outcome = run("infer", saved, "-o", name, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    data = Path(name).read_bytes()
    assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == outcome.out


def test_infer_to_stdout(run: Run, saved: str) -> None:
    outcome = run("infer", saved, "-o", "-")
    assert (outcome.code, outcome.err) == (0, GUARANTEED)
    assert outcome.out == run("infer", saved, "--format", "mar").out
    table = run("infer", saved, "--format", "csv").out
    assert run("infer", saved, "--format", "csv", "-o", "-").out == table
    run("infer", saved, "-o", "out.csv")
    assert Path("out.csv").read_text() == table


def test_infer_prints_names_to_a_pipe(run: Run) -> None:
    names = ["rain", "wind speed", "=sum"]
    states = [["no", "yes"], ["calm", "breeze", "a gale"], ["\x1b[31m", "b"]]
    unary = [[0.0, 1.0], [2.0, 0.0, -9.0], [0.0, 0.0]]
    write_model(MarkovRandomField.from_tables(unary, [], [], variable_names=names, state_names=states), "weather.npz")
    heading, *lines = run("infer", "weather.npz").out.splitlines()
    assert re.split(" {2,}", heading) == ["variable", "most probable", "probability of each state"]
    cells = [re.split(" {2,}", line) for line in lines]
    assert cells[0] == ["rain", "yes", "no 0.268941", "yes 0.731059"]
    assert cells[1] == ["wind speed", "calm", "calm 0.880784", "breeze 0.119201", "a gale 1.47106e-05"]
    assert cells[2][2:] == [r"\x1b[31m 0.5", "b 0.5"]


def test_a_pipe_gets_all_variables_and_states(run: Run) -> None:
    model = MarkovRandomField.from_tables([[0.0] * 30] * 40, [], [])
    write_model(model, "wide.npz")
    outcome = run("infer", "wide.npz")
    assert "more variables" not in outcome.err
    assert [len(line.split()) for line in outcome.out.splitlines()[1:]] == [2 + 30] * 40


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        (["--format", "xml"], "--format must be one of table, mar, csv"),
        (["--format", "mar", "--json"], "--format must not come with --json"),
        (["--format", "mar", "model.npz"], "--format must be table with several models"),
    ],
)
def test_formats_that_are_refused(run: Run, saved: str, words: list[str], pattern: str) -> None:
    assert_refused(run("infer", saved, *words), 2, pattern)


def test_model_or_evidence_from_stdin(run: Run, saved: str) -> None:
    write_evidence({2: 1}, "given")
    outcome = run("infer", saved, "-e", "given", "-o", "-")
    assert outcome.code == 0
    assert run("infer", "-", "-e", "given", "-o", "-", stdin=Path(saved).read_bytes()) == outcome
    assert run("infer", saved, "-e", "-", "-o", "-", stdin=Path("given").read_bytes()) == outcome
    packed = gzip.compress(Path(saved).read_bytes())
    assert run("infer", "-", "-e", "given", "-o", "-", stdin=packed) == outcome


def test_infer_nothing(run: Run) -> None:
    answer = json.loads(run("infer", "-", "--json", stdin="MARKOV 0 0").out)
    assert (answer["log_z"], answer["marginals"]) == (0.0, [])
    assert run("infer", "-", "--format", "mar", stdin="MARKOV 0 0").out.split() == ["MAR", "0"]
    assert len(run("infer", "-", stdin="MARKOV 0 0").out.splitlines()) == 1  # the headings


def test_no_room(run: Run, tmp_path: Path) -> None:
    write_model(instances.ising_grid(12, 12, coupling_max=1.0, seed=0), "grid.npz")
    before = files(tmp_path)
    outcome = run("infer", "grid.npz", "--method", "exact", "--memory-limit", "50kB", "-o", "out.MAR", "--json")
    assert_refused(outcome, 2, r"needs .*[KMG]iB \(treewidth .*over the limit of 48.8 KiB")
    assert files(tmp_path) == before


class TestUntrusted:
    """No method gives such answers yet: the library is made to."""

    @pytest.fixture(autouse=True)
    def _shaky(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answer = fastmix.infer

        def shaky(model: MarkovRandomField, **options: Any) -> fastmix.InferenceResult:
            return dataclasses.replace(answer(model, **options), status=Status.NOT_CONVERGED, log_z=None)

        replace(monkeypatch, fastmix, "infer", shaky)

    def test_text(self, run: Run, saved: str) -> None:
        outcome = run("infer", saved, "--format", "mar")
        assert outcome.code == 1
        assert outcome.out.startswith("MAR\n6 2 ")
        assert "status not_converged" in outcome.err
        assert Status.NOT_CONVERGED.advice in outcome.err

    def test_outputs_are_still_written(self, run: Run, saved: str) -> None:
        outcome = run("infer", saved, "--json", "-o", "out.MAR")
        assert outcome.code == 1
        answer = json.loads(outcome.out)
        assert answer["status"] == "not_converged"
        assert answer["log_z"] is None
        assert len(read_mar("out.MAR")) == 6

    def test_no_log_z_to_write(self, run: Run, saved: str, tmp_path: Path) -> None:
        outcome = run("infer", saved, "-o", "out.PR")
        assert (outcome.code, outcome.out) == (1, "")
        assert "out.PR is not written" in outcome.err
        assert files(tmp_path) == {saved}


@pytest.mark.parametrize("seed", range(3))
def test_log_z_that_means_nothing_is_not_written(run: Run, seed: int) -> None:
    """Of belief propagation that has not converged, also in batches."""
    write_model(instances.ising_grid(10, 10, coupling_max=4.0, seed=seed), "glass.npz")
    words = ("infer", "glass.npz", "--method", "loopy-bp", "--max-iter", "100")
    outcome = run(*words, "-o", "out.PR", "-o", "out.MAR")
    assert (outcome.code, outcome.out) == (1, "")
    assert len([line for line in outcome.err.splitlines() if "out.PR is not written" in line]) == 1
    assert "guarantee: none" in outcome.err
    assert not Path("out.PR").exists()
    assert len(read_mar("out.MAR")) == 100
    answer = json.loads(run(*words, "--json").out)
    assert (answer["status"], answer["log_z"], answer["log_z_kind"]) == ("not_converged", None, "unknown")
    assert run(*words, "-o", "batch/").code == 1
    assert [path.name for path in Path("batch").iterdir()] == ["glass.npz.MAR"]


# -- the automatic choice, projected sampling, comparisons ------------------------------------------------------------


def test_infer_chooses_and_says_why(run: Run, saved: str) -> None:
    outcome = run("infer", saved)
    assert outcome.code == 0
    assert "fastmix: method exact" in outcome.err
    assert "fastmix: reason: treewidth" in outcome.err


def test_projected_inference(run: Run) -> None:
    write_model(instances.ising_grid(4, 4, coupling_max=3.0, seed=0), "grid.npz")
    settings = ["--method", "projected", "--norm-bound", "1.5", "--num-sweeps", "2000", "--seed", "1", "--json"]
    for divergence in ("euclidean", "kl", "piecewise-kl", "reversed-kl"):
        outcome = run("infer", "grid.npz", "--divergence", divergence, *settings)
        answer = json.loads(outcome.out)
        assert answer["method"] == "projected"
        assert answer["projection"]["norm_after"] <= 1.5
        assert "nothing is proven" in answer["stats"]["guarantee"]
        assert answer["std_error"] is None
        assert len(answer["projected_std_error"]) == 16
    shown = run("compare", "grid.npz", "--methods", "projected", "--seed", "1")
    assert "fastmix: projected: standard errors of the projected model are up to 0.0" in shown.err
    assert "its errors are not known" in shown.err
    assert_refused(run("infer", "grid.npz", "--divergence", "magic"), 2, "--divergence must be one of")
    assert_refused(
        run("infer", "grid.npz", "--norm-bound", "2"), 2, "--norm-bound must not be given with method 'auto'"
    )
    for limit in ("0", "-3"):
        assert_refused(run("infer", "grid.npz", "--method", "gibbs", "--time-limit", limit), 2, "--time-limit must be")


def test_names_of_answers_are_checked_before_the_work(run: Run, saved: str, tmp_path: Path) -> None:
    assert_refused(run("infer", saved, "-o", "answer.txt"), 2, "must name a .MAR, .PR, .json, .csv or .npz file")
    assert not (tmp_path / "answer.txt").exists()


def test_compare(run: Run, saved: str, tmp_path: Path) -> None:
    outcome = run("compare", saved, "--methods", "exact, loopy-bp,mean-field", "--seed", "1", "-o", "out")
    assert outcome.code == 0
    assert "errors against exact" in outcome.out
    assert "loopy-bp" in outcome.out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.csv", "comparison.png", "comparison.svg",
    ]  # fmt: skip
    answer = json.loads(run("compare", saved, "--methods", "loopy-bp", "--json").out)
    assert answer["reference"] == "exact"
    assert [row["method"] for row in answer["rows"]] == ["loopy-bp"]
    run("infer", saved, "--method", "exact", "-o", "ref.MAR")
    options = ["--methods", "loopy-bp", "--memory-limit", "100B", "--reference", "ref.MAR", "--json"]
    assert json.loads(run("compare", saved, *options).out)["reference"] == "ref.MAR"
    assert_refused(run("compare", saved, "--methods", "magic"), 2, "methods must be one of")
    assert_refused(run("compare", saved, "--methods", ""), 2, "methods must name at least one")
    Path("bad.MAR").write_text("MAR\n1 2 0.5 0.5\n")
    assert_refused(run("compare", saved, "--reference", "bad.MAR"), 3, "state counts of the model")
    assert_refused(run("compare", "missing.uai"), 3, "missing.uai")


def test_interrupted_comparison(run: Run, saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = fastmix.compare(instances.ising_tree(3, coupling_max=1.0, seed=0), methods=["exact"])
    replace(monkeypatch, fastmix, "compare", lambda *_, **__: dataclasses.replace(result, status=Status.INTERRUPTED))
    outcome = run("compare", saved)
    assert outcome.code == 1
    assert re.search("exact +ok", outcome.out)
    assert "status interrupted" in outcome.err


@pytest.mark.parametrize("verb", ["infer", "sample", "temper", "compare", "map"])
def test_an_interrupt_that_left_nothing(run: Run, saved: str, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise fastmix.Interrupted("interrupted while burning in, before there was anything to report")

    replace(monkeypatch, fastmix, {"map": "most_probable", "temper": "infer"}.get(verb, verb), stop)
    outcome = run(verb, saved, "--json")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "fastmix: interrupted while burning in, before there was anything to report\n"


def test_perfect_samples(run: Run) -> None:
    write_model(instances.ising_grid(3, 3, coupling_max=0.4, attractive=True, seed=0), "grid.npz")
    outcome = run("sample", "grid.npz", "--method", "perfect", "--num-draws", "7", "--seed", "1", "-o", "draws.npz")
    assert outcome.code == 0
    assert "7, independent and exact" in outcome.out
    with np.load("draws.npz") as data:
        assert data["draws"].shape == (1, 7, 9)
    assert json.loads(run("sample", "grid.npz", "--method", "perfect", "--json").out)["num_draws"] == 100
    assert_refused(run("sample", "grid.npz", "--method", "perfect", "--burn-in", "3"), 2, "--burn-in must not be given")


# -- Bayesian networks without evidence -------------------------------------------------------------------------------


def dense_network(seed: int, num_variables: int) -> fastmix.model.network.BayesianNetwork:
    """Three parents each, anywhere before: far beyond exact inference where it is large."""
    rng = np.random.default_rng(seed)
    parents = [rng.permutation(i)[:3].tolist() for i in range(num_variables)]
    tables = [rng.dirichlet([0.5, 0.5], size=[2] * len(own)) for own in parents]
    names = [str(i) for i in range(num_variables)]
    return fastmix.model.network.BayesianNetwork(names, [["0", "1"]] * num_variables, parents, tables)


def write_bayes(network: fastmix.model.network.BayesianNetwork, path: Path) -> None:
    n = network.num_variables
    scopes = [[*own, v] for v, own in enumerate(network.parents)]
    lines = ["BAYES", str(n), " ".join(["2"] * n), str(n)]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope in scopes]
    lines += [f"{table.size} {' '.join(map(repr, table.reshape(-1).tolist()))}" for table in network.tables]
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(("size", "method"), [(12, "exact"), (300, "ancestral")])
def test_networks_are_inferred_along_their_order(run: Run, tmp_path: Path, size: int, method: str) -> None:
    for seed in range(2 if size < 20 else 1):
        network = dense_network(seed, size)
        path, mar, pr = (tmp_path / name for name in ("a.uai", "a.MAR", "a.PR"))
        write_bayes(network, path)
        outcome = run("infer", str(path), "--json", "--seed", "1", "--time-limit", "20")
        assert outcome.code == 0
        answer = json.loads(outcome.out)
        assert (answer["method"], answer["log_z_kind"]) == (method, "exact")
        assert answer["log_z"] == 0.0
        assert run("infer", str(path), "-o", str(mar), "-o", str(pr), "--seed", "1").code == 0
        assert read_pr(pr) == 0.0
        frequencies = network.sample(100_000, seed=5).mean(axis=0)
        assert np.abs(np.array([p[1] for p in read_mar(mar)]) - frequencies).max() < 0.012  # 6 standard errors of both
        observed = run("infer", str(path), "-e", "0=1", "--method", "gibbs", "--num-sweeps", "50", "--json")
        assert json.loads(observed.out)["method"] == "gibbs"
