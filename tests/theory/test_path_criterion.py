"""The bound by a path of couplings: its walks against dense eigenvalues, and its ends."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from fastmix._loops import run_loop
from fastmix.instances import ising_grid
from fastmix.theory import path_criterion
from fastmix.theory.path_criterion import PathCriterion, walk_bound


def random_couplings(seed: int) -> np.ndarray:
    """Symmetric absolute couplings with an empty diagonal."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    upper = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.6), 1) * rng.choice([0.1, 0.4, 1.0])
    return upper + upper.T


def smallest_eigenvalues(couplings: np.ndarray, s: float) -> tuple[float, float]:
    """Those of H and of ``I - tanh(s |J|)``, see ``walk_bound``."""
    t = np.tanh(s * couplings)
    inner = t**2 / (1.0 - t**2)
    h = np.eye(len(t)) + np.diag(inner.sum(axis=1)) - t / (1.0 - t**2)
    plain = np.eye(len(t)) - t
    return float(np.linalg.eigvalsh(h)[0]), float(np.linalg.eigvalsh(plain)[0])


@pytest.mark.parametrize("seed", range(30))
def test_no_vector_proves_more_than_the_eigenvalues(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    couplings = random_couplings(seed)
    matrix = csr_array(couplings)
    for s in (0.2, 1.0):
        true = smallest_eigenvalues(couplings, s)
        for vector in (np.ones(len(couplings)), rng.uniform(0.2, 1.0, len(couplings))):
            rows = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data)
            arguments = (*rows, s, vector, 1e-14)
            bound = walk_bound(*arguments)
            assert bound <= max(true) + 1e-12
            assert run_loop(walk_bound, arguments, (), compiled=True) == pytest.approx(bound, abs=1e-12)


def test_the_right_vector_proves_the_eigenvalue() -> None:
    """Of two variables, whose matrices have equal entries."""
    couplings = np.array([[0.0, 0.3], [0.3, 0.0]])
    matrix = csr_array(couplings)
    rows = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data)
    bound = walk_bound(*rows, 1.0, np.ones(2), 0.0)
    assert bound == pytest.approx(max(smallest_eigenvalues(couplings, 1.0)), abs=1e-12)


def test_couplings_beyond_any_proof() -> None:
    couplings = csr_array(np.array([[0.0, 50.0], [50.0, 0.0]]))
    rows = (couplings.indptr.astype(np.int64), couplings.indices.astype(np.uint32), couplings.data)
    assert walk_bound(*rows, 1.0, np.ones(2), 1e-14) <= 0.0


def test_models_too_large_for_new_vectors_at_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """One vector, from power steps, then serves all points of the path, and nearly as well."""
    model = ising_grid(8, 8, coupling_max=0.3, seed=0)
    usual = PathCriterion().find(model).log_constant
    monkeypatch.setattr(path_criterion, "MAX_REFRESH_VISITS", 0)
    kept = PathCriterion().find(model).log_constant
    assert 0.99 * usual <= kept <= 1.2 * usual
    strong = ising_grid(8, 8, coupling_max=2.0, seed=0)
    assert PathCriterion().find(strong).log_constant >= PathCriterion().find(model).log_constant
