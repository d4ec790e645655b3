"""Replica exchange on the device: draw by draw against loops, in the simulator or on a device."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_checks import needs_cuda

from fastmix import UnfitMethodError, temper
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda import exchange_kernels, field_kernels
from fastmix.chains.cuda.device import Launch, cuda_available
from fastmix.chains.cuda.exchange_kernels import EXCHANGE_TAG
from fastmix.graphs import complete_edges
from fastmix.instances import random_tables
from fastmix.model import MarkovRandomField
from fastmix.sampling.tempering import temper as api
from fastmix.sampling.tempering.ladder import CudaLadder, make_path
from oracle import MASK
from oracle.cuda import philox, uniform
from oracle.ladder import NaiveLadder

pytestmark = needs_cuda

POSITIONS = np.array([0.0, 0.3, 1.0])


class NaiveCudaLadder(NaiveLadder):
    """The same rounds with the random numbers of the device."""

    def __init__(self, path, positions, states, seed, kernel, key):
        super().__init__(path, positions, states, seed)
        self.kernel, self.key = kernel, key

    def round(self, number):
        for k in range(self.num_rungs):
            for c in range(self.num_ladders):
                for place, i in enumerate(self.order):
                    u = uniform(self.kernel, self.key, number, place, k * self.num_ladders + c)
                    self.update(k, c, i, u)
        for k in range(number % 2, self.num_rungs - 1, 2):
            for c in range(self.num_ladders):
                counter = (c, k, number & MASK, ((number >> 32) << 8) | EXCHANGE_TAG)
                self.exchange(k, c, philox(counter, self.key)[0])
        self.count_trips()


def binary_model() -> MarkovRandomField:
    return random_tables([(0, 1), (1, 2), (0, 2)], 2, scale=1.5, seed=1)


def mixed_model() -> MarkovRandomField:
    return random_tables([(0, 1), (1, 2), (0, 2)], [2, 3, 2], scale=1.5, seed=2)


def dense_model() -> MarkovRandomField:
    return random_tables(complete_edges(6), 2, scale=1.0, seed=4)


def factor_model() -> MarkovRandomField:
    rng = np.random.default_rng(3)
    factors = [((0, 1, 2), 1.5 * rng.normal(size=(2, 2, 2))), ((0, 1), rng.normal(size=(2, 2))), ((2,), [0.0, 0.7])]
    return MarkovRandomField.from_factors([2, 2, 2], factors)


def small_ladder(path, seed=3):
    """With few threads: the simulator has a Python thread for every thread of a block."""
    return CudaLadder(path, seed=seed, launch=Launch(1, 1, 8))


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (binary_model, "packed"),
        (mixed_model, "table"),
        (factor_model, "table"),
        (dense_model, "packed-field"),
    ],
)
def test_rounds_are_those_of_the_naive_ladder(make, kernel, monkeypatch):
    if kernel == "packed-field":
        monkeypatch.setattr(cuda_device, "MAX_SET_TABLE_ENTRIES", 3)
        monkeypatch.setitem(exchange_kernels.NOTED_WORDS, kernel, 8)  # fewer than there are terms
        exchange_kernels.rounds_kernel.cache_clear()
    model = make()
    path = make_path(model)
    rng = np.random.default_rng(0)
    ladder = small_ladder(path)
    states = rng.integers(0, model.num_states, size=(3, ladder.per_ensemble, model.num_variables))
    ladder.set_rungs(POSITIONS, states)
    assert ladder.chains.kernel == kernel
    assert np.array_equal(ladder.get_states(), states)
    key = tuple(int(word) for word in ladder.chains.get_random_state()[:2])
    naive = NaiveCudaLadder(path, POSITIONS, states, 3, kernel, key)
    for first, count in ((0, 1), (1, 2)):  # one round, then two in one launch
        ladder.advance(count, collect=True)
        for number in range(first, first + count):
            naive.round(number)
        assert np.array_equal(ladder.get_states(), naive.states()), f"round {number}"
    assert np.array_equal(ladder.chains.get_top_states(), naive.states()[-1])
    counts = ladder.chains.exchanges()
    np.testing.assert_allclose(counts.sums, naive.exchanges, rtol=1e-9, atol=1e-9)
    assert counts.trips.tolist() == naive.trips
    sums = ladder.chains.take_sums()
    np.testing.assert_allclose(sums.mean(axis=1) / ladder.per_ensemble, naive.sums.mean(axis=1), atol=1e-6)
    ladder.chains.clear()
    assert not ladder.chains.exchanges().sums.any()
    assert not ladder.chains.take_sums().any()


def test_shared_memory_is_that_of_every_device():
    # Arrays of fixed sizes have 48 KiB on devices before Hopper, where a larger kernel cannot be linked.
    words = field_kernels.HELD_NUMBERS + exchange_kernels.NOTED_WORDS["packed-field"] + 1
    assert 4 * words + 8 * exchange_kernels.MAX_ROUND_THREADS <= 48 << 10


def test_the_result_names_the_device(monkeypatch):
    monkeypatch.setattr(api, "CudaLadder", small_ladder)
    result = temper(
        mixed_model(),
        num_replicas=2,
        num_ensembles=2,
        num_sweeps=2,
        burn_in=2,
        backend="cuda",
        seed=0,
        edge_marginals=True,
    )
    assert result.stats["edge_marginals"] == "conditional averages"
    assert result.provenance["device"] == cuda_available()[1]
    assert result.stats["backend"] == f"cuda ({cuda_available()[1]})"
    assert temper(mixed_model(), num_sweeps=20, burn_in=20, seed=0).provenance["device"] == "cpu"


def test_ladders_must_fill_words():
    path = make_path(binary_model())
    with pytest.raises(ValueError, match=r"group_size.*3.*got 32"):
        small_ladder(path).set_rungs(POSITIONS, np.zeros((3, 3, 3), dtype=np.int64))


def test_what_the_device_cannot_do_is_refused():
    with pytest.raises(UnfitMethodError, match=r"^backend.*houdayer"):
        temper(binary_model(), moves=["houdayer"], backend="cuda")
    with pytest.raises(UnfitMethodError, match="edges"):
        temper(MarkovRandomField.ising([], 1.0, num_variables=2), backend="cuda")
    dense = MarkovRandomField.potts(complete_edges(30), 0.1, 3)
    with pytest.raises(UnfitMethodError, match=r"^backend.*256"):
        temper(dense, backend="cuda")
    wide = MarkovRandomField.from_factors([2] * 30, [((0, i, i + 1), np.ones((2, 2, 2))) for i in range(1, 29)])
    with pytest.raises(UnfitMethodError, match=r"^backend.*factors"):
        temper(wide, backend="cuda")
