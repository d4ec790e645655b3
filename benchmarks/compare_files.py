"""``fastmix compare`` on every UAI file of a folder, as the table in docs/comparisons.md.

    python benchmarks/compare_files.py FOLDER [--time-limit 10]

Evidence is taken from FILE.evid where it exists. Errors are against exact inference of fastmix.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fastmix import compare
from fastmix.inference.compare import Comparison
from fastmix.io import read_evidence, read_model
from fastmix.method import METHODS

SHOWN = [name for name in METHODS if name not in ("auto", "exact", "perfect")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--time-limit", type=float, default=10.0, metavar="SECONDS", help="of every method (default 10)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="files by name without suffix")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("*.uai"))
    print("| file | variables, states | exact, s | " + " | ".join(SHOWN) + " |")
    print("|---" * (3 + len(SHOWN)) + "|")
    for path in paths:
        if options.only and path.stem not in options.only:
            continue
        evidence_path = Path(f"{path}.evid")
        evidence = read_evidence(evidence_path) if evidence_path.exists() else {}
        model = read_model(path)
        result = compare(model, evidence=evidence or None, time_limit=options.time_limit, seed=1)
        states = sorted(set(model.num_states.tolist()))
        shape = f"{model.num_variables}, {states[0]}" + (f" to {states[-1]}" if len(states) > 1 else "")
        rows = {row.method: row for row in result.rows}
        exact = f"{rows['exact'].seconds:.1f}" if rows["exact"].status == "ok" else "refused"
        print(
            f"| {path.stem} | {shape} | {exact} | " + " | ".join(cell(result, name) for name in SHOWN) + " |",
            flush=True,
        )
    return 0


def cell(result: Comparison, name: str) -> str:
    row = next(row for row in result.rows if row.method == name)
    if row.mean_error is None:
        return row.status
    verdict = "" if row.status == "ok" else f" ({row.status.replace('_', ' ')})"
    return f"{row.mean_error:.4f}{verdict}"


if __name__ == "__main__":
    sys.exit(main())
