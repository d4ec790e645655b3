from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import fastmix
import oracle
from fastmix import MarkovRandomField, Multicanonical, NotConvergedError, UnfitMethodError, infer
from fastmix.chains.generator import make_streams
from fastmix.exact import enumerate_model
from fastmix.graphs import complete_edges, grid_edges
from fastmix.instances import ising_grid
from fastmix.model.forms import center_pairs
from fastmix.sampling.energy_phases import EnergySeries
from fastmix.sampling.energy_walks import Collected, EnergyWeights, Walkers, independent_states

WEIGHTS = EnergyWeights(-1.0, 0.8, np.array([0.0, 0.9, 0.7, 2.4]), np.array([0.1, -0.4, 0.2, -0.3]))


def energy_of(model: MarkovRandomField, states: Any) -> float:
    return sum(float(model.table(i, j)[states[i], states[j]]) for i, j in model.edges.tolist())


def weight_at(energy: float, weights: EnergyWeights = WEIGHTS) -> float:
    """G, point by point."""
    heights = weights.heights.tolist()
    corrections = weights.corrections.tolist()
    if energy <= weights.low:
        return heights[0] + corrections[0]
    if energy >= weights.high:
        return heights[-1] + corrections[-1] + energy - weights.high
    place = (energy - weights.low) / weights.width
    k = int(place)
    beyond = place - k
    nearest = k if beyond <= 0.5 else k + 1
    return (1.0 - beyond) * heights[k] + beyond * heights[k + 1] + corrections[nearest]


def test_weights_at_energies() -> None:
    energies = np.linspace(-3.0, 4.0, 500)
    np.testing.assert_allclose(WEIGHTS.at(energies), [weight_at(energy) for energy in energies.tolist()])
    assert (energies - WEIGHTS.at(energies)).max() <= WEIGHTS.top + 1e-12


def plain_sweep(model: MarkovRandomField, states: list[int], stream: oracle.Stream) -> float:
    """One sweep by the definition: every state in turn is tried, and the whole energy added up anew."""
    for i in range(model.num_variables):
        high, low = stream.draw(), stream.draw()
        uniform = (((high << 21) | (low >> 11)) + 0.5) / 2**53
        weights = []
        for state in range(int(model.num_states[i])):
            states[i] = state
            logarithm = float(model.log_unary[model.unary_offsets[i] + state]) + weight_at(energy_of(model, states))
            weights.append(math.exp(logarithm))
        cuts = np.cumsum(weights) / sum(weights)
        states[i] = min(int((cuts <= uniform).sum()), len(weights) - 1)
    return energy_of(model, states)


@pytest.mark.nojit
@pytest.mark.parametrize("seed", range(20))
def test_sweeps_follow_the_definition(seed: int) -> None:
    model = oracle.random_model(np.random.default_rng(seed), num_variables=5)
    start = independent_states(model, 1, np.random.default_rng(seed))
    walkers = Walkers(model, start.copy(), seed, 1)
    collected = [Collected.of(model)]
    energies = walkers.collect(WEIGHTS, 10, collected)
    states = start[0].tolist()
    stream = oracle.Stream(make_streams(seed, 0, 1)[:, 0])
    sums = np.zeros(len(model.log_unary))
    total = 0.0
    for sweep in range(10):
        energy = plain_sweep(model, states, stream)
        assert energies[0, sweep] == pytest.approx(energy, abs=1e-9)
        weight = math.exp(energy - weight_at(energy) - WEIGHTS.top)
        total += weight
        sums[model.unary_offsets[:-1] + states] += weight
        stream.draw()
        stream.draw()  # which configuration is kept
    assert walkers.states[0].tolist() == states
    np.testing.assert_allclose(collected[0].sums, sums, rtol=1e-9)
    assert collected[0].total == pytest.approx(total)


@pytest.mark.nojit
def test_visited_energies_sink() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=0.3)
    walkers = Walkers(model, np.zeros((1, 2), dtype=np.int64), 0, 1)
    weights = EnergyWeights.linear(-0.8, 0.4, np.zeros(5))
    visits = np.zeros(5, dtype=np.int64)
    walkers.adapt(weights, 50, 0.1, visits)
    # Energies are +-0.3, nearest to the second and the fourth knot. The one that is met later begins with what the
    # other has then.
    assert visits.sum() == 50
    assert visits[[0, 2, 4]].tolist() == [0, 0, 0]
    lost = -weights.corrections[[1, 3]] / 0.1
    np.testing.assert_allclose(lost, np.round(lost), atol=1e-9)
    assert lost.max() >= visits.max()
    assert np.abs(np.diff(lost)) <= np.abs(np.diff(visits[[1, 3]])) + 1e-9


@pytest.mark.nojit
def test_energies_beyond_the_ends_belong_to_these_and_sink_less() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=2.0)
    walkers = Walkers(model, np.zeros((1, 2), dtype=np.int64), 0, 1)
    weights = EnergyWeights.linear(-0.4, 0.4, np.zeros(3))
    visits = np.ones(3, dtype=np.int64)
    walkers.adapt(weights, 50, 0.1, visits)
    np.testing.assert_allclose(weights.corrections, -0.025 * (visits - 1))
    assert visits[1] == 1


def test_independent_states_follow_the_unaries() -> None:
    model = MarkovRandomField.from_tables([[0.0, 1.0], [0.3, -1.0, 0.0]], [(0, 1)], [np.zeros((2, 3))])
    states = independent_states(model, 40_000, np.random.default_rng(0))
    for i, unary in enumerate(([0.0, 1.0], [0.3, -1.0, 0.0])):
        p = np.exp(unary) / np.exp(unary).sum()
        found = np.bincount(states[:, i], minlength=len(p)) / len(states)
        assert (np.abs(found - p) < 6 * np.sqrt(p * (1 - p) / len(states))).all()


# -- answers ----------------------------------------------------------------------------------------------------------


def models() -> list[tuple[str, MarkovRandomField]]:
    rng = np.random.default_rng(5)
    edges = complete_edges(8)
    return [
        ("attractive", ising_grid(3, 4, coupling_max=1.5, attractive=True, seed=1)),
        ("mixed", ising_grid(3, 4, coupling_max=1.5, seed=2)),
        ("potts", MarkovRandomField.potts(grid_edges(3, 3), coupling=1.4, num_states=3)),
        ("complete", MarkovRandomField.ising(edges, 0.3, 0.2 * rng.normal(size=8))),
        ("tables", oracle.random_model(np.random.default_rng(11), num_variables=6, scale=1.5)),
    ]


@pytest.mark.parametrize(("name", "model"), models())
def test_answers_agree_with_enumeration(name: str, model: MarkovRandomField) -> None:
    result = infer(model, method="multicanonical", num_sweeps=6000, seed=3)
    exact = enumerate_model(model)
    assert str(result.status) == "ok", (name, result.stats["note"])
    assert result.log_z_kind == "estimate"
    assert abs(result.log_z - exact.log_z) < 5 * result.log_z_std_error
    error = np.abs(result.node_marginals - exact.node_marginals)
    assert (error <= 5 * result.std_error + 1e-12).all()
    assert result.std_error.max() < 0.05


def test_one_run_tells_about_all_scales() -> None:
    model = center_pairs(MarkovRandomField.potts(grid_edges(3, 3), coupling=1.4, num_states=3))
    series = infer(model, method="multicanonical", num_sweeps=20_000, seed=0).series
    states = np.array(np.unravel_index(np.arange(3**9), (3,) * 9)).T
    energies = model.log_weight(states) - model.log_constant
    for scale in (0.0, 0.3, 0.7, 1.0, 1.1):
        logs = scale * energies
        log_z = oracle.log_sum_exp(logs.tolist())
        p = np.exp(logs - log_z)
        mean = float(p @ energies)
        variance = float(p @ (energies - mean) ** 2)
        for estimate, truth in (
            (series.log_z(scale), log_z + model.log_constant),
            (series.energy(scale), mean),
            (series.variance(scale), variance),
        ):
            assert abs(estimate.value - truth) <= 5 * estimate.std_error + 1e-9, scale


def test_both_phases_of_a_first_order_transition() -> None:
    # On the complete graph the numbers of variables in each state tell the weights, so that all is known exactly.
    model, share, log_z = oracle.first_order_model(16, 8, excess=0.5, unary=-1.0)
    result = infer(model, method="multicanonical", num_sweeps=10_000, seed=1)
    assert str(result.status) == "ok"
    assert abs(result.log_z - log_z) < 5 * result.log_z_std_error
    found = result.node_marginals[model.unary_offsets[:-1]]
    assert np.abs(found - share).max() < 5 * result.std_error.max()
    below, above = result.phases()
    assert above.energy.value > below.energy.value
    assert float(below.mass.value + above.mass.value) == pytest.approx(1.0)
    assert abs(above.mass.value - share) < 0.1
    # Half of the mass is in either phase where the larger one is weakened a little.
    transition = result.transition()
    assert transition is not None
    assert 0.8 < transition.scale.value < 1.0
    masses = [float(phase.mass.value) for phase in result.phases(float(transition.scale.value))]
    assert masses == pytest.approx([0.5, 0.5], abs=0.02)
    assert float(transition.latent_heat.value) == pytest.approx(
        float(transition.energies[1].value - transition.energies[0].value)
    )


def test_no_transition_where_there_is_one_phase() -> None:
    model = ising_grid(3, 3, coupling_max=0.3, seed=0)
    result = infer(model, method="multicanonical", num_sweeps=4000, seed=0)
    assert result.transition() is None
    assert [float(phase.mass.value) for phase in result.phases()] == [1.0]


def test_the_same_seed_gives_the_same_bits() -> None:
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    one, two = (
        infer(model, method="multicanonical", num_sweeps=500, seed=5, num_threads=threads, time_limit=100)
        for threads in (1, 2)
    )
    assert one.node_marginals.tobytes() == two.node_marginals.tobytes()
    assert one.log_z == two.log_z


def test_densities_are_smooth_sums() -> None:
    model = MarkovRandomField.potts(grid_edges(3, 3), coupling=1.0, num_states=3)
    series = infer(model, method="multicanonical", num_sweeps=2000, seed=0).series
    places, logs = series.log_density(0.6)
    energies = series.energies.reshape(-1)
    weights = np.exp(0.6 * energies - series.weights.at(energies))
    for place, found in zip(places[::3], logs[::3], strict=True):
        plain = (weights * np.exp(-0.5 * ((place - energies) / series._smoothing) ** 2)).sum()
        assert found == pytest.approx(math.log(plain), abs=0.02)


def test_evidence_and_the_drawing() -> None:
    pytest.importorskip("matplotlib")
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    result = infer(model, method="multicanonical", evidence={4: 1}, num_sweeps=4000, seed=5)
    exact = infer(model, method="exact", evidence={4: 1})
    assert result.marginal(4).tolist() == [0.0, 1.0]
    assert abs(result.log_z - exact.log_z) < 5 * result.log_z_std_error
    assert result.states.shape == (8, 9)
    axes = result.plot(kind="density")
    assert axes.get_xlabel() == "energy"


def test_few_sweeps_are_not_trusted() -> None:
    model = ising_grid(12, 12, coupling_max=3.0, seed=0)
    result = infer(model, method="multicanonical", num_sweeps=20, seed=0, time_limit=20.0)
    assert str(result.status) == "not_mixed"
    assert result.log_z is None
    assert result.log_z_kind == "bound"


def test_no_time_for_first_weights() -> None:
    model = ising_grid(100, 100, coupling_max=3.0, seed=0)
    with pytest.raises(NotConvergedError, match="time_limit"):
        infer(model, method="multicanonical", seed=0, time_limit=0.05)


@pytest.mark.parametrize(
    "options", [{"num_walkers": 1}, {"num_walkers": 2.5}, {"num_sweeps": 1}, {"num_sweeps": "many"}, {"num_bins": 3}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises((ValueError, TypeError), match=name):
        Multicanonical(**options)


def test_forbidden_pairs_are_refused() -> None:
    model = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0.0, -np.inf], [0.0, 0.0]]])
    with pytest.raises(UnfitMethodError, match="forbidden"):
        fastmix.infer(model, method="multicanonical")


def drawn_model(seed: int) -> tuple[MarkovRandomField, np.ndarray, float]:
    """A grid, a model with a first-order transition, or random tables; some exact marginals, and log Z.

    The marginals of the second kind are those of the states that are apart from the others.
    """
    rng = np.random.default_rng([seed, 77])
    if seed % 3 == 1:
        model, share, log_z = oracle.first_order_model(int(rng.integers(8, 20)), int(rng.integers(4, 12)))
        marginals = np.full(len(model.log_unary), np.nan)
        marginals[model.unary_offsets[:-1]] = share
        return model, marginals, log_z
    if seed % 3 == 0:
        strength = float(rng.uniform(0.5, 2.0))
        model = ising_grid(3, 4, coupling_max=strength, attractive=seed % 2 == 0, seed=seed)
    else:
        model = oracle.random_model(rng, num_variables=6)
    exact = infer(model, method="exact")
    return model, exact.node_marginals, exact.log_z


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_errors_are_calibrated(tell: Any) -> None:
    wrong = 0
    runs = 0
    for seed in range(200):
        model, marginals, log_z = drawn_model(seed)
        if model.has_forbidden:
            continue
        result = infer(model, method="multicanonical", num_sweeps=3000, seed=seed, num_threads=1)
        if str(result.status) != "ok":
            continue
        runs += 1
        known = np.isfinite(marginals)
        error = np.abs(result.node_marginals - marginals)[known]
        beyond = bool((error > 5 * result.std_error[known] + 1e-9).any())
        wrong += beyond or abs(result.log_z - log_z) > 5 * result.log_z_std_error + 1e-9
    tell("multicanonical", "verdicts", f"ok {runs}, beyond 5 standard errors {wrong}")
    assert runs > 100
    assert wrong == 0


def test_an_estimate_without_an_error_says_so() -> None:
    # One walker alone was above the energy that phases are told apart by: without it there is nothing to average.
    energies = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 9.0]])
    series = EnergySeries(energies, EnergyWeights.linear(0.0, 1.0, np.zeros(1)), 0.0, "run")
    above = series._ratio((energies > 5.0).astype(np.float64), energies, 1.0)
    assert float(above.value) == 9.0
    assert math.isnan(float(above.std_error))


def test_nothing_that_counts_was_met() -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=1e5, field=[1e5, -1e5])
    result = infer(model, method="multicanonical", num_sweeps=10, seed=0)
    assert np.isfinite(result.node_marginals).all()
