"""What many chains add up to: the target is fixed by a sweep, joint counts are those of the model, sums are exact."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats
from test_generator import chance_below

import oracle
import strategies
from fastmix import MarkovRandomField, draw_exact
from fastmix.chains import layout
from fastmix.chains.base import ParameterSets
from fastmix.chains.layout import Layout
from oracle.chains import ESTIMATORS, KERNELS, Naive, check_sums, lopsided_binary, make, models_for, order_for

pytestmark = pytest.mark.usefixtures("little_work_by_threads")


class Patterns:
    """The arrays of the table kernel by name."""

    def __init__(self, model: MarkovRandomField) -> None:
        arrays = Layout(model.structure).table_arrays(ParameterSets.of(model.parameters))
        self.order, self.indptr, self.neighbors, self.strides, self.cuts, _, self.starts, _, self.table = arrays

    def row(self, i: int, x: Sequence[int]) -> list[int]:
        """Thresholds of site i for the states of its neighbors in x."""
        slots = range(self.indptr[i], self.indptr[i + 1])
        first = int(self.starts[i]) + sum(int(self.strides[k]) * x[self.neighbors[k]] for k in slots)
        return self.table[first : first + int(self.cuts[i])].tolist()


# -- the transition matrix --------------------------------------------------------------------------------------------


def site_matrix(model: MarkovRandomField, tables: Patterns, i: int) -> np.ndarray:
    """Transition probabilities of one update between all configurations, from the thresholds."""
    configurations = oracle.all_configurations(model)
    number = {x: k for k, x in enumerate(configurations)}
    matrix = np.zeros((len(configurations), len(configurations)))
    for x in configurations:
        below = [0, *(chance_below(t) for t in tables.row(i, x)), 2**32]
        for state, (a, b) in enumerate(itertools.pairwise(below)):
            matrix[number[x], number[(*x[:i], state, *x[i + 1 :])]] += (b - a) / 2.0**32
    return matrix


@pytest.mark.parametrize("seed", range(4))
def test_target_is_fixed_by_a_sweep(seed):
    model = oracle.lopsided(seed) if seed % 2 else lopsided_binary(seed)
    tables = Patterns(model)
    target = oracle.joint(model).reshape(-1)
    updates = [site_matrix(model, tables, i) for i in range(model.num_variables)]
    # A cumulative probability is rounded by at most half a unit of 2^-32 and joining the middle values adds at most
    # one, so an update of L states moves the target by at most (L - 1) * 1.5 * 2^-32 in total variation.
    tolerance = 1.5 * 2.0**-32 * float((model.num_states - 1).sum()) + 1e-14
    after = target
    for i in tables.order:
        np.testing.assert_allclose(updates[i].sum(axis=1), 1.0, atol=1e-15)
        after = after @ updates[i]
        # Every single update is reversible, up to the same rounding.
        flow = target[:, None] * updates[i]
        assert np.abs(flow - flow.T).sum() < 2 * tolerance
    assert np.abs(after - target).sum() / 2 < tolerance
    random_scan = sum(updates) / len(updates)
    assert np.abs(target @ random_scan - target).sum() / 2 < tolerance
    # The same sum must notice a neighbor that is left out.
    left_out = target
    for i in tables.order:
        wrong = Patterns(without_edge(model, 0)) if i == int(model.edges[0, 0]) else tables
        left_out = left_out @ site_matrix(model, wrong, i)
    assert np.abs(left_out - target).sum() / 2 > 1e-3


def without_edge(model: MarkovRandomField, e: int) -> MarkovRandomField:
    tables = list(oracle.edge_tables(model).items())
    del tables[e]
    return MarkovRandomField.from_tables(
        oracle.unary_vectors(model), [ends for ends, _ in tables], [t for _, t in tables]
    )


def with_table(model: MarkovRandomField, e: int, change: Callable[[np.ndarray], np.ndarray]) -> MarkovRandomField:
    tables = {ends: np.array(t) for ends, t in oracle.edge_tables(model).items()}
    ends = list(tables)[e]
    tables[ends] = change(tables[ends])
    return MarkovRandomField.from_tables(oracle.unary_vectors(model), list(tables), list(tables.values()))


# -- joint counts of independent chains started from exact draws ------------------------------------------------------

NUM_DRAWS = 20_000
FALSE_ALARM = 1e-6


def copies(model: MarkovRandomField, count: int) -> MarkovRandomField:
    """Several independent copies side by side, one model: one chain of it is that many chains."""
    edges = (model.edges[None, :, :] + model.num_variables * np.arange(count)[:, None, None]).reshape(-1, 2)
    return MarkovRandomField(
        np.tile(model.num_states, count), np.tile(model.log_unary, count), edges, np.tile(model.log_pairwise, count)
    )


def goodness(model: MarkovRandomField, states: np.ndarray) -> float:
    """P-value of the chi-square test of joint counts; 0 when an impossible configuration occurs.

    Configurations with fewer than 10 expected are put together.
    """
    expected = oracle.joint(model).reshape(-1) * len(states)
    cells = np.ravel_multi_index(tuple(states.T), tuple(model.num_states))
    counts = np.bincount(cells, minlength=len(expected))
    if counts[expected == 0].any():
        return 0.0
    common = expected >= 10
    observed, wanted = counts[common].astype(float), expected[common]
    if (rest := expected[~common].sum()) > 0:
        observed, wanted = np.append(observed, counts[~common].sum()), np.append(wanted, rest)
        if rest < 10:  # too few for a cell of their own
            smallest = int(wanted[:-1].argmin())
            observed[smallest] += observed[-1]
            wanted[smallest] += wanted[-1]
            observed, wanted = observed[:-1], wanted[:-1]
    return float(stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))


def run_chains(
    target: MarkovRandomField,
    kernel: str,
    *,
    sampled: MarkovRandomField | None = None,
    stale: int | None = None,
    estimator: str | None = None,
    num_sweeps: int = 3,
    seed: int = 11,
) -> np.ndarray:
    """Configurations after some sweeps from exact draws of the target.

    The sabotaged: ``sampled`` is another model than the target, and ``stale`` a variable whose update is seen by its
    neighbors but not kept.
    """
    n = target.num_variables
    per_chain = 20 if kernel in ("table", "field") else NUM_DRAWS // 4
    num_chains = NUM_DRAWS // per_chain
    side_by_side = copies(sampled or target, per_chain)
    options = {"seed": seed, "num_threads": 2, "estimator": estimator or "rao-blackwell"}
    engine = make(side_by_side, kernel, num_chains=num_chains, **options)
    states = draw_exact(target, num_draws=NUM_DRAWS, seed=seed).states.reshape(num_chains, -1)
    engine.set_states(states)
    for _ in range(num_sweeps):
        before = engine.get_states().reshape(-1, n)
        engine.sweep(1, collect=estimator is not None)
        if stale is not None:
            after = engine.get_states().reshape(-1, n)
            after[:, stale] = before[:, stale]
            engine.set_states(after.reshape(num_chains, -1))
    return engine.get_states().reshape(-1, n)


@pytest.mark.parametrize(("kernel", "estimator"), strategies.each(KERNELS, [None, *ESTIMATORS]))
def test_joint_counts(kernel, estimator):
    model = models_for(kernel)
    assert goodness(model, run_chains(model, kernel, estimator=estimator)) > FALSE_ALARM


@pytest.mark.parametrize("kernel", KERNELS)
def test_sabotaged_joint_counts_fail(kernel):
    model = models_for(kernel)
    flipped = with_table(model, 1, lambda table: -table)
    assert goodness(model, run_chains(model, kernel, sampled=flipped)) < FALSE_ALARM
    skipped = without_edge(model, 1)
    assert goodness(model, run_chains(model, kernel, sampled=skipped)) < FALSE_ALARM
    # The first variable of a sweep that has neighbors: they have all seen the value that is not kept.
    order = model.structure.visit_order[0].tolist()
    stale = next(i for i in order if model.adjacency.degree[i] > 1)
    assert goodness(model, run_chains(model, kernel, stale=stale)) < FALSE_ALARM


@pytest.mark.parametrize("kernel", ["four", "single", "product"])
def test_joint_counts_of_chunks(kernel, monkeypatch):
    monkeypatch.setattr(layout, "CHUNKED_SITES", 100)
    monkeypatch.setattr(layout, "CHUNK_SITES", 1000)
    model = models_for(kernel)
    states = run_chains(model, kernel)
    assert goodness(model, states) > FALSE_ALARM


def test_goodness_of_exact_draws_is_uniform():
    # The test itself: p-values of exact draws are uniform (Kolmogorov at 1e-6), and small changes are seen.
    model = oracle.lopsided()
    draws = draw_exact(model, num_draws=200 * 2000, seed=1).states.reshape(200, 2000, -1)
    p = [goodness(model, part) for part in draws]
    assert stats.kstest(p, "uniform").pvalue > FALSE_ALARM
    spoiled = draws.reshape(-1, model.num_variables)[:NUM_DRAWS].copy()
    spoiled[: NUM_DRAWS // 10, 0] = 0
    assert goodness(model, spoiled) < FALSE_ALARM


# -- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "estimator"), strategies.each(KERNELS, ESTIMATORS))
def test_sums_over_hundreds_of_sweeps(kernel, estimator):
    # Nearly certain states in both places: these are what overflows 32 bits first.
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [0.8, -0.5], [0.2, 15.0, -15.0])
    naive = Naive(model, np.zeros((2, 3), dtype=int), 9, order_for(model, kernel))
    engine = make(model, kernel, num_chains=2, seed=9, estimator=estimator)
    engine.sweep(0, collect=True)
    for count in (1, 254, 2, 300, 256, 43):
        engine.sweep(count, collect=True)
    for _ in range(856):
        naive.sweep()
    check_sums(engine.take_sums(), naive.sums(estimator), model, 856)
    assert (engine.take_sums() == 0).all()
    # After emptying, and with sweeps in between that are not collected.
    naive.counts[:], naive.conditionals[:] = 0, 0
    engine.sweep(5, collect=True)
    for _ in range(5):
        naive.sweep()
    expected = naive.sums(estimator).copy()
    engine.sweep(300, collect=False)
    check_sums(engine.take_sums(), expected, model, 5)
    for _ in range(300):
        naive.sweep()
    assert engine.get_states().tolist() == naive.x


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_variables_and_one_state(kernel):
    empty = MarkovRandomField.from_factors([], [])
    engine = make(empty, kernel, num_chains=4)
    engine.sweep(10, collect=True)
    assert engine.get_states().shape == (4, 0)
    assert engine.take_sums().shape == (0, 4)
    if kernel not in ("four", "field", "kept"):
        single = MarkovRandomField.from_tables([[0.3], [0.1]], [(0, 1)], [[[0.2]]])
        engine = make(single, kernel, num_chains=4)
        engine.sweep(300, collect=True)
        assert (engine.take_sums() == 300).all()
        assert (engine.get_states() == 0).all()
