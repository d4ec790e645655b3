"""What each edge costs: the squared distance to the nearest table with a given bound on the dependency.

For edge e with table psi, ``f_e(z) = min ||T - psi||^2`` over tables with ``R_e(T) <= z`` is convex, piecewise
quadratic and zero from ``rho_e = R_e(psi)`` on. Its slope ``mu = -f_e'(z)`` is piecewise linear, so a few knots
(mu, z, f) describe it completely; they are found once per edge. For binary tables under ``range`` there is one piece:
``f(z) = 4 (rho - z)^2``. The sum of these costs is the objective of Eq. 3 of Liu and Domke (2014).

R is at most z when all contrasts ``|c_k . T|`` are at most t, a multiple of z. By duality the nearest such table is
``T = psi - sum_k nu_k c_k`` with nu the solution of a lasso problem with design matrix (c_k), response psi and weight
t. It is piecewise linear in t, and the homotopy of Osborne, Presnell and Turlach (2000), known as the lasso version of
LARS, walks along its pieces: contrasts join when they reach the bound and leave when their weight returns to zero.

Factors over three or more variables change by one scale s in [0, 1] each: what a factor F adds to R of its pairs
shrinks with it, and the cost is ``(1 - s)^2 ||F||^2``. So a projection chooses one number for every *item*: z of the
edges, then s of the factors, and R of an edge is its z and multiples of s of the factors around it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.projection.edge_kernels import table_path, table_paths, total_cost
from fastmix.theory.dependency import Dependency, factor_dependencies, of_pairs

__all__ = ["EdgeCosts", "check_finite", "contrasts", "edge_costs", "groups", "interactions"]

# Contrasts of one table beyond which its path is not attempted: 25 x 25 states have 90,000 under range.
_MAX_CONTRASTS = 100_000
_ROOM = 1 << 18  # knots that one compiled call may write: the clock is read between calls
_ISING = np.array([1.0, -1.0, -1.0, 1.0])


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """The functions f_e of all edges, and of all factors, in knots with ascending mu and descending z."""

    model: MarkovRandomField
    dependency: Dependency
    rho: FloatArray  # (m,) dependency of every edge before projection, the larger of both directions
    start: IntArray  # (items + 1,) where knots of an item begin: mu = 0 and z = rho (factors: 1) first, z = 0 last
    mu: FloatArray  # slope, bound and cost at the knots
    z: FloatArray
    f: FloatArray
    quadratic: bool  # whether every edge is ``4 (rho - z)^2``
    clock: Clock = NO_LIMIT  # after whose limit paths are no longer followed
    added: Any = None  # sparse (m, f): what each factor adds to R of the edges at the scale 1; None without factors

    @property
    def pairs(self) -> tuple[IntArray, IntArray, FloatArray]:
        """``added`` by columns, as kernels take it."""
        if self.added is None:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        return self.added.indptr.astype(np.int64), self.added.indices.astype(np.int64), self.added.data

    def cost(self, z: FloatArray) -> float:
        """Total squared distance when every item is held to its entry of z."""
        return float(total_cost(self.start, self.mu, self.z, self.f, z))

    def dependencies(self, z: FloatArray) -> FloatArray:
        """R of every edge (m,) from the items: its own z, and what the scaled factors add."""
        m = self.model.num_edges
        return z if self.added is None else z[:m] + self.added @ z[m:]

    def loads(self, mu: FloatArray) -> FloatArray:
        """What multipliers of R of the edges (m,) make the items cost: the transpose of :meth:`dependencies`."""
        return mu if self.added is None else np.concatenate([mu, self.added.T @ mu])

    @cached_property
    def incidence(self) -> tuple[IntArray, IntArray, FloatArray]:
        """For every variable, in compressed rows, the items that count in its row of R, and how much."""
        graph = self.model.adjacency
        ones = np.ones(len(graph.edge_ids))
        if self.added is None:
            return graph.indptr, graph.edge_ids, ones
        from scipy.sparse import csr_array, hstack

        own = csr_array((ones, graph.edge_ids, graph.indptr), shape=(self.model.num_variables, self.model.num_edges))
        matrix = csr_array(hstack([own, own @ self.added]))
        matrix.eliminate_zeros()
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data

    def factors(self, z: FloatArray) -> FloatArray:
        """Flat factors at their scales, bit by bit where that is 1."""
        return self.model.log_factors * np.repeat(z[self.model.num_edges :], np.diff(self.model.factor_offsets))

    def tables(self, z: FloatArray) -> FloatArray:
        """Flat nearest tables with ``R_e <= z[e]``; tables that meet their bound come back bit by bit."""
        z = z[: self.model.num_edges]
        result = self.model.log_pairwise.copy()
        if self.quadratic:
            tables = result.reshape(-1, 4)
            couplings = tables @ _ISING / 4.0
            change = np.copysign(np.maximum(self.rho - z, 0.0), couplings)
            moved = tables - np.multiply.outer(change, _ISING)
            # Of a table that is nothing but its coupling no digit is lost, however large that is.
            plain = (tables == np.multiply.outer(couplings, _ISING)).all(axis=1)
            left = np.copysign(np.minimum(self.rho, z), couplings)
            tables[:] = np.where((plain & (change != 0.0))[:, None], np.multiply.outer(left, _ISING), moved)
            return result
        for edges, shape, places in groups(self.model, self.dependency, z < self.rho):
            self.clock.check()
            stops = _scale(self.dependency) * z[edges]
            result[places] = _follow(self.model, edges, shape, self.dependency, stops)[3]
        return result


def edge_costs(model: MarkovRandomField, dependency: Dependency, clock: Clock = NO_LIMIT) -> EdgeCosts:
    """The cost functions of all edges and factors of a model under ``range`` or ``linf``, both directions bounded.

    Tables of many states take seconds each: an OutOfTimeError after half of the time that is left. The other half is
    for following the paths once more, to the bounds that a projection finds.
    """
    check_finite(model)
    m = model.num_edges
    if dependency == "range" and m and (model.num_states[model.edges] == 2).all():
        rho = np.abs(model.log_pairwise.reshape(-1, 4) @ _ISING) / 4.0
        knots = np.zeros((3, m, 2))
        knots[0, :, 1], knots[1, :, 0], knots[2, :, 1] = 8.0 * rho, rho, 4.0 * rho**2
        mu, z, f = knots.reshape(3, -1)
        costs = EdgeCosts(model, dependency, rho, 2 * np.arange(m + 1), mu, z, f, quadratic=True)
        return _with_factors(costs) if model.num_factors else costs
    parts = [(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))]  # the edge of every knot, its mu and its z
    first_half, scale = clock.part(0.5), _scale(dependency)
    for edges, shape, _ in groups(model, dependency):
        first_half.check()
        if not _num_contrasts(*shape, dependency):  # a variable with one state depends on nothing
            parts.append((edges, np.zeros(len(edges)), np.zeros(len(edges))))
            continue
        knot_t, knot_weight, number, _ = _follow(model, edges, shape, dependency, np.zeros(len(edges)))
        knot_t[np.arange(len(edges)), number - 1] *= number == 1  # the path ends at 0, but for rounding
        used = np.arange(knot_t.shape[1]) < number[:, None]
        parts.append((np.repeat(edges, number), 2.0 * scale * knot_weight[used], knot_t[used] / scale))
    owner, mu, z = (np.concatenate(part) for part in zip(*parts, strict=True))
    order, counts = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=m)
    start, mu, z = offsets_of(counts), mu[order], z[order]
    # The slope is linear between knots, so the trapezium rule is exact.
    pieces = np.zeros(len(mu))
    pieces[1:] = 0.5 * (mu[1:] + mu[:-1]) * (z[:-1] - z[1:])
    pieces[start[:-1]] = 0.0
    total = np.cumsum(pieces)
    f = total - np.repeat(total[start[:-1]], counts)
    costs = EdgeCosts(model, dependency, z[start[:-1]], start, mu, z, f, False, clock)
    return _with_factors(costs) if model.num_factors else costs


def _with_factors(costs: EdgeCosts) -> EdgeCosts:
    """The costs of the edges, and after them those of the scales of all factors."""
    from scipy.sparse import coo_array

    model, structure = costs.model, costs.model.structure
    squares = np.add.reduceat(model.log_factors**2, model.factor_offsets[:-1])
    parts = factor_dependencies(model, costs.dependency).max(axis=1)  # type: ignore[arg-type]
    places = structure.scope_pairs, of_pairs(model, np.arange(len(squares)))
    added = coo_array((parts, places), shape=(model.num_edges, len(squares))).tocsc()
    # One knot for a factor of zeros, which has nothing to lose.
    number, nothing = np.where(squares > 0.0, 2, 1), np.zeros(len(squares))
    used = np.arange(2) < number[:, None]
    knots = (nothing, 2.0 * squares), (nothing + 1.0, nothing), (nothing, squares)
    mu, z, f = (
        np.concatenate([own, np.stack(ends, axis=1)[used]])
        for own, ends in zip((costs.mu, costs.z, costs.f), knots, strict=True)
    )
    start = np.concatenate([costs.start, costs.start[-1] + offsets_of(number)[1:]])
    return replace(costs, start=start, mu=mu, z=z, f=f, quadratic=False, added=added)


def interactions(model: MarkovRandomField, tables: FloatArray, dependency: Dependency) -> FloatArray:
    """What a bound limits of all tables, flat: R of an edge grows in proportion to it."""
    shapes = model.structure.table_shapes
    if len(shapes) == 1:
        return _interaction(tables, shapes[0][:2], dependency)
    result = np.empty_like(tables)
    for rows, cols, edges in shapes:
        places = model.pairwise_offsets[edges][:, None] + np.arange(rows * cols)
        result[places] = _interaction(tables[places], (rows, cols), dependency)
    return result


def check_finite(model: MarkovRandomField) -> None:
    """Refuse tables that forbid states together, by name of the first edge or factor."""
    if (hard := np.flatnonzero(model.log_factors == -np.inf)).size:
        scope = model.factor(int(np.searchsorted(model.factor_offsets, hard[0], side="right")) - 1)[0].tolist()
        names = tuple(scope) if model.variable_names is None else tuple(model.variable_names[v] for v in scope)
        what = f"factors, but that of variables {names} forbids some of their states"
    elif (hard := np.flatnonzero(model.log_pairwise == -np.inf)).size:
        i, j = model.edges[int(np.searchsorted(model.pairwise_offsets, hard[0], side="right")) - 1].tolist()
        what = f"tables, but edge ({i}, {j}) forbids a pair of states"
    else:
        return
    raise UnfitMethodError(
        f"projection needs finite {what} (-inf): no finite change bounds its dependencies; soften it, or use exact "
        "inference or loopy belief propagation"
    )


@lru_cache(maxsize=64)
def contrasts(num_rows: int, num_cols: int, dependency: str) -> tuple[IntArray, FloatArray]:
    """Positions and signs (M, 4) of the contrasts that a bound limits in a table; unused places have sign 0.

    ``range``: T[r, a] - T[r, b] - T[s, a] + T[s, b]; ``linf``: T[r, a] - T[r, b], then T[r, a] - T[s, a].
    """
    number = _num_contrasts(num_rows, num_cols, dependency)
    if number > _MAX_CONTRASTS:
        raise ResourceError(
            f"a table of {num_rows} x {num_cols} states has {number:,} contrasts under {dependency}, more than the "
            f"{_MAX_CONTRASTS:,} that a projection follows; use dependency='linf', or merge states"
        )
    (r, s), (a, b) = np.triu_indices(num_rows, 1), np.triu_indices(num_cols, 1)
    entry = np.arange(num_rows * num_cols).reshape(num_rows, num_cols)
    if dependency == "range":
        first, second = entry[r], entry[s]
        position = np.stack([first[:, a], first[:, b], second[:, a], second[:, b]], axis=-1).reshape(-1, 4)
        return position, np.tile(_ISING, (number, 1))
    position = np.zeros((number, 4), dtype=np.int64)
    along_rows = np.stack([entry[:, a], entry[:, b]], axis=-1).reshape(-1, 2)
    along_cols = np.stack([entry.T[:, r], entry.T[:, s]], axis=-1).reshape(-1, 2)
    position[:, :2] = np.concatenate([along_rows, along_cols])
    return position, np.tile([1.0, -1.0, 0.0, 0.0], (number, 1))


def _num_contrasts(num_rows: int, num_cols: int, dependency: str) -> int:
    row_pairs, col_pairs = num_rows * (num_rows - 1) // 2, num_cols * (num_cols - 1) // 2
    return row_pairs * col_pairs if dependency == "range" else num_rows * col_pairs + num_cols * row_pairs


def groups(
    model: MarkovRandomField, dependency: str, chosen: BoolArray | None = None
) -> Iterator[tuple[IntArray, tuple[int, int], IntArray]]:
    """Edges, or those ``chosen`` (m,), in groups of one table shape: numbers, shape, places (g, entries) of the tables.

    A group is as large as one compiled call may take.
    """
    for rows, cols, members in model.structure.table_shapes:
        kept = members if chosen is None else members[chosen[members]]
        most = max(1, _ROOM // _room(rows * cols, _num_contrasts(rows, cols, dependency)))
        for k in range(0, len(kept), most):
            edges = kept[k : k + most]
            yield edges, (rows, cols), model.pairwise_offsets[edges][:, None] + np.arange(rows * cols)


def _room(num_entries: int, num_contrasts: int) -> int:
    """Knots that the path of one table may have."""
    return 8 * num_entries + 4 * num_contrasts + 50


def _interaction(tables: FloatArray, shape: tuple[int, int], dependency: str) -> FloatArray:
    """What a bound limits of flat tables: all but terms of one variable under ``range``, all but the mean else."""
    if dependency != "range":
        flat = tables.reshape(-1, shape[0] * shape[1])
        return (flat - flat.mean(axis=1, keepdims=True)).reshape(tables.shape)
    rest = tables
    for other, size in (shape, shape[::-1]):  # by products: sums of few numbers each are slow
        rest = (rest.reshape(-1, size) @ (np.eye(size) - 1.0 / size)).reshape(-1, other, size).transpose(0, 2, 1)
    return rest.reshape(tables.shape)


def _scale(dependency: str) -> float:
    """R is at most z when every contrast is at most this times z."""
    return 4.0 if dependency == "range" else 2.0


def _follow(
    model: MarkovRandomField, edges: IntArray, shape: tuple[int, int], dependency: str, stops: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
    """Knots, weights, numbers of knots and tables at ``stops`` of the paths of some tables of one shape.

    Rounding can make contrasts that are nearly tied enter and leave in turn for ever. The path is then followed for a
    table that differs by as little as breaks the ties: by at most 1e-7 of its largest entry, and as a rule by 1e-11.
    """
    position, sign = contrasts(*shape, dependency)
    size = shape[0] * shape[1]
    values = model.log_pairwise[model.pairwise_offsets[edges][:, None] + np.arange(size)]
    room = (len(edges), _room(size, len(position)))
    knot_t, knot_weight, tables = np.empty(room), np.empty(room), np.empty_like(values)
    counts = np.empty(len(edges), dtype=np.int64)
    table_paths(values, position, sign, stops, knot_t, knot_weight, tables, counts)
    for k in np.flatnonzero(counts < 0).tolist():
        noise = np.random.default_rng(1).uniform(-1.0, 1.0, size) * np.abs(values[k]).max()
        for share in (1e-11, 1e-10, 1e-9, 1e-8, 1e-7):
            moved = values[k] + share * noise
            counts[k] = table_path(moved, position, sign, stops[k], knot_t[k], knot_weight[k], tables[k])
            if counts[k] >= 0:
                break
        else:
            i, j = model.edges[edges[k]].tolist()
            raise ResourceError(f"the path of the table of edge ({i}, {j}) could not be followed; use the paper's dual")
    return knot_t, knot_weight, counts, tables
