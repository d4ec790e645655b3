"""Assertions and small hard models for whoever adds an inference method, here or outside.

A method passes when :func:`assert_conforms` does: it is run on every model of :func:`conformance_models`, which hold
what breaks implementations: no variables, isolated and one-state variables, mixed state counts, edges given backwards
and repeated, forbidden entries, couplings of a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from fastmix._arrays import FloatArray
from fastmix.errors import UnfitMethodError
from fastmix.exact import infer_exact
from fastmix.exact.enumeration import enumerate_model
from fastmix.marginals import InferenceResult
from fastmix.method import Method, run_method
from fastmix.model import MarkovRandomField

__all__ = ["assert_conforms", "assert_distributions", "assert_marginals_close", "conformance_models"]

#: Configurations up to which a model is enumerated (not measured: some milliseconds); larger ones are solved exactly.
MAX_ENUMERATED = 2.0**16


def conformance_models(
    *, forbidden: bool = True, strong: bool = True, factors: bool = False
) -> Iterator[tuple[str, MarkovRandomField]]:
    """Named small models that every method must handle.

    Parameters
    ----------
    forbidden, strong : bool
        Whether to include models with -inf entries, and with couplings of +-1000.
    factors : bool
        Whether to include models with factors over three or more variables.
    """
    rng = np.random.default_rng(20140)
    yield "no variables", MarkovRandomField.from_factors([], [])
    yield "a constant alone", MarkovRandomField.from_factors([], [((), 2.5)])
    yield "one variable", MarkovRandomField.from_tables([[0.3, -0.2, 1.0]], [], [])
    yield "one state", MarkovRandomField.from_tables([[0.7]], [], [])
    yield "no edges", MarkovRandomField.from_tables([[0.3, 1.0], [0.0, -1.0, 2.0]], [], [])
    yield "isolated variable", MarkovRandomField.ising([(0, 2)], 0.8, [0.1, 0.5, -0.2])
    yield (
        "one-state neighbor",
        MarkovRandomField.from_tables(
            [np.array([0.0, 0.5]), np.array([0.3]), np.array([0.0, 0.0, 1.0])],
            [(0, 1), (1, 2)],
            [[[0.2], [1.0]], [[0.5, 0.1, -1.0]]],
        ),
    )
    shapes = [2, 3, 4, 2]
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    tables = [rng.normal(size=(shapes[i], shapes[j])) for i, j in pairs]
    yield "mixed state counts", MarkovRandomField.from_tables([rng.normal(size=L) for L in shapes], pairs, tables)
    backwards = [(j, i) for i, j in pairs] + [(0, 1)]
    unary = [rng.normal(size=L) for L in shapes]
    yield (
        "edges backwards and repeated",
        MarkovRandomField.from_tables(unary, backwards, [t.T for t in tables] + [tables[0]]),
    )
    grid = [(0, 1), (1, 2), (3, 4), (4, 5), (0, 3), (1, 4), (2, 5)]
    yield "lopsided grid", MarkovRandomField.ising(grid, rng.uniform(-1.5, 1.5, 7), rng.uniform(-1, 1, 6))
    yield "large constant", MarkovRandomField.ising(grid, 0.3).replace(log_constant=10_000.0)
    if forbidden:
        hard = [t.copy() for t in tables]
        hard[0][0, 1] = -np.inf
        hard[2][3, 0] = -np.inf
        yield "forbidden pairs", MarkovRandomField.from_tables(unary, pairs, hard)
        closed = [u.copy() for u in unary]
        closed[1][2] = -np.inf
        closed[2][0] = -np.inf
        yield "forbidden states", MarkovRandomField.from_tables(closed, pairs, hard)
        equal = np.where(np.eye(3, dtype=bool), -np.inf, 0.0)
        cycle = [(0, 1), (1, 2), (2, 3), (0, 3)]
        yield "graph coloring", MarkovRandomField.from_tables(rng.normal(size=(4, 3)), cycle, [equal] * 4)
    if strong:
        signs = np.array([1.0, 1, -1, 1, -1, 1, 1])
        yield "couplings of a thousand", MarkovRandomField.ising(grid, 1e3 * signs, rng.uniform(-1, 1, 6))
        yield "opposed fields of a thousand", MarkovRandomField.ising(grid, 1e3, [1e3, -1e3, 1e3, -1e3, 1e3, -1e3])
    if factors:
        yield from _factor_models(forbidden)


def _factor_models(forbidden: bool) -> Iterator[tuple[str, MarkovRandomField]]:
    """Models with factors over three or more variables."""
    rng = np.random.default_rng(20170)
    shapes = [2, 3, 1, 2, 3]
    scopes = [(0, 1, 3), (4, 3, 1), (0, 2, 3, 4), (1, 4), (0,), (3, 1, 0)]
    terms = [(scope, rng.normal(size=[shapes[v] for v in scope])) for scope in scopes]
    yield "factors of three and four variables", MarkovRandomField.from_factors(shapes, terms)
    triangles = [(i, i + 1, i + 2) for i in range(5)]
    binary = [(scope, 0.7 * rng.normal(size=(2, 2, 2))) for scope in triangles]
    yield "a band of triangles", MarkovRandomField.from_factors([2] * 7, binary)
    if forbidden:
        hard = [(scope, table.copy()) for scope, table in binary]
        for k, state in ((0, (1, 1, 1)), (2, (0, 1, 0))):
            _, table = hard[k]
            table[state] = -np.inf
        yield "factors that forbid states", MarkovRandomField.from_factors([2] * 7, hard)
        parity = np.where(np.indices((2, 2, 2)).sum(axis=0) % 2, -np.inf, 0.0)
        yield "parity", MarkovRandomField.from_factors([2] * 7, [*binary, ((4, 5, 6), parity)])
    yield "a network of causes", _network_of_causes(rng)


def _network_of_causes(rng: np.random.Generator) -> MarkovRandomField:
    """A model as the networks of medicine: a cause of many effects, effects of several causes, nearly certain rows."""
    num_states = [2, 3, 2, 2, 3, 2, 2]
    parents = [(), (0,), (0,), (1, 2), (1, 2), (0, 3, 4), (4,)]
    factors = []
    for i, causes in enumerate(parents):
        rows = rng.dirichlet(np.full(num_states[i], 0.5), size=[num_states[cause] for cause in causes])
        factors.append(((*causes, i), np.log(0.99 * rows + 0.01 / num_states[i])))
    return MarkovRandomField.from_factors(num_states, factors)


def assert_distributions(
    model: MarkovRandomField, node_marginals: FloatArray, edge_marginals: FloatArray | None
) -> None:
    """Fail unless marginals are finite, non-negative, sum to one, and edges agree with their nodes to 1e-9."""
    nodes = np.asarray(node_marginals)
    assert nodes.shape == model.log_unary.shape, f"node marginals have shape {nodes.shape}"
    assert np.isfinite(nodes).all(), "node marginals are not finite"
    assert (nodes >= 0).all(), "node marginals are negative"
    for i in range(model.num_variables):
        total = nodes[model.unary_offsets[i] : model.unary_offsets[i + 1]].sum()
        assert abs(total - 1) < 1e-9, f"marginal of variable {i} sums to {total}"
    if edge_marginals is None:
        return
    edges = np.asarray(edge_marginals)
    assert edges.shape == model.log_pairwise.shape, f"edge marginals have shape {edges.shape}"
    assert np.isfinite(edges).all(), "edge marginals are not finite"
    assert (edges >= 0).all(), "edge marginals are negative"
    for e, (i, j) in enumerate(model.edges.tolist()):
        table = edges[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]].reshape(model.num_states[[i, j]])
        for v, axis in ((i, 1), (j, 0)):
            node = nodes[model.unary_offsets[v] : model.unary_offsets[v + 1]]
            worst = np.abs(table.sum(axis=axis) - node).max()
            assert worst < 1e-9, f"edge {(i, j)} disagrees with variable {v} by {worst}"


def assert_marginals_close(result: InferenceResult, model: MarkovRandomField, *, atol: float) -> None:
    """Fail unless a result agrees with enumeration: every marginal, and log Z where the method gives one.

    Where there are too many configurations to enumerate, it must agree with exact inference.
    """
    few = float(np.prod(model.num_states, dtype=float)) <= MAX_ENUMERATED
    exact = enumerate_model(model) if few else infer_exact(model)
    assert_distributions(model, result.node_marginals, result.edge_marginals)
    worst = np.abs(result.node_marginals - exact.node_marginals).max(initial=0.0)
    assert worst <= atol, f"node marginals are off by {worst}"
    if result.edge_marginals is not None:
        assert exact.edge_marginals is not None
        worst = np.abs(result.edge_marginals - exact.edge_marginals).max(initial=0.0)
        assert worst <= atol, f"edge marginals are off by {worst}"
    if result.log_z is not None:
        assert exact.log_z is not None
        error = abs(result.log_z - exact.log_z)
        assert error <= atol * max(1.0, abs(exact.log_z)), f"log Z is off by {error}"


def assert_conforms(
    method: Method | Callable[[MarkovRandomField], InferenceResult],
    *,
    atol: float,
    forbidden: bool = True,
    strong: bool = True,
    factors: bool | None = None,
    seed: int = 0,
    models: Iterable[tuple[str, MarkovRandomField]] | None = None,
) -> None:
    """Fail, naming the model, unless a method is right on every model of :func:`conformance_models`.

    Parameters
    ----------
    method : Method or callable
        A :class:`fastmix.Method` with its options may refuse a model, as ``fits`` says, and only then.
    atol : float
        How far a marginal, and log Z relative to its size, may be off.
    forbidden, strong : bool
        Whether models with -inf entries, and with couplings of +-1000, are among them.
    factors : bool, optional
        Whether those with factors over three or more variables are; by default for a :class:`fastmix.Method`, which can
        refuse them.
    seed : int
        For a :class:`fastmix.Method` that takes one.
    models : iterable of (name, model), optional
        Others to be right on, instead of these.
    """
    if factors is None:
        factors = isinstance(method, Method)
    for name, model in models or conformance_models(forbidden=forbidden, strong=strong, factors=factors):
        try:
            result = _run_where_fit(method, model, seed) if isinstance(method, Method) else method(model)
            if result is not None:
                assert_marginals_close(result, model, atol=atol)
        except AssertionError as error:
            raise AssertionError(f"on the model '{name}': {error}") from error


def _run_where_fit(method: Method, model: MarkovRandomField, seed: int) -> InferenceResult | None:
    """The answer of a method to a model; None where the method says that the model does not fit."""
    if method.fits(method.reduce(model, None).model) is not None:
        return None
    try:
        result: InferenceResult = run_method(method, model, seed=seed if method.seeded else None, progress=None)
    except UnfitMethodError as error:
        raise AssertionError(f"refused although it fits: {error}") from error
    return result
