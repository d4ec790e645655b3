"""Models of a few modes whose log Z is known by counting, and rows from one of the modes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fastmix import MarkovRandomField
from fastmix.graphs import complete_edges

FloatArray = NDArray[np.float64]

LEAST_MASS = 0.003  # of a mode that counts as one


@dataclass(frozen=True)
class Modes:
    """A model whose variables are alike within groups; its log Z, its modes with their masses, and rows from each."""

    model: MarkovRandomField
    log_z: float
    masses: list[float]
    rows: list[NDArray[np.int64]]


def draw_modes(seed: int, *, num_rows: int = 50, most_variables: int = 60) -> Modes:
    """A random model with two or more modes: 7 to 60 variables, or fewer, of 2 or 3 states.

    There are one to three groups of variables that are alike. Couplings attract within groups, and attract or repel
    between them; fields differ between groups. All that matters of a configuration is how many variables of each group
    are in each state.
    """
    rng = np.random.default_rng([seed, 32])
    while True:
        found = _draw(rng, num_rows, most_variables)
        if found is not None:
            return found


def _draw(rng: np.random.Generator, num_rows: int, most_variables: int) -> Modes | None:
    n, q = int(rng.integers(7, most_variables + 1)), int(rng.integers(2, 4))
    num_groups = int(rng.integers(1, 4 if q == 2 else 3))
    cuts = np.sort(rng.choice(np.arange(1, n), num_groups - 1, replace=False))
    sizes = np.diff([0, *cuts, n])
    coupling = rng.uniform(0.5, 3.0) * q / n * np.ones((num_groups, num_groups))
    if num_groups > 1:
        factor = rng.uniform(-1.0, 1.0, (num_groups, num_groups))
        factor = np.triu(factor, 1) + np.triu(factor, 1).T + np.diag(rng.uniform(0.5, 1.5, num_groups))
        coupling = coupling * factor
    field = rng.normal(size=(num_groups, q)) * 10.0 ** rng.uniform(-2.5, 0.0)
    group = np.repeat(np.arange(num_groups), sizes)
    edges = complete_edges(n)
    tables = coupling[group[edges[:, 0]], group[edges[:, 1]]][:, None, None] * np.eye(q)
    model = MarkovRandomField.from_tables(list(field[group]), edges, list(tables))
    counts, logs = _count(sizes, q, coupling, field)
    log_z = float(np.logaddexp.reduce(logs))
    basin = _basins(counts, logs)
    shares = np.exp(logs - log_z)
    masses = np.bincount(basin, shares, len(logs))
    chosen = np.flatnonzero(masses >= LEAST_MASS)
    if len(chosen) < 2:
        return None
    rows = [_rows(rng, counts, np.where(basin == mode, shares, 0.0), sizes, num_rows) for mode in chosen]
    return Modes(model, log_z, masses[chosen].tolist(), rows)


def _count(sizes: Any, q: int, coupling: FloatArray, field: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Counts of all states in all groups, (K, groups, q), and the logarithms of their weights, (K,)."""
    each = []
    for size in sizes.tolist():
        listed = [(*some, size - sum(some)) for some in itertools.product(range(size + 1), repeat=q - 1)]
        each.append(np.array([some for some in listed if some[-1] >= 0]))
    places = np.indices([len(some) for some in each]).reshape(len(each), -1)
    counts = np.stack([some[place] for some, place in zip(each, places, strict=True)], axis=1)
    pairs = np.einsum("kgs,khs->kgh", counts.astype(float), counts.astype(float))
    inner = np.arange(len(sizes))
    pairs[:, inner, inner] -= counts.sum(axis=2)
    logs = 0.5 * np.einsum("kgh,gh->k", pairs, coupling) + np.einsum("kgs,gs->k", counts, field)
    return counts, logs + gammaln(counts.sum(axis=2) + 1.0).sum(axis=1) - gammaln(counts + 1.0).sum(axis=(1, 2))


def _basins(counts: NDArray[np.int64], logs: FloatArray) -> NDArray[np.int64]:
    """The mode that each count belongs to: where it comes to by changes of one variable that raise the weight most."""
    flat, best, most = counts.reshape(len(counts), -1), np.arange(len(counts)), logs.copy()
    q, width = counts.shape[2], counts.shape[1] * counts.shape[2]
    base = int(counts.max()) + 2
    keys = flat @ base ** np.arange(width)
    order = np.argsort(keys)
    for g in range(counts.shape[1]):
        for a, b in itertools.permutations(range(q), 2):
            allowed = flat[:, g * q + a] > 0
            wanted = keys[allowed] - base ** (g * q + a) + base ** (g * q + b)
            there = order[np.searchsorted(keys[order], wanted)]
            here = np.flatnonzero(allowed)
            better = logs[there] > most[here]
            best[here[better]], most[here[better]] = there[better], logs[there[better]]
    while (best[best] != best).any():
        best = best[best]
    return best


def _rows(
    rng: np.random.Generator, counts: NDArray[np.int64], shares: FloatArray, sizes: Any, num_rows: int
) -> NDArray[np.int64]:
    """Configurations (rows, n) with counts in proportion to their shares."""
    chosen = rng.choice(len(counts), size=num_rows, p=shares / shares.sum())
    states = np.arange(counts.shape[2])
    rows = []
    for number in chosen:
        parts = [rng.permutation(np.repeat(states, some)) for some in counts[number]]
        rows.append(np.concatenate(parts))
    return np.array(rows)
