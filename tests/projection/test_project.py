"""The fast exact projection: edge costs, all norms, against a general convex solver and against itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import fastmix
import strategies
from fastmix import (
    KL,
    Euclidean,
    Interrupted,
    MarkovRandomField,
    ModelError,
    NotConvergedError,
    ReversedKL,
    Status,
    UnfitMethodError,
    project,
)
from fastmix.graphs import complete_edges, cycle_edges, grid_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.projection.contrasts import contrasts
from fastmix.projection.edges import edge_costs
from fastmix.theory.dependency import edge_dependencies, to_matrix
from fastmix.theory.norms import matrix_norm
from oracle import convex

NORMS = ("inf", "spectral", "1", "frobenius")


def true_norm(model, dependency, norm):
    """The norm by dense linear algebra, of the larger direction on every edge."""
    z = edge_dependencies(model, dependency=dependency).max(axis=1, initial=0.0)
    dense = to_matrix(model, z).toarray()
    order = {"inf": np.inf, "1": 1, "spectral": 2, "frobenius": "fro"}[norm]
    return float(np.linalg.norm(dense, order))


def nearest_table(psi, dependency, z):
    """Nearest table by a slow, obvious method: Dykstra's alternating projections onto the slabs |c_k . T| <= t."""
    position, sign = contrasts(*psi.shape, dependency)
    columns = np.zeros((len(position), psi.size))
    np.add.at(columns, (np.arange(len(position))[:, None], position), sign)
    t = z * (4.0 if dependency == "range" else 2.0)
    x, memory = psi.reshape(-1).copy(), np.zeros(len(columns))
    for _ in range(3000):
        before = x
        for k, c in enumerate(columns):
            y = x + memory[k] * c
            excess = c @ y
            memory[k] = np.sign(excess) * max(0.0, abs(excess) - t) / (c @ c)
            x = y - memory[k] * c
        if np.abs(x - before).max() < 1e-10:
            break
    return x.reshape(psi.shape)


@pytest.mark.parametrize("dependency", ["range", "linf"])
@pytest.mark.parametrize("shape", [(2, 2), (2, 3), (3, 3), pytest.param((4, 3), marks=pytest.mark.slow)])
def test_edge_cost_is_the_distance_to_the_nearest_table(shape, dependency):
    rng = np.random.default_rng(sum(shape))
    psi = rng.normal(size=shape)
    model = MarkovRandomField.from_tables([np.zeros(shape[0]), np.zeros(shape[1])], [(0, 1)], [psi])
    costs = edge_costs(model, dependency)
    assert costs.rho[0] == pytest.approx(edge_dependencies(model, dependency=dependency).max(), rel=1e-14)
    for fraction in (0.9, 0.3):
        z = costs.rho * fraction
        expected = nearest_table(psi, dependency, z[0])
        np.testing.assert_allclose(costs.tables(z).reshape(shape), expected, atol=2e-5)
        assert costs.cost(z) == pytest.approx(np.sum((expected - psi) ** 2), abs=1e-4)
        assert costs.cost(z) == pytest.approx(np.sum((costs.tables(z) - psi.reshape(-1)) ** 2), rel=1e-12)


@pytest.mark.parametrize("dependency", ["range", "linf"])
@pytest.mark.parametrize("seed", strategies.seeds(60, quick=16))
def test_paths_of_ordinary_and_degenerate_tables(seed, dependency):
    """The slope is minus the derivative, the path ends at zero, the tables are feasible; ties are everywhere."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 7, size=2))
    kind = seed % 4
    if kind == 0:
        psi = rng.normal(size=shape)
    elif kind == 1:
        psi = np.round(rng.normal(size=shape))
    elif kind == 2:
        psi = rng.normal() * np.eye(*shape)
    else:
        psi = np.abs(np.subtract.outer(np.arange(shape[0]), np.arange(shape[1]))).astype(float)
    model = MarkovRandomField.from_tables([np.zeros(shape[0]), np.zeros(shape[1])], [(0, 1)], [psi])
    costs = edge_costs(model, dependency)
    assert costs.z[-1] == 0.0
    assert (np.diff(costs.mu) > 0).all()
    assert (np.diff(costs.z) < 0).all()
    for fraction in (0.0, 0.3, 0.77):
        z = fraction * costs.rho
        tables = costs.tables(z)
        after = edge_dependencies(model.replace(log_pairwise=tables), dependency=dependency).max()
        assert after <= z[0] + 1e-12
        assert costs.cost(z) == pytest.approx(np.sum((tables - psi.reshape(-1)) ** 2), rel=1e-10, abs=1e-12)
    for k in range(len(costs.mu) - 1):
        middle = np.array([0.5 * (costs.z[k] + costs.z[k + 1])])
        h = 1e-4 * (costs.z[k] - costs.z[k + 1])
        slope = (costs.cost(middle - h) - costs.cost(middle + h)) / (2 * h)
        assert slope == pytest.approx(0.5 * (costs.mu[k] + costs.mu[k + 1]), rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("norm", ["inf", "spectral", "frobenius"])
def test_out_of_time_the_projection_is_within_the_bound(norm):
    rng, edges = np.random.default_rng(1), grid_edges(3, 3)
    model = MarkovRandomField.from_tables(np.zeros((9, 4)), edges, 3.0 * rng.normal(size=(len(edges), 4, 4)))
    best = project(model, norm_bound=0.9, norm=norm)
    late = project(model, norm_bound=0.9, norm=norm, time_limit=1e-9)
    assert (best.status, late.status) == (Status.OK, Status.TIME_LIMIT)
    assert late.norm_after <= 0.9
    assert best.squared_distance < late.squared_distance < 2.0 * best.squared_distance
    assert late.duality_gap == np.inf


def test_ising_cost_has_a_formula():
    model = MarkovRandomField.ising([(0, 1), (1, 2)], [2.0, -0.5])
    costs = edge_costs(model, "range")
    assert costs.curvature == 4.0
    assert costs.cost(np.array([1.2, 0.5])) == pytest.approx(4 * 0.8**2)
    assert not edge_costs(model, "linf").curvature
    assert edge_costs(model, "linf").cost(np.array([1.2, 0.5])) == pytest.approx(4 * 0.8**2)


ORACLE_CASES = list(
    itertools.product(("binary", "states", "mixed"), ("inf", "spectral"), ("range", "linf"), (0.5, 0.95, 2.5))
)


def oracle_model(kind, norm, dependency, norm_bound, seed):
    rng = np.random.default_rng([seed, len(kind), len(norm), len(dependency), int(100 * norm_bound)])
    return convex.random_instance(rng, kind)


@pytest.mark.parametrize(("kind", "norm", "dependency", "norm_bound"), ORACLE_CASES)
@pytest.mark.parametrize("seed", strategies.seeds(6, quick=1))
def test_agrees_with_a_general_convex_solver(kind, norm, dependency, norm_bound, seed):
    model = oracle_model(kind, norm, dependency, norm_bound, seed)
    objective, _ = convex.solve(model, norm_bound, norm, dependency)
    result = project(model, norm_bound=norm_bound, norm=norm, dependency=dependency, tol=1e-9, max_iter=100_000)
    assert result.norm_after <= norm_bound
    assert (result.model is model) == (result.norm_before <= norm_bound)
    assert true_norm(result.model, dependency, norm) <= norm_bound * (1 + 1e-14)
    assert abs(result.squared_distance - objective) <= 1e-6 * (1 + objective)
    assert result.squared_distance - result.duality_gap <= objective + 1e-6 * (1 + objective)


def test_most_of_the_cases_have_something_to_do():
    moved = [
        true_norm(oracle_model(kind, norm, dependency, norm_bound, 0), dependency, norm) > norm_bound
        for kind, norm, dependency, norm_bound in ORACLE_CASES
    ]
    assert sum(moved) > len(ORACLE_CASES) // 2


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dependency", ["range", "linf"])
def test_projected_models_meet_their_bound_and_stay(norm, dependency):
    model = random_tables(grid_edges(4, 4), [2, 3, 4, 2] * 4, scale=1.0, seed=1)
    result = project(model, norm_bound=0.9, norm=norm, dependency=dependency)
    assert result.status == Status.OK
    assert result.norm_after <= 0.9
    assert true_norm(result.model, dependency, norm) <= 0.9
    assert result.norm_before == pytest.approx(true_norm(model, dependency, norm), rel=1e-8)
    assert np.array_equal(result.model.log_unary, model.log_unary)
    again = project(result.model, norm_bound=0.9, norm=norm, dependency=dependency)
    assert again.model is result.model
    assert again.squared_distance == again.duality_gap == 0.0


def test_feasible_model_comes_back_unchanged():
    model = ising_grid(4, 4, coupling_max=0.1, seed=0)
    result = project(model, norm_bound=2.5)
    assert result.model is model
    assert result.norm_before == result.norm_after <= 0.4
    assert result.status == Status.OK


@pytest.mark.parametrize("norm_bound", [0.5, 0.95, 2.5])
def test_spectral_changes_less_than_inf_and_inf_less_than_frobenius(norm_bound):
    model = ising_grid(8, 8, coupling_max=3.0, seed=3)
    distance = {norm: project(model, norm_bound=norm_bound, norm=norm).squared_distance for norm in NORMS}
    assert distance["spectral"] <= distance["inf"] * (1 + 1e-5)
    assert distance["spectral"] <= distance["frobenius"] * (1 + 1e-5)
    assert distance["1"] == pytest.approx(distance["inf"], rel=1e-9)


def test_single_edge_by_hand():
    model = MarkovRandomField.ising([(0, 1)], coupling=-2.0, field=[0.3, 0.1])
    for norm in ("inf", "spectral"):
        result = project(model, norm_bound=0.5, norm=norm, tol=1e-10)
        assert result.squared_distance == pytest.approx(4 * 1.5**2, rel=1e-9)
        np.testing.assert_allclose(result.model.table(0, 1), [[-0.5, 0.5], [0.5, -0.5]], atol=1e-9)
    result = project(model, norm_bound=0.5, norm="frobenius", tol=1e-10)
    np.testing.assert_allclose(result.model.table(0, 1)[0, 0], -0.5 / np.sqrt(2), atol=1e-6)


def test_gap_is_honest():
    """At every tolerance the true optimum lies between the lower bound and the cost of the point returned."""
    model = potts_grid(5, 5, num_states=3, coupling_max=4.0, seed=5)
    for norm in NORMS:
        best = project(model, norm_bound=0.9, norm=norm, tol=1e-10, max_iter=200_000).squared_distance
        for tol in (1e-1, 1e-2, 1e-4):
            rough = project(model, norm_bound=0.9, norm=norm, tol=tol)
            assert rough.relative_gap <= tol * 1.0001
            assert rough.squared_distance - rough.duality_gap <= best * (1 + 1e-9)
            assert rough.squared_distance >= best * (1 - 1e-9)
            costs = [entry["value"] for entry in rough.history]
            assert costs == sorted(costs, reverse=True)


def test_warm_starts_save_iterations():
    model = ising_grid(16, 16, coupling_max=3.0, attractive=True, seed=0)
    nudged = model.replace(log_pairwise=model.log_pairwise * 1.001)
    for norm in ("inf", "spectral"):
        cold = project(model, norm_bound=0.95, norm=norm, tol=1e-6)
        warm = project(nudged, norm_bound=0.95, norm=norm, tol=1e-6, warm_start=cold)
        fresh = project(nudged, norm_bound=0.95, norm=norm, tol=1e-6)
        assert warm.stats["num_iterations"] < fresh.stats["num_iterations"]
        assert warm.squared_distance == pytest.approx(fresh.squared_distance, rel=1e-5)
        by_array = project(nudged, norm_bound=0.95, norm=norm, tol=1e-6, warm_start=cold.multipliers)
        assert by_array.stats["num_iterations"] == warm.stats["num_iterations"]


@pytest.mark.parametrize("norm", ["inf", "spectral"])
def test_not_converging_raises_with_a_feasible_point(norm):
    model = ising_grid(10, 10, coupling_max=3.0, seed=0)
    with pytest.raises(NotConvergedError, match=" 20 iterations") as info:
        project(model, norm_bound=0.95, norm=norm, tol=1e-13, max_iter=20)
    result = info.value.result
    assert result.status == Status.NOT_CONVERGED
    assert result.norm_after <= 0.95
    assert 1e-13 < result.relative_gap < 1


def test_interrupt_raises_with_a_feasible_point(monkeypatch):
    from fastmix.projection import euclidean

    original = euclidean.ascend_quadratic
    calls = []

    def interrupt(*arguments):
        calls.append(1)
        if len(calls) > 15:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(euclidean, "ascend_quadratic", interrupt)
    with pytest.raises(Interrupted, match="projection") as info:
        project(ising_grid(10, 10, coupling_max=3.0, seed=0), norm_bound=0.95, tol=1e-12)
    assert info.value.result.status == Status.INTERRUPTED
    assert info.value.result.norm_after <= 0.95


def test_forbidden_pairs_are_refused_by_name_and_forbidden_states_are_not():
    table = np.array([[0.0, 1.0], [-np.inf, 2.0]])
    with pytest.raises(UnfitMethodError, match=r"edge \(0, 1\) forbids"):
        project(MarkovRandomField.from_tables(np.zeros((2, 2)), [(0, 1)], [table]), norm_bound=0.5)
    unary = [[0.0, -np.inf, 0.0], [0.0, 0.5]]
    strong = np.array([[3.0, -3.0], [-np.inf, 7.0], [-3.0, 3.0]])
    model = MarkovRandomField.from_tables(unary, [(0, 1)], [strong])
    result = project(model, norm_bound=0.5)
    assert result.norm_after <= 0.5
    after = result.model.table(0, 1)
    assert after[1, 0] == -np.inf
    assert after[1, 1] == 7.0
    assert result.squared_distance == pytest.approx(4 * 2.5**2, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"norm_bound": -1.0}, "norm_bound .*-1.0"),
        ({"norm_bound": np.nan}, "norm_bound"),
        ({"norm_bound": 1.0, "norm": "max"}, "norm"),
        ({"norm_bound": 1.0, "dependency": "sigmoid"}, "dependency .*range, linf"),
        ({"norm_bound": 1.0, "tol": 0.0}, "tol"),
        ({"norm_bound": 1.0, "max_iter": 0}, "max_iter"),
        ({"norm_bound": 1.0, "solver": "slow"}, "solver"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        project(ising_grid(2, 2, coupling_max=1.0, seed=0), **arguments)


def test_degenerate_graphs():
    empty = MarkovRandomField.from_factors([], [])
    assert project(empty, norm_bound=0.5).model is empty
    lonely = MarkovRandomField.from_tables([[0.0, 1.0], [0.5]], [(0, 1)], [[[1.0], [2.0]]])
    assert project(lonely, norm_bound=0.5, dependency="range").model is lonely
    isolated = MarkovRandomField.ising([(0, 2)], 3.0, np.zeros(5))
    for norm in NORMS:
        assert project(isolated, norm_bound=0.5, norm=norm).norm_after <= 0.5


def test_dense_graph_and_large_coupling():
    model = MarkovRandomField.ising(complete_edges(12), 1e3 * np.sin(np.arange(66)))
    for norm in NORMS:
        result = project(model, norm_bound=0.9, norm=norm)
        assert result.norm_after <= 0.9
        assert np.isfinite(result.squared_distance)


def test_relabeling_reversal_and_shifts_change_nothing():
    rng = np.random.default_rng(0)
    edges, states = cycle_edges(6), [2, 3, 2, 3, 2, 3]
    model = random_tables(edges, states, scale=2.0, seed=0)
    result = project(model, norm_bound=0.9, tol=1e-10)
    order = rng.permutation(6)
    place = np.argsort(order)
    moved = MarkovRandomField.from_tables(
        [model.unary(int(i)) for i in order],
        [(place[j], place[i]) for i, j in edges],
        [model.table(int(j), int(i)) for i, j in edges],
    )
    other = project(moved, norm_bound=0.9, tol=1e-10)
    assert other.squared_distance == pytest.approx(result.squared_distance, rel=1e-8)
    shifted = MarkovRandomField.from_tables(
        [model.unary(i) for i in range(6)], edges,
        [model.table(int(i), int(j)) + rng.normal(size=(states[i], 1)) + rng.normal(size=states[j]) for i, j in edges],
    )  # fmt: skip
    assert project(shifted, norm_bound=0.9, tol=1e-10).squared_distance == pytest.approx(
        result.squared_distance, rel=1e-8
    )


def test_certified_after_projection_below_one():
    model = ising_grid(8, 8, coupling_max=3.0, attractive=True, seed=0)
    assert not fastmix.certify(model, accuracy=0.01).certified
    for norm in ("inf", "spectral"):
        result = project(model, norm_bound=0.95, norm=norm)
        certificate = fastmix.certify(result.model, accuracy=0.01, dependency="range", norm=norm)
        assert certificate.certified
        assert certificate.norm_value <= 0.95


def test_multipliers_price_the_constraint():
    """A larger bound costs less, at the rate of the multipliers: d(distance)/dc = -sum of multipliers."""
    model = ising_grid(6, 6, coupling_max=3.0, seed=2)
    h = 1e-3
    up, down = (project(model, norm_bound=1.5 + s, tol=1e-12).squared_distance for s in (h, -h))
    here = project(model, norm_bound=1.5, tol=1e-12)
    assert (up - down) / (2 * h) == pytest.approx(-here.multipliers.sum(), rel=1e-5)
    spectral = project(model, norm_bound=1.5, norm="spectral", tol=1e-10, max_iter=100_000)
    up, down = (
        project(model, norm_bound=1.5 + s, norm="spectral", tol=1e-10, max_iter=100_000).squared_distance
        for s in (h, -h)
    )
    assert (up - down) / (2 * h) == pytest.approx(-np.sum(spectral.multipliers**2), rel=1e-3)


def test_safe_side_after_rounding():
    """Many random projections: the safe norm, not only the true one, is within the bound."""
    for seed in range(30):
        model = ising_grid(5, 5, coupling_max=3.0, seed=seed)
        norm_bound = 0.3 + 0.07 * seed
        result = project(model, norm_bound=norm_bound)
        z = edge_dependencies(result.model, dependency="range").max(axis=1)
        assert matrix_norm(to_matrix(model, z), "inf") <= norm_bound


def test_nearly_tied_contrasts_do_not_lose_the_path():
    """Potts tables with rounding errors on them, as gradient steps leave behind."""
    rng = np.random.default_rng(0)
    for trial in range(200):
        size = 10.0 ** rng.uniform(-16, -6)
        table = rng.uniform(0.5, 4.0) * np.eye(3) + size * rng.normal(size=(3, 3))
        if trial % 2:
            table = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
        model = MarkovRandomField.from_tables(np.zeros((2, 3)), [(0, 1)], [table])
        result = project(model, norm_bound=0.1, tol=1e-9)
        assert result.norm_after <= 0.1
        exact = project(
            MarkovRandomField.potts([(0, 1)], coupling=table[0, 0] - table[0, 1], num_states=3), norm_bound=0.1
        )
        assert result.squared_distance == pytest.approx(exact.squared_distance, abs=1e-4 + 100 * size)


# -- many neighbors and little time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [10, 64, 65, 300])
def test_a_star_is_projected_as_its_formula_says(leaves):
    """Every edge has ``z = (rho - t)_+`` with one threshold t, such that the center has the bound."""
    coupling = np.random.default_rng(leaves).uniform(0.0, 1.0, leaves)
    model = MarkovRandomField.ising([(0, i + 1) for i in range(leaves)], coupling)
    result = project(model, norm_bound=0.9, tol=1e-10)
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.maximum(coupling - middle, 0.0).sum() > 0.9 else (low, middle)
    np.testing.assert_allclose(result.dependencies, np.maximum(coupling - low, 0.0), atol=1e-6)


def test_a_large_star_is_projected_in_a_moment():
    n = 100_000
    model = MarkovRandomField.ising(np.column_stack([np.zeros(n, dtype=np.int64), np.arange(1, n + 1)]), 0.5)
    result = project(model, norm_bound=2.5)
    assert result.norm_after <= 2.5
    assert result.stats["seconds"] - result.stats["compile_seconds"] < 10.0  # minutes if values were sorted one by one


def test_a_descent_is_not_begun_without_the_time_for_one_value():
    model = ising_grid(60, 60, coupling_max=3.0, seed=0)
    divergence = ReversedKL()
    assert divergence.least_seconds(model) > 0.5
    result = project(model, norm_bound=2.5, divergence=divergence, seed=0, time_limit=0.5)
    nearest = project(model, norm_bound=2.5)
    assert (result.status, result.stats["num_steps"]) == (Status.TIME_LIMIT, 0)
    assert result.norm_after <= 2.5
    np.testing.assert_allclose(result.model.log_pairwise, nearest.model.log_pairwise, atol=1e-3)
    assert result.to_dict()["stats"]["stopped_by"] == "time_limit"


def test_evidence_gives_the_projection_of_the_conditioned_model():
    model = ising_grid(3, 3, coupling_max=3.0, seed=0)
    for divergence in (Euclidean(), KL()):
        given = project(model, norm_bound=0.9, divergence=divergence, evidence={4: 1})
        by_hand = project(model.condition({4: 1}), norm_bound=0.9, divergence=divergence)
        assert given.model == by_hand.model
        assert given.provenance["options"]["evidence"] == {"4": 1}
    with pytest.raises(ModelError, match="evidence"):
        project(model, norm_bound=0.9, evidence=[1])


def test_the_frobenius_projection_of_binary_models_is_a_multiple():
    model = ising_grid(5, 5, coupling_max=3.0, seed=0)
    result = project(model, norm_bound=1.0, norm="frobenius", tol=1e-12)
    before, after = (edge_dependencies(m, dependency="range").max(axis=1) for m in (model, result.model))
    assert after == pytest.approx(before * (after[0] / before[0]))
    assert result.stats["num_iterations"] == 0
