"""Arrays that compiled kernels read: a structure and its parameters, laid out for each kind of sweep."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix.chains.base import ParameterSets
from fastmix.chains.tuning import (
    BLOCK_SITES,
    CHUNK_SITES,
    CHUNKED_SITES,
    DENSE_SHARE,
    MAX_CODES,
    MAX_DENSE_VARIABLES,
    MAX_LOG_WEIGHT,
    MAX_TABLE_ENTRIES,
    MAX_VALUES,
    POTTS_TOLERANCE,
    ROW_UNIT,
)
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField
from fastmix.model.flat import offsets_of
from fastmix.model.shared import SharedTables, TableUse
from fastmix.model.structure import Structure

__all__ = ["Layout", "directed_arrays", "pattern_places", "rows_of", "tables_fit"]

#: Bits of log-odds that are integers: sums of them stay below 2^62, with their rounding.
_LOG_ODDS_BITS = 61


def tables_fit(structure: Structure, *, num_sets: int = 1, num_chains: int | None = None) -> bool:
    """Whether thresholds for every pattern of neighbors fit into memory, and are worth filling.

    Where parameters change after every sweep, give ``num_chains``: filling is not worth it if a sweep of so many chains
    has fewer updates than there are entries.
    """
    entries = structure.pattern_entries
    if num_chains is not None and entries > float(num_chains) * structure.num_variables:
        return False
    return entries * num_sets <= MAX_TABLE_ENTRIES


def rows_of(starts: IntArray, rows: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Some rows of a compressed matrix: their starts one after another (rows + 1,), and the slots of their entries."""
    lengths = np.diff(starts)[rows]
    begins = offsets_of(lengths)
    return begins, np.repeat(starts[rows] - begins[:-1], lengths) + np.arange(begins[-1])


def _strides(starts: IntArray, counts: IntArray, inner: IntArray) -> tuple[IntArray, IntArray]:
    """Sizes (rows,) of tables over the entries of each row, and the steps that states of entries make in them.

    ``counts`` are the numbers of states of the entries; the first entry of a row varies slowest. ``inner`` (rows,) is
    how many numbers lie side by side for each combination of states.
    """
    sizes = inner.copy()
    steps = np.zeros(len(counts), dtype=np.int64)
    lengths = np.diff(starts)
    for back in range(1, int(lengths.max(initial=0)) + 1):
        rows = np.flatnonzero(lengths >= back)
        here = starts[rows + 1] - back
        steps[here] = sizes[rows]
        sizes[rows] *= counts[here]
    return sizes, steps


def _cut(bounds: IntArray, size: int) -> IntArray:
    """Bounds of pieces of at most ``size``, into which the intervals between the given bounds are cut."""
    pieces = -(-np.diff(bounds) // size)
    number = np.arange(int(pieces.sum())) - np.repeat(offsets_of(pieces)[:-1], pieces)
    return np.append(np.repeat(bounds[:-1], pieces) + size * number, bounds[-1])


def directed_arrays(model: MarkovRandomField) -> tuple[NDArray[Any], ...]:
    """Arrays for kernels that walk over both directions of every edge.

    Row starts and neighbors; for each direction the place of its table and the steps of own and other states; tables,
    those of larger factors after those of the edges; starts of unaries, unaries, and numbers of states.
    """
    graph = model.adjacency
    directed = model.structure.directed
    return (
        graph.indptr,
        graph.neighbors,
        directed.starts,
        directed.own_steps,
        directed.other_steps,
        model.parameters[len(model.log_unary) :],
        model.unary_offsets[:-1].copy(),
        model.log_unary.copy(),
        model.num_states.copy(),
    )


class Layout:
    """Arrays for kernels, of one structure and the parameters that are loaded.

    Arrays that depend on the structure only are made once, those that depend on the thetas that sets are mixed from are
    kept until other thetas are loaded: chains on one structure should share a layout. The product kernel takes
    ``block_sites`` sites of a color side by side.
    """

    def __init__(self, structure: Structure, block_sites: int = BLOCK_SITES) -> None:
        self.structure = structure
        self._block_sites = block_sites
        self.split = int(structure.unary_offsets[-1])  # parameters before it are unaries, those from it on tables
        self.cuts = structure.num_states - 1
        self.sum_starts = offsets_of(self.cuts)[:-1]

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays that follow from the structure are made anew: they would be most of what workers are sent.
        return Layout, (self.structure, self._block_sites)

    @property
    def order(self) -> NDArray[np.int32]:
        """The variables in the order of a sweep (n,); always read-only, so that each kernel is compiled once."""
        return read_only(self.structure.visit_order[0])

    @property
    def class_starts(self) -> IntArray:
        """Places at which the colors begin in the order, and its end."""
        return self.structure.visit_order[1]

    @cached_property
    def places(self) -> IntArray:
        """The places of the variables in the order of a sweep (n,)."""
        places = np.empty(len(self.order), dtype=np.int64)
        places[self.order] = np.arange(len(places))
        return places

    @cached_property
    def place_cuts(self) -> IntArray:
        """Numbers of states, minus one, of the variables at every place (n,)."""
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
        """Neighbors of every place in groups of four: starts of the groups (n + 1,), and places, n for none.

        A place without neighbors has a group too; the last group of a place is filled up with n in front.
        """
        indptr = self.by_place[0]
        n = len(self.order)
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
        """Those arrays of :meth:`table_arrays` that do not depend on parameters.

        The ``L_i - 1`` thresholds of a pattern lie side by side, so that steps and sizes count each of them.
        """
        graph = self.structure.adjacency
        patterns, steps = self.patterns
        return (
            self.order,
            graph.indptr,
            graph.neighbors.astype(np.int32),
            (steps * self.cuts[self.structure.directed.owner]).astype(np.uint32),
            self.cuts.astype(np.uint32),
            (patterns * self.cuts).astype(np.uint32),
        )

    def table_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """Arrays for :func:`fastmix.chains.sweep_kernels.table_sweeps` and ``single_sweeps``."""
        sizes = self.patterns[0] * self.cuts
        starts = offsets_of(sizes * sets.num_sets)
        table = np.empty(int(starts[-1]), dtype=np.uint32)
        for k in range(sets.num_sets):
            self.fill_thresholds(sets.theta(k), starts[:-1] + k * sizes, table)
        return (*self._pattern_arrays, starts, self.sum_starts, table)

    def four_arrays(self, sets: ParameterSets) -> tuple[NDArray[Any], ...]:
        """Arrays for :func:`fastmix.chains.sweep_kernels.four_sweeps`.

        The order of a sweep, and in this order the neighbors (n, 4) and thresholds (n, 16).
        """
        table = np.zeros(16 * len(self.order), dtype=np.uint32)
        self.fill_thresholds(sets.theta(0), 16 * self.places, table)
        around = np.append(self.order, len(self.order))[self.groups[1]]
        return self.order, around.astype(np.int32).reshape(-1, 4), table.reshape(-1, 16)

    def fill_thresholds(self, theta: FloatArray, starts: IntArray, table: NDArray[np.uint32]) -> None:
        """Fill in the thresholds of all patterns of neighbors of every variable i, from ``table[starts[i]]`` on."""
        from fastmix.chains.threshold_kernels import fill_thresholds

        structure = self.structure
        graph = structure.adjacency
        site = fill_thresholds(
            structure.num_states,
            graph.indptr,
            graph.neighbors,
            *structure.directed[1:],
            structure.unary_offsets,
            theta[: self.split],
            theta[self.split :],
            structure.incident,
            starts,
            table,
        )
        # With factors, a pattern that leaves a variable no state is forbidden itself: no chain gets there.
        if site >= 0 and not structure.num_factors:
            raise ModelError(f"variable {site} has no allowed state for some states of its neighbors")

    # -- log-odds of binary variables -------------------------------------------------------------------------------

    def field_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """Arrays for :func:`fastmix.chains.sweep_kernels.field_sweeps`: log-odds of state 1, linear in other states."""
        thetas, coefficients = sets.linear()
        offsets, joint, _ = self.binary_terms(thetas)
        chunks, neighbors, slots, edges = self._field_slots
        joined = joint.any(axis=1)
        if self._weights is None or self._weights[0] is not joint:
            weights = np.zeros((len(thetas), len(neighbors)))  # of neighbors that are missing, too
            for d in np.flatnonzero(joined):
                weights[d, slots] = joint[d, edges]
            self._weights = joint, weights
        joined |= len(thetas) == 1
        return np.ascontiguousarray(coefficients.T), self.order, chunks, neighbors, self._weights[1], offsets, joined

    def kept_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """Arrays for :func:`fastmix.chains.kept_kernels.kept_sweeps`: the order, neighbors, weights and offsets.

        Weights and offsets are integers in a unit, a power of two in which no log-odds leave 62 bits.
        """
        offsets, joint, _ = self.binary_terms(sets.thetas)
        [coefficients] = sets.coefficients
        graph = self.structure.adjacency
        n = len(self.order)
        edge_weights = coefficients @ joint
        offset = coefficients @ offsets
        ends = self.structure.edges.reshape(-1)
        largest = np.abs(offset) + np.bincount(ends, np.repeat(np.abs(edge_weights), 2), minlength=n)
        unit = 2.0 ** (math.ceil(math.log2(largest.max(initial=1.0))) - _LOG_ODDS_BITS)
        weights = np.rint(edge_weights / unit).astype(np.int64)[graph.edge_ids]
        neighbors = self._neighbors_in_few_bits
        rows = np.zeros((0, 0), dtype=np.int64)
        if len(neighbors) >= DENSE_SHARE * n * n and n <= MAX_DENSE_VARIABLES:
            rows = np.zeros((n, n), dtype=np.int64)
            rows[np.repeat(np.arange(n), graph.degree), neighbors] = weights
        return self.order, graph.indptr, neighbors, weights, rows, np.rint(offset / unit).astype(np.int64), unit

    @cached_property
    def _neighbors_in_few_bits(self) -> NDArray[np.int32]:
        """The neighbors of every variable, one after the other."""
        return self.structure.adjacency.neighbors.astype(np.int32)

    #: Weights of the edges, from :meth:`binary_terms`, and of all neighbors made from them; kept until they change.
    _weights: tuple[FloatArray, FloatArray] | None = None

    @cached_property
    def _field_slots(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Starts of groups of neighbors; neighbors, 0 where one is missing; slots that are taken, and their edges."""
        chunks, around = self.groups
        slots = np.flatnonzero(around < len(self.order))
        return 4 * chunks, np.append(self.order, 0)[around], slots, self.structure.adjacency.edge_ids[self.by_place[1]]

    def binary_terms(self, thetas: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Energies as quadratic functions of binary states: weights of variables and edges, and constants, by theta."""
        if self._terms is not None and self._terms[0] is thetas:
            return self._terms[1]
        edges = self.structure.edges
        split = self.split
        linear = thetas[:, 1:split:2] - thetas[:, :split:2]
        joint = np.zeros((len(thetas), len(edges)))
        constants = thetas[:, :split:2].sum(axis=1)
        for d, theta in enumerate(thetas):
            if not theta[split:].any():
                continue
            # A table is zero + (row - zero) x_i + (col - zero) x_j + (both - row - col + zero) x_i x_j.
            zero, col, row, both = np.ascontiguousarray(theta[split:].reshape(-1, 4).T)
            linear[d] += np.bincount(edges[:, 0], row - zero, minlength=len(linear[d]))
            linear[d] += np.bincount(edges[:, 1], col - zero, minlength=len(linear[d]))
            np.subtract(both, row, out=joint[d])
            joint[d] -= col
            joint[d] += zero
            constants[d] += zero.sum()
        self._terms = thetas, (linear, joint, constants)
        return self._terms[1]

    #: The latest thetas, and their energies from :meth:`binary_terms`.
    _terms: tuple[FloatArray, tuple[FloatArray, FloatArray, FloatArray]] | None = None

    # -- log-odds on a GPU, for few chains on a lattice ---------------------------------------------------------------

    @cached_property
    def codes(self) -> tuple[NDArray[np.uint16], NDArray[np.int32], IntArray] | None:
        """Codes for the distances to the neighbors of every place, distances of every code, and places of the weights.

        Missing neighbors have distance 0, that is the place itself, and weight 0. None if there are too many codes for
        16 bits, or too many missing neighbors.
        """
        indptr = self.by_place[0]
        n = len(self.order)
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
        if len(kinds) > MAX_CODES or (distances[some][codes] != distances).any():
            return None
        return codes.astype(np.uint16), distances[some], slot * n + owner

    def coded_arrays(self, theta: FloatArray) -> tuple[NDArray[Any], ...]:
        """Arrays for :func:`fastmix.chains.cuda.field_kernels.field_update`: weights and offsets in two parts each."""
        assert self.codes is not None  # else another kernel was chosen
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
        """Arrays for :func:`fastmix.chains.layer_kernels.layers_sweeps`.

        The matrix of weights is padded to multiples of 16 rows and columns.
        """
        [linear], [weights], _ = self.binary_terms(sets.theta(0)[None])
        matrix = np.zeros(-16 * (-np.diff(self.class_starts) // 16), dtype=np.float32)
        matrix[self._layer_places] = weights
        return self.order.astype(np.int64), self.class_starts, linear[self.order].astype(np.float32), matrix

    @cached_property
    def _layer_places(self) -> tuple[IntArray, IntArray]:
        """Ends of the edges between two layers, numbered within each layer."""
        ends = np.sort(self.places[self.structure.edges], axis=1)
        return ends[:, 0], ends[:, 1] - self.class_starts[1]

    # -- exponentiated weights --------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> IntArray:
        """Starts of the blocks of the order: some sites at a time of one color, with equal numbers of states."""
        states = self.structure.num_states[self.order]
        breaks = np.union1d(self.class_starts, np.flatnonzero(np.diff(states)) + 1)
        return _cut(np.union1d(breaks, self.chunks), self._block_sites)

    @cached_property
    def chunks(self) -> IntArray:
        """Starts of the chunks of the order: one chunk for all sites, or pieces of the colors of a large model."""
        n = len(self.order)
        if n < CHUNKED_SITES:
            return np.array([0, n], dtype=np.int64)
        return _cut(self.class_starts, CHUNK_SITES)

    def block_places(self, counts: IntArray) -> IntArray:
        """Places (sum,) of entries s of sites i, ``counts[i]`` for each, that lie by block, then by s, then by site."""
        order = self.order
        width = np.diff(self.blocks)
        block = np.repeat(np.arange(len(width)), width)
        starts = offsets_of(counts[order])
        first = np.empty(len(order), dtype=np.int64)  # by site: the place of its entry 0, and the step to the next
        step = np.empty(len(order), dtype=np.int64)
        first[order] = starts[self.blocks[block]] + np.arange(len(order)) - self.blocks[block]
        step[order] = width[block]
        local = np.arange(int(counts.sum())) - np.repeat(offsets_of(counts)[:-1], counts)
        return np.asarray(np.repeat(first, counts) + local * np.repeat(step, counts))

    @cached_property
    def _unary_places(self) -> IntArray:
        """Places of the unary entries, by blocks."""
        return self.block_places(self.structure.num_states)

    def _joined_places(self, sets: ParameterSets) -> tuple[IntArray, IntArray]:
        """The adjacency as in :attr:`by_place`, but without edges whose tables are zero.

        A model with factors over more variables has an edge for each of their pairs, and few of these have a table.
        """
        indptr, slots = self.by_place
        if not self.structure.num_factors:
            return indptr, slots
        first = self.split
        last = self.split + int(self.structure.pairwise_offsets[-1])
        used = (sets.thetas[:, first:last] != 0.0).any(axis=0)
        if sets.forbidden is not None:
            used |= sets.forbidden[first:last]
        joined = np.logical_or.reduceat(used, self.structure.pairwise_offsets[:-1])
        kept = joined[self.structure.adjacency.edge_ids[slots]]
        return np.append(0, np.cumsum(kept))[indptr], slots[kept]

    @cached_property
    def factor_places(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Factors around the places of a sweep: row starts and entries of ``incident``, then those of their members."""
        indptr, entries = rows_of(self.structure.incident.indptr, self.order)
        return indptr, entries, *rows_of(self.structure.incident.member_starts, entries)

    @cached_property
    def _factor_rows(self) -> tuple[tuple[NDArray[Any], ...], int]:
        """Factors around the places of a sweep as the product kernel reads them, and the number of their values.

        A row has the states of the owner side by side; rows are ordered by the states of the other members, the last
        fastest.
        """
        around = self.structure.incident
        counts = self.structure.num_states
        owners = np.repeat(counts, np.diff(around.indptr))
        sizes, steps = _strides(around.member_starts, counts[around.members], owners)
        begins = offsets_of(sizes)
        indptr, entries, member_starts, picked = self.factor_places
        rows = (
            indptr.astype(np.int32),
            begins[entries],
            member_starts.astype(np.int32),
            around.members[picked].astype(np.int32),
            steps[picked],
        )
        return rows, int(begins[-1])

    def product_arrays(self, sets: ParameterSets, visits: float | None = None) -> tuple[Any, ...]:
        """Arrays for :func:`fastmix.chains.product_kernels.product_sweeps`.

        Weights are exponentiated where that takes fewer numbers than updates look at: every variable is updated
        ``visits`` times before other parameters are loaded, or any number of times if that is None.

        Conditional weights are products: of the exponentiated unary and, for every neighbor, of a number for its state
        (*Potts* entries, whose tables are constant on the diagonal, and off it) or of a row of its table, as for every
        factor over more variables. Unaries and rows are scaled to a largest entry of 1, so that a product can only get
        too small; the kernel sees that and uses logarithms instead. Potts weights may be large or small: where a
        product of them could leave the range of floating-point numbers, their tables become rows.
        """
        structure = self.structure
        counts = structure.num_states
        if sets.tables is not None:
            return self._shared_product_arrays(sets)
        if self._found is None or self._found[0] is not sets.thetas:
            self._found = sets.thetas, self._joined_places(sets), self._potts_edges(sets)
        (indptr, slots), potts_edges = self._found[1:]
        graph = structure.adjacency
        neighbors = graph.neighbors[slots].astype(np.int32)
        owner = structure.directed.owner[slots]

        # Values of neighbors: one for a Potts table, else a row for every state of the neighbor.
        potts, couplings = self._potts_couplings(sets, slots, owner, potts_edges[graph.edge_ids[slots]])
        begins = offsets_of(np.where(potts, 1, counts[owner] * counts[neighbors]))
        factors, num_factor_values = self._factor_rows
        num_values = begins[-1] + num_factor_values
        exponentiated = num_values * sets.num_sets <= MAX_VALUES
        if visits is not None:
            looked_at = float(counts[owner].sum()) + float(np.diff(structure.incident.indptr) @ counts)
            exponentiated &= num_values <= visits * looked_at

        values = np.empty((sets.num_sets, int(num_values) if exponentiated else 0))
        unaries = np.empty((sets.num_sets, self.split))
        for k in range(sets.num_sets if exponentiated else 0):
            self._fill_unaries(sets.theta(k)[: self.split], unaries[k])
            values[k, begins[:-1][potts]] = np.exp(couplings[k, potts])
            self._fill_rows(sets.theta(k)[self.split :], slots, potts, begins, values[k])

        # Large models are limited by the bytes that they read: 32 bits are enough for what is exponentiated.
        factors = (factors[0], factors[1] + begins[-1], *factors[2:])
        begins = begins.astype(np.int32) if exponentiated else np.zeros(1, dtype=np.int32)
        return (
            self.order,
            self.blocks,
            counts,
            indptr.astype(np.int32),
            neighbors,
            potts,
            begins,
            factors,
            values,
            unaries,
            exponentiated,
            self.log_arrays(sets),
        )

    def _shared_product_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """Arrays as :meth:`product_arrays` gives them, of shared tables that are all of Potts form.

        Weights are not exponentiated where a product of them could leave the range of floating-point numbers, and where
        patterns are of another form, which random schedules alone bring here.
        """
        indptr, slots = self.by_place
        counts = self.structure.num_states
        neighbors = self.structure.adjacency.neighbors[slots].astype(np.int32)
        exponentiated = self.multiplies_potts(sets)
        values = np.empty((sets.num_sets, 0))
        unaries = np.empty((sets.num_sets, self.split))
        if exponentiated:
            values = np.exp(self._shared_couplings(sets)[:, self.structure.adjacency.edge_ids[slots]])
            for k in range(sets.num_sets):
                self._fill_unaries(sets.theta(k)[: self.split], unaries[k])
        no_slots = np.zeros(1, dtype=np.int32)
        begins = np.arange(len(slots) + 1, dtype=np.int32) if exponentiated else no_slots
        return (
            self.order,
            self.blocks,
            counts,
            indptr.astype(np.int32),
            neighbors,
            np.ones(len(slots), dtype=bool),
            begins,
            self._factor_rows[0],
            values,
            unaries,
            exponentiated,
            self.log_arrays(sets),
        )

    def multiplies_potts(self, sets: ParameterSets) -> bool:
        """Whether all shared tables of some sets are of Potts form, and weak enough to be multiplied."""
        assert sets.tables is not None
        if np.isnan(self._shared_potts(sets.tables)[sets.tables.use.of_edge]).any():
            return False
        num_slots = 2 * self.structure.num_edges
        if sets.num_sets * num_slots > MAX_VALUES:
            return False
        starts = self.structure.unary_offsets[:-1]
        first, second = self.structure.edges.T
        for k, couplings in enumerate(self._shared_couplings(sets)):
            unary = sets.theta(k)[: self.split]
            finite = np.where(unary > -np.inf, unary, 0.0)
            strength = np.maximum.reduceat(finite, starts) - np.minimum.reduceat(finite, starts)
            sizes = np.abs(np.where(couplings > -np.inf, couplings, 0.0))
            strength += np.bincount(first, sizes, len(strength)) + np.bincount(second, sizes, len(strength))
            if strength.max(initial=0.0) > MAX_LOG_WEIGHT:
                return False
        return True

    def _shared_couplings(self, sets: ParameterSets) -> FloatArray:
        """The Potts coupling of every edge in every set, (K, m); NaN where a pattern is of another form."""
        assert sets.tables is not None
        of_patterns = self._shared_potts(sets.tables)
        of_edge = sets.tables.use.of_edge
        weights = sets.weights(self.split)
        with np.errstate(invalid="ignore"):
            if weights.ndim == 2:
                return np.where(weights == 0.0, 0.0, weights * of_patterns[of_edge])
            following = of_patterns[np.minimum(of_edge + 1, len(of_patterns) - 1)]
            parts = (weights[:, 0], of_patterns[of_edge]), (weights[:, 1], following)
            first, second = (np.where(each == 0.0, 0.0, each * size) for each, size in parts)
        return np.asarray(first + second)

    def _shared_potts(self, tables: SharedTables) -> FloatArray:
        """What every pattern (p,) has on its diagonal less what it has off it; NaN where it is not constant on both."""
        if self._potts_patterns is not None and self._potts_patterns[0] is tables.patterns:
            return self._potts_patterns[1]
        found = np.full(tables.use.num_patterns, np.nan)
        for k in range(tables.use.num_patterns):
            pattern = tables.pattern(k)
            if pattern.shape[0] != pattern.shape[1] or len(pattern) < 2:
                continue
            diagonal = np.diagonal(pattern)
            others = pattern[~np.eye(len(pattern), dtype=bool)]
            if others.min() == -np.inf:
                continue
            level = float(others[0])
            tolerance = POTTS_TOLERANCE * (1.0 + np.abs(pattern[pattern > -np.inf]).max())
            with np.errstate(invalid="ignore"):
                apart = (diagonal != diagonal[0]) & (np.abs(diagonal - diagonal[0]) > tolerance)
            if not apart.any() and np.abs(others - level).max() <= tolerance:
                found[k] = diagonal[0] - level
        self._potts_patterns = tables.patterns, found
        return found

    #: The latest patterns, and the Potts coupling of each from :meth:`_shared_potts`.
    _potts_patterns: tuple[FloatArray, FloatArray] | None = None

    # -- rows of patterns ---------------------------------------------------------------------------------------------

    def pattern_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """Arrays for :func:`fastmix.chains.pattern_kernels.pattern_sweeps`, of sets with shared tables."""
        tables = sets.tables
        assert tables is not None
        indptr, slots = self.by_place
        graph = self.structure.adjacency
        edges = graph.edge_ids[slots]
        weights = sets.weights(self.split)
        following = np.empty((0, 0))
        if weights.ndim == 3:
            following = weights[:, 1][:, edges]
            weights = np.ascontiguousarray(weights[:, 0])
        return (
            self.order,
            self.structure.num_states,
            _row_widths(self.structure.num_states),
            indptr,
            graph.neighbors[slots].astype(np.int32),
            *self._row_places(tables),
            weights[:, edges],
            following,
            _rows_of_patterns(tables),
            self.structure.unary_offsets[:-1],
            np.stack([sets.theta(k)[: self.split] for k in range(sets.num_sets)]),
            self.sum_starts,
        )

    def _row_places(self, tables: SharedTables) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """By place: where the rows of each neighbor's pattern begin, and the step to the next row."""
        if self._rows is None or self._rows[0] is not tables.use:
            use = tables.use
            slots = self.by_place[1]
            graph = self.structure.adjacency
            edges = graph.edge_ids[slots]
            owner = np.repeat(self.order, np.diff(self.by_place[0]))
            owns_rows = (owner < graph.neighbors[slots]) ^ use.turned[edges]
            begins, steps = _places_of_rows(use)
            which = np.where(owns_rows, 0, 1), use.of_edge[edges]
            self._rows = use, (begins[which].astype(np.uint32), steps[which].astype(np.uint32))
        return self._rows[1]

    #: The latest use of patterns, and the arrays of :meth:`_row_places` for it.
    _rows: tuple[TableUse, tuple[NDArray[np.uint32], NDArray[np.uint32]]] | None = None

    def _potts_couplings(
        self, sets: ParameterSets, slots: IntArray, owner: IntArray, potts: NDArray[np.bool_]
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Which slots are multiplied as Potts tables, and the log-weights (K, slots) of equal states there.

        ``potts`` says which slots have Potts tables. Those are left out around which a product could leave the range of
        floating-point numbers, at the set where the weights and the range of the unary are largest.
        """
        structure = self.structure
        starts = structure.unary_offsets[:-1]
        strength = np.zeros(structure.num_variables)
        couplings = np.zeros((sets.num_sets, len(slots)))
        for k in range(sets.num_sets if potts.any() else 0):
            theta = sets.theta(k)
            tables = theta[self.split :]
            unary = theta[: self.split]
            at = structure.directed.starts[slots[potts]]
            couplings[k, potts] = tables[at] - tables[at + 1]
            finite = np.where(unary > -np.inf, unary, 0.0)
            spread = np.maximum.reduceat(finite, starts) - np.minimum.reduceat(finite, starts)
            size = np.abs(np.where(couplings[k] > -np.inf, couplings[k], 0.0))
            strength = np.maximum(strength, spread + np.bincount(owner, size, minlength=len(spread)))
        return potts & (strength[owner] <= MAX_LOG_WEIGHT), couplings

    def _fill_unaries(self, unary: FloatArray, out: FloatArray) -> None:
        """Fill in the exponentiated unaries of a set, scaled to a largest entry of 1 for every variable."""
        if len(unary):
            largest = np.maximum.reduceat(unary, self.structure.unary_offsets[:-1])
            out[self._unary_places] = np.exp(unary - np.repeat(largest, self.structure.num_states))

    def _fill_rows(
        self, tables: FloatArray, slots: IntArray, potts: NDArray[np.bool_], begins: IntArray, out: FloatArray
    ) -> None:
        """Fill in the exponentiated rows of the tables of a set that are no Potts tables, and those of factors."""
        from fastmix.chains.product_kernels import fill_factor_rows, fill_rows

        structure = self.structure
        counts = structure.num_states
        directed = structure.directed
        fill_rows(
            np.flatnonzero(~potts),
            begins,
            directed.owner[slots],
            counts[structure.adjacency.neighbors[slots]],
            counts,
            directed.starts[slots],
            directed.own_steps[slots],
            directed.other_steps[slots],
            tables,
            out,
        )
        if len(out) > begins[-1]:
            fill_factor_rows(counts, structure.incident, tables, out[begins[-1] :])

    #: The latest thetas, with the adjacency that they need and the edges on which they are Potts tables.
    _found: tuple[FloatArray, tuple[IntArray, IntArray], NDArray[np.bool_]] | None = None

    def _potts_edges(self, sets: ParameterSets) -> NDArray[np.bool_]:
        """Whether the table of each edge (m,) is constant on its diagonal, and off it, in all sets."""
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
                    low = values.min(axis=1)
                    high = values.max(axis=1)
                    result[members] &= high - low <= POTTS_TOLERANCE * (1.0 + np.abs(high))
                if sets.forbidden is None:
                    continue
                # All equal states may be forbidden together, as in colorings. No other forbidden entry is Potts.
                lost = sets.forbidden[self.split :][places]
                allowed = ~lost.any(axis=1)
                if part is diagonal:
                    allowed |= lost.all(axis=1)
                result[members] &= allowed
        return np.asarray(result)

    def log_arrays(self, sets: ParameterSets) -> tuple[Any, ...]:
        """Arrays for :func:`fastmix.chains.product_kernels.log_weights`, which adds logarithms up."""
        structure = self.structure
        graph = structure.adjacency
        thetas, coefficients = sets.linear()
        places: tuple[Any, ...] = structure.directed[1:]
        shared = (np.empty((0, 0)), np.empty((0, 0)), np.empty(0, dtype=np.int64))
        if sets.tables is None:
            tables = np.ascontiguousarray(thetas[:, self.split :])
        else:
            tables = np.tile(sets.tables.patterns, (len(thetas), 1))
            places, shared = self._shared_logs(thetas, sets.tables)
        return (
            graph.indptr,
            graph.neighbors,
            places,
            structure.unary_offsets[:-1],
            structure.num_states,
            np.ascontiguousarray(thetas[:, : self.split]),
            tables,
            np.ascontiguousarray(coefficients),
            structure.incident,
            shared,
        )

    def _shared_logs(self, thetas: FloatArray, tables: SharedTables) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """For both directions of every edge: places of its pattern, and its weights under every theta."""
        graph = self.structure.adjacency
        starts, first_steps, second_steps = pattern_places(tables)
        is_first = self.structure.directed.owner < graph.neighbors
        edges = graph.edge_ids
        own_steps = np.where(is_first, first_steps[edges], second_steps[edges])
        other_steps = np.where(is_first, second_steps[edges], first_steps[edges])
        num_edges = tables.use.num_edges
        # Kernels are compiled once: places as those of tables in full, and weights in rows.
        places = (read_only(starts[edges]), read_only(own_steps), read_only(other_steps))
        weights = np.take(thetas[:, self.split : self.split + num_edges], edges, axis=1)
        following = np.empty((0, 0))
        if tables.next_weights is not None:
            following = np.take(thetas[:, self.split + num_edges :], edges, axis=1)
        sizes = np.diff(tables.use.starts)[tables.use.of_edge[edges]]
        return places, (weights, following, sizes)


def pattern_places(tables: SharedTables) -> tuple[IntArray, IntArray, IntArray]:
    """For every edge: where its pattern begins, and the steps in it by a state of its first and second variable."""
    use = tables.use
    widths = use.shapes[use.of_edge, 1]
    ones = np.ones_like(widths)
    return use.starts[use.of_edge], np.where(use.turned, ones, widths), np.where(use.turned, widths, ones)


def _row_widths(counts: IntArray) -> IntArray:
    """Widths of rows of some numbers of states, filled up to whole vectors."""
    return -(-counts // ROW_UNIT) * ROW_UNIT


def _runs_of_patterns(use: TableUse) -> IntArray:
    """Where runs of patterns of one shape begin, and the number of patterns."""
    breaks = np.flatnonzero((use.shapes[1:] != use.shapes[:-1]).any(axis=1)) + 1
    return np.concatenate([[0], breaks, [use.num_patterns]]).astype(np.int64)


def _places_of_rows(use: TableUse) -> tuple[IntArray, IntArray]:
    """Where the rows of every pattern begin in :func:`_rows_of_patterns`, and the step from row to row: (2, p) each.

    The first of both is for owners that the rows of a pattern belong to, the second for those of its columns.
    """
    begins = np.zeros((2, use.num_patterns), dtype=np.int64)
    steps = np.zeros((2, use.num_patterns), dtype=np.int64)
    begin = 0
    for first, end in pairwise(_runs_of_patterns(use).tolist()):
        for side in (0, 1):
            width = int(_row_widths(use.shapes[first])[side])
            other = int(use.shapes[first][1 - side])
            begins[side, first:end] = begin + width * np.arange(end - first)
            steps[side, first:end] = width * (end - first)
            begin += width * (end - first) * other
    return begins, steps


def _rows_of_patterns(tables: SharedTables) -> FloatArray:
    """Rows of all patterns for both sides: by run, side and state of the other end, those of a run side by side.

    Neighboring patterns of a run, between which the tables of projected models lie, are then next to each other.
    """
    use = tables.use
    parts = [np.zeros(0)]
    for first, end in pairwise(_runs_of_patterns(use).tolist()):
        num_rows, num_cols = use.shapes[first].tolist()
        run = tables.patterns[use.starts[first] : use.starts[end]].reshape(end - first, num_rows, num_cols)
        for axes in ((2, 0, 1), (1, 0, 2)):
            turned = run.transpose(axes)
            num_own = turned.shape[2]
            rows = np.zeros((*turned.shape[:2], -(-num_own // ROW_UNIT) * ROW_UNIT))
            rows[:, :, :num_own] = turned
            parts.append(rows.reshape(-1))
    return np.concatenate(parts)
