"""What annealed populations know about their own error, and what known configurations say against their answer."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._student import student_factor
from fastmix.chains.layout import rows_of
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import certain_entries
from fastmix.sampling.diagnostics import unseen_errors
from fastmix.sampling.tuning import ANNEALED_ROUNDING, MAX_FLIPPED_STATES, MISSED_SIGMAS

__all__ = [
    "combine_populations", "entropy_bound", "excess_of_modes", "known_probabilities", "proven_bound", "with_shortfall",
    "with_unseen",
]  # fmt: skip


def combine_populations(averages: FloatArray, log_ratio: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means over populations, weighted by their normalizers, and their standard errors, (entries,) each.

    ``averages`` (entries, P, C) are the averages of the C chains of P populations, ``log_ratio`` (P,) the logarithms
    of the normalizers.
    """
    weights = np.exp(log_ratio - log_ratio.max())
    weights /= weights.sum()
    populations = averages.mean(axis=2)
    count = len(weights)
    num_chains = averages.shape[1] * averages.shape[2]
    mean = populations @ weights
    # Of a ratio estimator: residuals weighted as the values are, with the usual correction for the few there are.
    residual = ((populations - mean[:, None]) ** 2) @ (weights**2)
    # With one population in charge the residuals say nothing: the plain spread is then the honest figure.
    plain = populations.var(axis=1, ddof=1) / count
    # Few populations can agree by chance; chains, of which there are more, are as if independent at best.
    between = student_factor(count - 1) ** 2 * np.maximum(residual * count / (count - 1), plain)
    within = np.einsum("epc,epc->e", averages, averages) / num_chains - populations.mean(axis=1) ** 2
    return mean, np.sqrt(np.maximum(between, within / (num_chains - 1)))


def with_unseen(
    model: MarkovRandomField, mean: FloatArray, error: FloatArray, num_chains: int, num_sweeps: int
) -> FloatArray:
    """Standard errors with what all chains together may never have met in so many sweeps of each.

    Chains that agree to the last bit have an error of zero among themselves, and may all have missed what is rare. As
    for other chains (:func:`fastmix.sampling.diagnostics.summarize`), 1.5 visits may have been missed of as many
    independent looks as the error is worth: one of every chain at least, one of every sweep at most.
    """
    if not model.num_variables:
        return error
    with np.errstate(divide="ignore", invalid="ignore"):
        looks = mean * np.maximum(1.0 - mean, 0.0) / error**2
    most = float(num_chains * num_sweeps)
    looks = np.clip(np.where(error > 0.0, looks, most), float(num_chains), most)
    looks = np.minimum.reduceat(looks, model.unary_offsets[:-1])
    result = np.hypot(error, unseen_errors(model, mean, looks, None))
    result[certain_entries(model)] = 0.0
    return np.asarray(result)


def with_shortfall(model: MarkovRandomField, mean: FloatArray, error: FloatArray, known: FloatArray) -> FloatArray:
    """Standard errors with what probabilities fall short of known lower bounds, the largest over each variable."""
    shortfall = np.maximum.reduceat(np.maximum(0.0, known - mean), model.unary_offsets[:-1])
    return np.hypot(error, np.repeat(shortfall, model.num_states))


def known_probabilities(model: MarkovRandomField, modes: IntArray, log_z: float) -> FloatArray:
    """Lower bounds on the probabilities of all states from configurations of large weight, (entries of log_unary,).

    The bound of a state is the largest probability of a mode (K, n) with one variable changed to it: chains that never
    met the state fall short of that. In the largest models the bounds are 0.
    """
    first = model.unary_offsets[:-1]
    logs = np.full(len(model.log_unary), -np.inf)
    if model.num_factors:
        if len(logs) * model.num_variables > MAX_FLIPPED_STATES:
            return np.zeros(len(logs))
        for mode in modes:
            logs = np.maximum(logs, _weights_of_flips(model, mode))
        return np.exp(np.minimum(0.0, logs - log_z))
    # What the tables of every edge add to the states of either end.
    graph = model.adjacency
    owner = model.structure.directed.owner
    begins, entries = rows_of(model.unary_offsets, owner)
    if len(entries) > MAX_FLIPPED_STATES:
        return np.zeros(len(logs))
    ends = np.repeat(np.arange(len(owner)), np.diff(begins))
    own = entries - first[owner[ends]]
    neighbors = graph.neighbors[ends]
    edges = graph.edge_ids[ends]
    owns_rows = owner[ends] < neighbors
    for mode, weight in zip(modes, np.atleast_1d(model.log_weight(modes)), strict=True):
        others = mode[neighbors]
        rows = np.where(owns_rows, own, others)
        cols = np.where(owns_rows, others, own)
        beside = model.table_entries(edges, rows, cols)
        local = model.log_unary + np.bincount(entries, beside, len(logs))
        logs = np.maximum(logs, weight + local - np.repeat(local[first + mode], model.num_states))
    return np.exp(np.minimum(0.0, logs - log_z))


def _weights_of_flips(model: MarkovRandomField, mode: IntArray) -> FloatArray:
    """Log-weights of a configuration (n,) with one variable changed to each of its states, (entries of log_unary,)."""
    owner = np.repeat(np.arange(model.num_variables), model.num_states)
    flipped = np.repeat(np.asarray(mode)[None], len(owner), axis=0)
    flipped[np.arange(len(owner)), owner] = np.arange(len(owner)) - model.unary_offsets[owner]
    return np.asarray(model.log_weight(flipped))


def excess_of_modes(model: MarkovRandomField, modes: IntArray, mean: FloatArray, log_weights: FloatArray) -> float:
    """Logarithm of the factor by which modes outweigh all that chains visit, beyond chance; 0 if they do not.

    For draws of the model itself, ``log Z = E[log w] + H`` with an entropy H of at most the sum of those of the
    marginals, and log Z is at least that of some configurations alone. ``log_weights`` are those of the chains.
    """
    if not len(modes):
        return 0.0
    known = np.logaddexp.reduce(np.atleast_1d(model.log_weight(modes)))
    chance = 1.0 + MISSED_SIGMAS * float(log_weights.std(ddof=1)) / math.sqrt(len(log_weights))
    return max(0.0, float(known - log_weights.mean() - entropy_bound(mean) - chance))


def proven_bound(model: MarkovRandomField, modes: IntArray) -> float | None:
    """Lower bound on log Z by the weights of different configurations, less their rounding; None without any."""
    if not len(modes):
        return None
    bound = float(np.logaddexp.reduce(np.atleast_1d(model.log_weight(modes))))
    return bound - ANNEALED_ROUNDING * (1.0 + abs(bound) + abs(model.log_constant))


def entropy_bound(mean: FloatArray) -> float:
    """The sum of the entropies of the marginals, which is at least the entropy of the model."""
    return -float(np.sum(mean * np.log(np.maximum(mean, 1e-300))))
