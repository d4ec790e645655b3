"""Stated errors that leave nothing out, on families of random models; run by ``make verify``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from error_families import attractive, biased_run, opposing_halves, strongly_coupled
from fastmix import NotConvergedError, UnfitMethodError, infer, sample, temper
from fastmix.denoising import anneal
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
    if schedule != "random-burn-in":  # whose proven burn-in is far longer than these models need
        assert by_chance > 0.05 * num_ok  # the family shows what it is for


@pytest.mark.parametrize("part", range(4))
def test_no_replicas_that_have_not_mixed_claim_an_error_that_does_not_cover(part: int, tell: Tell) -> None:
    mixed = unmixed = beyond = violated = without = 0
    for seed in range(150 * part, 150 * (part + 1)):
        model = strongly_coupled(seed)
        limit = float(10.0 ** np.random.default_rng([seed, 32]).uniform(-1.5, 0.0))
        truth = infer(model, method="exact").log_z
        try:
            result = temper(model, time_limit=limit, seed=seed, num_threads=1)
        except NotConvergedError:
            continue
        mixed += result.status == Status.OK
        unmixed += result.status == Status.NOT_MIXED
        if result.log_z is not None:
            beyond += bool(abs(result.log_z - truth) > 5.0 * result.log_z_std_error)
        elif result.log_z_lower is None:
            without += 1
            assert result.log_z_kind == "unknown"
        else:
            assert result.log_z_kind == "bound"
        if result.log_z_lower is not None and result.log_z_confidence == 1.0:
            violated += bool(result.log_z_lower > truth + 1e-9 * abs(truth))
    counted = f"mixed {mixed}, not {unmixed} ({without} without a bound), beyond 5 errors {beyond}"
    tell("tempered, strong and short", f"models {150 * part} to {150 * part + 149}", f"{counted}, violated {violated}")
    assert unmixed > 50
    assert beyond == 0
    assert violated == 0


@pytest.mark.parametrize("num_steps", [150, 20, 5])
def test_populations_state_what_they_cannot_see(num_steps: int, tell: Tell) -> None:
    num_ok = beyond = log_z_beyond = 0
    for seed in range(300):
        model = attractive(seed)
        exact = infer(model, method="exact")
        result = anneal(model, num_steps=num_steps, sweeps_per_step=1 + num_steps // 20, seed=seed, num_threads=1)
        if result.status != Status.OK:
            assert result.log_z is None
            continue
        num_ok += 1
        error = np.abs(result.node_marginals - exact.node_marginals)
        beyond += bool((error > 5.0 * result.std_error + 1e-12).any())
        if result.log_z is not None:
            log_z_beyond += bool(abs(result.log_z - exact.log_z) > 5.0 * result.log_z_std_error + 1e-9)
    counted = f"ok {num_ok} of 300, beyond 5 errors {beyond}, of log Z {log_z_beyond}"
    tell("annealed, attractive", f"{num_steps} steps", counted)
    assert num_ok > 100
    assert beyond <= 0.01 * num_ok
    assert log_z_beyond == 0


@pytest.mark.parametrize("num_chains", [3, 4, 8])
@pytest.mark.parametrize("num_sweeps", [300, 1000, 3000])
def test_cluster_moves_state_what_no_chain_has_met(num_chains: int, num_sweeps: int, tell: Tell) -> None:
    num_ok = beyond = right_but_doubted = 0
    for seed in range(2000):
        model = opposing_halves(seed)
        truth = infer(model, method="exact").node_marginals
        options = {"num_chains": num_chains, "num_sweeps": num_sweeps}
        result = sample(model, method="swendsen-wang", seed=seed, num_threads=1, **options)
        error = np.abs(result.node_marginals - truth)
        if result.status != Status.OK:
            right_but_doubted += bool(error.max() < 0.02)
            continue
        num_ok += 1
        beyond += bool((error > 5.0 * result.std_error + 1e-12).any())
    counted = f"ok {num_ok} of 2000, beyond 5 errors {beyond}, right and doubted {right_but_doubted}"
    tell("swendsen-wang, opposing halves", f"{num_chains} chains, {num_sweeps} sweeps", counted)
    assert num_ok > 300
    assert beyond == 0
