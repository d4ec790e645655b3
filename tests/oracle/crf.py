"""Naive conditional random fields: all labelings of one small graph, one after another."""

from __future__ import annotations

from itertools import product

import numpy as np

from fastmix.crf import Graph


def log_weight(graph: Graph, nodes: np.ndarray, tables: np.ndarray, labels: np.ndarray) -> float:
    """The log-weight of labels (n,), for weights W (F + 1, K) and P (kinds, G + 1, K, K)."""
    features = graph.features if isinstance(graph.features, np.ndarray) else graph.features.toarray()
    total = 0.0
    for row, label in zip(features, labels, strict=True):
        total += float(np.append(row, 1.0) @ nodes[:, label])
    for e, (i, j) in enumerate(np.asarray(graph.edges)):
        own = np.ones(1) if graph.edge_features is None else np.append(graph.edge_features[e], 1.0)
        total += float(own @ tables[graph.edge_kinds[e], :, labels[i], labels[j]])
    return total


def labelings(graph: Graph, nodes: np.ndarray, tables: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All labelings (K^n, n), and their log-weights."""
    every = np.array(list(product(range(nodes.shape[1]), repeat=graph.num_nodes)), dtype=np.int64)
    return every, np.array([log_weight(graph, nodes, tables, labels) for labels in every])


def log_likelihood(graph: Graph, nodes: np.ndarray, tables: np.ndarray, codes: np.ndarray) -> float:
    """The log-probability of the labels that are known, -1 where they are not."""
    every, weights = labelings(graph, nodes, tables)
    agrees = ((every == codes) | (codes < 0)).all(axis=1)
    return float(np.logaddexp.reduce(weights[agrees]) - np.logaddexp.reduce(weights))


def log_pseudo_likelihood(graph: Graph, nodes: np.ndarray, tables: np.ndarray, codes: np.ndarray) -> float:
    """The sum of the log-probabilities of labels given the others, over nodes with known neighbors."""
    total = 0.0
    for node in range(graph.num_nodes):
        beside = {int(k) for edge in np.asarray(graph.edges) if node in edge for k in edge} | {node}
        if any(codes[k] < 0 for k in beside):
            continue
        scores = []
        for state in range(nodes.shape[1]):
            changed = np.where(codes < 0, 0, codes)  # labels that are not neighbors cancel
            changed[node] = state
            scores.append(log_weight(graph, nodes, tables, changed))
        total += scores[codes[node]] - float(np.logaddexp.reduce(scores))
    return total


def marginals(graph: Graph, nodes: np.ndarray, tables: np.ndarray) -> np.ndarray:
    """The probabilities (n, K) of the labels of every node."""
    every, weights = labelings(graph, nodes, tables)
    probabilities = np.exp(weights - np.logaddexp.reduce(weights))
    found = np.zeros((graph.num_nodes, nodes.shape[1]))
    for labels, probability in zip(every, probabilities, strict=True):
        found[np.arange(graph.num_nodes), labels] += probability
    return found
