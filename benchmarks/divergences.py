"""Projection in divergences: the timing table of the paper beside ours, and the accuracy of every step rule.

    python benchmarks/divergences.py [--quick] [--repeat 3] [--accuracy] [--models 20]

Times are CPU seconds of one thread on attractive 16x16 Ising grids, fields up to 1, norm bound 2.5, 60 steps, after a
first call that compiles. The paper's are those of its table of running times, on one core of an Intel i7 860.
--accuracy measures, over grids with couplings up to 1, 2 and 4, the mean error of the marginals of the projected model,
found by exact inference: the error of the projection without any noise of sampling.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import time

import numpy as np

import fastmix
from fastmix.exact import infer_exact
from fastmix.instances import ising_grid
from fastmix.projection import (
    KL,
    PAPER_STEP,
    DecreasingStep,
    Divergence,
    Euclidean,
    FixedStep,
    LineSearch,
    PiecewiseKL,
    ReversedKL,
    StepRule,
)

# Seconds in the paper: by divergence, norm and largest coupling.
PAPER = {
    ("Euclidean", "inf", 1.5): 1.50, ("Euclidean", "spectral", 1.5): 25.63,
    ("Euclidean", "inf", 3.0): 3.26, ("Euclidean", "spectral", 3.0): 164.34,
    ("piecewise", "inf", 1.5): 12.87, ("piecewise", "spectral", 1.5): 45.26,
    ("piecewise", "inf", 3.0): 20.73, ("piecewise", "spectral", 3.0): 211.08,
    ("reversed KL", "inf", 1.5): 13.13, ("reversed KL", "spectral", 1.5): 66.81,
    ("reversed KL", "inf", 3.0): 20.12, ("reversed KL", "spectral", 3.0): 254.25,
}  # fmt: skip
TARGETS = {"inf": 1.0, "spectral": 10.0}  # seconds of a descent

METHODS: dict[str, list[tuple[str, Divergence, StepRule | None]]] = {
    "Euclidean": [("exact", Euclidean(), None)],
    "piecewise": [
        ("rows and columns, the paper's step", PiecewiseKL("rows-and-columns", smoothing=0.0), PAPER_STEP),
        ("default", PiecewiseKL(), None),
    ],
    "reversed KL": [
        ("one start, the paper's step", ReversedKL(num_starts=1), PAPER_STEP),
        ("default", ReversedKL(), None),
    ],
}

RULES: dict[str, tuple[Divergence, StepRule | None]] = {
    "Euclidean": (Euclidean(), None),
    "piecewise, rows+columns, max, 0.1 indicator": (PiecewiseKL("rows-and-columns", smoothing=0.0), PAPER_STEP),
    "piecewise, rows+columns, max, 0.1 centered": (PiecewiseKL("rows-and-columns", smoothing=0.0), FixedStep()),
    "piecewise, rows+columns, smooth, line search": (PiecewiseKL("rows-and-columns"), LineSearch()),
    "piecewise, pairs, max, 0.1 indicator": (PiecewiseKL("adjacent-pairs", smoothing=0.0), PAPER_STEP),
    "piecewise, pairs, max, 0.1 centered": (PiecewiseKL("adjacent-pairs", smoothing=0.0), FixedStep()),
    "piecewise, pairs, smooth, line search (default)": (PiecewiseKL(), None),
    "piecewise, spanning trees, smooth, line search": (PiecewiseKL("spanning-trees"), LineSearch()),
    "reversed, one start, 0.1 indicator": (ReversedKL(num_starts=1), PAPER_STEP),
    "reversed, one start, 0.1 centered": (ReversedKL(num_starts=1), FixedStep()),
    "reversed, one start, 0.1 centered, 600 steps": (ReversedKL(num_starts=1), FixedStep(num_steps=600)),
    "reversed, one start, 0.1 fisher": (ReversedKL(num_starts=1), FixedStep(coordinates="fisher")),
    "reversed, one start, decreasing centered": (ReversedKL(num_starts=1), DecreasingStep()),
    "reversed, one start, decreasing fisher": (ReversedKL(num_starts=1), DecreasingStep(coordinates="fisher")),
    "reversed, four starts, decreasing fisher (default)": (ReversedKL(), None),
}


def timing(repeat: int, couplings: tuple[float, ...]) -> None:
    """The paper's table, ours beside it."""
    print(f"{'divergence':<12} {'norm':<9} {'d':>3}  {'paper':>9} {'ours':>9} {'times':>7}  {'of target':>9}  rule")
    for norm in ("inf", "spectral"):
        for coupling in couplings:
            model = ising_grid(16, 16, coupling_max=coupling, attractive=True, seed=0)
            for label, methods in METHODS.items():
                for rule, divergence, step in methods:
                    seconds = []
                    for k in range(repeat + 1):  # the first compiles
                        start = time.process_time()
                        result = fastmix.project(
                            model, norm_bound=2.5, norm=norm, divergence=divergence, step=step, seed=k
                        )
                        seconds.append(time.process_time() - start)
                        assert result.norm_after <= 2.5
                    best, paper = min(seconds[1:]), PAPER[label, norm, coupling]
                    share = "" if label == "Euclidean" else f"{best / TARGETS[norm]:9.2f}"
                    print(f"{label:<12} {norm:<9} {coupling:3.1f}  {paper:7.2f} s {best:7.3f} s {paper / best:6.0f}x  "
                          f"{share:>9}  {rule}", flush=True)  # fmt: skip


def accuracy(num_models: int, couplings: tuple[float, ...]) -> None:
    """Mean error of the marginals, its standard error, and CPU seconds, for every rule."""
    for attractive in (True, False):
        for coupling in couplings:
            print(f"\n{'attractive' if attractive else 'mixed'}, couplings up to {coupling:g}, {num_models} models")
            errors: dict[str, list[float]] = {name: [] for name in RULES}
            seconds: dict[str, list[float]] = {name: [] for name in RULES}
            for seed in range(num_models):
                model = ising_grid(16, 16, coupling_max=coupling, attractive=attractive, seed=seed)
                truth = infer_exact(model).node_marginals
                for name, (divergence, step) in RULES.items():
                    start = time.process_time()
                    result = fastmix.project(model, norm_bound=2.5, divergence=divergence, step=step, seed=seed)
                    seconds[name].append(time.process_time() - start)
                    errors[name].append(float(np.abs(infer_exact(result.model).node_marginals - truth).mean()))
            for name, values in errors.items():
                spread = np.std(values, ddof=1) / np.sqrt(num_models) if num_models > 1 else np.nan
                print(
                    f"  {name:<52} {np.mean(values):.4f} +- {spread:.4f}   {np.median(seconds[name]):.3f} s", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one coupling, one repetition, two models")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--models", type=int, default=20)
    arguments = parser.parse_args()
    timing(1 if arguments.quick else arguments.repeat, (1.5,) if arguments.quick else (1.5, 3.0))
    start = time.process_time()
    fastmix.project(ising_grid(16, 16, coupling_max=1.5, attractive=True, seed=0), norm_bound=2.5, divergence=KL())
    print(f"{'KL':<12} {'inf':<9} {1.5:3.1f}  {'':>9} {time.process_time() - start:7.3f} s {'':>7}  {'':>9}  default")
    if arguments.accuracy:
        accuracy(2 if arguments.quick else arguments.models, (1.0,) if arguments.quick else (1.0, 2.0, 4.0))


if __name__ == "__main__":
    main()
