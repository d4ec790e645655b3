"""Exact draws from a Bayesian network, every variable given its parents."""

from __future__ import annotations

from fastmix._checks import choose_seed
from fastmix._clock import Clock
from fastmix.model.network import BayesianNetwork
from fastmix.results import DrawResult, Status, provenance

__all__ = ["ancestral_sample"]


def ancestral_sample(network: BayesianNetwork, *, num_draws: int = 1000, seed: int | None = None) -> DrawResult:
    """Independent exact configurations of a Bayesian network without evidence, with their relative frequencies.

    Variables are drawn one after another, each given its parents (:meth:`BayesianNetwork.sample`): nothing has to mix.
    The result is about ``network.to_model()``; with evidence use :func:`fastmix.draw_exact` or :func:`fastmix.sample`
    on that. The seed is drawn and returned when not given. A :class:`ResourceError` if the draws need more than half of
    the free memory.

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
    clock, chosen = Clock(), choose_seed(seed)
    states = network.sample(num_draws, seed=chosen)
    model = network.to_model()
    mean, error = DrawResult.frequencies(model, states)
    updates = states.size
    return DrawResult(
        model=model,
        method="ancestral",
        status=Status.OK,
        node_marginals=mean,
        edge_marginals=None,
        log_z=None,
        stats={
            "guarantee": "independent exact draws; the standard errors are those of frequencies",
            "note": "ancestral sampling: every variable was drawn given its parents", "num_draws": len(states),
            "stopped_by": "done", "updates": updates, "updates_per_second": updates / max(clock.used(), 1e-9),
            **clock.stats(),
        },
        provenance=provenance(model, seed=chosen, num_draws=len(states), evidence=None),
        states=states,
        std_error=error,
    )  # fmt: skip
