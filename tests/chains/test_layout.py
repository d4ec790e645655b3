"""Tables for kernels: how often they are made."""

from __future__ import annotations

from typing import Any

import pytest

from fastmix import MarkovRandomField, temper
from fastmix.chains.layout import Layout
from fastmix.graphs import complete_edges


def test_tables_of_a_path_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MarkovRandomField.potts(complete_edges(12), coupling=0.3, num_states=4)
    looks: list[int] = []
    potts_edges = Layout._potts_edges

    def watched(layout: Layout, sets: Any) -> Any:
        looks.append(1)
        return potts_edges(layout, sets)

    monkeypatch.setattr(Layout, "_potts_edges", watched)
    result = temper(model, num_sweeps=64, burn_in=64, seed=1, progress=None)
    assert len(result.positions) > 1
    assert len(looks) == 1
