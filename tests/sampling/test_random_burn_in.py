"""Runs that burn in by random updates, under the criteria past Dobrushin's."""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import Any

import numpy as np
import pytest

from fastmix import infer, sample
from fastmix._clock import NO_LIMIT
from fastmix.errors import NotConvergedError, UnfitMethodError
from fastmix.exact.enumeration import enumerate_model
from fastmix.inference.choice import choose
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.sampling.results import bias_bounds
from fastmix.theory.certify import certify
from fastmix.theory.criteria import bias_after_updates
from oracle import theory

SIGMAS = 6.0


def dense_model(n: int = 14, scale: float = 0.36) -> MarkovRandomField:
    """Certified by its width, not by Dobrushin's criterion."""
    rng = np.random.default_rng(3)
    edges = list(itertools.combinations(range(n), 2))
    couplings = scale * rng.choice([-1.0, 1.0], size=len(edges)) / math.sqrt(n)
    return MarkovRandomField.ising(edges, couplings, rng.normal(size=n))


def test_the_model_is_certified_by_its_width_only() -> None:
    certificate = certify(dense_model(), accuracy=0.01)
    assert certificate.criterion in ("width", "split")
    assert not certify(dense_model(), accuracy=0.01, criterion="dobrushin").certified


def test_accuracy_burns_in_by_the_proven_number_of_random_updates() -> None:
    model = dense_model(10)
    exact = enumerate_model(model).node_marginals
    proven = certify(model, accuracy=0.05)
    for seed in range(2):
        result = sample(model, accuracy=0.1, seed=seed)
        assert result.status == Status.OK
        assert np.abs(result.node_marginals - exact).max() < 0.1
        assert result.stats["burn_in"] == math.ceil(proven.num_updates / model.num_variables)
        assert result.provenance["options"]["schedule"] == "random-burn-in"
        assert result.stats["bias"] <= 0.05
    intervals = result.intervals(confidence=0.999, simultaneous=True)
    assert not intervals.vacuous.any()
    assert ((intervals.lower <= exact) & (exact <= intervals.upper)).all()
    with pytest.raises(UnfitMethodError, match=r"^accuracy .*certified"):
        sample(model, accuracy=0.1, schedule="systematic")
    random = sample(model, accuracy=0.1, schedule="random", seed=0)
    assert random.stats["burn_in"] == result.stats["burn_in"]


@pytest.mark.parametrize("schedule", ["random", "random-burn-in"])
def test_the_law_of_what_is_averaged(schedule: str) -> None:
    """Against exact transition matrices: random sweeps to burn in, and one more, systematic after a random burn-in."""
    model = MarkovRandomField.from_tables(
        [[0.0, 1.0], [0.5, 0.0, -0.5]], [(0, 1)], [[[1.5, 0.0, -1.0], [0.0, 0.0, 1.5]]]
    )
    chain, num_chains = theory.Chain(model), 40_000
    at_random = chain.sweep("random")
    last = at_random if schedule == "random" else chain.sweep("systematic", model.structure.visit_order[0].tolist())
    states, counts = np.array(chain.configurations), model.num_states.tolist()
    number = chain.configurations.index((1, 2))
    for burn_in in (1, 2, 5):
        result = sample(
            model, num_chains=num_chains, num_sweeps=1, burn_in=burn_in, schedule=schedule,
            start=np.tile((1, 2), (num_chains, 1)), seed=burn_in,
        )  # fmt: skip
        law = (np.linalg.matrix_power(at_random, burn_in) @ last)[number]
        after, target = (
            np.concatenate([np.bincount(states[:, i], w, minlength=k) for i, k in enumerate(counts)])
            for w in (law, chain.target)
        )
        assert np.abs(result.node_marginals - after).max() < SIGMAS * 0.5 / math.sqrt(num_chains)
        bias = bias_bounds(model, burn_in, schedule, "exact")
        assert (np.abs(after - target) <= np.repeat(bias, counts) + 1e-12).all()


@pytest.mark.parametrize("num_models", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_the_bias_after_updates_is_never_below_the_exact_distance(num_models: int) -> None:
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(num_models):
        n = int(rng.integers(2, 5))
        edges = list(itertools.combinations(range(n), 2))
        model = MarkovRandomField.ising(edges, 0.3 * rng.normal(size=len(edges)), rng.normal(size=n))
        chain = theory.Chain(model)
        kernel = chain.sweep("random")
        for num_sweeps in (1, 5, 20, 60):
            distance = 0.5 * np.abs(np.linalg.matrix_power(kernel, num_sweeps) - chain.target).sum(axis=1).max()
            bias = bias_after_updates(model, n * num_sweeps)
            assert distance <= bias + 1e-12
            told += bias < 1.0
    assert told > 1.5 * num_models


def test_a_random_burn_in_goes_on_from_a_checkpoint(tmp_path) -> None:
    model = dense_model()
    options = {"num_chains": 8, "num_sweeps": 400, "burn_in": 300, "schedule": "random-burn-in", "seed": 4}
    whole = sample(model, **options)
    path = str(tmp_path / "run.npz")
    for limit in (1e-3, 1e-3, None):
        with contextlib.suppress(NotConvergedError):
            part = sample(model, checkpoint=path, checkpoint_seconds=0.0, time_limit=limit, **options)
    np.testing.assert_array_equal(part.node_marginals, whole.node_marginals)


def test_infer_burns_in_at_random_where_only_that_is_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastmix.errors import ResourceError
    from fastmix.inference import choice as rules

    def too_large(*_: object, **__: object) -> None:
        raise ResourceError("too large", required_bytes=1e15)

    monkeypatch.setattr(rules, "plan_exact", too_large)
    model = dense_model()
    choice = choose(model, None, NO_LIMIT, False)
    assert choice.chosen.schedule == "random-burn-in"  # type: ignore[attr-defined]
    assert "provably mixes (width" in choice.reason or "provably mixes (split" in choice.reason
    result = infer(model, seed=0, time_limit=20)
    assert "intervals() are proven" in result.stats["guarantee"]
    exact = enumerate_model(model).node_marginals
    assert np.abs(result.node_marginals - exact).max() < 0.02


def test_graphics_cards_refuse_random_updates() -> None:
    with pytest.raises((UnfitMethodError, ImportError, RuntimeError)):
        sample(dense_model(), accuracy=0.1, backend="cuda")


# -- projected --------------------------------------------------------------------------------------------------------


def test_projected_bounds_the_width_of_dense_mixed_models_that_it_moves_less() -> None:
    options = {"method": "projected", "num_chains": 16, "num_sweeps": 2000, "seed": 0}
    result: Any = infer(dense_model(60, 0.5), **options)
    assert (result.projection.norm, result.projection.norm_bound) == ("width", 0.95)
    assert result.certificate.certified
    assert result.stats["burn_in"] >= math.ceil(result.certificate.num_updates / 60)
    assert "provably mixes" in result.stats["guarantee"]
    assert not result.sampled.intervals().vacuous.all()
    attractive = MarkovRandomField.ising(list(itertools.combinations(range(12), 2)), 0.4)
    other: Any = infer(attractive, **options)
    assert other.projection.norm == "inf"
    asked: Any = infer(dense_model(40, 0.5), norm="width", norm_bound=0.5, **options)
    assert (asked.projection.norm, asked.projection.norm_bound) == ("width", 0.5)
