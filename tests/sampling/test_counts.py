"""Counts of NumPy's types mean what the same Python numbers mean, in every method that takes chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastmix import MarkovRandomField, infer, learn, score
from fastmix.executors import Pool
from fastmix.experiments import Settings
from fastmix.inference.projected import Projected
from fastmix.learning import stability
from fastmix.method import Method
from fastmix.sampling.anneal import Annealed
from fastmix.sampling.perfect_sample import Perfect
from fastmix.sampling.sample import Gibbs, SwendsenWang
from fastmix.sampling.tempering.temper import Tempered

COUNTS: dict[type[Method], dict[str, int]] = {
    Gibbs: {"num_chains": 4, "num_sweeps": 120, "burn_in": 12, "num_draws": 10},
    SwendsenWang: {"num_chains": 4, "num_sweeps": 120, "burn_in": 12, "num_draws": 10},
    Tempered: {"num_replicas": 3, "num_ensembles": 4, "num_sweeps": 120, "burn_in": 20},
    Annealed: {"num_populations": 2, "num_chains": 4, "num_steps": 5, "sweeps_per_step": 2, "num_sweeps": 120},
    Perfect: {"num_draws": 100, "max_sweeps": 127},
    Projected: {"num_chains": 4, "num_sweeps": 120, "burn_in": 12},
}


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.uint64])
@pytest.mark.parametrize("method", list(COUNTS), ids=lambda method: method.name)
def test_counts_of_numpy_are_whole_numbers(method: type[Method], kind: Any) -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.3, field=[0.2, 0.0, -0.1])
    plain = infer(model, method=method(**COUNTS[method]), seed=3, num_threads=1)
    given = method(**{name: kind(count) for name, count in COUNTS[method].items()})
    assert all(type(getattr(given, name)) is int for name in COUNTS[method])
    result = infer(model, method=given, seed=3, num_threads=1)
    for name in ("node_marginals", "std_error", "ess", "r_hat", "states", "draws"):
        expected = getattr(plain, name, None)
        assert np.array_equal(np.asarray(getattr(result, name, None)), np.asarray(expected)), name
    assert result.provenance["options"] == plain.provenance["options"]


def test_sweeps_to_note_are_whole_numbers() -> None:
    assert Gibbs(history_at=(np.uint8(200), 3)).history_at == (3, 200)
    with pytest.raises(ValueError, match="history_at"):
        Gibbs(history_at=(1.5,))


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.uint64])
def test_counts_of_learning_are_whole_numbers(kind: Any) -> None:
    data = np.random.default_rng(0).integers(0, 2, size=(50, 4))
    options: dict[str, Any] = {"moments": "sampled", "seed": 1, "backend": "cpu"}
    counts = {"num_chains": 64, "max_iter": 3, "hidden": 1}
    plain = learn(data, **counts, **options)
    given = learn(data, **{name: kind(count) for name, count in counts.items()}, **options)
    assert np.array_equal(plain.model.parameters, given.model.parameters)
    assert all(type(given.provenance["options"][name]) is int for name in counts)

    annealed = {"method": "annealing", "seed": 1, "tol": 10.0}
    expected = score(plain.model, data, num_chains=256, **annealed)
    found = score(plain.model, data, num_chains=kind(256), **annealed)
    assert (found.log_z, found.std_error) == (expected.log_z, expected.std_error)
    assert type(found.provenance["options"]["num_chains"]) is int

    shares = stability(data, l1=0.1, num_subsamples=kind(3), seed=0)
    assert np.array_equal(shares, stability(data, l1=0.1, num_subsamples=3, seed=0))


def test_counts_of_workers_and_trials_are_whole_numbers() -> None:
    assert Pool(np.uint8(100)).ahead == Pool(100).ahead
    assert type(Settings(num_trials=np.uint8(3)).num_trials) is int
