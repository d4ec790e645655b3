"""For all tests of learning."""

from __future__ import annotations

import numpy as np
import pytest
from learning_models import draws, mixed_model


@pytest.fixture(scope="session")
def sample() -> np.ndarray:
    """Rows of a small model of variables of two to four states."""
    return draws(mixed_model(), 20_000)
