"""Exact answers on models with factors over three or more variables, against enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastmix import MarkovRandomField, draw_exact, infer
from fastmix.errors import ModelError


def random_model(seed: int, hard: bool) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 7))
    counts = rng.integers(1, 4, size=n)
    factors = []
    for _ in range(int(rng.integers(1, 6))):
        scope = tuple(rng.permutation(n)[: rng.integers(1, min(n, 4) + 1)].tolist())
        table = rng.normal(scale=2.0, size=[counts[v] for v in scope])
        if hard:
            table[rng.random(table.shape) < 0.25] = -np.inf
        factors.append((scope, table))
    factors.append((tuple(range(3)), rng.normal(size=counts[:3])))
    return MarkovRandomField.from_factors(counts, factors)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_against_enumeration(seed: int, hard: bool) -> None:
    try:
        model = random_model(seed, hard)
    except ModelError:
        pytest.skip("a variable without any state")
    evidence = {model.num_variables - 1: 0} if seed % 3 == 0 else {}
    every = np.array(
        [x for x in itertools.product(*map(range, model.num_states)) if all(x[i] == s for i, s in evidence.items())]
    )
    weights = model.log_weight(every)
    total = np.logaddexp.reduce(weights)
    if total == -np.inf:
        with pytest.raises(ModelError):
            infer(model, method="exact", evidence=evidence)
        return
    p = np.exp(weights - total)
    for method in ("exact", "auto"):
        result = infer(model, method=method, evidence=evidence)
        assert result.method == "exact"
        assert result.log_z == pytest.approx(total, abs=1e-9)
        for i, count in enumerate(model.num_states):
            expected = [p[every[:, i] == s].sum() for s in range(count)]
            np.testing.assert_allclose(result.marginal(i), expected, atol=1e-12)
    for e, (i, j) in enumerate(model.edges):
        shape = (model.num_states[i], model.num_states[j])
        joint = np.zeros(shape)
        np.add.at(joint, (every[:, i], every[:, j]), p)
        found = result.edge_marginals[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]]
        np.testing.assert_allclose(found, joint.ravel(), atol=1e-12)
    draws = np.asarray(draw_exact(model, num_draws=20, seed=1, evidence=evidence).states)
    assert (model.log_weight(draws) > -np.inf).all()


@pytest.mark.parametrize("seed", range(8))
def test_the_same_call_gives_the_same_bits(seed: int) -> None:
    model = random_model(seed, hard=False)
    other = random_model(seed, hard=False)  # equal, and nothing is kept with it
    infer(other, method="exact", evidence={0: 0})
    for evidence in ({}, {0: 0}):
        answers = [infer(m, method="exact", evidence=evidence) for m in (model, model, other, model, model)]
        for answer in answers[1:]:
            assert answer.log_z == answers[0].log_z
            np.testing.assert_array_equal(answer.node_marginals, answers[0].node_marginals)
            np.testing.assert_array_equal(answer.edge_marginals, answers[0].edge_marginals)


def test_draws_have_the_right_frequencies() -> None:
    model = random_model(3, False)
    draws = np.asarray(draw_exact(model, num_draws=20_000, seed=2).states)
    exact = infer(model, method="exact")
    for i, count in enumerate(model.num_states):
        found = np.bincount(draws[:, i], minlength=count) / len(draws)
        # Six standard deviations at most: a false alarm in 1e-8 of the cases each.
        np.testing.assert_allclose(found, exact.marginal(i), atol=6 * 0.5 / np.sqrt(len(draws)))


@pytest.mark.parametrize("method", ["swendsen-wang", "multicanonical"])
def test_other_methods_refuse_in_one_sentence(method: str) -> None:
    from fastmix import UnfitMethodError

    with pytest.raises(UnfitMethodError, match="factors"):
        infer(random_model(1, False), method=method)
