"""The likelihood as an objective: with exact moments of the model, or with moments that have to be sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fastmix._arrays import FloatArray
from fastmix._checks import check_choice
from fastmix._context import Context
from fastmix.chains.cuda.device import cuda_available
from fastmix.errors import ResourceError
from fastmix.learning.coordinates import Coordinates
from fastmix.learning.data_moments import DataTerm
from fastmix.learning.dataset import Dataset
from fastmix.learning.log_z import log_normalizer
from fastmix.learning.masses import least_log_masses
from fastmix.learning.model_moments import exact_model_term
from fastmix.learning.objective import LearningObjective, Loss, Validation, register_objective
from fastmix.learning.tuning import (
    ANNEALED_CHAINS,
    DEVICE_ANNEALED_CHAINS,
    ROUGH_VALIDATION_ERROR,
    VALIDATION_ERROR,
)
from fastmix.model import MarkovRandomField
from fastmix.results import Status

__all__ = ["ExactLikelihood", "Likelihood"]


@register_objective
@dataclass(frozen=True)
class Likelihood(LearningObjective):
    """Minus the mean over the rows of ``log p(x)``, missing and hidden values summed over.

    ``moments`` of the model are exact where the model is small or of low treewidth, else sampled; or as is asked for.
    """

    name: ClassVar[str] = "likelihood"
    moments: str = "auto"

    def __post_init__(self) -> None:
        check_choice("moments", self.moments, ("auto", "exact", "sampled", "tempered"))

    def start(self, coordinates: Coordinates, data: Dataset, context: Context) -> Loss | None:
        """The likelihood with exact moments, or None where they are to be sampled."""
        if self.moments in ("sampled", "tempered"):
            return None
        try:
            term = exact_model_term(coordinates, asked=self.moments == "exact", clock=context.clock)
            return ExactLikelihood(term, DataTerm(coordinates, data, clock=context.clock))
        except ResourceError:
            if self.moments == "exact":
                raise
            return None

    def validate(
        self, model: MarkovRandomField, data: Dataset, validation: Dataset, context: Context, *, rough: bool
    ) -> Validation:
        """The mean log-likelihood of the validation data, unknown where there is no memory or time for log Z.

        Missing values with too many joint states are summed over by a lower bound.
        """
        on_device = context.backend != "cpu" and cuda_available()[0]
        try:
            answer = log_normalizer(
                model,
                data,
                context.within("validation"),
                tol=ROUGH_VALIDATION_ERROR if rough else VALIDATION_ERROR,
                num_chains=DEVICE_ANNEALED_CHAINS if on_device else ANNEALED_CHAINS,
            )
        except ResourceError:  # the model matters more
            return Validation()
        if answer.kind == "bound":
            return Validation()
        log_z = answer.log_z
        if answer.status is Status.NOT_MIXED and answer.bracket is not None:  # no score is better than it may be
            log_z = max(log_z, *answer.bracket)
        masses, is_bound = least_log_masses(model, validation)
        value = float(validation.weights @ masses) - log_z
        stats: dict[str, Any] = {"validation_std_error": answer.std_error, "log_z_method": answer.method}
        if is_bound:
            stats["validation_is_bound"] = True
        return Validation(value, stats, interrupted=answer.status is Status.INTERRUPTED)


class ExactLikelihood(Loss):
    """Minus the mean log-likelihood of the data, with exact moments of the model."""

    compares_moments = True

    def __init__(self, model_term: Loss, data_term: DataTerm) -> None:
        self.coordinates = model_term.coordinates
        self.method = model_term.method
        self.model_term = model_term
        self.data_term = data_term

    def evaluate(self, v: FloatArray) -> tuple[float, FloatArray]:
        """The value at v and its derivative: moments of the model less those of the data."""
        log_z, moments = self.model_term.evaluate(v)
        weight, observed = self.data_term.evaluate(v)
        return log_z - weight, moments - observed
