"""The kernels as plain Python: one process without the compiler runs the tests that are marked ``nojit``.

The switch is read when Numba is imported, so it needs a process of its own. That one also computes ``plain_results`` of
some modules of tests, to be compared with what compiled kernels give, and measures how much of the package it ran.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

TESTS = Path(__file__).resolve().parent
KEPT_IN = "FASTMIX_PLAIN_RESULTS"  # names the file for the results of the process without the compiler

KERNELS_FLOOR = 80  # percent of the lines of kernels that run without the compiler

# Modules with a function plain_results: nested lists, whose numbers may differ by this much (whole numbers not at all).
MODULES = {
    "exact/test_exact": 1e-12,
    "kernel_calls": 1e-5,
    "chains/test_cpu": 4 * 2.0**-24,
    "chains/test_layers": 1e-5,
    "learning/test_rbm": 1e-5,
    "sampling/test_perfect_sample": 0.0,
    "sampling/test_swendsen_wang": 1e-12,
    "sampling/tempering/test_ladder": 1e-5,
    "variational/test_loopy_bp": 1e-6,
    "variational/test_mean_field": 1e-6,
}


def plain_results() -> dict[str, list]:
    return {name: importlib.import_module(Path(name).name).plain_results() for name in MODULES}


def soiled(make: Callable[..., Any]) -> Callable[..., Any]:
    """``np.empty`` or ``np.empty_like`` with entries that spoil any result: NaN, the largest whole number, True."""

    def made(*arguments: Any, **options: Any) -> Any:
        array = make(*arguments, **options)
        if array.dtype.kind in "fiub":
            array[...] = {"f": np.nan, "b": True}.get(array.dtype.kind) or np.iinfo(array.dtype).max
        return array

    return made


def assert_same(plain: object, compiled: object, atol: float) -> None:
    if isinstance(compiled, list):
        assert isinstance(plain, list)
        assert len(plain) == len(compiled)
        for a, b in zip(plain, compiled, strict=True):
            assert_same(a, b, atol)
    elif isinstance(compiled, float):
        np.testing.assert_allclose(plain, compiled, rtol=0, atol=atol)
    else:
        assert plain == compiled


def test_a_difference_is_noticed() -> None:
    for plain, compiled in (([1, 2.0], [2, 2.0]), ([[1.0, 2.1]], [[1.0, 2.0]]), ([1.0], [1.0, 1.0]), (["a"], ["b"])):
        with pytest.raises(AssertionError):
            assert_same(plain, compiled, 1e-3)
    assert_same([1, [2.0]], [1, [2.0001]], 1e-3)


def test_soiled_arrays_spoil_sums() -> None:
    for dtype in (np.float32, np.float64):
        assert np.isnan(soiled(np.empty)(3, dtype).sum())
    like = soiled(np.empty_like)
    assert (like(np.zeros(2, np.uint8)).tolist(), like(np.zeros(2, bool)).tolist()) == ([255, 255], [True, True])


@pytest.mark.nojit
def test_results_are_kept_for_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what no kernel may do: read what it has not written, which compiled ones would get from earlier work."""
    if KEPT_IN not in os.environ:
        pytest.skip("computes what test_kernels_agree_without_the_compiler compares")
    assert numba.config.DISABLE_JIT  # type: ignore[attr-defined]
    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, soiled(getattr(np, name)))
    Path(os.environ[KEPT_IN]).write_text(json.dumps(plain_results()))


@pytest.mark.first
@pytest.mark.timeout(600)
def test_kernels_agree_without_the_compiler(tmp_path: Path, record_property) -> None:
    marked = [str(path) for path in sorted(TESTS.rglob("test_*.py")) if "mark.nojit" in path.read_text()]
    kept, measured = tmp_path / "plain.json", tmp_path / "coverage"
    coverage = [sys.executable, "-m", "coverage"]
    settings = f"--rcfile={os.devnull}"  # those of the repository leave compiled functions out
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", KEPT_IN: str(kept), "COVERAGE_FILE": str(measured)}
    wrapping = "ignore:overflow encountered:RuntimeWarning"  # 32-bit sums wrap on purpose
    pytest_run = ["-m", "pytest", "-p", "no:cacheprovider", "-W", wrapping, "-m", "nojit and not slow", *marked]
    done = subprocess.run(
        [*coverage, "run", settings, "--source=fastmix", *pytest_run],
        env=environment,
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout
    kernels = ["--include=*kernels.py,*/generator.py", "--omit=*/cuda/*"]  # those for GPUs run in the simulator
    report = [*coverage, "report", settings, "--format=total", *kernels]
    total = subprocess.run(report, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert re.fullmatch(r"\d+\n", total.stdout), total.stderr
    record_property("to print", f"coverage of the kernels without the compiler: {total.stdout.strip()} %")
    assert int(total.stdout) >= KERNELS_FLOOR
    plain, compiled = json.loads(kept.read_text()), plain_results()
    for name, atol in MODULES.items():
        assert_same(plain[name], compiled[name], atol)
