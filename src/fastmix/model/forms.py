"""Forms of a model: the same distribution in centered tables, in spins, or without large constants.

All conventions of sign and scale are here. A table T of two variables is written in one way as a constant, a function
of either variable and an *interaction*, each with mean zero over every index:

    T(a, b) = mean + by_row(a) + by_col(b) + interaction(a, b).

For two binary variables in spins s = 2 x - 1 the table is ``c + f s_i + g s_j + J s_i s_j``, with the coupling
``J = (T00 - T01 - T10 + T11) / 4``. Factors over three or more variables are in :mod:`fastmix.model.factor_forms`,
exchanges of states that make couplings attractive in :mod:`fastmix.model.attractive`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.model.flat import reduce_tables
from fastmix.model.mrf import MarkovRandomField
from fastmix.model.shared import SharedTables
from fastmix.model.tuning import FORM_TOLERANCE, GATHERED_TABLE_ENTRIES, OFFSET_SPREADS, UNSEEN_OFFSET

__all__ = [
    "CenteredTables", "IsingForm", "SpinTables", "center_pairs", "centered_tables", "contrast_basis", "couplings_of",
    "double_center", "fields_of", "interactions", "ising_form", "move_constants", "spin_tables", "take_offsets",
]  # fmt: skip

# -- constants out of tables ------------------------------------------------------------------------------------------

# A constant costs digits where others are added to its table: an entry of size c is known to c times 1e-16. What the
# entries differ by costs as much, whatever is done, so that a constant of a few times that is left alone, and so is
# one whose rounding nobody sees: ordinary models keep every bit.


def take_offsets(
    values: FloatArray, offsets: IntArray, *, unseen: float = UNSEEN_OFFSET, of_spread: float = OFFSET_SPREADS
) -> tuple[FloatArray, FloatArray]:
    """Tables without their large constants, and the constant of each table, 0 where it stays.

    The constant of a table is its largest entry. It is taken out where it is larger than ``unseen`` and than
    ``of_spread`` times what the finite entries differ by. All of these are then within a factor of two of each other,
    so that every difference is exact (Sterbenz 1974).

    Parameters
    ----------
    values : float array
        The tables one after another, with -inf for what is forbidden.
    offsets : int array (tables + 1,)
        Where they begin, and the end.
    unseen, of_spread : float
        See above; ``of_spread`` must be at least 2.

    Returns
    -------
    tuple of two float arrays
        As ``values``, which is the very array that was given where nothing is taken out; and (tables,).
    """
    none_taken = np.zeros(len(offsets) - 1)
    if not values.size:
        return values, none_taken
    lowest = float(values.min())
    if max(float(values.max()), -lowest) <= unseen:
        return values, none_taken
    largest = reduce_tables(np.maximum, values, offsets)
    least = reduce_tables(np.minimum, values, offsets)
    if lowest == -np.inf:
        least = reduce_tables(np.minimum, np.where(values > -np.inf, values, np.inf), offsets)
        possible = largest > -np.inf
        largest = np.where(possible, largest, 0.0)
        least = np.where(possible, least, 0.0)
    size = np.maximum(np.abs(largest), np.abs(least))
    is_taken = (size > unseen) & (size > of_spread * (largest - least))
    if not is_taken.any():
        return values, none_taken
    taken = np.where(is_taken, largest, 0.0)
    return values - np.repeat(taken, np.diff(offsets)), taken


def move_constants(
    model: MarkovRandomField, *, unseen: float = UNSEEN_OFFSET, of_spread: float = OFFSET_SPREADS
) -> MarkovRandomField:
    """An equal model with the large constants of unaries, edge tables and factors in ``log_constant``.

    Tables change by exact differences (:func:`take_offsets`), and the constants are added up exactly and rounded once,
    so that log Z changes by half a unit in the last place of ``log_constant`` at most. A model without large constants
    is returned as it is.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[1e9, 1e9 + 1.0], [0.0, 2.0]], [(0, 1)], [[[-1e9, -1e9], [-1e9, -1e9]]])
    >>> moved = move_constants(model)
    >>> moved.log_unary.tolist(), moved.log_pairwise.tolist(), moved.log_constant
    ([-1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], 1.0)
    """
    tables = model.tables
    found = [take_offsets(model.log_unary, model.unary_offsets, unseen=unseen, of_spread=of_spread)]
    if isinstance(tables, SharedTables):
        found.append(_take_shared_offsets(model, tables, unseen=unseen, of_spread=of_spread))
    else:
        found.append(take_offsets(tables, model.pairwise_offsets, unseen=unseen, of_spread=of_spread))
    found.append(take_offsets(model.log_factors, model.factor_offsets, unseen=unseen, of_spread=of_spread))
    before = [model.log_unary, tables, model.log_factors]
    unchanged = [values is old for (values, _), old in zip(found, before, strict=True)]
    if all(unchanged):
        return model
    constants = [model.log_constant]
    for _, taken in found:
        constants += taken[taken != 0.0].tolist()
    unary, pairwise, factors = [values for values, _ in found]
    return model._sibling(unary, pairwise, factors, math.fsum(constants))


def _take_shared_offsets(
    model: MarkovRandomField, tables: SharedTables, *, unseen: float, of_spread: float
) -> tuple[Any, FloatArray]:
    """Shared tables without their large constants, as :func:`take_offsets` gives them; in full where some are taken."""
    largest = tables.least_and_largest()[1]
    sizes = tables.largest_entries()
    spans = np.where(np.isfinite(largest), largest, 0.0) - tables.least_finite()
    if not ((sizes > unseen) & (sizes > of_spread * spans)).any():
        return tables, np.zeros(model.num_edges)
    return take_offsets(model.log_pairwise, model.pairwise_offsets, unseen=unseen, of_spread=of_spread)


# -- centered tables --------------------------------------------------------------------------------------------------


def contrast_basis(num_states: int) -> FloatArray:
    """Helmert's matrix Q (L, L - 1), whose columns are orthonormal and add up to 0.

    Examples
    --------
    >>> contrast_basis(2).round(4).tolist()
    [[-0.7071], [0.7071]]
    """
    basis = np.zeros((num_states, max(0, num_states - 1)))
    for k in range(1, num_states):
        basis[:k, k - 1] = -1.0
        basis[k, k - 1] = k
        basis[:, k - 1] /= np.sqrt(k * (k + 1.0))
    return basis


class CenteredTables(NamedTuple):
    """The parts of k tables of one shape; the axis of the tables comes last, where NumPy is fast."""

    interaction: FloatArray  #: (rows, columns, k), every row and column of mean zero
    by_row: FloatArray  #: (rows, k), of mean zero
    by_col: FloatArray  #: (columns, k), of mean zero
    mean: FloatArray  #: (k,)


def double_center(tables: FloatArray) -> CenteredTables:
    """The parts of tables (rows, columns, k): see :class:`CenteredTables`.

    The array that was given holds the interactions afterward.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        by_row = tables.mean(axis=1)
        by_col = tables.mean(axis=0)
        mean = by_row.mean(axis=0)
        by_row -= mean
        by_col -= mean
        tables -= by_row[:, None] + by_col + mean
    return CenteredTables(tables, by_row, by_col, mean)


def centered_tables(model: MarkovRandomField, unary: FloatArray) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
    """Interactions of all edge tables, chunk by chunk: edges (k,), interactions (rows, columns, k), means (k,).

    The parts of the tables that depend on one variable are added to ``unary``, an array like ``log_unary``, in place.
    """
    for rows, cols, members in model.structure.table_shapes:
        chunk = max(1, GATHERED_TABLE_ENTRIES // (rows * cols))
        for start in range(0, len(members), chunk):
            edges = members[start : start + chunk]
            tables = np.ascontiguousarray(model.edge_tables(edges, rows, cols).T)
            parts = double_center(tables.reshape(rows, cols, -1))
            for end, effect in ((0, parts.by_row), (1, parts.by_col)):
                if effect.any():  # often there is nothing to move
                    starts = model.unary_offsets[model.edges[edges, end]]
                    np.add.at(unary, np.arange(len(effect))[:, None] + starts, effect)
            yield edges, parts.interaction, parts.mean


def center_pairs(model: MarkovRandomField, *, means_only: bool = False) -> MarkovRandomField:
    """An equal model, up to rounding, in which unaries hold everything of the edge tables that they can hold.

    Every table is then its interaction. With ``means_only`` only the means of whole tables move, to the constant.
    Tables must be finite. A :class:`ModelError` is raised if sums are too large for unaries.

    Examples
    --------
    >>> model = MarkovRandomField.from_tables([[0.0, 0.0]] * 2, [(0, 1)], [[[1.0, 0.0], [0.0, 0.0]]])
    >>> centered = center_pairs(model)
    >>> centered.table(0, 1).tolist(), centered.unary(0).tolist(), centered.log_constant
    ([[0.25, -0.25], [-0.25, 0.25]], [0.25, -0.25], 0.25)
    """
    if model.shared_tables is not None:
        return _center_shared(model, model.shared_tables, means_only=means_only)
    if means_only:
        sizes = np.diff(model.pairwise_offsets)
        means = reduce_tables(np.add, model.log_pairwise, model.pairwise_offsets) / sizes
        return model.replace(
            log_pairwise=model.log_pairwise - np.repeat(means, sizes),
            log_constant=model.log_constant + float(means.sum()),
        )
    unary = model.log_unary.copy()
    pairwise = np.empty_like(model.log_pairwise)
    constant = model.log_constant
    for edges, tables, means in centered_tables(model, unary):
        places = np.arange(tables[:, :, 0].size)[:, None] + model.pairwise_offsets[edges]
        pairwise[places] = tables.reshape(len(places), -1)
        constant += float(means.sum())
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_constant=constant)


def _center_shared(model: MarkovRandomField, tables: SharedTables, *, means_only: bool) -> MarkovRandomField:
    """The model as :func:`center_pairs` gives it, whose patterns are centered instead of the table of every edge."""
    use = tables.use
    unary = model.log_unary.copy()
    patterns = np.empty_like(tables.patterns)
    constant = model.log_constant
    for k in range(use.num_patterns):
        matrix = tables.pattern(k)
        parts = double_center(matrix[:, :, None].copy())
        centered = matrix - parts.mean[0] if means_only else parts.interaction[:, :, 0]
        patterns[use.starts[k] : use.starts[k + 1]] = centered.reshape(-1)
        for edges, weights in tables.edges_with(k):
            constant += float(weights.sum() * parts.mean[0])
            if means_only:
                continue
            for axis, effect in ((0, parts.by_row[:, 0]), (1, parts.by_col[:, 0])):
                if effect.any():
                    end = np.where(use.turned[edges], 1 - axis, axis)
                    starts = model.unary_offsets[model.edges[edges, end]]
                    np.add.at(unary, starts[:, None] + np.arange(len(effect)), weights[:, None] * effect)
    shared = SharedTables(use, patterns + 0.0, tables.weights, tables.next_weights)
    return model.replace(log_unary=unary, shared_tables=shared, log_constant=constant)


def interactions(tables: FloatArray, num_rows: int, num_cols: int) -> FloatArray:
    """The interactions of flat tables (.., rows times columns): tables without the means of their rows and columns."""
    rest = tables
    for other, size in ((num_rows, num_cols), (num_cols, num_rows)):
        # Products with a matrix are faster here than sums of a few numbers each.
        rest = (rest.reshape(-1, size) @ (np.eye(size) - 1.0 / size)).reshape(-1, other, size).transpose(0, 2, 1)
    return rest.reshape(tables.shape)


# -- spins ------------------------------------------------------------------------------------------------------------


class SpinTables(NamedTuple):
    """Coefficients (k,) of k tables of binary variables: ``constant + first s_i + second s_j + coupling s_i s_j``."""

    coupling: FloatArray
    first: FloatArray
    second: FloatArray
    constant: FloatArray


def spin_tables(tables: FloatArray) -> SpinTables:
    """The coefficients in spins of tables (k, 2, 2), or (k, 4), of finite entries.

    Examples
    --------
    >>> parts = spin_tables(np.array([[[1.5, -0.5], [-1.5, 0.5]]]))
    >>> [float(part[0]) for part in parts]
    [1.0, -0.5, 0.0, 0.0]
    """
    t00, t01, t10, t11 = np.ascontiguousarray(0.25 * tables.reshape(-1, 4).T)
    return SpinTables(
        coupling=(t00 - t01) + (t11 - t10),
        first=(t10 - t00) + (t11 - t01),
        second=(t01 - t00) + (t11 - t10),
        constant=t00 + t01 + t10 + t11,
    )


@dataclass(frozen=True, eq=False)
class IsingForm:
    """``log_weight(x) = constant + sum_i field_i s_i + sum_ij coupling_ij s_i s_j`` with s = 2 x - 1.

    ``field`` is (n,), ``coupling`` (m,), aligned with ``model.edges``.
    """

    field: FloatArray
    coupling: FloatArray
    constant: float


def ising_form(model: MarkovRandomField) -> IsingForm | None:
    """The form of a model in spins, or None for a model with other state counts, a forbidden entry or a factor.

    The parts of the tables that depend on one spin join the fields. The distribution is the same, and so are the fixed
    points of belief propagation and mean field.
    """
    if not (model.num_states == 2).all() or model.has_forbidden or model.num_factors:
        return None
    unary = model.log_unary.reshape(-1, 2)
    parts = spin_tables(model.log_pairwise)
    field = 0.5 * (unary[:, 1] - unary[:, 0])
    if model.num_edges:
        first, second = model.edges.T
        field += np.bincount(first, parts.first, minlength=model.num_variables)
        field += np.bincount(second, parts.second, minlength=model.num_variables)
    constant = model.log_constant + float(0.5 * unary.sum() + parts.constant.sum())
    return IsingForm(field, parts.coupling, constant)


# -- couplings and fields ---------------------------------------------------------------------------------------------


def couplings_of(model: MarkovRandomField) -> FloatArray:
    """The coupling of every edge, as :meth:`fastmix.MarkovRandomField.couplings` says."""
    couplings = np.zeros(model.num_edges)
    excess = np.zeros(model.num_edges)  # the largest entry of the interaction without its coupling
    unary = np.zeros(len(model.log_unary))
    for edges, tables, _ in centered_tables(model, unary):
        rows, cols = tables.shape[:2]
        if rows == cols == 2:
            couplings[edges] = tables[0, 0]
            excess[edges] = 0.0 * tables[0, 0]  # NaN where entries are infinite
            continue
        if rows == cols > 1:  # of J [a = b] the interaction is J ([a = b] - 1 / K)
            couplings[edges] = np.trace(tables) / (rows - 1)
            tables -= (np.eye(rows) - 1.0 / rows)[:, :, None] * couplings[edges]
        excess[edges] = np.abs(tables).max(axis=(0, 1), initial=0.0)
    largest = math.inf if model.tables_forbid else float(model.sizes_of_tables().max(initial=0.0))
    allowed = FORM_TOLERANCE * max(1.0, largest)
    unfit = np.flatnonzero(~(excess <= allowed))
    if len(unfit):
        raise _no_coupling(model, int(unfit[0]))
    return couplings


def fields_of(model: MarkovRandomField) -> FloatArray:
    """The fields of all variables, as :meth:`fastmix.MarkovRandomField.fields` says."""
    if model.num_factors or model.has_forbidden:
        raise ModelError("fields() needs a model of pairs that forbids nothing")
    counts = np.unique(model.num_states)
    if len(counts) > 1:
        raise ModelError(f"fields() needs equal state counts, got {counts.min()} to {counts.max()}")
    form = ising_form(model)
    if form is not None:
        return form.field
    unary = model.log_unary.copy()
    for _ in centered_tables(model, unary):
        pass  # the parts that depend on one variable are added to the unaries on the way
    fields = unary.reshape(model.num_variables, -1)
    return np.asarray(fields - fields.mean(axis=1, keepdims=True))


def _no_coupling(model: MarkovRandomField, edge: int) -> ModelError:
    """The error for an edge whose table is neither one of two spins nor one of two Potts variables."""
    names = model.names_of_variables()
    first, second = model.edges[edge].tolist()
    return ModelError(
        "couplings() needs tables of two binary variables, or J on the diagonal plus a function of either variable, "
        f"but the table of edge ({names[first]}, {names[second]}) is neither; use table(i, j)"
    )
