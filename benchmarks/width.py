"""Projection onto bounded width beside Dobrushin's ball, on dense models of mixed signs.

    python benchmarks/width.py [--variables 200] [--seconds 30]

Sherrington-Kirkpatrick models and restricted Boltzmann machines at twice and four times the scale that the width
certifies: distance moved (to reach: half of that to the spectral ball, so a quarter of its square) and the marginal
error of the projected model against a long run of replica exchange on the model itself. Marginals of the projected
models are by long runs too, so that what is compared is the projection.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import numpy as np

import fastmix
from fastmix import MarkovRandomField
from fastmix.theory.criteria import scale_couplings
from fastmix.theory.width import model_width

BOUND = 0.95


def spin_glass(n: int, rng: np.random.Generator) -> MarkovRandomField:
    """All pairs, Gaussian couplings, Gaussian fields."""
    edges = list(itertools.combinations(range(n), 2))
    return MarkovRandomField.ising(edges, rng.normal(size=len(edges)) / math.sqrt(n), 0.5 * rng.normal(size=n))


def boltzmann_machine(n: int, rng: np.random.Generator) -> MarkovRandomField:
    """Half of the variables visible and half hidden, Gaussian weights and fields."""
    half = n // 2
    edges = list(itertools.product(range(half), range(half, n)))
    return MarkovRandomField.ising(edges, rng.normal(size=len(edges)) / math.sqrt(n), 0.5 * rng.normal(size=n))


def rescaled(model: MarkovRandomField, times: float) -> MarkovRandomField:
    """Couplings at ``times`` the scale that has a width of 1."""
    return scale_couplings(model, times / model_width(model).value)


def long_run(model: MarkovRandomField, seconds: float, method: str) -> tuple[np.ndarray, str]:
    """Marginals, and what the run says of itself."""
    result = fastmix.infer(model, method=method, time_limit=seconds, seed=1, progress=None)
    return result.node_marginals, str(result.status)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variables", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30.0, help="of every long run")
    arguments = parser.parse_args()
    print("model, scale, norm | squared distance | of spectral | relative gap | CPU s | marginal error: mean, largest")
    for name, make in (("spin glass", spin_glass), ("Boltzmann", boltzmann_machine)):
        for times in (2.0, 4.0):
            model = rescaled(make(arguments.variables, np.random.default_rng(0)), times)
            truth, status = long_run(model, arguments.seconds, "tempered")
            spectral = None
            for norm, divergence, bound in (
                ("spectral", "euclidean", BOUND),
                ("inf", "euclidean", BOUND),
                ("width", "euclidean", BOUND),
                ("inf", "reversed-kl", 2.5),
            ):
                began = time.process_time()
                result = fastmix.project(
                    model, norm=norm, norm_bound=bound, divergence=divergence, seed=0, progress=None
                )  # type: ignore[arg-type]
                spent = time.process_time() - began
                spectral = spectral or result.squared_distance
                marginals, _ = long_run(result.model, arguments.seconds / 3.0, "gibbs")
                error = np.abs(marginals - truth)[1::2]
                print(
                    f"{name} x{times:g}, {norm} {bound:g} {divergence} | {result.squared_distance:.4g} | "
                    f"{result.squared_distance / spectral:.3f} | {result.relative_gap:.1e} | {spent:.2f} | "
                    f"{error.mean():.4f}, {error.max():.4f} (long run: {status})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
