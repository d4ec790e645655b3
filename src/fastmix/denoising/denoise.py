"""``denoise()``: a noisy picture in, a clean one with its marginals and labels out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import check_count
from fastmix._clock import Ending, Report
from fastmix._context import Context, open_context
from fastmix.denoising.fitting import Fit, fit_picture
from fastmix.denoising.posterior import (
    COUPLING,
    DATA_WEIGHT,
    add_noise,
    as_gray,
    binarize,
    check_gray,
    check_size,
    check_strength,
)
from fastmix.denoising.tuning import (
    CHAINS_AND_STEPS,
    CHAINS_AND_STEPS_OF_LARGE,
    LARGE_PICTURE,
    MAX_SWEEPS_PER_STEP,
    MESSAGE_OPTIONS,
    PIXEL_UPDATES,
)
from fastmix.marginals import InferenceResult
from fastmix.method import METHODS, Method, answer, make_method, open_method
from fastmix.model import MarkovRandomField
from fastmix.results import Result

__all__ = ["DEFAULT_METHOD", "METHODS", "DenoiseResult", "denoise"]

DEFAULT_METHOD = "annealed"


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DenoiseResult(Result):
    """A picture, its noise removed, and how."""

    clean: BoolArray | None  #: (rows, cols), the black-and-white picture that noise was added to, if it was
    observed: FloatArray  #: (rows, cols), gray values X from 0 to 1
    #: (rows, cols), the restored gray values: black and white for two labels, the levels of the labels for those asked
    #: for, and expectations between levels for a photograph.
    picture: FloatArray
    marginals: FloatArray  #: (rows, cols), probability of white, or (rows, cols, K), of every one of K > 2 labels
    labels: NDArray[Any]  #: (rows, cols), most probable label of every pixel by itself; of two, white as True
    levels: FloatArray  #: (K,), gray values of the labels
    inference: InferenceResult  #: the answer behind, with error bars where the method has them

    def __repr__(self) -> str:
        rows, cols = self.observed.shape
        wrong = "" if self.error_rate is None else f", error_rate={self.error_rate:.4f}"
        method = self.inference.method
        status = str(self.inference.status)
        what = f"{cols}x{rows} pixels, {len(self.levels)} labels"
        return f"DenoiseResult({what}, method={method!r}, status={status!r}{wrong})"

    @property
    def error_rate(self) -> float | None:
        """Share of pixels whose label differs from the clean picture, where that is known."""
        return None if self.clean is None else float(np.mean(self.labels != self.clean))

    @property
    def advice(self) -> str:
        """What the status of the answer behind means, and what to do next."""
        return self.inference.advice

    def title(self) -> str:
        """The method behind."""
        return f"denoise ({self.inference.method})"

    def facts(self) -> dict[str, str]:
        """The size, the settings and, where the clean picture is known, the share of wrong pixels."""
        rows, cols = self.observed.shape
        known = {"pixels": f"{cols}x{rows}", "labels": str(len(self.levels))}
        for name in ("coupling", "data_weight"):
            known[name.replace("_", " ")] = f"{self.stats[name]:.4g}"
        if self.error_rate is not None:
            known["error rate"] = f"{self.error_rate:.4f}"
        return known

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name, with a row for every pixel: where it is, what was seen, and what is."""
        rows, cols = self.observed.shape
        return {
            "row": np.repeat(np.arange(rows), cols),
            "column": np.tile(np.arange(cols), rows),
            "observed": self.observed.ravel(),
            "restored": self.picture.ravel(),
            "label": self.labels.ravel().astype(int),
        }

    def plot(self, axes: Any = None) -> Any:
        """The restored picture (Matplotlib, extra ``plot``); the axes come back."""
        axes = super().plot(axes)
        axes.imshow(self.picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
        axes.set_axis_off()
        return axes

    def contents(self) -> dict[str, Any]:
        """The facts and settings; the pixels are left out."""
        best = np.maximum(self.marginals, 1.0 - self.marginals) if self.marginals.ndim == 2 else self.marginals.max(-1)
        return {
            "method": self.inference.method,
            "shape": self.observed.shape,
            "num_labels": len(self.levels),
            "levels": self.levels,
            "error_rate": self.error_rate,
            "coupling": self.stats["coupling"],
            "data_weight": self.stats["data_weight"],
            "white": float(self.picture.mean()),
            "mean_uncertainty": float(1.0 - best.mean()),
        }


def denoise(
    image: ArrayLike,
    *,
    num_labels: int | None = None,
    noise: float | None = None,
    coupling: float | None = None,
    data_weight: float | None = None,
    method: str | Method | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    backend: Literal["cpu", "cuda", "auto"] = "cpu",
    progress: Report = "auto",
    **options: Any,
) -> DenoiseResult:
    """The probable picture behind a noisy one.

    Parameters
    ----------
    image : array (rows, cols) or (rows, cols, 3)
        Gray values from 0 to 1, or of 8 or 16 bits; see :func:`fastmix.denoising.load_image` for files.
    num_labels : int, optional
        Number of gray levels of the result. By default 2 for a picture that is black and white but for its noise, and
        otherwise a scale of levels with expectations between them, as a photograph needs.
    noise : float, optional
        The paper's experiment instead: the image is made black and white at its mean and noise of this exponent added
        (see :func:`fastmix.denoising.add_noise`; 1.25 there), and coupling and data weight are the paper's by default.
    coupling, data_weight : float, optional
        How strongly neighbors want to agree, and how much a pixel believes its gray value: see
        :func:`fastmix.denoising.label_model`. Both are learnt from the picture by default.
    method : str or Method, optional
        One of :func:`fastmix.infer`. By default ``annealed`` (see :func:`fastmix.denoising.anneal`) for two labels and
        for those asked for, ``loopy-bp`` for a photograph.
    time_limit : float, optional
        Seconds for all, 60 by default; learning the settings ends after a fifth of them.
    seed, num_threads, backend, progress, **options
        As for :func:`fastmix.infer`; options are those of the method.

    Returns
    -------
    DenoiseResult
        With the status of the method, and in ``stats["guarantee"]`` what that promises: ``ok`` after ``loopy-bp`` says
        that its messages settled, and nothing about how far its probabilities are off.

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
    gray = as_gray(image)
    coupling = None if coupling is None else check_strength("coupling", coupling)
    data_weight = None if data_weight is None else check_strength("data_weight", data_weight)
    if num_labels is not None:
        num_labels = check_count("num_labels", num_labels, least=2)
        rows, cols = gray.shape
        check_size(rows, cols, num_labels)
    if noise is not None and num_labels not in (None, 2):
        raise ValueError(
            f"num_labels must be 2 with noise, which is added to a black-and-white picture, got {num_labels}"
        )
    asked = {"num_labels": num_labels, "noise": noise, "coupling": coupling, "data_weight": data_weight}
    with open_context(
        "denoise", seed=seed, time_limit=time_limit, num_threads=num_threads, progress=progress, options=asked
    ) as context:
        picture = _Picture(gray, num_labels, noise, coupling, data_weight, context)
        chosen = _choose_method(method, picture, options)
        with Ending() as ending:
            return context.finish(picture.result(_infer(picture.model, chosen, backend, context)))
        if ending.result is None:
            context.raise_nothing(ending.by)
        return context.finish(picture.result(ending.result))


def _infer(model: MarkovRandomField, method: Method, backend: str, context: Context) -> InferenceResult:
    """The answer of a method, by the clock of the context: a default limit of it is no plan that chains fill."""
    with open_method(
        method, model, evidence=None, edge_marginals=None, log_z=False, backend=backend, executor=None, certify=True,
        seed=context.seed_of("inference"), num_threads=context.num_threads, progress=context.clock.listener,
    ) as inner:  # fmt: skip
        inner = replace(inner, clock=context.clock.part(1.0, method.name))
        return inner.finish(answer(method, inner))


class _Picture:
    """What is observed of a picture, what it shows if that is known, and the posterior of its labels."""

    def __init__(
        self,
        gray: FloatArray,
        num_labels: int | None,
        noise: float | None,
        coupling: float | None,
        data_weight: float | None,
        context: Context,
    ) -> None:
        self.noise = noise
        self.clean: BoolArray | None = None
        if noise is None:
            self.observed = check_gray(gray)
            self.fit = fit_picture(self.observed, num_labels, context, coupling=coupling, data_weight=data_weight)
        else:
            self.clean = binarize(gray)
            self.observed = add_noise(self.clean, noise=noise, seed=context.seed_of("noise"))
            weights = (
                COUPLING if coupling is None else coupling,
                DATA_WEIGHT if data_weight is None else data_weight,
            )
            self.fit = Fit(np.array([0.0, 1.0]), *weights, None, 0.0, 0.0, False)
        self.model = self.fit.model(self.observed)

    def result(self, inference: InferenceResult) -> DenoiseResult:
        """The picture that marginals of the labels stand for."""
        num_labels = len(self.fit.levels)
        shape = (*self.observed.shape, num_labels)
        marginals = np.clip(inference.node_marginals.reshape(shape), 0.0, 1.0)
        binary = num_labels == 2
        return DenoiseResult(
            model=self.model,
            status=inference.status,
            clean=self.clean,
            observed=self.observed,
            picture=self.fit.picture(self.observed, marginals),
            marginals=marginals[..., 1] if binary else marginals,
            labels=marginals[..., 1] > 0.5 if binary else marginals.argmax(axis=-1),
            levels=self.fit.levels,
            inference=inference,
            stats={
                **inference.stats,
                "noise": self.noise,
                "coupling": self.fit.coupling,
                "data_weight": self.fit.data_weight,
                "outliers": self.fit.outliers,
                "stopped_by": inference.stats["stopped_by"],
            },
            provenance={
                "device": inference.provenance["device"],
                "options": {
                    name: value for name, value in inference.provenance["options"].items() if name != "time_limit"
                },
            },
        )


def _choose_method(method: str | Method | None, picture: _Picture, options: Mapping[str, Any]) -> Method:
    """The method that was asked for, or the one that suits the picture, with its options."""
    wanted: str | Method = method if method is not None else "loopy-bp" if picture.fit.smooth else DEFAULT_METHOD
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(wanted, str) and wanted == DEFAULT_METHOD:
        given = {**_effort(picture.model.num_variables), **given}
    elif method is None:
        given = {**MESSAGE_OPTIONS, **given}
    return make_method(wanted, given)


def _effort(num_pixels: int) -> dict[str, int]:
    """Chains, steps and sweeps of the annealing that take seconds whatever the size of the picture."""
    num_chains, num_steps = CHAINS_AND_STEPS if num_pixels <= LARGE_PICTURE else CHAINS_AND_STEPS_OF_LARGE
    num_populations = 2
    # Half as many sweeps again are made at the end.
    updates_per_sweep = 1.5 * num_populations * num_chains * num_steps * max(1, num_pixels)
    sweeps_per_step = min(MAX_SWEEPS_PER_STEP, max(1, round(PIXEL_UPDATES / updates_per_sweep)))
    return {
        "num_populations": num_populations,
        "num_chains": num_chains,
        "num_steps": num_steps,
        "sweeps_per_step": sweeps_per_step,
    }
