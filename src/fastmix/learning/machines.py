"""Restricted Boltzmann machines by persistent chains and small steps (Tieleman 2008), for many variables and rows.

The gradient of the mean log-likelihood is ``E[v E[h | v]']`` over the data minus the same over the model. The first
expectation is taken over a few rows at a time, the second over the visible states of chains that go on while the
parameters change. Given v, hidden variables are independent: their means are exact. Variables are centred, the visible
ones at their means over the data and the hidden ones at 1/2, which makes the gradient much better conditioned
(Melchior, Fischer and Wiskott, 2016), and steps are scaled for every parameter by the size of its gradients (Kingma and
Ba, 2015). They decrease to 0 over the passes through the data, so that chains and parameters agree in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import aligned_zeros, check_memory
from fastmix.chains.base import Chains
from fastmix.chains.generator import make_streams
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.optimise import Report
from fastmix.learning.resume import Rounds
from fastmix.learning.sampled import Sampled, autocorrelations, start_chains
from fastmix.model.structure import Structure

__all__ = ["MACHINE_CHAINS", "Machine", "is_machine", "learn_machine"]


MACHINE_CHAINS = 128  # and as many rows at a time
_EPOCHS = 30  # passes through the data
_STEP = 0.02  # of the first steps, in standard deviations of the features
_FORGET, _FORGET_SQUARES = 0.5, 0.995  # of the running means of the gradient and of its squares
_LEAST = 1e-4  # gradient below which steps get no longer
_STREAMS = 1 << 40  # of random numbers, none of which a chain of its own has
_CARRIED = ("num_rounds", "num_sweeps", "moment_error")  # from pass to pass
_ARRAYS = ("W", "beta", "gamma", *(f"{kind} {k}" for kind in ("mean", "square") for k in range(3)))


def is_machine(structure: Structure, hidden: int) -> bool:
    """Whether visible bits are joined to hidden ones only, and to most of them, which come last."""
    visible = structure.num_variables - hidden
    edges = structure.edges
    return (
        hidden > 0
        and visible > 0
        and bool((structure.num_states == 2).all())
        and bool(((edges[:, 0] < visible) & (edges[:, 1] >= visible)).all())
        and 2 * len(edges) >= visible * hidden
    )


def learn_machine(
    chains: Chains,
    data: Dataset,
    coordinates: Coordinates,
    v: FloatArray,
    hidden: int,
    *,
    ridge: float,
    max_iter: int | None,
    seed: int,
    clock: Clock,
    report: Report | None,
    saved: tuple[dict[str, NDArray[Any]], dict[str, Any]] | None = None,
    keep: Callable[..., None] | None = None,
) -> Sampled:
    """The parameters after ``max_iter`` passes through the data, whose rows have no values for the hidden variables.

    The ``chains`` say where to begin, on which device, and in the end whether such chains follow. A step costs
    five products of a matrix of bits (rows or chains, visible) or (chains, hidden) with one of weights.
    """
    make = Machine
    if chains.device != "cpu":
        from fastmix.learning.machine_cuda import CudaMachine

        make = CudaMachine
    run = make(data, coordinates, v, hidden, ridge, chains.num_chains, seed)
    epochs = max_iter or _EPOCHS
    result = Sampled(v, num_chains=chains.num_chains, stopped_by="done")
    if saved is None:
        start_chains(chains, data, coordinates.structure.num_states, np.random.default_rng([seed, 2]))
        run.start(chains.get_states()[:, : run.visible])
    else:
        run.restore(saved[0])
        for name in _CARRIED:
            setattr(result, name, saved[1][name])
    per_epoch = -(-len(data.states) // run.batch)
    with Rounds(result, keep, report, saved) as rounds:
        for epoch in range(result.num_rounds, epochs):
            order = np.random.default_rng([seed, 2, epoch]).permutation(len(data.states))
            run.clear()
            for k in range(0, per_epoch, run.at_once):
                # The time that is left ends the decrease of the steps too.
                spent = clock.seconds() / clock.limit if clock.limit else 0.0
                done = np.maximum((epoch + np.arange(k, min(per_epoch, k + run.at_once)) / per_epoch) / epochs, spent)
                rows = order[k * run.batch : (k + run.at_once) * run.batch]
                run.advance(rows, _STEP * np.maximum(0.0, 1.0 - done))
                clock.check()
            run.fetch()
            result.num_rounds, result.num_sweeps = epoch + 1, result.num_sweeps + per_epoch
            norm, result.moment_error = run.errors()
            entry = {
                "iteration": epoch + 1, "gradient_norm": norm, "moment_error": result.moment_error,
                "step": _STEP * max(0.0, 1.0 - (epoch + 1) / epochs), "num_sweeps": per_epoch, "bias_bound": None,
            }  # fmt: skip
            carried = {name: getattr(result, name) for name in _CARRIED}
            rounds.end(entry, run.coordinates_of(), partial(run.pack, carried))
    run.fetch()
    result.v = run.coordinates_of()
    result.gap = result.noise = math.nan
    chains.clock = NO_LIMIT
    chains.set_states(run.states())
    chains.load(coordinates.to_parameters(result.v))
    result.correlations, result.mixed = autocorrelations(
        chains.sweep, lambda: np.asarray(chains.energies()[0]), lambda: None
    )
    return result


class Machine:
    """Parameters, centred, their running means, and chains; on the CPU.

    The log-weight is ``(v - mu)' W (h - 1/2) + beta' v + gamma' h``, with W (visible, columns) in single precision;
    there are columns for whole groups of 16, one more than hidden variables at least. ``means``, ``squares`` and
    ``sums`` are running means of the gradient and of its squares, and its sum over the ``collected`` steps of a pass.
    """

    most_products = 1e9  # of a call of advance, some hundredths of a second

    def __init__(
        self, data: Dataset, coordinates: Coordinates, v: FloatArray, hidden: int, ridge: float, num_chains: int,
        seed: int,
    ) -> None:  # fmt: skip
        from fastmix.chains.layer_kernels import LANES, ROWS

        self.coordinates, self.ridge, self.num_chains, self.seed = coordinates, ridge, num_chains, seed
        structure = coordinates.structure
        self.hidden, self.visible = hidden, structure.num_variables - hidden
        rows, columns = len(data.states), ROWS * (hidden // ROWS + 1)
        self.batch = min(rows, num_chains)
        self.at_once = max(1, int(self.most_products / (5.0 * num_chains * self.visible * (hidden + 1))))
        check_memory(
            2.0 * self.visible * rows + 32.0 * (self.visible + num_chains) * columns + 8.0 * rows,
            "the data and the weights", "learn from fewer rows",
        )  # fmt: skip
        self.bits = data.states[:, : self.visible].astype(np.uint8)
        assert not (data.states[:, : self.visible] == MISSING).any()
        self.row_weights = data.weights * rows
        self.mu = (data.weights @ self.bits).astype(np.float32)
        # Places of the edges in W; those that are no edges stay 0.
        i, j = structure.edges.T
        self.places = i, j - self.visible
        # W, its running means and its sum are kept by columns, which end with whole blocks of lanes.
        padded = LANES * -(-self.visible // LANES)
        self._mask = aligned_zeros((1 if len(i) == self.visible * hidden else columns, padded), np.float32)
        self._weights = aligned_zeros((4, columns, padded), np.float32)
        self.mask = self._mask.T[: self.visible]
        self.W, *of_weights = (part.T[: self.visible] for part in self._weights)
        self.mask[self.places if len(self._mask) > 1 else (i, 0)] = 1.0
        d = coordinates.num_contrasts
        self.W[self.places] = 2.0 * v[d:]  # a table of contrasts is half the weight of two bits
        centres = np.sqrt(2.0) * v[:d]  # fields where all others are 1/2
        self.beta = centres[: self.visible].astype(np.float32)
        self.gamma = np.zeros(columns, dtype=np.float32)
        self.gamma[:hidden] = centres[self.visible :]
        self.gamma -= (0.5 - self.mu) @ self.W
        self.means, self.squares, self.sums = (
            [part, np.zeros_like(self.beta), np.zeros_like(self.gamma)] for part in of_weights
        )
        self.steps = self.collected = 0
        spread = np.sqrt(np.maximum(self.mu * (1.0 - self.mu), 1e-2))
        self.scales = [(2.0 / spread).astype(np.float32), (1.0 / spread).astype(np.float32)]
        self._prepare()

    def _prepare(self) -> None:
        """Packed bits of the data, lanes for whole blocks of rows and of chains, and what steps keep up to date."""
        from fastmix.chains.layer_kernels import LANES

        self.packed = _pack(self.bits)
        self.first_chain, chains = (LANES * -(-count // LANES) for count in (self.batch, self.num_chains))
        self.words = aligned_zeros((self.packed.shape[1], self.first_chain + chains), np.uint32)
        self.hidden_words = aligned_zeros((-(-self.hidden // 32), chains), np.uint32)
        self.streams = make_streams(self.seed, _STREAMS, chains)
        # Fields where the other layer is 0, and sums of columns, which steps keep up to date.
        offsets = self.gamma - self.mu @ self.W, self.beta - 0.5 * self.W.sum(axis=1)
        self._derived: tuple[NDArray[np.float32], ...] = *offsets, self.W.sum(axis=0)

    def start(self, visible: NDArray[Any]) -> None:
        """Chains go on from visible states (chains, visible)."""
        self.words[:, self.first_chain :][:, : self.num_chains] = _pack(visible.astype(np.uint8)).T

    def states(self) -> NDArray[Any]:
        """Configurations of the chains, (chains, variables)."""
        parts = (self.words[:, self.first_chain :], self.visible), (self.hidden_words, self.hidden)
        return np.hstack([_unpack(words[:, : self.num_chains].T, count) for words, count in parts])

    def pack(self, facts: dict[str, Any]) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """All that :meth:`restore` needs, and some facts."""
        parts = dict(zip(_ARRAYS, (self.W, self.beta, self.gamma, *self.means, *self.squares), strict=True))
        arrays = {name: part.copy() for name, part in (parts | self._more()).items()}
        return arrays | {"steps": np.array(self.steps), "states": self.states()[:, : self.visible]}, facts

    def _more(self) -> dict[str, NDArray[Any]]:
        """What a run carries on beside parameters and chains."""
        return {"streams": self.streams, **{f"derived {k}": part for k, part in enumerate(self._derived)}}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`pack` gave."""
        parts = self.W, self.beta, self.gamma, *self.means, *self.squares
        for name, part in zip(_ARRAYS, parts, strict=True):
            part[...] = arrays[name]
        self.steps = int(arrays["steps"])
        self.start(arrays["states"])
        for name, part in self._more().items():
            part[...] = arrays[name]

    def clear(self) -> None:
        """Begin the mean of the gradient anew."""
        for total in self.sums:
            total[...] = 0.0
        self.collected = 0

    def constants(self, sizes: FloatArray) -> NDArray[np.float32]:
        """For every step to come: its size, factors of the running means, and penalties, (steps, 6)."""
        number = self.steps + 1.0 + np.arange(len(sizes))
        first, second = 1.0 - _FORGET**number, 1.0 - _FORGET_SQUARES**number
        rest = np.tile([_FORGET, _FORGET_SQUARES, _LEAST, 0.25 * self.ridge], (len(sizes), 1))
        return np.column_stack([sizes / first, 1.0 / second, rest]).astype(np.float32)

    def advance(self, rows: NDArray[np.int64], sizes: FloatArray) -> None:
        """Steps of these sizes along gradients over so many batches of rows, and of the chains: one sweep each."""
        from fastmix.learning.machine_kernels import machine_steps

        machine_steps(
            self.packed, rows, self.row_weights, self.num_chains,
            (self.words, self.hidden_words, self.streams, self.batch),
            (self._weights, self.beta, self.gamma, *self._derived),
            (self.mu, self._mask, *self.scales, self.hidden),
            *(tuple(parts[1:]) for parts in (self.means, self.squares, self.sums)), self.constants(sizes),
        )  # fmt: skip
        self.steps += len(sizes)
        self.collected += len(sizes)

    def fetch(self) -> None:
        """Have parameters, running means and sums in the arrays of the host."""

    def errors(self) -> tuple[float, float]:
        """The largest entry of the mean gradient, and of the mean difference of moments (penalties left out)."""
        W, beta, gamma = (total / max(1, self.collected) for total in self.sums)
        centre = self.gamma + (0.5 - self.mu) @ self.W
        hidden = gamma + 0.5 * self.ridge * centre
        visible = beta + 0.5 * self.ridge * self.beta
        pairs = W + 0.25 * self.ridge * self.W + np.outer(0.5 - self.mu, 0.5 * self.ridge * centre)
        pairs += np.outer(self.mu, hidden) + 0.5 * visible[:, None]
        pairs = (pairs * self.mask)[:, : self.hidden]
        parts = (W, beta, gamma), (pairs, visible, hidden[: self.hidden])
        norm, error = (max(float(np.abs(part).max(initial=0.0)) for part in some) for some in parts)
        return norm, error

    def coordinates_of(self) -> FloatArray:
        """The vector v of the parameters."""
        d = self.coordinates.num_contrasts
        result = np.empty(self.coordinates.size)
        result[d:] = 0.5 * self.W[self.places]
        centre = self.gamma + (0.5 - self.mu) @ self.W
        result[:d] = np.sqrt(0.5) * np.concatenate([self.beta, centre[: self.hidden]])
        return result


def _pack(bits: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Words (rows, variables / 32) of bits (rows, variables)."""
    rows, count = bits.shape
    words = np.zeros((rows, 4 * -(-count // 32)), dtype=np.uint8)
    words[:, : -(-count // 8)] = np.packbits(bits, axis=1, bitorder="little")
    return words.view("<u4").astype(np.uint32, copy=False)


def _unpack(words: NDArray[np.uint32], count: int) -> NDArray[np.uint8]:
    """Bits (rows, count) of words (rows, count / 32)."""
    return np.unpackbits(
        np.ascontiguousarray(words, dtype="<u4").view(np.uint8), axis=1, count=count, bitorder="little"
    )
