"""What learning minimises: minus the mean log-likelihood, exact, or minus the mean log-pseudo-likelihood.

Objectives take the vector v of :class:`fastmix.learning.coordinates.Coordinates`, and return a value and its exact
derivative.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.exact.junction_tree import plan_junction_tree
from fastmix.graphs import connected_components
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import MISSING, Dataset
from fastmix.model import MarkovRandomField

__all__ = [
    "MOST_COMPLETIONS", "DataTerm", "Enumerated", "ExactLikelihood", "FloatMatrix", "Objective", "PseudoLikelihood",
    "Quadratic", "TreeSums", "exact_model_term",
]  # fmt: skip

FloatMatrix = NDArray[np.float32]

_MOST_CONFIGURATIONS = 1 << 22  # of a model that is enumerated: 32 MiB, a few hundredths of a second
MOST_COMPLETIONS = 1 << 16  # of missing values that depend on each other
_FEW_COMPLETIONS = 1 << 12  # that take no longer than chains do
# Of a junction tree that is run at every step, about a second, where nothing was asked for; no more than can be run
# about ten times in the time that is left; and seconds for each.
_MOST_ENTRIES, _ENTRIES_PER_SECOND, _ENTRY_SECONDS = 1e8, 1e7, 1e-8
_CHUNK = 1 << 22  # numbers of a temporary array


class Objective(ABC):
    """A smooth function of v; its least value is looked for."""

    coordinates: Coordinates
    method = "none"  # how moments are found

    @abstractmethod
    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value at v, and the derivative (size,)."""


class PseudoLikelihood(Objective):
    """Minus the mean over the data of ``sum_i log p(x_i | x_others)``, jointly in all parameters: convex.

    Two products of matrices per evaluation, (rows, D) by (D, D), and a pass over the rows.
    """

    def __init__(self, coordinates: Coordinates, data: Dataset) -> None:
        if data.has_missing:
            raise UnfitMethodError(
                "the pseudo-likelihood needs every value, and some are missing: objective='likelihood' sums over them"
            )
        d = coordinates.num_contrasts
        check_memory(40.0 * len(data.states) * d + 32.0 * d * d, "the pseudo-likelihood", "learn from fewer rows")
        self.coordinates = coordinates
        self._states, self._weights = np.ascontiguousarray(data.states), data.weights
        self._y = coordinates.encode(data.states)
        self._weighted = data.weights[:, None] * self._y

    def rows(self, v: FloatArray) -> tuple[FloatArray, FloatArray]:
        """``sum_i log p(x_i | x_others)`` of every row, and the residuals (rows, D)."""
        from fastmix.learning.kernels import binary_residuals, conditional_residuals

        coordinates = self.coordinates
        fields = self._y @ coordinates.matrix(v)
        fields += v[: coordinates.num_contrasts]
        logs = np.empty(len(fields))
        if coordinates.binary:
            binary_residuals(fields, self._y, logs)
            return logs, fields
        counts, starts = coordinates.structure.num_states, coordinates.starts
        conditional_residuals(fields, self._states, counts, starts, *coordinates.flat_tables, logs)
        return logs, fields

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value and its derivative."""
        logs, residuals = self.rows(v)
        products = residuals.T @ self._weighted
        return -float(self._weights @ logs), self.coordinates.gather(self._weights @ residuals, products + products.T)


# -- the model's part of the likelihood -------------------------------------------------------------------------------


class Enumerated(Objective):
    """Log Z and moments by listing all configurations of two halves of the variables.

    The weights of all configurations are ``exp(f(a) + g(b) + Y_a C_ab Y_b')``: products of matrices.
    """

    method = "enumeration"

    def __init__(self, coordinates: Coordinates) -> None:
        counts = coordinates.structure.num_states
        total = math.prod(counts.tolist())
        check_memory(24.0 * total, f"the list of {total:.4g} configurations", "use objective='pseudo-likelihood'")
        self.coordinates = coordinates
        logs = np.cumsum(np.log(counts))
        half = int(np.searchsorted(logs, 0.5 * logs[-1] + 1e-9)) if len(counts) else 0
        self._split = int(coordinates.starts[half])
        self._first, self._last = (_grid(coordinates, part) for part in (range(half), range(half, len(counts))))

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Log Z and moments."""
        d, s, a, b = self.coordinates.num_contrasts, self._split, self._first, self._last
        matrix = self.coordinates.matrix(v)
        logs = (a @ matrix[:s, s:]) @ b.T
        logs += (a @ v[:s] + 0.5 * np.einsum("rk,rk->r", a @ matrix[:s, :s], a))[:, None]
        logs += b @ v[s:d] + 0.5 * np.einsum("rk,rk->r", b @ matrix[s:, s:], b)
        top = float(logs.max())
        logs -= top
        weights = np.exp(logs, out=logs)
        of_a, of_b = weights.sum(axis=1), weights.sum(axis=0)
        z = float(of_a.sum())
        products = np.empty((d, d))
        products[:s, :s] = a.T @ (of_a[:, None] * a)
        products[s:, s:] = b.T @ (of_b[:, None] * b)
        products[:s, s:] = (a.T @ weights) @ b
        products[s:, :s] = products[:s, s:].T
        means = np.concatenate([a.T @ of_a, b.T @ of_b])
        return top + math.log(z), self.coordinates.gather(means, products) / z


def _grid(coordinates: Coordinates, variables: range | IntArray) -> FloatArray:
    """Contrasts of all configurations of some variables, the last fastest, (configurations, their contrasts)."""
    result = np.zeros((1, 0))
    for i in variables:
        q = coordinates.tables[int(i)]
        result = np.hstack([np.repeat(result, len(q), axis=0), np.tile(q, (len(result), 1))])
    return result


class TreeSums(Objective):
    """Log Z and moments by a junction tree that is planned once."""

    method = "junction tree"

    def __init__(self, coordinates: Coordinates, memory_limit: float | None = None, clock: Clock = NO_LIMIT) -> None:
        structure = coordinates.structure
        self.coordinates = coordinates
        self._model = MarkovRandomField(
            structure.num_states, np.zeros(int(structure.unary_offsets[-1])), structure.edges,
            np.zeros(int(structure.pairwise_offsets[-1])),
        )  # fmt: skip
        memory_limit = memory_limit or available_memory() / 2
        self.tree = plan_junction_tree(self._model, memory_limit=memory_limit, clock=clock)

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """Log Z and moments."""
        model = self._model.with_parameters(self.coordinates.to_parameters(v))
        answer = replace(self.tree, model=model).calibrate()
        moments = np.concatenate([answer.marginals, answer.factor_marginals])
        return answer.log_z, self.coordinates.from_gradient(moments)


def exact_model_term(coordinates: Coordinates, *, asked: bool, clock: Clock = NO_LIMIT) -> Objective:
    """The way to exact moments of models on a structure.

    Raises
    ------
    ResourceError
        If there is none within the memory, or, unless it was asked for, none that takes about a second, or no time to
        look for it.
    OutOfTimeError
        If it was asked for and takes longer than there is time.
    """
    counts = coordinates.structure.num_states
    if float(np.log2(counts).sum()) <= math.log2(_MOST_CONFIGURATIONS) + 1e-9:
        return Enumerated(coordinates)
    if asked:
        term = TreeSums(coordinates, clock=clock)
        if _ENTRY_SECONDS * term.tree.total_entries > clock.left():
            raise OutOfTimeError
        return term
    try:
        term = TreeSums(coordinates, min(1e9, available_memory() / 2), clock)
    except OutOfTimeError:
        raise ResourceError("there is no time to plan exact moments") from None
    if term.tree.total_entries > min(_MOST_ENTRIES, _ENTRIES_PER_SECOND * clock.left()):
        raise ResourceError(f"exact moments take long: {term.tree.total_entries:.3g} entries at every step")
    return term


# -- the data's part ------------------------------------------------------------------------------------------------


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
        d = coordinates.num_contrasts
        check_memory(24.0 * d * d, f"the products of {d:,} contrasts", "use fewer variables or states")
        gone = data.states == MISSING
        whole = ~gone.any(axis=1)
        products, means = np.zeros((d, d)), np.zeros(d)
        step = max(1, _CHUNK // max(1, d))
        rows = np.flatnonzero(whole)
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            y, weights = coordinates.encode(data.states[some]), data.weights[some]
            means += weights @ y
            products += y.T @ (weights[:, None] * y)
            clock.check()
        self.complete = coordinates.gather(means, products)
        self.patterns: list[_Pattern] = []
        most = _FEW_COMPLETIONS if sampled else MOST_COMPLETIONS
        rest = np.flatnonzero(~whole)
        if len(rest):
            masks, where = np.unique(gone[rest], axis=0, return_inverse=True)
            order = np.argsort(where.reshape(-1), kind="stable")
            bounds = np.searchsorted(where.reshape(-1)[order], np.arange(len(masks) + 1))
            for k, mask in enumerate(masks):
                clock.check()
                chosen = rest[order[bounds[k] : bounds[k + 1]]]
                try:
                    self.patterns.append(_Pattern(coordinates, mask, data, chosen, most))
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
        value, moments = float(self.complete @ v), self.complete
        if not self.patterns:
            return value, moments
        d = self.coordinates.num_contrasts
        matrix, products, means = self.coordinates.matrix(v), np.zeros((d, d)), np.zeros(d)
        for pattern in self.patterns:
            value += float(pattern.weights @ pattern.log_masses(v, matrix, products, means))
        return value, moments + self.coordinates.gather(means, products)


class _Pattern:
    """Rows in which the same variables are missing."""

    def __init__(self, coordinates: Coordinates, mask: BoolArray, data: Dataset, rows: IntArray, most: int) -> None:
        self.coordinates, self.weights, self.rows = coordinates, data.weights[rows], rows
        self.y = coordinates.encode(data.states[rows])
        structure = coordinates.structure
        missing = np.flatnonzero(mask)
        inner = structure.edges[mask[structure.edges].all(axis=1)]
        number = np.full(structure.num_variables, -1)
        number[missing] = np.arange(len(missing))
        count, label = connected_components(len(missing), number[inner])
        self.parts: list[tuple[IntArray, FloatArray]] = []
        alone = (np.bincount(label, minlength=count)[label] == 1) & (structure.num_states[missing] == 2)
        self.singles = coordinates.starts[missing[alone]]  # contrasts of binary variables that stand alone
        for part in np.unique(label[~alone]):
            variables = missing[label == part]
            total = math.prod(structure.num_states[variables].tolist())
            if total > most:
                raise ResourceError(
                    f"missing values must have at most {most:,} joint states where they depend on each "
                    f"other, got {total:.4g} for {len(variables)} variables of one row; leave out rows with so little, "
                    "or learn a sparser graph, or with moments='sampled'"
                )
            places = np.concatenate([np.arange(coordinates.starts[i], coordinates.starts[i + 1]) for i in variables])
            self.parts.append((places, _grid(coordinates, variables)))

    def log_masses(
        self, v: FloatArray, matrix: FloatArray, products: FloatArray | None = None, means: FloatArray | None = None
    ) -> FloatArray:
        """``log sum_z exp(w(x, z))`` of every row; weighted moments are added to ``products`` (D, D) and ``means``."""
        c = v[: self.coordinates.num_contrasts]
        fields = self.y @ matrix
        values = self.y @ c + 0.5 * np.einsum("rk,rk->r", fields, self.y)
        fields += c
        expected = self.y.copy()
        corrections: list[tuple[IntArray, FloatArray]] = []
        if len(self.singles):
            t = np.sqrt(0.5) * fields[:, self.singles]
            values += np.logaddexp(t, -t).sum(axis=1)
            expected[:, self.singles] = np.sqrt(0.5) * np.tanh(t)
        for places, grid in self.parts:
            inner = 0.5 * np.einsum("rk,rk->r", grid @ matrix[np.ix_(places, places)], grid)
            second = np.zeros((len(places), len(places)))
            step = max(1, _CHUNK // len(grid))
            for first in range(0, len(values), step):
                some = slice(first, first + step)
                scores = fields[some][:, places] @ grid.T + inner
                top = scores.max(axis=1, keepdims=True)
                scores = np.exp(scores - top)
                total = scores.sum(axis=1, keepdims=True)
                values[some] += (top + np.log(total))[:, 0]
                if products is not None:
                    scores /= total
                    expected[some, places] = scores @ grid
                    second += grid.T @ ((self.weights[some] @ scores)[:, None] * grid)
            corrections.append((places, second))
        if products is not None and means is not None:
            weighted = self.weights[:, None] * expected
            means += weighted.sum(axis=0)
            product = expected.T @ weighted
            for places, second in corrections:
                product[np.ix_(places, places)] = second
            products += product
        return values


class ExactLikelihood(Objective):
    """Minus the mean log-likelihood of the data, with exact moments of the model."""

    def __init__(self, model_term: Objective, data_term: DataTerm) -> None:
        self.coordinates, self.method = model_term.coordinates, model_term.method
        self.model_term, self.data_term = model_term, data_term

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value and its derivative."""
        log_z, moments = self.model_term.evaluate(v)
        weight, observed = self.data_term.evaluate(v)
        return log_z - weight, moments - observed


# -- the Hessian of the likelihood ------------------------------------------------------------------------------------


class Quadratic:
    """The Hessian of the log-likelihood as something to multiply by: covariances of the features of weighted rows.

    Single precision is plenty for a Hessian, and half the time. Rows come in parts (rows, n), the weights of all
    parts together; they add up to 1.
    """

    def __init__(self, coordinates: Coordinates, rows: Sequence[NDArray[Any]], weights: FloatArray) -> None:
        self.coordinates = coordinates
        # A last column of ones, so that linear terms are quadratic as well. (Products of rows of five numbers and a
        # vector, in single precision, can warn of invalid values: OpenBLAS 0.3.31 with AVX-512 adds up what is on the
        # stack, and leaves that out of the result.)
        y = np.ones((len(weights), coordinates.num_contrasts + 1), dtype=np.float32)
        first = 0
        for part in rows:
            y[first : first + len(part), :-1] = coordinates.encode(part)
            first += len(part)
        self._keep(y, weights.astype(np.float32))

    def apply(self, v: FloatArray) -> FloatArray:
        """The covariance of every feature with the log-weight at v, (size,)."""
        d = self.coordinates.num_contrasts
        matrix = np.zeros((d + 1, d + 1), dtype=np.float32)
        matrix[:d, :d] = self.coordinates.matrix(v)
        matrix[:d, d] = matrix[d, :d] = v[:d]
        image = self._multiply(matrix)
        return self.coordinates.gather(image[d, :d], image[:d, :d]).astype(np.float64)

    def _keep(self, y: FloatMatrix, weights: FloatMatrix) -> None:
        self._y, self._weights = y, weights

    def _multiply(self, matrix: FloatMatrix) -> NDArray[Any]:
        """``sum_r w_r (e_r - mean e) y_r y_r'`` with ``e_r = y_r' matrix y_r / 2``."""
        energies = np.float32(0.5) * np.einsum("rk,rk->r", self._y @ matrix, self._y)
        energies = self._weights * (energies - self._weights @ energies)
        return np.asarray(self._y.T @ (energies[:, None] * self._y))
