"""Photographs with noise, and the truth about their posterior."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import require
from fastmix.denoising import add_noise, anneal, binarise, denoising_model, load_image
from fastmix.denoising.images import PICTURES, resize
from fastmix.denoising.posterior import as_grey
from fastmix.errors import FormatError
from fastmix.experiments.plan import Case, Experiment, Settings, derive_seed
from fastmix.model import MarkovRandomField

__all__ = ["decode_map", "encode_map", "load_photographs", "photograph_case", "photograph_cases", "photograph_instance"]

# Photographs that are part of the scikit-image package itself, so that nothing is downloaded.
_CARRIED = ("astronaut", "brick", "camera", "chelsea", "clock", "coffee", "coins", "gravel", "moon", "rocket")
_SIZE, _QUICK_SIZE = (120, 80), (60, 40)
# Chains, steps and sweeps of the truth.
_EFFORT = {"num_populations": 2, "num_chains": 64, "num_steps": 150, "sweeps_per_step": 16}
_QUICK_EFFORT = {"num_populations": 2, "num_chains": 16, "num_steps": 75, "sweeps_per_step": 16}


def photograph_cases(experiment: Experiment, settings: Settings) -> list[Case]:
    """One case for every photograph; more trials than photographs do not make more."""
    size, effort = (_QUICK_SIZE, _QUICK_EFFORT) if settings.quick else (_SIZE, _EFFORT)
    pictures = load_photographs(settings.images, size, experiment.num_trials(settings))
    return [photograph_case(*picture, trial, settings.seed, effort) for trial, picture in enumerate(pictures)]


def photograph_case(name: str, clean: BoolArray, trial: int, seed: int, effort: Mapping[str, int]) -> Case:
    """The case of a black-and-white picture; its pixels travel with it, so that workers need no files."""
    rows, cols = clean.shape
    bits = np.packbits(clean).tobytes()
    digest = hashlib.sha256(bits).hexdigest()[:16]
    parameters = {"image": name, "rows": rows, "cols": cols, "pixels": digest, "truth": dict(effort)}
    return Case("photograph", trial, parameters, seed, bits)


def load_photographs(folder: str | None, size: tuple[int, int], most: int) -> list[tuple[str, BoolArray]]:
    """Names and photographs of a folder, or of scikit-image, of a size or turned, black and white at their mean."""
    if folder is None:
        images = _carried(most)
    else:
        if not os.path.isdir(folder):
            raise ValueError(f"images must be a folder of photographs, got {folder!r}")
        names = sorted(name for name in os.listdir(folder) if name.lower().endswith(PICTURES))
        if not names:
            raise ValueError(f"images must be a folder with {', '.join(PICTURES)} files, got {folder!r} without any")
        images = [(os.path.splitext(name)[0], load_image(os.path.join(folder, name))) for name in names[:most]]
    return [(name, binarise(_fit(image, size))) for name, image in images]


def _carried(most: int) -> list[tuple[str, FloatArray]]:
    data = require("skimage.data", extra="image", purpose="photographs")
    found = []
    for name in _CARRIED:
        try:
            found.append((name, as_grey(getattr(data, name)())))
        except (AttributeError, OSError, ModuleNotFoundError, ValueError):  # not in this version: it would be fetched
            continue
        if len(found) == most:
            break
    if not found:
        raise FormatError("scikit-image carries none of the photographs: give a folder of images")
    return found


def _fit(image: FloatArray, size: tuple[int, int]) -> FloatArray:
    """The largest part in the middle with the proportions of a width and height, turned if it is upright, scaled."""
    rows, cols = image.shape
    width, height = (max(size), min(size)) if cols >= rows else (min(size), max(size))
    part_cols = min(cols, round(rows * width / height))
    part_rows = min(rows, round(cols * height / width))
    top, left = (rows - part_rows) // 2, (cols - part_cols) // 2
    return resize(image[top : top + part_rows, left : left + part_cols], height, width)


def photograph_instance(case: Case) -> tuple[MarkovRandomField, FloatArray, dict[str, Any]]:
    """The posterior of a noisy photograph, its marginals by annealed populations of Swendsen-Wang chains, and facts.

    Chains of Swendsen-Wang from different starts do not meet on these posteriors, however long they run, so the truth
    comes from population annealing with the same sweeps; how far two independent populations differ says how far it
    can be trusted, and is in the facts as ``truth_error``.
    """
    p = case.parameters
    rows, cols = p["rows"], p["cols"]
    bits = np.unpackbits(np.frombuffer(case.payload, dtype=np.uint8), count=rows * cols)
    clean = bits.reshape(rows, cols).astype(bool)
    observed = add_noise(clean, seed=derive_seed(case.seed, "noise", p["image"], case.trial))
    model = denoising_model(observed)
    truth = anneal(model, seed=case.derive_seed("truth"), num_threads=1, **p["truth"])
    marginals = truth.node_marginals
    maps = {"clean": clean, "observed": observed, "truth": marginals[1::2].reshape(rows, cols)}
    facts = {
        "truth_error": truth.stats["mean_std_error"],
        "maps": {name: encode_map(values) for name, values in maps.items()},
    }
    return model, marginals, facts


def encode_map(values: NDArray[Any]) -> str:
    """Grey values (rows, cols) from 0 to 1 as text: 16 shades, compressed."""
    shades = np.round(15.0 * np.asarray(values, dtype=np.float64)).astype(np.uint8).reshape(-1)
    return base64.b64encode(zlib.compress(shades.tobytes(), 9)).decode()


def decode_map(text: str, rows: int, cols: int) -> FloatArray:
    """Grey values (rows, cols) from text of :func:`encode_map`."""
    shades = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return shades.reshape(rows, cols) / 15.0
