from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastmix import infer
from fastmix.denoising import add_noise, denoising_model
from fastmix.experiments import Settings
from fastmix.experiments.denoise import calls as denoise_calls
from fastmix.experiments.methods import projected, run_method, sampled, trace_points
from fastmix.experiments.photographs import Photograph, decode_map, encode_map, load_photographs
from fastmix.experiments.plan import MethodCall, Task
from fastmix.experiments.synthetic import compared_methods
from fastmix.experiments.trials import run_task
from fastmix.instances import ising_grid

MODEL = ising_grid(4, 4, coupling_max=1.0, attractive=True, seed=0)
TRUTH = infer(MODEL, method="exact").node_marginals


def shortened(call: MethodCall) -> MethodCall:
    options = dict(call.options)
    if "num_sweeps" in options:
        options["num_sweeps"] = 3000
    return MethodCall(call.name, options)


CALLS = [shortened(call) for call in compared_methods(Settings(), pieces="rows-and-columns", true_kl=True)]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_every_method_answers_and_repeats_itself(call: MethodCall) -> None:
    first, second = (run_method(MODEL, call, seed=7) for _ in range(2))
    np.testing.assert_array_equal(first.node_marginals, second.node_marginals)
    assert first.facts == second.facts
    # Weak couplings: within the ball of the projection or close to it, and mean field is the worst.
    assert np.abs(first.node_marginals - TRUTH).mean() < (0.2 if call.name == "mean-field" else 0.06)
    if "num_sweeps" in call.options:
        assert [sweeps for sweeps, _ in first.trace] == trace_points(3000)
        np.testing.assert_allclose(first.trace[-1][1], first.node_marginals, atol=1e-12)
    assert all(taken >= 0 for taken in first.seconds.values())


def test_samplers_run_one_chain_that_counts_states() -> None:
    answer = run_method(MODEL, MethodCall("gibbs", sampled(10)), seed=1)
    np.testing.assert_allclose(10 * answer.node_marginals, np.round(10 * answer.node_marginals), atol=1e-6)


def test_norms_and_solvers() -> None:
    strong = ising_grid(4, 4, coupling_max=3.0, seed=0)
    for options in ({"norm": "spectral"}, {"norm": "inf"}, {"solver": "paper-once"}, {"solver": "paper-exact"}):
        answer = run_method(strong, MethodCall("x", projected("euclidean", 10, **options)), seed=1)
        assert answer.facts["norm_after"] <= 2.5 + 1e-9
        assert ("inner_iterations" in answer.facts) == ("solver" in options)


def test_repeats_keep_the_best_seconds() -> None:
    answer = run_method(MODEL, MethodCall("gibbs", sampled(100, repeats=3)), seed=1)
    np.testing.assert_array_equal(
        answer.node_marginals, run_method(MODEL, MethodCall("gibbs", sampled(100)), seed=1).node_marginals
    )


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="neither a divergence nor"):
        run_method(MODEL, MethodCall("magic"), seed=0)
    with pytest.raises(ValueError, match="divergence must be"):
        run_method(MODEL, MethodCall("x", {**projected("euclidean", 5), "divergence": "magic"}), seed=0)


# -- photographs ----------------------------------------------------------------------------------------------------


def test_photographs_of_the_package() -> None:
    pytest.importorskip("skimage")
    found = load_photographs(None, (60, 40), 3)
    assert [picture.name for picture in found] == ["astronaut", "brick", "camera"]
    assert all(picture.clean.shape in ((40, 60), (60, 40)) for picture in found)
    assert all(0.05 < picture.clean.mean() < 0.95 for picture in found)


def test_photographs_of_a_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, shape in (("b wide", (40, 90)), ("a tall", (90, 40))):
        image.fromarray(rng.integers(0, 255, size=shape, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    found = load_photographs(str(tmp_path), (24, 16), 5)
    assert [(p.name, p.clean.shape) for p in found] == [("a tall", (24, 16)), ("b wide", (16, 24))]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="without any"):
        load_photographs(str(tmp_path / "empty"), (24, 16), 5)


def test_a_photograph_is_run_like_any_case() -> None:
    clean = np.zeros((10, 14), dtype=bool)
    clean[:, 7:] = True
    effort = {"num_populations": 2, "num_chains": 20, "num_steps": 20, "sweeps_per_step": 4}
    case = Photograph("half", clean).case(0, 0, effort)
    calls = tuple(shortened(call) for call in denoise_calls(Settings(quick=True)))
    outcomes = run_task(Task(case, calls))
    assert [row["failure"] for row, _ in outcomes] == [None] * len(calls)
    row = outcomes[0][0]
    np.testing.assert_array_equal(decode_map(row["facts"]["maps"]["clean"], 10, 14), clean)
    assert row["facts"]["truth_error"] < 0.1
    # The truth is the posterior of the noisy picture: exact on so few pixels.
    observed = decode_map(row["facts"]["maps"]["observed"], 10, 14)
    exact = infer(denoising_model(observed), method="exact").node_marginals[1::2]
    truth = decode_map(row["facts"]["maps"]["truth"], 10, 14).reshape(-1)
    assert np.abs(exact - truth).mean() < 0.1  # 16 shades of grey on both sides
    cluster = next(row for row, _ in outcomes if row["method"] == "swendsen-wang")
    assert cluster["error"] < 0.1


def test_maps_survive_as_text() -> None:
    values = add_noise(np.ones((7, 9), dtype=bool), seed=0)
    assert np.abs(decode_map(encode_map(values), 7, 9) - values).max() <= 0.5 / 15 + 1e-12
