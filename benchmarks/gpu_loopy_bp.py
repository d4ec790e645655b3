"""Loopy belief propagation on a GPU and on one core, in the same run, on grids from 256 to four million variables.

    python benchmarks/gpu_loopy_bp.py

An iteration is timed by itself, all messages renewed once and tested for convergence: on the device from CUDA events
around a call of many, the median of several; on the core by the wall clock, the best of several. Then both solve the
model from beginning to end (loopy_bp, messages within 1e-9), with all that is done on the host; their marginals are
compared. Building models and compiling are not timed. Traffic is what an iteration must move, every array once, over
its time, beside the 4.8 TB/s of an H200's memory; small models do not leave the caches.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu  # sets up NumPy for numba-cuda, so before anything that imports it

from fastmix.chains.cuda.device import cuda_available
from fastmix.instances import ising_grid, potts_grid
from fastmix.methods.cuda_messages import make_cuda_messages
from fastmix.methods.loopy_bp import LoopyBPResult, loopy_bp
from fastmix.methods.messages import make_messages
from fastmix.model import MarkovRandomField

MEMORY = 4.8e12  # bytes a second
COUPLING = 0.5  # such that undamped messages converge everywhere on the largest grid
TOLERANCE = 1e-7  # largest difference of two marginals
CORE_SECONDS = 2.0  # of timed iterations on the core
CASES: dict[str, Callable[[bool], MarkovRandomField]] = {
    "Ising 16x16": lambda quick: ising_grid(*sides(16, quick), coupling_max=COUPLING, seed=0),
    "Ising 256x256": lambda quick: ising_grid(*sides(256, quick), coupling_max=COUPLING, seed=0),
    "Ising 1,024x1,024": lambda quick: ising_grid(*sides(1024, quick), coupling_max=COUPLING, seed=0),
    "Ising 2,048x2,048": lambda quick: ising_grid(*sides(2048, quick), coupling_max=COUPLING, seed=0),
    "3-state Potts 512x512": lambda quick: potts_grid(*sides(512, quick), coupling_max=COUPLING, seed=0),
}


@dataclass(frozen=True)
class Line:
    """What was measured on one model: microseconds an iteration, and seconds from beginning to end."""

    name: str
    messages: int
    core_us: float
    device_us: float
    bytes_moved: int
    core: LoopyBPResult
    device: LoopyBPResult
    core_seconds: float
    device_seconds: float

    @property
    def difference(self) -> float:
        return float(np.abs(self.core.node_marginals - self.device.node_marginals).max())

    @property
    def right(self) -> bool:
        """Whether marginals and verdicts agree; rounding may end an iteration earlier or later."""
        iterations = self.core.stats["iterations"] - self.device.stats["iterations"]
        return self.difference <= TOLERANCE and self.core.status == self.device.status and abs(iterations) <= 1

    def show(self) -> str:
        traffic = self.bytes_moved / (1e-6 * self.device_us)
        return (
            f"{self.name:24}{self.messages:12,}{self.core_us:12.1f}{self.device_us:12.2f}"
            f"{self.core_us / self.device_us:8.1f}{self.bytes_moved / 1e6:10.1f}{traffic / MEMORY:9.0%}"
            f"{self.device.stats['iterations']:8}{self.core_seconds:9.2f}{self.device_seconds:9.2f}"
            f"{self.core_seconds / self.device_seconds:8.1f}{self.difference:11.1e}"
            f"{'' if self.right else f'  WRONG: {self.core.status}, {self.device.status}'}"
        )


HEAD = (
    f"{'model':24}{'messages':>12}{'core us':>12}{'device us':>12}{'ratio':>8}{'MB':>10}{'4.8 TB/s':>9}"
    f"{'iter.':>8}{'core s':>9}{'device s':>9}{'ratio':>8}{'difference':>11}"
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed calls on the device (default 5)")
    parser.add_argument("--quick", action="store_true", help="4x4 grids and few iterations: a trial")
    options = parser.parse_args()
    if options.repeat < 1:
        parser.error(f"--repeat must be at least 1, got {options.repeat}")
    usable, text = cuda_available()
    if not usable:
        print(f"benchmarks/gpu_loopy_bp.py: {text}", file=sys.stderr)
        return 2
    begin = time.perf_counter()
    warm_up()
    print(f"{text}, one core of the host; numba-cuda {gpu.version('numba-cuda')}; compiled in {since(begin):.1f} s")
    print(HEAD, flush=True)
    right = True
    for name, make in CASES.items():
        line = measure(name, make(options.quick), repeat=options.repeat, quick=options.quick)
        print(line.show(), flush=True)
        right &= line.right
    print(f"{since(begin):.0f} s in all")
    if not right:
        print(f"benchmarks/gpu_loopy_bp.py: marginals differ by more than {TOLERANCE:g}, or verdicts", file=sys.stderr)
    return 0 if right else 1


def sides(side: int, quick: bool) -> tuple[int, int]:
    return (4, 4) if quick else (side, side)


def since(begin: float) -> float:
    return time.perf_counter() - begin


def warm_up() -> None:
    """Compile what is timed, on small models that need the same kernels."""
    for model in (ising_grid(4, 4, coupling_max=COUPLING, seed=0), potts_grid(4, 4, coupling_max=COUPLING, seed=0)):
        for backend in ("cpu", "cuda"):
            loopy_bp(model, backend=backend, max_iter=2)


def measure(name: str, model: MarkovRandomField, *, repeat: int, quick: bool) -> Line:
    model.content_hash  # noqa: B018 - computed once, before either is timed
    core_us = 1e6 * core_iteration(model, 0.01 if quick else CORE_SECONDS)
    seconds, moved = device_iteration(model, repeat, quick)
    results, spent = [], []
    for backend in ("cpu", "cuda"):
        begin = time.perf_counter()
        results.append(loopy_bp(model, backend=backend))
        spent.append(since(begin))
    return Line(name, 2 * model.num_edges, core_us, 1e6 * seconds, moved, results[0], results[1], spent[0], spent[1])


def device_iteration(model: MarkovRandomField, repeat: int, quick: bool) -> tuple[float, int]:
    """Seconds of an iteration on the device, and the bytes it must move."""
    messages: Any = make_cuda_messages(model, damping=0.0)
    count = 2 if quick else max(50, min(2000, int(2e8 / (2 * model.num_edges))))
    # A tolerance that no change meets, so that every iteration is made.
    messages.advance(count, 0.0, -1.0)
    seconds = gpu.device_seconds(lambda: messages.advance(count, 0.0, -1.0), repeat)
    # Every array and one set of messages read once, the other set written.
    moved = sum(a.nbytes for a in messages._arrays.values()) + 16 * messages._layout.num_entries
    return statistics.median(seconds) / count, moved


def core_iteration(model: MarkovRandomField, budget: float) -> float:
    """Seconds of an iteration on one core, the best of several calls within a budget."""
    messages = make_messages(model, schedule="parallel", damping=0.0)
    count, best, begin = 1, float("inf"), time.perf_counter()
    while since(begin) < budget:
        start = time.perf_counter()
        messages.advance(count, 0.0, -1.0)
        spent = since(start)
        best = min(best, spent / count)
        if spent < 0.05 * budget:  # enough iterations for the clock
            count *= 4
    return best


if __name__ == "__main__":
    sys.exit(main())
