"""The most probable tree for data, in closed form (Chow and Liu 1968)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_positive, describe
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.graphs.trees import heaviest_tree
from fastmix.learning.dataset import Dataset
from fastmix.learning.gaps import gap_tree
from fastmix.learning.independent import observed_shares
from fastmix.learning.tuning import (
    BYTES_PER_TREE_ENTRY,
    BYTES_PER_VARIABLE_PAIR,
    MAX_ONE_HOT_ENTRIES,
    SECONDS_PER_STATE_PAIR,
    SECONDS_PER_STATE_PAIR_AND_ROW,
    SECONDS_PER_VARIABLE_PAIR,
    SPARSE_PRODUCT_FACTOR,
    SPARSE_SHARE,
)
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of

__all__ = ["best_tree", "check_dataset", "chow_liu"]


def chow_liu(data: Dataset, *, smoothing: float = 1.0) -> MarkovRandomField:
    """The most probable tree [1]_: a maximum spanning tree of the mutual informations, normalized (log Z = 0).

    Parameters
    ----------
    data : Dataset
        Where values are missing the tables are those of expectation maximization.
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
    check_dataset(data)
    return best_tree(data, check_positive("smoothing", smoothing, or_zero=True), NO_LIMIT)


def check_dataset(data: Any) -> None:
    """A TypeError for what is no :class:`Dataset`."""
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, which read_data and read_table give, got {describe(data)}")


def best_tree(data: Dataset, smoothing: float, clock: Clock, allowed: IntArray | None = None) -> MarkovRandomField:
    """The tree of Chow and Liu, or an OutOfTimeError where it takes longer than a clock has left.

    With edges (m, 2) that are ``allowed`` it has no others, and may fall into several. Missing values: :mod:`.gaps`.

    1. Probabilities of all states, smoothed.
    2. Mutual informations of all pairs, and the tree with the largest sum of them.
    3. Its tables: logarithms of joint probabilities over products of single ones.
    """
    _check_size(data, clock)
    if data.has_missing:
        return gap_tree(data, smoothing, clock, allowed).to_model(data)
    num_states = data.num_states
    offsets = offsets_of(num_states)

    # 1.
    uniform = 1.0 / np.repeat(num_states, num_states)
    share = smoothing / (smoothing + data.num_rows)
    single = (1.0 - share) * observed_shares(data)[0] + share * uniform

    # 2.
    edges = heaviest_tree(_information(data, offsets, single, share, clock), allowed)
    entries = float(num_states[edges].astype(np.float64).prod(axis=1).sum())
    check_memory(BYTES_PER_TREE_ENTRY * entries, f"a tree with {entries:.4g} entries of tables", "use fewer states")

    # 3.
    unary = [_log(single[offsets[i] : offsets[i + 1]]) for i in range(len(num_states))]
    tables = []
    for i, j in edges:
        rows = int(num_states[i])
        cols = int(num_states[j])
        both = data.states[:, i].astype(np.int64) * cols + data.states[:, j]
        seen = np.bincount(both, data.weights, rows * cols).astype(np.float64, copy=False)
        joint = (1.0 - share) * seen + share / (rows * cols)
        tables.append(_log(joint).reshape(rows, cols) - unary[i][:, None] - unary[j])
    return MarkovRandomField.from_tables(
        unary, edges, tables, variable_names=data.variable_names, state_names=data.state_names
    )


def _is_sparse(data: Dataset) -> bool:
    """Whether few values are not the first state of their variable, so that pairs of these are quickly counted."""
    return bool(np.count_nonzero(data.states) < SPARSE_SHARE * data.states.size)


def _sparse_pair_probabilities(data: Dataset, offsets: NDArray[np.int64], own: slice) -> FloatArray:
    """The same from pairs of values that are not the first state; the others are what is left of whole shares."""
    from scipy.sparse import csr_array

    size = int(offsets[-1])
    row, variable = np.nonzero(data.states)
    column = offsets[:-1][variable] + data.states[row, variable]
    hot = csr_array((np.ones(len(row)), (row, column)), shape=(len(data.states), size))
    weighted = csr_array((data.weights[row], (row, column)), shape=hot.shape)
    result = np.asarray((hot[:, own].T @ weighted).todense(), dtype=np.float64)

    # 1. The first states of the variables of the columns: what a row has left.
    single = observed_shares(data)[0]
    first = offsets[:-1]
    result[:, first] = single[own, None] - np.add.reduceat(result, first, axis=1)

    # 2. Those of the variables of the rows: what a column has left.
    mine = first[(first >= own.start) & (first < own.stop)] - own.start
    result[mine] = 0.0
    result[mine] = single - np.add.reduceat(result, mine, axis=0)
    return np.maximum(result, 0.0)


def _check_size(data: Dataset, clock: Clock) -> None:
    """A :class:`ResourceError` without the memory for a tree of these data, an OutOfTimeError without the time."""
    pairs = len(data.num_states) * (len(data.num_states) - 1) / 2.0
    check_memory(
        BYTES_PER_VARIABLE_PAIR * pairs, f"a number for each of {pairs:,.0f} pairs of variables", "give the edges"
    )
    size = float(data.num_states.sum())
    products = size**2 * len(data.states)
    if not data.has_missing and _is_sparse(data):
        products = float((np.count_nonzero(data.states, axis=1).astype(np.float64) ** 2).sum()) * SPARSE_PRODUCT_FACTOR
    seconds = size**2 * SECONDS_PER_STATE_PAIR + products * SECONDS_PER_STATE_PAIR_AND_ROW
    if SECONDS_PER_VARIABLE_PAIR * pairs + seconds > clock.left():
        raise OutOfTimeError


def _log(p: FloatArray) -> FloatArray:
    """Logarithms of probabilities, finite where they are 0."""
    return np.log(np.maximum(p, 1e-300))


def _information(
    data: Dataset, offsets: NDArray[np.int64], single: FloatArray, share: float, clock: Clock
) -> FloatArray:
    """Mutual informations (n, n) of the variables, for some of them with all others at a time."""
    n = len(data.num_states)
    size = int(offsets[-1])
    uniform = 1.0 / np.repeat(data.num_states, data.num_states)
    information = np.empty((n, n))
    most = max(int(data.num_states.max()), MAX_ONE_HOT_ENTRIES // size)  # states of the variables in one part
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
    if _is_sparse(data):
        return _sparse_pair_probabilities(data, offsets, own)
    result = np.zeros((own.stop - own.start, size))
    step = max(1, MAX_ONE_HOT_ENTRIES // size)
    for first in range(0, len(data.states), step):
        clock.check()
        states = data.states[first : first + step]
        weights = data.weights[first : first + step]
        hot = np.zeros((len(states), size))
        hot[np.arange(len(states))[:, None], offsets[:-1] + states] = 1.0
        result += hot[:, own].T @ (weights[:, None] * hot)
    return result
