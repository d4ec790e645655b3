"""``denoise()``: a noisy picture in, a clean one with its marginals and labels out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _show
from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import check_count, check_threads, choose_seed
from fastmix._clock import Clock, Report, listening
from fastmix.denoising.fitting import Fit, fit_picture
from fastmix.denoising.posterior import (
    COUPLING,
    DATA_WEIGHT,
    add_noise,
    as_grey,
    binarise,
    check_grey,
    check_size,
    check_strength,
)
from fastmix.errors import Interrupted
from fastmix.methods.base import METHODS, Method, make_method
from fastmix.methods.inference import infer
from fastmix.results import InferenceResult, Status, as_plain, jsonable

__all__ = ["DEFAULT_METHOD", "METHODS", "DenoiseResult", "denoise"]

DEFAULT_METHOD = "annealed"
_MESSAGES = {"tol": 0.01, "max_iter": 60}  # enough for a picture of 8 bits
_LARGE = 50_000  # pixels from which fewer chains take fewer steps
_UPDATES = 3e8  # of single pixels: about 10 seconds on one core


@dataclass(frozen=True, eq=False)
class DenoiseResult:
    """A picture, its noise removed, and how."""

    clean: BoolArray | None  #: (rows, cols), the black-and-white picture that noise was added to, if it was
    observed: FloatArray  #: (rows, cols), grey values X from 0 to 1
    #: (rows, cols), the restored grey values: black and white for two labels, the levels of the labels for those asked
    #: for, and expectations between levels for a photograph.
    picture: FloatArray
    marginals: FloatArray  #: (rows, cols), probability of white, or (rows, cols, K), of every one of K > 2 labels
    labels: NDArray[Any]  #: (rows, cols), most probable label of every pixel by itself; of two, white as True
    levels: FloatArray  #: (K,), grey values of the labels
    inference: InferenceResult  #: the answer behind, with status and error bars where the method has them
    #: Seconds, what ended the method, and settings: ``coupling``, ``data_weight``, ``outliers``, as given or learnt.
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)  #: the seed is that of the noise and of the sampler

    def __repr__(self) -> str:
        rows, cols = self.observed.shape
        wrong = "" if self.error_rate is None else f", error_rate={self.error_rate:.4f}"
        method, status = self.inference.method, str(self.inference.status)
        what = f"{cols}x{rows} pixels, {len(self.levels)} labels"
        return f"DenoiseResult({what}, method={method!r}, status={status!r}{wrong})"

    @property
    def error_rate(self) -> float | None:
        """Share of pixels whose label differs from the clean picture, where that is known."""
        return None if self.clean is None else float(np.mean(self.labels != self.clean))

    @property
    def status(self) -> Status:
        """How far the answer can be trusted."""
        return self.inference.status

    def plot(self, axes: Any = None) -> Any:
        """The restored picture (Matplotlib, extra ``plot``); the axes come back."""
        axes = _show.new_axes(axes)
        axes.imshow(self.picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_axis_off()
        return axes

    def to_dict(self) -> dict[str, Any]:
        """The facts without the pixels as plain data, the shape of the command line's JSON."""
        rows, cols = self.observed.shape
        best = np.maximum(self.marginals, 1.0 - self.marginals) if self.marginals.ndim == 2 else self.marginals.max(-1)
        facts = {
            "method": self.inference.method, "width": cols, "height": rows, "num_labels": len(self.levels),
            "coupling": self.stats["coupling"], "data_weight": self.stats["data_weight"],
            "white": float(self.picture.mean()), "mean_uncertainty": float(1.0 - best.mean()),
        }  # fmt: skip
        stats = jsonable({**self.inference.stats, **self.stats})
        return {**as_plain(self, "levels error_rate", **facts), "stats": stats}


def denoise(
    image: ArrayLike,
    *,
    labels: int | None = None,
    noise: float | None = None,
    coupling: float | None = None,
    data_weight: float | None = None,
    method: str | Method | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    backend: str | None = None,
    progress: Report = "auto",
    **options: Any,
) -> DenoiseResult:
    """The probable picture behind a noisy one.

    Parameters
    ----------
    image : array (rows, cols) or (rows, cols, 3)
        Grey values from 0 to 1, or of 8 or 16 bits; see :func:`fastmix.denoising.load_image` for files.
    labels : int, optional
        Number of grey levels of the result. By default 2 for a picture that is black and white but for its noise, and
        otherwise a scale of levels with expectations between them, as a photograph needs.
    noise : float, optional
        The paper's experiment instead: the image is made black and white at its mean and noise of this exponent added
        (see :func:`fastmix.denoising.add_noise`; 1.25 there), and coupling and data weight are the paper's by default.
    coupling, data_weight : float, optional
        How strongly neighbors want to agree, and how much a pixel believes its grey value: see
        :func:`fastmix.denoising.label_model`. Both are learnt from the picture by default.
    method : str or Method, optional
        One of :func:`fastmix.infer`. By default ``annealed`` (see :func:`fastmix.denoising.anneal`) for two labels and
        for those asked for, ``loopy-bp`` for a photograph.
    time_limit : float, optional
        Seconds for all; learning the settings ends after a fifth of them.
    seed, num_threads, backend, progress, **options
        As for :func:`fastmix.infer`; options are those of the method.

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

    Examples
    --------
    >>> picture = np.zeros((24, 24))
    >>> picture[:, 12:] = 1.0
    >>> noisy = np.clip(picture + np.random.default_rng(0).normal(scale=0.3, size=picture.shape), 0.0, 1.0)
    >>> result = denoise(noisy, seed=0)
    >>> result.picture.shape, len(result.levels), bool((result.picture != picture).mean() < 0.01)
    ((24, 24), 2, True)
    """
    grey = as_grey(image)
    seed = choose_seed(seed)
    check_threads(num_threads)
    coupling = None if coupling is None else check_strength("coupling", coupling)
    data_weight = None if data_weight is None else check_strength("data_weight", data_weight)
    if labels is not None:
        labels = check_count("labels", labels, least=2)
        rows, cols = grey.shape
        check_size(rows, cols, labels)
    if noise is not None and labels not in (None, 2):
        raise ValueError(f"labels must be 2 with noise, which is added to a black-and-white picture, got {labels}")
    asked = {"labels": labels, "noise": noise, "coupling": coupling, "data_weight": data_weight}
    with listening(progress, "denoise") as listener:
        clock = Clock(time_limit, listener=listener, what="denoise")
        if noise is None:
            clean, observed = None, check_grey(grey)
            fit = fit_picture(observed, labels, seed, coupling=coupling, data_weight=data_weight, clock=clock)
        else:
            clean = binarise(grey)
            observed = add_noise(clean, noise=noise, seed=seed)
            coupling = COUPLING if coupling is None else coupling
            data_weight = DATA_WEIGHT if data_weight is None else data_weight
            fit = Fit(np.array([0.0, 1.0]), coupling, data_weight, None, 0.0, 0.0, False)
        model = fit.model(observed)
        wanted = method if method is not None else "loopy-bp" if fit.smooth else DEFAULT_METHOD
        given = {key: value for key, value in options.items() if value is not None}
        if isinstance(wanted, str) and wanted == DEFAULT_METHOD:
            given = {**_effort(model.num_variables), **given}
        elif method is None:
            given = {**_MESSAGES, **given}
        chosen = make_method(wanted, given)

        def result(inference: InferenceResult) -> DenoiseResult:
            num_labels = len(fit.levels)
            marginals = np.clip(inference.node_marginals.reshape(*grey.shape, num_labels), 0.0, 1.0)
            picture = fit.picture(observed, marginals)
            settings = {"noise": noise, "coupling": fit.coupling, "data_weight": fit.data_weight}
            stats = {**settings, "outliers": fit.outliers, "stopped_by": inference.stats["stopped_by"], **clock.stats()}
            used = {**inference.provenance["options"], **asked, "time_limit": time_limit}
            binary = num_labels == 2
            return DenoiseResult(
                clean, observed, picture, marginals[..., 1] if binary else marginals,
                marginals[..., 1] > 0.5 if binary else marginals.argmax(axis=-1), fit.levels, inference, stats,
                {**inference.provenance, "seed": seed, "options": used},
            )  # fmt: skip

        try:
            answer = infer(
                model, method=chosen, time_limit=clock.rest(), backend=backend, progress=listener,
                seed=seed if chosen.seeded else None, num_threads=num_threads if chosen.threaded else None,
            )  # fmt: skip
            return result(answer)
        except Interrupted as stop:
            raise Interrupted(str(stop), None if stop.result is None else result(stop.result)) from None


def _effort(num_pixels: int) -> dict[str, int]:
    """Chains, steps and sweeps of the annealing that take seconds whatever the size of the picture."""
    chains, steps = (8, 150) if num_pixels <= _LARGE else (4, 75)
    # Two populations, and half as many sweeps again at the end.
    sweeps = round(_UPDATES / (1.5 * 2 * chains * steps * max(1, num_pixels)))
    return {"num_populations": 2, "num_chains": chains, "num_steps": steps, "sweeps_per_step": min(8, max(1, sweeps))}
