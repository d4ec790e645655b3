"""``TreeMixture``: tables of a mixture whose components share a tree, and what rows of data are under them.

``p(x) = sum_k p(k) prod_i p(x_i | x_parent(i), k)``: a hidden variable of K states joined to all variables, which
form a tree (or a forest, or are independent) given it. With one component it is a tree of Chow and Liu.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.learning.dataset import HIDDEN_NAME, MISSING, Dataset
from fastmix.learning.tuning import CHUNK_NUMBERS, UNSEEN_COUNT
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of

__all__ = ["MixtureRows", "TreeMixture", "hidden_state_names"]


@dataclass(frozen=True, eq=False)
class MixtureRows:
    """Rows of data as mixtures read them.

    Attributes
    ----------
    states : int32 array (rows, n)
        -1 where a value is missing.
    weights : float array (rows,)
        With the sum 1.
    gaps : bool array (rows,)
        Whether a row has missing values.
    """

    states: NDArray[np.int32]
    weights: FloatArray
    gaps: BoolArray

    @classmethod
    def of(cls, data: Dataset) -> MixtureRows:
        """The rows of a data set, equal ones joined."""
        merged = data.merged()[0]
        states = np.ascontiguousarray(merged.states, dtype=np.int32)
        return cls(states, merged.weights, (states == MISSING).any(axis=1))

    def parts(self, num_components: int, clock: Clock) -> Iterator[slice]:
        """Slices of rows, for which a number per component fits a temporary array."""
        step = max(1, CHUNK_NUMBERS // num_components)
        for first in range(0, len(self.states), step):
            clock.check()
            yield slice(first, first + step)


@dataclass(frozen=True, eq=False)
class TreeMixture:
    """Tables of a mixture of K components that share a tree.

    Attributes
    ----------
    num_states : int array (n,)
    parents : int array (n,)
        -1 for roots.
    shares : float array (K,)
        Probabilities of the components.
    tables : float array (T, K)
        ``p(x_i | x_parent, k)`` of all variables, one after the other, a row for every pair of states, that of the
        parent first.
    """

    num_states: IntArray
    parents: IntArray
    shares: FloatArray
    tables: FloatArray

    @property
    def num_components(self) -> int:
        """The number of components."""
        return len(self.shares)

    @cached_property
    def starts(self) -> IntArray:
        """Where the tables of the variables begin (n + 1,)."""
        return offsets_of(self.num_states * _num_above(self.num_states, self.parents))

    @cached_property
    def order(self) -> IntArray:
        """All variables, parents before their children."""
        children: list[list[int]] = [[] for _ in self.parents]
        order: list[int] = []
        for i, parent in enumerate(self.parents.tolist()):
            (children[parent] if parent >= 0 else order).append(i)
        for i in order:  # which grows
            order.extend(children[i])
        return np.array(order, dtype=np.int64)

    @cached_property
    def _message_tables(self) -> tuple[Any, ...]:
        """What the kernels of rows with missing values read beside the states."""
        offsets = offsets_of(self.num_states)
        messages = offsets_of(_num_above(self.num_states, self.parents))
        return self.order, self.parents, self.starts, offsets, messages, self.tables

    # -- rows ---------------------------------------------------------------------------------------------------------

    def joint_logs(self, rows: MixtureRows, part: slice) -> FloatArray:
        """``log p(x, k)`` (R, K) of some rows, missing values summed over."""
        from fastmix.learning.mixture_kernels import add_logs, masses_of_gaps

        states = rows.states[part]
        gaps = rows.gaps[part]
        logs = np.tile(np.log(self.shares), (len(states), 1))
        if gaps.any():
            some = logs[gaps]
            masses_of_gaps(states[gaps], *self._message_tables, some)
            logs[gaps] = some
        if not gaps.all():
            whole = logs[~gaps]
            add_logs(states[~gaps], self.parents, self.starts, self.num_states, self._log_tables, whole)
            logs[~gaps] = whole
        return logs

    @cached_property
    def _log_tables(self) -> FloatArray:
        """Logarithms of the tables."""
        return np.log(self.tables)

    def posteriors(self, rows: MixtureRows, part: slice) -> tuple[FloatArray, FloatArray]:
        """Log-probabilities (R,) of some rows, and those of the components given each row (R, K)."""
        logs = self.joint_logs(rows, part)
        top = logs.max(axis=1, keepdims=True)
        shares = np.exp(logs - top)
        total = shares.sum(axis=1, keepdims=True)
        shares /= total
        return (top + np.log(total))[:, 0], shares

    def row_logs(self, rows: MixtureRows, clock: Clock) -> FloatArray:
        """Log-probability of every row."""
        parts = [self.posteriors(rows, part)[0] for part in rows.parts(self.num_components, clock)]
        return np.concatenate(parts)

    def expected_counts(
        self, rows: MixtureRows, clock: Clock, parents: IntArray | None = None
    ) -> tuple[float, FloatArray, FloatArray]:
        """Mean log-probability of the rows, expected shares (K,) of the components, and counts (T, K).

        With other ``parents`` counts are for tables of that tree; no value of the rows may be missing then.
        """
        from fastmix.learning.mixture_kernels import add_counts, add_expected_counts

        k = self.num_components
        tree = self.parents if parents is None else parents
        starts = self.starts if parents is None else offsets_of(self.num_states * _num_above(self.num_states, tree))
        counts = np.zeros((int(starts[-1]), k))
        totals = np.zeros(k)
        value = 0.0
        for part in rows.parts(k, clock):
            logs, shares = self.posteriors(rows, part)
            weights = rows.weights[part]
            value += float(weights @ logs)
            shares *= weights[:, None]
            totals += shares.sum(axis=0)
            gaps = rows.gaps[part]
            states = rows.states[part]
            if gaps.any():
                add_expected_counts(states[gaps], *self._message_tables, shares[gaps], counts)
            if not gaps.all():
                add_counts(states[~gaps], tree, starts, self.num_states, shares[~gaps], counts)
        return value, totals, counts

    def completed(self, rows: MixtureRows, rng: np.random.Generator, clock: Clock) -> MixtureRows:
        """The rows with missing values drawn given the others; the rows themselves where none is missing."""
        from fastmix.learning.mixture_kernels import draw_gaps

        numbers = np.flatnonzero(rows.gaps)
        if not len(numbers):
            return rows
        states = rows.states.copy()
        some = MixtureRows(rows.states[numbers], rows.weights[numbers], rows.gaps[numbers])
        alone = np.ascontiguousarray(self.tables.T)[:, :, None]
        for part in some.parts(max(self.num_components, states.shape[1]), clock):
            shares = self.posteriors(some, part)[1]
            edges = np.cumsum(shares, axis=1)
            components = (rng.random((len(shares), 1)) * edges[:, -1:] >= edges).sum(axis=1)
            components = np.minimum(components, self.num_components - 1)
            filled = some.states[part].copy()
            draw_gaps(filled, *self._message_tables[:-1], alone, components, rng.random(filled.shape))
            states[numbers[part]] = filled
        return MixtureRows(states, rows.weights, np.zeros(len(states), dtype=np.bool_))

    # -- as a model ---------------------------------------------------------------------------------------------------

    def to_model(self, data: Dataset) -> MarkovRandomField:
        """The mixture as a model of the variables of the data, and, last, of the hidden one, if there are components.

        Its tables are logarithms of conditional probabilities, so that its log Z is 0.
        """
        n = len(self.num_states)
        k = self.num_components
        factors: list[tuple[list[int], FloatArray]] = []
        if k > 1:
            factors.append(([n], np.log(self.shares)))
        above = _num_above(self.num_states, self.parents)
        for i, parent in enumerate(self.parents.tolist()):
            scope = [i] if parent < 0 else [parent, i]
            shape = [int(self.num_states[i])] if parent < 0 else [int(above[i]), int(self.num_states[i])]
            table = self._log_tables[self.starts[i] : self.starts[i + 1]]
            if k > 1:
                scope.append(n)
                shape.append(k)
            factors.append((scope, table.reshape(shape)))
        names = data.variable_names
        labels = data.state_names
        num_states = self.num_states
        if k > 1:
            num_states = np.append(num_states, k)
            names = (*(names or map(str, range(n))), f"{HIDDEN_NAME}0")
            labels = None if labels is None else (*labels, hidden_state_names(k))
        return MarkovRandomField.from_factors(num_states, factors, variable_names=names, state_names=labels)


def tables_of(counts: FloatArray, num_states: IntArray, parents: IntArray, smoothing: float) -> FloatArray:
    """Conditional probabilities (T, K) for counts of rows (T, K), smoothed by those of all components together.

    ``smoothing`` rows for every state of the parent have the distribution of all components, which is smoothed itself.
    """
    above = _num_above(num_states, parents)
    first = np.concatenate([[0], np.cumsum(np.repeat(num_states, above))])[:-1]
    lengths = np.repeat(num_states, above)
    pooled = counts.sum(axis=1) + UNSEEN_COUNT
    pooled /= np.repeat(np.add.reduceat(pooled, first), lengths)
    smoothed = counts + smoothing * pooled[:, None]
    smoothed /= np.repeat(np.add.reduceat(smoothed, first, axis=0), lengths, axis=0)
    return smoothed


def hidden_state_names(num_components: int) -> tuple[str, ...]:
    """Names of the states of a hidden variable: their numbers."""
    return tuple(str(k) for k in range(num_components))


def _num_above(num_states: IntArray, parents: IntArray) -> IntArray:
    """State counts of the parents, 1 for roots."""
    return np.where(parents >= 0, num_states[parents], 1).astype(np.int64)
