"""CPU seconds of learning from rows with missing values beside whole rows, and how well holes are filled.

    python benchmarks/missing.py [--columns 50] [--rows 5000] [--share 0.1]

Rows are drawn by chains from a dense Ising model with random couplings. Prints a line for every way to learn: CPU
seconds with whole rows and with holes, their ratio, and the root mean square difference of the couplings; then the
share of holes that ``impute`` fills as they were, beside the most frequent value of every column and, where
scikit-learn is installed, its imputers by neighbors and by regressions in turn (values are rounded). ``--peers`` leaves
out the ways to learn but the one that imputes. Set NUMBA_NUM_THREADS and OPENBLAS_NUM_THREADS to 1.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from typing import Any

import numpy as np

import fastmix

WAYS: tuple[dict[str, Any], ...] = (
    {"objective": "pseudo-likelihood"},
    {"edges": "chow-liu"},
    {"edges": "complete", "ridge": 1e-2},
    {"edges": "l1", "l1": 0.03},
)


def timed(rows: np.ndarray, options: dict[str, Any]) -> tuple[fastmix.LearnResult, float]:
    """A fit and its CPU seconds; what it needs is compiled before."""
    fastmix.learn(rows[:200], **options, seed=0, max_iter=1, progress=None)
    begun = time.process_time()
    result = fastmix.learn(rows, **options, seed=0, progress=None)
    return result, time.process_time() - begun


def show_peers(holes: np.ndarray, rows: np.ndarray) -> None:
    """A line for every imputer of scikit-learn: the share of holes filled as they were, and CPU seconds."""
    try:
        from sklearn.experimental import enable_iterative_imputer  # noqa: F401
        from sklearn.impute import IterativeImputer, KNNImputer
        from sklearn.linear_model import LinearRegression
    except ImportError:
        print("scikit-learn is not installed")
        return
    table = np.where(holes < 0, np.nan, holes.astype(np.float64))
    peers = {
        "KNNImputer, 5 neighbors": KNNImputer(),
        "KNNImputer, 50 neighbors": KNNImputer(n_neighbors=50),
        "IterativeImputer, linear": IterativeImputer(estimator=LinearRegression(), max_iter=5, random_state=0),
        "IterativeImputer, default": IterativeImputer(max_iter=5, random_state=0),
    }
    for name, imputer in peers.items():
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it would go on
            filled = np.clip(np.rint(imputer.fit_transform(table)), 0, rows.max())
        seconds = time.process_time() - begun
        print(f"{name}: {(filled == rows)[holes < 0].mean():.3f} of the holes, {seconds:.2f} CPU s", flush=True)


def main() -> None:
    """Learn in every way, then fill the holes by the complete graph."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--peers", action="store_true")
    options = parser.parse_args()
    n = options.columns
    rng = np.random.default_rng(0)
    edges = list(itertools.combinations(range(n), 2))
    couplings = rng.normal(0.0, 0.8 / np.sqrt(n), len(edges))
    truth = fastmix.MarkovRandomField.ising(edges, couplings, rng.normal(0.0, 0.3, n))
    run = fastmix.sample(
        truth, num_chains=options.rows, num_sweeps=100, burn_in=100, num_draws=1, seed=0, progress=None
    )
    assert run.draws is not None
    rows = run.draws.reshape(-1, n)[: options.rows].astype(int)
    gone = rng.random(rows.shape) < options.share
    holes = np.where(gone, -1, rows)
    print("| way | CPU s, whole | CPU s, holes | ratio | difference | status |")
    for way in WAYS:
        if options.peers:
            if way.get("edges") == "complete":
                model = timed(holes, way)[0].model
            continue
        (whole, first), (part, second) = timed(rows, way), timed(holes, way)
        alike = np.array_equal(whole.model.edges, part.model.edges)
        difference = np.sqrt(np.mean((whole.model.log_pairwise - part.model.log_pairwise) ** 2)) if alike else np.nan
        print(
            f"| {way} | {first:.2f} | {second:.2f} | {second / first:.1f} | {difference:.4f} | {part.status} |",
            flush=True,
        )
        if way.get("edges") == "complete":
            model = part.model
    begun = time.process_time()
    filled = fastmix.impute(model, holes, seed=0, progress=None)
    seconds = time.process_time() - begun
    frequent = np.maximum(rows.mean(axis=0), 1.0 - rows.mean(axis=0))
    majority = float(np.repeat(frequent[None], len(rows), axis=0)[gone].mean())
    print(f"impute: {(filled == rows)[gone].mean():.3f} of the holes, {majority:.3f} by columns, {seconds:.2f} CPU s")
    show_peers(holes, rows)


if __name__ == "__main__":
    main()
