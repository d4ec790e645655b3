"""Competition instances, when they lie beside the repository."""

from __future__ import annotations

import math
import time

import numpy as np

from fastmix.io import read_evidence, read_mar, read_model, read_pr
from oracle.uai import assert_survives

SHAPES = {  # variables, edges
    "relational_1": (500, 62_500),
    "Grids_11": (100, 200),  # a torus
    "ObjectDetection_11": (60, 165),
}


def test_instances_load_with_their_answers(competition):
    paths = sorted(competition.glob("*.uai"))
    assert paths
    for path in paths:
        model = read_model(path)
        evidence = read_evidence(f"{path}.evid", model.num_states)
        if path.stem in SHAPES:
            assert (model.num_variables, model.num_edges) == SHAPES[path.stem]
        marginals = read_mar(f"{path}.MAR")
        assert [len(m) for m in marginals] == model.num_states.tolist()
        for i, marginal in enumerate(marginals):
            assert abs(marginal.sum() - 1) < 1e-4
            assert i not in evidence or marginal[evidence[i]] == 1
            assert (marginal[model.unary(i) == -np.inf] == 0).all()
        assert math.isfinite(read_pr(f"{path}.PR"))
        assert len(evidence) == (17 if path.stem == "relational_1" else 0)
        if model.num_edges < 1000:
            assert_survives(model, weights=False)


def test_relational_loads_fast(competition):
    begin = time.process_time()
    read_model(competition / "relational_1.uai")
    assert time.process_time() - begin < 1.0
