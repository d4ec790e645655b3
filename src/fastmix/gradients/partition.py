"""``LogPartition``: log Z of one graph as a function of rows of parameters, whose plan is made once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, check_log_values, describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.exact.elimination import refuse
from fastmix.exact.parameter_rows import ParameterRows, plan_parameter_rows
from fastmix.exact.shared_rows import SharedAnswer, SharedGradients, SharedRows, plan_shared_rows
from fastmix.model import MarkovRandomField, Structure

__all__ = ["LogPartition", "Partition", "Slopes", "as_parameters", "count_parameters", "structure_of"]

# The name under which a plan is kept with its structure.
_KEPT = "parameter_rows"
_KEPT_SHARED = "shared_rows"
# Bytes that a plan for shared tables may take at any rate, beside twice those of the plan for tables of their own.
_LEAST_BYTES = float(1 << 24)


class Slopes(NamedTuple):
    """Log Z (..), its gradient (.., P), and products of its Hessian with the directions (.., P) if there were any."""

    log_z: FloatArray
    gradient: FloatArray
    product: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Partition:
    """Log Z as a function of parameters (.., P) on one structure, by some method; what autograd libraries call.

    Every kind has ``values``, ``gradients`` and ``hessian_products`` with the arguments of :class:`LogPartition`.
    """

    structure: Structure

    @property
    def num_parameters(self) -> int:
        """Length P of a row of parameters."""
        return count_parameters(self.structure)

    def _flat(self, theta: FloatArray) -> FloatArray:
        """Rows (N, P) of an array (.., P); a view where that can be."""
        return np.asarray(theta, dtype=np.float64).reshape(-1, self.num_parameters)


@dataclass(frozen=True, eq=False)
class LogPartition(Partition):
    """Log Z as a function of parameters (.., P), for models on one structure; exact.

    What is called often takes this in place of :func:`fastmix.log_z`, which opens a call and checks its arguments every
    time. Parameters are arrays of float64, the last axis in the layout of ``MarkovRandomField.parameters``: entries of
    unaries, of edge tables, of factors. They are taken to be numbers or -inf, and are not checked.

    Attributes
    ----------
    structure : Structure
    rows : ParameterRows
        The plan.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5)
    >>> partition = LogPartition.of(model.structure)
    >>> thetas = np.stack([model.parameters, 2.0 * model.parameters])
    >>> partition.values(thetas).round(4).tolist()
    [2.3197, 2.947]
    >>> partition.gradients(thetas).gradient.shape
    (2, 14)
    """

    rows: ParameterRows

    @classmethod
    def of(cls, structure: Structure, memory_limit: float = math.inf, clock: Clock = NO_LIMIT) -> LogPartition:
        """The function for a structure, which keeps the plan; a ResourceError where its tables do not fit."""
        kept: ParameterRows | None = structure.__dict__.get(_KEPT)
        if kept is None:
            kept = plan_parameter_rows(structure, memory_limit=memory_limit, clock=clock)
            structure.__dict__[_KEPT] = kept
        required = kept.elimination.required_bytes
        if required > memory_limit:
            width = kept.elimination.treewidth
            refuse(str(width), width, required, memory_limit)
        return cls(structure, kept)

    def values(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> FloatArray:
        """Log Z (..) of parameters (.., P); -inf where no configuration is possible."""
        found = self.rows.answer(self._flat(theta), gradients=False, num_threads=num_threads, clock=clock)
        return found.log_z.reshape(theta.shape[:-1])

    def gradients(self, theta: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT) -> Slopes:
        """Log Z (..) and its gradients (.., P), which are the marginals; NaN where no configuration is possible."""
        found = self.rows.answer(self._flat(theta), num_threads=num_threads, clock=clock)
        assert found.gradients is not None
        return Slopes(found.log_z.reshape(theta.shape[:-1]), found.gradients.reshape(theta.shape))

    def shared_values(self, unary: FloatArray, tables: FloatArray, *, clock: Clock = NO_LIMIT) -> FloatArray:
        """Log Z (..) of rows of unaries (.., U) beside tables (S,) that are the same in all rows; pairs only."""
        rows = np.asarray(unary, dtype=np.float64).reshape(-1, unary.shape[-1])
        return self._shared_rows.values(rows, tables, clock).reshape(unary.shape[:-1])

    def shared_gradients(
        self, unary: FloatArray, tables: FloatArray, weights: FloatArray, *, clock: Clock = NO_LIMIT
    ) -> SharedGradients:
        """The same with gradients: by the unaries (.., U), and by the tables (S,) summed over rows with weights (..).

        Tables have no axis for the row while they are worked with: several times as fast as rows with tables of their
        own. Rows in which nothing is possible have NaN by the unaries, and count nothing by the tables.
        """
        rows = np.asarray(unary, dtype=np.float64).reshape(-1, unary.shape[-1])
        found = self._shared_rows.gradients(rows, tables, np.reshape(weights, -1), clock)
        return SharedGradients(found.log_z.reshape(unary.shape[:-1]), found.own.reshape(unary.shape), found.shared)

    def shared_answer(self, unary: FloatArray, tables: FloatArray, *, clock: Clock = NO_LIMIT) -> SharedAnswer | None:
        """The same before the weights are known: what comes back makes the sums by the tables once they are.

        It holds two messages for every edge and row. None where the graph is such that sums cannot wait: those of
        chains and trees can.
        """
        if not self._shared_rows.can_wait:
            return None
        rows = np.asarray(unary, dtype=np.float64).reshape(-1, unary.shape[-1])
        found = self._shared_rows.unweighted(rows, tables, clock)
        return SharedAnswer(found.log_z.reshape(unary.shape[:-1]), found.own.reshape(unary.shape), found.by_tables)

    @property
    def _shared_rows(self) -> SharedRows:
        """The plan for shared tables, kept with the structure."""
        kept: SharedRows | None = self.structure.__dict__.get(_KEPT_SHARED)
        if kept is None:
            if self.structure.num_factors:
                raise UnfitMethodError("tables that rows share must be of pairs, got factors over more variables")
            limit = 2.0 * self.rows.elimination.required_bytes + _LEAST_BYTES
            kept = plan_shared_rows(self.structure, memory_limit=limit)
            self.structure.__dict__[_KEPT_SHARED] = kept
        return kept

    def hessian_products(
        self, theta: FloatArray, directions: FloatArray, *, num_threads: int = 1, clock: Clock = NO_LIMIT
    ) -> Slopes:
        """The same, with the products of the Hessians and directions (.., P), which are finite numbers.

        The Hessian is the covariance of the indicators of all entries, so that its product with a direction is the
        derivative of all marginals along it.
        """
        rows = self._flat(np.broadcast_to(directions, theta.shape))
        found = self.rows.answer(self._flat(theta), directions=rows, num_threads=num_threads, clock=clock)
        assert found.gradients is not None
        assert found.products is not None
        log_z = found.log_z.reshape(theta.shape[:-1])
        return Slopes(log_z, found.gradients.reshape(theta.shape), found.products.reshape(theta.shape))


def structure_of(structure: Any) -> Structure:
    """The structure that an argument is, or that the model it is has; a TypeError for anything else."""
    if isinstance(structure, Structure):
        return structure
    if isinstance(structure, MarkovRandomField):
        return structure.structure
    raise TypeError(f"structure must be that of a model (model.structure), or a model, got {describe(structure)}")


def as_parameters(name: str, values: Any, structure: Structure) -> FloatArray:
    """Checked parameters (.., P) of models on a structure, as a new array."""
    array = as_float_array(name, values)
    num_parameters = count_parameters(structure)
    if array.ndim == 0 or array.shape[-1] != num_parameters:
        raise ModelError(f"{name} must have shape (.., {num_parameters}) to fit the structure, got shape {array.shape}")
    check_log_values(name, array)
    return array


def count_parameters(structure: Structure) -> int:
    """Entries of the unaries, the edge tables and the factors of a model on a structure."""
    offsets = (structure.unary_offsets, structure.pairwise_offsets, structure.factor_offsets)
    return sum([int(part[-1]) for part in offsets])
