"""The junction tree over factors against plain loops over every configuration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from fastmix._clock import Clock, OutOfTimeError
from fastmix.errors import ModelError, ResourceError
from fastmix.exact import passes, planner
from fastmix.exact.planner import Factors
from fastmix.exact.tree import plan_tree

ATOL = 1e-10


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
    return Factors(states, scopes, tables)


def naive(factors):
    """Log Z, marginals of variables and factors, and the largest log-weight, by enumeration."""
    configurations = list(itertools.product(*[range(s) for s in factors.num_states]))
    states = np.array(configurations, dtype=np.int64).T  # one row per variable
    logs = np.zeros(len(configurations))
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
    return log_z, marginals, by_factor, top, p, configurations


def check(factors, answer):
    log_z, marginals, by_factor, _, _, _ = naive(factors)
    assert answer.log_z == pytest.approx(log_z, rel=1e-11, abs=ATOL)
    np.testing.assert_allclose(answer.marginals, np.concatenate([np.zeros(0), *marginals]), atol=ATOL)
    np.testing.assert_allclose(answer.factor_marginals, np.concatenate([np.zeros(0), *by_factor]), atol=ATOL)


@pytest.fixture(params=["numpy", "compiled"])
def how(request, monkeypatch):
    """Small tables by NumPy, or by the loops and layouts that are made for large ones."""
    if request.param == "compiled":
        monkeypatch.setattr(passes, "_NUMPY_ENTRIES", 0)
        monkeypatch.setattr(planner, "_LAYOUT_ENTRIES", 1)
        monkeypatch.setattr(planner, "_JOINED", 1)
        monkeypatch.setattr(planner, "_RUN", 4)
        monkeypatch.setattr(passes, "_PIECE", 16)
    return request.param


@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("arithmetic", ["linear", "log"])
def test_random_factors_agree_with_enumeration(how, zeros, arithmetic, monkeypatch):
    if arithmetic == "log":
        monkeypatch.setattr(passes, "_LOG_RANGE", -1.0)
    rng = np.random.default_rng(3 if zeros else 4)
    for _ in range(60):
        factors = random_factors(rng, zeros=zeros)
        if naive(factors)[0] == -np.inf:
            with pytest.raises(ModelError, match="no configuration has positive probability"):
                plan_tree(factors).marginals()
            continue
        answer = plan_tree(factors).marginals(of_factors=True)
        assert answer.arithmetic == arithmetic or not any(factors.scopes)
        check(factors, answer)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
def test_programs_agree_with_enumeration(zeros, monkeypatch):
    """Compiled functions run all steps, also on tables that underflow or contradict; without a compiler, the same."""
    monkeypatch.setattr("fastmix.exact.tree._compiler_is_loaded", lambda: False)
    rng = np.random.default_rng(5 if zeros else 6)
    seen = set()
    for case in range(80):
        factors = random_factors(rng, zeros=zeros)
        tree = plan_tree(factors)
        flat = np.concatenate([np.zeros(0), *factors.tables])
        tree.sequence.num_runs = 10
        factor = 1e4 if case % 8 == 7 else 1.0
        factors = factors._replace(tables=[factor * t for t in factors.tables])
        log_z, marginals, by_factor, _, _, _ = naive(factors)
        if log_z == -np.inf:
            seen.add("impossible")
            for num_runs in (0, 10):
                tree.sequence.num_runs = num_runs
                with pytest.raises(ModelError, match="no configuration has positive probability"):
                    tree.flat_marginals(factor * flat)
            continue
        answer = tree.flat_marginals(factor * flat, of_factors=True)
        assert tree.sequence.program is not None
        seen |= {answer.arithmetic} | {"in place" for s in tree.sequence.steps if s.out == s.first}
        assert answer.log_z == pytest.approx(log_z, rel=1e-11, abs=ATOL)
        np.testing.assert_allclose(answer.marginals, np.concatenate(marginals), atol=ATOL)
        np.testing.assert_allclose(answer.factor_marginals, np.concatenate([np.zeros(0), *by_factor]), atol=ATOL)
        some = range(len(factors.scopes) // 2, len(factors.scopes))
        tree.sequence.num_runs = 0
        plain = tree.flat_marginals(factor * flat, of_factors=True)
        assert (plain.log_z, plain.arithmetic) == (answer.log_z, answer.arithmetic)
        np.testing.assert_array_equal(plain.marginals, answer.marginals)
        np.testing.assert_array_equal(plain.factor_marginals, answer.factor_marginals)
        part = tree.flat_marginals(factor * flat, of_factors=some)
        size = sum([len(factors.tables[f]) for f in some])
        last = answer.factor_marginals[len(answer.factor_marginals) - size :]
        np.testing.assert_array_equal(part.factor_marginals, last)
    assert {"linear", "log", "in place"} <= seen
    assert ("impossible" in seen) == bool(zeros)


def test_larger_cliques_take_every_layout(monkeypatch):
    """Tables of some thousand entries, so that runs, tiles, copies and matrix products all occur."""
    monkeypatch.setattr(passes, "_NUMPY_ENTRIES", 0)
    monkeypatch.setattr(planner, "_LAYOUT_ENTRIES", 1)
    rng = np.random.default_rng(8)
    seen = set()
    for case in range(8):
        n, count = (16, 2) if case % 2 else (6, 5)
        pairs = [p for p in itertools.combinations(range(n), 2) if rng.random() < (0.35 if case % 2 else 0.9)]
        factors = Factors([count] * n, pairs, [rng.standard_normal(count**2) for _ in pairs])
        tree = plan_tree(factors)
        seen |= {"gemm" for s in tree.sequence.steps if s.gemm} | {"moves" for _ in tree.sequence.moves}
        seen |= {"in place" for s in tree.sequence.steps if s.out == s.first}
        check(factors, tree.marginals(of_factors=True))
    assert seen == {"gemm", "moves", "in place"}


def test_broken_tables_are_visited_by_tiles():
    from fastmix.exact.loops import COPY, SCALE, SUM, contract

    rng = np.random.default_rng(0)
    letters = "abcdefghijklmnop"
    states = dict.fromkeys(letters, 2)
    a, b, o = "acegikmopbdfh", "pnljhfdbackm", "bdlnpjegikoacm"

    def strides(scope):
        return {v: 2 ** (len(scope) - 1 - k) for k, v in enumerate(scope)}

    rows = [[2, strides(a).get(v, 0), strides(b).get(v, 0), strides(o).get(v, 0)] for v in letters]
    groups = np.array(rows, dtype=np.int64)
    x, y = rng.random(2 ** len(a)), rng.random(2 ** len(b))
    wanted = np.einsum(f"{a},{b}->{o}", x.reshape([2] * len(a)), y.reshape([2] * len(b))).reshape(-1)
    for pieces in (1, 3):
        z = np.zeros(2 ** len(o))
        steps = contract(x, y, z, groups, 1, 2, 3, SUM, z, 0, 0)
        assert not z.any()
        for k in range(pieces):
            contract(x, y, z, groups, 1, 2, 3, SUM, z, steps * k // pieces, steps * (k + 1) // pieces)
        np.testing.assert_allclose(z, wanted, rtol=1e-12)
    inner = "acm"
    rows = [[2, strides(o)[v], strides(inner).get(v, 0), strides(o)[v]] for v in o]
    small = rng.random(8)
    contract(z, small, z, np.array(rows), 1, 2, 3, SCALE, z, 0, -1)
    factor = np.einsum(f"{o},{inner}->{o}", wanted.reshape([2] * len(o)), small.reshape(2, 2, 2)).reshape(-1)
    np.testing.assert_allclose(z, factor, rtol=1e-12)
    turned = np.empty(len(z))
    other = o[::-1]
    turns = np.array([[states[v], strides(o)[v], 0, strides(other)[v]] for v in o])
    contract(z, np.ones(1), turned, turns, 1, 2, 3, COPY, turned, 0, -1)
    np.testing.assert_array_equal(turned, z.reshape([2] * len(o)).T.reshape(-1))


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_runs_that_the_result_has_apart(mode):
    """Sums that are put in place at the end; and pieces of them, in both arithmetics."""
    from fastmix.exact.loops import MAX, SUM, contract

    rng = np.random.default_rng(1)
    x, y = rng.random((6, 5, 60, 12)), rng.random((6, 5, 60, 12))
    groups = np.array([[6, 3600, 3600, 60], [5, 720, 720, 1], [60, 12, 12, 0], [12, 1, 1, 5]])
    wanted = np.einsum("ijkl,ijkl->ilj", x, y) if mode == "sum" else (x + y).max(axis=2).transpose(0, 2, 1)
    which = SUM if mode == "sum" else MAX
    for pieces in (1, 4):
        z = np.full(360, 0.0 if mode == "sum" else -np.inf)
        flat = x.reshape(-1), y.reshape(-1)
        steps = contract(*flat, z, groups, 1, 2, 3, which, z, 0, 0)
        assert steps == (30 if mode == "sum" else steps)
        for k in range(pieces):
            bounds = steps * k // pieces, steps * (k + 1) // pieces
            contract(*flat, z, groups, 1, 2, 3, which, z, *bounds)
        np.testing.assert_allclose(z, wanted.reshape(-1), rtol=1e-12)


def test_most_probable_configuration(how):
    rng = np.random.default_rng(5)
    for _ in range(40):
        factors = random_factors(rng, zeros=0.1)
        log_weight = naive(factors)[3]
        if log_weight == -np.inf:
            continue
        found, states = plan_tree(factors).most_probable()
        assert found == pytest.approx(log_weight, abs=ATOL)
        own = sum(
            float(t.reshape([factors.num_states[v] for v in s])[tuple(states[list(s)])])
            for s, t in zip(factors.scopes, factors.tables, strict=True)
        )
        assert own == pytest.approx(log_weight, abs=ATOL)


def test_draws_follow_the_joint_distribution(how):
    rng = np.random.default_rng(11)
    factors = Factors(
        [2, 3, 2, 1],
        [(2, 0, 1), (1,), (0, 3)],
        [rng.standard_normal(12), np.array([0.0, 1.0, -np.inf]), rng.standard_normal(2)],
    )
    _, _, _, _, p, configurations = naive(factors)
    number = 40_000
    draws = plan_tree(factors).draw(number, np.random.default_rng(1))
    counts = np.bincount([configurations.index(tuple(x)) for x in draws.tolist()], minlength=len(p))
    assert not counts[p == 0].any()
    used = p > 0
    chi = ((counts[used] - number * p[used]) ** 2 / (number * p[used])).sum()
    assert chi < 45  # 7 degrees of freedom: exceeded with a probability of 1e-7


def test_strong_couplings_go_over_to_logs():
    n, rng = 12, np.random.default_rng(2)
    scopes = [(i, (i + 1) % n) for i in range(n)] + [(i,) for i in range(n)]
    tables = [1e3 * rng.standard_normal(4) for _ in range(n)] + [1e3 * rng.standard_normal(2) for _ in range(n)]
    factors = Factors([2] * n, scopes, tables)
    answer = plan_tree(factors).marginals(of_factors=True)
    assert answer.arithmetic == "log"
    check(factors, answer)


def test_repeated_runs_are_the_same():
    factors = random_factors(np.random.default_rng(9), max_variables=7)
    tree = plan_tree(factors)
    assert tree.marginals().log_z == tree.marginals().log_z


def test_no_variables_no_factors_and_constants():
    answer = plan_tree(Factors([], [()], [np.array([0.5])])).marginals()
    assert (answer.log_z, answer.marginals.tolist()) == (0.5, [])
    answer = plan_tree(Factors([3, 1], [], [])).marginals()
    assert answer.log_z == pytest.approx(math.log(3))
    assert answer.marginals.tolist() == [1 / 3, 1 / 3, 1 / 3, 1.0]
    assert plan_tree(Factors([3, 1], [], [])).most_probable()[0] == 0.0


def test_too_large_is_refused_before_anything_is_allocated():
    n = 60
    scopes = list(itertools.combinations(range(n), 2))
    factors = Factors([2] * n, scopes, [np.zeros(4)] * len(scopes))
    with pytest.raises(ResourceError, match=r"needs at least .*EiB \(treewidth 59\), over the limit of 1 GiB"):
        plan_tree(factors, memory_limit=2.0**30)


def test_required_bytes_hold(how):
    import tracemalloc

    if how == "numpy":
        pytest.skip("tables too small for a peak to matter")
    rng = np.random.default_rng(0)
    n = 36
    pairs = [(i, j) for i in range(n) for j in range(i + 1, min(n, i + 13))]
    factors = Factors([2] * n, pairs, [rng.standard_normal(4) for _ in pairs])
    tree = plan_tree(factors)
    tree.marginals()
    tracemalloc.start()
    tree.marginals()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * tree.required_bytes + 2**20


def test_a_clock_ends_planning_and_running():
    rng = np.random.default_rng(0)
    factors = random_factors(rng)
    clock = Clock(1e-9)
    with pytest.raises(OutOfTimeError):
        plan_tree(factors, clock=clock)
    tree = plan_tree(Factors([2, 2], [(0, 1)], [np.zeros(4)]))
    with pytest.raises(OutOfTimeError):
        tree.marginals(clock=clock)
