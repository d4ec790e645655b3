"""Many questions of one model: prepare it once, then ask for the answers of rows of evidence."""

from __future__ import annotations

from fastmix.queries.answers import RowAnswers
from fastmix.queries.api import impute, predict
from fastmix.queries.prepare import PreparedModel, prepare

__all__ = ["PreparedModel", "RowAnswers", "impute", "predict", "prepare"]
