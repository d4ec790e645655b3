"""Norms of sparse non-negative matrices, never below the true value.

A certificate that rests on ``norm < 1`` must not owe it to rounding or to an eigensolver that stopped early, so every
value here is an upper bound: sums are rounded up, and the spectral norm comes with a positive vector that proves it.
Any of them serves Theorem 4 of Liu and Domke (2014); for symmetric R the spectral norm is the smallest (Theorem 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, check_choice
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory

__all__ = ["NORMS", "Norm", "dense_if_small", "matrix_norm", "smallest_norm", "spectral_vector"]

Norm = Literal["spectral", "inf", "1", "frobenius"]
NORMS: tuple[str, ...] = get_args(Norm)

_EPS = float(np.finfo(np.float64).eps)

# Relative slack of the spectral norm that is good enough once this many entries were visited: exact to ten digits
# while that takes a fraction of a second, looser for millions of variables with many eigenvalues near the largest.
_SLACK_AFTER = ((5e7, 1e-10), (4e8, 1e-8), (1.5e9, 1e-6), (math.inf, 1e-4))
_MAX_VISITS = 6e9  # about ten seconds; then the slack grows until the vector at hand proves something
_DENSE = 64  # rows
_DENSE_BYTES = 48.0  # of an entry of an array that becomes a sparse matrix, whose norm is computed
# Lanczos vectors are kept up to here, and beyond computed a second time; so many at once get memory, in pages that are
# large: page by page it takes longer than what is written there.
_STORED_BYTES, _BLOCK = 2**27, 32
_LEAST_STEPS = 24  # whatever the clock says: about a second for a million variables, and the norm to a few per cent


def matrix_norm(R: Any, norm: Norm, *, clock: Clock = NO_LIMIT) -> float:
    """A norm of a non-negative square matrix, from above: spectral, row or column sums, root of the sum of squares.

    The sums exceed the true norm by a few rounding errors an entry; the spectral norm by a relative 1e-10 where that
    takes a fraction of a second, else by 1e-8 to 1e-4 (millions of variables), and after the limit of the clock by what
    can be proved by then. Infinite entries make the norm infinite.

    The spectral norm takes a few dozen to a few hundred products with R, and at most 128 MiB beyond R. It is proved by
    a positive vector: by Collatz and Wielandt ``R v <= c v`` with ``v > 0`` implies that the spectral radius is at most
    c, also where the matrix falls into parts; for symmetric R this is the spectral norm, for other R the vector proves
    ``R^T R v <= c^2 v``.
    """
    check_choice("norm", norm, NORMS)
    matrix, largest = _as_nonnegative(R)
    if largest in (0.0, math.inf):
        return largest
    if norm == "spectral":
        return _spectral(matrix, largest, clock)[0]
    with np.errstate(over="ignore"):
        if norm == "frobenius":
            scaled = matrix.data / largest
            return _up(largest * math.sqrt(float(scaled @ scaled)), len(scaled))
        axis = 1 if norm == "inf" else 0
        counts = np.diff(matrix.indptr) if axis else np.bincount(matrix.indices)
        return _up(float(matrix.sum(axis=axis).max()), int(counts.max()))


def smallest_norm(R: Any, *, clock: Clock = NO_LIMIT) -> tuple[str, float]:
    """Name and value of the smallest of the four norms of a non-negative matrix, from above.

    For a symmetric matrix no norm is below the spectral one (Dyer, Goldberg and Jerrum 2009, Lemma 13); for another,
    row sums or column sums can be.
    """
    matrix, _ = _as_nonnegative(R)
    values = {norm: matrix_norm(matrix, norm, clock=clock) for norm in get_args(Norm)}
    name = min(values, key=lambda norm: values[norm])
    return name, values[name]


def spectral_vector(R: Any) -> FloatArray:
    """A vector v > 0 for which the largest ``(R v)_i / v_i`` of a symmetric non-negative R is close to its norm."""
    matrix, largest = _as_nonnegative(R)
    return _spectral(matrix, largest)[1] if 0.0 < largest < math.inf else np.ones(matrix.shape[0])


def dense_if_small(matrix: Any) -> Any:
    """The matrix itself, or the same as an array where a product with that takes less time than the call for it."""
    return matrix.toarray() if matrix.shape[0] <= _DENSE else matrix


def _as_nonnegative(R: Any, name: str = "R") -> tuple[Any, float]:
    """R as a csr_array of positive entries with sorted columns, and its largest entry (0.0 without any)."""
    from scipy.sparse import csr_array, issparse

    if issparse(R):
        if R.dtype.kind not in "fiub":
            raise ValueError(f"{name} must hold real numbers, got {R.dtype}")
        matrix = csr_array(R, dtype=np.float64)
    else:
        array = as_float_array(name, R)
        check_memory(_DENSE_BYTES * array.size, f"{name} of {array.size:,} entries", "give a sparse matrix")
        if array.ndim != 2:
            raise ValueError(f"{name} must be a square matrix, got shape {array.shape}")
        matrix = csr_array(array)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if not matrix.nnz:
        return matrix, 0.0
    least, largest = float(matrix.data.min()), float(matrix.data.max())
    if not least >= 0.0:
        raise ValueError(f"{name} must have entries of at least 0, got {least}")
    if least == 0.0 or not matrix.has_canonical_format:
        matrix = matrix.copy()  # the argument is not changed
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        largest = float(matrix.data.max()) if matrix.nnz else 0.0
    return matrix, largest


def _up(value: float, terms: int) -> float:
    """A sum of non-negative terms, in whatever order it was added, plus the most that rounding can have taken."""
    return math.nextafter(value * (1.0 + (terms + 4) * _EPS), math.inf)


def _spectral(matrix: Any, largest: float, clock: Clock = NO_LIMIT) -> tuple[float, FloatArray]:
    """The spectral norm from above, and the vector v > 0 that proves it, with largest entry 1.

    The vector is ``v = (c I - R)^-1 1`` for c slightly above the largest eigenvalue. There ``v > 0``, and
    ``(R v)_i / v_i = c - 1 / v_i < c`` even where the eigenvector itself is too small to be known, far from a single
    strong edge. One Lanczos run from the vector of ones gives both the eigenvalue and v, which only needs a residual
    below 1 in every entry. Whatever v comes out, the quotients computed from it, with their rounding added, are a valid
    bound.
    """
    from scipy.sparse import csr_array

    # Entries from 0 to 1: products neither overflow nor, against a norm of at least 1, lose anything to underflow.
    scaled = dense_if_small(csr_array((matrix.data / largest, matrix.indices, matrix.indptr), shape=matrix.shape))
    other = scaled.T
    if isinstance(scaled, np.ndarray):
        symmetric = np.array_equal(scaled, other)
    else:
        other = other.tocsr()
        other.sort_indices()
        symmetric = np.array_equal(scaled.indices, other.indices) and np.array_equal(scaled.data, other.data)
    terms = int(np.diff(matrix.indptr).max())
    visits = matrix.nnz + 4 * matrix.shape[0]
    if not symmetric:
        terms += int(np.bincount(matrix.indices).max())
        visits += matrix.nnz

    def apply(v: FloatArray) -> FloatArray:
        return scaled @ v if symmetric else other @ (scaled @ v)

    value, vector = _perron_bound(apply, scaled.shape[0], visits, clock)
    # Scaling, root, product: another rounding each, within the 4 of _up twice.
    value = _up(value, terms)
    value = _up((value if symmetric else math.sqrt(value)) * largest, 0)
    return value, vector


def _perron_bound(
    apply: Callable[[FloatArray], FloatArray], n: int, visits: int, clock: Clock
) -> tuple[float, FloatArray]:
    """Largest quotient ``(B v)_i / v_i`` for a good v > 0, B symmetric, non-negative and not zero; and v."""
    best, best_vector = float(apply(np.ones(n)).max()), np.ones(n)
    diagonal: list[float] = []
    beside: list[float] = []  # one longer than the tridiagonal matrix needs: the last is that of the residual
    blocks: list[FloatArray] = []
    next_check = 6
    for current, alpha, beta in _lanczos(apply, n):
        diagonal.append(alpha)
        beside.append(beta)
        steps = len(diagonal)
        if stored := steps * n * 8 <= _STORED_BYTES:
            if steps % _BLOCK == 1:
                blocks.append(np.empty((_BLOCK, n)))
            blocks[-1][(steps - 1) % _BLOCK] = current
        # Entries of B are at most n^2, so a beta this small is rounding: the Krylov space is complete.
        exhausted = beta <= 4.0 * _EPS * max(abs(alpha), *beside[-2:], 1.0)
        if steps < next_check and not exhausted:
            continue
        work = float(steps) * visits
        last = exhausted or work > _MAX_VISITS or (steps >= _LEAST_STEPS and clock.past())
        next_check = steps + 4 + steps // 4
        theta = _largest_ritz_value(diagonal, beside)
        slack = next(slack for limit, slack in _SLACK_AFTER if work <= limit)
        while theta > 0.0 and (shift := theta * (1.0 + slack)) < best:
            coefficients = _solve(diagonal, beside, shift, n)
            residual = 0.0 if exhausted else beta * abs(float(coefficients[-1])) * float(np.abs(current).max())
            if residual < 0.5:
                vector, room = np.zeros(n), np.empty(n)
                kept = (other for block in blocks for other in block)
                again = kept if stored else (other for other, _, _ in _lanczos(apply, n))
                for weight, other in zip(coefficients.tolist(), again, strict=False):
                    vector += np.multiply(other, weight, out=room)
                value = float((apply(vector) / vector).max()) if vector.min() > 0.0 else math.inf
                if value < best:
                    best, best_vector = value, vector / vector.max()
                if value <= shift:
                    return best, best_vector
            if not last:
                break
            slack *= 4.0
        else:
            return best, best_vector
    raise AssertionError("the recurrence has no end")


def _lanczos(apply: Callable[[FloatArray], FloatArray], n: int) -> Iterator[tuple[FloatArray, float, float]]:
    """The recurrence ``B Q = Q T + beta q e^T`` from the vector of ones, without reorthogonalisation.

    At every step the next vector q, and the numbers of T on and beside its diagonal. Lost orthogonality only delays
    convergence, and what is concluded from Q is verified.
    """
    current, before, room, beta = np.full(n, 1.0 / math.sqrt(n)), np.zeros(n), np.empty(n), 0.0
    while True:
        following = apply(current)
        following -= np.multiply(before, beta, out=room)  # fresh memory takes longer than the product
        alpha = _dot(current, following)
        following -= np.multiply(current, alpha, out=room)
        beta = math.sqrt(_dot(following, following))
        following /= beta or 1.0
        yield current, alpha, beta
        before, current = current, following


def _dot(a: FloatArray, b: FloatArray) -> float:
    """The inner product on one thread: those of a BLAS wait for each other on a busy machine, thirty times as long."""
    return float(np.einsum("i,i", a, b))


def _largest_ritz_value(diagonal: list[float], beside: list[float]) -> float:
    from scipy.linalg.lapack import dstebz  # eigh_tridiagonal without its checks, ten times faster for small T

    k = len(diagonal)
    if k == 1:
        return diagonal[0]
    _, values, _, _, info = dstebz(diagonal, beside[:-1], 2, 0.0, 0.0, k, k, 0.0, "E")
    return float(values[0]) if info == 0 else 0.0


def _solve(diagonal: list[float], beside: list[float], shift: float, n: int) -> FloatArray:
    """Coefficients of the approximate solution of ``(shift I - B) v = 1``; infinite if the shift is too small."""
    from scipy.linalg.lapack import dptsv

    right = np.zeros(len(diagonal))
    right[0] = math.sqrt(n)
    if len(right) == 1:
        return right / (shift - diagonal[0])
    _, _, coefficients, info = dptsv(shift - np.array(diagonal), np.negative(beside[:-1]), right)
    return coefficients if info == 0 else np.full(len(right), np.inf)
