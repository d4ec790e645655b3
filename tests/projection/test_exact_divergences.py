"""KL and piecewise KL: values by enumeration, gradients by finite differences, pieces, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import oracle
import strategies
from fastmix import MarkovRandomField, ResourceError, UnfitMethodError, project
from fastmix.graphs import complete_edges, cycle_edges, grid_edges, path_edges
from fastmix.instances import ising_grid, potts_grid, random_tables
from fastmix.projection import KL, Euclidean, PiecewiseKL
from fastmix.projection.forest import grid_shape, grid_strips, merge_lines, split_trees
from oracle import divergences as naive


def pair(seed, edges=None, n=5, max_states=3):
    """Two models on one graph with mixed state counts, single states included."""
    rng = np.random.default_rng(seed)
    psi = (
        oracle.random_model(rng, n, max_states)
        if edges is None
        else oracle.random_entries(rng, rng.integers(1, max_states + 1, n).tolist(), edges)
    )
    return psi, psi.with_parameters(psi.parameters + 0.7 * rng.standard_normal(psi.num_parameters))


def grid_pair(seed, rows=2, cols=3):
    return pair(seed, [tuple(e) for e in grid_edges(rows, cols).tolist()], rows * cols)


@pytest.mark.parametrize("seed", strategies.seeds(12, quick=4))
def test_kl_is_that_of_the_definition_with_its_gradient(seed):
    psi, theta = pair(seed)
    objective = KL().start(psi, seed=0)
    value, gradient = objective.evaluate(theta)
    assert value == pytest.approx(naive.kl(psi, theta), rel=1e-9)
    np.testing.assert_allclose(gradient, naive.moments(theta) - naive.moments(psi), atol=1e-10)
    np.testing.assert_allclose(gradient, naive.numeric_gradient(lambda t: naive.kl(psi, t), theta), atol=1e-6)
    assert objective.evaluate(psi)[0] == pytest.approx(0.0, abs=1e-12)


def test_the_constant_of_the_model_does_not_matter():
    psi, theta = pair(3)
    shifted = theta.replace(log_constant=theta.log_constant + 5.0)
    for divergence in (KL(), PiecewiseKL("spanning-trees")):
        objective = divergence.start(psi, seed=0)
        assert objective.evaluate(shifted)[0] == pytest.approx(objective.evaluate(theta)[0], rel=1e-12)


@pytest.mark.parametrize("seed", strategies.seeds(6, quick=2))
@pytest.mark.parametrize("name", ["rows-and-columns", "adjacent-pairs", "spanning-trees"])
def test_piecewise_is_the_largest_piece_with_its_gradient(seed, name):
    psi, theta = grid_pair(seed, *((2, 3), (3, 2))[seed % 2])
    objective: Any = PiecewiseKL(name, smoothing=0.0).start(psi, seed=seed)
    value, gradient = objective.evaluate(theta)
    if name != "spanning-trees":
        pieces = [
            [e for e, (i, j) in enumerate(psi.edges.tolist()) if {i, j} <= set(strip.reshape(-1).tolist())]
            for strip in grid_strips(psi, name)
        ]
        values = [naive.kl(naive.piece(psi, p), naive.piece(theta, p)) for p in pieces]
        np.testing.assert_allclose(objective.piece_values, values, rtol=1e-9, atol=1e-12)
        assert value == pytest.approx(max(values), rel=1e-9)
        chosen = pieces[int(np.argmax(values))]
        numeric = naive.numeric_gradient(lambda t: naive.kl(naive.piece(psi, chosen), naive.piece(t, chosen)), theta)
        np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    numeric = naive.numeric_gradient(lambda t: objective.evaluate(t)[0], theta)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)
    assert objective.evaluate(psi)[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("smoothing", [0.01, 0.1, 1.0, 100.0])
def test_smoothing_lies_between_mean_and_maximum_and_has_the_gradient(smoothing):
    psi, theta = grid_pair(1)
    objective: Any = PiecewiseKL("rows-and-columns", smoothing).start(psi, seed=0)
    value, gradient = objective.evaluate(theta)
    largest, mean = objective.piece_values.max(), objective.piece_values.mean()
    assert mean - 1e-12 <= value <= largest + 1e-12
    assert value >= largest - smoothing * np.log(len(objective.piece_values)) - 1e-12
    numeric = naive.numeric_gradient(lambda t: objective.evaluate(t)[0], theta)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


def test_own_pieces():
    psi, theta = pair(5, [tuple(e) for e in complete_edges(4).tolist()], 4)
    pieces = [[0, 1], [3], [2, 5], [4]]  # edges of K4: 0-1, 0-2, 0-3, 1-2, 1-3, 2-3
    with pytest.raises(UnfitMethodError, match=r"piece 1 .*cycle"):
        PiecewiseKL([[2, 5], [0, 1, 3]]).start(psi, seed=0).evaluate(theta)
    objective: Any = PiecewiseKL(pieces, smoothing=0.0).start(psi, seed=0)
    value, gradient = objective.evaluate(theta)
    values = [naive.kl(naive.piece(psi, p), naive.piece(theta, p)) for p in pieces]
    assert sorted(objective.piece_values) == pytest.approx(sorted(values), rel=1e-9, abs=1e-12)
    assert value == pytest.approx(max(values), rel=1e-9)
    numeric = naive.numeric_gradient(lambda t: objective.evaluate(t)[0], theta)
    np.testing.assert_allclose(gradient, numeric, atol=1e-6)


def test_gradient_is_zero_outside_the_largest_piece():
    psi, theta = pair(2, [(0, 1), (2, 3)], 4)
    objective: Any = PiecewiseKL([[0], [1]], smoothing=0.0).start(psi, seed=0)
    _, gradient = objective.evaluate(theta)
    large = int(objective.piece_values.argmax())
    split, at = len(psi.log_unary), psi.pairwise_offsets
    outside = slice(split + at[1 - large], split + at[2 - large])
    assert not gradient[outside].any()
    for v in psi.edges[1 - large]:
        assert not gradient[psi.unary_offsets[v] : psi.unary_offsets[v + 1]].any()


def test_forests_agree_with_enumeration_at_extreme_strengths():
    for scale in (0.0, 1.0, 50.0, 1000.0):
        model = random_tables(path_edges(5), [2, 3, 1, 4, 2], scale=scale, seed=1)
        forest = split_trees(model, [np.arange(4), np.array([0, 2])])
        potentials = forest.matrix @ model.parameters
        log_z, unary = forest.sum_up(potentials)
        whole, part = model, naive.piece(model, [0, 2])
        assert log_z == pytest.approx([oracle.log_z(whole) - whole.log_constant, oracle.log_z(part)], rel=1e-12)
        marginals = forest.sum_down(potentials, unary)
        assert np.isfinite(marginals).all()
        moments = forest.transposed @ np.where(forest.entry_piece == 0, marginals, 0.0)
        np.testing.assert_allclose(moments, naive.moments(model), atol=1e-9)


def test_merged_lines_agree_with_enumeration():
    model = random_tables(grid_edges(2, 3), [2, 3, 1, 2, 2, 3], scale=1.0, seed=3)
    forest = merge_lines(model, [np.arange(6).reshape(2, 3)])  # and of three lines in one
    three = merge_lines(model, [np.arange(6).reshape(2, 3).T])
    assert three.sum_up(three.matrix @ model.parameters)[0] == pytest.approx(oracle.log_z(model) - model.log_constant)
    potentials = forest.matrix @ model.parameters
    log_z, unary = forest.sum_up(potentials)
    assert log_z[0] == pytest.approx(oracle.log_z(model) - model.log_constant, rel=1e-12)
    moments = forest.transposed @ forest.sum_down(potentials, unary)
    np.testing.assert_allclose(moments, naive.moments(model), atol=1e-10)


def test_grids_are_recognized_and_nothing_else():
    assert grid_shape(ising_grid(4, 7, coupling_max=1.0, seed=0)) == (4, 7)
    assert grid_shape(ising_grid(1, 6, coupling_max=1.0, seed=0)) == (1, 6)
    assert grid_shape(ising_grid(6, 1, coupling_max=1.0, seed=0)) == (1, 6)  # the same graph
    assert grid_shape(ising_grid(4, 4, coupling_max=1.0, torus=True, seed=0)) is None
    assert grid_shape(MarkovRandomField.ising(complete_edges(4), 1.0)) is None
    assert grid_shape(MarkovRandomField.ising(grid_edges(3, 3)[:-1], 1.0, num_variables=9)) is None
    assert grid_shape(MarkovRandomField.from_factors([2, 2], [])) is None
    lines = grid_strips(ising_grid(3, 4, coupling_max=1.0, seed=0), "rows-and-columns")
    assert [line.shape for line in lines] == [(1, 4)] * 3 + [(1, 3)] * 4


def test_automatic_pieces():
    def count(model):
        return project(model, norm_bound=0.5, divergence=PiecewiseKL(), seed=0).stats["num_pieces"]

    assert count(ising_grid(3, 4, coupling_max=3.0, seed=0)) == 2 + 3
    assert count(ising_grid(1, 5, coupling_max=3.0, seed=0)) == 1
    assert count(MarkovRandomField.ising(cycle_edges(6), 3.0)) == 2


def test_refusals():
    cycle = MarkovRandomField.ising(cycle_edges(5), 3.0)
    for name in ("rows-and-columns", "adjacent-pairs"):
        with pytest.raises(UnfitMethodError, match=f"pieces='{name}'"):
            project(cycle, norm_bound=0.5, divergence=PiecewiseKL(name))
    with pytest.raises(UnfitMethodError, match=r"pieces=.* 1x5"):
        project(MarkovRandomField.ising(path_edges(5), 3.0), norm_bound=0.5, divergence=PiecewiseKL("adjacent-pairs"))
    with pytest.raises(ValueError, match=r"pieces .*0 to 4, .*7 .*piece 1"):
        project(cycle, norm_bound=0.5, divergence=PiecewiseKL([[0], [7]]))
    large = potts_grid(3, 3, num_states=300, coupling_max=1.0, seed=0)
    with pytest.raises(ResourceError, match="pieces='adjacent-pairs'"):
        grid_strips(large, "adjacent-pairs")
    with pytest.raises(ResourceError, match="PiecewiseKL and ReversedKL") as info:
        project(ising_grid(12, 12, coupling_max=3.0, seed=0), norm_bound=0.5, divergence=KL(memory_limit=1e4))
    assert info.value.treewidth >= 12
    assert info.value.required_bytes > 1e4


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: PiecewiseKL("columns"), "pieces .*auto"),
        (lambda: PiecewiseKL(3), "pieces"),
        (lambda: PiecewiseKL([]), "pieces"),
        (lambda: PiecewiseKL([[0], []]), r"pieces\[1\]"),
        (lambda: PiecewiseKL([[0.5]]), r"pieces\[0\]"),
        (lambda: PiecewiseKL([[-1]]), r"pieces\[0\]"),
        (lambda: PiecewiseKL(smoothing=-0.1), "smoothing .*-0.1"),
        (lambda: KL(memory_limit=0.0), "memory_limit .*0.0"),
    ],
)
def test_settings_check_themselves(make, name):
    with pytest.raises(ValueError, match=f"^{name}"):
        make()


def test_settings_compare_and_hash_by_value():
    assert PiecewiseKL([np.array([1, 0])]) == PiecewiseKL([[0, 1]])
    assert len({PiecewiseKL(), PiecewiseKL(), KL(), Euclidean(), PiecewiseKL([[0]])}) == 4
