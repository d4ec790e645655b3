"""Log Z, marginals and projections as functions that networks are trained through (extra ``torch``)."""

from __future__ import annotations

from fastmix.torch.functions import join, log_weight, log_z, marginals
from fastmix.torch.projecting import project

__all__ = ["join", "log_weight", "log_z", "marginals", "project"]
