"""Exact log Z and moments of learnt models: by listing all configurations, or by a junction tree."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ResourceError
from fastmix.exact.elimination import plan_model_elimination
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.objective import Loss
from fastmix.learning.tuning import (
    MAX_CONFIGURATIONS,
    MAX_TREE_BYTES,
    MAX_TREE_ENTRIES,
    SECONDS_PER_TREE_ENTRY,
    TREE_ENTRIES_PER_SECOND,
)
from fastmix.model import MarkovRandomField

__all__ = ["Enumerated", "TreeSums", "exact_model_term", "grid_of_contrasts", "is_enumerable"]


def is_enumerable(num_states: IntArray) -> bool:
    """Whether models with these state counts have so few configurations that all of them are listed."""
    return float(np.log2(num_states).sum()) <= math.log2(MAX_CONFIGURATIONS) + 1e-9


def grid_of_contrasts(coordinates: Coordinates, variables: range | IntArray) -> FloatArray:
    """Contrasts of all configurations of some variables, the last fastest, (configurations, their contrasts)."""
    result = np.zeros((1, 0))
    for i in variables:
        q = coordinates.tables[int(i)]
        result = np.hstack([np.repeat(result, len(q), axis=0), np.tile(q, (len(result), 1))])
    return result


class Enumerated(Loss):
    """Log Z and moments by listing all configurations of two halves of the variables.

    The weights of all configurations are ``exp(f(a) + g(b) + Y_a C_ab Y_b')``: products of matrices.
    """

    method = "enumeration"

    def __init__(self, coordinates: Coordinates) -> None:
        num_states = coordinates.structure.num_states
        total = math.prod(num_states.tolist())
        check_memory(24.0 * total, f"the list of {total:.4g} configurations", "use objective='pseudo-likelihood'")
        self.coordinates = coordinates
        logs = np.cumsum(np.log(num_states))
        half = int(np.searchsorted(logs, 0.5 * logs[-1] + 1e-9)) if len(num_states) else 0
        self._split = int(coordinates.starts[half])
        self._first = grid_of_contrasts(coordinates, range(half))
        self._last = grid_of_contrasts(coordinates, range(half, len(num_states)))

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Log Z and moments of the model v."""
        d = self.coordinates.num_contrasts
        s = self._split
        a = self._first
        b = self._last
        matrix = self.coordinates.matrix(v)
        logs = (a @ matrix[:s, s:]) @ b.T
        logs += (a @ v[:s] + 0.5 * np.einsum("rk,rk->r", a @ matrix[:s, :s], a))[:, None]
        logs += b @ v[s:d] + 0.5 * np.einsum("rk,rk->r", b @ matrix[s:, s:], b)
        top = float(logs.max())
        logs -= top

        # The same array holds the weights; their sums over one half are those of the other.
        weights = np.exp(logs, out=logs)
        weights_of_a = weights.sum(axis=1)
        weights_of_b = weights.sum(axis=0)
        z = float(weights_of_a.sum())
        products = np.empty((d, d))
        products[:s, :s] = a.T @ (weights_of_a[:, None] * a)
        products[s:, s:] = b.T @ (weights_of_b[:, None] * b)
        products[:s, s:] = (a.T @ weights) @ b
        products[s:, :s] = products[:s, s:].T
        means = np.concatenate([a.T @ weights_of_a, b.T @ weights_of_b])
        return top + math.log(z), self.coordinates.gather(means, products) / z


class TreeSums(Loss):
    """Log Z and moments by a junction tree that is planned once."""

    method = "junction tree"

    def __init__(self, coordinates: Coordinates, memory_limit: float | None = None, clock: Clock = NO_LIMIT) -> None:
        structure = coordinates.structure
        self.coordinates = coordinates
        self._model = MarkovRandomField(
            structure.num_states,
            np.zeros(int(structure.unary_offsets[-1])),
            structure.edges,
            np.zeros(int(structure.pairwise_offsets[-1])),
        )
        memory_limit = memory_limit or available_memory() / 2
        self.tree = plan_model_elimination(self._model, memory_limit=memory_limit, clock=clock)

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Log Z and moments of the model v."""
        model = self._model.with_parameters(self.coordinates.to_parameters(v))
        answer = replace(self.tree, model=model).calibrate()
        moments = np.concatenate([answer.marginals, answer.factor_marginals])
        return answer.log_z, self.coordinates.from_gradient(moments)


def exact_model_term(coordinates: Coordinates, *, asked: bool, clock: Clock = NO_LIMIT) -> Loss:
    """Log Z of models on a structure as a function whose derivative are their moments.

    Raises
    ------
    ResourceError
        If there is no way within the memory, or, unless it was asked for, none that takes about a second, or no time to
        look for it.
    OutOfTimeError
        If it was asked for and takes longer than there is time.
    """
    if is_enumerable(coordinates.structure.num_states):
        return Enumerated(coordinates)
    if asked:
        term = TreeSums(coordinates, clock=clock)
        if SECONDS_PER_TREE_ENTRY * term.tree.total_entries > clock.left():
            raise OutOfTimeError
        return term
    try:
        term = TreeSums(coordinates, min(MAX_TREE_BYTES, available_memory() / 2), clock)
    except OutOfTimeError:
        raise ResourceError("there is no time to plan exact moments") from None
    if term.tree.total_entries > min(MAX_TREE_ENTRIES, TREE_ENTRIES_PER_SECOND * clock.left()):
        raise ResourceError(f"exact moments take long: {term.tree.total_entries:.3g} entries at every step")
    return term
