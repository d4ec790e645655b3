"""The Euclidean projection from its definition, by a general convex solver: slow, for tiny models only.

Nothing here calls the code under test; the constraints are listed one by one with plain loops.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import oracle
from fastmix.model import MarkovRandomField

FloatArray = NDArray[np.float64]

GRAPHS: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "path": (4, [(0, 1), (1, 2), (2, 3)]),
    "cycle": (5, [(0, 1), (0, 4), (1, 2), (2, 3), (3, 4)]),
    "star": (5, [(0, 1), (0, 2), (0, 3), (0, 4)]),
    "complete": (4, list(itertools.combinations(range(4), 2))),
    "grid": (6, [(0, 1), (0, 3), (1, 2), (1, 4), (2, 5), (3, 4), (4, 5)]),
}

# Clarabel aims at 1e-8 by default and mostly reaches far more. Where rounding stops it, the reduced tolerances are what
# an answer still has to meet; where it gives up altogether, it is asked for a little less.
_TOLERANCES = (1e-11, 1e-9, 1e-8)
_REDUCED = {"reduced_tol_gap_abs": 1e-7, "reduced_tol_gap_rel": 1e-7, "reduced_tol_feas": 1e-8}


def solve(model: MarkovRandomField, norm_bound: float, norm: str, bound: str) -> tuple[float, FloatArray]:
    """Squared distance and flat tables of the nearest model whose bound on R has a norm of at most ``norm_bound``."""
    theta, _, constraints = _feasible_set(model, norm_bound, norm, bound)
    distance = cp.sum_squares(theta - model.log_pairwise)
    return _minimize(distance, constraints), theta.value


def solve_with_factors(
    model: MarkovRandomField, norm_bound: float, norm: str, bound: str
) -> tuple[float, FloatArray, FloatArray]:
    """Squared distance, flat tables and factor scales of the nearest model that scales its factors.

    The factors must have nothing left that depends on one or two variables only.
    """
    edges = [tuple(edge) for edge in model.edges.tolist()]
    factors = {tuple(scope): table for scope, table in oracle.factor_tables(model)}
    added = np.zeros((len(edges), len(factors)))
    for a, (scope, table) in enumerate(factors.items()):
        for (p, i), (q, j) in itertools.combinations(enumerate(scope), 2):
            columns = np.moveaxis(table, (p, q), (0, 1)).reshape(table.shape[p], table.shape[q], -1)
            sizes = [_largest_contrast(t, bound) for c in np.moveaxis(columns, 2, 0) for t in (c, c.T)]
            added[edges.index((i, j)), a] = max(sizes)
    scales = cp.Variable(len(factors))
    theta, _, constraints = _feasible_set(model, norm_bound, norm, bound, added @ scales)
    squares = np.array([np.sum(table**2) for table in factors.values()])
    distance = cp.sum_squares(theta - model.log_pairwise) + cp.sum(cp.multiply(squares, cp.square(1 - scales)))
    return _minimize(distance, [*constraints, scales >= 0, scales <= 1]), theta.value, scales.value


def solve_smoothed(
    model: MarkovRandomField, norm_bound: float, norm: str, alpha: float, y: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Objective, flat tables and z of the smoothed projection, both entries of Z per edge counted; bound linf."""
    theta, z, constraints = _feasible_set(model, norm_bound, norm, "linf")
    # sum_squares(Z - Y) over the whole matrix: entries ij and ji of an edge, nothing elsewhere.
    smoothing = alpha * 2.0 * cp.sum_squares(z - y)
    objective = cp.sum_squares(theta - model.log_pairwise) + smoothing
    return _minimize(objective, constraints), theta.value, z.value


def dependency(
    num_states: Sequence[int], edges: Sequence[tuple[int, int]], tables: FloatArray, bound: str
) -> FloatArray:
    """The bound on R of each edge, the larger of the two directions, from flat tables."""
    position, result = 0, []
    for i, j in edges:
        size = num_states[i] * num_states[j]
        table = np.asarray(tables[position : position + size]).reshape(num_states[i], num_states[j])
        position += size
        result.append(max(_largest_contrast(table, bound), _largest_contrast(table.T, bound)))
    return np.array(result)


def norm_of(num_variables: int, edges: Sequence[tuple[int, int]], z: FloatArray, norm: str) -> float:
    """Norm of the symmetric matrix with z on the edges."""
    matrix = np.zeros((num_variables, num_variables))
    for (i, j), value in zip(edges, z, strict=True):
        matrix[i, j] = matrix[j, i] = value
    return float(np.linalg.norm(matrix, np.inf if norm == "inf" else 2))


def norm_of_model(model: MarkovRandomField, tables: FloatArray, norm: str, bound: str) -> float:
    """Norm of the dependency bound of a model with other tables."""
    edges = [tuple(edge) for edge in model.edges.tolist()]
    r = dependency(model.num_states.tolist(), edges, tables, bound)
    return norm_of(model.num_variables, edges, r, norm)


def random_instance(rng: np.random.Generator, kind: str) -> MarkovRandomField:
    """A small model on a random one of :data:`GRAPHS`; kinds: ising, binary, states (3 to 5 of them), mixed counts."""
    n, edges = GRAPHS[str(rng.choice(sorted(GRAPHS)))]
    scale = float(rng.choice([0.5, 1.0, 3.0]))
    if kind == "ising":
        return MarkovRandomField.ising(edges, scale * rng.standard_normal(len(edges)), rng.standard_normal(n))
    counts = {
        "binary": np.full(n, 2),
        "states": np.full(n, rng.integers(3, 6)),
        "mixed": rng.integers(1, 5, n),
    }[kind]
    return oracle.random_entries(rng, counts.tolist(), edges, scale)


def _largest_contrast(table: FloatArray, bound: str) -> float:
    largest = 0.0
    for a, b in itertools.combinations(range(table.shape[1]), 2):
        difference = table[:, a] - table[:, b]
        if bound == "linf":
            largest = max(largest, float(np.abs(difference).max()) / 2)
        else:
            largest = max(largest, float(difference.max() - difference.min()) / 4)
    return largest


def _feasible_set(
    model: MarkovRandomField, norm_bound: float, norm: str, bound: str, added: cp.Expression | float = 0.0
) -> tuple[cp.Variable, cp.Variable, list[cp.Constraint]]:
    """Variables theta and z, and R_e(theta) <= z_e with the norm of z, and what is added to it, at most the bound."""
    edges = [tuple(edge) for edge in model.edges.tolist()]
    theta, z = cp.Variable(len(model.log_pairwise)), cp.Variable(len(edges))
    contrasts, owners = [], []
    position = 0
    for e, (i, j) in enumerate(edges):
        rows, cols = int(model.num_states[i]), int(model.num_states[j])
        entries = position + np.arange(rows * cols).reshape(rows, cols)
        position += rows * cols
        for table in (entries, entries.T):
            for a, b in itertools.combinations(range(table.shape[1]), 2):
                for contrast in _contrasts(table, a, b, bound, len(model.log_pairwise)):
                    contrasts.append(contrast)
                    owners.append(e)
    constraints = [z >= 0]
    if contrasts:
        constraints.append(cp.abs(np.array(contrasts) @ theta) <= z[np.array(owners)])
    n = model.num_variables
    if norm == "inf":
        incidence = np.zeros((n, len(edges)))
        for e, (i, j) in enumerate(edges):
            incidence[i, e] = incidence[j, e] = 1.0
        constraints.append(incidence @ (z + added) <= norm_bound)
    elif norm == "frobenius":
        constraints.append(np.sqrt(2.0) * cp.norm(z + added, 2) <= norm_bound)
    else:
        units = np.zeros((n * n, len(edges)))
        for e, (i, j) in enumerate(edges):
            units[i * n + j, e] = units[j * n + i, e] = 1.0
        matrix = cp.reshape(units @ (z + added), (n, n), order="C")
        constraints.append(norm_bound * np.eye(n) - matrix >> 0)
    return theta, z, constraints


def _contrasts(table: NDArray[np.int64], a: int, b: int, bound: str, length: int) -> list[FloatArray]:
    result = []
    for r in range(len(table)):
        if bound == "linf":
            contrast = np.zeros(length)
            contrast[table[r, a]] += 0.5
            contrast[table[r, b]] -= 0.5
            result.append(contrast)
            continue
        for s in range(r):
            contrast = np.zeros(length)
            contrast[[table[r, a], table[s, b]]] += 0.25
            contrast[[table[r, b], table[s, a]]] -= 0.25
            result.append(contrast)
    return result


def _minimize(objective: cp.Expression, constraints: list[cp.Constraint]) -> float:
    problem = cp.Problem(cp.Minimize(objective), constraints)
    for tol in _TOLERANCES:
        aims = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol, "max_iter": 500}
        with warnings.catch_warnings(), contextlib.suppress(cp.error.SolverError):
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            problem.solve(solver=cp.CLARABEL, **aims, **_REDUCED)
            if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
                return float(problem.value)
    raise AssertionError(f"the convex solver found no answer: {problem.status}")


def solve_width(model: MarkovRandomField, bound: float) -> tuple[float, FloatArray]:
    """Squared distance and flat tables of the nearest model with a width of at most ``bound``.

    The set is written in one-hot vectors: the double-centered tables as blocks, any diagonal in a basis of the centered
    vectors of every variable, and eigenvalues of the centered matrix between 0 and twice the bound.
    """
    states = model.num_states.tolist()
    starts = np.concatenate([[0], np.cumsum(states)]).astype(int)
    theta = cp.Variable(len(model.log_pairwise))
    bases = []
    for count in states:
        # Steps from the mean of the first states to the next one, of length 1.
        steps = [np.r_[np.ones(k), -k, np.zeros(count - k - 1)] for k in range(1, count)]
        bases.append(np.array([step / np.linalg.norm(step) for step in steps]).reshape(count - 1, count).T)
    total: Any = 0
    position = 0
    for i, j in model.edges.tolist():
        size = states[i] * states[j]
        table = cp.reshape(theta[position : position + size], (states[i], states[j]), order="C")
        left, right = (np.zeros((starts[-1], states[k])) for k in (i, j))
        left[starts[i] : starts[i + 1]] = np.eye(states[i]) - 1.0 / states[i]
        right[starts[j] : starts[j + 1]] = np.eye(states[j]) - 1.0 / states[j]
        block = left @ table @ right.T
        total = total + block + block.T
        position += size
    for k, basis in enumerate(bases):
        for column in basis.T:
            whole = np.zeros(starts[-1])
            whole[starts[k] : starts[k + 1]] = column
            total = total + cp.Variable() * np.outer(whole, whole)
    # Only centered vectors count, or the set would have no interior.
    centered = np.zeros((starts[-1], starts[-1] - len(states)))
    for k, basis in enumerate(bases):
        centered[starts[k] : starts[k + 1], starts[k] - k : starts[k + 1] - k - 1] = basis
    total = centered.T @ (total + total.T) @ centered / 2
    constraints = [total >> 0, 2.0 * bound * np.eye(centered.shape[1]) - total >> 0]
    return _minimize(cp.sum_squares(theta - model.log_pairwise), constraints), theta.value
