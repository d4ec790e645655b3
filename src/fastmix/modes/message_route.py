"""Messages that bound the log-weight from above and lead to configurations, for models of pairs."""

from __future__ import annotations

import math

from fastmix.errors import UnfitMethodError
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import DUAL_WINDOW, LEAST_DUAL_GAIN, LEAST_GAP_SHARE, MAX_DUAL_PASSES, SHARE_OF_MESSAGES

__all__ = ["MessageRoute", "tighten"]


class MessageRoute:
    """Sequential tree-reweighted message passing (Kolmogorov 2006); expansion moves and a search go on from there."""

    name = "messages"
    is_final = False

    def find(self, run: ModeRun) -> None:
        """Offer what messages lead to, and their bound; an UnfitMethodError for models with larger factors."""
        run.clock.check()
        if run.model.num_factors:
            raise UnfitMethodError("messages need a model of pairs, without factors over three or more variables")
        tighten(run, share=1.0 if run.is_alone else SHARE_OF_MESSAGES)


def tighten(run: ModeRun, *, share: float = 1.0, to_the_end: bool = False) -> None:
    """Lower the upper bound of a run by passes of messages, and offer the configurations that they lead to.

    Messages go on from where they stand. A window of passes that hardly changes the gap is the last one; with
    ``to_the_end``, one that does not change it.
    """
    if run.model.num_factors or run.is_over:
        return
    clock = run.clock.part(share)
    messages = run.dual_messages
    before = (math.inf, -math.inf)
    for number in range(1, MAX_DUAL_PASSES + 1):
        bound = messages.make_pass(forward=True, clock=clock)
        run.offer_from_messages()
        bound = min(bound, messages.make_pass(forward=False, clock=clock))
        run.offer_from_messages()
        run.lower_bound(bound, messages.rounding)
        run.count("passes")
        clock.report(number, MAX_DUAL_PASSES, "passes")
        if run.is_over or clock.past():
            break
        if number % DUAL_WINDOW == 0:
            now = (run.upper_bound, run.log_weight)
            if now == before or not (to_the_end or _moves(before, now)):
                break
            before = now


def _moves(before: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether a window of passes, between which bound and log-weight are these, is reason for another one."""
    gain = before[0] - now[0]
    if now[1] == -math.inf:
        return gain > LEAST_DUAL_GAIN * max(1.0, abs(now[0]))
    return gain + (now[1] - before[1]) > LEAST_GAP_SHARE * (now[0] - now[1])
