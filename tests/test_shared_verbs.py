"""Every verb gives the same for a model given by patterns and weights, and for the model of its tables in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastmix
import strategies
from fastmix import MarkovRandomField

Answer = Callable[[MarkovRandomField], Any]

CHAINS: dict[str, Any] = {"num_sweeps": 2000, "burn_in": 50, "seed": 1, "num_threads": 1}


def numbers_of_bracket(model: MarkovRandomField) -> Any:
    """The bounds on log Z and on all marginals."""
    found = fastmix.bracket(model, seed=1)
    return [found.log_z_lower, found.log_z_upper, *found.node_lower, *found.node_upper]


def projected(model: MarkovRandomField, **options: Any) -> Any:
    """The parameters of the projected model, and the norm before."""
    found = fastmix.project(model, norm_bound=0.5, progress=None, **options)
    return [*found.model.log_unary, *found.model.log_pairwise, found.norm_before]


def numbers_of_certificate(model: MarkovRandomField) -> Any:
    """The norm, and the sweeps where they are certified."""
    found = fastmix.certify(model)
    return [found.norm_value, float(found.num_sweeps or -1)]


# What each verb gives as numbers, and how far rounding may carry these, or chance where kernels draw differently.
ANSWERS: dict[str, tuple[Answer, float]] = {
    "exact": (lambda m: [*(r := fastmix.infer(m, method="exact")).node_marginals, r.log_z], 1e-12),
    "loopy-bp": (lambda m: fastmix.loopy_bp(m, max_iter=5).node_marginals, 1e-11),
    "mean-field": (lambda m: fastmix.mean_field(m, num_starts=1, max_iter=5).node_marginals, 1e-11),
    "most_probable": (lambda m: fastmix.most_probable(m, method="exact").states, 0.0),
    "gibbs": (lambda m: fastmix.sample(m, num_chains=10, **CHAINS).node_marginals, 0.03),
    "temper": (lambda m: fastmix.temper(m, num_ensembles=8, **CHAINS).node_marginals, 0.05),
    "draw_exact": (lambda m: np.asarray(fastmix.draw_exact(m, num_draws=5, seed=1)), 0.0),
    "bracket": (numbers_of_bracket, 1e-9),
    "certify": (numbers_of_certificate, 1e-9),
    "project": (projected, 1e-5),
    "project spectral": (lambda m: projected(m, norm="spectral"), 1e-4),
    "log_weight": (lambda m: m.log_weight(np.zeros(m.num_variables, dtype=int)), 1e-12),
}


@pytest.mark.parametrize("verb", ANSWERS)
@pytest.mark.parametrize("seed", strategies.seeds(12, quick=4))
def test_patterns_and_tables_in_full_give_the_same(verb: str, seed: int) -> None:
    twins = strategies.picture_twins(seed, num_variables=4, scale=0.6, mixed=False)
    assert twins.shared == twins.full
    ask, atol = ANSWERS[verb]
    np.testing.assert_allclose(ask(twins.shared), ask(twins.full), rtol=0, atol=atol)
