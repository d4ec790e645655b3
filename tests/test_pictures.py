"""Models with the shape of a picture: their results have labels, probabilities and entropies in that shape."""

from __future__ import annotations

import numpy as np
import pytest

import fastmix
from fastmix import MarkovRandomField
from fastmix.graphs import grid_edges
from fastmix.marginals import InferenceResult

SHAPE = (3, 4)


def pictures() -> dict[str, MarkovRandomField]:
    """The same model by all builders that take a shape."""
    scores = np.random.default_rng(0).normal(size=(*SHAPE, 5))
    unary = scores.reshape(-1, 5)
    edges = grid_edges(*SHAPE)
    tables = np.tile(0.5 * np.eye(5), (len(edges), 1, 1))
    return {
        "image": MarkovRandomField.image(scores, 0.5),
        "potts": MarkovRandomField.potts(edges, 0.5, 5, unary, shape=SHAPE),
        "tables": MarkovRandomField.from_tables(unary, edges, tables, shape=SHAPE),
        "patterns": MarkovRandomField.from_patterns(unary, edges, [np.eye(5)], weights=0.5, shape=SHAPE),
    }


@pytest.mark.parametrize("model", pictures().values(), ids=list(pictures()))
def test_results_have_the_shape_of_the_picture(model: MarkovRandomField) -> None:
    assert model.shape == SHAPE
    assert model == pictures()["image"]
    result = fastmix.infer(model, method="exact")
    assert result.to_array().shape == (*SHAPE, 5)
    assert result.labels().shape == SHAPE
    assert fastmix.most_probable(model, method="exact").labels().shape == SHAPE
    expected = [-(p * np.log(p)).sum() for p in result.marginals]
    np.testing.assert_allclose(result.entropy(), np.reshape(expected, SHAPE), rtol=1e-13)


def test_entropy_without_a_shape_and_of_certain_states() -> None:
    model = MarkovRandomField.from_tables([[0.0, -np.inf], [0.0, 0.0], [0.0]], [(0, 1)], [np.zeros((2, 2))])
    found = fastmix.infer(model, method="exact").entropy()
    np.testing.assert_allclose(found, [0.0, np.log(2.0), 0.0], rtol=1e-14)
    assert not np.signbit(found).any()
    assert fastmix.infer(MarkovRandomField.ising([], 0.0), method="exact").entropy().shape == (0,)


def test_pictures_of_entropy() -> None:
    pytest.importorskip("matplotlib")
    model = pictures()["image"]
    result = fastmix.infer(model, method="exact")
    image = result.plot(kind="entropy").get_images()[0]
    np.testing.assert_array_equal(image.get_array(), result.entropy())
    assert image.get_clim() == (0.0, pytest.approx(np.log(5.0)))
    line: InferenceResult = fastmix.infer(MarkovRandomField.ising([(0, 1)], 0.5), method="exact")
    with pytest.raises(ValueError, match="kind"):
        line.plot(kind="entropy")


def test_many_labels_have_a_scale_of_colors() -> None:
    pytest.importorskip("matplotlib")
    model = MarkovRandomField.image(np.random.default_rng(1).normal(size=(4, 4, 12)), 0.1)
    image = fastmix.infer(model, method="mean-field", seed=0).plot().get_images()[0]
    assert image.get_clim() == (0, 11)
