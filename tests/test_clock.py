"""The clock of a call does not count compiling."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time

import numpy as np
import pytest

import fastmix
from fastmix import _clock
from fastmix._clock import NO_LIMIT, Clock, compiling
from fastmix.instances import ising_grid, potts_grid
from fastmix.method import METHODS


@pytest.fixture
def turn(monkeypatch):
    """Sets the time."""
    now = [100.0]
    monkeypatch.setattr(_clock.time, "perf_counter", lambda: now[0])

    def to(seconds: float) -> None:
        now[0] = 100.0 + seconds

    return to


def test_a_limit_is_used_up(turn):
    clock = Clock(10.0)
    turn(4.0)
    assert (clock.used(), clock.left(), clock.seconds(), clock.rest(), clock.rest(0.5)) == (4.0, 6.0, 4.0, 6.0, 3.0)
    assert clock.past(0.3)
    assert not clock.past(0.5)
    assert not clock.past()
    half = clock.part(0.5)
    turn(7.5)
    assert half.past()
    assert not clock.past()
    turn(11.0)
    assert clock.past()
    assert (clock.left(), clock.part(0.5).limit) == (0.0, 0.0)
    rest = clock.rest()
    assert rest is not None
    assert rest > 0.0


def test_no_limit_is_never_past(turn):
    clock = Clock()
    turn(1e9)
    assert not clock.past(1e-9)
    assert not NO_LIMIT.past()
    assert (clock.left(), clock.rest(), clock.part(0.5).limit) == (math.inf, None, None)


def test_compiling_is_not_counted(turn):
    clock = Clock(10.0)
    turn(1.0)
    with compiling():
        turn(5.0)
        with compiling():  # within another: counted once
            turn(21.0)
        assert clock.compile_seconds() == 20.0  # also while it goes on
        later = Clock()
        turn(31.0)
    turn(33.0)
    assert clock.stats() == {"seconds": 33.0, "compile_seconds": 30.0}
    assert (clock.used(), clock.left(), clock.past()) == (3.0, 7.0, False)
    assert (later.seconds(), later.used()) == (12.0, 2.0)


def test_compiling_ends_with_an_error(turn):
    clock = Clock()
    with contextlib.suppress(KeyboardInterrupt), compiling():
        turn(5.0)
        raise KeyboardInterrupt
    turn(6.0)
    assert clock.used() == 1.0


def test_garbage_waits_while_something_compiles():
    with compiling():
        with compiling():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with compiling():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_that_compile_side_by_side_count_once():
    clock, barrier = Clock(), threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        with compiling():
            time.sleep(0.2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.2 <= clock.compile_seconds() <= clock.seconds()


@pytest.mark.parametrize("limit", [0, -1.0, math.nan, math.inf, "3"])
def test_limits_are_checked(limit):
    with pytest.raises(ValueError, match=f"^time_limit .*{limit!r}$"):
        Clock(limit)


def test_every_result_says_how_long_it_took_and_what_stopped_it():
    model = ising_grid(3, 3, coupling_max=0.5, attractive=True, seed=0)
    for method in METHODS:
        stats = fastmix.infer(model, method=method).stats
        assert 0.0 <= stats["compile_seconds"] <= stats["seconds"]
        assert stats["stopped_by"] == "done"
    for divergence in (fastmix.Euclidean(), fastmix.ReversedKL(pool_size=4), fastmix.KL()):
        stats = fastmix.project(model, norm_bound=0.5, divergence=divergence).stats
        assert 0.0 <= stats["compile_seconds"] <= stats["seconds"]
        assert stats["stopped_by"] == "done"
    assert fastmix.infer(model, method="gibbs").stats["compile_seconds"] == 0.0


def test_the_answer_does_not_depend_on_the_limit():
    model = potts_grid(3, 3, num_states=3, coupling_max=0.5, seed=0)
    results = [
        fastmix.sample(model, num_chains=4, num_sweeps=20, seed=1, time_limit=limit) for limit in (None, 1.0, 60.0)
    ]
    for result in results[1:]:
        assert np.array_equal(result.states, results[0].states)
        assert np.array_equal(result.node_marginals, results[0].node_marginals)


@pytest.mark.parametrize("limit", [1e12, 1e100, 1e308])
def test_the_longest_limits_leave_room_for_plans(limit: float) -> None:
    """What a limit allows is planned as the limit over the seconds of one step, which may be as few as 1e-12."""
    left = Clock(limit).left()
    assert left > 1e11
    assert int(left / 1e-12) > 0
