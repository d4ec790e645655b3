"""Expectations, variances and joint tables from draws, and how results show themselves."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

import fastmix
import strategies
from fastmix import MarkovRandomField, graphs
from fastmix._student import student_factor
from fastmix.estimates import Estimate, joint_frequencies, mean_of, variance_of
from fastmix.exact import enumerate_model
from fastmix.instances import ising_grid, random_tables


def autoregression(rng, chains, num, rho):
    noise = rng.normal(size=(num, chains))
    noise[1:] *= math.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=0).T


@pytest.mark.parametrize("chains", [1, 3, 64])
def test_standard_errors_cover(chains):
    """Of correlated chains: the share of intervals that hold the truth is what it should be."""
    rng = np.random.default_rng(chains)
    hits = np.zeros(2)
    for _ in range(200):
        values = autoregression(rng, chains, 4000 if chains < 16 else 200, 0.7)
        draws = np.arange(values.size).reshape(*values.shape, 1)
        flat = values.reshape(-1)
        mean, variance = (estimate(lambda x, flat=flat: flat[x[:, 0]], draws) for estimate in (mean_of, variance_of))
        hits += abs(mean.value) < 2.0 * mean.std_error, abs(variance.value - 1.0) < 2.0 * variance.std_error
    # 95 % nominally, 91 % by Student's law with 15 degrees of freedom for 1.75; six binomial deviations from 93 %
    assert (hits > 200 * 0.93 - 6 * math.sqrt(200 * 0.93 * 0.07)).all(), hits
    assert (hits < 200).all()


# -- calculation ------------------------------------------------------------------------------------------------------


FUNCTIONS = {
    "ratio": lambda a, b: a / b,
    "cumulant": lambda a, b: 1.0 - a / (3.0 * b**2),
    "logarithm": lambda a, b: np.log(a) + 0.0 * b,
    "difference": lambda a, b: a - 2.0 * b + 1.0,
    "distance": lambda a, b: np.sqrt(a**2 + b**2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_estimates_are_those_of_the_jackknife(name):
    """The naive twin leaves out one group after the other."""
    rng = np.random.default_rng(3)
    function = FUNCTIONS[name]
    common = rng.normal(size=(20, 1))
    means = 5.0 + common + 0.3 * rng.normal(size=(20, 2))
    a, b = (Estimate.from_groups(means[:, k], run="one") for k in range(2))
    found = function(a, b)
    left_out = np.array([function(*np.delete(means, g, axis=0).mean(axis=0)) for g in range(20)])
    factor = student_factor(19)
    assert found.value == pytest.approx(function(*means.mean(axis=0)), rel=1e-12)
    assert found.std_error == pytest.approx(factor * math.sqrt(19 * left_out.var()), rel=1e-9)
    # Of different runs: the sum of the two variances.
    alone = function(a, Estimate.from_groups(means[:, 1]))
    parts = [function(a, b.value).std_error, function(a.value, b).std_error]
    assert alone.std_error == pytest.approx(math.hypot(*parts), rel=1e-9)


def test_what_is_the_same_run_varies_together():
    model = ising_grid(3, 3, coupling_max=0.5, seed=1)
    run = fastmix.sample(model, num_sweeps=500, num_draws=50, seed=3)
    energy = run.expect(model.log_weight)
    assert (energy - run.expect(model.log_weight)).std_error < 1e-12
    assert (
        energy - fastmix.sample(model, num_sweeps=500, num_draws=50, seed=4).expect(model.log_weight)
    ).std_error > 0.0
    table = run.joint(0, 1)
    assert float(np.sum(table)) == pytest.approx(1.0)
    total: Any = np.sum(table)
    assert total.std_error < 1e-12  # whatever its parts are
    assert table[0, 0].std_error > 0.0
    copied = pickle.loads(pickle.dumps(energy))
    assert (copied - energy).std_error < 1e-12


def test_a_function_of_means_and_that_of_estimates_agree():
    model = ising_grid(3, 3, coupling_max=0.5, seed=1)
    run = fastmix.sample(model, num_sweeps=2000, num_draws=500, seed=3)
    observables = {f"m{k}": lambda x, k=k: (2.0 * x.mean(axis=-1) - 1.0) ** k for k in (2, 4)}
    binder = run.estimate(lambda means: 1.0 - means["m4"] / (3.0 * means["m2"] ** 2), observables)
    second, fourth = (run.expect(function) for function in observables.values())
    calculated = 1.0 - fourth / (3.0 * second**2)
    assert calculated.std_error == pytest.approx(binder.std_error, rel=1e-9)
    assert abs(binder.value - calculated.value) < 0.5 * binder.std_error
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    weights = np.exp(model.log_weight(states) - enumerate_model(model).log_z)
    m2, m4 = (weights @ function(states) for function in observables.values())
    assert abs(binder.value - (1.0 - m4 / (3.0 * m2**2))) < 5.0 * binder.std_error
    with pytest.raises(TypeError, match="observables"):
        run.estimate(lambda means: 1.0, {})
    with pytest.raises(TypeError, match="m2"):
        run.estimate(lambda means: 1.0, {"m2": 3})
    with pytest.raises(TypeError, match="function"):
        run.estimate(lambda means: "a", observables)


def coverage(chains, num, rho, runs, seed):
    """Shares of runs whose error bars hold a ratio, a Binder cumulant and a logarithm of means of chains."""
    rng = np.random.default_rng(seed)
    draws = np.arange(chains * num).reshape(chains, num, 1)
    hits = np.zeros(3)
    for _ in range(runs):
        x = autoregression(rng, chains, num, rho)
        flat = x.reshape(-1)
        m1 = mean_of(lambda i, flat=flat: flat[i[:, 0]] + 2.0, draws, "one")
        m2 = mean_of(lambda i, flat=flat: flat[i[:, 0]] ** 2, draws, "one")
        m4 = mean_of(lambda i, flat=flat: flat[i[:, 0]] ** 4, draws, "one")
        logarithm: Any = np.log(m2)
        found = m2 / m1, 1.0 - m4 / (3.0 * m2**2), logarithm
        hits += [abs(e.value - truth) < 1.96 * e.std_error for e, truth in zip(found, (0.5, 0.0, 0.0), strict=True)]
    return hits / runs


@pytest.mark.parametrize(("chains", "num"), [(1, 8000), (4, 2000), (64, 200)])
def test_errors_of_functions_cover(chains, num):
    runs = 150
    shares = coverage(chains, num, 0.5, runs, seed=chains)
    # 95 %, six binomial deviations around it
    assert (abs(shares - 0.95) < 6 * math.sqrt(0.05 * 0.95 / runs)).all(), shares


@pytest.mark.slow
@pytest.mark.parametrize(("chains", "num"), [(1, 20000), (4, 5000), (64, 400)])
def test_errors_of_functions_cover_in_a_thousand_runs(chains, num, tell):
    shares = coverage(chains, num, 0.5, 1000, seed=100 + chains)
    tell("coverage of functions of estimates", f"{chains} chains", f"shares {np.round(shares, 3).tolist()}")
    assert (shares > 0.93).all(), shares
    assert (shares < 0.98).all(), shares


def test_estimates_are_arrays_of_numbers():
    a = Estimate(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.2, 0.3]))
    assert (len(a), a.shape, a.ndim) == (3, (3,), 1)
    total: Any = np.sum(a)
    assert total.std_error == pytest.approx(math.sqrt(0.01 + 0.04 + 0.09))
    middle: Any = np.mean(a)
    assert middle.value == pytest.approx(2.0)
    assert (a[0] - a[0]).std_error == pytest.approx(0.0)
    assert (a[0] + a[1]).std_error == pytest.approx(math.hypot(0.1, 0.2))
    roots: Any = np.sqrt(a)
    assert roots.std_error == pytest.approx(a.std_error / (2 * np.sqrt(a.value)), rel=0.01)
    assert [one.value for one in a] == [1.0, 2.0, 3.0]
    twice: Any = np.concatenate([a, a])
    both: Any = np.sum(twice)
    assert both.std_error == pytest.approx(2 * total.std_error)
    assert (a > 1.5).tolist() == [False, True, True]
    assert (np.asarray(a) == a).all()
    product: Any = np.array([1.0, 2.0, 3.0]) * a
    assert product.std_error == pytest.approx([0.1, 0.4, 0.9])
    e = Estimate(2.0, 0.1)
    assert (e == 2.0, e != 2.0, e < 3, e >= 3, e >= 1) == (True, False, True, False, True)
    assert (2.0 - e).value == 0.0
    assert (1 / e).std_error == pytest.approx(0.1 / 4, rel=0.01)
    assert (2.0**e).value == 4.0
    assert abs(Estimate(-0.01, 0.1)).std_error == pytest.approx(0.1)
    for wrong in (
        lambda: e + "1",
        lambda: e < "1",
        lambda: np.shape(e),
        lambda: f"{a:.3f}",
        lambda: np.add(1.0, e, out=a),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="groups"):
        Estimate.from_groups(1.0)
    with pytest.raises(ValueError, match="one"):
        Estimate.from_groups([1.0, 2.0], run="one") + Estimate.from_groups([1.0, 2.0, 3.0], run="one")
    assert math.isnan(Estimate.from_groups([1.0]).std_error)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.4239, 0.0007, "1.4239(7)"), (1.4239, 0.0013, "1.4239(13)"), (-20.0, 0.5, "-20.0(5)"),
        (1234.5, 56.0, "1230(60)"), (1e-7, 3e-9, "1.00(3)e-7"), (0.0, 0.1, "0.00(10)"), (3.0, 0.0, "3"),
        (5.5, 0.0999, "5.50(10)"), (5.5, 0.096, "5.50(10)"), (1e9, 3e7, "1.00(3)e9"),
    ],
)  # fmt: skip
def test_uncertain_digits_stand_in_parentheses(value, error, text):
    assert str(Estimate(value, error)) == f"{Estimate(value, error)}" == text
    assert f"{Estimate(value, error):.3e}" == f"{value:.3e} ± {error:.3e}"


def test_more_chains_than_groups_are_put_together():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(10_000, 1))
    draws = np.arange(10_000).reshape(-1, 1, 1)
    found = mean_of(lambda i: values[i[:, 0], 0], draws)
    assert found.value == pytest.approx(values.mean())
    assert found.std_error == pytest.approx(0.01, rel=0.3)


def test_joint_frequencies_count():
    draws = np.array([[[0, 1, 2], [0, 1, 2]], [[1, 0, 2], [0, 0, 0]]])
    found = joint_frequencies(draws, [0, 2], [2, 3])
    assert found.value.tolist() == [[0.25, 0.0, 0.5], [0.0, 0.0, 0.25]]
    assert (found.std_error[[0, 1], [1, 0]] == 0.0).all()
    assert found.std_error[0, 2] > 0.0


def test_functions_of_the_wrong_shape_are_refused():
    result = fastmix.infer(ising_grid(2, 2, coupling_max=1.0, seed=0))
    with pytest.raises(ValueError, match="function"):
        result.expect(np.mean)
    with pytest.raises(ValueError, match="variables"):
        result.joint(0, 0)
    chains = fastmix.sample(result.model, num_sweeps=50, seed=0)
    with pytest.raises(ValueError, match="num_draws"):
        chains.expect(result.model.log_weight)


def test_estimates_scale():
    e = Estimate(2.0, 0.1)
    for scaled, value, error in ((3 * e, 6.0, 0.3), (e / -2, -1.0, 0.05), (-e, -2.0, 0.1)):
        assert scaled.value == pytest.approx(value)
        assert scaled.std_error == pytest.approx(error)
    assert repr(Estimate(-1.42394, 0.0021)) == "Estimate(-1.4239 ± 0.0021)"
    assert float(e) == 2.0


@pytest.mark.parametrize("seed", strategies.seeds(6, quick=2))
def test_joint_tables_and_expectations_are_those_of_enumeration(seed):
    rng = np.random.default_rng(seed)
    model = random_tables(graphs.cycle_edges(5), [2, 3, 2, 4, 2], scale=1.0, seed=seed)
    unary = model.log_unary.copy()
    unary[model.unary_offsets[3] + 1] = -np.inf  # a forbidden state, which the reduction drops
    model = model.replace(log_unary=unary)
    evidence = {4: 1} if seed % 2 else None
    result = fastmix.infer(model, method="exact", evidence=evidence)
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    weights = np.exp(model.log_weight(states))
    if evidence:
        weights = weights * (states[:, 4] == 1)
    weights /= weights.sum()
    for variables in ([3, 0], [1], [2, 4, 3]):
        table = np.zeros(model.num_states[variables])
        np.add.at(table, tuple(states[:, v] for v in variables), weights)
        found = result.joint(*variables)
        np.testing.assert_allclose(found.value, table, atol=1e-12)
        assert not found.std_error.any()
    values = rng.normal(size=len(states))
    lookup = {tuple(x): v for x, v in zip(states.tolist(), values, strict=True)}
    truth = weights @ values
    function = lambda x: np.array([lookup[tuple(row)] for row in x.tolist()])  # noqa: E731
    mean, variance = result.expect(function), result.variance(function)
    assert abs(mean.value - truth) < 5.0 * mean.std_error
    assert abs(variance.value - weights @ (values - truth) ** 2) < 5.0 * variance.std_error


def test_expectations_from_chains():
    model = ising_grid(3, 3, coupling_max=0.5, seed=1)
    exact = enumerate_model(model)
    states = np.array(list(np.ndindex(*model.num_states.tolist())))
    probability = np.exp(model.log_weight(states) - exact.log_z)
    result = fastmix.sample(model, num_sweeps=2000, num_draws=500, seed=3)
    energy = result.expect(model.log_weight)
    assert abs(energy.value - probability @ model.log_weight(states)) < 5.0 * energy.std_error < 0.2
    joint = result.joint(0, 8)
    table = np.zeros((2, 2))
    np.add.at(table, (states[:, 0], states[:, 8]), probability)
    assert (abs(joint.value - table) < 5.0 * joint.std_error).all()
    assert result.draws.dtype == np.uint8


def test_soft_evidence_weights_the_states():
    model = random_tables([(0, 1), (1, 2)], [2, 3, 2], scale=1.0, seed=0)
    likelihood = [0.2, 0.0, 3.0]
    result = fastmix.infer(model, evidence={1: likelihood, 2: 0})
    states = np.array(list(np.ndindex(2, 3, 2)))
    weights = np.exp(model.log_weight(states)) * np.array(likelihood)[states[:, 1]] * (states[:, 2] == 0)
    assert result.log_z == pytest.approx(math.log(weights.sum()))
    np.testing.assert_allclose(result.marginal(0), np.bincount(states[:, 0], weights) / weights.sum())
    assert result.model is model
    assert result.to_dict()["evidence"] == {"1": likelihood, "2": 0}
    table = np.zeros((2, 3))
    np.add.at(table, (states[:, 0], states[:, 1]), weights / weights.sum())
    for _ in range(4):  # plans that are kept serve other evidence from the second call on
        again = fastmix.infer(model, method="exact", evidence={1: likelihood, 2: 0})
        assert again.log_z == pytest.approx(result.log_z)
        np.testing.assert_allclose(again.joint(0, 1).value, table, atol=1e-12)
    mean = again.expect(lambda x: x[:, 1])
    assert abs(mean.value - table.sum(axis=0) @ np.arange(3)) < 5.0 * mean.std_error
    for bad in ([1.0, 2.0], [0.0, 0.0, 0.0], [1.0, -1.0, 1.0], [1.0, np.inf, 1.0]):
        with pytest.raises(fastmix.ModelError, match="evidence of variable 1"):
            fastmix.infer(model, evidence={1: bad})


# -- images and pictures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("connectivity", [4, 8])
def test_image_models(connectivity):
    rng = np.random.default_rng(0)
    unary, picture = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 4, 3))
    table = rng.normal(size=(5, 5))
    model = MarkovRandomField.image(unary, table, connectivity=connectivity, contrast=picture)
    distances = {}
    for r, c in np.ndindex(3, 4):
        for down, right in [(0, 1), (1, 0), (1, 1), (1, -1)][: connectivity // 2]:
            if r + down < 3 and 0 <= c + right < 4:
                d = ((picture[r, c] - picture[r + down, c + right]) ** 2).sum()
                distances[r * 4 + c, (r + down) * 4 + c + right] = d, math.hypot(down, right)
    scale = np.mean([d for d, _ in distances.values()])
    assert sorted(distances) == [tuple(edge) for edge in model.edges.tolist()]
    for (i, j), (d, length) in distances.items():
        np.testing.assert_allclose(model.table(i, j), table * math.exp(-d / (2 * scale)) / length)
    np.testing.assert_array_equal(model.log_unary, unary.reshape(-1))
    result = fastmix.infer(model, evidence={0: 4})
    assert result.to_array().shape == (3, 4, 5)
    assert result.to_array()[0, 0].tolist() == [0, 0, 0, 0, 1]
    assert (result.labels() == result.to_array().argmax(axis=-1)).all()
    assert model.replace(log_constant=1.0).shape == (3, 4)


def test_flat_pictures_and_wrong_axes():
    assert MarkovRandomField.image(np.zeros((2, 2, 2)), 1.0, contrast=np.ones((2, 2))).table(0, 1)[0, 0] == 1.0
    with pytest.raises(fastmix.ModelError, match="moveaxis"):
        MarkovRandomField.image(np.zeros((5, 40, 60)), 1.0)
    with pytest.raises(fastmix.ModelError, match="moveaxis"):
        MarkovRandomField.image(np.zeros((5, 4, 6)), 1.0, contrast=np.zeros((4, 6)))
    for arguments, reason in (
        ((np.zeros((2, 3)), 1.0), "H, W, K"),
        ((np.zeros((2, 3, 2)), np.zeros((3, 3))), "log_pairwise must"),
    ):
        with pytest.raises(fastmix.ModelError, match=reason):
            MarkovRandomField.image(*arguments)
    for options in ({"connectivity": 6}, {"contrast": np.zeros((3, 5))}, {"contrast_scale": 1.0}):
        with pytest.raises(fastmix.ModelError, match=next(iter(options))):
            MarkovRandomField.image(np.zeros((2, 3, 2)), 1.0, **options)
    with pytest.raises(fastmix.ModelError, match="shape must"):
        MarkovRandomField([2, 2], np.zeros(4), np.zeros((0, 2), int), np.zeros(0), shape=(3, 1))


def test_shape_survives_files_and_pickles(tmp_path):
    import pickle

    model = MarkovRandomField.image(np.zeros((2, 3, 2)), 1.0, state_names=["sky", "sea"])
    fastmix.io.write_model(model, tmp_path / "m.npz")
    for again in (fastmix.io.read_model(tmp_path / "m.npz"), pickle.loads(pickle.dumps(model))):
        assert again == model
        assert again.shape == (2, 3)


def test_frames_and_texts():
    model = MarkovRandomField.from_tables(
        [[0, 1], [0, 0, 0]], [(0, 1)], [np.eye(2, 3)], variable_names=["a", "b"],
        state_names=[["no", "yes"], ["x", "y", "<z>"]],
    )  # fmt: skip
    result = fastmix.sample(model, num_sweeps=100, seed=0)
    frame = result.to_frame()
    assert list(frame.columns) == ["variable", "state", "probability", "std_error"]
    assert frame["variable"].tolist() == ["a", "a", "b", "b", "b"]
    assert frame["state"].tolist() == ["no", "yes", "x", "y", "<z>"]
    np.testing.assert_array_equal(frame["probability"], result.node_marginals)
    exact = fastmix.infer(model)
    assert list(exact.to_frame().columns) == ["variable", "state", "probability"]
    assert "ok" in exact.summary()
    assert "log Z" in exact.summary()
    assert "R-hat" in result.summary()
    assert "&lt;z&gt;" in result._repr_html_()
    assert "<z>" not in result._repr_html_()


def test_pictures_of_marginals():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    small = ising_grid(3, 3, coupling_max=1.0, seed=0)
    large = random_tables(graphs.path_edges(50), 3, scale=1.0, seed=0)
    binary, labels = (MarkovRandomField.image(np.zeros((3, 4, k)), 0.5) for k in (2, 3))
    for model in (small, large, binary, labels):
        axes = fastmix.infer(model, method="mean-field").plot()
        axes.figure.canvas.draw()
        assert axes.has_data()
        pyplot.close(axes.figure)
    result = fastmix.sample(small, num_sweeps=50, num_draws=20, history_at=[10, 50], seed=0)
    figure, axes = pyplot.subplots()
    assert result.plot(axes) is axes
    pyplot.close(figure)


@pytest.mark.parametrize("torus", [False, True])
def test_lattices_have_the_right_neighbors(torus):
    def neighbors(steps, sizes, present=lambda *_: True):
        pairs = set()
        for place in np.ndindex(*sizes):
            for step in steps:
                if not present(place, step):
                    continue
                target = tuple(p + s for p, s in zip(place, step, strict=True))
                if torus:
                    target = tuple(t % size for t, size in zip(target, sizes, strict=True))
                if all(0 <= t < size for t, size in zip(target, sizes, strict=True)) and target != place:
                    ends = [int(np.ravel_multi_index(x, sizes)) for x in (place, target)]
                    pairs.add(tuple(sorted(ends)))
        return sorted(pairs)

    for sizes in ((3, 4), (4, 6)):
        found = graphs.triangular_edges(*sizes, torus=torus)
        assert [tuple(e) for e in found.tolist()] == neighbors([(0, 1), (1, 0), (1, 1)], sizes)
    found = graphs.hexagonal_edges(4, 6, torus=torus)
    rungs = neighbors([(0, 1), (1, 0)], (4, 6), lambda place, step: step == (0, 1) or sum(place) % 2 == 0)
    assert [tuple(e) for e in found.tolist()] == rungs
    if torus:
        assert (np.bincount(found.reshape(-1)) == 3).all()
        with pytest.raises(fastmix.ModelError, match="even"):
            graphs.hexagonal_edges(3, 4, torus=True)
    found = graphs.cubic_edges(3, 4, 5, torus=torus)
    assert [tuple(e) for e in found.tolist()] == neighbors([(0, 0, 1), (0, 1, 0), (1, 0, 0)], (3, 4, 5))


def test_every_kind_of_picture_and_table() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    pytest.importorskip("pandas")
    from matplotlib import pyplot

    model = ising_grid(4, 5, coupling_max=1.5, seed=0)
    certificate = fastmix.certify(model, accuracy=0.01)
    image = certificate.plot().images[0].get_array()
    np.testing.assert_allclose(image, fastmix.dependency_matrix(model).toarray())
    assert certificate.to_frame()["row_sum"].max() == pytest.approx(image.sum(axis=1).max())
    large = fastmix.certify(ising_grid(40, 40, coupling_max=0.1, seed=0), accuracy=0.01, criterion="dobrushin")
    assert len(large.plot().lines[0].get_ydata()) == 1600
    projected = fastmix.project(model, norm_bound=0.9)
    x, y = projected.plot().lines[0].get_data()
    assert len(x) == model.num_edges
    assert (y <= x + 1e-9).all()
    assert y.sum() < x.sum()
    table = projected.to_frame()
    assert list(table.columns) == ["first", "second", "before", "after"]
    run = fastmix.sample(model, num_chains=4, num_sweeps=200, num_draws=20, seed=1)
    lines = run.plot(kind="trace").lines
    assert len(lines) == 4
    np.testing.assert_allclose(lines[2].get_ydata(), model.log_weight(run.draws[2]))
    np.testing.assert_array_equal(run.plot(kind="mixing").lines[0].get_ydata(), run.r_hat)
    with pytest.raises(ValueError, match=r"^kind .*'ladder'"):
        run.plot(kind="ladder")
    tempered = fastmix.temper(model, seed=1, num_sweeps=200)
    tempered.plot(kind="ladder")
    for result in (certificate, projected, run, tempered, fastmix.most_probable(model)):
        assert result._repr_html_().startswith("<div>")
    pyplot.close("all")


def test_a_coupling_of_minus_infinity_forbids_equal_labels() -> None:
    model = MarkovRandomField.image(np.zeros((1, 2, 2)), -np.inf)
    assert model.table(0, 1).tolist() == [[-np.inf, 0.0], [0.0, -np.inf]]
    with pytest.raises(fastmix.ModelError, match="log_pairwise must"):
        MarkovRandomField.image(np.zeros((1, 2, 2)), np.inf)
