"""``denoise()``: an image in, marginals and labels out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_threads, choose_seed
from fastmix._clock import Clock, Report
from fastmix.denoising.posterior import COUPLING, DATA_WEIGHT, NOISE, add_noise, as_grey, binarise, denoising_model
from fastmix.errors import Interrupted
from fastmix.methods.base import METHODS, Method, find_method, make_method
from fastmix.methods.inference import infer
from fastmix.results import InferenceResult, jsonable

__all__ = ["DEFAULT_METHOD", "METHODS", "DenoiseResult", "denoise"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

DEFAULT_METHOD = "annealed"
_LARGE = 50_000  # pixels from which fewer chains take fewer steps
_UPDATES = 3e8  # of single pixels: about 10 seconds on one core


@dataclass(frozen=True, eq=False)
class DenoiseResult:
    """A picture, its noise removed, and how.

    Attributes
    ----------
    clean : bool array (rows, cols) or None
        The black-and-white picture that noise was added to; None when the picture came with its noise.
    observed : float array (rows, cols)
        Grey values X from 0 to 1.
    marginals : float array (rows, cols)
        Probability that a pixel is white.
    labels : bool array (rows, cols)
        Most probable value of every pixel, white as True.
    inference : InferenceResult
        The answer behind, with status and error bars where the method has them.
    stats : mapping
        Seconds and settings.
    provenance : mapping
        As of any result; the seed is that of the noise and of the sampler.
    """

    clean: BoolArray | None
    observed: FloatArray
    marginals: FloatArray
    labels: BoolArray
    inference: InferenceResult
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows, cols = self.observed.shape
        wrong = "" if self.error_rate is None else f", error_rate={self.error_rate:.4f}"
        method, status = self.inference.method, str(self.inference.status)
        return f"DenoiseResult({cols}x{rows} pixels, method={method!r}, status={status!r}{wrong})"

    @property
    def error_rate(self) -> float | None:
        """Share of pixels whose label differs from the clean picture, where that is known."""
        return None if self.clean is None else float(np.mean(self.labels != self.clean))

    def to_dict(self) -> dict[str, Any]:
        """The facts without the pixels as plain data, the shape of the command line's JSON."""
        rows, cols = self.observed.shape
        return {
            "method": self.inference.method,
            "status": str(self.inference.status),
            "width": cols,
            "height": rows,
            "white": float(self.labels.mean()),
            "error_rate": jsonable(self.error_rate),
            "mean_uncertainty": float(np.minimum(self.marginals, 1.0 - self.marginals).mean()),
            "seconds": self.stats.get("seconds"),
            "stats": jsonable({**self.inference.stats, **self.stats}),
            "provenance": jsonable(dict(self.provenance)),
        }


def denoise(
    image: ArrayLike,
    *,
    noise: float | None = NOISE,
    coupling: float = COUPLING,
    data_weight: float = DATA_WEIGHT,
    method: str | Method = DEFAULT_METHOD,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    **options: Any,
) -> DenoiseResult:
    """The probable black-and-white picture behind a noisy one.

    Parameters
    ----------
    image : array (rows, cols) or (rows, cols, 3)
        Of 8 or 16 bits, or numbers; see :func:`fastmix.denoising.load_image` for files.
    noise : float or None
        The image is made black and white at its mean and noise of this exponent added, as in the paper (see
        :func:`fastmix.denoising.add_noise`). None takes the image as it is: noisy, with grey values from 0 to 1.
    coupling, data_weight : float
        The model, see :func:`fastmix.denoising.denoising_model`; the paper's by default. A picture with less noise than
        the paper's deserves a larger ``data_weight``: half the logarithm of the odds that a white pixel's grey value
        gives is best.
    method : str or Method
        ``annealed`` (see :func:`fastmix.denoising.anneal`), or one of :func:`fastmix.infer`.
    seed : int, optional
        Drawn and returned when not given.
    num_threads, time_limit
        Of the method, where it has them.
    progress : "auto", None or callable
        See :func:`fastmix.infer`.
    **options
        Of the method, such as ``num_chains``; see :func:`fastmix.infer`.

    Returns
    -------
    DenoiseResult

    Raises
    ------
    ValueError
        If the image, the method or an option is not valid.
    ResourceError
        If the image is too large.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the picture so far.

    Notes
    -----
    With the paper's coupling the posterior of a photograph has regions that are frozen for every sampler that starts at
    random: chains of Gibbs sampling and of Swendsen-Wang do not meet. Annealed populations are the default because they
    came closest to the posterior in equal time (see :func:`fastmix.denoising.anneal`).

    Examples
    --------
    >>> picture = np.zeros((24, 24))
    >>> picture[:, 12:] = 1.0
    >>> result = denoise(picture, noise=3.0, data_weight=1.0, seed=0)
    >>> result.labels.shape, result.error_rate < 0.05
    ((24, 24), True)
    """
    clock = Clock(time_limit)
    if method == DEFAULT_METHOD and "burn_in" in options:
        raise ValueError("burn_in must not be given with method 'annealed', which anneals instead")
    kind = type(method) if isinstance(method, Method) else find_method(method)
    grey = as_grey(image)
    seed = choose_seed(seed)
    check_threads(num_threads)
    clean = None if noise is None else binarise(grey)
    observed = grey if clean is None or noise is None else add_noise(clean, noise=noise, seed=seed)
    model = denoising_model(observed, coupling=coupling, data_weight=data_weight)
    given = {name: value for name, value in options.items() if value is not None}
    if method == DEFAULT_METHOD:
        given = {**_effort(model.num_variables), **given}
    shared: dict[str, Any] = {"time_limit": time_limit, "progress": progress}
    shared |= {"seed": seed if kind.seeded else None, "num_threads": num_threads if kind.threaded else None}

    def result(inference: InferenceResult) -> DenoiseResult:
        marginals = np.clip(inference.node_marginals[1::2].reshape(grey.shape), 0.0, 1.0)
        settings = {"noise": noise, "coupling": coupling, "data_weight": data_weight}
        origin = {**inference.provenance, "seed": seed}
        return DenoiseResult(
            clean, observed, marginals, marginals > 0.5, inference, {**settings, **clock.stats()}, origin
        )

    try:
        return result(infer(model, method=make_method(method, given), **shared))
    except Interrupted as stop:
        raise Interrupted(str(stop), None if stop.result is None else result(stop.result)) from None


def _effort(num_pixels: int) -> dict[str, int]:
    """Chains, steps and sweeps of the annealing that take seconds whatever the size of the picture."""
    chains, steps = (8, 150) if num_pixels <= _LARGE else (4, 75)
    # Two populations, and half as many sweeps again at the end.
    sweeps = round(_UPDATES / (1.5 * 2 * chains * steps * max(1, num_pixels)))
    return {"num_populations": 2, "num_chains": chains, "num_steps": steps, "sweeps_per_step": min(8, max(1, sweeps))}
