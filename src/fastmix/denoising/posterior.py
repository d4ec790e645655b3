"""The models of noisy pictures: black and white (Liu and Domke 2014, section 7.2), and of several gray levels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import graphs
from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import as_array, check_positive, check_seed, describe
from fastmix._memory import available_memory, check_memory
from fastmix.denoising.tuning import BYTES_PER_NUMBER, BYTES_PER_PAIR_OF_LABELS, BYTES_PER_PIXEL, LARGEST_STRENGTH
from fastmix.model import MarkovRandomField

__all__ = [
    "COUPLING", "DATA_WEIGHT", "NOISE", "add_noise", "agreement", "as_gray", "binarize", "check_gray", "check_size",
    "check_strength", "data_scores", "denoising_model", "label_model",
]  # fmt: skip

#: Coupling, weight of the data and exponent of the noise in the experiment of Liu and Domke (2014, section 7.2).
COUPLING = 0.7
DATA_WEIGHT = 0.25
NOISE = 1.25


def as_gray(image: ArrayLike, name: str = "image") -> FloatArray:
    """An image of at least 2x2 finite values as gray (rows, cols); colors are weighted as the eye does (ITU-R 601).

    Whole numbers of 8 or 16 bits are scaled to [0, 1]; other values stay as they are. Errors call it ``name``.
    """
    array = _as_numbers(name, image)
    check_memory(BYTES_PER_NUMBER * array.size, f"{name} of shape {array.shape}", "give a smaller one")
    with np.errstate(over="ignore", invalid="ignore"):  # infinite then, which is refused below
        values = array.astype(np.float64)
        if array.ndim == 3 and array.shape[2] in (3, 4):
            values = values[..., :3] @ np.array([0.299, 0.587, 0.114])
        elif array.ndim != 2:
            raise ValueError(f"{name} must have shape (rows, cols) or (rows, cols, 3), got {array.shape}")
    if array.dtype in (np.uint8, np.uint16):
        values = values / np.iinfo(array.dtype).max
    if min(values.shape) < 2:
        raise ValueError(f"{name} must have at least 2 rows and columns, got {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must hold finite values, got nan or inf")
    return values


def _as_numbers(name: str, image: ArrayLike) -> NDArray[Any]:
    """An array of truth values, whole or floating-point numbers."""
    array = as_array(name, image, "be an array of numbers")
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} must be an array of numbers, got {describe(image)} of type {array.dtype.name}")
    return array


def binarize(image: ArrayLike) -> BoolArray:
    """Which pixels of an image are brighter than its mean.

    Examples
    --------
    >>> binarize([[0.1, 0.9], [0.2, 0.8]]).tolist()
    [[False, True], [False, True]]
    """
    values = as_gray(image)
    return values > values.mean()


def add_noise(clean: ArrayLike, *, noise: float = NOISE, seed: int) -> FloatArray:
    """Gray values ``x = y (1 - t^noise) + (1 - y) t^noise`` of a black-and-white picture y, t uniform on [0, 1].

    The exponent is positive; 1 hides everything, larger is clearer, and the paper has 1.25.

    Examples
    --------
    >>> x = add_noise(np.ones((100, 100), dtype=bool), seed=0)
    >>> bool(abs(x.mean() - (1 - 1 / 2.25)) < 0.01)
    True
    """
    exponent = check_positive("noise", noise)
    numbers = _as_numbers("clean", clean)
    check_memory(BYTES_PER_NUMBER * numbers.size, f"clean of shape {numbers.shape}", "give a smaller picture")
    y = numbers.astype(bool)
    t = np.random.default_rng(check_seed(seed)).random(y.shape) ** exponent
    return np.where(y, 1.0 - t, t)


def denoising_model(
    observed: ArrayLike, *, coupling: float = COUPLING, data_weight: float = DATA_WEIGHT
) -> MarkovRandomField:
    """The posterior of the labels Y of -1 or 1 given gray values X (rows, cols) from 0, black, to 1, white.

    It is ``p(Y | X) ~ exp(coupling sum_ij Y_i Y_j + data_weight sum_i (2 X_i - 1) Y_i)`` on the grid of the pixels.
    Variable ``r * cols + c`` of the model is the pixel at row r and column c; state 1 is white. A ValueError if a gray
    value is outside [0, 1] or a weight is negative, a ResourceError if the picture is too large for the memory.

    Examples
    --------
    >>> denoising_model(np.full((80, 120), 0.5))
    MarkovRandomField(9,600 variables of 2 states, 19,000 edges)
    """
    x = check_gray(observed, "observed")
    check_size(*x.shape)
    weight = check_strength("data_weight", data_weight)
    strength = check_strength("coupling", coupling)
    return MarkovRandomField.ising(graphs.grid_edges(*x.shape), strength, weight * (2.0 * x.reshape(-1) - 1.0))


def check_strength(name: str, value: float) -> float:
    """A coupling or the weight of the data as a float, so small that what it is multiplied with stays finite."""
    strength = check_positive(name, value, or_zero=True)
    if strength > LARGEST_STRENGTH:
        raise ValueError(f"{name} must be a number from 0 to {LARGEST_STRENGTH:g}, got {describe(value)}")
    return strength


def check_gray(image: ArrayLike, name: str = "image") -> FloatArray:
    """Gray values, after a check that they are from 0 to 1."""
    x = as_gray(image, name)
    if x.min() < 0.0 or x.max() > 1.0:
        raise ValueError(f"{name} must have gray values from 0 to 1, got {x.min():g} to {x.max():g}")
    return x


def agreement(levels: FloatArray, reach: float | None = None) -> FloatArray:
    """How much two labels agree (K, K): 1 for the same; otherwise 0, or less and less up to a distance of ``reach``."""
    if reach is None:
        return np.eye(len(levels))
    return np.maximum(0.0, 1.0 - np.abs(levels[:, None] - levels) / reach)


def data_scores(
    observed: FloatArray, levels: FloatArray, data_weight: float, outliers: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """The score (rows, cols, K) of every label at every pixel, and how probable it is that the pixel is no outlier.

    ``-2 data_weight (x - level)^2``, the logarithm of a normal density of variance ``1 / (4 data_weight)``; a share of
    ``outliers`` has any gray value instead, so that one bad pixel does not outweigh its neighbors.
    """
    scores = -2.0 * data_weight * (observed[..., None] - levels) ** 2
    if not outliers:
        return scores - scores.max(axis=-1, keepdims=True), np.ones_like(scores)
    if not data_weight:  # every pixel is an outlier: the limit of small weights
        return np.zeros_like(scores), np.zeros_like(scores)
    near = (1.0 - outliers) * np.exp(scores)
    far = outliers * math.sqrt(math.pi / 2.0) / math.sqrt(data_weight)
    return np.log(near + far), near / (near + far)


def label_model(
    observed: FloatArray,
    levels: FloatArray,
    *,
    coupling: float,
    data_weight: float,
    reach: float | None = None,
    outliers: float = 0.0,
) -> MarkovRandomField:
    """The posterior of labels with gray levels, which for two labels at 0 and 1 is that of :func:`denoising_model`.

    With the level l(y) of a label, the agreement a(y, z) of two, and no outliers (see :func:`data_scores`),

        p(Y | X) ~ exp( 2 coupling sum_ij a(Y_i, Y_j) - 2 data_weight sum_i (X_i - l(Y_i))^2 ).

    Examples
    --------
    >>> label_model(np.full((8, 12), 0.5), np.array([0.0, 0.5, 1.0]), coupling=0.7, data_weight=1.0)
    MarkovRandomField(96 variables of 3 states, 172 edges)
    """
    rows, cols = observed.shape
    check_size(rows, cols, len(levels))
    unary, _ = data_scores(observed, levels, data_weight, outliers)
    return MarkovRandomField.image(unary, 2.0 * coupling * agreement(levels, reach))


def check_size(rows: int, cols: int, num_labels: int = 2) -> None:
    """Refuse a picture that does not fit the memory, before anything is allocated for it."""
    per_pixel = BYTES_PER_PIXEL + (BYTES_PER_PAIR_OF_LABELS * num_labels**2 if num_labels > 2 else 0)
    fitting = math.isqrt(int(available_memory() / 2 / per_pixel))
    what = f"a picture of {cols}x{rows} pixels"
    ways_out: list[str] = []
    if num_labels > 2:
        what += f" with {num_labels:,} labels"
        ways_out.append("ask for fewer labels")
    if fitting >= 2 or not ways_out:
        ways_out.append(f"give a size of at most about {fitting}x{fitting}")
    check_memory(rows * cols * per_pixel, what, " or ".join(ways_out))
