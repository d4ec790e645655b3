from __future__ import annotations

import bz2
import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import CONTRADICTION, TRIPLE, Run, assert_refused, files

import fastmix
from fastmix import cli
from fastmix.cli import parser
from fastmix.io import read_network, write_evidence, write_model
from fastmix.io.bif import write_bif
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

# -- the parser -----------------------------------------------------------------------------------------------------

COMMANDS = [
    [],
    ["info"],
    ["infer"],
    ["convert"],
    ["learn"],
    ["score"],
    ["fit-network"],
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


def test_help_says_what_an_option_means_to_each_method(run: Run) -> None:
    text = " ".join(run("sample", "--help").out.split())
    assert "gibbs, swendsen-wang: Configurations kept of every chain" in text
    assert "perfect: Exact draws" in text
    assert "gibbs: Where chains start" not in text  # the same of all methods that have it
    assert "Where chains start: dispersed or random. For gibbs, swendsen-wang." in text
    assert "-e, --evidence FILE|PAIRS" in run("convert", "--help").out


def test_every_command_has_a_whole_sentence_on_its_line(run: Run) -> None:
    for words in ([], ["generate"]):
        text = run(*words, "--help").out
        assert max(map(len, text.splitlines())) <= 80
        listed = re.findall(r"^  ([a-z-]+)  +(\S.*)$", text.partition("\nCommands")[2], re.MULTILINE)
        assert all(re.fullmatch(r"[A-Z].*[^.]\.", sentence) for _, sentence in listed), listed
        if not words:
            expected = {parser.command_name(command) for group in parser.COMMANDS.values() for command in group}
            assert {name for name, _ in listed} == {*expected, "generate"}


SHARED_TITLES = ["Method", "Evidence", "Output", "Seed, time and machine"]


@pytest.mark.parametrize(("words", "method"), [((), "auto"), (("--method", "gibbs"), "gibbs")])
def test_options_are_in_groups_with_those_of_the_chosen_method(run: Run, words: tuple[str, ...], method: str) -> None:
    text = run("infer", *words, "--help").out
    titles = re.findall(r"^([A-Z][a-z, -]+):$", text, re.MULTILINE)
    assert titles == ["Arguments", "Options", *SHARED_TITLES, f"Options of {method}"]
    sections = dict(zip(titles, re.split(r"^[A-Z][a-z, -]+:$", text, flags=re.MULTILINE)[1:], strict=True))
    assert "--evidence" in sections["Evidence"]
    assert "--time-limit" in sections["Seed, time and machine"]
    assert "--output" in sections["Output"]
    assert ("--schedule" in sections[f"Options of {method}"]) == (method == "gibbs")


def test_verbs_of_two_names_tell_the_other(run: Run) -> None:
    assert "fastmix.most_probable" in run("map", "--help").out
    assert "``fastmix map``" in (fastmix.most_probable.__doc__ or "")


@pytest.mark.parametrize("word", [*map(str, fastmix.Status), "not-mixed", "0", "1", "2", "3", "bound"])
def test_explain_knows_statuses_and_codes(run: Run, word: str) -> None:
    outcome = run("explain", word)
    assert (outcome.code, outcome.err) == (0, "")
    assert len(outcome.out) > 20
    (explanation,) = json.loads(run("explain", word, "--json").out)["explanations"].values()
    assert outcome.out == f"{explanation}\n"


def test_explain_lists_all_and_refuses_others(run: Run) -> None:
    assert all(str(status) in run("explain").out for status in fastmix.Status)
    assert_refused(run("explain", "bogus"), 2, "STATUS must be one of")


def test_help_for_a_method_has_its_options_alone(run: Run) -> None:
    for words in (["--method", "gibbs", "--help"], ["--method=gibbs", "-h"]):
        text = run("infer", *words).out
        assert "--num-sweeps" in text
        assert "--num-replicas" not in text
        assert "--damping" not in text


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
        ("generate ising-grid --rows 1000000 --cols 1000000", "a graph of 1000000000000 variables"),
        ("generate ising-grid --rows 30000 --cols 30000", "a graph of 900000000 variables"),
        ("generate ising-grid --coupling-max 1e308", "sums do not overflow"),
        ("generate ising-grid --rows 1.5", "--rows"),
        ("generate ising-grid --cols 99999999999999999999", "cols must be"),
        ("generate ising-grid --seed -1", "seed must be"),
        ("generate ising-grid --coupling-max nan", "--coupling-max must be a number of at least 0"),
        ("generate ising-grid --coupling-max -1", "--coupling-max must be"),
        ("generate ising-grid --field-max inf", "--field-max must be a number of at least 0"),
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
            ("1 9 0", r"given:1: .*got '9'"),
            ("1 0 2", r"given:1: .*got '2'"),
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
    outcome = run("infer", "none.uai", "--json")
    assert outcome.code == 0
    answer = json.loads(outcome.out)
    assert (answer["status"], answer["log_z"], answer["log_z_kind"], answer["marginals"]) == ("ok", None, "zero", None)
    for name in ("MAR", "PR", "csv", "npz"):
        outcome = run("infer", "none.uai", "-o", f"answer.{name}")
        assert (outcome.code, outcome.out) == (0, "")
        assert f"answer.{name} is not written" in outcome.err
        assert not Path(f"answer.{name}").exists()
    assert run("infer", "none.uai", "-o", "batch/").code == 0
    assert not list(Path("batch").iterdir())
    assert_refused(run("infer", "none.uai", "--method", "gibbs"), 2, "none.uai|Gibbs|gibbs")
    assert_refused(run("sample", "none.uai"), 2, "none.uai|Gibbs|gibbs")
    write_evidence({0: 0}, "given")
    assert_refused(run("infer", "none.uai", "-e", "given", "--json"), 2, "none.uai with evidence given: ")
    assert run("info", "none.uai").code == 0


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
        ("grass=wet,", 2, "evidence must be pairs"),
        ("9=0", 2, "evidence: variable must be a whole number from 0 to 2 or a name, got 9"),
        ('"grass=wet', 2, "evidence must be pairs"),
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
