"""Where replica exchange runs, on machines without a device."""

from __future__ import annotations

import pytest

from fastmix import UnfitMethodError, infer, temper
from fastmix.chains.cuda.device import cuda_available
from fastmix.instances import ising_grid

MODEL = ising_grid(3, 3, coupling_max=1.0, seed=0)
RUN = {"num_sweeps": 50, "burn_in": 20, "num_ensembles": 4, "seed": 0}


def test_backend_must_be_known():
    with pytest.raises(ValueError, match="backend must be cpu, cuda or auto, got 'gpu'"):
        temper(MODEL, backend="gpu", **RUN)


@pytest.mark.skipif(cuda_available()[0], reason="there is a device")
def test_without_a_device():
    with pytest.raises(UnfitMethodError, match="backend must be cpu here, got cuda: "):
        temper(MODEL, backend="cuda", **RUN)
    with pytest.raises(UnfitMethodError, match="backend must be cpu here, got cuda: "):
        infer(MODEL, method="tempered", backend="cuda")
    plain, fallen_back = temper(MODEL, **RUN), temper(MODEL, backend="auto", **RUN)
    assert (plain.node_marginals == fallen_back.node_marginals).all()
    assert plain.stats["backend"] == "cpu"
    assert fallen_back.stats["backend"].startswith("cpu (backend must be cpu here, got cuda: ")
