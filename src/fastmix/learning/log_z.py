"""Log Z of a model for data: exact where that is feasible, otherwise by annealing there and back, with an error."""

from __future__ import annotations

from fastmix._context import Context
from fastmix.errors import ResourceError
from fastmix.learning.annealed_log_z import annealed_log_z
from fastmix.learning.dataset import Dataset
from fastmix.learning.exact_log_z import LogZ, exact_log_z, obstacle, without_idle_tables
from fastmix.model import MarkovRandomField

__all__ = ["log_normalizer"]


def log_normalizer(
    model: MarkovRandomField,
    data: Dataset,
    context: Context,
    *,
    method: str = "auto",
    tol: float = 0.01,
    num_chains: int = 1024,
) -> LogZ:
    """Log Z of a model: exact where that is feasible, else by annealing, or a lower bound if the time ends before."""
    model = without_idle_tables(model)
    if method != "annealing" or not model.num_edges:
        exact = exact_log_z(model, context.clock, asked=method == "exact")
        if exact is not None:
            return exact
    what = obstacle(model)
    if what is not None:
        why = "" if method == "annealing" else ", which is too large"
        raise ResourceError(f"log Z of a model with {what} needs exact inference{why}")
    return annealed_log_z(model, data, tol, num_chains, context)
