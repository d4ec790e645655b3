"""The attractive form of a model: found once."""

from __future__ import annotations

from typing import Any

import pytest

from fastmix import MarkovRandomField, sample
from fastmix.instances import ising_grid
from fastmix.model import attractive


def test_the_form_for_clusters_is_found_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[MarkovRandomField] = []
    find = attractive._find_form

    def watched(model: MarkovRandomField, what: str, unit: float) -> Any:
        found.append(model)
        return find(model, what, unit)

    monkeypatch.setattr(attractive, "_find_form", watched)
    for seed in range(3):
        model = ising_grid(4, 5, coupling_max=0.5, attractive=True, seed=seed)
        found.clear()
        sample(model, method="swendsen-wang", num_sweeps=50, seed=seed, progress=None)
        assert len(found) == 1
