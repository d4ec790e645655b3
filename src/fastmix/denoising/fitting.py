"""What a picture says about its own noise: gray levels, the noise around them, and how much neighbors agree.

Levels and noise start from a blurred picture; then labels are drawn from the posterior and the parameters fitted to the
draw, a few times over (stochastic EM, Celeux and Diebolt 1985): the coupling by maximum pseudo-likelihood (Besag 1975),
levels and noise by their moments. Labels of largest probability would not do: they are smoother than the truth, and
the coupling would grow without end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._context import Context
from fastmix.denoising.posterior import agreement, check_size, data_scores, label_model
from fastmix.denoising.tuning import (
    GRAY_LEVELS,
    LABEL_SECONDS,
    LARGEST_COUPLING,
    LEAST_NOISE,
    LEAST_ROUNDS,
    MAX_FITTED_PIXELS,
    MIN_FITTED_PIXELS,
    NUM_ROUNDS,
    PAIR_SECONDS,
    REACH,
    SHARE_OF_FIT,
    SWEEPS_PER_ROUND,
)
from fastmix.model import MarkovRandomField

__all__ = ["Fit", "fit_picture", "noise_level"]


@dataclass(frozen=True)
class Fit:
    """The parameters of :func:`fastmix.denoising.posterior.label_model`, and the noise that they stand for.

    ``smooth`` says that the levels are a scale, and the picture has values between them.
    """

    levels: FloatArray
    coupling: float
    data_weight: float
    reach: float | None
    outliers: float
    noise: float
    smooth: bool

    def model(self, image: FloatArray) -> MarkovRandomField:
        """The posterior of the labels of a picture."""
        return label_model(
            image, self.levels, coupling=self.coupling, data_weight=self.data_weight, reach=self.reach,
            outliers=self.outliers,
        )  # fmt: skip

    def picture(self, image: FloatArray, marginals: FloatArray) -> FloatArray:
        """The restored gray values, given marginals (rows, cols, K): expectations on a scale, else the best level."""
        if not self.smooth:
            shown = np.array([0.0, 1.0]) if len(self.levels) == 2 else np.clip(self.levels, 0.0, 1.0)
            return np.asarray(shown[marginals.argmax(axis=-1)])
        # Within a step of the scale the gray value is uniform, and a pixel that is no outlier tells where.
        spread = _step(self.levels) ** 2 / 12.0
        _, sound = data_scores(image, self.levels, self.data_weight, self.outliers)
        pull = sound * spread / (spread + max(self.noise, LEAST_NOISE) ** 2)
        values = self.levels + pull * (image[..., None] - self.levels)
        return np.clip((marginals * values).sum(axis=-1), 0.0, 1.0)


def noise_level(image: FloatArray) -> float:
    """The standard deviation of independent noise, by the median of second differences (after Immerkaer 1996)."""
    rows = image[:-2] - 2.0 * image[1:-1] + image[2:]
    # Of independent noise it has 6 times the standard deviation.
    second = rows[:, :-2] - 2.0 * rows[:, 1:-1] + rows[:, 2:]
    return float(np.median(np.abs(second)) / (6.0 * 0.6745)) if second.size else 0.0


def blurred(image: FloatArray, radius: int) -> FloatArray:
    """Means over squares of ``2 radius + 1`` pixels, cut off at the border."""
    for axis in (0, 1):
        n = image.shape[axis]
        total = np.concatenate([np.zeros_like(image.take([0], axis)), image.cumsum(axis)], axis)
        low = np.maximum(np.arange(n) - radius, 0)
        high = np.minimum(np.arange(n) + radius + 1, n)
        count = (high - low).reshape((-1, 1) if axis == 0 else (1, -1))
        image = (total.take(high, axis) - total.take(low, axis)) / count
    return image


def fit_picture(
    image: FloatArray,
    num_labels: int | None,
    context: Context,
    *,
    coupling: float | None = None,
    data_weight: float | None = None,
) -> Fit:
    """Levels, noise and coupling of a picture; what is given is kept, and what a fifth of the time has no room for.

    ``num_labels`` None finds out: 2 for a picture whose noise explains all that two levels leave, otherwise evenly
    spaced levels between which the result is smooth.
    """
    clock = context.clock
    shown = _first_look(image, num_labels, clock)
    part = shown.part
    labels = shown.labels
    step = _step(shown.levels)
    check_size(image.shape[0], image.shape[1], len(shown.levels))  # of the whole picture, before its part is fitted
    reach = REACH * step if shown.smooth else None
    # Known where the levels are a scale: of the noise, and of gray values between two levels.
    variance = shown.noise**2 + step**2 / 12.0 if shown.smooth else None
    strength = 0.5 if coupling is None else coupling
    fit = Fit(shown.levels, strength, 1.0, reach, 0.0, shown.noise, shown.smooth)
    fit = _noise_fit(fit, part, labels, variance, shown.flips, data_weight)
    for k in range(NUM_ROUNDS):
        if clock.past(SHARE_OF_FIT):
            break
        labels = _draw(fit.model(part), labels, context.seed_of("labels", k))
        if not (shown.smooth or shown.flips):
            fit = replace(fit, levels=_means(part, labels, fit.levels))
        fit = _noise_fit(fit, part, labels, variance, shown.flips, data_weight)
        if coupling is None:
            fit = replace(fit, coupling=best_coupling(labels, agreement(fit.levels, reach)))
    return fit


@dataclass(frozen=True)
class _FirstLook:
    """What a picture shows before anything is fitted: the part to be fitted, its labels and levels, and its noise.

    ``smooth`` says that the levels are a scale; ``flips`` that the picture has two values, and noise turns some pixels
    into the other.
    """

    part: FloatArray
    labels: IntArray
    levels: FloatArray
    noise: float
    smooth: bool
    flips: bool


def _first_look(image: FloatArray, num_labels: int | None, clock: Clock) -> _FirstLook:
    """What a picture shows, by its blurred form; labels and levels for the number asked for, if any."""
    part = _middle(image, _pixels_in_time(num_labels or GRAY_LEVELS, clock))
    values = np.unique(part)
    if len(values) == 1:  # nothing to tell apart
        values = np.array([values[0], values[0] + LEAST_NOISE])
    flips = len(values) == 2 and num_labels in (None, 2)
    noise = noise_level(part)
    radius = 1 if noise < 0.1 else 2
    labels, levels = _clusters(part, num_labels or 2, radius)
    # Away from edges a blurred picture of two levels has what is left of the noise, and a photograph has shades.
    left = 3.0 * (noise / (2 * radius + 1)) ** 2 + 0.02**2
    smooth = num_labels is None and not flips and _inner_residual(blurred(part, radius), labels, levels) > left
    if num_labels is None and not smooth:  # for two labels there is time for more pixels
        part = _middle(image, _pixels_in_time(2, clock))
        labels, levels = _clusters(part, 2, radius)
    if smooth:
        low, high = np.quantile(blurred(part, radius), [0.002, 0.998])
        levels = np.linspace(low, max(high, low + GRAY_LEVELS * LEAST_NOISE), GRAY_LEVELS)
        labels = np.abs(blurred(part, radius)[..., None] - levels).argmin(-1)
    if flips:
        levels = values.astype(np.float64)
    return _FirstLook(part, labels, levels, noise, smooth, flips)


def _step(levels: FloatArray) -> float:
    """The distance of the first two levels; 0 where there is one."""
    return float(levels[1] - levels[0]) if len(levels) > 1 else 0.0


def _inner_residual(image: FloatArray, labels: IntArray, levels: FloatArray) -> float:
    """The mean squared distance from their levels of pixels whose neighbors all have the same label."""
    same = blurred(labels.astype(np.float64), 2) == labels
    return float(((image - levels[labels])[same] ** 2).mean()) if same.any() else math.inf


def _pixels_in_time(num_labels: int, clock: Clock) -> float:
    """Pixels of which the fit has time for some rounds, by the limit that was given and not by the speed."""
    if clock.limit is None:
        return MAX_FITTED_PIXELS
    each = LABEL_SECONDS * num_labels + PAIR_SECONDS * num_labels**2
    return min(MAX_FITTED_PIXELS, max(MIN_FITTED_PIXELS, SHARE_OF_FIT * clock.limit / LEAST_ROUNDS / each))


def _middle(image: FloatArray, most: float) -> FloatArray:
    """The middle of a picture of more pixels than can be fitted."""
    rows, cols = image.shape
    shrink = min(1.0, math.sqrt(most / image.size))
    height = max(2, round(rows * shrink))
    width = max(2, round(cols * shrink))
    top = (rows - height) // 2
    left = (cols - width) // 2
    return image[top : top + height, left : left + width]


def _clusters(image: FloatArray, num_labels: int, radius: int) -> tuple[IntArray, FloatArray]:
    """Labels of a blurred picture by the nearest of its levels (k-means), and their means in the picture itself."""
    smooth = blurred(image, radius)
    levels = np.quantile(smooth, (np.arange(num_labels) + 0.5) / num_labels)
    levels += 1e-9 * np.arange(num_labels)  # apart, where quantiles are equal
    for _ in range(30):
        labels = np.abs(smooth[..., None] - levels).argmin(-1)
        levels = _means(smooth, labels, levels)
    return labels, _means(image, labels, levels)


def _means(image: FloatArray, labels: IntArray, levels: FloatArray) -> FloatArray:
    """The mean of every label's pixels in rising order; the old level where a label has none."""
    count = np.bincount(labels.reshape(-1), minlength=len(levels))
    total = np.bincount(labels.reshape(-1), weights=image.reshape(-1), minlength=len(levels))
    return np.sort(np.where(count > 0, total / np.maximum(count, 1), levels))


def _noise_fit(
    fit: Fit, image: FloatArray, labels: IntArray, variance: float | None, flips: bool, data_weight: float | None
) -> Fit:
    """The data weight and the share of outliers that the residuals of labels stand for.

    A picture of two values has half the log-odds of a flip as its weight. Otherwise the residuals are a mixture of a
    normal distribution, of the variance given if any, and of any gray value, by EM.
    """
    squares = (image - fit.levels[labels]).reshape(-1) ** 2
    if flips:
        share = min(max(float((squares > 0.0).mean()), 1e-4), 0.45)
        weight = 0.5 * math.log((1.0 - share) / share) / _step(fit.levels) ** 2
        return replace(fit, data_weight=weight if data_weight is None else data_weight)
    outliers = 0.05
    known = variance if data_weight is None else 1.0 / (4.0 * max(data_weight, 1e-9))
    spread = float(np.median(squares) / 0.455) if known is None else known  # the median of a squared normal is 0.455
    for _ in range(20):
        spread = max(spread, LEAST_NOISE**2)
        near = (1.0 - outliers) * np.exp(-squares / (2.0 * spread)) / math.sqrt(2.0 * math.pi * spread)
        sound = near / (near + outliers + 1e-300)
        outliers = min(max(1.0 - float(sound.mean()), 1e-4), 0.5)
        if known is None:
            spread = float((sound * squares).sum() / max(sound.sum(), 1e-9))
    weight = 1.0 / (4.0 * max(spread, LEAST_NOISE**2)) if data_weight is None else data_weight
    return replace(fit, data_weight=weight, outliers=outliers)


def _draw(model: MarkovRandomField, labels: IntArray, seed: int) -> IntArray:
    """Labels a few sweeps of Gibbs sampling later."""
    from fastmix.chains.cpu import CpuChains

    chains = CpuChains(model.structure, num_chains=1, seed=seed, num_threads=1, forbidden=False, steady=False)
    chains.set_states(labels.reshape(1, -1))
    chains.load(model.parameters, [[1.0]])
    chains.sweep(SWEEPS_PER_ROUND)
    return np.asarray(chains.get_states(), dtype=np.int64).reshape(labels.shape)


def best_coupling(labels: IntArray, table: FloatArray) -> float:
    """The coupling of largest pseudo-likelihood of labels, for scores ``2 coupling table`` of neighbors."""
    scores = np.zeros((*labels.shape, len(table)))
    scores[1:] += table[labels[:-1]]
    scores[:-1] += table[labels[1:]]
    scores[:, 1:] += table[labels[:, :-1]]
    scores[:, :-1] += table[labels[:, 1:]]
    flat = 2.0 * scores.reshape(-1, len(table))
    own = np.take_along_axis(flat, labels.reshape(-1, 1), axis=1)[:, 0].mean()
    low = 0.0
    high = LARGEST_COUPLING
    for _ in range(30):  # the derivative falls: pseudo-likelihood is concave
        middle = 0.5 * (low + high)
        weights = np.exp(middle * (flat - flat.max(axis=1, keepdims=True)))
        expected = float(((weights * flat).sum(axis=1) / weights.sum(axis=1)).mean())
        if own > expected:
            low = middle
        else:
            high = middle
    return high
