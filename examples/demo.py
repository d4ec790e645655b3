"""The main job in a few seconds: a model, its exact marginals, its certificate, its projection."""

from __future__ import annotations

import time

import numpy as np

import fastmix
from fastmix.instances import ising_grid


def main() -> None:
    model = ising_grid(12, 12, coupling_max=0.8, attractive=True, seed=7)
    print(f"model      {model}, attractive couplings up to 0.8")

    start = time.perf_counter()
    exact = fastmix.infer(model, method="exact")
    print(f"exact      log Z = {exact.log_z:.4f}, treewidth {exact.stats['treewidth']}, {_since(start)}")

    before = fastmix.certify(model, accuracy=0.01)
    print(f"certify    dependency norm {before.norm_value:.2f}: Gibbs sampling is not certified to mix fast")

    for norm_bound in (2.5, 0.95):
        start = time.perf_counter()
        projected = fastmix.project(model, norm_bound=norm_bound)
        after = fastmix.certify(projected.model, accuracy=0.01)
        promise = f"within 0.01 after {after.num_sweeps} sweeps" if after.certified else "no certificate"
        close = fastmix.infer(projected.model).node_marginals - exact.node_marginals
        print(
            f"project    norm {projected.norm_before:.2f} -> {projected.norm_after:.2f}, "
            f"distance {np.sqrt(projected.squared_distance):.2f}, {promise}, "
            f"mean marginal error {np.abs(close[1::2]).mean():.3f}, {_since(start)}"
        )

    print("\nprobability of state 1 in the exact answer:")
    shades = " .:-=+*#%@"
    for row in exact.node_marginals[1::2].reshape(12, 12):
        print("   ", "".join(2 * shades[min(9, int(10 * p))] for p in row))


def _since(start: float) -> str:
    return f"{time.perf_counter() - start:.2f} s"


if __name__ == "__main__":
    main()
