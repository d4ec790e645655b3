"""Averages at any temperature from draws at several: multistate acceptance ratios (Shirts and Chodera, 2008).

All draws count as draws of one mixture, ``q(x) = mean_r exp(b_r w(x)) / Z_r`` over the R rungs with the inverse
temperatures b_r, where w is the log-weight. The normalizers are those at which every rung has its share of the mixture,
the root of ``sum_n exp(b_r w_n - f_r) / (R q_n) = N_r`` with ``f_r = log Z_r`` (Shirts and Chodera, "Statistically
optimal analysis of samples from multiple equilibrium states", Journal of Chemical Physics 129, 124105). An average at
the inverse temperature b is then that of draws weighted by ``exp(b w) / q``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastmix._arrays import FloatArray

__all__ = ["Reweighting"]

_MAX_STEPS = 100  # of Newton's method, which takes about five where rungs overlap
_TOLERANCE = 1e-11  # share of the draws by which a rung may differ from its own number of them


class Reweighting:
    """Draws at R rungs in G blocks of M draws, as weighted draws at T other inverse temperatures.

    What would be found without a block follows from one step of Newton's method away from the normalizers of all
    blocks, to first order in the change that the step makes.

    Parameters
    ----------
    log_weights : float array (R, G, M)
    rungs, targets : float array (R,) and (T,)
        Inverse temperatures.
    log_z : float array (R,)
        A first guess of the logarithms of the normalizers.

    Attributes
    ----------
    log_z : float array (R,)
        The logarithms of the normalizers, the first as it was given.
    overlaps : float array (R, R)
        Entry (r, s) is the mean over the draws of rung r of the share that rung s has in the mixture there.
    effective_draws : float array (T,)
        Draws that would be worth as much, ``(sum weights)^2 / sum weights^2``.
    """

    def __init__(self, log_weights: FloatArray, rungs: FloatArray, targets: FloatArray, log_z: FloatArray) -> None:
        self.log_weights = log_weights
        self.rungs = rungs
        self.targets = targets
        self.num_rungs, self.num_blocks, self.length = log_weights.shape
        self.log_z = self._solve(np.array(log_z, dtype=np.float64))
        self._find_changes()
        self._find_scales()

    def _blocks(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Log-weights (R M,) of every block, log q there but for log R, and the shares (R M, R) of the rungs in it."""
        for block in range(self.num_blocks):
            weights = self.log_weights[:, block].reshape(-1)
            logs = np.multiply.outer(weights, self.rungs) - self.log_z
            top = logs.max(axis=1)
            shares = np.exp(logs - top[:, None])
            total = shares.sum(axis=1)
            shares /= total[:, None]
            yield weights, top + np.log(total), shares

    def _state(self, log_z: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The convex function whose minimum the normalizers are, its gradient, and its second derivatives."""
        self.log_z = log_z
        draws = self.num_blocks * self.length
        value = float(draws * log_z.sum())
        sums = np.zeros(self.num_rungs)
        products = np.zeros((self.num_rungs, self.num_rungs))
        for _, log_mixture, shares in self._blocks():
            value += float(log_mixture.sum())
            sums += shares.sum(axis=0)
            products += shares.T @ shares
        return value, draws - sums, np.diag(sums) - products

    def _solve(self, log_z: FloatArray) -> FloatArray:
        """The normalizers by Newton's method, with shorter steps where a whole one leads upward."""
        log_z = np.where(np.isfinite(log_z), log_z, 0.0)
        value, gradient, curvature = self._state(log_z)
        draws = self.num_blocks * self.length
        for _ in range(_MAX_STEPS):
            if np.abs(gradient).max() <= _TOLERANCE * draws:
                break
            step = -_solved(curvature, gradient)
            length = 1.0
            while True:
                trial = self._state(log_z + length * step)
                if trial[0] <= value or length < 1e-6:
                    break
                length *= 0.5
            log_z = log_z + length * step
            value, gradient, curvature = trial
        self._curvature = curvature
        return log_z

    def _find_changes(self) -> None:
        """By how much every normalizer changes where a block is left out, (G, R), and how rungs overlap."""
        sums = np.empty((self.num_blocks, self.num_rungs))
        products = np.empty((self.num_blocks, self.num_rungs, self.num_rungs))
        for block, (_, _, shares) in enumerate(self._blocks()):
            sums[block] = shares.sum(axis=0)
            products[block] = shares.T @ shares
        self.overlaps = products.sum(axis=0) / (self.num_blocks * self.length)
        self._changes = np.zeros((self.num_blocks, self.num_rungs))
        for block in range(self.num_blocks):
            curvature = self._curvature - np.diag(sums[block]) + products[block]
            self._changes[block] = -_solved(curvature, sums[block] - self.length)

    def _find_scales(self) -> None:
        """The largest log-weight of a draw at every target, which weights are divided by, and the effective draws."""
        self._scales = np.full(len(self.targets), -np.inf)
        for weights, log_mixture, _ in self._blocks():
            logs = np.multiply.outer(self.targets, weights) - log_mixture
            np.maximum(self._scales, logs.max(axis=1), out=self._scales)
        first = np.zeros(len(self.targets))
        second = np.zeros(len(self.targets))
        for weights, log_mixture, _ in self._blocks():
            at_targets = self._weights(weights, log_mixture)
            first += at_targets.sum(axis=1)
            second += (at_targets**2).sum(axis=1)
        self.effective_draws = first**2 / second

    def _weights(self, weights: FloatArray, log_mixture: FloatArray) -> FloatArray:
        """Weights (T, R M) of the draws of a block at the targets, the largest of all blocks is 1."""
        logs = np.multiply.outer(self.targets, weights) - log_mixture
        return np.asarray(np.exp(logs - self._scales[:, None]))

    def sums(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Weighted sums of values (R, G, M, Q) at the targets: (T, Q), and without each block, (G, T, Q)."""
        num_targets = len(self.targets)
        num_values = values.shape[-1]
        own = np.empty((self.num_blocks, num_targets, num_values))
        by_rung = np.empty((self.num_blocks, num_targets, self.num_rungs, num_values))
        for block, (weights, log_mixture, shares) in enumerate(self._blocks()):
            of_block = values[:, block].reshape(-1, num_values)
            at_targets = self._weights(weights, log_mixture)
            own[block] = at_targets @ of_block
            for rung in range(self.num_rungs):
                by_rung[block, :, rung] = (at_targets * shares[:, rung]) @ of_block
        whole = own.sum(axis=0)
        # Without a block the mixture is smaller by the share of each rung times the change of its normalizer.
        others = by_rung.sum(axis=0) - by_rung
        left_out = whole - own + np.einsum("gr,gtrq->gtq", self._changes, others)
        return whole, left_out

    def means(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Averages of values (R, G, M, Q) at the targets: (T, Q), and without each block, (G, T, Q)."""
        ones = np.ones((*values.shape[:-1], 1))
        whole, left_out = self.sums(np.concatenate([values, ones], axis=-1))
        return whole[..., :-1] / whole[..., -1:], left_out[..., :-1] / left_out[..., -1:]

    def log_ratios(self) -> tuple[FloatArray, FloatArray]:
        """Log Z at the targets less that at the first rung: (T,), and without each block, (G, T)."""
        whole, left_out = self.sums(np.ones((*self.log_weights.shape, 1)))
        draws = self.num_blocks * self.length
        scales = self._scales - self.log_z[0]
        logs = np.log(whole[..., 0] / draws) + scales
        logs_left_out = np.log(left_out[..., 0] / (draws - self.length)) + scales
        return logs, logs_left_out


def _solved(curvature: FloatArray, gradient: FloatArray) -> FloatArray:
    """The step that the gradient asks for, with the first normalizer as it is: only ratios are determined."""
    step = np.zeros(len(gradient))
    step[1:] = np.linalg.lstsq(curvature[1:, 1:], gradient[1:], rcond=None)[0]
    return step
