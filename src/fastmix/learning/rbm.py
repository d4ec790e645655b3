"""Restricted Boltzmann machines by persistent chains and small steps (Tieleman 2008), for many variables and rows.

The gradient of the mean log-likelihood is ``E[v E[h | v]']`` over the data minus the same over the model. The first
expectation is taken over a few rows at a time, the second over the visible states of chains that go on while the
parameters change. Given v, hidden variables are independent: their means are exact. Variables are centered, the visible
ones at their means over the data and the hidden ones at 1/2, which makes the gradient much better conditioned
(Melchior, Fischer and Wiskott, 2016), and steps are scaled for every parameter by the size of its gradients (Kingma and
Ba, 2015). They decrease to 0 over the passes through the data, so that chains and parameters agree in the end.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import Context
from fastmix._memory import aligned_zeros, check_memory
from fastmix.chains.base import Chains
from fastmix.chains.generator import make_streams
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.persistent import autocorrelations, start_chains
from fastmix.learning.resume import Rounds, Saved
from fastmix.learning.sampled import Sampled
from fastmix.learning.tuning import (
    RBM_FORGET,
    RBM_FORGET_SQUARES,
    RBM_MIN_GRADIENT,
    RBM_MIN_VARIANCE,
    RBM_PASSES,
    RBM_PRODUCTS_PER_CALL,
    RBM_STEP,
)
from fastmix.model.structure import Structure

__all__ = ["Machine", "is_machine", "learn_machine"]


#: Number of the first stream of random numbers, which no chain of its own has.
FIRST_STREAM = 1 << 40
#: Facts that are carried from pass to pass.
CARRIED = ("num_rounds", "num_sweeps", "moment_error")
#: Names of the arrays that are carried from pass to pass.
ARRAYS = (
    "W", "beta", "gamma", "mean 0", "mean 1", "mean 2", "square 0", "square 1", "square 2",
)  # fmt: skip


def is_machine(structure: Structure, hidden: int) -> bool:
    """Whether visible bits are joined to hidden ones only, and to most of them, which come last."""
    visible = structure.num_variables - hidden
    if hidden <= 0 or visible <= 0 or not (structure.num_states == 2).all():
        return False
    first, last = structure.edges.T
    return bool((first < visible).all() and (last >= visible).all()) and 2 * len(first) >= visible * hidden


def learn_machine(
    chains: Chains,
    data: Dataset,
    coordinates: Coordinates,
    v: FloatArray,
    *,
    ridge: float,
    num_passes: int | None,
    context: Context,
    clock: Clock,
    rounds: Rounds,
) -> Sampled:
    """The parameters after some passes through the data, whose rows have no values for the hidden variables.

    The ``chains`` say where to begin, on which device, and in the end whether such chains follow. A step costs five
    products of a matrix of bits (rows or chains, visible) or (chains, hidden) with one of weights.
    """
    machine_of = Machine
    if chains.device != "cpu":
        from fastmix.learning.cuda import rbm  # importing Numba takes half a second

        machine_of = rbm.Machine
    machine = machine_of(data, coordinates, v, data.num_hidden, ridge, chains.num_chains, context.seed_of("machine"))
    num_passes = num_passes or RBM_PASSES
    result = Sampled(v, num_chains=chains.num_chains, stopped_by="done")
    if rounds.saved is None:
        start_chains(chains, data, coordinates.structure.num_states, context.rng("starts"))
        machine.start(chains.get_states()[:, : machine.visible])
    else:
        arrays, facts = rounds.saved
        machine.restore(arrays)
        for name in CARRIED:
            setattr(result, name, facts[name])
    with rounds.around(result):
        for k in range(result.num_rounds, num_passes):
            order = context.rng("order of rows", k).permutation(len(data.states))
            entry = _one_pass(machine, result, order, k, num_passes, clock)
            rounds.end(entry, machine.v(), partial(_saved, machine, result))
    machine.fetch()
    result.v = machine.v()
    result.gap = math.nan
    result.noise = math.nan
    _try_chains(chains, machine, result)
    return result


def _saved(machine: Machine, result: Sampled) -> Saved:
    """What is needed to go on after the last pass."""
    return machine.pack(), {name: getattr(result, name) for name in CARRIED}


def _one_pass(
    machine: Machine, result: Sampled, order: IntArray, k: int, num_passes: int, clock: Clock
) -> dict[str, Any]:
    """Make pass k through the rows in an order; an entry of the history."""
    per_pass = -(-len(order) // machine.batch)
    machine.clear()
    for first in range(0, per_pass, machine.steps_per_call):
        # The time that is left ends the decrease of the steps too.
        spent = clock.seconds() / clock.limit if clock.limit else 0.0
        steps = np.arange(first, min(per_pass, first + machine.steps_per_call))
        done = np.maximum((k + steps / per_pass) / num_passes, spent)
        rows = order[first * machine.batch : (first + machine.steps_per_call) * machine.batch]
        machine.advance(rows, RBM_STEP * np.maximum(0.0, 1.0 - done))
        clock.check()
    machine.fetch()
    result.num_rounds = k + 1
    result.num_sweeps += per_pass
    norm, result.moment_error = machine.errors()
    return {
        "iteration": k + 1,
        "gradient_norm": norm,
        "moment_error": result.moment_error,
        "step": RBM_STEP * max(0.0, 1.0 - (k + 1) / num_passes),
        "num_sweeps": per_pass,
        "bias_bound": None,
    }


def _try_chains(chains: Chains, machine: Machine, result: Sampled) -> None:
    """See whether chains follow the model that was found, from where those of the machine are."""
    chains.clock = NO_LIMIT
    chains.set_states(machine.states())
    chains.load(machine.coordinates.to_parameters(result.v))

    def energies() -> FloatArray:
        """Log-weights of all chains."""
        return np.asarray(chains.energies()[0])

    result.correlations, result.mixed = autocorrelations(chains.sweep, energies, lambda: None)


class Machine:
    """Parameters, centered, their running means, and chains; on the CPU.

    The log-weight is ``(v - mu)' W (h - 1/2) + beta' v + gamma' h``, with W (visible, columns) in single precision;
    there are columns for whole groups of 16, one more than hidden variables at least. ``means``, ``squares`` and
    ``sums`` are running means of the gradient and of its squares, and its sum over the ``collected`` steps of a pass,
    each for W, beta and gamma.
    """

    products_per_call = RBM_PRODUCTS_PER_CALL

    def __init__(
        self, data: Dataset, coordinates: Coordinates, v: FloatArray, hidden: int, ridge: float, num_chains: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.coordinates = coordinates
        self.ridge = ridge
        self.num_chains = num_chains
        self.seed = seed
        self.hidden = hidden
        self.visible = coordinates.structure.num_variables - hidden
        num_rows = len(data.states)
        self.batch = min(num_rows, num_chains)
        self.steps_per_call = max(
            1, int(self.products_per_call / (5.0 * num_chains * self.visible * (hidden + 1)))
        )  # fmt: skip
        self._make_weights(num_rows)
        self.bits = data.states[:, : self.visible].astype(np.uint8)
        assert not (data.states[:, : self.visible] == MISSING).any()
        self.row_weights = data.weights * num_rows
        self.mu = (data.weights @ self.bits).astype(np.float32)
        self._take_parameters(v)
        self.steps = 0
        self.collected = 0
        spread = np.sqrt(np.maximum(self.mu * (1.0 - self.mu), RBM_MIN_VARIANCE))
        self.scales = [(2.0 / spread).astype(np.float32), (1.0 / spread).astype(np.float32)]
        self._prepare()

    def _make_weights(self, num_rows: int) -> None:
        """Make W, its running means and its sum, and the mask of the weights that are parameters."""
        from fastmix.chains.layer_kernels import LANES, ROWS

        columns = ROWS * (self.hidden // ROWS + 1)
        check_memory(
            2.0 * self.visible * num_rows + 32.0 * (self.visible + self.num_chains) * columns + 8.0 * num_rows,
            "the data and the weights",
            "learn from fewer rows",
        )
        # Places of the edges in W; those that are no edges stay 0.
        i, j = self.coordinates.structure.edges.T
        self.places = (i, j - self.visible)
        is_complete = len(i) == self.visible * self.hidden
        # All are kept by columns, which end with whole blocks of lanes.
        padded = LANES * -(-self.visible // LANES)
        self._mask = aligned_zeros((1 if is_complete else columns, padded), np.float32)
        self._weights = aligned_zeros((4, columns, padded), np.float32)
        self.mask = self._mask.T[: self.visible]
        self.mask[(i, 0) if len(self._mask) == 1 else self.places] = 1.0

    def _take_parameters(self, v: FloatArray) -> None:
        """Let the parameters be v, and all running means 0."""
        d = self.coordinates.num_contrasts
        self.W, *parts_of_w = (part.T[: self.visible] for part in self._weights)
        self.W[self.places] = 2.0 * v[d:]  # a table of contrasts is half the weight of two bits
        centers = np.sqrt(2.0) * v[:d]  # fields where all others are 1/2
        self.beta = centers[: self.visible].astype(np.float32)
        self.gamma = np.zeros(self.W.shape[1], dtype=np.float32)
        self.gamma[: self.hidden] = centers[self.visible :]
        self.gamma -= (0.5 - self.mu) @ self.W
        self.means, self.squares, self.sums = (
            [part, np.zeros_like(self.beta), np.zeros_like(self.gamma)] for part in parts_of_w
        )

    def _prepare(self) -> None:
        """Make packed bits of the data, lanes for whole blocks of rows and chains, and what steps keep up to date."""
        from fastmix.chains.layer_kernels import LANES

        self.packed = _pack(self.bits)
        self.first_chain = LANES * -(-self.batch // LANES)
        chain_lanes = LANES * -(-self.num_chains // LANES)
        self.words = aligned_zeros((self.packed.shape[1], self.first_chain + chain_lanes), np.uint32)
        self.hidden_words = aligned_zeros((-(-self.hidden // 32), chain_lanes), np.uint32)
        self.streams = make_streams(self.seed, FIRST_STREAM, chain_lanes)
        # Fields where the other layer is 0, and sums of columns, which steps keep up to date.
        hidden_offsets = self.gamma - self.mu @ self.W
        visible_offsets = self.beta - 0.5 * self.W.sum(axis=1)
        self._derived: tuple[NDArray[np.float32], ...] = (hidden_offsets, visible_offsets, self.W.sum(axis=0))

    # -- chains -------------------------------------------------------------------------------------------------------

    def start(self, visible: NDArray[Any]) -> None:
        """Let the chains go on from visible states (chains, visible)."""
        self.words[:, self.first_chain :][:, : self.num_chains] = _pack(visible.astype(np.uint8)).T

    def states(self) -> NDArray[Any]:
        """Configurations of the chains, (chains, variables)."""
        visible = self.words[:, self.first_chain :][:, : self.num_chains]
        hidden = self.hidden_words[:, : self.num_chains]
        return np.hstack([_unpack(visible.T, self.visible), _unpack(hidden.T, self.hidden)])

    # -- going on later -----------------------------------------------------------------------------------------------

    def pack(self) -> dict[str, NDArray[Any]]:
        """All arrays that :meth:`restore` needs."""
        arrays = {name: part.copy() for name, part in {**self._carried_parts(), **self._more()}.items()}
        return {**arrays, "steps": np.array(self.steps), "states": self.states()[:, : self.visible]}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`pack` gave."""
        for name, part in self._carried_parts().items():
            part[...] = arrays[name]
        self.steps = int(arrays["steps"])
        self.start(arrays["states"])
        for name, part in self._more().items():
            part[...] = arrays[name]

    def _carried_parts(self) -> dict[str, NDArray[Any]]:
        """Parameters and running means by their names in a checkpoint."""
        parts = (self.W, self.beta, self.gamma, *self.means, *self.squares)
        return dict(zip(ARRAYS, parts, strict=True))

    def _more(self) -> dict[str, NDArray[Any]]:
        """What a run carries on beside parameters and chains."""
        return {"streams": self.streams, **{f"derived {k}": part for k, part in enumerate(self._derived)}}

    # -- steps --------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Begin the mean of the gradient anew."""
        for total in self.sums:
            total[...] = 0.0
        self.collected = 0

    def constants(self, sizes: FloatArray) -> NDArray[np.float32]:
        """Constants of every step to come, (steps, 6): its size, factors of the running means, and penalties."""
        number = self.steps + 1.0 + np.arange(len(sizes))
        mean_share = 1.0 - RBM_FORGET**number
        square_share = 1.0 - RBM_FORGET_SQUARES**number
        fixed = [RBM_FORGET, RBM_FORGET_SQUARES, RBM_MIN_GRADIENT, 0.25 * self.ridge]
        rest = np.tile(fixed, (len(sizes), 1))
        return np.column_stack([sizes / mean_share, 1.0 / square_share, rest]).astype(np.float32)

    def advance(self, rows: NDArray[np.int64], sizes: FloatArray) -> None:
        """Make steps of these sizes along gradients over so many batches of rows, and of the chains: one sweep each."""
        from fastmix.learning.rbm_kernels import machine_steps

        machine_steps(
            self.packed,
            rows,
            self.row_weights,
            self.num_chains,
            (self.words, self.hidden_words, self.streams, self.batch),
            (self._weights, self.beta, self.gamma, *self._derived),
            (self.mu, self._mask, *self.scales, self.hidden),
            tuple(self.means[1:]),
            tuple(self.squares[1:]),
            tuple(self.sums[1:]),
            self.constants(sizes),
        )
        self.steps += len(sizes)
        self.collected += len(sizes)

    def fetch(self) -> None:
        """Have parameters, running means and sums in the arrays of the host."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def errors(self) -> tuple[float, float]:
        """The largest entry of the mean gradient, and of the mean difference of moments (penalties left out)."""
        W, beta, gamma = (total / max(1, self.collected) for total in self.sums)
        center = self.gamma + (0.5 - self.mu) @ self.W
        hidden = gamma + 0.5 * self.ridge * center
        visible = beta + 0.5 * self.ridge * self.beta
        pairs = W + 0.25 * self.ridge * self.W + np.outer(0.5 - self.mu, 0.5 * self.ridge * center)
        pairs += np.outer(self.mu, hidden) + 0.5 * visible[:, None]
        pairs = (pairs * self.mask)[:, : self.hidden]
        norm = max(float(np.abs(part).max(initial=0.0)) for part in (W, beta, gamma))
        error = max(float(np.abs(part).max(initial=0.0)) for part in (pairs, visible, hidden[: self.hidden]))
        return norm, error

    def v(self) -> FloatArray:
        """The vector v of the parameters, in coordinates."""
        d = self.coordinates.num_contrasts
        result = np.empty(self.coordinates.size)
        result[d:] = 0.5 * self.W[self.places]
        center = self.gamma + (0.5 - self.mu) @ self.W
        result[:d] = np.sqrt(0.5) * np.concatenate([self.beta, center[: self.hidden]])
        return result


def _pack(bits: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Words (rows, variables / 32) of bits (rows, variables)."""
    rows, count = bits.shape
    words = np.zeros((rows, 4 * -(-count // 32)), dtype=np.uint8)
    words[:, : -(-count // 8)] = np.packbits(bits, axis=1, bitorder="little")
    return words.view("<u4").astype(np.uint32, copy=False)


def _unpack(words: NDArray[np.uint32], count: int) -> NDArray[np.uint8]:
    """Bits (rows, count) of words (rows, count / 32)."""
    plain = np.ascontiguousarray(words, dtype="<u4").view(np.uint8)
    return np.unpackbits(plain, axis=1, count=count, bitorder="little")
