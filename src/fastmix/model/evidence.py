"""Evidence on a model: observed states, and soft evidence as likelihoods of states, checked and in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_float_array, describe
from fastmix.errors import ModelError
from fastmix.model.mrf import Evidence, MarkovRandomField

__all__ = ["Observations", "check_evidence", "observations_of", "observed_unary", "weighted_unary"]


class Observations(NamedTuple):
    """Evidence as arrays: the observed variables with their states, and soft evidence as likelihoods."""

    fixed: IntArray  #: the observed state of every variable, -1 for the others, (n,)
    likelihoods: dict[int, FloatArray]  #: soft evidence: likelihoods of the states of a variable, by its number


def check_evidence(evidence: Any) -> None:
    """Raise a :class:`ModelError` if evidence is no mapping."""
    if not isinstance(evidence, Mapping):
        raise ModelError(
            f"evidence must be a mapping from variables to states, such as {{0: 1}}, or None, got {describe(evidence)}"
        )


def observations_of(model: MarkovRandomField, evidence: Evidence | None) -> Observations:
    """The observations that evidence holds: variables and states by number, likelihoods multiplied.

    Raises
    ------
    ModelError
        If the evidence is no mapping, names a variable or state that does not exist, gives a variable two states, or
        has likelihoods that are negative, not finite, all 0 or not one per state.
    """
    fixed = np.full(model.num_variables, -1, dtype=np.int64)
    likelihoods: dict[int, FloatArray] = {}
    if evidence is None:
        return Observations(fixed, likelihoods)
    check_evidence(evidence)
    for variable, state in evidence.items():
        i = model.variable_index(variable)
        if isinstance(state, list | tuple | np.ndarray):
            likelihoods[i] = likelihoods.get(i, 1.0) * _as_likelihood(model, variable, i, state)
            continue
        observed = model.state_index(variable, state)
        if fixed[i] not in (-1, observed):
            name = model.names_of_variables()[i]
            raise ModelError(
                f"evidence must give each variable one state, got {fixed[i]} and {observed} for variable {name}"
            )
        fixed[i] = observed
    return Observations(fixed, likelihoods)


def _as_likelihood(model: MarkovRandomField, variable: Any, i: int, values: Any) -> FloatArray:
    """The likelihoods of the states of variable i, checked; ``variable`` is what the evidence calls it."""
    name = f"evidence of variable {describe(variable)}"
    likelihood = as_float_array(name, values)
    is_finite = bool(np.isfinite(likelihood).all())
    is_possible = bool((likelihood >= 0.0).all()) and bool(likelihood.any())
    if likelihood.shape != (model.num_states[i],) or not is_finite or not is_possible:
        raise ModelError(
            f"{name} must be likelihoods of at least 0, one for each of its {model.num_states[i]} states and not "
            f"all 0, got {describe(values)}"
        )
    return likelihood


def weighted_unary(model: MarkovRandomField, likelihoods: dict[int, FloatArray]) -> FloatArray:
    """A copy of the unary entries with the logarithms of likelihoods added."""
    unary = model.log_unary.copy()
    with np.errstate(divide="ignore"):
        for i, likelihood in likelihoods.items():
            unary[model.unary_offsets[i] : model.unary_offsets[i + 1]] += np.log(likelihood)
    return unary


def observed_unary(model: MarkovRandomField, evidence: Evidence | None) -> tuple[FloatArray, IntArray]:
    """Unary entries given evidence, -inf for states that were not observed; and the state of each variable or -1.

    The logarithms of likelihoods, of soft evidence, are added.
    """
    fixed, likelihoods = observations_of(model, evidence)
    unary = weighted_unary(model, likelihoods)
    observed = np.flatnonzero(fixed >= 0)
    places = model.unary_offsets[observed] + fixed[observed]
    kept = unary[places]
    unary[np.repeat(fixed >= 0, model.num_states)] = -np.inf
    unary[places] = kept
    return unary, fixed
