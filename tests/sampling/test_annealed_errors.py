"""Errors of annealed populations cover what all of them have missed."""

from __future__ import annotations

import numpy as np

from error_families import attractive
from fastmix import infer
from fastmix.denoising import anneal
from fastmix.results import Status


def test_populations_that_agree_to_the_last_bit_have_an_error():
    """Chains whose clusters never broke agree on probabilities that are off by what they have not met."""
    num_ok = 0
    for seed in range(32):
        model = attractive(seed)
        exact = infer(model, method="exact")
        result = anneal(model, num_steps=20, sweeps_per_step=2, seed=seed, num_threads=1)
        assert result.log_z_lower is None or result.log_z_lower <= exact.log_z
        if result.status != Status.OK:
            assert result.log_z is None
            assert "more chains" in result.advice
            continue
        num_ok += 1
        error = np.abs(result.node_marginals - exact.node_marginals)
        assert (error <= 5.0 * result.std_error + 1e-12).all(), seed
        assert result.log_z is None or abs(result.log_z - exact.log_z) <= 5.0 * result.log_z_std_error + 1e-9
    assert num_ok > 15
