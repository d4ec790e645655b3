"""The command line as a process: pipes, terminals, Ctrl-C, and names that are hard to show."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_helpers import CONTRADICTION, Outcome, Run, assert_refused, command, files, run_process, start_process

from fastmix import instances
from fastmix.exact import enumerate_model
from fastmix.io import write_model
from fastmix.model import MarkovRandomField

# -- as a process ---------------------------------------------------------------------------------------------------


def test_pipeline_of_processes(run: Run) -> None:
    text = run_process("generate", "ising-grid", "--rows", "3", "--cols", "3", "--seed", "1")
    assert (text.code, text.err) == (0, "")
    answer = run_process("infer", "-", "--json", stdin=text.out.encode())
    assert (answer.code, answer.err) == (0, "")
    exact = enumerate_model(instances.ising_grid(3, 3, coupling_max=1.0, seed=1))
    assert json.loads(answer.out)["log_z"] == pytest.approx(exact.log_z, abs=1e-9)
    assert_refused(run("infer", "-", stdin=b"MARKOV"), 3, "<stdin>:1")
    assert_refused(run("infer", "-", "--method", "bogus"), 2)
    assert run().code == 0


@pytest.mark.parametrize(
    ("redirection", "words", "expected"),
    [
        (">&-", "infer model.uai", (2, "Bad file descriptor")),
        pytest.param(">&-", "info model.uai --json", (2, "Bad file descriptor"), marks=pytest.mark.slow),
        pytest.param(">&-", "infer model.uai -o out.MAR", (0, None), marks=pytest.mark.slow),
        ("<&-", "info -", (3, "Bad file descriptor")),
        ("2>&-", "info missing.uai", (3, None)),
    ],
)
def test_closed_streams(tmp_path: Path, redirection: str, words: str, expected: tuple[int, str | None]) -> None:
    (tmp_path / "model.uai").write_text("MARKOV 1 2 0")
    script = ["sh", "-c", f'"$@" {redirection}', "sh", *command(*words.split())]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    code, said = expected
    if said is None:
        assert (done.returncode, done.stdout) == (code, "")
        assert all(line.startswith("fastmix: guarantee: ") for line in done.stderr.splitlines())
    else:
        assert_refused(Outcome(done.returncode, done.stdout, done.stderr), code, said)


MORE_WORDS = [
    pytest.param(words, marks=pytest.mark.slow) for words in (["infer", "model.uai", "--json"], ["info", "model.uai"])
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", [["infer", "model.uai"], *MORE_WORDS])
def test_full_stdout(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "model.uai").write_text("MARKOV 1 2 0")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*words), cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert_refused(Outcome(done.returncode, "", done.stderr), 2, "No space left")


@pytest.mark.parametrize("words", [["infer", "model.uai"], ["--help"], *MORE_WORDS])
def test_reader_that_has_left(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "model.uai").write_text("MARKOV 1 2 0")
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as pipe:
        done = subprocess.run(
            command(*words), cwd=tmp_path, stdout=pipe, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_head(tmp_path: Path) -> None:
    (tmp_path / "wide.uai").write_text("MARKOV 1 40000 0")  # its MAR text is of 240 kB, more than a pipe holds
    done = subprocess.run(
        ["sh", "-c", '"$@" | head -c 3', "sh", *command("infer", "wide.uai", "-o", "-")],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (b"MAR", b"")


# -- terminals and Ctrl-C -------------------------------------------------------------------------------------------


def run_on_terminal(folder: Path, *arguments: str, **settings: str) -> Outcome:
    """The command line with stdout and stderr on a pseudo-terminal; what it showed is the output."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    environment |= settings
    process = subprocess.Popen(
        command(*arguments), cwd=folder, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    with open(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                block = terminal.read(4096)
            except OSError:  # how Linux says that the other side is closed
                break
            if not block:
                break
            shown += block
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    return Outcome(process.wait(timeout=60), text.replace("\r\n", "\n"), "")


def test_terminal_shows_a_table(tmp_path: Path) -> None:
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [2.0, 0.0, 0.0]],
        [],
        [],
        variable_names=["rain", "wind[/x]"],
        state_names=[["no", "yes"], ["[b]calm", "breeze", "gale"]],
    )
    write_model(model, tmp_path / "weather.npz")
    code, shown, _ = run_on_terminal(tmp_path, "infer", "weather.npz")
    assert code == 0
    assert re.search(r"variable +most probable +probability of each state", shown)
    assert re.search(r"rain +yes +no 0\.268941  yes 0\.731059", shown)
    assert re.search(r"wind\[/x\] +\[b\]calm +\[b\]calm 0\.786986  breeze 0\.106507  gale 0\.106507", shown)
    assert "fastmix: method exact, status ok, log Z = " in shown
    assert "MAR" not in shown
    piped = run_process("infer", "weather.npz", cwd=tmp_path)
    assert shown.startswith(piped.out)  # where no variable is left out


def test_terminal_counts_the_rest(tmp_path: Path) -> None:
    write_model(instances.ising_tree(40, coupling_max=1.0, seed=0), tmp_path / "tree.npz")
    code, shown, _ = run_on_terminal(tmp_path, "infer", "tree.npz")
    assert code == 0
    assert len(re.findall(r"^\d+ +[01] +0\.\d+  0\.\d+$", shown, re.MULTILINE)) == 25
    assert "fastmix: 15 more variables: -o FILE.MAR or --json gives all of them" in shown


def test_terminal_gets_one_line_for_an_error(tmp_path: Path) -> None:
    (tmp_path / "none.uai").write_text(CONTRADICTION[:-1])
    code, shown, _ = run_on_terminal(tmp_path, "infer", "none.uai")
    assert code == 3
    assert "fastmix: none.uai:1: " in shown
    (tmp_path / "none.uai").write_text(CONTRADICTION)
    code, shown, _ = run_on_terminal(tmp_path, "infer", "none.uai")
    assert code == 0
    assert "Z = 0 (proven)" in shown
    assert "Traceback" not in shown


@contextlib.contextmanager
def long_run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in the middle of exact inference, in the slow arithmetic that couplings of hundreds ask for."""
    write_model(instances.ising_grid(20, 20, coupling_max=200.0, seed=0), folder / "grid.uai")
    process = start_process("infer", "-", "-o", "out.MAR", "--json", cwd=folder, stdin=subprocess.PIPE)
    try:
        assert process.stdin is not None
        # More than a pipe holds: once all of it is written, the process is up and reading.
        process.stdin.write((folder / "grid.uai").read_bytes() + b"\n" * 2**17)
        process.stdin.close()
        process.stdin = None
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("delay", [0.2, 0.6])
def test_interrupt(tmp_path: Path, delay: float) -> None:
    with long_run(tmp_path) as process:
        time.sleep(delay)
        assert process.poll() is None, "the run was to be long"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert err.splitlines()[-1].startswith(b"fastmix: interrupted")  # it may have been compiling
    assert files(tmp_path) == {"grid.uai"}


# -- names and terminals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["info", "infer", "compare", "certify", "sample", "denoise -o out.png"])
@pytest.mark.parametrize("name", ["[/red]", "a\x1b[31m\nb", "\udcff.uai", "\u202eiau.x"])
def test_names_of_files_are_shown_escaped(run: Run, verb: str, name: str) -> None:
    outcome = run(verb.split()[0], name, *verb.split()[1:])
    assert_refused(outcome, 3, re.escape(name.encode("unicode_escape").decode()))


def test_odd_names_work(run: Run, saved: str) -> None:
    name = "a\x1b[31m\n[red]:smile:$x$"
    Path(saved).rename(name)
    shown = r"a\x1b[31m\n[red]:smile:$x$"
    for verb in ("info", "certify"):
        assert run(verb, name).out.splitlines()[0] == shown
    run("infer", name, "-o", f"{name}.MAR")
    outcome = run("compare", name, "--methods", "loopy-bp", "--memory-limit", "100B", "--reference", f"{name}.MAR",
                  "-o", f"{name}-out")  # fmt: skip
    assert outcome.code == 0
    assert outcome.out.splitlines()[0] == f"{shown}: errors against {shown}.MAR"
    assert f"fastmix: wrote {shown}-out/comparison.csv" in outcome.err
    assert Path(f"{name}-out/comparison.png").exists()


@pytest.mark.parametrize("columns", ["0", "1", "30", "-3", "wide"])
def test_tables_on_narrow_terminals(run: Run, saved: str, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert re.search(r"treewidth +2", run("info", saved).out)
    assert re.search(r"loopy-bp +ok +0\.\d+", run("compare", saved, "--methods", "loopy-bp").out)


def test_text_that_an_encoding_cannot_show(tmp_path: Path) -> None:
    (tmp_path / "\u00e9t\u00e9.uai").write_text("MARKOV 1 2 0")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    outcome = run_process("info", "\u00e9t\u00e9.uai", cwd=tmp_path, env=environment)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(r"\xe9t\xe9.uai")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        *(
            pytest.param(more, marks=pytest.mark.slow)
            for more in ({"TERM": "dumb"}, {"NO_COLOR": "1"}, {"COLUMNS": "0"})
        ),
    ],
    ids=str,
)
def test_terminals_show_names_as_they_are(tmp_path: Path, settings: dict[str, str]) -> None:
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [2.0, 0.0]], [], [], variable_names=["\x1b]0;title\x07", ":smile:"],
        state_names=[["\x1b[2J", "a\nb"], ["[b]c", "\u202ed"]],
    )  # fmt: skip
    write_model(model, tmp_path / "names.npz")
    code, shown, _ = run_on_terminal(tmp_path, "infer", "names.npz", **settings)
    assert code == 0
    assert re.search(r"\\x1b\]0;title\\x07 +a\\nb +\\x1b\[2J 0\.268941", shown)
    assert re.search(r":smile: +\[b\]c +\[b\]c 0\.880797", shown)
    assert "\x07" not in shown
    code, shown, _ = run_on_terminal(tmp_path, "experiment", "[/red]", "-o", "out", **settings)
    assert code == 2
    assert "experiment must be one of" in shown
    assert "MarkupError" not in shown
