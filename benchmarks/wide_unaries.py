"""Gibbs sampling or cluster moves: how wide must the unaries of a picture be for the first to be better?

    python benchmarks/wide_unaries.py [--first 0] [--models 60]

Strips of 4 to 8 rows and some 1,200 pixels, drawn at random: 3 to 8 labels, unaries that span 0.1 to 4 on average, of
noise alone or in part of blocks that neighbors share, Potts couplings of 0.5 to 2 times the strength at which the
square lattice orders, equal or not. Exact marginals are known. Four chains of Gibbs sampling make 220 sweeps each, and
four of Swendsen-Wang as many as take the same CPU time on a picture of 120x120 pixels: what large pictures have time
for. At the end stand, for thresholds of the span beyond which Gibbs sampling is taken, the geometric mean and the
largest of the ratios of the error of what is taken to that of the better one (``WIDE_UNARIES`` of
``fastmix.inference.tuning``).
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import cache
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

import fastmix
from fastmix import MarkovRandomField, graphs

ROWS = {3: 8, 4: 6, 5: 6, 8: 4}
SITES = 1200
SWEEPS = 220
THRESHOLDS = (0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0, 2.5)
SAMPLERS = ("gibbs", "swendsen-wang")


def strip(seed: int) -> tuple[MarkovRandomField, dict[str, Any]]:
    """A random strip, and what it is like."""
    rng = np.random.default_rng(5000 + seed)
    labels = int(rng.choice([3, 4, 5, 8]))
    critical = np.log(1.0 + np.sqrt(labels))
    rows = ROWS[labels]
    cols = SITES // rows
    side = int(rng.choice([3, 6, 12]))
    span = float(np.exp(rng.uniform(np.log(0.1), np.log(4.0))))
    share = float(rng.choice([0.0, 0.0, rng.uniform(0.1, 1.0)]))
    strength = float(rng.uniform(0.5, 2.0))
    blocks = rng.integers(0, labels, (rows // side + 1, cols // side + 1))
    truth = blocks.repeat(side, axis=0).repeat(side, axis=1)[:rows, :cols]
    scores = (1.0 - share) * rng.normal(size=(rows, cols, labels)) + 2.0 * share * np.eye(labels)[truth]
    scores *= span / float((scores.max(axis=2) - scores.min(axis=2)).mean())
    num_edges = len(graphs.grid_edges(rows, cols))
    weights = rng.uniform(0.5, 1.5, num_edges) if rng.random() < 0.5 else np.ones(num_edges)
    model = MarkovRandomField.image(scores, critical * strength, weights=weights)
    return model, {"labels": labels, "span": span, "signal": share, "strength": strength}


@cache
def cost(labels: int) -> float:
    """Seconds of a sweep of Swendsen-Wang over those of a sweep of Gibbs sampling."""
    model = MarkovRandomField.image(np.random.default_rng(0).normal(size=(120, 120, labels)), 1.0)
    speeds = []
    for method in SAMPLERS:
        options: dict[str, Any] = {"method": method, "burn_in": 0, "num_threads": 1, "start": "random"}
        fastmix.sample(model, num_chains=2, num_sweeps=2, seed=1, **options)
        found = fastmix.sample(model, num_chains=4, num_sweeps=20, seed=1, **options)
        speeds.append(float(found.stats["updates_per_second"]))
    return speeds[0] / speeds[1]


def errors(model: MarkovRandomField, labels: int) -> list[float]:
    """Mean total variation of the marginals of both samplers from the exact ones."""
    exact = fastmix.infer(model, method="exact").node_marginals
    result = []
    for method, sweeps in zip(SAMPLERS, (SWEEPS, max(11, int(SWEEPS / cost(labels)))), strict=True):
        burn_in = sweeps // 11
        found = fastmix.sample(
            model, method=method, num_chains=4, num_sweeps=sweeps - burn_in, burn_in=burn_in, seed=3, num_threads=1
        )
        result.append(0.5 * labels * float(np.abs(found.node_marginals - exact).mean()))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first model, which is its seed")
    parser.add_argument("--models", type=int, default=60)
    options = parser.parse_args()
    spans = []
    logs = []
    print("| model | labels | span | signal | strength | gibbs | swendsen-wang |\n|---|---|---|---|---|---|---|")
    for seed in range(options.first, options.first + options.models):
        model, kind = strip(seed)
        gibbs, clusters = errors(model, kind["labels"])
        facts = f"{kind['labels']} | {kind['span']:.3f} | {kind['signal']:.2f} | {kind['strength']:.2f}"
        print(f"| {seed} | {facts} | {gibbs:.4f} | {clusters:.4f} |", flush=True)
        spans.append(kind["span"])
        logs.append(np.log([gibbs, clusters]))
    both = np.array(logs)
    best = both.min(axis=1)
    print("\n| threshold | mean ratio to the better | largest |\n|---|---|---|")
    for threshold in THRESHOLDS:
        excess = np.where(np.array(spans) > threshold, both[:, 0], both[:, 1]) - best
        print(f"| {threshold} | {np.exp(excess.mean()):.3f} | {np.exp(excess.max()):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
