"""Most probable configurations: minimum cuts of pictures, and mixed grids beside simulated annealing of dwave-samplers.

Both get the same CPU seconds on one thread: annealing runs with as many reads and sweeps as fit, found by doubling.

    python benchmarks/most_probable.py --sizes 16 30 60 100 --models 20 --jobs 4

With UAI files, their most probable configurations instead: exact where the junction tree fits the memory limit.

    python benchmarks/most_probable.py --files shared/uai/*.uai
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import fastmix
from fastmix import MarkovRandomField, most_probable
from fastmix.instances import ising_grid


def cpu(function, *arguments, **options):
    begin = time.process_time()
    result = function(*arguments, **options)
    return result, time.process_time() - begin


def annealed(problem, seconds: float, seed: int):
    """The smallest energy of simulated annealing in as many CPU seconds, with twice the sweeps while they fit."""
    from dwave.samplers import SimulatedAnnealingSampler

    sampler, best, used, sweeps = SimulatedAnnealingSampler(), np.inf, 0.0, 100
    while used < seconds:
        found, took = cpu(sampler.sample, problem, num_reads=1, num_sweeps=sweeps, seed=seed)
        best, used, seed = min(best, float(found.record.energy.min())), used + took, seed + 1
        if used + 2 * took < seconds:
            sweeps *= 2
    return best, used


def one_grid(task: tuple[int, int], coupling: float, limit: float) -> tuple[float, float, float, bool, float]:
    """Both log-weights of a mixed grid, our gap, whether it is 0, and CPU seconds of either."""
    size, seed = task
    model = ising_grid(size, size, coupling_max=coupling, seed=seed)
    result, seconds = cpu(most_probable, model, seed=seed, time_limit=limit, progress=None)
    energy, _ = annealed(fastmix.convert(model, to="dimod"), seconds, seed)
    return result.log_weight, -energy, result.gap, result.exact, seconds


def compile_all(_: int = 0) -> None:
    """What a process does before anything is timed."""
    most_probable(ising_grid(5, 5, coupling_max=1.0, seed=0), method="search", progress=None, time_limit=5)


def grids(arguments: argparse.Namespace) -> None:
    """A table of mixed grids by size."""
    print(f"{'size':>5} {'ours':>12} {'annealing':>12} {'better':>7} {'worst':>10} {'gap':>9} {'exact':>6} {'s':>6}")
    solve = partial(one_grid, coupling=arguments.coupling, limit=arguments.seconds)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        list(pool.map(compile_all, range(arguments.jobs)))
        for size in arguments.sizes:
            rows = list(pool.map(solve, [(size, seed) for seed in range(arguments.models)]))
            ours, theirs, gap, exact, seconds = np.array(rows, dtype=float).T
            worst = ((theirs - ours) / np.abs(ours)).max()
            print(
                f"{size:5d} {ours.mean():12.4f} {theirs.mean():12.4f} {(ours > theirs + 1e-9).sum():4d}/{len(rows):<2d}"
                f" {100 * worst:9.4f}% {gap.mean():9.4f} {int(exact.sum()):6d} {seconds.mean():6.2f}",
                flush=True,
            )


def files(paths: list[str], limit: float) -> None:
    """A table of UAI files, with the evidence beside them: whether the junction tree fits, and what was found."""
    print(
        f"{'file':24} {'variables':>9} {'tree':>8} {'log-weight':>15} {'gap':>9} {'exact':>6} {'method':>10} {'s':>7}"
    )
    for path in paths:
        observed = fastmix.io.read_evidence(f"{path}.evid") if Path(f"{path}.evid").exists() else None
        model = fastmix.io.read_model(path)
        try:
            fastmix.infer(model, method="exact", evidence=observed, progress=None, time_limit=limit)
            fits = "fits"
        except fastmix.FastmixError as error:
            fits = type(error).__name__.removesuffix("Error")
        result, seconds = cpu(most_probable, model, evidence=observed, seed=0, time_limit=limit, progress=None)
        print(
            f"{Path(path).name:24} {model.num_variables:9d} {fits:>8} {result.log_weight:15.6f} {result.gap:9.4f} "
            f"{result.exact!s:>6} {result.method:>10} {seconds:7.2f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[16, 30, 60, 100])
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--coupling", type=float, default=1.0, help="couplings are uniform on [-c, c]")
    parser.add_argument("--seconds", type=float, default=10.0, help="limit of a search")
    parser.add_argument("--pictures", type=int, nargs="*", default=[128, 512])
    parser.add_argument("--jobs", type=int, default=1, help="grids at a time, each in a process of one thread")
    parser.add_argument("--files", nargs="+", help="UAI files, instead of grids and pictures")
    arguments = parser.parse_args()
    if arguments.files:
        files(arguments.files, arguments.seconds)
        return
    rng = np.random.default_rng(0)
    for size in [8, *arguments.pictures]:
        place = np.indices((size, size)).sum(axis=0) // 40 % 2
        noise = (place[..., None] == [0, 1]) + rng.normal(size=(size, size, 2))
        result, seconds = cpu(most_probable, MarkovRandomField.image(noise, 1.0), progress=None)
        if size > 8:  # the first one compiles
            print(f"minimum cut {size}x{size}: {seconds:.2f} s, {result}")
    compile_all()
    grids(arguments)


if __name__ == "__main__":
    main()
