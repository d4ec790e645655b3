"""Replica exchange on the CPU and on a GPU, in one run: updates, round trips and errors in the same time.

    python benchmarks/gpu_temper.py [--seconds 10] [--threads 2]

Every run gets the same wall-clock time after everything has been compiled. Errors are the mean and the largest distance
of marginals from exact ones.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import gpu  # noqa: F401  sets up NumPy for numba-cuda, so before anything that imports it

from fastmix import infer, temper
from fastmix.chains.cuda.device import cuda_available
from fastmix.inference.compare import marginal_errors
from fastmix.instances import ising_grid, potts_grid

MODELS = {
    "Ising 16x16, attractive to 4": ising_grid(16, 16, coupling_max=4.0, attractive=True, seed=0),
    "Ising 16x16, mixed to 4": ising_grid(16, 16, coupling_max=4.0, seed=0),
    "Ising 16x64, mixed to 3": ising_grid(16, 64, coupling_max=3.0, seed=0),
    "Potts 8x8, 3 states, mixed to 3": potts_grid(8, 8, num_states=3, coupling_max=3.0, seed=0),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of every run (default 10)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="of the CPU (default 2)")
    parser.add_argument("--backend", choices=("cpu", "cuda"), help="only this one (default both)")
    options = parser.parse_args()
    usable, text = cuda_available()
    if not usable:
        print(f"benchmarks/gpu_temper.py: {text}", file=sys.stderr)
        return 2
    print(f"{text}; CPU: {options.threads} threads; {options.seconds:g} s each")
    print(f"{'':34}{'':6}{'rungs':>6}{'ladders':>8}{'updates/s':>11}{'trips/s':>10}{'mean':>9}{'largest':>9}  status")
    for name, model in MODELS.items():
        exact = infer(model, method="exact")
        for backend in (options.backend,) if options.backend else ("cpu", "cuda"):
            run = {"seed": 1, "num_threads": options.threads, "backend": backend}
            temper(model, time_limit=2.0, **run)  # compiles
            result = temper(model, time_limit=options.seconds, **run)
            error, stats = marginal_errors(model, result.node_marginals, exact.node_marginals), result.stats
            trips = result.round_trips.sum() / stats["seconds"]
            off = (result.log_z - exact.log_z) / result.log_z_std_error
            print(
                f"{name:34}{backend:6}{stats['num_replicas']:6}{stats['num_ladders']:8}"
                f"{stats['updates_per_second']:11.2e}{trips:10.0f}{error.mean():9.5f}{error.max():9.5f}  "
                f"{result.status}, log Z off by {off:+.1f} standard errors",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
