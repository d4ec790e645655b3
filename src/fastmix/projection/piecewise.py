"""The piecewise KL-divergence: the largest KL among tractable pieces of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import UnfitMethodError
from fastmix.graphs import covering_spanning_trees, grid_edges
from fastmix.model import PairwiseMRF
from fastmix.projection.divergence import Divergence, Objective
from fastmix.projection.forest import Forest, merge_lines, split_trees
from fastmix.projection.kl import ExactKL
from fastmix.projection.steps import StepRule

__all__ = ["PiecewiseKL", "grid_shape"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Pieces = Literal["auto", "rows-and-columns", "adjacent-pairs", "spanning-trees"]

_NAMES = ("auto", "rows-and-columns", "adjacent-pairs", "spanning-trees")


@dataclass(frozen=True)
class PiecewiseKL(Divergence):
    """``max over pieces S of KL(psi_S || theta_S)``, where psi_S keeps the unaries and tables of S and nothing else.

    Parameters
    ----------
    pieces : str or sequence of sequences of int
    smoothing : float
    """

    pieces: Pieces | Sequence[Sequence[int]] = "auto"
    smoothing: float = 0.0

    def start(self, model: PairwiseMRF, *, seed: int) -> Objective:
        return PiecewiseObjective(model, self._cut(model, seed), self.smoothing)

    def _cut(self, model, seed):
        if self.pieces == "spanning-trees":
            return [split_trees(model, covering_spanning_trees(model.num_variables, model.edges, seed=seed))]
        shape = grid_shape(model)
        lines = np.arange(model.num_variables).reshape(shape)
        if self.pieces == "rows-and-columns":
            r, c = np.divmod(model.edges, shape[1])
            across = r[:, 0] == r[:, 1]
            P = [np.flatnonzero(across & (r[:, 0] == k)) for k in range(shape[0])] + [np.flatnonzero(~across & (c[:, 0] == k)) for k in range(shape[1])]
            return [split_trees(model, [p for p in P if len(p)])]
        ladders = [lines[k:k+2] for k in range(shape[0]-1)] + [lines[:, k:k+2].T for k in range(shape[1]-1)]
        return [merge_lines(model, ladders)]


def grid_shape(model: PairwiseMRF) -> tuple[int, int] | None:
    n, m = model.num_variables, model.num_edges
    around = model.adjacency.neighbors_of(0).tolist()
    for cols in {*around, n}:
        if n % cols == 0 and np.array_equal(model.edges, grid_edges(n // cols, cols)):
            return n // cols, cols
    return None


class PiecewiseObjective(Objective):
    def __init__(self, model, forests, smoothing):
        self.forests = forests
        self.smoothing = smoothing
        self.base = []
        for f in forests:
            pot = f.potentials(model.parameters)
            lz, passed = f.solve_up(pot)
            self.base.append((pot, lz, f.solve_down(pot, passed)))

    def evaluate(self, theta):
        f = self.forests[0]
        pot0, lz0, m0 = self.base[0]
        pot = f.potentials(theta.parameters)
        lz, passed = f.solve_up(pot)
        kl = lz - lz0 - np.bincount(f.entry_piece, (pot - pot0) * m0, f.num_pieces)
        self.kl = kl
        if self.smoothing == 0:
            p = int(kl.argmax())
            m = f.solve_down(pot, passed, p)
            g = f.gather(np.where(f.entry_piece == p, m - m0, 0.0))
            return float(kl[p]), g
        w = np.exp((kl - kl.max()) / self.smoothing)
        value = kl.max() + self.smoothing * math.log(w.mean())
        w /= w.sum()
        m = f.solve_down(pot, passed)
        return value, f.gather((m - m0) * w[f.entry_piece])
