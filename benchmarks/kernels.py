"""Is every sweep kernel worth its lines? Each on the work it is for, beside the other kernels that could do that work.

    python benchmarks/kernels.py [--seconds 0.5] [--repeat 5]

Updates per CPU second of one thread, of sweeps that add up sums: the best of several turns that the kernels take one
after another. The first kernel of a row is the one that is chosen for this work. At the end stands how many times
faster each kernel is than the best of the others where it gains most; one that is nowhere 1.5 times as fast should go,
and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from factors import plaquettes

from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains, choose_kernel
from fastmix.graphs import complete_bipartite_edges, complete_edges, random_regular_edges
from fastmix.instances import ising_grid, potts_grid

WORTH = 1.5

Work = tuple[Callable[[], MarkovRandomField], int, list[str]]


def normal(edges: Any) -> MarkovRandomField:
    return MarkovRandomField.ising(edges, np.random.default_rng(0).normal(scale=0.1, size=len(edges)))


def grid(side: int) -> MarkovRandomField:
    return ising_grid(side, side, coupling_max=1.0, seed=0)


def potts(side: int, num_states: int) -> MarkovRandomField:
    return potts_grid(side, side, num_states=num_states, coupling_max=1.0, seed=0)


# Models, chains, and kernels: the one that is chosen, and others that can run the model.
WORK: dict[str, Work] = {
    "Ising 16x16, one chain": (lambda: grid(16), 1, ["four", "product", "single"]),
    "Ising 16x16, 1,000 chains": (lambda: grid(16), 1000, ["table", "four", "field", "product"]),
    "Ising 300x300, 8 chains": (lambda: grid(300), 8, ["four", "table", "product"]),
    "Potts 64x64, 3 states, 100 chains": (lambda: potts(64, 3), 100, ["table", "product", "single"]),
    "Potts 400x400, 5 states, one chain": (lambda: potts(400, 5), 1, ["product", "single"]),
    "complete 500, one chain": (lambda: normal(complete_edges(500)), 1, ["kept", "product"]),
    "complete 100, 64 chains": (lambda: normal(complete_edges(100)), 64, ["field", "kept", "product"]),
    "regular 20 of 1,000, 64 chains": (
        lambda: normal(random_regular_edges(1000, 20, seed=0)), 64, ["field", "kept", "product"],
    ),
    "bipartite 22+22, 1,000 chains": (
        lambda: normal(complete_bipartite_edges(22, 22)), 1000, ["layers", "field", "product"],
    ),
    "bipartite 784+100, 64 chains": (
        lambda: normal(complete_bipartite_edges(784, 100)), 64, ["layers", "field", "product"],
    ),
    "plaquettes 64x64, one chain": (lambda: plaquettes(64, 2), 1, ["single", "product"]),
    "plaquettes 64x64, 64 chains": (lambda: plaquettes(64, 2), 64, ["table", "single", "product"]),
}  # fmt: skip


def runner(model: MarkovRandomField, num_chains: int, kernel: Any) -> Callable[[float], float]:
    """A function that sweeps for about some CPU seconds and returns the rate of updates."""
    chains = CpuChains(model.structure, num_chains=num_chains, seed=0, num_threads=1, kernel=kernel)
    chains.load(model.parameters[None])
    chains.sweep(1, collect=True)  # compiles

    def run(seconds: float) -> float:
        start, sweeps, step = time.process_time(), 0, 1
        while time.process_time() - start < seconds:
            chains.sweep(step, collect=True)
            sweeps, step = sweeps + step, min(2 * step, 1024)
        return sweeps * num_chains * model.num_variables / (time.process_time() - start)

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--repeat", type=int, default=5, help="turns of each kernel")
    options = parser.parse_args()
    gains: dict[str, tuple[float, str]] = {}
    for name, (make, num_chains, kernels) in WORK.items():
        model = make()
        assert kernels[0] == choose_kernel(model.structure, num_chains)
        runs = {kernel: runner(model, num_chains, kernel) for kernel in kernels}
        rates = dict.fromkeys(runs, 0.0)
        for _ in range(options.repeat):
            for kernel, run in runs.items():
                rates[kernel] = max(rates[kernel], run(options.seconds))
        print(f"{name:38}" + "".join(f"{kernel:>13} {rate:8.2e}" for kernel, rate in rates.items()), flush=True)
        chosen = kernels[0]
        gain = rates[chosen] / max(rate for kernel, rate in rates.items() if kernel != chosen)
        gains[chosen] = max(gains.get(chosen, (0.0, "")), (gain, name))
    for kernel, (gain, name) in gains.items():
        print(f"{kernel:13} {gain:6.2f} times the next best on {name}")
    return int(min(gain for gain, _ in gains.values()) < WORTH)


if __name__ == "__main__":
    sys.exit(main())
