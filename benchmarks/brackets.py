"""Brackets on log Z and on marginals: how tight they are, and that none misses the truth.

Two tables. The first takes UAI files that exact inference answers, with so little memory (a share of what exact
inference needs) that brackets cannot be exact; beside them stand naive mean field and plain mini-buckets with tables of
the same size. The second takes grids, attractive and mixed; the truth is known for those up to 20x20. Widths are given
for each time limit: the bounds on log Z less the truth (or less the lower bound), and the mean width of the brackets of
all marginals. The last column says whether any bracket misses the truth.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

import fastmix
from fastmix import instances
from fastmix.bounds.terms import Terms, find_terms
from fastmix.errors import ResourceError
from fastmix.exact.search import find_order
from fastmix.exact.solver import plan_exact
from fastmix.io import read_evidence, read_model
from fastmix.results import InferenceResult

EXACT_SECONDS = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="UAI files, or folders of them")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0], help="time limits")
    parser.add_argument("--share", type=float, default=1 / 64, help="of the memory of exact inference (1/64)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 20, 32, 64, 100], help="of the grids")
    parser.add_argument("--couplings", type=float, nargs="*", default=[0.3, 1.0], help="of the grids")
    parser.add_argument("--confidence", type=float, default=None, help="tighten by draws")
    options = parser.parse_args()
    head = f"{'':24}{'n':>7}{'exact':>7}{'mean field':>12}{'mini-bucket':>12}"
    head += "".join(f"{f'{s:g} s: lower':>14}{'upper':>9}{'widths':>8}" for s in options.seconds)
    print(head + "  misses", flush=True)
    missed = 0
    files = [f for path in options.paths for f in (sorted(path.glob("*.uai")) if path.is_dir() else [path])]
    for file in files:
        beside = Path(f"{file}.evid")
        evidence = read_evidence(beside) if beside.exists() else {}
        missed += row(file.stem, read_model(file), evidence, options)
    for size in options.sizes:
        for coupling in options.couplings:
            for sign in ("attractive", "mixed"):
                model = instances.ising_grid(
                    size, size, coupling_max=coupling, field_max=0.1, attractive=sign == "attractive", seed=0
                )
                missed += row(f"{size}x{size} {sign} {coupling:g}", model, {}, options)
    print(f"{missed} brackets miss the truth")
    return 1 if missed else 0


def row(name: str, model: fastmix.MarkovRandomField, evidence: dict[int, int], options: argparse.Namespace) -> int:
    """Print the figures of one model; the number of brackets that miss the truth."""
    truth: InferenceResult | None = None
    memory: float | None = None
    try:
        plan = plan_exact(model, evidence=evidence, memory_limit=8 * 2**30)
        memory = max(1.0, plan.tree.required_bytes * options.share)
        if plan.seconds < EXACT_SECONDS:
            truth = plan.run()
    except ResourceError:
        pass
    if truth is None and name[0].isalpha():
        return 0
    zero = None if truth is None else truth.log_z
    line, missed = "", 0
    for seconds in options.seconds:
        result = fastmix.bracket(
            model, evidence=evidence, memory_limit=memory, time_limit=seconds, confidence=options.confidence, seed=0
        )
        if zero is None:
            zero = result.log_z_lower
        width = float((result.node_upper - result.node_lower).mean())
        line += f"{result.log_z_lower - zero:>14.4g}{result.log_z_upper - zero:>9.4g}{width:>8.3f}"
        line += " exact" if result.exact else ""
        if truth is not None:
            assert truth.log_z is not None
            missed += not result.log_z_lower <= truth.log_z <= result.log_z_upper
            missed += bool((result.node_lower > truth.node_marginals + 1e-9).any())
            missed += bool((result.node_upper < truth.node_marginals - 1e-9).any())
    field = math.nan
    if not model.num_factors:
        field = fastmix.mean_field(model, evidence=evidence, seed=0, time_limit=options.seconds[-1]).log_z_lower
    entries = result.stats.get("table_entries", math.nan)
    buckets = mini_buckets(find_terms(model, evidence), entries) if entries == entries else math.nan
    known = "yes" if truth is not None else "no"
    head = f"{name[:23]:24}{model.num_variables:>7}{known:>7}{field - zero:>12.4g}{buckets - zero:>12.4g}"
    print(f"{head}{line}  {missed}", flush=True)
    return missed


def mini_buckets(terms: Terms, max_entries: float) -> float:
    """The upper bound of plain mini-buckets (Dechter and Rish 2003): the first is summed, of the others the maximum."""
    states = terms.num_states
    order = find_order(states, terms.scopes, clock=fastmix._clock.Clock(5.0)).order.tolist()
    place = {v: k for k, v in enumerate(order)}
    waiting: dict[int, list[tuple[tuple[int, ...], np.ndarray]]] = {v: [] for v in order}
    for scope, table in zip(terms.scopes, terms.cut(terms.values, range(len(terms.scopes))), strict=True):
        waiting[min(scope, key=place.__getitem__)].append((scope, table.reshape([states[v] for v in scope])))
    total = terms.log_constant
    for v in order:
        groups: list[tuple[set[int], list[tuple[tuple[int, ...], np.ndarray]]]] = []
        for scope, table in sorted(waiting.pop(v), key=lambda item: -item[1].size):
            for union, members in groups:
                if math.prod([states[u] for u in union | set(scope)]) <= max_entries:
                    union |= set(scope)
                    members.append((scope, table))
                    break
            else:
                groups.append((set(scope), [(scope, table)]))
        for k, (union, members) in enumerate(groups):
            wide = tuple(sorted(union, key=place.__getitem__))  # v is the first
            joint = np.zeros([states[u] for u in wide])
            for scope, table in members:
                axes = sorted(range(len(scope)), key=lambda a, s=scope: place[s[a]])  # type: ignore[misc]
                joint = joint + table.transpose(axes).reshape([states[u] if u in scope else 1 for u in wide])
            message = np.logaddexp.reduce(joint, axis=0) if k == 0 else joint.max(axis=0)
            if len(wide) == 1:
                total += float(message)
            else:
                waiting[wide[1]].append((wide[1:], message))
    return total


if __name__ == "__main__":
    sys.exit(main())
