"""What share of the time should messages have before moves and a search, where a picture has a short limit?

    python benchmarks/message_share.py [--first 0] [--models 30]

Pictures of 60 to 120 x 120 pixels, drawn at random: 5 to 21 labels in blocks, normal noise, Potts, truncated linear,
truncated quadratic or learnt tables, with weights of their own on all edges or not. The limit is in CPU seconds and in
proportion to the entries, 0.8 or 2 s for 240x320 pixels with 21 labels, five times as much for learnt tables. Columns
are shares (``SHARE_OF_MESSAGES`` of ``fastmix.modes.tuning``): by how much the log-weight falls short of the best of
them, and the proven gap, both as shares of the gain over the best labels of the pixels alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from types import SimpleNamespace

for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np

import fastmix
from fastmix import MarkovRandomField, graphs
from fastmix.modes import message_route, search_route

SHARES = (0.6, 0.75, 0.85, 0.9, 0.97)
LEAST_GAP = 1e-7


def picture(seed: int) -> tuple[MarkovRandomField, float, float, str]:
    """A random picture, the log-weight of the best labels of its pixels alone, its limit, and what it is like."""
    rng = np.random.default_rng(9000 + seed)
    labels = int(rng.choice([5, 10, 21]))
    rows, cols = int(rng.choice([60, 90, 120])), 120
    side = int(rng.choice([8, 20, 40]))
    noise = float(rng.uniform(0.5, 2.5))
    coupling = float(rng.uniform(0.4, 1.6))
    kind = str(rng.choice(["potts", "linear", "square", "learnt"]))
    blocks = rng.integers(0, labels, (rows // side + 1, cols // side + 1))
    truth = blocks.repeat(side, axis=0).repeat(side, axis=1)[:rows, :cols]
    scores = np.eye(labels)[truth] + rng.normal(0.0, noise, (rows, cols, labels))
    apart = np.abs(np.subtract.outer(np.arange(labels), np.arange(labels))).astype(float)
    table = {
        "potts": np.eye(labels),
        "linear": -0.4 * np.minimum(apart, 3.0),
        "square": -0.2 * np.minimum(apart**2, 8.0),
        "learnt": 0.7 * np.eye(labels) + 0.2 * rng.normal(size=(labels, labels)),
    }[kind]
    weights = rng.uniform(0.5, 1.5, len(graphs.grid_edges(rows, cols))) if rng.random() < 0.5 else 1.0
    model = MarkovRandomField.image(scores, coupling * table, weights=weights)
    alone = float(model.log_weight(scores.argmax(axis=2).ravel()))
    effort = rows * cols * labels * (5 if kind == "learnt" else 1) / (240 * 320 * 21)
    limit = float(effort * rng.choice([0.8, 2.0]))
    return model, alone, limit, f"{rows}x{cols}x{labels} {kind}, noise {noise:.2f}, {limit:.3f} s"


def answer(model: MarkovRandomField, limit: float, share: float) -> tuple[float, float]:
    """Log-weight and gap with a share of the time for messages."""
    message_route.SHARE_OF_MESSAGES = share
    search_route.SHARE_OF_MESSAGES = share
    found = fastmix.most_probable(model, time_limit=limit, seed=0, progress=None)
    return found.log_weight, found.gap


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="number of the first picture, which is its seed")
    parser.add_argument("--models", type=int, default=30)
    options = parser.parse_args()
    fastmix._clock.time = SimpleNamespace(perf_counter=time.process_time)  # limits whatever else the machine does
    for seed in range(4):  # compiles
        model, *_ = picture(seed)
        answer(model, 2.0, 0.5)
    print("| picture | " + " | ".join(map(str, SHARES)) + " |\n|---|" + "---|" * len(SHARES))
    shortfalls = []
    gaps = []
    for seed in range(options.first, options.first + options.models):
        model, alone, limit, text = picture(seed)
        answers = np.array([answer(model, limit, share) for share in SHARES])
        gain = answers[:, 0].max() - alone
        shortfalls.append((answers[:, 0].max() - answers[:, 0]) / gain)
        gaps.append(answers[:, 1] / gain)
        cells = [f"{short:.1e}, {gap:.1e}" for short, gap in zip(shortfalls[-1], gaps[-1], strict=True)]
        print(f"| {text} | " + " | ".join(cells) + " |", flush=True)
    means = np.mean(shortfalls, axis=0)
    typical = np.exp(np.mean(np.log(np.maximum(gaps, LEAST_GAP)), axis=0))
    print("| means | " + " | ".join(f"{m:.1e}, {g:.1e}" for m, g in zip(means, typical, strict=True)) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
