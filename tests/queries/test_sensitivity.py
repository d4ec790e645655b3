"""Sensitivities and mutual information against sums over all configurations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastmix import (
    ImpossibleEvidenceError,
    MarkovRandomField,
    ModelError,
    ResourceError,
    mutual_information,
    sensitivity,
)
from fastmix.instances import ising_grid
from oracle import sensitivity as naive


def random_model(seed: int) -> MarkovRandomField:
    """Four variables of two and three states with pairs, and on odd seeds a factor and forbidden entries."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(2, 4, size=4)
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3)]
    factors: list[Any] = [((i, j), rng.normal(size=(counts[i], counts[j]))) for i, j in pairs]
    factors += [((i,), rng.normal(size=counts[i])) for i in range(4)]
    if seed % 2:
        triple = rng.normal(size=counts[[0, 1, 3]])
        triple[0, 0, 0] = -np.inf
        factors.append(((0, 1, 3), triple))
        factors[0][1][1, 1] = -np.inf
    return MarkovRandomField.from_factors(counts, factors)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("evidence", [{}, {3: 1}, {3: 0, 1: [0.2, 0.9, 0.5]}, {1: 0, 3: 1}])
def test_all_of_it_is_that_of_all_configurations(seed: int, evidence: dict[int, Any]) -> None:
    model = random_model(seed)
    if 1 in evidence and isinstance(evidence[1], list):
        evidence = {**evidence, 1: evidence[1][: int(model.num_states[1])]}
    utility = np.random.default_rng(seed).normal(size=(3, int(model.num_states[0])))
    found = sensitivity(model, 0, evidence=evidence, utility=utility)
    posterior = naive.posterior(model, 0, evidence)
    np.testing.assert_allclose(found.posterior, posterior, atol=1e-12)
    np.testing.assert_allclose(found.derivatives, naive.derivatives(model, 0, evidence), atol=1e-8)
    np.testing.assert_allclose(found.best_value, (utility @ posterior).max(), atol=1e-12)
    hard = [v for v, state in evidence.items() if not isinstance(state, list)]
    assert found.observed.tolist() == sorted(hard)
    for v in range(1, 4):
        table = naive.pair(model, 0, v, evidence)
        gain = (utility @ table).max(axis=0).sum() - (utility @ posterior).max()
        np.testing.assert_allclose(found.mutual_information[v], naive.information(table), atol=1e-12)
        np.testing.assert_allclose(found.value[v], 0.0 if v in hard else gain, atol=1e-12)
        first, end = model.unary_offsets[v : v + 2]
        np.testing.assert_allclose(found.joint[:, first:end], table, atol=1e-12)
    for v, row in zip(sorted(hard), found.posterior_without, strict=True):
        rest = {key: state for key, state in evidence.items() if key != v}
        np.testing.assert_allclose(row, naive.posterior(model, 0, rest), atol=1e-12)
    assert np.isnan(found.mutual_information[0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("evidence", [{}, {3: 1}])
def test_mutual_information_of_all_pairs(seed: int, evidence: dict[int, int]) -> None:
    model = random_model(seed)
    matrix = mutual_information(model, evidence=evidence).matrix
    for i in range(4):
        for j in range(4):
            expected = naive.information(naive.pair(model, i, j, evidence))
            np.testing.assert_allclose(matrix[i, j], expected, atol=1e-12)
    some = mutual_information(model, variables=[2, 0], evidence=evidence)
    np.testing.assert_allclose(some.matrix, matrix[np.ix_([2, 0], [2, 0])], atol=1e-12)


def test_impossible_states_of_the_query_change_nothing() -> None:
    tables = [np.array([[0.0, -np.inf], [0.0, 0.5]])]
    model = MarkovRandomField.from_tables([np.zeros(2), np.zeros(2), np.zeros(2)], [(0, 1)], tables)
    found = sensitivity(model, 0, evidence={1: 1})
    np.testing.assert_array_equal(found.posterior, [0.0, 1.0])
    np.testing.assert_array_equal(found.derivatives, np.zeros((2, 10)))
    np.testing.assert_allclose(found.mutual_information[2], 0.0)
    frame = found.parameters(1)
    assert len(frame) == 10


def test_frames_are_sorted_and_named() -> None:
    pytest.importorskip("pandas")
    tables = [np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.2, 0.0], [0.0, 0.2]])]
    model = MarkovRandomField.from_tables(
        [np.zeros(2)] * 3, [(0, 1), (1, 2)], tables, variable_names=["a", "b", "c"], state_names=[["no", "yes"]] * 3
    )  # fmt: skip
    found = sensitivity(model, "a", evidence={"c": "yes"})
    assert found.to_frame().columns.tolist() == ["variable", "mutual_information", "value"]
    assert found.to_frame()["variable"].tolist() == ["b"]
    findings = found.findings()
    assert findings.columns.tolist() == ["variable", "state", "probability", "a=no", "a=yes"]
    np.testing.assert_allclose(findings["a=yes"], [1.0 / (1.0 + np.e), np.e / (1.0 + np.e)])
    np.testing.assert_allclose(findings["probability"] @ findings["a=yes"], found.posterior[1])
    impact = found.impact()
    assert impact["variable"].tolist() == ["c"]
    np.testing.assert_allclose(impact["a=yes without"], [0.5])
    ranked = found.parameters("yes")
    assert ranked["variables"][0] == "a"
    assert (np.diff(ranked["derivative"].abs()) <= 1e-15).all()
    np.testing.assert_allclose(ranked["relative"], ranked["derivative"] / found.posterior[1])
    pairs = mutual_information(model).to_frame()
    assert pairs[["first", "second"]].to_numpy().tolist() == [["a", "b"], ["b", "c"], ["a", "c"]]


def test_derivatives_of_a_large_grid_take_few_passes() -> None:
    """As many rows as the query has states, and one."""
    model = ising_grid(8, 8, coupling_max=0.5, seed=0)
    found = sensitivity(model, 0)
    assert found.stats["num_rows"] == 3
    moved = model.parameters
    moved[5] += 1e-5
    after = sensitivity(model.with_parameters(moved), 0).posterior
    np.testing.assert_allclose(found.derivatives[:, 5], (after - found.posterior) / 1e-5, atol=1e-5)


def test_refusals_name_the_argument() -> None:
    model = random_model(0)
    with pytest.raises(ModelError, match=r"^query"):
        sensitivity(model, 0, evidence={0: 1})
    with pytest.raises(ModelError, match=r"^utility"):
        sensitivity(model, 0, utility=[1.0])
    with pytest.raises(ModelError, match=r"^variables"):
        mutual_information(model, variables=[0, 0])
    with pytest.raises(ResourceError, match="memory"):
        sensitivity(ising_grid(9, 9, coupling_max=0.5, seed=0), 0, memory_limit=100.0)
    forbidden = MarkovRandomField.from_tables([np.zeros(2)] * 2, [(0, 1)], [np.array([[0.0, -np.inf], [0.0, -np.inf]])])
    with pytest.raises(ImpossibleEvidenceError, match="evidence"):
        sensitivity(forbidden, 0, evidence={1: 1})
