"""A method of inference: draws of independent variables, weighted by the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import fastmix
from fastmix.method import Context


@fastmix.register_method
@dataclass(frozen=True)
class Importance(fastmix.Method):
    """Marginals and log Z from weighted draws of independent variables.

    Parameters
    ----------
    num_draws : int
        Draws. More of them make less error.
    """

    name: ClassVar[str] = "importance"
    guarantee: ClassVar[str] = "none: where couplings are strong, a few draws have all the weight"
    takes_factors: ClassVar[bool] = True
    gives_log_z: ClassVar[bool] = True

    num_draws: int = 10_000

    def run(self, model: fastmix.MarkovRandomField, context: Context) -> fastmix.InferenceResult:
        """The frequencies of states among the draws, each counted by its weight."""
        rng = context.rng("draws")
        states = np.zeros((self.num_draws, model.num_variables), dtype=np.int64)
        log_proposal = np.zeros(self.num_draws)
        for i in range(model.num_variables):
            probabilities = np.exp(model.unary(i) - np.logaddexp.reduce(model.unary(i)))
            states[:, i] = rng.choice(len(probabilities), size=self.num_draws, p=probabilities)
            log_proposal += np.log(probabilities)[states[:, i]]
            context.clock.report(i + 1, model.num_variables, "variables")

        log_weights = model.log_weight(states) - log_proposal
        log_sum = np.logaddexp.reduce(log_weights)
        weights = np.exp(log_weights - log_sum)
        marginals = [
            np.bincount(states[:, i], weights=weights, minlength=count) for i, count in enumerate(model.num_states)
        ]
        return fastmix.InferenceResult(
            model=model,
            method=self.name,
            node_marginals=np.concatenate([np.zeros(0), *marginals]),
            log_z=float(log_sum - np.log(self.num_draws)),
            log_z_kind="estimate",
        )
