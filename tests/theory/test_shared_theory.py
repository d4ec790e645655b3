"""Bounds and certificates of models that share tables are those of the same tables in full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

import strategies
from fastmix import certify
from fastmix.model import MarkovRandomField
from fastmix.model.inputs import image_edges
from fastmix.theory import width as width_module
from fastmix.theory.comparison import comparison_bounds
from fastmix.theory.criteria import bias_after_updates, scale_couplings
from fastmix.theory.dependency import DEPENDENCIES, edge_dependencies, rounding_margins
from fastmix.theory.width import coupling_matrix, model_width
from strategies import Shared

LABELS = 6


def is_laid_out(model: MarkovRandomField) -> bool:
    """Whether the full tables of a model have been made."""
    return "log_pairwise" in vars(model)


@pytest.mark.parametrize("dependency", DEPENDENCIES)
@given(twins=strategies.shared_models(min_variables=1, allow_mixtures=False))
def test_dependencies(dependency: str, twins: Shared) -> None:
    ours = edge_dependencies(twins.shared, dependency=dependency)
    theirs = edge_dependencies(twins.full, dependency=dependency)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    margins = rounding_margins(twins.shared, dependency=dependency)
    np.testing.assert_array_equal(margins, rounding_margins(twins.full, dependency=dependency))
    assert not is_laid_out(twins.shared)


@given(strategies.shared_models(min_variables=2, allow_forbidden=False))
def test_tables_between_patterns_have_no_smaller_bounds(twins: Shared) -> None:
    for dependency in ("sigmoid", "range", "l1", "linf"):
        ours = edge_dependencies(twins.shared, dependency=dependency)
        assert (ours >= edge_dependencies(twins.full, dependency=dependency) - 1e-12).all()


@given(strategies.shared_models(min_variables=1, allow_mixtures=False, scales=(0.05, 0.3)))
def test_certificates(twins: Shared) -> None:
    ours = certify(twins.shared)
    theirs = certify(twins.full)
    assert (ours.certified, ours.criterion, ours.num_sweeps) == (theirs.certified, theirs.criterion, theirs.num_sweeps)
    assert [other["certified"] for other in ours.others] == [other["certified"] for other in theirs.others]
    assert bias_after_updates(twins.shared, 1e3) == pytest.approx(bias_after_updates(twins.full, 1e3), rel=1e-9)
    assert not is_laid_out(twins.shared)


@given(strategies.shared_models(min_variables=2, allow_forbidden=False))
def test_widths_and_scales(twins: Shared) -> None:
    ours, _ = coupling_matrix(twins.shared)
    theirs, _ = coupling_matrix(twins.full)
    np.testing.assert_allclose(ours.toarray(), theirs.toarray(), atol=1e-12)
    halved = scale_couplings(twins.shared, 0.5)
    assert halved.shared_tables is not None
    np.testing.assert_allclose(halved.log_pairwise, 0.5 * twins.full.log_pairwise, rtol=1e-15)


@given(strategies.shared_models(min_variables=2, allow_forbidden=False, allow_mixtures=False))
def test_the_norms_of_blocks_bound_the_width(twins: Shared) -> None:
    shared = twins.shared.shared_tables
    assert shared is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(width_module, "MAX_ASCENT_ROWS", -1)
        by_blocks = model_width(twins.shared)
    assert (
        by_blocks.value >= model_width(twins.full).value * 0.5
    )  # a width without a diagonal is at most twice as large
    eigenvalues = np.linalg.eigvalsh(coupling_matrix(twins.full)[0].toarray()) if twins.full.num_edges else np.zeros(1)
    if len(eigenvalues):
        assert by_blocks.value >= 2.0 * np.abs(eigenvalues).max() * (1.0 - 1e-12)


@given(strategies.shared_models(min_variables=2, allow_forbidden=False, allow_mixtures=False))
def test_comparisons(twins: Shared) -> None:
    ours = comparison_bounds(scale_couplings(twins.shared, 0.5), twins.shared)
    theirs = comparison_bounds(scale_couplings(twins.full, 0.5), twins.full)
    np.testing.assert_allclose(ours.bounds, theirs.bounds, rtol=1e-9)


def test_a_picture_is_certified_without_full_tables() -> None:
    rng = np.random.default_rng(0)
    edges, _ = image_edges((60, 60), 4, None, None)
    weights = rng.uniform(0.0, 0.3, len(edges))
    pattern = rng.uniform(0.0, 1.0, (LABELS, LABELS))
    model = MarkovRandomField.image(rng.normal(size=(60, 60, LABELS)), pattern, weights=weights)
    certificate = certify(model)
    assert certificate.certified
    assert not is_laid_out(model)
    full = MarkovRandomField(model.num_states, model.log_unary, model.edges, model.log_pairwise)
    assert certificate.num_sweeps == certify(full).num_sweeps
