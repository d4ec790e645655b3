"""Factors over three or more variables: the model, evidence, forbidden states; all against enumeration."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastmix import MarkovRandomField, ModelError, ResourceError, infer
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError
from fastmix.model.reduce import reduce_model
from fastmix.model.supports import drop_unsupported

Factors = list[tuple[tuple[int, ...], np.ndarray]]


@st.composite
def problems(draw: st.DrawFn, hard: bool = False) -> tuple[list[int], Factors]:
    """State counts and factors over up to four variables in any order, some scopes repeated."""
    n = draw(st.integers(1, 5))
    counts = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factors = []
    for _ in range(draw(st.integers(0, 5))):
        scope = tuple(rng.permutation(n)[: rng.integers(0, min(n, 4) + 1)].tolist())
        table = rng.normal(size=[counts[v] for v in scope])
        if hard and table.ndim:
            table[rng.random(table.shape) < 0.3] = -np.inf
        factors.append((scope, table))
    return counts, factors


def naive_weight(factors: Factors, x: tuple[int, ...]) -> float:
    return sum(float(table[tuple(x[v] for v in scope)]) for scope, table in factors)


def configurations(counts: list[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(c) for c in counts)))


@given(problems())
def test_weights_are_the_sums_of_the_factors(problem: tuple[list[int], Factors]) -> None:
    counts, factors = problem
    model = MarkovRandomField.from_factors(counts, factors)
    every = configurations(counts)
    expected = [naive_weight(factors, x) for x in every]
    np.testing.assert_allclose(model.log_weight(np.array(every)), expected, atol=1e-12)
    statistics = model.sufficient_statistics(np.array(every))
    np.testing.assert_allclose(statistics @ model.parameters + model.log_constant, expected, atol=1e-12)


@given(problems())
def test_the_same_model_however_it_is_given(problem: tuple[list[int], Factors]) -> None:
    counts, factors = problem
    model = MarkovRandomField.from_factors(counts, factors)
    turned = [(scope[::-1], table.T) for scope, table in factors]
    assert MarkovRandomField.from_factors(counts, turned) == model
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert again.content_hash == model.content_hash
    other = model.with_parameters(2.0 * model.parameters)
    assert other.structure is model.structure
    x = np.array(configurations(counts))
    expected = 2.0 * (model.log_weight(x) - model.log_constant) + model.log_constant
    np.testing.assert_allclose(other.log_weight(x), expected, atol=1e-12)
    assert (other == model) == (not model.parameters.any())
    assert model.replace(log_factors=model.log_factors) == model


@given(problems(hard=True), st.booleans(), st.booleans())
def test_evidence_and_forbidden_states(problem: tuple[list[int], Factors], drop: bool, fold: bool) -> None:
    counts, factors = problem
    try:
        model = MarkovRandomField.from_factors(counts, factors)
    except ModelError:
        return
    evidence = {0: counts[0] - 1} if len(counts) > 1 else {}
    every = [x for x in configurations(counts) if all(x[i] == s for i, s in evidence.items())]
    weights = {x: naive_weight(factors, x) for x in every}
    total = sum(math.exp(w) for w in weights.values())
    try:
        reduction = reduce_model(model, evidence, drop_forbidden=drop, fold_single=fold)
    except ModelError:
        assert total == 0.0
        return
    small = reduction.model
    every_left = configurations(small.num_states.tolist())
    left = np.array(every_left, dtype=np.int64).reshape(len(every_left), small.num_variables)
    found = dict(zip(map(tuple, reduction.expand_states(left).tolist()), small.log_weight(left), strict=True))
    for x, weight in weights.items():
        if weight > -np.inf:
            assert found[x] == pytest.approx(weight, abs=1e-9)
        else:
            assert found.get(x, -np.inf) == -np.inf
    assert sum(math.exp(w) for w in found.values()) == pytest.approx(total, abs=1e-9)


def naive_supports(model: MarkovRandomField) -> list[int]:
    """Entries of ``log_unary`` whose states every table supports by states that are left in turn, one after another."""
    starts = model.unary_offsets
    left = [{s for s in range(c) if model.log_unary[starts[i] + s] > -np.inf} for i, c in enumerate(model.num_states)]
    shapes = model.num_states[model.edges]
    pairs = [model.log_pairwise[model.pairwise_offsets[e] :][: a * b].reshape(a, b) for e, (a, b) in enumerate(shapes)]
    terms = [*zip(model.edges.tolist(), pairs, strict=True), *model.factors]
    for _ in range(len(model.log_unary)):
        for scope, table in terms:
            fits = [x for x in itertools.product(*(left[v] for v in scope)) if table[x] > -np.inf]
            for m, v in enumerate(scope):
                left[v] = {x[m] for x in fits}
    return [int(starts[i]) + s for i, states in enumerate(left) for s in sorted(states)]


@pytest.mark.parametrize(("in_python", "at_once"), [(20_000, 1 << 24), (20_000, 1), (-1, 1 << 24), (-1, 20)])
def test_states_that_are_left_have_supports(monkeypatch: pytest.MonkeyPatch, in_python: int, at_once: int) -> None:
    monkeypatch.setattr("fastmix.model.supports.MAX_PYTHON_SUPPORTS", in_python)
    monkeypatch.setattr("fastmix.model.supports.ENTRIES_BETWEEN_CLOCKS", at_once)
    rng, lost = np.random.default_rng(5), 0
    for k in range(60):
        counts = rng.integers(1, 4, size=6)
        scopes = [np.sort(rng.permutation(6)[: rng.integers(2, 5 if k % 2 else 3)]).tolist() for _ in range(6)]
        tables = [rng.normal(size=counts[scope]) for scope in scopes]
        for table in tables:
            table[rng.random(table.shape) < 0.4] = -np.inf
            table[(0,) * table.ndim] = 0.0  # a configuration is allowed
        model = MarkovRandomField.from_factors(counts, list(zip(map(tuple, scopes), tables, strict=True)))
        allowed, factors = model.log_unary > -np.inf, {tuple(scope.tolist()): table for scope, table in model.factors}
        drop_unsupported(model, model.log_pairwise, factors, np.full(6, -1), allowed, NO_LIMIT)
        assert np.flatnonzero(allowed).tolist() == naive_supports(model)
        lost += int((~allowed).sum())
    assert lost > 50


def test_states_without_support_are_dropped() -> None:
    # x0 + x1 + x2 is even and x0 = x1, so that x2 must be 0; three states each, the third only for x0.
    parity = np.full((3, 3, 3), -np.inf)
    for x in itertools.product(range(2), repeat=3):
        if sum(x) % 2 == 0:
            parity[x] = 0.0
    parity[2, 2, 2] = 0.0
    equal = np.where(np.eye(3, dtype=bool), 0.0, -np.inf)
    equal[2, 2] = -np.inf
    model = MarkovRandomField.from_factors([3, 3, 3], [((0, 1, 2), parity), ((0, 1), equal)])
    small = reduce_model(model).model
    assert small.num_states.tolist() == [2, 2, 2]  # arc consistency looks at one factor at a time
    both = parity + equal[:, :, None]
    joined = reduce_model(MarkovRandomField.from_factors([3, 3, 3], [((0, 1, 2), both)])).model
    assert joined.num_states.tolist() == [2, 2, 1]


def test_a_deterministic_chain_is_followed_to_its_end() -> None:
    n = 300
    copy = np.full((2, 2, 2), -np.inf)
    copy[0, 0, 0] = copy[1, 1, 1] = 0.0
    model = MarkovRandomField.from_factors([2] * n, [((k, k + 1, k + 2), copy) for k in range(n - 2)])
    reduction = reduce_model(model, {0: 1}, fold_single=True)
    assert reduction.model.num_variables == 0
    assert reduction.fixed.tolist() == [1] * n


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0, 2], [0, 1, 2]), "rise by 3"),
        (([0, 3], [0, 2, 1]), "ascending"),
        (([0, 3], [0, 1, 9]), "from 0 to 2"),
        (([1, 3], [0, 1, 2]), "begin at 0"),
    ],
)
def test_bad_scopes_are_refused(arguments: tuple[list[int], list[int]], text: str) -> None:
    starts, variables = arguments
    with pytest.raises(ModelError, match=text):
        MarkovRandomField(
            [2, 2, 2], np.zeros(6), [(0, 1), (0, 2), (1, 2)], np.zeros(12), scope_starts=starts,
            scope_variables=variables, log_factors=np.zeros(8),
        )  # fmt: skip


def test_a_scope_without_its_edges_is_refused() -> None:
    with pytest.raises(ModelError, match=r"^edges .*scope"):
        MarkovRandomField(
            [2, 2, 2], np.zeros(6), [(0, 1)], np.zeros(4), scope_starts=[0, 3], scope_variables=[0, 1, 2],
            log_factors=np.zeros(8),
        )  # fmt: skip


def test_a_factor_too_large_for_memory_is_refused() -> None:
    with pytest.raises(ModelError, match=r"must have shape|2\^62"):
        MarkovRandomField.from_factors([2] * 70, [(tuple(range(70)), np.zeros(3))])


def test_dropping_states_reads_the_clock():
    needs = np.zeros((2, 2, 2))
    needs[1, :, 0] = -np.inf  # x_i = 1 needs x_(i + 2) = 1, which the last factor forbids: state by state goes
    last = np.zeros((2, 2, 2))
    last[:, :, 1] = -np.inf
    model = MarkovRandomField.from_factors(
        [2] * 63, [*(((i, i + 1, i + 2), needs) for i in range(60)), ((60, 61, 62), last)]
    )
    assert reduce_model(model).model.num_states.min() == 1
    with pytest.raises(OutOfTimeError):
        reduce_model(model, clock=Clock(1e-9))
    with pytest.raises(ResourceError, match=r"time limit .*1e-09 s"):
        infer(model, method="loopy-bp", time_limit=1e-9)
