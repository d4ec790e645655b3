"""Whether updates of single variables are defined on a model, and lead everywhere."""

from __future__ import annotations

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
        _check_factors(model)
        model = MarkovRandomField(model.num_states, model.log_unary, model.edges, model.log_pairwise)
    if (undefined := undefined_conditional(model)) is not None:
        raise UnfitMethodError(
            f"Gibbs sampling is undefined: {undefined[1]}; use exact inference or loopy belief propagation"
        )


def _check_groups(model: MarkovRandomField) -> None:
    hard = np.flatnonzero(np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf)
    counts: dict[tuple[bytes, int], int] = {}  # many edges share a table
    for e in hard.tolist():
        i, j = model.edges[e].tolist()
        allowed = model.log_pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] > -np.inf
        key = (allowed.tobytes(), int(model.num_states[j]))
        if key not in counts:
            counts[key] = _num_groups(allowed.reshape(model.num_states[i], model.num_states[j]))
        if counts[key] > 1:
            names = model.variable_names
            edge = f"({i}, {j})" if names is None else f"({names[i]!r}, {names[j]!r})"
            raise UnfitMethodError(
                f"Gibbs sampling cannot reach every configuration: the forbidden pairs of edge {edge} split its states "
                f"into {counts[key]} groups, and an update of one variable never leads from one to another; use exact "
                "inference or loopy belief propagation"
            )


def _check_factors(model: MarkovRandomField) -> None:
    """The same for factors, with the pairs of their scopes that are forbidden."""
    counts: dict[tuple[bytes, tuple[int, ...]], int] = {}
    for scope, table in model.factors:
        allowed = table > -np.inf
        for (a, i), (b, j) in combinations(enumerate(scope.tolist()), 2):
            shape = [s if axis in (a, b) else 1 for axis, s in enumerate(table.shape)]
            allowed = allowed & (model.table(i, j) > -np.inf).reshape(shape)
        if allowed.all():
            continue
        key = (allowed.tobytes(), allowed.shape)
        if key not in counts:
            counts[key] = _num_cells(allowed)
        if counts[key] > 1:
            names = model.variable_names
            which = ", ".join(str(v) if names is None else repr(names[v]) for v in scope.tolist())
            raise UnfitMethodError(
                f"Gibbs sampling cannot reach every configuration: what the factor over ({which}) forbids splits its "
                f"states into {counts[key]} groups, and an update of one variable never leads from one to another; use "
                "exact inference or loopy belief propagation"
            )


def _num_cells(allowed: NDArray[np.bool_]) -> int:
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


def _num_groups(allowed: NDArray[np.bool_]) -> int:
    """Groups of allowed pairs that share rows or columns, directly or through others."""
    rows = np.flatnonzero(allowed.any(axis=1)).tolist()
    groups = 0
    while rows:
        groups += 1
        reached = allowed[rows[0]]
        while True:
            grown = allowed[(allowed & reached).any(axis=1)].any(axis=0)
            if np.array_equal(grown, reached):
                break
            reached = grown
        rows = [r for r in rows if not (allowed[r] & reached).any()]
    return groups
