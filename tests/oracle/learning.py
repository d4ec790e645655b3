"""Slow, obvious versions of what learning computes: loops over rows, variables and configurations."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle
from fastmix import MarkovRandomField


def pseudo_log_likelihood(model: MarkovRandomField, row: NDArray[Any]) -> float:
    """``sum_i log p(x_i | x_others)`` from weights of whole configurations."""
    return sum(np.log(oracle.conditional(model, i, row)[s]) for i, s in enumerate(row))


def log_mass(model: MarkovRandomField, row: NDArray[Any]) -> float:
    """The log of the sum of the weights of all configurations that agree with a row where it is not -1."""
    return oracle.log_evidence(model, {i: s for i, s in enumerate(row) if s >= 0})


def log_likelihood(model: MarkovRandomField, rows: NDArray[Any]) -> NDArray[np.float64]:
    """Log-likelihood of every row, missing values summed over."""
    log_z = log_mass(model, np.full(model.num_variables, -1))
    return np.array([log_mass(model, row) - log_z for row in rows])


def random_model(num_states: list[int], edges: Any, seed: int, scale: float = 1.0) -> MarkovRandomField:
    return oracle.random_entries(np.random.default_rng(seed), num_states, edges, scale).replace(log_constant=0.0)


def sigmoid(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


class NaiveMachine:
    """Steps of a restricted Boltzmann machine in double precision, from its parameters and given chains."""

    def __init__(self, machine: Any) -> None:
        hidden = machine.hidden
        self.W, self.beta = machine.W[:, :hidden].astype(float), machine.beta.astype(float)
        self.gamma, self.mu = machine.gamma[:hidden].astype(float), machine.mu.astype(float)
        self.mask, self.ridge = machine.mask[:, :hidden].astype(float), machine.ridge
        self.data, self.weights = machine.bits[:, : len(self.mu)].astype(float), machine.row_weights
        spread = np.sqrt(np.maximum(self.mu * (1.0 - self.mu), 1e-2))
        self.scales = [2.0 / spread[:, None], 1.0 / spread, 2.0]
        shapes = self.W.shape, self.beta.shape, self.gamma.shape
        self.means, self.squares, self.sums = ([np.zeros(shape) for shape in shapes] for _ in range(3))
        self.steps = 0

    def gradient(self, rows: NDArray[Any], chains: NDArray[Any]) -> list[NDArray[Any]]:
        """Of the log-likelihood less half the ridge times the squares of all contrasts, in W, beta and gamma."""
        result = [np.zeros_like(self.W), np.zeros_like(self.beta), np.zeros_like(self.gamma)]
        for lanes, weights in (
            (self.data[rows], self.weights[rows] / len(rows)), (chains, np.full(len(chains), -1.0 / len(chains)))
        ):  # fmt: skip
            for v, weight in zip(lanes, weights, strict=True):
                h = sigmoid(self.gamma + (v - self.mu) @ self.W)
                result[0] += weight * (np.outer(v - self.mu, h) - 0.5 * v[:, None])  # a constant of mean 0 is left out
                result[1] += weight * v
                result[2] += weight * h
        # Contrasts are W / 2, beta / sqrt(2), and the fields of hidden bits where visible ones are 1/2, by sqrt(2).
        centers = self.gamma + (0.5 - self.mu) @ self.W
        result[0] -= self.ridge * (0.25 * self.W + 0.5 * np.outer(0.5 - self.mu, centers))
        result[1] -= 0.5 * self.ridge * self.beta
        result[2] -= 0.5 * self.ridge * centers
        result[0] *= self.mask
        return result

    def step(self, rows: NDArray[Any], chains: NDArray[Any], size: float) -> None:
        self.steps += 1
        for k, g in enumerate(self.gradient(rows, chains)):
            self.sums[k] += g
            self.means[k] = 0.5 * self.means[k] + 0.5 * g
            self.squares[k] = 0.995 * self.squares[k] + 0.005 * g * g
            spread = np.sqrt(self.squares[k] / (1.0 - 0.995**self.steps)) + 1e-4
            move = self.scales[k] * size * self.means[k] / (1.0 - 0.5**self.steps) / spread
            target = (self.W, self.beta, self.gamma)[k]
            target += move
