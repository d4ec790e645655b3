"""``infer`` with its automatic choice on UAI files: mean error against MAR, status, method and seconds of each.

Every file has a time limit (10 s by default, compiling not counted) and the evidence and reference beside it
(``.evid``, ``.MAR``). The error of a file is the mean over all states of the absolute difference; where it is above
0.01 and the status is ``ok``, the answer was wrong and called right: the exit code is then 1.

    python benchmarks/uai_auto.py FOLDER [FOLDER ..] [--time-limit 10]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from fastmix import FastmixError, infer
from fastmix.io import read_evidence, read_mar, read_model

WRONG = 0.01  # mean error, from which an answer is not right


def main() -> int:
    """Print a line for every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--time-limit", type=float, default=10.0, metavar="SECONDS")
    options = parser.parse_args()
    files = [path for folder in options.folders for path in sorted(folder.glob("*.uai"))]
    print(f"{'':20} {'method':>10} {'status':>14} {'mean error':>10} {'max error':>9} {'seconds':>8}")
    wrong = 0
    for path in files:
        beside = path.with_name(path.name + ".evid")
        evidence = read_evidence(beside) if beside.exists() else {}
        reference = np.concatenate(read_mar(path.with_name(path.name + ".MAR")))
        model = read_model(path)
        start = time.perf_counter()
        try:
            result = infer(model, evidence=evidence, time_limit=options.time_limit, seed=0, progress=None)
        except FastmixError as error:
            print(f"{path.stem:20} {type(error).__name__}: {error}", flush=True)
            continue
        errors = np.abs(result.node_marginals - reference)
        seconds = time.perf_counter() - start - float(result.stats.get("compile_seconds", 0.0))
        bad = result.status == "ok" and errors.mean() > WRONG
        wrong += bad
        row = f"{path.stem:20} {result.method:>10} {result.status:>14} {errors.mean():>10.2g} {errors.max():>9.2g}"
        print(f"{row} {seconds:>8.2f}{'  wrong' if bad else ''}", flush=True)
    print(f"{len(files)} files, {wrong} ok and wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
