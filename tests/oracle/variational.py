"""Naive twins of the variational methods: dictionaries of lists, one number at a time, straight from the formulas."""

from __future__ import annotations

import itertools
import math

import oracle
from fastmix.model import MarkovRandomField

Vector = list[float]
Directed = tuple[int, int]


def _normalized(logs: Vector) -> Vector:
    top = max(logs)
    return [v - top for v in logs]


class NaiveBP:
    """Sum-product messages m[i, j] from i to j, as logs with the largest at 0."""

    def __init__(self, model: MarkovRandomField) -> None:
        self.unary = oracle.unary_vectors(model)
        self.tables = oracle.edge_tables(model)
        self.constant = model.log_constant
        self.neighbors: dict[int, list[int]] = {i: [] for i in range(len(self.unary))}
        for i, j in self.tables:
            self.neighbors[i].append(j)
            self.neighbors[j].append(i)
        self.messages: dict[Directed, Vector] = {}
        for i, j in self.tables:
            self.messages[i, j] = [0.0] * len(self.unary[j])
            self.messages[j, i] = [0.0] * len(self.unary[i])

    def entry(self, i: int, j: int, a: int, b: int) -> float:
        return self.tables[i, j][a][b] if i < j else self.tables[j, i][b][a]

    def cavity(self, i: int, without: int | None) -> Vector:
        """Unary of i plus all incoming messages but one."""
        total = list(self.unary[i])
        for k in self.neighbors[i]:
            if k != without:
                total = [t + m for t, m in zip(total, self.messages[k, i], strict=True)]
        return total

    def updated(self, i: int, j: int) -> Vector:
        cavity = self.cavity(i, j)
        sums = [
            oracle.log_sum_exp([cavity[a] + self.entry(i, j, a, b) for a in range(len(cavity))])
            for b in range(len(self.unary[j]))
        ]
        return _normalized(sums)

    def residual(self, i: int, j: int) -> float:
        # -inf on both sides is no change.
        pairs = zip(self.updated(i, j), self.messages[i, j], strict=True)
        return max(0.0 if x == y else abs(x - y) for x, y in pairs)

    def mixed(self, i: int, j: int, damping: float) -> Vector:
        """Damped in the logs."""
        if damping == 0.0:
            return self.updated(i, j)
        pairs = zip(self.updated(i, j), self.messages[i, j], strict=True)
        return _normalized([(1.0 - damping) * x + damping * y for x, y in pairs])

    def parallel(self, num_iterations: int, damping: float = 0.0) -> None:
        for _ in range(num_iterations):
            self.messages = {(i, j): self.mixed(i, j, damping) for i, j in self.messages}

    def most_changed(self, num_updates: int, damping: float = 0.0) -> None:
        """One message at a time, that with the largest residual first."""
        for _ in range(num_updates):
            i, j = max(self.messages, key=lambda d: self.residual(*d))
            self.messages[i, j] = self.mixed(i, j, damping)

    def node(self, i: int) -> Vector:
        logs = self.cavity(i, None)
        total = oracle.log_sum_exp(logs)
        return [math.exp(v - total) for v in logs]

    def pair_logs(self, i: int, j: int) -> list[Vector]:
        first, second = self.cavity(i, j), self.cavity(j, i)
        return [[self.tables[i, j][a][b] + x + y for b, y in enumerate(second)] for a, x in enumerate(first)]

    def pair(self, i: int, j: int) -> list[Vector]:
        logs = self.pair_logs(i, j)
        total = oracle.log_sum_exp([v for row in logs for v in row])
        return [[math.exp(v - total) for v in row] for row in logs]

    def bethe_of_messages(self) -> float:
        """Constant + sum over edges of log Z_ij + sum over variables of (1 - degree) log Z_i."""
        total = self.constant
        for i, j in self.tables:
            total += oracle.log_sum_exp([v for row in self.pair_logs(i, j) for v in row])
        for i in self.neighbors:
            total += (1 - len(self.neighbors[i])) * oracle.log_sum_exp(self.cavity(i, None))
        return total

    def bethe_of_beliefs(self) -> float:
        """Energy plus Bethe entropy of the beliefs: the same at a fixed point, by another road."""
        total = self.constant
        for i in self.neighbors:
            for p, u in zip(self.node(i), self.unary[i], strict=True):
                if p > 0.0:
                    total += p * (u - (1 - len(self.neighbors[i])) * math.log(p))
        for i, j in self.tables:
            for row, entries in zip(self.pair(i, j), self.tables[i, j], strict=True):
                for p, t in zip(row, entries, strict=True):
                    if p > 0.0:
                        total += p * (t - math.log(p))
        return total


# -- mean field -----------------------------------------------------------------------------------------------------


def bound(model: MarkovRandomField, q: list[Vector]) -> float:
    """``sum_x q(x) (log-weight(x) - log q(x))`` over all configurations; minus infinity if q allows a forbidden one."""
    total = 0.0
    for x, weight in zip(oracle.all_configurations(model), oracle.log_weights(model), strict=True):
        factors = [q[i][state] for i, state in enumerate(x)]
        if min(factors, default=1.0) > 0.0:
            total += math.prod(factors) * (weight - math.fsum(math.log(p) for p in factors))
    return total


def coordinate(model: MarkovRandomField, q: list[Vector], i: int) -> Vector:
    """The best q_i given the others."""
    logits = list(oracle.unary_vectors(model)[i])
    for (first, second), table in oracle.edge_tables(model).items():
        for a in range(len(logits)):
            if first == i:
                logits[a] += math.fsum(p * table[a][b] for b, p in enumerate(q[second]) if p > 0.0)
            elif second == i:
                logits[a] += math.fsum(p * table[b][a] for b, p in enumerate(q[first]) if p > 0.0)
    for scope, factor in oracle.factor_tables(model):
        if i in scope:
            for states in itertools.product(*(range(len(q[v])) for v in scope)):
                weight = math.prod(q[v][s] for v, s in zip(scope, states, strict=True) if v != i)
                if weight > 0.0:
                    logits[states[scope.index(i)]] += weight * float(factor[states])
    total = oracle.log_sum_exp(logits)
    return [math.exp(v - total) for v in logits]


def sweeps(model: MarkovRandomField, q: list[Vector], num_sweeps: int) -> list[Vector]:
    """Coordinate ascent in the order of the variables."""
    q = [list(vector) for vector in q]
    for _ in range(num_sweeps):
        for i in range(len(q)):
            q[i] = coordinate(model, q, i)
    return q


def uniform(model: MarkovRandomField) -> list[Vector]:
    return [[1.0 / count] * count for count in model.num_states.tolist()]


# -- supports -------------------------------------------------------------------------------------------------------


def supported(model: MarkovRandomField) -> list[set[int]]:
    """States that have an allowed partner at every neighbor, among the states that have one in turn."""
    left = [{a for a, u in enumerate(vector) if u > -math.inf} for vector in oracle.unary_vectors(model)]
    tables = oracle.edge_tables(model)
    while True:
        before = sum(len(states) for states in left)
        for (i, j), table in tables.items():
            left[i] = {a for a in left[i] if any(table[a][b] > -math.inf for b in left[j])}
            left[j] = {b for b in left[j] if any(table[a][b] > -math.inf for a in left[i])}
        if sum(len(states) for states in left) == before:
            return left
