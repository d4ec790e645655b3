"""The paper's dual: against a general convex solver, its function and gradient, its lower bound, the balls."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import convex_oracle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix import _memory, project
from fastmix.errors import NotConvergedError, ResourceError, UnfitMethodError
from fastmix.instances import ising_grid, random_tables
from fastmix.model import MarkovRandomField
from fastmix.projection.euclidean import Target
from fastmix.projection.paper_dual import Dual, PaperDual, Point, clip_eigenvalues, shrink_rows, solve_paper
from strategies import models, relabel

FloatArray = NDArray[np.float64]

NORMS = ("inf", "spectral")
seeds = st.integers(0, 2**32 - 1)


def project_paper(
    model: MarkovRandomField, *, norm_bound: float, norm: Any = "inf", dependency: Any = "linf",
    settings: PaperDual = PaperDual(), tol: float = 1e-6, max_iter: int = 1000, start: Any = None,  # noqa: B008
) -> Any:  # fmt: skip
    """The solution by its parts, from the multipliers of an earlier one if given."""
    target = Target(norm_bound, tol, max_iter, None if start is None else start.multipliers)
    s, tables = solve_paper(model, norm, dependency, settings, target)
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
    expected, _ = convex_oracle.solve(model, norm_bound, norm, dependency)
    assert answer.converged
    assert answer.objective == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert answer.objective == pytest.approx(np.sum((answer.log_pairwise - model.log_pairwise) ** 2), rel=1e-12)
    assert answer.lower_bound <= expected * (1.0 + 1e-7) + 1e-7
    size = convex_oracle.norm_of_model(model, answer.log_pairwise, norm, dependency)
    assert size <= norm_bound * (1.0 + 1e-13)


# -- against the convex solver ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("norm_bound", [0.5, pytest.param(0.95, marks=pytest.mark.slow), 2.5])
@pytest.mark.parametrize(
    ("kind", "dependency"),
    [
        ("ising", "linf"),
        ("ising", "range"),
        ("binary", "linf"),
        ("binary", "range"),
        ("states", "linf"),
        ("mixed", "linf"),
    ],
)
def test_exact_projection_agrees_with_convex_solver(norm: str, norm_bound: float, kind: str, dependency: str) -> None:
    rng = np.random.default_rng([NORMS.index(norm), int(100 * norm_bound), len(kind), len(dependency)])
    model = convex_oracle.random_instance(rng, kind)
    answer = project_paper(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-7)
    assert_solves(answer, model, norm_bound, norm, dependency)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_exact_projection_agrees_with_convex_solver_on_many(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(["ising", "binary", "states", "mixed"]))
    dependency = str(rng.choice(["linf", "range"])) if kind in ("ising", "binary") else "linf"
    norm, norm_bound = str(rng.choice(NORMS)), float(rng.choice([0.1, 0.5, 0.95, 2.5]))
    model = convex_oracle.random_instance(rng, kind)
    answer = project_paper(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-8)
    assert_solves(answer, model, norm_bound, norm, dependency)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("alpha", [0.3, pytest.param(4.0, marks=pytest.mark.slow)])
def test_smoothed_step_agrees_with_convex_solver(norm: str, alpha: float) -> None:
    rng = np.random.default_rng([int(10 * alpha), True])
    for kind in ("binary", "mixed"):
        model = convex_oracle.random_instance(rng, kind)
        options = {"norm_bound": 0.95, "norm": norm, "settings": PaperDual(alpha=alpha, exact=False), "tol": 1e-9}
        first = project_paper(model, **options)
        edges = model.edges.tolist()
        r = convex_oracle.dependency(model.num_states.tolist(), edges, model.log_pairwise, "linf")
        y = r * min(1.0, 0.95 / convex_oracle.norm_of(model.num_variables, edges, r, norm))
        for answer, drawn_to in ((first, y), (project_paper(model, start=first, **options), first.z)):
            expected, tables, z = convex_oracle.solve_smoothed(model, 0.95, norm, alpha, drawn_to)
            assert answer.converged
            value = answer.objective + 2.0 * alpha * np.sum((answer.z - drawn_to) ** 2)
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-7)
            np.testing.assert_allclose(answer.log_pairwise, tables, atol=1e-4)
            np.testing.assert_allclose(answer.z, z, atol=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_repeated_smoothed_steps_end_at_the_projection(norm: str) -> None:
    model = convex_oracle.random_instance(np.random.default_rng(7), "binary")
    exact = project_paper(model, norm_bound=0.95, norm=norm, tol=1e-9)
    answer, z = None, None
    for _ in range(25):
        z = None if answer is None else answer.z
        options = {"norm_bound": 0.95, "norm": norm, "settings": PaperDual(exact=False), "tol": 1e-9}
        answer = project_paper(model, start=answer, **options)
    assert answer.objective == pytest.approx(exact.objective, rel=1e-6)
    assert answer.lower_bound <= exact.objective
    np.testing.assert_allclose(answer.z, z, atol=1e-5)


# -- the dual function ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("counts", [[2, 2, 2, 2], [3, 2, 4, 1], [1, 1, 3, 2]])
def test_gradient_by_finite_differences(norm: str, counts: list[int]) -> None:
    rng = np.random.default_rng(len(counts) + counts[0])
    model = oracle.random_entries(rng, counts, [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.9, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    blocks = {
        "sigma": slice(0, dual.num_contrasts),
        "phi": slice(dual.num_contrasts, 2 * dual.num_contrasts),
        "gamma or delta": slice(2 * dual.num_contrasts, dual.size),
    }
    for _ in range(3):
        x = random_multipliers(dual, rng)
        gradient = dual.evaluate(x, y).gradient
        for name, block in blocks.items():
            for k in range(dual.size)[block]:
                step = np.zeros(dual.size)
                step[k] = 1e-6
                high = dual_value(dual, dual.evaluate(x + step, y), y)
                low = dual_value(dual, dual.evaluate(x - step, y), y)
                # Values of size 10 to 100 carry errors of 1e-14; over 2e-6 that is 1e-8, and the kinks of the second
                # derivative add about the step itself.
                assert gradient[k] == pytest.approx((high - low) / 2e-6, abs=2e-6), (name, k)


@given(seeds, st.sampled_from(NORMS), st.sampled_from([1e-9, 1e-3, 1.0]))
def test_change_is_the_difference_of_values(seed: int, norm: str, size: float) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 1], [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.8, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    base = dual.evaluate(random_multipliers(dual, rng), y)
    point = dual.evaluate(np.maximum(base.x + size * rng.standard_normal(dual.size), dual.lowest), y)
    expected = dual_value(dual, point, y) - dual_value(dual, base, y)
    assert dual.change(point, base) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    # Concave: no point lies above the tangent.
    assert dual.change(point, base) <= base.gradient @ (point.x - base.x) + 1e-14


@pytest.mark.parametrize("norm", NORMS)
def test_change_keeps_its_digits_near_the_top(norm: str) -> None:
    """Steps far too small to see in the values themselves still change them by gradient times step."""
    rng = np.random.default_rng(3)
    model = oracle.random_entries(rng, [2, 3, 2, 3], [(0, 1), (0, 2), (1, 2), (2, 3)], 5.0)
    dual = make_dual(model, 0.8, norm)
    y = rng.uniform(0.0, 0.4, model.num_edges)
    base = dual.evaluate(random_multipliers(dual, rng, 5.0), y)
    step = np.where(base.x != 0.0, 1e-13 * rng.standard_normal(dual.size), 0.0)
    point = dual.evaluate(base.x + step, y)
    assert dual.change(point, base) == pytest.approx(base.gradient @ (point.x - base.x), rel=1e-9)
    assert abs(dual.change(point, base)) < 1e-13 * abs(dual_value(dual, base, y))


def test_gamma_is_best_where_lambda_is_symmetric() -> None:
    """For the spectral norm an antisymmetric part of Lambda on the edges, which Gamma would add, lowers the dual."""
    rng = np.random.default_rng(5)
    n, alpha, c = 5, 0.7, 1.2
    target, price, gamma = rng.uniform(0.0, 0.4, (n, n)), rng.standard_normal((n, n)), rng.standard_normal((n, n))
    target, price, gamma = target + target.T, price + price.T, gamma - gamma.T

    def value(lam: FloatArray) -> float:
        left, singular, right = np.linalg.svd(target + lam / (2 * alpha))
        z = left * np.minimum(singular, c) @ right
        return float(-np.sum(lam * z) + alpha * np.sum((z - target) ** 2))

    for size in (1e-3, 0.1, 1.0, 10.0):
        assert value(price + size * gamma) <= value(price) + 1e-12


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("seed", strategies.seeds(4, quick=1))
def test_any_multipliers_bound_the_objective_from_below(norm: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 2], [(0, 1), (0, 2), (1, 2), (2, 3)], 2.0)
    expected, _ = convex_oracle.solve(model, 0.8, norm, "linf")
    answer = project_paper(model, norm_bound=0.8, norm=norm, tol=1e-8)
    dual = make_dual(model, 0.8, norm)
    for _ in range(200):
        noise = random_multipliers(dual, rng) * rng.choice([1e-3, 0.1, 1.0, 10.0], dual.size)
        x = np.maximum(
            rng.choice([0.0, 1.0]) * answer.multipliers[: dual.size] + rng.choice([-1.0, 1.0]) * noise, dual.lowest
        )
        y = rng.choice([0.0, 1.0]) * answer.z + rng.uniform(0.0, 1.0) * rng.random(model.num_edges)
        assert dual.lower_bound(dual.evaluate(x, y)) <= expected * (1.0 + 1e-7)


@given(seeds, st.sampled_from(NORMS))
def test_prices_bound_every_matrix_of_the_ball(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    model = oracle.random_entries(rng, [2, 3, 2, 2], [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.8, norm)
    x = random_multipliers(dual, rng, float(rng.choice([0.3, 3.0])))
    x[2 * dual.num_contrasts :] *= rng.choice([1.0, 30.0])
    prices, most = dual.ball.prices(dual.evaluate(x, rng.random(model.num_edges)))
    assert (prices >= 0.0).all()
    for _ in range(20):
        z = rng.exponential(size=model.num_edges) ** 2
        z *= 0.8 / convex_oracle.norm_of(4, model.edges.tolist(), z, norm)
        assert prices @ z <= most * (1.0 + 1e-12)


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
        size = convex_oracle.norm_of_model(model, result.model.log_pairwise, norm, "linf")
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
    model = MarkovRandomField.ising(convex_oracle.GRAPHS["grid"][1], couplings)
    answer = project_paper(model, norm_bound=0.95, norm=norm, tol=1e-9)
    assert answer.converged
    assert np.isfinite(answer.log_pairwise).all()
    assert convex_oracle.norm_of_model(model, answer.log_pairwise, norm, "linf") <= 0.95
    left = np.abs(answer.log_pairwise[::4])
    np.testing.assert_allclose(answer.objective, 4.0 * np.sum((1e3 - left) ** 2), rtol=1e-12)
    if norm == "inf":
        # From so far away the objective is linear: as much coupling as possible stays, three disjoint edges' worth.
        assert left.sum() == pytest.approx(3 * 0.95, abs=1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_symmetries(norm: str) -> None:
    model = convex_oracle.random_instance(np.random.default_rng(11), "binary")
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
    model = convex_oracle.random_instance(rng, "ising")
    plain = project_paper(model, norm_bound=0.5, dependency="range", tol=1e-9)
    effects = np.concatenate(
        [(rng.standard_normal((2, 1)) + rng.standard_normal((1, 2))).reshape(-1) for _ in range(model.num_edges)]
    )
    moved = model.replace(log_pairwise=model.log_pairwise + effects)
    answer = project_paper(moved, norm_bound=0.5, dependency="range", tol=1e-9)
    np.testing.assert_allclose(answer.log_pairwise, plain.log_pairwise + effects, atol=1e-4)
    assert project_paper(moved, norm_bound=0.5, dependency="linf", tol=1e-9).objective > answer.objective


# -- running it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_warm_start_saves_evaluations(norm: str) -> None:
    model = random_tables(ising_grid(3, 3, coupling_max=1.0, seed=0).edges, 3, scale=1.5, seed=0)
    cold = project_paper(model, norm_bound=0.95, norm=norm)
    again = project_paper(model, norm_bound=0.95, norm=norm, start=cold)
    assert again.converged
    assert again.evaluations <= cold.evaluations / 3
    near = model.replace(log_pairwise=model.log_pairwise * 1.001)
    fresh = project_paper(near, norm_bound=0.95, norm=norm)
    warm = project_paper(near, norm_bound=0.95, norm=norm, start=cold)
    assert warm.evaluations < fresh.evaluations
    assert warm.objective == pytest.approx(fresh.objective, rel=3e-6)


def test_smoothed_step_moves_a_feasible_model_towards_a_small_y() -> None:
    """The operator itself: with Y given, ||Z - Y|| counts, and Z bounds R."""
    model = MarkovRandomField.ising([(0, 1)], coupling=0.5)
    chosen = PaperDual(alpha=2.0, exact=False)
    feasible = project_paper(model, norm_bound=0.9, settings=chosen)
    np.testing.assert_allclose(feasible.log_pairwise, model.log_pairwise, atol=1e-12)
    at_zero = SimpleNamespace(multipliers=np.zeros_like(feasible.multipliers))
    answer = project_paper(model, norm_bound=0.9, settings=chosen, tol=1e-10, start=at_zero)
    # minimise 4 (1/2 - z)^2 + 2 alpha z^2 over z: half way at alpha = 2.
    assert answer.z[0] == pytest.approx(0.25, abs=1e-8)
    np.testing.assert_allclose(answer.log_pairwise, [0.25, -0.25, -0.25, 0.25], atol=1e-8)


@pytest.mark.parametrize("norm", NORMS)
def test_answer_is_feasible_even_when_stopped_early(norm: str) -> None:
    model = random_tables(ising_grid(3, 3, coupling_max=1.0, seed=0).edges, 3, scale=1.5, seed=0)
    full = project_paper(model, norm_bound=0.95, norm=norm)
    cases = [
        (PaperDual(), 2),
        (PaperDual(max_outer=1), 1000),
        (PaperDual(max_inner=1, max_outer=5), 1000),
        (PaperDual(max_inner=3, exact=False), 1000),
    ]
    for chosen, max_iter in cases:
        answer = project_paper(model, norm_bound=0.95, norm=norm, settings=chosen, tol=1e-9, max_iter=max_iter)
        assert not answer.converged
        assert convex_oracle.norm_of_model(model, answer.log_pairwise, norm, "linf") <= 0.95 * (1.0 + 1e-13)
        assert answer.lower_bound <= full.objective <= answer.objective * (1.0 + 1e-6)
        assert answer.iterations == len(answer.history) <= min(max_iter, chosen.max_outer)
        assert answer.inner_iterations <= answer.iterations * chosen.max_inner
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
    assert answer.evaluations < 400
    assert convex_oracle.norm_of_model(model, answer.log_pairwise, "inf", "range") <= 2.5


@pytest.mark.slow
def test_paper_sized_grid_in_the_spectral_norm() -> None:
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, norm="spectral", dependency="range", tol=1e-6)
    assert answer.converged
    assert convex_oracle.norm_of_model(model, answer.log_pairwise, "spectral", "range") <= 2.5 * (1.0 + 1e-13)
    assert answer.objective < project_paper(model, norm_bound=2.5, dependency="range").objective


# -- errors -----------------------------------------------------------------------------------------------------------


def test_unfit_models() -> None:
    forbidden = MarkovRandomField.from_tables(
        np.zeros((3, 2)), [(0, 1), (1, 2)], [np.eye(2), [[0.0, -np.inf], [0.0, 0.0]]]
    )
    with pytest.raises(UnfitMethodError, match=r"edge \(1, 2\) forbids"):
        project_paper(forbidden, norm_bound=0.5)
    states = MarkovRandomField.potts([(0, 1)], coupling=1.0, num_states=3)
    with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\) joins 3 and 3 states: use dependency='linf'"):
        project_paper(states, norm_bound=0.1, dependency="range")


@pytest.mark.parametrize(
    "arguments",
    [{"alpha": 0.0}, {"alpha": "x"}, {"inner_tol": -1.0}, {"exact": 1}, {"max_inner": 0}],
)
def test_bad_settings(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        PaperDual(**arguments)


def test_a_start_of_another_shape_counts_as_none() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=2.0)
    other = project(MarkovRandomField.ising([(0, 1)], coupling=2.0), norm_bound=0.5, solver=PaperDual())
    cold, warm = (project(model, norm_bound=0.5, solver=PaperDual(), warm_start=s) for s in (None, other))
    assert cold.model == warm.model
    assert warm.stats["evaluations"] == cold.stats["evaluations"] > 0


def test_not_converging_and_unfit_norms_are_told() -> None:
    model = ising_grid(3, 3, coupling_max=3.0, seed=0)
    with pytest.raises(NotConvergedError, match="did not converge in 1 iterations") as info:
        project(model, norm_bound=0.5, solver=PaperDual(max_outer=1), tol=1e-12)
    assert info.value.result.norm_after <= 0.5
    late = project(model, norm_bound=0.5, solver=PaperDual(), tol=1e-12, time_limit=1e-9)
    assert late.status == "time_limit"
    assert late.norm_after <= 0.5
    with pytest.raises(ValueError, match="norm must be inf, 1 or spectral with the paper's dual"):
        project(model, norm_bound=0.5, solver=PaperDual(), norm="frobenius")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "available_memory", lambda: 1000)
    monkeypatch.setattr(_memory, "_SMALL", 0)
    model = MarkovRandomField.ising([(0, 1)], coupling=2.0)
    with pytest.raises(ResourceError, match="multipliers") as caught:
        project(model, norm_bound=0.5, solver=PaperDual())
    assert caught.value.required_bytes > caught.value.limit_bytes == 500
    # What needs no multipliers is still answered.
    assert project(model, norm_bound=3.0, solver=PaperDual()).squared_distance == 0.0


# -- the balls --------------------------------------------------------------------------------------------------------

radii = st.sampled_from([0.0, 1e-3, 0.5, 1.0, 7.5, 1e4])


def shrink_row(vector: Any, radius: float) -> FloatArray:
    return shrink_rows(np.array([0, len(vector)]), np.asarray(vector, dtype=float), radius)[0]


def bisected_l1_ball(vector: FloatArray, radius: float) -> FloatArray:
    """The projection with its threshold found by halving an interval."""
    magnitudes = np.abs(vector)
    if magnitudes.sum() <= radius:
        return vector
    low, high = 0.0, float(magnitudes.max())
    for _ in range(200):
        middle = 0.5 * (low + high)
        if np.maximum(magnitudes - middle, 0.0).sum() > radius:
            low = middle
        else:
            high = middle
    return np.sign(vector) * np.maximum(magnitudes - high, 0.0)


@given(st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), max_size=12).map(np.array), radii)
def test_rows_agree_with_bisection(vector: FloatArray, radius: float) -> None:
    answer = shrink_row(vector, radius)
    atol = 1e-12 * (1.0 + np.abs(vector).max(initial=0.0))
    np.testing.assert_allclose(answer, bisected_l1_ball(vector, radius), rtol=0.0, atol=atol)
    # To rounding relative to the radius, not to the entries.
    assert np.abs(answer).sum() <= radius * (1.0 + 1e-14)
    np.testing.assert_allclose(shrink_row(answer, radius), answer, rtol=1e-14, atol=1e-14 * radius)


def test_edge_cases_of_rows() -> None:
    assert shrink_row([], 1.0).shape == (0,)
    assert shrink_row([3.0, -4.0], 0.0).tolist() == [0.0, 0.0]
    assert shrink_row([0.0, 0.0], 0.0).tolist() == [0.0, 0.0]
    assert shrink_row([-5.0], 2.0).tolist() == [-2.0]
    assert shrink_row([2.0, 2.0, -2.0, 2.0], 2.0).tolist() == [0.5, 0.5, -0.5, 0.5]
    # Digits are counted from the radius even where the entries are astronomically larger.
    assert shrink_row([1e300, -1e300, 1e10], 1.0).tolist() == [0.5, -0.5, 0.0]
    values, thresholds = shrink_rows(np.array([0, 2, 2, 3, 4]), np.array([3.0, -2.0, 1.0, 5.0]), 2.0)
    assert values.tolist() == [1.5, -0.5, 1.0, 2.0]
    assert thresholds.tolist() == [1.5, 0.0, 0.0, 3.0]


@given(seeds, radii)
def test_rows_of_all_lengths_are_projected_each_by_itself(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, 5, rng.integers(1, 9)))])
    data = 2.0 * rng.standard_normal(starts[-1])
    before = data.copy()
    answer, _ = shrink_rows(starts, data, radius)
    np.testing.assert_array_equal(data, before)
    expected = [shrink_row(data[a:b], radius) for a, b in pairwise(starts)]
    np.testing.assert_allclose(answer, np.concatenate(expected), rtol=1e-14, atol=0.0)


@given(seeds, radii)
def test_clipped_eigenvalues_agree_with_singular_values(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 7)
    matrix = rng.standard_normal((n, n)) * rng.choice([0.1, 1.0, 10.0])
    matrix = matrix + matrix.T
    before = matrix.copy()
    answer = clip_eigenvalues(matrix, radius)[0]
    np.testing.assert_array_equal(answer, answer.T)
    np.testing.assert_array_equal(matrix, before)
    left, singular, right = np.linalg.svd(matrix)
    expected = left @ np.diag(np.minimum(singular, radius)) @ right
    np.testing.assert_allclose(answer, expected, rtol=0.0, atol=1e-12 * (1.0 + np.abs(matrix).max()))
    inside = clip_eigenvalues(matrix, 1e6)[0]
    np.testing.assert_array_equal(inside, matrix)
    assert inside is not matrix
