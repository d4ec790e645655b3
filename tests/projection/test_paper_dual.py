"""The paper's dual: against a general convex solver, its function and gradient, its lower bound, the balls."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
from fastmix import _memory, project
from fastmix.errors import NotConvergedError, ResourceError, UnfitMethodError
from fastmix.graphs import grid_edges
from fastmix.instances import ising_grid, random_tables
from fastmix.model import MarkovRandomField
from fastmix.projection.paper_dual import Dual, PaperDual, Point, solve_paper
from fastmix.projection.solution import Goal
from oracle import convex
from strategies import models, relabel

FloatArray = NDArray[np.float64]

NORMS = ("inf", "spectral")
seeds = st.integers(0, 2**32 - 1)


def project_paper(
    model: MarkovRandomField, *, norm_bound: float, norm: Any = "inf", dependency: Any = "linf",
    settings: PaperDual = PaperDual(), tol: float = 1e-6, max_iter: int = 1000, start: Any = None,  # noqa: B008
) -> Any:  # fmt: skip
    """The solution by its parts, from the multipliers of an earlier one if given."""
    goal = Goal(norm_bound, tol, max_iter, None if start is None else start.multipliers)
    s, tables = solve_paper(model, norm, dependency, settings, goal)
    gap = max(0.0, s.primal - s.dual)
    return SimpleNamespace(**vars(s), **s.facts, log_pairwise=tables, objective=s.primal, lower_bound=s.dual, gap=gap)


def make_dual(model: MarkovRandomField, norm_bound: float, norm: Any, alpha: float = 0.7) -> Dual:
    return Dual(model, norm_bound, norm, "linf", alpha)


def dual_value(dual: Dual, point: Point, y: FloatArray) -> float:
    """The dual function by its formula."""
    ball = dual.ball
    tables = float(point.force @ dual.psi - 0.25 * point.force @ point.force)
    shift = point.entries - ball.target(y)
    return tables + float(np.sum(ball.weights * (ball.alpha * shift**2 - point.price * point.entries)))


def random_multipliers(dual: Dual, rng: np.random.Generator, scale: float = 1.0) -> FloatArray:
    """sigma and phi positive or zero, the others of any sign."""
    x = scale * rng.standard_normal(dual.size)
    bounded = dual.lowest == 0.0
    x[bounded] = np.where(rng.random(bounded.sum()) < 0.3, 0.0, np.abs(x[bounded]))
    return x


def assert_solves(answer: Any, model: MarkovRandomField, norm_bound: float, norm: str, dependency: str) -> None:
    """Feasible to rounding, as good as the convex solver's answer to 1e-5, and bounded from below."""
    expected, _ = convex.solve(model, norm_bound, norm, dependency)
    assert answer.converged
    assert answer.objective == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert answer.objective == pytest.approx(np.sum((answer.log_pairwise - model.log_pairwise) ** 2), rel=1e-12)
    assert answer.lower_bound <= expected * (1.0 + 1e-7) + 1e-7
    size = convex.norm_of_model(model, answer.log_pairwise, norm, dependency)
    assert size <= norm_bound * (1.0 + 1e-13)


# -- against the convex solver ----------------------------------------------------------------------------------------


KINDS = [
    ("ising", "linf"), ("ising", "range"), ("binary", "linf"),
    ("binary", "range"), ("states", "linf"), ("mixed", "linf"),
]  # fmt: skip
EACH = [
    pytest.param(*kind, NORMS[n], marks=[] if n == k % 2 else pytest.mark.slow)
    for k, kind in enumerate(KINDS)
    for n in (0, 1)
]


@pytest.mark.parametrize("norm_bound", [0.5, *(pytest.param(bound, marks=pytest.mark.slow) for bound in (0.95, 2.5))])
@pytest.mark.parametrize(("kind", "dependency", "norm"), EACH)
def test_exact_projection_agrees_with_convex_solver(norm: str, norm_bound: float, kind: str, dependency: str) -> None:
    rng = np.random.default_rng([NORMS.index(norm), int(100 * norm_bound), len(kind), len(dependency)])
    model = convex.random_instance(rng, kind)
    answer = project_paper(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-7)
    assert_solves(answer, model, norm_bound, norm, dependency)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_exact_projection_agrees_with_convex_solver_on_many(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["ising", "binary", "states", "mixed"]))
    dependency = str(rng.choice(["linf", "range"])) if kind in ("ising", "binary") else "linf"
    norm, norm_bound = str(rng.choice(NORMS)), float(rng.choice([0.1, 0.5, 0.95, 2.5]))
    model = convex.random_instance(rng, kind)
    answer = project_paper(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-8)
    assert_solves(answer, model, norm_bound, norm, dependency)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("alpha", [0.3, pytest.param(4.0, marks=pytest.mark.slow)])
def test_smoothed_step_agrees_with_convex_solver(norm: str, alpha: float) -> None:
    rng = np.random.default_rng([int(10 * alpha), True])
    for kind in ("binary", "mixed"):
        model = convex.random_instance(rng, kind)
        options = {"norm_bound": 0.95, "norm": norm, "settings": PaperDual(alpha=alpha, exact=False), "tol": 1e-9}
        first = project_paper(model, **options)
        edges = model.edges.tolist()
        r = convex.dependency(model.num_states.tolist(), edges, model.log_pairwise, "linf")
        y = r * min(1.0, 0.95 / convex.norm_of(model.num_variables, edges, r, norm))
        for answer, drawn_to in ((first, y), (project_paper(model, start=first, **options), first.z)):
            expected, tables, z = convex.solve_smoothed(model, 0.95, norm, alpha, drawn_to)
            assert answer.converged
            value = answer.objective + 2.0 * alpha * np.sum((answer.z - drawn_to) ** 2)
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-7)
            np.testing.assert_allclose(answer.log_pairwise, tables, atol=1e-4)
            np.testing.assert_allclose(answer.z, z, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_repeated_smoothed_steps_end_at_the_projection(norm: str) -> None:
    model = convex.random_instance(np.random.default_rng(7), "binary")
    exact = project_paper(model, norm_bound=0.95, norm=norm, tol=1e-9)
    answer, z = None, None
    for _ in range(25):
        z = None if answer is None else answer.z
        options = {"norm_bound": 0.95, "norm": norm, "settings": PaperDual(exact=False), "tol": 1e-9}
        answer = project_paper(model, start=answer, **options)
    assert answer.objective == pytest.approx(exact.objective, rel=1e-6)
    assert answer.lower_bound <= exact.objective
    np.testing.assert_allclose(answer.z, z, atol=1e-5)


# -- properties -------------------------------------------------------------------------------------------------------


@given(models(allow_forbidden=False, scales=(0.0, 0.3, 1.0, 5.0)), st.sampled_from(NORMS), st.sampled_from([0.5, 2.5]))
def test_every_model_is_projected(model: MarkovRandomField, norm: Any, norm_bound: float) -> None:
    before = model.log_pairwise.copy()
    options: dict[str, Any] = {"norm_bound": norm_bound, "norm": norm, "dependency": "linf", "solver": PaperDual()}
    result = project(model, **options)
    np.testing.assert_array_equal(model.log_pairwise, before)
    assert result.relative_gap <= 1e-6
    assert result.norm_after <= norm_bound
    assert (result.model is model) == (result.norm_before <= norm_bound)
    if model.num_edges:
        size = convex.norm_of_model(model, result.model.log_pairwise, norm, "linf")
        assert size <= norm_bound * (1.0 + 1e-13)
    assert project(result.model, **options).model is result.model


@pytest.mark.parametrize("norm", NORMS)
def test_isolated_variables_and_one_state_tables(norm: str) -> None:
    model = MarkovRandomField.from_tables(
        [[0.0], [0.0, 0.0, 0.0], [0.0], [0.0, 0.0], [0.0, 0.0]],
        [(0, 1), (0, 2), (1, 3), (2, 3)],
        [[[3.0, 0.0, -3.0]], [[7.0]], [[4.0, 0.0], [0.0, 0.0], [0.0, -4.0]], [[2.0, -2.0]]],
    )
    answer = project_paper(model, norm_bound=0.9, norm=norm, tol=1e-7)
    assert_solves(answer, model, 0.9, norm, "linf")
    assert answer.log_pairwise[model.pairwise_offsets[1]] == pytest.approx(7.0, abs=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_range_needs_no_multipliers_for_tables_of_one_row(norm: str) -> None:
    rng = np.random.default_rng(0)
    model = oracle.random_entries(rng, [2, 1, 2, 3], [(0, 1), (0, 2), (1, 2), (1, 3)], 5.0)
    answer = project_paper(model, norm_bound=0.5, norm=norm, dependency="range", tol=1e-7)
    assert_solves(answer, model, 0.5, norm, "range")


@pytest.mark.parametrize("norm", NORMS)
def test_strong_couplings(norm: str) -> None:
    rng = np.random.default_rng(1)
    couplings = rng.choice([-1e3, 1e3], 7)
    model = MarkovRandomField.ising(convex.GRAPHS["grid"][1], couplings)
    answer = project_paper(model, norm_bound=0.95, norm=norm, tol=1e-9)
    assert answer.converged
    assert np.isfinite(answer.log_pairwise).all()
    assert convex.norm_of_model(model, answer.log_pairwise, norm, "linf") <= 0.95
    left = np.abs(answer.log_pairwise[::4])
    np.testing.assert_allclose(answer.objective, 4.0 * np.sum((1e3 - left) ** 2), rtol=1e-12)
    if norm == "inf":
        # From so far away the objective is linear: as much coupling as possible stays, three disjoint edges' worth.
        assert left.sum() == pytest.approx(3 * 0.95, abs=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_symmetries(norm: str) -> None:
    model = convex.random_instance(np.random.default_rng(11), "binary")
    expected = project_paper(model, norm_bound=0.8, norm=norm, tol=1e-7).objective
    turned = relabel(model, list(range(model.num_variables))[::-1])
    assert project_paper(turned, norm_bound=0.8, norm=norm, tol=1e-7).objective == pytest.approx(expected, rel=1e-6)
    shifted = model.replace(log_pairwise=model.log_pairwise + 3.0)
    assert project_paper(shifted, norm_bound=0.8, norm=norm, tol=1e-7).objective == pytest.approx(expected, rel=1e-6)
    scaled = model.replace(log_pairwise=model.log_pairwise * 10.0)
    answer = project_paper(scaled, norm_bound=8.0, norm=norm, tol=1e-7)
    assert answer.objective == pytest.approx(100.0 * expected, rel=1e-6)


def test_range_ignores_row_and_column_effects() -> None:
    rng = np.random.default_rng(12)
    model = convex.random_instance(rng, "ising")
    plain = project_paper(model, norm_bound=0.5, dependency="range", tol=1e-9)
    effects = np.concatenate(
        [(rng.standard_normal((2, 1)) + rng.standard_normal((1, 2))).reshape(-1) for _ in range(model.num_edges)]
    )
    moved = model.replace(log_pairwise=model.log_pairwise + effects)
    answer = project_paper(moved, norm_bound=0.5, dependency="range", tol=1e-9)
    np.testing.assert_allclose(answer.log_pairwise, plain.log_pairwise + effects, atol=1e-4)
    assert project_paper(moved, norm_bound=0.5, dependency="linf", tol=1e-9).objective > answer.objective


# -- running it -------------------------------------------------------------------------------------------------------


@functools.cache
def small_grid(norm: str) -> tuple[MarkovRandomField, Any]:
    """A model of three states on two squares, and its projection."""
    model = random_tables(grid_edges(2, 3), 3, scale=1.5, seed=0)
    return model, project_paper(model, norm_bound=0.95, norm=norm)


@pytest.mark.parametrize("norm", NORMS)
def test_warm_start_saves_evaluations(norm: str) -> None:
    model, cold = small_grid(norm)
    again = project_paper(model, norm_bound=0.95, norm=norm, start=cold)
    assert again.converged
    assert again.num_evaluations <= cold.num_evaluations / 3
    near = model.replace(log_pairwise=model.log_pairwise * 1.001)
    fresh = project_paper(near, norm_bound=0.95, norm=norm)
    warm = project_paper(near, norm_bound=0.95, norm=norm, start=cold)
    assert warm.num_evaluations < fresh.num_evaluations
    assert warm.objective == pytest.approx(fresh.objective, rel=3e-6)


def test_smoothed_step_moves_a_feasible_model_toward_a_small_y() -> None:
    """The operator itself: with Y given, ||Z - Y|| counts, and Z bounds R."""
    model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    chosen = PaperDual(alpha=2.0, exact=False)
    feasible = project_paper(model, norm_bound=0.9, settings=chosen)
    np.testing.assert_allclose(feasible.log_pairwise, model.log_pairwise, atol=1e-12)
    at_zero = SimpleNamespace(multipliers=np.zeros_like(feasible.multipliers))
    answer = project_paper(model, norm_bound=0.9, settings=chosen, tol=1e-10, start=at_zero)
    # minimize 4 (1/2 - z)^2 + 2 alpha z^2 over z: half way at alpha = 2.
    assert answer.z[0] == pytest.approx(0.25, abs=1e-8)
    np.testing.assert_allclose(answer.log_pairwise, [0.25, -0.25, -0.25, 0.25], atol=1e-8)


@pytest.mark.parametrize("norm", NORMS)
def test_answer_is_feasible_even_when_stopped_early(norm: str) -> None:
    model, full = small_grid(norm)
    cases = [
        (PaperDual(), 2),
        (PaperDual(max_outer=1), 1000),
        (PaperDual(max_inner=1, max_outer=5), 1000),
        (PaperDual(max_inner=3, exact=False), 1000),
    ]
    for chosen, max_iter in cases:
        answer = project_paper(model, norm_bound=0.95, norm=norm, settings=chosen, tol=1e-9, max_iter=max_iter)
        assert not answer.converged
        assert convex.norm_of_model(model, answer.log_pairwise, norm, "linf") <= 0.95 * (1.0 + 1e-13)
        assert answer.lower_bound <= full.objective <= answer.objective * (1.0 + 1e-6)
        assert answer.iterations == len(answer.history) <= min(max_iter, chosen.max_outer)
        assert answer.num_inner_iterations <= answer.iterations * chosen.max_inner
        assert answer.history[-1][1] == answer.objective


def test_history_and_gap() -> None:
    model = ising_grid(4, 4, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, tol=1e-10)
    steps, objectives, lower = np.array(answer.history).T
    assert steps.tolist() == list(range(1, len(steps) + 1))
    assert (np.diff(objectives) <= 0.0).all()
    assert (np.diff(lower) >= 0.0).all()
    assert objectives[-1] - lower[-1] == answer.gap <= 1e-10 * (1.0 + answer.objective)


def test_paper_sized_grid() -> None:
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, dependency="range", tol=1e-8)
    assert answer.converged
    assert answer.num_evaluations < 400
    assert convex.norm_of_model(model, answer.log_pairwise, "inf", "range") <= 2.5


@pytest.mark.slow
def test_paper_sized_grid_in_the_spectral_norm() -> None:
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, norm="spectral", dependency="range", tol=1e-6)
    assert answer.converged
    assert convex.norm_of_model(model, answer.log_pairwise, "spectral", "range") <= 2.5 * (1.0 + 1e-13)
    assert answer.objective < project_paper(model, norm_bound=2.5, dependency="range").objective


# -- errors -----------------------------------------------------------------------------------------------------------


def test_unfit_models() -> None:
    forbidden = MarkovRandomField.from_tables(
        np.zeros((3, 2)), [(0, 1), (1, 2)], [np.eye(2), [[0.0, -np.inf], [0.0, 0.0]]]
    )
    with pytest.raises(UnfitMethodError, match=r"edge \(1, 2\) forbids"):
        project_paper(forbidden, norm_bound=0.5)
    states = MarkovRandomField.potts([(0, 1)], coupling=1.0, num_states=3)
    with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\) .*dependency='linf'"):
        project_paper(states, norm_bound=0.1, dependency="range")


@pytest.mark.parametrize(
    "arguments",
    [{"alpha": 0.0}, {"alpha": "x"}, {"inner_tol": -1.0}, {"exact": 1}, {"max_inner": 0}],
)
def test_bad_settings(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(arguments))} "):
        PaperDual(**arguments)


def test_a_start_of_another_shape_counts_as_none() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=2.0)
    other = project(MarkovRandomField.ising([(0, 1)], coupling=2.0), norm_bound=0.5, solver=PaperDual())
    cold, warm = (project(model, norm_bound=0.5, solver=PaperDual(), warm_start=s) for s in (None, other))
    assert cold.model == warm.model
    assert warm.stats["num_evaluations"] == cold.stats["num_evaluations"] > 0


def test_not_converging_and_unfit_norms_are_told() -> None:
    model = ising_grid(3, 3, coupling_max=3.0, seed=0)
    with pytest.raises(NotConvergedError, match=" 1 iterations") as info:
        project(model, norm_bound=0.5, solver=PaperDual(max_outer=1), tol=1e-12)
    assert info.value.result.norm_after <= 0.5
    late = project(model, norm_bound=0.5, solver=PaperDual(), tol=1e-12, time_limit=1e-9)
    assert late.status == "time_limit"
    assert late.norm_after <= 0.5
    with pytest.raises(ValueError, match=r"^norm .*'frobenius'"):
        project(model, norm_bound=0.5, solver=PaperDual(), norm="frobenius")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(_memory, "UNCHECKED_BYTES", 0)
    model = MarkovRandomField.ising([(0, 1)], coupling=2.0)
    with pytest.raises(ResourceError, match="multipliers") as caught:
        project(model, norm_bound=0.5, solver=PaperDual())
    assert caught.value.required_bytes > caught.value.limit_bytes == 500
    # What needs no multipliers is still answered.
    assert project(model, norm_bound=3.0, solver=PaperDual()).squared_distance == 0.0
