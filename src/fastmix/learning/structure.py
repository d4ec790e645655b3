"""Graphs found from data: the tree of Chow and Liu in closed form, and scores of edges that a model lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_positive, describe
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs import complete_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import Dataset
from fastmix.learning.log_z import observed_shares
from fastmix.learning.objectives import PseudoLikelihood
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["best_tree", "chow_liu", "edge_gains"]


_CHUNK = 1 << 24  # entries of one-hot rows, and of probabilities of pairs, at once
# Bytes and seconds of a pair of variables (weights and their sorting), seconds of a pair of states, alone and times the
# rows.
_PAIR_BYTES, _PAIR_SECONDS, _ENTRY_SECONDS, _PRODUCT_SECONDS = 80.0, 2e-7, 3e-8, 1e-10
_TABLE_BYTES = 50.0  # of an entry of a table, with its copies


def chow_liu(data: Dataset, *, smoothing: float = 1.0) -> MarkovRandomField:
    """The most probable tree [1]_: a maximum spanning tree of the mutual informations, normalised (log Z = 0).

    Parameters
    ----------
    data : Dataset
        Without missing values.
    smoothing : float
        Rows, spread evenly over all pairs of states, that are added to the data: unseen pairs keep a probability.

    Raises
    ------
    ResourceError
        If there is no memory for a number for every pair of variables.

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
    return best_tree(data, check_positive("smoothing", smoothing, or_zero=True), NO_LIMIT)


def best_tree(data: Dataset, smoothing: float, clock: Clock) -> MarkovRandomField:
    """The tree of Chow and Liu, or an OutOfTimeError where it takes longer than a clock has left."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    if data.has_missing:
        raise UnfitMethodError("the tree of Chow and Liu needs every value, and some are missing: give the edges")
    n, counts = len(data.num_states), data.num_states
    _check_size(data, clock)
    offsets = offsets_of(counts)
    owner = np.repeat(np.arange(n), counts)
    uniform = 1.0 / counts[owner]
    share = smoothing / (smoothing + data.num_rows)
    single = (1.0 - share) * observed_shares(data)[0] + share * uniform
    information = _information(data, offsets, single, share, clock)
    i, j = complete_edges(n).T
    # The smallest total of 1 - information is the largest information; all weights must be positive to count.
    weights = 1.0 + information[i, j].max(initial=0.0) - information[i, j]
    tree = minimum_spanning_tree(coo_array((weights, (i, j)), shape=(n, n))).tocoo()
    edges = np.sort(np.stack([tree.row, tree.col], axis=1), axis=1).astype(np.int64)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    entries = float(counts[edges].astype(np.float64).prod(axis=1).sum())
    check_memory(_TABLE_BYTES * entries, f"a tree with {entries:.4g} entries of tables", "use fewer states")
    tables = []
    for a, b in edges:
        size = int(counts[a]), int(counts[b])
        both = data.states[:, a].astype(np.int64) * size[1] + data.states[:, b]
        seen = np.bincount(both, data.weights, size[0] * size[1]).astype(np.float64, copy=False)
        joint = (1.0 - share) * seen + share / (size[0] * size[1])
        rows, cols = slice(offsets[a], offsets[a + 1]), slice(offsets[b], offsets[b + 1])
        tables.append(_log(joint).reshape(size) - _log(single[rows])[:, None] - _log(single[cols]))
    unary = [_log(single[offsets[k] : offsets[k + 1]]) for k in range(n)]
    return MarkovRandomField.from_tables(
        unary, edges, tables, variable_names=data.variable_names, state_names=data.state_names
    )


def _check_size(data: Dataset, clock: Clock) -> None:
    """A :class:`ResourceError` without the memory for a tree of these data, an OutOfTimeError without the time."""
    pairs = len(data.num_states) * (len(data.num_states) - 1) / 2.0
    check_memory(_PAIR_BYTES * pairs, f"a number for each of {pairs:,.0f} pairs of variables", "give the edges")
    size = float(data.num_states.sum())
    seconds = _PAIR_SECONDS * pairs + size**2 * (_ENTRY_SECONDS + _PRODUCT_SECONDS * len(data.states))
    if seconds > clock.left():
        raise OutOfTimeError


def _log(p: FloatArray) -> FloatArray:
    return np.log(np.maximum(p, 1e-300))


def _information(
    data: Dataset, offsets: NDArray[np.int64], single: FloatArray, share: float, clock: Clock
) -> FloatArray:
    """Mutual informations (n, n) of the variables, for some of them with all others at a time."""
    n, size = len(data.num_states), int(offsets[-1])
    uniform = 1.0 / np.repeat(data.num_states, data.num_states)
    information = np.empty((n, n))
    most = max(int(data.num_states.max()), _CHUNK // size)  # states of the variables in one part
    first = 0
    while first < n:
        clock.check()
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + most, side="right")) - 1)
        own = slice(int(offsets[first]), int(offsets[last]))
        pairs = _pair_probabilities(data, offsets, own, clock)
        joint = (1.0 - share) * pairs + share * np.outer(uniform[own], uniform)
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(joint > 0.0, joint * np.log(joint / np.outer(single[own], single)), 0.0)
        of_rows = np.add.reduceat(terms, offsets[first:last] - own.start, axis=0)
        information[first:last] = np.add.reduceat(of_rows, offsets[:-1], axis=1)
        first = last
    return information


def _pair_probabilities(data: Dataset, offsets: NDArray[np.int64], own: slice, clock: Clock) -> FloatArray:
    """Probabilities (states of some variables, S) of all pairs of states of one of these and of any variable."""
    size = int(offsets[-1])
    result = np.zeros((own.stop - own.start, size))
    step = max(1, _CHUNK // size)
    for first in range(0, len(data.states), step):
        clock.check()
        states, weights = data.states[first : first + step], data.weights[first : first + step]
        hot = np.zeros((len(states), size))
        hot[np.arange(len(states))[:, None], offsets[:-1] + states] = 1.0
        result += hot[:, own].T @ (weights[:, None] * hot)
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
