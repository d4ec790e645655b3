from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Case, MethodCall, derive_seed

CASE = Case("ising-grid", 3, {"rows": 4, "cols": 4, "kind": "mixed", "strength": 2.0}, seed=0)


def keys(name: str, settings: Settings) -> list[str]:
    return [key for case in EXPERIMENTS[name].cases(settings) for key in case.row_keys()]


def test_seeds_differ_by_purpose_and_are_stable() -> None:
    seeds = [derive_seed(seed, word, trial) for seed in range(5) for word in ("a", "b") for trial in range(20)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(7, "gibbs", 1) == derive_seed(7, "gibbs", 1)
    assert derive_seed(0, "ab", "c") != derive_seed(0, "a", "bc")  # words do not run into each other


def test_key_depends_on_all_that_changes_a_row() -> None:
    call = MethodCall("gibbs", {"num_sweeps": 10})
    key = CASE.row_key(call)
    assert replace(CASE, calls=(call,)).row_keys() == [key]
    assert replace(CASE, parameters=dict(reversed(CASE.parameters.items()))).row_key(call) == key
    assert replace(CASE, payload=b"pixels").row_key(call) == key
    changed = [
        (replace(CASE, problem="ising-random"), call),
        (replace(CASE, trial=4), call),
        (replace(CASE, seed=1), call),
        (replace(CASE, parameters={**CASE.parameters, "strength": 2.5}), call),
        (CASE, MethodCall("gibbs", {"num_sweeps": 11})),
        (CASE, MethodCall("other", {"num_sweeps": 10})),
    ]
    assert len({case.row_key(one) for case, one in changed} | {key}) == len(changed) + 1


def test_settings_refuse_what_is_not_valid() -> None:
    for options, message in (
        ({"trials": 0}, "trials must be"),
        ({"trials": True}, "trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**options)
    experiment = EXPERIMENTS["norms"]
    with pytest.raises(ValueError, match=r"methods must be among euclidean, piecewise, .*, got 'magic'"):
        experiment.calls(Settings(methods=("magic",)))
    with pytest.raises(ValueError, match="at least one"):
        experiment.calls(Settings(methods=()))
    chosen = experiment.calls(Settings(methods=("reversed-kl", "euclidean")))
    assert [call.name for call in chosen] == ["euclidean", "reversed-kl"]
    assert experiment.restrict(Settings(methods=("euclidean", "gibbs"))).methods == ("euclidean",)
    assert experiment.restrict(Settings(methods=("gibbs",))).methods is None


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "denoise"])
def test_plan_has_every_row_once(name: str) -> None:
    found = keys(name, Settings(trials=2))
    assert found
    assert len(set(found)) == len(found)


def test_plan_is_that_of_the_paper() -> None:
    full = Settings()
    cases = EXPERIMENTS["strength-grid"].cases(full)
    assert len(cases) == 2 * 9 * 50
    points = Counter((case.parameters["kind"], case.parameters["strength"]) for case in cases)
    assert set(points.values()) == {50}
    assert {strength for _, strength in points} == {0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4}
    assert {case.parameters["density"] for case in EXPERIMENTS["strength-random"].cases(full)} == {0.3, 0.5, 0.7}
    assert len(EXPERIMENTS["samples-random"].cases(full)) == 3 * 2 * 9 * 50
    assert "kl" in {call.name for call in EXPERIMENTS["potts"].calls(full)}
    assert {case.parameters["strength"] for case in EXPERIMENTS["timing"].cases(full)} == {1.5, 3.0}
    calls = {call.name: call.options for call in EXPERIMENTS["strength-grid"].calls(full)}
    assert calls["gibbs"]["num_sweeps"] == 30_000
    assert calls["gibbs-long"]["num_sweeps"] == 1_000_000
    for name in ("euclidean", "piecewise", "reversed-kl"):
        assert (calls[name]["norm"], calls[name]["norm_bound"], calls[name]["num_sweeps"]) == ("inf", 2.5, 30_000)
        assert name == "euclidean" or calls[name]["step"] == "paper"
    quick = {call.name: call.options for call in EXPERIMENTS["strength-grid"].calls(Settings(quick=True))}
    assert quick["gibbs-long"]["num_sweeps"] == 100_000


def test_figures_of_samples_and_norms_share_the_runs_of_the_strengths() -> None:
    settings = Settings(trials=2)
    grid = set(keys("strength-grid", settings))
    assert set(keys("samples-grid", settings)) <= grid
    assert set(keys("samples-random", settings)) <= set(keys("strength-random", settings))
    norms = keys("norms", settings)
    assert len(grid & set(norms)) == len(norms) / 2
