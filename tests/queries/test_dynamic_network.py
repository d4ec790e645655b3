"""Dynamic networks: filtering beside the unrolled network, and beside the forward algorithm over long times."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from fastmix import BayesianNetwork, DynamicNetwork, NoisyOr, infer
from fastmix.errors import ImpossibleEvidenceError, ModelError, ResourceError

YES = ["no", "yes"]


def random_dynamic(rng: np.random.Generator, n: int) -> DynamicNetwork:
    """Tables with arcs within a time and from the time before."""
    counts = rng.integers(2, 4, n)
    parents = [sorted(rng.choice(i, int(rng.integers(0, min(i, 2) + 1)), replace=False).tolist()) for i in range(n)]
    first = BayesianNetwork(
        [f"v{i}" for i in range(n)],
        [[f"s{k}" for k in range(count)] for count in counts],
        parents,
        [rng.dirichlet(np.ones(counts[i]), size=tuple(counts[parents[i]])) for i in range(n)],
    )
    later = []
    tables = []
    for i in range(n):
        before = rng.choice(n, int(rng.integers(0, 3)) if n > 1 else 1, replace=False).tolist()
        later.append([*parents[i], *[(int(v), -1) for v in before]])
        shape = tuple(counts[[*parents[i], *before]])
        tables.append(rng.dirichlet(np.ones(counts[i]), size=shape))
    return DynamicNetwork(first, later, tables)


def test_filtering_against_the_unrolled_network() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(1, 4))
        dynamic = random_dynamic(rng, n)
        unrolled = dynamic.unroll(4)
        assert unrolled.num_variables == 4 * n
        drawn = unrolled.sample(1, seed=int(rng.integers(1000)))[0].reshape(4, n)
        seen = [{v: int(drawn[t, v]) for v in range(n) if rng.random() < 0.4} for t in range(4)]
        for step in dynamic.filter(seen):
            evidence = {t * n + v: state for t in range(step.time + 1) for v, state in seen[t].items()}
            exact = infer(unrolled.to_model(), evidence=evidence, method="exact")
            assert step.log_evidence == pytest.approx(exact.log_z, abs=1e-9)
            for v in range(n):
                np.testing.assert_allclose(step.marginals[v], exact.marginal(step.time * n + v), atol=1e-9)


def hidden_markov() -> DynamicNetwork:
    """A state of three values that is seen through noise."""
    names = [["a", "b", "c"], YES]
    seen = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]
    first = BayesianNetwork(["state", "sign"], names, [[], [0]], [[0.2, 0.3, 0.5], seen])
    moves = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.0, 0.3, 0.7]]
    return DynamicNetwork(first, [[("state", -1)], ["state"]], [moves, seen])


def test_a_long_time_against_the_forward_algorithm() -> None:
    dynamic = hidden_markov()
    signs = np.random.default_rng(1).integers(0, 2, 300)
    belief = np.array([0.2, 0.3, 0.5])
    moves = np.asarray(dynamic.tables[0])
    seen = np.asarray(dynamic.tables[1])
    total = 0.0
    for t, step in enumerate(dynamic.filter({"sign": int(sign)} for sign in signs)):
        belief = (belief if t == 0 else belief @ moves) * seen[:, signs[t]]
        total += np.log(belief.sum())
        belief = belief / belief.sum()
        np.testing.assert_allclose(step.marginals[0], belief, atol=1e-10)
        assert step.log_evidence == pytest.approx(total)


def test_memory_does_not_grow_with_time() -> None:
    def observations(count: int) -> Iterator[dict[str, int]]:
        for k in range(count):
            yield {"sign": k % 2}

    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in dynamic.filter(observations(count)):
            pass
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    dynamic = hidden_markov()
    peak(5)  # what is loaded and compiled once
    assert peak(200) < peak(20) + 200_000


def test_laws_and_nothing_to_remember() -> None:
    first = BayesianNetwork(["a", "b"], [YES, YES], [[], []], [[0.5, 0.5], [0.9, 0.1]])
    law = NoisyOr([0.5, 0.6, 0.7], leak=0.1)
    dynamic = DynamicNetwork(first, [[], ["a", ("a", -1), ("b", -1)]], [[0.5, 0.5], law])
    *_, last = dynamic.filter([{"b": "no"}, {}, {"b": "yes"}])
    exact = infer(dynamic.unroll(3).to_model(), evidence={"b[0]": "no", "b[2]": "yes"})
    np.testing.assert_allclose(last.marginals[0], exact.marginal("a[2]"), atol=1e-10)
    assert last.log_evidence == pytest.approx(exact.log_z)
    alone = DynamicNetwork(first, [[], []], [[0.5, 0.5], [0.9, 0.1]])
    assert [step.log_evidence for step in alone.filter([{"a": 1}, {}, {"a": 0}])] == pytest.approx(
        [np.log(0.5), np.log(0.5), np.log(0.25)]
    )


def test_refused() -> None:
    first = BayesianNetwork(["a"], [YES], [[]], [[1.0, 0.0]])
    with pytest.raises(ModelError, match=r"pairs \(variable, -1\)"):
        DynamicNetwork(first, [[("a", -2)]], [[0.5, 0.5]])
    with pytest.raises(ModelError, match="got 'z'"):
        DynamicNetwork(first, [["z"]], [[0.5, 0.5]])
    with pytest.raises(ModelError, match="must have shape"):
        DynamicNetwork(first, [[("a", -1)]], [[0.5, 0.5]])
    still = DynamicNetwork(first, [[("a", -1)]], [[[1.0, 0.0], [0.0, 1.0]]])
    with pytest.raises(ImpossibleEvidenceError, match="at 1"):
        list(still.filter([{}, {"a": "yes"}]))
    with pytest.raises(ModelError, match=r"^observations .*got 3"):
        still.filter(3)
    with pytest.raises(ModelError, match=r"^observations .*time 0"):
        list(still.filter([3]))
    with pytest.raises(ResourceError):
        list(still.filter([{}], memory_limit=1.0))
