"""Every verb gives the same for a model given by patterns and weights, and for the model of its tables in full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastmix
import strategies
from fastmix import MarkovRandomField, graphs
from fastmix.model.shared import SharedTables
from fastmix.modes.descents import find_modes

Answer = Callable[[MarkovRandomField], Any]

CHAINS: dict[str, Any] = {"num_sweeps": 2000, "burn_in": 50, "seed": 1, "num_threads": 1}


def numbers_of_bracket(model: MarkovRandomField) -> Any:
    """The bounds on log Z and on all marginals."""
    found = fastmix.bracket(model, seed=1)
    return [found.log_z_lower, found.log_z_upper, *found.node_lower, *found.node_upper]


def projected(model: MarkovRandomField, **options: Any) -> Any:
    """The parameters of the projected model, and the norm before."""
    found = fastmix.project(model, norm_bound=0.5, progress=None, **options)
    return [*found.model.log_unary, *found.model.log_pairwise, found.norm_before]


def numbers_of_certificate(model: MarkovRandomField) -> Any:
    """The norm, and the sweeps where they are certified."""
    found = fastmix.certify(model)
    return [found.norm_value, float(found.num_sweeps or -1)]


def edges_of(model: MarkovRandomField, **options: Any) -> Any:
    """The edge marginals by a method."""
    return fastmix.infer(model, edge_marginals=True, **options).edge_marginals


# What each verb gives as numbers, and how far rounding may carry these, or chance where kernels draw differently.
ANSWERS: dict[str, tuple[Answer, float]] = {
    "exact": (lambda m: [*(r := fastmix.infer(m, method="exact")).node_marginals, r.log_z], 1e-12),
    "loopy-bp": (lambda m: fastmix.loopy_bp(m, max_iter=5).node_marginals, 1e-11),
    "mean-field": (lambda m: fastmix.mean_field(m, num_starts=1, max_iter=5).node_marginals, 1e-11),
    "most_probable": (lambda m: fastmix.most_probable(m, method="exact").states, 0.0),
    "gibbs": (lambda m: fastmix.sample(m, num_chains=10, **CHAINS).node_marginals, 0.03),
    "edge marginals": (lambda m: edges_of(m, method="gibbs", num_chains=10, **CHAINS), 0.05),
    "edge marginals of messages": (lambda m: edges_of(m, method="loopy-bp", max_iter=5), 1e-11),
    "edge marginals of mean field": (lambda m: edges_of(m, method="mean-field", num_starts=1, max_iter=5), 1e-11),
    "find_modes": (lambda m: find_modes(m, rng=np.random.default_rng(1)), 0.0),
    "projected": (lambda m: fastmix.infer(m, method="projected", norm_bound=0.5, **CHAINS).node_marginals, 0.03),
    "temper": (lambda m: fastmix.temper(m, num_ensembles=8, **CHAINS).node_marginals, 0.05),
    "draw_exact": (lambda m: np.asarray(fastmix.draw_exact(m, num_draws=5, seed=1)), 0.0),
    "bracket": (numbers_of_bracket, 1e-9),
    "certify": (numbers_of_certificate, 1e-9),
    "project": (projected, 1e-5),
    "project spectral": (lambda m: projected(m, norm="spectral"), 1e-4),
    "log_weight": (lambda m: m.log_weight(np.zeros(m.num_variables, dtype=int)), 1e-12),
}


@pytest.mark.parametrize("verb", ANSWERS)
@pytest.mark.parametrize("seed", strategies.seeds(12, quick=4))
def test_patterns_and_tables_in_full_give_the_same(verb: str, seed: int) -> None:
    twins = strategies.picture_twins(seed, num_variables=4, scale=0.6, mixed=False)
    assert twins.shared == twins.full
    ask, atol = ANSWERS[verb]
    np.testing.assert_allclose(ask(twins.shared), ask(twins.full), rtol=0, atol=atol)


@pytest.mark.parametrize("seed", strategies.seeds(20, quick=6))
def test_modes_of_mixed_tables_are_those_of_tables_in_full(seed: int) -> None:
    twins = strategies.picture_twins(seed, num_variables=6, scale=0.9, mixed=True)
    found = [find_modes(model, rng=np.random.default_rng(0)) for model in (twins.shared, twins.full)]
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("seed", strategies.seeds(12, quick=4))
def test_tables_that_evidence_leaves_out_keep_theirs_in_a_projection(seed: int) -> None:
    twins = strategies.picture_twins(seed, num_variables=6, scale=0.9, mixed=False)
    observed = {seed % 6: 0}
    found = [fastmix.project(model, norm_bound=0.4, evidence=observed) for model in (twins.shared, twins.full)]
    shared, full = (result.model for result in found)
    np.testing.assert_allclose(shared.parameters, full.parameters, rtol=0, atol=2e-5)
    assert shared.shared_tables is not None


# -- what pictures of many labels have no memory for -----------------------------------------------------------------


def picture(kind: str) -> MarkovRandomField:
    """A picture of so many labels that no kernel reads tables of all states of all neighbors, with one pattern."""
    rng = np.random.default_rng(3)
    num_labels = 24
    pattern = np.eye(num_labels) if kind == "potts" else 0.3 * rng.normal(size=(num_labels, num_labels))
    weights = rng.uniform(0.4, 1.2, len(graphs.grid_edges(4, 5)))
    return MarkovRandomField.image(rng.normal(size=(4, 5, num_labels)), pattern, weights=weights)


QUICK: dict[str, Any] = {"num_sweeps": 20, "seed": 1, "num_threads": 1}
PICTURE_VERBS: dict[str, Callable[[MarkovRandomField], Any]] = {
    "temper": lambda m: fastmix.temper(m, num_ensembles=2, **QUICK),
    "edge marginals": lambda m: edges_of(m, method="gibbs", **QUICK),
    "edge marginals by counts": lambda m: edges_of(m, method="gibbs", estimator="counts", **QUICK),
    "edge marginals of messages": lambda m: edges_of(m, method="loopy-bp", max_iter=5),
    "find_modes": lambda m: find_modes(m, rng=np.random.default_rng(1)),
    "certify": fastmix.certify,
    "projected": lambda m: fastmix.infer(m, method="projected", divergence="euclidean", norm_bound=0.8, **QUICK),
    "projected, with evidence": lambda m: fastmix.project(m, norm_bound=0.8, evidence={3: 1}),
}
CLUSTER_VERBS: dict[str, Callable[[MarkovRandomField], Any]] = {
    "anneal": lambda m: fastmix.anneal(m, num_steps=4, num_chains=4, seed=1, num_threads=1),
    "swendsen-wang": lambda m: fastmix.sample(m, method="swendsen-wang", edge_marginals=True, **QUICK),
}


@pytest.mark.parametrize(
    ("verb", "kind"),
    [*((verb, kind) for verb in PICTURE_VERBS for kind in ("potts", "full")), *((v, "potts") for v in CLUSTER_VERBS)],
)
def test_no_table_is_laid_out(verb: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = picture(kind)

    def refuse(*_: Any) -> None:
        raise AssertionError("shared tables were laid out in full")

    monkeypatch.setattr(SharedTables, "flat", refuse)
    (PICTURE_VERBS | CLUSTER_VERBS)[verb](model)


def test_annealing_is_that_of_tables_in_full() -> None:
    shared = picture("potts")
    full = MarkovRandomField(shared.num_states, shared.log_unary, shared.edges, shared.log_pairwise)
    found = [fastmix.anneal(m, num_steps=20, num_chains=8, seed=1, num_threads=1) for m in (shared, full)]
    np.testing.assert_allclose(found[0].node_marginals, found[1].node_marginals, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[0].log_z, found[1].log_z, rtol=0, atol=1e-9)
