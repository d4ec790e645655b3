from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from fastmix.experiments import EXPERIMENTS, Settings
from fastmix.experiments.plan import Case, MethodCall

CASE = Case("ising-grid", 3, {"rows": 4, "cols": 4, "kind": "mixed", "strength": 2.0}, seed=0)


def keys(name: str, settings: Settings) -> list[str]:
    return [key for case in EXPERIMENTS[name].cases(settings) for key in case.row_keys()]


def test_seeds_differ_by_purpose_and_are_stable() -> None:
    cases = [replace(CASE, seed=seed, trial=trial) for seed in range(5) for trial in range(20)]
    seeds = [case.seed_of(name) for case in cases for name in ("truth", "gibbs")]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert CASE.seed_of("gibbs") == replace(CASE, payload=b"pixels").seed_of("gibbs")
    assert CASE.seed_of("gibbs") != replace(CASE, parameters={**CASE.parameters, "rows": 5}).seed_of("gibbs")


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


def test_kinds_and_strengths_are_those_that_were_asked_for() -> None:
    settings = Settings(num_trials=2, kinds=["attractive"], strengths=[3, 1.0, 3])
    cases = EXPERIMENTS["strength-grid"].cases(settings)
    chosen = [(case.parameters["kind"], case.parameters["strength"]) for case in cases]
    assert chosen == [("attractive", 1.0), ("attractive", 3.0)] * 2
    assert set(keys("strength-grid", settings)) < set(keys("strength-grid", Settings(num_trials=2)))


def test_settings_refuse_what_is_not_valid() -> None:
    for options, message in (
        ({"num_trials": 0}, "num_trials must be"),
        ({"num_trials": True}, "num_trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"kinds": ["odd"]}, "kinds must be"),
        ({"kinds": []}, "kinds must name"),
        ({"strengths": [-1.0]}, "strengths must be"),
        ({"strengths": []}, "strengths must have"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**options)
    experiment = EXPERIMENTS["norms"]
    with pytest.raises(ValueError, match=r"^methods .*got 'magic'"):
        experiment.calls(Settings(methods=("magic",)))
    with pytest.raises(ValueError, match="at least one"):
        experiment.calls(Settings(methods=()))
    chosen = experiment.calls(Settings(methods=("reversed-kl", "euclidean")))
    assert [call.name for call in chosen] == ["euclidean", "reversed-kl"]
    assert experiment.restrict(Settings(methods=("euclidean", "gibbs"))).methods == ("euclidean",)
    assert experiment.restrict(Settings(methods=("gibbs",))).methods is None


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "denoise"])
def test_plan_has_every_row_once(name: str) -> None:
    found = keys(name, Settings(num_trials=2))
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
    settings = Settings(num_trials=2)
    grid = set(keys("strength-grid", settings))
    assert set(keys("samples-grid", settings)) <= grid
    assert set(keys("samples-random", settings)) <= set(keys("strength-random", settings))
    norms = keys("norms", settings)
    assert len(grid & set(norms)) == len(norms) / 2
