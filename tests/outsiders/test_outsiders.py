"""What others add to fastmix, each in one file outside the package, is known in Python and on the command line.

The files beside this one are such additions. Each is put into a folder of its own as an installed package would be: the
file, and the line of its pyproject.toml that names the entry point. Nothing of fastmix is touched.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix import cli, io
from fastmix import method as base
from fastmix.bounds.bracket_methods import BRACKETS
from fastmix.instances import ising_grid
from fastmix.io import read_model, write_model
from fastmix.learning import LEARNING_OBJECTIVES
from fastmix.modes.routes import ROUTES
from fastmix.projection import DIVERGENCES
from fastmix.theory.criteria import CRITERIA

HERE = Path(__file__).parent
# What is added: its file, and the group, name and place of its entry point.
ADDITIONS = {
    "method": ("importance", "fastmix.methods", "importance", "Importance"),
    "bracket": ("largest_entries", "fastmix.brackets", "largest-entries", "LARGEST_ENTRIES"),
    "route": ("all_states", "fastmix.routes", "all-states", "ALL_STATES"),
    "divergence": ("weighted", "fastmix.divergences", "weighted", "Weighted"),
    "objective": ("squares", "fastmix.objectives", "squares", "Squares"),
    "criterion": ("single_pair", "fastmix.criteria", "single-pair", "SINGLE_PAIR"),
    "format": ("json_models", "fastmix.formats", "JSON", "JSON"),
}

ROWS = np.array([[0, 0, 1], [1, 1, 1], [1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 1]])

Command = Callable[..., dict[str, Any]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put one of the additions where Python finds installed packages; it is gone after the test."""
    for registry in (base.ADDED, BRACKETS, CRITERIA, DIVERGENCES, LEARNING_OBJECTIVES, ROUTES):
        monkeypatch.setattr(registry, "entries", dict(registry))
    monkeypatch.setattr(io, "FORMATS", list(io.FORMATS))
    io._load_formats.cache_clear()

    def put(kind: str) -> None:
        file, group, name, place = ADDITIONS[kind]
        site = tmp_path / "site"
        facts = site / f"{file}-1.0.dist-info"
        facts.mkdir(parents=True)
        shutil.copy(HERE / f"{file}.py", site)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {file}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(f"[{group}]\n{name} = {file}:{place}\n")
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, file, raising=False)
        importlib.invalidate_caches()

    return put


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The JSON of a command, in a folder with a model of a grid and one of a pair."""
    monkeypatch.chdir(tmp_path)
    write_model(ising_grid(3, 3, coupling_max=0.5, seed=0), "grid.npz")
    write_model(fastmix.MarkovRandomField.ising([(0, 1)], 1.5, [0.2, 0.0]), "pair.npz")

    def command(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        code = cli.run_command([*map(str, words), "--json"])
        printed = capsys.readouterr()
        assert code in (0, 1), printed.err
        answer: dict[str, Any] = json.loads(printed.out)
        return answer

    return command


def test_a_method(install: Callable[[str], None], run: Command, capsys: pytest.CaptureFixture[str]) -> None:
    install("method")
    answer = run("infer", "grid.npz", "--method", "importance", "--num-draws", 5000, "--seed", 1)
    grid = read_model("grid.npz")
    exact = fastmix.infer(grid, method="exact")
    assert (answer["type"], answer["method"], answer["status"]) == ("InferenceResult", "importance", "ok")
    assert answer["log_z"] == pytest.approx(exact.log_z, abs=0.2)
    np.testing.assert_allclose(np.concatenate(answer["marginals"]), exact.node_marginals, atol=0.1)

    assert cli.run_command(["infer", "--method", "importance", "--help"]) == 0
    assert "--num-draws" in capsys.readouterr().out
    again = fastmix.infer(grid, method="importance", num_draws=5000, seed=1)
    assert answer["log_z"] == again.log_z
    rows = fastmix.compare(grid, methods=["importance"], evidence={0: 1}, seed=1).rows
    assert ("importance", "ok") in [(row.method, row.status) for row in rows]


def test_a_bracket(install: Callable[[str], None], run: Command) -> None:
    install("bracket")
    answer = run("bracket", "grid.npz", "--method", "largest-entries")
    grid = read_model("grid.npz")
    assert answer["log_z_lower"] <= fastmix.infer(grid, method="exact").log_z <= answer["log_z_upper"]
    assert answer["methods"] == {name: answer["methods"][name] for name in ("lower", "upper", "marginals")}
    assert answer["methods"]["upper"] == "largest-entries"
    own = fastmix.bracket(grid, method="largest-entries")
    assert (own.log_z_lower, own.log_z_upper) == (answer["log_z_lower"], answer["log_z_upper"])


def test_a_route_to_the_most_probable_state(install: Callable[[str], None], run: Command) -> None:
    install("route")
    answer = run("map", "grid.npz", "--method", "all-states")
    assert (answer["method"], answer["exact"], answer["status"]) == ("all-states", True, "ok")
    assert answer["log_weight"] == pytest.approx(fastmix.most_probable(read_model("grid.npz")).log_weight)


def test_a_divergence(install: Callable[[str], None], run: Command) -> None:
    install("divergence")
    answer = run("project", "grid.npz", "--norm-bound", 0.3, "--divergence", "weighted", "-o", "near.npz")
    assert answer["divergence"] == "Weighted(power=1.0)"
    assert fastmix.certify(read_model("near.npz")).norm_value < 1.0
    assert fastmix.infer(read_model("grid.npz"), method="projected", divergence="weighted", num_sweeps=50, seed=1)


def test_a_learning_objective(install: Callable[[str], None], run: Command) -> None:
    install("objective")
    np.savetxt("rows.csv", ROWS, fmt="%d", delimiter=",")
    given = ("--validation", "rows.csv", "--ridge", "auto", "--seed", 1)
    answer = run("learn", "rows.csv", "--objective", "squares", *given, "-o", "found.npz")
    assert (answer["type"], answer["objective"], answer["status"]) == ("LearnResult", "squares", "ok")
    again = fastmix.learn(ROWS, objective="squares", ridge="auto", validation=ROWS, seed=1)
    np.testing.assert_array_equal(again.model.parameters, read_model("found.npz").parameters)
    assert answer["validation_log_likelihood"] == again.validation_log_likelihood
    within = fastmix.learn(ROWS, objective="squares", within=fastmix.NormBall("inf", 0.3), ridge=0.01)
    assert within.norms["inf"] <= 0.3
    assert within.value > again.value


def test_a_certificate(install: Callable[[str], None], run: Command) -> None:
    install("criterion")
    answer = run("certify", "pair.npz", "--criterion", "single-pair")
    assert (answer["criterion"], answer["certified"], answer["valid_for"]) == ("single-pair", True, "random")
    pair = read_model("pair.npz")
    assert fastmix.certify(pair, criterion="single-pair").num_updates == answer["num_updates"]
    with pytest.raises(fastmix.UnfitMethodError, match="single-pair"):
        fastmix.certify(read_model("grid.npz"), criterion="single-pair")


def test_a_format(install: Callable[[str], None], run: Command) -> None:
    install("format")
    assert run("convert", "grid.npz", "grid.json")["output"] == "grid.json"
    assert json.loads(Path("grid.json").read_text())["num_states"] == [2] * 9
    assert run("info", "grid.json")["num_edges"] == 12
    assert np.array_equal(read_model("grid.json").parameters, read_model("grid.npz").parameters)


@pytest.mark.parametrize("kind", ADDITIONS)
def test_what_is_not_installed_is_not_known(kind: str, run: Command) -> None:
    name = ADDITIONS[kind][2]
    grid = read_model("grid.npz")
    calls: dict[str, Callable[[], object]] = {
        "method": lambda: fastmix.infer(grid, method=name),
        "bracket": lambda: fastmix.bracket(grid, method=name),
        "route": lambda: fastmix.most_probable(grid, method=name),
        "divergence": lambda: fastmix.project(grid, norm_bound=0.3, divergence=name),
        "objective": lambda: fastmix.learn(ROWS, objective=name),
        "criterion": lambda: fastmix.certify(grid, criterion=name),
        "format": lambda: write_model(grid, "grid.json"),
    }
    with pytest.raises((ValueError, fastmix.UnfitMethodError), match=f"{kind if kind != 'format' else 'path'}|method"):
        calls[kind]()


def test_an_addition_is_one_file() -> None:
    files = {path.stem for path in HERE.glob("*.py")} - {"test_outsiders"}
    assert files == {file for file, _, _, _ in ADDITIONS.values()}
