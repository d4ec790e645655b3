from __future__ import annotations

import convex_oracle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracle
import strategies
from fastmix.errors import ResourceError, UnfitMethodError
from fastmix.instances import ising_grid, random_tables
from fastmix.model import MarkovRandomField
from fastmix.projection import paper_dual, paper_problem
from fastmix.projection.paper_dual import PaperDual, PaperDualSolution, project_paper
from strategies import models, relabel

FloatArray = NDArray[np.float64]

NORMS = ("inf", "spectral")
seeds = st.integers(0, 2**32 - 1)


def make_dual(
    model: MarkovRandomField, norm_bound: float, norm: str, alpha: float = 0.7, both: bool = True, bound: str = "linf"
) -> paper_problem.Dual:
    problem = paper_problem.Problem.of(model, norm_bound, norm, bound, both)
    return paper_problem.Dual(problem, alpha)


def random_multipliers(dual: paper_problem.Dual, rng: np.random.Generator, scale: float = 1.0) -> FloatArray:
    """sigma and phi positive or zero, the others of any sign."""
    x = scale * rng.standard_normal(dual.size)
    bounded = dual.lowest == 0.0
    x[bounded] = np.where(rng.random(bounded.sum()) < 0.3, 0.0, np.abs(x[bounded]))
    return x


def assert_solves(
    answer: PaperDualSolution, model: MarkovRandomField, norm_bound: float, norm: str, bound: str, both: bool = True
) -> None:
    """Feasible to rounding, as good as the convex solver's answer to 1e-5, and bounded from below."""
    expected, _ = convex_oracle.solve(model, norm_bound, norm, bound, both)
    assert answer.converged
    assert answer.objective == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert answer.objective == pytest.approx(np.sum((answer.log_pairwise - model.log_pairwise) ** 2), rel=1e-12)
    assert answer.lower_bound <= expected * (1.0 + 1e-7) + 1e-7
    size = convex_oracle.norm_of_model(model, answer.log_pairwise, norm, bound, both)
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
@pytest.mark.parametrize("kind", ["binary", "mixed"])
def test_printed_direction_alone(norm: str, kind: str) -> None:
    rng = np.random.default_rng(4)
    model = convex_oracle.random_instance(rng, kind)
    one = project_paper(model, norm_bound=0.5, norm=norm, settings=PaperDual(both_directions=False), tol=1e-7)
    assert_solves(one, model, 0.5, norm, "linf", both=False)
    both = project_paper(model, norm_bound=0.5, norm=norm, tol=1e-7)
    assert one.objective <= both.objective + 1e-6
    # What the printed formula leaves out: the other direction is over the bound.
    assert convex_oracle.norm_of_model(model, one.log_pairwise, norm, "linf") > 0.51


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    ("alpha", "both"),
    [(0.3, True), (4.0, False), *(pytest.param(a, b, marks=pytest.mark.slow) for a, b in ((0.3, False), (4.0, True)))],
)
def test_smoothed_step_agrees_with_convex_solver(norm: str, alpha: float, both: bool) -> None:
    rng = np.random.default_rng([int(10 * alpha), both])
    for kind in ("binary", "states", "mixed"):
        model = convex_oracle.random_instance(rng, kind)
        chosen = PaperDual(alpha=alpha, exact=False, both_directions=both)
        first = project_paper(model, norm_bound=0.95, norm=norm, settings=chosen, tol=1e-9)
        edges = model.edges.tolist()
        r = convex_oracle.dependency(model.num_states.tolist(), edges, model.log_pairwise, "linf", both)
        size = convex_oracle.norm_of(model.num_variables, edges, r, norm)
        np.testing.assert_allclose(first.y, r * min(1.0, 0.95 / size), rtol=1e-12)
        for answer in (first, project_paper(model, norm_bound=0.95, norm=norm, settings=chosen, tol=1e-9, start=first)):
            expected, tables, z = convex_oracle.solve_smoothed(model, 0.95, norm, alpha, answer.y, both)
            assert answer.converged
            value = answer.objective + 2.0 * alpha * np.sum((answer.z - answer.y) ** 2)
            assert value == pytest.approx(expected, rel=1e-6, abs=1e-7)
            np.testing.assert_allclose(answer.log_pairwise, tables, atol=1e-4)
            np.testing.assert_allclose(answer.z, z, atol=1e-4)
        np.testing.assert_array_equal(answer.y, first.z)


@pytest.mark.parametrize("norm", NORMS)
def test_repeated_smoothed_steps_end_at_the_projection(norm: str) -> None:
    model = convex_oracle.random_instance(np.random.default_rng(7), "states")
    exact = project_paper(model, norm_bound=0.95, norm=norm, tol=1e-9)
    answer = None
    for _ in range(40):
        chosen = PaperDual(exact=False)
        answer = project_paper(model, norm_bound=0.95, norm=norm, settings=chosen, tol=1e-9, start=answer)
    assert answer.objective == pytest.approx(exact.objective, rel=1e-6)
    assert answer.lower_bound <= exact.objective
    np.testing.assert_allclose(answer.z, answer.y, atol=1e-5)


# -- the dual function ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("counts", [[2, 2, 2, 2], [3, 2, 4, 1], [1, 1, 3, 2]])
def test_gradient_by_finite_differences(norm: str, both: bool, counts: list[int]) -> None:
    rng = np.random.default_rng(len(counts) + counts[0])
    model = oracle.random_entries(rng, counts, [(0, 1), (0, 2), (1, 2), (2, 3)])
    dual = make_dual(model, 0.9, norm, both=both)
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
                high = dual.value(dual.evaluate(x + step, y), y)
                low = dual.value(dual.evaluate(x - step, y), y)
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
    expected = dual.value(point, y) - dual.value(base, y)
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
    assert abs(dual.change(point, base)) < 1e-13 * abs(dual.value(base, y))


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
        x = np.maximum(rng.choice([0.0, 1.0]) * answer.multipliers + rng.choice([-1.0, 1.0]) * noise, dual.lowest)
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
def test_every_model_is_projected(model: MarkovRandomField, norm: str, norm_bound: float) -> None:
    before = model.log_pairwise.copy()
    answer = project_paper(model, norm_bound=norm_bound, norm=norm)
    np.testing.assert_array_equal(model.log_pairwise, before)
    assert answer.converged
    assert answer.gap <= 1e-6 * (1.0 + answer.objective)
    assert answer.z.shape == answer.y.shape == (model.num_edges,)
    if model.num_edges:
        size = convex_oracle.norm_of_model(model, answer.log_pairwise, norm, "linf")
        assert size <= norm_bound * (1.0 + 1e-13)
        if convex_oracle.norm_of_model(model, before, norm, "linf") <= norm_bound * (1.0 - 1e-13):
            np.testing.assert_array_equal(answer.log_pairwise, before)
            assert (answer.objective, answer.iterations) == (0.0, 0)
    # Projecting again is a no-op.
    again = project_paper(model.replace(log_pairwise=answer.log_pairwise), norm_bound=norm_bound, norm=norm)
    np.testing.assert_array_equal(again.log_pairwise, answer.log_pairwise)


@pytest.mark.parametrize("norm", NORMS)
def test_models_without_edges(norm: str) -> None:
    for model in (
        MarkovRandomField.from_tables([], [], []),
        MarkovRandomField.from_tables([[0.0, 1.0], [0.0]], [], []),
    ):
        for exact in (True, False):
            answer = project_paper(model, norm_bound=0.5, norm=norm, settings=PaperDual(exact=exact))
            assert answer.converged
            assert answer.log_pairwise.size == answer.objective == 0


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
    one = project_paper(model, norm_bound=0.9, norm=norm, tol=1e-7, settings=PaperDual(both_directions=False))
    assert_solves(one, model, 0.9, norm, "linf", both=False)


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
    model = convex_oracle.random_instance(np.random.default_rng(11), "mixed")
    expected = project_paper(model, norm_bound=0.8, norm=norm, tol=1e-8).objective
    turned = relabel(model, list(range(model.num_variables))[::-1])
    assert project_paper(turned, norm_bound=0.8, norm=norm, tol=1e-8).objective == pytest.approx(expected, rel=1e-6)
    shifted = model.replace(log_pairwise=model.log_pairwise + 3.0)
    assert project_paper(shifted, norm_bound=0.8, norm=norm, tol=1e-8).objective == pytest.approx(expected, rel=1e-6)
    scaled = model.replace(log_pairwise=model.log_pairwise * 10.0)
    answer = project_paper(scaled, norm_bound=8.0, norm=norm, tol=1e-8)
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
    np.testing.assert_array_equal(feasible.log_pairwise, model.log_pairwise)
    at_zero = PaperDualSolution(
        feasible.log_pairwise, np.zeros(1), np.zeros(1), feasible.multipliers, 0.0, 0.0, 0, 0, 0, (), True
    )
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
        assert answer.history[-1][0] == answer.objective


def test_history_and_gap() -> None:
    model = ising_grid(4, 4, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, tol=1e-10)
    objectives, gaps = np.array(answer.history).T
    assert (np.diff(objectives) <= 0.0).all()
    assert (np.diff(gaps) <= 0.0).all()
    assert gaps[-1] == answer.gap <= 1e-10 * (1.0 + answer.objective)


def test_paper_sized_grid() -> None:
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    answer = project_paper(model, norm_bound=2.5, dependency="range", tol=1e-10)
    assert answer.converged
    assert answer.evaluations < 500
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
    with pytest.raises(UnfitMethodError, match=r"edge \(1, 2\) holds -inf"):
        project_paper(forbidden, norm_bound=0.5)
    states = MarkovRandomField.potts([(0, 1)], coupling=1.0, num_states=3)
    with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\) joins 3 and 3 states: use dependency='linf'"):
        project_paper(states, norm_bound=0.1, dependency="range")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"norm_bound": 0.0}, "norm_bound must be a positive number"),
        ({"norm_bound": np.inf}, "norm_bound must be a positive number"),
        ({"norm_bound": "one"}, "norm_bound must be a positive number"),
        ({"norm": "nuclear"}, "norm must be 'inf' or 'spectral'"),
        ({"dependency": "l1"}, "dependency must be 'linf' or 'range'"),
        ({"tol": 0.0}, "tol must be a positive number"),
        ({"max_iter": 0}, "max_iter must be a whole number"),
        ({"settings": "fast"}, "settings must be a PaperDual"),
        ({"start": 3}, "start must be a PaperDualSolution"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], message: str) -> None:
    model = MarkovRandomField.ising([(0, 1)], coupling=2.0)
    with pytest.raises(ValueError, match=message):
        project_paper(model, **{"norm_bound": 1.0, **arguments})


@pytest.mark.parametrize(
    "arguments",
    [{"alpha": 0.0}, {"alpha": "x"}, {"inner_tol": -1.0}, {"exact": 1}, {"both_directions": None}, {"max_inner": 0}],
)
def test_bad_settings(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} must be"):
        PaperDual(**arguments)


def test_start_of_another_shape() -> None:
    start = project_paper(MarkovRandomField.ising([(0, 1)], coupling=2.0), norm_bound=0.5)
    with pytest.raises(ValueError, match="start must come from the same graph"):
        project_paper(MarkovRandomField.ising([(0, 1), (1, 2)], coupling=2.0), norm_bound=0.5, start=start)
    with pytest.raises(ValueError, match="start must come from the same graph"):
        project_paper(MarkovRandomField.ising([(0, 1)], coupling=2.0), norm_bound=0.5, norm="spectral", start=start)


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_dual, "available_memory", lambda: 1000)
    model = MarkovRandomField.ising([(0, 1)], coupling=2.0)
    with pytest.raises(ResourceError, match="multipliers") as caught:
        project_paper(model, norm_bound=0.5)
    assert caught.value.required_bytes > caught.value.limit_bytes == 1000
    # What needs no multipliers is still answered.
    assert project_paper(model, norm_bound=3.0).objective == 0.0
