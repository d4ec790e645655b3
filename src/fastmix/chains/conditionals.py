"""Checks that updates of single variables are defined on a model, and can reach every configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._loops import run_loop
from fastmix.chains.tuning import MAX_PYTHON_ENTRIES
from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.theory.conditionals import undefined_conditional

__all__ = ["check_conditionals"]


def check_conditionals(model: MarkovRandomField) -> None:
    """Refuse a model on which updates of single variables are undefined, or provably cannot reach everything.

    Undefined: some states of the neighbors forbid every state of a variable, reached or not, see
    :func:`fastmix.theory.conditionals.undefined_conditional`. Out of reach: the allowed pairs of an edge fall into
    groups without a common row or column, so that no single update leads from one to another, or those of a factor over
    more variables into groups that differ in two variables or more. Groups that only several terms together keep apart
    are not found. Factors may forbid all states of a variable beside states of the others that they forbid anyway.
    """
    if not model.has_forbidden:
        return
    _check_groups(model)
    if model.num_factors:
        model = MarkovRandomField(
            model.num_states, model.log_unary, model.edges, model.log_pairwise, variable_names=model.variable_names
        )
    undefined = undefined_conditional(model)
    if undefined is not None:
        raise UnfitMethodError(
            f"Gibbs sampling is undefined: {undefined[1]}; use exact inference or loopy belief propagation"
        )


def _check_groups(model: MarkovRandomField) -> None:
    """Refuse edges and factors whose allowed entries fall into groups."""
    counts: dict[tuple[bytes, tuple[int, ...]], int] = {}  # many edges share a table
    names: Sequence[object] = model.variable_names or range(model.num_variables)
    num_entries = 0  # of the tables so far
    for scope, allowed in _hard_tables(model):
        key = (allowed.tobytes(), allowed.shape)
        if key not in counts:
            num_entries += allowed.size
            counts[key] = _num_groups(allowed, compiled=num_entries > MAX_PYTHON_ENTRIES)
        if counts[key] > 1:
            where = f"({', '.join(repr(names[v]) for v in scope)})"
            what = f"the forbidden pairs of edge {where} split"
            if len(scope) > 2:
                what = f"what the factor over {where} forbids splits"
            raise UnfitMethodError(
                f"Gibbs sampling cannot reach every configuration: {what} its states into {counts[key]} "
                "groups, and an update of one variable never leads from one to another; use exact inference or loopy "
                "belief propagation"
            )


def _hard_tables(model: MarkovRandomField) -> Iterator[tuple[list[int], NDArray[np.bool_]]]:
    """Scopes and allowed entries of the edges and factors that forbid something.

    An entry of a factor is allowed if the factor and the edges between its variables allow it.
    """
    hard = np.flatnonzero(np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf)
    for e in hard.tolist():
        allowed = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] > -np.inf
        yield model.edges[e].tolist(), allowed.reshape(model.num_states[model.edges[e]])
    for scope, table in model.factors:
        allowed = table > -np.inf
        for (a, i), (b, j) in combinations(enumerate(scope.tolist()), 2):
            pairs = model.table(i, j) > -np.inf
            if not pairs.all():
                shape = [s if axis in (a, b) else 1 for axis, s in enumerate(table.shape)]
                allowed = allowed & pairs.reshape(shape)
        if not allowed.all():
            yield scope.tolist(), allowed


def _num_groups(allowed: NDArray[np.bool_], *, compiled: bool = False) -> int:
    """The number of groups of allowed entries: changes of single coordinates lead through a group, never out of it."""
    axes = np.array(allowed.shape, dtype=np.int64)
    flat = np.ascontiguousarray(allowed).reshape(-1).astype(np.int64)
    parent = np.arange(allowed.size)
    return int(run_loop(_join_lines, (flat, axes), (parent,), compiled=compiled))


def _join_lines(allowed: Any, axes: Any, parent: Any) -> int:
    """The number of groups of allowed entries (size,) of a table, where any two on a line along an axis are joined.

    ``parent`` (size,), of every entry itself to begin with, is the forest of a union-find with path halving.
    """
    size = len(allowed)
    num_groups = 0
    for place in range(size):
        num_groups += allowed[place]
    stride = size
    for length in axes:
        block = stride
        stride //= length
        for first in range(0, size, block):
            for offset in range(stride):
                leader = -1
                for state in range(length):
                    place = first + offset + state * stride
                    if not allowed[place]:
                        continue
                    while parent[place] != place:
                        parent[place] = parent[parent[place]]
                        place = parent[place]
                    if leader == -1:
                        leader = place
                    elif place != leader:
                        parent[place] = leader
                        num_groups -= 1
    return num_groups
