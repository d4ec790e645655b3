"""The pool of the reversed KL projection on the CPU and on a GPU: seconds of project(), and of a step of the pool.

Few steps, from one start: the ratio is what counts. A step of the pool is a sweep on a new model, its moments, and the
energies and covariances of all chains; what project() takes beyond such steps, and beyond bringing fresh chains to a
model twice, are Euclidean projections on the host. The pool on the CPU runs on one core. On the GPU every case runs
twice, and the second run counts: the first compiles.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import gpu  # sets up NumPy for numba-cuda, so before anything that imports it
import numpy as np

from fastmix import MarkovRandomField, project
from fastmix.chains.cuda.device import cuda_available
from fastmix.instances import ising_grid
from fastmix.projection import FixedStep, Objective, ReversedKL
from fastmix.projection.reversed_kl import PoolObjective


@dataclass(frozen=True)
class Case:
    """A grid, and how far its projection goes."""

    size: int
    pool_size: int
    num_steps: int
    annealing_sweeps: int


# The last is 20 s of work for a core.
CASES = (Case(16, 500, 20, 20), Case(16, 100_000, 5, 10), Case(256, 500, 3, 4), Case(256, 4000, 2, 2))
QUICK = (Case(2, 20, 2, 2),)


class TimedObjective(PoolObjective):
    """Notes what steps take that follow an earlier one, without those that begin with fresh chains."""

    def __init__(self, model: MarkovRandomField, settings: ReversedKL, seed: int) -> None:
        super().__init__(model, settings, seed)
        self.steps: list[float] = []

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, np.ndarray]:
        follows, begin = self._theta is not None, time.perf_counter()
        found = super().evaluate(theta)
        if follows:
            self.steps.append(time.perf_counter() - begin)
        return found

    def facts(self) -> dict[str, object]:
        return {**super().facts(), "pool_step": min(self.steps, default=float("nan"))}


@dataclass(frozen=True)
class TimedKL(ReversedKL):
    """The reversed KL-divergence with a note of times."""

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        return TimedObjective(model, self, seed)


def run(case: Case, backend: str) -> tuple[float, float, float]:
    """Seconds of the projection and of a step of the pool, and the bound on log Z that it ends with."""
    model = ising_grid(case.size, case.size, coupling_max=1.5, seed=0)
    divergence = TimedKL(
        pool_size=case.pool_size, num_starts=1, annealing_sweeps=case.annealing_sweeps, backend=backend
    )
    step = FixedStep(num_steps=case.num_steps, coordinates="fisher")
    begin = time.perf_counter()
    result = project(model, norm_bound=1.5, divergence=divergence, step=step, seed=1)
    seconds = time.perf_counter() - begin
    assert result.norm_after <= 1.5
    assert np.isfinite(result.model.parameters).all()
    return seconds, result.stats["pool_step"], result.stats["log_z_bound"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a trial on a tiny model, for the simulator")
    options = parser.parse_args()
    usable, text = cuda_available()
    if not usable:
        print(f"benchmarks/gpu_pool.py: {text}", file=sys.stderr)
        return 2
    begin = time.perf_counter()
    run(QUICK[0], "cpu")  # compiles
    print(f"{text}, numba-cuda {gpu.version('numba-cuda')}; seconds, and ratios of the CPU's to the GPU's")
    print(
        f"{'grid':>9} {'chains':>8} | {'project cpu':>11} {'cuda':>8} {'ratio':>6} {'(first)':>8} | "
        f"{'step cpu':>9} {'cuda':>9} {'ratio':>6} | {'log Z bound: cpu, cuda':>24}"
    )
    for case in QUICK if options.quick else CASES:
        first = run(case, "cuda")[0]
        seconds, step, bound = run(case, "cuda")
        cpu_seconds, cpu_step, cpu_bound = run(case, "cpu")
        print(
            f"{case.size:>4}x{case.size:<4} {case.pool_size:>8} | {cpu_seconds:11.3f} {seconds:8.3f} "
            f"{cpu_seconds / seconds:6.1f} {first:8.2f} | {cpu_step:9.5f} {step:9.5f} {cpu_step / step:6.1f} | "
            f"{cpu_bound:12.2f} {bound:11.2f}",
            flush=True,
        )
    print(f"{time.perf_counter() - begin:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
