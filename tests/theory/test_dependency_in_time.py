"""Dependencies when time ends: larger bounds for what is left, and never smaller ones."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastmix import MarkovRandomField, _clock, certify, project
from fastmix._clock import Clock
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.sampling.diagnostics import log_odds_swings
from fastmix.theory.dependency import DEPENDENCIES, edge_dependencies, rounding_margins


class CountedClock(Clock):
    """A clock whose limit is over after a number of looks at it."""

    def __init__(self, num_looks: int) -> None:
        super().__init__(1.0)
        self.num_looks = num_looks
        self.looks = 0

    def used(self) -> float:
        """Seconds, by which the limit is over once there have been enough looks."""
        self.looks += 1
        return 2.0 if self.looks > self.num_looks else 0.0


def drawn(rng: np.random.Generator, *, zeros: float = 0.0) -> MarkovRandomField:
    """Variables of 1 to 8 states, pairs and factors over three of them; some entries forbidden."""
    n = 7
    states = rng.integers(1, 9, size=n)
    factors: list[tuple[list[int], Any]] = []
    for _ in range(9):
        scope = sorted(rng.choice(n, size=int(rng.integers(2, 4)), replace=False).tolist())
        table = rng.normal(scale=2.0, size=states[scope])
        table[rng.random(table.shape) < zeros] = -np.inf
        factors.append((scope, table))
    return MarkovRandomField.from_factors(states.tolist(), factors)


@pytest.mark.parametrize("dependency", DEPENDENCIES)
@pytest.mark.parametrize("zeros", [0.0, 0.1])
def test_bounds_are_never_smaller_when_time_ends(dependency: Any, zeros: float) -> None:
    if dependency == "exact" and zeros:
        pytest.skip("too many states are closed for a definition to compare with")
    rng = np.random.default_rng(1)
    wider = 0
    for _ in range(15):
        model = drawn(rng, zeros=zeros)
        try:
            complete = edge_dependencies(model, dependency=dependency)
        except (ResourceError, ImpossibleModelError):  # too large to enumerate, or nothing is left
            continue
        slack = 4.0 * rounding_margins(model, dependency=dependency) + 1e-14
        for num_looks in (0, 1, 3, 10, 30):
            clock = CountedClock(num_looks)
            cut = edge_dependencies(model, dependency=dependency, clock=clock)
            assert (cut >= complete - slack).all()
            wider += bool((cut > complete + slack).any())
        enough = CountedClock(1_000_000)
        assert (edge_dependencies(model, dependency=dependency, clock=enough) == complete).all()
        assert enough.looks > 0  # the clock is read
    assert wider or dependency == "exact"


def test_the_clock_is_read_within_tables_of_many_states() -> None:
    rng = np.random.default_rng(2)
    model = MarkovRandomField.from_factors([60, 60], [([0, 1], rng.normal(size=(60, 60)))])
    clock = CountedClock(1_000_000)
    edge_dependencies(model, clock=clock)
    assert clock.looks >= 59


def test_swings_cover_those_that_there_was_time_for() -> None:
    model = drawn(np.random.default_rng(3))
    assert (log_odds_swings(model, CountedClock(0)) >= log_odds_swings(model) - 1e-12).all()


def test_a_projection_and_a_certificate_hold_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    for _ in range(5):
        model = drawn(rng)
        expected = certify(model, accuracy=0.01).norm_value
        for num_looks in (3, 8, 20, 60):
            looks = iter(range(1_000_000))

            def later(looks: Any = looks, num_looks: int = num_looks) -> float:
                return time.perf_counter() + (1e6 if next(looks) > num_looks else 0.0)

            monkeypatch.setattr(_clock, "time", SimpleNamespace(perf_counter=later))
            projected = project(model, norm_bound=0.9, time_limit=10.0, progress=None, seed=0)
            certificate = certify(model, accuracy=0.01, norm="inf", time_limit=10.0, progress=None)
            monkeypatch.undo()
            assert edge_norm(projected.model) <= 0.9 * (1.0 + 1e-12)
            assert certificate.norm_value >= expected * (1.0 - 1e-9)


def edge_norm(model: MarkovRandomField) -> float:
    """Norm inf of the bound ``range``, by sums over edges."""
    sums = np.zeros(model.num_variables)
    for (i, j), (there, back) in zip(model.edges, edge_dependencies(model, dependency="range"), strict=True):
        sums[i] += max(there, back)
        sums[j] += max(there, back)
    return float(sums.max())
