"""Marginal inference by any method, under one roof."""

from __future__ import annotations

from fastmix.errors import UnfitMethodError
from fastmix.exact import infer_exact
from fastmix.model import Evidence, PairwiseMRF
from fastmix.results import InferenceResult

__all__ = ["METHODS", "infer"]

METHODS = ("exact",)


def infer(
    model: PairwiseMRF,
    *,
    method: str = "exact",
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
) -> InferenceResult:
    """Marginals of every variable, by the method named.

    Parameters
    ----------
    model : PairwiseMRF
    method : {"exact"}
        ``exact`` is the junction tree, for models of small treewidth.
    evidence : mapping, optional
        Observed states by variable, numbers or names. The answer still lists every variable.
    memory_limit : float, optional
        Bytes; half of the memory that is free by default.

    Returns
    -------
    InferenceResult

    Raises
    ------
    ResourceError
        If the method needs more memory than the limit.
    ModelError
        If the evidence has probability zero.

    Examples
    --------
    >>> model = PairwiseMRF.ising([(0, 1)], coupling=1.0, field=[0.5, 0.0])
    >>> infer(model, evidence={0: 1}).marginal(1).round(4).tolist()
    [0.1192, 0.8808]
    """
    if method == "exact":
        return infer_exact(model, evidence=evidence, memory_limit=memory_limit)
    raise UnfitMethodError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
