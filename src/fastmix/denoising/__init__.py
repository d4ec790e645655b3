"""Clean pictures from noisy ones: an image in, gray values, marginals and labels out."""

from __future__ import annotations

from fastmix.denoising.denoise import DEFAULT_METHOD, METHODS, DenoiseResult, denoise
from fastmix.denoising.images import load_image, parse_size, write_comparison, write_picture
from fastmix.denoising.posterior import COUPLING, DATA_WEIGHT, NOISE, add_noise, binarize, denoising_model, label_model
from fastmix.sampling.anneal import AnnealedResult, anneal

__all__ = [
    "COUPLING", "DATA_WEIGHT", "DEFAULT_METHOD", "METHODS", "NOISE", "AnnealedResult", "DenoiseResult", "add_noise",
    "anneal", "binarize", "denoise", "denoising_model", "label_model", "load_image", "parse_size", "write_comparison",
    "write_picture",
]  # fmt: skip
