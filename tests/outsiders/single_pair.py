"""A certificate: a pair of variables, whose spectral gap is that of a small matrix."""

from __future__ import annotations

import math

import numpy as np

import fastmix
from fastmix._clock import NO_LIMIT, Clock
from fastmix.theory.criterion import CriterionConstant


class SinglePair:
    """The gap of random updates of two variables, 1 less the correlation of the two."""

    name = "single-pair"

    def unfit(self, model: fastmix.MarkovRandomField) -> str | None:
        """Why not, for other models than one pair of variables."""
        return None if model.num_variables == 2 and model.num_edges == 1 else "is for one pair of variables"

    def find(self, model: fastmix.MarkovRandomField, *, clock: Clock = NO_LIMIT) -> CriterionConstant:
        """C = 1 / (1 - r), where r is the largest correlation of functions of the two variables."""
        del clock
        joint = np.exp(model.log_pairwise.reshape(model.num_states) + model.unary(0)[:, None] + model.unary(1))
        joint /= joint.sum()
        scaled = joint / np.sqrt(np.outer(joint.sum(axis=1), joint.sum(axis=0)))
        correlation = float(np.linalg.svd(scaled, compute_uv=False)[1])
        return CriterionConstant(-math.log(1.0 - correlation) + 1e-9, "variance", reason="by singular values")


fastmix.register_criterion(SINGLE_PAIR := SinglePair())
