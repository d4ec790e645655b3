"""Sweeps on random graphs: the kernel that is chosen beside the others, and beside dwave-samplers where it is there.

    python benchmarks/sweeps.py [--seed 0] [--seconds 0.1] [--chains 1 8 64] [--peer]

Graphs, their sizes and their couplings are drawn anew for every seed: regular, Erdos-Renyi and Barabasi-Albert graphs,
cubic lattices, complete and bipartite graphs. Couplings are normal, with fields of standard deviation 1 / T for
temperatures T from hot to cold, because the share of updates that flip decides which kernel is faster. A line has
updates per CPU second of one thread, with sums, the better of two turns; the chosen kernel stands first. The peer is
Metropolis sweeps of `SimulatedAnnealingSampler` at one temperature. At the end stands how much faster each choice is
than the best of the others, by the geometric mean over all lines with as many chains.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from fastmix import MarkovRandomField, graphs
from fastmix.chains.cpu import CpuChains, choose_kernel

TEMPERATURES = (5.0, 1.0, 0.4)


def barabasi_albert(n: int, links: int, rng: np.random.Generator) -> Any:
    """Edges of a graph that grows by nodes with so many links to nodes chosen in proportion to their degrees."""
    ends = list(range(links))
    pairs = []
    for node in range(links, n):
        for other in {ends[k] for k in rng.integers(0, len(ends), size=links)}:
            pairs.append((other, node))
            ends += [other, node]
    return np.array(pairs)


def families(rng: np.random.Generator) -> dict[str, Any]:
    """Edges of random graphs by a name that tells their sizes."""

    def whole(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    found: dict[str, Any] = {}
    for low, high in ((3, 6), (7, 11), (12, 16), (17, 24), (30, 60)):
        n, degree = 2 * whole(200, 1000), whole(low, high)
        found[f"regular {degree} of {n}"] = graphs.random_regular_edges(n, degree, seed=whole(0, 1 << 30))
    for low, high in ((5.0, 20.0), (20.0, 60.0), (100.0, 200.0)):
        n, degree = whole(400, 1500), float(rng.uniform(low, high))
        edges = graphs.erdos_renyi_edges(n, degree / n, seed=whole(0, 1 << 30))
        found[f"Erdos-Renyi {degree:.0f} of {n}"] = edges
    for low, high in ((2, 4), (6, 12)):
        n, links = whole(1000, 5000), whole(low, high)
        found[f"Barabasi-Albert {links} of {n}"] = barabasi_albert(n, links, rng)
    side = whole(6, 14)
    found[f"cubic {side}"] = graphs.cubic_edges(side, side, side, torus=True)
    for low, high in ((50, 150), (300, 700)):
        n = whole(low, high)
        found[f"complete {n}"] = graphs.complete_edges(n)
    left, right = whole(30, 300), whole(20, 100)
    found[f"bipartite {left}+{right}"] = graphs.complete_bipartite_edges(left, right)
    return found


def runner(model: MarkovRandomField, num_chains: int, kernel: Any) -> Callable[[float], float]:
    """A function that sweeps for about some CPU seconds and returns the rate of updates."""
    chains = CpuChains(model.structure, num_chains=num_chains, seed=0, num_threads=1, kernel=kernel)
    chains.load(model.parameters[None])
    chains.sweep(20, collect=True)  # compiles, and settles

    def run(seconds: float) -> float:
        start, sweeps, step = time.process_time(), 0, 1
        while time.process_time() - start < seconds:
            chains.sweep(step, collect=True)
            sweeps, step = sweeps + step, min(2 * step, 1024)
        return sweeps * num_chains * model.num_variables / (time.process_time() - start)

    return run


def peer_rate(edges: Any, couplings: Any, seconds: float) -> float:
    """Updates per CPU second of Metropolis sweeps of dwave-samplers at one temperature, of one read."""
    from dwave.samplers import SimulatedAnnealingSampler

    problem = {(int(i), int(j)): -float(c) for (i, j), c in zip(edges, couplings, strict=True)}
    sampler, num_sweeps = SimulatedAnnealingSampler(), 100
    while True:
        options = {"num_reads": 1, "num_sweeps": num_sweeps, "beta_range": [1.0, 1.0], "seed": 1}
        empty = time.process_time()
        sampler.sample_ising({}, problem, **(options | {"num_sweeps": 1}))
        start = time.process_time()
        sampler.sample_ising({}, problem, **options)
        spent = time.process_time() - start - (start - empty)
        if spent > seconds:
            return (num_sweeps - 1) * (int(np.max(edges)) + 1) / spent
        num_sweeps *= 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.1, help="of each turn")
    parser.add_argument("--chains", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--peer", action="store_true", help="dwave-samplers, too")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    gains: dict[tuple[int, str], list[float]] = defaultdict(list)
    for name, edges in families(rng).items():
        degree = 2.0 * len(edges) / (int(np.max(edges)) + 1)
        for temperature in TEMPERATURES:
            couplings = rng.normal(size=len(edges)) / np.sqrt(degree) / temperature
            model = MarkovRandomField.ising(edges, couplings)
            rates: dict[str, float] = {}
            for num_chains in options.chains:
                chosen = choose_kernel(model.structure, num_chains)
                others = ["kept", "product"] if num_chains < 8 else ["kept", "field", "product"]
                runs = {kernel: runner(model, num_chains, kernel) for kernel in dict.fromkeys([chosen, *others])}
                rates = {kernel: max(run(options.seconds) for _ in range(2)) for kernel, run in runs.items()}
                best_other = max(rate for kernel, rate in rates.items() if kernel != chosen)
                gains[num_chains, chosen].append(rates[chosen] / best_other)
                line = "".join(f"{kernel:>9} {rate:8.2e}" for kernel, rate in rates.items())
                peer = f"{'peer':>9} {peer_rate(edges, couplings, options.seconds):8.2e}" if options.peer else ""
                print(f"{name:28} T {temperature:3.1f} {num_chains:4} chains {line}{peer}", flush=True)
    for (num_chains, kernel), factors in sorted(gains.items()):
        mean = float(np.exp(np.mean(np.log(factors))))
        print(f"{num_chains:4} chains, {kernel:8}: {mean:.2f} times the best of the others in {len(factors)} lines")


if __name__ == "__main__":
    main()
