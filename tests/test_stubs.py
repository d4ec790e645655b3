"""The stub of the package: it is current, and a type checker finds with it what is wrong in a user's script."""

import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fastmix

ROOT = Path(__file__).resolve().parent.parent

RIGHT = """
import fastmix

model = fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.5)
error = fastmix.sample(model, num_sweeps=100).std_error
sweeps = fastmix.sample(model, method="perfect", num_draws=3).num_sweeps
change = fastmix.infer(model, method="loopy-bp", damping=0.5).largest_change
rungs = fastmix.temper(model, num_replicas=4).round_trips
marginals = fastmix.infer(model, evidence={0: 1}).node_marginals
hat = fastmix.infer(model, method=fastmix.Gibbs(burn_in=10)).r_hat
data = fastmix.draw_exact(model, num_draws=10)
answers: tuple[
    fastmix.SampleResult,
    fastmix.TemperedResult,
    fastmix.InferenceResult,
    fastmix.Certificate,
    fastmix.ProjectionResult,
    fastmix.BracketResult,
    fastmix.MostProbableResult,
    fastmix.LearnResult,
    fastmix.ScoreResult,
    fastmix.Comparison,
] = (
    fastmix.sample(model),
    fastmix.temper(model),
    fastmix.infer(model, method="exact"),
    fastmix.certify(model),
    fastmix.project(model, norm_bound=0.9),
    fastmix.bracket(model),
    fastmix.most_probable(model),
    fastmix.learn(data),
    fastmix.score(model, data),
    fastmix.compare(model),
)
name: str = "gibbs"
status = fastmix.infer(model, method=name).status
edges = fastmix.graphs.grid_edges(3, 3)
"""
WRONG = (
    'fastmix.infer(model, metod="gibbs")',
    'fastmix.infer(model, method="gibbs", nun_sweeps=10)',
    'fastmix.infer(model, method="exact", num_sweeps=10)',
    "fastmix.sample(model, num_sweep=10)",
    'fastmix.sample(model, method="perfect", burn_in=10)',
    "fastmix.temper(model, replicas=4)",
    "fastmix.sample(model).largest_change",
    "fastmix.smaple(model)",
    "fastmix.bracket(model, memroy_limit=1e9)",
    "fastmix.project(model)",
    "fastmix.certify(model).num_sweep",
)


def test_the_stub_is_current() -> None:
    done = subprocess.run([sys.executable, ".ci/stubs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_begins_with_ten_verbs() -> None:
    shown = pydoc.plain(pydoc.render_doc(fastmix))
    table = re.findall(r"^ *``(\w+)`` {2,}\S", shown, flags=re.MULTILINE)
    assert len(table) == 10
    assert shown.index("``infer``") < 600
    for name in table:
        assert inspect.isfunction(getattr(fastmix, name))


def test_a_type_checker_knows_the_verbs(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(RIGHT)
    wrong = "".join(f"{call}\n" for call in WRONG)
    (tmp_path / "wrong.py").write_text(
        f"import fastmix\nmodel = fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.5)\n{wrong}"
    )
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nstrict = True\nfollow_imports = silent\nmypy_path = {ROOT / 'src'}\n")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache" / "users"), "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {line.split(":")[0] for line in lines} <= {"wrong.py"}, done.stdout
    told = {int(line.split(":")[1]) for line in lines}
    assert told == set(range(3, 3 + len(WRONG))), done.stdout
