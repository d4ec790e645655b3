"""Whether updates of single variables are defined on a model, and lead everywhere."""

from __future__ import annotations

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
    without a common row or column, so that no single update leads from one to another. Groups that only several edges
    together keep apart are not found.

    Raises
    ------
    UnfitMethodError
        With the edge that keeps groups apart, or the variable whose conditional distribution is undefined.
    """
    if not model.has_forbidden:
        return
    _check_groups(model)
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
