from __future__ import annotations

import math

import numpy as np
import pytest
from test_ladder import MODELS, attractive, mixed, small

import oracle
from contexts import context_of
from error_families import strongly_coupled
from fastmix import infer, temper
from fastmix._clock import Clock
from fastmix.chains.annealing import Annealing
from fastmix.instances import ising_grid
from fastmix.results import Status
from fastmix.sampling.tempering.ladder import Ladder, make_path
from fastmix.sampling.tempering.rungs import (
    annealed_rungs,
    annealed_weights,
    bridge,
    guess_steps,
    lower_bound,
    next_position,
    respace,
    start_population,
)
from oracle.ladder import model_at

POSITIONS = np.array([0.0, 0.3, 0.7, 1.0])


def exact_sums(name: str, shifts: np.ndarray, num_ensembles: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """What exchanges would add up on average, by enumeration, and the true log-ratios."""
    path = make_path(MODELS[name]())
    laws = [oracle.joint(model_at(path, s)).reshape(-1) for s in POSITIONS]
    weights = [np.array(oracle.log_weights(model_at(path, s))) for s in POSITIONS]
    sums = np.zeros((6, len(POSITIONS) - 1, num_ensembles))
    for k, shift in enumerate(shifts):
        d = weights[k + 1] - weights[k]
        sums[0, k], sums[2, k], sums[3, k] = 1.0, laws[k] @ d, laws[k + 1] @ d
        sums[4, k] = laws[k] @ (1 / (1 + np.exp(shift - d)))
        sums[5, k] = laws[k + 1] @ (1 / (1 + np.exp(d - shift)))
    logs = [oracle.log_z(model_at(path, s)) for s in POSITIONS]
    return sums, np.diff(logs)


# -- bridges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, -2.0, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_bridges_of_exact_averages_are_exact_whatever_the_shift(name, shift):
    shifts = np.full(3, shift)
    sums, truth = exact_sums(name, shifts)
    result = bridge(sums, shifts)
    assert result == (pytest.approx(truth.sum(), abs=1e-9), pytest.approx(0.0, abs=1e-9))


def test_the_jackknife_is_the_textbook_one():
    rng = np.random.default_rng(0)
    sums = np.ones((6, 2, 5))
    sums[4:] = rng.uniform(0.5, 1.5, size=(2, 2, 5))
    values = [bridge(np.delete(sums, e, axis=2), np.zeros(2))[0] for e in range(5)]
    expected = math.sqrt(4 / 5 * np.sum((np.array(values) - np.mean(values)) ** 2))
    assert bridge(sums, np.zeros(2))[1] == pytest.approx(expected, rel=1e-9)


def test_rungs_without_overlap_have_no_error_bar():
    sums = np.ones((6, 1, 3))
    sums[5] = 0.0
    assert bridge(sums, np.zeros(1))[1] == math.inf


def test_guesses_stay_between_the_averages():
    sums = np.ones((6, 1, 2))
    sums[2], sums[3], sums[5] = 900.0, 1000.0, 0.0
    assert guess_steps(sums, np.zeros(1)).tolist() == [1000.0]
    shifts = np.full(3, 0.4)
    sums, truth = exact_sums("binary", shifts)
    np.testing.assert_allclose(guess_steps(sums, shifts), truth, atol=1e-9)


# -- annealed importance sampling -------------------------------------------------------------------------------------


def population(path, size: int, seed: int = 0) -> Annealing:
    return start_population(path, size, context_of(seed))


def test_a_population_starts_with_exact_draws():
    path = make_path(mixed())
    draws = population(path, 100_000).chains.get_states().T
    start = model_at(path, 0.0)
    for i, law in enumerate(oracle.node_marginals(start)):
        counts = np.bincount(draws[i], minlength=len(law))
        error = np.sqrt(law * np.maximum(1 - law, 0.0) * draws.shape[1])
        assert (np.abs(counts - law * draws.shape[1]) <= 5.5 * error + 1e-9).all()  # false alarm 4e-8 each


@pytest.mark.parametrize("make_model", [small, attractive])
def test_the_mean_of_annealed_weights_is_the_ratio_of_normalizers(make_model):
    path = make_path(make_model())
    weights = np.exp(annealed_weights(path, population(path, 200_000), np.array([0.0, 0.5, 0.8, 1.0])))
    truth = math.exp(oracle.log_z(model_at(path, 1.0)) - path.log_z)
    assert abs(weights.mean() - truth) < 5.5 * weights.std() / math.sqrt(weights.size)
    # A sabotaged twin: weights of the wrong sign.
    assert abs((1 / weights).mean() - truth) > 5.5 * (1 / weights).std() / math.sqrt(weights.size)


def test_stopping_early_leaves_the_weights_valid():
    path = make_path(small())
    clock = Clock(1e-9)  # over at once
    weights = np.exp(annealed_weights(path, population(path, 200_000), np.linspace(0.0, 1.0, 100), clock=clock))
    truth = math.exp(oracle.log_z(model_at(path, 1.0)) - path.log_z)
    assert abs(weights.mean() - truth) < 5.5 * weights.std() / math.sqrt(weights.size)


def test_a_limit_that_nobody_asked_for_sets_no_pace():
    path, positions = make_path(small()), np.linspace(0.0, 1.0, 20)
    smooth = annealed_weights(path, population(path, 10), positions)
    clock = Clock(default=60.0)
    clock._begin -= 30.0  # as if the machine had stood still
    np.testing.assert_array_equal(annealed_weights(path, population(path, 10), positions, clock=clock), smooth)
    asked = Clock(60.0)
    asked._begin -= 30.0
    assert (annealed_weights(path, population(path, 10), positions, clock=asked) != smooth).any()


@pytest.mark.parametrize("spread", [0.1, 1.0, 3.0])
def test_the_lower_bound_holds_as_often_as_it_says(spread):
    rng = np.random.default_rng(1)
    wrong = 0
    for _ in range(400):
        log_weights = rng.normal(-0.5 * spread**2, spread, size=64)  # mean of the weights is 1
        wrong += lower_bound(log_weights, 0.9) > 0.0
    assert wrong <= 80  # 40 expected at most; 80 or more have probability 2e-9


def test_the_lower_bound_is_tight_for_equal_weights():
    assert -0.3 < lower_bound(np.full(128, 2.0), 0.95) - 2.0 < 0.0


# -- ladders --------------------------------------------------------------------------------------------------------


def test_the_first_ladder_is_where_exchanges_are_rejected_half_the_time():
    rng = np.random.default_rng(2)
    edges = [(4 * r + c, 4 * r + c + 1) for r in range(4) for c in range(3)] + [(i, i + 4) for i in range(12)]
    from fastmix import MarkovRandomField

    path = make_path(MarkovRandomField.ising(edges, rng.uniform(-2, 2, len(edges)), rng.uniform(-1, 1, 16)))
    positions, states = annealed_rungs(path, population(path, 256), num_sweeps=10, max_rungs=100)
    assert positions[0] == 0.0
    assert positions[-1] == 1.0
    assert (np.diff(positions) > 0).all()
    run = Ladder(path, seed=0, num_threads=1)
    run.set_rungs(positions, np.stack([x[:64] for x in states]))
    run.advance(200, collect=False)
    rejection = run.chains.exchanges().rejection
    assert ((rejection[:-1] > 0.25) & (rejection[:-1] < 0.75)).all()
    # One step of adaptation makes the rates nearly equal.
    new, source = respace(positions, rejection, None)
    assert len(new) == math.ceil(2 * rejection.sum()) + 1
    run.set_rungs(new, run.get_states()[source])
    run.advance(400, collect=False)
    after = run.chains.exchanges().rejection
    assert after.max() - after.min() < 0.1


def test_strong_models_have_their_first_rung_close_to_the_start():
    from fastmix import MarkovRandomField

    path = make_path(MarkovRandomField.ising([(0, 1), (1, 2)], 1e6, [0.5, -0.3, 0.1]))
    crowd = population(path, 64)
    first = next_position(path, 0.0, crowd.chains.energies())
    assert 1e-9 < first < 1e-5
    positions, _ = annealed_rungs(path, crowd, num_sweeps=2, max_rungs=50)
    assert len(positions) < 20
    short, _ = annealed_rungs(path, population(path, 64), num_sweeps=2, max_rungs=3)
    assert len(short) == 3


def test_equal_rates_stay_where_they_are():
    positions = np.array([0.0, 0.2, 0.5, 1.0])
    new, source = respace(positions, np.full(3, 0.5), 4)
    np.testing.assert_allclose(new, positions)
    assert source.tolist() == [0, 1, 2, 3]


def test_what_has_not_mixed_has_no_log_z_but_what_is_proven():
    """On strongly coupled models of known log Z, in runs too short for a round trip."""
    kinds = []
    for seed in range(15):
        model = strongly_coupled(seed, longest=30)
        truth = infer(model, method="exact").log_z
        result = temper(model, num_sweeps=20, burn_in=10, num_ensembles=4, seed=seed, num_threads=1)
        kinds.append(result.log_z_kind)
        if (result.round_trips == 0).any():
            assert result.status == Status.NOT_MIXED
            assert (result.log_z, result.log_z_std_error, result.log_z_kind) == (None, None, "bound")
            assert "strongly coupled" not in result.summary()
            assert "more replicas" in result.summary()
        else:
            assert abs(result.log_z - truth) <= 5.0 * result.log_z_std_error
        assert result.log_z_lower <= truth + 1e-9 * abs(truth)
        assert result.to_dict()["log_z"] == result.log_z
    assert kinds.count("bound") > 8


def test_weights_are_made_at_once_when_the_time_is_over():
    path = make_path(ising_grid(3, 3, coupling_max=1.0, seed=0))
    over = Clock(1e-3)
    while not over.past():
        pass
    for clock in (over.part(1.0), over):
        population = start_population(path, 4, context_of(1))
        assert np.isfinite(annealed_weights(path, population, np.linspace(0.0, 1.0, 50), clock=clock)).all()
