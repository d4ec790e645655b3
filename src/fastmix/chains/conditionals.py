"""Whether updates of single variables are defined on a model, and lead everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.theory.dependency import undefined_conditional

__all__ = ["check_conditionals"]


def check_conditionals(model: MarkovRandomField) -> None:
    """Refuse a model on which updates of single variables are undefined, or provably cannot reach everything.

    Undefined: some states of the neighbors forbid every state of a variable, reached or not, see
    :func:`fastmix.theory.dependency.undefined_conditional`. Out of reach: the allowed pairs of an edge fall into groups
    without a common row or column, so that no single update leads from one to another, or those of a factor over more
    variables into groups that differ in two variables or more. Groups that only several terms together keep apart are
    not found. Factors may forbid all states of a variable beside states of the others that they forbid anyway.
    """
    if not model.has_forbidden:
        return
    _check_groups(model)
    if model.num_factors:
        pairs = model.num_states, model.log_unary, model.edges, model.log_pairwise
        model = MarkovRandomField(*pairs, variable_names=model.variable_names)
    if (undefined := undefined_conditional(model)) is not None:
        raise UnfitMethodError(
            f"Gibbs sampling is undefined: {undefined[1]}; use exact inference or loopy belief propagation"
        )


def _check_groups(model: MarkovRandomField) -> None:
    """Refuse edges and factors whose allowed entries fall into groups."""
    counts: dict[tuple[bytes, tuple[int, ...]], int] = {}  # many edges share a table
    names: Sequence[object] = range(model.num_variables) if model.variable_names is None else model.variable_names
    for scope, allowed in _hard_tables(model):
        key = (allowed.tobytes(), allowed.shape)
        if key not in counts:
            counts[key] = _num_groups(allowed)
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
    """Scopes of edges and factors that forbid something, and what they allow; those of factors with all their pairs."""
    hard = np.flatnonzero(np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf)
    for e in hard.tolist():
        allowed = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] > -np.inf
        yield model.edges[e].tolist(), allowed.reshape(model.num_states[model.edges[e]])
    for scope, table in model.factors:
        allowed = table > -np.inf
        for (a, i), (b, j) in combinations(enumerate(scope.tolist()), 2):
            shape = [s if axis in (a, b) else 1 for axis, s in enumerate(table.shape)]
            allowed = allowed & (model.table(i, j) > -np.inf).reshape(shape)
        if not allowed.all():
            yield scope.tolist(), allowed


def _num_groups(allowed: NDArray[np.bool_]) -> int:
    """Groups of allowed entries that changes of single coordinates lead through."""
    # The smallest number of a group spreads along the axes until nothing changes.
    label = np.where(allowed, np.arange(allowed.size).reshape(allowed.shape), allowed.size)
    while True:
        spread = label
        for axis in range(allowed.ndim):
            least = spread.min(axis=axis, keepdims=True)
            spread = np.where(allowed, np.minimum(spread, least), allowed.size)
        if np.array_equal(spread, label):
            return len(np.unique(label[allowed]))
        label = spread
