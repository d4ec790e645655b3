"""Lengths of steps in the coordinates of a descent."""

from __future__ import annotations

import numpy as np
import pytest
from test_descent import feasible_set, safe_norm

import oracle
from fastmix import MarkovRandomField
from fastmix.graphs import cycle_edges
from fastmix.instances import ising_grid, random_tables
from fastmix.projection import KL
from fastmix.projection.coordinates import Metric
from oracle import divergences as naive

# -- coordinates ----------------------------------------------------------------------------------------------------


def test_centered_coordinates_are_field_and_coupling_of_ising_models():
    """A step of 0.1 by (h, J), computed by hand from the derivatives by h and J, is a centered step of 0.1."""
    psi = MarkovRandomField.ising(cycle_edges(4), [0.3, -0.2, 0.5, 0.1], [0.2, -0.4, 0.1, 0.0])
    h, j = np.array([0.1, 0.0, -0.2, 0.3]), np.array([0.1, 0.1, -0.1, 0.2])

    def build(h, j):
        return MarkovRandomField.ising(cycle_edges(4), j, h)

    gradient = KL().start(psi, seed=0).evaluate(build(h, j))[1]
    new = build(h, j).parameters - 0.1 * Metric(psi, "centered").steepest(gradient)
    eps, eye = 1e-5, np.eye(4)
    by_h = [(naive.kl(psi, build(h + eps * e, j)) - naive.kl(psi, build(h - eps * e, j))) / (2 * eps) for e in eye]
    by_j = [(naive.kl(psi, build(h, j + eps * e)) - naive.kl(psi, build(h, j - eps * e))) / (2 * eps) for e in eye]
    expected = build(h - 0.1 * np.array(by_h), j - 0.1 * np.array(by_j))
    np.testing.assert_allclose(new, expected.parameters, atol=1e-8)


def test_indicator_steps_move_fields_and_couplings_as_the_docs_say():
    """Against centered steps: fields (1/2 + degree/4) times, couplings 1/4 times as far."""
    psi = ising_grid(3, 3, coupling_max=1.0, seed=0)
    theta = ising_grid(3, 3, coupling_max=1.0, seed=1)
    gradient = KL().start(psi, seed=0).evaluate(theta)[1]

    def effective(change):
        """Changes of h and J that a change of all entries amounts to."""
        unary, tables = change[:18].reshape(-1, 2), change[18:].reshape(-1, 2, 2)
        h = (unary[:, 1] - unary[:, 0]) / 2
        for (i, k), t in zip(psi.edges, tables, strict=True):
            h[i] += (t[1].mean() - t[0].mean()) / 2
            h[k] += (t[:, 1].mean() - t[:, 0].mean()) / 2
        return h, (tables[:, 0, 0] - tables[:, 0, 1] - tables[:, 1, 0] + tables[:, 1, 1]) / 4

    one, two = (
        effective(Metric(psi, "indicator").steepest(gradient)),
        effective(Metric(psi, "centered").steepest(gradient)),
    )
    np.testing.assert_allclose(one[0], two[0] * (0.5 + psi.adjacency.degree / 4), atol=1e-12)
    np.testing.assert_allclose(one[1], two[1] / 4, atol=1e-12)


def enumerated_metric(model, change):
    """Variance over all configurations, equally weighted, of what a change adds to the log-weight."""
    zero = model.with_parameters(change).replace(log_constant=0.0)
    return float(np.var([oracle.log_weight(zero, x) for x in oracle.all_configurations(model)]))


@pytest.mark.parametrize("seed", range(6))
def test_centered_length_is_the_standard_deviation_of_the_change(seed):
    rng = np.random.default_rng(seed)
    model = oracle.random_model(rng, 4, 3)
    change = rng.standard_normal(model.num_parameters)
    metric = Metric(model, "centered")
    assert metric.squared_norm(change) == pytest.approx(enumerated_metric(model, change), rel=1e-10, abs=1e-12)
    # The steepest direction d of a gradient g has <d, v> = g . v for all v that are changes of a distribution.
    p, f = naive.features(model)
    gradient = (p * rng.standard_normal(len(p))) @ (f - p @ f)
    d = metric.steepest(gradient)
    plus, minus = metric.squared_norm(d + change), metric.squared_norm(d - change)
    assert (plus - minus) / 4 == pytest.approx(float(gradient @ change), rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_fisher_coordinates_scale_by_variances(seed):
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 2, 3], [(0, 1), (1, 2)])
    moments = naive.moments(model)
    metric, centered = Metric(model, "fisher"), Metric(model, "centered")
    gradient = rng.standard_normal(model.num_parameters)
    metric.adapt(np.concatenate([np.full(k, 1 / k) for k in (2, 2, 3)] + [np.full(k, 1 / k) for k in (4, 6)]))
    np.testing.assert_allclose(metric.steepest(gradient), centered.steepest(gradient), atol=1e-12)
    metric.adapt(moments)
    m = moments[1] - moments[0]
    np.testing.assert_allclose(metric.steepest(gradient)[:2], centered.steepest(gradient)[:2] / (1 - m**2), rtol=1e-10)
    q = moments[7:11]
    c = q[0] + q[3] - q[1] - q[2]
    np.testing.assert_allclose(
        metric.steepest(gradient)[7:11], centered.steepest(gradient)[7:11] / (1 - c**2), rtol=1e-10
    )
    with pytest.raises(ValueError, match="coordinates"):
        metric.adapt(None)


def test_projection_of_a_step_measures_tables_as_the_step_does():
    """With mixed state counts the tables of many states count less: the projection is optimal in its own metric."""
    model = random_tables([(0, 1), (1, 2)], [2, 2, 5], scale=2.0, seed=0)
    feasible = feasible_set(model, 0.8)
    metric = feasible.metric("centered")
    assert metric.edge_weights == pytest.approx([1.0, 0.4])
    best = feasible.project(model.parameters, "centered")
    plain = feasible.project(model.parameters, "indicator")
    for other in (plain, best):
        assert safe_norm(other, "inf", "range") <= 0.8 * (1 + 1e-12)

    def distance(theta, weights):
        change = (theta.log_pairwise - model.log_pairwise) ** 2
        return float(weights @ np.add.reduceat(change, model.pairwise_offsets[:-1]))

    assert distance(best, metric.edge_weights) < distance(plain, metric.edge_weights) * (1 - 1e-3)
    assert distance(plain, np.ones(2)) < distance(best, np.ones(2)) * (1 - 1e-3)
