from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run: a failure is a change of the code, not of the weather.
settings.register_profile("fastmix", derandomize=True, deadline=None)
settings.load_profile("fastmix")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the data files that are kept beside the repository; the test is skipped without it."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the data folder ../shared/data beside the repository")
    return path
