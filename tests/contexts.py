"""Contexts and clocks for tests of what works within a call, without the call."""

from __future__ import annotations

from typing import Any

from fastmix._clock import Clock
from fastmix._context import Context

__all__ = ["Ended", "context_of"]


def context_of(seed: int = 0, limit: float | None = None, **fields: Any) -> Context:
    """The context of a call with a seed and perhaps a time limit in seconds."""
    fields.setdefault("clock", Clock(limit))
    return Context("test", seed, **fields)


class Ended(Clock):
    """A clock whose limit has passed after it was asked a number of times."""

    def __init__(self, questions: int) -> None:
        super().__init__(1.0)
        self.questions = questions

    def past(self, share: float = 1.0) -> bool:
        self.questions -= 1
        return self.questions < 0
