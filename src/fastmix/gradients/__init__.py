"""Log Z as a function of the parameters: its gradient, and products with its Hessian."""

from __future__ import annotations

from fastmix.gradients.bethe import BethePartition
from fastmix.gradients.log_z import LogZResult, log_z
from fastmix.gradients.partition import LogPartition, Partition
from fastmix.gradients.sampled import SampledPartition

__all__ = ["BethePartition", "LogPartition", "LogZResult", "Partition", "SampledPartition", "log_z"]
