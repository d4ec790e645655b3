"""``log_z()``: log Z as a function of the parameters, with its gradient and products with its Hessian."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, check_positive
from fastmix._clock import Clock, OutOfTimeError, Report
from fastmix._context import open_context
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ModelError, ResourceError
from fastmix.gradients.partition import LogPartition, Slopes, as_parameters, structure_of
from fastmix.model import MarkovRandomField, Structure
from fastmix.results import Result

__all__ = ["LogZResult", "log_z", "plain_model"]


def log_z(
    structure: Structure | MarkovRandomField,
    theta: ArrayLike | None = None,
    *,
    memory_limit: float | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> LogZResult:
    """Exact log Z of one set of parameters or of many, with gradients and Hessian-vector products when asked for.

    Log Z is ``log_constant`` plus the log of the sum over all configurations x of exp(theta . f(x)), where f(x) has a 1
    for each entry of a table that x selects. Its gradient is the mean of f: the marginals, entry by entry where the
    parameters are. Its Hessian is the covariance of f.

    Parameters
    ----------
    structure : Structure or MarkovRandomField
        The graph, ``model.structure``. A model stands for its structure, its names and its ``log_constant``.
    theta : array_like (.., P), optional
        Parameters in the layout of :attr:`fastmix.MarkovRandomField.parameters`: the entries of all unaries, then of
        all edge tables, then of all factors, each table with its last variable fastest. Axes before the last are rows
        of a batch. Those of the model by default.
    memory_limit : float, optional
        Bytes for the tables of a row; half of the memory that is free by default.
    num_threads : int, optional
        Blocks of rows are worked off side by side; all processors by default. It changes no answer.
    time_limit, progress
        See :func:`fastmix.infer`.

    Returns
    -------
    LogZResult

    Raises
    ------
    ModelError
        If parameters do not fit the structure, or are NaN or +inf.
    ResourceError
        If the tables need more memory, or the answer more time, than there is.

    Notes
    -----
    The plan is made once and kept with the structure. Values are one pass through the junction tree, gradients one more
    back through it (together at most about three times as long), a product with the Hessian both with tangents (twice
    as long again). Many rows are worked off side by side.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5, field=[0.2, 0.0, 0.0])
    >>> found = log_z(model)
    >>> round(found.log_z, 6)
    2.339539
    >>> found.gradient()[:6].round(4).tolist()  # the marginals of the three variables
    [0.4013, 0.5987, 0.4544, 0.5456, 0.4789, 0.5211]
    >>> many = log_z(model.structure, [model.parameters, 2.0 * model.parameters])
    >>> many.log_z.round(4).tolist(), many.gradient().shape
    ([2.3395, 3.025], (2, 14))
    """
    graph = structure_of(structure)
    model = structure if isinstance(structure, MarkovRandomField) else plain_model(graph)
    if theta is None:
        if not isinstance(structure, MarkovRandomField):
            raise ModelError("theta must be given with a structure; only a model has parameters of its own")
        theta = structure.parameters
    parameters = as_parameters("theta", theta, graph)
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    check_memory(16.0 * parameters.size, f"theta of {parameters.size:,} numbers", "give fewer rows at a time")
    options = {"shape": list(parameters.shape), "memory_limit": memory_limit}
    with open_context(
        "log z", model, time_limit=time_limit, progress=progress, num_threads=num_threads, options=options
    ) as context:
        clock = context.clock
        try:
            partition = LogPartition.of(graph, limit, clock)
            values = partition.values(parameters, num_threads=context.num_threads, clock=clock)
        except OutOfTimeError:
            raise _too_late(clock) from None
        stats = {
            "treewidth": partition.rows.elimination.treewidth,
            "required_bytes": partition.rows.elimination.required_bytes,
            "num_rows": values.size,
        }
        found = values + model.log_constant
        result = LogZResult(
            model=model,
            log_z=float(found) if found.ndim == 0 else found,
            theta=parameters,
            partition=partition,
            num_threads=context.num_threads,
            stats=stats,
        )
        return context.finish(result)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LogZResult(Result):
    """Log Z of parameters, and its derivatives, computed when they are asked for.

    Attributes
    ----------
    log_z : float or float array (..)
        Log Z of every row of the parameters; -inf where no configuration is possible.
    theta : float array (.., P)
        The parameters.
    partition : LogPartition
        The function itself, for calls that are to cost as little as possible.
    """

    log_z: Any
    theta: FloatArray
    partition: LogPartition
    num_threads: int = 1
    known: dict[str, Slopes] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        shown = f"{self.log_z:.6g}" if np.ndim(self.log_z) == 0 else f"{np.size(self.log_z):,} rows"
        return f"LogZResult({shown}, {self.model})"

    def gradient(self) -> FloatArray:
        """The gradient (.., P): marginals of all variables, edges and factors, in the layout of the parameters.

        NaN in rows in which no configuration is possible. Read-only, kept for the next time.
        """
        if "gradient" not in self.known:
            found = self.partition.gradients(self.theta, num_threads=self.num_threads)
            found.gradient.setflags(write=False)
            self.known["gradient"] = found
        return self.known["gradient"].gradient

    def hessian_product(self, direction: ArrayLike) -> FloatArray:
        """The Hessian times a direction (.., P): covariances of the indicators of all entries, summed along it.

        One pass through the junction tree with tangents beside the tables. Directions are finite; one for all rows, or
        one for each.
        """
        vector = as_float_array("direction", direction)
        rows = self.theta.shape
        if vector.shape not in (rows, rows[-1:]):
            raise ModelError(f"direction must have shape {rows[-1:]} or that of theta, {rows}, got {vector.shape}")
        if not np.isfinite(vector).all():
            raise ModelError("direction must hold finite numbers")
        found = self.partition.hessian_products(self.theta, vector, num_threads=self.num_threads)
        assert found.product is not None
        return found.product

    def title(self) -> str:
        """What was computed."""
        return "log z"

    def facts(self) -> dict[str, str]:
        """Log Z, or the number of rows and their mean."""
        if np.ndim(self.log_z) == 0:
            return {"log z": f"{self.log_z:.10g}"}
        possible = self.log_z[np.isfinite(self.log_z)]
        mean = f"{float(possible.mean()):.6g}" if possible.size else "none is possible"
        return {"rows": f"{self.log_z.size:,}", "mean log z": mean}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file: a line for every row of parameters."""
        values = np.reshape(self.log_z, -1)
        return {"row": np.arange(len(values)), "log_z": values}

    def contents(self) -> dict[str, Any]:
        """Log Z and its gradient."""
        return {"log_z": self.log_z, "log_z_kind": "exact", "gradient": self.gradient()}


def _too_late(clock: Clock) -> ResourceError:
    """The error for a call that cannot end within the limit of a clock."""
    return ResourceError(
        f"log_z takes longer than the time limit of {clock.limit:.3g} s: give it more time or fewer rows"
    )


def plain_model(structure: Structure) -> MarkovRandomField:
    """The model on a structure whose parameters are all zero, kept with it: what results are about."""
    kept = structure.__dict__
    if "plain_model" not in kept:
        zeros = [np.zeros(int(offsets[-1])) for offsets in (structure.unary_offsets, structure.pairwise_offsets)]
        kept["plain_model"] = MarkovRandomField(
            structure.num_states,
            zeros[0],
            structure.edges,
            zeros[1],
            scope_starts=structure.scope_starts,
            scope_variables=structure.scope_variables,
            log_factors=np.zeros(int(structure.factor_offsets[-1])),
        )
    model: MarkovRandomField = kept["plain_model"]
    return model
