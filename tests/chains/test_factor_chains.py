"""Gibbs chains on models with factors over three or more variables, against plain loops over the tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_generator import chance_below

import oracle
import strategies
from fastmix import MarkovRandomField, ModelError, UnfitMethodError, draw_exact
from fastmix.chains.annealing import make_pool
from fastmix.chains.base import ParameterSets
from fastmix.chains.conditionals import _num_groups, check_conditionals
from fastmix.chains.cpu import CpuChains, choose_kernel
from fastmix.chains.cuda.device import choose_cuda_kernel
from fastmix.chains.layout import Layout
from fastmix.model.reduce import reduce_model
from fastmix.modes.allowed import find_allowed
from fastmix.modes.descents import find_modes
from fastmix.sampling.starts import random_states
from oracle.chains import Naive, check_against_naive, make, order_for

SEEDS = strategies.seeds(60, quick=6)
KERNELS = ("table", "single", "product", "random")
PARITY = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2, -np.inf, 0.0)


def some_model(seed: int, forbidden: float = 0.0, scale: float = 1.0) -> MarkovRandomField:
    rng = np.random.default_rng(seed)
    model = oracle.random_factors(rng, int(rng.integers(4, 7)), 3, int(rng.integers(1, 5)), scale, forbidden)
    return reduce_model(model).model


def starts(model: MarkovRandomField, count: int, seed: int) -> np.ndarray:
    return np.asarray(draw_exact(model, num_draws=count, seed=seed)).reshape(count, model.num_variables)


def check(model: MarkovRandomField, kernel: str, seed: int, num_sweeps: int = 3) -> None:
    """From starts that are allowed."""
    check_against_naive(model, kernel, num_chains=2, num_sweeps=num_sweeps, seed=seed, states=starts(model, 2, seed))


@pytest.mark.parametrize("forbidden", [0.0, 0.15])
@pytest.mark.parametrize("seed", SEEDS)
def test_draws_are_those_of_the_naive_sampler(seed, forbidden, monkeypatch):
    model = some_model(seed, forbidden, scale=[0.3, 1.0, 4.0][seed % 3])
    for kernel in KERNELS:
        check(model, kernel, seed)
    monkeypatch.setattr("fastmix.chains.cpu.tables_fit", lambda *_, **__: False)
    check(model, "random", seed)


@pytest.mark.parametrize("seed", range(6))
def test_few_neighbors(seed):
    rng = np.random.default_rng(seed)
    scopes = [(0, 1, 2), (2, 3, 4)]
    model = MarkovRandomField.from_factors([2] * 5, [(s, rng.normal(size=(2, 2, 2))) for s in scopes])
    assert choose_kernel(model.structure, 1) == "four"
    check(model, "four", seed)


@pytest.mark.parametrize("seed", range(6))
def test_logarithms_where_products_do_not_do(seed, monkeypatch):
    check(some_model(seed, scale=1000.0), "product", seed)
    monkeypatch.setattr("fastmix.chains.layout.MAX_VALUES", 0)
    check(some_model(seed, 0.1), "product", seed)


def test_a_factor_that_is_left_out_is_noticed():
    model = some_model(3)
    less = model.replace(
        log_factors=np.append(np.zeros(model.factor_offsets[1]), model.log_factors[model.factor_offsets[1] :])
    )
    states = starts(model, 2, 0)
    for kernel in KERNELS:
        naive = Naive(model, states, 0, order_for(model, kernel))
        engine = make(less, kernel, num_chains=2, seed=0)
        engine.set_states(states)
        differ = False
        for _ in range(60):  # chains that draw the same numbers may meet again
            naive.sweep()
            engine.sweep(1)
            differ |= engine.get_states().tolist() != naive.x
        assert differ


def test_kernels_are_chosen_by_the_blanket():
    rng = np.random.default_rng(0)
    wide = MarkovRandomField.from_factors([2] * 40, [((0, i, i + 1), rng.normal(size=(2, 2, 2))) for i in range(1, 39)])
    narrow = MarkovRandomField.from_factors(
        [3] * 9, [((i, i + 1, i + 2), rng.normal(size=(3, 3, 3))) for i in range(7)]
    )
    assert choose_kernel(wide.structure, 64) == "product"  # never by sums over single neighbors
    assert choose_kernel(narrow.structure, 64) == "table"
    assert choose_kernel(narrow.structure, 1) == choose_kernel(narrow.structure, 64, schedule="random") == "single"
    assert choose_kernel(wide.structure, 1, schedule="random") == "product"
    check(wide, "product", 0, num_sweeps=1)


@pytest.mark.parametrize("seed", range(8))
def test_energies_moments_and_covariances(seed):
    model = some_model(seed)
    chains = make(model, "table" if seed % 2 else "product", num_chains=7, seed=seed)
    states = starts(model, 7, seed)
    chains.set_states(states)
    weights = [oracle.log_weight(model, x) - model.log_constant for x in states.tolist()]
    np.testing.assert_allclose(chains.energies()[0], weights, atol=1e-12)
    other = np.random.default_rng(seed).normal(size=(2, model.num_parameters))
    statistics = model.sufficient_statistics(states)
    np.testing.assert_allclose(chains.energies(other), other @ statistics.T, atol=1e-12)
    np.testing.assert_allclose(chains.moments(), statistics.mean(axis=0), atol=1e-12)
    energy = statistics @ other[0]
    expected = ((energy - energy.mean()) @ (statistics - statistics.mean(axis=0))) / 6
    np.testing.assert_allclose(chains.covariances(other[0], [chains._whole]), expected, atol=1e-12)


def transitions(model: MarkovRandomField, i: int, allowed: list[list[int]]) -> np.ndarray:
    """Probabilities of an update of variable i between allowed configurations, from the thresholds of the tables."""
    layout = Layout(model.structure)
    *_, table = layout.table_arrays(ParameterSets.of(model.parameters))
    graph, (patterns, steps) = model.adjacency, layout.patterns
    number = {tuple(x): k for k, x in enumerate(allowed)}
    cuts, matrix = int(model.num_states[i]) - 1, np.zeros((len(allowed), len(allowed)))
    for k, x in enumerate(allowed):
        at = int((patterns * layout.cuts)[:i].sum())
        for slot in range(int(graph.indptr[i]), int(graph.indptr[i + 1])):
            at += x[int(graph.neighbors[slot])] * int(steps[slot]) * cuts
        below = [0, *(chance_below(int(t)) for t in table[at : at + cuts]), 2**32]
        for state, (low, high) in enumerate(itertools.pairwise(below)):
            if high > low:
                matrix[k, number[(*x[:i], state, *x[i + 1 :])]] += (high - low) / 2.0**32
    return matrix


@pytest.mark.parametrize("seed", range(6))
def test_the_target_is_fixed_by_a_sweep(seed):
    model = some_model(seed + 20, 0.1)
    target = oracle.joint(model).reshape(-1)
    allowed = np.array(oracle.all_configurations(model))[target > 0].tolist()
    after = target = target[target > 0]
    tolerance = 1.5 * 2.0**-32 * float((model.num_states - 1).sum()) + 1e-14
    for i in order_for(model, "table"):
        after = after @ transitions(model, i, allowed)
    assert np.abs(after - target).sum() / 2 < tolerance
    # The same sum must notice a factor that one variable does not see.
    values = model.log_factors.copy()
    values[: model.factor_offsets[1]] = np.where(values[: model.factor_offsets[1]] > -np.inf, 0.0, -np.inf)
    wrong = model.replace(log_factors=values)
    first = next(int(v) for v in model.factors[0][0] if model.num_states[v] > 1)
    after = target
    for i in order_for(model, "table"):
        after = after @ transitions(wrong if i == first else model, i, allowed)
    assert np.abs(after - target).sum() / 2 > 100 * tolerance


@pytest.mark.usefixtures("little_work_by_threads")
def test_threads_and_numbers_of_chains_do_not_matter():
    rng = np.random.default_rng(0)
    scopes = [(i, i + 1, i + 9) for i in range(60)]
    model = MarkovRandomField.from_factors([2] * 70, [(s, rng.normal(size=(2, 2, 2))) for s in scopes])
    for kernel in ("table", "product"):
        results = []
        for threads, chains in ((1, 9), (2, 9), (1, 4)):
            engine = make(model, kernel, num_chains=chains, num_threads=threads)
            engine.sweep(5)
            results.append(engine.get_states()[:4])
        assert all(np.array_equal(results[0], other) for other in results[1:])


def test_replica_exchange_keeps_every_rung():
    model = some_model(7)
    ladder = CpuChains(model.structure, num_chains=400, num_sets=3, seed=2, num_threads=1)
    thetas, coefficients = model.parameters[None], np.array([[0.0], [0.5], [1.0]])
    ladder.load(thetas, coefficients)
    ladder.exchange_rounds(200)
    total = np.zeros((3, len(model.log_unary)))
    for _ in range(60):
        ladder.exchange_rounds(5)
        states = ladder.get_states().reshape(3, 400, -1)
        for k in range(3):
            total[k] += np.bincount((states[k] + model.unary_offsets[:-1]).reshape(-1), minlength=total.shape[1])
    for k, scale in enumerate(coefficients[:, 0]):
        exact = np.concatenate(oracle.node_marginals(model.with_parameters(scale * model.parameters)))
        np.testing.assert_allclose(total[k] / (60 * 400), exact, atol=0.03)


# -- where chains cannot go -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", strategies.seeds(100, quick=15))
def test_groups_of_a_factor_match_a_search(seed):
    rng = np.random.default_rng(seed)
    allowed = rng.random(rng.integers(2, 4, size=int(rng.integers(3, 5)))) < rng.choice([0.2, 0.5, 0.8])
    left, groups = {tuple(map(int, x)) for x in np.argwhere(allowed)}, 0
    while left:
        groups += 1
        waiting = [left.pop()]
        while waiting:
            x = waiting.pop()
            near = [y for y in left if sum(a != b for a, b in zip(x, y, strict=True)) == 1]
            left -= set(near)
            waiting += near
    assert _num_groups(allowed) == groups


def test_parity_and_deterministic_relations_are_refused():
    parity = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), PARITY)])
    with pytest.raises(UnfitMethodError, match=r"\(0, 1, 2\).* 4 groups"):
        check_conditionals(parity)
    either = np.full((2, 2, 2), -np.inf)
    for a, b in itertools.product(range(2), range(2)):
        either[a, b, a | b] = 0.0
    named = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), either)], variable_names=["x", "y", "z"])
    with pytest.raises(UnfitMethodError, match=r"\('x', 'y', 'z'\)"):
        check_conditionals(named)
    # A pair of the scope can be what splits it.
    free, pair = np.zeros((2, 2, 2)), np.array([[0.0, -np.inf], [0.0, 0.0]])
    free[1, :, 0] = -np.inf
    check_conditionals(MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), free)]))
    with pytest.raises(UnfitMethodError, match=" 2 groups"):
        check_conditionals(MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), free), ((0, 2), pair)]))


@pytest.mark.parametrize("seed", strategies.seeds(100, quick=15))
def test_the_search_decides_as_enumeration_does(seed):
    rng = np.random.default_rng(seed)
    scopes = [(0, 1, 2), (1, 2, 3), (3, 4, 5), (0, 3, 5), (2, 4)]
    hard = [np.where(rng.random([3] * len(s)) < rng.choice([0.3, 0.6, 0.9]), -np.inf, 0.0) for s in scopes]
    model = MarkovRandomField.from_factors([3] * 6, zip(scopes, hard, strict=True))
    possible = max(oracle.log_weights(model)) > -np.inf
    scores = rng.random(18)
    if possible:
        assert oracle.log_weight(model, find_allowed(model, scores).tolist()) == 0.0
    else:
        with pytest.raises(ModelError, match="forbidden"):
            find_allowed(model, scores)


@pytest.mark.parametrize("seed", range(8))
def test_starts_are_allowed(seed):
    model = some_model(seed, 0.4)
    states = random_states(model, 20, np.random.default_rng(seed))
    assert all(oracle.log_weight(model, x) > -np.inf for x in states.tolist())
    for x in find_modes(model, rng=np.random.default_rng(seed)).tolist():
        weight = oracle.log_weight(model, x)
        for i, count in enumerate(model.num_states.tolist()):
            assert all(oracle.log_weight(model, [*x[:i], s, *x[i + 1 :]]) <= weight + 1e-9 for s in range(count))


def test_the_best_mode_is_mostly_found():
    found = 0
    for seed in range(60):
        model = some_model(seed)
        modes = find_modes(model, rng=np.random.default_rng(seed))
        found += len(modes) > 0 and oracle.log_weight(model, modes[0].tolist()) >= max(oracle.log_weights(model)) - 1e-9
    assert found >= 55


def test_the_gpu_refuses_in_a_sentence():
    triple = np.ones((2, 2, 2))
    chain = MarkovRandomField.from_factors([2] * 6, [((i, i + 1, i + 2), triple) for i in range(4)])
    assert [choose_cuda_kernel(chain.structure, 8, num_sets=sets) for sets in (1, 2)] == ["packed", "table"]
    assert choose_cuda_kernel(some_model(0).structure, 64) == "table"
    model = MarkovRandomField.from_factors([2] * 40, [((0, i, i + 1), triple) for i in range(1, 39)])
    with pytest.raises(UnfitMethodError, match=r"^backend.*factors"):
        choose_cuda_kernel(model.structure, 64)

    chains, place = make_pool(model, "auto", num_chains=64, seed=0)
    assert chains.device == "cpu"
    assert place.startswith("cpu (backend must be cpu")
    with pytest.raises(UnfitMethodError, match=r"^backend"):
        make_pool(model, "cuda", num_chains=64, seed=0)
