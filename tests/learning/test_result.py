"""What results of learning show: edges as a frame, matrices and graphs with names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastmix
from fastmix.learning import stability


@pytest.fixture(scope="module")
def rows() -> Any:
    pandas = pytest.importorskip("pandas")
    edges, couplings = [(0, 1), (1, 2), (3, 4)], [0.9, -0.6, 0.3]
    model = fastmix.MarkovRandomField.ising(edges, couplings, num_variables=5)
    states = np.asarray(fastmix.draw_exact(model, num_draws=3000, seed=0))
    return pandas.DataFrame(np.array(["no", "yes"])[states], columns=["rain", "wet", "dry", "tea", "milk"])


def test_couplings_are_sorted_and_signed(rows: Any) -> None:
    result = fastmix.learn(rows, edges="l1", l1=0.05, seed=0)
    found_again = stability(rows, l1=0.05, num_subsamples=4, seed=0)
    frame = result.couplings(stability=found_again)
    assert list(frame.columns) == ["first", "second", "size", "coupling", "stability"]
    assert list(zip(frame["first"], frame["second"], strict=True)) == [("rain", "wet"), ("wet", "dry"), ("tea", "milk")]
    np.testing.assert_allclose(frame["coupling"], [0.9, -0.6, 0.3], atol=0.08)
    np.testing.assert_allclose(frame["size"], 2.0 * np.abs(frame["coupling"]))
    assert (frame["stability"] == 1.0).all()
    assert "stability" not in result.couplings()
    with pytest.raises(ValueError, match="stability"):
        result.couplings(stability=[[1.0]])


def test_pictures_have_names(rows: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    result = fastmix.learn(rows, edges="l1", l1=0.05, seed=0)
    matrix = result.plot()
    assert [text.get_text() for text in matrix.get_xticklabels()] == list(rows.columns)
    graph = result.plot(kind="graph")
    assert {text.get_text() for text in graph.texts} == set(rows.columns)
    assert len(graph.lines) == 3
    widths = sorted(line.get_linewidth() for line in graph.lines)
    assert widths[-1] > 2.0 * widths[0]
    pale = result.plot(kind="graph", stability=np.zeros((5, 5)))
    assert pale.lines[0].get_alpha() < graph.lines[-1].get_alpha()
    with pytest.raises(ValueError, match="stability"):
        result.plot(kind="edges", stability=np.zeros((5, 5)))
    pyplot.close("all")
