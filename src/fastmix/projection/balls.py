"""Nearest points in norm balls: the l1 ball of vectors, the infinity-norm and spectral-norm balls of matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["RowGroups", "clip_eigenvalues", "project_inf_norm_ball", "project_l1_ball", "project_spectral_norm_ball"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def project_l1_ball(vector: ArrayLike, radius: float) -> FloatArray:
    """The point of ``{w : ||w||_1 <= radius}`` nearest to a vector.

    Every entry moves towards zero by the same threshold ``tau`` and stops there,
    ``w_k = sign(v_k) max(|v_k| - tau, 0)``, where ``tau`` makes the sum of ``|w_k|`` equal to the radius
    [1]_. With the magnitudes in descending order and ``S_k`` the sum of the first k,
    ``tau = max_k (S_k - radius) / k``.

    Parameters
    ----------
    vector : float array (n,)
        Finite numbers of any sign.
    radius : float
        Finite, at least 0.

    Returns
    -------
    float array (n,)
        A new array, equal to ``vector`` if that lies in the ball.

    Raises
    ------
    ValueError
        If the vector is not one-dimensional and finite, or the radius negative or not finite.

    Notes
    -----
    Exact up to rounding relative to the radius, however large the entries. Time O(n log n), memory O(n).

    References
    ----------
    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer and T. Chandra, "Efficient projections onto the l1-ball for learning
       in high dimensions", ICML 2008.

    Examples
    --------
    >>> project_l1_ball([3.0, -2.0, 0.5], 2.0).tolist()
    [1.5, -0.5, 0.0]
    """
    values = _as_finite("vector", vector, 1)
    bound = _as_radius(radius)
    return _shrink_rows(values[None, :], bound)[0][0] if values.size else values


def project_inf_norm_ball(matrix: Any, radius: float) -> Any:
    """The matrix nearest to another in Frobenius norm whose rows all have an l1 norm of at most ``radius``.

    The infinity norm ``max_i sum_j |A_ij|`` bounds each row by itself, so that every row is projected onto the l1
    ball [1]_. Zeros stay zero.

    Parameters
    ----------
    matrix : float array (n, m), or sparse matrix or array of scipy
        Finite numbers of any sign.
    radius : float
        Finite, at least 0.

    Returns
    -------
    float array (n, m), or sparse matrix in compressed rows
        New, of the kind that came in. A sparse answer stores the positions that its input stored, entries that became
        zero included.

    Raises
    ------
    ValueError
        If the matrix is not two-dimensional and finite, or the radius negative or not finite.

    Notes
    -----
    Rows with the same number of stored entries are sorted together, so that there is no loop over rows. Time
    O(N log d) for N stored entries, at most d of them in a row; memory O(N).

    References
    ----------
    .. [1] J. Duchi, S. Shalev-Shwartz, Y. Singer and T. Chandra, "Efficient projections onto the l1-ball for learning
       in high dimensions", ICML 2008.

    Examples
    --------
    >>> project_inf_norm_ball([[3.0, -2.0], [0.5, 0.5]], 2.0).tolist()
    [[1.5, -0.5], [0.5, 0.5]]

    >>> from scipy.sparse import csr_array
    >>> project_inf_norm_ball(csr_array([[0.0, 3.0], [-1.0, 0.0]]), 2.0).toarray().tolist()
    [[0.0, 2.0], [-1.0, 0.0]]
    """
    from scipy import sparse

    bound = _as_radius(radius)
    if not sparse.issparse(matrix):
        values = _as_finite("matrix", matrix, 2)
        return _shrink_rows(values, bound)[0] if values.size else values
    if matrix.ndim != 2:
        raise ValueError(f"matrix must have 2 dimensions, got shape {matrix.shape}")
    result = matrix.tocsr(copy=True)
    result.sum_duplicates()
    result.data = RowGroups.of(result.indptr).project(_as_finite("matrix", result.data, 1), bound)[0]
    return result


def project_spectral_norm_ball(matrix: ArrayLike, radius: float) -> FloatArray:
    """The matrix nearest to another in Frobenius norm whose largest singular value is at most ``radius``.

    Singular values above the radius are set to it. For a symmetric matrix they are the magnitudes of the
    eigenvalues, which keep their signs, and the answer is symmetric again.

    Parameters
    ----------
    matrix : float array (n, m)
        Finite numbers.
    radius : float
        Finite, at least 0.

    Returns
    -------
    float array (n, m)
        A new array, equal to ``matrix`` if that lies in the ball.

    Raises
    ------
    ValueError
        If the matrix is not two-dimensional and finite, or the radius negative or not finite.

    Notes
    -----
    One dense decomposition: time O(n m min(n, m)), memory O(n m). A symmetric matrix takes the several times faster
    symmetric eigenvalue decomposition.

    Examples
    --------
    >>> project_spectral_norm_ball([[3.0, 0.0], [0.0, 1.0]], 2.0).tolist()
    [[2.0, 0.0], [0.0, 1.0]]
    """
    values = _as_finite("matrix", matrix, 2)
    bound = _as_radius(radius)
    if values.size == 0:
        return values
    if values.shape[0] == values.shape[1] and np.array_equal(values, values.T):
        return clip_eigenvalues(values, bound)[0]
    left, singular, right = np.linalg.svd(values, full_matrices=False)
    over = singular > bound
    # Taking the excess off leaves the rest of the matrix as it was, to the last bit.
    return values - (left[:, over] * (singular[over] - bound)) @ right[over]


def clip_eigenvalues(matrix: FloatArray, radius: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A symmetric matrix with its eigenvalues clipped to ``[-radius, radius]``; eigenvalues and vectors before that.

    For callers inside the package: the arguments are not checked.
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
        """Stored entries after projection of every row, and the threshold of every row (0 for rows in the ball)."""
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


def _as_finite(name: str, values: ArrayLike, num_dimensions: int) -> FloatArray:
    try:
        if isinstance(values, np.ndarray) and values.dtype.kind == "c":
            raise TypeError("complex numbers are not supported")
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers ({error})") from None
    if array.ndim != num_dimensions:
        raise ValueError(f"{name} must have {num_dimensions} dimension(s), got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _as_radius(radius: float) -> float:
    try:
        value = float(radius)
    except (TypeError, ValueError):
        raise ValueError(f"radius must be a number, got {radius!r}") from None
    if not 0.0 <= value < np.inf:
        raise ValueError(f"radius must be finite and at least 0, got {radius!r}")
    return value
