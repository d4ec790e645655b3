"""Conditional distributions of variables, enumerated over the states of their neighbors.

They give the dependencies by their definition, and tell where a conditional distribution is undefined because some
states of the neighbors forbid every state of a variable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.errors import ResourceError
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.theory.table_groups import table_groups
from fastmix.theory.tuning import (
    CHUNK_ENTRIES,
    MAX_COMPARISONS,
    MAX_EVALUATIONS,
    MAX_FORBIDDEN_SETS,
    MAX_JOINT_STATES,
)

__all__ = ["exact_dependencies", "undefined_conditional"]


# -- dependencies by their definition (Definition 3 of Liu and Domke, in the form of Lemma 9) ----------------------


def exact_dependencies(model: MarkovRandomField, clock: Clock) -> FloatArray:
    """R by its definition, (m, 2) in both directions of the edges, for a model without states that a unary forbids.

    Raises
    ------
    ResourceError
        If there are too many conditional distributions to enumerate.
    OutOfTimeError
        If the time on the clock is over before the end.
    """
    graph = model.adjacency
    result = np.zeros((model.num_edges, 2))
    _check_size(model)
    for i in np.flatnonzero(graph.degree).tolist():
        clock.check()
        edges = graph.edge_ids[graph.indptr[i] : graph.indptr[i + 1]]
        gaps = dict(zip(*_largest_gaps(*_joint_logits(model, i)), strict=True))
        around = graph.neighbors_of(i).tolist()
        result[edges, [int(i > j) for j in around]] = [gaps.get(j, 0.0) for j in around]
    return result


def _check_size(model: MarkovRandomField) -> None:
    """Refuse a model whose conditional distributions are too many to enumerate."""
    graph = model.adjacency
    counts = model.num_states
    n = model.num_variables
    owner = np.repeat(np.arange(n), graph.degree)
    with np.errstate(over="ignore"):
        evaluations = np.exp(np.bincount(owner, np.log(counts[graph.neighbors]), minlength=n)) * (graph.degree > 0)
        comparisons = evaluations * counts * np.bincount(owner, counts[graph.neighbors], minlength=n)
    if evaluations.sum() > MAX_EVALUATIONS or comparisons.sum() > MAX_COMPARISONS:
        raise ResourceError(
            f"dependency='exact' would enumerate {evaluations.sum():.3g} conditional distributions (variable "
            f"{evaluations.argmax()} takes most; the largest degree is {graph.max_degree}), more than the limit of "
            f"{MAX_EVALUATIONS:.3g} of them or {MAX_COMPARISONS:.3g} comparisons of their entries; "
            "dependency='sigmoid' enumerates nothing"
        )


def _terms_around(model: MarkovRandomField, i: int) -> Iterator[tuple[list[int], FloatArray]]:
    """For every pair and factor of a variable its other variables, ascending, and its table (own states, ..)."""
    graph = model.adjacency
    incident = model.structure.incident
    for p in range(graph.indptr[i], graph.indptr[i + 1]):
        j = int(graph.neighbors[p])
        table = model.table_of_edge(int(graph.edge_ids[p]))
        yield [j], table if i < j else table.T
    for k in incident.factors[incident.indptr[i] : incident.indptr[i + 1]].tolist():
        scope, table = model.factor(k)
        axis = int(np.searchsorted(scope, i))
        yield np.delete(scope, axis).tolist(), np.moveaxis(table, axis, 0)


def _joint_logits(model: MarkovRandomField, i: int, *, hard: bool = False) -> tuple[list[int], FloatArray]:
    """Neighbors of a variable that have several states, and its logits (own states, states of these neighbors).

    With ``hard`` only terms that forbid something, and the neighbors in them, count.
    """
    counts = model.num_states
    terms = [(others, table) for others, table in _terms_around(model, i) if not hard or table.min() == -np.inf]
    axes = sorted({j for others, _ in terms for j in others if counts[j] > 1})
    logits = np.zeros((counts[i], *counts[axes])) + model.unary(i).reshape(-1, *[1] * len(axes))
    for others, table in terms:
        logits += table.reshape(-1, *(counts[j] if j in others else 1 for j in axes))
    return axes, logits


def _largest_gaps(axes: list[int], logits: FloatArray) -> tuple[list[int], list[float]]:
    """For every neighbor the largest total variation distance between two of the distributions that it leads to.

    Two undefined distributions are no distance apart; an undefined one beside a defined one is 1 away from it.
    """
    top = logits.max(axis=0)
    undefined = top == -np.inf
    any_undefined = bool(undefined.any())
    p = np.exp(logits - (np.where(undefined, 0.0, top) if any_undefined else top))
    p /= np.where(undefined, 1.0, p.sum(axis=0))
    gaps = []
    for k in range(len(axes)):
        columns = p.swapaxes(1, k + 1)
        closed = undefined.swapaxes(0, k)
        best = 0.0
        for a in range(len(closed) - 1):
            distance = np.abs(columns[:, a : a + 1] - columns[:, a + 1 :]).sum(axis=0)
            if any_undefined:
                distance[closed[a] != closed[a + 1 :]] = 2.0
            best = max(best, float(distance.max()))
        gaps.append(min(0.5 * best, 1.0))
    return axes, gaps


# -- undefined conditionals -----------------------------------------------------------------------------------------


def undefined_conditional(model: MarkovRandomField, reduction: Reduction | None = None) -> tuple[int, str] | None:
    """A variable for which some states of its neighbors leave no state, and that in words; None if there is none.

    There Gibbs sampling is undefined, and so is R. It does not matter whether chains reach such states of the
    neighbors: they may start from them, as from any states that have a finite unary. A variable with too many states of
    its neighbors to try is named, too, in other words. The ``reduction`` is that of the model, if it is known already.

    1. Look for a state that a unary allows and that all other tables rule out.
    2. Count what the terms around every variable can forbid, and leave out variables that always keep a state.
    3. Enumerate the states of the neighbors of the others.
    """
    if not model.has_forbidden:
        return None
    # 1. States that the reduction dropped though their unary allows them.
    reduced = reduce_model(model) if reduction is None else reduction
    lost = model.log_unary > -np.inf
    lost[reduced.unary_positions] = False
    if lost.any():
        i = int(np.searchsorted(model.unary_offsets, np.flatnonzero(lost)[0], side="right")) - 1
        name = model.names_of_variables()[i]
        return i, f"variable {name} has a state that its unary allows and that leaves its neighbors no state"

    # 2. Variables in doubt.
    model = reduced.model
    doubtful, log_joint = _doubtful_variables(model)
    # 3. Enumeration, or where that is too long a calculation with sets of states.
    for i in np.flatnonzero(doubtful).tolist():
        name = model.names_of_variables()[i]
        closed: bool | None
        if log_joint[i] > math.log(MAX_JOINT_STATES):
            closed = _forbids_all(model, i)
        else:
            closed = bool((_joint_logits(model, i, hard=True)[1].max(axis=0) == -np.inf).any())
        if closed is None:
            return i, f"variable {name} has forbidden pairs and too many neighbors to check that it always has a state"
        if closed:
            return i, f"variable {name} has no allowed state for some states of its neighbors"
    return None


def _doubtful_variables(model: MarkovRandomField) -> tuple[BoolArray, FloatArray]:
    """Variables that could be left without a state, (n,), and log numbers (n,) of the neighbor states to try for each.

    A variable is in doubt if each of its states can be forbidden by some neighbor, and all neighbors together can
    forbid as many states as it has. The numbers count the neighbors that can forbid something; they may be too large.
    """
    starts = model.unary_offsets[:-1]
    n = model.num_variables
    at_risk = np.zeros(len(model.log_unary), dtype=bool)  # states that some neighbor can forbid
    most = np.zeros(n, dtype=np.int64)  # states that all neighbors together can forbid, or more
    log_joint = np.zeros(n)

    def count(owner: IntArray, forbidden: BoolArray) -> None:
        """Take in what terms (states of the owner, states of the rest, number of terms) forbid."""
        np.logical_or.at(at_risk, starts[owner] + np.arange(len(forbidden))[:, None], forbidden.any(axis=1))
        np.add.at(most, owner, forbidden.sum(axis=0).max(axis=0))
        np.add.at(log_joint, owner, forbidden.any(axis=(0, 1)) * math.log(forbidden.shape[1]))

    for places, tables in table_groups(model):
        for end, table in enumerate((tables, tables.transpose(1, 0, 2))):
            count(model.edges[places, end], table == -np.inf)
    for group in model.structure.factor_groups(CHUNK_ENTRIES):
        forbidden = model.log_factors[group.places] == -np.inf
        for axis, owner in enumerate(group.scopes.T):
            rows = np.moveaxis(forbidden, (axis + 1, 0), (0, -1))
            count(owner, rows.reshape(len(rows), -1, len(owner)))

    if not n:
        return np.zeros(0, dtype=bool), log_joint
    return np.logical_and.reduceat(at_risk, starts) & (most >= model.num_states), log_joint


def _forbids_all(model: MarkovRandomField, i: int) -> bool | None:
    """Whether neighbors can forbid all states of a variable, by the sets of states that its terms can forbid.

    A set is a number whose bits are the states. The answer is None where the sets are too many, or where they could
    forbid all but terms share neighbors, which cannot do everything at once.
    """
    all_states = (1 << int(model.num_states[i])) - 1
    reachable = {0}  # sets of states that the terms so far can forbid together
    neighbors: list[int] = []
    for others, table in _terms_around(model, i):
        columns = np.unique((table == -np.inf).reshape(len(table), -1), axis=1).T
        own = {sum(1 << s for s in np.flatnonzero(column).tolist()) for column in columns}
        if own == {0}:
            continue
        neighbors += others
        own = {a for a in own if not any(a != b and a & b == a for b in own)}  # smaller sets add nothing
        reachable = {a | b for a in reachable for b in own}
        if len(reachable) > MAX_FORBIDDEN_SETS:
            return None
    if all_states not in reachable:
        return False
    return True if len(set(neighbors)) == len(neighbors) else None
