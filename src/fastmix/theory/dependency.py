"""The dependency matrix R of a model: how far one variable can move the conditional distribution of another.

``R_ij`` is the largest total variation distance between ``p(X_i | x)`` and ``p(X_i | y)`` over configurations x and y
that differ only at variable j (Dobrushin's interdependence matrix). It is zero unless i and j share an edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField, check_model, check_pairwise

__all__ = [
    "DEPENDENCIES",
    "Dependency",
    "dependency_matrix",
    "edge_dependencies",
    "rounding_margins",
    "to_matrix",
    "undefined_conditional",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Dependency = Literal["exact", "field", "sigmoid", "range", "l1", "linf"]
DEPENDENCIES: tuple[str, ...] = get_args(Dependency)

_EPS = float(np.finfo(np.float64).eps)
_CHUNK_ENTRIES = 1 << 18  # table entries worked on at once: 2 MiB a temporary, which stays in the cache

# Limits of the enumeration behind dependency="exact": each takes a few seconds.
_MAX_EVALUATIONS = 20_000_000  # conditional distributions
_MAX_COMPARISONS = 4_000_000_000  # entries of pairs of conditional distributions
_BATCHED_EVALUATIONS = 4096  # up to this many an entry of R are enumerated side by side, without merging
_MERGE_WIDTH = 64 * _EPS  # summed effects closer than this (relative to their scale) count as one
_MAX_COVERS = 1 << 16  # sets of states that neighbours forbid together: all there are for up to 16 states


def edge_dependencies(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> FloatArray:
    """Bounds on the two dependencies of every edge, R_ij in column 0 and R_ji in column 1 for edge (i, j).

    With rows of the table T for x_i, columns for x_j and ``range(v) = max v - min v``, R_ij is bounded by

    ============  ========================================================================
    ``exact``     its definition, by enumeration of the other neighbours of i
    ``field``     for binary x_i, ``(tanh(z + d) - tanh(z - d)) / 2`` with 2 d the range of the field that x_j puts on
                  x_i, at the total field z nearest to 0 that the others can leave; else ``sigmoid``
    ``sigmoid``   ``max_ab tanh(range(T[:, a] - T[:, b]) / 4)``, the largest over all fields
    ``range``     ``max_ab range(T[:, a] - T[:, b]) / 4``
    ``l1``        ``max_ab norm(T[:, a] - T[:, b], 1) / 4``
    ``linf``      ``max_ab norm(T[:, a] - T[:, b], inf) / 2``, the theorem of the paper
    ============  ========================================================================

    ordered ``exact <= field <= sigmoid <= range <= l1, linf``. ``range`` and ``sigmoid`` are the same both ways for
    tables without -inf, and do not change when functions of x_i or of x_j alone are added to T.

    Parameters
    ----------
    model : MarkovRandomField
        States that a unary forbids are dropped first: the bounds hold between configurations without them.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}

    Returns
    -------
    float array (m, 2)
        Aligned with ``model.edges``. ``exact`` and ``sigmoid`` are at most 1. Where a state of x_i is forbidden
        (-inf) under one of two states of x_j and not under the other, or two states of x_j forbid every state of
        x_i, ``sigmoid`` is 1 and ``range``, ``l1`` and ``linf`` are infinite. For ``exact``, configurations of
        the other neighbours under which both conditionals are undefined do not count, and one defined beside one
        undefined counts as 1.

    Raises
    ------
    ValueError
        If the dependency bound is not known.
    ResourceError
        If ``exact`` would take more than about 2e7 conditional distributions.

    Notes
    -----
    ``O(L^2 L')`` time for an edge of L and L' states, a fraction of a second for millions of binary edges; ``exact``
    enumerates, for each edge and direction, the product of the state counts of the other neighbours, merged where
    their summed effects agree. ``field`` takes O(1) time for an edge. Values
    are accurate to rounding, on neither side; :func:`rounding_margins` bounds
    the error.

    The bounds and their order are in Liu and Domke (2014), "Projecting Markov random field parameters for fast
    mixing", Theorem 6 and its proof; ``sigmoid`` is attained by a field that puts equal weight on the two extreme
    states.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[0.5, -0.2], field=[0.0, 0.3, 1.0])
    >>> edge_dependencies(model, dependency="range").tolist()
    [[0.5, 0.5], [0.2, 0.2]]
    >>> edge_dependencies(model).round(4).tolist()
    [[0.4621, 0.4621], [0.1974, 0.1974]]
    >>> edge_dependencies(model, dependency="exact").round(4).tolist()
    [[0.4621, 0.4585], [0.19, 0.0848]]
    """
    check_model(model)
    check_pairwise(model, "dependency bounds")
    if dependency not in DEPENDENCIES:
        raise ValueError(f"dependency must be one of {', '.join(DEPENDENCIES)}, got {dependency!r}")
    if model.log_unary.size and model.log_unary.min() == -np.inf:
        model = model.drop_forbidden_states()
    if dependency == "exact":
        # The minimum repairs rounding only: the enumeration is never above the maximum over all fields.
        return np.minimum(_exact(model), _column_bounds(model, "sigmoid"))
    if dependency == "field":
        with np.errstate(invalid="ignore", over="ignore"):  # forbidden pairs: unknown, and left to the other bound
            field = _field_bounds(model)
        return np.minimum(field, _column_bounds(model, "sigmoid"))
    return _column_bounds(model, dependency)


def dependency_matrix(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> Any:
    """The bound on R as a sparse matrix, with a stored entry for both directions of every edge.

    Parameters
    ----------
    model, dependency
        As for :func:`edge_dependencies`.

    Returns
    -------
    scipy.sparse.csr_array (n, n)
        Entry (i, j) bounds how far x_j moves the conditional of x_i. Column numbers are sorted within each row.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[0.5, -0.2])
    >>> dependency_matrix(model, dependency="range").toarray().tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.2], [0.0, 0.2, 0.0]]
    """
    return to_matrix(model, edge_dependencies(model, dependency=dependency))


def to_matrix(model: MarkovRandomField, values: FloatArray) -> Any:
    """The sparse matrix (n, n) of one value per edge, (m,), or per edge and direction, (m, 2)."""
    from scipy.sparse import csr_array

    graph, n = model.adjacency, model.num_variables
    index = np.int32 if 2 * model.num_edges < 2**31 else np.int64
    place = graph.edge_ids
    if values.ndim == 2:
        place = 2 * place + (np.repeat(np.arange(n), graph.degree) > graph.neighbors)
    data = values.ravel()[place]
    matrix = csr_array((data, graph.neighbors.astype(index), graph.indptr.astype(index)), shape=(n, n))
    matrix.has_sorted_indices = True
    return matrix


def rounding_margins(model: MarkovRandomField, *, dependency: Dependency = "sigmoid") -> FloatArray:
    """Bounds on the absolute rounding error of :func:`edge_dependencies`, of the same shape (m, 2).

    The formulas have absolute error of about eps times the largest finite table entry, from the two subtractions (the
    relative error of the other operations, at most a few eps, is left to the caller). For ``exact`` and ``field`` the
    logits of x_i are sums over all its terms, so the scale is the sum of their largest entries.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    >>> bool((rounding_margins(model) < 1e-15).all())
    True
    """
    table_scale = _largest_finite(model.log_pairwise, model.pairwise_offsets)
    if dependency not in ("exact", "field"):
        # For v = T[:, a] - T[:, b]: |v| <= 2 s, each entry off by eps s, max - min by 2 eps s plus its own
        # rounding of 2 eps s, all over 4 (over 2, but without the last subtraction, for linf).
        return np.repeat(2.0 * _EPS * table_scale[:, None], 2, axis=1)
    graph, n = model.adjacency, model.num_variables
    scale = _largest_finite(model.log_unary, model.unary_offsets)
    for end in (0, 1):
        scale = scale + np.bincount(model.edges[:, end], table_scale, minlength=n)
    # Logits are off by (degree + 4) eps scale from summation and by the merge width; total variation by half the
    # range of that, twice for the two conditionals; exp, sum and quotient add a few eps per state.
    logits = (_MERGE_WIDTH + (graph.degree + 4) * _EPS) * scale
    return (2.0 * logits + (model.num_states + 8) * _EPS)[model.edges]


def undefined_conditional(model: MarkovRandomField) -> tuple[int, str] | None:
    """A variable for which some states of its neighbours leave no state, and that in words; None if there is none.

    There Gibbs sampling is undefined, and so is R. Whether chains reach such states of the neighbours is not asked:
    they may start from them. A variable of more than 16 states with too many sets of states that its neighbours can
    forbid together is named, too, in other words.

    Parameters
    ----------
    model : MarkovRandomField
        States that a unary forbids are dropped first, as the sampler does.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[0.0, 0.0], [-np.inf, -np.inf]]])
    >>> undefined_conditional(model)
    (1, 'variable 1 has no allowed state for some states of its neighbours')
    >>> undefined_conditional(MarkovRandomField.ising([(0, 1)], coupling=9.0)) is None
    True
    """
    check_pairwise(model, "a check of conditional distributions")
    if not model.has_forbidden:
        return None
    model = model.drop_forbidden_states()
    starts, n = model.unary_offsets[:-1], model.num_variables
    at_risk = np.zeros(len(model.log_unary), dtype=bool)  # states that some neighbour can forbid
    most = np.zeros(n, dtype=np.int64)  # states that all neighbours together can forbid, or more
    for places, tables in _table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            forbidden, owner = table == -np.inf, model.edges[places, end]
            np.logical_or.at(at_risk, starts[owner] + np.arange(len(table))[:, None], forbidden.any(axis=1))
            np.add.at(most, owner, forbidden.sum(axis=0).max(axis=0))
    doubtful = np.logical_and.reduceat(at_risk, starts) & (most >= model.num_states) if n else at_risk
    for i in np.flatnonzero(doubtful).tolist():
        if (defined := _always_defined(model, i)) is None:
            return i, f"variable {i} has forbidden pairs and too many neighbours to check that it always has a state"
        if not defined:
            return i, f"variable {i} has no allowed state for some states of its neighbours"
    return None


def _always_defined(model: MarkovRandomField, i: int) -> bool | None:
    """Whether neighbours always leave variable i a state, by the sets of states (bits) that they forbid together."""
    everything = (1 << int(model.num_states[i])) - 1
    covers = {0}
    for p in range(int(model.adjacency.indptr[i]), int(model.adjacency.indptr[i + 1])):
        forbidden = _columns(model, np.array([p]))[:, :, 0] == -np.inf
        sets = {sum(1 << s for s in np.flatnonzero(column).tolist()) for column in forbidden.T}
        # A smaller set than another of the same neighbour covers nothing more.
        sets = {a for a in sets if not any(a != b and a & b == a for b in sets)}
        covers = {a | b for a in covers for b in sets}
        if everything in covers:
            return False
        if len(covers) > _MAX_COVERS:
            return None
    return True


def _largest_finite(values: FloatArray, offsets: IntArray) -> FloatArray:
    """Largest finite absolute value of each stretch; stretches are never empty."""
    if len(offsets) < 2:
        return np.zeros(0)
    size = np.abs(values)
    size[size == np.inf] = 0.0
    return np.maximum.reduceat(size, offsets[:-1])


# -- formulas over columns ------------------------------------------------------------------------------------------


def _column_bounds(model: MarkovRandomField, dependency: str) -> FloatArray:
    result = np.empty((model.num_edges, 2))
    with np.errstate(invalid="ignore", over="ignore"):  # -inf - -inf, and differences beyond the largest number
        for places, tables in _table_groups(model):
            result[places] = _bound_tables(tables, dependency)
    return result


def _table_groups(model: MarkovRandomField) -> Iterator[tuple[Any, FloatArray]]:
    """Pieces of edges of equal shape: their places, and their tables with the edges along the LAST axis."""
    shapes = model.structure.table_shapes
    for rows, cols, members in shapes:
        chunk = max(1, _CHUNK_ENTRIES // (rows * cols))
        if len(shapes) == 1:
            flat = model.log_pairwise.reshape(-1, rows * cols)
            for start in range(0, len(flat), chunk):
                piece = flat[start : start + chunk]
                yield slice(start, start + len(piece)), _edges_last(piece, rows, cols)
            continue
        for start in range(0, len(members), chunk):
            places = members[start : start + chunk]
            positions = model.pairwise_offsets[places][:, None] + np.arange(rows * cols)
            yield places, _edges_last(model.log_pairwise[positions], rows, cols)


def _edges_last(flat: FloatArray, rows: int, cols: int) -> FloatArray:
    return np.ascontiguousarray(flat.T).reshape(rows, cols, len(flat))


def _bound_tables(tables: FloatArray, kind: str) -> FloatArray:
    """Both directions of the bound for tables (rows, cols, k), shape (k, 2), or (k, 1) where they are the same."""
    finite = not (tables.size and tables.min() == -np.inf)
    if not finite:
        # -inf somewhere: the slower rules for those tables alone.
        hard = (tables == -np.inf).any(axis=(0, 1))
        result = np.empty((len(hard), 2))
        if not hard.all():
            result[~hard] = _bound_tables(np.ascontiguousarray(tables[:, :, ~hard]), kind)
        some = np.ascontiguousarray(tables[:, :, hard])
        result[hard, 0] = _finish(_over_hard_columns(some, kind), kind)
        result[hard, 1] = _finish(_over_hard_columns(some.transpose(1, 0, 2), kind), kind)
        return result
    swapped = tables.transpose(1, 0, 2)
    if kind in ("range", "sigmoid"):
        # The same in both directions, and cheaper over pairs of the fewer states.
        return _finish(_over_columns(tables if tables.shape[1] <= tables.shape[0] else swapped, kind), kind)[:, None]
    return np.stack([_finish(_over_columns(t, kind), kind) for t in (tables, swapped)], axis=1)


def _finish(size: FloatArray, kind: str) -> FloatArray:
    """R from the largest range or norm of a difference of columns."""
    # Beyond the largest number, inf - inf: unknown, so unbounded.
    np.copyto(size, np.inf, where=np.isnan(size))
    size /= 2.0 if kind == "linf" else 4.0
    # tanh x <= x also where the library's tanh rounds up
    return np.minimum(np.tanh(size), size) if kind == "sigmoid" else size


def _over_columns(tables: FloatArray, kind: str) -> FloatArray:
    """Largest range or norm (k,) of the difference of two columns of finite tables (rows, cols, k)."""
    rows, cols, k = tables.shape
    best = np.zeros(k)
    if rows == 2 and cols == 2:
        top, bottom = tables[0, 0] - tables[0, 1], tables[1, 0] - tables[1, 1]
        if kind in ("range", "sigmoid"):
            return np.abs(top - bottom)
        top, bottom = np.abs(top), np.abs(bottom)
        return top + bottom if kind == "l1" else np.maximum(top, bottom)
    for a in range(cols - 1):
        difference = tables[:, a : a + 1] - tables[:, a + 1 :]
        if kind in ("range", "sigmoid"):
            size = difference.max(axis=0) - difference.min(axis=0)
        else:
            np.abs(difference, out=difference)
            size = difference.sum(axis=0) if kind == "l1" else difference.max(axis=0)
        np.maximum(best, size.max(axis=0), out=best)
    return best


def _over_hard_columns(tables: FloatArray, kind: str) -> FloatArray:
    """The same for tables with -inf: rows forbidden in both columns do not count, in one of them they give inf."""
    _, cols, k = tables.shape
    allowed = tables > -np.inf
    best = np.zeros(k)
    for a in range(cols - 1):
        difference = tables[:, a : a + 1] - tables[:, a + 1 :]
        both = allowed[:, a : a + 1] & allowed[:, a + 1 :]
        if kind in ("range", "sigmoid"):
            size = np.where(both, difference, -np.inf).max(axis=0) - np.where(both, difference, np.inf).min(axis=0)
        else:
            difference = np.where(both, np.abs(difference), 0.0)
            size = difference.sum(axis=0) if kind == "l1" else difference.max(axis=0)
        one = (allowed[:, a : a + 1] != allowed[:, a + 1 :]).any(axis=0)
        size[one | ~both.any(axis=0)] = np.inf
        np.maximum(best, size.max(axis=0), out=best)
    return best


def _field_bounds(model: MarkovRandomField) -> FloatArray:
    """R (m, 2) from the interval of fields that the other neighbors can put on a binary variable; 1 for others.

    The field on x_i is half its log-odds. A neighbor k puts between ``low_k`` and ``high_k`` on it, so that without j
    the others leave an interval, and x_j moves the field by its own range around the middle of its own interval.
    """
    n, m = model.num_variables, model.num_edges
    low, high = np.empty((m, 2)), np.empty((m, 2))
    for places, tables in _table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            if len(table) == 2:
                field = 0.5 * (table[1] - table[0])
                low[places, end], high[places, end] = field.min(axis=0), field.max(axis=0)
            else:
                low[places, end] = high[places, end] = np.nan
    binary = model.num_states == 2
    own = np.full(n, np.nan)
    starts = model.unary_offsets[:-1][binary]
    own[binary] = 0.5 * (model.log_unary[starts + 1] - model.log_unary[starts])
    owner = model.edges
    least, most = (own + np.bincount(owner.ravel(), part.ravel(), minlength=n) for part in (low, high))
    # The total field when x_j is in the middle of its interval.
    middle = 0.5 * (low + high)
    begin, end_ = least[owner] - low + middle, most[owner] - high + middle
    z = np.clip(0.0, np.minimum(begin, end_), np.maximum(begin, end_))
    d = 0.5 * (high - low)
    result = 0.5 * (np.tanh(z + d) - np.tanh(z - d))
    return np.where(np.isfinite(result), result, 1.0)


# -- enumeration ----------------------------------------------------------------------------------------------------


def _exact(model: MarkovRandomField) -> FloatArray:
    """R by its definition (m, 2)."""
    graph, counts = model.adjacency, model.num_states
    result = np.zeros(2 * model.num_edges)
    if not len(result):
        return result.reshape(0, 2)
    owner = np.repeat(np.arange(model.num_variables), graph.degree)
    other = graph.neighbors
    # Every directed edge p = (owner <- other): its own states, and the product over the owner's other neighbours.
    log_counts = np.log(counts.astype(np.float64))
    log_total = np.bincount(owner, log_counts[other], minlength=model.num_variables)[owner]
    with np.errstate(over="ignore"):
        evaluations = np.exp(log_total)  # the product with the neighbour itself: conditional distributions
    weight = counts[owner] * counts[other]  # comparisons are this many times more
    target = 2 * graph.edge_ids + (owner > other)
    batched = evaluations <= _BATCHED_EVALUATIONS + 0.5
    budget = _Budget(float(evaluations.sum()), owner[int(evaluations.argmax())], graph.max_degree)
    budget.spend(float(evaluations[batched].sum()), float((evaluations * weight)[batched].sum()))
    for places, slots in _alike(model, owner, batched):
        result[target[places]] = _enumerate_batch(model, places, slots)
    for p in np.flatnonzero(~batched).tolist():
        result[target[p]] = _enumerate_merged(model, int(owner[p]), p, budget)
    return result.reshape(-1, 2)


class _Budget:
    """What an enumeration may still cost."""

    def __init__(self, estimate: float, variable: int, max_degree: int) -> None:
        self._estimate, self._variable, self._degree = estimate, variable, max_degree
        self._evaluations = self._comparisons = 0.0

    def spend(self, evaluations: float, comparisons: float) -> None:
        self._evaluations += evaluations
        self._comparisons += comparisons
        if self._evaluations > _MAX_EVALUATIONS or self._comparisons > _MAX_COMPARISONS:
            raise ResourceError(
                f"dependency='exact' would enumerate up to {self._estimate:.3g} conditional distributions (variable "
                f"{self._variable} takes most; the largest degree is {self._degree}), more than the limit of "
                f"{_MAX_EVALUATIONS:.3g} of them or {_MAX_COMPARISONS:.3g} comparisons of their entries; "
                "dependency='sigmoid' enumerates nothing"
            )

    def check(self, evaluations: float) -> None:
        """Refuse before an allocation of this many."""
        self.spend(evaluations, 0.0)
        self._evaluations -= evaluations


def _alike(model: MarkovRandomField, owner: IntArray, wanted: NDArray[np.bool_]) -> Iterator[tuple[IntArray, IntArray]]:
    """Groups of directed edges with equal state counts of owner, neighbour and other neighbours, in pieces.

    Yields the directed edges (g,) and the owner's other directed edges (g, degree - 1), by falling state counts.
    """
    graph, counts = model.adjacency, model.num_states
    degree = graph.degree[owner]
    for d in np.unique(degree[wanted]).tolist():
        places = np.flatnonzero(wanted & (degree == d))
        slots = graph.indptr[owner[places]][:, None] + np.arange(d)
        others = slots[slots != places[:, None]].reshape(len(places), d - 1)
        states = counts[graph.neighbors[others]]
        order = np.argsort(-states, axis=1, kind="stable")
        others, states = np.take_along_axis(others, order, 1), np.take_along_axis(states, order, 1)
        signature = np.column_stack([counts[owner[places]], counts[graph.neighbors[places]], states])
        if (signature == signature[0]).all():
            kinds, group = signature[:1], np.zeros(len(places), dtype=np.int64)
        else:
            kinds, group = np.unique(signature, axis=0, return_inverse=True)
        for k, kind in enumerate(kinds):
            members = np.flatnonzero(group.ravel() == k)
            chunk = max(1, _CHUNK_ENTRIES // math.prod(kind.tolist()))
            for start in range(0, len(members), chunk):
                some = members[start : start + chunk]
                yield places[some], others[some]


def _columns(model: MarkovRandomField, places: IntArray) -> FloatArray:
    """Tables of g directed edges of equal shape, (states of the owner, states of the neighbour, g)."""
    graph, counts = model.adjacency, model.num_states
    edge, neighbor = graph.edge_ids[places], graph.neighbors[places]
    owner = model.edges[edge].sum(axis=1) - neighbor
    rows, cols = int(counts[owner[0]]), int(counts[neighbor[0]])
    r, c = np.arange(rows)[:, None, None], np.arange(cols)[None, :, None]
    local = np.where(owner < neighbor, r * cols + c, c * rows + r)
    return model.log_pairwise[model.pairwise_offsets[edge] + local]


def _enumerate_batch(model: MarkovRandomField, places: IntArray, others: IntArray) -> FloatArray:
    graph = model.adjacency
    owner = model.edges[graph.edge_ids[places]].sum(axis=1) - graph.neighbors[places]
    states = int(model.num_states[owner[0]])
    field = model.log_unary[model.unary_offsets[owner] + np.arange(states)[:, None]][:, None]
    for k in range(others.shape[1]):
        effect = _columns(model, others[:, k])
        field = (field[:, :, None] + effect[:, None]).reshape(states, -1, len(places))
    return _largest_distance(field, _columns(model, places))


def _enumerate_merged(model: MarkovRandomField, owner: int, place: int, budget: _Budget) -> float:
    graph = model.adjacency
    own = _columns(model, np.array([place]))
    field = model.unary(owner)[:, None]
    scale = float(np.abs(field[np.isfinite(field)]).max(initial=0.0))
    slots = [p for p in range(int(graph.indptr[owner]), int(graph.indptr[owner + 1])) if p != place]
    # Equal tables one after another: their sums merge before they are many.
    effects = sorted((_columns(model, np.array([p]))[:, :, 0] for p in slots), key=lambda t: (t.shape[1], t.tolist()))
    for effect in effects:
        # The owner's other directed edges will need about as many.
        budget.check(float(field.shape[1]) * effect.shape[1] * (len(slots) + 1))
        scale += float(np.abs(effect[np.isfinite(effect)]).max(initial=0.0))
        field = _merge((field[:, :, None] + effect[:, None]).reshape(len(field), -1), scale)
    states, number = own.shape[1], float(field.shape[1])
    budget.spend(number * states, number * states * states * len(field))
    chunk = max(1, _CHUNK_ENTRIES // (len(field) * states))
    pieces = (field[:, None, start : start + chunk] for start in range(0, field.shape[1], chunk))
    return max(float(_largest_distance(piece, own).max()) for piece in pieces)


def _merge(field: FloatArray, scale: float) -> FloatArray:
    """Columns of logits without those that repeat another up to a constant and to rounding."""
    top = field.max(axis=0)
    top[top == -np.inf] = 0.0  # every state forbidden: all such columns are one
    field = field - top
    width = scale * _MERGE_WIDTH
    keys = (np.rint(field / width) if width > 0.0 else field) + 0.0
    # Sorting by one number a column is many times faster than by all its entries; neighbours are compared in full.
    mix = np.random.default_rng(0).random(len(keys)) + 0.5
    with np.errstate(invalid="ignore"):
        order = np.argsort(np.where(keys == -np.inf, -1.0, mix[:, None] * keys).sum(axis=0), kind="stable")
    keys = keys[:, order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    return field[:, order[fresh]]


def _largest_distance(field: FloatArray, own: FloatArray) -> FloatArray:
    """Largest total variation distance (g,) over K fields (L, K, g) and pairs of the columns of tables (L, C, g)."""
    logits = field[:, :, None] + own[:, None]
    top = logits.max(axis=0)
    undefined = top == -np.inf
    hard = bool(undefined.any())
    if hard:
        top[undefined] = 0.0
    logits -= top
    p = np.exp(logits, out=logits)
    total = p.sum(axis=0)
    if hard:
        total[undefined] = 1.0
    p /= total
    best = np.zeros(p.shape[-1])
    for a in range(own.shape[1] - 1):
        distance = np.abs(p[:, :, a : a + 1] - p[:, :, a + 1 :]).sum(axis=0)
        if hard:
            left, right = undefined[:, a : a + 1], undefined[:, a + 1 :]
            distance[left & right] = 0.0
            distance[left != right] = 2.0
        np.maximum(best, distance.max(axis=(0, 1)), out=best)
    return np.minimum(0.5 * best, 1.0)
