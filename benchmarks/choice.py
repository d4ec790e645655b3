"""Does ``auto`` choose well? Errors of every method at the same time limit, on families of models that users bring.

    python benchmarks/choice.py [--limit 10] [--reference 100] [--families picture ...] [--processes 2]

Every method gets the limit (seconds, on one thread); the error is the mean difference of the marginals from a
reference: exact where that is feasible, otherwise the mean of two long runs by the two methods that say of themselves
that they mixed, or are the least in doubt. ``noise`` is the mean difference between those two: errors below it are not
told apart. The last column says what ``auto`` took, and how many times the error of the best method it had.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np

import fastmix
from fastmix import FastmixError, MarkovRandomField, graphs
from fastmix.instances import ising_grid, potts_grid

METHODS = ("gibbs", "swendsen-wang", "tempered", "projected", "loopy-bp", "mean-field")


def picture(rows: int, cols: int, labels: int, *, contrast: bool, weight: float) -> MarkovRandomField:
    """A noisy picture of patches to be labeled: strong unaries, Potts couplings that are weaker across edges."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:rows, :cols]
    field = np.sin(x / 17.0) + np.cos(y / 11.0 + x / 40.0)
    truth = np.digitize(field, np.quantile(field, np.arange(1, labels) / labels))
    gray = truth / (labels - 1) + rng.normal(scale=0.35, size=truth.shape)
    unary = -((gray[..., None] - np.arange(labels) / (labels - 1)) ** 2) / (2.0 * 0.2**2)
    edges = graphs.grid_edges(rows, cols)
    flat = gray.reshape(-1)
    strength = weight * np.exp(-2.0 * (flat[edges[:, 0]] - flat[edges[:, 1]]) ** 2) if contrast else weight
    tables = np.eye(labels) * np.broadcast_to(strength, len(edges))[:, None, None]
    return MarkovRandomField.from_tables(list(unary.reshape(-1, labels)), edges, list(tables))


def blocks(rows: int, cols: int, labels: int, *, noise: float, signal: float, weight: float) -> MarkovRandomField:
    """Blocks of labels under normal noise: each label has a score, that of the true one is larger."""
    rng = np.random.default_rng(4)
    side = 20
    truth = rng.integers(0, labels, (rows // side + 1, cols // side + 1)).repeat(side, 0).repeat(side, 1)[:rows, :cols]
    scores = rng.normal(scale=noise, size=(rows, cols, labels)) + signal * np.eye(labels)[truth]
    weights = rng.uniform(0.5, 1.5, len(graphs.grid_edges(rows, cols)))
    return MarkovRandomField.image(scores, weight, weights=weights)


def detection(num_variables: int, num_states: int, scale: float) -> MarkovRandomField:
    """Few variables of many states, all pairs coupled by random tables, as in object detection."""
    rng = np.random.default_rng(1)
    edges = graphs.complete_edges(num_variables)
    unary = rng.normal(scale=2.0, size=(num_variables, num_states))
    tables = rng.normal(scale=scale, size=(len(edges), num_states, num_states))
    return MarkovRandomField.from_tables(list(unary), edges, list(tables))


def normal(edges: Any, scale: float, field: float = 0.3) -> MarkovRandomField:
    rng = np.random.default_rng(2)
    n = int(np.max(edges)) + 1
    return MarkovRandomField.ising(edges, rng.normal(scale=scale, size=len(edges)), rng.normal(scale=field, size=n))


def sparse(num_variables: int, degree: float, scale: float) -> MarkovRandomField:
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, num_variables, size=(int(num_variables * degree / 2), 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    pairs = np.vstack([pairs, [[0, num_variables - 1]]]) if pairs.max() < num_variables - 1 else pairs
    return normal(pairs, scale)


FAMILIES: dict[str, Callable[[], MarkovRandomField]] = {
    "picture, 5 labels, 120x80": lambda: picture(80, 120, 5, contrast=True, weight=2.0),
    "picture, 5 labels, 481x321": lambda: picture(321, 481, 5, contrast=True, weight=2.0),
    "picture, 3 labels, strong, 120x80": lambda: picture(80, 120, 3, contrast=False, weight=4.0),
    "picture, 2 labels, 481x321": lambda: picture(321, 481, 2, contrast=False, weight=1.5),
    "blocks, 21 labels, 160x120": lambda: blocks(120, 160, 21, noise=1.0, signal=1.5, weight=1.0),
    "blocks, 21 labels, 640x480": lambda: blocks(480, 640, 21, noise=1.0, signal=1.5, weight=1.0),
    "blocks, 21 labels, strong, 160x120": lambda: blocks(120, 160, 21, noise=1.0, signal=1.5, weight=2.0),
    "blocks, 5 labels, 160x120": lambda: blocks(120, 160, 5, noise=0.5, signal=1.0, weight=1.0),
    "noise, 3 labels, weak unaries, 96x64": lambda: blocks(64, 96, 3, noise=0.3, signal=0.0, weight=1.0),
    "noise, 3 labels, 96x64": lambda: blocks(64, 96, 3, noise=1.0, signal=0.0, weight=1.0),
    "detection, 60 of 21 states": lambda: detection(60, 21, 0.25),
    "detection, 60 of 11, strong": lambda: detection(60, 11, 0.6),
    "rbm 784x500, weak": lambda: normal(graphs.complete_bipartite_edges(784, 500), 0.03),
    "rbm 784x500": lambda: normal(graphs.complete_bipartite_edges(784, 500), 0.1),
    "rbm 100x50, strong": lambda: normal(graphs.complete_bipartite_edges(100, 50), 0.4),
    "dense 200, weak": lambda: normal(graphs.complete_edges(200), 0.5 * 200**-0.5),
    "dense 200, strong": lambda: normal(graphs.complete_edges(200), 1.5 * 200**-0.5),
    "dense 2,000": lambda: normal(graphs.complete_edges(2000), 2000**-0.5),
    "sparse 100,000, degree 3": lambda: sparse(100_000, 3.0, 0.7),
    "sparse 10,000, degree 4, strong": lambda: sparse(10_000, 4.0, 1.5),
    "grid 100x100, mixed 1": lambda: ising_grid(100, 100, coupling_max=1.0, seed=0),
    "grid 100x100, mixed 3": lambda: ising_grid(100, 100, coupling_max=3.0, seed=0),
    "grid 100x100, attractive": lambda: ising_grid(100, 100, coupling_max=1.0, attractive=True, seed=0),
    "grid 40x40, mixed 3": lambda: ising_grid(40, 40, coupling_max=3.0, seed=0),
    "potts 64x64, mixed 2": lambda: potts_grid(64, 64, num_states=3, coupling_max=2.0, seed=0),
}


def run(family: str, method: str, limit: float, seed: int) -> dict[str, Any]:
    """One run: the marginals, what the method says of itself, and what it was."""
    model = FAMILIES[family]()
    options: dict[str, Any] = {"seed": seed} if method not in ("exact", "loopy-bp") else {}
    if method in ("gibbs", "swendsen-wang", "tempered", "projected", "auto"):
        options["num_threads"] = 1
    try:
        result = fastmix.infer(model, method=method, time_limit=limit, **options)
    except FastmixError as error:
        return {"family": family, "method": method, "refused": str(error)[:80]}
    values = np.concatenate([np.ravel(m) for m in result.marginals])
    seconds = float(result.stats["seconds"]) - float(result.stats.get("compile_seconds", 0.0))
    return {
        "family": family, "method": method, "marginals": values, "status": str(result.status),
        "ran": result.method, "seconds": seconds,
    }  # fmt: skip


def reference(family: str, long: list[dict[str, Any]]) -> tuple[Any, float, str]:
    """Marginals to compare with, how far the two behind them are apart, and what they are."""
    good = [row for row in long if "refused" not in row]
    exact = [row for row in good if row["ran"] == "exact"]
    if exact:
        return exact[0]["marginals"], 0.0, "exact"
    order = {"ok": 0, "not_mixed": 1, "time_limit": 1, "not_converged": 2}
    good.sort(key=lambda row: order.get(row["status"], 3))
    # Of those with the best verdict, the two that are nearest to each other.
    best = [row for row in good if order.get(row["status"], 3) == order.get(good[min(1, len(good) - 1)]["status"], 3)]
    best = best if len(best) > 1 else good[:2]
    pairs = [(np.abs(a["marginals"] - b["marginals"]).mean(), a, b) for k, a in enumerate(best) for b in best[:k]]
    if not pairs:
        return good[0]["marginals"], float("nan"), good[0]["ran"]
    apart, a, b = min(pairs, key=lambda pair: pair[0])
    return 0.5 * (a["marginals"] + b["marginals"]), float(apart), f"{a['ran']} {a['status']}, {b['ran']} {b['status']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--reference", type=float, default=100.0, help="seconds of the long runs")
    parser.add_argument("--families", nargs="*", default=[], help="only those whose name contains one of these")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", help="file to append the rows to, as JSON lines")
    options = parser.parse_args()
    chosen = [name for name in FAMILIES if not options.families or any(part in name for part in options.families)]
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        long = {
            name: [
                pool.submit(run, name, method, options.reference, 100 + k)
                for k, method in enumerate(("exact", "tempered", "gibbs", "swendsen-wang"))
            ]
            for name in chosen
        }
        short = {
            name: [pool.submit(run, name, method, options.limit, 1) for method in (*METHODS, "auto")] for name in chosen
        }
        print(f"mean error of the marginals after {options.limit:g} s; * is what a method says it did not do (mix)")
        print(f"{'':34}{'noise':>9}" + "".join(f"{method:>15}" for method in METHODS) + "   auto")
        for name in chosen:
            truth, apart, what = reference(name, [task.result() for task in long[name]])
            rows = [task.result() for task in short[name]]
            errors = {}
            for row in rows:
                if "marginals" in row:
                    row["error"] = float(np.abs(row.pop("marginals") - truth).mean())
                    errors[row["method"]] = row["error"]
            cells = "".join(
                f"{'-':>15}" if "refused" in row else f"{row['error']:>14.2g}{'' if row['status'] == 'ok' else '*':1}"
                for row in rows[:-1]
            )
            auto = rows[-1]
            tail = auto.get("refused", "")
            if "error" in auto:
                best = min(value for method, value in errors.items() if method != "auto")
                tail = f"{auto['ran']} {auto['error']:.2g} {auto['status']} {auto['seconds']:.1f} s, "
                tail += f"{auto['error'] / max(best, apart, 1e-12):.2g} times the best"
            print(f"{name:34}{apart:>9.2g}{cells}   {tail}   [{what}]", flush=True)
            if options.rows:
                with open(options.rows, "a") as file:
                    for row in rows:
                        file.write(json.dumps(row) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
