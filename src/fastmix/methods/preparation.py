"""What both variational methods start from: models without impossible states, and binary ones written in spins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, impossible, reduce_model

__all__ = ["IsingForm", "find_allowed", "ising_form", "reduce_to_supported"]

_SEARCH_CHOICES = 100_000  # of a search, beyond ten per variable: a second or so
_CHOICES_PER_SECOND = 5e5


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
    from fastmix.methods.support_kernels import find_configuration

    states = np.zeros(model.num_variables, dtype=np.int64)
    choices = min(_SEARCH_CHOICES + 10 * model.num_variables, 1 + _CHOICES_PER_SECOND * clock.left())
    graph, incident, directed = model.adjacency, model.structure.incident, model.structure.directed
    tables = model.parameters[len(model.log_unary) :]
    starts = np.append(model.pairwise_offsets[:-1], model.pairwise_offsets[-1] + model.factor_offsets[:-1])
    hard = np.minimum.reduceat(tables, starts) == -np.inf
    scores = scores.view()
    for array in (tables, scores):
        array.setflags(write=False)  # whoever made them, so that one signature is compiled, not four
    found = find_configuration(
        model.num_states, model.unary_offsets, graph.indptr, graph.neighbors, hard[graph.edge_ids], directed.starts,
        directed.own_steps, directed.other_steps, tables, hard[model.num_edges + incident.factors], incident, scores,
        int(choices), states,
    )  # fmt: skip
    if found == 0:
        what = "entry" if model.num_factors else "pair"
        raise impossible(given, f"every configuration has a forbidden {what}")
    return states if found > 0 else None


@dataclass(frozen=True, eq=False)
class IsingForm:
    """``log_weight(x) = constant + sum_i field_i s_i + sum_ij coupling_ij s_i s_j`` with s = 2 x - 1.

    ``field`` is (n,), ``coupling`` (m,), aligned with ``model.edges``.
    """

    field: FloatArray
    coupling: FloatArray
    constant: float


def ising_form(model: MarkovRandomField) -> IsingForm | None:
    """A model in spins, or None where it has none: other state counts, a forbidden entry, or a factor.

    Every table of two by two finite numbers is ``c + f s_i + g s_j + J s_i s_j``; f and g join the fields. The
    distribution is the same, and so are the fixed points of belief propagation and mean field.
    """
    if not (model.num_states == 2).all() or model.has_forbidden or model.num_factors:
        return None
    unary = model.log_unary.reshape(-1, 2)
    t00, t01, t10, t11 = np.ascontiguousarray(0.25 * model.log_pairwise.reshape(-1, 4).T)
    n = model.num_variables
    field = 0.5 * (unary[:, 1] - unary[:, 0])
    if model.num_edges:
        i, j = model.edges.T
        field += np.bincount(i, (t10 - t00) + (t11 - t01), minlength=n)
        field += np.bincount(j, (t01 - t00) + (t11 - t10), minlength=n)
    coupling = (t00 - t01) + (t11 - t10)
    constant = model.log_constant + float(0.5 * unary.sum() + (t00 + t01 + t10 + t11).sum())
    return IsingForm(field, coupling, constant)
