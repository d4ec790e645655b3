"""Gibbs sweeps of replicas at all rungs of a ladder: the arrays behind the compiled loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.chains.generator import thresholds
from fastmix.errors import UnfitMethodError
from fastmix.methods.tempering.path import TemperingPath
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["SummedSweeps", "Sweeps", "TabulatedSweeps", "contrast_places", "make_sweeps"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_MOST_ENTRIES = 1.5e6  # of the tables of one rung: with a hundred rungs they take 600 MB


class TabulatedSweeps:
    """Conditional distributions of every site for every pattern of its neighbours, as functions of the rung.

    The logits of a pattern are linear in the coefficients of the path, so that they are added up once, for every
    component of the path, and a new ladder only needs combinations of them.

    Parameters
    ----------
    path : TemperingPath
        With few enough patterns, see :func:`make_sweeps`.
    """

    def __init__(self, path: TemperingPath) -> None:
        model, graph = path.model, path.model.adjacency
        n, degree = model.num_variables, graph.degree
        self._order, _ = model.structure.visit_order
        self._cuts = (model.num_states - 1).astype(np.uint32)
        self._indptr, self._neighbors = graph.indptr, graph.neighbors.astype(np.int32)
        shapes: dict[tuple[int, ...], list[int]] = {}
        if n and (model.num_states == model.num_states[0]).all():
            for d in np.unique(degree).tolist():
                shapes[(int(model.num_states[0]),) * (d + 1)] = np.flatnonzero(degree == d).tolist()
        else:
            counts, indptr = model.num_states.tolist(), graph.indptr.tolist()
            for i in range(n):
                around = graph.neighbors[indptr[i] : indptr[i + 1]].tolist()
                shapes.setdefault((counts[i], *[counts[j] for j in around]), []).append(i)
        self._sizes = np.zeros(n, dtype=np.uint32)
        self.bytes_per_rung = 4.0 * model.structure.pattern_entries
        self._strides = np.zeros(int(degree.sum()), dtype=np.uint32)
        self._groups: list[tuple[tuple[int, ...], IntArray, list[FloatArray], FloatArray | None]] = []
        for shape, members in shapes.items():
            sites = np.array(members)
            self._sizes[sites] = (shape[0] - 1) * math.prod(shape[1:])
            for k in range(len(shape) - 1):
                self._strides[graph.indptr[sites] + k] = (shape[0] - 1) * math.prod(shape[k + 2 :])
            unary = np.broadcast_to(
                model.log_unary[model.unary_offsets[sites][:, None] + np.arange(shape[0])][:, None, :],
                (len(sites), math.prod(shape[1:]), shape[0]),
            )
            parts = [np.ascontiguousarray(unary), *[_pattern_sums(path, t, sites, shape) for t in path.tables]]
            mask = None
            if path.forbidden is not None:
                hard = np.where(path.forbidden, -np.inf, 0.0)
                mask = _pattern_sums(path, hard, sites, shape)
            self._groups.append((shape, sites, parts, mask))

    def arguments(self, coefficients: FloatArray) -> tuple[Any, ...]:
        """What :meth:`sweep` needs for rungs with these coefficients (K, components)."""
        num_rungs = len(coefficients)
        starts = offsets_of(self._sizes.astype(np.int64) * num_rungs)
        table = np.empty(int(starts[-1]), dtype=np.uint32)
        for shape, sites, parts, mask in self._groups:
            size = (shape[0] - 1) * math.prod(shape[1:])
            if not size:
                continue
            inside = np.arange(size)
            for k, weights in enumerate(coefficients):
                logits = weights[0] * parts[0]
                for weight, part in zip(weights[1:], parts[1:], strict=True):
                    if weight:
                        logits += weight * part
                if mask is not None:
                    logits += mask
                logits -= logits.max(axis=-1, keepdims=True)
                total = np.cumsum(np.exp(logits, out=logits), axis=-1)
                values = thresholds(total[..., :-1] / total[..., -1:]).reshape(len(sites), size)
                table[(starts[sites] + k * size)[:, None] + inside] = values
        return (
            self._order, self._indptr, self._neighbors, self._strides, self._cuts, self._sizes, starts, table,
            offsets_of(self._cuts.astype(np.int64))[:-1].copy(),
        )  # fmt: skip

    def sweep(
        self,
        x: NDArray[np.uint8],
        rung: NDArray[np.uint32],
        arguments: tuple[Any, ...],
        streams: NDArray[np.uint32],
        sums: NDArray[np.uint32],
        num_sweeps: int = 1,
    ) -> None:
        """Sweeps of all lanes; see :func:`fastmix.methods.tempering.kernels.table_sweeps`."""
        from fastmix.methods.tempering import kernels

        run: Any = kernels.table_sweeps
        run(x, rung, *arguments, streams, sums, num_sweeps)


class SummedSweeps:
    """The same answers for variables with many neighbours, added up at every update.

    Parameters
    ----------
    path : TemperingPath
        Without forbidden pairs.
    """

    def __init__(self, path: TemperingPath) -> None:
        model, graph = path.model, path.model.adjacency
        order, _ = model.structure.visit_order
        starts, here, zero = contrast_places(model)
        tables = np.array([t[here] - t[zero] for t in path.tables])
        self.bytes_per_rung = 8.0 * (1 + len(path.tables))
        self._arrays = (
            order, graph.indptr, graph.neighbors, starts[:-1].copy(), tables, model.unary_offsets, model.log_unary,
            offsets_of(model.num_states - 1)[:-1].copy(),
        )  # fmt: skip

    def arguments(self, coefficients: FloatArray) -> tuple[Any, ...]:
        """What :meth:`sweep` needs for rungs with these coefficients (K, components)."""
        return (np.ascontiguousarray(coefficients.T), *self._arrays)

    def sweep(
        self,
        x: NDArray[np.uint8],
        rung: NDArray[np.uint32],
        arguments: tuple[Any, ...],
        streams: NDArray[np.uint32],
        sums: NDArray[np.uint32],
        num_sweeps: int = 1,
    ) -> None:
        """Sweeps of all lanes; see :func:`fastmix.methods.tempering.dense_kernels.dense_sweeps`."""
        from fastmix.methods.tempering import dense_kernels

        run: Any = dense_kernels.dense_sweeps
        run(x, rung, *arguments, streams, sums, num_sweeps)


Sweeps = TabulatedSweeps | SummedSweeps


def make_sweeps(path: TemperingPath) -> Sweeps:
    """The faster of the two kinds of sweeps that fits.

    Raises
    ------
    UnfitMethodError
        If pairs are forbidden and there are too many patterns to check that every conditional distribution exists.
    """
    entries = path.model.structure.pattern_entries
    if entries <= _MOST_ENTRIES:
        return TabulatedSweeps(path)
    if path.forbidden is not None:
        raise UnfitMethodError(
            "tempering needs tables of all conditional distributions for models that forbid pairs of states, and this "
            f"one would have {entries:.2g} entries, more than {_MOST_ENTRIES:.2g}; soften the forbidden pairs"
        )
    return SummedSweeps(path)


def contrast_places(model: MarkovRandomField) -> tuple[IntArray, IntArray, IntArray]:
    """Where ``T(s, t)`` and ``T(0, t)`` are in the tables of a model, for every variable, neighbour, s > 0 and t.

    Returns
    -------
    starts : int array (2 m + 1,)
        Where the places of an entry of the adjacency begin; t, the state of the neighbour, changes fastest.
    here, zero : int arrays
        Places of T(s, t) and of T(0, t).
    """
    owner, places, own_steps, other_steps = model.structure.directed
    theirs = model.num_states[model.adjacency.neighbors]
    sizes = (model.num_states[owner] - 1) * theirs
    starts = offsets_of(sizes)
    local, width = np.arange(int(starts[-1])) - np.repeat(starts[:-1], sizes), np.repeat(np.maximum(theirs, 1), sizes)
    own, other = local // width + 1, local % width
    zero = np.repeat(places, sizes) + other * np.repeat(other_steps, sizes)
    return starts, zero + own * np.repeat(own_steps, sizes), zero


def _pattern_sums(path: TemperingPath, flat: FloatArray, sites: IntArray, shape: tuple[int, ...]) -> FloatArray:
    """Sums of tables for every pattern of the neighbours (sites, patterns, states)."""
    model, graph = path.model, path.model.adjacency
    states, degree = shape[0], len(shape) - 1
    total = np.zeros((len(sites), *shape[1:], states))
    own = np.arange(states)
    for k in range(degree):
        entry = graph.indptr[sites] + k
        other, e = graph.neighbors[entry], graph.edge_ids[entry]
        theirs = np.arange(shape[k + 1])
        # Rows for the neighbour's state, columns for the site's own, whichever of them comes first in the edge.
        first = (sites < other)[:, None, None]
        local = np.where(first, own * shape[k + 1] + theirs[:, None], theirs[:, None] * states + own)
        axes = [1] * (degree + 2)
        axes[0], axes[k + 1], axes[-1] = len(sites), shape[k + 1], states
        total += flat[model.pairwise_offsets[e][:, None, None] + local].reshape(axes)
    return total.reshape(len(sites), -1, states)
