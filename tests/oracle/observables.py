"""What physicists measure, by enumeration, and multistate acceptance ratios by plain iteration."""

from __future__ import annotations

import itertools
import math

import numpy as np

from fastmix.model import MarkovRandomField


class ExactObservables:
    """Observables of a tiny model in which all variables have q states, at one temperature, by enumeration."""

    def __init__(self, model: MarkovRandomField, temperature: float, shape: tuple[int, ...] | None = None) -> None:
        self.n = model.num_variables
        self.q = int(model.num_states[0])
        self.states = np.array(list(itertools.product(range(self.q), repeat=self.n)))
        self.weights = np.array([float(model.log_weight(x)) for x in self.states])
        self.temperature = temperature
        logs = self.weights / temperature
        self.log_z = float(np.logaddexp.reduce(logs))
        self.p = np.exp(logs - self.log_z)
        self.edges = model.edges
        self.shape = shape

    def mean(self, values: np.ndarray) -> float:
        return float(self.p @ values)

    def vectors(self) -> np.ndarray:
        """Unit vectors at the corners of a simplex, (configurations, n, q)."""
        corners = np.eye(self.q) - 1.0 / self.q
        corners /= np.linalg.norm(corners[0])
        return corners[self.states]

    def all(self) -> dict[str, float]:
        """Every curve of :class:`fastmix.sampling.tempering.observables.Observables` by name."""
        n, temperature = self.n, self.temperature
        energies = -self.weights / n
        energy = self.mean(energies)
        m2 = (self.vectors().mean(axis=1) ** 2).sum(axis=1)
        found = {
            "log_z": self.log_z,
            "energy": energy,
            "specific_heat": n * (self.mean(energies**2) - energy**2) / temperature**2,
            "free_energy": -temperature * self.log_z / n,
            "entropy": -float(self.p @ np.log(self.p)) / n,
            "magnetization": self.mean(np.sqrt(m2)),
            "susceptibility": n * (self.mean(m2) - self.mean(np.sqrt(m2)) ** 2) / temperature,
            "binder": 1.0 - self.mean(m2**2) / (3.0 * self.mean(m2) ** 2),
        }
        overlaps = self.overlaps()
        q2 = self.pair_mean(overlaps**2)
        found["overlap"] = self.pair_mean(np.abs(overlaps))
        found["spin_glass_susceptibility"] = n * q2
        found["overlap_binder"] = 1.0 - self.pair_mean(overlaps**4) / (3.0 * q2**2)
        if self.q == 2:
            spins = 2.0 * self.states - 1.0
            links = spins[:, self.edges[:, 0]] * spins[:, self.edges[:, 1]]
            found["link_overlap"] = self.pair_mean(links @ links.T / len(self.edges))
        return found

    def overlaps(self) -> np.ndarray:
        """Overlaps of all pairs of configurations."""
        flat = self.vectors().reshape(len(self.states), -1)
        return np.asarray(flat @ flat.T / self.n)

    def pair_mean(self, values: np.ndarray) -> float:
        return float(self.p @ values @ self.p)

    def correlation_length(self) -> float:
        """By the second moment, with waves along the longest axes."""
        assert self.shape is not None
        side = max(self.shape)
        vectors = self.vectors()
        zero = self.mean((vectors.sum(axis=1) ** 2).sum(axis=1))
        first = []
        for axis, length in enumerate(self.shape):
            if length != side:
                continue
            total = np.zeros((len(self.states), self.q), dtype=complex)
            for i in range(self.n):
                place = np.unravel_index(i, self.shape)[axis]
                total += np.exp(2j * math.pi * place / side) * vectors[:, i]
            first.append(self.mean((np.abs(total) ** 2).sum(axis=1)))
        ratio = zero / np.mean(first) - 1.0
        return math.sqrt(max(0.0, ratio)) / (2.0 * math.sin(math.pi / side))

    def correlations(self) -> list[float]:
        """Means of products of spins at every distance along the axes."""
        assert self.shape is not None
        vectors = self.vectors()
        found = []
        for r in range(min(self.shape) // 2 + 1):
            products = []
            for i in range(self.n):
                for axis in range(len(self.shape)):
                    place = list(np.unravel_index(i, self.shape))
                    place[axis] = (place[axis] + r) % self.shape[axis]
                    j = int(np.ravel_multi_index(place, self.shape))
                    products.append(self.mean((vectors[:, i] * vectors[:, j]).sum(axis=1)))
            found.append(float(np.mean(products)))
        return found


def multistate(log_weights: np.ndarray, rungs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log Z at rungs and weights (T, N) of all draws at targets, by plain iteration of the equations.

    ``log_weights`` (R, M) are those of M draws at each of R inverse temperatures; log Z of the first rung is 0.
    """
    count = log_weights.shape[1]
    pooled = log_weights.reshape(-1)
    log_z = np.zeros(len(rungs))
    for _ in range(100_000):
        mixture = np.logaddexp.reduce(np.multiply.outer(rungs, pooled) - log_z[:, None], axis=0) + math.log(count)
        new = np.array([np.logaddexp.reduce(b * pooled - mixture) for b in rungs])
        new -= new[0]
        change = np.abs(new - log_z).max()
        log_z = new
        if change < 1e-13:
            break
    logs = np.multiply.outer(targets, pooled) - mixture
    weights = np.exp(logs - np.logaddexp.reduce(logs, axis=1)[:, None])
    return log_z, weights
