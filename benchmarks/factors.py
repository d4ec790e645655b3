"""Gibbs updates per second on grids of overlapping plaquettes with random tables over three variables.

Every square of a grid has two factors: one over its upper left half (three corners), one over its lower right half.
A variable has up to six factors and six neighbors. Beside the kernels stands the loop that one would write first: for
every update, the conditional distribution from the tables of the model. With ``--backend cuda`` the chains are those of
an NVIDIA GPU, with one set of parameters and as replicas of ladders of 16; the marginals of a smaller grid are compared
with exact ones.

    python benchmarks/factors.py [--side 64] [--seconds 1.0] [--backend cuda]
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from fastmix import MarkovRandomField, UnfitMethodError, infer
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


def cuda_speed(model: MarkovRandomField, num_chains: int, num_sets: int, seconds: float) -> tuple[str, float, float]:
    """The kernel on a GPU, its updates per second of the clock, and the seconds of loading the parameters."""
    from fastmix.chains.cuda.chains import CudaChains

    group = num_chains if num_sets == 1 else 4
    chains = CudaChains(model.structure, num_chains=num_chains, num_sets=num_sets, seed=0, group_size=group)
    coefficients = np.linspace(0.0, 1.0, num_sets)[:, None] if num_sets > 1 else None
    chains.load(model.parameters[None], coefficients)
    run = chains.exchange_rounds if num_sets > 1 else chains.sweep
    run(1, collect=True)  # compiles
    start = time.perf_counter()
    chains.load(model.parameters[None].copy(), coefficients)
    load = time.perf_counter() - start
    start, sweeps, step = time.perf_counter(), 0, 1
    while time.perf_counter() - start < seconds:
        run(step, collect=True)
        sweeps, step = sweeps + step, min(2 * step, 256)
    updates = sweeps * num_chains * num_sets * model.num_variables
    return chains.kernel, updates / (time.perf_counter() - start), load


def check_on_gpu(num_states: int) -> None:
    """Print how far marginals from the GPU are from exact ones on a small grid, in standard errors."""
    model = plaquettes(8, num_states)
    exact = infer(model, method="exact")
    for method in ("gibbs", "tempered"):
        result = infer(model, method=method, backend="cuda", num_sweeps=20_000, seed=0)
        error = np.abs(result.node_marginals - exact.node_marginals)
        z = np.max(error / np.maximum(result.std_error, 1e-12))
        print(f"8 x 8, {num_states} states, {method} on {result.stats['backend']}: {result.status}, ", end="")
        print(f"largest error {error.max():.2g}, {z:.2f} standard errors")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=1.0, help="of processor time for each number")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    arguments = parser.parse_args()
    if arguments.backend == "cuda":
        print(f"{'states':>6} {'chains':>8} {'sets':>4} {'kernel':>8} {'updates/s':>10} {'load s':>7}")
        for num_states in (2, 3):
            model = plaquettes(arguments.side, num_states)
            for num_chains, num_sets in ((1, 1), (1 << 10, 1), (1 << 14, 1), (1 << 17, 1), (256, 16)):
                row = f"{num_states:>6} {num_chains:>8} {num_sets:>4}"
                try:
                    kernel, rate, load = cuda_speed(model, num_chains, num_sets, arguments.seconds)
                except UnfitMethodError as error:
                    print(f"{row} {error}")
                    continue
                print(f"{row} {kernel:>8} {rate:>10.3g} {load:>7.3f}")
            check_on_gpu(num_states)
        return
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
