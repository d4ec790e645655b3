"""What the GPU sampler does on the host: availability, plans, tables. Needs neither a device nor the simulator."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest
from cuda_checks import dense_binary, lopsided, lopsided_binary, random_states
from naive_cuda import philox
from scipy import stats

import oracle
from fastmix import MarkovRandomField, UnfitMethodError
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda import tables as cuda_tables
from fastmix.chains.cuda.device import choose_cuda_kernel, choose_group_size, cuda_available, plan_launch
from fastmix.chains.cuda.gibbs import CudaGibbs
from fastmix.chains.cuda.host import pack_states, unpack_states
from fastmix.chains.generator import MAX_THRESHOLD
from fastmix.instances import ising_grid, ising_regular, potts_grid

# -- availability -----------------------------------------------------------------------------------------------------


def test_a_missing_package_is_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    usable, reason = cuda_available()
    assert not usable
    assert reason == "the package numba-cuda is not installed: install fastmix[gpu]"
    with pytest.raises(UnfitMethodError, match=r"^backend must be cpu here, got cuda: the package numba-cuda is not"):
        CudaGibbs(lopsided(), num_chains=4, seed=0)


def test_whatever_a_driver_answers_is_one_sentence(monkeypatch):
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    from numba import cuda

    def broken() -> bool:
        raise OSError("driver\n  lost")

    monkeypatch.setattr(cuda, "is_available", broken)
    assert cuda_available() == (False, "no CUDA device can be used: driver lost")


def test_without_a_device_there_is_no_traceback_to_read():
    if cuda_available()[0]:
        pytest.skip("a CUDA device, or its simulator, is here")
    code = "from fastmix.chains.cuda.gibbs import cuda_available; print(cuda_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith(("(False, 'no CUDA device can be used", "(False, 'the package numba-cuda is not"))
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_importing_the_sampler_needs_no_compiler():
    code = "import fastmix.chains.cuda.gibbs, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


# -- plans ------------------------------------------------------------------------------------------------------------


def test_kernels_are_chosen_for_the_model(monkeypatch):
    grid, potts = ising_grid(3, 3, coupling_max=1.0, seed=0), potts_grid(3, 3, coupling_max=1.0, seed=0)
    hard = grid.replace(log_pairwise=np.where(np.arange(len(grid.log_pairwise)) == 1, -np.inf, grid.log_pairwise))
    assert [choose_cuda_kernel(grid, c) for c in (1, 7, 8, 10**6)] == ["field", "field", "packed", "packed"]
    assert choose_cuda_kernel(hard, 1) == "packed"  # log-odds would be infinite
    assert choose_cuda_kernel(dense_binary(), 100) == "packed-field"
    assert choose_cuda_kernel(potts, 1) == choose_cuda_kernel(lopsided(), 100) == "table"
    assert choose_cuda_kernel(MarkovRandomField.from_factors([], []), 5) == "table"
    monkeypatch.setattr(cuda_device, "_TABLE_ENTRIES", 3)
    assert choose_cuda_kernel(potts, 1) == "logit"


@pytest.mark.parametrize("kernel", ["packed", "packed-field", "field", "table", "logit"])
def test_launches_fit_any_size(kernel):
    for units, colour, processors in itertools.product([1, 2, 31, 1000, 10**5], [1, 3, 128, 10**5, 10**7], [1, 4, 132]):
        launch = plan_launch(kernel, units, colour, processors)
        assert launch.block_x * launch.block_y <= 512
        assert launch.wide == 1 or (kernel == "packed" and launch.block_x == 32)
        assert launch.grid_y >= 1
        blocks = -(-units // (launch.block_x * launch.wide))
        assert launch.grid_y == 1 or blocks < processors


def test_groups_keep_the_sums_small():
    grid, potts = ising_grid(16, 16, coupling_max=1.0, seed=0), potts_grid(64, 64, coupling_max=1.0, seed=0)
    assert choose_group_size(grid, 100_000) == 1
    for model, chains, unit in ((grid, 2**20, 32), (grid, 10**6, 32), (grid, 2**26, 32), (potts, 10**5, 4)):
        size = choose_group_size(model, chains)
        assert chains % size == size % unit == 0
        assert len(model.log_unary) * chains // size <= 2**26
    with pytest.raises(ValueError, match="num_chains must be a multiple of 32 for so many chains on the GPU"):
        choose_group_size(grid, 10**6 + 1)


# -- tables -----------------------------------------------------------------------------------------------------------


def thresholds_of(model: MarkovRandomField, site: int, around: list[int], pattern: int) -> int:
    """Threshold of a binary site for the states of four neighbours, of which some may be missing."""
    x = [0] * model.num_variables
    for k, place in enumerate(around):
        if place < model.num_variables:
            x[place] = (pattern >> (3 - k)) & 1
    p = oracle.conditional(model, site, x)
    assert p is not None
    return min(round(float(p[0]) * 2**32), MAX_THRESHOLD)


@pytest.mark.parametrize("lanes", [1, 32])
def test_packed_tables_hold_the_bits_of_every_threshold(lanes):
    model = lopsided_binary()
    order = cuda_tables.find_order(model)
    tables = cuda_tables.packed_tables([model, model], order, stride=10, lanes=lanes)
    n = model.num_variables
    masks = tables["masks"].reshape(2, n, 8, 8, 2) if lanes == 32 else tables["masks"].transpose(1, 2, 0)
    masks = masks.reshape(2, n, 8, 8, 2).astype(np.int64)
    assert set(np.unique(masks).tolist()) <= {-1, 0, 1}
    for place in range(n):
        near = (tables["around"].reshape(n, 4)[place] // 10).tolist()
        around = [int(order.sites[k]) if k < n else n for k in near]
        for pattern in range(16):
            if any(pattern >> (3 - k) & 1 and around[k] == n for k in range(4)):
                continue  # a missing neighbour is in state 0
            t = thresholds_of(model, int(order.sites[place]), around, pattern)
            assert abs(int(tables["table"][1, place, pattern]) - t) <= 1
            for plane in range(8):
                factor, summand = masks[1, place, plane, pattern >> 1]
                for word in (0, 0xFFFFFFFF) if pattern & 1 == 0 else (0xFFFFFFFF,):
                    state = word if pattern & 1 else 0
                    bit = (state * factor + summand) & 0xFFFFFFFF
                    assert bit == (0xFFFFFFFF if int(tables["table"][1, place, pattern]) >> (24 + plane) & 1 else 0)
            short = (int(tables["table"][1, place, pattern]) + 128) >> 8
            terms = tables["terms"].reshape(2, n, 16)[1, place]
            subsets = [s for s in range(16) if s & pattern == s]
            assert sum(int(terms[s]) for s in subsets) % 2**32 == short


def test_log_odds_are_split_without_loss():
    for model in (lopsided_binary(), dense_binary(), ising_regular(20, 3, coupling_max=2.0, seed=0)):
        order = cuda_tables.find_order(model)
        fields, degree = cuda_tables.field_tables(model, order)
        packed = cuda_tables.packed_field_tables(model, order, stride=1)
        n = model.num_variables
        for x in random_states(model, 5):
            by_place = np.append(x[order.sites], 0)
            for place in range(n):
                p = oracle.conditional(model, int(order.sites[place]), x.tolist())
                expected = np.log(p[1]) - np.log(p[0])
                k = np.arange(degree) if degree else np.arange(order.indptr[place], order.indptr[place + 1])
                at = k * n + place if degree else k
                near = place + fields["steps"][fields["codes"][place]] if degree else fields["neighbors"][k]
                exact = fields["weights"].astype(np.float64) + fields["weight_rests"]
                offset = float(fields["offsets"][place]) + float(fields["offset_rests"][place])
                assert offset + exact[at] @ by_place[near] == pytest.approx(expected, abs=1e-9)
                chunks = range(packed["chunks"][place], packed["chunks"][place + 1])
                around = packed["around"].reshape(-1, 4)
                patterns = [int("".join(map(str, by_place[around[c]])), 2) for c in chunks]
                total = sum(float(packed["partial"][c, q]) for c, q in zip(chunks, patterns, strict=True))
                assert abs(total - expected) / 4 < packed["margins"][place]


def test_codes_are_used_where_few_do():
    grid = ising_grid(30, 40, coupling_max=1.0, seed=0)
    order = cuda_tables.find_order(grid)
    tables, degree = cuda_tables.field_tables(grid, order)
    assert degree == 4
    assert len(tables["steps"]) < 40
    for place in range(grid.num_variables):
        near = place + tables["steps"][tables["codes"][place]]
        expected = order.neighbors[order.indptr[place] : order.indptr[place + 1]]
        assert near[: len(expected)].tolist() == expected.tolist()
        assert (near[len(expected) :] == place).all()
        assert (tables["weights"].reshape(4, -1)[len(expected) :, place] == 0).all()
    scattered = ising_regular(2000, 3, coupling_max=1.0, seed=1)
    assert cuda_tables.field_tables(scattered, cuda_tables.find_order(scattered))[1] == 0


def test_states_survive_packing():
    model = lopsided_binary()
    order = cuda_tables.find_order(model)
    for chains, packed, stride in ((70, True, 4), (5, False, 8)):
        states = random_states(model, chains)
        rows = pack_states(states, order, stride, np.uint32 if packed else np.uint8, packed=packed)
        assert not rows[-1].any()
        assert np.array_equal(unpack_states(rows, order, chains, packed=packed), states)


# -- the numbers in the way they are used -----------------------------------------------------------------------------


def test_numbers_are_uniform_along_every_part_of_the_counter():
    # Bytes of consecutive words, sites, sweeps and tags: chi-square, 16 tests, 1e-6 together, too even counts as well.
    for part in range(4):
        numbers = []
        for k in range(1 << 12):
            counter = [7, 7, 7, 7]
            counter[part] = k
            numbers.append(philox(tuple(counter), (123, 456)))
        for column in np.ascontiguousarray(np.array(numbers, dtype=np.uint32).T):
            counts = np.bincount(column.view(np.uint8), minlength=256)
            statistic = ((counts - counts.mean()) ** 2).sum() / counts.mean()
            assert 3e-8 < stats.chi2.sf(statistic, 255) < 1 - 3e-8
