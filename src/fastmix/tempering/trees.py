"""Exact draws of induced forests of variables at every rung of a ladder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.tempering.path import Path
from fastmix.tempering.sweeps import contrast_places

__all__ = ["Forest", "TreeMoves", "check_tree_moves", "induced_forests"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_LEAST_FORESTS = 4
# Ratios of weights are kept as they are, not as logarithms. With log-ratios of at most R for the conditional
# distributions of a variable, intermediate products are within exp(+-3 R): a child in state 0 counts for one range of
# its table, and what it really tells its parent is within two of that. Doubles reach from exp(-708) to exp(709).
_MOST_RANGE = 200.0


@dataclass(frozen=True, eq=False)
class Forest:
    """Variables without a cycle among them.

    Attributes
    ----------
    inside : bool array (n,)
    order : int array (members,)
        The variables, parents before their children and the children of one parent together.
    up : int array (members,)
        The entry of the model's adjacency that leads from a variable to its parent, -1 for roots.
    first, count : int array (members,)
        Place in ``order`` of the first child, and the number of children.
    """

    inside: NDArray[np.bool_]
    order: IntArray
    up: IntArray
    first: IntArray
    count: IntArray


def induced_forests(model: MarkovRandomField, *, seed: int) -> list[Forest]:
    """Maximal induced forests of the graph of a model that together have every variable, at least four.

    Variables are tried in random order, those first that no forest has yet, and taken unless they close a cycle.

    Parameters
    ----------
    model : MarkovRandomField
    seed : int

    Returns
    -------
    list of Forest
        One only if the whole graph is a forest, none without variables. About d / 2 forests in a complete graph of
        degree d, four on grids.

    Notes
    -----
    Time and memory grow linearly with the number of edges, for every forest.

    Examples
    --------
    >>> square = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (0, 3)], 0.5)
    >>> forests = induced_forests(square, seed=0)
    >>> len(forests), {int(forest.inside.sum()) for forest in forests}
    (4, {3})
    """
    from fastmix.tempering import tree_kernels

    n, graph = model.num_variables, model.adjacency
    rng = np.random.default_rng([seed, 3])
    covered = np.zeros(n, dtype=bool)
    result: list[Forest] = []
    grow: Any = tree_kernels.grow_forest
    arrange: Any = tree_kernels.arrange_forest
    while n and (not covered.all() or len(result) < _LEAST_FORESTS):
        candidates = rng.permutation(n)
        candidates = candidates[np.argsort(covered[candidates], kind="stable")]
        inside = np.zeros(n, dtype=bool)
        grow(candidates, graph.indptr, graph.neighbors, inside)
        arrays = [np.empty(int(inside.sum()), dtype=np.int64) for _ in range(4)]
        arrange(inside, graph.indptr, graph.neighbors, *arrays)
        result.append(Forest(inside, *arrays))
        covered |= inside
        if inside.all():
            break
    return result


def check_tree_moves(path: Path) -> None:
    """Nothing, when forests of the path's models can be drawn.

    Raises
    ------
    UnfitMethodError
        If pairs are forbidden, or weights are too far apart for their ratios to be numbers.
    """
    if path.forbidden is not None:
        raise UnfitMethodError(
            "tree-block moves need models without forbidden pairs of states; leave them out, or soften those pairs"
        )
    model, graph = path.model, path.model.adjacency
    if not model.num_variables:
        return
    own = np.maximum.reduceat(model.log_unary, model.unary_offsets[:-1])
    own = own - np.minimum.reduceat(model.log_unary, model.unary_offsets[:-1])
    if model.num_edges:
        # No row or column of a table has a wider range than the table.
        spans = [
            np.maximum.reduceat(t, model.pairwise_offsets[:-1]) - np.minimum.reduceat(t, model.pairwise_offsets[:-1])
            for t in path.tables
        ]
        owner = np.repeat(np.arange(model.num_variables), graph.degree)
        own = own + np.bincount(owner, np.max(spans, axis=0)[graph.edge_ids], minlength=model.num_variables)
    widest = int(own.argmax())
    if own[widest] > _MOST_RANGE:
        raise UnfitMethodError(
            f"tree-block moves need log-weights that differ by at most {_MOST_RANGE:g} between the states of a "
            f"variable, but the tables of variable {widest} allow for {own[widest]:.4g}; leave these moves out"
        )


class TreeMoves:
    """Draws of one forest after the other, each exactly given all other variables.

    Given the variables outside, those of an induced forest have a distribution without cycles, whose weights are summed
    from the leaves to the roots, and which is drawn from the roots to the leaves (Hamze and de Freitas, 2004).

    Parameters
    ----------
    path : Path
        That :func:`check_tree_moves` accepts.
    seed : int
        Of the forests.

    Attributes
    ----------
    forests : list of Forest
    bytes_per_rung, bytes_per_lane : float
        Memory for tables, and during a draw.
    """

    def __init__(self, path: Path, *, seed: int) -> None:
        model, graph = path.model, path.model.adjacency
        self.forests = induced_forests(model, seed=seed)
        self._offsets, here, zero = contrast_places(model)
        self._parts = [t[here] - t[zero] for t in path.tables]
        self._unary = model.log_unary - np.repeat(model.log_unary[model.unary_offsets[:-1]], model.num_states)
        self._model = model
        self._common = (graph.indptr, graph.neighbors, model.num_states, self._offsets)
        self._rows = [offsets_of(model.num_states[forest.order] - 1) for forest in self.forests]
        self._places = [self._base_places(forest) for forest in self.forests]
        self.bytes_per_lane = 8.0 * max((int(rows[-1]) for rows in self._rows), default=0)
        self.bytes_per_rung = 8.0 * (len(here) + sum(int(rows[-1]) for rows in self._rows))

    def _base_places(self, forest: Forest) -> tuple[IntArray, IntArray, IntArray]:
        """Entries of the unaries, and the rows and entries of the tables for children in state 0."""
        model, graph = self._model, self._model.adjacency
        counts = model.num_states[forest.order] - 1
        rows = offsets_of(counts)
        local = np.arange(int(rows[-1])) - np.repeat(rows[:-1], counts)
        unary = np.repeat(model.unary_offsets[forest.order], counts) + local + 1
        children = np.flatnonzero(forest.up >= 0)
        # The adjacency entry of the parent that leads to the child.
        back = _reverse_entries(model)[forest.up[children]]
        place = np.empty(model.num_variables, dtype=np.int64)
        place[forest.order] = np.arange(len(forest.order))
        parents = place[graph.neighbors[forest.up[children]]]
        repeats = counts[parents]
        inner = np.arange(int(repeats.sum())) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        step = np.repeat(model.num_states[graph.neighbors[back]], repeats)
        return unary, np.repeat(rows[parents], repeats) + inner, np.repeat(self._offsets[back], repeats) + inner * step

    def arguments(self, coefficients: FloatArray) -> tuple[Any, ...]:
        """What a call needs for rungs with these coefficients (K, components): bases of the forests, and tables."""
        logits = np.zeros((len(self._parts[0]), len(coefficients)))
        for d, part in enumerate(self._parts):
            logits += np.outer(part, coefficients[:, d + 1])
        bases = []
        for unary, rows, entries in self._places:
            base = np.outer(self._unary[unary], coefficients[:, 0])
            np.add.at(base, rows, logits[entries])
            bases.append(np.exp(base))
        return bases, np.exp(logits, out=logits)

    def __call__(
        self, number: int, x: NDArray[np.uint8], arguments: tuple[Any, ...], streams: NDArray[np.uint32]
    ) -> None:
        """Draw the forest of a number, counted around, in all lanes (n, K * C)."""
        from fastmix.tempering import tree_kernels

        if not self.forests:
            return
        number %= len(self.forests)
        forest, rows = self.forests[number], self._rows[number]
        bases, tables = arguments
        room = np.empty((int(rows[-1]), x.shape[1]))
        run: Any = tree_kernels.draw_forest
        run(
            x, forest.order, forest.up, forest.first, forest.count, forest.inside, rows, bases[number],
            *self._common, tables, streams, room,
        )  # fmt: skip


def _reverse_entries(model: MarkovRandomField) -> IntArray:
    """For every entry of the adjacency, that of the same edge seen from its other end."""
    edges = model.adjacency.edge_ids
    pairs = np.argsort(edges, kind="stable").reshape(-1, 2)
    result = np.empty(len(edges), dtype=np.int64)
    result[pairs[:, 0]], result[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    return result
