"""The rules by which ``auto`` chooses a method for a model; docs/choosing.md explains them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix._context import DEFAULT_SECONDS
from fastmix._memory import format_bytes
from fastmix.errors import ResourceError
from fastmix.exact import ExactPlan, plan_exact
from fastmix.inference.exact import Exact
from fastmix.inference.tuning import (
    COUNTING_PATIENCE,
    DEPENDENCY_SHARE,
    EXACT_ESTIMATE_SHARE,
    HARD_SHARE,
    MANY_NEIGHBORS,
    MAX_COUNTED_VARIABLES,
    MAX_WIDTH_VARIABLES,
    SECONDS_PER_DEPENDENCY,
    STRONG_DEPENDENCIES,
    TEMPERED_EXCESS,
    TEMPERED_SHARE,
    UPDATES_PER_SECOND,
    WEAK_DEPENDENCIES,
    WIDE_UNARIES,
    WIDE_UNARIES_OF_TWO_STATES,
)
from fastmix.method import Method
from fastmix.model import MarkovRandomField
from fastmix.sampling.tuning import MAX_BURN_IN, MAX_TEMPERED_STATES, NUM_SWEEPS

__all__ = ["Choice", "choose", "choose_approximate", "choose_counting"]


@dataclass(frozen=True, eq=False)
class Choice:
    """A method for a model, and the reason for it.

    Attributes
    ----------
    chosen : Method
    reason : str
        In a sentence.
    plan : ExactPlan or None
        The elimination that was planned, where the method is exact inference.
    trial : Method or None
        Another method, which is taken instead if it says ``ok`` after a share of the time.
    """

    chosen: Method
    reason: str
    plan: ExactPlan | None = None
    trial: Method | None = None


def choose(model: MarkovRandomField, memory_limit: float | None, clock: Clock, log_z: bool) -> Choice:
    """The method that fits a model: exact inference where memory and time suffice, otherwise an approximate one.

    With ``log_z`` the method must have a log Z. The model has been reduced by the evidence.
    """
    allowed = EXACT_ESTIMATE_SHARE * (clock.limit or DEFAULT_SECONDS)
    try:
        plan = plan_exact(model, memory_limit=memory_limit, clock=Clock(allowed), reduced=True)
    except ResourceError as error:
        if error.required_bytes is None:
            too_much = f"exact inference would take more than {allowed:.2g} s"
        else:
            too_much = f"exact inference would need {format_bytes(error.required_bytes)}"
        return choose_approximate(model, too_much, clock, log_z)
    treewidth = plan.elimination.treewidth
    if plan.seconds <= allowed:
        reason = f"treewidth {treewidth} is small enough for exact inference"
        return Choice(Exact(memory_limit=memory_limit), reason, plan)
    too_much = f"exact inference would take about {plan.seconds:.2g} s (treewidth {treewidth})"
    return choose_approximate(model, too_much, clock, log_z)


def choose_counting(model: MarkovRandomField, memory_limit: float | None) -> Choice | None:
    """The model counter, for a model of many zeros and few weights whose treewidth is too large; None for others.

    A counter gains by what is forbidden; where most weights differ it enumerates what exact inference adds up.
    """
    from fastmix.inference.ganak import Ganak

    counter = Ganak(memory_limit=memory_limit, patience=COUNTING_PATIENCE)
    num_tables = model.num_edges + model.num_factors
    if not num_tables or not model.has_forbidden or model.num_variables > MAX_COUNTED_VARIABLES:
        return None
    if model.shared_tables is not None or counter.fits(model) is not None:
        return None
    entries = np.concatenate([model.log_pairwise, model.log_factors])
    ends = np.append(model.pairwise_offsets[:-1], model.pairwise_offsets[-1] + model.factor_offsets)
    share = float((np.minimum.reduceat(entries, ends[:-1]) == -np.inf).mean())
    if share < HARD_SHARE:
        return None
    table = np.repeat(np.arange(num_tables), np.diff(ends))
    allowed = entries > -np.inf
    num_weights = len(np.unique(np.stack([table[allowed], entries[allowed]]), axis=1).T) - num_tables
    if num_weights > model.num_variables:
        return None
    return Choice(counter, f"{share:.0%} of the tables forbid something, and there are few weights to count with")


def choose_approximate(model: MarkovRandomField, too_much: str, clock: Clock, log_z: bool) -> Choice:
    """The approximate method that fits a model; ``too_much`` says why exact inference does not.

    1. Where log Z is asked for: a method that estimates it.
    2. Where large factors leave no time for sampling: loopy belief propagation.
    3. Where a certificate says that Gibbs sampling mixes: that.
    4. Where some conditional distribution is undefined: loopy belief propagation.
    5. Otherwise a sampler by size, strength and sign of the couplings.
    """
    # 1. Log Z.
    if log_z:
        return _choose_with_log_z(model, too_much)

    from fastmix.sampling.sample import Gibbs
    from fastmix.theory.dependency import edge_dependencies
    from fastmix.variational.loopy_bp import LoopyBP

    # 2. Large factors.
    if _dependency_seconds(model) > DEPENDENCY_SHARE * clock.left():
        return Choice(LoopyBP(), f"{too_much}, and the factors are so large that there is no time to sample")

    # 3. Certificates.
    dependencies = edge_dependencies(model, clock=clock.part(DEPENDENCY_SHARE))
    strength = _per_variable(model, dependencies.max(axis=1, initial=0.0))
    least_strength = _per_variable(model, dependencies.min(axis=1, initial=np.inf))
    certified, size = _choose_certified(model, too_much, strength, least_strength, clock)
    if certified is not None:
        return certified

    # 4. Undefined conditional distributions.
    undefined = Gibbs().fits(model)
    if undefined is not None:
        return Choice(LoopyBP(), f"{too_much}, and {undefined}")

    # 5. Samplers without a certificate.
    slow = f"{too_much}, and Gibbs sampling is not certified to mix ({size})"
    return _choose_sampler(model, slow, clock.limit or DEFAULT_SECONDS, strength)


def _choose_with_log_z(model: MarkovRandomField, too_much: str) -> Choice:
    """A method that returns log Z; replica exchange has none for models with forbidden pairs."""
    from fastmix.sampling.tempering.temper import Tempered
    from fastmix.variational.loopy_bp import LoopyBP

    tempered = Tempered()
    if not model.has_forbidden and tempered.fits(model) is None:
        return Choice(tempered, f"{too_much}, and replica exchange estimates log Z")
    return Choice(LoopyBP(), f"{too_much}, and replica exchange has no log Z of a model with forbidden pairs")


def _choose_certified(
    model: MarkovRandomField, too_much: str, strength: float, least_strength: float, clock: Clock
) -> tuple[Choice | None, str]:
    """Gibbs sampling with a certified burn-in, or None, and the dependencies of the model as far as they are known.

    ``least_strength`` counts the weaker direction of every edge. The spectral radius of the dependency matrix R is at
    least the mean sum of a row of any symmetric matrix below it: above 1 no bound on the bias goes to 0 sweep by sweep,
    and the certificate of systematic sweeps is not worth its time.
    """
    from fastmix.sampling.plans import certified_sweeps, certify_quickly
    from fastmix.sampling.sample import Gibbs

    size = f"dependencies of {strength:.3g} per variable"
    if least_strength <= 1.0:
        certificate = certify_quickly(model, "systematic", clock)
        size = f"dependency norm {certificate.norm_value:.3g}"
        burn_in = certificate.num_sweeps
        if certificate.certified and burn_in is not None and burn_in <= MAX_BURN_IN:
            reason = f"{too_much}, and Gibbs sampling provably mixes ({size})"
            return Choice(Gibbs(num_sweeps=NUM_SWEEPS, burn_in=burn_in), reason), size
    if model.num_variables <= MAX_WIDTH_VARIABLES and not model.num_factors and not model.has_forbidden:
        by_random = certify_quickly(model, "random-burn-in", clock)
        if by_random.certified:
            gibbs = Gibbs(num_sweeps=NUM_SWEEPS, burn_in=certified_sweeps(by_random), schedule="random-burn-in")
            reason = f"{too_much}, and Gibbs sampling provably mixes ({by_random.criterion}, random updates first)"
            return Choice(gibbs, reason), size
    return None, size


def _choose_sampler(model: MarkovRandomField, slow: str, seconds: float, strength: float) -> Choice:
    """A sampler for a model that Gibbs sampling is not certified for, with its dependencies per variable.

    ``slow`` says why neither exact inference nor certified sampling was chosen, ``seconds`` is the time limit.
    """
    from fastmix.model.attractive import is_attractive
    from fastmix.sampling.sample import Gibbs, SwendsenWang
    from fastmix.sampling.tempering.temper import Tempered

    gibbs = Gibbs(num_sweeps=NUM_SWEEPS)
    attractive = is_attractive(model)
    if strength <= WEAK_DEPENDENCIES and not attractive:
        return Choice(gibbs, f"{slow}, but dependencies are weak, {strength:.2g} per variable on average")

    takes_states = bool(model.num_states.max(initial=1) <= MAX_TEMPERED_STATES)
    excess = _ladder_seconds(model) / (TEMPERED_SHARE * seconds)  # 1 where round trips just fit the time
    if excess <= 1.0 and takes_states:
        # No trial of attractive models: chains can agree in one of two phases that they never leave.
        return Choice(Tempered(), slow, trial=None if attractive else gibbs)

    too_large = f"{slow}; it is large for replica exchange"
    if attractive and model.num_variables:
        span = _unary_span(model)
        two_states = int(model.num_states.max()) <= 2
        if span > (WIDE_UNARIES_OF_TWO_STATES if two_states else WIDE_UNARIES):
            # Pictures to be labeled: the unaries hold clusters where they are (benchmarks/choice.py).
            return Choice(gibbs, f"{too_large}, and unaries that span {span:.2g} leave little to cluster moves")
        clusters = SwendsenWang(num_sweeps=NUM_SWEEPS)
        return Choice(clusters, f"{too_large}, and cluster moves fit this attractive model")
    if excess <= TEMPERED_EXCESS and takes_states and strength > STRONG_DEPENDENCIES:
        return Choice(Tempered(), f"{too_large}, but the most accurate even if it does not mix")
    return Choice(gibbs, too_large)


def _per_variable(model: MarkovRandomField, of_edges: FloatArray) -> float:
    """Sum of the values of all edges at a variable, on average over the variables; edges count at both ends."""
    return 2.0 * float(of_edges.sum()) / max(1, model.num_variables)


def _unary_span(model: MarkovRandomField) -> float:
    """Difference between the largest and the smallest finite log-unary of a variable, on average over the variables."""
    starts = model.unary_offsets[:-1]
    largest = np.maximum.reduceat(model.log_unary, starts)
    finite = np.where(model.log_unary > -np.inf, model.log_unary, np.inf)
    smallest = np.minimum.reduceat(finite, starts)
    return float((largest - smallest).mean())


def _dependency_seconds(model: MarkovRandomField) -> float:
    """Rough number of seconds that the dependencies between the variables of all factors take."""
    structure = model.structure
    members = np.diff(structure.scope_starts).astype(float)
    entries = np.diff(structure.factor_offsets).astype(float)
    pairs = entries * members * (members - 1.0) / 2.0
    return SECONDS_PER_DEPENDENCY * float(pairs.sum())


def _ladder_seconds(model: MarkovRandomField) -> float:
    """Least number of seconds in which replica exchange makes its round trips, a rough guess by the size of the model.

    A ladder needs about 2 sqrt(n) rungs, and about 20 round trips of as many sweeps each, in four ensembles or more.
    """
    n = model.num_variables
    rungs: float = 2.0 * n**0.5 + 1.0
    sweeps = 20.0 * rungs
    neighbors = 2.0 * model.num_edges / max(1, n)
    slowdown = max(1.0, neighbors / MANY_NEIGHBORS)
    return 4.0 * rungs * sweeps * n * slowdown / UPDATES_PER_SECOND
