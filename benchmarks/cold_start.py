"""First answers of a process: with nothing compiled yet, and again with the kernels cached.

    python benchmarks/cold_start.py [--only NAME ...] [--repeat 5] [--no-warm-up]

CPU seconds from the start of the interpreter to the answer, import included, and seconds by the clock in brackets,
which say little on a busy machine. To reach, with nothing compiled: 3 CPU seconds for the first answer of the README, 8
for any verb, 45 for ``fastmix warm-up``, whose parts are printed too; and a line on stderr that says that it compiles.
(``compare`` takes more: it runs all methods.) With the kernels cached: 1.2 seconds, and 1 for ``fastmix infer`` of a
small file.

A first answer is that of a small model, with few sweeps or draws. ``--only`` takes beginnings of names.
"""

from __future__ import annotations

import argparse
import json
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

WEAK = "ising_grid(16, 16, coupling_max=0.2, attractive=True, seed=0)"
MIXED = "ising_grid(16, 16, coupling_max=0.5, seed=0)"
STRONG = "ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)"
LABELS = "potts_grid(16, 16, num_states=3, coupling_max=0.5, attractive=True, seed=0)"
SMALL = "ising_grid(5, 5, coupling_max=0.5, seed=0)"
DATA = "np.random.default_rng(0).integers(0, 2, size=(200, 25))"
PICTURE = "np.clip(np.eye(24) + np.random.default_rng(0).normal(scale=0.3, size=(24, 24)), 0.0, 1.0)"
NETWORK = (
    "fastmix.BayesianNetwork(('a', 'b'), [['0', '1']] * 2, [[], [0]],"
    " [np.array([0.3, 0.7]), np.array([[0.2, 0.8], [0.5, 0.5]])])"
)
LIMIT = "seed=0, time_limit=2"

# Options with which a method of `infer` gives a first answer soon.
METHODS = {
    "auto": "", "exact": "", "mean-field": "", "loopy-bp": "", "gibbs": "num_sweeps=100",
    "swendsen-wang": "num_sweeps=100", "tempered": "num_sweeps=200", "projected": "num_sweeps=100",
    "annealed": "num_steps=5", "perfect": "num_draws=10",
}  # fmt: skip
# Models for which a route of `most_probable` is made.
ROUTES = {
    "auto": MIXED, "exact": MIXED, "cut": WEAK, "messages": LABELS, "expansion": LABELS, "swap": LABELS,
    "search": MIXED,
}  # fmt: skip
CASES = {
    "README": f"fastmix.infer({STRONG}, seed=1)",
    **{f"infer {name}": f"fastmix.infer({WEAK}, method={name!r}, {few})" for name, few in METHODS.items()},
    "sample": f"fastmix.sample({MIXED}, num_sweeps=100, seed=0)",
    "sample, 1,000 chains": f"fastmix.sample({MIXED}, num_chains=1000, num_sweeps=100, seed=0)",
    "sample, three states": f"fastmix.sample({LABELS}, num_sweeps=100, seed=0)",
    "temper": f"fastmix.temper({WEAK}, num_sweeps=200, seed=0)",
    **{
        f"project {norm}": f"fastmix.project({STRONG}, norm_bound=0.95, norm={norm!r})"
        for norm in ("inf", "spectral", "frobenius", "width")
    },
    **{
        f"project {name}": f"fastmix.project({MIXED}, norm_bound=0.95, divergence=fastmix.{name}, seed=0)"
        for name in ("KL()", "PiecewiseKL()", "ReversedKL(pool_size=64)")
    },
    "certify": f"fastmix.certify({STRONG}, accuracy=0.01)",
    **{
        f"certify {name}": f"fastmix.certify({MIXED}, accuracy=0.01, schedule='random', criterion={name!r})"
        for name in ("auto", "dobrushin", "path", "split", "width")
    },
    **{f"bracket {name}": f"fastmix.bracket({MIXED}, method={name!r}, {LIMIT})" for name in ("exact", "split")},
    **{
        f"most_probable {name}": f"fastmix.most_probable({model}, method={name!r}, {LIMIT}0)"
        for name, model in ROUTES.items()
    },
    "learn": f"fastmix.learn({DATA}, seed=0, max_iter=3)",
    "learn pseudo-likelihood": f"fastmix.learn({DATA}, objective='pseudo-likelihood', seed=0, max_iter=3)",
    "learn exact": f"fastmix.learn({DATA}, moments='exact', edges='chow-liu', seed=0, max_iter=3)",
    "learn sampled": f"fastmix.learn({DATA}, moments='sampled', num_chains=64, seed=0, max_iter=3)",
    "learn tempered": f"fastmix.learn({DATA}, moments='tempered', num_chains=64, seed=0, max_iter=3)",
    "score": f"fastmix.score({SMALL}, {DATA}, seed=0)",
    "score annealing": f"fastmix.score({SMALL}, {DATA}, method='annealing', num_chains=64, tol=1.0, seed=0)",
    "denoise": f"fastmix.denoising.denoise({PICTURE}, {LIMIT}0)",
    "draw_exact": f"fastmix.draw_exact({SMALL}, num_draws=10, seed=0)",
    "perfect_sample": f"fastmix.perfect_sample({WEAK}, num_draws=10, seed=0)",
    "ancestral_sample": f"fastmix.ancestral_sample({NETWORK}, num_draws=10, seed=0)",
    "anneal": f"fastmix.anneal({WEAK}, num_steps=5, seed=0)",
    "mean_field, three states": f"fastmix.mean_field({LABELS}, seed=0)",
    "loopy_bp residual": f"fastmix.loopy_bp({MIXED}, message_order='residual')",
    "loopy_bp, three states": f"fastmix.loopy_bp({LABELS})",
    "compare": f"fastmix.compare({WEAK}, {LIMIT})",
}
CODE = """
import numpy as np
import fastmix
from fastmix.instances import ising_grid, potts_grid
{}
"""
WARM_UP = """
import json
import fastmix
print(json.dumps(dict(fastmix.warm_up(progress=None).parts)))
"""


class Timed:
    """What a process took, by the clock and of the processors, and what it wrote."""

    def __init__(self, command: list[str], cache: str) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        # Python keeps its bytecode, as for users, also where a development environment forbids it.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(command, env={**kept, "NUMBA_CACHE_DIR": cache}, capture_output=True, text=True)
        if done.returncode not in (0, 1):  # 1: an answer that does not vouch for itself
            raise RuntimeError(done.stderr)
        self.wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.output = done.stdout
        self.said = done.stderr


def show_first_answer(name: str, command: list[str], repeat: int) -> None:
    """Print a line: with nothing compiled, and the best and the median of several runs with the kernels cached."""
    with tempfile.TemporaryDirectory() as cache:
        first = Timed(command, cache)
        later = [Timed(command, cache) for _ in range(repeat)]
    line = f"{name:34}{first.cpu:>8.2f} ({first.wall:.2f})"
    if later:
        best = min(later, key=lambda timed: timed.cpu)
        cpu = statistics.median(timed.cpu for timed in later)
        wall = statistics.median(timed.wall for timed in later)
        line += f"{best.cpu:>12.2f} ({best.wall:.2f}){cpu:>10.2f} ({wall:.2f})"
    told = "  said that it was compiling" if first.said.count("compiling") == 1 else ""
    print(line + told, flush=True)


def show_warm_up() -> None:
    """Print what a warm-up takes with nothing compiled, and the seconds of compiling of each part."""
    with tempfile.TemporaryDirectory() as cache:
        timed = Timed([sys.executable, "-c", WARM_UP], cache)
    print(f"{'warm-up':34}{timed.cpu:>8.2f} ({timed.wall:.2f})")
    for part, seconds in json.loads(timed.output).items():
        print(f"  {part:32}         ({seconds:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--no-warm-up", action="store_true")
    options = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f}")
    print(f"{'CPU seconds (seconds)':34}{'nothing compiled':>16}{'compiled: best':>20}{'median':>16}")
    with tempfile.TemporaryDirectory() as folder:
        small = str(Path(folder) / "small.uai")
        write_model(ising_grid(4, 4, coupling_max=1.0, seed=0), small)
        cases = {name: [sys.executable, "-c", CODE.format(call)] for name, call in CASES.items()}
        for method in ("auto", "gibbs"):
            short = ["--num-sweeps", "100"] if method == "gibbs" else []
            command = [sys.executable, "-m", "fastmix", "infer", small, "--method", method, *short]
            cases[f"fastmix infer --method {method}"] = command
        for name, command in cases.items():
            if options.only is None or name.startswith(tuple(options.only)):
                show_first_answer(name, command, options.repeat)
    if not options.no_warm_up and (options.only is None or "warm-up".startswith(tuple(options.only))):
        show_warm_up()


if __name__ == "__main__":
    main()
