"""Everything is compiled by running it on tiny models."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
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
    left = {name: seconds for name, call in other_verbs() if (seconds := call().stats["compile_seconds"])}
    assert not left


def other_verbs():
    """Calls of all verbs but infer, by name, on models that are not those of the warm-up."""
    models = {
        "ising": fastmix.instances.ising_grid(4, 5, coupling_max=0.8, seed=3),
        "attractive": fastmix.instances.ising_grid(4, 4, coupling_max=0.8, attractive=True, seed=4),
        "potts": fastmix.instances.potts_grid(3, 4, num_states=4, coupling_max=0.8, seed=5),
    }
    for name, model in models.items():
        yield f"map {name}", partial(fastmix.most_probable, model, seed=1)
        yield f"search {name}", partial(fastmix.most_probable, model, method="search", seed=1, time_limit=1.0)
        yield f"bracket {name}", partial(fastmix.bracket, model, seed=1)
        yield f"rough bracket {name}", partial(fastmix.bracket, model, memory_limit=2000, seed=1, time_limit=1.0)
        yield f"certify {name}", partial(fastmix.certify, model, accuracy=0.01)
        yield f"project {name}", partial(fastmix.project, model, norm_bound=0.5)
        rows = np.asarray(fastmix.draw_exact(model, num_draws=200, seed=1))
        given = {"num_states": model.num_states, "seed": 1, "max_iter": 2}
        for options in ({"objective": "pseudo-likelihood"}, {"moments": "exact"}, {"moments": "sampled"}):
            yield f"learn {name} {options}", partial(fastmix.learn, rows, **options, **given)
        yield f"score {name}", partial(fastmix.score, model, rows, seed=1)
        yield f"annealing {name}", partial(fastmix.score, model, rows, method="annealing", seed=1, tol=1.0)
