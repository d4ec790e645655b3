"""Starts the CUDA simulator, which must be chosen before Numba is imported, and runs the tests of the kernels in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
LEAST = {
    "test_cuda_turns": 6,
    "test_cuda_kernels": 40,
    "test_cuda_chains": 25,
    "test_cuda_ladder": 6,
    "test_cuda_pool": 18,
    "../../learning/test_rbm": 7,
    "../../learning/cuda/test_products": 8,
}


def run(marked: str, names: list[str], **variables: str) -> None:
    """Run tests of files in the simulator: all pass, none is skipped, and there are as many as there should be."""
    files = [str(HERE / f"{name}.py") for name in names]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", marked, "-vv", *files]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parents[2], timeout=880)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "SKIPPED" not in done.stdout
    for name in names:
        passed = len(re.findall(rf"{Path(name).name}\.py::.* PASSED", done.stdout))
        assert passed >= LEAST[name] or marked == "slow", f"{name}: {passed}"


@pytest.mark.first
@pytest.mark.timeout(900)
def test_kernels_in_the_simulator():
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    run("not slow", list(LEAST))


@pytest.mark.slow
@pytest.mark.first
@pytest.mark.timeout(900)
def test_more_kernels_in_the_simulator():
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    run("slow", list(LEAST))


@pytest.mark.slow
@pytest.mark.first
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in LEAST if name != "test_cuda_turns"])
def test_kernels_in_the_simulator_as_it_is(name):
    """Without the turns of ``tests/simulator.py``: threads of a block run side by side."""
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    run("not slow", [name], FASTMIX_SIMULATOR="as it is")
