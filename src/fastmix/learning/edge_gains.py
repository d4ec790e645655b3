"""Scores of edges that a model lacks: what each of them promises."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix.errors import ModelError
from fastmix.graphs import complete_edges
from fastmix.learning.chow_liu import check_dataset
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.dataset import Dataset
from fastmix.learning.pseudo_likelihood import PseudoLikelihoodLoss
from fastmix.learning.tuning import MIN_GAIN_VARIANCE
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.structure import Structure

__all__ = ["edge_gains"]


def edge_gains(model: MarkovRandomField, data: Dataset) -> tuple[IntArray, FloatArray]:
    """Pairs (k, 2) that are no edges of a model, and about what an edge there would add to the log-pseudo-likelihood.

    ``|g|^2 / (2 h)`` with the gradient g of the pseudo-likelihood in the table of the pair, which is 0, and the
    curvature h that it has if the two variables are independent: the score test. The largest come first.

    Notes
    -----
    One evaluation of the pseudo-likelihood on the complete graph.

    Examples
    --------
    >>> from fastmix.learning.data import read_data
    >>> data = read_data([[0, 0, 1], [1, 1, 0], [0, 0, 0], [1, 1, 1]])
    >>> empty = MarkovRandomField.from_tables([[0, 0]] * 3, [], [])
    >>> pairs, gains = edge_gains(empty, data)
    >>> pairs.tolist(), gains.round(6).tolist()
    ([[0, 1], [0, 2], [1, 2]], [1.0, 0.0, 0.0])
    """
    check_model(model)
    check_dataset(data)
    if not np.array_equal(data.num_states, model.num_states):
        raise ModelError("data must have the state counts of the model, got others")
    n = model.num_variables
    own = Coordinates(model.structure)
    whole = Coordinates(Structure.of(model.num_states, complete_edges(n)))
    d = whole.num_contrasts
    v, _ = own.from_parameters(model.parameters)
    _, gradient = PseudoLikelihoodLoss(whole, data).evaluate(whole.gather(v[:d], own.matrix(v)))

    # The pair stands in the conditionals of both variables, so its curvature is twice that in the likelihood.
    y = whole.encode(data.states)
    variances = np.maximum(data.weights @ y**2 - (data.weights @ y) ** 2, MIN_GAIN_VARIANCE)
    terms = gradient[d:] ** 2 / (4.0 * variances[whole.rows] * variances[whole.cols])
    gains = np.bincount(whole.edge_of, terms, whole.structure.num_edges).astype(np.float64)

    pairs = whole.structure.edges
    present = np.zeros((n, n), dtype=bool)
    present[model.edges[:, 0], model.edges[:, 1]] = True
    absent = np.flatnonzero(~present[pairs[:, 0], pairs[:, 1]])
    order = absent[np.argsort(-gains[absent], kind="stable")]
    return pairs[order], gains[order]
