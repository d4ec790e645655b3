"""Graphs found from data: the tree of Chow and Liu in closed form, and scores of edges that a model lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_positive, describe
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs import complete_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import Dataset
from fastmix.learning.objectives import PseudoLikelihood
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.structure import Structure

__all__ = ["chow_liu", "edge_gains"]


_CHUNK = 1 << 24  # entries of one-hot rows at once


def chow_liu(data: Dataset, *, smoothing: float = 1.0) -> MarkovRandomField:
    """The most probable tree [1]_: a maximum spanning tree of the mutual informations, normalised (log Z = 0).

    Parameters
    ----------
    data : Dataset
        Without missing values.
    smoothing : float
        Rows, spread evenly over all pairs of states, that are added to the data: unseen pairs keep a probability.

    References
    ----------
    .. [1] C. K. Chow and C. N. Liu, "Approximating discrete probability distributions with dependence trees", IEEE
       Transactions on Information Theory 14, 1968.

    Examples
    --------
    >>> from fastmix.learning.data import read_data
    >>> chow_liu(read_data([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])).edges.tolist()
    [[0, 1], [0, 2]]
    """
    _check_data(data)
    smoothing = check_positive("smoothing", smoothing, or_zero=True)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    if data.has_missing:
        raise UnfitMethodError("the tree of Chow and Liu needs every value, and some are missing: give the edges")
    n, counts = len(data.num_states), data.num_states
    offsets = np.concatenate([[0], np.cumsum(counts)])
    pairs = _pair_probabilities(data, offsets)
    share = smoothing / (smoothing + data.num_rows)
    owner = np.repeat(np.arange(n), counts)
    uniform = 1.0 / counts[owner]
    single = (1.0 - share) * np.diag(pairs) + share * uniform
    joint = (1.0 - share) * pairs + share * np.outer(uniform, uniform)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0.0, joint * np.log(joint / np.outer(single, single)), 0.0)
    information = np.add.reduceat(np.add.reduceat(terms, offsets[:-1], axis=0), offsets[:-1], axis=1)
    i, j = complete_edges(n).T
    # The smallest total of 1 - information is the largest information; all weights must be positive to count.
    weights = 1.0 + information[i, j].max(initial=0.0) - information[i, j]
    tree = minimum_spanning_tree(coo_array((weights, (i, j)), shape=(n, n))).tocoo()
    edges = np.sort(np.stack([tree.row, tree.col], axis=1), axis=1).astype(np.int64)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    tables = []
    for a, b in edges:
        rows, cols = slice(offsets[a], offsets[a + 1]), slice(offsets[b], offsets[b + 1])
        tables.append(_log(joint[rows, cols]) - _log(single[rows])[:, None] - _log(single[cols]))
    unary = [_log(single[offsets[k] : offsets[k + 1]]) for k in range(n)]
    return MarkovRandomField.from_tables(
        unary, edges, tables, variable_names=data.variable_names, state_names=data.state_names
    )


def _log(p: FloatArray) -> FloatArray:
    return np.log(np.maximum(p, 1e-300))


def _pair_probabilities(data: Dataset, offsets: NDArray[np.int64]) -> FloatArray:
    """Probabilities (S, S) of all pairs of states of two variables."""
    size = int(offsets[-1])
    result = np.zeros((size, size))
    step = max(1, _CHUNK // size)
    for first in range(0, len(data.states), step):
        states, weights = data.states[first : first + step], data.weights[first : first + step]
        hot = np.zeros((len(states), size))
        hot[np.arange(len(states))[:, None], offsets[:-1] + states] = 1.0
        result += hot.T @ (weights[:, None] * hot)
    return result


def edge_gains(model: MarkovRandomField, data: Dataset) -> tuple[IntArray, FloatArray]:
    """Pairs (k, 2) that are no edges of a model, and about what an edge there would add to the log-pseudo-likelihood.

    ``|g|^2 / (2 h)`` with the gradient g of the pseudo-likelihood in the table of the pair, which is 0, and the
    curvature h that it has if the two variables are independent: the score test. The largest come first.

    Notes
    -----
    One evaluation of the pseudo-likelihood on the complete graph.

    Examples
    --------
    >>> from fastmix.learning.data import read_data
    >>> data = read_data([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    >>> empty = MarkovRandomField.from_tables([[0, 0]] * 3, [], [])
    >>> pairs, gains = edge_gains(empty, data)
    >>> pairs.tolist(), gains.round(6).tolist()
    ([[0, 1], [0, 2], [1, 2]], [1.0, 0.0, 0.0])
    """
    check_model(model)
    _check_data(data)
    if not np.array_equal(data.num_states, model.num_states):
        raise ModelError("data must have the state counts of the model, got others")
    n = model.num_variables
    whole = Coordinates(Structure.of(model.num_states, complete_edges(n)))
    d, own = whole.num_contrasts, Coordinates(model.structure)
    v, _ = own.from_parameters(model.parameters)
    matrix = own.matrix(v)
    _, gradient = PseudoLikelihood(whole, data).evaluate(whole.gather(v[:d], matrix))
    y = whole.encode(data.states)
    variances = np.maximum(data.weights @ y**2 - (data.weights @ y) ** 2, 1e-12)
    # The pair stands in the conditionals of both variables, so its curvature is twice that in the likelihood.
    terms = gradient[d:] ** 2 / (4.0 * variances[whole.rows] * variances[whole.cols])
    gains = np.bincount(whole.edge_of, terms, whole.structure.num_edges).astype(np.float64)
    pairs = whole.structure.edges
    present = np.zeros((n, n), dtype=bool)
    present[model.edges[:, 0], model.edges[:, 1]] = True
    absent = np.flatnonzero(~present[pairs[:, 0], pairs[:, 1]])
    order = absent[np.argsort(-gains[absent], kind="stable")]
    return pairs[order], gains[order]


def _check_data(data: Any) -> None:
    """A TypeError for what is no :class:`Dataset`."""
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, which read_data and read_table give, got {describe(data)}")
