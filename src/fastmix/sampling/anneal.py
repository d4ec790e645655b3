"""Population annealing: chains whose couplings grow from nothing to those of the model.

Attractive models have Swendsen-Wang sweeps, all others Gibbs sweeps. Fields that pull a strongly coupled picture both
ways freeze its regions, for cluster moves as for single updates: chains from different starts never meet. Annealing
takes every chain through the models in which the regions still move, and resampling keeps as many chains in each valley
as it deserves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_count, check_flag
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix._memory import check_memory
from fastmix._signatures import takes_options
from fastmix.chains.conditionals import check_conditionals
from fastmix.marginals import DrawResult, InferenceResult, expand_states
from fastmix.method import Context, Method, run_method, with_options
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.attractive import is_attractive
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.modes.descents import find_modes
from fastmix.results import Status
from fastmix.sampling.annealed_errors import (
    combine_populations,
    entropy_bound,
    excess_of_modes,
    known_probabilities,
    proven_bound,
    with_shortfall,
    with_unseen,
)
from fastmix.sampling.populations import Populations
from fastmix.sampling.starts import check_starts
from fastmix.sampling.tuning import DISAGREEMENT, MODES_SHARE_OF_ANNEALING, RESAMPLING_SPREAD

__all__ = ["Annealed", "AnnealedResult", "anneal"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AnnealedResult(InferenceResult):
    """Marginals from annealed populations."""

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_MIXED: (
            "The populations disagree, or miss what is known: take more chains, more steps or more sweeps per step."
        )
    }

    #: Standard error of every probability (as ``model.log_unary``), from the differences between populations, with what
    #: as many sweeps may never have met.
    std_error: FloatArray
    #: (num_populations,), how much each population counts, as the logarithm of its estimate of Z over that of
    #: independent variables; zeros where all count alike.
    log_weights: FloatArray
    states: IntArray  #: (num_populations * num_chains, n), where the chains ended

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model, where the chains ended included."""
        return {**super().expansion(reduction), "states": expand_states(reduction, self.states)}


@dataclass(frozen=True, kw_only=True)
class Annealed(Method):
    """Population annealing, with Swendsen-Wang sweeps of attractive models and Gibbs sweeps of all others.

    Parameters
    ----------
    num_populations : int
        Independent populations of chains, at least 2. The error is told from their differences.
    num_chains : int
        Chains of every population, at least 2.
    num_steps : int
        About how many steps annealing takes. They are shorter where the energy of the couplings varies more.
    sweeps_per_step : int
        Sweeps after every step.
    resample : bool, optional
        Whether chains are resampled; where that helps by default. It does where a step changes the logarithms of the
        weights by a standard deviation of 1 at most: beyond, as in pictures of a hundred thousand pixels, a few chains
        would all descend from one. Without resampling this is plain annealing from independent starts, and has no
        ``log_z``.
    num_sweeps : int, optional
        Sweeps averaged at the end; half of those on the way by default.
    """

    name: ClassVar[str] = "annealed"
    guarantee: ClassVar[str] = "exact in the limit of many chains and small steps; the standard errors are estimates"
    takes_factors: ClassVar[bool] = True
    gives_log_z: ClassVar[bool] = True

    num_populations: int = 4
    num_chains: int = 8
    num_steps: int = 150
    sweeps_per_step: int = 8
    resample: bool | None = None
    num_sweeps: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("num_populations", 2), ("num_chains", 2), ("num_steps", 1), ("sweeps_per_step", 1)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least=least))
        if self.resample is not None:
            object.__setattr__(self, "resample", check_flag("resample", self.resample))
        if self.num_sweeps is not None:
            object.__setattr__(self, "num_sweeps", check_count("num_sweeps", self.num_sweeps, least=1))

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """The reduction by evidence; forbidden states stay in attractive models, whose clusters need equal counts."""
        kept = reduce_model(model, evidence, drop_forbidden=False, clock=clock)
        if is_attractive(kept.model):
            return kept
        return reduce_model(model, evidence, clock=clock)

    def check(self, model: MarkovRandomField) -> None:
        """Every conditional distribution must be defined, and a start be found."""
        if not is_attractive(model):
            check_conditionals(model)
            check_starts(model)

    def run(self, model: MarkovRandomField, context: Context) -> AnnealedResult:
        """Marginals of the populations, with a verdict on whether they agree.

        1. Anneal: strengthen the couplings step by step.
        2. Average over sweeps at the model itself.
        3. Estimate log Z and the errors, with what known configurations prove.
        4. Judge, and leave out what is then not to be believed.
        """
        clock = context.clock
        num_chains = self.num_populations * self.num_chains
        required = 48.0 * num_chains * max(1, model.num_variables)
        check_memory(required, f"num_populations times num_chains, {num_chains},", "run fewer or smaller populations")
        modes = find_modes(model, rng=context.rng("modes"), clock=clock.part(MODES_SHARE_OF_ANNEALING))
        populations = Populations(model, self.num_populations, self.num_chains, context)

        # 1. Anneal.
        step = math.sqrt(populations.variance) / self.num_steps
        resampled = (step <= RESAMPLING_SPREAD or context.log_z) if self.resample is None else bool(self.resample)
        hurried = self._anneal(populations, step, resampled)

        # 2. Average.
        wanted = self.num_sweeps or max(1, populations.sweeps // 2)
        sums, num_averaged, stopped_by = populations.collect(wanted)
        if not num_averaged:
            context.raise_nothing(stopped_by)
        sums /= num_averaged  # in place: they are the largest array of all
        averages = sums.reshape(len(sums), self.num_populations, self.num_chains)
        mean, error = combine_populations(averages, populations.annealing.log_ratio)

        # 3. Estimate.
        log_weights = populations.log_weights()
        log_z: float | None = None
        log_z_error: float | None = None
        if resampled and populations.knows_start:
            log_z, log_z_error = populations.log_z()
        if error.size and not clock.past():
            bound = float(log_weights.mean()) + entropy_bound(mean) if log_z is None else log_z
            error = with_shortfall(model, mean, error, known_probabilities(model, modes, bound))
        disagreement = float(error.mean()) if error.size else 0.0
        error = with_unseen(model, mean, error, num_chains, num_averaged)

        # 4. Judge.
        status, note = _judge(disagreement, excess_of_modes(model, modes, mean, log_weights))
        if status != Status.OK:  # populations that have not met can agree on any number
            log_z = None
            log_z_error = None
        if stopped_by == "interrupt":
            status = Status.INTERRUPTED
        if stopped_by == "done" and hurried:
            stopped_by = "time_limit"
        lower = proven_bound(model, modes)
        states = populations.engine.get_states()
        return AnnealedResult(
            model=model,
            method=self.name,
            status=status,
            node_marginals=mean,
            edge_marginals=DrawResult.pair_frequencies(model, states) if context.edge_marginals else None,
            log_z=log_z,
            log_z_kind="estimate" if log_z is not None else "unknown" if lower is None else "bound",
            log_z_std_error=log_z_error,
            log_z_lower=lower,
            stats={
                "num_steps": populations.steps,
                "num_sweeps": populations.sweeps,
                "num_updates": populations.sweeps * populations.updates,
                "mean_std_error": float(error.mean()) if error.size else 0.0,
                "stopped_by": stopped_by,
                "note": note,
            },
            provenance={"options": {"resample": resampled}},
            std_error=error,
            log_weights=populations.annealing.log_ratio,
            states=states,
        )

    def _anneal(self, populations: Populations, step: float, resampled: bool) -> bool:
        """Whether the time limit asked for fewer sweeps or larger steps on the way to the model."""
        clock = populations.clock
        planned = math.ceil(1.5 * self.num_steps * self.sweeps_per_step)
        hurried = False
        while populations.scale < 1.0:
            hurried |= populations.strengthen(step, self.sweeps_per_step, resample=resampled)
            done = populations.sweeps
            speed = done * populations.updates / max(clock.used(), 1e-9)
            clock.report(done, max(done, planned), "sweeps", per_second=speed)
        return hurried


def _judge(disagreement: float, excess: float) -> tuple[Status, str]:
    """The verdict by how far populations differ and by how much known configurations outweigh theirs, and why."""
    if disagreement > DISAGREEMENT:
        return Status.NOT_MIXED, "populations disagree: more chains, smaller steps"
    if excess > 0.0:
        missed = f"all chains miss configurations that outweigh theirs by a factor of exp({excess:.3g})"
        return Status.NOT_MIXED, f"{missed}: smaller steps"
    return Status.OK, "populations agree"


@takes_options(Annealed)
def anneal(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
    **options: Any,
) -> AnnealedResult:
    """Marginals and log Z by population annealing, with Swendsen-Wang sweeps where the model is attractive.

    The models ``p_s(x) ~ exp(sum_i u_i(x_i) + s sum_ij T_ij(x_i, x_j))`` (and s times the factors over more variables)
    lead from independent variables (s = 0) to the
    model (s = 1). At every step to s' the chains of a population are resampled in proportion to
    ``exp((s' - s) sum_ij T_ij)`` and then swept. At s = 1 marginals are averaged over sweeps, and populations count in
    proportion to the product of their mean weights, which is an unbiased estimate of Z over the known normalizer at
    s = 0: ``log_z`` is the logarithm of the mean. More chains or smaller steps make less error.

    Parameters
    ----------
    model : MarkovRandomField
        Any. Attractive Ising and Potts models have cluster moves; models in which pairs are forbidden keep these on the
        way, and have no ``log_z``. Models of many valleys need hundreds of chains: ``num_chains=500``.
    **options
        Those of :class:`fastmix.Annealed`.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default averaging stops. Where the time does not suffice,
        annealing makes fewer sweeps per step, and then larger steps.

    Returns
    -------
    AnnealedResult
        Status ``not_mixed`` when the populations disagree, or when known configurations outweigh all that they visit;
        there is no ``log_z`` then, and ``log_z_lower`` is what known configurations prove.
        Costs ``1.5 num_steps sweeps_per_step`` sweeps of every chain.

    Raises
    ------
    UnfitMethodError
        If some conditional distribution is undefined.

    References
    ----------
    Hukushima and Iba, "Population annealing and its application to a spin glass", AIP Conf. Proc. 690 (2003).
    Machta, "Population annealing with weighted averages", Phys. Rev. E 82 (2010).

    Examples
    --------
    >>> from fastmix import infer
    >>> from fastmix.instances import ising_grid
    >>> model = ising_grid(4, 4, coupling_max=2.0, attractive=True, seed=0)
    >>> result = anneal(model, num_chains=50, seed=1)
    >>> exact = infer(model, method="exact")
    >>> bool(abs(result.log_z - exact.log_z) < 4 * result.log_z_std_error)
    True
    >>> bool(abs(result.node_marginals - exact.node_marginals).max() < 0.05)
    True
    """
    result: AnnealedResult = run_method(
        with_options(Annealed, options),
        model,
        evidence=evidence,
        seed=seed,
        num_threads=num_threads,
        time_limit=time_limit,
        progress=progress,
    )
    return result
