"""Joint distributions of an exact answer against enumeration, and what of them is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastmix
import oracle
from fastmix import MarkovRandomField, infer
from fastmix.exact import solver


def naive_joint(model: MarkovRandomField, variables: list[int], evidence: dict[int, int]) -> np.ndarray:
    """By a sum over all configurations that agree with the evidence."""
    table = np.zeros(model.num_states[variables])
    for states in itertools.product(*[range(count) for count in model.num_states]):
        if all(states[v] == state for v, state in evidence.items()):
            table[tuple(states[v] for v in variables)] += np.exp(model.log_weight(states))
    return np.asarray(table / table.sum())


@pytest.mark.parametrize("seed", range(12))
def test_joints_of_any_variables(seed: int) -> None:
    """Also of those that evidence or forbidden states fix, and in any order."""
    rng = np.random.default_rng(seed)
    model = oracle.random_model(
        rng, num_variables=5, max_states=3, edge_probability=0.7, scale=1.0, forbidden_probability=0.15 * (seed % 2)
    )
    try:
        best = np.array(fastmix.most_probable(model).states)
    except fastmix.ImpossibleModelError:
        return
    evidence = {int(v): int(best[v]) for v in rng.permutation(5)[: int(rng.integers(0, 3))]}
    result = infer(model, method="exact", evidence=evidence)
    for size in (1, 2, 3):
        variables = rng.permutation(5)[:size].tolist()
        found = result.joint(*variables)
        np.testing.assert_allclose(found.value, naive_joint(model, variables, evidence), atol=1e-9)
        assert not np.any(found.std_error)


def test_a_joint_of_many_variables_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "MAX_JOINT_ENTRIES", 7)
    result = infer(MarkovRandomField.ising([(0, 1), (1, 2)], 0.5), method="exact")
    assert result.joint(0, 2).value.shape == (2, 2)
    with pytest.raises(fastmix.ResourceError, match=r"^joint .*\b7\b.*\[2, 2, 2\]"):
        result.joint(0, 1, 2)


def test_draws_that_would_take_too_long_are_refused_before_they_begin() -> None:
    model = fastmix.instances.ising_grid(12, 12, coupling_max=1.0, seed=0)
    with pytest.raises(fastmix.ResourceError, match="time limit"):
        fastmix.draw_exact(model, num_draws=10, seed=0, time_limit=1e-6)
