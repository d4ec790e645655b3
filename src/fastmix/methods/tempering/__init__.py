"""Replica exchange: marginals and log Z of models in which single chains get stuck."""

from __future__ import annotations

from fastmix.methods.tempering.api import Tempered, temper
from fastmix.methods.tempering.result import TemperResult

__all__ = ["TemperResult", "Tempered", "temper"]
