"""The command line of learn and score, with good input and with bad."""

from __future__ import annotations

import functools
import gzip
import json
import lzma
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import cli_helpers
import numpy as np
import pytest
from cli_helpers import Outcome, Run

import fastmix
from fastmix import MarkovRandomField
from fastmix.exact import draw_exact
from fastmix.graphs import complete_edges
from fastmix.io import read_model

LEARNT = {
    "status", "objective", "num_rows", "num_variables", "num_edges", "ridge", "l1", "within", "norms", "moment_error",
    "bias_bound", "validation_log_likelihood", "seed", "seconds", "provenance",
}  # fmt: skip
SCORED = {
    "log_likelihood", "std_error", "std_error_data", "log_z", "log_z_std_error", "log_z_method",
    "pseudo_log_likelihood", "num_rows", "status",
}  # fmt: skip


@functools.cache
def table(num_rows: int, num_variables: int = 5) -> np.ndarray:
    rng = np.random.default_rng(1)
    m = num_variables * (num_variables - 1) // 2
    model = MarkovRandomField.ising(complete_edges(num_variables), 0.4 * rng.standard_normal(m))
    return np.asarray(draw_exact(model, num_draws=num_rows, seed=0))


def text_of(rows: np.ndarray, names: str = "") -> str:
    return names + "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())


@pytest.fixture
def run(run: Run) -> Run:
    """The command line in this process, in a folder with data."""
    Path("train.csv").write_text(text_of(table(400)))
    Path("test.csv").write_text(text_of(table(500)[400:]))
    Path("named.csv").write_text(text_of(table(400), "a,b,c,d,e\n"))
    return run


def assert_refused(outcome: Outcome, code: int, words: str) -> None:
    cli_helpers.assert_refused(outcome, code, re.escape(words))


def test_learn_and_score(run: Run) -> None:
    code, out, err = run("learn", "train.csv", "-o", "model.npz", "--seed", 3, "--json")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert set(facts) >= LEARNT
    assert (facts["status"], facts["num_rows"], facts["num_variables"], facts["num_edges"]) == ("ok", 400, 5, 10)
    assert (facts["seed"], facts["ridge"], facts["l1"], facts["within"]) == (3, 1e-3, 0.0, None)
    assert set(facts["norms"]) == {"spectral", "inf"}
    direct = fastmix.learn(table(400), seed=3)
    assert read_model("model.npz") == direct.model
    code, out, err = run("score", "model.npz", "test.csv", "--json", "-o", "rows.txt")
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert set(facts) >= SCORED
    expected = fastmix.score(direct.model, table(500)[400:])
    assert facts["log_likelihood"] == pytest.approx(expected.log_likelihood)
    assert (facts["num_rows"], facts["std_error"], facts["log_z_method"]) == (100, 0.0, "enumeration")
    np.testing.assert_array_equal(np.loadtxt("rows.txt"), expected.per_row)


def test_tables_for_people(run: Run) -> None:
    code, out, err = run("learn", "named.csv", "-o", "model.npz", "--within", "inf:0.9", "--validation", "named.csv")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    for words in ("status ok", "num rows 400", "num edges 10", "moments enumeration", "norm inf, bound 0.9",
                  "validation log likelihood -"):  # fmt: skip
        assert words in text
    assert "advice" not in text
    assert read_model("model.npz").variable_names == ("a", "b", "c", "d", "e")
    code, out, _ = run("score", "model.npz", "named.csv", "--target", "a,c")
    assert code == 0
    for word in ("log likelihood", "pseudo log likelihood", "conditional log likelihood", "log z"):
        assert word in out
    assert "advice" not in out
    code, out, err = run("learn", "train.csv")
    assert (code, out.split("\n")[0]) == (0, "MARKOV")
    assert "num rows 400" in err
    assert "advice" not in err


@pytest.mark.parametrize(
    "options",
    [
        "--objective pseudo-likelihood", "--moments sampled --num-chains 64 --tol 0.1", "--edges chow-liu",
        "--ridge auto --validation test.csv", "--objective pseudo-likelihood --l1 auto --validation test.csv",
        "--edges l1 --l1 0.05", "--edges grow --validation test.csv", "--edges edges.txt", "--hidden 1 --max-iter 40",
        "--within spectral:0.5 --moments sampled --num-chains 256", "--within width:0.5", "--num-states 3",
        "--num-states 2,2,3,2,2", "--weights 4", "--l1 0.1 --ridge 0.01", "--no-header",
        "--time-limit 60 --backend cpu",
    ],
)  # fmt: skip
def test_options(run: Run, options: str) -> None:
    Path("edges.txt").write_text("0 1\n1 2\n")
    code, out, err = run("learn", "train.csv", "-o", "model.npz", "--seed", 0, "--json", *options.split())
    assert code in ((0, 1) if "--hidden" in options else (0,)), err
    facts = json.loads(out)
    model = read_model("model.npz")
    assert (facts["num_variables"], facts["num_edges"]) == (model.num_variables, model.num_edges)
    if "edges.txt" in options:
        assert model.edges.tolist() == [[0, 1], [1, 2]]
    if "spectral:0.5" in options:
        assert facts["within"] == {"norm": "spectral", "bound": 0.5}
        assert 0.0 < facts["bias_bound"] < 0.1
    if "--validation" in options:
        assert facts["validation_log_likelihood"] < 0.0
    if "--num-states 2" in options:
        assert model.num_states.tolist() == [2, 2, 3, 2, 2]
    if "--hidden" in options:
        code, out, _ = run("score", "model.npz", "test.csv", "--json")
        assert code == 0
        assert json.loads(out)["pseudo_log_likelihood"] is None


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ("--within spectral", "--within must be a norm and a bound such as spectral:2.5"),
        ("--within width:much", "--within must be"),
        ("--within two:0.9", "--within must be"),
        ("--within inf:-1", "got 'inf:-1'"),
        ("--ridge much", "--ridge must be a number or auto, got 'much'"),
        ("--ridge -1", "ridge must be a number of at least 0"),
        ("--ridge nan", "ridge must be"),
        ("--l1 auto", "--l1 auto is chosen on validation data: give --validation"),
        ("--objective best", "objective must be one of"),
        ("--moments best", "moments must be one of"),
        ("--edges l1", "needs a positive l1"),
        ("--l1 0.1 --within inf:0.9", "l1 must be 0 within a set"),
        ("--num-states 2,x", "--num-states must be whole numbers"),
        ("--num-states 2,2", "--num-states must be one number or 5, one for each column"),
        ("--hidden -1", "hidden must be"),
        ("--hidden 2 --objective pseudo-likelihood", "hidden variables need objective='likelihood'"),
        ("--backend tpu", "--backend must be cpu, cuda or auto, got 'tpu'"),
        ("--time-limit 0", "--time-limit must be"),
        ("-o model.xyz", "model.xyz"),
        ("-o train.csv", "must not be the input"),
        ("-o a.npz --checkpoint a.npz", "must be two files"),
        ("-o - --json", "must not both write to stdout"),
        ("--ridge 0 --num-states 3", "state 2 of column 0 never occurs"),
        ("--missing much", "--missing must"),
    ],
)
def test_what_is_asked_for_is_refused(run: Run, options: str, pattern: str) -> None:
    assert_refused(run("learn", "train.csv", *options.split()), 2, pattern)


def test_missing_values(run: Run) -> None:
    """A number that stands for them, none at all, or the usual one."""
    rows = table(200).astype(int)
    gaps = np.where(np.random.default_rng(0).random(rows.shape) < 0.1, 9, rows)
    Path("gaps.csv").write_text(text_of(gaps))
    options = ["-o", "model.npz", "--seed", "0", "--json", "--objective", "pseudo-likelihood"]
    assert_refused(run("learn", "gaps.csv", *options, "--num-states", "2"), 3, "gaps.csv:")
    assert_refused(run("learn", "gaps.csv", *options, "--num-states", "2", "--missing", "none"), 3, "gaps.csv:")
    outcome = run("learn", "gaps.csv", "-o", "model.npz", "--seed", "0", "--missing", "9")
    assert outcome.code == 0, outcome.err
    assert set(read_model("model.npz").num_states.tolist()) == {2}
    for word in ("auto", "none"):
        assert run("learn", "train.csv", "--missing", word, *options).code == 0


def test_both_tables_cannot_come_from_stdin(run: Run) -> None:
    outcome = run("learn", "-", "--validation", "-", stdin=text_of(table(20)))
    assert_refused(outcome, 2, "DATA and --validation")


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("0,1\n1\n", "data.csv:2: every row must have 2 columns"),
        ("0,1\n1,x\n0,1\n", "data.csv:2: 'x' stands in column 1"),
        ("0,1\n0,1.5\n", "data.csv:2: the table must hold whole numbers"),
        ("0,?\n1,?\n", "only missing ones in column 1"),
        ("0,-7\n", "data.csv:1: the table must hold whole numbers from 0"),
        ("", "data.csv: the file is empty"),
        ("\x00\x01\x02\xff", "data.csv"),
    ],
)
def test_bad_files(run: Run, content: str, pattern: str) -> None:
    Path("data.csv").write_bytes(content.encode("latin-1"))
    for words in (["learn", "data.csv"], ["learn", "train.csv", "--validation", "data.csv"]):
        if words[1] == "train.csv" and "," in content:
            continue  # other messages: the validation data are not of this width
        assert_refused(run(*words), 3, pattern)
    fastmix.io.write_model(fastmix.learn(table(50)[:, :2]).model, "model.npz")
    if "?" not in content:
        assert_refused(run("score", "model.npz", "data.csv"), 3, "data.csv")


def test_files_that_do_not_fit(run: Run) -> None:
    assert run("learn", "named.csv", "-o", "model.npz")[0] == 0
    Path("more.csv").write_text("0,1,1\n")
    assert_refused(run("score", "model.npz", "more.csv"), 3, "more.csv:1: the table must have a column for each of")
    Path("other.csv").write_text("a,b,c,d,f\n0,1,1,0,1\n")
    assert_refused(run("score", "model.npz", "other.csv"), 3, "other.csv:1: the table must have the model's variables")
    Path("high.csv").write_text("0,1,1,0,1\n0,1,1,0,2\n")
    assert_refused(run("score", "model.npz", "high.csv"), 3, "high.csv:2: the table must hold states below 2")
    assert_refused(run("score", "model.npz", "missing.csv"), 3, "missing.csv: No such file")
    assert_refused(run("score", "missing.npz", "test.csv"), 3, "missing.npz: No such file")
    assert_refused(run("learn", "train.csv", "--edges", "missing.txt"), 3, "missing.txt: No such file")
    assert_refused(run("learn", "train.csv", "--validation", "more.csv"), 3, "more.csv:1:")
    assert_refused(run("score", "-", "-"), 2, "must not both be -")
    Path("edges.txt").write_text("0 9\n")
    assert_refused(run("learn", "train.csv", "--edges", "edges.txt"), 3, "edges.txt:1: there is no column '9'")


def test_categories_and_unseen_states(run: Run) -> None:
    Path("words.csv").write_text("rain,wet\n" + "yes,very\nno,not\nno,a bit\nyes,very\n" * 20)
    assert run("learn", "words.csv", "--header", "-o", "model.npz")[0] == 0
    model = read_model("model.npz")
    assert model.variable_names == ("rain", "wet")
    assert model.state_names == (("no", "yes"), ("a bit", "not", "very"))
    Path("new.csv").write_text("wet,rain\nvery,yes\nsoaked,no\n")
    assert_refused(run("score", "model.npz", "new.csv"), 3, "new.csv:3: the table has states that the model does")
    Path("new.csv").write_text("wet,rain\nvery,yes\n?,no\n")
    code, out, _ = run("score", "model.npz", "new.csv", "--json")
    assert (code, json.loads(out)["num_rows"]) == (0, 2)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_data(
    run: Run, suffix: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "train.csv" + suffix
    Path(path).write_bytes(pack(Path("train.csv").read_bytes()))
    assert run("learn", path, "-o", "model.npz")[0] == 0
    assert read_model("model.npz") == fastmix.learn(table(400)).model
    assert run("score", "model.npz", path)[0] == 0
    monkeypatch.setenv("FASTMIX_MAX_BYTES", "100")
    assert run("learn", path)[0] in (2, 3)
    Path(path).write_bytes(pack(Path("train.csv").read_bytes())[:-20])
    monkeypatch.delenv("FASTMIX_MAX_BYTES")
    assert_refused(run("learn", path), 3, "damaged or cut short")


def test_first_rows_of_data_are_never_eaten(run: Run) -> None:
    counts = {}
    for name, words in (
        ("train.csv", []),
        ("train.csv", ["--no-header"]),
        ("train.csv", ["--header"]),
        ("named.csv", []),
    ):
        code, out, _ = run("learn", name, "--json", *words)
        counts[name, *words] = json.loads(out)["num_rows"] if code == 0 else None
    assert counts == {
        ("train.csv",): 400, ("train.csv", "--no-header"): 400, ("train.csv", "--header"): None, ("named.csv",): 400,
    }  # fmt: skip
    assert_refused(run("learn", "named.csv", "--no-header"), 3, "named.csv:1: 'a' stands in column 0")
    Path("digits.csv").write_text("0,1,2\n" + "1,1,0\n0,0,1\n" * 10)
    assert json.loads(run("learn", "digits.csv", "--header", "--json")[1])["num_rows"] == 20


def test_runs_without_a_verdict_are_exit_code_one(run: Run) -> None:
    code, out, err = run("learn", "train.csv", "-o", "model.npz", "--max-iter", 1, "--json")
    assert (code, json.loads(out)["status"]) == (1, "not_converged")
    assert "status not_converged: The optimum was not reached: allow more --time-limit or --max-iter" in err
    assert np.isfinite(read_model("model.npz").parameters).all()


def test_checkpoints(run: Run) -> None:
    words = ["learn", "train.csv", "--moments", "sampled", "--num-chains", 64, "--tol", 1e-9, "--json"]
    code, out, _ = run(*words, "--max-iter", 6, "--seed", 1, "-o", "whole.npz")
    assert code == 1
    words += ["--checkpoint", "run.ckpt", "--checkpoint-seconds", 0, "--max-iter", 6, "-o", "parts.npz"]
    code, out, _ = run(*words, "--seed", 1, "--time-limit", 1e-3)
    assert (code, json.loads(out)["stats"]["stopped_by"]) == (1, "time_limit")
    assert Path("run.ckpt").exists()
    assert_refused(run(*words, "--seed", 2), 3, "run.ckpt: the checkpoint belongs to a run with seed 1")
    code, out, _ = run(*words)
    assert (code, json.loads(out)["seed"]) == (1, 1)
    assert read_model("parts.npz") == read_model("whole.npz")
    assert not Path("run.ckpt").exists()


def test_interrupts_keep_the_best_model(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(text_of(np.random.default_rng(0).integers(0, 2, size=(400, 30))))
    words = [
        "learn", "train.csv", "-o", "model.npz", "--moments", "sampled", "--json",
        "--tol", "1e-12", "--num-chains", "256", "--checkpoint", "run.ckpt", "--checkpoint-seconds", "0",
    ]  # fmt: skip
    process = cli_helpers.start_process(*words, cwd=tmp_path, text=True)
    begun = time.monotonic()
    while (not (tmp_path / "run.ckpt").exists() or (tmp_path / "run.ckpt").stat().st_size < 20_000) and (
        time.monotonic() - begun < 120
    ):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    assert json.loads(out)["status"] == "interrupted"
    assert read_model(tmp_path / "model.npz").num_edges == 435
    assert os.path.exists(tmp_path / "run.ckpt")


def test_a_first_row_that_looks_like_names_is_noted(run: Run) -> None:
    Path("words.csv").write_text("rain,wet\n" + "yes,no\nno,no\nyes,yes\n" * 5)
    note = "the first row of words.csv is taken as data, but looks like names: --header, or --no-header"
    for command in (("learn", "words.csv", "-o", "words.npz"), ("score", "words.npz", "words.csv")):
        code, out, err = run(*command, "--json")
        assert (code, err, json.loads(out)["note"]) == (0, f"fastmix: note: {note}\n", note)
    assert read_model("words.npz").num_states.tolist() == [3, 3]
    for line, noted in (("rain,wet", True), ("rain,3", False), ("rain,?\nyes,no\nno,yes", False)):
        Path("line.csv").write_text(f"{line}\n")
        assert ("note: the first row of line.csv" in run("learn", "line.csv", "-o", "line.npz")[2]) is noted
    for option in ("--no-header", "--header"):
        assert "note" not in run("learn", "words.csv", option, "-o", "words.npz")[2]
    code, out, err = run("score", "words.npz", "words.csv", "--json")
    assert (code, err, json.loads(out)["note"]) == (0, "", None)
    assert "note" not in run("learn", "train.csv", "-o", "model.npz")[2]


@pytest.mark.parametrize("hidden", ["mixture:2", "classes:3", "classes", "auto"])
def test_mixtures(run: Run, hidden: str) -> None:
    code, out, _ = run(
        "learn", "train.csv", "--hidden", hidden, "--validation", "test.csv", "-o", "m.npz", "--seed", 0, "--json"
    )
    assert code == 0
    told = json.loads(out)
    assert told["validation_log_likelihood"] < 0.0
    code, out, _ = run("score", "m.npz", "test.csv", "--json")
    assert code == 0
    assert json.loads(out)["log_likelihood"] == pytest.approx(told["validation_log_likelihood"], abs=1e-6)
    if hidden == "classes:3":
        model = read_model("m.npz")
        assert model.num_states.tolist() == [2, 2, 2, 2, 2, 3]
        assert_refused(run("learn", "train.csv", "--hidden", "some"), 2, "mixture:16")
