"""The most probable state, several outputs at once, and batches of files on the command line."""

from __future__ import annotations

import csv
import json
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Run, assert_refused

import fastmix
from fastmix import MarkovRandomField
from fastmix.instances import ising_grid
from fastmix.io import read_mar, read_mpe, read_pr, write_model

KEYS = {"states", "named_states", "log_weight", "upper_bound", "gap", "exact", "method", "status", "provenance"}


@pytest.fixture
def run(run: Run) -> Run:
    """One line for the command line in this process, in a folder with a grid, a hard grid and a model with names."""
    write_model(ising_grid(4, 5, coupling_max=2.0, seed=0), "grid.uai")
    write_model(ising_grid(60, 60, coupling_max=2.0, seed=0), "large.npz")
    names = MarkovRandomField.from_tables(
        [[0.0, 1.5], [2.0, 0.0, 1.0]], [(0, 1)], [np.eye(2, 3)],
        variable_names=["rain", "street"], state_names=[["no", "yes"], ["dry", "damp", "wet"]],
    )  # fmt: skip
    write_model(names, "names.npz")
    return lambda line: run(*line.split())


def test_map_writes_all_states(run: Run) -> None:
    model = ising_grid(4, 5, coupling_max=2.0, seed=0)
    code, out, err = run("map grid.uai -o out.MPE -o out.json -o out.csv -e 3=1")
    assert (code, out, err) == (0, "", "")
    best = fastmix.most_probable(model, evidence={3: 1})
    states = read_mpe("out.MPE")
    words = Path("out.MPE").read_text().split()
    assert words[:2] == ["MPE", "20"]
    assert len(words) == 22
    assert states[3] == 1
    assert model.log_weight(states) == pytest.approx(best.log_weight)
    facts = json.loads(Path("out.json").read_text())
    assert set(facts) >= KEYS
    assert facts["exact"] is True
    assert (facts["gap"], facts["status"]) == (0.0, "ok")
    assert facts["states"] == states.tolist()
    rows = list(csv.DictReader(Path("out.csv").read_text().splitlines()))
    assert [int(row["number"]) for row in rows] == states.tolist()


def test_map_on_stdout(run: Run) -> None:
    code, out, err = run("map names.npz")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["variable", "state"], ["rain", "yes"], ["street", "dry"]]
    assert "method exact, status ok, log-weight 3.5 (exact)" in err
    assert run("map names.npz -o -")[1:] == ("MPE\n2 1 0\n", "")
    assert run("map names.npz --format mpe")[1] == "MPE\n2 1 0\n"
    assert run("map names.npz --format csv")[1].splitlines()[1].startswith("rain,")
    facts = json.loads(run("map names.npz --json -e street=wet")[1])
    assert facts["named_states"] == ["yes", "wet"]
    assert facts["provenance"]["seed"] is None  # a cut, which draws nothing


def test_map_of_several_solutions(run: Run) -> None:
    code, out, err = run("map names.npz --num-solutions 3")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["variable", "solution", "0", "solution", "1", "solution", "2"],
        ["rain", "yes", "no", "yes"],
        ["street", "dry", "dry", "damp"],
    ]
    assert "log-weights of 3 solutions: 3.5, 3, 2.5" in err
    lines = run("map names.npz --num-solutions 2 --min-distance 2 --format csv")[1].splitlines()
    assert lines[0] == "solution,log_weight,variable,state,number"
    assert [line.split(",")[3] for line in lines[1:]] == ["yes", "dry", "no", "wet"]
    facts = json.loads(run("map names.npz --num-solutions 2 --json")[1])
    assert (facts["solutions"], facts["proven"]) == ([[1, 0], [0, 0]], [True, True])
    for bad in ("--num-solutions 0", "--num-solutions many", "--min-distance 0"):
        assert_refused(run(f"map names.npz {bad}"), 2, bad.split()[0])


def test_map_of_some_variables(run: Run) -> None:
    code, out, err = run("map names.npz --variables street")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [["variable", "state"], ["street", "dry"]]
    assert "status ok" in err
    assert run("map names.npz --variables 1 --format csv")[1].splitlines() == ["variable,state,number", "street,dry,0"]
    assert run("map names.npz --variables 1 -o -")[1].splitlines()[0] == "variable,state,number"
    facts = json.loads(run("map names.npz --variables street,rain --json")[1])
    assert facts["variables"] == [1, 0]
    for bad in ("--variables , ", "--variables street --format mpe", "--variables street --num-solutions 2"):
        assert_refused(run(f"map names.npz {bad}"), 2, "--")
    assert_refused(run("map names.npz --variables street -o out.MPE"), 2, "-o")
    assert_refused(run("map names.npz --variables street --method cut"), 2, "--method")
    assert_refused(run("map names.npz --variables snow"), 3, "snow")


def test_map_says_when_it_is_not_exact(run: Run) -> None:
    code, out, err = run("map large.npz --method search --time-limit 0.3 --seed 1 -o out.MPE --json")
    facts = json.loads(out)
    assert code == 1
    assert facts["status"] == "not_converged"
    assert facts["gap"] == pytest.approx(facts["upper_bound"] - facts["log_weight"])
    assert facts["gap"] > 0.0
    assert "status not_converged: The gap to the upper bound is larger than --tol: allow a longer --time-limit" in err
    assert len(read_mpe("out.MPE")) == 3600
    assert run(f"map large.npz --method search --time-limit 1 --tol {2 * facts['gap']} -o out.MPE")[0] == 0


@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("map grid.uai --method magic", 2, "--method must be"),
        ("map grid.uai --tol -1", 2, "--tol must be"),
        ("map large.npz --method exact --memory-limit 1KiB", 2, "needs"),
        ("map large.npz --method cut", 2, ""),
        ("map grid.uai -o out.MAR", 2, "-o must name a .MPE, .json or .csv file, got 'out.MAR'"),
        ("map grid.uai -o a.MPE -o ./a.MPE", 2, "-o must name different files"),
        ("map grid.uai -o - --json", 2, "must not both write to stdout"),
        ("map grid.uai -o missing/out.MPE", 2, "missing"),
        ("map none.uai", 3, "none.uai"),
        ("map grid.uai -e 3=7", 2, "3"),
        ("sample grid.uai -o -", 2, "-o must name a file"),
        ("infer grid.uai large.npz -o a.MAR -o b.PR", 2, "-o must be one folder"),
        ("infer grid.uai ./grid.uai -o out/", 2, "different names"),
        ("infer grid.uai names.npz -o grid.uai", 2, "-o must be a folder"),
        ("infer grid.uai names.npz --method gibbs --checkpoint a.npz", 2, "--checkpoint must not"),
        ("infer grid.uai names.npz --num-workers 0", 2, "--num-workers must be"),
        ("infer grid.uai names.npz --num-workers 2 --cluster host:8786", 2, "--num-workers must not come with"),
        ("infer grid.uai --method mean-field --num-workers 2", 2, "--num-workers must come with several models"),
        ("sample grid.uai --method perfect --cluster host:8786", 2, "--cluster must come with several models"),
        ("sample grid.uai --method ancestral --num-workers 2", 2, "--method ancestral must have a Bayesian network"),
    ],
)
def test_refused_with_one_line(run: Run, line: str, code: int, text: str) -> None:
    got, out, err = run(line)
    assert (got, out) == (code, ""), err
    assert len(err.splitlines()) == 1
    assert text in err


def test_several_outputs_at_once(run: Run) -> None:
    assert run("infer names.npz -o a.MAR -o b.PR -o c.npz -o d.csv -o e.json.gz") == (
        0,
        "",
        "fastmix: guarantee: exact up to rounding\n",
    )
    exact = json.loads(run("infer names.npz --json")[1])
    np.testing.assert_allclose(np.concatenate(read_mar("a.MAR")), np.concatenate(exact["marginals"]))
    assert read_pr("b.PR") == pytest.approx(exact["log_z"] / np.log(10.0))
    with np.load("c.npz") as arrays:
        np.testing.assert_allclose(arrays["node_marginals"], np.concatenate(exact["marginals"]))
        assert json.loads(str(arrays["provenance"]))["version"] == fastmix.__version__
    rows = list(csv.DictReader(Path("d.csv").read_text().splitlines()))
    assert [(row["variable"], row["state"]) for row in rows[:3]] == [("rain", "no"), ("rain", "yes"), ("street", "dry")]
    assert float(rows[1]["probability"]) == exact["marginals"][0][1]
    code, _, _ = run("sample names.npz --seed 1 --num-draws 5 -o s.npz -o s.MAR -o s.csv")
    assert code == 0
    with np.load("s.npz") as arrays:
        assert arrays["draws"].dtype == np.uint8
        np.testing.assert_array_equal(arrays["node_marginals"], np.concatenate(read_mar("s.MAR")))
    assert "std_error" in Path("s.csv").read_text().splitlines()[0]


def test_one_bad_file_does_not_stop_a_batch(run: Run, tmp_path: Path) -> None:
    Path("bad.uai").write_text("MARKOV 1 x")
    code, out, err = run("infer grid.uai bad.uai names.npz none.uai -o out/")
    assert code == 3
    table = out.splitlines()
    assert [line.split()[0] for line in table[1:]] == ["grid.uai", "bad.uai", "names.npz", "none.uai"]
    assert "bad file" in table[2]
    assert "exact" in table[3]
    assert len(err.splitlines()) == 2
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "grid.uai.MAR", "grid.uai.PR", "names.npz.MAR", "names.npz.PR",
    }  # fmt: skip
    code, out, err = run("infer grid.uai large.npz --method exact --memory-limit 10KiB --json")
    facts = json.loads(out)
    assert code == 2
    assert [row["status"] for row in facts["files"]] == ["ok", "refused"]
    assert facts["num_failed"] == 1
    assert run("infer grid.uai -o out/")[0] == 0


@pytest.mark.first
def test_batches_by_workers(run: Run, tmp_path: Path) -> None:
    Path("bad.uai").write_text("MARKOV 1 x")
    line = "infer grid.uai bad.uai names.npz large.npz --method gibbs --num-sweeps 50 --seed 1 --json -o "
    alone, shared = run(f"{line} alone/"), run(f"{line} shared/ --num-workers 2")
    assert (alone[0], alone[2]) == (shared[0], shared[2])
    assert alone[0] == 3
    for one, other in zip(json.loads(alone[1])["files"], json.loads(shared[1])["files"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    written = sorted(path.name for path in (tmp_path / "alone").iterdir())
    assert written == ["grid.uai.MAR", "large.npz.MAR", "names.npz.MAR"]
    for name in written:
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "shared" / name).read_bytes()
    assert run("infer grid.uai names.npz --method loopy-bp --num-workers 2")[0] == 0  # which has no threads


@pytest.mark.parametrize("verb", ["sample", pytest.param("temper", marks=pytest.mark.slow)])
def test_chains_by_workers(run: Run, verb: str) -> None:
    line = f"{verb} grid.uai --num-sweeps 200 --seed 1 -o"
    alone = run(f"{line} one.MAR")
    assert run(f"{line} two.MAR --num-workers 1")[2] == alone[2]
    assert Path("one.MAR").read_bytes() == Path("two.MAR").read_bytes()


def test_a_batch_whose_workers_are_lost_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost:
        """An executor that makes one answer."""

        def submit(self, function: Any, /, *arguments: Any) -> Future[Any]:
            future: Future[Any] = Future()
            if self.__dict__.setdefault("done", False):
                future.set_exception(OSError("gone"))
            else:
                self.done = True
                future.set_result(function(*arguments))
            return future

    monkeypatch.setattr("fastmix.cli.console.workers", lambda *_, **__: nullcontext(Lost()))
    _, out, err = run("infer grid.uai names.npz large.npz --method mean-field --seed 1")
    assert "the executor failed (OSError: gone): this process goes on with 2 of 3 files" in err
    assert [row.split()[0] for row in out.splitlines()[1:]] == ["grid.uai", "names.npz", "large.npz"]


def test_fastmix_alone_shows_help(run: Run) -> None:
    code, out, err = run("")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: fastmix")
    assert out == run("--help")[1]


def test_shells_complete_options_of_methods(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, value in (("_FASTMIX_COMPLETE", "complete_bash"), ("COMP_WORDS", "fastmix infer --num-c"),
                            ("COMP_CWORD", "2")):  # fmt: skip
        monkeypatch.setenv(variable, value)
    assert "--num-chains" in run("")[1].split()


@pytest.mark.parametrize("command", ["temper grid.uai", "infer grid.uai names.npz -o out", "sample grid.uai"])
def test_a_scheduler_has_to_answer_within_the_time_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    heard = []

    def refuse(address: str, *, patience: float | None = None) -> None:
        heard.append((address, patience))
        raise ValueError("cluster must be the address of a running Dask scheduler")

    monkeypatch.setattr("fastmix.executors.cluster", refuse)
    assert_refused(run(f"{command} --cluster tcp://host:8786 --time-limit 2"), 2, "cluster must be")
    assert_refused(run(f"{command} --cluster tcp://host:8786"), 2, "cluster must be")
    assert heard == [("tcp://host:8786", 2.0), ("tcp://host:8786", None)]
