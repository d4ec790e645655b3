"""Sampled fits to a few rows, and how far they are from the optimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix import Status, learn
from fastmix.graphs import complete_edges
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data import read_data
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import Dataset
from fastmix.learning.likelihood import ExactLikelihood
from fastmix.learning.model_moments import Enumerated


@dataclass(frozen=True)
class SampledFit:
    """What a sampled fit says, how much objective it leaves to gain, and the tolerance."""

    status: Status
    gap: float
    tol: float


def fit_few_rows(seed: int, max_iter: int = 60, *, least: int = 3, most: int = 10) -> SampledFit:
    """A fit with sampled moments of so many random rows of 2 to 8 variables, compared with the exact optimum."""
    rng = np.random.default_rng([seed, 6])
    n = int(rng.integers(2, 9))
    num_rows = int(rng.integers(least, most + 1))
    states = 3 if n < 6 and seed % 2 else 2
    ridge = 10.0 ** -int(rng.integers(1, 5))
    shares = rng.dirichlet(np.full(states, 0.7), size=n)
    rows = np.array([[rng.choice(states, p=share) for share in shares] for _ in range(num_rows)])
    tol = 10.0 ** -rng.uniform(2.0, 3.0)
    table = read_data(rows, num_states=states)
    best = learn(table, ridge=ridge, moments="exact", tol=1e-7, max_iter=20_000)
    found = learn(
        table, ridge=ridge, moments="sampled", tol=tol, max_iter=max_iter, seed=seed,
        num_chains=int(rng.choice([64, 256, 1024])),
    )  # fmt: skip
    gap = _objective(table, found.model.parameters, ridge) - _objective(table, best.model.parameters, ridge)
    return SampledFit(found.status, gap, tol)


def _objective(table: Dataset, parameters: np.ndarray, ridge: float) -> float:
    data = table.merged()[0]
    coordinates = Coordinates(data.blank_model(complete_edges(len(data.num_states))).structure)
    v, _ = coordinates.from_parameters(parameters)
    value, _ = ExactLikelihood(Enumerated(coordinates), DataTerm(coordinates, data)).evaluate(v)
    return value + 0.5 * ridge * float(v @ v)
