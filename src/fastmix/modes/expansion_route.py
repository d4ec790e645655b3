"""Expansion moves: all variables keep their labels or take a given one, all at once and best possible."""

from __future__ import annotations

import contextlib

from fastmix._clock import OutOfTimeError
from fastmix.modes.label_moves import best_expansion, check_expansion
from fastmix.modes.message_route import tighten
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import SHARE_OF_CHECK, SHARE_OF_EXPANSION

__all__ = ["ExpansionRoute"]


class ExpansionRoute:
    """Moves from the best configuration, for several labels whose tables are metrics; a search goes on from there."""

    name = "expansion"
    is_final = False

    def find(self, run: ModeRun) -> None:
        """Offer what expansion moves lead to; an UnfitMethodError for other models.

        Tables that there was no time to check count as metrics. A move is only made if it is a gain, so that this
        decides how good the moves are and nothing else.
        """
        run.clock.check()
        with contextlib.suppress(OutOfTimeError):
            check_expansion(run.model, run.clock.part(SHARE_OF_CHECK))
        assert run.states is not None  # models that forbid something do not get here
        share = 1.0 if run.is_alone else SHARE_OF_EXPANSION
        states, num_moves = best_expansion(run.model, run.states, run.clock.part(share))
        run.count("expansions", num_moves)
        run.offer(states)
        if run.is_alone:  # otherwise the search does this
            tighten(run)
