"""Counts of Swendsen-Wang sweeps against the distribution of the model; the same test catches sabotaged twins."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2, norm

import fastmix
import oracle
from error_families import opposing_halves
from fastmix import MarkovRandomField, infer, sample
from fastmix.errors import UnfitMethodError
from fastmix.model.attractive import is_attractive
from fastmix.results import Status
from fastmix.sampling.clusters import ClusterChains, lengths_of_stay
from fastmix.testing import conformance_models
from oracle.swendsen_wang import (
    FALSE_ALARM,
    INF,
    ISING,
    NAMED,
    POTTS,
    TINY,
    Parts,
    Rule,
    choose,
    cluster_weights,
    clusters_of,
    draw_clusters,
    excess,
    joint_misfit,
    sweep,
    transition_matrix,
)

# -- statistics -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TINY)
def test_one_sweep_from_a_given_start(name: str) -> None:
    parts, repeats = TINY[name], 8_000
    configurations, matrix = transition_matrix(parts)
    model = parts.model()
    starts = [x for x, p in zip(configurations, oracle.joint(model).reshape(-1), strict=True) if p > 0]
    engine = ClusterChains(model, num_chains=repeats * len(starts), seed=3)
    engine.set_states(np.repeat(np.array(starts), repeats, axis=0))
    engine.sweep(1, collect=True)
    ends = engine.get_states().reshape(len(starts), repeats, -1)
    sums = engine.take_sums().reshape(-1, len(starts), repeats)
    indicators = np.concatenate([np.equal.outer(np.array(configurations)[:, i], np.arange(L)) for i, L in enumerate(
        model.num_states)], axis=1)  # fmt: skip
    statistic = freedom = 0.0
    for k, x in enumerate(starts):
        row = matrix[configurations.index(x)]
        codes = np.ravel_multi_index(tuple(ends[k].T), tuple(model.num_states.tolist()))
        more = excess(np.bincount(codes, minlength=row.size), repeats * row)
        statistic, freedom = statistic + more[0], freedom + more[1]
        # What is collected has the same mean as the indicators of the states that follow.
        error = sums[:, k].std(axis=1) / math.sqrt(repeats)
        limit = norm.isf(FALSE_ALARM / 2 / sums[:, 0].shape[0] / len(starts))
        assert (
            np.abs(sums[:, k].mean(axis=1) - row @ indicators) <= limit * error + 1e-9
        ).all()  # rounding, where nothing varies
    assert statistic < chi2.isf(FALSE_ALARM, freedom)


@pytest.mark.parametrize("name", NAMED)
def test_exact_draws_stay_exact(name: str) -> None:
    model, num_chains, num_sweeps = NAMED[name].model(), 100_000, 3
    engine = ClusterChains(model, num_chains=num_chains, seed=11)
    engine.set_states(fastmix.draw_exact(model, num_draws=num_chains, seed=12))
    assert joint_misfit(model, engine.get_states()) < 1
    engine.sweep(num_sweeps, collect=True)
    assert joint_misfit(model, engine.get_states()) < 1
    means = engine.take_sums() / num_sweeps
    error = means.std(axis=1) / math.sqrt(num_chains)
    exact = np.concatenate(oracle.node_marginals(model))
    limit = norm.isf(FALSE_ALARM / 2 / len(exact))
    assert (np.abs(means.mean(axis=1) - exact) <= limit * error + 1e-9).all()  # rounding, where nothing varies


def test_start_is_soon_forgotten() -> None:
    # From the start without couplings the joint is wrong, 30 sweeps later it is right.
    model = ISING.model()
    engine = ClusterChains(model, num_chains=50_000, seed=2)
    assert joint_misfit(model, engine.get_states()) > 1
    engine.sweep(30, collect=False)
    assert joint_misfit(model, engine.get_states()) < 1


def test_conformance_models() -> None:
    accepted = set()
    for name, model in conformance_models():
        if not is_attractive(model):
            with pytest.raises(UnfitMethodError, match="but edge"):
                ClusterChains(model, num_chains=1, seed=0)
            continue
        accepted.add(name)
        engine = ClusterChains(model, num_chains=20_000, seed=4)
        engine.set_states(fastmix.draw_exact(model, num_draws=20_000, seed=5))
        engine.sweep(2, collect=True)
        assert engine.take_sums().shape == (len(model.log_unary), 20_000)
        if model.num_variables:
            assert joint_misfit(model, engine.get_states()) < 1, name
    assert accepted >= {
        "no variables",
        "a constant alone",
        "one variable",
        "one state",
        "no edges",
        "isolated variable",
        "one-state neighbor",
        "large constant",
        "couplings of a thousand",  # of both signs
        "opposed fields of a thousand",
    }


# -- sabotaged twins, which the same test must catch ----------------------------------------------------------------


def sweep_without_fields(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    flat = [[0.0 if u > -INF else u for u in vector] for vector in parts.unary]
    return sweep(Parts(flat, parts.edges, parts.coupling), x, uniform, before)


def sweep_with_fields_of_one(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """Only the first member of a cluster counts."""
    bonds = [
        e
        for e, J in zip(parts.edges, parts.coupling, strict=True)
        if uniform() < -math.expm1(-J) and x[e[0]] == x[e[1]]
    ]
    y = [0] * len(x)
    for cluster in clusters_of(len(x), bonds):
        state = choose(cluster_weights(parts, cluster[:1]), uniform())
        for i in cluster:
            y[i] = state
    return y


def sweep_with_half_bonds(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    return sweep(Parts(parts.unary, parts.edges, [J / 2 for J in parts.coupling]), x, uniform, before)


def sweep_without_an_edge(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    return sweep(Parts(parts.unary, parts.edges[1:], parts.coupling[1:]), x, uniform, before)


def sweep_with_any_bonds(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """Bonds whether or not the ends agree."""
    return sweep(parts, [0] * len(x), uniform, before)


def sweep_from_stale_state(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """The second end of an edge is looked up where it was a sweep ago."""
    bonds = [
        (i, j)
        for (i, j), J in zip(parts.edges, parts.coupling, strict=True)
        if uniform() < -math.expm1(-J) and x[i] == before[j]
    ]
    return draw_clusters(parts, bonds, uniform)


def sweep_with_stale_member(parts: Parts, x: list[int], uniform: Callable[[], float], before: list[int]) -> list[int]:
    """The first variable keeps its state when its cluster changes."""
    return [*x[:1], *sweep(parts, x, uniform, before)[1:]]


SABOTAGED: list[Rule] = [
    sweep_without_fields,
    sweep_with_fields_of_one,
    sweep_with_half_bonds,
    sweep_without_an_edge,
    sweep_with_any_bonds,
    sweep_from_stale_state,
    sweep_with_stale_member,
]


def twin_misfit(parts: Parts, rule: Rule) -> float:
    """The test of :func:`test_exact_draws_stay_exact` with another rule for a sweep."""
    num_chains = 1_500
    flips, plain = parts.attractive()
    assert not any(flips)
    rng = random.Random(9)
    states = fastmix.draw_exact(parts.model(), num_draws=num_chains, seed=10).states
    for c, row in enumerate(states.tolist()):
        before, x = row, row
        for _ in range(3):
            before, x = x, rule(plain, x, rng.random, before)
        states[c] = x
    return joint_misfit(parts.model(), states)


SMALL_ISING = Parts(ISING.unary[:4], ISING.edges[:3], ISING.coupling[:3])
SMALL_POTTS = Parts(POTTS.unary[:3], [(0, 1), (0, 2), (1, 2)], [0.8, 1.4, 0.5])


@pytest.mark.parametrize("parts", [SMALL_ISING, SMALL_POTTS], ids=["ising", "potts"])
def test_sabotage_is_caught(parts: Parts) -> None:
    assert twin_misfit(parts, sweep) < 1
    for rule in SABOTAGED:
        assert twin_misfit(parts, rule) > 1, rule.__name__


def test_rare_states_that_a_variable_stays_in_are_not_overlooked():
    """Runs of the family in which all chains agreed, to the last digit, on a probability off by up to 13 errors."""
    for seed in (619, 887, 1139, 2083, 3595, 3779, 4073, 5687):
        model = opposing_halves(seed)
        truth = infer(model, method="exact").node_marginals
        options = {"num_chains": 4, "num_sweeps": (300, 1000, 3000)[seed % 3]}
        result = sample(model, method="swendsen-wang", seed=seed, num_threads=1, **options)
        assert result.status == Status.OK
        assert (np.abs(result.node_marginals - truth) <= 5.0 * result.std_error).all(), seed


def test_lengths_of_stay_are_those_of_chains_on_average():
    """A leaf held by one neighbor that never changes: the sweeps until it is released follow from the bond alone."""
    model = MarkovRandomField.potts([(0, 1)], coupling=1.5, num_states=3, field=[[40.0, 0.0, 0.0], [0.0, 2.0, 0.5]])
    mean = infer(model, method="exact").node_marginals
    stays = lengths_of_stay(model, mean)
    own = np.exp([0.0, 2.0, 0.5]) / np.exp([0.0, 2.0, 0.5]).sum()
    held = np.exp([-1.5, 0.0, 0.0]) * (1.0 - own)
    np.testing.assert_allclose(stays[3:], 1.0 / held, rtol=1e-6)
    flipped = MarkovRandomField.ising([(0, 1)], coupling=[-0.5], field=[20.0, 1.0])  # states are exchanged
    stays = lengths_of_stay(flipped, infer(flipped, method="exact").node_marginals)
    own = 1.0 / (1.0 + np.exp(2.0))  # of state 0 of the leaf, which the strong field of the other holds
    np.testing.assert_allclose(stays[2:], [np.exp(1.0) / (1.0 - own), 1.0 / own], rtol=1e-6)
