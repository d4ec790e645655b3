"""Exact inference on models with factors over three or more variables, as the junction tree does it for pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix._clock import NO_LIMIT, Clock
from fastmix.exact.search import Order
from fastmix.exact.support import Factors
from fastmix.exact.tree import plan_tree
from fastmix.model import MarkovRandomField

__all__ = ["FactorTree", "model_factors"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Calibrated(NamedTuple):
    """Log Z and flat marginals of all variables and edges."""

    log_z: float
    node_marginals: FloatArray
    edge_marginals: FloatArray
    arithmetic: str


def model_factors(model: MarkovRandomField) -> Factors:
    """The terms of a model: variables, edges (zero tables too: their marginals are wanted), factors; no constant.

    Examples
    --------
    >>> model_factors(MarkovRandomField.ising([(0, 1)], 1.0)).scopes
    [(0,), (1,), (0, 1)]
    """
    scopes: list[tuple[int, ...]] = [(i,) for i in range(model.num_variables)]
    scopes += [(int(i), int(j)) for i, j in model.edges]
    scopes += [tuple(scope.tolist()) for scope in model.structure.scopes]
    tables = np.split(model.log_unary, model.unary_offsets[1:-1]) if model.num_variables else []
    tables += np.split(model.log_pairwise, model.pairwise_offsets[1:-1]) if model.num_edges else []
    tables += np.split(model.log_factors, model.factor_offsets[1:-1]) if model.num_factors else []
    return Factors(model.num_states.tolist(), scopes, tables)


class FactorTree:
    """The elimination of all variables of a model, its cost known before anything is allocated.

    Parameters
    ----------
    model : MarkovRandomField
        Reduced by evidence.
    memory_limit : float
        Bytes; a :class:`fastmix.ResourceError` if it does not fit.
    clock : Clock
        For the search of an order.
    """

    def __init__(self, model: MarkovRandomField, *, memory_limit: float, clock: Clock = NO_LIMIT) -> None:
        self.model = model
        self._tree = plan_tree(model_factors(model), memory_limit=memory_limit, clock=clock)

    @property
    def treewidth(self) -> int:
        """Largest clique minus one."""
        return self._tree.treewidth

    @property
    def required_bytes(self) -> int:
        """Peak memory."""
        return self._tree.required_bytes

    @property
    def order(self) -> Order:
        """The order of elimination."""
        return self._tree.order

    @property
    def seconds(self) -> float:
        """Estimate of the time that :meth:`calibrate` takes."""
        return self._tree.seconds

    def calibrate(self, clock: Clock = NO_LIMIT) -> Calibrated:
        """Log Z and all marginals."""
        model = self.model
        answer = self._tree.marginals(of_factors=True, clock=clock)
        assert answer.factor_marginals is not None
        edges = answer.factor_marginals[model.num_variables : model.num_variables + model.num_edges]
        nodes = np.concatenate([np.zeros(0), *answer.marginals])
        pairs = np.concatenate([np.zeros(0), *(np.ravel(table) for table in edges)])
        return Calibrated(answer.log_z + model.log_constant, nodes, pairs, answer.arithmetic)

    def draw(self, num_draws: int, rng: np.random.Generator) -> IntArray:
        """Independent configurations (num_draws, n)."""
        return self._tree.draw(num_draws, rng)
