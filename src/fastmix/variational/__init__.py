"""Variational baselines: naive mean field and loopy belief propagation."""

from __future__ import annotations

from fastmix.variational.loopy_bp import LoopyBPResult, loopy_bp
from fastmix.variational.mean_field import MeanFieldResult, mean_field

__all__ = ["LoopyBPResult", "MeanFieldResult", "loopy_bp", "mean_field"]
