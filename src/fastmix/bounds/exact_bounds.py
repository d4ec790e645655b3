"""Bounds by exact inference, where that fits memory and time: nothing but rounding is between them."""

from __future__ import annotations

import numpy as np

from fastmix.bounds.bracket_run import BracketRun
from fastmix.bounds.marginal_bounds import outwards
from fastmix.bounds.reduced_tables import ReducedTables
from fastmix.bounds.tuning import SHARE_OF_EXACT, SHARE_OF_PLAN
from fastmix.bounds.upper_bound import crude_upper
from fastmix.errors import ResourceError
from fastmix.exact import plan_exact
from fastmix.model.rounding import log_size, rounding

__all__ = ["ExactBounds"]


class ExactBounds:
    """Bounds by the junction tree; for models without factors by the sums over the states of every variable."""

    name = "exact"

    def find(self, run: BracketRun) -> None:
        """Settle the run; a ResourceError where exact inference takes too much memory or time."""
        tables = run.reduce()
        if tables.is_product:
            self._settle_product(run, tables)
        else:
            self._settle_tree(run, tables)

    def _settle_product(self, run: BracketRun, tables: ReducedTables) -> None:
        """Settle the run of a model whose variables are independent."""
        upper, log_weights = crude_upper(tables)
        error = rounding(tables.num_tables + max(tables.num_states, default=0), tables.size)
        p = np.exp(log_weights - upper)
        run.settle(self.name, (upper - 2.0 * error, upper), *outwards(p, p, 2.0 * error))

    def _settle_tree(self, run: BracketRun, tables: ReducedTables) -> None:
        """Settle the run by a junction tree."""
        model = tables.reduction.model
        clock = run.clock
        plan = plan_exact(model, memory_limit=run.memory_limit, clock=clock.part(SHARE_OF_PLAN), reduced=True)
        if plan.seconds > SHARE_OF_EXACT * clock.left():
            raise ResourceError(
                f"exact inference takes about {plan.seconds:.2g} s, over the time limit; allow a longer time_limit, or "
                "use method='split'"
            )
        # Where the estimate was wrong there is time left for something else.
        answer = plan.run(clock.part(SHARE_OF_EXACT), edge_marginals=False)
        assert answer.log_z is not None
        error = rounding(3.0 * model.num_parameters, log_size(model))
        log_z = (answer.log_z - error, answer.log_z + error)
        p = answer.node_marginals
        lower, upper = outwards(p, p, rounding(3.0 * model.num_parameters, 0.0) + 2.0 * error)
        run.settle(self.name, log_z, lower, upper)
        run.stats["treewidth"] = plan.elimination.treewidth
