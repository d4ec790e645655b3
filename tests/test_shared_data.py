"""Exact answers on the instances of the UAI 2014 competition, when they lie beside the repository."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from fastmix import InferenceResult, infer
from fastmix.inference.projected import ProjectedResult
from fastmix.io import read_evidence, read_mar, read_model, read_pr
from fastmix.testing import assert_distributions

NAMES = [
    "CSP_11",
    "DBN_11",
    "DBN_12",
    "Grids_11",
    "Grids_12",
    "Grids_13",
    "Grids_14",
    "ObjectDetection_11",
    "ObjectDetection_15",
    "ObjectDetection_22",
    "ObjectDetection_28",
    "Segmentation_11",
    "Segmentation_12",
    "Segmentation_13",
]


def infer_file(path: Path) -> InferenceResult:
    model = read_model(path)
    return infer(model, evidence=read_evidence(f"{path}.evid", model.num_states))


def test_no_instance_is_left_out(competition: Path) -> None:
    assert sorted(path.stem for path in competition.glob("*.uai")) == [*NAMES, "relational_1"]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name.endswith("_11") else pytest.mark.slow) for name in NAMES]
)
def test_exact_answers(competition: Path, name: str) -> None:
    path = competition / f"{name}.uai"
    result = infer_file(path)
    assert result.status == "ok"
    assert_distributions(result.model, result.node_marginals, result.edge_marginals)
    np.testing.assert_allclose(result.node_marginals, np.concatenate(read_mar(f"{path}.MAR")), rtol=0, atol=1e-5)
    printed = read_pr(f"{path}.PR")
    # Six digits were printed: half a unit of the last one, and some for its own rounding.
    half_unit = 0.5 * 10.0 ** (math.floor(math.log10(abs(printed))) - 5)
    assert result.log_z is not None
    assert result.log_z / math.log(10) == pytest.approx(printed, rel=0, abs=1.01 * half_unit)


@pytest.mark.parametrize("name", ["DBN_11", "Grids_14"])
def test_projected_sampling_claims_no_errors_for_the_model(competition: Path, name: str) -> None:
    path = competition / f"{name}.uai"
    model = read_model(path)
    evidence = read_evidence(f"{path}.evid", model.num_states)
    result = infer(model, method="projected", divergence="euclidean", evidence=evidence, num_sweeps=20_000, seed=1)
    assert isinstance(result, ProjectedResult)
    error = np.abs(result.node_marginals - np.concatenate(read_mar(f"{path}.MAR"))).max()
    assert result.status == "ok"
    assert error > 0.2
    assert result.projected_std_error.max() < 0.005
    assert result.std_error is None
    assert result.to_dict()["std_error"] is None
    assert "its errors are not known" in result.stats["guarantee"]


@pytest.fixture(scope="module")
def relational(competition: Path) -> InferenceResult:
    return infer_file(competition / "relational_1.uai")


@pytest.fixture(scope="module")
def exact(competition: Path) -> tuple[float, float, float]:
    """Log Z, P(left = 0) and P(right = 0) of the free variables."""
    model = read_model(competition / "relational_1.uai")
    evidence = read_evidence(competition / "relational_1.uai.evid")
    assert (model.num_variables, model.num_edges) == (500, 250 * 250)
    assert not model.log_unary.any()
    assert model.log_constant == 0
    w = model.log_pairwise[0]  # the file says exp(0.0075), rounded
    assert w == pytest.approx(0.0075, rel=1e-7)
    assert (model.log_pairwise.reshape(-1, 4) == [w, w, 0.0, w]).all()
    assert set(evidence.values()) == {1}
    assert sum(v < 250 for v in evidence) == 8
    assert sum(v >= 250 for v in evidence) == 9
    a, b = np.arange(243)[:, None], np.arange(242)[None, :]
    excluded = (a + 8) * (250 - (b + 9))  # pairs of a one on the left and a zero on the right
    weight = log_binomial(242, a) + log_binomial(241, b) + w * (62_500 - excluded)
    log_z = float(logsumexp(weight))
    probability = np.exp(weight - log_z)
    left, right = (probability * (242 - a) / 242).sum(), (probability * (241 - b) / 241).sum()
    return log_z, float(left), float(right)


class TestRelational:
    """A complete bipartite graph with one table everywhere, so only the numbers of ones on the two sides matter.

    The reference files of this instance are not exact. With a and b free variables in state 1 on the left and on the
    right, the answer is a double sum of binomial coefficients times exp(0.0075 * pairs), which the fixture
    ``exact`` evaluates; fastmix agrees with it to rounding. The marginals of the MAR file are 4e-4 away from both, and
    the PR file says 316.023 where log10 Z is 314.030.
    """

    def test_formula(self, exact: tuple[float, float, float]) -> None:
        log_z, left, right = exact
        assert log_z / math.log(10) == pytest.approx(314.03017, abs=5e-6)
        assert left == pytest.approx(0.6451692, abs=5e-8)
        assert right == pytest.approx(0.3310617, abs=5e-8)

    def test_result(self, relational: InferenceResult, exact: tuple[float, float, float], competition: Path) -> None:
        log_z, left, right = exact
        assert relational.log_z == pytest.approx(log_z, rel=1e-10)
        evidence = read_evidence(competition / "relational_1.uai.evid")
        for i, vector in enumerate(relational.marginals):
            zero = 0.0 if i in evidence else left if i < 250 else right
            assert vector == pytest.approx([zero, 1 - zero], rel=0, abs=1e-10)
        assert_distributions(relational.model, relational.node_marginals, relational.edge_marginals)

    def test_files_deviate(self, relational: InferenceResult, competition: Path) -> None:
        printed = np.concatenate(read_mar(competition / "relational_1.uai.MAR"))
        assert 3e-4 < np.abs(relational.node_marginals - printed).max() < 5e-4
        assert read_pr(competition / "relational_1.uai.PR") == pytest.approx(316.023)


def log_binomial(n: int, k: np.ndarray) -> np.ndarray:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
