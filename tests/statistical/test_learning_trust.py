"""Scores of models with several modes, and sampled fits to few rows, against the truth; run by ``make verify``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fastmix import Status, score

sys.path.append(str(Path(__file__).resolve().parent.parent / "learning"))

from mode_models import draw_modes
from sampled_fits import fit_few_rows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

Tell = Callable[[str, str, str], None]


@pytest.mark.parametrize("part", range(20))
def test_no_mode_is_lost(part: int, tell: Tell) -> None:
    wrong, right, tried = [], 0, range(15 * part, 15 * part + 15)
    for seed in tried:
        case = draw_modes(1000 + seed)
        rows = case.rows[seed % len(case.rows)]
        found = score(case.model, rows, method="annealing", seed=seed, time_limit=60.0)
        far = abs(found.log_z - case.log_z) > 5.0 * found.log_z_std_error
        if found.status is Status.OK and far:
            wrong.append(seed)
        right += found.status is Status.OK and not far
    tell(
        "score by annealing",
        f"models of several modes, part {part}",
        f"{right} right and ok, {len(wrong)} wrong and ok, of {len(tried)}",
    )
    assert not wrong
    assert right >= 10


@pytest.mark.parametrize("part", range(6))
def test_sampled_fits_to_few_rows(part: int, tell: Tell) -> None:
    wrong, right, tried = [], 0, range(50 * part, 50 * part + 50)
    for seed in tried:
        found = fit_few_rows(seed)
        if found.status is Status.OK and found.gap > found.tol:
            wrong.append(seed)
        right += found.status is Status.OK and found.gap <= found.tol
    tell(
        "learn with sampled moments",
        f"3 to 10 rows, part {part}",
        f"{right} right and ok, {len(wrong)} wrong and ok, of {len(tried)}",
    )
    assert not wrong
    assert right >= 35
