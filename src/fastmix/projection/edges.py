"""What each edge costs: the squared distance to the nearest table with a given bound on the dependency.

For edge e with table psi, ``f_e(z) = min ||T - psi||^2`` over tables with ``R_e(T) <= z`` is convex, piecewise
quadratic and zero from ``rho_e = R_e(psi)`` on. Its slope ``mu = -f_e'(z)`` is piecewise linear, so a few knots
(mu, z, f) describe it completely; they are found once per edge. For binary tables under ``range`` there is one piece:
``f(z) = 4 (rho - z)^2``. The sum of these costs is the objective of Eq. 3 of Liu and Domke (2014).

R is at most z when all contrasts ``|c_k . T|`` are at most t, a multiple of z
(:mod:`fastmix.projection.contrasts`). By duality the nearest such table is ``T = psi - sum_k nu_k c_k`` with nu the
solution of a lasso problem with design matrix (c_k), response psi and weight t. It is piecewise linear in t, and the
homotopy of Osborne, Presnell and Turlach (2000), known as the lasso version of LARS, walks along its pieces: contrasts
join when they reach the bound and leave when their weight returns to zero.

Factors over three or more variables change by one scale s in [0, 1] each: what a factor F adds to R of its pairs
shrinks with it, and the cost is ``(1 - s)^2 ||F||^2``. So a projection chooses one number for every *item*: z of the
edges, then s of the factors, and R of an edge is its z and multiples of s of the factors around it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.model.shared import SharedTables
from fastmix.projection.contrasts import (
    ISING_CONTRAST,
    Bound,
    TableGroup,
    contrast_scale,
    contrasts,
    count_contrasts,
    count_knots,
    groups,
)
from fastmix.projection.edge_kernels import table_path, table_paths, total_cost
from fastmix.projection.shared_paths import SharedPaths, follow_patterns
from fastmix.projection.tuning import ISING_TABLES_AT_ONCE, RESTART_NOISE
from fastmix.theory.dependency import factor_dependencies
from fastmix.theory.factors import of_pairs

__all__ = ["EdgeCosts", "check_finite", "edge_costs"]


@dataclass(frozen=True, eq=False)
class EdgeCosts:
    """The cost functions of all items (edges, then factors), in knots with ascending mu and descending z.

    Attributes
    ----------
    model : MarkovRandomField
        The graph, and the factors.
    log_pairwise : float array
        The flat tables psi that the costs are distances from; empty where tables are shared.
    dependency : {"range", "linf"}
        The bound on R.
    rho : float array (m,)
        The dependency of every edge before the projection, the larger of both directions.
    start : int array (items + 1,)
        The first knot of every item, where mu = 0 and z = rho (1 for factors); its last knot has z = 0. Where tables
        are shared, the knots are those of the patterns.
    mu, z, f : float arrays (knots,)
        Slope, bound and cost at the knots.
    curvature : float
        The number k for which the cost of every edge is ``k (rho - z)^2``, 4 for two states; 0 where there is none, or
        there are factors.
    shared : SharedPaths or None
        The paths of the patterns that edges share.
    clock : Clock
        The clock after whose limit paths are no longer followed.
    added : scipy.sparse.csc_array (m, f) or None
        What each factor adds to R of the edges at the scale 1; None without factors.
    """

    model: MarkovRandomField
    log_pairwise: FloatArray
    dependency: Bound
    rho: FloatArray
    start: IntArray
    mu: FloatArray
    z: FloatArray
    f: FloatArray
    curvature: float = 0.0
    clock: Clock = NO_LIMIT
    added: Any = None
    shared: SharedPaths | None = None

    @property
    def num_items(self) -> int:
        """The number of edges and factors."""
        return len(self.start) - 1 if self.shared is None else len(self.rho)

    @cached_property
    def items(self) -> tuple[IntArray, IntArray, FloatArray]:
        """The first knot and the end of every item, and their scales, as kernels take them."""
        if self.shared is None:
            return self.start[:-1], self.start[1:], np.ones(self.num_items)
        of_edge = self.shared.tables.use.of_edge
        return self.start[:-1][of_edge], self.start[1:][of_edge], self.shared.scales

    @property
    def pairs(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Offsets, edges and values of the columns of ``added``, as kernels take them."""
        if self.added is None:
            return np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        return self.added.indptr.astype(np.int64), self.added.indices.astype(np.int64), self.added.data

    def cost(self, z: FloatArray) -> float:
        """Total squared distance when every item is held to its entry of z."""
        return float(total_cost(self.items, self.mu, self.z, self.f, z))

    def dependencies(self, z: FloatArray) -> FloatArray:
        """R of every edge (m,) from the items: its own z, and what the scaled factors add."""
        if self.added is None:
            return z
        m = self.model.num_edges
        total: FloatArray = z[:m] + self.added @ z[m:]
        return total

    def loads(self, mu: FloatArray) -> FloatArray:
        """The cost per unit of every item that multipliers of R of the edges (m,) make.

        This is the transpose of :meth:`dependencies`.
        """
        if self.added is None:
            return mu
        return np.concatenate([mu, self.added.T @ mu])

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
        """Flat factors at their scales, bit by bit where the scale is 1."""
        scales = z[self.model.num_edges :]
        return self.model.log_factors * np.repeat(scales, np.diff(self.model.factor_offsets))

    def nearest(self, z: FloatArray) -> MarkovRandomField:
        """The model with the nearest tables, and factors at their scales; shared tables stay shared."""
        if self.shared is not None:
            return self.model.replace(shared_tables=self.shared.nearest(z))
        return self.model.replace(log_pairwise=self.tables(z), log_factors=self.factors(z))

    def tables(self, z: FloatArray) -> FloatArray:
        """Flat nearest tables with ``R_e <= z[e]``; tables that meet their bound come back bit by bit."""
        z = z[: self.model.num_edges]
        if self.curvature:
            return self._ising_tables(z)
        result = self.log_pairwise.copy()
        for group in groups(self.model, self.dependency, z < self.rho):
            self.clock.check()
            stops = contrast_scale(self.dependency) * z[group.edges]
            result[group.positions] = _follow(self.model, self.log_pairwise, group, self.dependency, stops).tables
        return result

    def _ising_tables(self, z: FloatArray) -> FloatArray:
        """Flat nearest tables of two states each, some at a time."""
        result = self.log_pairwise.copy()
        tables = result.reshape(-1, 4)
        couplings = tables @ ISING_CONTRAST / 4.0
        for begin in range(0, len(z), ISING_TABLES_AT_ONCE):
            chunk = slice(begin, begin + ISING_TABLES_AT_ONCE)
            tables[chunk] = _nearest_ising(tables[chunk], couplings[chunk], self.rho[chunk], z[chunk])
        return result


def _nearest_ising(tables: FloatArray, couplings: FloatArray, rho: FloatArray, z: FloatArray) -> FloatArray:
    """Nearest tables (k, 4) of two states each, whose couplings have the absolute values ``rho``, with R at most z."""
    change = np.copysign(np.maximum(rho - z, 0.0), couplings)
    moved = tables - np.multiply.outer(change, ISING_CONTRAST)
    # A table that is nothing but its coupling is made from the new one: no digit is lost, however large it is.
    only_coupling = (tables == np.multiply.outer(couplings, ISING_CONTRAST)).all(axis=1)
    new_couplings = np.copysign(np.minimum(rho, z), couplings)
    remade = (only_coupling & (change != 0.0))[:, None]
    return np.where(remade, np.multiply.outer(new_couplings, ISING_CONTRAST), moved)


def edge_costs(
    model: MarkovRandomField,
    dependency: Bound,
    clock: Clock = NO_LIMIT,
    *,
    log_pairwise: FloatArray | None = None,
) -> EdgeCosts:
    """The cost functions of all edges and factors of a model under ``range`` or ``linf``, both directions bounded.

    ``log_pairwise`` are flat tables that take the place of the model's own. Tables of many states take seconds each: an
    OutOfTimeError is raised after half of the time that is left. The other half is for following the paths once more,
    to the bounds that a projection finds.
    """
    if model.shared_tables is not None and model.shared_tables.next_weights is None and log_pairwise is None:
        check_finite(model)
        return _shared_costs(model, model.shared_tables, dependency, clock)
    tables = model.log_pairwise if log_pairwise is None else log_pairwise
    check_finite(model, tables)
    binary = model.num_edges > 0 and (model.num_states[model.edges] == 2).all()
    if dependency == "range" and binary:
        costs = _quadratic_costs(model, tables)
    else:
        costs = _costs_from_paths(model, tables, dependency, clock)
    return _with_factors(costs) if model.num_factors else costs


def _shared_costs(model: MarkovRandomField, tables: SharedTables, dependency: Bound, clock: Clock) -> EdgeCosts:
    """The costs of tables that edges share, by one path for every pattern."""
    paths = follow_patterns(tables, dependency, clock.part(0.5))
    return EdgeCosts(
        model,
        np.zeros(0),
        dependency,
        paths.rho,
        paths.start,
        paths.mu,
        paths.z,
        paths.f,
        curvature=paths.curvature,
        clock=clock,
        shared=paths,
    )


def _quadratic_costs(model: MarkovRandomField, tables: FloatArray) -> EdgeCosts:
    """The costs ``4 (rho - z)^2`` of tables of two states under ``range``: every edge has knots at z = rho and 0."""
    m = model.num_edges
    rho = np.abs(tables.reshape(-1, 4) @ ISING_CONTRAST) / 4.0
    mu = np.zeros((m, 2))
    mu[:, 1] = 8.0 * rho
    z = np.zeros((m, 2))
    z[:, 0] = rho
    f = np.zeros((m, 2))
    f[:, 1] = 4.0 * rho**2
    return EdgeCosts(
        model, tables, "range", rho, 2 * np.arange(m + 1), mu.reshape(-1), z.reshape(-1), f.reshape(-1), curvature=4.0
    )


def _costs_from_paths(model: MarkovRandomField, tables: FloatArray, dependency: Bound, clock: Clock) -> EdgeCosts:
    """The costs of tables of any shape, by following the paths of their nearest tables down to z = 0."""
    owner, mu, z = _knots_of_paths(model, tables, dependency, clock.part(0.5))

    # Knots were found by groups of tables: sort them by edge.
    order = np.argsort(owner, kind="stable")
    mu = mu[order]
    z = z[order]
    num_knots = np.bincount(owner, minlength=model.num_edges)
    start = offsets_of(num_knots)
    first = start[:-1]

    # The slope is linear between knots, so the trapezium rule is exact.
    pieces = np.zeros(len(mu))
    pieces[1:] = 0.5 * (mu[1:] + mu[:-1]) * (z[:-1] - z[1:])
    pieces[first] = 0.0
    total = np.cumsum(pieces)
    f = total - np.repeat(total[first], num_knots)
    return EdgeCosts(model, tables, dependency, z[first], start, mu, z, f, clock=clock)


def _knots_of_paths(
    model: MarkovRandomField, tables: FloatArray, dependency: Bound, clock: Clock
) -> tuple[IntArray, FloatArray, FloatArray]:
    """The edge of every knot, its slope mu and its bound z; knots of one edge are in order."""
    scale = contrast_scale(dependency)
    owners = [np.zeros(0, dtype=np.int64)]
    slopes = [np.zeros(0)]
    bounds = [np.zeros(0)]
    for group in groups(model, dependency):
        clock.check()
        size = len(group.edges)
        if count_contrasts(*group.shape, dependency) == 0:  # a variable with one state depends on nothing
            owners.append(group.edges)
            slopes.append(np.zeros(size))
            bounds.append(np.zeros(size))
            continue
        paths = _follow(model, tables, group, dependency, np.zeros(size))
        # A path of one knot ends at 0, but for rounding.
        paths.knot_t[np.arange(size), paths.num_knots - 1] *= paths.num_knots == 1
        used = np.arange(paths.knot_t.shape[1]) < paths.num_knots[:, None]
        owners.append(np.repeat(group.edges, paths.num_knots))
        slopes.append(2.0 * scale * paths.knot_weight[used])
        bounds.append(paths.knot_t[used] / scale)
    return np.concatenate(owners), np.concatenate(slopes), np.concatenate(bounds)


def _with_factors(costs: EdgeCosts) -> EdgeCosts:
    """The costs of the edges, followed by the costs ``(1 - s)^2 ||F||^2`` of the scales of all factors."""
    from scipy.sparse import coo_array

    model = costs.model
    num_factors = model.num_factors
    squares = np.add.reduceat(model.log_factors**2, model.factor_offsets[:-1])
    parts = factor_dependencies(model, costs.dependency).max(axis=1)
    positions = model.structure.scope_pairs, of_pairs(model, np.arange(num_factors))
    added = coo_array((parts, positions), shape=(model.num_edges, num_factors)).tocsc()

    # Knots at s = 1 and s = 0; only the first for a factor of zeros, which has nothing to lose.
    num_knots = np.where(squares > 0.0, 2, 1)
    used = np.arange(2) < num_knots[:, None]
    zeros = np.zeros(num_factors)
    ones = np.ones(num_factors)

    def append(of_edges: FloatArray, at_one: FloatArray, at_zero: FloatArray) -> FloatArray:
        return np.concatenate([of_edges, np.stack([at_one, at_zero], axis=1)[used]])

    return replace(
        costs,
        start=np.concatenate([costs.start, costs.start[-1] + offsets_of(num_knots)[1:]]),
        mu=append(costs.mu, zeros, 2.0 * squares),
        z=append(costs.z, ones, zeros),
        f=append(costs.f, zeros, squares),
        curvature=0.0,
        added=added,
    )


def check_finite(model: MarkovRandomField, tables: FloatArray | None = None) -> None:
    """Refuse tables and factors that forbid states together, by name of the first edge or factor.

    ``tables`` are flat tables that take the place of the model's own.
    """
    if tables is None:
        if not model.tables_forbid and not (model.num_factors and model.log_factors.min() == -np.inf):
            return
        tables = model.log_pairwise
    hard_factor_entries = np.flatnonzero(model.log_factors == -np.inf)
    hard_table_entries = np.flatnonzero(tables == -np.inf)
    if hard_factor_entries.size:
        factor = int(np.searchsorted(model.factor_offsets, hard_factor_entries[0], side="right")) - 1
        scope = model.factor(factor)[0].tolist()
        names = tuple(scope) if model.variable_names is None else tuple(model.variable_names[v] for v in scope)
        what = f"factors, but that of variables {names} forbids some of their states"
    elif hard_table_entries.size:
        edge = int(np.searchsorted(model.pairwise_offsets, hard_table_entries[0], side="right")) - 1
        i, j = model.edges[edge].tolist()
        what = f"tables, but edge ({i}, {j}) forbids a pair of states"
    else:
        return
    raise UnfitMethodError(
        f"projection needs finite {what} (-inf): no finite change bounds its dependencies; soften it, or use exact "
        "inference or loopy belief propagation"
    )


class _TablePaths(NamedTuple):
    """Paths of some tables (g,): bounds t and sums of weights at the knots, numbers of knots, tables at the ends."""

    knot_t: FloatArray
    knot_weight: FloatArray
    num_knots: IntArray
    tables: FloatArray


def _follow(
    model: MarkovRandomField, tables: FloatArray, group: TableGroup, dependency: Bound, stops: FloatArray
) -> _TablePaths:
    """The paths of tables of one shape, down to the bounds ``stops`` on their contrasts.

    Rounding can make contrasts that are nearly tied enter and leave in turn for ever. The path is then followed for a
    table that differs by as little as breaks the ties: by at most 1e-7 of its largest entry, and as a rule by 1e-11.
    """
    position, sign = contrasts(*group.shape, dependency)
    none = np.empty((0, 0))
    values = tables[group.positions]
    num_tables, num_entries = values.shape
    shape = (num_tables, count_knots(num_entries, len(position)))
    paths = _TablePaths(np.empty(shape), np.empty(shape), np.empty(num_tables, dtype=np.int64), np.empty_like(values))
    table_paths(values, position, sign, stops, paths.knot_t, paths.knot_weight, paths.tables, paths.num_knots)
    for k in np.flatnonzero(paths.num_knots < 0).tolist():
        noise = np.random.default_rng(1).uniform(-1.0, 1.0, num_entries) * np.abs(values[k]).max()
        for share in RESTART_NOISE:
            moved = values[k] + share * noise
            paths.num_knots[k] = table_path(
                moved, position, sign, stops[k], paths.knot_t[k], paths.knot_weight[k], paths.tables[k], none
            )
            if paths.num_knots[k] >= 0:
                break
        else:
            i, j = model.edges[group.edges[k]].tolist()
            raise ResourceError(f"the path of the table of edge ({i}, {j}) could not be followed; use the paper's dual")
    return paths
