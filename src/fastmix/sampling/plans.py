"""Plans of runs of independent chains: how many chains and sweeps there are, and what a certificate says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.errors import FastmixError, UnfitMethodError
from fastmix.model import MarkovRandomField
from fastmix.model.structure import Structure
from fastmix.sampling.results import CONFIDENCE, SampleResult
from fastmix.sampling.tuning import (
    BYTES_PER_CHAIN,
    BYTES_PER_DRAWN_STATE,
    CERTIFIED_BIAS,
    CERTIFIED_MAX_UPDATES,
    CERTIFY_SHARE,
    MAX_BURN_IN,
    MAX_CHAIN_CUTS,
    MAX_CHAIN_SITES,
    MIN_CHAINS,
    NUM_CHAINS,
    NUM_SWEEPS,
)
from fastmix.theory.certificate import Certificate
from fastmix.theory.certify import certify
from fastmix.theory.norms import Norm

if TYPE_CHECKING:
    from fastmix._context import Context
    from fastmix.sampling.sample import ChainSampler

__all__ = [
    "SCHEDULES", "ChainPlan", "Schedule", "certified_sweeps", "certify_quickly", "default_chains", "make_plan",
    "promise", "visits_per_sweep",
]  # fmt: skip

Schedule = Literal["systematic", "random", "random-burn-in"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)


@dataclass(frozen=True)
class ChainPlan:
    """Numbers of chains and sweeps of a run, and what a certificate promises about its averages.

    Attributes
    ----------
    num_chains, num_sweeps, burn_in : int
    bias : float or None
        Largest bias of a probability, where the burn-in is certified.
    biases : float array (n,), or None
        The bias by variable. It does not tell plans apart, because it follows from the other fields.
    """

    num_chains: int
    num_sweeps: int
    burn_in: int
    bias: float | None = None
    biases: FloatArray | None = field(default=None, repr=False, compare=False)


def make_plan(model: MarkovRandomField, method: ChainSampler, context: Context) -> tuple[ChainPlan, Schedule]:
    """Numbers of a run and its order of updates; a plan that does not fit the memory is refused."""
    accuracy = method.asked_accuracy
    if accuracy is None:
        plan = _plan_by_sweeps(model, method)
        schedule = method.asked_schedule or "systematic"
    else:
        plan, schedule = _plan_by_accuracy(model, accuracy, method.asked_schedule, context.clock)
    _check_plan(model, plan, method.num_draws, accuracy, context.backend)
    num_noted = len(method.history_at)
    check_memory(8.0 * num_noted * len(model.log_unary), f"history_at {num_noted:,} numbers of sweeps", "give fewer")
    return plan, schedule


def _plan_by_sweeps(model: MarkovRandomField, method: ChainSampler) -> ChainPlan:
    """Numbers of a run as the options of the method give them, defaults filled in."""
    num_sweeps = method.num_sweeps or NUM_SWEEPS
    if isinstance(method.start, SampleResult):  # whose chains have burned in
        usual_chains = len(method.start.states)
        usual_burn_in = 0
    else:
        usual_chains = default_chains(model)
        usual_burn_in = num_sweeps // 10
    num_chains = method.num_chains or usual_chains
    burn_in = usual_burn_in if method.burn_in is None else method.burn_in
    return ChainPlan(int(num_chains), int(num_sweeps), int(burn_in))


def _plan_by_accuracy(
    model: MarkovRandomField, accuracy: float, schedule: Schedule | None, clock: Clock
) -> tuple[ChainPlan, Schedule]:
    """Numbers of a run that brings every probability within an accuracy with 95 % confidence, and its order of updates.

    Half of the accuracy is for the bias, which the certificate bounds, and half for chance, by Hoeffding's inequality:
    ``2 exp(-2 C (accuracy / 2)^2) <= 1 - confidence`` for C chains of one sweep each.
    """
    num_chains = math.ceil(math.log(2.0 / (1.0 - CONFIDENCE)) / (2.0 * (accuracy / 2) ** 2))
    orders: tuple[Schedule, ...] = ("systematic", "random-burn-in") if schedule is None else (schedule,)
    tried = []
    for order in orders:
        certificate = certify_chains(
            model,
            accuracy / 2,
            order,
            max_updates=CERTIFIED_MAX_UPDATES / num_chains,
            time_limit=clock.rest(CERTIFY_SHARE),
        )
        tried.append(certificate)
        if certificate.certified:
            break
    else:
        raise UnfitMethodError(
            f"accuracy needs a certified model, and this one has a dependency norm of {tried[0].norm_value:.3g}: "
            "give num_sweeps instead, or project the model first"
        )
    burn_in = certified_sweeps(certificate)
    if order != "random-burn-in" and certificate.criterion == "dobrushin":
        # The sweep that is averaged is the last of those that Dobrushin's criterion counts, in the same order.
        burn_in = max(0, burn_in - 1)
        biases = np.minimum(certificate.bias, accuracy / 2)
    else:
        # What is certified comes before the sweep that is averaged, of which only the accuracy that was asked for is
        # known.
        biases = np.full(model.num_variables, accuracy / 2)
    return ChainPlan(num_chains, 1, burn_in, float(biases.max(initial=0.0)), biases), order


def _check_plan(
    model: MarkovRandomField, plan: ChainPlan, num_draws: int, accuracy: float | None, backend: str
) -> None:
    """Refuse chains whose configurations, draws and sums do not fit the memory.

    The sums are counted on the CPU alone: on a GPU, chains of a group share theirs.
    """
    n = model.num_variables
    num_chains = plan.num_chains
    bytes_of_sums = 24.0 * len(model.log_unary) if backend == "cpu" else 0.0
    bytes_of_chain = BYTES_PER_CHAIN + 24.0 * n + bytes_of_sums
    if accuracy is None:
        what = f"num_chains {num_chains}"
        way_out = "run fewer chains"
    else:
        what = f"accuracy {accuracy:g}, which takes {num_chains} chains,"
        way_out = "ask for less accuracy"
    check_memory(num_chains * bytes_of_chain, what, way_out)
    if num_draws > plan.num_sweeps:
        raise ValueError(f"num_draws must be at most num_sweeps, {plan.num_sweeps}, got {num_draws}")
    bytes_of_draws = float(num_chains) * num_draws * n * BYTES_PER_DRAWN_STATE
    check_memory(bytes_of_draws, f"num_draws {num_draws} of {num_chains} chains", "keep fewer, or run fewer chains")


def default_chains(model: MarkovRandomField) -> int:
    """Number of chains where none is given: 64, fewer for large models."""
    n = model.num_variables
    num_cuts = len(model.log_unary) - n
    affordable = min(MAX_CHAIN_SITES // max(1, n), MAX_CHAIN_CUTS // max(1, num_cuts))
    return int(np.clip(affordable, MIN_CHAINS, NUM_CHAINS))


def certify_chains(
    model: MarkovRandomField,
    accuracy: float,
    schedule: str,
    *,
    norm: Norm | None = None,
    max_updates: float | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """Certificate for the marginals of chains of a schedule.

    Where the schedule changes after the burn-in (``random-burn-in``), it is one for their joint distribution.
    """
    if schedule == "systematic":
        return certify(
            model,
            accuracy=accuracy,
            criterion="dobrushin",
            schedule="systematic",
            per_variable=True,
            norm=norm,
            order=model.structure.visit_order[0].astype(np.int64),
            time_limit=time_limit,
        )
    return certify(
        model,
        accuracy=accuracy,
        schedule="random",
        per_variable=schedule != "random-burn-in",
        max_updates=max_updates,
        time_limit=time_limit,
    )


def visits_per_sweep(structure: Structure) -> float:
    """Neighbors, in edges and factors, that a sweep of one configuration looks at, at least 1."""
    sizes = np.diff(structure.scope_starts).astype(np.float64)
    return max(1.0, structure.num_variables + 2.0 * structure.num_edges + float(sizes @ sizes))


def certified_sweeps(certificate: Certificate) -> int:
    """Number of sweeps that a certificate asks for; where it counts random updates, n of them are one sweep."""
    if certificate.num_sweeps is not None:
        return certificate.num_sweeps
    assert certificate.num_updates is not None
    return -(-certificate.num_updates // max(1, len(certificate.bias)))


def certify_quickly(model: MarkovRandomField, schedule: str, clock: Clock) -> Certificate:
    """Certificate for a bias of 0.001 after a burn-in of a usual length, found in a tenth of the time that is left.

    It has a twentieth of the whole limit in any case, because sampling may have used up all of it.
    """
    return certify_chains(
        model,
        CERTIFIED_BIAS,
        schedule,
        norm="inf",  # the cheapest of the norms
        max_updates=float(MAX_BURN_IN) * max(1, model.num_variables),
        time_limit=clock.part(0.1, least=0.05).rest(),
    )


def promise(model: MarkovRandomField, burn_in: int, schedule: str, clock: Clock) -> str | None:
    """Sentence that says what a certificate guarantees after the burn-in; None if it guarantees nothing."""
    order = "random-burn-in" if schedule == "random" else schedule
    try:
        certificate = certify_quickly(model, order, clock)
    except FastmixError:  # the model is too large for a certificate
        return None
    if not certificate.certified or certified_sweeps(certificate) > burn_in:
        return None
    bias = certificate.accuracy
    return f"after {burn_in} sweeps no marginal is off by more than {bias:g} but for chance; intervals() are proven"
