"""Z = 0 that is proven is an answer of methods without draws, and an error of everything else."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import fastmix
from fastmix import ImpossibleEvidenceError, ImpossibleModelError, MarkovRandomField, UnfitMethodError, infer
from fastmix.marginals import ZeroResult
from fastmix.results import Status

ANSWERING = ["auto", "exact", "loopy-bp", "mean-field"]
DRAWING = ["gibbs", "swendsen-wang", "tempered", "projected", "annealed", "perfect"]


def too_few_colors(rng: np.random.Generator) -> MarkovRandomField:
    """A coloring that is one color short: of an odd cycle, or of a complete graph, with unaries at random."""
    colors = int(rng.integers(2, 4))
    n = colors + 1 if rng.random() < 0.5 else 2 * int(rng.integers(1, 5)) + 1
    if colors == 2:
        edges = [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1), (1, 2), (0, 2)]
    else:
        n = colors + 1
        edges = [(i, j) for i in range(n) for j in range(i)]
    different = np.where(np.eye(colors, dtype=bool), -np.inf, 0.0)
    return MarkovRandomField.from_tables(rng.normal(size=(n, colors)), edges, [different] * len(edges))


def contradicting_parities(rng: np.random.Generator) -> MarkovRandomField:
    """Parities of triples whose sum is required to be odd and even, on a few variables with unaries at random."""
    n = int(rng.integers(5, 9))
    scopes = [rng.choice(n, 3, replace=False) for _ in range(3)]
    parities = [int(p) for p in rng.integers(0, 2, 3)]
    total = np.zeros(n, dtype=int)
    for scope in scopes:
        np.add.at(total, scope, 1)
    last = np.flatnonzero(total % 2)
    tables = []
    for scope, parity in [*zip(scopes, parities, strict=True), (last, 1 - sum(parities) % 2)]:
        grid = np.indices((2,) * len(scope)).sum(axis=0) % 2
        tables.append((tuple(int(v) for v in scope), np.where(grid == parity, 0.0, -np.inf)))
    unaries = [rng.normal(size=2) for _ in range(n)]
    factors = [((i,), unaries[i]) for i in range(n)] + tables
    return MarkovRandomField.from_factors([2] * n, factors)


def impossible_models(count: int) -> list[MarkovRandomField]:
    rng = np.random.default_rng(5)
    makers = (too_few_colors, contradicting_parities)
    return [makers[k % 2](rng) for k in range(count)]


@pytest.mark.parametrize("method", ANSWERING)
def test_it_is_an_answer_of_methods_without_draws(method):
    for model in impossible_models(12):
        result = infer(model, method=method, seed=1, time_limit=10.0)
        assert isinstance(result, ZeroResult)
        assert (result.log_z, result.log_z_kind, result.status) == (-math.inf, "zero", Status.OK)
        assert result.node_marginals is None
        assert result.marginals is None
        assert result.stats["reason"]
        data = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert (data["log_z"], data["log_z_kind"], data["marginals"]) == (None, "zero", None)
        assert "Z = 0" in result.summary()
        assert "-inf" in repr(result)
        assert "-inf" in result._repr_html_()


def test_nothing_is_made_of_marginals_that_are_not_there():
    result = infer(impossible_models(1)[0], bracket=True)
    calls = [result.labels, result.to_array, result.to_frame, result.columns, result.plot]
    calls += [lambda: result.marginal(0), lambda: result.joint(0, 1), lambda: result.expect(np.sum)]
    for call in calls:
        with pytest.raises(ImpossibleModelError, match="no marginals"):
            call()


@pytest.mark.parametrize("method", DRAWING)
def test_samplers_refuse(method):
    for model in impossible_models(4):
        with pytest.raises(UnfitMethodError):
            infer(model, method=method, seed=1, time_limit=2.0)


def test_comparisons_say_so():
    comparison = fastmix.compare(
        impossible_models(1)[0], methods=["exact", "loopy-bp", "gibbs"], seed=1, time_limit=2.0
    )
    assert [row.status for row in comparison.rows] == ["ok", "ok", "refused"]
    assert [row.mean_error for row in comparison.rows] == [None] * 3
    assert json.loads(json.dumps(comparison.to_dict(), allow_nan=False))["rows"][0]["log_z"] is None


@pytest.mark.parametrize("method", ANSWERING)
def test_impossible_evidence_stays_an_error(method):
    """Of models that are possible, and of those that are not."""
    for model in impossible_models(6):
        with pytest.raises(ImpossibleEvidenceError):
            infer(model, method=method, evidence={0: 0}, time_limit=5.0)
    path = MarkovRandomField.from_tables(np.zeros((3, 2)), [(0, 1), (1, 2)], [[[0, -np.inf], [-np.inf, 0]]] * 2)
    assert infer(path).log_z == pytest.approx(math.log(2.0))
    with pytest.raises(ImpossibleEvidenceError):
        infer(path, method=method, evidence={0: 0, 2: 1})
