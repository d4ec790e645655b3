"""KL-divergences from the model to its projection by exact inference: of all of it, and the largest among pieces.

A piece keeps the unaries and tables of some edges. Its nodes are variables, or pairs of variables merged into one (for
two neighboring lines of a grid), so that the nodes form trees. All potentials of all pieces are one linear function of
the model's parameters, and moments are taken back to the parameters by its transpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_array, as_list, check_positive, describe, keep_checked
from fastmix._clock import NO_LIMIT, Clock
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.exact import leaves
from fastmix.exact.junction_tree import JunctionTree, plan_junction_tree
from fastmix.graphs import covering_spanning_trees, grid_edges
from fastmix.graphs.basics import strip_leaves
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.projection.descent import Divergence, FixedStep, LineSearch, Objective, StepRule

__all__ = [
    "KL", "ExactKL", "Forest", "PiecewiseKL", "PiecewiseObjective", "grid_shape", "grid_strips", "merge_lines",
    "split_trees",
]  # fmt: skip

PieceName = Literal["auto", "rows-and-columns", "adjacent-pairs", "spanning-trees"]
_NAMES: tuple[str, ...] = get_args(PieceName)

_AUTO_BYTES = 2.0**28  # merged tables beyond which single rows and columns are taken instead
_ENTRY_BYTES = 80  # a potential: two index arrays and two matrices over it, its marginal, its message


@dataclass(frozen=True)
class KL(Divergence, name="kl"):
    """``KL(psi || theta) = sum_x p(x; psi) log(p(x; psi) / p(x; theta))``, for models of small treewidth.

    With the moments ``mu(theta) = E f(x)`` of the indicators f it is ``A(theta) - A(psi) - (theta - psi) . mu(psi)``, a
    convex function with the gradient ``mu(theta) - mu(psi)`` (Liu and Domke, 2014, section 6.2.1). At the minimum over
    free unaries all single-variable marginals agree with those of psi: a reference for tractable divergences.

    Parameters
    ----------
    memory_limit : float, optional
        Bytes for the junction tree; half of the memory that is free by default.

    Notes
    -----
    Two passes over a junction tree an evaluation: 0.1 s on a 16x16 grid of binary variables. A larger treewidth is
    refused with its size before anything is allocated (:class:`fastmix.ResourceError`).

    Examples
    --------
    >>> import fastmix
    >>> model = fastmix.instances.ising_grid(3, 3, coupling_max=2.0, seed=0)
    >>> result = fastmix.project(model, norm_bound=0.9, divergence=KL())
    >>> before, after = (fastmix.infer(m, method="exact").node_marginals for m in (model, result.model))
    >>> bool(abs(before - after).max() < 0.01)
    True
    """

    memory_limit: float | None = None

    def __post_init__(self) -> None:
        if self.memory_limit is not None:
            limit = check_positive("memory_limit", self.memory_limit, "number of bytes")
            keep_checked(self, memory_limit=limit)

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:  # noqa: ARG002
        """The divergence from one model; nothing is drawn."""
        return ExactKL(model, self.memory_limit)


class ExactKL(Objective):
    """KL from one model by a junction tree that is planned once, at the first evaluation."""

    def __init__(self, model: MarkovRandomField, memory_limit: float | None) -> None:
        self.model, self.memory_limit = model, memory_limit

    @cached_property
    def tree(self) -> JunctionTree:
        """The junction tree of the graph."""
        limit = available_memory() / 2 if self.memory_limit is None else float(self.memory_limit)
        try:
            return plan_junction_tree(self.model, memory_limit=limit, clock=self.clock)
        except ResourceError as error:
            raise ResourceError(
                f"{error}; of the divergences, PiecewiseKL and ReversedKL need no exact inference",
                required_bytes=error.required_bytes,
                limit_bytes=error.limit_bytes,
                treewidth=error.treewidth,
            ) from None

    @cached_property
    def psi(self) -> tuple[float, FloatArray]:
        """Log Z and moments of the model."""
        return self.calibrate(self.model)

    def calibrate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Log Z without the constant of the model, and the moments aligned with its parameters."""
        answer = replace(self.tree, model=theta).calibrate(self.clock)
        return answer.log_z - theta.log_constant, np.concatenate([answer.marginals, answer.factor_marginals])

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Value and gradient, both exact."""
        (psi_log_z, psi_moments), (log_z, self.moments) = self.psi, self.calibrate(theta)
        value = log_z - psi_log_z - (theta.parameters - self.model.parameters) @ psi_moments
        return max(0.0, float(value)), self.moments - psi_moments


@dataclass(frozen=True)
class PiecewiseKL(Divergence, name="piecewise-kl"):
    """``max over pieces S of KL(psi_S || theta_S)``, where psi_S keeps the unaries and tables of S and nothing else.

    Every piece is small enough for exact inference (Liu and Domke, 2014, section 6.2.2). The gradient is that of the
    largest piece, and zero elsewhere.

    Parameters
    ----------
    pieces : str or sequence of sequences of int
        ``rows-and-columns`` of a grid (treewidth 1), ``adjacent-pairs`` of rows and of columns (treewidth 2),
        ``spanning-trees``, random ones until every edge is covered, or the edges of every piece, as rows of
        ``model.edges``. ``auto`` takes adjacent pairs on grids, single lines where tables are too large to merge, and
        spanning trees on other graphs.
    smoothing : float
        With t > 0 the maximum is replaced by ``t log(mean over S of exp(KL_S / t))``, which lies between the mean and
        the maximum, and at most ``t log(number of pieces)`` below the latter. All pieces then share the gradient, by
        weights that favour the largest. 0 is the maximum itself.

    Notes
    -----
    The maximum has kinks where two pieces are equal, at which subgradient steps of one piece at a time get stuck. An
    evaluation takes 0.2 to 0.4 ms on a 16x16 Ising grid.

    Examples
    --------
    >>> import fastmix
    >>> model = fastmix.instances.ising_grid(4, 4, coupling_max=2.0, seed=0)
    >>> result = fastmix.project(model, norm_bound=0.9, divergence=PiecewiseKL(), seed=1)
    >>> result.norm_after <= 0.9, result.history[-1][1] < result.history[0][1]
    (True, True)
    """

    pieces: PieceName | Sequence[Sequence[int]] = "auto"
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.pieces, str):
            keep_checked(self, pieces=_as_pieces(self.pieces))
        elif self.pieces not in _NAMES:
            raise ValueError(
                f"pieces must be one of {', '.join(_NAMES)} or lists of edges, got {describe(self.pieces)}"
            )
        keep_checked(self, smoothing=check_positive("smoothing", self.smoothing, or_zero=True))

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """The divergence from one model; the seed draws spanning trees."""
        return PiecewiseObjective(model, self, seed)

    @property
    def default_step(self) -> StepRule:
        """A line search; steps of fixed size where kinks would stop it."""
        return LineSearch() if self.smoothing > 0.0 else FixedStep()


class PiecewiseObjective(Objective):
    """The largest KL among pieces, or its smooth stand-in. The model is cut at the first evaluation."""

    def __init__(self, model: MarkovRandomField, settings: PiecewiseKL, seed: int) -> None:
        self.model, self.settings, self.seed = model, settings, seed
        self.piece_values = np.zeros(0)

    @cached_property
    def forest(self) -> Forest:
        """The pieces."""
        model, clock, name = self.model, self.clock, self.settings.pieces
        if name == "auto":
            name = _choose(model)
        clock.check()
        if isinstance(name, str) and name != "spanning-trees":
            return merge_lines(model, grid_strips(model, name))
        if name == "spanning-trees":
            pieces = covering_spanning_trees(model.num_variables, model.edges, seed=self.seed, clock=clock)
        else:
            pieces = [np.array(piece, dtype=np.int64) for piece in name]
        for k, piece in enumerate(pieces):
            if piece.max(initial=0) >= model.num_edges:
                raise ValueError(
                    f"pieces must hold rows of model.edges, from 0 to {model.num_edges - 1}, got {piece.max()} in "
                    f"piece {k}"
                )
        return split_trees(model, pieces, clock)

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Value and gradient, both exact."""
        self.piece_values = values = self.forest.values(theta.parameters)
        self.clock.check()
        largest, smoothing = float(values.max()), self.settings.smoothing
        if smoothing > 0.0:
            weights = np.exp((values - largest) / smoothing)
            value = largest + smoothing * math.log(weights.mean())
            weights /= weights.sum()
        else:
            value, weights = largest, np.zeros(len(values))
            weights[values.argmax()] = 1.0
        return max(0.0, value), self.forest.gradient(weights)

    def facts(self) -> dict[str, Any]:
        """The number of pieces and the largest of their divergences, without smoothing."""
        return {"num_pieces": len(self.piece_values), "largest_piece": float(self.piece_values.max(initial=0.0))}


def _choose(model: MarkovRandomField) -> PieceName:
    """Adjacent pairs on grids where the merged tables are small, else single lines; spanning trees on other graphs."""
    shape = grid_shape(model)
    if shape is None:
        return "spanning-trees"
    if min(shape) < 2 or merged_bytes(model, _strips(shape, 2)) > _AUTO_BYTES:
        return "rows-and-columns"
    return "adjacent-pairs"


def _as_pieces(pieces: Any) -> tuple[tuple[int, ...], ...]:
    result = []
    for k, piece in enumerate(as_list("pieces", pieces, "a name or a sequence of lists of edges")):
        edges = as_array(f"pieces[{k}]", piece, "list rows of model.edges")
        if edges.ndim != 1 or not edges.size or edges.dtype.kind not in "iu" or edges.min() < 0:
            raise ValueError(f"pieces[{k}] must list rows of model.edges, one at least, got {describe(piece)}")
        result.append(tuple(sorted(set(edges.tolist()))))
    if not result:
        raise ValueError("pieces must hold one piece at least, got none")
    return tuple(result)


# -- exact inference on many trees at once --------------------------------------------------------------------------


class Forest:
    """Pieces whose nodes, of one or several variables each, form trees.

    Nodes are numbered children before parents, piece by piece; ``parent`` is -1 for roots. Potentials are the entries
    of all nodes, then the tables of all links to a parent, (own states, states of the parent). All of them are
    ``matrix @ parameters``. ``variable``, ``node`` and ``stride`` (k,) list variables, the node that each is in (as
    often as there are pieces with it), and the distance of its states among those of the node; ``ends`` (l, 2) are
    those of the ``edges`` (l,), as places in that list.
    """

    def __init__(
        self, model: MarkovRandomField, piece_of: IntArray, parent: IntArray, variable: IntArray, node: IntArray,
        stride: IntArray, ends: IntArray, edges: IntArray,
    ) -> None:  # fmt: skip
        from scipy.sparse import csr_array

        counts = model.num_states[variable]
        states = np.ones(len(parent), dtype=np.int64)
        np.multiply.at(states, node, counts)
        link_sizes = np.where(parent >= 0, states * states[parent], 0)
        starts = offsets_of(np.concatenate([states, link_sizes]))
        node_at, link_at = starts[: len(states)], starts[len(states) : -1]
        self.model, self.piece_of, self.most_states = model, piece_of, int(states.max(initial=1))
        own, other = np.where(parent >= 0, states[parent], 1), np.ones_like(parent)
        self._nodes = leaves.Leaves(np.arange(len(parent)), parent, link_at, own, other, states, node_at)
        self.num_pieces, self.num_node_entries = int(piece_of.max(initial=-1)) + 1, int(states.sum())
        self.entry_piece = np.repeat(np.tile(piece_of, 2), np.diff(starts))
        # Unaries and edges as terms: where their node or link begins and its size, the distances and counts of the
        # states of both variables there (one state for want of a second), and where their parameters begin.
        first, second = ends.T
        same, up = node[first] == node[second], parent[node[first]] == node[second]
        child = np.where(up, node[first], node[second])
        begin = np.where(same, node_at[child], link_at[child])
        size = np.where(same, states[child], link_sizes[child])
        above = np.where(same, 1, states[parent[child]])
        steps = stride[first] * np.where(up, above, 1), stride[second] * np.where(up, 1, above)
        one = np.ones_like(variable)
        unaries = node_at[node], states[node], stride, counts, one, one, model.unary_offsets[variable]
        tables = len(model.log_unary) + model.pairwise_offsets[edges]
        pairs = begin, size, steps[0], counts[first], steps[1], counts[second], tables
        begin, size, *places, at = (np.concatenate(both) for both in zip(unaries, pairs, strict=True))
        term = np.repeat(np.arange(len(size)), size)
        local = np.arange(len(term)) - offsets_of(size)[term]
        step, count, other_step, other_count = (values[term] for values in places)
        parameter = at[term] + local // step % count * other_count + local // other_step % other_count
        coordinates = begin[term] + local, parameter
        self.matrix = csr_array((np.ones(len(term)), coordinates), shape=(int(starts[-1]), model.num_parameters))
        self.transposed = self.matrix.T.tocsr()

    @cached_property
    def psi(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Potentials, log Z and marginals of the model."""
        potentials = self.matrix @ self.model.parameters
        log_z, unary = self.sum_up(potentials)
        return potentials, log_z, self.sum_down(potentials, unary)

    def values(self, parameters: FloatArray) -> FloatArray:
        """KL(psi_S || theta_S) of every piece."""
        psi, psi_log_z, psi_marginals = self.psi
        self._potentials = self.matrix @ parameters
        log_z, self._unary = self.sum_up(self._potentials)
        change = (self._potentials - psi) * psi_marginals
        return log_z - psi_log_z - np.bincount(self.entry_piece, change, minlength=self.num_pieces)

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The weighted sum of the gradients of the pieces at the parameters given last."""
        marginals = self.sum_down(self._potentials, self._unary)
        return np.asarray(self.transposed @ ((marginals - self.psi[2]) * weights[self.entry_piece]))

    def sum_up(self, potentials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Log Z (pieces,), and the entries of all nodes with the trees below summed into them."""
        unary, scales = potentials[: self.num_node_entries].copy(), np.empty(len(self.piece_of))
        leaves.sum_up(self._nodes, unary, potentials, np.empty((2, self.most_states)), scales)
        return np.asarray(np.bincount(self.piece_of, scales, self.num_pieces), dtype=np.float64), unary

    def sum_down(self, potentials: FloatArray, unary: FloatArray) -> FloatArray:
        """Marginals of every potential."""
        marginals = np.zeros(len(potentials))
        leaves.sum_down(self._nodes, unary, potentials, marginals, marginals, np.empty(self.most_states))
        return marginals


def split_trees(model: MarkovRandomField, pieces: list[IntArray], clock: Clock = NO_LIMIT) -> Forest:
    """The forest of pieces given by their edges, which must have no cycles."""
    n = model.num_variables
    piece = np.repeat(np.arange(len(pieces)), [len(p) for p in pieces])
    edges = np.concatenate([np.zeros(0, dtype=np.int64), *pieces]).astype(np.int64)
    keys, local = np.unique(piece[:, None] * n + model.edges[edges], return_inverse=True)
    ends = local.reshape(-1, 2)
    clock.check()
    removed, above = strip_leaves(len(keys), ends)
    if len(removed) < len(keys):
        k = int(np.delete(keys, removed)[0]) // n
        raise UnfitMethodError(f"pieces must be trees, and piece {k} has a cycle; leave out an edge of it")
    clock.check()
    turn = np.argsort(keys[removed] // n, kind="stable")
    node = np.empty(len(keys), dtype=np.int64)
    node[removed[turn]] = np.arange(len(keys))
    above = above[turn]
    parent = np.where(above >= 0, node[above], -1)
    return Forest(model, keys[removed[turn]] // n, parent, keys % n, node, np.ones_like(node), ends, edges)


def merge_lines(model: MarkovRandomField, strips: list[IntArray]) -> Forest:
    """The forest of strips of a grid, (h, k) variables each: h neighboring lines, the variables across merged into one.

    All edges along the lines and across them must be edges of the model.
    """
    lengths = np.array([strip.shape[1] for strip in strips])
    lines = np.concatenate(strips, axis=1)
    piece_of, nodes = np.repeat(np.arange(len(strips)), lengths), np.arange(lines.shape[1])
    is_last = nodes == offsets_of(lengths)[1:][piece_of] - 1
    place = np.arange(lines.size).reshape(lines.shape)
    along = place[:, ~is_last]
    pairs = (place[:-1], place[1:]), (along, along + 1)
    ends = np.concatenate([np.stack(pair, axis=-1).reshape(-1, 2) for pair in pairs])
    variable, n = lines.reshape(-1), model.num_variables
    low, high = variable[ends].T
    edges = np.searchsorted(model.edges[:, 0] * n + model.edges[:, 1], low * n + high)
    stride = np.ones_like(lines)
    for k in range(len(lines) - 1, 0, -1):
        stride[k - 1] = stride[k] * model.num_states[lines[k]]
    parent, node = np.where(is_last, -1, nodes + 1), np.tile(nodes, len(lines))
    return Forest(model, piece_of, parent, variable, node, stride.reshape(-1), ends, edges)


# -- lines of grids ---------------------------------------------------------------------------------------------------


def grid_shape(model: MarkovRandomField) -> tuple[int, int] | None:
    """Rows and columns, if the graph is a four-neighbor grid whose variables are numbered row by row; else None."""
    n = model.num_variables
    if not model.num_edges:
        return None
    # One row, or the second neighbor of the first variable is the first of the next row; one column comes last.
    for cols in (n, *model.adjacency.neighbors_of(0)[::-1].tolist()):
        if n % cols == 0 and np.array_equal(model.edges, grid_edges(n // cols, cols)):
            return n // cols, cols
    return None


def grid_strips(model: MarkovRandomField, name: str) -> list[IntArray]:
    """The variables (h, k) of every line of a grid, h = 1, or of every two neighboring lines, rows before columns."""
    shape = grid_shape(model)
    if shape is None:
        raise UnfitMethodError(
            f"pieces={name!r} needs a four-neighbor grid numbered row by row, and this graph with "
            f"{model.num_variables} variables and {model.num_edges} edges is none; use pieces='spanning-trees', or "
            "give the edges of every piece"
        )
    if name == "rows-and-columns":
        return _strips(shape, 1)
    if min(shape) < 2:
        raise UnfitMethodError(f"pieces={name!r} needs two lines at least, and the grid is {shape[0]}x{shape[1]}: one")
    strips = _strips(shape, 2)
    check_memory(merged_bytes(model, strips), f"pieces={name!r} with merged tables", "use pieces='rows-and-columns'")
    return strips


def merged_bytes(model: MarkovRandomField, strips: list[IntArray]) -> float:
    """Memory for the merged tables of strips: one entry for all states of two neighboring nodes, link by link."""
    nodes = [model.num_states[strip].astype(np.float64).prod(axis=0) for strip in strips]
    return _ENTRY_BYTES * sum(float(r[:-1] @ r[1:]) for r in nodes)


def _strips(shape: tuple[int, int], height: int) -> list[IntArray]:
    """As many neighboring lines, rows and then columns, that have an edge along them."""
    rows = np.arange(shape[0] * shape[1]).reshape(shape)
    strips = [lines[k : k + height] for lines in (rows, rows.T) for k in range(len(lines) - height + 1)]
    return [strip for strip in strips if strip.shape[1] > 1]
