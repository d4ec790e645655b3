"""Contexts for tests of what works within a call, without the call."""

from __future__ import annotations

from typing import Any

from fastmix._clock import Clock
from fastmix._context import Context

__all__ = ["context_of"]


def context_of(seed: int = 0, limit: float | None = None, **fields: Any) -> Context:
    """The context of a call with a seed and perhaps a time limit in seconds."""
    fields.setdefault("clock", Clock(limit))
    return Context("test", seed, **fields)
