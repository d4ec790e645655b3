"""The picture of docs/guarantees.md: error bars, proven intervals and brackets on one model, against the truth.

The model is a 10x10 grid with couplings of both signs that Gibbs sampling is certified for. The sampler runs 400
chains, its intervals hold all together with confidence 0.95; the bracket gets too little memory to be exact.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import fastmix
from fastmix import instances


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="docs/figures/guarantees.svg", help="where the picture goes")
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of the brackets")
    options = parser.parse_args()
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fastmix"
    import matplotlib.pyplot as plt

    model = instances.ising_grid(10, 10, coupling_max=0.35, seed=0)
    truth = fastmix.infer(model, method="exact")
    drawn = fastmix.sample(model, num_chains=400, num_sweeps=200, burn_in=200, seed=0)
    intervals = drawn.intervals(confidence=0.95, simultaneous=True)
    proven = fastmix.bracket(model, memory_limit=100_000, time_limit=options.seconds, seed=0)
    draws = fastmix.bracket(model, memory_limit=100_000, time_limit=options.seconds, confidence=0.95, seed=0)
    chosen = 2 * np.arange(0, 100, 4) + 1  # the upper state of every fourth variable
    p = truth.node_marginals[chosen]
    chosen, p = chosen[np.argsort(p)], np.sort(p)
    figure, axes = plt.subplots(figsize=(8.0, 4.0), layout="constrained")
    place = np.arange(len(chosen))
    rows = (
        (-0.24, drawn.node_marginals - 2 * drawn.std_error, drawn.node_marginals + 2 * drawn.std_error,
         "two standard errors of the sampler"),
        (-0.08, intervals.lower, intervals.upper, "proven intervals of the sampler, confidence 0.95"),
        (0.08, draws.node_lower, draws.node_upper, "bracket with draws, confidence 0.95"),
        (0.24, proven.node_lower, proven.node_upper, "bracket, proven outright"),
    )  # fmt: skip
    for k, (shift, low, high, label) in enumerate(rows):
        axes.vlines(place + shift, low[chosen] - p, high[chosen] - p, lw=2.0, color=f"C{k}", label=label)
        print(f"{label}: mean width {np.mean(high - low):.4f}")
    axes.axhline(0.0, lw=0.8, color="black", label="truth")
    axes.set_yscale("symlog", linthresh=1e-4)
    axes.set(
        xlabel="variables, in order of their marginal", ylabel="probability of the state +1, less the truth", xticks=[],
        ylim=(-1.0, 1.0), yticks=[-1e-1, -1e-2, -1e-3, 0.0, 1e-3, 1e-2, 1e-1],
    )  # fmt: skip
    figure.legend(fontsize=8, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(options.output, metadata={"Date": None})
    print(f"log Z {truth.log_z:.4f}, bracket {proven.log_z_lower:.4f} to {proven.log_z_upper:.4f}", end="")
    print(f", with draws {draws.log_z_lower:.4f} to {draws.log_z_upper:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
