"""Are time limits kept? Seconds that every method takes on models of many shapes, with a limit of 10.

    python benchmarks/limits.py [--limit 10] [--models star ...] [--methods projected ...]

Each case runs in a process of its own, which is stopped after six times the limit ("never" in the table). Seconds are
wall clock of the call without compiling; to reach: 1.2 times the limit and a second. ``!`` marks what is over that,
``-`` a method that refuses the model, ``(2.1)`` that the method refused after 2.1 s because it would not end in time.
``spectral`` is no method but the Euclidean projection onto a spectral norm of 2.5.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import fastmix
from fastmix import MarkovRandomField, ResourceError, UnfitMethodError
from fastmix._clock import Clock
from fastmix.denoising import add_noise, denoising_model
from fastmix.graphs import complete_bipartite_edges, complete_edges
from fastmix.instances import ising_grid


def photograph() -> MarkovRandomField:
    """Denoising of a picture of 481 x 321 pixels with edges of all directions."""
    y, x = np.mgrid[:321, :481]
    picture = (np.sin(x / 40.0) + np.cos(y / 25.0 + x / 90.0)) > 0.0
    return denoising_model(add_noise(picture, noise=1.25, seed=0))


def random_ising(edges: np.ndarray, scale: float) -> MarkovRandomField:
    return MarkovRandomField.ising(edges, np.random.default_rng(0).normal(scale=scale, size=len(edges)))


def star() -> MarkovRandomField:
    leaves = np.arange(1, 500_001)
    return MarkovRandomField.ising(np.column_stack([np.zeros_like(leaves), leaves]), 0.5)


MODELS: dict[str, Callable[[], MarkovRandomField]] = {
    "16x16": lambda: ising_grid(16, 16, coupling_max=3.0, seed=0),
    "photograph": photograph,
    "1000x1000": lambda: ising_grid(1000, 1000, coupling_max=3.0, seed=0),
    "star": star,
    "isolated": lambda: MarkovRandomField.ising(
        np.zeros((0, 2), dtype=np.int64), 0.0, np.random.default_rng(0).normal(size=1_000_000)
    ),
    "complete": lambda: random_ising(complete_edges(2000), 2000**-0.5),
    "rbm": lambda: random_ising(complete_bipartite_edges(784, 500), 0.1),
}
METHODS = (
    "auto", "exact", "mean-field", "loopy-bp", "gibbs", "swendsen-wang", "tempered", "projected", "annealed",
    "spectral",
)  # fmt: skip


def run_case(method: str, name: str, limit: float) -> None:
    """One case, in this process; prints what it took."""
    model = MODELS[name]()
    if method == "spectral":
        fastmix.project(ising_grid(3, 3, coupling_max=3.0, seed=0), norm_bound=0.5, norm="spectral")
    elif method != "exact":  # what there is to compile or load is not part of the limit, and importing is not either
        fastmix.infer(ising_grid(3, 3, coupling_max=0.1, attractive=True, seed=0), method=method)
    clock, status = Clock(), ""
    cpu = sum(os.times()[:2])
    try:
        result: Any
        if method == "spectral":
            result = fastmix.project(model, norm_bound=2.5, norm="spectral", time_limit=limit)
        else:
            result = fastmix.infer(model, method=method, time_limit=limit)
        ran = getattr(result, "method", method)
        status = f"{ran}: {result.status}, {result.stats['stopped_by']}"
    except UnfitMethodError as error:
        status = f"refused: {error}"
    except ResourceError as error:
        status = f"too much: {error}"
    print(json.dumps({"seconds": clock.used(), "cpu": sum(os.times()[:2]) - cpu, "status": status}))


def measure(method: str, name: str, limit: float) -> tuple[str, str]:
    """What the table says about a case, and what happened in words."""
    command = [sys.executable, __file__, "--case", method, name, "--limit", str(limit)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=6.0 * limit + 60.0)
    except subprocess.TimeoutExpired:
        return "never !", "stopped"
    if done.returncode:
        return "failed !", done.stderr.strip().splitlines()[-1]
    answer = json.loads(done.stdout.splitlines()[-1])
    seconds, status = answer["seconds"], answer["status"]
    late = " !" if seconds > 1.2 * limit + 1.0 else ""
    text = f"{seconds:.1f}"
    if status.startswith("refused"):
        text = "-" if seconds < limit else f"- {text}"
    elif status.startswith("too much"):
        text = f"({text})"
    return text + late, f"{seconds:.2f} s, {answer['cpu']:.2f} s CPU, {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        run_case(*options.case, options.limit)
        return
    print(f"limit {options.limit:g} s, load average {os.getloadavg()[0]:.1f}")
    table = {}
    for name in options.models:
        for method in options.methods:
            table[name, method], words = measure(method, name, options.limit)
            print(f"{name}, {method}: {words}", file=sys.stderr, flush=True)
    print("| | " + " | ".join(options.methods) + " |")
    print("|---" * (1 + len(options.methods)) + "|")
    for name in options.models:
        print(f"| {name} | " + " | ".join(table[name, method] for method in options.methods) + " |")


if __name__ == "__main__":
    main()
