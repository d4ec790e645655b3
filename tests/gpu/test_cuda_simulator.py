"""Starts the CUDA simulator, which must be chosen before Numba is imported, and runs the tests of the kernels in it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize(("name", "least"), [("kernels", 60), ("ladder", 6), ("messages", 50), ("pool", 20)])
def test_kernels_in_the_simulator(name, least):
    pytest.importorskip("numba_cuda", reason="needs the package numba-cuda")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(HERE / f"test_cuda_{name}.py")]
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent, timeout=280)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    passed = re.search(r"(\d+) passed", summary)
    assert passed is not None, summary
    assert int(passed[1]) >= least, summary
    assert "skipped" not in summary
