"""What calls return: the statuses, and the result of marginal inference."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.model import MarkovRandomField

__all__ = ["InferenceResult", "Status", "jsonable", "provenance"]

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
    stats : mapping
        Counts and seconds.
    provenance : mapping
        Version, seed, options, model hash, device: what is needed to run it again.
    """

    model: MarkovRandomField
    method: str
    status: Status
    node_marginals: FloatArray
    edge_marginals: FloatArray | None
    log_z: float | None
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

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

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON."""
        return {
            "method": self.method,
            "status": str(self.status),
            "log_z": jsonable(self.log_z),
            "marginals": [vector.tolist() for vector in self.marginals],
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
        }


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
