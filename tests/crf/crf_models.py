"""Small random examples of conditional random fields."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.crf import Graph
from fastmix.crf.design import Layout
from fastmix.crf.examples import Examples, read_examples


def random_graph(rng: np.random.Generator, *, num_edge_features: int = 0, cycles: bool = False) -> Graph:
    """A tree, or a tree with some more edges, of one to six nodes with two features."""
    n = int(rng.integers(1, 7))
    pairs = {(int(rng.integers(0, i)), i) for i in range(1, n) if rng.random() < 0.9}
    if cycles and n > 2:
        pairs |= {(0, n - 1), (0, 1), (1, n - 1)}
    edges = [pair if rng.random() < 0.5 else pair[::-1] for pair in sorted(pairs)]
    rng.shuffle(edges)
    features = rng.normal(size=(len(edges), num_edge_features)) if num_edge_features else None
    kinds = rng.integers(0, 2, len(edges))
    return Graph(rng.normal(size=(n, 2)), edges, features if edges else None, kinds)


def random_problem(
    seed: int, *, num_edge_features: int = 0, cycles: bool = False, missing: float = 0.0, scale: float = 1.0
) -> tuple[list[Graph], Examples, Layout, IntArray, FloatArray]:
    """Graphs, the same as examples, the layout of weights, labels with some missing, and weights."""
    rng = np.random.default_rng(seed)
    graphs = [random_graph(rng, num_edge_features=num_edge_features, cycles=cycles) for _ in range(4)]
    edges = np.array([(0, 1), (2, 1)])
    features = rng.normal(size=(2, num_edge_features)) if num_edge_features else None
    graphs.append(Graph(rng.normal(size=(3, 2)), edges, features, [0, 1]))  # some edge of either kind
    examples = read_examples(graphs)
    num_states = int(rng.integers(2, 4))
    layout = Layout(num_states, 2, num_edge_features, 2, (False, False))
    codes = rng.integers(0, num_states, examples.num_nodes)
    codes[rng.random(len(codes)) < missing] = -1
    return graphs, examples, layout, codes, scale * rng.normal(size=layout.size)
