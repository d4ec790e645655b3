"""The instances of the experiments and the truth that answers are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix import instances
from fastmix.exact import infer_exact
from fastmix.experiments.plan import Case, derive_seed
from fastmix.model import MarkovRandomField

__all__ = ["PROBLEMS", "Instance", "build", "mean_error"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Instance:
    """A model and its true marginals.

    Attributes
    ----------
    model : MarkovRandomField
    truth : float array, aligned with ``model.log_unary``
    facts : mapping
        Plain data for the rows.
    """

    model: MarkovRandomField
    truth: FloatArray
    facts: Mapping[str, Any] = field(default_factory=dict)


def build(case: Case) -> Instance:
    """The instance of a case, the same wherever and whenever it is built.

    Raises
    ------
    ValueError
        If the problem is not known.
    """
    if case.problem not in PROBLEMS:
        raise ValueError(f"problem must be one of {', '.join(PROBLEMS)}, got {case.problem!r}")
    return PROBLEMS[case.problem](case)


def mean_error(truth: FloatArray, answer: FloatArray, num_variables: int) -> float:
    """Mean over variables of the total variation distance; ``|p(X=1) - q(X=1)|`` for binary ones.

    Examples
    --------
    >>> mean_error(np.array([0.5, 0.5]), np.array([0.4, 0.6]), 1).__round__(12)
    0.1
    """
    return float(0.5 * np.abs(truth - answer).sum() / num_variables)


def _instance_seed(case: Case) -> int:
    """The same for all strengths: graph, fields and the pattern of the couplings stay, their strength alone changes."""
    fixed = {name: value for name, value in case.parameters.items() if name != "strength"}
    return derive_seed(case.seed, case.problem, sorted(fixed.items()), case.trial, "instance")


def _exact(model: MarkovRandomField) -> Instance:
    return Instance(model, infer_exact(model).node_marginals)


def _ising_grid(case: Case) -> Instance:
    p = case.parameters
    return _exact(
        instances.ising_grid(
            p["rows"], p["cols"], coupling_max=p["strength"], attractive=p["kind"] == "attractive",
            seed=_instance_seed(case),
        )
    )  # fmt: skip


def _ising_random(case: Case) -> Instance:
    p = case.parameters
    return _exact(
        instances.ising_random(
            p["num_variables"], edge_probability=p["density"], coupling_max=p["strength"],
            attractive=p["kind"] == "attractive", seed=_instance_seed(case),
        )
    )  # fmt: skip


def _potts_grid(case: Case) -> Instance:
    p = case.parameters
    return _exact(
        instances.potts_grid(
            p["rows"], p["cols"], num_states=p["num_states"], coupling_max=p["strength"],
            attractive=p["kind"] == "attractive", seed=_instance_seed(case),
        )
    )  # fmt: skip


def _photograph(case: Case) -> Instance:
    from fastmix.experiments.photographs import photograph_instance

    return photograph_instance(case)


PROBLEMS: dict[str, Callable[[Case], Instance]] = {
    "ising-grid": _ising_grid,
    "ising-random": _ising_random,
    "potts-grid": _potts_grid,
    "photograph": _photograph,
}
