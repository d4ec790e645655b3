"""Norms of sparse non-negative matrices, computed so that they are never below the true value.

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
from fastmix.theory.tuning import (
    BYTES_PER_DENSE_ENTRY,
    LANCZOS_BLOCK,
    LANCZOS_TOLERANCE,
    MAX_DENSE_PRODUCT_ROWS,
    MAX_LANCZOS_STEPS,
    MAX_NORM_VISITS,
    MAX_STORED_LANCZOS_BYTES,
    MIN_LANCZOS_STEPS,
    SLACK_AFTER_VISITS,
)

__all__ = [
    "NORMS",
    "Norm",
    "as_nonnegative",
    "dense_if_small",
    "lanczos_norm",
    "matrix_norm",
    "smallest_norm",
    "spectral_vector",
]

Norm = Literal["spectral", "inf", "1", "frobenius"]
NORMS: tuple[str, ...] = get_args(Norm)

_EPS = float(np.finfo(np.float64).eps)


def matrix_norm(R: Any, norm: Norm, *, clock: Clock = NO_LIMIT) -> float:
    """A norm of a non-negative square matrix, never below the true value.

    Parameters
    ----------
    R : matrix (n, n)
        An array or a sparse matrix of non-negative numbers; infinite entries make the norm infinite.
    norm : {"spectral", "inf", "1", "frobenius"}
        Largest singular value, largest row sum, largest column sum, or root of the sum of squares.
    clock : Clock
        After its limit the spectral norm is what can be proved by then.

    Returns
    -------
    float
        Sums exceed the true norm by a few rounding errors per entry; the spectral norm by a relative 1e-10 where that
        takes a fraction of a second, else by 1e-8 to 1e-4 (millions of variables).

    Raises
    ------
    ValueError
        If R is not a square matrix of non-negative numbers, or the norm is unknown.
    ResourceError
        If an array R is too large to become a sparse matrix.

    Notes
    -----
    The spectral norm takes a few dozen to a few hundred products with R, and at most 128 MiB beyond R. It is proved by
    a positive vector: by Collatz and Wielandt ``R v <= c v`` with ``v > 0`` implies that the spectral radius is at most
    c, also where the matrix falls into parts; for symmetric R this is the spectral norm, for other R the vector proves
    ``R^T R v <= c^2 v``.

    Examples
    --------
    >>> matrix_norm([[0.0, 2.0], [0.0, 1.0]], "1") >= 3.0
    True
    """
    check_choice("norm", norm, NORMS)
    matrix, largest = as_nonnegative(R)
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
    """Name and value of the smallest of the four norms of a non-negative matrix, never below the true value.

    For a symmetric matrix no norm is below the spectral one (Dyer, Goldberg and Jerrum 2009, Lemma 13); for another,
    row sums or column sums can be.
    """
    matrix, _ = as_nonnegative(R)
    values = {norm: matrix_norm(matrix, norm, clock=clock) for norm in get_args(Norm)}
    name = min(values, key=lambda norm: values[norm])
    return name, values[name]


def spectral_vector(R: Any) -> FloatArray:
    """A vector v > 0 for which the largest ``(R v)_i / v_i`` of a symmetric non-negative R is close to its norm."""
    matrix, largest = as_nonnegative(R)
    return _spectral(matrix, largest)[1] if 0.0 < largest < math.inf else np.ones(matrix.shape[0])


def dense_if_small(matrix: Any) -> Any:
    """The matrix, as an array where it is so small that a sparse product takes longer than an array's."""
    return matrix.toarray() if matrix.shape[0] <= MAX_DENSE_PRODUCT_ROWS else matrix


def as_nonnegative(R: Any, name: str = "R") -> tuple[Any, float]:
    """R as a csr_array of positive entries with sorted columns, and its largest entry (0.0 without any).

    Raises
    ------
    ValueError
        If R is not a square matrix of non-negative numbers.
    """
    from scipy.sparse import csr_array, issparse

    if issparse(R):
        if R.dtype.kind not in "fiub":
            raise ValueError(f"{name} must hold real numbers, got {R.dtype}")
        matrix = csr_array(R, dtype=np.float64)
    else:
        array = as_float_array(name, R)
        check_memory(BYTES_PER_DENSE_ENTRY * array.size, f"{name} of {array.size:,} entries", "give a sparse matrix")
        if array.ndim != 2:
            raise ValueError(f"{name} must be a square matrix, got shape {array.shape}")
        matrix = csr_array(array)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if not matrix.nnz:
        return matrix, 0.0
    least = float(matrix.data.min())
    largest = float(matrix.data.max())
    if not least >= 0.0:
        raise ValueError(f"{name} must have entries of at least 0, got {least}")
    if least == 0.0 or not matrix.has_canonical_format:
        matrix = matrix.copy()  # so that the argument stays as it is
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        largest = float(matrix.data.max()) if matrix.nnz else 0.0
    return matrix, largest


def _up(value: float, terms: int) -> float:
    """A sum of non-negative terms, raised by the largest rounding error that any order of addition can have."""
    return math.nextafter(value * (1.0 + (terms + 4) * _EPS), math.inf)


def _spectral(matrix: Any, largest: float, clock: Clock = NO_LIMIT) -> tuple[float, FloatArray]:
    """The spectral norm, never below the true value, and the vector v > 0 that proves it, with largest entry 1.

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


def lanczos_norm(apply: Callable[[FloatArray], FloatArray], start: FloatArray, clock: Clock = NO_LIMIT) -> float:
    """A lower bound on the spectral norm of a symmetric matrix, by the recurrence of Lanczos from a start vector.

    ``apply`` gives the product of the matrix with a vector. The steps end where a few more changed the bound by less
    than a thousandth, after 400 of them, or with the limit of the clock.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    diagonal: list[float] = []
    beside: list[float] = []
    value = 0.0
    next_check = 12
    for _, alpha, beta in _lanczos(apply, start):
        diagonal.append(alpha)
        beside.append(beta)
        steps = len(diagonal)
        largest = max(*map(abs, diagonal), *beside)
        last = beta <= 4.0 * _EPS * largest or steps >= MAX_LANCZOS_STEPS
        late = steps >= MIN_LANCZOS_STEPS // 2 and clock.past()
        if not (last or late or steps >= next_check):
            continue
        before = value
        if steps == 1:
            value = abs(alpha)
        else:
            values = eigvalsh_tridiagonal(diagonal, beside[:-1])
            value = float(max(-values[0], values[-1]))
        if last or late or value - before < LANCZOS_TOLERANCE * value:
            return value
        next_check = steps + 4 + steps // 4
    raise AssertionError("the recurrence has no end")


def _perron_bound(
    apply: Callable[[FloatArray], FloatArray], n: int, visits: int, clock: Clock
) -> tuple[float, FloatArray]:
    """The largest quotient ``(B v)_i / v_i`` for a good v > 0, which bounds the largest eigenvalue of B, and v.

    B, given by its products with vectors, is symmetric, non-negative and not zero; one product takes ``visits``.

    1. Take steps of Lanczos from the vector of ones, and keep their vectors while there is memory.
    2. Now and then estimate the eigenvalue, and choose a shift slightly above it.
    3. Where the solution of ``(shift I - B) v = 1`` is accurate enough, compute v and its quotients.
    4. End when v proves the shift; at the end of the budget try larger shifts until one is proved.
    """
    best = float(apply(np.ones(n)).max())
    best_vector = np.ones(n)
    diagonal: list[float] = []
    beside: list[float] = []  # one longer than the tridiagonal matrix needs: the last is that of the residual
    blocks: list[FloatArray] = []
    next_check = 6
    for current, alpha, beta in _lanczos(apply, np.ones(n)):
        # 1. A step.
        diagonal.append(alpha)
        beside.append(beta)
        steps = len(diagonal)
        stored = steps * n * 8 <= MAX_STORED_LANCZOS_BYTES
        if stored:
            if steps % LANCZOS_BLOCK == 1:
                blocks.append(np.empty((LANCZOS_BLOCK, n)))
            blocks[-1][(steps - 1) % LANCZOS_BLOCK] = current
        # Entries of B are at most n^2, so a beta this small is rounding: the Krylov space is complete.
        exhausted = beta <= 4.0 * _EPS * max(abs(alpha), *beside[-2:], 1.0)
        if steps < next_check and not exhausted:
            continue

        # 2. The eigenvalue.
        work = float(steps) * visits
        last = exhausted or work > MAX_NORM_VISITS or (steps >= MIN_LANCZOS_STEPS and clock.past())
        next_check = steps + 4 + steps // 4
        theta = _largest_ritz_value(diagonal, beside)
        slack = next(slack for limit, slack in SLACK_AFTER_VISITS if work <= limit)
        if not theta > 0.0:
            return best, best_vector
        while True:
            shift = theta * (1.0 + slack)
            if not shift < best:
                return best, best_vector
            # 3. The vector.
            coefficients = _solve(diagonal, beside, shift, n)
            residual = 0.0 if exhausted else beta * abs(float(coefficients[-1])) * float(np.abs(current).max())
            if residual < 0.5:
                if stored:
                    basis = (row for block in blocks for row in block)
                else:
                    basis = (row for row, _, _ in _lanczos(apply, np.ones(n)))
                vector = _combine(coefficients, basis, n)
                value = float((apply(vector) / vector).max()) if vector.min() > 0.0 else math.inf
                # 4. What it proves.
                if value < best:
                    best = value
                    best_vector = vector / vector.max()
                if value <= shift:
                    return best, best_vector
            if not last:
                break
            slack *= 4.0
    raise AssertionError("the recurrence has no end")


def _combine(coefficients: FloatArray, basis: Iterator[FloatArray], n: int) -> FloatArray:
    """The sum of vectors (n,) times their coefficients, in the order of both; vectors without one are not used."""
    result = np.zeros(n)
    room = np.empty(n)
    for weight, vector in zip(coefficients.tolist(), basis, strict=False):
        result += np.multiply(vector, weight, out=room)
    return result


def _lanczos(apply: Callable[[FloatArray], FloatArray], start: FloatArray) -> Iterator[tuple[FloatArray, float, float]]:
    """The steps of the recurrence ``B Q = Q T + beta q e^T`` from a vector, without reorthogonalization.

    Every step gives the next vector q, and the numbers of T on and beside its diagonal. Lost orthogonality only delays
    convergence, and what is concluded from Q is verified.
    """
    n = len(start)
    current = start / math.sqrt(_dot(start, start))
    before = np.zeros(n)
    room = np.empty(n)
    beta = 0.0
    while True:
        following = apply(current)
        following -= np.multiply(before, beta, out=room)  # fresh memory takes longer than the product
        alpha = _dot(current, following)
        following -= np.multiply(current, alpha, out=room)
        beta = math.sqrt(_dot(following, following))
        following /= beta or 1.0
        yield current, alpha, beta
        before = current
        current = following


def _dot(a: FloatArray, b: FloatArray) -> float:
    """The inner product on one thread: those of a BLAS wait for each other on a busy machine, 30 times as long."""
    return float(np.einsum("i,i", a, b))


def _largest_ritz_value(diagonal: list[float], beside: list[float]) -> float:
    """The largest eigenvalue of the tridiagonal matrix T without the last of ``beside``; 0 where LAPACK finds none."""
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
