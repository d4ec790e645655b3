"""Marginal inference by any method, under one roof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

from fastmix.errors import UnfitMethodError
from fastmix.exact import infer_exact
from fastmix.model import Evidence, PairwiseMRF
from fastmix.results import InferenceResult

__all__ = ["METHODS", "infer"]

METHODS = ("exact", "gibbs", "swendsen-wang")


def infer(
    model: PairwiseMRF,
    *,
    method: str = "exact",
    evidence: Evidence | None = None,
    memory_limit: float | None = None,
    num_chains: int | None = None,
    num_sweeps: int | None = None,
    burn_in: int | None = None,
    accuracy: float | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> InferenceResult:
    """Marginals of every variable, by the method named.

    Parameters
    ----------
    model : PairwiseMRF
    method : {"exact", "gibbs", "swendsen-wang"}
        ``exact`` is the junction tree, for models of small treewidth; the others are samplers, see
        :func:`fastmix.sample`.
    evidence : mapping, optional
        Observed states by variable, numbers or names. The answer still lists every variable.
    memory_limit : float, optional
        Bytes; half of the memory that is free by default. Exact inference only.
    num_chains, num_sweeps, burn_in, accuracy, seed, time_limit, checkpoint, progress
        As for :func:`fastmix.sample`. Samplers only.

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
        given: dict[str, object] = {
            "num_chains": num_chains,
            "num_sweeps": num_sweeps,
            "burn_in": burn_in,
            "accuracy": accuracy,
        }
        given |= {"time_limit": time_limit, "checkpoint": checkpoint}
        if names := [name for name, value in given.items() if value is not None]:
            raise ValueError(f"{names[0]} must not be given for exact inference: it is for the samplers, see method")
        return infer_exact(model, evidence=evidence, memory_limit=memory_limit)
    if method in ("gibbs", "swendsen-wang"):
        from fastmix.sampling import sample

        return sample(
            model,
            method=cast("Literal['gibbs', 'swendsen-wang']", method),
            num_chains=num_chains,
            num_sweeps=num_sweeps,
            burn_in=burn_in,
            accuracy=accuracy,
            evidence=evidence,
            seed=seed,
            time_limit=time_limit,
            checkpoint=checkpoint,
            progress=progress,
        )
    raise UnfitMethodError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
