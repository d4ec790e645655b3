"""The data's part of the likelihood: the mean log-weight of what is observed, with missing values summed over."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import check_memory
from fastmix.errors import ResourceError
from fastmix.graphs import connected_components
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import MISSING, Dataset
from fastmix.learning.model_moments import grid_of_contrasts
from fastmix.learning.tuning import CHUNK_NUMBERS, FEW_COMPLETIONS, MAX_COMPLETIONS

__all__ = ["DataTerm", "RowsAlike"]


class DataTerm:
    """The mean over the data of the log-weight of what is observed, and its derivative: the moments of the data.

    Missing values are summed over, with the others as they are: ``log sum_z exp(w(x, z))``. Given the observed ones
    they fall into parts without edges between them; the states of each part are listed. Rows in which a part has too
    many are a :class:`ResourceError`, or, if they are to be ``sampled``, left out: those of ``beyond``.
    """

    def __init__(
        self, coordinates: Coordinates, data: Dataset, *, sampled: bool = False, clock: Clock = NO_LIMIT
    ) -> None:
        self.coordinates = coordinates
        self.beyond = np.zeros(0, dtype=np.int64)
        self.patterns: list[RowsAlike] = []
        d = coordinates.num_contrasts
        what = f"the products of {d:,} contrasts{data.note_on_hidden}"
        check_memory(24.0 * d * d, what, "use fewer variables or states")
        gone = data.states == MISSING
        is_whole = ~gone.any(axis=1)
        self.complete = self._moments_of(data, np.flatnonzero(is_whole), clock)
        gaps = np.flatnonzero(~is_whole)
        if len(gaps):
            self._find_patterns(data, gone, gaps, sampled=sampled, clock=clock)

    def _moments_of(self, data: Dataset, rows: IntArray, clock: Clock) -> FloatArray:
        """Weighted sums (size,) of the features of rows without missing values."""
        d = self.coordinates.num_contrasts
        products = np.zeros((d, d))
        means = np.zeros(d)
        step = max(1, CHUNK_NUMBERS // max(1, d))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            y = self.coordinates.encode(data.states[some])
            weights = data.weights[some]
            means += weights @ y
            products += y.T @ (weights[:, None] * y)
            clock.check()
        return self.coordinates.gather(means, products)

    def _find_patterns(self, data: Dataset, gone: BoolArray, gaps: IntArray, *, sampled: bool, clock: Clock) -> None:
        """Group rows in which the same variables are missing; what has too many states is left to chains."""
        most = FEW_COMPLETIONS if sampled else MAX_COMPLETIONS
        masks, where = np.unique(gone[gaps], axis=0, return_inverse=True)
        where = where.reshape(-1)
        order = np.argsort(where, kind="stable")
        bounds = np.searchsorted(where[order], np.arange(len(masks) + 1))
        for k, mask in enumerate(masks):
            clock.check()
            chosen = gaps[order[bounds[k] : bounds[k + 1]]]
            try:
                self.patterns.append(RowsAlike(self.coordinates, mask, data, chosen, most))
            except ResourceError:
                if not sampled:
                    raise
                self.beyond = np.concatenate([self.beyond, chosen])

    @property
    def fixed(self) -> bool:
        """Whether the moments do not depend on the parameters: nothing is missing."""
        return not self.patterns and not len(self.beyond)

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The mean log-weight and the moments (size,)."""
        value = float(self.complete @ v)
        if not self.patterns:
            return value, self.complete
        d = self.coordinates.num_contrasts
        matrix = self.coordinates.matrix(v)
        products = np.zeros((d, d))
        means = np.zeros(d)
        for pattern in self.patterns:
            value += float(pattern.weights @ pattern.log_masses(v, matrix, products, means))
        return value, self.complete + self.coordinates.gather(means, products)


class RowsAlike:
    """Rows in which the same variables are missing.

    Missing variables fall into parts without edges between them: ``singles`` are the contrasts of binary variables that
    stand alone, ``parts`` have the contrasts of the others and those of all their configurations.
    """

    def __init__(self, coordinates: Coordinates, mask: BoolArray, data: Dataset, rows: IntArray, most: int) -> None:
        self.coordinates = coordinates
        self.rows = rows
        self.weights = data.weights[rows]
        self.y = coordinates.encode(data.states[rows])
        structure = coordinates.structure
        missing = np.flatnonzero(mask)
        inner = structure.edges[mask[structure.edges].all(axis=1)]
        number = np.full(structure.num_variables, -1)
        number[missing] = np.arange(len(missing))
        count, label = connected_components(len(missing), number[inner])
        is_alone = (np.bincount(label, minlength=count)[label] == 1) & (structure.num_states[missing] == 2)
        self.singles = coordinates.starts[missing[is_alone]]
        self.parts = [
            self._list_part(missing[label == part], most) for part in np.unique(label[~is_alone])
        ]  # fmt: skip

    def _list_part(self, variables: IntArray, most: int) -> tuple[IntArray, FloatArray]:
        """Places of the contrasts of some variables, and the contrasts of all their configurations."""
        total = math.prod(self.coordinates.structure.num_states[variables].tolist())
        if total > most:
            raise ResourceError(
                f"missing values must have at most {most:,} joint states where they depend on each "
                f"other, got {total:.4g} for {len(variables)} variables of one row; leave out rows with so little, "
                "or learn a sparser graph, or with moments='sampled'"
            )
        starts = self.coordinates.starts
        places = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in variables])
        return places, grid_of_contrasts(self.coordinates, variables)

    def log_masses(
        self, v: FloatArray, matrix: FloatArray, products: FloatArray | None = None, means: FloatArray | None = None
    ) -> FloatArray:
        """``log sum_z exp(w(x, z))`` of every row; weighted moments are added to ``products`` (D, D) and ``means``."""
        c = v[: self.coordinates.num_contrasts]
        fields = self.y @ matrix
        values = self.y @ c + 0.5 * np.einsum("rk,rk->r", fields, self.y)
        fields += c
        expected = None if products is None else self.y.copy()
        if len(self.singles):
            t = np.sqrt(0.5) * fields[:, self.singles]
            values += np.logaddexp(t, -t).sum(axis=1)
            if expected is not None:
                expected[:, self.singles] = np.sqrt(0.5) * np.tanh(t)
        corrections: list[tuple[IntArray, FloatArray]] = []
        for places, grid in self.parts:
            second = self._sum_part(places, grid, fields, matrix, values, expected)
            corrections.append((places, second))
        if products is not None and means is not None and expected is not None:
            weighted = self.weights[:, None] * expected
            means += weighted.sum(axis=0)
            product = expected.T @ weighted
            for places, second in corrections:
                product[np.ix_(places, places)] = second
            products += product
        return values

    def _sum_part(
        self, places: IntArray, grid: FloatArray, fields: FloatArray, matrix: FloatArray, values: FloatArray,
        expected: FloatArray | None,
    ) -> FloatArray:  # fmt: skip
        """Weighted second moments of a part, if means are ``expected``, which are written there.

        The log-sums of the part are added to ``values``.
        """
        inner = 0.5 * np.einsum("rk,rk->r", grid @ matrix[np.ix_(places, places)], grid)
        second = np.zeros((len(places), len(places)))
        step = max(1, CHUNK_NUMBERS // len(grid))
        for first in range(0, len(values), step):
            some = slice(first, first + step)
            scores = fields[some][:, places] @ grid.T + inner
            top = scores.max(axis=1, keepdims=True)
            shares = np.exp(scores - top)
            total = shares.sum(axis=1, keepdims=True)
            values[some] += (top + np.log(total))[:, 0]
            if expected is None:
                continue
            shares /= total
            expected[some, places] = shares @ grid
            second += grid.T @ ((self.weights[some] @ shares)[:, None] * grid)
        return second
