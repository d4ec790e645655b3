"""``ancestral_sample()``: draws from a Bayesian network, every variable given its parents."""

from __future__ import annotations

from fastmix._context import open_context
from fastmix.marginals import DrawResult
from fastmix.model.network import BayesianNetwork

__all__ = ["ancestral_sample"]


def ancestral_sample(network: BayesianNetwork, *, num_draws: int = 100, seed: int | None = None) -> DrawResult:
    """Independent exact configurations of a Bayesian network without evidence, with their relative frequencies.

    Variables are drawn one after another, each given its parents (:meth:`BayesianNetwork.sample`): nothing has to mix.
    The log Z of a network is 0. The result is about ``network.to_model()``; with evidence use
    :func:`fastmix.draw_exact` or :func:`fastmix.sample` on that model.

    Parameters
    ----------
    network : BayesianNetwork
    num_draws : int
        Configurations to draw.
    seed : int, optional
        Makes the draws repeatable; drawn and noted in the provenance when not given.

    Returns
    -------
    DrawResult

    Raises
    ------
    ResourceError
        If the draws need more than half of the free memory.

    Examples
    --------
    >>> tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
    >>> rain = BayesianNetwork(["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], tables)
    >>> result = ancestral_sample(rain, num_draws=10_000, seed=1)
    >>> result.method, result.marginals[1].round(2).tolist()
    ('ancestral', [0.78, 0.22])
    """
    if not isinstance(network, BayesianNetwork):
        raise TypeError(f"network must be a BayesianNetwork, got {type(network).__name__}")
    with open_context("ancestral", seed=seed, progress=None, options={"num_draws": num_draws}) as context:
        states = network.sample(num_draws, seed=context.seed_of("draws"))
        model = network.to_model()
        updates = states.size
        result = DrawResult.of(
            model,
            states,
            method="ancestral",
            log_z=0.0,
            log_z_kind="exact",
            stats={
                "guarantee": "independent exact draws; the standard errors are those of frequencies",
                "note": "ancestral sampling: every variable was drawn given its parents",
                "num_draws": len(states),
                "num_updates": updates,
                "updates_per_second": updates / max(context.clock.used(), 1e-9),
            },
        )
        return context.finish(result)
