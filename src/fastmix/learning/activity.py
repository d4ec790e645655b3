"""Chains that go through all activities of a sparse model: how many variables are not in their usual state.

A pairwise model of sparse data can have a second phase in which many variables are active, with a small probability
that rows with many ones ask for. Single chains do not go there and back, and weights of the phases are lost. Here a
bias by the activity is added to the log-weights so that half of the chains are spread evenly over all activities that
data have: umbrella sampling [1]_. Where the parameters move, chains are weighed and drawn anew within each activity,
and the bias moves by the mean weight there, so that no activity is lost on the way (population annealing in strata).

References
----------
.. [1] G. M. Torrie and J. P. Valleau, "Nonphysical sampling distributions in Monte Carlo free-energy estimation:
   umbrella sampling", Journal of Computational Physics 23, 1977.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.annealing import systematic
from fastmix.chains.generator import make_streams
from fastmix.learning.activity_kernels import activity_sweeps, log_ways_to_zero
from fastmix.learning.tuning import (
    ACTIVITY_RATE,
    ACTIVITY_WIDTH,
    MAX_BIAS_STEP,
    MIN_EFFECTIVE_SHARE,
    SHORTEST_BRIDGE,
    SPREAD_SHARE,
)

__all__ = ["ActivityChains", "pair_features"]


def pair_features(rows: sparse.csr_array, edges: IntArray) -> sparse.csr_array:
    """Ones of rows (rows, n), and of the pairs of ends of all edges, as a sparse matrix (rows, n + m)."""
    columns = sparse.csc_array(rows)
    pairs = columns[:, edges[:, 0]].multiply(columns[:, edges[:, 1]])
    return sparse.csr_array(sparse.hstack([columns, pairs], format="csr"))


class ActivityChains:
    """Chains of binary variables under a bias by their activity, at parameters that move.

    Parameters (n + m,) are the log-odds of all variables where the others are 0, and the couplings of all edges.

    Attributes
    ----------
    states : int8 array (C, n)
    activity : int array (C,)
        How many of them are 1.
    bias : float array (n + 2,)
        By activity, what is added to the log-weight.
    num_sweeps : int
    """

    def __init__(
        self, edges: IntArray, parameters: FloatArray, states: NDArray[np.int8], top: int, rng: np.random.Generator
    ) -> None:
        num_chains, n = states.shape
        self.states = states
        self.activity = states.sum(axis=1).astype(np.int64)
        self.bias = np.zeros(n + 2)
        self.top = top
        self.num_sweeps = 0
        self._rng = rng
        self._streams = make_streams(int(rng.integers(2**62)), 0, num_chains)
        place = np.arange(n + 2.0)
        width = ACTIVITY_WIDTH * (1.0 + place / 8.0)
        kernel = np.exp(-0.5 * ((place[:, None] - place) / width[:, None]) ** 2)
        self._spread = kernel / kernel.sum(axis=0)  # sums stay what they are
        self._smooth = kernel / kernel.sum(axis=1, keepdims=True)
        self.load(edges, parameters)

    def load(self, edges: IntArray, parameters: FloatArray) -> None:
        """Let these be the edges and parameters, without moving the chains or the bias."""
        n = self.states.shape[1]
        self.edges = edges
        self.parameters = parameters
        i, j = edges.T
        both = (np.concatenate([i, j]), np.concatenate([j, i]))
        matrix = sparse.csr_array(sparse.coo_array((np.tile(parameters[n:], 2), both), shape=(n, n)))
        self._starts = matrix.indptr.astype(np.int64)
        self._neighbors = matrix.indices.astype(np.int64)
        self._couplings = matrix.data
        self._fields = (self.ones() @ matrix).toarray() + parameters[:n]

    def pack(self) -> tuple[IntArray, FloatArray, NDArray[np.int8], FloatArray]:
        """All that :meth:`restore` needs: graph and parameters, states and bias."""
        return self.edges, self.parameters, self.states.copy(), self.bias

    def restore(self, place: tuple[IntArray, FloatArray, NDArray[np.int8], FloatArray]) -> None:
        """Go back to what :meth:`pack` gave."""
        edges, parameters, states, self.bias = place
        self.states = states.copy()
        self.activity = states.sum(axis=1).astype(np.int64)
        self.load(edges, parameters)

    def ones(self) -> sparse.csr_array:
        """The states as a sparse matrix (C, n) of floats."""
        return sparse.csr_array(self.states.astype(np.float64))

    def features(self) -> sparse.csr_array:
        """Ones and pairs of ones (C, n + m) of the chains."""
        return pair_features(self.ones(), self.edges)

    def sweep(self, count: int) -> None:
        """Make sweeps."""
        graph = (self._starts, self._neighbors, self._couplings)
        activity_sweeps(self.states, self._fields, self.activity, *graph, self.bias, self._streams, count)
        self.num_sweeps += count

    # -- what the model is like -------------------------------------------------------------------------------------

    def shares(self) -> FloatArray:
        """Weights (C,) of the chains as draws of the model without the bias, with the sum 1."""
        bias = self.bias[self.activity]
        weights = np.exp(bias.min() - bias)
        return np.asarray(weights / weights.sum())

    def log_zero(self) -> FloatArray:
        """The log-probability (C,) that a sweep of a chain makes all variables 0."""
        found = np.empty(len(self.states))
        log_ways_to_zero(self.states, self._fields, self._starts, self._neighbors, self._couplings, found)
        return found

    def _counts(self, values: FloatArray) -> FloatArray:
        """Sums (n + 2,) of a value of every chain by activity, spread over activities nearby."""
        return np.asarray(self._spread @ np.bincount(self.activity, values, len(self.bias)))

    # -- moving on ----------------------------------------------------------------------------------------------------

    def move(self, parameters: FloatArray) -> None:
        """Go to other parameters in steps that leave most chains with weights alike, and a sweep after each.

        In a step chains are weighed against the others of about their activity, and drawn anew by these weights; the
        bias gives away what an activity gains as a whole.
        """
        first = self.parameters
        done = 0.0
        while done < 1.0:
            gains = np.asarray(self.features() @ (parameters - first))
            share = 1.0 - done
            log_weights, by_activity = self._weigh(share * gains)
            low = 0.0
            high = share
            while _effective_share(log_weights) < MIN_EFFECTIVE_SHARE and high > SHORTEST_BRIDGE:
                share = 0.5 * (low + high)
                log_weights, by_activity = self._weigh(share * gains)
                high = share
            self.bias = self.bias - by_activity
            order = np.argsort(self.activity, kind="stable")
            chosen = systematic(log_weights[order][None], self._rng)[0].reshape(-1)
            self.states = self.states[order][chosen]
            self.activity = self.activity[order][chosen]
            done = 1.0 if share >= 1.0 - done else done + share
            self.load(self.edges, first + done * (parameters - first))
            self.sweep(1)

    def _weigh(self, gains: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log-weights (C,) of chains beside others of about their activity, and their log-means (n + 2,)."""
        top = float(gains.max())
        sums = self._counts(np.exp(gains - top))
        counts = self._counts(np.full(len(gains), 1.0))
        known = (counts > 1e-9) & (sums > 0.0)
        place = np.arange(len(sums))
        means = np.interp(place, place[known], np.log(sums[known] / counts[known]) + top)
        return gains - means[self.activity], means

    def adapt(self, rate: float = ACTIVITY_RATE) -> None:
        """Move the bias towards one that spreads half of the chains evenly over the activities up to the top."""
        found = self._counts(np.full(len(self.activity), 1.0 / len(self.activity)))
        wanted = (1.0 - SPREAD_SHARE) * self._counts(self.shares())
        wanted[: self.top + 1] += SPREAD_SHARE / (self.top + 1)
        least = 0.2 / len(self.activity)
        step = np.clip(np.log((wanted + least) / (found + least)), -MAX_BIAS_STEP, MAX_BIAS_STEP)
        step[self.top + 1 :] = min(step[self.top], 0.0)
        self.bias = self.bias + rate * (self._smooth @ step)
        self.bias -= self.bias[0]


def _effective_share(log_weights: FloatArray) -> float:
    """The effective share of chains by their weights."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights @ weights) / len(weights))
