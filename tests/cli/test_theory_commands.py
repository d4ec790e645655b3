"""The command line of certify, project and sample, with good input and with bad."""

from __future__ import annotations

import importlib.util
import json
import math
import signal
import time

import numpy as np
import pytest
from cli_helpers import Run, start_process

import fastmix
from fastmix import sample
from fastmix._checks import INSTALL_EXTRA
from fastmix.instances import ising_grid
from fastmix.io import read_model, write_model


@pytest.fixture
def run(run: Run) -> Run:
    """The command line in this process, in a folder with a strong, a weak and a hard model."""
    write_model(ising_grid(6, 6, coupling_max=3.0, attractive=True, seed=0), "strong.uai")
    write_model(ising_grid(6, 6, coupling_max=0.1, seed=0), "weak.uai")
    hard = np.array([[0.0, -np.inf], [1.0, 0.0]])
    write_model(fastmix.MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [hard]), "hard.npz")
    return run


def test_certify_json(run):
    code, out, _ = run("certify", "weak.uai", "--accuracy", "0.01", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["certified"] is True
    assert facts["norm"] == "spectral"
    assert facts["dependency"] == "sigmoid"
    assert facts["norm_value"] < 0.4
    assert facts["num_sweeps"] == fastmix.certify(read_model("weak.uai"), accuracy=0.01).num_sweeps
    assert 0 < facts["max_bias"] <= 0.01
    assert facts["num_updates"] > 36 * facts["num_sweeps"]


def test_project_onto_a_width(run):
    write_model(ising_grid(3, 3, coupling_max=3.0, attractive=True, seed=0), "strong.uai")
    code, out, err = run("project", "strong.uai", "--norm", "width", "--norm-bound", "0.9", "-o", "near.npz", "--json")
    facts = json.loads(out)
    assert code == 0, err
    assert facts["norm"] == "width"
    assert facts["dependency"] is None
    assert facts["norm_after"] <= 0.9 < facts["norm_before"]
    assert 0.0 <= facts["relative_gap"] <= 1e-3
    assert run("certify", "near.npz", "--criterion", "width")[0] == 0
    code, out, err = run("project", "strong.uai", "--norm", "width", "--norm-bound", "0.9", "--evidence", "3=1")
    assert (code, "(width), squared distance" in err) == (0, True)
    for more in (["--divergence", "kl"], ["--dependency", "linf"], ["--solver", "paper"]):
        code, out, err = run("project", "strong.uai", "--norm", "width", "--norm-bound", "0.9", *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert run("project", "hard.npz", "--norm", "width", "--norm-bound", "0.9")[0] == 2


def test_certify_not_certified_is_exit_code_one(run):
    code, out, _ = run("certify", "strong.uai", "--json")
    facts = json.loads(out)
    assert code == 1
    assert facts["certified"] is False
    assert facts["num_sweeps"] is facts["num_updates"] is facts["max_bias"] is None
    code, out, _ = run("certify", "strong.uai", "--norm", "inf", "--dependency", "range")
    assert code == 1
    assert "fastmix project" in " ".join(out.split())
    code, out, _ = run("certify", "hard.npz", "--dependency", "range", "--json")
    assert (code, json.loads(out)["norm_value"]) == (1, None)  # infinite is null


def test_project_writes_model_and_facts(run):
    arguments = ("project", "strong.uai", "--norm", "inf", "--norm-bound", "2.5")
    code, out, _ = run(*arguments, "-o", "OUT.uai", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["norm_before"] > facts["norm_bound"] == 2.5 >= facts["norm_after"]
    before, after = read_model("strong.uai"), read_model("OUT.uai")
    # The file scales every table, so couplings are compared: 4 (J - J')^2 per Ising edge.
    contrast = np.array([1.0, -1.0, -1.0, 1.0]) / 4
    change = (before.log_pairwise.reshape(-1, 4) - after.log_pairwise.reshape(-1, 4)) @ contrast
    assert facts["squared_distance"] == pytest.approx(4 * np.sum(change**2), rel=1e-9)
    assert 0 <= facts["duality_gap"] < 1e-3
    assert facts["seconds"] > 0
    code, out, err = run(*arguments)
    assert code == 0
    assert out.startswith("MARKOV\n36\n")
    assert "norm" in err


def test_certify_by_another_criterion(run):
    code, out, _ = run("certify", "weak.uai", "--criterion", "width", "--margin", "--json")
    facts = json.loads(out)
    assert code == (0 if facts["certified"] else 1)
    assert (facts["criterion"], facts["valid_for"]) == ("width", "random")
    if facts["certified"]:
        num_variables = read_model("weak.uai").num_variables
        assert facts["num_sweeps"] == math.ceil(facts["num_updates"] / num_variables)
    assert facts["margin"] > 0.0
    assert facts["others"] == []
    code, out, _ = run("certify", "weak.uai", "--criterion", "width")
    assert "width" in out
    code, out, err = run("certify", "weak.uai", "--criterion", "width", "--schedule", "systematic", "--json")
    assert (code, out) == (2, "")
    assert "systematic" in err
    code, out, _ = run("certify", "strong.uai", "--criterion", "width", "--json")
    assert code == 1
    assert json.loads(out)["certified"] is False
    code, out, err = run("certify", "hard.npz", "--criterion", "path")
    assert (code, out) == (2, "")
    assert "does not apply" in err
    code, out, _ = run("certify", "strong.uai", "--json")
    assert {other["criterion"] for other in json.loads(out)["others"]} == {"width", "path", "split"}


def test_certify_says_where_a_chain_is_undefined(run):
    tables = np.zeros((2, 2)), [(0, 1)], [[[0.0, 0.0], [-np.inf, -np.inf]]]
    write_model(fastmix.MarkovRandomField.from_tables(*tables), "undefined.npz")
    code, out, _ = run("certify", "undefined.npz", "--json")
    facts = json.loads(out)
    assert (code, facts["certified"], facts["norm_value"]) == (1, False, None)
    assert "variable 1 has no allowed state for some states of its neighbors" in facts["advice"]
    code, out, _ = run("certify", "undefined.npz")
    assert code == 1
    assert "variable 1 has no allowed state" in " ".join(out.split())
    write_model(fastmix.MarkovRandomField.from_tables(*tables, variable_names=["rain", "wet"]), "named.npz")
    text = " ".join(run("certify", "named.npz")[1].split())
    assert "strongest variables wet (inf) way out Not certified: variable wet has no allowed state" in text


def test_project_pipes_into_certify(run):
    projected = run("project", "strong.uai", "--norm", "spectral", "--norm-bound", "0.9")
    certified = run("certify", "-", "--json", stdin=projected.out)
    assert (projected.code, certified.code) == (0, 0)
    assert json.loads(certified.out)["norm_value"] <= 0.9


def test_project_not_converged_still_writes(run):
    code, out, err = run("project", "strong.uai", "--norm-bound", "0.9", "--tol", "1e-13", "--max-iter", "3", "--json",
                         "-o", "rough.npz")  # fmt: skip
    assert code == 1
    assert json.loads(out)["status"] == "not_converged"
    assert "did not converge" in err
    assert fastmix.certify(read_model("rough.npz"), accuracy=0.01, dependency="range").certified


def test_project_with_the_dual_of_the_paper(run):
    write_model(ising_grid(3, 3, coupling_max=3.0, seed=0), "small.uai")
    distances = []
    for solver in ("fast", "paper"):
        code, out, _ = run("project", "small.uai", "--norm-bound", "0.9", "--solver", solver, "--json")
        assert code == 0
        distances.append(json.loads(out)["squared_distance"])
    assert distances[0] == pytest.approx(distances[1], rel=1e-5)


def test_project_on_a_backend(run, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    arguments = ("project", "strong.uai", "--norm-bound", "2", "--divergence", "reversed-kl", "--seed", "1", "--json")
    code, out, err = run(*arguments, "--backend", "cuda")
    assert (code, out) == (2, "")
    reason = f"the package numba-cuda is not installed: {INSTALL_EXTRA.format(extra='gpu')}"
    assert err == f"fastmix: --backend must be cpu here, got cuda: {reason}\n"
    answers = [json.loads(run(*arguments, *more)[1]) for more in ((), ("--backend", "cpu"), ("--backend", "auto"))]
    assert answers[0]["divergence_value"] == answers[1]["divergence_value"] == answers[2]["divergence_value"]
    assert [answer["stats"]["backend"][:5] for answer in answers] == ["cpu", "cpu", "cpu ("]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("project strong.uai --norm-bound -1", "--norm-bound must be a positive number, got -1.0"),
        ("project strong.uai", "--norm-bound"),
        ("project strong.uai --norm-bound 1 --norm max", "norm must be one of"),
        ("project strong.uai --norm-bound 1 --solver slow", "--solver must be one of fast, paper"),
        ("project strong.uai --norm-bound 1 --json -o -", "must not both write to stdout"),
        ("project strong.uai --norm-bound 1 --backend cuda", "--backend needs --divergence reversed-kl"),
        (
            "project strong.uai --norm-bound 1 --divergence reversed-kl --backend gpu",
            "--backend must be cpu, cuda or auto",
        ),
        ("project hard.npz --norm-bound 1", "edge (0, 1) forbids"),
        ("project strong.uai --norm-bound 1 -o out.txt", ".uai"),
        ("certify weak.uai --accuracy 2", "accuracy"),
        ("certify weak.uai --dependency tight", "dependency must be"),
        ("sample weak.uai --num-chains 0", "--num-chains must be"),
        ("sample weak.uai -o draws.txt", "must name a .npz, .MAR, .csv or .json file"),
        ("sample weak.uai --method walk", "method must be"),
        ("infer strong.uai --method gibbs --accuracy 0.1", "needs a certified model"),
        ("sample hard.npz --method swendsen-wang", "edge (0, 1)"),
    ],
)
def test_refused_with_one_line(run, arguments, words):
    code, out, err = run(*arguments.split())
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err


@pytest.mark.parametrize("verb", ["certify", "project --norm-bound 1", "sample"])
def test_bad_files_are_exit_code_three(run, verb):
    name, *options = verb.split()
    code, out, err = run(name, "missing.uai", *options)
    assert (code, out) == (3, "")
    assert "missing.uai" in err


def test_sample_and_infer_give_the_same_marginals(run):
    options = ["--num-chains", "20", "--num-sweeps", "500", "--burn-in", "50", "--seed", "1", "--json"]
    code, out, _ = run("sample", "weak.uai", *options, "-o", "draws.npz")
    first = json.loads(out)
    assert code == 0
    assert {"method", "status", "log_z", "marginals", "seconds", "provenance"} <= set(first)
    assert {"std_error", "r_hat_max", "ess_min", "updates_per_second"} <= set(first)
    with np.load("draws.npz") as data:
        assert data["draws"].shape == (20, 1, 36)
        assert data["node_marginals"].tolist() == np.concatenate(first["marginals"]).tolist()
        assert json.loads(str(data["provenance"]))["seed"] == 1
    code, out, _ = run("infer", "weak.uai", "--method", "gibbs", *options)
    second = json.loads(out)
    assert second["marginals"] == first["marginals"]
    assert second["std_error"] == first["std_error"]
    assert second["log_z"] is None
    exact = fastmix.infer(read_model("weak.uai")).node_marginals
    assert np.abs(np.concatenate(first["marginals"]) - exact).max() < 6 * np.max(np.concatenate(first["std_error"]))


def test_swendsen_wang_and_not_mixed(run):
    code, out, _ = run(
        "infer", "strong.uai", "--method", "swendsen-wang", "--num-sweeps", "200", "--seed", "1", "--json"
    )
    assert json.loads(out)["method"] == "swendsen-wang"
    assert code in (0, 1)
    code, out, _ = run("sample", "strong.uai", "--num-sweeps", "200", "--seed", "1")
    assert code == 1
    assert "not_mixed" in out


def test_interrupt_reports_what_was_collected(tmp_path):
    model = tmp_path / "weak.uai"
    grid = ising_grid(10, 10, coupling_max=0.3, seed=0)
    write_model(grid, model)
    sample(grid, num_sweeps=100, burn_in=1, seed=0)  # compiled: an interrupt while it compiles ends the process
    kept = tmp_path / "run.ck"
    process = start_process(
        "sample", model, "--num-sweeps", "100000000", "--burn-in", "1", "--json",
        "--checkpoint", kept, "--checkpoint-seconds", "0",
    )  # fmt: skip
    try:
        deadline, written = time.monotonic() + 120, set()
        while len(written) < 4 and time.monotonic() < deadline:  # it goes on collecting
            written |= {kept.stat().st_mtime_ns} if kept.exists() else set()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1, err
    facts = json.loads(out)
    assert facts["status"] == "interrupted"
    assert facts["stats"]["num_sweeps"] > 0


# -- bracket --------------------------------------------------------------------------------------------------------


def test_bracket_as_lines_and_as_json(run):
    code, out, err = run("bracket", "weak.uai", "--seed", 1)
    assert code == 0
    assert out.splitlines()[0].split() == ["variable", "state", "lower", "upper"]
    assert len(out.splitlines()) == 73
    variable, state, low, high = out.splitlines()[2].split()
    assert (variable, state) == ("0", "1")
    assert float(low) <= float(high)
    assert "proven; exact" in err
    code, out, err = run("bracket", "weak.uai", "--memory-limit", "2kB", "--time-limit", 0.5, "--seed", 1, "--json")
    assert code == 0
    data = json.loads(out)
    assert data["exact"] is False
    assert data["confidence"] is None
    assert data["log_z_lower"] < data["log_z_upper"]
    assert len(data["marginals_lower"]) == len(data["marginals_upper"]) == 36
    exact = fastmix.infer(read_model("weak.uai"), method="exact")
    assert data["log_z_lower"] <= exact.log_z <= data["log_z_upper"]


def test_bracket_refuses_in_one_line(run):
    for arguments, word in (
        (("--confidence", 2), "confidence"),
        (("--memory-limit", "much"), "size"),
        (("--num-draws", 1), "--num-draws"),
        (("--time-limit", -1), "--time-limit"),
    ):
        code, out, err = run("bracket", "weak.uai", *arguments)
        assert (code, out) == (2, "")
        assert word in err
        assert len(err.splitlines()) == 1
    assert run("bracket", "none.uai")[0] == 3


def test_infer_with_a_bracket(run):
    code, out, _ = run("infer", "weak.uai", "--bracket", "--json", "--time-limit", 20)
    assert code == 0
    data = json.loads(out)
    assert data["bracket"]["exact"] is True
    assert 0.0 < data["bracket"]["seconds"] <= data["seconds"]
    assert data["bracket"]["provenance"] == data["provenance"]
    code, _, err = run("infer", "weak.uai", "--bracket")
    assert code == 0
    assert "bracket: " in err
