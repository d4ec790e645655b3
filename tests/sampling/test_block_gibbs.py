"""Gibbs sampling of networks with laws, by blocks, beside exact inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastmix import BayesianNetwork, Logical, NoisyOr, infer, sample
from fastmix.errors import UnfitMethodError
from fastmix.sampling import block_gibbs

YES = ["no", "yes"]


def layers(rng: np.random.Generator, num_causes: int, num_effects: int) -> BayesianNetwork:
    """Causes, and effects by laws of six of them each; an effect that is logical is nearly certain given its causes."""
    parents: list[list[int]] = [[] for _ in range(num_causes)]
    tables: list[object] = [[1.0 - p, p] for p in rng.uniform(0.1, 0.5, num_causes)]
    for _ in range(num_effects):
        parents.append(sorted(rng.choice(num_causes, 6, replace=False).tolist()))
        noisy = NoisyOr(rng.uniform(0.2, 0.9, 6), leak=0.05)
        tables.append(noisy if rng.random() < 0.5 else Logical("at_most", 2))
    n = num_causes + num_effects
    return BayesianNetwork([f"v{i}" for i in range(n)], [YES] * n, parents, tables)


@pytest.mark.parametrize("entries", [100.0, 5000.0])
def test_random_networks_against_exact_inference(entries: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks of a few variables, and with one that has all."""
    monkeypatch.setattr(block_gibbs, "BLOCK_ENTRIES", entries)
    rng = np.random.default_rng(0)
    for k in range(3):
        network = layers(rng, 8, 4)
        model = network.to_model()
        drawn = network.sample(1, seed=k)[0]
        evidence = {v: int(drawn[v]) for v in range(8, 12)}
        exact = infer(model, evidence=evidence, method="exact")
        chains = sample(model, evidence=evidence, num_sweeps=200, seed=k, progress=None)
        assert chains.stats["num_sweeps"] == 200
        # Six standard errors: a false alarm in 1e-9 for each of some 300 probabilities.
        distance = np.abs(chains.node_marginals - exact.node_marginals)
        assert (distance <= 6.0 * chains.std_error + 1e-9).all(), distance.max()


def test_stale_configurations_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of the test above that must fail: blocks are drawn, and what was drawn is thrown away."""
    sweep = block_gibbs._Run._sweep

    def stale(run: block_gibbs._Run, plans: Any, states: Any, weight: Any) -> Any:
        sweep(run, plans, states, weight)
        return states

    monkeypatch.setattr(block_gibbs._Run, "_sweep", stale)
    monkeypatch.setattr(block_gibbs, "BLOCK_ENTRIES", 100.0)
    network = layers(np.random.default_rng(0), 8, 4)
    model = network.to_model()
    drawn = network.sample(1, seed=0)[0]
    evidence = {v: int(drawn[v]) for v in range(8, 12)}
    exact = infer(model, evidence=evidence, method="exact")
    chains = sample(model, evidence=evidence, num_sweeps=100, num_chains=8, seed=0, progress=None)
    distance = np.abs(chains.node_marginals - exact.node_marginals)
    assert chains.status == "not_mixed" or (distance > 6.0 * chains.std_error + 1e-9).any()


def test_sixty_parents_and_a_constraint() -> None:
    n = 60
    tables: list[object] = [[0.9, 0.1]] * n
    network = BayesianNetwork(
        [*(f"c{i}" for i in range(n)), "one"], [YES] * (n + 1), [[]] * n + [list(range(n))],
        [*tables, Logical("exactly_one")],
    )  # fmt: skip
    result = sample(network.to_model(), evidence={"one": "yes"}, num_sweeps=100, num_draws=5, seed=0, progress=None)
    assert result.status == "ok"
    np.testing.assert_allclose([result.marginal(k)[1] for k in range(n)], 1.0 / n, atol=0.01)
    assert result.draws is not None
    assert (result.draws[..., :n].sum(axis=-1) == 1).all()
    again = sample(network.to_model(), evidence={"one": "yes"}, num_sweeps=100, num_draws=5, seed=0, progress=None)
    np.testing.assert_array_equal(result.node_marginals, again.node_marginals)


def test_options_that_blocks_do_not_have() -> None:
    model = layers(np.random.default_rng(2), 8, 2).to_model()
    for options in ({"schedule": "random"}, {"accuracy": 0.1}, {"edge_marginals": True}, {"history_at": [3]}):
        with pytest.raises(UnfitMethodError, match="laws"):
            sample(model, **options)
