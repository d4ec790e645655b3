"""All that needs a GPU: tests of the kernels, the statistical suite and the benchmark, with one table at the end."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu  # sets up NumPy for numba-cuda, so before anything that imports it

from fastmix.chains.cuda.device import cuda_available


class Outcome:
    """Counts of a test run, by file."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, int]] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: object) -> None:
        name = Path(report.nodeid.split("::")[0]).name  # type: ignore[attr-defined]
        counts = self.files.setdefault(name, {"passed": 0, "failed": 0, "skipped": 0})
        outcome = report.outcome  # type: ignore[attr-defined]
        if report.when == "call" or outcome != "passed":  # type: ignore[attr-defined]
            counts[outcome] += 1
        self.seconds[name] = self.seconds.get(name, 0.0) + report.duration  # type: ignore[attr-defined]


TESTS = (
    *(f"chains/cuda/test_cuda_{name}.py" for name in ("host", "kernels", "chains", "ladder", "pool", "device")),
    "learning/test_rbm.py", "learning/cuda/test_products.py",
)  # fmt: skip


def run_tests(names: tuple[str, ...] = TESTS) -> Outcome:
    """The tests of CUDA code on the device, without the settings of the project's own test run."""
    import pytest

    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "pytest.ini"
        settings.write_text("[pytest]\n")
        files = [ROOT / "tests" / name for name in names]
        arguments = ["-q", "-c", str(settings), "--rootdir", str(ROOT), "-p", "no:cacheprovider", *map(str, files)]
        sys.path.insert(0, str(ROOT / "tests"))
        with contextlib.suppress(SystemExit):
            pytest.main(arguments, plugins=[outcome])
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a trial of the benchmark, for the simulator")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="timed calls of each (default 5)")
    options = parser.parse_args()
    usable, text = cuda_available()
    if not usable:
        print(f"benchmarks/gpu_check.py: {text}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    outcome = run_tests()
    bench = gpu.run(list(gpu.CASES), repeat=options.repeat, quick=options.quick)
    print(f"\n{text}, {time.perf_counter() - start:.0f} s in all\n")
    print(f"{'tests':58}{'passed':>10}{'failed':>10}{'skipped':>10}{'seconds':>10}")
    for name, counts in outcome.files.items():
        numbers = "".join(f"{counts[kind]:10}" for kind in ("passed", "failed", "skipped"))
        print(f"{name:58}{numbers}{outcome.seconds[name]:10.1f}")
    print("\n" + gpu.table(bench))
    failed = sum(counts["failed"] for counts in outcome.files.values()) or not outcome.files
    missed = [line for line in bench.lines if line.met is False]
    wrong = [line for line in bench.lines if not line.right]
    print(f"\n{'FAILED' if failed or wrong else 'passed'}; {len(missed)} of the figures to reach missed")
    return 1 if failed or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
