"""Counts of families in data, expected where values are missing, and the tables of a network that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import describe
from fastmix._clock import Clock
from fastmix.errors import ModelError, ResourceError
from fastmix.exact.batch import BatchElimination
from fastmix.learning.dataset import Dataset
from fastmix.model.network import BayesianNetwork
from fastmix.queries.prepare import PreparedModel, prepare
from fastmix.queries.tuning import JOINT_ENTRIES

__all__ = ["ExpectedCounts", "Family", "count_family", "families_of", "tables_of"]


class Family(NamedTuple):
    """A variable with its parents before it, and the shape of its table."""

    scope: tuple[int, ...]
    shape: tuple[int, ...]


def count_family(data: Dataset, family: Family, rows: BoolArray) -> FloatArray:
    """Weights of some rows, which have all values of a family, by the states of the family."""
    place = np.zeros(int(rows.sum()), dtype=np.int64)
    for v, count in zip(family.scope, family.shape, strict=True):
        place = place * count + data.states[rows, v]
    counts = np.bincount(place, data.weights[rows], int(np.prod(family.shape)))
    return np.asarray(counts, dtype=np.float64).reshape(family.shape)


def tables_of(counts: Sequence[FloatArray], prior: Sequence[FloatArray]) -> list[FloatArray]:
    """The tables that counts and the counts of a prior make: each row over its sum, uniform where nothing was counted.

    These are the means of Dirichlet distributions.
    """
    tables = []
    for seen, before in zip(counts, prior, strict=True):
        rows = seen + before
        sums = rows.sum(axis=-1, keepdims=True)
        uniform = np.full_like(rows, 1.0 / rows.shape[-1])
        tables.append(np.divide(rows, sums, out=uniform, where=sums > 0.0))
    return tables


class ExpectedCounts:
    """Counts of all families under a network: by counting where a row has all values, by exact inference elsewhere.

    Parameters
    ----------
    data : Dataset
        Rows that differ, with weights that add up to 1.
    families : sequence of Family
    memory_limit : float
        Bytes of the tables of exact inference.
    """

    def __init__(self, data: Dataset, families: Sequence[Family], memory_limit: float) -> None:
        self.data = data
        self.families = families
        self.memory_limit = memory_limit
        self.whole: list[BoolArray] = [
            np.all(data.states[:, list(family.scope)] >= 0, axis=1, keepdims=True)[:, 0] for family in families
        ]
        self.seen = [count_family(data, family, rows) for family, rows in zip(families, self.whole, strict=True)]
        self.incomplete = np.flatnonzero((data.states < 0).any(axis=1))
        self.rows = np.ascontiguousarray(data.states[self.incomplete], dtype=np.int64)
        self.open_families = [k for k, rows in enumerate(self.whole) if not rows.all()]
        self._prepared: PreparedModel | None = None

    def under(self, network: BayesianNetwork, clock: Clock, num_threads: int = 1) -> tuple[list[FloatArray], float]:
        """Expected counts of all families, and the mean log-likelihood of what the rows hold."""
        counts = [seen.copy() for seen in self.seen]
        log_likelihood = self._of_complete_rows(network)
        if not len(self.rows):
            return counts, log_likelihood
        plan = self._plan(network, clock)
        step = max(1, JOINT_ENTRIES // max(1, sum(self.seen[k].size for k in self.open_families)))
        for first in range(0, len(self.rows), step):
            numbers = self.incomplete[first : first + step]
            found = plan.answer(self.rows[first : first + step], num_threads=num_threads, clock=clock)
            weights = self.data.weights[numbers]
            if not np.isfinite(found.log_z).all():
                row = self.rows[first + int(np.flatnonzero(~np.isfinite(found.log_z))[0])]
                raise ModelError(
                    f"data must be possible under the network to start from, got a row {describe(row.tolist())}"
                )
            log_likelihood += float(weights @ found.log_z)
            for k, joint in zip(self.open_families, found.joints, strict=True):
                asked = ~self.whole[k][numbers]
                counts[k] += (weights[asked] @ joint[asked]).reshape(counts[k].shape)
        return counts, log_likelihood

    def _plan(self, network: BayesianNetwork, clock: Clock) -> BatchElimination:
        """The plan for rows of evidence, kept from one network to the next."""
        model = network.to_model()
        if self._prepared is None:
            sets = [self.families[k].scope for k in self.open_families]
            self._prepared = prepare(model, queries=sets, memory_limit=self.memory_limit)
        else:
            self._prepared = self._prepared.update(model)
        plan = self._prepared.plans.of(self._prepared, (), clock)
        if plan is None:
            raise ResourceError(
                "the tables of exact inference do not fit the memory for rows with missing values: raise memory_limit, "
                "take fewer parents, or fill the gaps first"
            )
        return plan

    def _of_complete_rows(self, network: BayesianNetwork) -> float:
        """The part of the log-likelihood that rows without missing values have."""
        complete = np.ones(len(self.data.states), dtype=bool)
        complete[self.incomplete] = False
        total = 0.0
        for family, table in zip(self.families, network.tables, strict=True):
            counts: FloatArray = count_family(self.data, family, complete)
            used = counts > 0.0
            with np.errstate(divide="ignore"):
                total += float((counts[used] * np.log(table[used])).sum())
        return total


def families_of(parents: Sequence[Sequence[int]], num_states: IntArray) -> list[Family]:
    """The family of every variable."""
    scopes = [(*of_child, i) for i, of_child in enumerate(parents)]
    return [Family(scope, tuple(num_states[list(scope)].tolist())) for scope in scopes]
