"""A route to the most probable state: all configurations, one after another."""

from __future__ import annotations

import numpy as np

import fastmix
from fastmix.modes.mode_run import ModeRun


class AllStates:
    """Enumeration of a small model."""

    name = "all-states"
    is_final = True

    def find(self, run: ModeRun) -> None:
        """Settle the run by the best of all configurations."""
        states = np.array(list(np.ndindex(*run.model.num_states.tolist())))
        run.settle(states[run.model.log_weight(states).argmax()])
        run.count("enumerations")


fastmix.register_route(ALL_STATES := AllStates())
