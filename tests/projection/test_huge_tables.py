"""Projections of tables with entries up to 1e100: within the bound, or refused in clear words; and their starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastmix import KL, Euclidean, MarkovRandomField, NotConvergedError, PiecewiseKL, UnfitMethodError, project
from fastmix.projection import ReversedKL
from fastmix.theory.dependency import edge_dependencies, to_matrix

NORMS = ("inf", "1", "spectral", "frobenius")


def draw_model(rng: np.random.Generator) -> MarkovRandomField:
    """A few variables of two or three states; the largest entries are powers of ten up to the hundredth."""
    n = int(rng.integers(2, 7))
    counts = rng.integers(2, 4, n) if rng.random() < 0.5 else np.full(n, 2)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 0.6] or [(0, 1)]
    largest = rng.uniform(-3.0, 99.5)
    mixed = rng.random() < 0.4
    sizes = [10.0 ** (rng.uniform(-5.0, max(0.0, largest)) if mixed else largest) for _ in pairs]
    tables = [size * rng.uniform(-1.0, 1.0, (counts[i], counts[j])) for size, (i, j) in zip(sizes, pairs, strict=True)]
    return MarkovRandomField.from_tables([rng.normal(size=c) for c in counts], pairs, tables)


def true_norm(model: MarkovRandomField, norm: str, dependency: Any) -> float:
    z = edge_dependencies(model, dependency=dependency).max(axis=1, initial=0.0)
    matrix = to_matrix(model, z).toarray()
    if norm == "frobenius":
        return float(np.sqrt((matrix**2).sum()))
    return float(np.abs(np.linalg.eigvalsh(matrix)).max() if norm == "spectral" else matrix.sum(axis=1).max())


def try_one(rng: np.random.Generator, divergence: Any) -> str:
    """What came of one projection, of which what is returned must be within the bound."""
    model, norm = draw_model(rng), rng.choice(NORMS).item()
    dependency, bound = rng.choice(["range", "linf"]).item(), float(rng.choice([0.5, 0.9, 2.5]))
    limit = {} if isinstance(divergence, Euclidean) else {"time_limit": 0.2}
    try:
        result = project(
            model, norm_bound=bound, norm=norm, dependency=dependency, divergence=divergence, seed=0, **limit
        )
        verdict = str(result.status)
    except NotConvergedError as error:
        result, verdict = error.result, "not converged"
    except UnfitMethodError:
        return "refused"
    assert np.isfinite(result.model.parameters).all()
    assert np.isfinite(result.squared_distance)
    assert result.norm_after <= bound
    assert true_norm(result.model, norm, dependency) <= bound * (1.0 + 1e-9)
    return verdict


@pytest.mark.parametrize("seed", range(4))
def test_huge_tables(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = [try_one(rng, Euclidean()) for _ in range(25)]
    assert found.count("ok") >= 10
    for divergence in (KL(), PiecewiseKL(), ReversedKL()):
        try_one(rng, divergence)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_many_huge_tables(seed: int, tell: Any) -> None:
    rng = np.random.default_rng(100 + seed)
    divergences = [Euclidean(), Euclidean(), Euclidean(), KL(), PiecewiseKL(), ReversedKL()]
    found = [try_one(rng, divergences[k % len(divergences)]) for k in range(300)]
    counts = {verdict: found.count(verdict) for verdict in sorted(set(found))}
    tell("projections of huge tables", f"300 models, seed {seed}", f"beyond the bound 0, {counts}")
    assert counts["ok"] >= 100


def test_couplings_keep_their_sign() -> None:
    """The closest model to a huge coupling has a large one within the bound, of the same sign."""
    for size in (1e3, 1e8, 1e17, 1e99):
        model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[size, -2.0 * size])
        result = project(model, norm_bound=0.8)
        assert -0.8 <= result.model.table(1, 2)[0, 0] < -0.4


def test_starts_are_checked() -> None:
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=2.0)
    shapes = {"inf": (3,), "1": (3,), "frobenius": (3,), "spectral": (3, 8), "width": (3, 3)}
    for norm in (*NORMS, "width"):
        for bad in (np.full(shapes[norm], np.nan), np.full(shapes[norm], np.inf), "no", [[1.0], [1.0, 2.0]], object()):
            with pytest.raises(ValueError, match="warm_start"):
                project(model, norm_bound=0.9, norm=norm, warm_start=bad)
    for norm in NORMS:
        with pytest.raises(ValueError, match="warm_start"):
            project(model, norm_bound=0.9, norm=norm, warm_start=np.ones((7, 2, 2)))


@pytest.mark.parametrize("norm", ["inf", "spectral", "frobenius"])
def test_any_start_leads_to_the_same_model(norm: str) -> None:
    rng = np.random.default_rng(5)
    model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=rng.normal(size=3))
    shape = (3, 8) if norm == "spectral" else (3,)
    best = project(model, norm_bound=0.7, norm=norm)
    for size in (0.0, 1.0, 30.0, 1e6):
        start = size * rng.random(shape)
        try:
            result = project(model, norm_bound=0.7, norm=norm, warm_start=start)
        except NotConvergedError as error:
            result = error.result
            far = size in (0.0, 1e6)
            assert far and result.norm_after <= 0.7  # noqa: PT018
            continue
        np.testing.assert_allclose(result.squared_distance, best.squared_distance, rtol=1e-4, atol=1e-5)
