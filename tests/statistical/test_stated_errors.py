"""Stated errors that leave nothing out, on families of random models; run by ``make verify``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from error_families import biased_run
from fastmix import UnfitMethodError, sample
from fastmix.exact.enumeration import enumerate_model
from fastmix.results import Status

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

Tell = Callable[[str, str, str], None]


@pytest.mark.parametrize("schedule", [None, "systematic", "random", "random-burn-in"])
def test_an_accuracy_states_the_bias_that_it_allows(schedule: str | None, tell: Tell) -> None:
    num_ok = by_chance = beyond = 0
    for seed in range(400):
        model, accuracy, start = biased_run(seed)
        options = {} if start is None else {"start": start}
        try:
            result = sample(model, accuracy=accuracy, schedule=schedule, seed=seed, num_threads=1, **options)
        except UnfitMethodError:
            continue
        if result.status != Status.OK:
            continue
        assert result.bias_bound.max() <= accuracy
        num_ok += 1
        error = np.abs(result.node_marginals - enumerate_model(model).node_marginals)
        by_chance += bool((error > 5.0 * result.std_error + 1e-12).any())
        beyond += bool((error > 5.0 * np.hypot(result.std_error, result.bias_bound) + 1e-12).any())
    counted = f"ok {num_ok} of 400, beyond 5 errors with the bias {beyond}, without it {by_chance}"
    tell("gibbs, accuracy", f"schedule {schedule}", counted)
    assert num_ok > 250
    assert beyond == 0
    assert by_chance > 0.05 * num_ok  # the family shows what it is for
