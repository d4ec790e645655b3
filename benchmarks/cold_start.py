"""First call of sample() in a fresh process: with nothing compiled yet, and again with the kernels cached.

    python benchmarks/cold_start.py

Wall-clock seconds from the start of the interpreter to the answer, import included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

REPEAT = 9

CODE = """
import fastmix
from fastmix.instances import ising_grid
result = fastmix.sample(ising_grid(16, 16, coupling_max=0.5, seed=0), num_chains={chains}, num_sweeps=100, seed=1)
print(result.status)
"""


def seconds(chains: int, cache: str) -> float:
    start = time.perf_counter()
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    subprocess.run([sys.executable, "-c", CODE.format(chains=chains)], check=True, env=environment, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    for chains in (1, 1000):
        with tempfile.TemporaryDirectory() as cache:
            first = seconds(chains, cache)
            later = sorted(seconds(chains, cache) for _ in range(REPEAT))
        print(
            f"{chains:>5} chains: first process {first:.2f} s (to reach: 8), later ones {later[0]:.2f} s at best, "
            f"{later[REPEAT // 2]:.2f} s in the median of {REPEAT} (to reach: 1.5)"
        )


if __name__ == "__main__":
    main()
