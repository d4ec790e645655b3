"""Proven bounds on log Z and on marginals that need no mixing."""

from __future__ import annotations

from fastmix.bounds.api import BracketResult, bracket

__all__ = ["BracketResult", "bracket"]
