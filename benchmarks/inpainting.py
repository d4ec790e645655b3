"""Half of the pixels of photographs are missing: what `infer` fills in, beside biharmonic inpainting of scikit-image.

    python benchmarks/inpainting.py [--seed N] [--pictures 6] [--limit 5] [--photographs ../shared/data/bsds]

Every row is a random part of 128x128 pixels of a random photograph, a random half of whose pixels is missing; 16 gray
levels. Errors are root mean squares over the missing pixels of the mean gray level under the marginals, as ratios to
that of biharmonic inpainting; ``infer`` has its limit in CPU seconds, on one thread. *Truncated* is a truncated
quadratic table between the nearest neighbors, *stencil* the quadratic table with weights 8, -2 and -1 for neighbors
beside, across corners and two apart: the sum of the squared Laplacians, which biharmonic inpainting minimizes.
*Noisy*: what is seen has normal noise with a standard deviation of 0.06, and the weight of the table is fitted to the
Laplacians of what is seen (without noise it hardly matters). The exit code is 1 where the stencil misses
biharmonic inpainting by more than 1 % on average, or does not beat it with noise.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

for variable in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from PIL import Image
from skimage.restoration import inpaint_biharmonic

import fastmix
from fastmix import MarkovRandomField

SIDE = 128
LEVELS = np.linspace(0.0, 1.0, 16)
STENCIL = {(0, 1): 8.0, (1, 0): 8.0, (1, 1): -2.0, (1, -1): -2.0, (0, 2): -1.0, (2, 0): -1.0}
SMOOTHNESS = 25.6  # of the squared difference of gray levels from 0 to 1: a tenth for neighboring levels
NOISE = 0.06
MOST_RATIO = 1.01


def crop(rng: np.random.Generator, folder: str) -> np.ndarray:
    """A random part of a random photograph, with values from 0 to 1."""
    paths = sorted(Path(folder).glob("*.jpg"))
    with Image.open(paths[int(rng.integers(len(paths)))]) as image:
        gray = np.asarray(image.convert("L"), dtype=float) / 255.0
    top = int(rng.integers(gray.shape[0] - SIDE + 1))
    left = int(rng.integers(gray.shape[1] - SIDE + 1))
    return gray[top : top + SIDE, left : left + SIDE]


def stencil_edges() -> tuple[np.ndarray, np.ndarray]:
    """The pairs of pixels of the stencil, and the weight of each."""
    numbers = np.arange(SIDE * SIDE).reshape(SIDE, SIDE)
    pairs = []
    weights = []
    for (down, right), weight in STENCIL.items():
        first = numbers[: SIDE - down, max(0, -right) : SIDE - max(0, right)]
        second = numbers[down:, max(0, right) : SIDE + min(0, right)]
        pairs.append(np.column_stack([first.ravel(), second.ravel()]))
        weights.append(np.full(first.size, weight))
    return np.concatenate(pairs), np.concatenate(weights)


def unknown_pixels(gray: np.ndarray, missing: np.ndarray, smoothness: float) -> MarkovRandomField:
    """The stencil's model of the missing pixels alone, whose unaries hold the pairs with those that are seen."""
    edges, weights = stencil_edges()
    is_missing = missing.ravel()
    values = gray.ravel()
    numbers = np.cumsum(is_missing) - 1
    unary = np.zeros((int(is_missing.sum()), len(LEVELS)))
    for ends in (edges, edges[:, ::-1]):
        chosen = is_missing[ends[:, 0]] & ~is_missing[ends[:, 1]]
        apart = LEVELS - values[ends[chosen, 1]][:, None]
        np.add.at(unary, numbers[ends[chosen, 0]], -smoothness * weights[chosen, None] * apart**2)
    both = is_missing[edges].all(axis=1)
    table = -smoothness * np.subtract.outer(LEVELS, LEVELS) ** 2
    return MarkovRandomField.from_patterns(unary, numbers[edges[both]], [table], 0, weights[both])


def scores(seen: np.ndarray, missing: np.ndarray, noise: float) -> np.ndarray:
    """Log-densities of what is seen at every gray level, 0 where nothing is."""
    return np.where(missing[..., None], 0.0, -((seen[..., None] - LEVELS) ** 2) / (2.0 * noise**2))


def fitted_smoothness(seen: np.ndarray, missing: np.ndarray) -> float:
    """The weight of the table by the Laplacians that are seen: half of one over their variance, without the noise."""
    centers = (slice(1, -1), slice(1, -1))
    beside = [(slice(1, -1), slice(2, None)), (slice(1, -1), slice(-2)), (slice(2, None), slice(1, -1))]
    beside.append((slice(-2), slice(1, -1)))
    laplacians = sum(seen[place] for place in beside) - 4.0 * seen[centers]
    is_seen = ~(missing[centers] | np.any([missing[place] for place in beside], axis=0))
    variance = float(np.mean(laplacians[is_seen] ** 2)) - 20.0 * NOISE**2
    return 0.5 / max(variance, 0.5 / SMOOTHNESS)


def noisy_pixels(seen: np.ndarray, missing: np.ndarray) -> MarkovRandomField:
    """The stencil's model of all pixels, seen with noise or missing."""
    edges, weights = stencil_edges()
    unary = scores(seen, missing, NOISE).reshape(-1, len(LEVELS))
    table = -fitted_smoothness(seen, missing) * np.subtract.outer(LEVELS, LEVELS) ** 2
    return MarkovRandomField.from_patterns(unary, edges, [table], 0, weights, shape=seen.shape)


def truncated(seen: np.ndarray, missing: np.ndarray) -> MarkovRandomField:
    """Nearest neighbors with a truncated quadratic table."""
    apart = np.subtract.outer(np.arange(16), np.arange(16)) ** 2
    return MarkovRandomField.image(scores(seen, missing, 0.02), -0.5 * np.minimum(apart, 16))


def filled(model: MarkovRandomField, seen: np.ndarray, missing: np.ndarray, limit: float) -> np.ndarray:
    """The picture with the mean gray levels of `infer` in its holes."""
    result = fastmix.infer(model, time_limit=limit, seed=0, num_threads=1, progress=None)
    means = np.asarray(result.node_marginals).reshape(-1, len(LEVELS)) @ LEVELS
    picture = seen.copy()
    picture[missing] = means if len(means) == missing.sum() else means.reshape(seen.shape)[missing]
    return picture


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=None, help="of the pictures; drawn by default")
    parser.add_argument("--pictures", type=int, default=6)
    parser.add_argument("--limit", type=float, default=5.0, help="CPU seconds of every call")
    parser.add_argument("--photographs", default="../shared/data/bsds", help="folder of photographs")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])
    fastmix._clock.time = SimpleNamespace(perf_counter=time.process_time)  # limits whatever else the machine does
    print(f"seed {seed}")
    print(
        "| picture | biharmonic | truncated | stencil | biharmonic, noisy | stencil, noisy |\n|---|---|---|---|---|---|"
    )
    ratios = []
    for number in range(options.pictures):
        rng = np.random.default_rng([seed, number])
        gray = crop(rng, options.photographs)
        missing = rng.random(gray.shape) < 0.5
        seen = gray + rng.normal(0.0, NOISE, gray.shape)

        def error(picture: np.ndarray, gray: np.ndarray = gray, missing: np.ndarray = missing) -> float:
            return float(np.sqrt(np.mean((picture - gray)[missing] ** 2)))

        theirs = [error(inpaint_biharmonic(np.where(missing, 0.0, given), missing)) for given in (gray, seen)]
        row = [
            error(filled(truncated(gray, missing), gray, missing, options.limit)) / theirs[0],
            error(filled(unknown_pixels(gray, missing, SMOOTHNESS), gray, missing, options.limit)) / theirs[0],
            error(filled(noisy_pixels(seen, missing), seen, missing, options.limit)) / theirs[1],
        ]
        ratios.append(row)
        print(
            f"| {number} | {theirs[0]:.4f} | {row[0]:.3f} | {row[1]:.3f} | {theirs[1]:.4f} | {row[2]:.3f} |", flush=True
        )
    means = np.mean(ratios, axis=0)
    print(f"| mean | | {means[0]:.3f} | {means[1]:.3f} | | {means[2]:.3f} |")
    return 0 if means[1] <= MOST_RATIO and means[2] < 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
