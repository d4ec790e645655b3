"""Where the conditional distributions of a model lie in a table of thresholds, and what they are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["Links", "find_links"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Links:
    """The graph of a model as the loops that fill tables read it.

    Attributes
    ----------
    states, unary_at : int array (n,), (n + 1,)
        State counts, and where the unaries of a variable begin.
    indptr, neighbors : int array
        The adjacency; the arrays that follow are along ``neighbors``.
    tables_at, own_steps, their_steps : int array
        The log-potential of state s of the variable and t of its neighbour is entry
        ``tables_at + s * own_steps + t * their_steps`` of ``log_pairwise``.
    strides : int array
        Weights of the neighbours' states in the number of a pattern; the first neighbour counts most.
    starts : int array (n + 1,)
        Where the thresholds of a variable begin, ``L_i - 1`` for every pattern of its neighbours.
    """

    states: IntArray
    unary_at: IntArray
    indptr: IntArray
    neighbors: IntArray
    tables_at: IntArray
    own_steps: IntArray
    their_steps: IntArray
    strides: IntArray
    starts: IntArray


def find_links(model: MarkovRandomField) -> Links:
    """The links of a graph whose tables are small enough, see ``structure.pattern_entries``.

    Examples
    --------
    >>> links = find_links(MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5))
    >>> links.starts.tolist(), links.strides.tolist()
    ([0, 2, 6, 8], [1, 2, 1, 1])
    """
    adjacency, states = model.adjacency, model.num_states
    theirs = states[adjacency.neighbors]
    sizes, strides = np.zeros(model.num_variables, dtype=np.int64), np.ones(len(theirs), dtype=np.int64)
    indptr, counts = adjacency.indptr.tolist(), theirs.tolist()
    for i in range(model.num_variables):
        stride = 1
        for k in range(indptr[i + 1] - 1, indptr[i] - 1, -1):
            strides[k] = stride
            stride *= counts[k]
        sizes[i] = stride * (int(states[i]) - 1)
    return Links(
        states, model.unary_offsets, adjacency.indptr, adjacency.neighbors, *model.structure.directed[1:], strides,
        offsets_of(sizes),
    )  # fmt: skip
