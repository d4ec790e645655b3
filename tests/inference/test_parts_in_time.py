"""Time within parts of sampling: pairs of states, first rounds of tempering, reasons of perfect draws."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastmix import MarkovRandomField, _clock, infer, sample, temper
from fastmix._clock import Clock
from fastmix._context import Context
from fastmix.chains import host
from fastmix.chains.annealing import make_pool
from fastmix.chains.cpu import CpuChains
from fastmix.errors import NotConvergedError
from fastmix.graphs import complete_edges, grid_edges
from fastmix.instances import ising_grid
from fastmix.modes import descents
from fastmix.sampling import runs as sampling_run
from fastmix.sampling.tempering import capacity, rungs
from fastmix.sampling.tempering import run as tempering_run
from fastmix.sampling.tempering.ladder import Ladder


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
    monkeypatch.setattr(host, "MIN_TIMED_PAIRS", 0.0)
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
    monkeypatch.setattr(tempering_run, "FIRST_STEP_UPDATES", 1)
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
    start_population = rungs.start_population

    def watched(path: Any, size: int, context: Context, **options: Any) -> Any:
        sizes.append(size)
        return start_population(path, size, context, **options)

    monkeypatch.setattr(rungs, "start_population", watched)
    answers = []
    for seconds in (1e-12, 1e-4):  # of a visit, as if the model were small or large
        monkeypatch.setattr(capacity, "VISIT_SECONDS", seconds)
        for options in ({"time_limit": 1.0}, {"num_sweeps": 50}):
            sizes.clear()
            answers.append(temper(model, num_ensembles=num_ensembles, seed=1, progress=None, **options))
            firsts.append(sizes[0])  # later ones are for the bound
    small, unlimited, large, as_before = firsts
    assert small == unlimited == as_before  # a limit that leaves time, or none, changes nothing
    assert large == 2 * (num_ensembles or 4) < small  # two ladders each
    for answer in answers:
        assert np.isfinite(answer.node_marginals).all()


def test_a_ladder_begins_with_its_ends_where_annealing_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ising_grid(6, 6, coupling_max=1.0, seed=0)
    moves: list[int] = []
    annealed_rungs = rungs.annealed_rungs

    def watched(*arguments: Any, **options: Any) -> Any:
        moves.append(1)
        return annealed_rungs(*arguments, **options)

    monkeypatch.setattr(rungs, "annealed_rungs", watched)
    monkeypatch.setattr(capacity, "VISIT_SECONDS", 1.0)  # as if the model were large
    for drawn in (model, colored_grid()):
        result = temper(drawn, time_limit=30.0, num_sweeps=20, burn_in=20, seed=1, progress=None)
        assert result.stats["num_sweeps"] == 20
        assert len(result.positions) >= 2
    assert not moves
    temper(model, num_sweeps=20, seed=1, progress=None)  # without a limit there is time
    assert moves


def test_ladders_have_as_many_rungs_as_rounds_have_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ising_grid(8, 8, coupling_max=4.0, seed=0)
    options: dict[str, Any] = {"time_limit": 30.0, "num_sweeps": 64, "burn_in": 64, "seed": 1, "progress": None}
    usual = temper(model, **options)
    monkeypatch.setattr(capacity, "MIN_LADDER_ROUNDS", 1e9)  # as if they took long
    short = temper(model, **options)
    assert len(short.positions) == 2 < len(usual.positions)
    asked = temper(model, num_replicas=5, **options)
    assert len(asked.positions) == 5


def test_modes_are_looked_for_where_a_descent_fits_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ising_grid(6, 6, coupling_max=1.0, seed=0)
    found = descents.find_modes(model, rng=np.random.default_rng(1))
    assert np.array_equal(descents.find_modes(model, rng=np.random.default_rng(1), clock=Clock(60.0)), found)
    monkeypatch.setattr(
        descents, "ENTRIES_PER_SECOND", 1e5
    )  # a descent of this model takes a tenth of a second, as it were
    assert len(descents.find_modes(model, rng=np.random.default_rng(1)))
    assert not len(descents.find_modes(model, rng=np.random.default_rng(1), clock=Clock(0.01)))


def test_few_visits_are_made_without_exponentials() -> None:
    rng = np.random.default_rng(0)
    edges = complete_edges(6)
    model = MarkovRandomField(np.full(6, 5), rng.normal(size=30), edges, rng.normal(size=25 * len(edges)))
    states = []
    for steady in (True, False):
        chains = CpuChains(model.structure, num_chains=2, seed=1, kernel="product", steady=steady)
        chains.load(model.parameters)
        chains.sweep(50)
        assert chains._arrays[10] == steady  # whether weights are exponentiated
        states.append(chains.get_states())
    assert np.array_equal(*states)


def colored_grid() -> MarkovRandomField:
    """A grid in six colors, whose equal neighbors are forbidden."""
    table = np.where(np.eye(6) > 0, -np.inf, 0.0)
    edges = grid_edges(3, 3)
    return MarkovRandomField.from_tables(np.zeros((9, 6)), edges, [table] * len(edges))


def test_time_is_kept_for_the_sums_of_many_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ising_grid(20, 20, coupling_max=0.5, seed=0)
    monkeypatch.setattr(sampling_run, "SUM_SECONDS", 0.4 / (len(model.log_unary) * 4))
    # The machine may stand still for a while: the shortest of some runs counts.
    seconds = []
    for _ in range(3):
        result = sample(model, num_chains=4, num_sweeps=10**9, seed=1, time_limit=1.0, progress=None)
        assert result.stats["stopped_by"] == "time_limit"
        seconds.append(result.stats["seconds"] - result.stats["compile_seconds"])
    assert 0.4 < min(seconds) < 0.75


@pytest.mark.parametrize("num_chains", [4, 64])
def test_long_burn_ins_end_with_the_time(num_chains: int) -> None:
    model = ising_grid(20, 20, coupling_max=0.5, seed=0)  # few chains have others that burn in from the modes
    result = sample(model, num_chains=num_chains, num_sweeps=10**9, seed=1, time_limit=0.5, progress=None)
    assert result.stats["stopped_by"] == "time_limit"
