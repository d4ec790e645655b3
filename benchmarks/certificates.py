"""Largest scale of the couplings that each criterion certifies, with updates and seconds; times on large models.

python benchmarks/certificates.py [--large]
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import networkx as nx
import numpy as np

from fastmix import MarkovRandomField, certify
from fastmix.theory.criteria import largest_factor, scale_couplings

CRITERIA = ("dobrushin", "width", "path", "split")
UPDATES_PER_SECOND = 8e7  # of Gibbs sampling on one core, for the column of seconds


def grid_edges(side: int) -> np.ndarray:
    number = np.arange(side * side).reshape(side, side)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], axis=1)
    return np.concatenate([across, np.stack([number[:-1].ravel(), number[1:].ravel()], axis=1)])


def families() -> dict[str, MarkovRandomField]:
    """The families at scale 1, and the reach asked for relative to Dobrushin's criterion in their names."""
    rng = np.random.default_rng(0)
    grid = grid_edges(12)
    regular = np.array(nx.random_regular_graph(3, 200, seed=1).edges)

    def dense(n: int) -> MarkovRandomField:
        edges = np.array(list(itertools.combinations(range(n), 2)))
        return MarkovRandomField.ising(edges, rng.normal(size=len(edges)) / math.sqrt(n))

    layers = [(i, 75 + j) for i in range(75) for j in range(75)]
    return {
        "12x12 grid, J = 1 (1.35)": MarkovRandomField.ising(grid, 1.0),
        "12x12 grid, U[-1, 1] (1.5)": MarkovRandomField.ising(grid, rng.uniform(-1, 1, len(grid))),
        "3-regular, +-1 (1.5)": MarkovRandomField.ising(regular, rng.choice([-1.0, 1.0], len(regular))),
        "3-regular, U[-1, 1] (2)": MarkovRandomField.ising(regular, rng.uniform(-1, 1, len(regular))),
        "Sherrington-Kirkpatrick 150 (2.5)": dense(150),
        "Sherrington-Kirkpatrick 1,000 (6)": dense(1000),
        "Gaussian RBM 75x75 (1.7)": MarkovRandomField.ising(layers, rng.normal(size=75 * 75) / math.sqrt(75)),
    }


def reach(model: MarkovRandomField, criterion: str, max_updates: float) -> tuple[float, int | None]:
    """The largest certified factor of the couplings, and the updates just below it."""
    options = {"accuracy": 0.01, "criterion": criterion, "max_updates": max_updates}

    def certified(factor: float) -> bool:
        return certify(scale_couplings(model, factor), **options).certified

    if criterion == "dobrushin" or (criterion == "width" and max_updates == math.inf):
        factor = certify(model, margin=True, **options).margin
    else:
        factor = largest_factor(certified)
    inside = certify(scale_couplings(model, 0.999 * factor), **options)
    return factor, inside.num_updates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="only the times on large models")
    arguments = parser.parse_args()
    if not arguments.large:
        for name, model in families().items():
            print(name)
            first = None
            for criterion in CRITERIA:
                if criterion in ("path", "split") and model.num_edges > 20_000:
                    continue
                free, _ = reach(model, criterion, math.inf)
                first = first or free
                line = f"  {criterion:10s} {free:7.4f} ({free / first:.2f} times)"
                if criterion != "dobrushin":
                    bounded, updates = reach(model, criterion, 5e9)
                    if updates:
                        line += f"; within 5e9 updates {bounded:7.4f} ({bounded / first:.2f} times): "
                        line += f"{updates:.2e} updates, {updates / UPDATES_PER_SECOND:.1f} s"
                print(line, flush=True)
        return
    rng = np.random.default_rng(0)
    edges = grid_edges(1000)
    regular = np.array(nx.random_regular_graph(3, 100_000, seed=1).edges)
    sparse = np.array(nx.gnm_random_graph(100_000, 300_000, seed=1).edges)
    dense = np.array(list(itertools.combinations(range(2000), 2)))
    cases = [
        ("1,000x1,000 grid, J = 0.2", MarkovRandomField.ising(edges, 0.2), ("dobrushin", "path")),
        ("1,000x1,000 grid, J = 0.3", MarkovRandomField.ising(edges, 0.3), ("dobrushin", "path")),
        (
            "1,000x1,000 grid, U[-0.5, 0.5]",
            MarkovRandomField.ising(edges, rng.uniform(-0.5, 0.5, len(edges))),
            ("dobrushin", "path"),
        ),
        (
            "3-regular +-0.17, n = 1e5",
            MarkovRandomField.ising(regular, 0.17 * rng.choice([-1.0, 1.0], len(regular))),
            ("width",),
        ),
        ("random graph of degree 6, n = 1e5", MarkovRandomField.ising(sparse, 0.05), ("width",)),
        (
            "Sherrington-Kirkpatrick, n = 2,000",
            MarkovRandomField.ising(dense, 0.2 * rng.normal(size=len(dense)) / math.sqrt(2000)),
            ("width",),
        ),
    ]
    for name, model, criteria in cases:
        for criterion in criteria:
            begin = time.perf_counter()
            answer = certify(model, accuracy=0.01, criterion=criterion, max_updates=math.inf)
            seconds = time.perf_counter() - begin
            print(f"{name}: {criterion} {answer.certified} {answer.num_updates} updates, {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
