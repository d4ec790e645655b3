"""Tables whose messages take as many steps as there are states: Potts tables, and truncated linear ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix.model.mrf import MarkovRandomField
from fastmix.model.shared import SharedTables, TableUse
from fastmix.model.tuning import GATHERED_TABLE_ENTRIES

__all__ = ["ANY", "LINEAR", "POTTS", "EdgeForms", "edge_forms", "tables_as_patterns"]

#: The kind of tables of no special form.
ANY = 0
#: Tables with one number on the diagonal and another one off it.
POTTS = 1
#: Tables that are linear in the distance of two states, up to some distance.
LINEAR = 2

# Entries that differ by this much, relative to the largest of the table, are equal up to rounding.
_SLACK = 4.0 * float(np.finfo(np.float64).eps)


class EdgeForms(NamedTuple):
    """What kind of table every edge has, (m,) each.

    With ``level`` taken out, the entry of states s and t is ``step * (s == t)`` where the kind is ``POTTS``, and
    ``step * min(|s - t|, reach)`` where it is ``LINEAR``; all three numbers are 0 where it is ``ANY``.
    """

    kind: NDArray[np.uint8]
    level: FloatArray
    step: FloatArray
    reach: FloatArray


def tables_as_patterns(model: MarkovRandomField) -> SharedTables:
    """The tables of a model as patterns with weights: those that it shares, or each as a pattern of its own."""
    if model.shared_tables is not None:
        return model.shared_tables
    ends = model.num_states[model.edges].reshape(-1, 2)
    numbers = np.arange(model.num_edges, dtype=np.int32)
    use = TableUse(ends, numbers, np.zeros(model.num_edges, dtype=bool))
    return SharedTables(use, model.log_pairwise, np.ones(model.num_edges))


def edge_forms(tables: SharedTables) -> EdgeForms:
    """The kinds of tables of all edges; where a table lies between two patterns, both must be of one kind."""
    kind, level, step, reach = _forms_of_patterns(tables)
    of_edge = tables.use.of_edge
    weights = tables.weights
    own = EdgeForms(kind[of_edge], weights * level[of_edge], weights * step[of_edge], reach[of_edge])
    if tables.next_weights is None:
        return own
    following = np.minimum(of_edge + 1, len(kind) - 1)
    alike = (own.kind == kind[following]) & (own.reach == reach[following])
    fits = alike | (tables.next_weights == 0.0)
    others = np.where(alike, tables.next_weights, 0.0)
    return EdgeForms(
        np.where(fits, own.kind, ANY).astype(np.uint8),
        np.where(fits, own.level + others * level[following], 0.0),
        np.where(fits, own.step + others * step[following], 0.0),
        np.where(fits, own.reach, 0.0),
    )


def _forms_of_patterns(tables: SharedTables) -> EdgeForms:
    """The kind of every pattern, (p,) each, and its numbers."""
    shapes = tables.use.shapes
    starts = tables.use.starts
    count = len(shapes)
    found = EdgeForms(np.full(count, ANY, dtype=np.uint8), np.zeros(count), np.zeros(count), np.zeros(count))
    for side in np.unique(shapes[shapes[:, 0] == shapes[:, 1], 0]).tolist():
        if side < 2:
            continue
        members = np.flatnonzero((shapes == side).all(axis=1))
        chunk = max(1, GATHERED_TABLE_ENTRIES // side**2)
        for begin in range(0, len(members), chunk):
            some = members[begin : begin + chunk]
            places = starts[some][:, None] + np.arange(side**2)
            _note_forms(found, some, tables.patterns[places].reshape(-1, side, side))
    return found


def _note_forms(found: EdgeForms, numbers: NDArray[np.int64], patterns: FloatArray) -> None:
    """Write the kinds of some square patterns (k, side, side) with these numbers."""
    finite = patterns.min(axis=(1, 2)) > -np.inf
    numbers = numbers[finite]
    patterns = patterns[finite]
    side = patterns.shape[1]
    slack = _SLACK * np.abs(patterns).max(axis=(1, 2), initial=0.0)
    distance = np.abs(np.subtract.outer(np.arange(side), np.arange(side)))
    # Potts: the number off the diagonal is the level.
    level = patterns[:, 0, 1]
    step = patterns[:, 0, 0] - level
    _keep(found, POTTS, numbers, patterns, slack, (level, step, np.zeros(len(numbers))), distance == 0)
    # Linear: two neighboring states tell the slope, the two farthest where it ends.
    level = patterns[:, 0, 0]
    step = patterns[:, 0, 1] - level
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = np.where(step == 0.0, 0.0, (patterns[:, 0, -1] - level) / step)
    _keep(found, LINEAR, numbers, patterns, slack, (level, step, reach), distance)


def _keep(
    found: EdgeForms,
    kind: int,
    numbers: NDArray[np.int64],
    patterns: FloatArray,
    slack: FloatArray,
    form: tuple[FloatArray, FloatArray, FloatArray],
    distance: NDArray[np.generic],
) -> None:
    """Note a kind, with level, step and reach, for those patterns that this form gives up to rounding."""
    level, step, reach = form
    sizes = np.broadcast_to(distance, patterns.shape).astype(np.float64)
    if kind == LINEAR:
        sizes = np.minimum(sizes, np.maximum(reach, 0.0)[:, None, None])
    values = level[:, None, None] + step[:, None, None] * sizes
    fits = (np.abs(values - patterns) <= slack[:, None, None]).all(axis=(1, 2)) & (found.kind[numbers] == ANY)
    members = numbers[fits]
    found.kind[members] = kind
    found.level[members] = level[fits]
    found.step[members] = step[fits]
    found.reach[members] = reach[fits]
