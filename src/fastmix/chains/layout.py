"""What compiled kernels read: the numbers of a structure and its parameters, laid out for each kind of sweep."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray
from fastmix.chains.base import ParameterSets
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.model.structure import Structure

__all__ = ["BLOCK_SITES", "Layout", "directed_arrays", "rows_of", "tables_fit"]


BLOCK_SITES = 128  # sites of one color that the product kernel takes side by side
_CHUNK = 8192  # sites that share a stream in a large model
_CHUNKED_SITES = 1 << 16  # from here on the chunks of a color can be shared between threads
_MOST_ENTRIES = 1 << 24  # thresholds of all sets: 64 MiB
_MOST_CODES = 1 << 16  # different surroundings of a site: codes have 16 bits
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


def rows_of(starts: IntArray, rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Some rows of compressed ones: where they begin, and their entries."""
    lengths = np.diff(starts)[rows]
    begins = offsets_of(lengths)
    return begins, np.repeat(starts[rows] - begins[:-1], lengths) + np.arange(begins[-1])


def _strides(starts: IntArray, counts: IntArray, inner: IntArray) -> tuple[IntArray, IntArray]:
    """Sizes (rows,) of tables over the entries of each row, and the steps that states of entries make in them.

    ``counts`` are the states of the entries, of which the first counts most, and ``inner`` (rows,) the numbers that lie
    side by side for all of them together.
    """
    sizes, steps, lengths = inner.copy(), np.zeros(len(counts), dtype=np.int64), np.diff(starts)
    for back in range(1, int(lengths.max(initial=0)) + 1):
        rows = np.flatnonzero(lengths >= back)
        here = starts[rows + 1] - back
        steps[here] = sizes[rows]
        sizes[rows] *= counts[here]
    return sizes, steps


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


class Layout:
    """Arrays for kernels: what only depends on the structure is made once, the rest for every load of parameters.

    There are ``num_sets`` parameter sets, and the product kernel takes ``block_sites`` of a color side by side.
    """

    def __init__(self, structure: Structure, num_sets: int = 1, block_sites: int = BLOCK_SITES) -> None:
        self.structure, self.num_sets, self._block_sites = structure, num_sets, block_sites
        self.split = int(structure.unary_offsets[-1])  # unaries come first in parameters
        self.order, self.class_starts = structure.visit_order
        self.cuts = structure.num_states - 1
        self.sum_starts = offsets_of(self.cuts)[:-1]

    @cached_property
    def places(self) -> IntArray:
        """The places of the variables in the order of a sweep (n,)."""
        places = np.empty(len(self.order), dtype=np.int64)
        places[self.order] = np.arange(len(places))
        return places

    @cached_property
    def place_cuts(self) -> IntArray:
        """States but the last of the variable at every place (n,)."""
        return self.cuts[self.order]

    @cached_property
    def by_place(self) -> tuple[IntArray, IntArray]:
        """The adjacency in the order of a sweep: row starts, and slots of ``adjacency.neighbors``."""
        return rows_of(self.structure.adjacency.indptr, self.order)

    @cached_property
    def neighbors(self) -> NDArray[np.int32]:
        """Places of the neighbors of every place, one place after the other, see ``by_place``."""
        return self.places[self.structure.adjacency.neighbors[self.by_place[1]]].astype(np.int32)

    @cached_property
    def groups(self) -> tuple[IntArray, IntArray]:
        """Where the groups of four neighbors of every place begin (n + 1,), and the places in them, n for none.

        A place without neighbors has a group too; the last group of a place is filled up with n in front.
        """
        indptr, n = self.by_place[0], len(self.order)
        degree = np.diff(indptr)
        groups = np.maximum(1, -(-degree // 4))
        chunks = offsets_of(groups)
        around = np.full(4 * int(chunks[-1]), n, dtype=np.int64)
        slots = np.arange(len(self.neighbors)) - np.repeat(indptr[:-1], degree)
        padding = np.where(slots >= np.repeat(4 * (groups - 1), degree), np.repeat(4 * groups - degree, degree), 0)
        around[np.repeat(4 * chunks[:-1], degree) + slots + padding] = self.neighbors
        return chunks, around

    # -- thresholds of all patterns ---------------------------------------------------------------------------------

    @cached_property
    def patterns(self) -> tuple[IntArray, IntArray]:
        """Patterns (n,) of states around each site, and the steps (2 m,) that neighbors make in their numbers."""
        graph = self.structure.adjacency
        return _strides(graph.indptr, self.structure.num_states[graph.neighbors], np.ones_like(self.cuts))

    @cached_property
    def _pattern_arrays(self) -> tuple[NDArray[Any], ...]:
        """The ``L_i - 1`` thresholds of a pattern lie side by side."""
        graph, (patterns, steps) = self.structure.adjacency, self.patterns
        sizes, steps = patterns * self.cuts, steps * self.cuts[self.structure.directed.owner]
        return (
            self.order, graph.indptr, graph.neighbors.astype(np.int32), steps.astype(np.uint32),
            self.cuts.astype(np.uint32), sizes.astype(np.uint32), offsets_of(sizes * self.num_sets), self.sum_starts,
        )  # fmt: skip

    def table_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """For :func:`fastmix.chains.kernels.table_sweeps`, and for ``single_sweeps``."""
        starts, sizes = self._pattern_arrays[6], self.patterns[0] * self.cuts
        table = np.empty(int(starts[-1]), dtype=np.uint32)
        for k in range(self.num_sets):
            self.fill_thresholds(sets.theta(k), starts[:-1] + k * sizes, table)
        return (*self._pattern_arrays, table)

    def four_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """For :func:`fastmix.chains.kernels.four_sweeps`: neighbors and thresholds (n, 16) in the order of a sweep."""
        table = np.zeros(16 * len(self.order), dtype=np.uint32)
        self.fill_thresholds(sets.theta(0), 16 * self.places, table)
        around = np.append(self.order, len(self.order))[self.groups[1]]
        return self.order, around.astype(np.int32).reshape(-1, 4), table.reshape(-1, 16)

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
            raise ModelError(f"variable {site} has no allowed state for some states of its neighbors")

    # -- log-odds of binary variables -------------------------------------------------------------------------------

    def field_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.kernels.field_sweeps`: log-odds of state 1 as linear functions of states."""
        thetas, coefficients = sets.linear()
        offsets, joint, _ = self.binary_terms(thetas)
        chunks, around = self.groups
        weights = np.zeros((len(thetas), len(around)))
        weights[:, around < len(self.order)] = joint[:, self.structure.adjacency.edge_ids[self.by_place[1]]]
        joined = weights.any(axis=1) | (len(thetas) == 1)
        neighbors = np.append(self.order, 0)[around]  # those that are missing have weight 0
        return np.ascontiguousarray(coefficients.T), self.order, 4 * chunks, neighbors, weights, offsets, joined

    def binary_terms(self, thetas: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Energies of binary states as quadratic functions: weights of variables, of edges, constants, by theta."""
        edges, split = self.structure.edges, self.split
        tables = thetas[:, split:].reshape(len(thetas), -1, 4)
        zero, col, row, both = (tables[..., k] for k in range(4))
        linear = thetas[:, 1:split:2] - thetas[:, :split:2]
        for d in range(len(thetas)):
            linear[d] += np.bincount(edges[:, 0], row[d] - zero[d], minlength=len(linear[d]))
            linear[d] += np.bincount(edges[:, 1], col[d] - zero[d], minlength=len(linear[d]))
        return linear, both - row - col + zero, thetas[:, :split:2].sum(axis=1) + zero.sum(axis=1)

    # -- the same on a device, for few chains on a lattice ------------------------------------------------------------

    @cached_property
    def codes(self) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
        """A code for the distances to the neighbors of every place, the distances of every code, where weights go.

        Missing neighbors have distance 0, the place itself, and weight 0. None if 16 bits or the padding do not pay.
        """
        indptr, n = self.by_place[0], len(self.order)
        degrees = np.diff(indptr)
        degree = max(1, int(degrees.max(initial=0)))
        if n == 0 or degree * n > 2 * len(self.neighbors) + 4 * n:
            return None
        owner = np.repeat(np.arange(n), degrees)
        slot = np.arange(len(owner)) - np.repeat(indptr[:-1], degrees)
        distances = np.zeros((n, degree), dtype=np.int32)
        distances[owner, slot] = self.neighbors - owner
        # Rows are told apart by a random linear function; equal keys are then checked to be equal rows.
        factors = np.random.default_rng(0).integers(1, 2**63, size=degree, dtype=np.uint64)
        key = np.zeros(n, dtype=np.uint64)
        with np.errstate(over="ignore"):
            for column, factor in zip(distances.T, factors, strict=True):
                key += column.astype(np.uint64) * factor
        kinds, some, codes = np.unique(key, return_index=True, return_inverse=True)
        if len(kinds) > _MOST_CODES or (distances[some][codes] != distances).any():
            return None
        return codes.astype(np.uint16), distances[some], slot * n + owner

    def coded_arrays(self, theta: FloatArray) -> tuple[NDArray[Any], ...]:
        """For :func:`fastmix.chains.cuda.field_kernels.field_update`: weights and offsets in two parts each."""
        assert self.codes is not None
        codes, steps, places = self.codes
        [linear], [joint], _ = self.binary_terms(theta[None])
        weights = np.zeros(steps.shape[1] * len(codes))
        weights[places] = joint[self.structure.adjacency.edge_ids[self.by_place[1]]]
        parts = []
        for values in (weights, linear[self.order]):
            rounded = values.astype(np.float32)
            parts += [rounded, (values - rounded).astype(np.float32)]
        return codes, steps, *parts

    # -- two layers of bits -----------------------------------------------------------------------------------------

    def layers_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.layer_kernels.layers_sweeps`: a matrix with whole groups of 16 rows and columns."""
        [linear], [weights], _ = self.binary_terms(sets.theta(0)[None])
        matrix = np.zeros(-16 * (-np.diff(self.class_starts) // 16), dtype=np.float32)
        matrix[self._layer_places] = weights
        return self.order.astype(np.int64), self.class_starts, linear[self.order].astype(np.float32), matrix

    @cached_property
    def _layer_places(self) -> tuple[IntArray, IntArray]:
        """The ends of edges between two layers, numbered in each."""
        ends = np.sort(self.places[self.structure.edges], axis=1)
        return ends[:, 0], ends[:, 1] - self.class_starts[1]

    # -- exponentiated weights --------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> IntArray:
        """Where blocks of the order begin: sites of one color with equal numbers of states, some at a time."""
        states = self.structure.num_states[self.order]
        breaks = np.union1d(self.class_starts, np.flatnonzero(np.diff(states)) + 1)
        return _cut(np.union1d(breaks, self.chunks).tolist(), self._block_sites)

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
    def _unary_places(self) -> IntArray:
        return self.block_places(self.structure.num_states)

    def _joined_places(self, sets: ParameterSets) -> tuple[IntArray, IntArray]:
        """:attr:`by_place` without the edges that only say that a factor joins their ends: tables of zeros."""
        indptr, slots = self.by_place
        if not self.structure.num_factors:
            return indptr, slots
        first, last = self.split, self.split + int(self.structure.pairwise_offsets[-1])
        used = (sets.thetas[:, first:last] != 0.0).any(axis=0)
        if sets.forbidden is not None:
            used |= sets.forbidden[first:last]
        joined = np.logical_or.reduceat(used, self.structure.pairwise_offsets[:-1])
        kept = joined[self.structure.adjacency.edge_ids[slots]]
        return np.append(0, np.cumsum(kept))[indptr], slots[kept]

    @cached_property
    def factor_places(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Factors around the places of a sweep: row starts and entries of ``incident``, the same of their members."""
        indptr, entries = rows_of(self.structure.incident.indptr, self.order)
        return indptr, entries, *rows_of(self.structure.incident.member_starts, entries)

    @cached_property
    def _factor_rows(self) -> tuple[tuple[NDArray[Any], ...], int]:
        """Factors around the places of a sweep as the product kernel reads them, and how many values they have.

        A row has the states of the owner side by side; rows go by the states of the other members, the last fastest.
        """
        around, counts = self.structure.incident, self.structure.num_states
        owners = np.repeat(counts, np.diff(around.indptr))
        sizes, steps = _strides(around.member_starts, counts[around.members], owners)
        begins = offsets_of(sizes)
        indptr, entries, member_starts, picked = self.factor_places
        rows = (
            indptr.astype(np.int32), begins[entries], member_starts.astype(np.int32),
            around.members[picked].astype(np.int32), steps[picked],
        )  # fmt: skip
        return rows, int(begins[-1])

    def product_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.product_kernels.product_sweeps`.

        Conditional weights are products: of the exponentiated unary and, for every neighbor, of a number for its state
        (*Potts* entries, whose tables are constant on the diagonal, and off it) or of a row of its table, as for every
        factor over more variables. Unaries and rows are scaled to a largest entry of 1, so that a product can only get
        too small, which the kernel sees and mends by logarithms. Potts weights may be large or small: their tables are
        rows where a product of them could leave the range of floating-point numbers.
        """
        from fastmix.chains.product_kernels import fill_factor_rows, fill_rows

        structure = self.structure
        indptr, slots = self._joined_places(sets)
        directed, graph = structure.directed, structure.adjacency
        neighbors, potts = graph.neighbors[slots].astype(np.int32), self._potts_edges(sets)[graph.edge_ids[slots]]
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
                unaries[k, self._unary_places] = np.exp(unary - top)
            values[k, begins[:-1][potts]] = np.exp(couplings[k, potts])
            rows = np.flatnonzero(~potts)
            fill_rows(
                rows, begins, owner, theirs, counts, directed.starts[slots], directed.own_steps[slots],
                directed.other_steps[slots], theta[self.split :], values[k],
            )  # fmt: skip
            if more:
                fill_factor_rows(counts, structure.incident, theta[self.split :], values[k, begins[-1] :])
        static = self.order, self.blocks, counts, indptr.astype(np.int32), neighbors
        # Large models are limited by the bytes that they read: 32 bits are enough for what is exponentiated.
        factors = (factors[0], factors[1] + begins[-1], *factors[2:])
        begins = begins.astype(np.int32) if exponentiated else np.zeros(1, dtype=np.int32)
        return *static, potts, begins, factors, values, unaries, exponentiated, logs

    def _potts_edges(self, sets: ParameterSets) -> NDArray[np.bool_]:
        """Which edges have tables that are constant on the diagonal, and off it, in all sets (m,)."""
        structure = self.structure
        result = np.zeros(structure.num_edges, dtype=bool)
        for states, others, members in structure.table_shapes:
            if states != others or states < 2:
                continue
            result[members] = True
            diagonal = np.eye(states, dtype=bool).reshape(-1)
            for part in (diagonal, ~diagonal):
                places = structure.pairwise_offsets[members][:, None] + np.flatnonzero(part)
                for theta in sets.thetas:
                    values = theta[self.split :][places]
                    low, high = values.min(axis=1), values.max(axis=1)
                    result[members] &= high - low <= _POTTS * (1.0 + np.abs(high))
                if sets.forbidden is not None:  # all equal states may be, as for colorings
                    lost = sets.forbidden[self.split :][places]
                    result[members] &= ~lost.any(axis=1) | (lost.all(axis=1) if part is diagonal else False)
        return np.asarray(result)

    def log_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """For :func:`fastmix.chains.product_kernels.log_weights`, which adds logarithms up."""
        structure, graph = self.structure, self.structure.adjacency
        thetas, coefficients = sets.linear()
        return (
            graph.indptr, graph.neighbors, *structure.directed[1:], structure.unary_offsets[:-1], structure.num_states,
            np.ascontiguousarray(thetas[:, : self.split]), np.ascontiguousarray(thetas[:, self.split :]),
            np.ascontiguousarray(coefficients), structure.incident,
        )  # fmt: skip
