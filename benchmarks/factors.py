"""Gibbs updates per second on grids of overlapping plaquettes with random tables over three variables.

Every square of a grid has two factors: one over its upper left half (three corners), one over its lower right half.
A variable has up to six factors and six neighbors. Beside the kernels stands the loop that one would write first: for
every update, the conditional distribution from the tables of the model.

    python benchmarks/factors.py [--side 64] [--seconds 1.0]
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains


def plaquettes(side: int, num_states: int, seed: int = 0) -> MarkovRandomField:
    """A grid of ``side`` by ``side`` variables with two factors for each of its squares."""
    rng = np.random.default_rng(seed)
    at = np.arange(side * side).reshape(side, side)
    upper = np.stack([at[:-1, :-1], at[:-1, 1:], at[1:, :-1]], axis=-1).reshape(-1, 3)
    lower = np.stack([at[:-1, 1:], at[1:, :-1], at[1:, 1:]], axis=-1).reshape(-1, 3)
    scopes = np.concatenate([upper, lower]).tolist()
    tables = 0.5 * rng.normal(size=(len(scopes), *[num_states] * 3))
    return MarkovRandomField.from_factors([num_states] * side**2, zip(scopes, tables, strict=True))


def naive_speed(model: MarkovRandomField, seconds: float) -> float:
    """Updates per second of a plain loop over the variables and the factors around each."""
    rng = np.random.default_rng(0)
    around: list[list[tuple[list[int], np.ndarray]]] = [[] for _ in range(model.num_variables)]
    for scope, table in model.factors:
        for axis, v in enumerate(scope.tolist()):
            others = [u for u in scope.tolist() if u != v]
            around[v].append((others, np.moveaxis(table, axis, -1)))
    x = rng.integers(0, model.num_states).tolist()
    start, updates = time.process_time(), 0
    while time.process_time() - start < seconds:
        for i in range(model.num_variables):
            logits = model.unary(i).copy()
            for others, table in around[i]:
                logits += table[tuple(x[u] for u in others)]
            weights = np.exp(logits - logits.max()).cumsum()
            x[i] = int(np.searchsorted(weights, rng.random() * weights[-1], side="right"))
        updates += model.num_variables
    return updates / (time.process_time() - start)


def speed(model: MarkovRandomField, num_chains: int, seconds: float) -> tuple[str, float, float]:
    """The kernel that is chosen, its updates per second of one core, and the seconds of loading the parameters."""
    chains = CpuChains(model.structure, num_chains=num_chains, seed=0, num_threads=1)
    chains.load(model.parameters)
    chains.sweep(1, collect=True)  # compiles
    start = time.process_time()
    chains.load(model.parameters)
    load = time.process_time() - start
    start, sweeps, step = time.process_time(), 0, 1
    while time.process_time() - start < seconds:
        chains.sweep(step, collect=True)
        sweeps, step = sweeps + step, min(2 * step, 64)
    return chains.kernel, sweeps * num_chains * model.num_variables / (time.process_time() - start), load


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time for each number")
    arguments = parser.parse_args()
    print(f"{arguments.side} x {arguments.side}, one thread of {os.cpu_count()} cores, seconds of the processor")
    print(f"{'states':>6} {'factors':>8} {'chains':>6} {'kernel':>8} {'updates/s':>10} {'load s':>7} {'naive':>9}")
    for num_states in (2, 3, 4):
        model = plaquettes(arguments.side, num_states)
        naive = naive_speed(model, arguments.seconds)
        for num_chains in (1, 64):
            kernel, rate, load = speed(model, num_chains, arguments.seconds)
            row = f"{num_states:>6} {model.num_factors:>8} {num_chains:>6} {kernel:>8} {rate:>10.3g} {load:>7.3f}"
            print(f"{row} {naive:>9.3g}")


if __name__ == "__main__":
    main()
