"""What calls return: the statuses, and the result of marginal inference."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction

__all__ = ["DrawResult", "InferenceResult", "Status", "jsonable", "plain_evidence", "provenance"]

FloatArray = NDArray[np.float64]


class Status(StrEnum):
    """How far an answer can be trusted; :attr:`advice` says what to do about it."""

    OK = "ok"
    NOT_CONVERGED = "not_converged"
    NOT_MIXED = "not_mixed"
    INTERRUPTED = "interrupted"
    TIME_LIMIT = "time_limit"

    @property
    def advice(self) -> str:
        """One sentence for the user."""
        return _ADVICE[self]


_ADVICE = {
    Status.OK: "The answer meets what the method promises.",
    Status.NOT_CONVERGED: "The iteration stopped early: allow more iterations or more damping.",
    Status.NOT_MIXED: "The chains disagree: run longer, or use a method made for strongly coupled models.",
    Status.INTERRUPTED: "The run was interrupted: the answer rests on what had been collected.",
    Status.TIME_LIMIT: "The time limit was reached: the answer is the best that was found by then.",
}


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class InferenceResult:
    """Marginals of a model and what is known about them.

    Attributes
    ----------
    model : MarkovRandomField
        The model asked about; with evidence, still with all its variables.
    method : str
        The method that ran.
    status : Status
    node_marginals : float array, aligned with ``model.log_unary``
        Probability of every state of every variable; observed variables have a point mass.
    edge_marginals : float array aligned with ``model.log_pairwise``, or None
        Joint probabilities of every edge.
    log_z : float or None
        Natural log of the normaliser; with evidence, of the unnormalised mass of the evidence.
    log_z_kind : str or None
        What is known of it: ``exact``, ``estimate``, ``bethe`` (no bound on either side) or ``lower bound``.
    log_z_std_error, log_z_lower : float or None
        Its standard error, and a number that it is at least, where the method has them.
    stats : mapping
        Counts and seconds.
    provenance : mapping
        Version, seed, options, model hash, device: what is needed to run it again.
    bracket : BracketResult or None
        Proven bounds on the same numbers, where they were asked for.
    """

    model: MarkovRandomField
    method: str
    status: Status
    node_marginals: FloatArray
    edge_marginals: FloatArray | None
    log_z: float | None
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    log_z_kind: str | None = None
    log_z_std_error: float | None = None
    log_z_lower: float | None = None
    bracket: Any = None

    def __repr__(self) -> str:
        log_z = "" if self.log_z is None else f", log_z={self.log_z:.6g}"
        return f"{type(self).__name__}(method={self.method!r}, status={str(self.status)!r}, {self.model}{log_z})"

    @property
    def marginals(self) -> list[FloatArray]:
        """One probability vector per variable."""
        return np.split(self.node_marginals, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def marginal(self, variable: int | str) -> FloatArray:
        """Probability vector of one variable, given by number or name."""
        i = self.model.variable_index(variable)
        return self.node_marginals[self.model.unary_offsets[i] : self.model.unary_offsets[i + 1]]

    def edge_marginal(self, i: int | str, j: int | str) -> FloatArray:
        """Joint probabilities (L_i, L_j) of two neighbours."""
        if self.edge_marginals is None:
            raise ValueError(f"the method {self.method!r} was not asked for edge marginals")
        e = self.model.edge_index(i, j)
        a, b = self.model.edges[e].tolist()
        values = self.edge_marginals[self.model.pairwise_offsets[e] : self.model.pairwise_offsets[e + 1]]
        table = values.reshape(self.model.num_states[a], self.model.num_states[b])
        return table if self.model.variable_index(i) == a else table.T

    def expanded(self, reduction: Reduction) -> Self:
        """The same result about the model that was reduced: with all its variables and states."""
        return self if reduction.model is reduction.original else replace(self, **self._expansion(reduction))

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields that are about the reduced model, as they are for the original one."""
        values: dict[str, Any] = {"model": reduction.original}
        values["node_marginals"] = reduction.expand_node_marginals(self.node_marginals)
        if self.edge_marginals is not None:
            values["edge_marginals"] = reduction.expand_edge_marginals(self.node_marginals, self.edge_marginals)
        # What further fields of these names hold is the same for every sampler.
        if (errors := self.__dict__.get("std_error")) is not None:
            values["std_error"] = np.zeros(len(reduction.original.log_unary))
            values["std_error"][reduction.unary_positions] = errors
        for name, best in (("ess", np.inf), ("r_hat", 1.0)):
            if (numbers := self.__dict__.get(name)) is not None:
                values[name] = np.full(reduction.original.num_variables, best)
                values[name][reduction.variables] = numbers
        for name in ("states", "draws"):
            if (states := self.__dict__.get(name)) is not None:
                values[name] = reduction.expand_states(states).astype(states.dtype, copy=False)
        return values

    def _by_variable(self, values: FloatArray | None) -> list[Any] | None:
        """Numbers of every state as plain data, a list for every variable; None for None."""
        if values is None or not self.model.num_variables:
            return None if values is None else []
        return [jsonable(vector) for vector in np.split(values, self.model.unary_offsets[1:-1])]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON."""
        names, states = self.model.variable_names, self.model.state_names
        bracket = {} if self.bracket is None else {"bracket": self.bracket.to_dict()}
        return {
            "method": self.method,
            "status": str(self.status),
            "log_z": jsonable(self.log_z),
            "log_z_kind": self.log_z_kind,
            "marginals": [vector.tolist() for vector in self.marginals],
            "variable_names": None if names is None else list(names),
            "state_names": None if states is None else [list(of_variable) for of_variable in states],
            "evidence": jsonable(self.provenance.get("options", {}).get("evidence")),
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
            **bracket,
        }


@dataclass(frozen=True, eq=False, repr=False)
class DrawResult(InferenceResult):
    """Independent exact configurations; also an array of them (``numpy.asarray(result)``, ``result[0]``).

    ``node_marginals`` are relative frequencies.

    Attributes
    ----------
    states : int array (num_draws, n)
        Of all variables, also with evidence.
    std_error : float array, aligned with ``model.log_unary``
        Of the frequencies.
    """

    states: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    std_error: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.states)} draws, method={self.method!r}, {self.model})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.states, dtype=dtype, copy=True if copy is None else copy)

    def __getattr__(self, name: str) -> Any:
        if name in ("T", "astype", "dtype", "max", "mean", "min", "ndim", "reshape", "shape", "size", "sum", "tolist"):
            return getattr(self.states, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, item: Any) -> Any:
        return self.states[item]

    @staticmethod
    def frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Relative frequency of every state in configurations (num_draws, n), and its standard error."""
        count, total = np.zeros(len(model.log_unary)), max(1, len(states))
        rows = max(1, (1 << 20) // max(1, model.num_variables))
        for first in range(0, len(states), rows):
            entries = (states[first : first + rows] + model.unary_offsets[:-1]).reshape(-1)
            count += np.bincount(entries, minlength=len(count))
        mean = count / total
        return mean, np.sqrt(mean * (1.0 - mean) / total)

    @staticmethod
    def pair_frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> FloatArray:
        """Relative frequency of every pair of states of every edge in configurations (num_draws, n)."""
        counts, (i, j) = np.zeros(len(model.log_pairwise)), model.edges.T
        rows = max(1, (1 << 20) // max(1, model.num_edges))
        for first in range(0, len(states), rows):
            part = states[first : first + rows]
            entries = model.pairwise_offsets[:-1] + part[:, i] * model.num_states[j] + part[:, j]
            counts += np.bincount(entries.reshape(-1), minlength=len(counts))
        return counts / max(1, len(states))


def plain_evidence(evidence: Evidence | None) -> dict[str, int | str] | None:
    """Evidence as it is noted in the provenance."""
    return None if evidence is None else {str(k): v for k, v in evidence.items()}


def provenance(
    model: MarkovRandomField, *, seed: int | None = None, device: str = "cpu", **options: Any
) -> dict[str, Any]:
    """What an output must hold to be produced again."""
    from fastmix import __version__

    return {
        "version": __version__,
        "seed": seed,
        "options": options,
        "model_hash": model.content_hash,
        "device": device,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def jsonable(value: Any) -> Any:
    """``value`` as plain Python data for JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
