"""Whether a run of the experiments gives the figures and verdicts of another, or those kept in docs/data.

    fastmix experiment strength-grid -o full            # 50 trials
    python benchmarks/compare_experiments.py full       # against docs/data

    fastmix experiment all --quick -o quick             # minutes
    python benchmarks/compare_experiments.py quick docs/data/quick

Every point of every figure that both have (``NAME.csv``: mean and standard error of a curve) must agree within
``--sigmas`` standard errors of the difference, plus ``--slack``; curves that depend on seconds are counted apart. Where
both are folders of runs, rows of equal instance, method and seed are compared one by one, verdicts and the seconds of
``timing`` too. The exit code is 1 if more points disagree than chance allows.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from pathlib import Path
from typing import Any

from fastmix.experiments import EXPERIMENTS
from fastmix.experiments.figures import median_seconds, select
from fastmix.experiments.journal import Journal

Points = dict[tuple[str, str, float], tuple[float, float]]
TIMED = ("gibbs-extra",)  # depends on the seconds of this machine


def points_of(path: Path) -> Points:
    with path.open(encoding="utf-8") as stream:
        return {
            (row["panel"], row["method"], float(row["x"])): (float(row["mean"]), float(row["std_error"]))
            for row in csv.DictReader(stream)
        }


def compare_figure(ours: Points, theirs: Points, sigmas: float, slack: float) -> tuple[int, int, int, float, str]:
    """Points in common, those that disagree, those missing here, the largest difference in sigmas, and the worst."""
    bad, worst, where = 0, 0.0, ""
    common = [key for key in theirs if key in ours and key[1] not in TIMED]
    for key in common:
        (a, ea), (b, eb) = ours[key], theirs[key]
        excess = max(0.0, abs(a - b) - slack)
        ratio = excess / max(math.hypot(ea, eb), 1e-12) if excess else 0.0
        bad += ratio > sigmas
        if ratio > worst:
            worst, where = ratio, f"{key[0]}, {key[1]} at {key[2]:g}: {a:.4g} here, {b:.4g} there"
    missing = sum(key not in ours and key[1] not in TIMED for key in theirs)
    return len(common), bad, missing, worst, where


def rows_of(folder: Path, name: str) -> dict[str, Any]:
    rows = Journal(folder, name).read()
    return {
        json.dumps([row["parameters"], row["trial"], row["method"], row["seed"], row["facts"].get("num_sweeps")]): row
        for row in rows
    }


def verdicts(name: str, rows: dict[str, Any]) -> dict[str, str]:
    return {found.claim: found.verdict for found in EXPERIMENTS[name].findings(list(rows.values()))}


def seconds_ratios(ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    found = []
    for method in dict.fromkeys(row["method"] for row in theirs.values()):
        stage = "sample" if method.startswith("gibbs") else "project"
        here, there = (median_seconds(select(rows.values(), method), stage) for rows in (ours, theirs))
        if here and there:
            found.append(f"{method} {here / there:.2f}")
    return ", ".join(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the run")
    parser.add_argument("reference", type=Path, nargs="?", default=Path(__file__).parent.parent / "docs" / "data")
    parser.add_argument("--sigmas", type=float, default=4.0)
    parser.add_argument("--slack", type=float, default=1e-3, help="of the mean error, which no figure shows")
    parser.add_argument("--share", type=float, default=0.005, help="of the points that may disagree by chance")
    options = parser.parse_args()
    total = wrong = 0
    print(f"{'figure':32} {'points':>7} {'differ':>7} {'missing':>8} {'worst':>7}")
    for path in sorted(options.reference.glob("*.csv")):
        if not (options.folder / path.name).exists():
            continue
        ours = points_of(options.folder / path.name)
        count, bad, missing, worst, where = compare_figure(ours, points_of(path), options.sigmas, options.slack)
        total, wrong = total + count, wrong + bad
        print(f"{path.stem:32} {count:7} {bad:7} {missing:8} {worst:7.2f}{'  ' + where if bad else ''}")
    for name in EXPERIMENTS:
        ours_rows, their_rows = rows_of(options.folder, name), rows_of(options.reference, name)
        if ours_rows and their_rows:
            common = ours_rows.keys() & their_rows.keys()
            equal = sum(ours_rows[key]["error"] == their_rows[key]["error"] for key in common)
            print(f"{name}: {equal} of {len(common)} rows have the same error to the last digit")
            if EXPERIMENTS[name].alone:
                print("  seconds, here over there:", seconds_ratios(ours_rows, their_rows))
            here, there = verdicts(name, ours_rows), verdicts(name, their_rows)
            for claim in [claim for claim in here if here[claim] != there.get(claim)]:
                print(f"  verdict {here[claim]!r} here, {there.get(claim)!r} there: {claim}")
    if not total:
        print("no figure in common", file=sys.stderr)
        return 2
    print(f"{wrong} of {total} points differ by more than {options.sigmas:g} standard errors")
    return int(wrong > options.share * total)


if __name__ == "__main__":
    sys.exit(main())
