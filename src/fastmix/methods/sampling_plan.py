"""How many chains and sweeps a run has, and what a certificate says about them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.errors import FastmixError, UnfitMethodError
from fastmix.methods.sample_result import CONFIDENCE, sweep_order
from fastmix.model import MarkovRandomField
from fastmix.theory.certificates import Certificate, certify
from fastmix.theory.norms import Norm

__all__ = [
    "MANY_CHAINS", "MOST_BURN_IN", "NUM_SWEEPS", "SCHEDULES", "Plan", "Schedule", "certified_plan", "certified_sweeps",
    "certify_quickly", "check_plan", "default_chains", "promise",
]  # fmt: skip

Schedule = Literal["systematic", "random", "random-burn-in"]
SCHEDULES: tuple[str, ...] = get_args(Schedule)

MANY_CHAINS = 64
NUM_SWEEPS = 10_000
# Variables, and their states but one, of all chains together by default, and chains: beyond that, more sweeps of fewer
# chains are worth more in the same time, because every chain burns in and has its sums.
_MOST_SITES, _MOST_CUTS, _LEAST_CHAINS = 1 << 20, 1 << 22, 4
_MOST_CERTIFIED = 1e12  # updates of all chains together to burn in: about an hour
_BIAS = 1e-3  # of every marginal, where burning in is certified
MOST_BURN_IN = NUM_SWEEPS // 2  # then
_CHAIN_BYTES = 48  # beside its states and sums
_DRAW_BYTES = 34  # a state of a draw: one as kept, one stacked, and four 8-byte arrays in mapping it to the original


@dataclass(frozen=True)
class Plan:
    """The numbers of a run; ``bias`` is what a certificate promises about what is averaged."""

    num_chains: int
    num_sweeps: int
    burn_in: int
    bias: float | None = None


def certified_plan(
    model: MarkovRandomField, accuracy: float, schedule: Schedule | None, clock: Clock
) -> tuple[Plan, Schedule]:
    """What brings every probability within an accuracy, with 95 % confidence, and the order of updates."""
    # Hoeffding: exp(-2 C (accuracy / 2)^2) * 2 <= 1 - confidence.
    chains = math.ceil(math.log(2.0 / (1.0 - CONFIDENCE)) / (2.0 * (accuracy / 2) ** 2))
    most = _MOST_CERTIFIED / chains
    certificate = certify_chains(
        model, accuracy / 2, schedule or "systematic", max_updates=most, time_limit=clock.rest(0.2)
    )
    if not certificate.certified and schedule is None:
        at_random = certify_chains(model, accuracy / 2, "random-burn-in", max_updates=most, time_limit=clock.rest(0.2))
        if at_random.certified:
            certificate, schedule = at_random, "random-burn-in"
    if not certificate.certified:
        raise UnfitMethodError(
            f"accuracy needs a certified model, and this one has a dependency norm of {certificate.norm_value:.3g}: "
            "give num_sweeps instead, or project the model first"
        )
    # The sweep that is averaged is the last of those that Dobrushin's criterion counts, in the same order.
    schedule = schedule or "systematic"
    counted = schedule != "random-burn-in" and certificate.criterion == "dobrushin"
    burn_in = max(0, certified_sweeps(certificate) - counted)
    return Plan(chains, 1, burn_in, certificate.max_bias), schedule


def certify_chains(
    model: MarkovRandomField,
    accuracy: float,
    schedule: str,
    *,
    norm: Norm | None = None,
    max_updates: float | None = None,
    time_limit: float | None = None,
) -> Certificate:
    """The certificate for marginals of chains of a schedule; of the joint distribution, if that may change."""
    if schedule == "systematic":
        return certify(
            model, accuracy=accuracy, criterion="dobrushin", schedule="systematic", per_variable=True, norm=norm,
            order=sweep_order(model, schedule), time_limit=time_limit,
        )  # fmt: skip
    return certify(
        model, accuracy=accuracy, schedule="random", per_variable=schedule != "random-burn-in", max_updates=max_updates,
        time_limit=time_limit,
    )  # fmt: skip


def certified_sweeps(certificate: Certificate) -> int:
    """Sweeps of a certified model, of n random updates each where those are what is certified."""
    if certificate.num_sweeps is not None:
        return certificate.num_sweeps
    assert certificate.num_updates is not None
    return -(-certificate.num_updates // max(1, len(certificate.bias)))


def default_chains(model: MarkovRandomField) -> int:
    """Chains of a run that was not told how many: 64, but fewer for large models."""
    n, cuts = model.num_variables, len(model.log_unary) - model.num_variables
    most = min(_MOST_SITES // max(1, n), _MOST_CUTS // max(1, cuts))
    return int(np.clip(most, _LEAST_CHAINS, MANY_CHAINS))


def certify_quickly(model: MarkovRandomField, schedule: str, clock: Clock) -> Certificate:
    """The certificate for a bias of 0.001 after a burn-in of a usual length, in a tenth of the time that is left."""
    most = float(MOST_BURN_IN) * max(1, model.num_variables)
    # The cheapest of the norms.
    return certify_chains(model, _BIAS, schedule, norm="inf", max_updates=most, time_limit=clock.rest(0.1))


def promise(model: MarkovRandomField, burn_in: int, schedule: str, clock: Clock) -> str | None:
    """What the certificate guarantees after the burn-in, if anything."""
    try:
        certificate = certify_quickly(model, "random-burn-in" if schedule == "random" else schedule, clock)
    except FastmixError:  # too large for a certificate: nothing to promise
        return None
    if not certificate.certified or certified_sweeps(certificate) > burn_in:
        return None
    bias = certificate.accuracy
    return f"after {burn_in} sweeps no marginal is off by more than {bias:g} but for chance; intervals() are proven"


def check_plan(model: MarkovRandomField, plan: Plan, num_draws: int, accuracy: float | None, backend: str) -> None:
    """Refuse chains whose configurations, draws and, but for groups of chains on a GPU, sums do not fit the memory."""
    n, chains = model.num_variables, plan.num_chains
    each = _CHAIN_BYTES + 24.0 * n + (24.0 * len(model.log_unary) if backend == "cpu" else 0.0)
    what, way_out = f"num_chains {chains}", "run fewer chains"
    if accuracy is not None:
        what, way_out = f"accuracy {accuracy:g}, which takes {chains} chains,", "ask for less accuracy"
    check_memory(chains * each, what, way_out)
    if num_draws > plan.num_sweeps:
        raise ValueError(f"num_draws must be at most num_sweeps, {plan.num_sweeps}, got {num_draws}")
    required = float(chains) * num_draws * n * _DRAW_BYTES
    check_memory(required, f"num_draws {num_draws} of {chains} chains", "keep fewer, or run fewer chains")
