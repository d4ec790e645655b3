"""The search for most probable states, with moves of blocks, on drawn families of models with larger factors, or files.

    python benchmarks/blocks.py --seconds 6
    python benchmarks/blocks.py --seconds 20 FOLDER/Promedas_11.uai.gz ..

Families: bipartite and layered noisy-or networks in chains of tables over three variables, with findings drawn from
the network and observed; random constraints with a planted solution; grids of factors over four variables; side chains
with 2 to 40 states, whose neighbors are near in space. The limit is in CPU seconds. With ``--peer`` (extra ``map``) a
column has what toulbar2 finds in as many seconds of the clock, with a star where it proves it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import types
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

import numpy as np

import fastmix._clock
from fastmix import MarkovRandomField, most_probable
from fastmix.errors import FastmixError
from fastmix.io import read_evidence, read_model


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path, help="UAI files, with the evidence beside them")
    parser.add_argument("--seconds", type=float, default=6.0, help="CPU seconds for each (default 6)")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="models of each family (default 2)")
    parser.add_argument("--method", default="search", help="of fastmix (default search)")
    parser.add_argument("--peer", action="store_true", help="toulbar2 beside it")
    options = parser.parse_args()
    print(f"{'model':22}{'log-weight':>14}{'bound':>12}{'CPU s':>8}{'toulbar2':>14}  moves")
    for name, model, evidence in read(options.paths) if options.paths else draw(options.seeds):
        peer = ""
        if options.peer:
            try:
                other = most_probable(
                    model, evidence=evidence, method="toulbar2", time_limit=options.seconds, seed=0, progress=None
                )
                peer = f"{other.log_weight:.4f}{'*' if other.exact else ''}"
            except FastmixError as error:
                peer = type(error).__name__
        clock = fastmix._clock.time
        fastmix._clock.time = types.SimpleNamespace(perf_counter=time.process_time)  # limits are in CPU seconds here
        start = time.process_time()
        found = most_probable(
            model, evidence=evidence, method=options.method, time_limit=options.seconds, seed=0, progress=None
        )
        seconds = time.process_time() - start
        fastmix._clock.time = clock
        numbers = f"{found.log_weight:14.4f}{found.upper_bound:12.4f}{seconds:8.1f}"
        print(f"{name:22}{numbers}{peer:>14}  {found.stats['moves']}", flush=True)
    return 0


def read(paths: list[Path]) -> Any:
    """The models of files, with their evidence."""
    for path in paths:
        model = read_model(path)
        beside = path.with_name(path.name.removesuffix(".gz") + ".evid")
        yield path.name.split(".")[0], model, read_evidence(beside) if beside.exists() else None


def draw(num_seeds: int) -> Any:
    """Models of all families."""
    for name, make in FAMILIES.items():
        for seed in range(num_seeds):
            model, evidence = make(np.random.default_rng([seed, len(name)]))
            yield f"{name} {seed}", model, evidence


class _Network:
    """A noisy-or network that is being drawn: tables in chains, and a state of every variable."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.factors: list[tuple[list[int], Any]] = []
        self.states: list[int] = []

    def cause(self, probability: float) -> int:
        """The number of a new variable without parents."""
        self.factors.append(([len(self.states)], np.log([1.0 - probability, probability])))
        self.states.append(int(self.rng.random() < probability))
        return len(self.states) - 1

    def effect(self, parents: list[int], weights: tuple[float, ...] = (), least_leak: float = -3.0) -> int:
        """The number of a new noisy or of some variables: one variable of a chain for each of them."""
        last = self.cause(10.0 ** self.rng.uniform(least_leak, least_leak + 2.0))
        for parent in parents:
            weight = float(self.rng.choice(weights)) if weights else self.rng.uniform(0.2, 0.95)
            table = np.array([[[1.0, 0.0], [1.0 - weight, weight]], [[0.0, 1.0], [0.0, 1.0]]])
            with np.errstate(divide="ignore"):
                self.factors.append(([last, parent, len(self.states)], np.log(table)))
            self.states.append(int(self.states[last] or (self.states[parent] and self.rng.random() < weight)))
            last = len(self.states) - 1
        return last

    def model(self) -> MarkovRandomField:
        """The model of all that was drawn."""
        return MarkovRandomField.from_factors([2] * len(self.states), self.factors)


def bipartite(rng: np.random.Generator, num_causes: int, num_findings: int, num_parents: int) -> Any:
    """Causes and findings; four fifths of the findings are observed."""
    network = _Network(rng)
    causes = [network.cause(10.0 ** rng.uniform(-3, -1)) for _ in range(num_causes)]
    findings = [
        network.effect(rng.choice(causes, int(rng.integers(2, num_parents + 1)), replace=False).tolist())
        for _ in range(num_findings)
    ]
    return network.model(), {v: network.states[v] for v in findings if rng.random() < 0.8}


def layered(rng: np.random.Generator, sizes: tuple[int, ...], num_parents: int, share: float) -> Any:
    """Layers, each of effects of the one above; a share of the last is observed."""
    network = _Network(rng)
    above = [network.cause(10.0 ** rng.uniform(-2.5, -0.5)) for _ in range(sizes[0])]
    for size in sizes[1:]:
        above = [
            network.effect(rng.choice(above, int(rng.integers(1, num_parents + 1)), replace=False).tolist())
            for _ in range(size)
        ]
    return network.model(), {v: network.states[v] for v in above if rng.random() < share}


def deep(rng: np.random.Generator, sizes: tuple[int, ...], num_parents: int, num_observed: int) -> Any:
    """Effects of anything above them, with few weights, some of them certain; a few ends are observed, mostly on."""
    network = _Network(rng)
    above = [network.cause(10.0 ** rng.uniform(-3.5, -1)) for _ in range(sizes[0])]
    for size in sizes[1:]:
        ends = []
        for _ in range(size):
            parents = rng.choice(above, int(rng.integers(1, 2 * num_parents)), replace=False).tolist()
            ends.append(network.effect(parents, weights=(0.9, 0.5, 1.0, 0.1, 0.05, 0.4), least_leak=-4))
        above = above + ends
    on = [v for v in ends if network.states[v]][: num_observed * 2 // 3]
    off = [v for v in ends if not network.states[v]][: num_observed - len(on)]
    return network.model(), {v: network.states[v] for v in on + off}


def constraints(rng: np.random.Generator, n: int, count: int, most_states: int, arity: int) -> Any:
    """Tables of costs with a third of their entries forbidden, but for those of a planted configuration."""
    counts = rng.integers(2, most_states + 1, n).tolist()
    planted = rng.integers(0, counts)
    factors = []
    for _ in range(count):
        scope = rng.choice(n, int(rng.integers(2, arity + 1)), replace=False).tolist()
        shape = [counts[v] for v in scope]
        table = -rng.exponential(1.0, shape) * rng.integers(0, 2, shape)
        forbidden = rng.random(shape) < 0.3
        forbidden[tuple(planted[scope])] = False
        factors.append((scope, np.where(forbidden, -np.inf, table)))
    return MarkovRandomField.from_factors(counts, factors), None


def squares(rng: np.random.Generator, side: int) -> Any:
    """A grid of binary variables with a table over every square of four."""
    numbers = np.arange(side * side).reshape(side, side)
    factors: list[Any] = [([v], rng.normal(size=2)) for v in range(side * side)]
    corners = [numbers[i : i + 2, j : j + 2] for i in range(side - 1) for j in range(side - 1)]
    factors += [(corner.ravel().tolist(), 1.5 * rng.normal(size=(2,) * 4)) for corner in corners]
    return MarkovRandomField.from_factors([2] * (side * side), factors), None


def side_chains(rng: np.random.Generator, n: int, most_states: int) -> Any:
    """Pairs that are near in space, with costs of few large entries and clashes."""
    places = rng.random((n, 3))
    counts = rng.integers(2, most_states, n).tolist()
    distances = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    near = np.sort(distances[np.triu_indices(n, 1)])[3 * n]
    factors: list[Any] = [([i], -rng.exponential(3.0, counts[i])) for i in range(n)]
    for i in range(n):
        for j in range(i):
            if distances[i, j] < near:
                table = -(rng.exponential(1.0, (counts[i], counts[j])) ** 2)
                factors.append(([i, j], table - 20.0 * (rng.random(table.shape) < 0.1)))
    return MarkovRandomField.from_factors(counts, factors), None


FAMILIES = {
    "noisy-or": lambda rng: bipartite(rng, 80, 150, 12),
    "large noisy-or": lambda rng: bipartite(rng, 400, 300, 10),
    "layers": lambda rng: layered(rng, (150, 200, 150), 5, 0.5),
    "deep layers": lambda rng: deep(rng, (250, 350, 300, 150), 3, 20),
    "constraints": lambda rng: constraints(rng, 100, 250, 4, 3),
    "many constraints": lambda rng: constraints(rng, 300, 700, 5, 4),
    "squares": lambda rng: squares(rng, 24),
    "side chains": lambda rng: side_chains(rng, 100, 40),
}


if __name__ == "__main__":
    sys.exit(main())
