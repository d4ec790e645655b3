"""Dobrushin's comparison theorem: how far the marginals of two models on one graph can be apart.

It turns intervals for the marginals of a projected model into intervals for the model before its projection. (Tables of
several methods on one model are made by ``inference/compare.py``.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import check_choice
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.graphs import connected_components
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.factor_forms import center_factors
from fastmix.model.flat import table_positions
from fastmix.theory import norms
from fastmix.theory.bias import safe_matrix
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.dependency import DEPENDENCIES, Dependency, largest_entries
from fastmix.theory.intervals import Intervals, finish_intervals
from fastmix.theory.table_groups import table_groups
from fastmix.theory.tuning import (
    MAX_COMPARISON_STEPS,
    MAX_COMPARISON_VISITS,
    MIN_COMPARISON_STEPS,
    SETTLED_CHANGE,
)

__all__ = ["ComparisonBounds", "comparison_bounds", "original_intervals"]

_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class ComparisonBounds:
    """Bounds on the distances of the marginals of two models, with advice in words."""

    bounds: FloatArray  # (n,) bounds on the total variation distance of the two marginals of every variable, at most 1
    conditional_bounds: FloatArray  # (n,) the b of the theorem: bounds on the distance of the two conditionals
    vacuous: BoolArray  # (n,) true where the bound is 1 and says nothing
    advice: str  # the finding in words, or the reason why nothing was found


def comparison_bounds(
    projected: MarkovRandomField, original: MarkovRandomField, *, dependency: Dependency = "sigmoid"
) -> ComparisonBounds:
    """Bounds on the distance of the marginals of two models on the same graph (Dobrushin's comparison).

    The theorem: let R bound the dependencies of the projected model, and let ``b_j`` bound the total variation distance
    of the two conditionals of x_j under the same neighbors. Run Gibbs sampling of both models, each in equilibrium,
    coupled as well as possible, and let ``d_i`` bound the probability that they differ at i. An update of i turns it
    into at most ``min(1, b_i + sum_j R_ij d_j)``, so that from ``d = 1`` every step of this iteration bounds the
    distance of the marginals. If the spectral radius of R is below 1, its limit is at most ``(I - R)^-1 b`` [1]_.

    With ``range(v) = max v - min v``, u and T the differences of the unaries and of the tables, ``b_j =
    tanh((range(u_j) + sum_k max_a range(T_jk[:, a])) / 4)``; factors over three or more variables count as the tables
    do, as they are or with their parts of low order moved (:mod:`fastmix.model.factor_forms`), whichever is less.

    A pair of states that is forbidden (-inf) in both models does not count; one that is forbidden in one of them only
    gives ``b = 1`` at both its ends. Without forbidden pairs, models with equal conditionals are equal, also where R
    is large: the bound is 0 for connected parts of the graph with b = 0.

    Parameters
    ----------
    projected, original : MarkovRandomField
        Models with the same state counts, edges and scopes.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Bound on R, see :func:`fastmix.theory.dependency.edge_dependencies`.

    Returns
    -------
    ComparisonBounds
        Rounded upwards. Where the radius is not below 1, the iteration can still leave bounds below 1 in weakly coupled
        parts.

    Raises
    ------
    ModelError
        If the models have different state counts, edges or scopes.
    ValueError
        If the dependency is unknown.
    ResourceError
        If there is not enough memory, or ``dependency="exact"`` is too large to enumerate.

    Notes ----- Time is that of about ``20 / (1 - radius)`` products with R: half a second for 100,000 variables and a
    radius of 0.9.

    Examples
    --------
    >>> strong, weak = (MarkovRandomField.ising([(0, 1)], coupling=c, field=0.1) for c in (0.5, 0.4))
    >>> comparison_bounds(weak, strong).bounds.round(2).tolist()
    [0.08, 0.08]

    References
    ----------
    .. [1] H. Föllmer, "A covariance estimate for Gibbs measures", Journal of Functional Analysis 46, 1982; H.-O.
       Georgii, "Gibbs measures and phase transitions", 1988, Theorem 8.20.
    """
    check_choice("dependency", dependency, DEPENDENCIES)
    check_model(projected, "projected")
    check_model(original, "original")
    if not np.array_equal(projected.num_states, original.num_states):
        raise ModelError(f"original must have the state counts of projected, got {original!r} and {projected!r}")
    same = np.array_equal(projected.edges, original.edges) and all(
        np.array_equal(getattr(projected, name), getattr(original, name))
        for name in ("scope_starts", "scope_variables")
    )
    if not same:
        raise ModelError(f"original must have the edges and scopes of projected, got {original!r} and {projected!r}")
    required = (
        40.0 * projected.num_variables + 200.0 * projected.num_edges + 24.0 * float(projected.pairwise_offsets[-1])
    )
    check_memory(required, "the comparison of the two models", "compare smaller ones")
    b = _conditional_distances(projected, original)
    matrix = safe_matrix(projected, dependency)
    # No dependency is above 1. The factor is the one by which safe_matrix enlarges entries for the sums of products.
    terms = int(np.diff(matrix.indptr).max(initial=0))
    np.minimum(matrix.data, 1.0 + (terms + 8) * _EPS, out=matrix.data)
    equal = _equal_parts(projected, b)
    bounds = _fixed_point(matrix, b, equal)
    vacuous = bounds >= 1.0
    for array in (bounds, b, vacuous):
        array.setflags(write=False)
    advice = _advice(matrix, bounds, vacuous, dependency)
    if vacuous.any():
        undefined = undefined_conditional(projected)
        if undefined is not None:
            advice = f"Nothing is known: in the projected model {undefined[1]}."
    return ComparisonBounds(bounds, b, vacuous, advice)


def original_intervals(original: MarkovRandomField, intervals: Intervals, comparison: ComparisonBounds) -> Intervals:
    """Intervals for the marginals of the original model, from those of its projection.

    The marginals of the two models are at most ``comparison.bounds`` apart, so the intervals become wider by this
    much on both sides, at the same confidence.
    """
    shift = np.repeat(comparison.bounds, original.num_states) * (1.0 + 2.0 * _EPS)
    lower = np.where(shift < 1.0, intervals.lower - shift - _EPS, 0.0)
    upper = np.where(shift < 1.0, intervals.upper + shift + _EPS, 1.0)
    return finish_intervals(original, lower, upper, intervals.confidence, intervals.simultaneous)


def _conditional_distances(projected: MarkovRandomField, original: MarkovRandomField) -> FloatArray:
    """The vector b (n,) of bounds on the distances of the conditionals, rounded up."""
    n = projected.num_variables
    if not n:
        return np.zeros(0)
    total = _total_ranges(projected, original)
    factors = projected.log_factors, original.log_factors
    if not np.array_equal(*factors) and all(np.isfinite(values).all() for values in factors):
        # Parts of low order may have moved between the terms. Every mean of a factor is off by a few eps of its
        # entries, and every table that takes one in by one eps more.
        moved = _total_ranges(center_factors(projected), center_factors(original))
        size = projected.structure.max_scope
        entries = int(np.diff(projected.factor_offsets).max())
        scale = largest_entries(projected) + largest_entries(original)
        moved += 4.0 * _EPS * (size**2 + 2) * (math.log2(entries) + 8.0) * scale
        total = np.minimum(total, moved)
    # There are as many roundings as terms, and a few more in tanh and the products.
    terms = projected.adjacency.degree + np.bincount(projected.structure.scope_variables, minlength=n)
    total *= 1.0 + (terms + 8) * _EPS
    return np.minimum(np.tanh(total / 4.0) * (1.0 + 8.0 * _EPS), 1.0)


def _total_ranges(projected: MarkovRandomField, original: MarkovRandomField) -> FloatArray:
    """For every variable (n,) the sum, over its terms, of the largest range over its states of their difference.

    1. Unaries, variables of equal state counts together.
    2. Tables of edges, those of equal shape together.
    3. Factors over three or more variables, those of equal shape together.
    """
    n = projected.num_variables
    starts = projected.unary_offsets[:-1]
    models = (_forbid_in_tables(projected), _forbid_in_tables(original))
    with np.errstate(invalid="ignore", over="ignore"):
        # 1. Unaries.
        total = np.empty(n)
        for count in np.unique(projected.num_states).tolist():
            which = np.flatnonzero(projected.num_states == count)
            places = starts[which] + np.arange(count)[:, None, None]
            total[which] = _ranges_of_tables(projected.log_unary[places], original.log_unary[places], 0)
        # 2. Edges.
        ranges = np.empty((projected.num_edges, 2))
        for (places, left), (_, right) in zip(*map(table_groups, models), strict=True):
            ranges[places] = np.stack([_ranges_of_tables(left, right, axis) for axis in (0, 1)], axis=1)
        for end in (0, 1):
            total += np.bincount(projected.edges[:, end], ranges[:, end], minlength=n)
        # 3. Factors.
        for group in projected.structure.factor_groups():
            left, right = (model.log_factors[group.places] for model in models)
            for axis, variables in enumerate(group.scopes.T):
                shape = (left.shape[axis + 1], -1, len(left))
                one, other = (np.moveaxis(table, (axis + 1, 0), (0, -1)).reshape(shape) for table in (left, right))
                np.add.at(total, variables, _ranges_of_tables(one, other, 0))
    return total


def _forbid_in_tables(model: MarkovRandomField) -> MarkovRandomField:
    """The model with -inf also in its tables for states that a unary forbids."""
    forbidden = model.log_unary == -np.inf
    if not forbidden.any() or not model.num_edges:
        return model
    owner, row, col = table_positions(model.num_states, model.edges)
    i, j = model.edges[owner].T
    closed = forbidden[model.unary_offsets[i] + row] | forbidden[model.unary_offsets[j] + col]
    factors = model.log_factors.copy()
    for group in model.structure.factor_groups():
        tables = factors[group.places]
        for axis, variables in enumerate(group.scopes.T):
            rows = np.moveaxis(tables, axis + 1, 1)
            rows[forbidden[model.unary_offsets[variables][:, None] + np.arange(rows.shape[1])]] = -np.inf
        factors[group.places] = tables
    return model.replace(log_pairwise=np.where(closed, -np.inf, model.log_pairwise), log_factors=factors)


def _ranges_of_tables(left: FloatArray, right: FloatArray, axis: int) -> FloatArray:
    """The largest range (k,) along an axis of the difference of tables (rows, cols, k); inf where their -inf differ."""
    left_finite = left > -np.inf
    right_finite = right > -np.inf
    difference = left - right
    both = left_finite & right_finite
    high = difference.max(axis, initial=-np.inf, where=both)
    low = difference.min(axis, initial=np.inf, where=both)
    # A difference of two numbers is off by eps/2 of itself, and so is the difference of two of these.
    size = (high - low) + 2.0 * _EPS * (np.abs(high) + np.abs(low))
    size[np.isnan(size)] = np.inf  # beyond the largest number
    result = np.where(high == -np.inf, 0.0, size).max(axis=0)  # no state was left
    result[(left_finite != right_finite).any(axis=(0, 1))] = np.inf
    return result


def _equal_parts(model: MarkovRandomField, b: FloatArray) -> BoolArray:
    """A mask (n,) of the connected parts of the graph where b = 0 and no table forbids a pair of allowed states."""
    n = model.num_variables
    differs = b > 0.0
    if differs.all():
        return np.zeros(n, dtype=bool)
    if model.tables_forbid:
        hard = model.least_of_tables() == -np.inf
        differs[model.edges[hard].ravel()] = True
    if model.has_forbidden:
        for scope, table in model.factors:
            differs[scope] |= bool(table.min() == -np.inf)
    count, part = connected_components(n, model.edges)
    touched = np.zeros(count, dtype=bool)
    touched[part[differs]] = True
    return ~touched[part]


def _fixed_point(matrix: Any, b: FloatArray, equal: BoolArray) -> FloatArray:
    """An upper bound on the largest fixed point of ``d = min(1, b + R d)``; it is 0 in ``equal`` parts."""
    bounds = np.where(equal, 0.0, 1.0)
    affordable = MAX_COMPARISON_VISITS / (matrix.nnz + len(b) + 1)
    for _ in range(int(np.clip(affordable, MIN_COMPARISON_STEPS, MAX_COMPARISON_STEPS))):
        before = bounds
        bounds = np.minimum(before, (b + matrix @ before) * (1.0 + 2.0 * _EPS))
        if (bounds >= (1.0 - SETTLED_CHANGE) * before).all():
            break
    return bounds


def _advice(matrix: Any, bounds: FloatArray, vacuous: BoolArray, dependency: str) -> str:
    """The finding in words: how far the marginals can be apart, or why nothing is known."""
    if not vacuous.any():
        return (
            f"The marginals of the two models are at most {bounds.max(initial=0.0):.3g} apart in total variation, "
            f"{bounds.mean() if len(bounds) else 0.0:.3g} on average over the variables."
        )
    what = "every variable" if vacuous.all() else f"{int(vacuous.sum())} of {len(vacuous)} variables"
    return (
        f"Nothing is known about {what}: the conditionals of the two models differ too much for the dependencies of "
        f"the projected one (bound {dependency!r}, inf norm {norms.matrix_norm(matrix, 'inf'):.4g}; 1 is too much)."
    )
