"""One object for progress, and a bar on stderr for those who watch."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField, Progress, _clock, infer, project
from fastmix._clock import listening
from fastmix.instances import ising_grid

TINY = MarkovRandomField.ising([(0, 1)], coupling=0.3)


def test_text_of_a_report():
    report = Progress(300, 1200, "sweeps", 2.5e8, 3.0, "gibbs")
    assert str(report) == "gibbs: 300 of 1,200 sweeps, 2.5e+08 updates/s, 9 s left"
    assert str(Progress(3, 9, "methods", 0.01, 300.0, "compare")) == "compare: 3 of 9 methods, 10.0 min left"
    assert str(Progress(3, None, "rows", 0.0, 0.0, "x")) == "x: 3 rows"


def test_what_may_be_asked_for():
    told: list[Progress] = []
    for progress in ("auto", None, told.append):
        infer(TINY, method="loopy-bp", progress=progress)
    assert {report.unit for report in told} == {"iterations"}
    with pytest.raises(ValueError, match="progress"):
        infer(TINY, progress=3)


def reported_units(tree: ast.Module) -> set[str]:
    """Units that a module gives to ``Clock.report(done, total, unit)``."""
    found = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "report"):
            continue
        for unit in node.args[2:3]:
            choices = [unit.body, unit.orelse] if isinstance(unit, ast.IfExp) else [unit]
            found |= {str(choice.value) for choice in choices if isinstance(choice, ast.Constant)}
    return found


def test_the_documented_units_are_those_that_are_reported():
    code = "clock.report(k, None, 'rounds' if 'gap' in entry else 'cases')"
    assert reported_units(ast.parse(code)) == {"rounds", "cases"}
    source = Path(fastmix.__file__).parent
    reported = set().union(*(reported_units(ast.parse(path.read_text())) for path in source.rglob("*.py")))
    text = inspect.cleandoc(Progress.__doc__).partition("unit : str")[2].partition("per_second")[0]
    assert set(re.findall(r"``([^`]+)``", " ".join(text.split()))) == reported


def test_projections_tell_how_far_they_have_come():
    model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    for divergence, unit, total in (("reversed-kl", "iterations", 60), ("euclidean", "iterations", None)):
        told: list[Progress] = []
        project(model, norm_bound=0.5, norm="spectral", divergence=divergence, seed=1, tol=1e-9, progress=told.append)
        assert {(report.unit, report.total, report.what) for report in told} == {(unit, total, "projection")}
        assert [report.done for report in told] == sorted(report.done for report in told)
    with pytest.raises(ValueError, match="progress"):
        project(model, norm_bound=0.5, progress=3)


def test_nothing_is_loaded_where_nobody_watches():
    code = "import fastmix, sys, time\n"
    code += "from fastmix import _clock\n_clock.BAR_DELAY = 0.0\n"
    code += "model = fastmix.MarkovRandomField.ising([(0, 1)], coupling=0.3)\n"
    code += "fastmix.infer(model, method='loopy-bp')\nassert 'rich' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("seconds", [0.0, 0.6])
def test_a_bar_appears_for_long_calls_only(seconds, monkeypatch, capsys):
    monkeypatch.setattr(_clock, "bar_shown", lambda: True)
    monkeypatch.setattr(_clock, "BAR_DELAY", 0.2)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with listening("auto", "work") as tell:
        assert tell is not None
        tell(Progress(1, 4, "rows", 2.0, 0.5, "wo\x1brk"))
        time.sleep(seconds)
        tell(Progress(2, 4, "rows", 2.0, 1.0, "wo\x1brk"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("of 4 rows" in shown.err) == (seconds > 0)
    assert "wo\x1brk" not in shown.err


def test_without_a_terminal_lines_go_to_the_log(monkeypatch, caplog):
    monkeypatch.setattr(_clock, "bar_shown", lambda: False)
    monkeypatch.setattr(_clock, "LOG_SECONDS", 0.05)
    with caplog.at_level("INFO", logger="fastmix"), listening("auto", "work") as tell:
        assert tell is not None
        tell(Progress(1, 4, "rows", 2.0, 0.5, "wo\x1brk"))
        with listening("auto", "inner") as inner:
            assert inner is None
        time.sleep(0.5)
    count = len(caplog.records)
    assert count > 1
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert "1 of 4 rows" in caplog.text
    assert "\x1b" not in caplog.text
    time.sleep(0.2)
    assert len(caplog.records) == count
    with caplog.at_level("WARNING", logger="fastmix"), listening("auto", "work") as tell:
        assert tell is None


def test_a_call_within_another_has_no_bar_of_its_own(monkeypatch):
    monkeypatch.setattr(_clock, "bar_shown", lambda: True)
    for outer in ("auto", None):
        with listening(outer, "outer") as one, listening("auto", "inner") as two:
            assert (one is None, two) == (outer is None, None)
    with listening("auto", "alone") as one:
        assert one is not None


ROWS = np.random.default_rng(0).integers(0, 2, (30, 2))
CALLS = {
    "infer": lambda: infer(TINY),
    "infer, bracket": lambda: infer(TINY, bracket=True, time_limit=1.0),
    "sample": lambda: fastmix.sample(TINY),
    "temper": lambda: fastmix.temper(TINY),
    "anneal": lambda: fastmix.anneal(TINY),
    "perfect_sample": lambda: fastmix.perfect_sample(TINY),
    "loopy_bp": lambda: fastmix.loopy_bp(TINY),
    "mean_field": lambda: fastmix.mean_field(TINY),
    "draw_exact": lambda: fastmix.draw_exact(TINY, num_draws=1),
    "project": lambda: project(TINY, norm_bound=0.1),
    "project, width": lambda: project(TINY, norm_bound=0.1, norm="width"),
    "certify": lambda: fastmix.certify(TINY, accuracy=0.01),
    "bracket": lambda: fastmix.bracket(TINY),
    "most_probable": lambda: fastmix.most_probable(TINY),
    "compare": lambda: fastmix.compare(TINY, methods=["mean-field"]),
    "learn": lambda: fastmix.learn(ROWS),
    "score": lambda: fastmix.score(TINY, ROWS),
    "denoise": lambda: fastmix.denoising.denoise(np.random.default_rng(0).random((4, 4))),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_is_the_same_exception_of_every_call(name, monkeypatch):
    """Wherever it comes: a loop over models that catches errors of fastmix stops, and can ask for a result."""

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    # All calls make a clock first, in the scope where whoever listens is known.
    monkeypatch.setattr(_clock.Clock, "__init__", interrupt)
    with pytest.raises(fastmix.Interrupted) as stopped:
        CALLS[name]()
    assert stopped.value.result is None
    assert not isinstance(stopped.value, fastmix.FastmixError)
