"""Time that ends at every look at the clock: an answer, or one of our errors, and never a division by what is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import fastmix
from contexts import context_of
from fastmix import MarkovRandomField, _clock, instances
from fastmix.errors import FastmixError

METHODS = ["auto", "bracket", "tempered", "annealed", "loopy-bp", "mean-field", "gibbs", "swendsen-wang", "projected",
           "perfect", "exact"]  # fmt: skip
LIMIT = 0.3


class Ending:
    """A clock that has passed every limit after a number of looks at it."""

    def __init__(self, num_looks: int) -> None:
        self.num_looks = num_looks
        self.looks = 0

    def perf_counter(self) -> float:
        """Seconds, by which a limit is over once there have been enough looks."""
        self.looks += 1
        return time.perf_counter() + (1e6 if self.looks > self.num_looks else 0.0)


def drawn(seed: int) -> MarkovRandomField:
    """A small model of one of five families."""
    rng = np.random.default_rng(seed)
    family = seed % 5
    if family == 0:
        return instances.ising_grid(5, 5, coupling_max=1.0, seed=seed)
    if family == 1:
        return instances.ising_grid(5, 5, coupling_max=1.0, attractive=True, seed=seed)
    if family == 2:
        ring = [(i, (i + 1) % 8) for i in range(8)] + [(i, (i + 3) % 8) for i in range(8)]
        return MarkovRandomField.potts(ring, coupling=0.4, num_states=3, field=rng.normal(size=(8, 3)))
    factors = []
    for _ in range(12):
        table = rng.normal(size=(2, 2, 2))
        table = np.where(rng.random(table.shape) < (0.2 if family == 4 else 0.0), -np.inf, table)
        table[0, 0, 0] = 0.0
        factors.append((tuple(rng.choice(10, 3, replace=False).tolist()), table))
    return MarkovRandomField.from_factors([2] * 10, factors)


@pytest.fixture
def _whole_clock() -> Iterator[None]:
    yield
    _clock.time = time  # whatever a test has put in its place


def run_until(model: MarkovRandomField, method: str, num_looks: int) -> int:
    """Looks at the clock by a call whose time ends after so many of them."""
    ending = Ending(num_looks)
    _clock.time = SimpleNamespace(perf_counter=ending.perf_counter)
    try:
        if method == "bracket":
            fastmix.bracket(model, memory_limit=1, time_limit=LIMIT, seed=0, progress=lambda _: None)
        else:
            more = {"memory_limit": 1} if method in ("auto", "exact") else {}
            fastmix.infer(model, method=method, time_limit=LIMIT, seed=0, progress=lambda _: None, **more)
    except FastmixError:
        pass  # refused, or not even time to begin
    finally:
        _clock.time = time
    return ending.looks


@pytest.mark.usefixtures("_whole_clock")
@pytest.mark.parametrize("method", METHODS)
def test_time_can_end_at_any_look(method: str) -> None:
    for k, num_looks in enumerate((0, 1, 2, 3, 5, 8, 13, 21, 34, 55)):
        run_until(drawn(k), method, num_looks)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("_whole_clock")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_time_can_end_at_every_look(method: str, seed: int) -> None:
    model = drawn(seed)
    for num_looks in range(300):
        if run_until(model, method, num_looks) <= num_looks:
            break


def test_a_bound_by_annealing_whose_time_is_over() -> None:
    """Between the question whether there is time for it and its first step: the limit of what is left is 0."""
    from fastmix.sampling.tempering.ladder import TemperingPath
    from fastmix.sampling.tempering.rungs import annealed_weights, start_population

    path = TemperingPath(drawn(0))
    population = start_population(path, 64, context_of(0))
    over = _clock.Clock(1e-9)
    while not over.past():
        pass
    weights = annealed_weights(path, population, np.linspace(0.0, 1.0, 20), clock=over.part(1.0))
    assert np.isfinite(weights).all()
