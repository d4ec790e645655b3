"""``mutual_information()``: how much variables tell of each other, for all pairs of some variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_list
from fastmix._clock import Report
from fastmix._context import open_context
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.queries.conditionals import Conditionals, information, joint_with
from fastmix.results import Result

__all__ = ["PairInformation", "mutual_information"]


def mutual_information(
    model: MarkovRandomField,
    *,
    variables: Sequence[int | str] | None = None,
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> PairInformation:
    """The mutual information of all pairs of some variables, given evidence, exactly.

    ``I(X; Y) = sum p(x, y) log(p(x, y) / (p(x) p(y)))``, in nats: 0 where they are independent given the evidence. One
    pass through the junction tree and back is made for every state of every variable.

    Parameters
    ----------
    model : MarkovRandomField
    variables : sequence of int or str, optional
        All by default.
    evidence : mapping, optional
        Observed states, or likelihoods, by variable.
    memory_limit : float, optional
        Bytes for the tables; half of the memory that is free by default.
    num_threads, time_limit, progress
        See :func:`fastmix.infer`. Without a time limit it runs to its end.

    Returns
    -------
    PairInformation

    Raises
    ------
    ModelError
        If there is no such variable, or one is named twice.
    ImpossibleEvidenceError
        If the evidence has probability zero.
    ResourceError
        If exact inference needs more memory, or more time, than there is.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[1.0, 0.3])
    >>> mutual_information(model).matrix.round(4).tolist()
    [[0.6931, 0.3278, 0.0248], [0.3278, 0.6931, 0.0431], [0.0248, 0.0431, 0.6931]]
    """
    check_model(model)
    numbers = _numbers(model, variables)
    check_memory(8.0 * len(numbers) ** 2, f"pairs of {len(numbers):,} variables", "name fewer variables")
    options = {"variables": None if variables is None else numbers.tolist(), "memory_limit": memory_limit}
    with open_context(
        "mutual information", model, evidence=evidence, time_limit=time_limit, progress=progress,
        num_threads=num_threads, options=options,
    ) as context:  # fmt: skip
        conditionals = Conditionals(model, evidence, memory_limit, context)
        matrix = np.zeros((len(numbers), len(numbers)))
        num_rows = 1
        for k, variable in enumerate(numbers.tolist()):
            joint, _ = joint_with(conditionals, variable)
            num_rows += len(joint)
            matrix[k, k:] = information(joint, model.unary_offsets)[numbers[k:]]
            matrix[k:, k] = matrix[k, k:]
        result = PairInformation(model=model, variables=numbers, matrix=matrix, stats={"num_rows": num_rows})
        return context.finish(result)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PairInformation(Result):
    """The mutual information of all pairs of some variables.

    Attributes
    ----------
    variables : int array (m,)
    matrix : float array (m, m)
        In nats, symmetric; the diagonal holds the entropies of the variables. 0 for observed variables.
    """

    variables: IntArray
    matrix: FloatArray

    def __repr__(self) -> str:
        return f"PairInformation({len(self.variables)} variables, {self.model})"

    def title(self) -> str:
        """What was computed."""
        return "mutual information"

    def facts(self) -> dict[str, str]:
        """The number of pairs, and the one that shares most."""
        columns = self.columns()
        found = {"pairs": f"{len(columns['first']):,}"}
        if columns["first"]:
            largest = columns["mutual_information"][0]
            found["largest"] = f"{columns['first'][0]}, {columns['second'][0]}: {largest:.4g}"
        return found

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame`: a line for every pair, those that share most first."""
        i, j = np.triu_indices(len(self.variables), k=1)
        order = np.argsort(-self.matrix[i, j], kind="stable")
        names = self.model.names_of_variables()
        return {
            "first": [names[v] for v in self.variables[i[order]].tolist()],
            "second": [names[v] for v in self.variables[j[order]].tolist()],
            "mutual_information": self.matrix[i, j][order],
        }

    def contents(self) -> dict[str, Any]:
        """The variables and the matrix."""
        return {"variables": self.variables, "matrix": self.matrix, "variable_names": self.model.variable_names}

    def plot(self, axes: Any = None) -> Any:
        """The matrix without its diagonal as a picture (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        return _show.picture(axes, self.matrix - np.diag(np.diag(self.matrix)), label="nats")


def _numbers(model: MarkovRandomField, variables: Any) -> IntArray:
    """Numbers of variables, all of them by default; a ModelError where one is named twice."""
    if variables is None:
        return np.arange(model.num_variables)
    names = as_list("variables", variables, "a list of variables")
    numbers = [model.variable_index(name) for name in names]
    if len(set(numbers)) < len(numbers):
        raise ModelError("variables must be different, got one twice")
    return np.array(numbers, dtype=np.int64)
