"""Nearest points in norm balls, for the paper's dual: matrices of bounded row sums, and of bounded spectral norm."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowGroups", "clip_eigenvalues"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def clip_eigenvalues(matrix: FloatArray, radius: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A symmetric matrix with its eigenvalues clipped to ``[-radius, radius]``; eigenvalues and vectors before that.

    It is the matrix of spectral norm at most ``radius`` nearest to the given one in Frobenius norm, symmetric again.

    Notes
    -----
    One dense decomposition: time O(n^3), memory O(n^2).

    Examples
    --------
    >>> clip_eigenvalues(np.diag([-3.0, 1.0]), 2.0)[0].tolist()
    [[-2.0, 0.0], [0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    over = np.abs(values) > radius
    if not over.any():
        return matrix.copy(), values, vectors
    excess = values[over] - np.copysign(radius, values[over])
    result = matrix - (vectors[:, over] * excess) @ vectors[:, over].T
    return 0.5 * (result + result.T), values, vectors


class RowGroups(NamedTuple):
    """The rows of a sparse matrix by their number of stored entries, to project many matrices of one pattern.

    Attributes
    ----------
    num_rows : int
    members : tuple of (int array (g,), int array (g, d))
        For every row length d > 0 that occurs: the rows of this length and the positions of their entries.
    """

    num_rows: int
    members: tuple[tuple[IntArray, IntArray], ...]

    @classmethod
    def of(cls, indptr: IntArray) -> RowGroups:
        """The groups of a matrix in compressed rows, from its row starts ``indptr`` (n + 1,).

        Examples
        --------
        >>> RowGroups.of(np.array([0, 2, 3, 5])).members[1][1].tolist()
        [[0, 1], [3, 4]]
        """
        starts = np.asarray(indptr, dtype=np.int64)
        lengths = np.diff(starts)
        order = np.argsort(lengths, kind="stable")
        distinct, first = np.unique(lengths[order], return_index=True)
        members = []
        for length, rows in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
            if length:
                members.append((rows, starts[rows][:, None] + np.arange(length)))
        return cls(len(lengths), tuple(members))

    def project(self, data: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
        """Stored entries after projection of every row onto the l1 ball, and the threshold of every row.

        Every entry v of a row moves towards zero by the same threshold ``tau`` (0 for rows in the ball) and stops
        there, ``w = sign(v) max(|v| - tau, 0)``, where ``tau`` makes the sum of ``|w|`` equal to the radius [1]_. With
        the magnitudes in descending order and ``S_k`` the sum of the first k, ``tau = max_k (S_k - radius) / k``.

        Notes
        -----
        Exact up to rounding relative to the radius, however large the entries. Rows of one length are sorted together,
        so that there is no loop over rows. Time O(N log d) for N stored entries, at most d of them in a row.

        References
        ----------
        .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer and T. Chandra, "Efficient projections onto the l1-ball for
           learning in high dimensions", ICML 2008.

        Examples
        --------
        >>> RowGroups.of(np.array([0, 2, 4])).project(np.array([3.0, -2.0, 0.5, 0.5]), 2.0)[0].tolist()
        [1.5, -0.5, 0.5, 0.5]
        """
        result = data.copy()
        thresholds = np.zeros(self.num_rows)
        for rows, positions in self.members:
            result[positions], thresholds[rows] = _shrink_rows(data[positions], radius)
        return result, thresholds


def _shrink_rows(values: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Rows of a 2-D array, none of them empty, projected onto the l1 ball, and their thresholds."""
    result = values.copy()
    thresholds = np.zeros(len(values))
    magnitudes = np.abs(values)
    over = np.flatnonzero(magnitudes.sum(axis=1) > radius)
    if over.size == 0:
        return result, thresholds
    # Seen from its largest entry a row keeps all digits of the answer, even where that entry dwarfs the radius.
    # Entries more than a radius below it become zero in any case, and are raised to keep the sums small.
    magnitudes = magnitudes[over]
    top = magnitudes.max(axis=1, keepdims=True)
    magnitudes -= top
    np.maximum(magnitudes, -radius, out=magnitudes)
    sums = np.cumsum(np.sort(magnitudes, axis=1)[:, ::-1], axis=1)
    tau = ((sums - radius) / np.arange(1, values.shape[1] + 1)).max(axis=1)
    result[over] = np.copysign(np.maximum(magnitudes - tau[:, None], 0.0), values[over]) + 0.0
    thresholds[over] = tau + top[:, 0]
    return result, thresholds
