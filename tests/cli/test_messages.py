"""What the command line says: true texts, errors of a readable length, and no mistakes where there are none."""

from __future__ import annotations

import csv
import json
import os
import random
import re
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import Run, assert_refused

from fastmix import _checks, _clock
from fastmix.cli import files
from fastmix.cli.options import arguments_of, names_of
from fastmix.cli.parser import COMMANDS, command_name
from fastmix.io import write_model
from fastmix.io.answers import csv_cell
from fastmix.model import MarkovRandomField

# -- help says what holds ---------------------------------------------------------------------------------------------

TINY = {
    "certify": "model.npz", "project": "model.npz --norm-bound 1", "bracket": "model.npz", "map": "model.npz",
    "infer": "model.npz", "temper": "model.npz --num-sweeps 20", "sample": "model.npz --num-sweeps 20",
    "compare": "model.npz --methods loopy-bp", "denoise": "picture.png -o out.png", "learn": "data.csv --max-iter 1",
    "score": "model.npz data.csv", "fit-network": "data.csv",
}  # fmt: skip


def limited_commands() -> list[str]:
    commands = [command for group in COMMANDS.values() for command in group]
    taken = {command_name(command) for command in commands if "time_limit" in arguments_of(command)}
    assert taken == set(TINY)
    return sorted(taken)


@pytest.mark.parametrize("verb", limited_commands())
def test_the_default_limit_in_the_help_is_that_of_the_call(
    run: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "picture.png")
    (tmp_path / "data.csv").write_text("0,1,0,1,0,1\n1,0,1,0,1,0\n1,1,1,1,1,1\n0,0,1,1,0,0\n")
    limits = []

    begin = _clock.Clock.__init__

    def remember(clock: Any, limit: Any = None, *, default: float | None = None, **others: Any) -> None:
        begin(clock, limit, default=default, **others)
        if others.get("what"):  # the clock of a call, not of a part of it
            limits.append(default)

    monkeypatch.setattr(_clock.Clock, "__init__", remember)
    # Amounts of work end these runs early, and take their limit away.
    helped = " ".join(run(verb, "--help").out.split())
    (said,) = re.findall(r"--time-limit SECONDS .*?compiling is not counted\. (None|[0-9]+) by default", helped)
    outcome = run(verb, *TINY[verb].split())
    assert outcome.code in (0, 1), outcome
    found = {limit for limit in limits if limit is not None}
    if verb in ("temper", "sample"):
        assert (said, found) == ("60", set())
        from fastmix.method import find_method

        assert find_method("gibbs" if verb == "sample" else "tempered")().default_limit() == 60.0
    else:
        assert found == (set() if said == "None" else {float(said)})


def test_hints_to_extras_can_be_followed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is on no index: what is said works in the folder of its source."""
    with pytest.raises(ImportError, match=r"pip install .*\[plot\]"):
        _checks.require("fastmix_is_not_here", extra="plot", purpose="pictures")
    source = Path(_checks.__file__).parent
    for path in source.rglob("*.py"):
        assert "fastmix[" not in path.read_text("utf-8"), path


# -- of a readable length, about what the user gave -------------------------------------------------------------------

LONG = 100_000


@pytest.mark.parametrize(
    "words",
    [
        ["infer", "{}"], ["infer", "model.npz", "--{}"], ["infer", "model.npz", "-e", "{}"], ["{}"],
        ["infer", "model.npz", "-e", "{}=1"], ["infer", "model.npz", "-e", "0={}"], ["infer", "model.npz", "-o", "{}"],
        ["infer", "model.npz", "--method", "{}"], ["infer", "model.npz", "--seed", "{}"], ["generate", "{}"],
        ["certify", "model.npz", "--norm", "{}"], ["score", "model.npz", "{}"], ["experiment", "{}", "-o", "out"],
        ["learn", "data.csv", "--edges", "{}"], ["denoise", "{}", "-o", "a.png"],
        ["compare", "model.npz", "--methods", "{}"],
    ],
)  # fmt: skip
def test_messages_have_a_readable_length(run: Run, saved: str, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "data.csv").write_text("0,1\n1,0\n")
    outcome = run(*(word.format(LONG * "x") for word in words))
    assert outcome.code in (2, 3)
    assert_refused(outcome, outcome.code)
    assert len(outcome.err) < 1100
    assert "mistake" not in outcome.err


def test_names_in_files_may_have_any_length(run: Run, tmp_path: Path) -> None:
    names = [LONG * "a", LONG * "b"]
    states = [[LONG * "s", "t"]] * 2
    write_model(
        MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [], [], variable_names=names, state_names=states),
        tmp_path / "long.npz",
    )
    for evidence in ("0=u", "c=0", f"{LONG * 'a'}={LONG * 'x'}"):
        outcome = run("infer", "long.npz", "-e", evidence)
        assert_refused(outcome, 2, "evidence")
        assert len(outcome.err) < 1100


NUMBERS = [
    "infer model.npz --seed {}", "infer model.npz --num-threads {}", "infer model.npz --memory-limit {}",
    "infer model.npz --time-limit {}", "sample model.npz --num-sweeps {}", "sample model.npz --num-chains {}",
    "sample model.npz --burn-in {}", "sample model.npz --num-draws {}", "sample model.npz --accuracy {}",
    "sample model.npz --method perfect --max-sweeps {}", "temper model.npz --num-ensembles {}",
    "infer model.npz -e {}=0", "infer model.npz -e 0={}", "infer model.npz --method loopy-bp --max-iter {}",
    "infer model.npz --method annealed --num-steps {}", "infer model.npz model.npz --num-workers {}",
    "certify model.npz --accuracy {}", "certify model.npz --max-updates {}", "project model.npz --norm-bound {}",
    "project model.npz --norm-bound 1 --tol {}", "bracket model.npz --confidence {}",
    "bracket model.npz --confidence 0.9 --num-draws {}", "map model.npz --tol {}", "learn data.csv --hidden {}",
    "learn data.csv --num-states {}", "learn data.csv --ridge {}", "learn data.csv --within spectral:{}",
    "learn data.csv --num-chains {} --moments sampled", "learn data.csv --max-iter {}", "learn data.csv --weights {}",
    "score model.npz data.csv --target {}", "score model.npz data.csv --tol {}",
    "generate ising-tree --num-variables {}",
    "generate ising-grid --coupling-max {}", "denoise picture.png -o out.png --num-labels {}",
    "denoise picture.png -o out.png --size {}x{}", "denoise picture.png -o out.png --coupling {}",
    "denoise picture.png -o out.png --data-weight {}", "denoise picture.png -o out.png --max-pixels {}",
    "denoise picture.png -o out.png --simulate-noise --noise {}", "experiment potts -o out --num-trials {}",
    "experiment potts -o out --num-workers {}",
]  # fmt: skip


@pytest.mark.parametrize("line", NUMBERS)
@pytest.mark.parametrize("digits", [5000, 400])
def test_numbers_of_thousands_of_digits(run: Run, saved: str, tmp_path: Path, line: str, digits: int) -> None:
    from PIL import Image

    Image.new("L", (8, 8)).save(tmp_path / "picture.png")
    (tmp_path / "data.csv").write_text("0,1,0,1,0,1\n1,0,1,0,1,0\n")
    for number in (digits * "7", f"-{digits * '7'}"):
        outcome = run(*line.replace("{}", number).split())
        assert "mistake" not in outcome.err
        assert "sys.set_int" not in outcome.err
        assert len(outcome.err) < 1500
        if outcome.code in (2, 3):
            assert_refused(outcome, outcome.code)


# -- what was no mistake ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weight", ["0", "5e-324", "1e-300", "1e-12"])
def test_pixels_may_count_for_nothing(run: Run, tmp_path: Path, weight: str) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (9, 7), dtype=np.uint8)).save("noise.png")
    for labels in ([], ["--num-labels", "2"], ["--num-labels", "3"]):
        line = ["denoise", "noise.png", "-o", "out.png", "--data-weight", weight, "--seed", "1", *labels]
        outcome = run(*line, "--method", "loopy-bp")
        assert outcome.code in (0, 1), outcome


def test_a_folder_is_no_picture(run: Run) -> None:
    assert_refused(run("denoise", ".", "-o", "out.png"), 3, r"^fastmix: \.: [Ii]s a directory$")


# -- names that a spreadsheet would calculate -------------------------------------------------------------------------


def test_names_in_csv_answers_are_no_formulas(run: Run, tmp_path: Path) -> None:
    names = [
        "=1+1",
        "@SUM(A1)",
        "+x",
        "-x",
        "\tx",
        "\rx",
        "'=1",
        "''@",
        "'quoted",
        "plain",
        "-1",
        "+2.5e3",
        "--1",
        "\uff1d1",
    ]
    states = [["=a", "b"]] * len(names)
    model = MarkovRandomField.from_tables([[0.0, 0.0]] * len(names), [], [], variable_names=names, state_names=states)
    write_model(model, tmp_path / "names.npz")
    assert run("infer", "names.npz", "-o", "out.csv").code == 0
    assert run("map", "names.npz", "-o", "map.csv").code == 0
    for path in ("out.csv", "map.csv"):
        with open(path, encoding="utf-8", newline="") as stream:
            cells = [cell for row in csv.reader(stream) for cell in row]
        assert not [cell for cell in cells if re.match("[=@\t\r\uff1d]|[+-](?![0-9])", cell)]
        assert {"-1", "+2.5e3", "plain", "'quoted", "'=1+1"} <= set(cells)
        assert set(names) <= {unmarked(cell) for cell in cells}


def unmarked(cell: str) -> str:
    """The name in a cell, as the documentation says."""
    return cell[1:] if re.match("'+[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]", cell) else cell


def test_every_name_comes_back() -> None:
    rng = random.Random(0)
    for _ in range(5000):
        name = "".join(rng.choices("='+-@\t\r1a. e\uff1d", k=rng.randint(0, 5)))
        cell = csv_cell(name)
        assert unmarked(cell) == name
        assert re.fullmatch(r"[+-]?[0-9.e+-]+", cell) or not re.match("[=+\\-@\t\r\uff1d]", cell)


# -- options of checkpoints -------------------------------------------------------------------------------------------


def test_seconds_between_checkpoints_go_with_checkpoints(run: Run, saved: str) -> None:
    from fastmix.method import METHODS, find_method, options_of

    for method in METHODS:
        known = set(options_of(find_method(method)))
        assert ("checkpoint" in known) == ("checkpoint_seconds" in known), method
    for command in (command for group in COMMANDS.values() for command in group):
        known = names_of(command)
        assert ("checkpoint" in known) == ("checkpoint_seconds" in known), command
    line = ["infer", saved, "--method", "projected", "--num-sweeps", "50", "--checkpoint", "run.ck"]
    assert run(*line, "--checkpoint-seconds", "0").code in (0, 1)


# -- what is waited for -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [False, True])
def test_a_pipe_without_a_writer_is_named(
    run: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(files, "PIPE_NOTICE_SECONDS", 0.05 if late else 60.0)
    content = Path(saved).read_bytes()
    os.mkfifo("pipe")

    def feed() -> None:
        time.sleep(0.5 if late else 0.0)
        Path("pipe").write_bytes(content)

    writer = threading.Thread(target=feed)
    writer.start()
    outcome = run("infer", "pipe", "--method", "exact")
    writer.join()
    assert outcome.code == 0
    assert ("waiting for what is written to the pipe pipe" in outcome.err) == late


def test_words_that_are_no_numbers_are_named_with_their_option(run: Run, saved: str) -> None:
    for option, word in (("--seed", "1e3x"), ("--time-limit", "soon")):
        assert_refused(run("infer", saved, option, word), 2, rf"(?s).*{option}.*'{word}'.*fastmix infer --help")


def test_help_names_arguments_without_types(run: Run) -> None:
    assert "<" not in run("infer", "--help").out.partition("Arguments:")[2].partition("Options:")[0].split("\n")[1]


def test_evidence_in_several_options_is_all_observed(run: Run, tmp_path: Path) -> None:
    model = MarkovRandomField.from_tables([[0.0, 0.0]] * 3, [], [], variable_names=["a", "b", "c"])
    write_model(model, tmp_path / "three.npz")
    for words in (["-e", "a=1", "-e", "b=0"], ["-ea=1", "--evidence=b=0"], ["--evidence", "a=1,b=0"]):
        shown = json.loads(run("infer", "three.npz", *words, "--json").out)
        assert shown["evidence"] == {"0": 1, "1": 0}, words
    assert_refused(run("infer", "three.npz", "-e", "a=1", "-e", "a=0"), 2, "a")
    assert_refused(run("infer", "three.npz", "-e", "one.evid", "-e", "two.evid"), 2, "evidence")


def test_a_command_that_writes_one_file_takes_one(run: Run, saved: str, tmp_path: Path) -> None:
    outcome = run("project", saved, "--norm-bound", "0.5", "-o", "a.uai", "--output=b.uai")
    assert_refused(outcome, 2, "-o must be given once")
    assert not list(tmp_path.glob("[ab].uai"))
    assert run("map", saved, "-o", "a.MPE", "-o", "b.csv").code == 0
