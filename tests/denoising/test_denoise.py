from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from fastmix import Progress, _memory, sample
from fastmix.chains import annealing as annealing_module
from fastmix.chains.annealing import systematic
from fastmix.denoising import (
    METHODS,
    add_noise,
    anneal,
    binarize,
    denoise,
    denoising_model,
    label_model,
)
from fastmix.denoising.fitting import best_coupling, blurred, noise_level
from fastmix.denoising.posterior import as_gray
from fastmix.errors import ResourceError
from fastmix.exact.enumeration import enumerate_model
from fastmix.instances import ising_grid, potts_grid
from fastmix.model import MarkovRandomField
from fastmix.results import Status
from fastmix.sampling.annealed_errors import known_probabilities

PIL = pytest.importorskip("PIL.Image")


def half(rows: int = 12, cols: int = 16) -> np.ndarray:
    image = np.zeros((rows, cols))
    image[:, cols // 2 :] = 1.0
    return image


# -- the model ------------------------------------------------------------------------------------------------------


def test_model_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((3, 4))
    model = denoising_model(x, coupling=0.7, data_weight=0.25)
    for _ in range(20):
        labels = rng.integers(0, 2, size=(3, 4))
        y = 2 * labels - 1
        pairs = (y[1:] * y[:-1]).sum() + (y[:, 1:] * y[:, :-1]).sum()
        expected = 0.7 * pairs + 0.25 * ((2 * x - 1) * y).sum()
        assert model.log_weight(labels.reshape(-1)) == pytest.approx(expected)


def test_noise_is_that_of_the_formula() -> None:
    clean = binarize(half(200, 200))
    t = np.random.default_rng(5).random((200, 200)) ** 1.25
    np.testing.assert_array_equal(add_noise(clean, seed=5), np.where(clean, 1 - t, t))
    x = add_noise(clean, seed=6)
    assert x.min() >= 0
    assert x.max() <= 1
    # Mean of t^1.25 is 1/2.25, its standard deviation below 0.32: 20,000 pixels a side, six standard errors.
    assert abs(x[clean].mean() - (1 - 1 / 2.25)) < 6 * 0.32 / np.sqrt(20_000)
    assert abs(x[~clean].mean() - 1 / 2.25) < 6 * 0.32 / np.sqrt(20_000)


def test_gray_values_of_every_kind_of_array() -> None:
    assert as_gray(np.array([[0, 65535], [0, 0]], dtype=np.uint16)).max() == 1.0
    assert as_gray(np.array([[True, False], [True, True]])).tolist() == [[1, 0], [1, 1]]
    color = np.zeros((2, 2, 3), dtype=np.uint8)
    color[..., 1] = 255
    assert as_gray(color)[0, 0] == pytest.approx(0.587)
    assert as_gray(np.dstack([color, np.full((2, 2), 9, dtype=np.uint8)]))[0, 0] == pytest.approx(0.587)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((1, 5)), "at least 2 rows"),
        (np.zeros((5, 1)), "at least 2 rows"),
        (np.zeros(5), "must have shape"),
        (np.zeros((2, 2, 5)), "must have shape"),
        (np.full((3, 3), np.nan), "finite"),
        (np.array([["a", "b"], ["c", "d"]]), "array of numbers"),
    ],
)
def test_what_is_not_an_image_is_refused(image: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        denoise(image, seed=0)


def test_bad_options_are_named() -> None:
    for options, message in (
        ({"noise": 0}, r"^noise .*got 0"),
        ({"noise": float("nan")}, "noise must be"),
        ({"coupling": -1.0}, r"^coupling "),
        ({"data_weight": float("inf")}, "data_weight must be"),
        ({"method": "magic"}, "method must be"),
        ({"method": "annealed", "burn_in": 5}, r"^burn_in "),
        ({"num_chains": 1}, "num_chains must be"),
    ):
        with pytest.raises(ValueError, match=message):
            denoise(half(), seed=0, **options)
    with pytest.raises(ValueError, match=r"^image .*0 to 7"):
        denoise(7 * half(), noise=None)


def test_a_picture_too_large_for_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_memory, "available_memory", lambda: 2e7)
    with pytest.raises(ResourceError, match=r"160x120 "):
        denoising_model(half(120, 160))


# -- denoise() ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_halves(method: str) -> None:
    fewer = {"num_sweeps": 200} if method in ("gibbs", "swendsen-wang", "tempered", "projected") else {}
    result = denoise(half(8, 10), noise=4.0, data_weight=1.0, method=method, seed=1, **fewer)
    assert result.error_rate is not None
    assert result.error_rate < 0.05
    assert result.labels.shape == result.marginals.shape == result.observed.shape == (8, 10)
    np.testing.assert_array_equal(result.labels, result.marginals > 0.5)
    facts = result.to_dict()
    assert (facts["shape"], facts["provenance"]["seed"]) == ([8, 10], 1)
    assert "error_rate" in repr(result)


def test_marginals_are_those_of_the_posterior() -> None:
    # Coupling 0.4: the samplers mix, and what is left is their noise.
    exact = denoise(half(6, 6), noise=1.25, coupling=0.4, method="exact", seed=2)
    annealed = denoise(half(6, 6), noise=1.25, coupling=0.4, seed=2)
    np.testing.assert_array_equal(exact.observed, annealed.observed)
    assert np.abs(exact.marginals - annealed.marginals).max() < 0.05
    assert np.abs(exact.marginals - annealed.marginals).mean() < 0.02


def test_a_noisy_picture_is_taken_as_it_is() -> None:
    x = add_noise(half() > 0.5, noise=4.0, seed=0)
    result = denoise(x, noise=None, data_weight=1.0, seed=0)
    np.testing.assert_array_equal(result.observed, x)
    assert result.clean is None
    assert result.error_rate is None
    assert "error_rate" not in repr(result)


def shades(rows: int = 40, cols: int = 50) -> np.ndarray:
    y, x = np.mgrid[:rows, :cols] / max(rows, cols)
    return np.clip(0.2 + 0.5 * x + 0.3 * (np.hypot(x - 0.4, y - 0.4) < 0.2), 0.0, 1.0)


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


def test_a_photograph_stays_one() -> None:
    clean = shades(30, 40)
    noisy = np.clip(clean + np.random.default_rng(1).normal(scale=0.1, size=clean.shape), 0.0, 1.0)
    result = denoise(noisy, seed=1)
    assert result.inference.method == "loopy-bp"
    assert len(result.levels) > 2
    assert result.marginals.shape == (*clean.shape, len(result.levels))
    assert root_mean_square(result.picture - clean) < 0.5 * root_mean_square(noisy - clean)
    np.testing.assert_array_equal(result.picture, denoise(noisy, seed=1).picture)
    # Hardly any noise: hardly any change, also between the levels of the scale.
    assert root_mean_square(denoise(clean, seed=1).picture - clean) < 0.02


def test_salt_and_pepper_is_removed() -> None:
    rng, clean = np.random.default_rng(2), shades(30, 40)
    noisy = np.where(rng.random(clean.shape) < 0.1, rng.integers(0, 2, clean.shape), clean)
    result = denoise(noisy, seed=1)
    assert result.stats["outliers"] > 0.05
    assert root_mean_square(result.picture - clean) < 0.25 * root_mean_square(noisy - clean)


def test_black_and_white_is_found() -> None:
    rng, clean = np.random.default_rng(3), half(24, 30)
    for noisy in (
        np.clip(clean + rng.normal(scale=0.4, size=clean.shape), 0.0, 1.0),
        np.where(rng.random(clean.shape) < 0.15, 1.0 - clean, clean),
        add_noise(clean > 0.5, noise=2.0, seed=4),
    ):
        result = denoise(noisy, seed=1)
        assert len(result.levels) == 2
        assert set(np.unique(result.picture)) <= {0.0, 1.0}
        assert (result.picture != clean).mean() < 0.02


def test_labels_asked_for() -> None:
    rng = np.random.default_rng(5)
    truth = np.repeat(np.arange(4), 8)[None, :] * np.ones((10, 1), dtype=int)
    noisy = np.clip(np.array([0.1, 0.35, 0.6, 0.9])[truth] + rng.normal(scale=0.1, size=truth.shape), 0.0, 1.0)
    result = denoise(noisy, num_labels=4, seed=1)
    np.testing.assert_allclose(result.levels, [0.1, 0.35, 0.6, 0.9], atol=0.03)
    assert (result.labels == truth).mean() > 0.98
    np.testing.assert_array_equal(result.picture, result.levels[result.labels])
    with pytest.raises(ValueError, match=r"^num_labels .*1$"):
        denoise(noisy, num_labels=1)
    with pytest.raises(ValueError, match=r"^num_labels .*noise.*3$"):
        denoise(noisy, num_labels=3, noise=1.25)
    given = denoise(noisy, num_labels=4, coupling=0.3, data_weight=20.0, seed=1)
    assert (given.stats["coupling"], given.stats["data_weight"]) == (0.3, 20.0)


def test_two_labels_at_the_ends_are_the_papers_model() -> None:
    x = np.random.default_rng(0).random((3, 4))
    one = denoising_model(x, coupling=0.7, data_weight=0.25)
    other = label_model(x, np.array([0.0, 1.0]), coupling=0.7, data_weight=0.25)
    np.testing.assert_allclose(enumerate_model(one).node_marginals, enumerate_model(other).node_marginals, atol=1e-12)


def test_the_coupling_of_draws_is_found() -> None:
    # Below the critical point, 0.44, one large draw is enough: its pseudo-likelihood is consistent.
    for coupling in (0.2, 0.4):
        model = MarkovRandomField.image(np.zeros((60, 60, 2)), 2.0 * coupling)
        draws = np.asarray(sample(model, num_chains=1, num_sweeps=300, burn_in=300, seed=2, num_draws=1).draws)
        assert best_coupling(draws.reshape(60, 60).astype(np.int64), np.eye(2)) == pytest.approx(coupling, abs=0.05)


def test_noise_and_blur() -> None:
    x = np.random.default_rng(0).normal(scale=0.2, size=(200, 200))
    assert noise_level(x) == pytest.approx(0.2, rel=0.03)
    y = np.arange(30.0).reshape(5, 6) ** 1.5
    direct = [[y[max(0, r - 1) : r + 2, max(0, c - 1) : c + 2].mean() for c in range(6)] for r in range(5)]
    np.testing.assert_allclose(blurred(y, 1), direct)


def test_flat_pictures() -> None:
    np.testing.assert_allclose(denoise(np.full((5, 6), 0.3), num_labels=3, seed=0).picture, 0.3, atol=0.02)
    assert denoise(np.full((5, 6), 0.3), seed=0).picture.shape == (5, 6)


@pytest.mark.usefixtures("little_work_by_threads")
def test_same_seed_same_picture_whatever_the_threads() -> None:
    one = denoise(half(), noise=1.25, seed=3, num_threads=1)
    two = denoise(half(), noise=1.25, seed=3, num_threads=2)
    np.testing.assert_array_equal(one.marginals, two.marginals)
    drawn = denoise(half(), num_chains=2)
    np.testing.assert_array_equal(
        denoise(half(), num_chains=2, seed=drawn.provenance["seed"]).marginals, drawn.marginals
    )


def test_progress_rises_to_one() -> None:
    for method in ("annealed", "gibbs"):
        told: list[Progress] = []
        denoise(half(), method=method, num_sweeps=50, seed=0, progress=told.append)
        done = [report.done for report in told]
        assert done == sorted(done)
        assert done[-1] == told[-1].total
        assert {(report.unit, report.what) for report in told} == {("sweeps", method)}


# -- annealing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resample", [True, False])
def test_annealing_agrees_with_enumeration(resample: bool) -> None:
    models = [ising_grid(3, 4, coupling_max=1.5, attractive=True, seed=s) for s in range(3)]
    models.append(potts_grid(2, 4, coupling_max=2.0, attractive=True, seed=0))
    for model in models:
        result = anneal(model, num_populations=4, num_chains=50, num_steps=40, seed=1, resample=resample)
        exact = enumerate_model(model)
        assert np.abs(result.node_marginals - exact.node_marginals).max() < 0.04
        if resample:  # otherwise the weights of single chains are all there is, and log Z is not told
            assert result.log_z == pytest.approx(exact.log_z, abs=4 * result.log_z_std_error)
            assert 0.0 < result.log_z_std_error < 0.1
        else:
            assert result.log_z is result.log_z_std_error is None
        assert result.status == Status.OK
        assert result.states.shape == (200, model.num_variables)


def test_a_sabotaged_annealing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Resampling by the inverse weights prefers the wrong chains; few sweeps cannot make up for it.
    model = ising_grid(3, 4, coupling_max=2.5, attractive=True, seed=1)
    exact = enumerate_model(model).node_marginals

    def error() -> float:
        result = anneal(model, num_populations=4, num_chains=200, num_steps=10, sweeps_per_step=1, num_sweeps=1, seed=1)
        return float(np.abs(result.node_marginals - exact).max())

    good = error()
    monkeypatch.setattr(annealing_module, "systematic", lambda log_weights, rng: systematic(-log_weights, rng))
    assert good < 0.06
    assert error() > 2 * good


def test_resampling_keeps_shares() -> None:
    weights = np.array([[0.5, 0.25, 0.25, 0.0], [0.1, 0.2, 0.3, 0.4]])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights) + np.array([[3.0], [1000.0]])
    counts = np.zeros((2, 4))
    rng = np.random.default_rng(0)
    for _ in range(4000):
        chosen, log_means = systematic(log_weights, rng)
        counts[0] += np.bincount(chosen[0], minlength=4)
        counts[1] += np.bincount(chosen[1] - 4, minlength=4)
        assert sorted(chosen[0].tolist()) == [0, 0, 1, 2]
        np.testing.assert_allclose(log_means, np.log(0.25) + np.array([3.0, 1000.0]))
    # A count is floor or ceil of the share: standard deviation of a mean at most 0.5 / sqrt(4000), six of them.
    np.testing.assert_allclose(counts / 4000, 4 * weights, atol=6 * 0.5 / np.sqrt(4000))


def test_configurations_that_are_known_are_those_around_the_modes() -> None:
    for model in (
        ising_grid(3, 4, coupling_max=1.5, attractive=True, seed=0),
        potts_grid(2, 3, coupling_max=1.0, seed=0),
    ):
        modes = np.random.default_rng(0).integers(0, model.num_states, (3, model.num_variables))
        expected = np.zeros(len(model.log_unary))
        for mode in modes:
            for i, count in enumerate(model.num_states.tolist()):
                for s in range(count):
                    x = mode.copy()
                    x[i] = s
                    k = model.unary_offsets[i] + s
                    expected[k] = max(expected[k], np.exp(min(0.0, model.log_weight(x) - 4.0)))
        np.testing.assert_allclose(known_probabilities(model, modes, 4.0), expected, rtol=1e-12)


def test_annealing_of_models_at_the_edge() -> None:
    free = MarkovRandomField.from_tables([[0.0, 1.0], [0.3, -0.3]], [], [])
    result = anneal(free, seed=0, num_sweeps=5)
    np.testing.assert_allclose(result.node_marginals, enumerate_model(free).node_marginals, atol=1e-12)
    strong = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=1e3, field=[0.1, 0.0, 0.0])
    result = anneal(strong, num_chains=100, num_steps=20, sweeps_per_step=1, seed=0)
    assert np.abs(result.node_marginals - enumerate_model(strong).node_marginals).max() < 0.05
    frustrated = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=-1.0)
    assert np.abs(anneal(frustrated, num_chains=100, seed=0).node_marginals - 0.5).max() < 0.05


def test_populations_that_disagree_are_reported() -> None:
    # Two regions that the fields pull apart: too few chains and steps to agree.
    x = add_noise(binarize(half(40, 60)), seed=0)
    result = anneal(
        denoising_model(x, coupling=1.5), num_populations=2, num_chains=2, num_steps=2, sweeps_per_step=1, seed=0
    )
    assert result.status == Status.NOT_MIXED
    assert result.stats["mean_std_error"] > 0.02


def test_time_limit_stops_the_averaging() -> None:
    result = anneal(denoising_model(half(20, 20)), num_chains=2, num_steps=5, num_sweeps=10**7, seed=0, time_limit=0.2)
    assert result.stats["stopped_by"] == "time_limit"
    assert np.isfinite(result.node_marginals).all()


def test_time_limit_lessens_the_sweeps_of_a_large_model() -> None:
    leaves = np.arange(1, 40_001)
    star = MarkovRandomField.ising(np.column_stack([np.zeros_like(leaves), leaves]), 0.5)
    result = anneal(star, seed=0, time_limit=0.2)
    assert result.stats["stopped_by"] == "time_limit"
    assert result.stats["num_sweeps"] < 8 * 11  # as many as ten steps and the averages would have


def test_annealing_steps_do_not_follow_what_they_weigh() -> None:
    """Two variables that are seldom equal: steps are not shorter where they happen to be, or log Z falls short."""
    model = MarkovRandomField.from_tables([[0.0, 6.0], [3.0, 0.0]], [(0, 1)], [0.5 * np.eye(2)])
    exact = enumerate_model(model).log_z
    for seed in range(5):
        result = anneal(model, num_chains=64, seed=seed)
        assert abs(result.log_z - exact) < 4.0 * result.log_z_std_error < 0.05


def test_annealing_knows_of_states_that_no_chain_met() -> None:
    """A variable against its neighbors: clusters seldom turn it to their side, where it would stay."""
    pairs = [(0, k) for k in range(1, 7)]
    unary = np.zeros((7, 2))
    unary[0, 1], unary[1:, 0] = 12.0, 5.0
    model = MarkovRandomField.from_tables(unary, pairs, [1.4 * np.eye(2)] * 6)
    exact = enumerate_model(model).node_marginals
    for seed in range(5):
        result = anneal(model, num_chains=4, num_steps=10, num_sweeps=20, seed=seed)
        assert (abs(result.node_marginals - exact) < 4.0 * result.std_error + 1e-3).all()


def test_time_limit_shortens_the_annealing() -> None:
    model = denoising_model(half(20, 20))
    options: dict[str, Any] = {"num_chains": 2, "num_steps": 10**5, "sweeps_per_step": 1, "seed": 0}
    result = anneal(model, time_limit=0.3, **options)
    assert result.stats["stopped_by"] == "time_limit"
    assert result.stats["seconds"] - result.stats["compile_seconds"] < 5.0  # minutes with all the steps
    assert np.isfinite(result.node_marginals).all()


def test_a_moment_in_which_the_machine_stood_still_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, move, calls = denoising_model(half(8, 8)), annealing_module.Annealing.move, 0

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        time.sleep(0.2 if calls == 7 else 0.0)  # as if 8 sweeps took it, in each of 150 steps
        return move(self, *args, **options)

    smooth = anneal(model, num_chains=2, seed=0, time_limit=15)
    monkeypatch.setattr(annealing_module.Annealing, "move", slow)
    stalled = anneal(model, num_chains=2, seed=0, time_limit=15)
    np.testing.assert_array_equal(stalled.node_marginals, smooth.node_marginals)
    assert stalled.stats["num_sweeps"] == smooth.stats["num_sweeps"]
