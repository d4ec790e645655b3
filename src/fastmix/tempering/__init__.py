"""Replica exchange: marginals and log Z of models in which single chains get stuck."""

from __future__ import annotations

from fastmix.tempering.api import temper
from fastmix.tempering.result import TemperResult

__all__ = ["TemperResult", "temper"]
