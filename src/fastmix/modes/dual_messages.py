"""Upper bounds on the log-weight by messages: sequential tree-reweighted message passing (Kolmogorov 2006)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastmix.model.flat import offsets_of
from fastmix.modes.descents import SearchArrays
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import DUAL_ROUNDING, LEAST_DUAL_GAIN

__all__ = ["DualMessages", "tighten"]


class DualMessages:
    """The messages between the variables of a model of pairs, all 0 at first.

    Attributes
    ----------
    values : float array
        The messages to all variables, one vector after another.
    states : int array (n,)
        The configuration that the last forward pass has led to.
    largest : float
        The largest log-potential, by magnitude.
    """

    def __init__(self, arrays: SearchArrays) -> None:
        indptr = arrays.indptr
        neighbors = arrays.neighbors
        num_states = arrays.num_states
        num_variables = len(num_states)
        owner = np.repeat(np.arange(num_variables), np.diff(indptr))
        reverse = np.empty(len(neighbors), dtype=np.int64)
        reverse[np.lexsort((owner, neighbors))] = np.lexsort((neighbors, owner))
        starts = offsets_of(num_states[owner])
        self.values = np.zeros(int(starts[-1]))
        self.states = np.zeros(num_variables, dtype=np.int64)
        self.largest = max(float(np.abs(entries).max(initial=0.0)) for entries in (arrays.tables, arrays.unary))
        belief = np.empty(int(num_states.max(initial=1)))
        self._arguments: tuple[NDArray[Any], ...] = (
            *arrays[:-1], reverse, starts, self.values, self.states, belief,
        )  # fmt: skip

    def make_pass(self, *, forward: bool) -> float:
        """The upper bound on the log-weight, without the constant, after messages in one direction."""
        from fastmix.modes.descent_kernels import dual_pass

        return float(dual_pass(forward, *self._arguments))


def tighten(run: ModeRun, num_passes: int) -> None:
    """Lower the upper bound of a run by passes of messages, and offer the configurations that they lead to."""
    if run.model.num_factors or run.is_over:
        return
    messages = DualMessages(run.arrays)
    # Sums of as many terms as there are messages, each rounded.
    rounding = DUAL_ROUNDING * len(messages.values) * (1.0 + messages.largest)
    previous = np.inf
    for k in range(num_passes):
        if run.clock.past():
            break
        messages.make_pass(forward=True)
        run.offer(messages.states)
        bound = messages.make_pass(forward=False) + run.model.log_constant
        run.lower_bound(bound, rounding)
        run.count("passes")
        run.clock.report(k + 1, num_passes, "passes")
        if run.is_over or previous - bound < LEAST_DUAL_GAIN * max(1.0, abs(bound)):
            break
        previous = bound
