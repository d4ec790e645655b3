"""First answers of a process: with nothing compiled yet, and again with the kernels cached.

    python benchmarks/cold_start.py [--methods gibbs ...] [--repeat 5]

Seconds from the start of the interpreter to the answer, import included: wall clock, and CPU seconds in brackets (what
counts on a busy machine). To reach: with nothing compiled 8 s (Gibbs sampling) and 15 s (any method), and a line on
stderr that says so; compiled 1.2 s, and 1 s for ``fastmix infer`` of a small file.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fastmix.instances import ising_grid
from fastmix.io import write_model

METHODS = (
    "auto", "exact", "mean-field", "loopy-bp", "gibbs", "swendsen-wang", "tempered", "projected", "annealed", "perfect",
)  # fmt: skip
FEW = {
    "gibbs": ", num_sweeps=100", "swendsen-wang": ", num_sweeps=100", "tempered": ", num_sweeps=200",
    "projected": ", num_sweeps=100", "annealed": ", num_steps=5", "perfect": ", num_draws=10",
}  # fmt: skip
CODE = """
import fastmix
from fastmix.instances import ising_grid
model = ising_grid(16, 16, coupling_max=0.2, attractive=True, seed=0)
fastmix.infer(model, method="{method}"{options})
"""
MANY = """
import fastmix
from fastmix.instances import ising_grid
fastmix.sample(ising_grid(16, 16, coupling_max=0.5, seed=0), num_chains=1000, num_sweeps=100, seed=1)
"""


def seconds(command: list[str], cache: str) -> tuple[float, float, str]:
    """Wall clock and CPU seconds of a process, and what it wrote to stderr."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    # Python keeps its bytecode, as for users, also where a development environment forbids it.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, env={**kept, "NUMBA_CACHE_DIR": cache}, capture_output=True, text=True)
    if done.returncode not in (0, 1):  # 1: an answer that does not vouch for itself
        raise RuntimeError(done.stderr)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(f"{'':28}{'nothing compiled':>20}{'compiled: best':>20}{'median':>16}")
    with tempfile.TemporaryDirectory() as folder:
        small = str(Path(folder) / "small.uai")
        write_model(ising_grid(4, 4, coupling_max=1.0, seed=0), small)
        python = [sys.executable, "-c"]
        cases = {name: [*python, CODE.format(method=name, options=FEW.get(name, ""))] for name in options.methods}
        cases["sample, 1,000 chains"] = [*python, MANY]
        for method in ("auto", "gibbs"):
            short = ["--num-sweeps", "100"] if method == "gibbs" else []
            cases[f"fastmix infer --method {method}"] = [
                sys.executable, "-m", "fastmix", "infer", small, "--method", method, *short,
            ]  # fmt: skip
        for name, command in cases.items():
            with tempfile.TemporaryDirectory() as cache:
                wall, cpu, said = seconds(command, cache)
                later = [seconds(command, cache)[:2] for _ in range(options.repeat)]
            best = min(later, key=lambda pair: pair[1])
            median = [statistics.median(column) for column in zip(*later, strict=True)]
            told = "  said that it was compiling" if said.count("compiling") == 1 else ""
            print(
                f"{name:28}{wall:>12.2f} ({cpu:.2f}){best[0]:>12.2f} ({best[1]:.2f}){median[0]:>8.2f} ({median[1]:.2f})"
                f"{told}",
                flush=True,
            )


if __name__ == "__main__":
    main()
