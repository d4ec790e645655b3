from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from fastmix.experiments import Settings
from fastmix.experiments.figures import Line, line_of, mean_and_error, select
from fastmix.experiments.findings import (
    euclidean_converges_quickly,
    gibbs_and_loopy_bp_excel_on_mixed_potts,
    infinity_norm_is_faster,
    piecewise_wins_on_attractive_potts,
    projected_sampling_converges_on_photographs,
    projection_is_competitive,
    swendsen_wang_mixes_on_photographs,
)
from fastmix.experiments.synthetic import extra_sweeps, gibbs_with_extra_effort, samples_panel, strength_panel

sys.path.insert(0, str(Path(__file__).parent))
from made_up import made_up_rows

SETTINGS = Settings(trials=4, quick=True)


def photographs(traces: dict[str, list[list[float]]], **facts: float) -> list[dict]:
    return [
        {
            "method": method, "parameters": {}, "trial": 0, "failure": None, "trace": trace, "error": trace[-1][1],
            "facts": {"num_sweeps": trace[-1][0], **facts}, "seconds": {},
        }
        for method, trace in traces.items()
    ]  # fmt: skip


# -- verdicts go both ways ------------------------------------------------------------------------------------------


def test_competitive() -> None:
    good = made_up_rows("strength-grid", SETTINGS, {"reversed-kl": 0.05, "loopy-bp": 0.1})
    assert [f.verdict for f in projection_is_competitive(good, "grids")] == ["reproduced"] * 2
    bad = made_up_rows("strength-grid", SETTINGS, {"gibbs": 0.01})
    assert [f.verdict for f in projection_is_competitive(bad, "grids")] == ["not reproduced"] * 2
    assert "Gibbs 0.010" in projection_is_competitive(bad, "grids")[0].evidence


def test_piecewise_on_potts() -> None:
    rows = made_up_rows("potts", SETTINGS, {"piecewise": 0.05})
    assert piecewise_wins_on_attractive_potts(rows).verdict == "reproduced"
    rows = made_up_rows("potts", SETTINGS, {"piecewise": 0.15})
    assert piecewise_wins_on_attractive_potts(rows).verdict == "not reproduced"
    rows = made_up_rows("potts", SETTINGS)
    assert piecewise_wins_on_attractive_potts(rows).verdict == "undecided"  # a draw


def test_a_method_that_fails_where_it_is_hard_gains_nothing() -> None:
    rows = made_up_rows("potts", SETTINGS)
    for row in rows:
        hard = row["parameters"]["strength"] == 4.0
        row["error"] = (0.5 if hard else 0.1) * (0.9 if row["method"] == "gibbs" else 1.0)
        if hard and row["method"] == "piecewise":
            row["failure"], row["error"] = "ResourceError: too hard", None
    found = piecewise_wins_on_attractive_potts(rows)
    assert found.verdict == "not reproduced"  # on what both have answered, Gibbs is the better one
    assert "Gibbs 0.090" in found.evidence


def test_gibbs_and_loopy_bp_on_potts() -> None:
    rows = made_up_rows("potts", SETTINGS, {"gibbs": 0.01, "loopy-bp": 0.02})
    assert gibbs_and_loopy_bp_excel_on_mixed_potts(rows).verdict == "reproduced"
    rows = made_up_rows("potts", SETTINGS, {"gibbs": 0.01, "loopy-bp": 0.2})
    assert gibbs_and_loopy_bp_excel_on_mixed_potts(rows).verdict == "not reproduced"


def test_norms() -> None:
    rows = made_up_rows("norms", SETTINGS)
    assert infinity_norm_is_faster(rows, rows).verdict == "not reproduced"  # equally fast
    for row in rows:
        if row["method"].endswith("-spectral"):
            row["seconds"] = {"project": 40.0}
    found = infinity_norm_is_faster(rows, rows)
    assert found.verdict == "reproduced"
    assert "Euclidean 20.0 times" in found.evidence
    for row in rows:
        if row["method"].endswith("-spectral"):
            row["error"] = 0.01
    assert infinity_norm_is_faster(rows, rows).verdict == "not reproduced"  # at too high a price


def test_iterations() -> None:
    for count, verdict in ((5, "reproduced"), (40, "not reproduced")):
        rows = made_up_rows("timing", SETTINGS, inner_iterations=count, iterations=7)
        assert euclidean_converges_quickly(rows).verdict == verdict


def test_photographs() -> None:
    settled = {"euclidean": [[100, 0.5], [10_000, 0.2], [30_000, 0.199]]}
    moving = {"euclidean": [[100, 0.5], [10_000, 0.3], [30_000, 0.1]]}
    slow = {"gibbs-long": [[10_000, 0.5], [1_000_000, 0.3]]}
    fast = {"gibbs-long": [[10_000, 0.0101], [1_000_000, 0.01]]}
    verdicts = [f.verdict for f in projected_sampling_converges_on_photographs(photographs({**settled, **slow}))]
    assert verdicts == ["reproduced", "reproduced"]
    verdicts = [f.verdict for f in projected_sampling_converges_on_photographs(photographs({**moving, **fast}))]
    assert verdicts == ["not reproduced", "not reproduced"]
    for error, verdict in ((0.01, "reproduced"), (0.2, "not reproduced")):
        rows = photographs({"swendsen-wang": [[1000, error]]}, truth_error=0.004)
        assert swendsen_wang_mixes_on_photographs(rows).verdict == verdict


@pytest.mark.parametrize(
    "verdict",
    [
        lambda rows: projection_is_competitive(rows, "grids")[0],
        euclidean_converges_quickly,
        lambda rows: infinity_norm_is_faster(rows, rows),
        piecewise_wins_on_attractive_potts,
        gibbs_and_loopy_bp_excel_on_mixed_potts,
        lambda rows: projected_sampling_converges_on_photographs(rows)[1],
        swendsen_wang_mixes_on_photographs,
    ],
)
def test_nothing_is_claimed_without_rows(verdict: object) -> None:
    assert verdict([]).verdict == "undecided"  # type: ignore[operator]


def test_one_trial_decides_nothing() -> None:
    rows = made_up_rows("potts", Settings(trials=1, quick=True), {"piecewise": 0.01})
    assert piecewise_wins_on_attractive_potts(rows).verdict == "undecided"


# -- averages and curves --------------------------------------------------------------------------------------------


def test_mean_and_standard_error() -> None:
    values = np.random.default_rng(0).random(50)
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(50))
    assert mean_and_error(values[:1]) == (values[0], 0.0)
    assert np.isnan(mean_and_error(values[:0])).all()


def test_lines_leave_out_what_is_missing() -> None:
    assert line_of("gibbs", [(1.0, 0.5, 0.1), (2.0, np.nan, np.nan)]) == Line("gibbs", (1.0,), (0.5,), (0.1,))
    assert line_of("gibbs", [(2.0, np.nan, np.nan)]) is None


def test_failures_are_left_out() -> None:
    rows = made_up_rows("strength-grid", SETTINGS)
    before = len(select(rows, "gibbs"))
    next(row for row in rows if row["method"] == "gibbs")["failure"] = "ValueError: no"
    assert len(select(rows, "gibbs")) == before - 1


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
    rows = made_up_rows("strength-grid", SETTINGS)
    methods = ["mean-field", "gibbs", "gibbs-long", "reversed-kl"]
    here = select(rows, kind="mixed")
    panel = strength_panel("title", here, methods)
    assert [line.method for line in panel.lines] == [*methods, "gibbs-extra"]
    assert list(panel.lines[0].x) == [0.0, 1.0, 2.0, 3.0, 4.0]
    panel = samples_panel("title", select(here, strength=1.0), methods)
    assert [line.method for line in panel.lines] == [*methods, "gibbs-extra"]
    assert list(panel.lines[0].x) == [1.0, 100_000.0]  # no sweeps: a level line
    assert len(panel.lines[2].x) == 3
