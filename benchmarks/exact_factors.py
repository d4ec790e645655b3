"""Exact inference on factors of any size: UAI and BIF files, whole answers with the order search.

Every file is read, and then timed in CPU seconds, one thread, best of several runs: evidence and unsupported states,
the elimination order, marginals of all variables and factors, and log Z. Beside the seconds stand the treewidth, the
memory, and the largest differences from the reference files (``.PR``: log10 Z, ``.MAR``: marginals, six digits each).
A Bayesian network without evidence must have log Z = 0.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import re
import sys
import time
from pathlib import Path

# One thread for every library that would take more; they read this when they are imported.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np
from fastmix.exact.support import Factors, drop_unsupported
from numpy.typing import NDArray

from fastmix.errors import ResourceError
from fastmix.exact.tree import plan_tree

FloatArray = NDArray[np.float64]

# To reach, in seconds.
TARGETS = {
    "ObjectDetection_11": 0.2,
    "ObjectDetection_15": 0.25,
    "ObjectDetection_22": 0.2,
    "ObjectDetection_28": 0.6,
    "Grids_11": 0.15,
    "Segmentation_11": 0.04,
    "CSP_11": 1.2,
    "Promedus_13": 0.1,
    "Promedus_24": 0.1,
    "Alchemy_11": 0.3,
    "Pedigree_11": 0.2,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path, help="UAI or BIF files, or folders of them")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="timed runs of each file (default 3)")
    parser.add_argument("--memory", type=float, default=8.0, metavar="GIB", help="memory limit (default 8)")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}")
    files = [f for path in options.paths for f in (sorted(path.iterdir()) if path.is_dir() else [path])]
    files = [f for f in files if f.suffix == ".uai" or ".bif" in f.suffixes]
    heads = f"{'plan':>7}{'width':>7}{'entries':>9}{'MiB':>7}{'log10 Z':>10}{'marginals':>11}"
    print(f"{'':20}{'seconds':>9}{'target':>8}{heads}")
    for file in files:
        run(file, options.repeat, options.memory * 2**30)
    return 0


def run(file: Path, repeat: int, memory: float) -> None:
    factors, evidence = read_uai(file) if file.suffix == ".uai" else read_bif(file)
    name = file.name.split(".")[0]
    best, planning = math.inf, math.inf
    for _ in range(repeat):
        start = time.process_time()
        support = drop_unsupported(factors, evidence)
        try:
            tree = plan_tree(support.factors, memory_limit=memory)
        except ResourceError as error:
            print(f"{name:20}{time.process_time() - start:9.3f}  {error}")
            return
        planned = time.process_time()
        answer = tree.marginals(of_factors=True)
        marginals = support.expand_marginals(answer.marginals)
        best, planning = min(best, time.process_time() - start), min(planning, planned - start)
    log10_z = (answer.log_z + support.log_constant) / math.log(10.0)
    reference = read_reference(file)
    error_z = abs(log10_z - reference[0]) if reference else abs(log10_z)
    error = max(float(np.abs(a - b).max()) for a, b in zip(marginals, reference[1], strict=True)) if reference else None
    target = TARGETS.get(name)
    print(
        f"{name:20}{best:9.3f}{'' if target is None else f'{target:g}':>8}{planning:7.3f}{tree.treewidth:7d}"
        f"{tree.order.total_entries:9.2g}{tree.required_bytes / 2**20:7.0f}{error_z:10.1e}"
        f"{'' if error is None else f'{error:.1e}':>11}  {answer.arithmetic}",
        flush=True,
    )


def read_uai(file: Path) -> tuple[Factors, dict[int, int]]:
    words = file.read_text().split()
    n = int(words[1])
    states = [int(w) for w in words[2 : 2 + n]]
    at = 3 + n
    scopes = []
    for _ in range(int(words[2 + n])):
        count = int(words[at])
        scopes.append(tuple(int(w) for w in words[at + 1 : at + 1 + count]))
        at += 1 + count
    tables = []
    for _ in scopes:
        count = int(words[at])
        tables.append(_log(np.array(words[at + 1 : at + 1 + count], dtype=np.float64)))
        at += 1 + count
    evidence_file = file.with_name(file.name + ".evid")
    numbers = [int(w) for w in evidence_file.read_text().split()] if evidence_file.exists() else []
    if len(numbers) > 1 and len(numbers) == 2 + 2 * numbers[1]:
        numbers = numbers[1:]  # a count of samples in front
    return Factors(states, scopes, tables), dict(zip(numbers[1::2], numbers[2::2], strict=False))


def read_reference(file: Path) -> tuple[float, list[FloatArray]] | None:
    partition, marginal = file.with_name(file.name + ".PR"), file.with_name(file.name + ".MAR")
    if not partition.exists() or not marginal.exists():
        return None
    words = marginal.read_text().split()[2:]
    marginals, at = [], 0
    while at < len(words):
        count = int(words[at])
        marginals.append(np.array(words[at + 1 : at + 1 + count], dtype=np.float64))
        at += 1 + count
    return float(partition.read_text().split()[1]), marginals


def read_bif(file: Path) -> tuple[Factors, dict[int, int]]:
    """Just enough for the files of the bnlearn repository; rows are normalised."""
    text = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).decode()
    names = {}
    for name, body in re.findall(r"variable\s+(\S+)\s*\{[^{]*\{([^}]*)\}", text):
        names[name] = [state.strip() for state in body.split(",")]
    number = {name: k for k, name in enumerate(names)}
    scopes, tables = [], []
    for head, body in re.findall(r"probability\s*\(([^)]*)\)\s*\{(.*?)\n\}", text, flags=re.DOTALL):
        child, _, rest = head.partition("|")
        scope = [*[w.strip() for w in rest.split(",") if w.strip()], child.strip()]
        table = np.zeros([len(names[v]) for v in scope])
        for key, values in re.findall(r"(\([^)]*\)|table)\s*([^;]*);", body):
            row = np.array([float(v) for v in values.split(",")])
            states = [] if key == "table" else [w.strip() for w in key[1:-1].split(",")]
            place = tuple(names[v].index(s) for v, s in zip(scope, states, strict=False))
            table[place] = row / row.sum()
        scopes.append(tuple(number[v] for v in scope))
        tables.append(_log(table.reshape(-1)))
    return Factors([len(states) for states in names.values()], scopes, tables), {}


def _log(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(values)


if __name__ == "__main__":
    sys.exit(main())
