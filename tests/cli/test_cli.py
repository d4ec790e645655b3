from __future__ import annotations

import bz2
import contextlib
import dataclasses
import errno
import gzip
import io
import itertools
import json
import math
import os
import pty
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import fastmix
from fastmix import Status, cli, instances
from fastmix.exact import enumerate_model
from fastmix.io import read_mar, read_model, read_network, read_pr, write_evidence, write_model
from fastmix.io.bif import write_bif
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

PROVENANCE = {"version", "seed", "options", "model_hash", "device"}

# Three variables of 2, 3 and 2 states, a pair factor and one over all three: pairwise once a variable is observed.
TRIPLE = "MARKOV\n3\n2 3 2\n2\n2 0 1\n3 0 1 2\n6\n 1 2 3 4 5 6\n12\n 1 5 2 6 3 7 4 8 5 9 6 1\n"
TRIPLE_PAIR = np.arange(1.0, 7).reshape(2, 3)
TRIPLE_TABLE = np.array([1.0, 5, 2, 6, 3, 7, 4, 8, 5, 9, 6, 1]).reshape(2, 3, 2)

# Three binary variables that must all differ: every pair is possible, no configuration is.
CONTRADICTION = "MARKOV 3 2 2 2 3 2 0 1 2 1 2 2 0 2 4 0 1 1 0 4 0 1 1 0 4 0 1 1 0"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in this process, in an empty folder; ``stdin`` is what it finds on its standard input."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        code = cli._run([str(a) for a in arguments])
        return Outcome(code, *capsys.readouterr())

    return call


def run_process(*arguments: str | Path, stdin: bytes = b"", **options: Any) -> Outcome:
    """The command line as users start it."""
    done = subprocess.run(command(*arguments), input=stdin, capture_output=True, timeout=120, **options)
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "fastmix", *map(str, arguments)]


def assert_refused(outcome: Outcome, code: int, pattern: str = "") -> None:
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert len(outcome.err.splitlines()) == 1, outcome.err
    assert re.match(r"fastmix: \S", outcome.err), outcome.err
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    assert re.search(pattern, outcome.err), outcome.err


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


@pytest.fixture
def model() -> MarkovRandomField:
    return instances.ising_grid(2, 3, coupling_max=1.5, seed=3)


@pytest.fixture
def saved(model: MarkovRandomField, tmp_path: Path) -> str:
    """The model as an npz file, which holds it exactly."""
    write_model(model, tmp_path / "model.npz")
    return "model.npz"


@pytest.fixture
def triple(tmp_path: Path) -> str:
    (tmp_path / "triple.uai").write_text(TRIPLE)
    return "triple.uai"


# -- the parser -----------------------------------------------------------------------------------------------------

COMMANDS = [
    [],
    ["info"],
    ["infer"],
    ["convert"],
    ["learn"],
    ["score"],
    ["generate"],
    *(["generate", kind] for kind in ("ising-grid", "potts-grid", "ising-random", "ising-bipartite", "ising-regular")),
    ["generate", "ising-tree"],
]


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help(run: Run, words: list[str], flag: str) -> None:
    outcome = run(*words, flag)
    assert outcome.code == 0
    assert outcome.out.startswith("Usage: fastmix")
    assert outcome.err == ""


def test_version(run: Run) -> None:
    assert run("--version") == (0, f"fastmix {fastmix.__version__}\n", "")


def test_main_leaves_with_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["--version"], 0), (["bogus"], 2)):
        with pytest.raises(SystemExit) as leaving:
            cli.main(arguments)
        assert leaving.value.code == code


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ("generate", "Missing command"),
        ("bogus", "No such command 'bogus'"),
        ("generate bogus", "No such command 'bogus'"),
        ("info", "Missing argument 'MODEL'"),
        ("infer", "Missing argument 'MODEL..."),
        ("convert model.npz", "Missing argument 'OUT'"),
        ("info model.npz extra", "extra"),
        ("info model.npz --bogus", "--bogus"),
        ("infer model.npz --evidence", "--evidence"),
        ("infer model.npz --method bogus", "--method must be one of auto, exact, "),
        ("infer model.npz --memory-limit lots", "got 'lots'"),
        ("infer model.npz --memory-limit 0", "positive"),
        ("infer model.npz --memory-limit -1GB", "positive"),
        ("infer model.npz --memory-limit 1e400", "positive"),
        ("infer model.npz --method exact --memory-limit 100B", "over the limit of 100 B"),
        ("infer model.npz -o - --json", "must not both write to stdout"),
        ("convert model.npz - --json", "must not both write to stdout"),
        ("convert model.npz model.txt", "must end in .uai"),
        ("convert model.npz model", "must end in .uai"),
        ("generate ising-grid -o - --json", "must not both write to stdout"),
        ("generate ising-grid -o grid.txt", "must end in .uai"),
        ("generate ising-grid --rows 0", "rows must be a whole number of at least 1, got 0"),
        ("generate ising-grid --rows x", "--rows"),
        (
            "generate ising-grid --rows 1000000 --cols 1000000",
            "rows * cols must be a whole number from 0 to 1073741823",
        ),
        ("generate ising-grid --rows 30000 --cols 30000", "a graph of 900000000 variables"),
        ("generate ising-grid --coupling-max 1e308", "sums of them would overflow"),
        ("generate ising-grid --rows 1.5", "--rows"),
        ("generate ising-grid --cols 99999999999999999999", "cols must be"),
        ("generate ising-grid --seed -1", "seed must be"),
        ("generate ising-grid --coupling-max nan", "--coupling-max must be finite"),
        ("generate ising-grid --coupling-max -1", "--coupling-max must be"),
        ("generate ising-grid --field-max inf", "--field-max must be finite"),
        ("generate potts-grid --num-states 0", "--num-states must be"),
        ("generate ising-random --num-variables -1", "--num-variables must be"),
        ("generate ising-random --edge-probability 2", "--edge-probability must be from 0 to 1, got 2"),
        ("generate ising-bipartite --left -1", "left must be"),
        ("generate ising-regular --num-variables 5 --degree 3", "degree must be"),
        ("generate ising-tree --num-variables 99999999999999999999", "--num-variables must be"),
    ],
)
def test_refused_with_one_line(run: Run, saved: str, tmp_path: Path, arguments: str, pattern: str) -> None:
    assert_refused(run(*arguments.split()), 2, re.escape(pattern))
    assert files(tmp_path) == {"model.npz"}


def test_empty_names_are_names(run: Run, saved: str) -> None:
    assert_refused(run("info", ""), 3, "''")
    assert_refused(run("infer", saved, "--evidence", ""), 2, "must be a file or pairs such as A=x,B=y, got ''")
    assert_refused(run("infer", saved, "--memory-limit", ""), 2, "got ''")
    assert_refused(run("infer", saved, "-o", ""), 2)
    assert_refused(run("convert", saved, ""), 2, "got ''")


@pytest.mark.parametrize("words", [["info"], ["infer"], ["convert", "out.npz"]], ids=lambda words: words[0])
class TestBadFiles:
    """Exit code 3, whichever command reads the file."""

    def check(self, run: Run, words: list[str], pattern: str, *more: str) -> None:
        before = files(Path())
        assert_refused(run(words[0], "model", *words[1:], *more), 3, pattern)
        assert_refused(run(words[0], "model", *words[1:], *more, "--json"), 3, pattern)
        assert files(Path()) == before

    @pytest.mark.parametrize(
        ("content", "pattern"),
        [
            (b"", r"model:1: the file is empty"),
            (b"BOGUS 1", r"model:1: .*'BOGUS'"),
            (b"MARKOV 2\n2 two", r"model:2: expected a number, got 'two'"),
            (b"MARKOV 2 2 2 1 2 0 1 4 1 1 1", r"model:1: the file ends"),
            (b"MARKOV 1 2 1 1 0 2 1 -1", r"model:1: .*'-1'"),
            (b"MARKOV 1 2 1 1 0 2 nan 1", r"model:1: .*'nan'"),
            (b"MARKOV 1 2 1 1 0 2 0 0", r"model:1: "),
            (b"\xff\xfe\x00", r"model:1: expected ASCII or UTF-8"),
            (b"PK\x03\x04 no archive", r"model: "),
            (gzip.compress(TRIPLE.encode(), mtime=0)[:-9], r"model: the compressed file is damaged"),
        ],
    )
    def test_content(self, run: Run, words: list[str], content: bytes, pattern: str) -> None:
        Path("model").write_bytes(content)
        self.check(run, words, pattern)

    def test_missing(self, run: Run, words: list[str]) -> None:
        self.check(run, words, r"fastmix: model: No such file")

    def test_folder(self, run: Run, words: list[str]) -> None:
        Path("model").mkdir()
        self.check(run, words, r"model: is a directory")

    @pytest.mark.parametrize(
        ("text", "pattern"),
        [
            (None, r"fastmix: ./given: No such file"),
            ("2 0", r"given:1: "),
            ("1 0 x", r"given:1: .*'x'"),
            ("1 9 0", r"given: .*got 9"),
            ("1 0 2", r"given: .*got 2"),
            ("2 0 0 0 1", r"given:1: variable 0"),
        ],
    )
    def test_evidence(
        self, run: Run, words: list[str], model: MarkovRandomField, text: str | None, pattern: str
    ) -> None:
        write_model(model, "model.npz")
        Path("model.npz").rename("model")
        if text is not None:
            Path("given").write_text(text)
        self.check(run, words, pattern, "--evidence", "given" if text is not None else "./given")

    def test_impossible_evidence(self, run: Run, words: list[str]) -> None:
        Path("model").write_text("MARKOV 2 2 2 1 2 0 1 4 1 0 0 1")
        write_evidence({0: 0, 1: 1}, "given")
        for evidence in ("given", "0=0,1=1"):
            outcome = run(words[0], "model", *words[1:], "-e", evidence)
            assert_refused(outcome, 2, f"model with evidence {evidence}: .*impossible")

    def test_stdin_holds_one_file(self, run: Run, words: list[str]) -> None:
        assert_refused(run(words[0], "-", *words[1:], "--evidence", "-", stdin=TRIPLE), 2, "must not both be -")


@pytest.mark.parametrize("words", [["info"], ["infer"], ["convert", "out.npz"]], ids=lambda words: words[0])
def test_larger_factors(run: Run, words: list[str]) -> None:
    Path("model").write_text(TRIPLE)
    assert run(words[0], "model", *words[1:]).code == 0
    Path("model").write_text(TRIPLE.rstrip()[:-1])
    assert_refused(run(words[0], "model", *words[1:]), 3, r"model:\d+: the file ends")


def test_bombs_are_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("model.uai.gz").write_bytes(gzip.compress(b"MARKOV " + b" " * 10**7))
    monkeypatch.setenv("FASTMIX_MAX_BYTES", "1MiB")
    assert_refused(run("info", "model.uai.gz"), 2, r"model.uai.gz: holds more than 1 MiB .* FASTMIX_MAX_BYTES")


def test_contradictory_model(run: Run) -> None:
    Path("none.uai").write_text(CONTRADICTION)
    assert_refused(run("infer", "none.uai"), 3, "none.uai: no configuration has positive probability")
    write_evidence({0: 0}, "given")
    assert_refused(run("infer", "none.uai", "-e", "given", "--json"), 2, "none.uai with evidence given: ")
    assert run("info", "none.uai").code == 0


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


# -- infer ----------------------------------------------------------------------------------------------------------


def test_infer_prints_mar_and_says_log_z(run: Run, saved: str, model: MarkovRandomField) -> None:
    outcome = run("infer", saved, "--method", "exact")
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
    assert run("infer", saved, "-o", name) == (0, "", "")
    np.testing.assert_allclose(np.concatenate(read_mar(name)), enumerate_model(model).node_marginals, atol=1e-12)


@pytest.mark.parametrize("name", ["out.PR", "out.pr", "out.PR.gz"])
def test_infer_writes_pr(run: Run, saved: str, model: MarkovRandomField, name: str) -> None:
    assert run("infer", saved, "-o", name) == (0, "", "")
    assert read_pr(name) * math.log(10) == pytest.approx(enumerate_model(model).log_z, abs=1e-12)


@pytest.mark.parametrize("name", ["out.json", "out.JSON", "out.json.gz"])
def test_infer_writes_json(run: Run, saved: str, name: str) -> None:
    outcome = run("infer", saved, "-o", name, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    data = Path(name).read_bytes()
    assert (gzip.decompress(data) if name.endswith(".gz") else data).decode() == outcome.out


def test_infer_to_stdout(run: Run, saved: str) -> None:
    outcome = run("infer", saved, "-o", "-")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == run("infer", saved).out


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
    assert run("infer", "-", stdin="MARKOV 0 0").out.split() == ["MAR", "0"]


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

        monkeypatch.setattr(fastmix, "infer", shaky)

    def test_text(self, run: Run, saved: str) -> None:
        outcome = run("infer", saved)
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
        assert_refused(run("infer", saved, "-o", "out.PR"), 2, "gives no log Z")
        assert files(tmp_path) == {saved}


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


def test_convert_networks(run: Run, saved: str) -> None:
    tables = [[0.25, 0.75], [[1.0, 0.0], [0.5, 0.5]]]
    network = BayesianNetwork(["a, b", "c"], [["x", "y"], ["s", "t"]], [[], [0]], tables)
    write_bif(network, "net.bif")
    for name in ("out.bif", "out.bif.gz"):
        assert run("convert", "net.bif", name).code == 0
        assert read_network(name) == network
    assert json.loads(run("convert", "net.bif", "out.bif", "--json").out)["num_edges"] == 1
    assert_refused(run("convert", saved, "other.bif"), 2, "a BIF file holds a Bayesian network, and")
    assert_refused(run("convert", "net.bif", "other.bif", "-e", "c=s"), 2, "--evidence must not be given for a BIF")
    assert not Path("other.bif").exists()


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
    assert run("infer", "grid.uai", "--method", "exact", "-o", "grid.MAR") == (0, "", "")
    model = instances.ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    np.testing.assert_allclose(np.concatenate(read_mar("grid.MAR")), fastmix.infer(model).node_marginals, atol=1e-9)


# -- nothing half-written -------------------------------------------------------------------------------------------

WRITERS = [
    "infer model.npz -o {}.MAR",
    "infer model.npz -o {}.PR",
    "infer model.npz -o {}.json --json",
    "convert model.npz {}.uai --json",
    "convert model.npz {}.uai.gz",
    "convert model.npz {}.npz",
    "generate ising-grid -o {}.uai --json",
    "generate ising-grid -o {}.npz",
]


@pytest.mark.parametrize("line", WRITERS)
class TestFailedWrites:
    @pytest.mark.parametrize("target", ["missing/out", "model.npz/out"])
    def test_no_such_folder(self, run: Run, saved: str, tmp_path: Path, line: str, target: str) -> None:
        assert_refused(run(*line.format(target).split()), 2, re.escape(f"{target}."))
        assert files(tmp_path) == {saved}

    def test_folder_in_the_way(self, run: Run, saved: str, tmp_path: Path, line: str) -> None:
        words = line.format("out").split()
        (target,) = (word for word in words if word.startswith("out."))
        Path(target).mkdir()
        assert_refused(run(*words), 2, re.escape(target))
        assert files(tmp_path) == {saved, target}

    @pytest.mark.parametrize("there", [False, True])
    @pytest.mark.parametrize("step", ["fsync", "replace"])
    def test_disk_full(
        self, run: Run, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, step: str, there: bool
    ) -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        words = line.format("out").split()
        (target,) = (word for word in words if word.startswith("out."))
        if there:
            Path(target).write_bytes(b"old")
        before = files(tmp_path)
        monkeypatch.setattr(os, step, fail)
        assert_refused(run(*words), 2, "No space left")
        assert files(tmp_path) == before
        assert not there or Path(target).read_bytes() == b"old"


def test_file_size_limit(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    outcome = run_process("generate", "ising-grid", "-o", "grid.uai", cwd=tmp_path, preexec_fn=limit)
    assert_refused(outcome, 2, "File too large")
    assert files(tmp_path) == set()


# -- outputs are tried before the work, and what is done is not lost ------------------------------------------------


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is computed, and a picture is there to denoise."""
    from PIL import Image

    from fastmix import denoising, experiments

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the place of the output was to be tried first")

    for name in ("infer", "compare", "sample", "perfect_sample", "project"):
        monkeypatch.setattr(fastmix, name, refuse)
    monkeypatch.setattr(denoising, "denoise", refuse)
    monkeypatch.setattr(experiments, "run_experiment", refuse)
    monkeypatch.setattr(instances, "ising_grid", refuse)
    Image.new("L", (8, 8)).save(tmp_path / "picture.png")


PLACES = {
    "infer model.npz -o {}": ".MAR",
    "infer model.npz --method gibbs --checkpoint {}": ".npz",
    "sample model.npz -o {}": ".npz",
    "sample model.npz --checkpoint {}": ".npz",
    "sample model.npz --method perfect -o {}": ".npz",
    "project model.npz --norm-bound 1 -o {}": ".uai",
    "learn data.csv -o {}": ".npz",
    "learn data.csv --checkpoint {}": ".ckpt",
    "score model.npz data.csv -o {}": ".txt",
    "convert missing.uai {}": ".uai",
    "generate ising-grid -o {}": ".npz",
    "denoise picture.png -o {}": ".png",
    "compare model.npz -o {}": "",
    "experiment timing -o {}": "",
}


@pytest.mark.parametrize("line", PLACES)
def test_places_are_tried_before_the_work(run: Run, saved: str, no_work: None, tmp_path: Path, line: str) -> None:
    suffix = PLACES[line]
    folder = suffix == ""
    (tmp_path / f"there{suffix}").mkdir()
    (tmp_path / "model.npz").rename(tmp_path / "a\n\x1b[31mfile")
    write_model(instances.ising_tree(3, coupling_max=1.0, seed=0), tmp_path / "model.npz")
    before = files(tmp_path)
    for place in ["a\n\x1b[31mfile/out", "/proc/out", "n" * 300] + ([] if folder else ["missing/out", "there"]):
        words = [word.format(f"{place}{suffix}") for word in line.split()]
        assert_refused(run(*words), 2, re.escape(place.replace("\n", r"\n").replace("\x1b", r"\x1b")))
    assert files(tmp_path) == before


def test_places_that_are_not_files(run: Run, saved: str, no_work: None, tmp_path: Path) -> None:
    for verb in ("compare model.npz", "experiment timing"):
        assert_refused(run(*verb.split(), "-o", ""), 2, "-o must name a folder, got ''")
    assert_refused(run("sample", saved, "--checkpoint", "-"), 2, "--checkpoint must be a file")
    for one, other in (("out.npz", "out.npz"), ("out.npz", "./out.npz")):
        assert_refused(run("sample", saved, "-o", one, "--checkpoint", other), 2, "must be two files")
    for method in ("gibbs", "swendsen-wang", "projected"):
        assert_refused(run("infer", saved, "--method", method, "-o", "out.PR"), 2, f"{method} gives no log Z")
    assert_refused(run("project", saved, "--norm-bound", "1", "-o", "out.txt"), 2, "must end in .uai")
    assert files(tmp_path) == {saved, "picture.png"}


def test_outputs_do_not_replace_what_they_were_made_of(run: Run, saved: str, no_work: None, tmp_path: Path) -> None:
    for line in ("sample model.npz -o model.npz", "sample model.npz --checkpoint ./model.npz",
                 "denoise picture.png -o picture.png"):  # fmt: skip
        assert_refused(run(*line.split()), 2, "must not be the input")
    (tmp_path / "link.npz").symlink_to(saved)
    assert_refused(run("sample", saved, "-o", "link.npz"), 2, "-o must not be the input")


def test_models_may_be_replaced_by_models(run: Run, saved: str) -> None:
    before = Path(saved).read_bytes()
    assert run("convert", saved, saved) == (0, "", "")
    assert Path(saved).read_bytes() == before


def test_the_automatic_choice_has_log_z_where_it_is_wanted(run: Run) -> None:
    model = instances.ising_regular(40, 3, coupling_max=0.1, seed=0)
    write_model(model, "weak.npz")
    outcome = run("infer", "weak.npz", "-o", "out.PR", "--memory-limit", "10kB", "--time-limit", "2", "--seed", "1")
    assert outcome.code == 0, outcome
    log_z = fastmix.infer(model, method="exact").log_z
    assert math.log(10) * read_pr("out.PR") == pytest.approx(log_z, rel=1e-3)
    found = json.loads(run("infer", "weak.npz", "--log-z", "--memory-limit", "10kB", "--time-limit", "1", "--json").out)
    assert (found["method"], found["log_z_kind"]) == ("tempered", "estimate")
    assert_refused(run("infer", "weak.npz", "--log-z", "--method", "gibbs"), 2, "gibbs gives no log Z")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("words", ["infer --method gibbs", "sample"])
def test_a_finished_run_outlives_a_full_disk(run: Run, saved: str, words: str, tmp_path: Path) -> None:
    verb, *rest = words.split()
    line = [verb, saved, *rest, "--num-sweeps", "300", "--seed", "1", "--checkpoint", "run.ck"]
    target = "out.json" if verb == "infer" else "out.npz"
    run(*line, "--json")
    assert not Path("run.ck").exists()  # its answer is on stdout
    Path(target).symlink_to("/dev/full")
    assert_refused(run(*line, "-o", target), 2, f"{target}: No space left")
    assert Path("run.ck").exists()
    Path(target).unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastmix.chains.cpu.CpuChains.sweep", None)  # all is done already
        assert run(*line, "-o", target).code == 0
    assert files(tmp_path) == {saved, target}


def test_a_run_that_was_stopped_keeps_its_checkpoint(run: Run, saved: str) -> None:
    line = ["sample", saved, "--num-sweeps", "200000", "--seed", "1", "--checkpoint", "run.ck", "--json"]
    expected = json.loads(run(*line).out)
    assert not Path("run.ck").exists()
    run(*line, "--time-limit", "0.0001")
    assert Path("run.ck").exists()
    outcome = run(*line)
    assert json.loads(outcome.out)["marginals"] == expected["marginals"]
    assert outcome.code == 0
    assert not Path("run.ck").exists()


def test_a_mistake_of_ours_is_one_line(run: Run, saved: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise KeyError("two\nlines")

    monkeypatch.setattr(fastmix, "infer", fail)
    assert_refused(run("infer", saved), 2, "a mistake of fastmix, please report it: KeyError: ")


# -- as a process ---------------------------------------------------------------------------------------------------


def test_pipeline_of_processes(tmp_path: Path) -> None:
    text = run_process("generate", "ising-grid", "--rows", "3", "--cols", "3", "--seed", "1")
    assert (text.code, text.err) == (0, "")
    answer = run_process("infer", "-", "--json", stdin=text.out.encode())
    assert (answer.code, answer.err) == (0, "")
    exact = enumerate_model(instances.ising_grid(3, 3, coupling_max=1.0, seed=1))
    assert json.loads(answer.out)["log_z"] == pytest.approx(exact.log_z, abs=1e-9)
    assert_refused(run_process("infer", "-", stdin=b"MARKOV"), 3, "<stdin>:1")
    assert_refused(run_process("infer", "-", "--method", "bogus"), 2)
    assert run_process().code == 0


def test_closed_streams(tmp_path: Path) -> None:
    (tmp_path / "model.uai").write_text("MARKOV 1 2 0")

    def shell(redirection: str, *words: str) -> Outcome:
        script = f'"$@" {redirection}'
        done = subprocess.run(
            ["sh", "-c", script, "sh", *command(*words)], cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    assert_refused(shell(">&-", "infer", "model.uai"), 2, "Bad file descriptor")
    assert_refused(shell(">&-", "info", "model.uai", "--json"), 2, "Bad file descriptor")
    assert shell(">&-", "infer", "model.uai", "-o", "out.MAR") == (0, "", "")
    assert_refused(shell("<&-", "info", "-"), 3, "Bad file descriptor")
    assert shell("2>&-", "info", "missing.uai") == (3, "", "")


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
    (tmp_path / "wide.uai").write_text("MARKOV 1 100000 0")  # its MAR text is of 600 kB, more than a pipe holds
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
    assert re.search(r"rain +yes +0\.2689  0\.7311", shown)
    assert re.search(r"wind\[/x\] +\[b\]calm +0\.7870  0\.1065  0\.1065", shown)
    assert "fastmix: method exact, status ok, log Z = " in shown
    assert "MAR" not in shown


def test_terminal_counts_the_rest(tmp_path: Path) -> None:
    write_model(instances.ising_tree(40, coupling_max=1.0, seed=0), tmp_path / "tree.npz")
    code, shown, _ = run_on_terminal(tmp_path, "infer", "tree.npz")
    assert code == 0
    assert len(re.findall(r"^\d+ +[01] +0\.\d{4}  0\.\d{4} *$", shown, re.MULTILINE)) == 25
    assert "fastmix: 15 more variables: -o FILE.MAR or --json gives all of them" in shown


def test_terminal_gets_one_line_for_an_error(tmp_path: Path) -> None:
    (tmp_path / "none.uai").write_text(CONTRADICTION)
    code, shown, _ = run_on_terminal(tmp_path, "infer", "none.uai")
    assert code == 3
    assert "fastmix: none.uai: no configuration has positive probability" in shown
    assert "Traceback" not in shown


@contextlib.contextmanager
def long_run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run in the middle of exact inference, in the slow arithmetic that couplings of hundreds ask for."""
    write_model(instances.ising_grid(20, 20, coupling_max=200.0, seed=0), folder / "grid.uai")
    process = subprocess.Popen(
        command("infer", "-", "-o", "out.MAR", "--json"),
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A background job may have inherited a SIGINT that is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
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


@pytest.mark.parametrize("delay", [0.2, 1.5])
def test_interrupt(tmp_path: Path, delay: float) -> None:
    with long_run(tmp_path) as process:
        time.sleep(delay)
        assert process.poll() is None, "the run was to be long"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, b"")
    assert err.splitlines()[-1] == b"fastmix: interrupted"  # it may have been compiling
    assert files(tmp_path) == {"grid.uai"}


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
    monkeypatch.setattr(fastmix, "compare", lambda *_, **__: dataclasses.replace(result, status=Status.INTERRUPTED))
    outcome = run("compare", saved)
    assert outcome.code == 1
    assert re.search("exact +ok", outcome.out)
    assert "status interrupted" in outcome.err


def test_perfect_samples(run: Run) -> None:
    write_model(instances.ising_grid(3, 3, coupling_max=0.4, attractive=True, seed=0), "grid.npz")
    outcome = run("sample", "grid.npz", "--method", "perfect", "--num-draws", "7", "--seed", "1", "-o", "draws.npz")
    assert outcome.code == 0
    assert "7, independent and exact" in outcome.out
    with np.load("draws.npz") as data:
        assert data["draws"].shape == (1, 7, 9)
    assert json.loads(run("sample", "grid.npz", "--method", "perfect", "--json").out)["num_samples"] == 100
    assert_refused(run("sample", "grid.npz", "--method", "perfect", "--burn-in", "3"), 2, "--burn-in must not be given")


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


@pytest.mark.parametrize("settings", [{}, {"TERM": "dumb"}, {"NO_COLOR": "1"}, {"COLUMNS": "0"}], ids=str)
def test_terminals_show_names_as_they_are(tmp_path: Path, settings: dict[str, str]) -> None:
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [2.0, 0.0]], [], [], variable_names=["\x1b]0;title\x07", ":smile:"],
        state_names=[["\x1b[2J", "a\nb"], ["[b]c", "\u202ed"]],
    )  # fmt: skip
    write_model(model, tmp_path / "names.npz")
    code, shown, _ = run_on_terminal(tmp_path, "infer", "names.npz", **settings)
    assert code == 0
    assert re.search(r"\\x1b\]0;title\\x07 +a\\nb +0\.2689", shown)
    assert re.search(r":smile: +\[b\]c +0\.8808", shown)
    assert "\x07" not in shown
    code, shown, _ = run_on_terminal(tmp_path, "experiment", "[/red]", "-o", "out", **settings)
    assert code == 2
    assert "fastmix: experiment must be one of" in shown
    assert "MarkupError" not in shown


# -- applications ----------------------------------------------------------------------------------------------------


def test_denoise(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    rows, cols = np.mgrid[:30, :40]
    Image.fromarray(np.where((rows - 15) ** 2 + (cols - 20) ** 2 < 120, 255, 0).astype(np.uint8)).save("disc.png")
    simulate = ["--simulate-noise", "--method", "loopy-bp", "--size", "40x30", "--seed", "1", "--panels"]
    outcome = run("denoise", "disc.png", "-o", "out.png", *simulate)
    assert outcome.code in (0, 1), outcome
    assert "40x30 pixels, 2 labels, coupling 0.7, data weight 0.25, method loopy-bp" in outcome.err
    with Image.open("out.png") as sheet:
        assert sheet.size[0] > 4 * 40
    answer = json.loads(run("denoise", "disc.png", "-o", "two.png", "--method", "mean-field", "--json").out)
    assert (answer["width"], answer["height"], answer["error_rate"], answer["num_labels"]) == (40, 30, None, 2)
    with Image.open("two.png") as alone:
        assert alone.size == (40, 30)
    given = ["--labels", "3", "--coupling", "0.5", "--data-weight", "9", "--seed", "1", "--json"]
    answer = json.loads(run("denoise", "disc.png", "-o", "three.png", *given).out)
    assert (answer["num_labels"], answer["coupling"], answer["data_weight"]) == (3, 0.5, 9.0)
    assert_refused(run("denoise", "missing.png", "-o", "out.png"), 3, "missing.png")
    Path("text.png").write_text("no picture")
    assert_refused(run("denoise", "text.png", "-o", "out.png"), 3, "text.png")
    assert_refused(run("denoise", "disc.png", "-o", "out.txt"), 2, "must name a picture")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--noise", "2"), 2, "--noise must come with")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--max-pixels", "99"), 2, "disc.png: 40x30 pixels are")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--size", "big"), 2, "size must be WIDTHxHEIGHT")
    assert_refused(run("denoise", "disc.png", "-o", "out.png", "--method", "magic"), 2, "method must be")


def test_experiment(run: Run, tmp_path: Path) -> None:
    options = ["-o", "out", "--quick", "--trials", "1", "--methods", "loopy-bp"]
    outcome = run("experiment", "strength-random", *options)
    assert outcome.code == 0, outcome
    assert outcome.out.strip().endswith("report.html")
    assert (tmp_path / "out" / "report.html").exists()
    again = json.loads(run("experiment", "strength-random", *options, "--json").out)
    assert again["num_run"] == 0
    assert_refused(run("experiment", "magic", "-o", "out"), 2, "magic")
    assert_refused(run("experiment", "potts", "-o", "out", "--trials", "0"), 2, "trials must be")
    assert_refused(run("experiment", "potts", "-o", "out", "--cluster", "[/red]"), 2, "cluster must be the address")


@pytest.mark.parametrize("name", ["strength-random.jsonl", "strength-random.settings.json", "timing.settings.json"])
@pytest.mark.parametrize("content", [b"\x89PNG", b"mine\n", b'{"mine": 1}\n', b"[1]"])
def test_files_that_are_not_ours(run: Run, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_bytes(content)
    before = files(tmp_path)
    options = ["--quick", "--trials", "1", "--methods", "loopy-bp", "--num-workers", "1"]
    outcome = run("experiment", "strength-random", "-o", "out", *options)
    assert_refused(outcome, 3, re.escape(f"out/{name}"))
    assert (tmp_path / "out" / name).read_bytes() == content
    assert files(tmp_path) - before <= {"out/strength-random.settings.json"}


def test_interrupted_experiment_counts_its_rows(tmp_path: Path) -> None:
    words = [
        "experiment",
        "strength-random",
        "-o",
        "out",
        "--trials",
        "50",
        "--methods",
        "loopy-bp",
        "--num-workers",
        "1",
    ]
    process = subprocess.Popen(
        command(*words),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    path = tmp_path / "out" / "strength-random.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not path.exists() or path.read_bytes().count(b"\n") < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    rows = path.read_bytes().count(b"\n")
    assert process.returncode == 1
    assert re.fullmatch(rf"fastmix: {rows} rows, {rows} of them new, \d+ s\n", err), err
    assert out.strip().endswith("report.html")


@pytest.mark.parametrize("words", ["sample", "infer --method gibbs", "infer --method projected --divergence euclidean"])
def test_a_checkpoint_brings_its_seed(run: Run, saved: str, words: str) -> None:
    verb, *rest = words.split()
    line = [verb, saved, *rest, "--num-sweeps", "200000", "--burn-in", "0", "--checkpoint", "run.ck", "--json"]
    run(*line, "--time-limit", "0.0001", "--seed", "7")
    assert Path("run.ck").exists()
    answer = json.loads(run(*line).out)
    assert answer["provenance"]["seed"] == 7
    assert not Path("run.ck").exists()
    assert json.loads(run(*line, "--seed", "7").out)["marginals"] == answer["marginals"]


# -- Bayesian networks ----------------------------------------------------------------------------------------------

RAIN = """network rain { }
variable rain { type discrete [ 2 ] { no, yes }; }
variable sprinkler { type discrete [ 2 ] { off, on }; }
variable grass { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( sprinkler | rain ) { (no) 0.6, 0.4; (yes) 0.99, 0.01; }
probability ( grass | rain, sprinkler ) {
  (no, off) 1.0, 0.0; (no, on) 0.1, 0.9; (yes, off) 0.2, 0.8; (yes, on) 0.01, 0.99; }
"""


def test_networks_by_name(run: Run) -> None:
    Path("rain.bif").write_text(RAIN)
    Path("wet.json").write_text('{"grass": "wet"}')
    answers = [json.loads(run("infer", "rain.bif", "-e", words, "--json").out) for words in ("grass=wet", "wet.json")]
    assert answers[0]["marginals"] == answers[1]["marginals"]
    answer = answers[0]
    assert answer["variable_names"] == ["rain", "sprinkler", "grass"]
    assert answer["state_names"][2] == ["dry", "wet"]
    assert answer["evidence"] == {"2": 1}
    wet = 0.8 * 0.4 * 0.9 + 0.2 * (0.99 * 0.8 + 0.01 * 0.99)
    assert answer["log_z"] == pytest.approx(math.log(wet))
    assert answer["marginals"][0][1] == pytest.approx(0.2 * (0.99 * 0.8 + 0.01 * 0.99) / wet)
    facts = json.loads(run("info", "rain.bif", "--json").out)
    assert (facts["kind"], facts["num_factors"], facts["max_scope"]) == ("factors", 1, 3)
    assert facts["bayesian_network"] is True
    assert_refused(run("infer", "rain.bif", "-e", "gras=wet"), 2, "nearest is 'grass'")
    assert_refused(run("infer", "rain.bif", "-e", "grass=wett"), 2, "nearest is 'wet'")
    assert_refused(run("infer", "rain.bif", "-e", "grass=wet,grass=dry"), 2, "once, got 'grass' twice")
    assert_refused(run("certify", "rain.bif", "--criterion", "width"), 2, "factors over three or more variables")
    assert_refused(run("project", "rain.bif", "--norm-bound", "1"), 2, r"\('rain', 'sprinkler', 'grass'\) forbids")
    assert_refused(run("sample", "rain.bif", "--method", "swendsen-wang"), 2, "takes no factors over three or more")
    Path("bad.bif").write_text(RAIN.replace("0.6, 0.4", "0.6, 0.5"))
    assert_refused(run("infer", "bad.bif"), 3, r"bad\.bif:6: ")


@pytest.mark.parametrize(
    ("text", "code", "pattern"),
    [
        ("grass", 2, "--evidence must be a file or pairs such as A=x,B=y, got 'grass'"),
        ("missing.evid", 3, "missing.evid: No such file"),
        ("missing.json", 3, "missing.json: No such file"),
        ("folder/missing", 3, "folder/missing: No such file"),
        ("grass=", 2, "got 'grass='"),
        ("=wet", 2, "got '=wet'"),
        ("grass=wet,", 2, "an empty pair"),
        ("9=0", 2, "there is no variable '9'"),
        ('"grass=wet', 2, "a quote that does not end"),
        ("sprinkler=off,rain=no,grass=wet", 2, "impossible"),
        ("twice.json", 2, "once, got 'grass' twice"),
        ("unknown.json", 2, "nearest is 'grass'"),
        ("broken.json", 3, r"broken\.json:2: evidence must be a JSON object"),
        ("list.json", 3, r"list\.json:1: evidence must be a JSON object"),
        ("impossible.json", 2, "impossible"),
        ("impossible.evid", 2, "impossible"),
    ],
)
@pytest.mark.parametrize("verb", ["info", "infer", "certify"])
def test_evidence_that_is_refused(run: Run, verb: str, text: str, code: int, pattern: str) -> None:
    Path("rain.bif").write_text(RAIN)
    Path("twice.json").write_text('{"grass": "wet", "grass": "wet"}')
    Path("unknown.json").write_text('{"gras": "wet"}')
    Path("broken.json").write_text('{"grass":\n "wet"')
    Path("list.json").write_text("[1, 2]")
    Path("impossible.json").write_text('{"rain": "no", "sprinkler": 0, "2": "wet"}')
    write_evidence({0: 0, 1: 0, 2: 1}, "impossible.evid")
    assert_refused(run(verb, "rain.bif", "--evidence", text), code, pattern)


def test_names_and_evidence_in_the_json_of_every_verb(run: Run) -> None:
    soft = RAIN.replace("1.0, 0.0;", "0.99, 0.01;").replace("grass", '"the, grass"').replace("wet", '"so = wet"')
    Path("rain.bif").write_text(soft)
    lines = [
        "infer",
        "infer --method mean-field",
        "sample --num-sweeps 50",
        "temper --num-sweeps 50",
        "certify",
        "info",
    ]
    lines += ["project --norm-bound 0.9", "compare --methods exact,mean-field"]
    for line in lines:
        verb, *rest = line.split()
        outcome = run(verb, "rain.bif", *rest, "--evidence", '"the, grass"="so = wet"', "--json")
        assert outcome.code in (0, 1), outcome.err
        answer = json.loads(outcome.out)
        left = verb in ("certify", "project")
        assert answer["variable_names"] == ["rain", "sprinkler", *([] if left else ["the, grass"])]
        assert answer["state_names"][:2] == [["no", "yes"], ["off", "on"]]
        assert answer["evidence"] == {"2": 1}
    assert len(json.loads(run("project", "rain.bif", "--norm-bound", "0.9", "--json").out)["factor_scales"]) == 1


def test_bzip2_files_are_read(run: Run) -> None:
    Path("rain.bif.bz2").write_bytes(bz2.compress(RAIN.encode()))
    assert json.loads(run("infer", "rain.bif.bz2", "--json").out)["log_z"] == pytest.approx(0.0, abs=1e-12)
    Path("cut.bif.bz2").write_bytes(bz2.compress(RAIN.encode())[:-9])
    assert_refused(run("infer", "cut.bif.bz2"), 3, "damaged or cut short")


def test_ancestral_sampling(run: Run) -> None:
    Path("rain.bif").write_text(RAIN)
    answer = json.loads(run("sample", "rain.bif", "--seed", "1", "--num-draws", "2000", "--json").out)
    assert (answer["method"], answer["status"], answer["evidence"]) == ("ancestral", "ok", None)
    assert answer["variable_names"] == ["rain", "sprinkler", "grass"]
    assert answer["stats"]["note"].startswith("ancestral sampling")
    assert answer["marginals"][0][1] == pytest.approx(0.2, abs=0.06)
    piped = json.loads(run("sample", "-", "--seed", "1", "--num-draws", "2000", "--json", stdin=RAIN).out)
    assert piped["marginals"] == answer["marginals"]
    assert "independent and exact" in run("sample", "rain.bif", "-o", "draws.npz", "--seed", "2").out
    assert np.load("draws.npz")["draws"].shape == (1, 1000, 3)
    # With evidence, options of chains or a method by name it is what it was.
    given = json.loads(run("sample", "rain.bif", "-e", "grass=wet", "--num-sweeps", "500", "--json").out)
    assert given["method"] == "gibbs"
    assert json.loads(run("sample", "rain.bif", "--num-sweeps", "500", "--json").out)["method"] == "gibbs"
    assert_refused(run("sample", "rain.bif", "--method", "ancestral", "-e", "grass=wet"), 2, "without --evidence")
    assert_refused(run("sample", "rain.bif", "--method", "ancestral", "--num-sweeps", "9"), 2, "--num-sweeps must not")
    Path("model.uai").write_text(TRIPLE)
    assert_refused(run("sample", "model.uai", "--method", "ancestral"), 2, "must have a Bayesian network")
    assert_refused(run("sample", "rain.bif", "--method", "tossing"), 2, "--method must be one of")
