"""Brackets on log Z and on marginals: how tight they are, and that none misses the truth.

    python benchmarks/brackets.py FILES_OR_FOLDERS [--jobs 16] [--json lines.jsonl]

UAI files that exact inference answers, with so little memory (a share of what exact inference needs) that brackets
cannot simply be exact, and grids, attractive and mixed, of which those up to 24x24 have a known truth. Beside them
stand naive mean field in the same time, and plain mini-buckets with tables of the size that brackets have. For each
time limit: the bounds on log Z less the truth (or less the best lower bound), and the mean width of the brackets of all
marginals. Every model and limit is a task of its own, on one thread; with ``--jobs`` they run side by side, ``--json``
keeps a line for each, and ``--table`` prints the table of such lines again.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

import fastmix
from fastmix import instances
from fastmix.bounds.reduced_tables import ReducedTables, reduce_to_tables
from fastmix.errors import ResourceError
from fastmix.exact.search import find_order
from fastmix.exact.solver import plan_exact
from fastmix.io import read_evidence, read_model

EXACT_SECONDS = 120.0
EXACT_MEMORY = 8 * 2**30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="UAI files, or folders of them")
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 10.0, 60.0], help="time limits")
    parser.add_argument("--share", type=float, default=1 / 64, help="of the memory of exact inference (1/64)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[16, 20, 32, 64, 100], help="of the grids")
    parser.add_argument("--couplings", type=float, nargs="*", default=[0.3, 1.0], help="of the grids")
    parser.add_argument("--confidence", type=float, default=None, help="tighten by draws")
    parser.add_argument("--jobs", type=int, default=1, help="tasks at a time")
    parser.add_argument("--json", type=Path, help="file for one line of JSON for every task")
    parser.add_argument("--table", type=Path, help="print the table of such a file and do nothing else")
    options = parser.parse_args()
    if options.table:
        return show([json.loads(line) for line in options.table.read_text().splitlines()])
    files = [f for path in options.paths for f in (sorted(path.glob("*.uai")) if path.is_dir() else [path])]
    sources: list[tuple[Any, ...]] = [(str(file),) for file in files]
    sources += [
        (size, coupling, sign)
        for size in options.sizes
        for coupling in options.couplings
        for sign in ("attractive", "mixed")
    ]
    tasks = [(s, t, options.share, options.confidence) for t in sorted(options.seconds, reverse=True) for s in sources]
    lines = []
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for line in pool.imap_unordered(measure, tasks):
            lines.append(line)
            print(f"{len(lines)} of {len(tasks)}: {line['name']}, {line['limit']:g} s", file=sys.stderr, flush=True)
            if options.json:
                with options.json.open("a") as out:
                    out.write(json.dumps(line) + "\n")
    return show(lines)


def load(source: tuple[Any, ...]) -> tuple[str, fastmix.MarkovRandomField, dict[int, int]]:
    """Name, model and evidence."""
    if len(source) == 1:
        file = Path(source[0])
        beside = Path(f"{file}.evid")
        return file.stem, read_model(file), read_evidence(beside) if beside.exists() else {}
    size, coupling, sign = source
    model = instances.ising_grid(
        size, size, coupling_max=coupling, field_max=0.1, attractive=sign == "attractive", seed=0
    )
    return f"{size}x{size} {sign} {coupling:g}", model, {}


def measure(task: tuple[tuple[Any, ...], float, float, float | None]) -> dict[str, Any]:
    """The figures of one model with one limit."""
    source, limit, share, confidence = task
    name, model, evidence = load(source)
    line: dict[str, Any] = {"name": name, "limit": limit, "n": model.num_variables, "truth": None}
    memory = truth = None
    try:
        plan = plan_exact(model, evidence=evidence, memory_limit=EXACT_MEMORY)
        memory = max(1.0, plan.elimination.required_bytes * share)
        if plan.seconds < EXACT_SECONDS:
            truth = plan.run()
            line["truth"] = truth.log_z
    except ResourceError:
        if len(source) == 1:
            return line
    began = time.perf_counter()
    result = fastmix.bracket(
        model, evidence=evidence, memory_limit=memory, time_limit=limit, confidence=confidence, seed=0, progress=None
    )
    line["seconds"] = time.perf_counter() - began - result.stats.get("compile_seconds", 0.0)
    widths = result.node_upper - result.node_lower
    line |= {
        "memory": memory, "lower": finite(result.log_z_lower), "upper": finite(result.log_z_upper),
        "exact": result.exact,
        "width": float(widths.mean()), "informative": float((widths < 0.5).mean()), "methods": dict(result.methods),
        "stats": {k: v for k, v in result.stats.items() if isinstance(v, int | float | str)}, "missed": 0,
    }  # fmt: skip
    if truth is not None and truth.log_z is not None:
        room = 1e-11 * (1.0 + abs(truth.log_z))  # of what it is compared with
        line["missed"] += not result.log_z_lower - room <= truth.log_z <= result.log_z_upper + room
        line["missed"] += int((result.node_lower > truth.node_marginals + 1e-9).sum())
        line["missed"] += int((result.node_upper < truth.node_marginals - 1e-9).sum())
    try:
        field = fastmix.mean_field(model, evidence=evidence, seed=0, time_limit=limit, progress=None)
        line["mean_field"] = finite(field.log_z_lower)
    except (ValueError, fastmix.FastmixError):
        line["mean_field"] = None
    entries = result.stats.get("table_entries", (memory or 0.0) / 24.0 / model.num_variables)
    line["mini_bucket"] = finite(mini_buckets(reduce_to_tables(model, evidence), max(4.0, entries)))
    return line


def finite(value: float) -> float | None:
    """None for what JSON has no number for."""
    return value if math.isfinite(value) else None


def show(lines: list[dict[str, Any]]) -> int:
    """Print the table; 1 if a bracket misses the truth."""
    limits = sorted({line["limit"] for line in lines})
    print(
        "| model | n | mean field | mini-bucket |"
        + "".join(f" {t:g} s: log Z | widths |" for t in limits)
        + " missed |"
    )
    print("|---" * (5 + 2 * len(limits)) + "|")
    missed = 0
    for name in sorted({line["name"] for line in lines}, key=[line["name"] for line in lines].index):
        own = {line["limit"]: line for line in lines if line["name"] == name}
        if any("lower" not in line for line in own.values()):
            continue
        last = own[max(own)]
        zero = last["truth"]
        if zero is None:
            zero = max((line["lower"] for line in own.values() if line["lower"] is not None), default=0.0)
        cells = [name, f"{last['n']:,}" + ("" if last["truth"] is not None else ", no truth")]
        cells += [away(last[key], zero) for key in ("mean_field", "mini_bucket")]
        for limit in limits:
            line = own.get(limit)
            if line is None:
                cells += ["", ""]
                continue
            bounds = f"{away(line['lower'], zero)} / {away(line['upper'], zero)}"
            cells += ["exact" if line["exact"] else bounds, f"{line['width']:.3g}"]
        missed += sum(line["missed"] for line in own.values())
        print("| " + " | ".join([*cells, str(sum(line["missed"] for line in own.values()))]) + " |")
    print(
        f"{missed} bounds miss the truth; longest over its limit: "
        f"{max((line['seconds'] - line['limit'] for line in lines if 'seconds' in line), default=0.0):.2f} s"
    )
    return 1 if missed else 0


def away(value: float | None, zero: float) -> str:
    """A bound less the truth."""
    return "none" if value is None else f"{value - zero:+.3g}"


def mini_buckets(tables: ReducedTables, max_entries: float) -> float:
    """The upper bound of plain mini-buckets (Dechter and Rish 2003): the first is summed, of the others the maximum."""
    states = tables.num_states
    order = find_order(states, tables.scopes, clock=fastmix._clock.Clock(5.0)).order.tolist()
    place = {v: k for k, v in enumerate(order)}
    waiting: dict[int, list[tuple[tuple[int, ...], np.ndarray]]] = {v: [] for v in order}
    for scope, table in zip(tables.scopes, tables.split(tables.values, range(len(tables.scopes))), strict=True):
        waiting[min(scope, key=place.__getitem__)].append((scope, table.reshape([states[v] for v in scope])))
    total = tables.log_constant
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
