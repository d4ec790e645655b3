"""All experiments by name, in the order of the report."""

from __future__ import annotations

from fastmix.experiments import (
    denoise,
    norms,
    potts,
    samples_grid,
    samples_random,
    strength_grid,
    strength_random,
    timing,
)
from fastmix.experiments.plan import Experiment

__all__ = ["EXPERIMENTS", "find_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (strength_grid, strength_random, samples_grid, samples_random, norms, potts, timing, denoise)
}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name.

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> find_experiment("timing").title
    'Running times'
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join([*EXPERIMENTS, 'all'])}, got {name!r}")
    return EXPERIMENTS[name]
