"""Gibbs sampling of several states: fastmix beside NumPy's checkerboard and a plain compiled loop, one thread.

A picture of 481 x 321 variables of five states with contrast-sensitive Potts tables (another coupling on every edge),
the same with another full table on every edge, and a 3-state Potts grid with many chains. Rates are updates per CPU
second, the best of several turns that the samplers take one after another. fastmix adds up conditional probabilities;
the others only move. Means over sweeps of a small picture are compared between all three.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numba
import numpy as np
from numpy.typing import NDArray

from fastmix import MarkovRandomField
from fastmix.chains.cpu import CpuChains
from fastmix.graphs import grid_edges
from fastmix.instances import potts_grid

FloatArray = NDArray[np.float64]

GOALS = {"Potts": 4e7, "full": 9e6}  # updates per second and core
SIGMAS = 6.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7, help="turns of each sampler (default 7)")
    parser.add_argument("--quick", action="store_true", help="a small picture: a trial")
    options = parser.parse_args()
    rows, cols = (48, 32) if options.quick else (481, 321)
    right = True
    for kind in ("Potts", "full"):
        grid = Grid(rows, cols, 5, kind)
        samplers = {"fastmix": Fastmix(grid.model(), 1), "8 chains": Fastmix(grid.model(), 8)}
        samplers |= {"plain loop": PlainLoop(grid), "NumPy": Checkerboard(grid)}
        print(f"\n{rows} x {cols} variables of 5 states, {kind} tables")
        rates = race(samplers, options.repeat)
        reached = "reached" if rates["fastmix"] >= GOALS[kind] else "missed"
        print(f"  to reach: {GOALS[kind]:.2g}, {reached}")
        right &= agree(Grid(12, 12, 5, kind))
    potts = potts_grid(64, 64, coupling_max=1.0, seed=0)
    print("\n3-state Potts 64 x 64, 100 chains")
    race({"fastmix": Fastmix(potts, 100, sweeps=50)}, options.repeat)
    return 0 if right else 1


class Grid:
    """Unaries (rows, cols, L) and tables to the right (rows, cols - 1, L, L) and downwards (rows - 1, cols, L, L)."""

    def __init__(self, rows: int, cols: int, states: int, kind: str) -> None:
        rng = np.random.default_rng(0)
        self.unary = rng.normal(size=(rows, cols, states))
        shapes = (rows, cols - 1), (rows - 1, cols)
        if kind == "Potts":
            self.right, self.down = (2.0 * rng.random(shape)[..., None, None] * np.eye(states) for shape in shapes)
        else:
            self.right, self.down = (rng.normal(size=(*shape, states, states)) for shape in shapes)

    def model(self) -> MarkovRandomField:
        rows, cols, states = self.unary.shape
        edges = grid_edges(rows, cols)
        tables = np.empty((len(edges), states, states))
        first, across = edges[:, 0], edges[:, 1] == edges[:, 0] + 1
        tables[across] = self.right[first[across] // cols, first[across] % cols]
        tables[~across] = self.down[first[~across] // cols, first[~across] % cols]
        return MarkovRandomField.from_tables(self.unary.reshape(-1, states), edges, tables)


class Fastmix:
    def __init__(self, model: MarkovRandomField, num_chains: int, sweeps: int = 2) -> None:
        self.chains = CpuChains(model.structure, num_chains=num_chains, seed=1, num_threads=1)
        self.chains.load(model.parameters)
        self.sweeps, self.updates = sweeps, sweeps * num_chains * model.num_variables

    def run(self) -> None:
        self.chains.sweep(self.sweeps, collect=True)

    def states(self) -> NDArray[np.int64]:
        return self.chains.get_states()[0]


class Checkerboard:
    """What one would write with NumPy: all variables of one color at once."""

    def __init__(self, grid: Grid, sweeps: int = 1) -> None:
        self.grid, self.sweeps, self.rng = grid, sweeps, np.random.default_rng(1)
        self.shape = grid.unary.shape[:2]
        self.x = np.zeros(self.shape, dtype=np.int64)
        self.color = np.add.outer(np.arange(self.shape[0]), np.arange(self.shape[1])) % 2 == 0
        self.updates = sweeps * self.x.size

    def run(self) -> None:
        grid, x = self.grid, self.x
        for _ in range(self.sweeps):
            for color in (self.color, ~self.color):
                logits = grid.unary.copy()
                logits[:, :-1] += np.take_along_axis(grid.right, x[:, 1:, None, None], axis=3)[..., 0]
                logits[:, 1:] += np.take_along_axis(grid.right, x[:, :-1, None, None], axis=2)[..., 0, :]
                logits[:-1] += np.take_along_axis(grid.down, x[1:, :, None, None], axis=3)[..., 0]
                logits[1:] += np.take_along_axis(grid.down, x[:-1, :, None, None], axis=2)[..., 0, :]
                chosen = logits[color]
                weights = np.cumsum(np.exp(chosen - chosen.max(axis=1, keepdims=True)), axis=1)
                u = self.rng.random(len(chosen)) * weights[:, -1]
                x[color] = (u[:, None] >= weights[:, :-1]).sum(axis=1)

    def states(self) -> NDArray[np.int64]:
        return self.x.reshape(-1)


class PlainLoop:
    """What one would write with Numba: site by site, the exponential of a sum of logarithms."""

    def __init__(self, grid: Grid, sweeps: int = 1) -> None:
        self.grid, self.sweeps = grid, sweeps
        self.x = np.zeros(grid.unary.shape[:2], dtype=np.int64)
        self.updates = sweeps * self.x.size

    def run(self) -> None:
        plain_sweeps(self.x, self.grid.unary, self.grid.right, self.grid.down, self.sweeps)

    def states(self) -> NDArray[np.int64]:
        return self.x.reshape(-1)


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def plain_sweeps(x, unary, right, down, num_sweeps):  # type: ignore[no-untyped-def]
    rows, cols, states = unary.shape
    weights = np.empty(states)
    for _ in range(num_sweeps):
        for r in range(rows):
            for c in range(cols):
                total = 0.0
                for s in range(states):
                    value = unary[r, c, s]
                    if c > 0:
                        value += right[r, c - 1, x[r, c - 1], s]
                    if c < cols - 1:
                        value += right[r, c, s, x[r, c + 1]]
                    if r > 0:
                        value += down[r - 1, c, x[r - 1, c], s]
                    if r < rows - 1:
                        value += down[r, c, s, x[r + 1, c]]
                    total += np.exp(value)
                    weights[s] = total
                u, state = np.random.random() * total, 0  # noqa: NPY002  compiled
                while u >= weights[state]:
                    state += 1
                x[r, c] = state


def race(samplers: dict[str, Fastmix | Checkerboard | PlainLoop], repeat: int) -> dict[str, float]:
    """The best rate of each, in turns."""
    rates = dict.fromkeys(samplers, 0.0)
    for turn in range(repeat + 1):
        for name, sampler in samplers.items():
            start = time.process_time()
            sampler.run()
            if turn:  # the first one compiles
                rates[name] = max(rates[name], sampler.updates / (time.process_time() - start))
    for name, rate in rates.items():
        print(f"  {name:12s} {rate:.3g} updates/s")
    return rates


def agree(grid: Grid, count: int = 4000) -> bool:
    """Whether the means over sweeps of all samplers are the same, within errors."""
    samplers = [Fastmix(grid.model(), 1, sweeps=5), PlainLoop(grid, sweeps=5), Checkerboard(grid, sweeps=5)]
    means, errors = [], []
    for sampler in samplers:
        kept = np.empty((count, grid.unary.shape[0] * grid.unary.shape[1]))
        for k in range(count):
            sampler.run()
            kept[k] = sampler.states() == 0
        batches = kept.reshape(40, -1, kept.shape[1]).mean(axis=1)
        means.append(batches.mean(axis=0))
        errors.append(batches.std(axis=0, ddof=1) / np.sqrt(40))
    worst = max(float((np.abs(means[0] - means[k]) / np.hypot(errors[0], errors[k]).clip(1e-3)).max()) for k in (1, 2))
    print(f"  means of 12 x 12 variables differ by at most {worst:.2g} standard errors from those of the others")
    return worst < SIGMAS


if __name__ == "__main__":
    sys.exit(main())
