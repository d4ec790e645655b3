"""A bracket: every table between its smallest and its largest entry."""

from __future__ import annotations

import numpy as np

import fastmix
from fastmix.bounds.bracket_run import BracketRun
from fastmix.model.rounding import log_size, rounding


class LargestEntries:
    """Bounds on log Z from independent variables, as if every table were constant."""

    name = "largest-entries"

    def find(self, run: BracketRun) -> None:
        """Offer the sum of the largest entries of all tables above, and that of the smallest ones below."""
        model = run.reduced_model
        parts = [model.unary(i) for i in range(model.num_variables)]
        independent = model.log_constant + sum(float(np.logaddexp.reduce(part)) for part in parts)
        tables = np.split(model.log_pairwise, model.pairwise_offsets[1:-1]) if model.num_edges else []
        factors = np.split(model.log_factors, model.factor_offsets[1:-1]) if model.num_factors else []
        smallest = sum(float(table.min()) for table in [*tables, *factors])
        largest = sum(float(table.max()) for table in [*tables, *factors])
        error = rounding(model.num_parameters, log_size(model))
        run.offer(self.name, lower=independent + smallest - error, upper=independent + largest + error)


fastmix.register_bracket(LARGEST_ENTRIES := LargestEntries())
