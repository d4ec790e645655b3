"""What the GPU sampler does on the host: availability, plans, tables. Needs neither a device nor the simulator."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
import sys

import numpy as np
import pytest
from cuda_checks import dense_binary, lopsided_binary, make_chains
from scipy import stats

import oracle
from fastmix import MarkovRandomField, UnfitMethodError
from fastmix._checks import INSTALL_EXTRA
from fastmix.chains import layout as chain_layout
from fastmix.chains.cuda import device as cuda_device
from fastmix.chains.cuda.device import choose_cuda_kernel, choose_group_size, cuda_available, plan_launch
from fastmix.chains.cuda.reading import pack_states, unpack_states
from fastmix.instances import ising_grid, ising_regular, potts_grid
from oracle import lopsided, random_states
from oracle.cuda import philox

# -- availability -----------------------------------------------------------------------------------------------------


def test_a_missing_package_is_named(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "numba_cuda" else find(name))
    usable, reason = cuda_available()
    assert not usable
    assert reason == f"the package numba-cuda is not installed: {INSTALL_EXTRA.format(extra='gpu')}"
    with pytest.raises(UnfitMethodError, match=r"^backend.*numba-cuda"):
        make_chains(lopsided(), num_chains=4, seed=0)


def test_whatever_a_driver_answers_is_one_sentence(monkeypatch):
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    from numba import config, cuda

    def broken() -> bool:
        raise OSError("driver\n  lost")

    monkeypatch.setattr(config, "ENABLE_CUDASIM", False, raising=False)  # the simulator has no driver to ask
    monkeypatch.setattr(cuda, "is_available", broken)
    assert cuda_available() == (False, "no CUDA device can be used: driver lost")


def test_without_a_device_there_is_no_traceback_to_read():
    if cuda_available()[0]:
        pytest.skip("a CUDA device, or its simulator, is here")
    code = "from fastmix.chains.cuda.device import cuda_available; print(cuda_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert done.stdout.startswith(("(False, 'no CUDA device can be used", "(False, 'the package numba-cuda is not"))
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_importing_the_sampler_needs_no_compiler():
    code = "import fastmix.chains.cuda.chains, sys; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "False\n", done.stderr


# -- plans ------------------------------------------------------------------------------------------------------------


def test_kernels_are_chosen_for_the_model(monkeypatch):
    grid, potts = ising_grid(3, 3, coupling_max=1.0, seed=0), potts_grid(3, 3, coupling_max=1.0, seed=0)
    hard = grid.replace(log_pairwise=np.where(np.arange(len(grid.log_pairwise)) == 1, -np.inf, grid.log_pairwise))

    def choose(model: MarkovRandomField, chains: int, num_sets: int = 1) -> str:
        return choose_cuda_kernel(model.structure, chains, num_sets=num_sets, forbidden=model.has_forbidden)

    assert [choose(grid, c) for c in (1, 7, 8, 10**6)] == ["field", "field", "packed", "packed"]
    assert choose(hard, 1) == "packed"  # log-odds would be infinite
    assert choose(dense_binary(), 100) == "packed-field"
    assert choose(potts, 1) == choose(lopsided(), 100) == "table"
    assert choose(MarkovRandomField.from_factors([], []), 5) == "table"
    assert (choose(grid, 4, 2), choose(dense_binary(), 100, 2)) == ("packed", "table")
    monkeypatch.setattr(cuda_device, "MAX_DEVICE_TABLE_ENTRIES", 3)
    assert choose(potts, 1) == "logit"
    monkeypatch.setattr(cuda_device, "MAX_SET_TABLE_ENTRIES", 3)
    assert choose(dense_binary(), 100, 2) == "packed-field"
    with pytest.raises(UnfitMethodError, match=r"^backend.*256"):
        choose(potts, 4, 2)


@pytest.mark.parametrize("kernel", ["packed", "packed-field", "field", "table", "logit"])
def test_launches_fit_any_size(kernel):
    for units, color, processors in itertools.product([1, 2, 31, 1000, 10**5], [1, 3, 128, 10**5, 10**7], [1, 4, 132]):
        launch = plan_launch(kernel, units, color, processors)
        assert launch.block_x * launch.block_y <= 512
        assert launch.wide == 1 or (kernel == "packed" and launch.block_x == 32)
        assert launch.grid_y >= 1
        blocks = -(-units // (launch.block_x * launch.wide))
        assert launch.grid_y == 1 or blocks < processors


def test_groups_keep_the_sums_small():
    grid, potts = ising_grid(16, 16, coupling_max=1.0, seed=0), potts_grid(64, 64, coupling_max=1.0, seed=0)
    wide = ising_grid(300, 300, coupling_max=1.0, seed=0)
    assert choose_group_size(grid.structure, 10_000) == choose_group_size(grid.structure, 100_001) == 1
    assert choose_group_size(grid.structure, 1 << 16) == 32
    assert choose_group_size(wide.structure, 64) == 1
    for model, chains, unit in ((grid, 2**20, 32), (grid, 10**6, 32), (grid, 2**26, 32), (potts, 10**5, 4)):
        size = choose_group_size(model.structure, chains)
        assert chains % size == size % unit == 0
        assert len(model.log_unary) * chains // size <= 2**26
    with pytest.raises(ValueError, match=r"num_chains.*32"):
        choose_group_size(grid.structure, 10**6 + 1)


# -- tables -----------------------------------------------------------------------------------------------------------


def test_log_odds_are_split_without_loss():
    for model in (lopsided_binary(), dense_binary(), ising_regular(20, 3, coupling_max=2.0, seed=0)):
        layout = chain_layout.Layout(model.structure)
        codes, steps, weights, weight_rests, offsets, offset_rests = layout.coded_arrays(model.parameters)
        n = model.num_variables
        for x in random_states(model, 5):
            by_place = np.append(x[layout.order], 0)
            for place in range(n):
                p = oracle.conditional(model, int(layout.order[place]), x.tolist())
                expected = np.log(p[1]) - np.log(p[0])
                at = np.arange(steps.shape[1]) * n + place
                near = place + steps[codes[place]]
                exact = weights.astype(np.float64) + weight_rests
                offset = float(offsets[place]) + float(offset_rests[place])
                assert offset + exact[at] @ by_place[near] == pytest.approx(expected, abs=1e-9)


def test_codes_are_used_where_few_do(monkeypatch):
    grid = ising_grid(30, 40, coupling_max=1.0, seed=0)
    layout = chain_layout.Layout(grid.structure)
    codes, steps, weights = layout.coded_arrays(grid.parameters)[:3]
    assert steps.shape[1] == 4
    assert len(steps) < 40
    for place in range(grid.num_variables):
        near = place + steps[codes[place]]
        expected = layout.neighbors[slice(*layout.by_place[0][place : place + 2])]
        assert near[: len(expected)].tolist() == expected.tolist()
        assert (near[len(expected) :] == place).all()
        assert (weights.reshape(4, -1)[len(expected) :, place] == 0).all()
    star = MarkovRandomField.ising([(0, i) for i in range(1, 20)], 1.0)
    assert chain_layout.Layout(star.structure).codes is None  # mostly padding
    monkeypatch.setattr(chain_layout, "MAX_CODES", 100)
    scattered = ising_regular(200, 3, coupling_max=1.0, seed=1)
    assert chain_layout.Layout(scattered.structure).codes is None


def test_states_survive_packing():
    model = lopsided_binary()
    sites = model.structure.visit_order[0]
    for chains, packed, stride in ((70, True, 4), (5, False, 8)):
        states = random_states(model, chains)
        rows = pack_states(states, sites, stride, np.uint32 if packed else np.uint8, packed=packed)
        assert not rows[-1].any()
        assert np.array_equal(unpack_states(rows, sites, chains, packed=packed), states)


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
