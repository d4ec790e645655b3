"""Families of random models on which stated errors are compared with the truth."""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from fastmix import MarkovRandomField
from fastmix.graphs import complete_edges, grid_edges
from fastmix.instances import ising_grid

__all__ = ["attractive", "biased_run", "opposing_halves", "strongly_coupled"]


def biased_run(seed: int) -> tuple[MarkovRandomField, float, NDArray[np.int64] | None]:
    """A model with strong unaries and couplings of any certified strength, an accuracy, and a bad start.

    Weakly coupled models are certified after a sweep or two, which leave most of the bias that the accuracy allows;
    every other run starts with every variable in its least likely state by its unary.
    """
    rng = np.random.default_rng([seed, 24])
    n = int(rng.integers(2, 9))
    counts = rng.integers(2, 4, size=n).tolist()
    pairs = [pair for pair in itertools.combinations(range(n), 2) if rng.random() < 0.6] or [(0, 1)]
    scale = 10.0 ** rng.uniform(-2.0, 0.0)
    unaries = [rng.uniform(0.0, 4.0) * rng.normal(size=count) for count in counts]
    tables = [scale * rng.normal(size=(counts[i], counts[j])) for i, j in pairs]
    accuracy = float(10.0 ** rng.uniform(-1.7, -0.3))
    num_chains = math.ceil(math.log(40.0) / (2.0 * (accuracy / 2.0) ** 2))
    start = None if seed % 2 else np.tile([int(unary.argmin()) for unary in unaries], (num_chains, 1))
    return MarkovRandomField.from_tables(unaries, pairs, tables), accuracy, start


def strongly_coupled(seed: int, longest: int = 200) -> MarkovRandomField:
    """A model whose log Z is known by exact inference, and in which replicas take long: narrow, long and strong."""
    rng = np.random.default_rng([seed, 31])
    strength = 10.0 ** rng.uniform(-0.3, 1.0)
    length = int(rng.integers(10, longest))
    if seed % 5 < 2:
        rows = int(rng.integers(3, 9))
        return ising_grid(rows, length, coupling_max=strength, attractive=seed % 5 == 1, seed=seed)
    if seed % 5 == 2:
        edges, q = grid_edges(3, max(10, length // 2)), int(rng.integers(3, 7))
        n = int(edges.max()) + 1
        coupling = strength * rng.normal(size=len(edges))
        return MarkovRandomField.potts(edges, coupling=coupling, num_states=q, field=rng.normal(size=(n, q)))
    if seed % 5 == 3:
        n = int(rng.integers(10, 19))
        edges = complete_edges(n)
        return MarkovRandomField.ising(edges, coupling=strength * rng.normal(size=len(edges)), field=rng.normal(size=n))
    edges = grid_edges(2, length)
    n = int(edges.max()) + 1
    unaries = [rng.normal(size=4) for _ in range(n)]
    return MarkovRandomField.from_tables(unaries, edges.tolist(), [strength * rng.normal(size=(4, 4)) for _ in edges])


def attractive(seed: int) -> MarkovRandomField:
    """An attractive grid of any strength with fields that oppose each other, are random, or all favor one state."""
    rng = np.random.default_rng([seed, 41])
    rows = int(rng.integers(2, 9))
    cols = int(rng.integers(2, 13))
    edges, n = grid_edges(rows, cols), rows * cols
    coupling = 10.0 ** rng.uniform(-1.0, 1.0)
    if seed % 4 == 0:
        side = np.where(np.arange(n) % cols < cols / 2, 1.0, -1.0)
        field = side * 10.0 ** rng.uniform(-1.0, 1.0) * rng.uniform(0.7, 1.3, size=n)
        return MarkovRandomField.ising(edges, coupling=coupling, field=field)
    if seed % 4 == 1:
        field = 10.0 ** rng.uniform(-1.0, 1.0) * rng.normal(size=n)
        return MarkovRandomField.ising(edges, coupling=coupling * rng.uniform(size=len(edges)), field=field)
    if seed % 4 == 2:
        field = 10.0 ** rng.uniform(-2.0, 0.0) * np.abs(rng.normal(size=n))
        return MarkovRandomField.ising(edges, coupling=coupling * rng.uniform(0.5, 1.0, size=len(edges)), field=field)
    q = int(rng.integers(3, 6))
    edges = grid_edges(min(rows, 5), cols)
    field = 10.0 ** rng.uniform(-1.0, 1.0) * rng.normal(size=(min(rows, 5) * cols, q))
    return MarkovRandomField.potts(edges, coupling=coupling, num_states=q, field=field)


def opposing_halves(seed: int) -> MarkovRandomField:
    """A grid whose halves are held by opposite fields: a variable seldom changes sides, and stays there for long."""
    rng = np.random.default_rng([seed, 51])
    rows = int(rng.integers(2, 7))
    cols = int(rng.integers(3, 10))
    side = np.where(np.arange(rows * cols) % cols < cols / 2, 1.0, -1.0)
    coupling = 10.0 ** rng.uniform(-0.5, 0.8)
    field = side * 10.0 ** rng.uniform(-1.0, 0.6) * rng.uniform(0.7, 1.3, size=rows * cols)
    return MarkovRandomField.ising(grid_edges(rows, cols), coupling=coupling, field=field)
