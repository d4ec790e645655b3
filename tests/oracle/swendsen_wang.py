"""Swendsen-Wang sweeps as plain loops over models in parts, with the random numbers of the kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from scipy.stats import chi2

import oracle
from fastmix.chains.generator import MAX_THRESHOLD, make_streams
from fastmix.model import MarkovRandomField
from oracle import Stream

FALSE_ALARM = 1e-6  # of every statistical test
INF = math.inf


# -- models in parts, and the naive twin ----------------------------------------------------------------------------


@dataclass
class Parts:
    """A model as T(a, b) = J [a = b] + r(a) + s(b), edges in lexicographic order; J < 0 for binary variables only."""

    unary: list[list[float]]
    edges: list[tuple[int, int]]
    coupling: list[float]
    left: list[list[float]] | None = None
    right: list[list[float]] | None = None

    def functions(self) -> tuple[list[list[float]], list[list[float]]]:
        none = [[0.0] * len(self.unary[i]) for i, _ in self.edges], [[0.0] * len(self.unary[j]) for _, j in self.edges]
        return self.left or none[0], self.right or none[1]

    def model(self) -> MarkovRandomField:
        tables = [
            [[J * (a == b) + r[a] + s[b] for b in range(len(s))] for a in range(len(r))]
            for J, r, s in zip(self.coupling, *self.functions(), strict=True)
        ]
        return MarkovRandomField.from_tables(
            [np.array(u) for u in self.unary], self.edges, [np.array(t) for t in tables]
        )

    def attractive(self) -> tuple[list[bool], Parts]:
        """Variables to exchange the states of, the smallest of a component never, and the model after that."""
        flip: dict[int, bool] = {}
        for start in range(len(self.unary)):
            queue = [] if start in flip else [start]
            flip.setdefault(start, False)
            for v in queue:  # grows
                for (i, j), J in zip(self.edges, self.coupling, strict=True):
                    if J and v in (i, j):
                        u = i + j - v
                        if u not in flip:
                            queue.append(u)
                        assert flip.setdefault(u, flip[v] ^ (J < 0)) == flip[v] ^ (J < 0)
        unary = [list(u) for u in self.unary]
        for (i, j), r, s in zip(self.edges, *self.functions(), strict=True):
            unary[i] = [u + x for u, x in zip(unary[i], r, strict=True)]
            unary[j] = [u + x for u, x in zip(unary[j], s, strict=True)]
        flips = [flip[i] for i in range(len(unary))]
        unary = [u[::-1] if f else u for u, f in zip(unary, flips, strict=True)]
        kept = [(e, abs(J)) for e, J in zip(self.edges, self.coupling, strict=True) if J]
        return flips, Parts(unary, [e for e, _ in kept], [J for _, J in kept])


def clusters_of(n: int, bonds: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Ascending members of each cluster, in the order of the smallest."""
    label = list(range(n))
    for i, j in bonds:
        label = [label[i] if k == label[j] else k for k in label]
    groups: dict[int, list[int]] = {}
    for v in range(n):
        groups.setdefault(label[v], []).append(v)
    return list(groups.values())


def cluster_weights(parts: Parts, cluster: Sequence[int]) -> list[float]:
    """Weights of the states of a cluster, the largest 1."""
    total = [sum(values) for values in zip(*(parts.unary[i] for i in cluster), strict=True)]
    return [math.exp(t - max(total)) for t in total]


def choose(weights: Sequence[float], uniform: float) -> int:
    level = uniform * sum(weights)
    return next(s for s in range(len(weights)) if level < sum(weights[: s + 1]))


def sweep(
    parts: Parts,
    x: list[int],
    uniform: Callable[[], float],
    before: list[int],
    holds: Callable[[float], bool] | None = None,
) -> list[int]:
    """One sweep of an attractive model; ``before`` is what x was a sweep ago, of no use here."""
    bonds = []
    for (i, j), J in zip(parts.edges, parts.coupling, strict=True):
        p = -math.expm1(-J)
        kept = uniform() < p if holds is None else holds(p)
        if x[i] == x[j] and kept:
            bonds.append((i, j))
    return draw_clusters(parts, bonds, uniform)


def draw_clusters(parts: Parts, bonds: list[tuple[int, int]], uniform: Callable[[], float]) -> list[int]:
    y = [0] * len(parts.unary)
    for cluster in clusters_of(len(y), bonds):
        weights = cluster_weights(parts, cluster)
        state = choose(weights, uniform()) if len(weights) > 1 else 0
        for i in cluster:
            y[i] = state
    return y


def twin_run(parts: Parts, seed: int, chain: int, num_sweeps: int) -> list[list[int]]:
    """Configurations of a chain from its start on."""
    flips, plain = parts.attractive()
    stream = Stream(make_streams(seed, chain, 1)[:, 0])

    def uniform() -> float:
        high, low = stream.draw(), stream.draw()
        return ((high << 21 | low >> 11) + 0.5) * 2.0**-53

    def holds(probability: float) -> bool:
        return stream.draw() < min(round(probability * 2.0**32), MAX_THRESHOLD)

    path = [draw_clusters(plain, [], uniform)]
    for _ in range(num_sweeps):
        path.append(sweep(plain, path[-1], uniform, [], holds))
    return [[s ^ f for s, f in zip(y, flips, strict=True)] for y in path]


@st.composite
def parts_models(draw: st.DrawFn, max_variables: int = 6, max_states: int = 3, forbidden: bool = True) -> Parts:
    """Attractive models of mixed state counts; binary ones with negative couplings on no odd cycle."""
    n = draw(st.integers(0, max_variables))
    binary = draw(st.booleans())
    counts = draw(st.lists(st.integers(1, max_states), min_size=n, max_size=n)) if not binary else [2] * n
    pairs = list(itertools.combinations(range(n), 2))
    edges = sorted(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else []
    scale = draw(st.sampled_from([0.3, 1.0, 3.0, 1e3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    flips = rng.random(n) < draw(st.sampled_from([0.0, 0.5]))
    unary = [rng.normal(size=L) * min(scale, 3.0) for L in counts]
    if forbidden:
        for u in unary:
            u[(rng.random(len(u)) < 0.2) & (np.arange(len(u)) != rng.integers(len(u)))] = -INF
    coupling = []
    for i, j in edges:
        size = float(rng.exponential(scale)) * (counts[i] == counts[j] > 1) * (rng.random() < 0.8)
        coupling.append(-size if counts[i] == 2 and flips[i] != flips[j] else size)
    left = [rng.normal(size=counts[i]).tolist() for i, _ in edges]
    right = [rng.normal(size=counts[j]).tolist() for _, j in edges]
    return Parts([u.tolist() for u in unary], edges, coupling, left, right)


# Fields that pull against the couplings, three components, a variable alone, one of a single state.
ISING = Parts(
    [[0.0, 0.9], [0.3, -0.2], [0.0, -0.7], [0.2, 0.0], [1.1, 0.0], [0.0, 0.4]],
    [(0, 1), (0, 2), (1, 2), (3, 5)],
    [0.7, 1.5, 0.4, 1.1],
    [[0.0, 0.2], [0.1, -0.3], [0.0, 0.0], [0.5, 0.1]],
    [[0.1, 0.0], [0.0, 0.4], [-0.2, 0.2], [0.0, 0.3]],
)
POTTS = Parts(
    [[0.0, 0.6, -0.5], [0.8, 0.0, 0.1], [0.0, 0.0, 0.9], [0.3, 0.0, -INF]],
    [(0, 1), (0, 3), (1, 2), (2, 3)],
    [0.8, 1.4, 0.5, 0.9],
    [[0.0, 0.3, 0.1], [0.2, 0.0, -0.2], [0.0, 0.0, 0.0], [0.4, 0.0, 0.1]],
    [[0.0, 0.0, 0.5], [0.0, 0.1, 0.0], [0.3, 0.0, -0.1], [0.0, 0.2, 0.0]],
)
MIXED = Parts(
    [[0.0, 0.8], [0.5], [0.0, 0.4, -0.9], [0.6, 0.0], [0.1, -0.3, 0.5], [0.0, 0.2, 0.1, -0.4]],
    [(0, 1), (0, 2), (0, 3), (1, 5), (2, 4)],
    [0.0, 0.0, 1.3, 0.0, 0.9],
    [[0.0, 0.4], [0.1, -0.1], [0.3, 0.0], [0.2], [0.0, 0.3, 0.1]],
    [[0.3], [0.0, 0.2, 0.3], [0.0, 0.1], [0.0, 0.3, 0.1, -0.2], [0.2, 0.0, -0.3]],
)
# An antiferromagnet on a cycle of four with a tail, in fields.
FLIPPED = Parts(
    [[0.0, 0.5], [0.4, 0.0], [0.0, -0.3], [0.7, 0.0], [0.0, 0.2]],
    [(0, 1), (0, 3), (1, 2), (2, 3), (3, 4)],
    [-0.8, -1.2, -0.6, -1.0, 0.9],
    [[0.0, 0.2], [0.1, 0.0], [0.0, -0.4], [0.0, 0.3], [0.2, 0.0]],
    [[0.3, 0.0], [0.0, 0.1], [0.2, 0.2], [-0.1, 0.0], [0.0, 0.5]],
)
NAMED = {"ising": ISING, "potts": POTTS, "mixed": MIXED, "flipped": FLIPPED}


Rule = Callable[["Parts", list[int], Callable[[], float], list[int]], list[int]]


def transition_matrix(parts: Parts) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """All configurations of an attractive model and the probabilities to get from one to another in a sweep."""
    n = len(parts.unary)
    configurations = list(itertools.product(*(range(len(u)) for u in parts.unary)))
    matrix = np.zeros((len(configurations),) * 2)
    for kept in itertools.product([False, True], repeat=len(parts.edges)):
        clusters = clusters_of(n, [e for e, k in zip(parts.edges, kept, strict=True) if k])
        after = np.zeros(len(configurations))
        for b, y in enumerate(configurations):
            if all(len({y[i] for i in cluster}) == 1 for cluster in clusters):
                weights = [(cluster_weights(parts, c), y[c[0]]) for c in clusters]
                after[b] = math.prod(w[s] / sum(w) for w, s in weights)
        for a, x in enumerate(configurations):
            probability = 1.0
            for (i, j), J, k in zip(parts.edges, parts.coupling, kept, strict=True):
                bond = -math.expm1(-J) if x[i] == x[j] else 0.0
                probability *= bond if k else 1.0 - bond
            if probability:
                matrix[a] += probability * after
    return configurations, matrix


TINY = {
    "triangle": Parts(ISING.unary[:3], ISING.edges[:3], ISING.coupling[:3]),
    "square": Parts([*ISING.unary[:3], [0.0, -0.4]], [(0, 1), (0, 3), (1, 2), (2, 3)], [0.7, 0.2, 1.5, 3.0]),
    "potts": Parts(POTTS.unary[:3], [(0, 1), (0, 2), (1, 2)], [0.8, 1.4, 0.5]),
    "forbidden": Parts([[0.0, 0.4, -INF], [0.3, -INF, 0.2], [0.0, 0.1, 0.2]], [(0, 1), (0, 2)], [1.0, 0.6]),
    "mixed": Parts([[0.0, 0.4], [0.0, 0.3, 0.9], [0.5, 0.0], [0.2]], [(0, 2)], [1.2]),
}


def excess(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """Chi-square statistic and degrees of freedom, cells of less than 10 expected counts taken together."""
    assert not counts[expected == 0].any(), "an impossible configuration was drawn"
    rare = expected < 10
    observed, hoped = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    observed, hoped = observed[hoped > 0], hoped[hoped > 0]
    return float(((observed - hoped) ** 2 / hoped).sum()), len(hoped) - 1


def joint_misfit(model: MarkovRandomField, states: np.ndarray) -> float:
    """Chi-square statistic of independent configurations over its limit: above 1, they are not of the model."""
    shape = tuple(model.num_states.tolist())
    codes = np.ravel_multi_index(tuple(states.T), shape)
    p = oracle.joint(model).reshape(-1)
    statistic, freedom = excess(np.bincount(codes, minlength=p.size), len(states) * p)
    return statistic / float(chi2.isf(FALSE_ALARM, freedom)) if freedom else 0.0
