"""Naive twins of the theory functions: dependencies, norms, the bias iteration and exact distances of tiny chains.

Plain loops over every configuration. Only the stored arrays of a model are read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

import oracle
from fastmix.model import MarkovRandomField

FloatArray = NDArray[np.float64]


# -- dependencies ---------------------------------------------------------------------------------------------------


def allowed_states(model: MarkovRandomField) -> list[list[int]]:
    """States of every variable that its unary does not forbid."""
    return [[a for a, u in enumerate(vector) if u > -math.inf] for vector in oracle.unary_vectors(model)]


def oriented_tables(model: MarkovRandomField) -> dict[tuple[int, int], FloatArray]:
    """The table of every edge in both directions, rows for the first, without states that a unary forbids."""
    allowed = allowed_states(model)
    tables = {}
    for (i, j), table in oracle.edge_tables(model).items():
        kept = np.array([[table[a][b] for b in allowed[j]] for a in allowed[i]])
        tables[i, j], tables[j, i] = kept, kept.T
    return tables


def column_bound(table: FloatArray, bound: str) -> float:
    """One bound on how far the column of a table moves the distribution of its row."""
    rows, cols = table.shape
    best = 0.0
    for a, b in itertools.combinations(range(cols), 2):
        differences, infinite = [], False
        for r in range(rows):
            left, right = float(table[r, a]), float(table[r, b])
            if left == right == -math.inf:
                continue
            infinite |= -math.inf in (left, right)
            differences.append(left - right)
        if infinite or not differences:
            size = math.inf
        elif bound in ("range", "sigmoid"):
            size = (max(differences) - min(differences)) / 4
        elif bound == "l1":
            size = math.fsum(abs(v) for v in differences) / 4
        else:
            size = max(abs(v) for v in differences) / 2
        best = max(best, math.tanh(size) if bound == "sigmoid" else size)
    return best


def total_variation(p: FloatArray, q: FloatArray) -> float:
    return 0.5 * math.fsum(abs(a - b) for a, b in zip(p.tolist(), q.tolist(), strict=True))


def exact_dependency(model: MarkovRandomField, i: int, j: int) -> float:
    """R_ij by its definition: every x, and every y that differs from it at j."""
    allowed = allowed_states(model)
    best = 0.0
    for x in itertools.product(*allowed):
        if x[j] != allowed[j][0]:
            continue
        versions = [oracle.conditional(model, i, [*x[:j], b, *x[j + 1 :]]) for b in allowed[j]]
        for p, q in itertools.combinations(versions, 2):
            if p is not None and q is not None:
                best = max(best, total_variation(p, q))
            elif p is not None or q is not None:
                best = 1.0
    return best


def field_dependency(model: MarkovRandomField, tables: dict[tuple[int, int], FloatArray], i: int, j: int) -> float:
    """The largest distance over all fields between the least and the most that the other neighbors can leave."""
    bound = column_bound(tables[i, j], "sigmoid")
    unary = [u for u in oracle.unary_vectors(model)[i] if u > -math.inf]
    neighbors = [k for (a, k) in tables if a == i]
    if len(unary) != 2 or not all(np.isfinite(tables[i, k]).all() for k in neighbors):
        return bound
    effects = {k: 0.5 * (tables[i, k][1] - tables[i, k][0]) for k in neighbors}
    low = 0.5 * (unary[1] - unary[0]) + math.fsum(effects[k].min() for k in neighbors if k != j)
    high = 0.5 * (unary[1] - unary[0]) + math.fsum(effects[k].max() for k in neighbors if k != j)
    first, last = float(effects[j].min()), float(effects[j].max())
    rest = min(max(-0.5 * (first + last), low), high)
    return min(bound, 0.5 * (math.tanh(rest + last) - math.tanh(rest + first)))


def edge_dependencies(model: MarkovRandomField, bound: str) -> FloatArray:
    """Both directions of every edge, from sums over its table and the factors around it."""
    result = np.zeros((model.num_edges, 2))
    tables = oriented_tables(model)
    for e, (i, j) in enumerate(model.edges.tolist()):
        for direction, (a, b) in enumerate([(i, j), (j, i)]):
            if bound == "exact":
                result[e, direction] = exact_dependency(model, a, b)
            elif bound == "field":
                result[e, direction] = field_dependency(model, tables, a, b)
            else:
                kind = "range" if bound == "sigmoid" else bound
                size = column_bound(tables[a, b], kind)
                size += sum(
                    factor_bound(model, scope, table, a, b, kind) for scope, table in oracle.factor_tables(model)
                )
                result[e, direction] = math.tanh(size) if bound == "sigmoid" else size
    return result


def factor_bound(model: MarkovRandomField, scope: list[int], factor: FloatArray, i: int, j: int, bound: str) -> float:
    """The largest bound of the tables of i and j in a factor, over the allowed states of its other variables."""
    if i not in scope or j not in scope:
        return 0.0
    allowed, best = allowed_states(model), 0.0
    rest = [v for v in scope if v not in (i, j)]
    for states in itertools.product(*(allowed[v] for v in rest)):
        given = dict(zip(rest, states, strict=True))
        table = [[factor[tuple((given | {i: a, j: b})[v] for v in scope)] for b in allowed[j]] for a in allowed[i]]
        best = max(best, column_bound(np.array(table), bound))
    return best


def dependency_matrix(model: MarkovRandomField, bound: str) -> FloatArray:
    """R as a dense matrix."""
    result = np.zeros((model.num_variables, model.num_variables))
    values = edge_dependencies(model, bound)
    for (i, j), (forward, backward) in zip(model.edges.tolist(), values.tolist(), strict=True):
        result[i, j], result[j, i] = forward, backward
    return result


# -- the bias iteration ---------------------------------------------------------------------------------------------


def systematic_bias(matrix: FloatArray, num_sweeps: int, order: Sequence[int] | None = None) -> list[Fraction]:
    """The in-place iteration in exact arithmetic."""
    n = len(matrix)
    rows = [[Fraction(value) for value in row] for row in matrix.tolist()]
    delta = [Fraction(1)] * n
    for _ in range(num_sweeps):
        for i in range(n) if order is None else order:
            delta[i] = min(Fraction(1), sum((rows[i][j] * delta[j] for j in range(n)), Fraction(0)))
    return delta


def random_bias(matrix: FloatArray, num_sweeps: int, *, cut_each: bool) -> FloatArray:
    """The iteration of n random updates a sweep, cut at 1 after every update or after every sweep."""
    n = len(matrix)
    delta = np.ones(n)
    for _ in range(num_sweeps):
        for _ in range(n):
            delta = (1.0 - 1.0 / n) * delta + matrix @ delta / n
            if cut_each:
                delta = np.minimum(delta, 1.0)
        delta = np.minimum(delta, 1.0)
    return delta


# -- chains ---------------------------------------------------------------------------------------------------------


class Chain:
    """Gibbs sampling of a tiny model as matrices over the configurations that no unary forbids.

    An update whose conditional is undefined, which happens only where the probability is zero, leaves the state alone.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        self.model = model
        self.configurations = list(itertools.product(*allowed_states(model)))
        self._number = {x: k for k, x in enumerate(self.configurations)}
        joint = oracle.joint(model)
        self.target = np.array([joint[x] for x in self.configurations])
        self._updates = [self._update(i) for i in range(model.num_variables)]

    def _update(self, i: int) -> FloatArray:
        size = len(self.configurations)
        kernel = np.zeros((size, size))
        for k, x in enumerate(self.configurations):
            p = oracle.conditional(self.model, i, x)
            if p is None:
                kernel[k, k] = 1.0
                continue
            for state in allowed_states(self.model)[i]:
                kernel[k, self._number[(*x[:i], state, *x[i + 1 :])]] += p[state]
        return kernel

    def sweep(self, schedule: str, order: Sequence[int] | None = None) -> FloatArray:
        """Transition matrix of one sweep."""
        n, size = self.model.num_variables, len(self.configurations)
        if schedule == "random":
            return np.linalg.matrix_power(sum(self._updates, np.zeros((size, size))) / n, n)
        kernel = np.eye(size)
        for i in range(n) if order is None else order:
            kernel = kernel @ self._updates[i]
        return kernel

    def distances(self, kernel: FloatArray) -> tuple[float, list[float]]:
        """Worst total variation distance over all starts, of the joint distribution and of every marginal."""
        joint = max(0.5 * float(np.abs(row - self.target).sum()) for row in kernel)
        marginals = []
        for i, states in enumerate(allowed_states(self.model)):
            indicator = np.array([[x[i] == a for a in states] for x in self.configurations], dtype=float)
            difference = kernel @ indicator - self.target @ indicator
            marginals.append(0.5 * float(np.abs(difference).sum(axis=1).max()))
        return joint, marginals
