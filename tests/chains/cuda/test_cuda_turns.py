"""The quick simulator of ``tests/simulator.py`` runs blocks as CUDA does, and shows what lacks a barrier."""
# Types inside kernels are those of their compiler.
# mypy: ignore-errors

from __future__ import annotations

import threading

import numpy as np
import pytest
from numba import config, cuda, float64, types

pytestmark = pytest.mark.skipif(
    not getattr(config, "ENABLE_CUDASIM", False), reason="run in the simulator by test_cuda_simulator.py"
)


@cuda.jit(device=True)
def add(shared, thread, other):
    shared[thread] += shared[other]


@cuda.jit
def sums(values, out, with_barriers):
    """The sum over every block, as a tree; threads beyond the eighth leave at once."""
    thread = cuda.threadIdx.x
    if thread >= 8:
        return
    shared = cuda.shared.array(8, float64)
    shared[thread] = values[cuda.blockIdx.x, thread]
    half = 4
    while half:
        if with_barriers:
            cuda.syncthreads()
        if thread < half:
            add(shared, thread, thread + half)
        half //= 2
    out[cuda.blockIdx.x, thread] = shared[0]


@cuda.jit
def pass_on(values):
    """Every thread gets what the next one has."""
    thread, num_threads = cuda.threadIdx.x, cuda.blockDim.x
    values[thread] = values[(thread + 1) % num_threads]


@cuda.jit
def one_fails(values, failing):
    cuda.syncthreads()
    if cuda.threadIdx.x == failing:
        values[99] = 1
    cuda.syncthreads()


def test_threads_wait_at_barriers():
    values = np.random.default_rng(0).integers(1, 99, (4, 8)).astype(float)
    out = np.zeros((4, 8))
    before = threading.active_count()
    sums[4, 12](values, out, True)
    assert (out[:, 0] == values.sum(axis=1)).all()
    assert threading.active_count() <= before + 7  # those of the last block may just be leaving
    assert cuda.is_available()  # the module has its name again


def test_a_missing_barrier_shows():
    values = np.random.default_rng(0).integers(1, 99, (4, 8)).astype(float)
    out = np.zeros((4, 8))
    sums[4, 12](values, out, False)
    assert (out[:, 0] != values.sum(axis=1)).any()
    results = set()
    for _ in range(2):
        given = np.arange(4)
        pass_on[1, 4](given)
        results.add(tuple(given.tolist()))
    assert len(results) == 2, "blocks begin at either end in turns"


@pytest.mark.parametrize("failing", [0, 3, 7])
def test_an_error_of_one_thread_ends_the_launch(failing):
    with pytest.raises(IndexError, match="out of bounds"):
        one_fails[1, 8](np.zeros(3), failing)
    one_fails[1, 8](np.zeros(3), 8)


def test_casts_are_those_of_numba():
    for kind in (types.int32, types.uint32, types.uint64, types.float64):
        for value in (3, 2**31 - 1, np.uint64(2**40 + 5), np.int64(7), np.float64(2.75), np.uint32(9), True, 2.5):
            made, expected = kind(value), kind.cast_python_value(value)
            assert (type(made), made) == (type(expected), expected)
    assert types.uint32(types.int32, types.int32).return_type == types.uint32
