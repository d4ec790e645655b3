from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

import fastmix
import oracle
from fastmix._arrays import FloatArray
from fastmix.errors import UnfitMethodError
from fastmix.graphs import connected_components, erdos_renyi_edges
from fastmix.instances import ising_grid, ising_random, potts_grid
from fastmix.model import MarkovRandomField
from fastmix.model.attractive import AttractiveForm, attractive_form, is_attractive
from fastmix.model.reduce import reduce_model
from fastmix.sampling import clusters as swendsen_wang
from fastmix.sampling.clusters import ClusterChains
from oracle.swendsen_wang import (
    FALSE_ALARM,
    INF,
    ISING,
    NAMED,
    POTTS,
    TINY,
    Parts,
    joint_misfit,
    parts_models,
    transition_matrix,
    twin_run,
)

# -- no randomness --------------------------------------------------------------------------------------------------


@given(parts=parts_models(), seed=st.integers(0, 2**64 - 1))
def test_twin_draw_by_draw(parts: Parts, seed: int) -> None:
    num_sweeps = 4
    paths = [twin_run(parts, seed, chain, num_sweeps) for chain in range(2)]
    engine = ClusterChains(parts.model(), num_chains=2, seed=seed)
    for k in range(num_sweeps + 1):
        assert engine.get_states().tolist() == [path[k] for path in paths]
        engine.sweep(1, collect=k % 2 == 0)


def test_twin_many_states() -> None:
    rng = np.random.default_rng(0)
    unary = rng.normal(size=(4, 300)) + 3.0 * (np.arange(300) > 255)
    parts = Parts(unary.tolist(), [(0, 1), (1, 2), (2, 3)], [6.0, 8.0, 7.0])
    engine = ClusterChains(parts.model(), num_chains=1, seed=5)
    engine.sweep(15, collect=False)
    assert engine.get_states().max() > 255
    assert engine.get_states()[0].tolist() == twin_run(parts, 5, 0, 15)[-1]


@given(parts=parts_models(max_variables=5))
def test_normal_form_keeps_the_distribution(parts: Parts) -> None:
    model = parts.model()
    form = swendsen_wang.attractive_form(model)
    assert (form.couplings > 0).all()
    configurations = oracle.all_configurations(model)
    x = np.array(configurations, dtype=np.int64).reshape(len(configurations), model.num_variables)
    y = x ^ form.flips
    weights = form.log_unary[model.unary_offsets[:-1] + y].sum(axis=1)
    weights += ((y[:, form.heads] == y[:, form.tails]) * form.couplings).sum(axis=1)
    exact = np.asarray(model.log_weight(x))
    allowed = exact > -INF
    assert np.array_equal(allowed, weights > -INF)
    difference = weights[allowed] - exact[allowed]
    assert np.ptp(difference) <= 1e-9


@pytest.mark.parametrize("name", TINY)
def test_transition_matrix_has_the_target_fixed(name: str) -> None:
    parts = TINY[name]
    configurations, matrix = transition_matrix(parts)
    target = oracle.joint(parts.model()).reshape(-1)
    possible = target > 0
    np.testing.assert_allclose(matrix[possible].sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(target @ matrix, target, atol=1e-14)
    assert (matrix[np.ix_(possible, possible)] > 0).all()  # ergodic in one sweep
    assert len(configurations) == len(target)


# -- larger models --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        ising_grid(12, 12, coupling_max=0.8, attractive=True, seed=1),
        ising_grid(12, 12, coupling_max=1.0, field_max=0.3, attractive=True, seed=1),
        potts_grid(8, 8, coupling_max=1.0, attractive=True, seed=1),
    ],
    ids=["fields", "couplings", "potts"],
)
def test_marginals_of_grids(model: MarkovRandomField) -> None:
    # Averages over 100 sweeps have a skewness below 2, over 500 chains below 0.1: close enough to a normal law.
    num_chains, num_sweeps = 500, 100
    exact = fastmix.infer(model, method="exact").node_marginals
    engine = ClusterChains(model, num_chains=num_chains, seed=6)
    engine.set_states(fastmix.draw_exact(model, num_draws=num_chains, seed=7))
    engine.sweep(num_sweeps, collect=True)
    means = engine.take_sums() / num_sweeps
    error = means.std(axis=1, ddof=1) / math.sqrt(num_chains)  # chains are independent
    limit = student.isf(FALSE_ALARM / 2 / len(exact), num_chains - 1)
    assert (np.abs(means.mean(axis=1) - exact) < limit * error).all()
    # Were the couplings weaker by a fifth, the same test would see it.
    weak = fastmix.infer(model.replace(log_pairwise=0.8 * model.log_pairwise), method="exact").node_marginals
    assert (np.abs(means.mean(axis=1) - weak) > limit * error).any()


@pytest.mark.parametrize("num_states", [2, 3])
def test_clusters_of_a_large_graph(num_states: int) -> None:
    # Couplings so strong that every cluster is a component: all that is drawn and collected is known.
    n = 20_000
    edges = erdos_renyi_edges(n, 1.1 / n, seed=1)
    fields = np.random.default_rng(2).normal(size=(n, num_states))
    model = MarkovRandomField.potts(edges, 1e3, num_states, fields)
    engine = ClusterChains(model, num_chains=2, seed=3)
    engine.set_states(np.zeros((2, n), dtype=np.int64))
    engine.sweep(3, collect=True)
    count, labels = connected_components(n, edges)
    totals = np.zeros((count, num_states))
    np.add.at(totals, labels, fields)
    weights = np.exp(totals - totals.max(axis=1, keepdims=True))
    expected = (weights / weights.sum(axis=1, keepdims=True))[labels].reshape(-1, 1)
    np.testing.assert_allclose(engine.take_sums(), np.repeat(3 * expected, 2, axis=1), atol=1e-9)
    states = engine.get_states()
    _, first = np.unique(labels, return_index=True)
    assert np.array_equal(states, states[:, first[labels]])
    # The components themselves are drawn from these probabilities: a thousand singletons and more.
    chosen = np.take_along_axis(expected.reshape(n, num_states)[first], states[0, first][:, None], axis=1)
    mean, variance = (
        (expected.reshape(n, -1)[first] ** k).sum(axis=1) for k in (2, 3)
    )  # of the probability of what is drawn
    z = (chosen.sum() - mean.sum()) / math.sqrt((variance - mean**2).sum())
    assert abs(z) < norm.isf(FALSE_ALARM / 2)


# -- what is accepted -----------------------------------------------------------------------------------------------


def with_table(table: Sequence[Sequence[float]]) -> MarkovRandomField:
    """Three variables in a path, a harmless edge before the one with the table."""
    t = np.array(table, dtype=float)
    L = len(t)
    return MarkovRandomField.from_tables(
        [np.zeros(L), np.zeros(L), np.zeros(t.shape[1])], [(0, 1), (1, 2)], [np.eye(L), t]
    )


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (with_table([[1, 0, 0], [0, 1, 0], [0, 0, 2]]), r"edge \(1, 2\) .*Potts .* by 0\.[0-9]+"),
        (with_table([[1, 0, 0], [0, 1, 0], [0, 1e-9, 1]]), r"edge \(1, 2\) .*Potts table"),
        (with_table(-0.7 * np.eye(3)), r"edge \(1, 2\) .*coupling -0\.7"),
        (with_table([[1, 0, 0], [0, 1, 0]]), r"edge \(1, 2\) .* 2 and 3 states.*drop_forbidden"),
        (with_table([[1, -INF], [0, 1]]), r"edge \(1, 2\) forbids "),
        (
            MarkovRandomField.ising([(0, 1), (1, 2), (0, 2), (3, 4)], [1.0, 1.0, -0.25, -1.0]),
            r"edge \(0, 2\) .*coupling -0\.5.*odd",
        ),
    ],
)
def test_refusals(model: MarkovRandomField, reason: str) -> None:
    assert not is_attractive(model)
    with pytest.raises(UnfitMethodError, match=reason):
        attractive_form(model)
    with pytest.raises(UnfitMethodError, match=reason):
        ClusterChains(model, num_chains=1, seed=0)


def test_accepted_models() -> None:
    rng = np.random.default_rng(0)
    r, s = rng.normal(size=(2, 5)) * 100
    assert is_attractive(with_table(0.3 * np.eye(5) + r[:, None] + s))
    assert is_attractive(with_table(r[:3, None] + s))  # no coupling: the state counts may differ
    assert is_attractive(with_table(np.log(np.exp(0.3 * np.eye(5) + r[:, None] / 50 + s / 50))))
    assert is_attractive(with_table(0.1 * np.eye(3) + 0.2 * np.eye(3) - 0.3 * np.eye(3)))  # zero to rounding
    assert is_attractive(ising_grid(5, 5, coupling_max=2.0, attractive=True, seed=0))
    grid = ising_grid(5, 5, coupling_max=2.0, attractive=True, seed=0)
    assert is_attractive(grid.replace(log_pairwise=-grid.log_pairwise))
    assert not is_attractive(ising_grid(5, 5, coupling_max=2.0, seed=0))


@given(seed=st.integers(0, 2**32 - 1))
def test_balance_of_signs(seed: int) -> None:
    model = ising_random(7, edge_probability=0.35, coupling_max=1.0, seed=seed)
    J = model.log_pairwise[::4]
    spins = np.array(list(itertools.product([-1, 1], repeat=7)))
    satisfied = spins[:, model.edges[:, 0]] * spins[:, model.edges[:, 1]] * J >= 0
    assert is_attractive(model) == satisfied.all(axis=1).any()


def test_forbidden_states_and_evidence() -> None:
    model = POTTS.model()
    assert not is_attractive(reduce_model(model).model)  # 3 and 2 states
    given_one = reduce_model(model, {1: 2}, drop_forbidden=False)
    num_chains = 50_000
    engine = ClusterChains(given_one.model, num_chains=num_chains, seed=1)
    engine.set_states(fastmix.draw_exact(given_one.model, num_draws=num_chains, seed=2))
    engine.sweep(3, collect=True)
    assert joint_misfit(given_one.model, engine.get_states()) < 1
    sums = engine.take_sums()
    assert (sums[given_one.model.log_unary == -INF] == 0).all()


# -- the interface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_sums_add_up(name: str) -> None:
    model = NAMED[name].model()
    engine = ClusterChains(model, num_chains=7, seed=1)
    assert engine.take_sums().tolist() == np.zeros((len(model.log_unary), 7)).tolist()
    engine.sweep(4, collect=True)
    engine.sweep(9, collect=False)
    engine.sweep(0, collect=True)
    engine.sweep(6, collect=True)
    sums = engine.take_sums()
    assert sums.shape == (len(model.log_unary), 7)
    assert sums.dtype == np.float64
    assert (sums >= 0).all()
    np.testing.assert_allclose(np.add.reduceat(sums, model.unary_offsets[:-1], axis=0), 10.0, rtol=1e-13)
    assert not engine.take_sums().any()


@pytest.mark.parametrize("name", NAMED)
def test_resuming_is_bit_identical(name: str) -> None:
    model = NAMED[name].model()
    whole = ClusterChains(model, num_chains=5, seed=21)
    whole.sweep(10, collect=True)
    first = whole.take_sums()
    states, random_state = whole.get_states(), whole.get_random_state()
    whole.sweep(15, collect=True)

    parts = ClusterChains(model, num_chains=5, seed=21)
    parts.sweep(4, collect=True)
    parts.sweep(6, collect=True)
    assert np.array_equal(parts.take_sums(), first)
    other = ClusterChains(model, num_chains=5, seed=99)
    other.set_states(states)
    other.set_random_state(random_state)
    other.sweep(15, collect=True)
    assert np.array_equal(other.get_states(), whole.get_states())
    assert np.array_equal(other.get_random_state(), whole.get_random_state())
    assert np.array_equal(other.take_sums(), whole.take_sums())
    # What came out was a copy.
    assert not np.array_equal(random_state, whole.get_random_state())
    assert random_state.dtype == np.uint64
    assert random_state.shape == (5, 4)


@pytest.mark.usefixtures("little_work_by_threads")
@pytest.mark.parametrize("name", ["ising", "potts"])
def test_threads_and_chains_change_no_bits(name: str) -> None:
    model = NAMED[name].model()
    results = []
    for num_chains, num_threads in ((23, 1), (23, 2), (23, 5), (23, None), (30, 3), (23, 100)):
        engine = ClusterChains(model, num_chains=num_chains, seed=8, num_threads=num_threads)
        assert 1 <= engine.threads.count <= num_chains
        engine.sweep(20, collect=True)
        results.append((engine.get_states()[:23], engine.get_random_state()[:23], engine.take_sums()[:, :23]))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.array_equal(a, b)


def test_seeds() -> None:
    model = ISING.model()
    drawn = ClusterChains(model, num_chains=3, seed=None)
    again = ClusterChains(model, num_chains=3, seed=drawn.seed)
    other = ClusterChains(model, num_chains=3, seed=drawn.seed + 1)
    assert np.array_equal(drawn.get_random_state(), again.get_random_state())
    assert not np.array_equal(drawn.get_random_state(), other.get_random_state())


def test_bad_arguments() -> None:
    model = POTTS.model()
    for arguments, message in (
        ({"num_chains": 0, "seed": 1}, r"^num_chains .*got 0"),
        ({"num_chains": 1.0, "seed": 1}, r"^num_chains .*got 1\.0$"),
        ({"num_chains": 1, "seed": -1}, r"^seed .*got -1"),
        ({"num_chains": 1, "seed": 1, "num_threads": 0}, "num_threads must be"),
    ):
        with pytest.raises(ValueError, match=message):
            ClusterChains(model, **arguments)
    engine = ClusterChains(model, num_chains=2, seed=1)
    with pytest.raises(ValueError, match="num_sweeps must be"):
        engine.sweep(-1, collect=False)
    with pytest.raises(ValueError, match="could not broadcast"):
        engine.set_random_state(np.ones((2, 3), dtype=np.uint64))


def plain_results() -> list:
    answers = []
    for fields in ([[0.0, 0.5], [0.3, 0.0], [0.0, 0.1]], [[0.0, 0.5, 0.2], [0.3, 0.0, 0.1], [0.0, -np.inf, 0.4]]):
        model = MarkovRandomField.potts([(0, 1), (1, 2)], [0.9, 1.4], len(fields[0]), fields)
        engine = ClusterChains(model, num_chains=3, seed=5)
        engine.sweep(25, collect=True)
        answers.append([engine.get_states().tolist(), engine.get_random_state().tolist(), engine.take_sums().tolist()])
    return answers


def test_sides_of_large_graphs():
    edges = fastmix.graphs.grid_edges(150, 150)
    sides = np.random.default_rng(0).integers(0, 2, 150 * 150)
    couplings = np.where(sides[edges[:, 0]] == sides[edges[:, 1]], 0.5, -0.5)
    flips = swendsen_wang.attractive_form(MarkovRandomField.ising(edges, couplings)).flips
    assert np.array_equal(flips, sides != sides[0])
    couplings[7] *= -1.0
    assert not is_attractive(MarkovRandomField.ising(edges, couplings))


@pytest.mark.parametrize("counts", [[2, 2], [3, 3, 3], [5], [1, 1], [2, 3], [4, 1]])
def test_sums_by_state(counts):
    from fastmix.chains.base import sums_by_state

    structure = MarkovRandomField.from_tables([np.zeros(k) for k in counts], [], []).structure
    rng, sweeps = np.random.default_rng(0), 7
    drawn = [rng.integers(0, k, size=(sweeps, 3)) for k in counts]
    expected = np.concatenate([[(x == s).sum(axis=0) for s in range(k)] for x, k in zip(drawn, counts, strict=True)])
    cumulative = [(x <= s).sum(axis=0) for x, k in zip(drawn, counts, strict=True) for s in range(k - 1)]
    totals = np.array(cumulative, dtype=np.float64).reshape(-1, 3) * 2.0**24
    assert np.array_equal(sums_by_state(structure, totals, sweeps), expected)


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 3.0))
def test_scaled_tables_have_the_form_that_a_search_finds(seed: int, scale: float) -> None:
    """For mixtures of unaries and of tables, of trees of couplings either sign, with a forbidden state."""
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(v)), v) for v in range(1, 6)]
    tables = [rng.normal(size=(2, 2)) for _ in edges]
    unaries = rng.normal(size=(6, 2))
    unaries[2, int(rng.integers(2))] = -np.inf
    model = MarkovRandomField.from_tables(unaries, edges, tables)
    split = len(model.log_unary)
    thetas = np.zeros((2, model.num_parameters))
    thetas[0, :split] = model.log_unary
    thetas[1, split:] = model.log_pairwise * (1.0 if rng.random() < 0.5 else 2.0)
    chains = ClusterChains(model, num_chains=4, seed=1)
    states = chains.get_states()
    chains.load(thetas, [[1.0, scale]])
    assert np.array_equal(chains.get_states(), states)
    found = attractive_form(model.with_parameters(np.array([1.0, scale]) @ np.nan_to_num(thetas, neginf=-1e90)))
    form = chains._form
    assert np.allclose(form.couplings[form.couplings > 1e-9], found.couplings[found.couplings > 1e-9])
    # The same weights of all configurations, up to a constant: flips may differ where there are no couplings.
    every = np.array(list(itertools.product((0, 1), repeat=6)))

    def log_weights(form: AttractiveForm) -> FloatArray:
        y = every ^ form.flips
        bonds = form.couplings * (y[:, form.heads] == y[:, form.tails])
        return bonds.sum(axis=1) + form.log_unary[2 * np.arange(6) + y].sum(axis=1)

    expected = log_weights(found)
    possible = expected > -1e80
    difference = log_weights(form)[possible] - expected[possible]
    assert np.allclose(difference, difference[0], atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_shared_tables_give_the_same_bits(seed: int) -> None:
    """From patterns and weights, which are not laid out."""
    rng = np.random.default_rng(seed)
    edges = fastmix.graphs.grid_edges(4, 5)
    unary = rng.normal(size=(20, 4))
    weights = rng.uniform(0.2, 1.0, len(edges))
    shared = MarkovRandomField.from_patterns(unary, edges, [np.eye(4)], weights=weights)
    full = MarkovRandomField.from_tables(unary, edges, weights[:, None, None] * np.eye(4))
    assert full.shared_tables is None
    found = []
    for model in (shared, full):
        chains = ClusterChains(model, num_chains=3, seed=seed, num_threads=1)
        chains.sweep(20, collect=True)
        states = chains.get_states()
        np.testing.assert_allclose(chains.energies()[0], model.log_weight(states), rtol=1e-12)
        found.append((states, chains.take_sums()))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert "log_pairwise" not in vars(shared)
