"""Log Z as a function of the parameters: its gradient, and products with its Hessian."""

from __future__ import annotations

from fastmix.gradients.log_z import LogZResult, log_z
from fastmix.gradients.partition import LogPartition

__all__ = ["LogPartition", "LogZResult", "log_z"]
