"""Small calls of verbs that run kernels of many rooms, and what they give: the same with and without the compiler."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np

import fastmix
from fastmix import MarkovRandomField, instances
from fastmix.bounds.reduced_tables import reduce_to_tables
from fastmix.bounds.walk_bounds import interval_fields, mirror_entries
from fastmix.bounds.walk_kernels import follow_walks
from fastmix.crf import ConditionalRandomField
from fastmix.exact import plan_exact, search
from fastmix.graphs import complete_edges, grid_edges
from fastmix.projection.faces import nearest_with_face
from fastmix.theory.dependency import edge_dependencies

__all__ = ["plain_results"]

NORMS = ("inf", "1", "spectral", "width")
DEPENDENCIES = ("exact", "sigmoid", "range")


def small_models() -> dict[str, MarkovRandomField]:
    """A grid, an attractive one, one of three states, one with larger factors, and one with forbidden pairs."""
    rng = np.random.default_rng(0)
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3, 2))]
    tables[0][0, 1] = -np.inf
    return {
        "grid": instances.ising_grid(3, 3, coupling_max=1.0, seed=0),
        "attractive": instances.ising_grid(3, 3, coupling_max=0.8, attractive=True, seed=1),
        "potts": instances.potts_grid(2, 3, num_states=3, coupling_max=0.8, seed=2),
        "attractive potts": instances.potts_grid(2, 3, num_states=3, coupling_max=0.8, attractive=True, seed=3),
        "dense": MarkovRandomField.ising(complete_edges(6), 0.2 * rng.normal(size=15), rng.normal(size=6)),
        "factors": MarkovRandomField.from_factors(
            [2, 3, 2, 2], [((0, 1, 2), rng.normal(size=(2, 3, 2))), ((1, 3), rng.normal(size=(3, 2)))]
        ),
        "forbidden": MarkovRandomField.from_tables([np.zeros(2), np.zeros(3), np.zeros(2)], [(0, 1), (1, 2)], tables),
    }


def projections(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Parameters of projected models: every norm, and divergences with paths along tables."""
    found = [fastmix.project(models["factors"], norm_bound=0.5)]
    for name in ("grid", "potts", "dense"):
        found += [fastmix.project(models[name], norm_bound=0.6, norm=norm) for norm in NORMS]
    for divergence in ("kl", "piecewise-kl"):
        found += [fastmix.project(models["potts"], norm_bound=0.6, divergence=divergence, max_iter=5, seed=0)]
    return [projection.model.parameters.tolist() for projection in found]


def theory(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Dependencies by every bound, and what each criterion certifies."""
    results = []
    for name in ("grid", "potts", "factors"):
        bounds = [edge_dependencies(models[name], dependency=dependency) for dependency in DEPENDENCIES]
        results += [bound.ravel().tolist() for bound in bounds]
    for criterion in ("dobrushin", "width", "path", "split"):
        certificate = fastmix.certify(models["dense"], accuracy=0.01, criterion=criterion, schedule="random")
        results.append([bool(certificate.certified)])
    return results


def configurations(models: dict[str, MarkovRandomField]) -> list[Any]:
    """The most probable states by every route that fits."""
    results = []
    for name, model in models.items():
        methods = ["auto", "exact", "search", *(["cut"] if name == "attractive" else [])]
        found = [fastmix.most_probable(model, method=method, seed=0) for method in methods]
        results += [np.asarray(result.states).tolist() for result in found]
    return results + labels()


def labels() -> list[Any]:
    """Labels of a small picture by messages and moves, their beliefs, and those of a star by a minimum cut."""
    rng = np.random.default_rng(6)
    apart = np.abs(np.subtract.outer(np.arange(4), np.arange(4)))
    kinds = (np.eye(4), -0.4 * np.minimum(apart, 2.0), -0.3 * np.minimum(apart**2, 3.0))
    results = []
    for table in kinds:
        scores = rng.normal(size=(4, 5, 4))
        edges = grid_edges(4, 5)
        weights = rng.uniform(0.5, 1.0, len(edges))
        model = MarkovRandomField.from_patterns(scores.reshape(-1, 4), edges, [table], 0, weights)
        for method in ("messages", "swap", *(["expansion"] if table is not kinds[2] else [])):
            found = fastmix.most_probable(model, method=method, seed=0)
            results += [np.asarray(found.states).tolist(), [found.upper_bound]]
        beliefs = (fastmix.loopy_bp(model, message_order="parallel", max_iter=5), fastmix.mean_field(model, seed=0))
        results += [belief.node_marginals.tolist() for belief in beliefs]
    star = MarkovRandomField.ising([(0, i) for i in range(1, 12)], 0.4, rng.normal(size=12))
    found = fastmix.most_probable(star, method="cut")
    return [*results, np.asarray(found.states).tolist(), [found.upper_bound]]


def orders(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Exact marginals, by orders of elimination that are searched."""
    larger = instances.ising_random(14, edge_probability=0.3, coupling_max=1.0, seed=0)
    results = [plan_exact(larger).run().node_marginals.tolist()]
    pairs = [tuple(pair) for pair in larger.edges.tolist()]
    with mock.patch.object(search, "SMALL_CORE", 2), mock.patch.object(search, "CHEAP_ENTRIES", 0.0):
        results.append(search.find_order([2] * larger.num_variables, pairs, effort=1e-3).order.tolist())
    results += [fastmix.infer(model, method="exact").node_marginals.tolist() for model in models.values()]
    return results


def walks() -> list[Any]:
    """Bounds by whole trees of walks, which are exact, and where trees are cut."""
    model = instances.ising_grid(2, 3, coupling_max=0.8, seed=4)
    fields = interval_fields(reduce_to_tables(model))
    assert fields is not None
    n = model.num_variables
    results = []
    for most_nodes in (10**9, 5):
        low = np.zeros(n)
        high = np.zeros(n)
        path = np.full(n, -1, dtype=np.int64)
        nodes = np.zeros(n, dtype=np.int64)
        follow_walks(*fields, mirror_entries(fields), np.ones(n), np.arange(n), 0.0, most_nodes, path, low, high, nodes)
        results.append([low.tolist(), high.tolist()])
    return results


def rows_of_evidence(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Answers to many rows of evidence side by side."""
    results = []
    for name in ("grid", "potts", "factors"):
        model = models[name]
        rows = np.full((5, model.num_variables), -1)
        rows[:, 0] = [0, 1, 1, 0, 1]
        rows[2:, 1] = 0
        prepared = fastmix.prepare(model)
        answers = prepared.ask(rows, seed=0, num_draws=2)
        results.append([np.nan_to_num(answers.node_marginals).tolist(), answers.log_evidence.tolist()])
        results.append(np.asarray(answers.draws).tolist())
        results.append(np.asarray(prepared.ask(rows, most_probable=True).completions).tolist())
    return results


def gradients(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Log Z of one row of parameters and of many, with gradients and products with the Hessian."""
    results = []
    for name in ("grid", "potts", "factors"):
        model = models[name]
        theta = model.parameters
        for rows in (
            theta,
            np.outer(np.linspace(0.5, 1.5, 9), theta),
            400.0 * theta,
            np.outer(np.ones(9), 400.0 * theta),
        ):
            found = fastmix.log_z(model.structure, rows)
            results.append([np.asarray(found.log_z).tolist(), found.gradient().tolist()])
            results.append(found.hessian_product(np.sin(np.arange(len(theta)))).tolist())
        if not model.num_factors:
            unary = np.outer(np.linspace(0.5, 1.5, 9), model.log_unary)
            shared = found.partition.shared_gradients(unary, model.log_pairwise, np.linspace(0.0, 1.0, 9))
            results.append([part.tolist() for part in shared])
    return results


def rows_side_by_side(models: dict[str, MarkovRandomField]) -> list[Any]:
    """Beliefs of rows of evidence, and rows of tables projected with their faces."""
    results = []
    for name in ("grid", "potts", "forbidden"):
        model = models[name]
        evidence = np.full((3, model.num_variables), -1)
        evidence[1:, 0] = 1
        found = fastmix.predict(model, evidence, method="loopy-bp")
        results.append([found.node_marginals.tolist(), found.row_log_z.tolist()])
    for name in ("grid", "potts"):
        rows = np.outer([0.1, 1.0, 2.0], models[name].log_pairwise)
        tables, face = nearest_with_face(models[name], rows, 0.6)
        results.append([tables.tolist(), face.product(np.sin(np.arange(rows.size)).reshape(rows.shape)).tolist()])
    return results


def learnt() -> list[Any]:
    """Parameters learnt by the pseudo-likelihood, for two states and for three."""
    rng = np.random.default_rng(3)
    results = []
    for count in (2, 3):
        rows = rng.integers(0, count, size=(60, 4))
        rows[:, 1] = rows[:, 0]
        rows[::7, 1] = 0
        found = fastmix.learn(rows, objective="pseudo-likelihood", ridge=0.1, max_iter=20, seed=0)
        results.append(found.model.parameters.tolist())
    return results


def conditional_fields() -> list[Any]:
    """Weights, marginals, modes and draws of conditional random fields on trees, and by the pseudo-likelihood."""
    rng = np.random.default_rng(4)
    labels = [rng.integers(0, 3, size=4) for _ in range(5)]
    labels[0][1] = -1
    chains = [rng.normal(size=(4, 2)) for _ in labels]
    results = []
    for objective in ("likelihood", "pseudo-likelihood"):
        field = ConditionalRandomField(objective=objective, max_iter=10, random_state=0).fit(chains, labels)
        results += [field.node_weights_.tolist(), field.edge_weights_.tolist()]
        results += [part.tolist() for part in field.predict_proba(chains)]
        results += [part.tolist() for part in field.sample(chains, 2)]
        results += [part.tolist() for part in field.set_params(decode="most_probable").predict(chains)]
    return results


def plain_results() -> list[Any]:
    models = small_models()
    return [
        projections(models),
        theory(models),
        configurations(models),
        orders(models),
        walks(),
        rows_of_evidence(models),
        gradients(models),
        rows_side_by_side(models),
        learnt(),
        conditional_fields(),
    ]
