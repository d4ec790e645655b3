"""``NodeSums``: the nearest numbers on the edges of a graph whose sums at some nodes are given.

With the weights alpha_e of the squares, the change of the numbers is ``A' lam / alpha`` for the multipliers lam of the
nodes, which solve ``A diag(1 / alpha) A' lam = residual``; A is the incidence matrix of the nodes and the edges at
them. That matrix is singular where the nodes of a connected part have two colors and no edge leads out of it: the sums
of one color then add up to those of the other, so that one of them can be left out.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray

__all__ = ["NodeSums"]


class NodeSums:
    """The minimum of ``sum_e alpha_e (z_e - y_e)^2`` where the sum of z at every chosen node is a given number.

    Parameters
    ----------
    chosen : bool array (n,)
        The nodes whose sums are given.
    ends : int array (k, 2)
        Both ends of every edge, at least one of them chosen.
    weights : float array (k,)
        alpha, positive.
    """

    def __init__(self, chosen: BoolArray, ends: IntArray, weights: FloatArray) -> None:
        self.chosen = chosen
        self.ends = ends
        self.weights = weights

    def nearest(self, targets: FloatArray, total: float) -> FloatArray:
        """The numbers z (k,) nearest to the targets y, with sums that are ``total`` at the chosen nodes."""
        found = targets.copy()
        if self._factor is None:
            return found
        for _ in range(2):  # the second time takes the rounding errors of the first away
            residual = total - self._incidence @ found
            found += (self._incidence.T @ self._factor.solve(residual)) / self.weights
        return found

    @cached_property
    def _incidence(self) -> Any:
        """The sums that are independent, by edges."""
        from scipy.sparse import csr_array

        kept = self.chosen & ~self._redundant
        row_of = np.cumsum(kept) - 1
        nodes = self.ends.reshape(-1)
        edges = np.repeat(np.arange(len(self.ends)), 2)
        used = kept[nodes]
        shape = (int(kept.sum()), len(self.ends))
        return csr_array((np.ones(int(used.sum())), (row_of[nodes[used]], edges[used])), shape=shape)

    @cached_property
    def _factor(self) -> Any:
        """The factors of ``A diag(1 / alpha) A'``, or None where there are no sums to keep."""
        from scipy.sparse import csc_array
        from scipy.sparse.linalg import splu

        incidence = self._incidence
        if not incidence.shape[0] or not incidence.shape[1]:
            return None
        matrix = csc_array(incidence @ incidence.multiply(1.0 / self.weights).T)
        options = {"SymmetricMode": True}
        return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

    @cached_property
    def _redundant(self) -> BoolArray:
        """One node of every connected part whose sums depend on each other.

        A part has two colors where its twofold cover, whose edges lead from one copy of the nodes to the other, falls
        into two parts.
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n = len(self.chosen)
        first, second = self.ends.T
        inside = self.chosen[first] & self.chosen[second]
        heads = np.concatenate([first[inside], first[inside] + n])
        tails = np.concatenate([second[inside] + n, second[inside]])
        cover = csr_array((np.ones(len(heads)), (heads, tails)), shape=(2 * n, 2 * n))
        labels = connected_components(cover, directed=False)[1]
        has_colors = labels[:n] != labels[n:]
        # Of a part with two colors both halves of the cover are named by their smaller label.
        part = np.minimum(labels[:n], labels[n:])
        leads_out = np.zeros(len(labels), dtype=bool)
        leads_out[part[first[~inside & self.chosen[first]]]] = True
        leads_out[part[second[~inside & self.chosen[second]]]] = True
        nodes = np.flatnonzero(self.chosen & has_colors & ~leads_out[part])
        redundant = np.zeros(n, dtype=bool)
        redundant[nodes[np.unique(part[nodes], return_index=True)[1]]] = True
        return redundant
