"""Sampled likelihoods: persistent Gibbs chains of all examples side by side, and noisy steps by their moments."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._context import Context
from fastmix.chains.cpu import CpuChains
from fastmix.crf.design import Design
from fastmix.crf.examples import UNKNOWN
from fastmix.crf.forest import clamped
from fastmix.crf.loss import Loss
from fastmix.crf.tuning import MOMENTUM, POWER_STEPS, SWEEPS
from fastmix.crf.within import SetOfModels
from fastmix.learning.persistent import autocorrelations

__all__ = ["SampledMoments", "descend", "remaining"]


class SampledMoments:
    """Chains that follow the models of some examples, and others that follow them given the known labels.

    Where all labels are known these stand in for the second.
    """

    def __init__(
        self, design: Design, codes: IntArray, within: SetOfModels | None, num_chains: int, context: Context
    ) -> None:
        self.design = design
        self.codes = codes
        self.within = within
        self.num_chains = num_chains
        self.clock = context.clock
        self._known = codes != UNKNOWN
        k = design.layout.num_states
        n = len(codes)
        blank = np.zeros((len(design.examples.edges), k, k))
        self._model = Design.model_of(design.examples, np.zeros((n, k)), blank)
        rng = context.rng("starts")
        states = rng.integers(0, k, size=(num_chains, n))
        states[:, self._known] = codes[self._known]
        self._free = self._chains(states, context.seed_of("chains"), forbidden=False, context=context)
        self._given: CpuChains | None = None
        if not self._known.all():
            self._given = self._chains(states, context.seed_of("chains given labels"), forbidden=True, context=context)

    def _chains(self, states: IntArray, seed: int, *, forbidden: bool, context: Context) -> CpuChains:
        """Chains of all examples, at some states."""
        chains = CpuChains(
            self._model.structure, num_chains=len(states), seed=seed, num_threads=context.num_threads,
            forbidden=forbidden, steady=False,
        )  # fmt: skip
        chains.set_states(states)
        return chains

    def load(self, w: FloatArray) -> None:
        """Let the chains follow the models with weights w."""
        unary, tables = self.design.potentials(w)
        self._unary = unary
        self._tables = tables[self.design.table_of]
        own = self._tables if self.within is None else self.within.project(unary, self._tables, self.clock)
        self._free.load(np.concatenate([unary.reshape(-1), own.reshape(-1)]))
        if self._given is not None:
            held = clamped(unary, self.codes, self._known)
            self._given.load(np.concatenate([held.reshape(-1), own.reshape(-1)]))

    def sweep(self, num_sweeps: int) -> None:
        """Make sweeps of all chains."""
        self._free.sweep(num_sweeps)
        if self._given is not None:
            self._given.sweep(num_sweeps)

    def mixes(self) -> bool:
        """Whether log-weights of the chains become nearly independent of what they were, within 128 sweeps."""
        _, mixed = autocorrelations(self.sweep, lambda: self._free.energies()[0], self.clock.check)
        return mixed

    def gradient(self, weights: FloatArray | None = None) -> FloatArray:
        """The derivative (size,) of minus the log-likelihood, a sum over the examples, by the chains as they are.

        ``weights`` (C,) are those of the chains in the moments; 1 by default.
        """
        moments = self._free.moments(weights)
        n, k = self._unary.shape
        if self._given is not None:
            moments = moments - self._given.moments(weights)
        for_unary = moments[: n * k].reshape(n, k)
        for_edges = moments[n * k :].reshape(-1, k, k)
        if self._given is None:
            i, j = self.design.examples.edges.T
            for_unary[np.arange(n), self.codes] -= 1.0
            for_edges[np.arange(len(for_edges)), self.codes[i], self.codes[j]] -= 1.0
        if self.within is not None:
            for_edges = self.within.pull(self._unary, self._tables, for_edges, self.clock)
        tables = np.zeros((self.design.num_tables, k, k))
        np.add.at(tables, self.design.table_of, for_edges)
        return self.design.pull(for_unary, tables)


def descend(
    loss: Loss, moments: SampledMoments, w: FloatArray, scales: FloatArray, num_rounds: int, clock: Clock
) -> tuple[FloatArray, int]:
    """Weights after rounds of noisy steps from w, averaged over the second half of them, and how many were made.

    The steps are those of the heavy ball (Polyak, 1964) in scaled coordinates. Their length goes down to 0 in the
    second half. Rounds end early where the time is over.
    """
    z = w * scales
    velocity = np.zeros_like(z)
    average = z.copy()
    averaged = 0
    longest = 1.0 / max(1.0, _largest_eigenvalue(moments.design, scales, clock))
    for number in range(num_rounds):
        if clock.past():
            return (average if averaged else z) / scales, number
        gradient = _noisy(loss, moments, z / scales, clock) / scales
        length = longest * min(1.0, 2.0 * (num_rounds - number) / num_rounds)
        velocity = MOMENTUM * velocity - length * gradient
        z = z + velocity
        if 2 * number >= num_rounds:
            averaged += 1
            average += (z - average) / averaged
        clock.report(number + 1, num_rounds, "rounds")
    return average / scales, num_rounds


def _largest_eigenvalue(design: Design, scales: FloatArray, clock: Clock) -> float:
    """The largest eigenvalue of ``J' J / E``, by the power method: J takes scaled weights to log-potentials.

    The objective curves by at most half of it where labels are independent.
    """
    z = np.random.default_rng(0).normal(size=len(scales))
    counts = np.bincount(design.table_of, minlength=design.num_tables)[:, None, None]
    found = 0.0
    for _ in range(POWER_STEPS):
        clock.check()
        z /= np.linalg.norm(z)
        unary, tables = design.potentials(z / scales)
        z = design.pull(unary, counts * tables) / scales / len(design.examples)
        found = float(np.linalg.norm(z))
    return found


def _noisy(loss: Loss, moments: SampledMoments, w: FloatArray, clock: Clock) -> FloatArray:
    """The derivative of the objective at w after some sweeps, ridge included."""
    moments.load(w)
    moments.sweep(SWEEPS)
    return loss.evaluate(w, clock)[1] + moments.gradient() / loss.num_examples


def remaining(
    loss: Loss, moments: SampledMoments, w: FloatArray, scales: FloatArray, num_rounds: int, clock: Clock
) -> tuple[float, bool]:
    """What is about left to gain at w, in nats per example, and whether the chains mix.

    That is half of the product of two scaled gradients, from either half of the chains: noise makes none on average.
    """
    moments.load(w)
    mixed = moments.mixes()
    count = moments.num_chains
    halves = np.zeros((2, count))
    halves[0, : count // 2] = count / (count // 2)
    halves[1, count // 2 :] = count / (count - count // 2)
    exact = loss.evaluate(w, clock)[1]
    sums = np.zeros((2, len(w)))
    for _ in range(num_rounds):
        clock.check()
        moments.sweep(SWEEPS)
        for out, weights in zip(sums, halves, strict=True):
            out += moments.gradient(weights)
    first, second = (exact + sums / (num_rounds * loss.num_examples)) / scales
    return max(0.0, 0.5 * float(first @ second)), mixed
