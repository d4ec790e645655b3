"""dimod: ``BinaryQuadraticModel`` in and out, and draws as a ``SampleSet``.

Energies there are minimized and log-potentials here are maximized: ``p(x) = exp(-energy(x) / temperature) / Z``. Spins
-1 and +1, and the binary values 0 and 1, are states 0 and 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._checks import check_positive, require
from fastmix.errors import ModelError
from fastmix.marginals import InferenceResult
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork

__all__ = ["read", "sample_set", "write"]


def read(source: Any, *, temperature: float = 1.0) -> MarkovRandomField:
    """The model of a binary quadratic model at a temperature; labels become names where they are not 0, 1, 2, .."""
    temperature = check_positive("temperature", temperature, "number")
    labels = list(source.variables)
    vectors = source.to_numpy_vectors(variable_order=labels)
    row, col, bias = vectors.quadratic
    values = np.array([-1.0, 1.0] if source.vartype.name == "SPIN" else [0.0, 1.0])
    scale = -1.0 / temperature
    unary = scale * np.multiply.outer(np.asarray(vectors.linear_biases, dtype=np.float64), values)
    tables = scale * np.multiply.outer(np.asarray(bias, dtype=np.float64), np.outer(values, values))
    edges = np.stack([row, col], axis=1).astype(np.int64)
    names = None if labels == list(range(len(labels))) else [str(label) for label in labels]
    states = [[str(int(v)) for v in values]] * len(labels)
    return MarkovRandomField.from_tables(
        unary, edges, tables, log_constant=scale * float(vectors.offset), variable_names=names, state_names=states
    )


def write(model: MarkovRandomField | BayesianNetwork, *, temperature: float = 1.0) -> Any:
    """The binary quadratic model (of spins) whose energy over a temperature is minus the log-weight of a model."""
    dimod = require("dimod", extra="interop", purpose="conversions")
    temperature = check_positive("temperature", temperature, "number")
    if isinstance(model, BayesianNetwork):
        model = model.to_model()
    if model.num_factors or (model.num_states != 2).any():
        raise ModelError("dimod holds binary variables and pairs of them; the model has others")
    if model.has_forbidden:
        raise ModelError("dimod holds finite energies only; the model forbids some states or pairs")
    unary = model.log_unary.reshape(-1, 2)
    tables = model.log_pairwise.reshape(-1, 2, 2)
    # A spin s has the state (s + 1) / 2: fields and couplings are the means of the tables with these signs.
    linear = 0.5 * (unary[:, 1] - unary[:, 0])
    i, j = model.edges.T
    np.add.at(linear, i, 0.25 * (tables[:, 1].sum(axis=1) - tables[:, 0].sum(axis=1)))
    np.add.at(linear, j, 0.25 * (tables[:, :, 1].sum(axis=1) - tables[:, :, 0].sum(axis=1)))
    coupling = 0.25 * (tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0])
    constant = model.log_constant + 0.5 * unary.sum() + 0.25 * tables.sum()
    labels = list(model.variable_names or range(model.num_variables))
    found = dimod.BinaryQuadraticModel("SPIN")
    found.add_linear_from(zip(labels, (-temperature * linear).tolist(), strict=True))
    ends = ((labels[a], labels[b]) for a, b in model.edges.tolist())
    found.add_quadratic_from((u, v, c) for (u, v), c in zip(ends, (-temperature * coupling).tolist(), strict=True))
    found.offset = -temperature * constant
    return found


def sample_set(result: InferenceResult, *, temperature: float = 1.0) -> Any:
    """The draws of a result over binary variables as a ``SampleSet`` of spins, with their energies."""
    dimod = require("dimod", extra="interop", purpose="conversions")
    problem = write(result.model, temperature=temperature)
    states = result._configurations().reshape(-1, result.model.num_variables)
    spins = (2 * states.astype(np.int8) - 1).astype(np.int8)
    return dimod.SampleSet.from_samples_bqm((spins, list(problem.variables)), problem)
