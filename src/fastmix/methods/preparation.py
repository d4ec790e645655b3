"""What both variational methods do before they start: arguments checked, impossible states removed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import ModelError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model

__all__ = [
    "check_fraction",
    "find_allowed",
    "reduce_to_supported",
]

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Choices of a search, beyond ten a variable: a second or so.
_SEARCH_CHOICES = 100_000


def reduce_to_supported(model: MarkovRandomField, evidence: Evidence | None) -> Reduction:
    """The model given evidence, without single-state variables and without states that have no partner.

    A state goes when some neighbour has no state left that the edge between them allows beside it, and so on until
    nothing more goes (arc consistency). Such states have probability zero, and belief propagation would find the same
    ones by itself, through messages of minus infinity: without them every message stays finite.

    A :class:`ModelError` if the evidence is not valid, or no configuration has positive probability: a variable has no
    state left, or a search shows it (an odd cycle in two colours has partners for every state). Deciding that is
    NP-complete: where the search gives up, the model passes. Linear in the number of entries for models without
    forbidden pairs; otherwise at most the largest state count times that.

    Examples
    --------
    >>> table = [[0.0, -np.inf], [-np.inf, -np.inf]]
    >>> model = MarkovRandomField.from_tables([[0, 0], [0, 0], [0, 1]], [(0, 1), (1, 2)], [table, [[1, 2], [3, 4]]])
    >>> reduction = reduce_to_supported(model, None)
    >>> reduction.model, reduction.fixed.tolist()
    (MarkovRandomField(1 variable of 2 states, 0 edges), [0, 0, -1])
    """
    check_model(model)
    reduction = reduce_model(model, evidence, fold_single=True)
    small = reduction.model
    if not small.log_pairwise.size or small.log_pairwise.min() > -np.inf:
        return reduction
    allowed = _supported_states(small, given=bool(evidence), variables=reduction.variables)
    if not allowed.all():
        # Forbidden in the original as well, so that one reduction leads all the way back.
        unary = model.log_unary.copy()
        unary[reduction.unary_positions[~allowed]] = -np.inf
        reduction = reduce_model(model.replace(log_unary=unary), evidence, fold_single=True)
        small = reduction.model
    if small.has_forbidden:
        find_allowed(small, small.log_unary, given=bool(evidence))
    return reduction


def _supported_states(model: MarkovRandomField, *, given: bool, variables: IntArray) -> BoolArray:
    from fastmix.methods.support_kernels import close_supports

    allowed = model.log_unary > -np.inf
    dead = close_supports(*_constraints(model, allowed))
    if dead >= 0:
        raise ModelError(f"{_impossible(given)}: forbidden pairs leave variable {variables[dead]} no state")
    return allowed


def find_allowed(model: MarkovRandomField, scores: FloatArray, *, given: bool) -> IntArray | None:
    """A configuration without forbidden pairs that prefers states of high score, or None when the search gives up.

    Backtracking, of at most 100,000 choices and ten per variable: the question is NP-complete. A :class:`ModelError` if
    it has shown that there is none; ``given`` says whether the model is one given evidence, for the message.

    Examples
    --------
    >>> different = np.where(np.eye(2, dtype=bool), -np.inf, 0.0)
    >>> model = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [different] * 2)
    >>> find_allowed(model, np.array([0.2, 0.8, 0.5, 0.5, 0.5, 0.5]), given=False).tolist()
    [1, 0, 1]
    """
    from fastmix.methods.support_kernels import find_configuration

    states = np.zeros(model.num_variables, dtype=np.int64)
    found = find_configuration(*_constraints(model, scores, _SEARCH_CHOICES + 10 * model.num_variables, states))
    if found == 0:
        raise ModelError(f"{_impossible(given)}: every configuration has a forbidden pair")
    return states if found > 0 else None


def _constraints(model: MarkovRandomField, *others: Any) -> tuple[Any, ...]:
    """The arrays that the kernels take first, and the others."""
    graph = model.adjacency
    hard = np.minimum.reduceat(model.log_pairwise, model.pairwise_offsets[:-1]) == -np.inf
    return (
        model.num_states, model.unary_offsets, graph.indptr, graph.neighbors, graph.edge_ids, hard,
        model.pairwise_offsets, model.log_pairwise, *others,
    )  # fmt: skip


def _impossible(given: bool) -> str:
    if given:
        return "evidence must have positive probability, but it is impossible"
    return "the model has no configuration of positive probability"


def check_fraction(name: str, value: Any) -> float:
    """``value`` as a float from 0 to below 1."""
    try:
        number = math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number < 1.0:
        raise ValueError(f"{name} must be a number from 0 to below 1, got {value!r}")
    return number
