"""Exact inference: the most probable configuration by a junction tree, where that fits memory and time."""

from __future__ import annotations

import numpy as np

from fastmix._clock import OutOfTimeError
from fastmix.errors import ModelError, ResourceError
from fastmix.exact.elimination import check_size, model_factors, plan_elimination
from fastmix.model.reduce import impossible
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.tuning import OVERRUN, SHARE_OF_DOUBTFUL_ELIMINATION, SHARE_OF_ELIMINATION, SHARE_OF_PLAN

__all__ = ["ExactRoute"]


class ExactRoute:
    """The most probable configuration by eliminating one variable after another."""

    name = "exact"
    is_final = True

    def find(self, run: ModeRun) -> None:
        """Settle the run; a ResourceError where elimination takes too much memory or time."""
        try:
            run.clock.check()
            self._eliminate(run)
        except OutOfTimeError:
            if run.is_alone:
                message = "exact inference takes longer than the time limit; allow more, or use method='search'"
                raise ResourceError(message) from None
            raise

    def _eliminate(self, run: ModeRun) -> None:
        """Plan the elimination, judge its estimated seconds, and carry it out."""
        model = run.model
        clock = run.clock
        check_size(model, run.memory_limit, clock.part(SHARE_OF_PLAN), model.num_variables)
        tree = plan_elimination(model_factors(model), memory_limit=run.memory_limit, clock=clock.part(SHARE_OF_PLAN))
        share = 1.0
        if not run.is_alone:
            if tree.seconds > OVERRUN * clock.left():
                raise ResourceError(f"exact inference takes about {tree.seconds:.2g} s, over the time limit")
            fits = tree.seconds <= clock.left()
            share = SHARE_OF_ELIMINATION if fits else SHARE_OF_DOUBTFUL_ELIMINATION
        try:
            _, states = tree.most_probable(clock.part(share))
        except ModelError as error:
            raise impossible(run.context.given) from error
        run.settle(np.asarray(states))
        run.count("eliminations")
        run.stats["treewidth"] = tree.treewidth
