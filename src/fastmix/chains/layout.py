"""What compiled kernels read: the numbers of a structure and its parameters, laid out for each kind of sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.base import parameter_sets
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["BLOCK_SITES", "Layout", "ParameterSets", "directed_arrays", "log_odds", "tables_fit"]


BLOCK_SITES = 128  # sites of one color that the product kernel takes side by side
_CHUNK = 8192  # sites that share a stream in a large model
_CHUNKED_SITES = 1 << 16  # from here on the chunks of a color can be shared between threads
_MOST_ENTRIES = 1 << 24  # thresholds of all sets: 64 MiB
_MOST_VALUES = 1 << 25  # exponentiated entries of all sets: 256 MiB; beyond, logarithms are added up at every update
_SAFE_LOG = 600.0  # weights between exp(-600) and exp(600) neither under- nor overflow
_POTTS = 1e-13  # differences between the entries of a Potts table off its diagonal that rounding makes


def tables_fit(structure: Structure, *, num_sets: int = 1, num_chains: int | None = None) -> bool:
    """Whether thresholds for every pattern of neighbors fit into memory, and are worth filling.

    They are not if parameters change after every sweep and the sweep has fewer updates than there are entries: give
    ``num_chains`` then.
    """
    entries = structure.pattern_entries
    worth = num_chains is None or entries <= float(num_chains) * structure.num_variables
    return worth and entries * num_sets <= _MOST_ENTRIES


def log_odds(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """Log-odds of state 1 of binary variables: by the unaries (n,), and what either state of a neighbor adds (2 m, 2).

    The second is aligned with ``adjacency.neighbors``.

    Examples
    --------
    >>> unary, odds = log_odds(MarkovRandomField.ising([(0, 1)], coupling=1.0, field=0.5))
    >>> unary.tolist(), odds.tolist()
    ([1.0, 1.0], [[-2.0, 2.0], [-2.0, 2.0]])
    """
    return _binary_odds(model.structure, model.log_unary, model.log_pairwise)


def _binary_odds(structure: Structure, unary: FloatArray, pairwise: FloatArray) -> tuple[FloatArray, FloatArray]:
    _, starts, own_steps, other_steps = structure.directed
    zero = starts[:, None] + other_steps[:, None] * np.arange(2)
    return unary[1::2] - unary[::2], pairwise[zero + own_steps[:, None]] - pairwise[zero]


def _cut(bounds: list[int], size: int) -> IntArray:
    """Bounds with more of them between, at most ``size`` apart."""
    pieces = [np.arange(a, b, size) for a, b in pairwise(bounds)]
    return np.concatenate([*pieces, bounds[-1:]]).astype(np.int64)


def directed_arrays(model: MarkovRandomField) -> tuple[NDArray[Any], ...]:
    """Neighbors with the place and the steps of their tables for both directions of every edge, tables and unaries.

    The tables of larger factors follow those of the edges.
    """
    graph, directed = model.adjacency, model.structure.directed
    return (
        graph.indptr, graph.neighbors, directed.starts, directed.own_steps, directed.other_steps,
        model.parameters[len(model.log_unary) :], model.unary_offsets[:-1].copy(), model.log_unary.copy(),
        model.num_states.copy(),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class ParameterSets:
    """Set k of parameters is ``coefficients[k] @ thetas``, and -inf where some theta is, whatever its coefficient.

    Attributes
    ----------
    thetas : float array (D, P)
        Finite: 0 where ``forbidden``.
    coefficients : float array (K, D)
    forbidden : bool array (P,) or None
    source : object
        What the thetas were made from: given again, they need not be looked at again.
    """

    thetas: FloatArray
    coefficients: FloatArray
    forbidden: NDArray[np.bool_] | None
    source: object = None

    @classmethod
    def of(cls, thetas: ArrayLike, coefficients: ArrayLike | None = None) -> ParameterSets:
        """From the arguments of :meth:`fastmix.chains.base.Chains.load`.

        Examples
        --------
        >>> sets = ParameterSets.of([[1.0, -np.inf], [2.0, 3.0]], [[1.0, 0.0], [0.5, 2.0]])
        >>> sets.theta(0).tolist(), sets.theta(1).tolist()
        ([1.0, -inf], [4.5, -inf])
        """
        bases, weights = parameter_sets(thetas, coefficients)
        forbidden = None
        if bases.size and bases.min() == -np.inf:
            forbidden = (bases == -np.inf).any(axis=0)
            bases = np.where(forbidden, 0.0, bases)
        return cls(bases, weights, forbidden, thetas)

    def scaled(self, coefficients: ArrayLike | None) -> ParameterSets:
        """Sets with the same thetas and other coefficients (K, D), by default the identity."""
        _, weights = parameter_sets(self.thetas, coefficients)
        return replace(self, coefficients=weights)

    @property
    def num_sets(self) -> int:
        """Number of sets K."""
        return len(self.coefficients)

    def theta(self, k: int) -> FloatArray:
        """The parameters (P,) of set k."""
        weights = self.coefficients[k]
        if len(weights) == 1 and weights[0] == 1.0 and self.forbidden is None:
            return self.thetas[0]
        theta = weights @ self.thetas
        if self.forbidden is not None:
            theta[self.forbidden] = -np.inf
        return np.asarray(theta)

    def linear(self) -> tuple[FloatArray, FloatArray]:
        """Thetas (D', P) and coefficients (K, D') that give the sets by plain sums, forbidden entries included."""
        if self.num_sets == 1:
            return self.theta(0)[None], np.ones((1, 1))
        if self.forbidden is None:
            return self.thetas, self.coefficients
        hard = np.where(self.forbidden, -np.inf, 0.0)
        return np.vstack([self.thetas, hard]), np.hstack([self.coefficients, np.ones((self.num_sets, 1))])


class Layout:
    """Arrays for kernels: what only depends on the structure is made once, the rest for every load of parameters.

    Parameters
    ----------
    structure : Structure
    num_sets : int
        K, parameter sets side by side.
    """

    def __init__(self, structure: Structure, num_sets: int = 1) -> None:
        self.structure, self.num_sets = structure, num_sets
        self.split = int(structure.unary_offsets[-1])  # unaries come first in parameters
        self.order, self.class_starts = structure.visit_order
        self.cuts = structure.num_states - 1
        self.sum_starts = offsets_of(self.cuts)[:-1]

    # -- thresholds of all patterns ---------------------------------------------------------------------------------

    @cached_property
    def patterns(self) -> tuple[IntArray, IntArray]:
        """Entries (n,) of the thresholds of each site, and the steps (2 m,) that the states of neighbors make in them.

        The first neighbor counts most, and the ``L_i - 1`` thresholds of a pattern lie side by side.
        """
        graph, owner = self.structure.adjacency, self.structure.directed.owner
        sizes, steps = self.cuts.copy(), np.zeros(len(owner), dtype=np.int64)
        theirs = self.structure.num_states[graph.neighbors]
        for back in range(1, int(graph.degree.max(initial=0)) + 1):
            sites = np.flatnonzero(graph.degree >= back)
            slots = graph.indptr[sites + 1] - back
            steps[slots] = sizes[sites]
            sizes[sites] *= theirs[slots]
        return sizes, steps

    @cached_property
    def _pattern_arrays(self) -> tuple[NDArray[Any], ...]:
        graph = self.structure.adjacency
        sizes, steps = self.patterns
        return (
            self.order, graph.indptr, graph.neighbors.astype(np.int32), steps.astype(np.uint32),
            self.cuts.astype(np.uint32), sizes.astype(np.uint32), offsets_of(sizes * self.num_sets), self.sum_starts,
        )  # fmt: skip

    def table_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """For :func:`fastmix.chains.kernels.table_sweeps`, and for ``single_sweeps``."""
        starts, sizes = self._pattern_arrays[6], self.patterns[0]
        table = np.empty(int(starts[-1]), dtype=np.uint32)
        for k in range(self.num_sets):
            self.fill_thresholds(sets.theta(k), starts[:-1] + k * sizes, table)
        return (*self._pattern_arrays, table)

    @cached_property
    def _around(self) -> NDArray[np.int32]:
        """Neighbors (n, 4) in the order of a sweep, padded in front by site n, whose state stays 0."""
        graph, n = self.structure.adjacency, self.structure.num_variables
        around = np.full((n, 4), n, dtype=np.int32)
        for back in range(1, 5):
            sites = np.flatnonzero(graph.degree >= back)
            around[sites, 4 - back] = graph.neighbors[graph.indptr[sites + 1] - back]
        return around[self.order]

    def four_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """For :func:`fastmix.chains.kernels.four_sweeps`: thresholds (n, 16) in the order of a sweep."""
        table = np.zeros(16 * len(self.order), dtype=np.uint32)
        starts = np.empty(len(self.order), dtype=np.int64)
        starts[self.order] = 16 * np.arange(len(self.order))
        self.fill_thresholds(sets.theta(0), starts, table)
        return self.order, self._around, table.reshape(-1, 16)

    def fill_thresholds(self, theta: FloatArray, starts: IntArray, table: NDArray[np.uint32]) -> None:
        """Fill in the thresholds of all patterns around every variable, from ``table[starts[i]]`` on."""
        from fastmix.chains.kernels import fill_thresholds

        structure, graph = self.structure, self.structure.adjacency
        site = fill_thresholds(
            structure.num_states, graph.indptr, graph.neighbors, *structure.directed[1:], structure.unary_offsets,
            theta[: self.split], theta[self.split :], structure.incident, starts, table,
        )  # fmt: skip
        # What a factor forbids beside all states of a variable is forbidden already: no chain gets there.
        if site >= 0 and not structure.num_factors:
            raise ModelError(f"variable {site} has no allowed state for some states of its neighbours")

    # -- log-odds of binary variables -------------------------------------------------------------------------------

    def field_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.kernels.field_sweeps`: log-odds of state 1 as linear functions of states.

        Variables have four neighbors or a multiple of it: some of weight 0 are added, so that one loop does for all.
        """
        structure, graph, owner = self.structure, self.structure.adjacency, self.structure.directed.owner
        thetas, coefficients = sets.linear()
        padded = 4 * np.maximum(1, -(-graph.degree // 4))
        indptr = offsets_of(padded)
        places = np.arange(owner.size) + (indptr[:-1] - graph.indptr[:-1])[owner]
        neighbors = np.zeros(indptr[-1], dtype=np.int64)
        neighbors[places] = graph.neighbors
        weights, offsets = np.zeros((len(thetas), indptr[-1])), np.empty((len(thetas), structure.num_variables))
        for d, theta in enumerate(thetas):
            unary, odds = _binary_odds(structure, theta[: self.split], theta[self.split :])
            offsets[d] = unary + np.bincount(owner, odds[:, 0], minlength=structure.num_variables)
            weights[d, places] = odds[:, 1] - odds[:, 0]
        joined = weights.any(axis=1) | (len(thetas) == 1)
        return (
            np.ascontiguousarray(coefficients.T), self.order, indptr, neighbors, weights, offsets, joined,
        )  # fmt: skip

    # -- two layers of bits -----------------------------------------------------------------------------------------

    @cached_property
    def layers(self) -> tuple[IntArray, IntArray, IntArray] | None:
        """The variables by layers and where these begin, if all edges are between two; and where edges are in a matrix.

        The matrix, flat, has a row for every variable of the first layer and a column for every one of the second.
        """
        if len(self.class_starts) != 3:
            return None
        order, starts = self.order.astype(np.int64), self.class_starts
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        ends = np.sort(place[self.structure.edges], axis=1)
        return order, starts, ends[:, 0] * (starts[2] - starts[1]) + ends[:, 1] - starts[1]

    def layer_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.layer_kernels.layer_sweeps`."""
        assert self.layers is not None
        theta, n, edges = sets.theta(0), self.structure.num_variables, self.structure.edges
        tables = theta[self.split :].reshape(-1, 4)
        linear = theta[1 : self.split : 2] - theta[: self.split : 2]
        linear += np.bincount(edges[:, 0], tables[:, 2] - tables[:, 0], minlength=n)
        linear += np.bincount(edges[:, 1], tables[:, 1] - tables[:, 0], minlength=n)
        order, starts, _ = self.layers
        shape, places = self._padded_places
        weights = np.zeros(shape, dtype=np.float32)
        weights.reshape(-1)[places] = tables[:, 3] - tables[:, 2] - tables[:, 1] + tables[:, 0]
        return order, starts, linear[order].astype(np.float32), weights

    @cached_property
    def _padded_places(self) -> tuple[tuple[int, int], IntArray]:
        """The shape of the matrix with whole groups of eight rows and columns, and where edges are in it."""
        assert self.layers is not None
        first, second = np.diff(self.layers[1]).tolist()
        shape = -8 * (-first // 8), -8 * (-second // 8)
        return shape, self.layers[2] // second * shape[1] + self.layers[2] % second

    # -- exponentiated weights --------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> IntArray:
        """Where blocks of the order begin: sites of one color with equal numbers of states, some at a time."""
        states = self.structure.num_states[self.order]
        breaks = np.union1d(self.class_starts, np.flatnonzero(np.diff(states)) + 1)
        return _cut(np.union1d(breaks, self.chunks).tolist(), BLOCK_SITES)

    @cached_property
    def chunks(self) -> IntArray:
        """Where chunks of the order begin: one for everything, or pieces of the colors of a large model."""
        n = len(self.order)
        return np.array([0, n], dtype=np.int64) if n < _CHUNKED_SITES else _cut(self.class_starts.tolist(), _CHUNK)

    def block_places(self, counts: IntArray) -> IntArray:
        """Where entry s of site i is, ``counts[i]`` entries for each: by blocks, then by s, then by site (sum,)."""
        order, width = self.order, np.diff(self.blocks)
        block = np.repeat(np.arange(len(width)), width)
        starts = offsets_of(counts[order])
        first = np.empty(len(order), dtype=np.int64)  # by site: where its entry 0 is, and the step to the next
        step = np.empty(len(order), dtype=np.int64)
        first[order] = starts[self.blocks[block]] + np.arange(len(order)) - self.blocks[block]
        step[order] = width[block]
        local = np.arange(int(counts.sum())) - np.repeat(offsets_of(counts)[:-1], counts)
        return np.asarray(np.repeat(first, counts) + local * np.repeat(step, counts))

    @cached_property
    def _by_place(self) -> tuple[NDArray[np.int32], NDArray[np.int32], IntArray, IntArray]:
        """The adjacency in the order of a sweep: row starts, neighbors and slots; and where unaries go."""
        graph = self.structure.adjacency
        indptr = offsets_of(graph.degree[self.order])
        slots = np.repeat(graph.indptr[self.order] - indptr[:-1], graph.degree[self.order]) + np.arange(indptr[-1])
        neighbors, places = graph.neighbors[slots].astype(np.int32), self.block_places(self.structure.num_states)
        return indptr.astype(np.int32), neighbors, slots, places

    def _joined_places(self, sets: ParameterSets) -> tuple[Any, ...]:
        """:attr:`_by_place` without the edges that only say that a factor joins their ends: tables of zeros."""
        indptr, neighbors, slots, unary_places = self._by_place
        if not self.structure.num_factors:
            return indptr, neighbors, slots, unary_places
        first, last = self.split, self.split + int(self.structure.pairwise_offsets[-1])
        used = (sets.thetas[:, first:last] != 0.0).any(axis=0)
        if sets.forbidden is not None:
            used |= sets.forbidden[first:last]
        kept = np.logical_or.reduceat(used, self.structure.pairwise_offsets[:-1])[
            self.structure.adjacency.edge_ids[slots]
        ]
        place = np.repeat(np.arange(len(self.order)), np.diff(indptr))[kept]
        counts = np.bincount(place, minlength=len(self.order))
        return offsets_of(counts).astype(np.int32), neighbors[kept], slots[kept], unary_places

    @cached_property
    def factor_places(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Factors around the places of a sweep: row starts and entries of ``incident``, the same of their members."""
        around = self.structure.incident
        each = np.diff(around.indptr)[self.order]
        indptr = offsets_of(each)
        entries = np.repeat(around.indptr[self.order] - indptr[:-1], each) + np.arange(indptr[-1])
        others = np.diff(around.member_starts)[entries]
        starts = offsets_of(others)
        members = np.repeat(around.member_starts[entries] - starts[:-1], others) + np.arange(starts[-1])
        return indptr, entries, starts, members

    @cached_property
    def _factor_rows(self) -> tuple[tuple[NDArray[Any], ...], int]:
        """Factors around the places of a sweep as the product kernel reads them, and how many values they have.

        A row has the states of the owner side by side; rows go by the states of the other members, the last fastest.
        """
        around, counts = self.structure.incident, self.structure.num_states
        owner = np.repeat(np.arange(len(counts)), np.diff(around.indptr))
        steps = np.ones(len(around.members), dtype=np.int64)
        sizes, others = counts[owner], np.diff(around.member_starts)
        for back in range(1, int(others.max(initial=0)) + 1):
            entries = np.flatnonzero(others >= back)
            here = around.member_starts[entries + 1] - back
            steps[here] = sizes[entries]
            sizes[entries] = sizes[entries] * counts[around.members[here]]
        begins = offsets_of(sizes)
        indptr, entries, member_starts, picked = self.factor_places
        rows = (
            indptr.astype(np.int32), begins[entries], member_starts.astype(np.int32),
            around.members[picked].astype(np.int32), steps[picked],
        )  # fmt: skip
        return rows, int(begins[-1])

    def product_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.kernels.product_sweeps`.

        Conditional weights are products: of the exponentiated unary and, for every neighbor, of a number for its state
        (*Potts* entries, whose tables are constant off the diagonal) or of a row of its table, as for every factor
        over more variables. Unaries and rows are scaled to a largest entry of 1, so that a product can only get too
        small, which the kernel sees and mends by logarithms. Potts weights may be large or small: their tables are
        rows where a product of them could leave the range of floating-point numbers.
        """
        from fastmix.chains.kernels import fill_factor_rows, fill_rows

        structure = self.structure
        indptr, neighbors, slots, unary_places = self._joined_places(sets)
        directed, edge_ids = structure.directed, structure.adjacency.edge_ids[slots]
        potts = self._potts_edges(sets)[edge_ids]
        owner, theirs = directed.owner[slots], structure.num_states[neighbors]
        starts, counts = structure.unary_offsets[:-1], structure.num_states
        # Potts weights around each site, and the range of its unary, at the set where they are largest.
        strength = np.zeros(structure.num_variables)
        couplings = np.zeros((self.num_sets, len(slots)))
        for k in range(self.num_sets if potts.any() else 0):
            theta = sets.theta(k)
            tables, unary = theta[self.split :], theta[: self.split]
            at = directed.starts[slots[potts]]
            couplings[k, potts] = tables[at] - tables[at + 1]
            finite = np.where(unary > -np.inf, unary, 0.0)
            spread = np.maximum.reduceat(finite, starts) - np.minimum.reduceat(finite, starts)
            size = np.abs(np.where(couplings[k] > -np.inf, couplings[k], 0.0))
            strength = np.maximum(strength, spread + np.bincount(owner, size, minlength=len(spread)))
        potts &= strength[owner] <= _SAFE_LOG
        sizes = np.where(potts, 1, counts[owner] * theirs)
        begins = offsets_of(sizes)
        logs = self.log_arrays(sets)
        factors, more = self._factor_rows
        exponentiated = (begins[-1] + more) * self.num_sets <= _MOST_VALUES
        values = np.empty((self.num_sets, int(begins[-1]) + more if exponentiated else 0))
        unaries = np.empty((self.num_sets, self.split))
        for k in range(self.num_sets if exponentiated else 0):
            theta = sets.theta(k)
            unary = theta[: self.split]
            if len(unary):
                top = np.repeat(np.maximum.reduceat(unary, starts), counts)
                unaries[k, unary_places] = np.exp(unary - top)
            values[k, begins[:-1][potts]] = np.exp(couplings[k, potts])
            rows = np.flatnonzero(~potts)
            fill_rows(
                rows, begins, owner, theirs, counts, directed.starts[slots], directed.own_steps[slots],
                directed.other_steps[slots], theta[self.split :], values[k],
            )  # fmt: skip
            if more:
                fill_factor_rows(counts, structure.incident, theta[self.split :], values[k, begins[-1] :])
        static = self.order, self.blocks, counts, indptr, neighbors
        # Large models are limited by the bytes that they read: 32 bits are enough for what is exponentiated.
        factors = (factors[0], factors[1] + begins[-1], *factors[2:])
        begins = begins.astype(np.int32) if exponentiated else np.zeros(1, dtype=np.int32)
        return *static, potts, begins, factors, values, unaries, exponentiated, logs

    def _potts_edges(self, sets: ParameterSets) -> NDArray[np.bool_]:
        """Which edges have tables that are constant off the diagonal, in all sets (m,)."""
        structure = self.structure
        result = np.zeros(structure.num_edges, dtype=bool)
        for states, others, members in structure.table_shapes:
            if states != others or states < 2:
                continue
            result[members] = True
            off = np.flatnonzero(~np.eye(states, dtype=bool).reshape(-1))
            places = structure.pairwise_offsets[members][:, None] + off
            for theta in sets.thetas:
                values = theta[self.split :][places]
                low, high = values.min(axis=1), values.max(axis=1)
                result[members] &= high - low <= _POTTS * (1.0 + np.abs(high))
            if sets.forbidden is not None:
                result[members] &= ~sets.forbidden[self.split :][places].any(axis=1)
        return np.asarray(result)

    def log_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.kernels.log_weights`, which adds logarithms up."""
        structure, graph = self.structure, self.structure.adjacency
        thetas, coefficients = sets.linear()
        return (
            graph.indptr, graph.neighbors, *structure.directed[1:], structure.unary_offsets[:-1], structure.num_states,
            np.ascontiguousarray(thetas[:, : self.split]), np.ascontiguousarray(thetas[:, self.split :]),
            np.ascontiguousarray(coefficients), structure.incident,
        )  # fmt: skip
