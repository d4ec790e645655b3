from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.figures import (
    extra_sweeps,
    gibbs_with_extra_effort,
    mean_and_error,
    samples_panel,
    select,
    strength_panel,
)

sys.path.insert(0, str(Path(__file__).parent))
from experiment_helpers import made_up_rows

SETTINGS = Settings(num_trials=4, quick=True)


def verdicts(name: str, rows: list[Any]) -> list[str]:
    return [found.verdict for found in EXPERIMENTS[name].findings(rows)]


def evidence(name: str, rows: list[Any]) -> str:
    return " ".join(found.evidence for found in EXPERIMENTS[name].findings(rows))


# -- verdicts go both ways ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["strength-grid", "strength-random"])
def test_competitive(name: str) -> None:
    good = made_up_rows(name, SETTINGS, {"reversed-kl": 0.05, "loopy-bp": 0.1})
    assert verdicts(name, good)[:2] == ["reproduced"] * 2
    bad = made_up_rows(name, SETTINGS, {"gibbs": 0.01})
    assert verdicts(name, bad)[:2] == ["not reproduced"] * 2
    assert "Gibbs 0.010" in evidence(name, bad)


def test_our_default_is_told_beside_what_the_paper_says() -> None:
    settings = Settings(num_trials=10, kinds=("attractive",), methods=("gibbs", "loopy-bp", "reversed-kl-default"))
    rows = made_up_rows("strength-grid", settings, {"reversed-kl-default": 0.05, "gibbs": 0.2})
    paper, ours = EXPERIMENTS["strength-grid"].findings(rows)
    assert (paper.num_trials, ours.kind) == (0, "reproduced")
    worse = made_up_rows("strength-grid", settings, {"reversed-kl-default": 0.3})
    assert EXPERIMENTS["strength-grid"].findings(worse)[1].kind == "not reproduced"


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ({"piecewise": 0.05}, ["reproduced", "not reproduced"]),
        ({"piecewise": 0.15}, ["not reproduced", "undecided"]),
        ({}, ["undecided", "undecided"]),  # a draw
        ({"gibbs": 0.01, "loopy-bp": 0.02}, ["not reproduced", "reproduced"]),
        ({"gibbs": 0.2, "loopy-bp": 0.02}, ["undecided", "not reproduced"]),
    ],
)
def test_potts(errors: dict[str, float], expected: list[str]) -> None:
    rows = made_up_rows("potts", SETTINGS, errors)
    found = verdicts("potts", rows)
    if "gibbs" in errors:
        assert found[1] == expected[1]
    else:
        assert found[0] == expected[0]


def test_a_method_that_fails_where_it_is_hard_gains_nothing() -> None:
    rows = made_up_rows("potts", SETTINGS)
    for row in rows:
        hard = row["parameters"]["strength"] == 4.0
        row["error"] = (0.5 if hard else 0.1) * (0.9 if row["method"] == "gibbs" else 1.0)
        if hard and row["method"] == "piecewise":
            row["failure"], row["error"] = "ResourceError: too hard", None
    assert verdicts("potts", rows)[0] == "not reproduced"  # on what both have answered, Gibbs is the better one
    assert "Gibbs 0.090" in evidence("potts", rows)


def test_norms() -> None:
    rows = made_up_rows("norms", SETTINGS)
    assert verdicts("norms", rows) == ["not reproduced"]  # equally fast
    spectral = [row for row in rows if row["method"].endswith("-spectral")]
    for row in spectral:
        row["seconds"] = {"project": 40.0}
    assert verdicts("norms", rows) == ["reproduced"]
    assert "Euclidean 20.0 times" in evidence("norms", rows)
    for row in spectral:
        row["error"] = 0.01
    assert verdicts("norms", rows) == ["not reproduced"]  # at too high a price


def test_iterations() -> None:
    for count, verdict in ((5, "reproduced"), (40, "not reproduced")):
        rows = made_up_rows("timing", SETTINGS, inner_iterations=count, iterations=7)
        assert verdicts("timing", rows) == [verdict]


def test_photographs() -> None:
    settled, moving = [[100, 0.5], [10_000, 0.2], [30_000, 0.199]], [[100, 0.5], [10_000, 0.3], [30_000, 0.1]]
    slow, fast = [[10_000, 0.5], [1_000_000, 0.3]], [[10_000, 0.0101], [1_000_000, 0.01]]
    for traces, verdict in (
        ((settled, slow, [[1000, 0.01]]), "reproduced"),
        ((moving, fast, [[1000, 0.2]]), "not reproduced"),
    ):
        rows = [
            {
                "method": method, "parameters": {}, "trial": 0, "failure": None, "trace": trace, "error": trace[-1][1],
                "facts": {"num_sweeps": trace[-1][0], "truth_error": 0.004}, "seconds": {},
            }
            for method, trace in zip(("euclidean", "gibbs-long", "swendsen-wang"), traces, strict=True)
        ]  # fmt: skip
        assert verdicts("denoise", rows) == [verdict] * 3


def test_nothing_is_claimed_from_too_little() -> None:
    for name in EXPERIMENTS:
        assert set(verdicts(name, [])) <= {"undecided"}
    rows = made_up_rows("potts", Settings(num_trials=1, quick=True), {"piecewise": 0.01})
    assert verdicts("potts", rows) == ["undecided"] * 2
    rows = made_up_rows("potts", Settings(num_trials=4, quick=True, methods=("gibbs", "euclidean")))
    assert verdicts("potts", rows) == ["undecided"] * 2


def test_few_trials_are_a_hint() -> None:
    findings = EXPERIMENTS["potts"].findings
    for trials, label in ((4, "a hint: reproduced in 4 trials"), (12, "reproduced, from 12 trials")):
        rows = made_up_rows("potts", Settings(num_trials=trials, quick=True), {"piecewise": 0.05})
        assert (findings(rows)[0].num_trials, findings(rows)[0].label) == (trials, label)
    rows = made_up_rows("norms", Settings(num_trials=3, quick=True))
    assert EXPERIMENTS["norms"].findings(rows)[0].label == "a hint: not reproduced in 3 trials"


# -- averages and curves --------------------------------------------------------------------------------------------


def test_mean_and_standard_error() -> None:
    values = np.random.default_rng(0).random(50)
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(50))
    assert mean_and_error(values[:1]) == (values[0], 0.0)


def test_failures_and_points_without_rows_are_left_out() -> None:
    rows = made_up_rows("strength-grid", SETTINGS)
    before = len(select(rows, "gibbs"))
    for row in select(rows, "gibbs", strength=2.0):
        row["failure"] = "ValueError: no"
    assert len(select(rows, "gibbs")) == before - 8
    points = strength_panel("title", rows, ["gibbs", "swendsen-wang"]).curves["gibbs"]
    assert [x for x, *_ in points] == [0.0, 1.0, 3.0, 4.0]
    assert not strength_panel("title", select(rows, "gibbs"), ["swendsen-wang"]).curves


def test_extra_effort_is_the_time_of_the_projection() -> None:
    rows = made_up_rows("strength-grid", SETTINGS)
    # The projection takes 2 s, the long run 1 s for 100,000 sweeps.
    assert extra_sweeps(rows) == pytest.approx(200_000)
    for row in rows:
        if row["method"] == "reversed-kl":
            row["seconds"]["project"] = 0.0005
    assert extra_sweeps(rows) == pytest.approx(50)
    here = select(rows, kind="mixed", strength=1.0)
    values = gibbs_with_extra_effort(here, [50.0, 1e9])
    trace = next(row["trace"] for row in here if row["method"] == "gibbs-long")
    assert values[0, 0] == pytest.approx(trace[1][1])  # 50 and 50 more are the 100 of the trace
    assert values[0, 1] == pytest.approx(trace[2][1])
    assert extra_sweeps([]) is None


def test_panels_have_every_method_and_the_extra_curve() -> None:
    methods = ["mean-field", "gibbs", "gibbs-long", "reversed-kl"]
    here = select(made_up_rows("strength-grid", SETTINGS), kind="mixed")
    panel = strength_panel("title", here, methods)
    assert list(panel.curves) == [*methods, "gibbs-extra"]
    assert [x for x, *_ in panel.curves["mean-field"]] == [0.0, 1.0, 2.0, 3.0, 4.0]
    panel = samples_panel("title", select(here, strength=1.0), methods)
    assert list(panel.curves) == [*methods, "gibbs-extra"]
    assert [x for x, *_ in panel.curves["mean-field"]] == [1.0, 100_000.0]  # no sweeps: a level line
    assert len(panel.curves["gibbs-long"]) == 3


# -- two runs compared ----------------------------------------------------------------------------------------------


def test_comparison_of_runs_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, data = (Path(__file__).parents[2] / path for path in ("benchmarks/compare_experiments.py", "docs/data"))
    header, *lines = (data / "strength-grid.csv").read_text().splitlines()
    for factor, code in ((1.0, 0), (1.5, 1)):
        changed = [header]
        for line in lines:
            *start, mean, error = line.split(",")
            wrong = factor if "reversed-kl" in start else 1.0
            changed.append(",".join([*start, str(wrong * float(mean)), error]))
        (tmp_path / "strength-grid.csv").write_text("\n".join(changed))
        monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path)])
        with pytest.raises(SystemExit) as done:
            runpy.run_path(str(script), run_name="__main__")
        assert int(done.value.code or 0) == code
