"""The piecewise KL-divergence: the largest KL-divergence among tractable pieces of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from fastmix._checks import describe
from fastmix.graphs import covering_spanning_trees
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of, table_positions
from fastmix.projection.divergence import Divergence, Objective
from fastmix.projection.forest import Forest, merge_lines, split_trees
from fastmix.projection.kl import ExactKL
from fastmix.projection.pieces import grid_ladders, grid_lines, grid_shape, ladder_bytes
from fastmix.projection.steps import FixedStep, LineSearch, StepRule

__all__ = ["PiecewiseKL", "PiecewiseObjective"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PieceName = Literal["auto", "rows-and-columns", "adjacent-pairs", "spanning-trees"]
_NAMES: tuple[str, ...] = get_args(PieceName)

_AUTO_BYTES = 2.0**28  # merged tables beyond which single rows and columns are taken instead


@dataclass(frozen=True)
class PiecewiseKL(Divergence):
    """``max over pieces S of KL(psi_S || theta_S)``, where psi_S keeps the unaries and tables of S and nothing else.

    Every piece is small enough for exact inference (Liu and Domke, 2014, section 6.2.2). The gradient is that of the
    largest piece, and zero elsewhere.

    Parameters
    ----------
    pieces : str or sequence of sequences of int
        ``rows-and-columns`` of a grid (treewidth 1), ``adjacent-pairs`` of rows and of columns (treewidth 2),
        ``spanning-trees``, random ones until every edge is covered, or the edges of every piece, as rows of
        ``model.edges``. ``auto`` takes adjacent pairs on grids, single lines where tables are too large to merge, and
        spanning trees on other graphs. A piece that is no tree is done by a junction tree.
    smoothing : float
        With t > 0 the maximum is replaced by ``t log(mean over S of exp(KL_S / t))``, which lies between the mean and
        the maximum, and at most ``t log(number of pieces)`` below the latter. All pieces then share the gradient, by
        weights that favour the largest. 0 is the maximum itself.

    Notes
    -----
    The maximum has kinks where two pieces are equal, at which subgradient steps of one piece at a time get stuck: 60 of
    them hardly change a grid of 30 pieces (measured errors: ``divergences.py`` in benchmarks/README.md).

    An evaluation takes 0.2 to 0.4 ms on a 16x16 Ising grid. Smoothing of 1 does as well as 0.1.

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
        if isinstance(self.pieces, str):
            if self.pieces not in _NAMES:
                raise ValueError(f"pieces must be one of {', '.join(_NAMES)} or lists of edges, got {self.pieces!r}")
        else:
            object.__setattr__(self, "pieces", _as_pieces(self.pieces))
        if not (isinstance(self.smoothing, int | float | np.number) and 0.0 <= self.smoothing < math.inf):
            raise ValueError(f"smoothing must be a number of at least 0, got {self.smoothing!r}")

    def start(self, model: MarkovRandomField, *, seed: int) -> Objective:
        """The divergence from one model; the seed draws spanning trees."""
        return PiecewiseObjective(self._cut(model, seed), self.smoothing)

    @property
    def default_step(self) -> StepRule:
        """A line search; steps of fixed size where kinks would stop it."""
        return LineSearch() if self.smoothing > 0.0 else FixedStep()

    def _cut(self, model: MarkovRandomField, seed: int) -> list[_Group]:
        psi, name = model.parameters, self.pieces
        if not isinstance(name, str):
            return _own_pieces(model, name)
        if name == "auto":
            name = _choose(model)
        if name == "adjacent-pairs":
            return [_Trees(merge_lines(model, grid_ladders(model, name)), psi)]
        if name == "rows-and-columns":
            pieces = grid_lines(model, name)
        else:
            pieces = covering_spanning_trees(model.num_variables, model.edges, seed=seed)
        forest = split_trees(model, pieces)
        assert forest is not None
        return [_Trees(forest, psi)]


class PiecewiseObjective(Objective):
    """The largest KL among pieces, or its smooth stand-in."""

    def __init__(self, groups: list[_Group], smoothing: float) -> None:
        self.groups = groups
        self.smoothing = smoothing
        self._split = np.cumsum([group.num_pieces for group in groups])[:-1]
        self.piece_values = np.zeros(0)

    def evaluate(self, theta: MarkovRandomField) -> tuple[float, FloatArray]:
        """Value and gradient, both exact."""
        parameters = theta.parameters
        self.piece_values = values = np.concatenate([group.values(parameters) for group in self.groups])
        largest = float(values.max())
        if self.smoothing > 0.0:
            weights = np.exp((values - largest) / self.smoothing)
            value = largest + self.smoothing * math.log(weights.mean())
            weights /= weights.sum()
        else:
            value, weights = largest, np.zeros(len(values))
            weights[values.argmax()] = 1.0
        parts = np.split(weights, self._split)
        gradient = sum(group.gradient(part) for group, part in zip(self.groups, parts, strict=True))
        return max(0.0, value), np.asarray(gradient)

    def facts(self) -> dict[str, Any]:
        """The number of pieces and the largest of their divergences, without smoothing."""
        return {"num_pieces": len(self.piece_values), "largest_piece": float(self.piece_values.max(initial=0.0))}


class _Group(Protocol):
    """Pieces whose divergences are found together."""

    @property
    def num_pieces(self) -> int: ...

    def values(self, parameters: FloatArray) -> FloatArray:
        """KL(psi_S || theta_S) of every piece."""

    def gradient(self, weights: FloatArray) -> FloatArray:
        """The weighted sum of the gradients of the pieces at the parameters given last."""


class _Trees:
    """Pieces without cycles, all at once."""

    def __init__(self, forest: Forest, psi: FloatArray) -> None:
        self.forest = forest
        self.num_pieces = forest.num_pieces
        self.psi = forest.potentials(psi)
        self.psi_log_z, passed = forest.solve_up(self.psi)
        self.psi_marginals = forest.solve_down(self.psi, passed)
        self._potentials = self.psi
        self._passed = passed

    def values(self, parameters: FloatArray) -> FloatArray:
        forest = self.forest
        self._potentials = forest.potentials(parameters)
        log_z, self._passed = forest.solve_up(self._potentials)
        linear = np.bincount(
            forest.entry_piece, (self._potentials - self.psi) * self.psi_marginals, minlength=forest.num_pieces
        )
        return log_z - self.psi_log_z - linear

    def gradient(self, weights: FloatArray) -> FloatArray:
        forest, used = self.forest, np.flatnonzero(weights)
        if not len(used):
            return np.zeros(forest.num_parameters)
        piece = int(used[0]) if len(used) == 1 else None
        marginals = forest.solve_down(self._potentials, self._passed, piece)
        return forest.gather((marginals - self.psi_marginals) * weights[forest.entry_piece])


class _Subgraph:
    """One piece with cycles, by a junction tree."""

    num_pieces = 1

    def __init__(self, model: MarkovRandomField, edges: IntArray) -> None:
        variables, ends = np.unique(model.edges[edges], return_inverse=True)
        states = model.num_states[variables]
        owner = np.repeat(np.arange(len(variables)), states)
        unary = model.unary_offsets[variables][owner] + np.arange(len(owner)) - offsets_of(states)[owner]
        table, row, col = table_positions(model.num_states, model.edges[edges])
        local = row * model.num_states[model.edges[edges, 1]][table] + col
        self.positions = np.concatenate([unary, len(model.log_unary) + model.pairwise_offsets[edges][table] + local])
        self.num_parameters = model.num_parameters
        psi = model.parameters[self.positions]
        # Variables and edges keep their order, so the piece is in canonical form already.
        self.piece = MarkovRandomField(states, psi[: len(unary)], ends.reshape(-1, 2), psi[len(unary) :])
        self.divergence = ExactKL(self.piece, None)
        self._gradient = np.zeros(len(psi))

    def values(self, parameters: FloatArray) -> FloatArray:
        theta = self.piece.with_parameters(parameters[self.positions])
        value, self._gradient = self.divergence.evaluate(theta)
        return np.array([value])

    def gradient(self, weights: FloatArray) -> FloatArray:
        result = np.zeros(self.num_parameters)
        result[self.positions] = weights[0] * self._gradient
        return result


def _choose(model: MarkovRandomField) -> PieceName:
    """Adjacent pairs on grids where the merged tables are small, else single lines; spanning trees on other graphs."""
    shape = grid_shape(model)
    if shape is None:
        return "spanning-trees"
    if min(shape) < 2 or ladder_bytes(model, shape) > _AUTO_BYTES:
        return "rows-and-columns"
    return "adjacent-pairs"


def _own_pieces(model: MarkovRandomField, pieces: Sequence[Sequence[int]]) -> list[_Group]:
    """Trees together, pieces with cycles one by one."""
    trees: list[IntArray] = []
    groups: list[_Group] = []
    for k, piece in enumerate(pieces):
        edges = np.array(piece, dtype=np.int64)
        if edges.max() >= model.num_edges:
            raise ValueError(
                f"pieces must hold rows of model.edges, from 0 to {model.num_edges - 1}, got {edges.max()} in piece {k}"
            )
        if split_trees(model, [edges]) is None:
            groups.append(_Subgraph(model, edges))
        else:
            trees.append(edges)
    if trees:
        forest = split_trees(model, trees)
        assert forest is not None
        groups.insert(0, _Trees(forest, model.parameters))
    return groups


def _as_pieces(pieces: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(pieces, Iterable):
        raise ValueError(f"pieces must be a name or a sequence of lists of edges, got {describe(pieces)}")
    result = []
    for k, piece in enumerate(pieces):
        edges = np.asarray(piece)
        if edges.ndim != 1 or not edges.size or edges.dtype.kind not in "iu" or edges.min() < 0:
            raise ValueError(f"pieces[{k}] must list rows of model.edges, one at least, got {describe(piece)}")
        result.append(tuple(sorted(set(edges.tolist()))))
    if not result:
        raise ValueError("pieces must hold one piece at least, got none")
    return tuple(result)
