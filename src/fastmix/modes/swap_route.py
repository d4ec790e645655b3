"""Swap moves: the variables with one of two labels choose between these, all at once and best possible."""

from __future__ import annotations

import contextlib

from fastmix._clock import OutOfTimeError
from fastmix.errors import UnfitMethodError
from fastmix.modes.label_moves import best_swap, check_swap
from fastmix.modes.message_route import tighten
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import SHARE_OF_CHECK, SHARE_OF_EXPANSION

__all__ = ["SwapRoute"]


class SwapRoute:
    """Moves from the best configuration, for tables that prefer equal labels but are no metrics."""

    name = "swap"
    is_final = False

    def find(self, run: ModeRun) -> None:
        """Offer what swap moves lead to; an UnfitMethodError for other models, as of expansion moves."""
        run.clock.check()
        if not run.is_alone and "expansions" in run.moves:
            raise UnfitMethodError("after expansion moves there is hardly a swap left that is a gain")
        with contextlib.suppress(OutOfTimeError):
            check_swap(run.model, run.clock.part(SHARE_OF_CHECK))
        assert run.states is not None  # models that forbid something do not get here
        share = 1.0 if run.is_alone else SHARE_OF_EXPANSION
        states, num_moves = best_swap(run.model, run.states, run.clock.part(share))
        run.count("swaps", num_moves)
        run.offer(states)
        if run.is_alone:  # otherwise the search does this
            tighten(run)
