"""Euclidean projection and the certificate, one thread, CPU seconds: ours, and the paper's dual on the same models.

    python benchmarks/projection.py [--paper] [--repeat 5]

Without --paper the paper's dual route, which takes minutes, is left out.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import resource
import time
from collections.abc import Callable

import numpy as np
from factors import plaquettes  # beside this file

import fastmix
from fastmix import NotConvergedError
from fastmix.graphs import grid_edges
from fastmix.instances import ising_grid, random_tables
from fastmix.projection import PaperDual
from fastmix.theory.bias import bias_after
from fastmix.theory.dependency import dependency_matrix


def best_cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    work()  # compilation, caches
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def row(name: str, seconds: float, target: str, note: str = "") -> None:
    print(f"{name:<58} {seconds * 1e3:12.3f} ms   to reach {target:<10} {note}", flush=True)


def fast_rows(repeat: int) -> dict[str, tuple[float, float]]:
    found = {}
    small = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    for norm_bound, target in ((2.5, "1 ms"), (0.95, "2 ms")):
        result = fastmix.project(small, norm_bound=norm_bound, tol=1e-10)
        # A gradient loop projects hundreds of times: several calls in one timing.
        seconds = best_cpu_seconds(lambda c=norm_bound: [solve(small, c, "inf", 1e-10) for _ in range(10)], repeat) / 10
        whole = best_cpu_seconds(lambda c=norm_bound: fastmix.project(small, norm_bound=c, tol=1e-10), repeat)
        row(f"inf, Ising 16x16, c = {norm_bound}, gap 1e-10", seconds, target,
            f"relative gap {result.relative_gap:.1e}; whole call {whole * 1e3:.2f} ms")  # fmt: skip
        found[f"inf {norm_bound}"] = (seconds, result.squared_distance)
    for norm_bound in (2.5, 0.95):
        result = fastmix.project(small, norm_bound=norm_bound, norm="spectral", tol=1e-6)
        seconds = best_cpu_seconds(lambda c=norm_bound: solve(small, c, "spectral", 1e-6), repeat)
        row(
            f"spectral, Ising 16x16, c = {norm_bound}, gap 1e-6",
            seconds,
            "100 ms",
            f"relative gap {result.relative_gap:.1e}",
        )
        found[f"spectral {norm_bound}"] = (seconds, result.squared_distance)
    tables = random_tables(grid_edges(100, 100), 3, scale=1.0, seed=0)
    for norm_bound in (2.5, 0.95):
        result = fastmix.project(tables, norm_bound=norm_bound)
        seconds = best_cpu_seconds(lambda c=norm_bound: fastmix.project(tables, norm_bound=c), 2)
        row(
            f"inf, 3 states 100x100, range, c = {norm_bound}",
            seconds,
            "10 s",
            f"relative gap {result.relative_gap:.1e}",
        )
    medium = ising_grid(100, 100, coupling_max=3.0, attractive=True, seed=0)
    for norm_bound in (2.5, 0.95):
        result = fastmix.project(medium, norm_bound=norm_bound, norm="spectral", tol=1e-4)
        seconds = best_cpu_seconds(
            lambda c=norm_bound: fastmix.project(medium, norm_bound=c, norm="spectral", tol=1e-4), 1
        )
        row(
            f"spectral, Ising 100x100, c = {norm_bound}, gap 1e-4",
            seconds,
            "10 s",
            f"norm after {result.norm_after:.8f}",
        )
    squares = plaquettes(64, 2)
    for norm in ("inf", "spectral"):
        result = fastmix.project(squares, norm_bound=0.95, norm=norm)
        seconds = best_cpu_seconds(lambda n=norm: fastmix.project(squares, norm_bound=0.95, norm=n), 2)
        row(
            f"{norm}, 64x64 with 7,938 factors of 3, c = 0.95, gap 1e-6",
            seconds,
            "-",
            f"{result.factor_scales.mean():.3f}",
        )
    for side in (100, 300, 1000):
        large = ising_grid(side, side, coupling_max=3.0, attractive=True, seed=0)
        for norm_bound, target in ((2.5, "8 s"), (0.95, "14 s")):
            result = fastmix.project(large, norm_bound=norm_bound, tol=1e-10)
            seconds = best_cpu_seconds(lambda c=norm_bound, m=large: fastmix.project(m, norm_bound=c, tol=1e-10), 1)
            row(f"inf, Ising {side}x{side}, c = {norm_bound}, gap 1e-10, whole call", seconds,
                target if side == 1000 else "-",
                f"{seconds / side**2 * 1e6:.2f} us a variable, {result.stats['num_iterations']} passes")  # fmt: skip
    # A model that is certified, so that the iteration does not stop early.
    weak = dependency_matrix(ising_grid(1000, 1000, coupling_max=0.2, seed=0), dependency="sigmoid")
    one, many = (best_cpu_seconds(lambda k=k: bias_after(weak, k, schedule="systematic"), 3) for k in (1, 11))
    row("certificate iteration, Ising 1000x1000, a sweep", (many - one) / 10, "10 ms")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB, to reach 4 GiB")
    return found


def solve(model: fastmix.MarkovRandomField, norm_bound: float, norm: str, tol: float) -> object:
    """The projection itself, without norms before and after and without the result object."""
    from fastmix.projection.feasible import FeasibleSet

    return FeasibleSet(model, norm_bound=norm_bound, norm=norm, tol=tol).nearest(model)


def paper_rows(found: dict[str, tuple[float, float]]) -> None:
    """The paper's dual to the same accuracy; where it stops early its time is a lower bound, and said to be."""
    small = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    for norm, norm_bound, tol in (("inf", 2.5, 1e-10), ("inf", 0.95, 1e-10), ("spectral", 2.5, 1e-6)):
        start = time.process_time()
        try:
            result, ended = fastmix.project(small, norm_bound=norm_bound, norm=norm, tol=tol, solver=PaperDual()), ""
        except NotConvergedError as error:
            result, ended = error.result, f"not converged, relative gap {error.result.relative_gap:.1e}: at least "
        seconds = time.process_time() - start
        ours, distance = found[f"{norm} {norm_bound}"]
        agree = abs(result.squared_distance - distance) / distance
        print(f"paper's dual, {norm}, c = {norm_bound}: {seconds:.2f} s, {ended}{seconds / ours:.0f} times ours, "
              f"distances agree to {agree:.1e}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    np.seterr(all="raise", under="ignore")
    found = fast_rows(arguments.repeat)
    if arguments.paper:
        paper_rows(found)


if __name__ == "__main__":
    main()
