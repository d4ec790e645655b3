"""Batches of ``infer``: no answer replaces anything, none ends the others, evidence beside a model is used."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import threading
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Outcome, Run, assert_refused

import fastmix
from fastmix import instances
from fastmix.cli import batch
from fastmix.io import read_mar, read_model, write_evidence, write_model


def make_models(*names: str, seed: int = 0) -> None:
    """Small models, one of them different from another."""
    for k, name in enumerate(names):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        format_suffix = ".npz" if name.endswith(".npz") else ".uai"
        write_model(instances.ising_tree(4, coupling_max=1.0, seed=100 * seed + k), f"written{format_suffix}")
        os.replace(f"written{format_suffix}", name)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


# -- no answer replaces another one, or an input ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_every_model_has_its_answer_or_the_batch_is_refused(run: Run, tmp_path: Path, seed: int) -> None:
    """Models drawn from names that are, or look like, those of answers; stdin is one of them, now and then."""
    rng = random.Random(seed)
    pool = ["a.uai", "stdin", "sub/a.uai", "out/a.uai", "out/a.uai.MAR", "a.uai.PR", "out/stdin.MAR", "out/b.PR", "b"]
    chosen = rng.sample(pool, rng.randint(1, 4)) + ["-"] * rng.choice([0, 0, 1])
    rng.shuffle(chosen)
    make_models(*pool, seed=seed)
    make_models("given", seed=seed + 1000)
    expected = {
        name: np.concatenate(fastmix.infer(read_model("given" if name == "-" else name)).marginals) for name in chosen
    }
    before = contents(tmp_path)
    outcome = run("infer", *chosen, "-o", "out/", stdin=Path("given").read_bytes())
    after = contents(tmp_path)
    assert all(after[name] == before[name] for name in chosen if name != "-")
    if outcome.code:
        assert_refused(outcome, 2, "different names|must not hold the input")
        assert after == before
        return
    for name in chosen:
        place = Path("out", "stdin" if name == "-" else Path(name).name)
        np.testing.assert_allclose(np.concatenate(read_mar(f"{place}.MAR")), expected[name], atol=1e-12)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["stdin", "-"], "different names"), (["-", "-"], "once"), (["a.uai", "sub/a.uai"], "different names"),
        (["out/a.uai", "out/a.uai.MAR"], "must not hold the input 'out/a.uai.MAR'"),
        (["a.uai", "link"], "must not hold the input 'link'"), (["a.uai", "-e", "out/a.uai.PR"], "out/a.uai.PR"),
        (["a.uai", "b.uai", "-e", "-"], "--evidence must be a file"),
        (["a.uai", "b.uai", "-e", "pipe"], "--evidence must be a file"),
        (["a.uai", "b.uai", "-e", "0=1", "--no-evidence"], "must not both be given"),
    ],
)  # fmt: skip
def test_what_a_batch_refuses(run: Run, tmp_path: Path, words: list[str], said: str) -> None:
    make_models("stdin", "a.uai", "b.uai", "sub/a.uai", "out/a.uai", "out/a.uai.MAR")
    write_evidence({0: 0}, "out/a.uai.PR")
    Path("link").symlink_to("out/a.uai.MAR")
    os.mkfifo("pipe")
    before = contents(Path("out"))
    assert_refused(run("infer", *words, "-o", "out/", stdin=b"MARKOV 0 0"), 2, said)
    assert contents(Path("out")) == before


# -- one answer does not end the others -------------------------------------------------------------------------------


@pytest.mark.parametrize("blocked", ["one.uai.MAR", "two.uai.MAR", "two.uai.PR", "three.uai.PR"])
def test_an_answer_that_cannot_be_written_is_a_row(run: Run, tmp_path: Path, blocked: str) -> None:
    names = ["one.uai", "two.uai", "three.uai"]
    make_models(*names)
    Path("out", blocked).mkdir(parents=True)
    outcome = run("infer", *names, "-o", "out", "--json")
    rows = json.loads(outcome.out)["files"]
    bad = blocked[: blocked.index(".")] + ".uai"
    assert outcome.code == 2
    assert len(outcome.err.splitlines()) == 1
    assert [row["status"] for row in rows] == ["not written" if name == bad else "ok" for name in names]
    assert blocked in next(row["note"] for row in rows if row["file"] == bad)
    written = {path.name for path in Path("out").iterdir() if path.is_file()}
    assert {f"{name}{suffix}" for name in names for suffix in (".MAR", ".PR") if name != bad} <= written
    assert "not written" in run("infer", *names, "-o", "out").out


@pytest.mark.parametrize("feeds", [False, True])
def test_a_pipe_does_not_block_a_batch(run: Run, monkeypatch: pytest.MonkeyPatch, feeds: bool) -> None:
    monkeypatch.setattr(batch, "PIPE_PATIENCE_SECONDS", 20.0 if feeds else 0.1)
    make_models("one.uai", "two.uai")
    os.mkfifo("pipe")

    def feed() -> None:
        Path("pipe").write_bytes(gzip.compress(Path("one.uai").read_bytes()))

    writer = threading.Thread(target=feed) if feeds else None
    if writer is not None:
        writer.start()
    outcome = run("infer", "one.uai", "pipe", "two.uai", "--json")
    rows = json.loads(outcome.out)["files"]
    assert [row["status"] for row in rows] == ["ok", "ok" if feeds else "bad file", "ok"]
    assert outcome.code == (0 if feeds else 3)
    if writer is not None:
        writer.join()
        assert rows[0]["log_z"] == rows[1]["log_z"]
    else:
        assert outcome.err == "fastmix: pipe: is a pipe that nobody writes to\n"


# -- evidence beside a model ------------------------------------------------------------------------------------------


def log_z(run: Run, *words: str) -> float:
    outcome = run(*words, "--json")
    assert outcome.code == 0, outcome
    facts = json.loads(outcome.out)
    return float(facts["files"][0]["log_z"] if "files" in facts else facts["log_z"])


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(
    ("model", "beside"),
    [("a.uai", "a.uai.evid"), ("a.npz", "a.npz.evid"), ("a.uai.gz", "a.uai.evid"), ("a.uai.gz", "a.uai.gz.evid"),
     ("a.uai.gz", "a.uai.evid.gz")],
)  # fmt: skip
def test_evidence_beside_a_model_is_used(run: Run, model: str, beside: str, several: bool) -> None:
    make_models("other.uai")
    write_model(instances.ising_tree(4, coupling_max=1.0, seed=7), model)
    words = ["infer", model, *(["other.uai"] if several else [])]
    free = log_z(run, *words)
    write_evidence({1: 1}, "given.evid")
    write_evidence({0: 1, 2: 0}, beside)
    found = log_z(run, *words)
    assert found == pytest.approx(fastmix.infer(read_model(model), evidence={0: 1, 2: 0}).log_z)
    assert found != pytest.approx(free)
    assert log_z(run, *words, "--no-evidence") == pytest.approx(free)
    given = log_z(run, *words, "-e", "given.evid")
    assert given == pytest.approx(fastmix.infer(read_model(model), evidence={1: 1}).log_z)
    outcome = run(*words)
    assert beside in (outcome.out if several else outcome.err)
    assert ".evid" not in run(*words, "--no-evidence").err
    if several:
        rows = json.loads(run(*words, "--json").out)["files"]
        assert [row["evidence"] for row in rows] == [beside, None]
        assert "evidence" not in run(*words, "--no-evidence").out


@pytest.mark.parametrize("verb", ["infer", "temper --num-sweeps 50", "map", "bracket", "compare --methods loopy-bp",
                                  "sample --num-sweeps 50"])  # fmt: skip
def test_all_that_answer_questions_use_it(run: Run, verb: str) -> None:
    make_models("a.uai")
    write_evidence({0: 1}, "a.uai.evid")
    name, *rest = verb.split()
    outcomes = [run(name, "a.uai", *rest, "--seed", "1", "--json", *more) for more in ([], ["-e", "0=1"])]
    known, given = (json.loads(outcome.out) for outcome in outcomes)
    for key in ("marginals", "states", "marginals_lower", "log_z", "evidence"):
        assert known.get(key) == given.get(key), key
    assert "with the evidence of a.uai.evid: --no-evidence leaves it out" in outcomes[0].err
    assert ".evid" not in outcomes[1].err
    free = run(name, "a.uai", *rest, "--seed", "1", "--json", "--no-evidence")
    assert json.loads(free.out).get("evidence") != known.get("evidence") or verb.startswith("compare")
    Path("a.uai.evid").write_text("broken")
    assert_refused(run(name, "a.uai", *rest), 3, "a.uai.evid")
    for other in ("info", "certify"):  # what asks about the model itself takes it as it is
        assert ".evid" not in run(other, "a.uai").err


# -- workers that do not answer ---------------------------------------------------------------------------------------


class Silent(Executor):
    """An executor of which some tasks are never done."""

    def __init__(self, *answered: bool) -> None:
        self.answered = list(answered)

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self.answered and self.answered.pop(0):
            future.set_result(function(*arguments, **options))
        return future


def test_an_interrupt_between_two_answers_keeps_those_there_are(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one.uai", "two.uai", "three.uai"]
    make_models(*names)
    answers = batch._answers

    def stopped(*arguments: Any) -> Any:
        for count, outcome in enumerate(answers(*arguments)):
            if count == 2:
                raise KeyboardInterrupt
            yield outcome

    monkeypatch.setattr(batch, "_answers", stopped)
    outcome: Outcome = run("infer", *names, "--json", "--num-workers", "1")
    assert outcome.code == 1
    assert len(json.loads(outcome.out)["files"]) == 2
    assert "2 of 3 files" in outcome.err


def test_an_answer_that_was_interrupted_ends_a_batch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["one.uai", "two.uai", "three.uai"]
    make_models(*names)
    answers = batch._answers

    def stopped(*arguments: Any) -> Any:
        for outcome in answers(*arguments):
            assert not isinstance(outcome, batch.Refusal)
            stats = {**outcome.stats, "stopped_by": "interrupt"}
            yield dataclasses.replace(outcome, status=fastmix.Status.INTERRUPTED, stats=stats)

    monkeypatch.setattr(batch, "_answers", stopped)
    outcome: Outcome = run("infer", *names, "--json", "--num-workers", "1")
    assert outcome.code == 1
    (row,) = json.loads(outcome.out)["files"]
    assert row["status"] == "interrupted"


@pytest.mark.parametrize("answered", [(), (True,), (False, True, True), (True, False, True)])
def test_a_batch_whose_workers_are_silent_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch, answered: tuple[bool, ...]
) -> None:
    monkeypatch.setattr(batch, "WORKER_GRACE_SECONDS", 0.2)
    names = ["one.uai", "two.uai", "three.uai"]
    make_models(*names)
    expected = run("infer", *names, "--time-limit", "0.5", "--json")
    monkeypatch.setattr("fastmix.cli.console.workers", lambda *_, **__: nullcontext(Silent(*answered)))
    outcome: Outcome = run("infer", *names, "--time-limit", "0.5", "--json")
    rows = zip(json.loads(outcome.out)["files"], json.loads(expected.out)["files"], strict=True)
    assert all({**one, "seconds": 0} == {**other, "seconds": 0} for one, other in rows)
    left = 3 if not answered or not answered[0] else 2
    assert "the executor gave no answer for 1.2 s" in outcome.err
    assert f"this process goes on with {left} of 3 files" in outcome.err
