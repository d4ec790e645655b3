"""Log Z for scores: how annealing uses the time it has."""

from __future__ import annotations

import numpy as np
import pytest

from contexts import context_of
from fastmix import MarkovRandomField
from fastmix._clock import Clock
from fastmix.exact.enumeration import enumerate_model
from fastmix.graphs import complete_edges
from fastmix.learning import log_z, read_data


class Ticking(Clock):
    """A clock on which every look takes as long."""

    looks = 0

    def used(self) -> float:
        self.looks += 1
        return 0.05 * self.looks


@pytest.mark.parametrize("limit", [45.0, 100.0])
def test_a_first_round_is_as_long_as_there_is_time(limit: float) -> None:
    model = MarkovRandomField.potts(complete_edges(7), coupling=0.5, num_states=3)
    data = read_data(np.zeros((5, 7), dtype=np.int64), num_states=3)
    context = context_of(clock=Ticking(limit))
    found = log_z.log_normalizer(model, data, context, method="annealing", tol=1e-4, num_chains=256)
    assert found.kind == "estimate"
    assert found.std_error < 1.0
    truth = enumerate_model(model).log_z
    assert abs(found.log_z - truth) < 5.0 * found.std_error
