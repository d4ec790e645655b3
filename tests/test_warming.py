"""Everything is compiled by running it on tiny models."""

from __future__ import annotations

import json

import pytest

import fastmix
from fastmix import cli, warming


@pytest.fixture
def two_parts(monkeypatch):
    def parts():
        yield from ("exact", "gibbs")

    monkeypatch.setattr(warming, "_parts", parts)


def test_parts_are_named_and_timed(two_parts):
    told: list[fastmix.Progress] = []
    result = fastmix.warm_up(progress=told.append)
    named = [report.what for report in told]
    assert named == list(result.parts) == ["exact", "gibbs"]
    assert set(result.parts.values()) == {0.0}
    assert result.stats["compile_seconds"] == 0.0


def test_command(two_parts, capsys):
    assert cli._run(["warm-up", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["parts"] == {"exact": 0.0, "gibbs": 0.0}
    assert data["provenance"]["version"] == fastmix.__version__
    assert cli._run(["warm-up"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "compiled or loaded in 0.0 s"


@pytest.mark.slow
def test_nothing_is_left_to_compile():
    fastmix.warm_up()
    model = fastmix.instances.ising_grid(5, 5, coupling_max=1.0, attractive=True, seed=1)
    potts = fastmix.instances.potts_grid(4, 4, num_states=4, coupling_max=1.0, attractive=True, seed=1)
    for method in fastmix.methods.base.METHODS:
        for case in (model, potts):
            if fastmix.methods.base.find_method(method)().fits(case) is None:
                assert fastmix.infer(case, method=method).stats["compile_seconds"] == 0.0, method
