"""Allowed configurations: models without states that nothing supports, and a search for what nothing forbids."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, impossible, reduce_model
from fastmix.modes.tuning import CHOICES_PER_SECOND, MAX_SUPPORT_CHOICES
from fastmix.theory.dependency import largest_entries

__all__ = ["allowed_search", "find_allowed", "penalty", "reduce_to_supported"]


def reduce_to_supported(model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
    """The model given evidence, without single-state variables and without states that have no partner.

    A state goes when some neighbor has no state left that the edge between them allows beside it, and so on until
    nothing more goes (arc consistency). Such states have probability zero, and belief propagation would find the same
    ones by itself, through messages of minus infinity: without them every message stays finite.

    Raises
    ------
    ImpossibleModelError, or ImpossibleEvidenceError
        If a variable has no state left, or a search shows that no configuration has positive probability (an odd cycle
        in two colors has partners for every state); where the search gives up, the model passes.
    """
    check_model(model)
    reduction = reduce_model(model, evidence, fold_single=True, clock=clock)
    small = reduction.model
    if small.has_forbidden:
        find_allowed(small, small.log_unary, bool(evidence), clock)
    return reduction


def find_allowed(
    model: MarkovRandomField, scores: FloatArray, given: bool = False, clock: Clock = NO_LIMIT
) -> IntArray | None:
    """A configuration that nothing forbids and that prefers states of high score, or None when the search gives up.

    The model must have no forbidden states; the scores are aligned with ``log_unary``. Backtracking, of at most 100,000
    choices and ten per variable: the question is NP-complete. A :class:`ModelError` if the search has shown that there
    is none; ``given`` says whether the model is one given evidence, for the message.
    """
    return allowed_search(model, given, clock)(scores)


def allowed_search(
    model: MarkovRandomField, given: bool = False, clock: Clock = NO_LIMIT
) -> Callable[[FloatArray], IntArray | None]:
    """A function that finds an allowed configuration by scores, as :func:`find_allowed` does; for several scores."""
    from fastmix.modes.allowed_kernels import find_configuration

    graph = model.adjacency
    incident = model.structure.incident
    directed = model.structure.directed
    tables = read_only(model.parameters[len(model.log_unary) :])
    starts = np.append(model.pairwise_offsets[:-1], model.pairwise_offsets[-1] + model.factor_offsets[:-1])
    hard = np.minimum.reduceat(tables, starts) == -np.inf
    hard_edges = hard[graph.edge_ids]
    hard_factors = hard[model.num_edges + incident.factors]

    def search(scores: FloatArray) -> IntArray | None:
        states = np.zeros(model.num_variables, dtype=np.int64)
        in_time = 1 + CHOICES_PER_SECOND * clock.left()
        budget = min(MAX_SUPPORT_CHOICES + 10 * model.num_variables, in_time)
        found = find_configuration(
            model.num_states, model.unary_offsets, graph.indptr, graph.neighbors, hard_edges, directed.starts,
            directed.own_steps, directed.other_steps, tables, hard_factors, incident, read_only(scores), int(budget),
            states,
        )  # fmt: skip
        if found == 0:
            what = "entry" if model.num_factors else "pair"
            raise impossible(given, f"every configuration has a forbidden {what}")
        return states if found > 0 else None

    return search


def penalty(model: MarkovRandomField) -> float:
    """More than all soft terms of any one variable can make up for."""
    return float(10.0 + 4.0 * largest_entries(model).max())
