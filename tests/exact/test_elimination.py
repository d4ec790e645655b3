"""The junction tree over factors against plain loops over every configuration."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import ImpossibleModelError, ResourceError
from fastmix.exact import elimination, planner, program
from fastmix.exact import program_kernels as kernels
from fastmix.exact.planner import Factors
from fastmix.model import MarkovRandomField

ATOL = 1e-10


class Tables(NamedTuple):
    """Factors with one array for each."""

    num_states: list[int]
    scopes: list[tuple[int, ...]]
    tables: list[NDArray[np.float64]]

    @property
    def values(self) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *self.tables])


def plan_elimination(factors: Tables, **options: Any) -> elimination.FactorElimination:
    return elimination.plan_elimination(Factors(factors.num_states, factors.scopes, factors.values), **options)


def random_factors(rng, *, max_variables=7, max_states=4, max_scope=4, zeros=0.0, scale=1.0):
    """Factors over random scopes, in no particular order, some scopes repeated or empty of others."""
    n = int(rng.integers(1, max_variables + 1))
    states = rng.integers(1, max_states + 1, n).tolist()
    scopes, tables = [], []
    for _ in range(int(rng.integers(0, 2 * n + 1))):
        scope = tuple(rng.permutation(n)[: rng.integers(1, min(n, max_scope) + 1)].tolist())
        table = scale * rng.standard_normal(math.prod(states[v] for v in scope))
        table[rng.random(len(table)) < zeros] = -np.inf
        scopes.append(scope)
        tables.append(table)
    return Tables(states, scopes, tables)


def naive(factors):
    """Log Z, marginals of variables and factors, the largest log-weight, and probabilities, by enumeration."""
    states = np.indices(factors.num_states).reshape(len(factors.num_states), -1)  # one row per variable
    logs = np.zeros(states.shape[1])
    entries = []
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        shape = [factors.num_states[v] for v in scope]
        index = np.ravel_multi_index(tuple(states[v] for v in scope), shape) if scope else np.zeros(len(logs), int)
        entries.append(index)
        logs += table[index]
    top = logs.max()
    weights = np.exp(logs - top) if top > -np.inf else np.zeros(len(logs))
    total = weights.sum()
    p = weights / total if total else weights
    marginals = [np.bincount(states[v], p, s).astype(float) for v, s in enumerate(factors.num_states)]
    by_factor = [np.bincount(i, p, len(t)) for i, t in zip(entries, factors.tables, strict=True)]
    log_z = top + math.log(total) if total else -np.inf
    return log_z, marginals, by_factor, top, p


def check(factors, answer):
    log_z, marginals, by_factor, _, _ = naive(factors)
    assert answer.log_z == pytest.approx(log_z, rel=1e-11, abs=ATOL)
    np.testing.assert_allclose(answer.marginals, np.concatenate([np.zeros(0), *marginals]), atol=ATOL)
    np.testing.assert_allclose(answer.factor_marginals, np.concatenate([np.zeros(0), *by_factor]), atol=ATOL)


@pytest.fixture(params=["plain", "compiled"])
def how(request, monkeypatch):
    """Without a compiler, or compiled and with the layouts that are made for large tables."""
    monkeypatch.setattr(elimination, "compiler_is_loaded", lambda: request.param == "compiled")
    if request.param == "compiled":
        monkeypatch.setattr(planner, "MIN_LAYOUT_ENTRIES", 1)
        monkeypatch.setattr(planner, "MAX_JOINED_ENTRIES", 1)
        monkeypatch.setattr(planner, "PROTECTED_RUN_ENTRIES", 4)
        monkeypatch.setattr(program, "PIECE_ENTRIES", 16)
    return request.param


@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_random_factors_agree_with_enumeration(how, zeros, arithmetic, monkeypatch):
    if arithmetic == "log":
        monkeypatch.setattr(program, "MAX_LOG_RANGE", -1.0)
    rng = np.random.default_rng(3 if zeros else 4)
    for _ in range(60):
        factors = random_factors(rng, zeros=zeros)
        if naive(factors)[0] == -np.inf:
            with pytest.raises(ImpossibleModelError):
                plan_elimination(factors).marginals()
            continue
        answer = plan_elimination(factors).marginals(of_factors=True)
        assert answer.arithmetic == arithmetic or not any(factors.scopes)
        check(factors, answer)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_programs_agree_with_enumeration(zeros, monkeypatch):
    """Compiled functions run all steps, also on tables that underflow or contradict; without a compiler, the same."""
    monkeypatch.setattr(elimination, "compiler_is_loaded", lambda: False)
    rng = np.random.default_rng(5 if zeros else 6)
    seen = set()
    for case in range(80):
        factors = random_factors(rng, zeros=zeros)
        plan, flat = plan_elimination(factors), factors.values
        plan.plan.num_runs = 10
        factor = 1e4 if case % 8 == 7 else 1.0
        factors = factors._replace(tables=[factor * t for t in factors.tables])
        log_z, marginals, by_factor, _, _ = naive(factors)
        if log_z == -np.inf:
            seen.add("impossible")
            for num_runs in (0, 10):
                plan.plan.num_runs = num_runs
                with pytest.raises(ImpossibleModelError):
                    plan.marginals(factor * flat)
            continue
        answer = plan.marginals(factor * flat, of_factors=True)
        assert plan.plan.program is not None
        seen |= {answer.arithmetic} | {"in place" for s in plan.plan.steps if s.out == s.first}
        assert answer.log_z == pytest.approx(log_z, rel=1e-11, abs=ATOL)
        np.testing.assert_allclose(answer.marginals, np.concatenate(marginals), atol=ATOL)
        np.testing.assert_allclose(answer.factor_marginals, np.concatenate([np.zeros(0), *by_factor]), atol=ATOL)
        some = range(len(factors.scopes) // 2, len(factors.scopes))
        plan.plan.num_runs = 0
        plain = plan.marginals(factor * flat, of_factors=True)
        assert (plain.log_z, plain.arithmetic) == (answer.log_z, answer.arithmetic)
        np.testing.assert_array_equal(plain.marginals, answer.marginals)
        np.testing.assert_array_equal(plain.factor_marginals, answer.factor_marginals)
        part = plan.marginals(factor * flat, of_factors=some)
        size = sum([len(factors.tables[f]) for f in some])
        last = answer.factor_marginals[len(answer.factor_marginals) - size :]
        np.testing.assert_array_equal(part.factor_marginals, last)
    assert {"linear", "log", "in place"} <= seen
    assert ("impossible" in seen) == bool(zeros)


def test_larger_cliques_take_every_layout(monkeypatch):
    """Tables of some thousand entries, so that runs, tiles, copies and matrix products all occur."""
    monkeypatch.setattr(planner, "MIN_LAYOUT_ENTRIES", 1)
    rng = np.random.default_rng(8)
    seen = set()
    for case in range(8):
        n, count = (16, 2) if case % 2 else (6, 5)
        pairs = [p for p in itertools.combinations(range(n), 2) if rng.random() < (0.35 if case % 2 else 0.9)]
        factors = Tables([count] * n, pairs, [rng.standard_normal(count**2) for _ in pairs])
        plan = plan_elimination(factors)
        seen |= {"gemm" for s in plan.plan.steps if s.gemm} | {"moves" for _ in plan.plan.moves}
        seen |= {"in place" for s in plan.plan.steps if s.out == s.first}
        check(factors, plan.marginals(of_factors=True))
    assert seen == {"gemm", "moves", "in place"}


@pytest.mark.parametrize("mode", [kernels.LINEAR, kernels.LOG, kernels.MAX])
def test_any_order_of_the_loops_gives_the_sum(mode):
    rng = np.random.default_rng(0)
    letters = "abcdefghijklmnop"
    for a, b, o in (("acegikmopbdfh", "pnljhfdbackm", "bdlnpjegikoacm"), ("abcdefghijkl", "lm", "mabcdefghijk")):
        used = [v for v in letters if v in a + b]
        rows = [(2, *[2 ** (len(s) - 1 - s.index(v)) if v in s else 0 for s in (a, b, o)]) for v in used]
        x, y, size = rng.standard_normal(2 ** len(a)), rng.standard_normal(2 ** len(b)), 2 ** len(o)
        wide = []
        for s, t in ((a, x), (b, y)):
            turned = t.reshape([2] * len(s)).transpose(np.argsort(list(s)))
            wide.append(turned.reshape([2 if v in s else 1 for v in used]))
        total = {kernels.LINEAR: np.add, kernels.LOG: np.logaddexp, kernels.MAX: np.maximum}[mode]
        wanted = wide[0] * wide[1] if mode == kernels.LINEAR else wide[0] + wide[1]
        for k in reversed([k for k, v in enumerate(used) if v not in o]):
            wanted = total.reduce(wanted, axis=k)
        wanted = wanted.transpose([sorted(o).index(v) for v in o]).reshape(-1)
        for order in (rows, rows[::-1], [rows[k] for k in rng.permutation(len(rows))]):
            w = np.concatenate([x, y, np.zeros(2 * size)])
            groups = np.array(order, dtype=np.int64)
            step = [0, len(x), len(x) + len(y), 0, len(groups), kernels.SUM, size, 0, -1, -1, -1]
            done = program._compiled()(
                np.array([step]), groups, mode, (0.0, 1.0, 1.0), 0, 1, len(w) - size, w, np.zeros(1), np.zeros(1),
                np.zeros(len(groups), dtype=np.int64),
            )  # fmt: skip
            assert done == kernels.DONE
            np.testing.assert_allclose(w[step[2] : step[2] + size], wanted, rtol=1e-11, atol=1e-13)


def test_most_probable_configuration(how):
    rng = np.random.default_rng(5)
    for _ in range(40):
        factors = random_factors(rng, zeros=0.1)
        log_weight = naive(factors)[3]
        if log_weight == -np.inf:
            continue
        found, states = plan_elimination(factors).most_probable()
        assert found == pytest.approx(log_weight, abs=ATOL)
        own = sum(
            float(t.reshape([factors.num_states[v] for v in s])[tuple(states[list(s)])])
            for s, t in zip(factors.scopes, factors.tables, strict=True)
        )
        assert own == pytest.approx(log_weight, abs=ATOL)


def test_draws_follow_the_joint_distribution(how):
    rng = np.random.default_rng(11)
    factors = Tables(
        [2, 3, 2, 1],
        [(2, 0, 1), (1,), (0, 3)],
        [rng.standard_normal(12), np.array([0.0, 1.0, -np.inf]), rng.standard_normal(2)],
    )
    p = naive(factors)[-1]
    number = 40_000
    draws = plan_elimination(factors).draw(number, np.random.default_rng(1))
    counts = np.bincount(np.ravel_multi_index(tuple(draws.T), factors.num_states), minlength=len(p))
    assert not counts[p == 0].any()
    used = p > 0
    chi = ((counts[used] - number * p[used]) ** 2 / (number * p[used])).sum()
    assert chi < 45  # 7 degrees of freedom: exceeded with a probability of 1e-7


def test_strong_couplings_go_over_to_logs():
    n, rng = 12, np.random.default_rng(2)
    scopes = [(i, (i + 1) % n) for i in range(n)] + [(i,) for i in range(n)]
    tables = [1e3 * rng.standard_normal(4) for _ in range(n)] + [1e3 * rng.standard_normal(2) for _ in range(n)]
    factors = Tables([2] * n, scopes, tables)
    answer = plan_elimination(factors).marginals(of_factors=True)
    assert answer.arithmetic == "log"
    check(factors, answer)


def test_repeated_runs_are_the_same():
    factors = random_factors(np.random.default_rng(9), max_variables=7)
    plan = plan_elimination(factors)
    assert plan.marginals().log_z == plan.marginals().log_z


def test_no_variables_no_factors_and_constants():
    answer = plan_elimination(Tables([], [()], [np.array([0.5])])).marginals()
    assert (answer.log_z, answer.marginals.tolist()) == (0.5, [])
    answer = plan_elimination(Tables([3, 1], [], [])).marginals()
    assert answer.log_z == pytest.approx(math.log(3))
    assert answer.marginals.tolist() == [1 / 3, 1 / 3, 1 / 3, 1.0]
    assert plan_elimination(Tables([3, 1], [], [])).most_probable()[0] == 0.0


def test_too_large_is_refused_before_anything_is_allocated():
    n = 60
    scopes = list(itertools.combinations(range(n), 2))
    factors = Tables([2] * n, scopes, [np.zeros(4)] * len(scopes))
    with pytest.raises(ResourceError, match="memory_limit") as info:
        plan_elimination(factors, memory_limit=2.0**30)
    assert info.value.treewidth == 59
    assert info.value.limit_bytes == 2**30
    assert info.value.required_bytes == 2**62  # the most that it says


def test_required_bytes_hold(how):
    import tracemalloc

    if how == "plain":
        pytest.skip("tables too small for a peak to matter")
    rng = np.random.default_rng(0)
    n = 36
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + 13))]
    factors = Tables([2] * n, pairs, [rng.standard_normal(4) for _ in pairs])
    plan = plan_elimination(factors)
    plan.marginals()
    tracemalloc.start()
    plan.marginals()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * plan.required_bytes + 2**20


def test_a_clock_ends_planning_and_running():
    rng = np.random.default_rng(0)
    factors = random_factors(rng)
    clock = Clock(1e-9)
    with pytest.raises(OutOfTimeError):
        plan_elimination(factors, clock=clock)
    plan = plan_elimination(Tables([2, 2], [(0, 1)], [np.zeros(4)]))
    with pytest.raises(OutOfTimeError):
        plan.marginals(clock=clock)


@pytest.mark.parametrize("seed", range(8))
def test_memory_of_large_factors_is_in_the_estimate(seed):
    """The values of factors and their marginals are as large as the tables made of them."""
    import tracemalloc

    rng = np.random.default_rng(seed)
    n, arity = 24, int(rng.integers(13, 17))
    scopes = [tuple(range(k, k + arity)) for k in range(0, n - arity + 1, int(rng.integers(1, 4)))]
    model = MarkovRandomField.from_factors([2] * n, [(list(s), rng.normal(size=(2,) * arity)) for s in scopes])
    plan = elimination.plan_model_elimination(model, memory_limit=1e9)
    plan.calibrate()
    tracemalloc.start()
    plan.calibrate()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.1 * plan.required_bytes + 2**20


def test_logarithms_are_not_begun_without_time_for_them():
    """Where ordinary arithmetic underflows, all is done again at many times the cost: not where the time is short."""
    rng = np.random.default_rng(0)
    n = 22
    pairs = list(itertools.combinations(range(n), 2))
    factors = Tables([2] * n, pairs, [rng.normal(scale=80.0, size=4) for _ in pairs])
    plan = plan_elimination(factors)
    assert plan.marginals().arithmetic == "log"
    needed = plan.log_seconds
    clock = Clock(needed / 3.0)
    with pytest.raises(OutOfTimeError):
        plan.marginals(clock=clock)
    assert clock.used() < needed
