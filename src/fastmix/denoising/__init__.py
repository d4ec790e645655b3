"""Black-and-white pictures from noisy ones: an image in, marginals and labels out."""

from __future__ import annotations

from fastmix.denoising.denoise import DEFAULT_METHOD, METHODS, DenoiseResult, denoise
from fastmix.denoising.images import load_image, parse_size, write_comparison
from fastmix.denoising.posterior import COUPLING, DATA_WEIGHT, NOISE, add_noise, binarise, denoising_model
from fastmix.methods.annealed import AnnealedResult, anneal

__all__ = [
    "COUPLING",
    "DATA_WEIGHT",
    "DEFAULT_METHOD",
    "METHODS",
    "NOISE",
    "AnnealedResult",
    "DenoiseResult",
    "add_noise",
    "anneal",
    "binarise",
    "denoise",
    "denoising_model",
    "load_image",
    "parse_size",
    "write_comparison",
]
