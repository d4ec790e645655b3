"""Largest cuts and ground states of random graphs: `most_probable` beside annealing and tabu search of dwave-samplers.

    python benchmarks/cuts.py [--seconds 10] [--graphs 3] [--families regular torus ..] [--seed N] [--files G1.gz ..]

Each family is drawn anew: the seed is printed. Every method gets the same CPU seconds, on one thread: annealing of
dwave-samplers reads of 1,000 sweeps until they are over, tabu search its own time limit, `most_probable` the method
"search" with what its clock needs on a busy machine (its seconds are printed). Printed are the best weights of the cut,
and in how many graphs we are ahead, equal and behind. Compiling is not counted.
"""

from __future__ import annotations

import argparse
import os

for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import time

import numpy as np

import fastmix
from fastmix.graphs import complete_edges, cubic_edges, grid_edges, random_regular_edges

FAMILIES = ("regular 3", "regular 20", "torus", "random", "complete", "cubic glass", "hubs")


def draw(family: str, rng: np.random.Generator) -> tuple[int, np.ndarray, np.ndarray]:
    """Vertices, edges and weights of a random member of a family."""
    n = int(rng.integers(800, 2000))
    if family.startswith("regular"):
        edges = random_regular_edges(n - n % 2, int(family.split()[1]), seed=int(rng.integers(2**31)))
        return n - n % 2, edges, np.ones(len(edges))
    if family == "torus":
        side = int(rng.integers(30, 100))
        edges = grid_edges(side, side, torus=True)
        return side * side, edges, rng.choice([-1.0, 1.0], len(edges))
    if family == "cubic glass":
        side = int(rng.integers(8, 12))
        edges = cubic_edges(side, side, side, torus=True)
        return side**3, edges, rng.choice([-1.0, 1.0], len(edges))
    if family == "complete":
        n = int(rng.integers(200, 600))
        edges = complete_edges(n)
        return n, edges, rng.choice([-1.0, 1.0], len(edges))
    if family == "hubs":
        return n, attachment_edges(n, 4, rng), rng.normal(size=4 * (n - 4))
    pairs = np.sort(rng.integers(0, n, (10 * n, 2)), axis=1)
    edges = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    return n, edges, np.ones(len(edges))


def attachment_edges(n: int, degree: int, rng: np.random.Generator) -> np.ndarray:
    """Edges of a graph that grows by preferential attachment (Barabasi and Albert 1999)."""
    ends = list(range(degree))
    edges = []
    for vertex in range(degree, n):
        chosen: set[int] = set()
        while len(chosen) < degree:
            chosen.add(int(ends[rng.integers(len(ends))]))
        edges += [(vertex, other) for other in sorted(chosen)]
        ends += [vertex] * degree + sorted(chosen)
    return np.array(edges)


def ours(model: fastmix.MarkovRandomField, seconds: float, seed: int) -> tuple[float, float]:
    """The best log-weight that a search finds in the CPU seconds given, and the seconds."""
    begun = time.process_time()
    limit = seconds
    best = -np.inf
    while True:
        result = fastmix.most_probable(model, method="search", time_limit=limit, seed=seed, progress=None)
        best = max(best, result.log_weight)
        used = time.process_time() - begun
        if used > 0.9 * seconds or result.exact:
            return best, used
        limit = max(0.5, seconds - used)  # a busy machine: the clock went on without us
        seed += 1


def annealing(bqm: object, seconds: float, seed: int) -> float:
    """The best of as many reads of 1,000 sweeps as the CPU seconds allow."""
    from dwave.samplers import SimulatedAnnealingSampler

    begun = time.process_time()
    best = np.inf
    while time.process_time() - begun < seconds:
        found = SimulatedAnnealingSampler().sample(bqm, num_reads=4, num_sweeps=1000, seed=seed)
        best = min(best, float(found.record.energy.min()))
        seed += 1
    return -best


def tabu(bqm: object, seconds: float, seed: int) -> float:
    """The best of tabu search in the CPU seconds given."""
    from dwave.samplers import TabuSampler

    begun = time.process_time()
    best = np.inf
    while time.process_time() - begun < seconds:
        found = TabuSampler().sample(bqm, num_reads=1, timeout=int(1000 * min(seconds, 2.0)), seed=seed)
        best = min(best, float(found.record.energy.min()))
        seed += 1
    return -best


def problem(n: int, edges: np.ndarray, weights: np.ndarray) -> object:
    """The cut of a graph as a binary quadratic model: minus the weight of the cut is its energy."""
    import dimod

    bqm = dimod.BinaryQuadraticModel("SPIN")
    bqm.add_linear_from(dict.fromkeys(range(n), 0.0))
    bqm.add_quadratic_from((int(i), int(j), float(w) / 2) for (i, j), w in zip(edges, weights, strict=True))
    bqm.offset = -float(weights.sum()) / 2
    return bqm


def graph_model(n: int, edges: np.ndarray, weights: np.ndarray) -> fastmix.MarkovRandomField:
    """The model whose log-weight is the weight of the cut."""
    tables = weights[:, None, None] * np.array([[0.0, 1.0], [1.0, 0.0]])
    return fastmix.MarkovRandomField.from_tables(np.zeros((n, 2)), edges, tables)


def compare(name: str, graph: tuple[int, np.ndarray, np.ndarray], seconds: float, seed: int) -> list[float]:
    """Print the weights of the cuts that all three find."""
    model = graph_model(*graph)
    bqm = problem(*graph)
    mine, used = ours(model, seconds, seed)
    others = [annealing(bqm, seconds, seed), tabu(bqm, seconds, seed)]
    print(
        f"{name:<14}{graph[0]:>7}{len(graph[1]):>8}{mine:>14.3f}{others[0]:>14.3f}{others[1]:>14.3f}{used:>8.1f}",
        flush=True,
    )
    return [mine, *others]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--graphs", type=int, default=3)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--files", nargs="+", default=[])
    arguments = parser.parse_args()
    seed = int(np.random.SeedSequence().generate_state(1)[0]) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, {arguments.seconds:g} CPU seconds each, one thread")
    print(f"{'family':<14}{'n':>7}{'edges':>8}{'fastmix':>14}{'annealing':>14}{'tabu':>14}{'our s':>8}")
    fastmix.most_probable(fastmix.MarkovRandomField.ising([(0, 1)], -1.0), method="search", progress=None)
    rows = []
    for family in arguments.families if not arguments.files else []:
        rng = np.random.default_rng([seed, FAMILIES.index(family)])
        rows += [compare(family, draw(family, rng), arguments.seconds, seed + k) for k in range(arguments.graphs)]
    for path in arguments.files:
        model = fastmix.io.read_model(path)
        graph = (model.num_variables, model.edges, model.log_pairwise.reshape(-1, 4)[:, 1])
        for k in range(arguments.graphs):
            rows.append(compare(os.path.basename(path), graph, arguments.seconds, seed + k))
    found = np.array(rows)
    best = found[:, 1:].max(axis=1)
    slack = 1e-9 * np.abs(best)
    ahead = int((found[:, 0] > best + slack).sum())
    behind = int((found[:, 0] < best - slack).sum())
    print(f"ahead of both {ahead}, equal to the better {len(found) - ahead - behind}, behind {behind}")
    excess = (found[:, :1] - found[:, 1:]).mean(axis=0)
    print(f"mean excess over annealing {excess[0]:.3f}, over tabu {excess[1]:.3f}")


if __name__ == "__main__":
    main()
