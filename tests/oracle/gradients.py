"""Naive twins of gradients: every configuration in turn, and its row of indicators."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from fastmix.model import Structure
from oracle import FloatArray


class NaiveSlopes(NamedTuple):
    """Log Z, the mean of the indicators, and their covariance."""

    log_z: float
    mean: FloatArray
    covariance: FloatArray


def indicators(structure: Structure) -> FloatArray:
    """By configuration (rows) and entry of a table (columns), whether the one selects the other."""
    counts = structure.num_states.tolist()
    scopes = [(i,) for i in range(len(counts))] + [tuple(edge) for edge in structure.edges.tolist()]
    scopes += [tuple(scope.tolist()) for scope in structure.scopes]
    rows = []
    for x in itertools.product(*map(range, counts)):
        row = [
            float(tuple(x[v] for v in scope) == states)
            for scope in scopes
            for states in itertools.product(*[range(counts[v]) for v in scope])
        ]
        rows.append(row)
    return np.array(rows)


def slopes(structure: Structure, theta: FloatArray) -> NaiveSlopes | None:
    """Log Z and its first two derivatives; None where no configuration is possible."""
    table = indicators(structure)
    entries = theta.tolist()
    weights = [math.fsum([entry for entry, on in zip(entries, row, strict=True) if on]) for row in table.tolist()]
    largest = max(weights)
    if largest == -math.inf:
        return None
    p = np.exp(np.array(weights) - largest)
    log_z = largest + math.log(p.sum())
    p /= p.sum()
    mean = p @ table
    return NaiveSlopes(log_z, mean, (table * p[:, None]).T @ table - np.outer(mean, mean))
