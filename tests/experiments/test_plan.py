from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Case, MethodCall, Task, derive_seed, row_key
from fastmix.experiments.problems import build, mean_error
from fastmix.experiments.registry import find_experiment

CASE = Case("ising-grid", 3, {"rows": 4, "cols": 4, "kind": "mixed", "strength": 2.0}, seed=0)


# -- seeds and keys -------------------------------------------------------------------------------------------------


def test_seeds_differ_by_purpose_and_are_stable() -> None:
    seeds = [derive_seed(seed, word, trial) for seed in range(5) for word in ("a", "b") for trial in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(7, "gibbs", 1) == derive_seed(7, "gibbs", 1)
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")  # words do not run into each other


def test_key_depends_on_all_that_changes_a_row() -> None:
    call = MethodCall("gibbs", {"num_sweeps": 10})
    key = row_key(CASE, call)
    assert row_key(replace(CASE, parameters=dict(reversed(CASE.parameters.items()))), call) == key
    changed = [
        (replace(CASE, problem="ising-random"), call),
        (replace(CASE, trial=4), call),
        (replace(CASE, seed=1), call),
        (replace(CASE, parameters={**CASE.parameters, "strength": 2.5}), call),
        (CASE, MethodCall("gibbs", {"num_sweeps": 11})),
        (CASE, MethodCall("other", {"num_sweeps": 10})),
    ]
    assert len({row_key(*one) for one in changed} | {key}) == len(changed) + 1


def test_a_case_keeps_its_fields_over_strengths() -> None:
    weak, strong = (build(replace(CASE, parameters={**CASE.parameters, "strength": s})).model for s in (0.5, 2.0))
    np.testing.assert_array_equal(weak.log_unary, strong.log_unary)
    np.testing.assert_allclose(4.0 * weak.log_pairwise, strong.log_pairwise)
    other = build(replace(CASE, trial=4)).model
    assert not np.array_equal(other.log_unary, strong.log_unary)


def test_truth_of_an_instance_is_exact() -> None:
    from fastmix.exact.enumeration import enumerate_model

    for problem, shape in (
        ("ising-grid", {"rows": 3, "cols": 3}),
        ("ising-random", {"num_variables": 7, "density": 0.5}),
        ("potts-grid", {"rows": 2, "cols": 3, "num_states": 3}),
    ):
        instance = build(Case(problem, 0, {**shape, "kind": "attractive", "strength": 3.0}, seed=1))
        np.testing.assert_allclose(instance.truth, enumerate_model(instance.model).node_marginals, atol=1e-9)


def test_error_is_the_mean_over_variables() -> None:
    truth, answer = np.array([0.9, 0.1, 0.2, 0.3, 0.5]), np.array([0.7, 0.3, 0.2, 0.5, 0.3])
    assert mean_error(truth, answer, 2) == pytest.approx((0.2 + 0.2) / 2)


# -- settings -------------------------------------------------------------------------------------------------------


def test_settings_refuse_what_is_not_valid() -> None:
    for options, message in (
        ({"trials": 0}, "trials must be"),
        ({"trials": True}, "trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**options)
    calls = [MethodCall("gibbs"), MethodCall("loopy-bp")]
    with pytest.raises(ValueError, match="methods must be among gibbs, loopy-bp, got 'magic'"):
        Settings(methods=("magic",)).chosen(calls)
    with pytest.raises(ValueError, match="at least one"):
        Settings(methods=()).chosen(calls)
    assert [call.name for call in Settings(methods=("loopy-bp", "gibbs")).chosen(calls)] == ["gibbs", "loopy-bp"]
    assert Settings(methods=("gibbs", "other")).restricted(calls).methods == ("gibbs",)
    assert Settings(methods=("other",)).restricted(calls).methods is None


def test_unknown_experiment() -> None:
    with pytest.raises(ValueError, match=r"experiment must be one of strength-grid.*all, got 'magic'"):
        find_experiment("magic")


# -- the paper's plan -----------------------------------------------------------------------------------------------

SYNTHETIC = [name for name in EXPERIMENTS if name != "denoise"]


@pytest.mark.parametrize("name", SYNTHETIC)
def test_plan_has_every_row_once(name: str) -> None:
    tasks = EXPERIMENTS[name].tasks(Settings(trials=2))
    keys = [key for task in tasks for key in task.row_keys()]
    assert keys
    assert len(set(keys)) == len(keys)


def test_plan_is_that_of_the_paper() -> None:
    full = Settings()
    tasks = EXPERIMENTS["strength-grid"].tasks(full)
    assert len(tasks) == 2 * 9 * 50
    points = Counter((t.case.parameters["kind"], t.case.parameters["strength"]) for t in tasks)
    assert set(points.values()) == {50}
    assert {strength for _, strength in points} == {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}
    assert {t.case.parameters["density"] for t in EXPERIMENTS["strength-random"].tasks(full)} == {0.3, 0.5, 0.7}
    assert len(EXPERIMENTS["samples-random"].tasks(full)) == 3 * 2 * 9 * 50
    assert "kl" in {call.name for call in EXPERIMENTS["potts"].calls(full)}
    assert {t.case.parameters["strength"] for t in EXPERIMENTS["timing"].tasks(full)} == {1.5, 3.0}
    calls = {call.name: call.options for call in EXPERIMENTS["strength-grid"].calls(full)}
    assert calls["gibbs"]["num_sweeps"] == 30_000
    assert calls["gibbs-long"]["num_sweeps"] == 1_000_000
    for name in ("euclidean", "piecewise", "reversed-kl"):
        assert (calls[name]["norm"], calls[name]["norm_bound"], calls[name]["num_sweeps"]) == ("inf", 2.5, 30_000)
        assert calls[name].get("step", "paper") == "paper"


def test_figures_of_samples_and_norms_share_the_runs_of_the_strengths() -> None:
    settings = Settings(trials=2)

    def keys(name: str) -> set[str]:
        return {key for task in EXPERIMENTS[name].tasks(settings) for key in task.row_keys()}

    assert keys("samples-grid") <= keys("strength-grid")
    assert keys("samples-random") <= keys("strength-random")
    assert len(keys("norms") & keys("strength-grid")) == len(keys("norms")) / 2


def test_payload_is_not_part_of_the_identity() -> None:
    call = MethodCall("gibbs")
    assert row_key(replace(CASE, payload=b"pixels"), call) == row_key(CASE, call)
    assert Task(CASE, (call,)).row_keys() == [row_key(CASE, call)]
