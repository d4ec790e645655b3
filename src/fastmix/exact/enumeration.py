"""Exact answers by listing every configuration: slow, obvious, and a check on everything else."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count
from fastmix._memory import check_memory
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.model import MarkovRandomField, check_model

__all__ = ["Enumeration", "enumerate_model"]


class Enumeration(NamedTuple):
    """Every configuration with its probability, and what follows from them.

    ``configurations`` is (N, n) with the last variable fastest, ``probabilities`` (N,), the marginals are flat and
    aligned with the arrays of the model.
    """

    log_z: float
    node_marginals: FloatArray
    edge_marginals: FloatArray
    configurations: IntArray
    probabilities: FloatArray


def enumerate_model(model: MarkovRandomField, *, max_configurations: int = 1 << 20) -> Enumeration:
    """All configurations of a small model with their probabilities, marginals and log Z.

    Parameters
    ----------
    model : MarkovRandomField
    max_configurations : int
        Models with more configurations than this are refused.

    Raises
    ------
    ResourceError
        If the model has more configurations, or if listing them needs more memory than is free.
    ImpossibleModelError
        If every configuration is forbidden.

    Notes
    -----
    Time and memory are proportional to configurations times variables and edges.

    Examples
    --------
    >>> found = enumerate_model(MarkovRandomField.ising([(0, 1)], coupling=1.0))
    >>> found.configurations.tolist(), round(found.log_z, 4)
    ([[0, 0], [0, 1], [1, 0], [1, 1]], 1.8201)
    """
    check_model(model)
    max_configurations = check_count("max_configurations", max_configurations, least=1)
    total = float(np.prod(model.num_states, dtype=float))
    if total > max_configurations:
        raise ResourceError(
            f"enumeration must list at most max_configurations = {max_configurations:,}, the model has {total:.4g}; "
            "use the junction tree"
        )
    bytes_each = 16.0 * (2 + model.num_variables + model.num_edges)
    check_memory(bytes_each * total, f"enumeration of {total:.4g} configurations", "use the junction tree")
    configurations = _list_configurations(tuple(model.num_states.tolist()))
    log_weights = np.asarray(model.log_weight(configurations))
    top = float(log_weights.max())
    if top == -np.inf:
        raise ImpossibleModelError("no configuration has positive probability")
    weights = np.exp(log_weights - top)
    z = float(weights.sum())
    probabilities = weights / z
    unary, pairwise, _ = model.entry_positions(configurations)
    nodes = _weighted_counts(unary, probabilities, len(model.log_unary))
    edges = _weighted_counts(pairwise, probabilities, len(model.log_pairwise))
    return Enumeration(top + float(np.log(z)), nodes, edges, configurations, probabilities)


def _list_configurations(num_states: tuple[int, ...]) -> IntArray:
    """All tuples of states (N, n), the last variable fastest."""
    if not num_states:
        return np.zeros((1, 0), dtype=np.int64)
    grid = np.indices(num_states).reshape(len(num_states), -1).T
    return np.ascontiguousarray(grid, dtype=np.int64)


def _weighted_counts(positions: IntArray, weights: FloatArray, length: int) -> FloatArray:
    """The total weight of the configurations that use each entry of a flat array of ``length`` entries.

    ``positions`` (N, k) are the entries that each configuration uses, ``weights`` (N,) their probabilities.
    """
    counts = np.bincount(positions.reshape(-1), np.repeat(weights, positions.shape[1]), length)
    return counts.astype(np.float64)
