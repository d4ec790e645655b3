"""A minimum cut: exact for binary models of any size whose couplings can all be satisfied at once."""

from __future__ import annotations

from fastmix.modes.cuts import cut_states
from fastmix.modes.mode_run import ModeRun

__all__ = ["CutRoute"]


class CutRoute:
    """The most probable configuration as a minimum cut between two terminals."""

    name = "cut"
    is_final = True

    def find(self, run: ModeRun) -> None:
        """Offer the states on the two sides of the cut; an UnfitMethodError for other models."""
        run.clock.check()
        states, missed = cut_states(run.model, run.clock)
        log_weight = run.offer(states)
        run.lower_bound(log_weight + missed, 0.0)
        run.count("cuts")
        run.stats["rounding"] = missed
