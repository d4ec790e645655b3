"""Replica exchange with loops over everything, from given streams, for tiny models."""

from __future__ import annotations

import math

import numpy as np

import oracle
from fastmix._context import stream_seed
from fastmix.chains.base import ParameterSets
from fastmix.chains.generator import make_streams
from fastmix.model import MarkovRandomField
from fastmix.sampling.tempering.ladder import TemperingPath


def model_at(path: TemperingPath, position: float) -> MarkovRandomField:
    """One model of the path."""
    return path.model.with_parameters(ParameterSets.of(path.thetas, path.coefficients([position])).theta(0))


class NaiveLadder:
    """Ladders as in :class:`fastmix.sampling.tempering.ladder.Ladder`, all weights by enumeration."""

    def __init__(
        self, path: TemperingPath, positions: np.ndarray, states: np.ndarray, seed: int, phase: int = 1
    ) -> None:
        self.models = [model_at(path, float(s)) for s in positions]
        self.updates = [oracle.Updates(model) for model in self.models]
        self.num_rungs, self.num_ladders, self.n = states.shape
        self.x = [[list(map(int, states[k, c])) for c in range(self.num_ladders)] for k in range(self.num_rungs)]
        flat = make_streams(stream_seed(seed, "rungs", phase), 0, self.num_ladders * self.num_rungs)
        self.streams = [
            [oracle.Stream(flat[:, c * self.num_rungs + k]) for c in range(self.num_ladders)]
            for k in range(self.num_rungs)
        ]
        self.order = path.model.structure.visit_order[0].tolist()
        self.sums = np.zeros((len(path.model.log_unary), self.num_ladders))
        self.exchanges = np.zeros((6, self.num_rungs - 1, self.num_ladders))
        self.replica = [[k] * self.num_ladders for k in range(self.num_rungs)]
        self.visited: list[dict[int, str]] = [{} for _ in range(self.num_ladders)]
        self.trips = [0] * self.num_ladders
        self.around: list[set[int]] = [set() for _ in range(self.n)]
        for i, j in path.model.edges.tolist():
            self.around[i].add(j)
            self.around[j].add(i)
        self.weights = [
            dict(zip(oracle.all_configurations(m), oracle.log_weights(m), strict=True)) for m in self.models
        ]

    def round(self, number: int) -> None:
        for k in range(self.num_rungs):
            for c in range(self.num_ladders):
                for i in self.order:
                    self.update(k, c, i, self.streams[k][c].draw())
        draws = [[self.streams[k][c].draw() for c in range(self.num_ladders)] for k in range(self.num_rungs)]
        for k in range(number % 2, self.num_rungs - 1, 2):
            for c in range(self.num_ladders):
                self.exchange(k, c, draws[k][c])
        self.count_trips()

    def count_trips(self) -> None:
        for c in range(self.num_ladders):
            bottom, top = self.replica[0][c], self.replica[-1][c]
            if self.visited[c].get(bottom) == "top":
                self.trips[c] += 1
            self.visited[c][bottom] = "bottom"
            if self.visited[c].get(top) == "bottom":
                self.visited[c][top] = "top"

    def update(self, k: int, c: int, i: int, u: int) -> None:
        p = self.updates[k].update(self.x[k][c], i, u)
        if k == self.num_rungs - 1:
            start = self.models[k].unary_offsets[i]
            self.sums[start : start + len(p), c] += p

    def gain(self, k: int, x: list[int]) -> float:
        """How much the log-weight of a configuration grows from rung k to the next."""
        return self.weights[k + 1][tuple(x)] - self.weights[k][tuple(x)]

    def exchange(self, k: int, c: int, u: int) -> None:
        low, high = self.x[k][c], self.x[k + 1][c]
        # Log-probability of the pair after the exchange less that before.
        after = self.weights[k][tuple(high)] + self.weights[k + 1][tuple(low)]
        before = self.weights[k][tuple(low)] + self.weights[k + 1][tuple(high)]
        chance = math.exp(min(0.0, after - before))
        values = (1.0, 1.0 - chance, self.gain(k, low), self.gain(k, high))
        values += (1 / (1 + math.exp(-self.gain(k, low))), 1 / (1 + math.exp(self.gain(k, high))))
        self.exchanges[:, k, c] += values
        if u < chance * 2**32:
            self.x[k][c], self.x[k + 1][c] = high, low
            self.replica[k][c], self.replica[k + 1][c] = self.replica[k + 1][c], self.replica[k][c]

    def exchange_clusters(self) -> None:
        for k in range(self.num_rungs):
            for c in range(0, self.num_ladders, 2):
                one, two = self.x[k][c], self.x[k][c + 1]
                left = {i for i in range(self.n) if one[i] != two[i]}
                while left:
                    cluster, grown = set(), {min(left)}
                    while grown:
                        cluster |= grown
                        grown = {j for i in grown for j in self.around[i]} & left - cluster
                    left -= cluster
                    if self.streams[k][c].draw() & 65536:
                        for i in cluster:
                            one[i], two[i] = two[i], one[i]

    def states(self) -> np.ndarray:
        return np.array(self.x)
