"""Where chains run: on a GPU if one was asked for and takes them, else on the CPU; and the texts that say so."""

from __future__ import annotations

from fastmix.errors import ResourceError, UnfitMethodError

__all__ = ["GPU_REFUSALS", "device_of", "place_after_refusal", "place_on_gpu"]

#: What chains on a GPU raise where there is none, or where it does not take the model.
GPU_REFUSALS = (UnfitMethodError, ResourceError, ValueError)


def place_on_gpu(device: str) -> str:
    """The text for chains on a GPU of this name."""
    return f"cuda ({device})"


def place_after_refusal(backend: str, refusal: Exception) -> str:
    """The text for chains on the CPU that a GPU has refused; with the backend ``cuda`` the refusal is raised."""
    if backend == "cuda":
        raise refusal
    return f"cpu ({refusal})"


def device_of(place: str) -> str:
    """The name of the device in a text that says where chains run.

    Examples
    --------
    >>> device_of("cuda (NVIDIA H200)"), device_of("cpu (no CUDA device can be used)")
    ('NVIDIA H200', 'cpu')
    """
    return "cpu" if place.startswith("cpu") else place.removeprefix("cuda (").removesuffix(")")
