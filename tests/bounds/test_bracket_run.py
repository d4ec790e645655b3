"""What methods offer to a run: every bound holds, and none undoes an earlier one."""

from __future__ import annotations

from typing import Any

import pytest
from bounds_models import left_of, random_small, truth

import fastmix
from fastmix.bounds.bracket_run import BracketRun
from fastmix.model.forms import move_constants


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_never_looser_than_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound that is found on the way holds, and none undoes an earlier one."""
    model = random_small(seed, forbidden=False)
    log_z, by_state = truth(model)
    by_state = by_state - move_constants(model, unseen=0.0, of_spread=2.0).log_constant  # as bounds are computed
    found: list[tuple[float, float]] = []
    plain = BracketRun.offer

    def offer(run: BracketRun, name: str, **given: Any) -> bool:
        changed = plain(run, name, **given)
        found.append(run.log_z)
        slack = 1e-12 * (1.0 + abs(log_z))
        assert (run.log_weights[0] <= left_of(run.reduce(), by_state) + slack).all()
        assert (run.log_weights[1] >= left_of(run.reduce(), by_state) - slack).all()
        return changed

    monkeypatch.setattr(BracketRun, "offer", offer)
    result = fastmix.bracket(model, memory_limit=64, time_limit=0.3, seed=seed)
    assert [low for low, _ in found] == sorted(low for low, _ in found)
    assert [high for _, high in found] == sorted((high for _, high in found), reverse=True)
    if found and not result.exact:
        assert result.gap <= (found[-1][1] - found[-1][0]) * (1.0 + 1e-9) + 1e-9
