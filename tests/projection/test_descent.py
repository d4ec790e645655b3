"""The descent: coordinates, step rules, feasibility, warm starts, seeds, limits, divergences of one's own."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import strategies
from fastmix import Interrupted, MarkovRandomField, Status, UnfitMethodError, project
from fastmix.graphs import complete_edges, cycle_edges, grid_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.projection import (
    KL,
    PAPER_STEP,
    DecreasingStep,
    Divergence,
    Euclidean,
    FixedStep,
    LineSearch,
    Objective,
    PaperDual,
    PiecewiseKL,
    ReversedKL,
    Trace,
    divergence_by_name,
    register_divergence,
)
from fastmix.projection.feasible import FeasibleSet
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import matrix_norm
from oracle import divergences as naive

QUICK = ReversedKL(pool_size=60, num_starts=2, start_steps=3, annealing_sweeps=5, population_sweeps=5)
DIVERGENCES = [KL(), PiecewiseKL("spanning-trees"), QUICK]


def feasible_set(model, norm_bound, norm="inf", dependency="range"):
    return FeasibleSet(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-9, max_iter=10**5)


def safe_norm(model, norm, dependency):
    z = edge_dependencies(model, dependency=dependency).max(axis=1, initial=0.0)
    return matrix_norm(to_matrix(model, z), norm)


# -- feasibility ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divergence", "bounded"), strategies.each(DIVERGENCES, itertools.product(["inf", "spectral"], ["range", "linf"]))
)
def test_every_descent_ends_within_the_bound(divergence, bounded):
    norm, dependency = bounded
    model = random_tables(grid_edges(3, 3), [2, 3, 1, 2, 4, 2, 3, 2, 2], scale=1.0, seed=1)
    steps = [FixedStep(num_steps=4, coordinates=c) for c in ("indicator", "centered")] + [DecreasingStep(num_steps=6)]
    steps += [LineSearch(num_steps=4)] if divergence is not QUICK else [FixedStep(num_steps=4, coordinates="fisher")]
    for step in steps:
        for norm_bound in (0.9, 2.5):
            result = project(
                model, norm_bound=norm_bound, norm=norm, dependency=dependency, divergence=divergence, step=step, seed=0
            )
            assert result.status == Status.OK
            assert result.norm_after <= norm_bound
            assert safe_norm(result.model, norm, dependency) <= norm_bound
            assert result.certified == (norm_bound < 1)


def test_1_and_frobenius_norms_and_other_graphs():
    model = MarkovRandomField.potts(complete_edges(4), 1.5, 3)
    for norm in ("1", "frobenius"):
        for divergence in DIVERGENCES:
            assert project(model, norm_bound=0.7, norm=norm, divergence=divergence, seed=0).norm_after <= 0.7


def test_feasible_models_come_back_unchanged():
    model = ising_grid(3, 3, coupling_max=0.1, seed=0)
    for divergence in DIVERGENCES:
        result = project(model, norm_bound=2.5, divergence=divergence)
        assert result.model is model
        assert (result.divergence_value, result.duality_gap, result.stats["num_steps"]) == (0.0, 0.0, 0)


def test_forbidden_states_are_left_alone_and_forbidden_pairs_refused():
    unary = [[0.0, -np.inf, 0.3], [0.0, 0.5], [0.1, 0.2]]
    strong = np.array([[3.0, -3.0], [-np.inf, 7.0], [-3.0, 3.0]])
    model = MarkovRandomField.from_tables(unary, [(0, 1), (1, 2)], [strong, [[2.0, -2.0], [-2.0, 2.0]]])
    for divergence in DIVERGENCES:
        result = project(model, norm_bound=0.5, divergence=divergence, seed=0)
        assert result.norm_after <= 0.5
        assert result.model.unary(0)[1] == -np.inf
        assert result.model.table(0, 1)[1].tolist() == [-np.inf, 7.0]
        hard = MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [[[0.0, 1.0], [-np.inf, 2.0]]])
        with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\) forbids"):
            project(hard, norm_bound=0.5, divergence=divergence)


# -- step rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divergence", [KL(), PiecewiseKL(), PiecewiseKL("rows-and-columns")], ids=repr)
@pytest.mark.parametrize("coordinates", ["indicator", "centered"])
def test_line_search_never_goes_up(divergence, coordinates):
    for model in (ising_grid(4, 4, coupling_max=3.0, seed=0), potts_grid(3, 3, num_states=3, coupling_max=3.0, seed=0)):
        result = project(model, norm_bound=0.9, divergence=divergence, step=LineSearch(coordinates=coordinates), seed=0)
        values = [entry["value"] for entry in result.history]
        assert len(values) > 3
        assert (np.diff(values) <= 1e-12).all()
        assert values[-1] < 0.95 * values[0]
        assert result.divergence_value == values[-1]


@pytest.mark.parametrize("norm", ["inf", "spectral"])
def test_kl_descent_reaches_the_minimum(norm):
    """At the minimum single-variable marginals agree, and no small feasible step goes down."""
    model = random_tables(cycle_edges(5), [2, 3, 2, 3, 2], scale=1.0, seed=2)
    rule = LineSearch(num_steps=500, tol=1e-12)
    result = project(model, norm_bound=0.8, norm=norm, divergence=KL(), step=rule, tol=1e-10, max_iter=10**5)
    split = len(model.log_unary)
    np.testing.assert_allclose(naive.moments(result.model)[:split], naive.moments(model)[:split], atol=1e-5)
    gradient = naive.moments(result.model) - naive.moments(model)
    feasible = feasible_set(model, 0.8, norm)
    for coordinates in ("indicator", "centered"):
        moved = feasible.step(result.model, gradient, 0.1, coordinates)
        assert naive.kl(model, moved) >= result.divergence_value - 1e-7


def test_coordinates_reach_the_same_minimum_of_a_convex_divergence():
    model = random_tables(cycle_edges(4), [2, 3, 2, 4], scale=1.0, seed=4)
    values = []
    for coordinates in ("indicator", "centered", "fisher"):
        rule = LineSearch(num_steps=300, tol=1e-9, coordinates=coordinates)
        values.append(project(model, norm_bound=0.7, divergence=KL(), step=rule, tol=1e-8).divergence_value)
    assert values == pytest.approx([values[0]] * 3, rel=1e-4)


def test_fixed_steps_are_algorithm_one():
    """Two steps of the paper by hand: gradient step in all entries, then the Euclidean projection of the tables."""
    model = ising_grid(3, 3, coupling_max=2.0, seed=0)
    result = project(model, norm_bound=0.9, divergence=KL(), step=FixedStep(0.1, 2, "indicator"), tol=1e-10)
    theta = project(model, norm_bound=0.9, tol=1e-10).model
    for _ in range(2):
        gradient = naive.moments(theta) - naive.moments(model)
        theta = project(theta.with_parameters(theta.parameters - 0.1 * gradient), norm_bound=0.9, tol=1e-10).model
    np.testing.assert_allclose(result.model.parameters, theta.parameters, atol=1e-4)
    assert len(result.history) == 3
    assert result.history[1]["value"] < result.history[0]["value"]
    assert FixedStep(size=0.1, num_steps=60, coordinates="indicator") == PAPER_STEP


def test_warm_projections_equal_cold_ones():
    model = potts_grid(3, 3, num_states=3, coupling_max=3.0, seed=1)
    for norm in ("inf", "spectral"):
        feasible, rng = feasible_set(model, 0.9, norm), np.random.default_rng(0)
        parameters = model.parameters
        for _ in range(5):
            parameters = parameters + 0.05 * rng.standard_normal(len(parameters))
            warm = feasible.project(parameters, "centered")
            cold = project(model.with_parameters(parameters), norm_bound=0.9, norm=norm, tol=1e-9, max_iter=10**5)
            np.testing.assert_allclose(warm.log_pairwise, cold.model.log_pairwise, atol=2e-4)
            assert np.array_equal(warm.log_unary, cold.model.log_unary)


def test_warm_start_goes_on_where_another_run_ended():
    model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    rule = LineSearch(num_steps=5, tol=0.0)
    one = project(model, norm_bound=0.9, divergence=KL(), step=rule)
    two = project(model, norm_bound=0.9, divergence=KL(), step=rule, warm_start=one)
    assert two.history[0]["value"] == pytest.approx(one.divergence_value, rel=1e-6)
    assert two.divergence_value < one.divergence_value


def test_stopping_rules():
    model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    loose = project(model, norm_bound=0.9, divergence=KL(), step=FixedStep(num_steps=500, tol=1e-2))
    assert loose.stats["stopping_rule"] == "tol"
    assert 1 < loose.stats["num_steps"] < 500
    full = project(model, norm_bound=0.9, divergence=KL(), step=FixedStep(num_steps=7))
    assert (full.stats["stopping_rule"], full.stats["num_steps"]) == ("num_steps", 7)


def test_values_must_be_finite():
    with pytest.raises(ValueError, match="finite"):
        Trace().record(np.nan, MarkovRandomField.from_factors([2], []))


# -- limits ---------------------------------------------------------------------------------------------------------


def test_time_limit_returns_a_feasible_model():
    model = ising_grid(5, 5, coupling_max=3.0, seed=0)
    for divergence in DIVERGENCES:
        result = project(model, norm_bound=0.9, divergence=divergence, time_limit=1e-9, seed=0)
        assert result.status == Status.TIME_LIMIT
        assert result.norm_after <= 0.9
        assert result.stats["stopped_by"] == "time_limit"
    with pytest.raises(ValueError, match="time_limit"):
        project(model, norm_bound=0.9, divergence=KL(), time_limit=-1.0)


def test_interrupt_raises_with_a_feasible_model(monkeypatch):
    from fastmix.projection import kl

    original, calls = kl.ExactKL.evaluate, []

    def interrupt(self, theta):
        calls.append(1)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return original(self, theta)

    monkeypatch.setattr(kl.ExactKL, "evaluate", interrupt)
    with pytest.raises(Interrupted, match="projection") as info:
        project(ising_grid(4, 4, coupling_max=3.0, seed=0), norm_bound=0.95, divergence=KL(), step=FixedStep())
    assert info.value.result.status == Status.INTERRUPTED
    assert info.value.result.norm_after <= 0.95
    assert info.value.result.stats["num_steps"] == 3
    assert len(info.value.result.history) == 4


def test_seed_is_the_only_randomness_of_spanning_trees():
    model = MarkovRandomField.ising(complete_edges(7), np.linspace(-2.0, 2.0, 21))
    one, two, other = (project(model, norm_bound=0.9, divergence=PiecewiseKL(), seed=s) for s in (3, 3, 4))
    assert one.model == two.model
    assert one.model != other.model


# -- divergences of one's own, the paper's operator, results --------------------------------------------------------


@register_divergence
@dataclass(frozen=True)
class Blurred(Divergence):
    """KL with a gradient that is a little wrong, and known to be."""

    name: ClassVar[str] = "blurred"

    noise: float = 0.01

    def start(self, model, *, seed):
        return BlurredObjective(model, self.noise, seed)


class BlurredObjective(Objective):
    exact = False

    def __init__(self, model, noise, seed):
        self.inner, self.noise = KL().start(model, seed=seed), noise
        self.rng = np.random.default_rng(seed)

    def evaluate(self, theta):
        value, gradient = self.inner.evaluate(theta)
        return value, gradient + self.noise * self.rng.standard_normal(len(gradient))

    def facts(self):
        return {"blur": self.noise}


def test_divergences_of_ones_own():
    model = ising_grid(4, 4, coupling_max=2.0, seed=0)
    result = project(model, norm_bound=0.9, divergence=Blurred(), step=DecreasingStep(), seed=1)
    assert result.norm_after <= 0.9
    assert result.divergence_value < 0.7 * result.history[0]["value"]
    assert result.stats["blur"] == 0.01
    assert divergence_by_name("blurred") == Blurred()
    with pytest.raises(ValueError, match=r"name .*'kl'"):
        register_divergence(type("Other", (Divergence,), {"name": "kl"}))
    named = project(model, norm_bound=0.9, divergence="blurred", step=DecreasingStep(), seed=1)
    assert named.model == result.model
    with pytest.raises(ValueError, match="LineSearch"):
        project(model, norm_bound=0.9, divergence=Blurred(), step=LineSearch(), seed=1)
    with pytest.raises(ValueError, match="coordinates"):
        project(model, norm_bound=0.9, divergence=Blurred(), step=FixedStep(coordinates="fisher"), seed=1)


def test_averages_lie_in_the_set_and_are_less_noisy():
    """Independent noise in every gradient: the mean of the last models, after smaller steps, has far less of it."""
    model = ising_grid(3, 3, coupling_max=1.0, seed=0)
    spread = {}
    for rule in (FixedStep(0.3, 320), DecreasingStep(0.3, 320)):
        results = [project(model, norm_bound=0.9, divergence=Blurred(0.3), step=rule, seed=s) for s in range(12)]
        assert max(result.norm_after for result in results) <= 0.9
        spread[type(rule)] = np.std([result.model.log_unary for result in results], axis=0).mean()
    assert spread[DecreasingStep] < 0.6 * spread[FixedStep]


def test_steps_against_the_squared_distance_stay_at_its_minimum():
    model = ising_grid(4, 4, coupling_max=3.0, seed=0)
    nearest = project(model, norm_bound=0.9, tol=1e-9)
    feasible = feasible_set(model, 0.9)
    change = nearest.model.parameters - model.parameters
    assert change @ change == pytest.approx(nearest.squared_distance, rel=1e-12)
    moved = feasible.step(nearest.model, 2.0 * change, 0.3, "indicator")
    np.testing.assert_allclose(moved.parameters, nearest.model.parameters, atol=1e-3)


def test_the_operator_of_the_paper_gives_the_same_descent():
    model = ising_grid(2, 2, coupling_max=3.0, seed=0)
    step = FixedStep(0.1, 2, "indicator")
    fast = project(model, norm_bound=0.9, divergence=KL(), step=step, tol=1e-7)
    paper = project(model, norm_bound=0.9, divergence=KL(), step=step, solver=PaperDual(), tol=1e-7)
    assert paper.norm_after <= 0.9
    np.testing.assert_allclose(paper.model.parameters, fast.model.parameters, atol=1e-3)
    smooth = project(model, norm_bound=0.9, divergence=KL(), step=step, solver=PaperDual(exact=False), tol=1e-6)
    assert smooth.norm_after <= 0.9


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"divergence": "l2"}, "divergence .*reversed-kl.*'l2'"),
        ({"divergence": 3}, "divergence"),
        ({"divergence": KL(), "step": 0.1}, "step"),
        ({"step": FixedStep()}, "step"),
        ({"divergence": KL(), "seed": -1}, "seed .*-1"),
        ({"divergence": KL(), "norm_bound": 0.0}, "norm_bound"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        project(ising_grid(2, 2, coupling_max=1.0, seed=0), **{"norm_bound": 0.5, **arguments})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: FixedStep(size=0.0), "size .*0.0"),
        (lambda: FixedStep(num_steps=0), "num_steps"),
        (lambda: FixedStep(coordinates="polar"), "coordinates .*fisher.*'polar'"),
        (lambda: FixedStep(tol=-1.0), "tol"),
        (lambda: DecreasingStep(hold=1.5), "hold .*1.5"),
        (lambda: LineSearch(first_size=np.inf), "first_size"),
    ],
)
def test_step_rules_check_themselves(make, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        make()


def test_results_as_plain_data():
    model = ising_grid(3, 3, coupling_max=2.0, seed=0)
    result = project(model, norm_bound=0.9, divergence=PiecewiseKL(), seed=7)
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["divergence"].startswith("PiecewiseKL(")
    assert facts["seed"] == result.provenance["seed"] == 7
    assert facts["duality_gap"] is None
    assert facts["divergence_value"] == pytest.approx(result.divergence_value)
    assert facts["certified"] is True
    assert "PiecewiseKL" in repr(result)
    plain = project(model, norm_bound=0.9)
    assert plain.divergence == Euclidean()
    assert plain.divergence_value == plain.squared_distance
    assert plain.seed is None
