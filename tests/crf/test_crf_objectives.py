"""Objectives of conditional random fields against all labelings, and their derivatives against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crf_models import random_problem

from fastmix import NormBall
from fastmix._clock import NO_LIMIT, Clock
from fastmix._context import open_context
from fastmix.crf.design import Design, Layout
from fastmix.crf.examples import Examples
from fastmix.crf.forest import Forest
from fastmix.crf.loss import make_loss
from fastmix.crf.sampled import SampledMoments
from oracle import crf as naive


def differences(evaluate: Any, w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """The derivative of a function by central differences."""
    found = np.empty_like(w)
    for k in range(len(w)):
        moved = np.zeros_like(w)
        moved[k] = step
        found[k] = (evaluate(w + moved)[0] - evaluate(w - moved)[0]) / (2.0 * step)
    return found


@pytest.mark.parametrize("num_edge_features", [0, 2])
@pytest.mark.parametrize("cycles", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_likelihoods_are_those_of_all_labelings(num_edge_features: int, cycles: bool, missing: float) -> None:
    for seed in range(8):
        graphs, examples, layout, codes, w = random_problem(
            seed, num_edge_features=num_edge_features, cycles=cycles, missing=missing
        )
        nodes, tables = layout.split(w)
        parts = np.split(codes, examples.node_starts[1:-1])
        penalty = 0.05 * float(w @ w)
        for objective, oracle in (
            ("likelihood", naive.log_likelihood),
            ("pseudo-likelihood", naive.log_pseudo_likelihood),
        ):
            loss = make_loss(examples, codes, layout, objective=objective, moments="exact", within=None, ridge=0.1)
            value, gradient = loss.evaluate(w, NO_LIMIT)
            expected = np.mean([oracle(graph, nodes, tables, own) for graph, own in zip(graphs, parts, strict=True)])
            np.testing.assert_allclose(value, penalty - expected, rtol=1e-10)
            if seed < 2:
                found = differences(lambda at, loss=loss: loss.evaluate(at, NO_LIMIT), w)
                np.testing.assert_allclose(gradient, found, atol=1e-7)


def test_symmetric_kinds_keep_their_tables_symmetric() -> None:
    _, examples, layout, codes, _ = random_problem(3)
    layout = Layout(layout.num_states, 2, 0, 2, (False, True))
    loss = make_loss(examples, codes, layout, objective="likelihood", moments="auto", within=None, ridge=0.1)
    gradient = loss.evaluate(np.zeros(layout.size), NO_LIMIT)[1]
    tables = layout.split(gradient)[1]
    np.testing.assert_array_equal(tables[1], tables[1].swapaxes(1, 2))
    assert not np.array_equal(tables[0], tables[0].swapaxes(1, 2))


@pytest.mark.parametrize("norm", ["inf", "spectral"])
@pytest.mark.parametrize("objective", ["likelihood", "pseudo-likelihood"])
def test_derivatives_through_the_projection(norm: Any, objective: Any) -> None:
    """By differences of values: the projection has kinks, but not at these weights."""
    _, examples, layout, codes, w = random_problem(5, num_edge_features=1, cycles=True)
    within = NormBall(norm, 0.4)
    loss = make_loss(examples, codes, layout, objective=objective, moments="exact", within=within, ridge=0.1)
    free = make_loss(examples, codes, layout, objective=objective, moments="exact", within=None, ridge=0.1)
    value, gradient = loss.evaluate(w, NO_LIMIT)
    assert abs(value - free.evaluate(w, NO_LIMIT)[0]) > 1e-3
    found = differences(lambda at: loss.evaluate(at, NO_LIMIT), w, step=1e-4)
    np.testing.assert_allclose(gradient, found, atol=2e-4)
    assert loss.projection_seconds > 0.0


# -- sums over trees --------------------------------------------------------------------------------------------------


def potentials(examples: Examples, layout: Layout, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What sums over trees read."""
    design = Design(examples, layout)
    return (*design.potentials(w), design.table_of)


@pytest.mark.nojit
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3])
def test_marginals_and_modes_of_trees(scale: float) -> None:
    """Weights far apart are summed in logarithms."""
    for seed in range(20):
        graphs, examples, layout, _, w = random_problem(seed, scale=scale)
        nodes, tables = layout.split(w)
        forest = Forest(examples)
        values = potentials(examples, layout, w)
        sums = forest.sums(*values)
        modes = examples.by_example(forest.modes(*values))
        for graph, own, mode in zip(graphs, examples.by_example(sums.marginals), modes, strict=True):
            np.testing.assert_allclose(own, naive.marginals(graph, nodes, tables), atol=1e-9)
            best = naive.labelings(graph, nodes, tables)[1].max()
            np.testing.assert_allclose(naive.log_weight(graph, nodes, tables, mode), best, rtol=1e-12)
        total = sum(np.logaddexp.reduce(naive.labelings(graph, nodes, tables)[1]) for graph in graphs)
        np.testing.assert_allclose(sums.log_z.sum(), total, rtol=1e-11)


def test_long_chains_and_stars_do_not_vanish() -> None:
    """Products of thousands of messages, and weights that leave one labeling: none is lost."""
    from fastmix.crf import Graph
    from fastmix.crf.examples import read_examples

    n = 3000
    star = Graph(np.zeros((n, 1)), np.stack([np.zeros(n - 1, dtype=int), np.arange(1, n)], axis=1))
    chain = Graph.chain(np.zeros((n, 1)))
    layout = Layout(2, 1, 0, 1, (False,))
    w = np.concatenate([np.zeros(4), [0.0, -3.0, -400.0, -1.0]])
    for graph in (star, chain):
        sums = Forest(read_examples([graph])).sums(*potentials(read_examples([graph]), layout, w))
        assert np.isfinite(sums.log_z).all()
        np.testing.assert_allclose(sums.marginals.sum(axis=1), 1.0, atol=1e-12)
        assert sums.pairs is not None
        np.testing.assert_allclose(sums.pairs.sum(), n - 1, rtol=1e-9)
    of_star = Forest(read_examples([star])).sums(*potentials(read_examples([star]), layout, w)).log_z
    expected = np.logaddexp((n - 1) * np.logaddexp(0.0, -3.0), (n - 1) * np.logaddexp(-400.0, -1.0))
    np.testing.assert_allclose(of_star, expected, rtol=1e-12)


def test_draws_of_trees_have_their_frequencies() -> None:
    """Independent draws: a chi-square statistic whose tail beyond 7 standard deviations is below 1e-9."""
    graphs, examples, layout, _, w = random_problem(2)
    nodes, tables = layout.split(w)
    num_draws = 20_000
    draws = Forest(examples).draw(*potentials(examples, layout, w), num_draws, np.random.default_rng(0))
    for graph, own in zip(graphs, np.split(draws, examples.node_starts[1:-1], axis=1), strict=True):
        every, weights = naive.labelings(graph, nodes, tables)
        expected = num_draws * np.exp(weights - np.logaddexp.reduce(weights))
        places = own @ (layout.num_states ** np.arange(graph.num_nodes)[::-1])
        counts = np.bincount(places, minlength=len(every))
        frequent = expected > 5.0
        statistic = float(((counts - expected)[frequent] ** 2 / expected[frequent]).sum())
        freedom = max(1, int(frequent.sum()))
        assert statistic < freedom + 7.0 * np.sqrt(2.0 * freedom) + 10.0


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_sampled_moments_are_the_exact_ones(missing: float) -> None:
    """Means over chains that are nearly independent, within 6 standard errors of a share of 1/4."""
    _, examples, layout, codes, w = random_problem(1, cycles=True, missing=missing, scale=0.3)
    options: dict[str, Any] = {"objective": "likelihood", "within": None, "ridge": 0.0}
    exact = make_loss(examples, codes, layout, moments="exact", **options).evaluate(w, Clock())[1]
    design = Design(examples, layout)
    with open_context("fit", seed=0, num_threads=1, progress=None) as context:
        moments = SampledMoments(design, codes, None, 4000, context)
        moments.load(w)
        moments.sweep(20)
        found = moments.gradient() / len(examples)
        assert moments.mixes()
    # An entry adds up a few terms of at most 4 in size, each with a variance below 16/4000.
    np.testing.assert_allclose(found, exact, atol=6.0 * np.sqrt(2 * 16.0 * len(codes) / 4000) / len(examples))
    assert np.abs(found - exact).max() < 0.15
