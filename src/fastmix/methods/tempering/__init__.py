"""Replica exchange: marginals and log Z of models in which single chains get stuck."""

from __future__ import annotations

from fastmix.methods.sample_result import TemperResult
from fastmix.methods.tempering.api import Tempered, temper

__all__ = ["TemperResult", "Tempered", "temper"]
