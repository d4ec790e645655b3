from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fastmix import infer, project
from fastmix._context import stream_seed
from fastmix.denoising import add_noise, denoising_model
from fastmix.exact.enumeration import enumerate_model
from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Case, MethodCall
from fastmix.experiments.specs import projected, sampled
from fastmix.experiments.trials import (
    build,
    decode_map,
    encode_map,
    load_photographs,
    mean_error,
    photograph_case,
    run_case,
    run_method,
    trace_points,
)  # fmt: skip
from fastmix.instances import ising_grid
from fastmix.projection import PAPER_STEP, PiecewiseKL
from fastmix.sampling.sample import sample

MODEL = ising_grid(4, 4, coupling_max=1.0, attractive=True, seed=0)
TRUTH = infer(MODEL, method="exact").node_marginals


def shortened(name: str) -> list[MethodCall]:
    calls = EXPERIMENTS[name].calls(Settings())
    short = {"num_sweeps": 3000}
    return [MethodCall(call.name, {**call.options, **(short if call.options else {})}) for call in calls]


# -- instances ------------------------------------------------------------------------------------------------------


def test_truth_of_an_instance_is_exact() -> None:
    for problem, shape in (
        ("ising-grid", {"rows": 3, "cols": 3}),
        ("ising-random", {"num_variables": 7, "density": 0.5}),
        ("potts-grid", {"rows": 2, "cols": 3, "num_states": 3}),
    ):
        model, truth, _ = build(Case(problem, 0, {**shape, "kind": "attractive", "strength": 3.0}, seed=1))
        np.testing.assert_allclose(truth, enumerate_model(model).node_marginals, atol=1e-9)


def test_a_case_keeps_its_fields_over_strengths() -> None:
    shape = {"rows": 4, "cols": 4, "kind": "mixed"}
    weak, strong, other = (
        build(Case("ising-grid", trial, {**shape, "strength": strength}, seed=0))[0]
        for trial, strength in ((3, 0.5), (3, 2.0), (4, 2.0))
    )
    np.testing.assert_array_equal(weak.log_unary, strong.log_unary)
    np.testing.assert_allclose(4.0 * weak.log_pairwise, strong.log_pairwise)
    assert not np.array_equal(other.log_unary, strong.log_unary)


def test_error_is_the_mean_over_variables() -> None:
    truth, answer = np.array([0.9, 0.1, 0.2, 0.3, 0.5]), np.array([0.7, 0.3, 0.2, 0.5, 0.3])
    assert mean_error(truth, answer, 2) == pytest.approx((0.2 + 0.2) / 2)


# -- methods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", shortened("potts"), ids=lambda call: call.name)
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


def test_methods_are_the_public_functions() -> None:
    strong = ising_grid(4, 4, coupling_max=3.0, seed=0)
    answer = run_method(strong, MethodCall("x", projected("piecewise-kl", pieces="rows-and-columns")), seed=5)
    divergence = PiecewiseKL(pieces="rows-and-columns", smoothing=0.0)
    closest = project(strong, norm_bound=2.5, divergence=divergence, step=PAPER_STEP, seed=5).model
    options = {"num_chains": 1, "burn_in": 0, "num_sweeps": 30_000, "estimator": "counts"}
    np.testing.assert_array_equal(
        answer.node_marginals, sample(closest, seed=stream_seed(5, "sample"), **options).node_marginals
    )
    for choice in ({"norm": "spectral"}, {"norm": "inf"}, {"solver": "paper-once"}):
        answer = run_method(strong, MethodCall("x", projected("euclidean", **choice)), seed=1)
        assert answer.facts["norm_after"] <= 2.5 + 1e-9
        assert ("inner_iterations" in answer.facts) == ("solver" in choice)


def test_samplers_run_one_chain_that_counts_states() -> None:
    answer = run_method(MODEL, MethodCall("gibbs", sampled(10)), seed=1)
    np.testing.assert_allclose(10 * answer.node_marginals, np.round(10 * answer.node_marginals), atol=1e-6)
    again = run_method(MODEL, MethodCall("gibbs", sampled(10, repeats=3)), seed=1)  # for the seconds alone
    np.testing.assert_array_equal(answer.node_marginals, again.node_marginals)


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^a method without sweeps .*got 'magic'"):
        run_method(MODEL, MethodCall("magic"), seed=0)
    with pytest.raises(ValueError, match=r"^divergence .*reversed-kl.*'magic'"):
        run_method(MODEL, MethodCall("x", {**projected("euclidean"), "divergence": "magic"}), seed=0)


# -- photographs ----------------------------------------------------------------------------------------------------


def test_photographs_of_the_package() -> None:
    pytest.importorskip("skimage")
    found = load_photographs(None, (60, 40), 3)
    assert [name for name, _ in found] == ["astronaut", "brick", "camera"]
    assert all(clean.shape in ((40, 60), (60, 40)) for _, clean in found)
    assert all(0.05 < clean.mean() < 0.95 for _, clean in found)


def test_photographs_of_a_folder(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, shape in (("b wide", (40, 90)), ("a tall", (90, 40))):
        image.fromarray(rng.integers(0, 255, size=shape, dtype=np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "notes.txt").write_text("not an image")
    found = load_photographs(str(tmp_path), (24, 16), 5)
    assert [(name, clean.shape) for name, clean in found] == [("a tall", (24, 16)), ("b wide", (16, 24))]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="without any"):
        load_photographs(str(tmp_path / "empty"), (24, 16), 5)


def test_a_photograph_is_run_like_any_case() -> None:
    clean = np.zeros((10, 14), dtype=bool)
    clean[:, 7:] = True
    effort = {"num_populations": 2, "num_chains": 20, "num_steps": 20, "sweeps_per_step": 4}
    calls = tuple(shortened("denoise"))
    rows = run_case(replace(photograph_case("half", clean, 0, 0, effort), calls=calls))
    assert [row["failure"] for row in rows] == [None] * len(calls)
    facts = rows[0]["facts"]
    np.testing.assert_array_equal(decode_map(facts["maps"]["clean"], 10, 14), clean)
    assert facts["truth_error"] < 0.1
    # The truth is the posterior of the noisy picture: exact on so few pixels.
    observed = decode_map(facts["maps"]["observed"], 10, 14)
    exact = infer(denoising_model(observed), method="exact").node_marginals[1::2]
    truth = decode_map(facts["maps"]["truth"], 10, 14).reshape(-1)
    assert np.abs(exact - truth).mean() < 0.1  # 16 shades of gray on both sides
    assert next(row["error"] for row in rows if row["method"] == "swendsen-wang") < 0.1


def test_maps_survive_as_text() -> None:
    values = add_noise(np.ones((7, 9), dtype=bool), seed=0)
    assert np.abs(decode_map(encode_map(values), 7, 9) - values).max() <= 0.5 / 15 + 1e-12
