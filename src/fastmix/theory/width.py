"""Upper bounds on the width of a model: the smallest spread of the eigenvalues of its couplings over all diagonals.

Write the couplings as a symmetric matrix B over centered coordinates of the variables (for spins -1 and +1 the matrix J
itself). Its diagonal does not change the distribution, and the width is the smallest lambda with
``0 <= B + D <= lambda`` for a diagonal D, that is twice the smallest spectral norm of ``B + diag(e)``. Below 1, the
entropy of every function is at most ``1 / (1 - width)`` times the sum of its conditional entropies (see
docs/theory.md). Every value here is an upper bound on the true width, because any diagonal gives one, and its norm is
proved.

Here widths are computed; models are projected onto a bounded width in ``projection/width.py``. The criterion that rests
on the width is in :mod:`fastmix.theory.width_criterion`.
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
from fastmix.graphs.components import two_sides
from fastmix.model import MarkovRandomField, check_pairwise
from fastmix.model.flat import offsets_of
from fastmix.model.forms import contrast_basis, spin_tables
from fastmix.model.shared import SharedTables
from fastmix.theory import norms
from fastmix.theory.dense import eigenvalue_seconds
from fastmix.theory.dependency import to_matrix
from fastmix.theory.table_groups import table_groups
from fastmix.theory.tuning import (
    ASCENT_RANK,
    MAX_ASCENT_ROWS,
    MAX_ASCENT_WORK,
    MAX_DENSE_EIGENVALUE_ROWS,
    MAX_PROOF_WORK,
    SECONDS_PER_COUPLING,
)
from fastmix.theory.width_kernels import ascend, chebyshev_step

__all__ = [
    "Ascent", "NormEstimate", "Width", "add_couplings", "coupling_matrix", "couplings", "eigenvalue_error",
    "is_by_blocks", "matrix_seconds", "matrix_width", "model_width", "norm_estimate", "norm_from_above",
    "remember_width", "symmetric_matrix", "width_seconds",
]  # fmt: skip

_EPS = float(np.finfo(np.float64).eps)
_ISING = np.array([1.0, -1.0, -1.0, 1.0])
# The proof of a norm by random vectors: of 4 of them, at least one has a product of 1e-5 or more with the top
# eigenvector, but for a probability below 1e-20.
_PROOF_VECTORS = 4
_LEAST_PRODUCT = 1e-5

# Widths of models that are still in use: several criteria ask for the same one.
_KNOWN: WeakKeyDictionary[MarkovRandomField, Width] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Width:
    """An upper bound on the width of a matrix of couplings, with what proves it."""

    value: float
    diagonal: FloatArray  # (N,) the e with ``norm(B + diag(e)) <= value / 2``
    #: "eigenvalues", "positive vector", "row sums", "random vectors" (wrong with probability 1e-20) or "none".
    proof: str


def model_width(model: MarkovRandomField, *, clock: Clock = NO_LIMIT) -> Width:
    """An upper bound on the width of a model of pairs, with any numbers of states; infinite for tables with -inf.

    States that a unary forbids must have been dropped. The answer is kept as long as the model is in use.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.25)
    >>> round(model_width(model).value, 6)
    0.5
    """
    check_pairwise(model, "the width")
    if model in _KNOWN:
        return _KNOWN[model]
    if is_by_blocks(model):
        assert model.shared_tables is not None
        result = _width_of_shared(model, model.shared_tables, clock)
    else:
        matrix, error = coupling_matrix(model)
        if not np.isfinite(matrix.data).all():
            return Width(math.inf, np.zeros(matrix.shape[0]), "none")
        width = matrix_width(matrix, clock=clock)
        result = Width(width.value + 2.0 * error, width.diagonal, width.proof)
    if not clock.past(0.5):
        _KNOWN[model] = result
    return result


def width_seconds(model: MarkovRandomField) -> float:
    """Estimated seconds of the cheapest bound on the width of a model; 0 where the width is known already."""
    if model in _KNOWN:
        return 0.0
    if is_by_blocks(model):
        return SECONDS_PER_COUPLING * 2.0 * model.num_edges
    return matrix_seconds(model)


def matrix_seconds(model: MarkovRandomField) -> float:
    """Estimated seconds of making the matrix of a model's couplings, and of a few products with it."""
    first, second = model.num_states[model.edges.T] - 1
    return SECONDS_PER_COUPLING * 2.0 * float(first.astype(np.float64) @ second)


def is_by_blocks(model: MarkovRandomField) -> bool:
    """Whether the width is bounded by the norms of the blocks of edges: large models that share tables.

    No diagonal is sought for so many coordinates, and the entries of all blocks would fill the memory.
    """
    return model.shared_tables is not None and _num_coordinates(model) > MAX_ASCENT_ROWS


def _num_coordinates(model: MarkovRandomField) -> int:
    """Number of coordinates of the couplings: states of all variables but one of each."""
    return int(model.num_states.sum()) - model.num_variables


def _width_of_shared(model: MarkovRandomField, shared: SharedTables, clock: Clock) -> Width:
    """An upper bound on the width of a large model that shares tables, without a diagonal.

    The norm of a matrix of blocks is at most that of the matrix of their norms, and the block of an edge is its weight
    times that of its pattern.
    """
    use = shared.use
    of_patterns = np.empty(use.num_patterns)
    for k in range(use.num_patterns):
        matrix = shared.pattern(k)
        rows, cols = matrix.shape
        block = 0.5 * contrast_basis(rows).T @ matrix @ contrast_basis(cols)
        size = float(np.linalg.norm(block, 2)) if block.size else 0.0
        # Rounding of the products, as in `couplings`, and of singular values.
        scale = float(np.abs(matrix).max()) * (rows + cols + 8) * math.sqrt(rows * cols) * _EPS
        of_patterns[k] = size * (1.0 + 64.0 * (rows + cols) * _EPS) + scale
    sizes = np.abs(shared.weights) * of_patterns[use.of_edge]
    if shared.next_weights is not None:
        following = np.minimum(use.of_edge + 1, use.num_patterns - 1)
        sizes += np.abs(shared.next_weights) * of_patterns[following]
    sizes *= 1.0 + 4.0 * _EPS
    value = 2.0 * norms.matrix_norm(to_matrix(model, sizes), "spectral", clock=clock)
    return Width(value, np.zeros(_num_coordinates(model)), "positive vector")


def coupling_matrix(model: MarkovRandomField) -> tuple[Any, float]:
    """The symmetric matrix B of a model's couplings, csr (N, N), and a bound on the norm of its rounding errors."""
    rows, cols, data, error = couplings(model)
    if len(data) == model.num_edges and (model.num_states == 2).all():  # a coordinate per variable, an entry per edge
        return to_matrix(model, data), error
    return symmetric_matrix(int((model.num_states - 1).sum()), rows, cols, data), error


def couplings(model: MarkovRandomField) -> tuple[IntArray, IntArray, FloatArray, float]:
    """Rows, columns and values of the entries of B above its diagonal, and a bound on the norm of their errors.

    Variable i has ``L_i - 1`` coordinates: an orthonormal basis Q_i of the vectors that sum up to 0, so that
    functions of one variable vanish. The block of an edge is ``Q_i^T T Q_j / 2``; for binary variables it is
    ``(T_00 - T_01 - T_10 + T_11) / 4``, the coupling of the Ising form.
    """
    rows = []
    cols = []
    data = []
    errors = np.zeros(model.num_variables)
    with np.errstate(invalid="ignore", over="ignore"):
        for places, tables, i, j in _blocks(model):
            left, right = tables.shape[:2]
            if left == right == 2:
                blocks = spin_tables(tables.reshape(4, -1).T).coupling[None, None]
            else:
                # One side after the other: both at once would take L^4 products per edge instead of 2 L^3.
                one_side = np.tensordot(contrast_basis(left), tables, axes=(0, 0))
                both_sides = np.tensordot(one_side, contrast_basis(right), axes=(1, 0))
                blocks = 0.5 * both_sides.transpose(0, 2, 1)
            rows.append(i)
            cols.append(j)
            data.append(blocks.ravel())
            # A product of a row, a table and a column with entries of Q at most 1, their sizes at most sqrt(L).
            scale = np.abs(tables).max(axis=(0, 1)) * (left + right + 8) * math.sqrt(left * right) * _EPS
            for end in model.edges[places].T:
                errors += np.bincount(end, scale, minlength=len(errors))
    i, j = (np.concatenate([np.zeros(0, dtype=np.int64), *part]) for part in (rows, cols))
    return i, j, np.concatenate([np.zeros(0), *data]), float(errors.max(initial=0.0))


def _blocks(model: MarkovRandomField) -> Iterator[tuple[Any, FloatArray, IntArray, IntArray]]:
    """Pieces of edges of equal shape: places, tables (edges last), rows and columns of the entries of their blocks."""
    starts = offsets_of(model.num_states - 1)
    for places, tables in table_groups(model):
        first, second = model.edges[places].T
        i = np.arange(len(tables) - 1)[:, None, None] + starts[first]
        j = np.arange(tables.shape[1] - 1)[None, :, None] + starts[second]
        i, j = np.broadcast_arrays(i, j)
        yield places, tables, i.ravel(), j.ravel()


def symmetric_matrix(n: int, rows: IntArray, cols: IntArray, data: FloatArray) -> Any:
    """The sparse matrix (n, n) of the given entries and their mirror images, with sorted columns."""
    from scipy.sparse import coo_array

    both = (np.concatenate([rows, cols]), np.concatenate([cols, rows]))
    matrix = coo_array((np.concatenate([data, data]), both), shape=(n, n)).tocsr()
    matrix.sort_indices()
    return matrix


def remember_width(model: MarkovRandomField, width: Width) -> None:
    """Let :func:`model_width` answer with a width that was proved elsewhere, by a better diagonal."""
    _KNOWN[model] = width


def add_couplings(model: MarkovRandomField, change: FloatArray) -> MarkovRandomField:
    """The model with changed :func:`couplings`; of its tables only the interactions change.

    ``change`` is aligned with the entries that :func:`couplings` gives.
    """
    tables = model.log_pairwise.copy()
    begin = 0
    one_shape = len(model.structure.table_shapes) == 1
    for places, group, i, _ in _blocks(model):
        left, right, number = group.shape
        blocks = change[begin : begin + len(i)].reshape(left - 1, right - 1, number)
        if left == right == 2:
            added = np.multiply.outer(blocks[0, 0], _ISING)
        else:
            # One side after the other: both at once would take L^4 products per edge instead of 2 L^3.
            one_side = np.tensordot(2.0 * contrast_basis(left), blocks, axes=(1, 0))
            added = np.tensordot(one_side, contrast_basis(right), axes=(1, 1)).transpose(1, 0, 2)
        if one_shape:
            tables.reshape(-1, left * right)[places] += added.reshape(number, -1)
        else:
            tables[model.pairwise_offsets[:-1][places][:, None] + np.arange(left * right)] += added.reshape(number, -1)
        begin += len(i)
    return model.replace(log_pairwise=tables)


def matrix_width(matrix: Any, *, clock: Clock = NO_LIMIT) -> Width:
    """An upper bound on the width of a symmetric matrix with a free diagonal: the better one of two candidates.

    1. No diagonal, proved by a positive vector for the absolute values. It is the best one when signs can be removed:
       for trees, and for attractive models on bipartite graphs.
    2. The diagonal of an ascent on the dual problem, whose value bounds the width from below.
    3. Shares of that diagonal, which can be better where the ascent has not settled.
    """
    n = matrix.shape[0]
    size = abs(matrix)
    # 1. Twice what the absolute values prove, without a diagonal.
    best = Width(2.0 * norms.matrix_norm(size, "spectral", clock=clock), np.zeros(n), "positive vector")
    if best.value == 0.0:
        return Width(0.0, np.zeros(n), "none")
    scale = best.value / 2.0
    scaled = matrix / scale
    if n > MAX_ASCENT_ROWS or clock.past() or _balanced(matrix):
        return best
    # 2. The ascent.
    ascent = Ascent(scaled)
    ascent.run(clock=clock)
    diagonal = ascent.diagonal
    least = ascent.value
    if least * scale >= 0.9995 * best.value or clock.past():
        return best
    t = 1.0  # the share of the diagonal
    estimate = norm_estimate(scaled, diagonal, clock=clock)
    # 3. Shares.
    if estimate.complete and estimate.value > 0.51 * least and 2.0 * eigenvalue_seconds(n) < clock.left():
        # The ascent may not have settled far from the strongest couplings.
        for share in (0.5, 0.0):
            other = norm_estimate(scaled, share * diagonal)
            if other.value < estimate.value:
                t = share
                estimate = other
    value, proof = norm_from_above(scaled, t * diagonal, estimate, clock=clock)
    if 2.0 * scale * value < best.value:
        value = math.nextafter(2.0 * scale * value * (1.0 + 4.0 * _EPS), math.inf)
        best = Width(value, scale * t * diagonal, proof)
    return best


def _balanced(matrix: Any) -> bool:
    """Whether flipping signs of coordinates turns B into |B|, and also into -|B|: then a diagonal of 0 is the best one.

    With such signs the spectra of ``B + diag(e)`` and of ``-(B + diag(-e))`` are the same, so that e and -e give
    the same norm, and by convexity 0 gives no larger one.
    """
    from scipy.sparse import coo_array

    entries = coo_array(matrix)
    kept = (entries.data != 0.0) & (entries.coords[0] < entries.coords[1])
    edges = np.stack(entries.coords, axis=1)[kept].astype(np.int64)
    positive = entries.data[kept] > 0.0
    return not any((two_sides(matrix.shape[0], edges, apart) > 1).any() for apart in (positive, ~positive))


@dataclass(frozen=True)
class NormEstimate:
    """A spectral norm as computed, which may be off on either side."""

    value: float
    complete: bool  # whether it comes from all eigenvalues; otherwise from below, to about three digits


def norm_estimate(matrix: Any, diagonal: FloatArray, *, clock: Clock = NO_LIMIT) -> NormEstimate:
    """An estimate of the spectral norm of ``B + diag(e)``, by all eigenvalues or by the recurrence of Lanczos.

    All eigenvalues are computed up to 3,000 coordinates if there is time. The steps of Lanczos end with the limit of
    the clock, but not before a few are done.
    """
    n = matrix.shape[0]
    if n <= MAX_DENSE_EIGENVALUE_ROWS and eigenvalue_seconds(n) < clock.left():
        from scipy.linalg import eigvalsh

        values = eigvalsh(matrix.toarray() + np.diag(diagonal))
        return NormEstimate(float(max(-values[0], values[-1])), complete=True)

    def apply(vector: FloatArray) -> FloatArray:
        result: FloatArray = matrix @ vector
        result += diagonal * vector
        return result

    return NormEstimate(norms.lanczos_norm(apply, np.random.default_rng(1).normal(size=n), clock), complete=False)


def norm_from_above(
    matrix: Any, diagonal: FloatArray, estimate: NormEstimate, *, clock: Clock = NO_LIMIT
) -> tuple[float, str]:
    """A proved upper bound on the spectral norm of ``B + diag(e)``, and the name of the proof.

    ``estimate`` comes from :func:`norm_estimate`. An estimate by all eigenvalues is exact for a matrix that differs by
    at most ``c n^2 eps`` of the Frobenius norm, c a small number (Higham 2002, "Accuracy and stability of numerical
    algorithms", Lemma 19.3). Any other estimate is proved by Chebyshev polynomials T_k of the matrix over the estimate
    h, applied to random vectors g: with u the eigenvector of the norm x h, ``|g^T u| T_k(x) <= ||T_k(M / h) g||``, so
    that a lower bound on ``|g^T u|``, which fails with a probability of 1e-20, bounds x from above.
    """
    if estimate.complete:
        size = math.sqrt(float(matrix.data @ matrix.data + diagonal @ diagonal))
        return estimate.value + eigenvalue_error(matrix.shape[0], size), "eigenvalues"
    return _norm_by_random_vectors(matrix, diagonal, estimate.value, clock), "random vectors"


def eigenvalue_error(n: int, size: float) -> float:
    """A bound on the rounding errors of all eigenvalues of a symmetric (n, n) matrix with Frobenius norm ``size``."""
    return 32.0 * (n + 1.0) ** 2 * _EPS * size


def _norm_by_random_vectors(matrix: Any, diagonal: FloatArray, estimate: float, clock: Clock) -> float:
    """An upper bound on the spectral norm by Chebyshev polynomials of random vectors, see :func:`norm_from_above`.

    1. Start the recurrence of Chebyshev polynomials of the matrix over the estimate.
    2. Take its next step, and add up what rounding can have changed.
    3. At every sixteenth step see what the sizes prove; end when that is close to the estimate, or the budget is used.
       Out of time, the largest row sum may prove more.
    """
    # 1. The start.
    n = matrix.shape[0]
    before = np.random.default_rng(0).standard_normal((n, _PROOF_VECTORS))
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data, diagonal)
    # Every value of a product is within (degree + 4) eps times the row sum, in units of the estimate.
    row_sum = float((abs(matrix).sum(axis=1) + np.abs(diagonal)).max()) / estimate * (1.0 + (n + 8) * _EPS)
    rounding = (int(np.diff(matrix.indptr).max(initial=0)) + 8) * _EPS * row_sum
    largest = float(np.sqrt((before * before).sum(axis=0)).max())
    now = np.empty_like(before)
    chebyshev_step(*arrays, 1.0 / estimate, before, np.zeros_like(before), now)
    steps = 1
    best = math.inf
    error = rounding * largest
    work_per_step = _PROOF_VECTORS * (matrix.nnz + 4.0 * n)
    while True:
        # 2. The recurrence multiplies by at most 2: error k enters U_(steps - k) times, which is at most steps - k + 1
        # times T at any x >= 1, and for |x| <= 1.
        following = before
        chebyshev_step(*arrays, 2.0 / estimate, now, before, following)
        before = now
        now = following
        steps += 1
        size = float(np.sqrt((now * now).sum(axis=0)).max())
        largest = max(largest, size)
        error += 2.0 * rounding * largest * (steps + 1.0)
        part = _LEAST_PRODUCT - error / max(1.0, largest)
        # 3. The proof.
        if part <= 0.0:
            return estimate * min(best, row_sum)
        is_late = clock.past()
        if steps % 16 == 0 or is_late:
            best = min(best, math.cosh(math.acosh(max(1.0, size * (1.0 + n * _EPS) / part)) / steps))
            # Squares of much larger sizes would overflow: those of an estimate that is too small grow without end.
            if best < 1.0 + 2e-3 or steps * work_per_step > MAX_PROOF_WORK or size > 1e140 or is_late:
                return estimate * min(best, row_sum) * (1.0 + 64.0 * _EPS)


# -- the diagonal ---------------------------------------------------------------------------------------------------


class Ascent:
    """The search for a diagonal e that makes the norm of ``B + diag(e)`` small, by ascent on the dual problem.

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
        self._a = rng.standard_normal((n, ASCENT_RANK))
        self._b = rng.standard_normal((n, ASCENT_RANK))
        for part in (self._a, self._b):
            part /= np.sqrt((part * part).sum(axis=1))[:, None]
        self._r = np.full(n, 1.0 / math.sqrt(max(n, 1)))
        self._rows = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32))
        self._data = matrix.data
        self.diagonal = np.zeros(n)
        self.value = 0.0

    def run(self, passes: int | None = None, *, data: FloatArray | None = None, clock: Clock = NO_LIMIT) -> None:
        """Make passes over all coordinates, from where the last ones ended, until the value settles.

        ``data`` are other entries of the matrix at the same places.
        """
        if data is not None:
            self._data = data
        if passes is None:
            work_per_pass = 2.0 * ASCENT_RANK * (len(self._data) + 4.0 * len(self._r))
            passes = int(min(150, max(20, MAX_ASCENT_WORK / work_per_pass)))
        for k in range(passes):
            before = self.value
            self.value = ascend(*self._rows, self._data, self._a, self._b, self._r, self.diagonal)
            if clock.past(0.5) or (k > 20 and abs(self.value - before) <= 1e-8 * self.value):
                break

    def slopes(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Derivatives of the width with respect to the entries (rows, cols) and their mirror images together."""
        a = self._a
        b = self._b
        left = self._r[rows, None]
        right = self._r[cols, None]
        slopes: FloatArray = 2.0 * (left * right * (a[rows] * a[cols] - b[rows] * b[cols])).sum(axis=1)
        return slopes
