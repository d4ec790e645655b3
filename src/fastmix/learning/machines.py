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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import check_memory
from fastmix.chains.base import Chains
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.learning.optimise import Report
from fastmix.learning.sampled import Sampled, autocorrelations, start_chains
from fastmix.model.structure import Structure

__all__ = ["MACHINE_CHAINS", "is_machine", "learn_machine"]

FloatArray = NDArray[np.float64]

MACHINE_CHAINS = 128  # and as many rows at a time
_EPOCHS = 30  # passes through the data
_STEP = 0.02  # of the first steps, in standard deviations of the features
_FORGET, _FORGET_SQUARES = 0.5, 0.995  # of the running means of the gradient and of its squares
_LEAST = 1e-4  # gradient below which steps get no longer
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

    After every pass ``keep`` gets all that is needed to go on from there, which ``saved`` gives back.

    Notes
    -----
    A step costs six products of a matrix of bits (rows or chains, visible) or (chains, hidden) with one of weights.
    """
    run = _Machine(chains, data, coordinates, v, hidden, ridge)
    epochs = max_iter or _EPOCHS
    result = Sampled(v, num_chains=chains.num_chains, stopped_by="done")
    snapshot = saved
    if saved is None:
        start_chains(chains, data, coordinates.structure.num_states, np.random.default_rng([seed, 2]))
    else:
        run.restore(saved[0])
        result.num_rounds, result.num_sweeps = saved[1]["num_rounds"], saved[1]["num_sweeps"]
        result.moment_error = saved[1]["moment_error"]
    batch = min(len(data.states), chains.num_chains)
    per_epoch = -(-len(data.states) // batch)
    try:
        for epoch in range(result.num_rounds, epochs):
            order = np.random.default_rng([seed, 2, epoch]).permutation(len(data.states))
            run.clear()
            for k in range(per_epoch):
                # The time that is left ends the decrease of the steps too.
                done = max((epoch + k / per_epoch) / epochs, clock.seconds() / clock.limit if clock.limit else 0.0)
                run.step(order[k * batch : (k + 1) * batch], _STEP * max(0.0, 1.0 - done))
                clock.check()
            result.num_rounds, result.num_sweeps = epoch + 1, result.num_sweeps + per_epoch
            norm, result.moment_error = run.errors()
            entry = {
                "iteration": epoch + 1, "gradient_norm": norm, "moment_error": result.moment_error,
                "step": _STEP * max(0.0, 1.0 - (epoch + 1) / epochs), "num_sweeps": per_epoch, "bias_bound": None,
            }  # fmt: skip
            if keep is not None:
                names = ("num_rounds", "num_sweeps", "moment_error")
                snapshot = run.pack(), {name: getattr(result, name) for name in names}
            if report is not None:
                report(entry, run.coordinates_of())
            if keep is not None and snapshot is not None:
                keep(*snapshot, now=False)
    except OutOfTimeError:
        result.stopped_by = "time_limit"
    except KeyboardInterrupt:
        result.stopped_by = "interrupt"
    if keep is not None and snapshot is not None:
        keep(*snapshot, now=True)
    result.v = run.coordinates_of()
    result.gap = result.noise = math.nan
    chains.clock = NO_LIMIT
    chains.load(coordinates.to_parameters(result.v))
    result.correlations, result.mixed = autocorrelations(
        chains.sweep, lambda: np.asarray(chains.energies()[0]), lambda: None
    )
    return result


class _Machine:
    """Parameters, centred, and their running means.

    The log-weight is ``(v - mu)' W (h - 1/2) + beta' v + gamma' h``.
    """

    def __init__(
        self, chains: Chains, data: Dataset, coordinates: Coordinates, v: FloatArray, hidden: int, ridge: float
    ) -> None:
        from fastmix.chains.layer_kernels import WIDTH

        self.chains, self.coordinates, self.ridge = chains, coordinates, ridge
        structure = coordinates.structure
        self.hidden, self.visible = hidden, structure.num_variables - hidden
        self.tiles = -(-(hidden + 1) // WIDTH)  # one more column than there are hidden variables adds the visible up
        rows = len(data.states)
        check_memory(
            float(rows * self.visible) + 64.0 * self.visible * self.tiles * WIDTH + 8.0 * rows,
            "the data and the weights", "learn from fewer rows",
        )  # fmt: skip
        self.bits = np.ascontiguousarray(data.states[:, : self.visible].astype(np.uint8))
        assert not (data.states[:, : self.visible] == MISSING).any()
        self.row_weights = data.weights * rows
        self.mu = (data.weights @ self.bits).astype(np.float32)
        # Places of the edges in W, which has columns for whole tiles; those that are no edges stay 0.
        i, j = structure.edges.T
        self.places = i * (self.tiles * WIDTH) + j - self.visible
        self.mask = np.zeros((self.visible, self.tiles * WIDTH), dtype=np.float32)
        self.mask.reshape(-1)[self.places] = 1.0
        self.complete = len(i) == self.visible * hidden
        d = coordinates.num_contrasts
        self.W = np.zeros_like(self.mask)
        self.W.reshape(-1)[self.places] = 2.0 * v[d:]  # a table of contrasts is half the weight of two bits
        centres = np.sqrt(2.0) * v[:d]  # fields where all others are 1/2
        self.beta = centres[: self.visible].astype(np.float32)
        self.gamma = np.zeros(self.W.shape[1], dtype=np.float32)
        self.gamma[:hidden] = centres[self.visible :]
        self.gamma -= (0.5 - self.mu) @ self.W
        shapes = self.W.shape, self.beta.shape, self.gamma.shape
        self.means = [np.zeros(shape, dtype=np.float32) for shape in shapes]
        self.squares = [np.zeros(shape, dtype=np.float32) for shape in shapes]
        self.sums = [np.zeros(shape, dtype=np.float32) for shape in shapes]
        self.steps = self.collected = 0
        self.table = np.zeros((self.tiles, -(-self.visible // 4), 16, WIDTH), dtype=np.float32)
        spread = np.sqrt(np.maximum(self.mu * (1.0 - self.mu), 1e-2))
        self.scales = [(2.0 / spread).astype(np.float32), (1.0 / spread).astype(np.float32)]

    def pack(self) -> dict[str, NDArray[Any]]:
        """All that :meth:`restore` needs."""
        parts = dict(zip(_ARRAYS, (self.W, self.beta, self.gamma, *self.means, *self.squares), strict=True))
        arrays = {name: part.copy() for name, part in parts.items()}
        return arrays | {
            "steps": np.array(self.steps), "states": self.chains.get_states(), "streams": self.chains.get_random_state()
        }  # fmt: skip

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from what :meth:`pack` gave."""
        self.W, self.beta, self.gamma, *rest = (arrays[name] for name in _ARRAYS)
        self.means, self.squares, self.steps = rest[:3], rest[3:], int(arrays["steps"])
        self.chains.set_states(arrays["states"])
        self.chains.set_random_state(arrays["streams"])

    def clear(self) -> None:
        """Begin the mean of the gradient anew."""
        for total in self.sums:
            total[...] = 0.0
        self.collected = 0

    def step(self, rows: NDArray[np.int64], size: float) -> None:
        """One sweep of the chains, and a step along the gradient."""
        from fastmix.learning.kernels import scaled_step

        chains = self.chains
        c = self.gamma - self.mu @ self.W
        linear = np.concatenate([self.beta - 0.5 * self.W.sum(axis=1), c[: self.hidden]]).astype(np.float64)
        chains.load_bits(linear, self._products())
        chains.sweep(1)
        count = chains.num_chains
        weights = np.concatenate([self.row_weights[rows] / len(rows), np.full(count, -1.0 / count)])
        products, of_hidden, of_visible = self.conditional_moments(
            self.bits[rows], chains.get_bits(self.visible), weights, c
        )
        self.steps += 1
        self.collected += 1
        correct = (1.0 - _FORGET**self.steps, 1.0 - _FORGET_SQUARES**self.steps)
        constants = np.array(
            [size / correct[0], 1.0 / correct[1], _FORGET, _FORGET_SQUARES, _LEAST, 0.25 * self.ridge],
            dtype=np.float32,
        )
        centre = (0.5 * self.ridge) * (self.gamma + (0.5 - self.mu) @ self.W)  # of the penalty of hidden fields
        scaled_step(
            self.W, self.beta, self.gamma, products, of_visible, of_hidden, self.mu, centre.astype(np.float32),
            self.mask, *self.means, *self.squares, *self.sums, *self.scales, constants,
        )  # fmt: skip

    def conditional_moments(
        self, rows: NDArray[np.uint8], lanes: NDArray[np.uint8], weights: FloatArray, c: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
        """Sums of ``weight * v E[h | v]'``, of ``weight * E[h | v]`` and of ``weight * v``.

        Over rows (any number, visible) of bits v, and lanes (visible, any number).
        """
        from fastmix.chains.layer_kernels import WIDTH, add_fields, fill_patterns, patterns_of, row_patterns, to_means

        fill_patterns(self.W, self.table)
        groups, first, second = self.table.shape[1], len(rows), lanes.shape[1]
        sites, none = np.arange(max(first, self.visible)), np.zeros(max(second, self.visible), dtype=np.uint8)
        # Patterns of visible variables for every row, and of rows for every visible variable.
        parts = [np.empty((groups, count), dtype=np.uint8) for count in (first, second)]
        row_patterns(rows, parts[0])
        patterns_of(lanes, sites[: self.visible], none[:second], parts[1])
        by_visible = np.hstack(parts)
        parts = [np.empty((-(-count // 4), self.visible), dtype=np.uint8) for count in (first, second)]
        patterns_of(rows, sites[:first], none[: self.visible], parts[0])
        row_patterns(lanes, parts[1])
        by_rows, split = np.vstack(parts), len(parts[0])
        products, means = np.empty_like(self.W), np.empty_like(self.gamma)
        sums = np.zeros((len(by_rows), 16, WIDTH), dtype=np.float32)
        for tile in range(self.tiles):
            part = slice(tile * WIDTH, (tile + 1) * WIDTH)
            fields = np.tile(c[part], (first + second, 1))
            add_fields(by_visible, self.table[tile], fields)
            count = min(WIDTH, self.hidden - tile * WIDTH)
            to_means(fields, count, weights)
            if count < WIDTH:
                fields[:, count] = weights
            means[part] = fields.sum(axis=0)
            fill_patterns(fields[:first], sums[None, :split])
            fill_patterns(fields[first:], sums[None, split:])
            out = np.zeros((self.visible, WIDTH), dtype=np.float32)
            add_fields(by_rows, sums, out)
            if self.tiles == 1:
                products = out
            else:
                products[:, part] = out
        of_visible = products[:, self.hidden].copy()
        means[self.hidden :] = 0.0
        return products, means, of_visible

    def _products(self) -> NDArray[np.float32]:
        """Weights of the edges."""
        return self.W[:, : self.hidden].reshape(-1) if self.complete else self.W.reshape(-1)[self.places]

    def errors(self) -> tuple[float, float]:
        """The largest entry of the mean gradient, and of the mean difference of moments (penalties left out)."""
        gradient = [total / max(1, self.collected) for total in self.sums]
        return float(max(np.abs(g).max(initial=0.0) for g in gradient)), float(self.last_difference)

    @property
    def last_difference(self) -> float:
        """Largest difference of moments of the last epoch, from the mean gradient with the penalties taken off."""
        W, beta, gamma = (total / max(1, self.collected) for total in self.sums)
        centre = self.gamma + (0.5 - self.mu) @ self.W
        hidden = gamma + 0.5 * self.ridge * centre
        visible = beta + 0.5 * self.ridge * self.beta
        pairs = W + 0.25 * self.ridge * self.W + np.outer(0.5 - self.mu, 0.5 * self.ridge * centre)
        pairs += np.outer(self.mu, hidden) + 0.5 * visible[:, None]
        pairs *= self.mask
        return max(float(np.abs(part).max(initial=0.0)) for part in (pairs, visible, hidden[: self.hidden]))

    def coordinates_of(self) -> FloatArray:
        """The vector v of the parameters."""
        d = self.coordinates.num_contrasts
        result = np.empty(self.coordinates.size)
        result[d:] = 0.5 * self.W.reshape(-1)[self.places]
        centre = self.gamma + (0.5 - self.mu) @ self.W
        result[:d] = np.sqrt(0.5) * np.concatenate([self.beta, centre[: self.hidden]])
        return result
