"""Curves along a ladder of temperatures: against enumeration, and reweighting against the equations themselves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_temper_saved import Stop

import fastmix
import oracle.observables as naive
from fastmix import MarkovRandomField, UnfitMethodError, temper
from fastmix.graphs import complete_edges, grid_edges
from fastmix.sampling.tempering.reweighting import Reweighting
from fastmix.sampling.tempering.rung_draws import Blocks
from fastmix.sampling.tempering.rungs import pin
from fastmix.sampling.tempering.temper import Tempered


def torus(rows: int, cols: int, field: float = 0.0) -> MarkovRandomField:
    return MarkovRandomField.ising(grid_edges(rows, cols, torus=True), coupling=1.0, field=field)


def glass(seed: int, n: int = 8) -> MarkovRandomField:
    """Asymmetric: a complete graph with normal couplings and fields."""
    rng = np.random.default_rng(seed)
    return MarkovRandomField.ising(
        complete_edges(n), rng.normal(size=n * (n - 1) // 2) / np.sqrt(n), 0.3 * rng.normal(size=n)
    )


def potts() -> MarkovRandomField:
    return MarkovRandomField.potts(grid_edges(2, 3, torus=True), num_states=3, coupling=1.0)


CASES = {
    "torus": (lambda: torus(3, 3), [1.5, 2.2, 3.5], (3, 3)),
    "field": (lambda: torus(2, 4, 0.2), [3.0, 1.0, 2.0], (2, 4)),
    "glass": (lambda: glass(1), [0.4, 0.7, 1.5], (8,)),
    "potts": (potts, [0.6, 1.0, 1.7], (2, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_all_curves_are_those_of_enumeration(name):
    """Every curve within five standard errors at every temperature: fixed seeds, some 150 numbers."""
    make, temperatures, shape = CASES[name]
    model = make()
    run = temper(model, temperatures=temperatures, num_sweeps=4000, seed=3)
    assert str(run.status) == "ok"
    curves = run.observables()
    for k, temperature in enumerate(temperatures):
        exact = naive.ExactObservables(model, temperature, shape)
        for curve, value in exact.all().items():
            close(getattr(curves, curve)[k], value, f"{curve} at {temperature}")
        close(curves.correlation_length(shape)[k], exact.correlation_length(), "correlation length")
        for found, value in zip(curves.correlations(shape)[k], exact.correlations(), strict=True):
            close(found, value, "correlation")
        spins = exact.vectors()[..., 0]
        close(curves.mean(lambda x: x[:, 0] == 1)[k], exact.mean(exact.states[:, 0] == 1), "a function")
        assert spins.shape[1] == model.num_variables


def close(found, value, what):
    assert abs(float(found) - value) < 5.0 * found.std_error + 1e-9, (what, found, value)
    assert found.std_error < 0.2 * (1.0 + abs(value)), (what, found, value)


def test_distribution_of_overlaps():
    model = glass(2)
    curves = temper(model, temperatures=[0.5, 1.0], num_sweeps=4000, seed=1).observables()
    middles, density = curves.overlap_distribution(num_bins=9)
    assert middles.tolist() == np.linspace(-1.0, 1.0, 9).tolist()
    for k, temperature in enumerate([0.5, 1.0]):
        exact = naive.ExactObservables(model, temperature)
        overlaps = exact.overlaps()
        for b, middle in enumerate(middles):
            mass = exact.pair_mean(np.abs(overlaps - middle) < 1e-9)  # eight spins: overlaps are the middles
            close(density[k, b], 4.0 * mass, f"overlap {middle}")
    assert np.allclose(np.asarray(density.value).sum(axis=1) / 4.0, 1.0)
    with pytest.raises(ValueError, match="num_bins"):
        curves.overlap_distribution(num_bins=4)


def test_correlation_length_of_the_overlap():
    model = torus(3, 3)
    found = temper(model, temperatures=[2.0], num_sweeps=4000, seed=1).observables().overlap_correlation_length((3, 3))
    exact = naive.ExactObservables(model, 2.0, (3, 3))
    spins = 2.0 * exact.states - 1.0
    correlation = (spins.T * exact.p) @ spins
    squares = correlation**2  # of products of spins of two configurations
    place = np.arange(9) // 3
    wave = np.cos(2.0 * np.pi * (place[:, None] - place) / 3)
    ratio = squares.sum() / (squares * wave).sum() - 1.0
    close(found[0], np.sqrt(ratio) / (2.0 * np.sin(np.pi / 3)), "overlap correlation length")


# -- reweighting ------------------------------------------------------------------------------------------------------


def gaussian_draws(num_blocks: int = 20, length: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Log-weights of draws at three inverse temperatures, of a model whose log-weight is normal at 0."""
    rungs = np.array([0.0, 0.8, 1.7])
    rng = np.random.default_rng(0)
    return rungs[:, None, None] + rng.normal(size=(3, num_blocks, length)), rungs


def test_reweighting_solves_the_equations():
    """Normalizers and averages are those of plain iteration; so are they without a block, to second order."""
    weights, rungs = gaussian_draws()
    targets = np.array([0.0, 0.4, 1.1, 1.7])
    found = Reweighting(weights, rungs, targets, np.zeros(3))
    log_z, draws = naive.multistate(weights.reshape(3, -1), rungs, targets)
    assert found.log_z == pytest.approx(log_z, abs=1e-10)
    values = np.stack([weights, weights**2], axis=-1)
    whole, left_out = found.means(values)
    assert whole == pytest.approx(draws @ values.reshape(-1, 2), abs=1e-9)
    assert found.effective_draws == pytest.approx(1.0 / (draws**2).sum(axis=1), rel=1e-9)
    ratios, ratios_left_out = found.log_ratios()
    assert ratios[[0, 3]] == pytest.approx(log_z[[0, 2]], abs=1e-9)
    for block in (0, 7):
        others = np.delete(weights, block, axis=1)
        log_z_without, draws_without = naive.multistate(others.reshape(3, -1), rungs, targets)
        without = draws_without @ np.delete(values, block, axis=1).reshape(-1, 2)
        change = np.abs(without - whole)
        assert np.abs(left_out[block] - without).max() < 0.1 * change.max()
        assert ratios_left_out[block, 3] - ratios[3] == pytest.approx(log_z_without[2] - log_z[2], abs=3e-4)


def test_standard_errors_of_reweighted_averages_cover():
    """Intervals of 1.96 standard errors hold the truth in 95 % of cases, within five deviations."""
    rng = np.random.default_rng(1)
    rungs = np.array([0.0, 0.8, 1.7])
    hits = 0
    for _ in range(150):
        weights = rungs[:, None, None] + rng.normal(size=(3, 16, 20))
        whole, left_out = Reweighting(weights, rungs, np.array([1.2]), np.zeros(3)).means(weights[..., None])
        estimate = fastmix.estimates.jackknife(lambda m: m["x"], {"x": whole[:, 0]}, {"x": left_out[..., 0]})
        hits += bool(abs(estimate.value[0] - 1.2) < 1.96 * estimate.std_error[0])
    assert abs(hits - 0.95 * 150) < 5.0 * np.sqrt(150 * 0.95 * 0.05)


@pytest.mark.parametrize("name", CASES)
def test_reweighted_curves_are_those_of_enumeration(name):
    make, temperatures, shape = CASES[name]
    model = make()
    run = temper(model, temperatures=temperatures, num_sweeps=4000, seed=4)
    between = np.linspace(min(temperatures), max(temperatures), 4)
    curves = run.observables(between)
    for k, temperature in enumerate(between):
        exact = naive.ExactObservables(model, float(temperature), shape)
        for curve, value in exact.all().items():
            close(getattr(curves, curve)[k], value, f"{curve} at {temperature}")
        close(curves.correlation_length(shape)[k], exact.correlation_length(), "correlation length")
    # At a rung all draws say more than its own.
    at_rung = run.observables([temperatures[0]])
    assert at_rung.energy.std_error[0] < 1.2 * run.observables().energy.std_error[0]


def test_temperatures_too_far_apart_are_refused():
    model = torus(8, 8)
    run = temper(model, temperatures=[1.5, 6.0], num_sweeps=300, num_ensembles=4, seed=0)
    assert run.observables([1.5]).energy.shape == (1,)
    with pytest.raises(ValueError, match="temperatures"):
        run.observables([3.0])
    for outside in ([1.4], [6.1], [np.nan], []):
        with pytest.raises(ValueError, match="temperatures"):
            run.observables(outside)


# -- error bars -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_ensembles", [4, 16])
def test_standard_errors_cover(num_ensembles):
    """Of 60 runs the share of intervals that hold the truth, over curves: 95 % nominally, at least 88 %."""
    model = torus(2, 4, 0.1)
    exact = [naive.ExactObservables(model, temperature).all() for temperature in (1.5, 3.0)]
    names = ("energy", "specific_heat", "binder", "log_z", "overlap", "overlap_binder")
    hits = np.zeros((len(names), 2))
    for seed in range(60):
        run = temper(
            model, temperatures=[1.5, 3.0], num_sweeps=400, num_draws=200, num_ensembles=num_ensembles, seed=seed
        )
        curves = run.observables()
        for row, name in enumerate(names):
            curve = getattr(curves, name)
            truth = [one[name] for one in exact]
            hits[row] += np.abs(curve.value - truth) < 1.96 * curve.std_error
    share = hits.mean() / 60
    assert 0.90 < share < 0.99, hits
    assert hits.min() > 60 * 0.95 - 5 * np.sqrt(60 * 0.95 * 0.05), hits  # each curve, five deviations


def test_curves_vary_together():
    curves = temper(torus(3, 3), temperatures=[2.0, 3.0], num_sweeps=500, num_ensembles=8, seed=0).observables()
    assert (curves.energy - curves.energy).std_error.max() < 1e-12
    assert (curves.overlap + curves.energy).std_error.shape == (2,)
    free = curves.energy - curves.temperatures * curves.entropy
    assert np.asarray(free - curves.free_energy) == pytest.approx(np.zeros(2), abs=1e-12)
    assert (free - curves.free_energy).std_error.max() < 1e-9


# -- rungs ------------------------------------------------------------------------------------------------------------


def test_rungs_at_temperatures():
    model = torus(3, 3, 0.1)
    run = temper(model, temperatures=[3.0, np.inf, 1.5, 1.5], num_draws=50, num_sweeps=500, num_ensembles=3, seed=0)
    assert run.temperatures.tolist() == [3.0, np.inf, 1.5, 1.5]
    assert run.model == model.at_temperature(1.5)
    assert run.rung_draws.states.shape == (4, 6, 50, 9)
    assert np.array_equal(run.draws, run.rung_draws.states[2])
    assert np.isin(1.5 / np.array([3.0, np.inf, 1.5]), run.positions).all()
    hottest = run.at(1)
    assert np.abs(hottest.node_marginals - 0.5).max() < 5 * hottest.std_error.max()
    assert hottest.log_z == pytest.approx(9 * np.log(2.0), abs=1e-9)
    weights = model.log_weight(run.rung_draws.states.reshape(-1, 9)).reshape(4, 6, 50)
    assert run.rung_draws.energies == pytest.approx(-weights, abs=1e-9)


def test_the_answer_at_a_rung():
    model = glass(5)
    run = temper(model, temperatures=[0.7, 2.0], num_sweeps=4000, seed=1)
    for k, temperature in enumerate([0.7, 2.0]):
        found = run.at(k)
        exact = fastmix.infer(model.at_temperature(temperature), method="exact")
        assert (np.abs(found.node_marginals - exact.node_marginals) < 5 * found.std_error).all()
        assert abs(found.log_z - exact.log_z) < 5 * found.log_z_std_error
        weight = found.expect(found.model.log_weight)
        assert abs(weight.value - exact.expect(found.model.log_weight).value) < 5 * weight.std_error
        energy = -temperature * weight / 8
        assert (energy - run.observables().energy[k]).std_error < 0.2 * energy.std_error  # they vary together
        assert found.temperatures is None
    for wrong in (2, -1, 0.5, None):
        with pytest.raises(fastmix.ModelError, match="rung"):
            run.at(wrong)


def test_all_rungs():
    model = torus(3, 3, 0.1)
    run = temper(model, rungs="all", num_sweeps=500, num_ensembles=4, seed=0)
    assert len(run.temperatures) == len(run.positions)
    assert run.temperatures[0] == np.inf
    assert run.temperatures[-1] == 1.0
    assert (np.diff(run.temperatures) < 0.0).all()
    assert run.model is model or run.model == model
    assert run.observables().specific_heat[0] == 0.0
    both = temper(model, rungs="all", temperatures=[2.0, 3.0], num_sweeps=500, num_ensembles=4, seed=0)
    assert {2.0, 3.0} <= set(both.temperatures.tolist())
    assert both.temperatures[-1] == 2.0


def test_evidence_is_expanded():
    model = torus(3, 3, 0.1)
    run = temper(model, evidence={4: 1, 0: [0.3, 0.7]}, temperatures=[1.5, 3.0], num_sweeps=3000, seed=2)
    assert run.rung_draws.states.shape[-1] == 9
    assert (run.rung_draws.states[..., 4] == 1).all()
    for k, temperature in enumerate([1.5, 3.0]):
        hot = model.at_temperature(temperature)
        soft = hot.replace(log_unary=hot.log_unary + np.pad(np.log([0.3, 0.7]) / temperature, (0, 16)))
        exact = fastmix.infer(soft, evidence={4: 1}, method="exact")
        found = run.at(k)
        assert (np.abs(found.node_marginals - exact.node_marginals) < 5 * found.std_error + 1e-12).all()
        assert abs(found.log_z - exact.log_z) < 5 * found.log_z_std_error


def test_forbidden_pairs_have_curves_but_no_log_z():
    tables = [[[0.0, 0.5], [0.2, -np.inf]]] * 2
    model = MarkovRandomField.from_tables([[0.0, 0.3]] * 3, [(0, 1), (1, 2)], tables)
    run = temper(model, temperatures=[1.0, 2.0], num_sweeps=3000, seed=1)
    curves = run.observables()
    assert np.isnan(curves.log_z.value).all()
    for k, temperature in enumerate([1.0, 2.0]):
        states = [x for x in itertools.product(range(2), repeat=3) if model.log_weight(x) > -np.inf]
        weights = np.array([model.log_weight(x) for x in states])
        p = np.exp(weights / temperature)
        close(curves.energy[k], -float(p @ weights / p.sum()) / 3, "energy")
    assert run.at(0).log_z is None
    run.observables([1.5]).energy  # noqa: B018 (it can be found without log Z)


def test_models_without_magnetization():
    model = MarkovRandomField.from_tables([[0.0, 1.0], [0.0, 0.0, 1.0]], [(0, 1)], [np.eye(2, 3)])
    curves = temper(model, temperatures=[1.0], num_sweeps=300, num_ensembles=3, seed=0).observables()
    with pytest.raises(UnfitMethodError, match="states"):
        curves.binder  # noqa: B018
    assert "binder" not in curves.columns()
    assert "energy" in curves.columns()
    for shape in ((3,), (2, 2), (), ("a",), None):
        with pytest.raises(ValueError, match="shape"):
            curves.correlation_length(shape)


def test_draws_of_rungs_survive_a_checkpoint(tmp_path):
    options = {"temperatures": [1.0, 2.0], "num_sweeps": 3000, "num_draws": 300, "num_ensembles": 3}
    options |= {"num_threads": 1, "seed": 4}
    model = torus(3, 3)
    expected = temper(model, checkpoint=str(tmp_path / "whole"), **options)
    path = str(tmp_path / "parts")
    for after in (1000, 2500):
        with pytest.raises(KeyboardInterrupt):
            temper(model, checkpoint=path, checkpoint_seconds=0.0, progress=Stop(after), **options)
    found = temper(model, checkpoint=path, **options)
    assert np.array_equal(found.rung_draws.states, expected.rung_draws.states)
    assert np.array_equal(found.observables().log_z.value, expected.observables().log_z.value)


def test_factors_and_houdayer_moves_are_no_obstacle():
    tables = [([0, 1, 2], 0.7 * np.arange(8.0).reshape(2, 2, 2) % 1.3), ([2, 3], np.array([[0.0, 1.0], [0.5, 0.0]]))]
    model = MarkovRandomField.from_factors([2] * 4, tables)
    for moves in ([], ["houdayer"]):
        curves = temper(model, temperatures=[0.5, 1.0], num_sweeps=3000, moves=moves, seed=0).observables()
        for k, temperature in enumerate([0.5, 1.0]):
            exact = naive.ExactObservables(model, temperature).all()
            for name in ("log_z", "energy", "overlap", "magnetization"):
                close(getattr(curves, name)[k], exact[name], name)


@pytest.mark.parametrize("wrong", [[], [0.0], [-1.0], [np.inf], [np.nan], "1", 1.0, [[1.0]], [1.0, "a"], ["2"]])
def test_temperatures_that_are_refused(wrong):
    with pytest.raises(ValueError, match="temperatures"):
        Tempered(temperatures=wrong)


def test_what_else_is_refused():
    with pytest.raises(ValueError, match="rungs"):
        Tempered(rungs="some")
    with pytest.raises(ValueError, match="num_draws"):
        Tempered(temperatures=[1.0], num_draws=0)
    with pytest.raises(ValueError, match="temperatures"):
        temper(torus(3, 3), num_sweeps=100, seed=0).observables()
    with pytest.raises(fastmix.ResourceError, match="num_draws"):
        temper(torus(3, 3), temperatures=[1.0, 2.0], num_draws=10**14)


def test_pinned_positions():
    """They are all there, the ends too, and no rung is moved farther than a quarter of a step."""
    rng = np.random.default_rng(0)
    for _ in range(200):
        positions = np.concatenate([[0.0], np.sort(rng.random(rng.integers(0, 6))), [1.0]])
        pinned = rng.choice(np.concatenate([rng.random(4), positions]), size=rng.integers(0, 5))
        found, source = pin(positions, np.arange(len(positions)), pinned, positions)
        assert np.isin(pinned, found).all()
        assert (np.diff(found) > 0.0).all()
        assert found[[0, -1]].tolist() == [0.0, 1.0]
        assert len(found) <= len(positions) + len(set(pinned.tolist()))
        assert source.shape == found.shape
        widest = np.diff(positions).max()
        assert np.diff(found).max() <= 1.5 * widest + 1e-12


def test_blocks_are_stretches_of_ensembles():
    blocks = Blocks(num_ensembles=3, num_draws=20)
    assert (blocks.stretches, blocks.length, blocks.count) == (6, 3, 18)
    values = np.arange(2 * 6 * 20).reshape(2, 6, 20)
    split = blocks.split(values)
    assert split.shape == (2, 18, 6)
    assert split[1, 7].tolist() == [*values[1, 2, 3:6], *values[1, 3, 3:6]]
