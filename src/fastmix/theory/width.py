"""The width of a model: the smallest spread of the eigenvalues of its couplings over all choices of the diagonal.

Write the couplings as a symmetric matrix B over centred coordinates of the variables (for spins -1 and +1 the matrix J
itself). Its diagonal does not change the distribution, and the width is the smallest lambda with
``0 <= B + D <= lambda`` for a diagonal D, that is twice the smallest spectral norm of ``B + diag(e)``. Below 1, the
entropy of every function is at most ``1 / (1 - width)`` times the sum of its conditional entropies (see
docs/theory.md). Every value here is an upper bound on the true width: the diagonal may be any, and the norm of what it
gives is proved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._jit import njit
from fastmix.graphs.basics import two_sides
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.model.build import offsets_of
from fastmix.theory import norms

__all__ = [
    "Ascent", "Width", "add_couplings", "coupling_matrix", "couplings", "matrix_width", "model_width", "norm_estimate",
    "norm_from_above", "remember_width", "symmetric_matrix",
]  # fmt: skip

_EPS = float(np.finfo(np.float64).eps)
_RANK = 8  # of the two factors of the dual; more change the fourth digit
_DENSE = 3000  # up to this many coordinates all eigenvalues are computed
_MAX_WORK = 2e9  # numbers visited by the ascent: a few seconds
_MAX_ASCENT = 400_000  # beyond so many coordinates no diagonal is sought
_SECONDS_PER_CUBE = 1e-9  # times n^3: of a diagonal that is proved by dense matrices, all steps together
_PROOF_WORK = 2e9  # and by the proof of the norm
_COLUMNS = 4  # random vectors of the proof
_LEAST_PART = 1e-5  # of the top eigenvector in at least one of them: fails with a probability below 1e-20

# Widths of models that are still in use: several criteria ask for the same one.
_KNOWN: WeakKeyDictionary[MarkovRandomField, Width] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Width:
    """An upper bound on the width of a matrix of couplings."""

    value: float
    diagonal: FloatArray  # (N,) the e with ``norm(B + diag(e)) <= value / 2``
    proof: str  # "eigenvalues", "positive vector", "random vectors" (but for 1e-20 of draws) or "none" (no couplings)


def model_width(model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Width:
    """The width of a model with finite tables, any numbers of states.

    Infinite for tables with -inf. States that a unary forbids must have been dropped.
    """
    check_pairwise(model, "the width")
    if model in _KNOWN:
        return _KNOWN[model]
    matrix, error = coupling_matrix(model)
    if not np.isfinite(matrix.data).all():
        return Width(math.inf, np.zeros(matrix.shape[0]), "none")
    width = matrix_width(matrix, clock=clock)
    result = Width(width.value + 2.0 * error, width.diagonal, width.proof)
    if not clock.past(0.5):
        _KNOWN[model] = result
    return result


def coupling_matrix(model: MarkovRandomField) -> tuple[Any, float]:
    """The symmetric matrix B of a model's couplings, csr (N, N), and a bound on the norm of its rounding errors."""
    rows, cols, data, error = couplings(model)
    return symmetric_matrix(int((model.num_states - 1).sum()), rows, cols, data), error


def couplings(model: MarkovRandomField) -> tuple[IntArray, IntArray, FloatArray, float]:
    """Rows, columns and values of the entries of B above its diagonal, and a bound on the norm of their errors.

    Variable i has ``L_i - 1`` coordinates: an orthonormal basis Q_i of the vectors that sum up to 0, so that
    functions of one variable vanish. The block of an edge is ``Q_i^T T Q_j / 2``; for binary variables it is
    ``(T_00 - T_01 - T_10 + T_11) / 4``, the coupling of the Ising form.
    """
    rows, cols, data = [], [], []
    errors = np.zeros(model.num_variables)
    with np.errstate(invalid="ignore", over="ignore"):
        for places, tables, i, j in _blocks(model):
            left, right = tables.shape[:2]
            if left == right == 2:
                blocks = (0.25 * ((tables[0, 0] - tables[0, 1]) - (tables[1, 0] - tables[1, 1])))[None, None]
            else:
                # One side after the other: both at once would take L^4 products per edge instead of 2 L^3.
                one_side = np.tensordot(_centred_basis(left), tables, axes=(0, 0))
                both_sides = np.tensordot(one_side, _centred_basis(right), axes=(1, 0))
                blocks = 0.5 * both_sides.transpose(0, 2, 1)
            rows.append(i)
            cols.append(j)
            data.append(blocks.ravel())
            # A product of a row, a table and a column with entries of Q at most 1, their sizes at most sqrt(L).
            scale = np.abs(tables).max(axis=(0, 1)) * (left + right + 8) * math.sqrt(left * right) * _EPS
            for end in model.edges[places].T:
                np.add.at(errors, end, scale)
    i, j = (np.concatenate([np.zeros(0, dtype=np.int64), *part]) for part in (rows, cols))
    return i, j, np.concatenate([np.zeros(0), *data]), float(errors.max(initial=0.0))


def _blocks(model: MarkovRandomField) -> Iterator[tuple[Any, FloatArray, IntArray, IntArray]]:
    """Pieces of edges of equal shape: places, tables (edges last), rows and columns of the entries of their blocks."""
    from fastmix.theory.dependency import _table_groups

    starts = offsets_of(model.num_states - 1)
    for places, tables in _table_groups(model):
        first, second = model.edges[places].T
        i = np.arange(len(tables) - 1)[:, None, None] + starts[first]
        j = np.arange(tables.shape[1] - 1)[None, :, None] + starts[second]
        i, j = np.broadcast_arrays(i, j)
        yield places, tables, i.ravel(), j.ravel()


def symmetric_matrix(n: int, rows: IntArray, cols: IntArray, data: FloatArray) -> Any:
    """The sparse matrix (n, n) with these entries, and their mirror images, columns sorted."""
    from scipy.sparse import coo_array

    both = (np.concatenate([rows, cols]), np.concatenate([cols, rows]))
    matrix = coo_array((np.concatenate([data, data]), both), shape=(n, n)).tocsr()
    matrix.sort_indices()
    return matrix


def remember_width(model: MarkovRandomField, width: Width) -> None:
    """Let :func:`model_width` answer with what was proved elsewhere, by a better diagonal than it would find."""
    _KNOWN[model] = width


def add_couplings(model: MarkovRandomField, change: FloatArray) -> MarkovRandomField:
    """The model with its :func:`couplings` changed, tables by their interactions only."""
    tables, begin = model.log_pairwise.copy(), 0
    for places, group, i, _ in _blocks(model):
        left, right, number = group.shape
        blocks = change[begin : begin + len(i)].reshape(left - 1, right - 1, number)
        added = np.einsum("ap,pqe,bq->eab", 2.0 * _centred_basis(left), blocks, _centred_basis(right))
        tables[model.pairwise_offsets[:-1][places][:, None] + np.arange(left * right)] += added.reshape(number, -1)
        begin += len(i)
    return model.replace(log_pairwise=tables)


def _centred_basis(states: int) -> FloatArray:
    """Orthonormal vectors that sum up to 0, as columns (states, states - 1): Helmert's."""
    basis = np.zeros((states, states - 1))
    for k in range(1, states):
        basis[:k, k - 1] = 1.0
        basis[k, k - 1] = -k
        basis[:, k - 1] /= math.sqrt(k * (k + 1.0))
    return basis


def matrix_width(matrix: Any, *, clock: Clock = NO_LIMIT) -> Width:
    """The width of a symmetric matrix with a free diagonal, from above.

    Two candidates: no diagonal, proved by a positive vector for the absolute values (the best one when signs can be
    removed: trees, attractive models on bipartite graphs), and the diagonal of an ascent on the dual problem, whose
    value bounds the width from below.
    """
    n = matrix.shape[0]
    size = abs(matrix)
    # Twice what the absolute values prove, without a diagonal.
    best = Width(2.0 * norms.matrix_norm(size, "spectral", clock=clock), np.zeros(n), "positive vector")
    if best.value == 0.0:
        return Width(0.0, np.zeros(n), "none")
    scale = best.value / 2.0
    scaled = matrix / scale
    if n > _MAX_ASCENT or _balanced(matrix) or (n <= _DENSE and _SECONDS_PER_CUBE * n**3 > clock.left()):
        return best
    ascent = Ascent(scaled)
    ascent.run(clock=clock)
    diagonal, least = ascent.diagonal, ascent.value
    if least * scale >= 0.9995 * best.value or clock.past():
        return best
    t, estimate = 1.0, norm_estimate(scaled, diagonal)
    if n <= _DENSE and estimate > 0.51 * least:
        # Less can be better where the ascent has not settled, far from the strongest couplings.
        candidates = [(1.0, estimate), *((t, norm_estimate(scaled, t * diagonal)) for t in (0.5, 0.0))]
        t, estimate = min(candidates, key=lambda pair: pair[1])
    value, proof = norm_from_above(scaled, t * diagonal, estimate, clock=clock)
    if 2.0 * scale * value < best.value:
        value = math.nextafter(2.0 * scale * value * (1.0 + 4.0 * _EPS), math.inf)
        best = Width(value, scale * t * diagonal, proof)
    return best


def _balanced(matrix: Any) -> bool:
    """Whether flipping signs of coordinates turns B into |B|, and also into -|B|: then no diagonal is the best one.

    With such signs the spectra of ``B + diag(e)`` and of ``-(B + diag(-e))`` are the same, so that e and -e give
    the same norm, and by convexity 0 gives no larger one.
    """
    from scipy.sparse import coo_array

    entries = coo_array(matrix)
    kept = (entries.data != 0.0) & (entries.coords[0] < entries.coords[1])
    edges, positive = np.stack(entries.coords, axis=1)[kept].astype(np.int64), entries.data[kept] > 0.0
    return not any((two_sides(matrix.shape[0], edges, apart) > 1).any() for apart in (positive, ~positive))


def norm_estimate(matrix: Any, diagonal: FloatArray) -> float:
    """The spectral norm of ``B + diag(e)``, beyond 3,000 coordinates by Lanczos, from below, to three digits or so."""
    n = matrix.shape[0]
    if n <= _DENSE:
        from scipy.linalg import eigvalsh

        values = eigvalsh(matrix.toarray() + np.diag(diagonal))
        return float(max(-values[0], values[-1]))
    from scipy.sparse import csr_array, diags_array
    from scipy.sparse.linalg import eigsh

    start = np.random.default_rng(1).normal(size=n)
    shifted = csr_array(matrix + diags_array(diagonal))
    return abs(float(eigsh(shifted, k=1, which="LM", tol=2e-3, v0=start, ncv=24, return_eigenvectors=False)[0]))


def norm_from_above(
    matrix: Any, diagonal: FloatArray, estimate: float, *, clock: Clock = NO_LIMIT
) -> tuple[float, str]:
    """The spectral norm of ``B + diag(e)``, proved from above, and by what; from :func:`norm_estimate` of it.

    Up to 3,000 coordinates the estimate is that of all eigenvalues, which are those of a matrix that differs by at most
    ``c n^2 eps`` of the Frobenius norm, c a small number (Higham 2002, "Accuracy and stability of numerical
    algorithms", Lemma 19.3). Beyond, by Chebyshev polynomials T_k of the matrix over an estimate h, applied to random
    vectors g: with u the eigenvector of the norm x h, ``|g^T u| T_k(x) <= ||T_k(M / h) g||``, so that a lower bound on
    ``|g^T u|``, which fails with a probability of 1e-20, bounds x from above.
    """
    n = matrix.shape[0]
    if n <= _DENSE:
        size = math.sqrt(float(matrix.data @ matrix.data + diagonal @ diagonal))
        return estimate + 32.0 * (n + 1.0) ** 2 * _EPS * size, "eigenvalues"
    return _norm_by_random_vectors(matrix, diagonal, estimate, clock), "random vectors"


def _norm_by_random_vectors(matrix: Any, diagonal: FloatArray, estimate: float, clock: Clock) -> float:
    n = matrix.shape[0]
    before = np.random.default_rng(0).standard_normal((n, _COLUMNS))
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data, diagonal)
    # Every value of a product is within (degree + 4) eps times the row sum, in units of the estimate.
    row_sum = float((abs(matrix).sum(axis=1) + np.abs(diagonal)).max()) / estimate
    rounding = (int(np.diff(matrix.indptr).max(initial=0)) + 8) * _EPS * row_sum
    largest = float(np.sqrt((before * before).sum(axis=0)).max())
    now = np.empty_like(before)
    chebyshev_step(*arrays, 1.0 / estimate, before, np.zeros_like(before), now)
    steps, best, error = 1, math.inf, rounding * largest
    cost = _COLUMNS * (matrix.nnz + 4.0 * n)
    while True:
        # The recurrence multiplies by at most 2: error k enters U_(steps - k) times, which is at most steps - k + 1
        # times T at any x >= 1, and for |x| <= 1.
        following = before
        chebyshev_step(*arrays, 2.0 / estimate, now, before, following)
        before, now = now, following
        steps += 1
        size = float(np.sqrt((now * now).sum(axis=0)).max())
        largest = max(largest, size)
        error += 2.0 * rounding * largest * (steps + 1.0)
        part = _LEAST_PART - error / max(1.0, largest)
        if steps % 16 == 0 and part > 0.0:
            best = min(best, math.cosh(math.acosh(max(1.0, size * (1.0 + n * _EPS) / part)) / steps))
            if best < 1.0 + 2e-3 or steps * cost > _PROOF_WORK or size > 1e200 or clock.past():
                return estimate * best * (1.0 + 64.0 * _EPS)
        elif part <= 0.0:
            return estimate * min(best, row_sum)


# -- the diagonal ---------------------------------------------------------------------------------------------------


class Ascent:
    """A diagonal e that makes the norm of ``B + diag(e)`` small, by ascent on the dual problem.

    The dual of ``min lambda: -lambda/2 <= B + diag(e) <= lambda/2`` is ``max <B, X - Y>`` over positive semidefinite
    X and Y with equal diagonals of sum 1. With ``X = (r_i r_j a_i . a_j)`` and ``Y = (r_i r_j b_i . b_j)``, unit
    vectors a_i and b_i and a unit vector r, ascent by coordinates sets a_i to the direction of ``g_i = sum_j B_ij r_j
    a_j`` and b_i to that of ``-f_i``, ``f_i = sum_j B_ij r_j b_j``; r is the top eigenvector of ``B_ij (a_i . a_j -
    b_i . b_j)``, by power steps. At the optimum ``e_i = (|f_i| - |g_i|) / (2 r_i)``. ``value`` is
    that of the dual, a lower bound on the width.
    """

    def __init__(self, matrix: Any) -> None:
        n = matrix.shape[0]
        rng = np.random.default_rng(2)
        self._a, self._b = (rng.standard_normal((n, _RANK)) for _ in range(2))
        for part in (self._a, self._b):
            part /= np.sqrt((part * part).sum(axis=1))[:, None]
        self._r = np.full(n, 1.0 / math.sqrt(max(n, 1)))
        self._rows = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32))
        self._data = matrix.data
        self.diagonal, self.value = np.zeros(n), 0.0

    def run(self, passes: int | None = None, *, data: FloatArray | None = None, clock: Clock = NO_LIMIT) -> None:
        """Passes over all coordinates, for other entries of the matrix when given; from where the last ones ended."""
        if data is not None:
            self._data = data
        work = 2.0 * _RANK * (len(self._data) + 4.0 * len(self._r))
        for k in range(int(min(150, max(20, _MAX_WORK / work))) if passes is None else passes):
            before, self.value = self.value, ascend(*self._rows, self._data, self._a, self._b, self._r, self.diagonal)
            if clock.past(0.5) or (k > 20 and abs(self.value - before) <= 1e-8 * self.value):
                break

    def slopes(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Derivatives of the width in the entries (rows, cols) and their mirror images together."""
        left, right = self._r[rows, None], self._r[cols, None]
        a, b = self._a, self._b
        return 2.0 * (left * right * (a[rows] * a[cols] - b[rows] * b[cols])).sum(axis=1)


# -- compiled -------------------------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def ascend(indptr, indices, data, a, b, r, diagonal):  # type: ignore[no-untyped-def]
    """The value of the dual after one pass over all coordinates, before r is changed; e goes to ``diagonal``."""
    n, rank = a.shape
    g, f = np.empty(rank), np.empty(rank)
    new = np.empty(n)
    value = 0.0
    for i in range(n):
        g[:] = 0.0
        f[:] = 0.0
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            weight = data[p] * r[j]
            for k in range(rank):
                g[k] += weight * a[j, k]
                f[k] += weight * b[j, k]
        up, down = 0.0, 0.0
        for k in range(rank):
            up += g[k] * g[k]
            down += f[k] * f[k]
        up, down = np.sqrt(up), np.sqrt(down)
        if up > 0.0:
            for k in range(rank):
                a[i, k] = g[k] / up
        if down > 0.0:
            for k in range(rank):
                b[i, k] = -f[k] / down
        diagonal[i] = 0.5 * (down - up) / r[i]
        new[i] = up + down
        value += r[i] * new[i]
    # A power step with the identity added: the spectrum need not be positive.
    total = 0.0
    for i in range(n):
        r[i] = max(new[i] + 0.5 * value * r[i], 1e-150)
        total += r[i] * r[i]
    total = 1.0 / np.sqrt(total)
    for i in range(n):
        r[i] *= total
    return value


@njit(cache=True, error_model="numpy")
def chebyshev_step(indptr, indices, data, diagonal, factor, now, before, following):  # type: ignore[no-untyped-def]
    """``following = factor * (B + diag(e)) now - before``; ``following`` may be the array of ``before``."""
    n, columns = now.shape
    total = np.empty(columns)
    for i in range(n):
        for c in range(columns):
            total[c] = diagonal[i] * now[i, c]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            weight = data[p]
            for c in range(columns):
                total[c] += weight * now[j, c]
        for c in range(columns):
            following[i, c] = factor * total[c] - before[i, c]
