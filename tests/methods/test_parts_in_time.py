"""Time within parts of sampling: pairs of states, first rounds of tempering, reasons of perfect draws."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastmix import MarkovRandomField, _clock, infer, sample, temper
from fastmix._clock import Clock
from fastmix.chains import host
from fastmix.chains.annealing import make_pool
from fastmix.errors import NotConvergedError
from fastmix.instances import ising_grid
from fastmix.methods import swendsen_wang
from fastmix.methods.tempering import run as tempering_run
from fastmix.methods.tempering.ladder import Ladder


class SteppingClock(Clock):
    """A clock on which every look takes a number of seconds."""

    def __init__(self, limit: float, step: float) -> None:
        super().__init__(1.0)
        self.limit = limit
        self.now = 0.0
        self.step = step

    def used(self) -> float:
        """Seconds so far."""
        self.now += self.step
        return self.now


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("num_chains", [1, 2, 9, 20])
def test_pairs_come_from_as_many_chains_as_there_is_time_for(
    monkeypatch: pytest.MonkeyPatch, num_chains: int, average: bool
) -> None:
    monkeypatch.setattr(host, "_MANY_PAIRS", 0.0)
    model = ising_grid(3, 4, coupling_max=0.5, seed=num_chains)
    chains, _ = make_pool(model, "cpu", num_chains=num_chains, seed=1)
    chains.load(model.parameters)
    chains.sweep(3)
    counted = []
    for limit in (0.0, 5.5, 1e6):
        pairs = np.zeros(len(model.log_pairwise))
        chains.add_pairs(pairs, average=average, clock=SteppingClock(limit, 1.0))
        units = pairs.reshape(-1, 4).sum(axis=1)
        np.testing.assert_allclose(units, units[0], rtol=1e-12)  # every edge has the same number of them
        counted.append(round(float(units[0])))
    assert counted[0] == 1
    assert counted[0] <= counted[1] <= max(1, min(num_chains, 4))
    assert counted[2] == num_chains
    unlimited = np.zeros(len(model.log_pairwise))
    chains.add_pairs(unlimited, average=average)
    assert (unlimited == pairs).all()


def test_first_rounds_of_large_models_are_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ising_grid(4, 4, coupling_max=1.0, seed=0)
    steps: list[int] = []
    advance = Ladder.advance

    def watched(ladder: Ladder, num_rounds: int, **options: Any) -> None:
        steps.append(num_rounds)
        advance(ladder, num_rounds, **options)

    monkeypatch.setattr(Ladder, "advance", watched)
    usual = temper(model, num_sweeps=300, seed=1, progress=None)
    assert steps[0] > 1
    steps.clear()
    monkeypatch.setattr(tempering_run, "_FIRST_UPDATES", 1)
    single = temper(model, num_sweeps=300, seed=1, progress=None)
    assert steps[0] == 1
    assert (single.node_marginals == usual.node_marginals).all()


def test_reasons_of_perfect_draws_are_found_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    edges = [(i, j) for i in range(12) for j in (i + 1, i + 3) if j < 12]
    model = MarkovRandomField.ising(edges, rng.choice([-0.45, 0.45], size=len(edges)), 0.0)
    looks = iter(range(1_000_000))
    monkeypatch.setattr(
        _clock, "time", SimpleNamespace(perf_counter=lambda: time.perf_counter() + (1e6 if next(looks) > 8 else 0.0))
    )
    with pytest.raises(NotConvergedError, match="time_limit"):
        infer(model, method="perfect", time_limit=5.0, seed=0, progress=None)


@pytest.mark.parametrize("num_ensembles", [None, 6])
def test_short_limits_place_the_first_ladder_by_fewer_configurations(
    monkeypatch: pytest.MonkeyPatch, num_ensembles: int | None
) -> None:
    model = ising_grid(6, 6, coupling_max=1.0, seed=0)
    sizes: list[int] = []
    firsts: list[int] = []
    start_population = tempering_run.rungs.start_population

    def watched(path: Any, size: int, **options: Any) -> Any:
        sizes.append(size)
        return start_population(path, size, **options)

    monkeypatch.setattr(tempering_run.rungs, "start_population", watched)
    answers = []
    for seconds in (1e-12, 1.0):  # of a visit, as if the model were small or large
        monkeypatch.setattr(tempering_run, "_VISIT_SECONDS", seconds)
        for options in ({"time_limit": 0.3}, {"num_sweeps": 50}):
            sizes.clear()
            answers.append(temper(model, num_ensembles=num_ensembles, seed=1, progress=None, **options))
            firsts.append(sizes[0])  # later ones are for the bound
    small, unlimited, large, as_before = firsts
    assert small == unlimited == as_before  # a limit that leaves time, or none, changes nothing
    assert large == 2 * (num_ensembles or 4) < small  # two ladders each
    for answer in answers:
        assert np.isfinite(answer.node_marginals).all()


def test_the_form_for_clusters_is_found_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[MarkovRandomField] = []
    find = swendsen_wang._find_normal_form

    def watched(model: MarkovRandomField, what: str, unit: float) -> Any:
        found.append(model)
        return find(model, what, unit)

    monkeypatch.setattr(swendsen_wang, "_find_normal_form", watched)
    for seed in range(3):
        model = ising_grid(4, 5, coupling_max=0.5, attractive=True, seed=seed)
        found.clear()
        sample(model, method="swendsen-wang", num_sweeps=50, seed=seed, progress=None)
        assert len(found) == 1
