"""Intervals that contain the true marginals with a stated probability, from sampled ones.

A sampled marginal is off for two reasons. The chains have not forgotten their start: this is the bias, which
:func:`fastmix.theory.bias.bias_after` bounds. And there are finitely many chains: this is a deviation, which
inequalities for averages of independent numbers bound. If the chains ran on a projected model, the distance of its
marginals from those of the original comes on top (:mod:`fastmix.theory.comparison`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import BoolArray, FloatArray
from fastmix._checks import check_flag, check_share
from fastmix.model import MarkovRandomField, check_model
from fastmix.model.reduce import certain_entries
from fastmix.theory.tuning import (
    MAX_NEWTON_STEPS,
)

__all__ = [
    "Intervals", "bernstein_half_width", "finish_intervals", "hoeffding_interval", "rigorous_intervals",
]  # fmt: skip

_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-12  # error of averages over sweeps and chains


@dataclass(frozen=True, eq=False, repr=False)
class Intervals:
    """Bounds on the probability of every state of every variable.

    Attributes
    ----------
    lower, upper : float array (E,)
        Aligned with ``model.log_unary``, between 0 and 1.
    vacuous : bool array (E,)
        True where the interval is [0, 1] and says nothing.
    confidence : float
        Probability, over the randomness of the chains, with which an interval holds.
    simultaneous : bool
        Whether the confidence is the probability that all of them hold at once.
    """

    lower: FloatArray
    upper: FloatArray
    vacuous: BoolArray
    confidence: float
    simultaneous: bool

    def __repr__(self) -> str:
        """How many intervals there are, the widest of them, and with which confidence they hold."""
        widest = float((self.upper - self.lower).max(initial=0.0))
        together = "together" if self.simultaneous else "each"
        return (
            f"Intervals({len(self.lower):,} probabilities, widest {widest:.3g}, {int(self.vacuous.sum()):,} vacuous, "
            f"confidence={self.confidence:g} {together})"
        )


# -- sampled marginals ----------------------------------------------------------------------------------------------


def rigorous_intervals(
    model: MarkovRandomField,
    mean: ArrayLike,
    *,
    num_chains: int,
    bias: ArrayLike,
    variances: ArrayLike | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> Intervals:
    """Intervals that contain the marginals of a model with a stated confidence, from independent chains of any length.

    Each chain contributes one number from 0 to 1 for every state: its average, over the sweeps used, of the indicator
    of the state or of its conditional probability. These numbers are independent between the chains, and their
    expectations are within the bias of the marginal. An inequality for averages of independent numbers in [0, 1]
    (:func:`hoeffding_interval`, :func:`bernstein_half_width`) gives an interval for the expectation, and the bias is
    added on both sides.

    Each of the two inequalities has half of the probability of failure, so that both intervals may be used and the
    narrower one is no choice after the fact. States that the unary forbids, and the only one it allows, are known:
    [0, 0] and [1, 1].

    Parameters
    ----------
    model : MarkovRandomField
    mean : float array (E,)
        Averages over the chains, aligned with ``model.log_unary``.
    num_chains : int
        Number C of independent chains.
    bias : float or float array (n,)
        Bound on the total variation distance of a chain's marginal at the FIRST sweep used; it falls from there. With
        ``burn_in`` sweeps left out this is ``bias_after(model, burn_in + 1)`` for the schedule of the chains.
    variances : float array (E,), optional
        Sample variances of the chains' numbers with the divisor C - 1. Without them, or with a single chain, only
        Hoeffding's inequality is used.
    confidence : float
    simultaneous : bool
        Divide the probability of failure by the number of states, where the two states of a binary variable count once:
        each inequality treats a state and its complement alike.

    Returns
    -------
    Intervals

    Raises
    ------
    ValueError
        If the confidence is not a number above 0 and below 1.

    Notes
    -----
    The number of sweeps has to be fixed beforehand, or by a clock: stopping when the chains look good makes their
    numbers dependent. Few chains give wide intervals however long they are; the smallest half width is about
    ``ln(4 / failure) / C``.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1)], coupling=0.1)
    >>> intervals = rigorous_intervals(model, np.full(4, 0.5), num_chains=1000, bias=0.001)
    >>> [round(float(end[0]), 2) for end in (intervals.lower, intervals.upper)]
    [0.46, 0.54]
    """
    check_model(model)
    simultaneous = check_flag("simultaneous", simultaneous)
    center = np.clip(np.asarray(mean, dtype=np.float64), 0.0, 1.0)
    num_intervals = max(1, _num_intervals(model)) if simultaneous else 1
    failure = (1.0 - check_share("confidence", confidence)) / num_intervals
    both = variances is not None and num_chains > 1
    share = failure / 2.0 if both else failure
    lower, upper = hoeffding_interval(center, num_chains, failure=share)
    if both:
        half = bernstein_half_width(np.asarray(variances), num_chains, failure=share)
        lower = np.maximum(lower, center - half)
        upper = np.minimum(upper, center + half)
    wide = np.repeat(np.broadcast_to(bias, model.num_variables), model.num_states) + _ROUNDING
    return finish_intervals(model, lower - wide, upper + wide, float(confidence), bool(simultaneous))


def hoeffding_interval(mean: ArrayLike, num_chains: int, *, failure: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends of Hoeffding's interval, in its sharp form, for the expectations of averages.

    The average m of C independent numbers in [0, 1] with average expectation q satisfies
    ``P(m >= x) <= exp(-C kl(x, q))`` for ``x >= q``, and likewise below, with
    ``kl(x, q) = x ln(x / q) + (1 - x) ln((1 - x) / (1 - q))`` [1]_. So all q with
    ``kl(m, q) <= ln(2 / failure) / C`` form an interval that misses the expectation with at most the probability
    ``failure``. It is never wider than the usual ``m +- sqrt(ln(2 / failure) / (2 C))``, which follows from
    ``kl(x, q) >= 2 (x - q)^2``, and far narrower for m near 0 or 1.

    Ends are rounded outwards. They are found by Newton's method in ``t = -ln(1 - q)``, in which kl is convex, from a
    point outside, so that every step stays outside.

    References
    ----------
    .. [1] W. Hoeffding, "Probability inequalities for sums of bounded random variables", JASA 58, 1963, Theorem 1.
    """
    level = math.log(2.0 / failure) / num_chains
    values = np.asarray(mean, dtype=np.float64)
    return 1.0 - _upper_end(1.0 - values, level), _upper_end(values, level)


def bernstein_half_width(variances: ArrayLike, num_chains: int, *, failure: float) -> FloatArray:
    """Half widths of the empirical Bernstein interval around averages of C independent numbers in [0, 1].

    ``sqrt(2 v ln(3 / failure) / C) + 7 ln(3 / failure) / (3 (C - 1))`` with the sample variance v [1]_. The
    logarithm is that of three events, each of a third of the probability: the average is too high, too low, the sample
    variance too low. (The one-sided theorem has two events and ``ln(2 / failure)``.)

    References
    ----------
    .. [1] A. Maurer and M. Pontil, "Empirical Bernstein bounds and sample-variance penalization", COLT 2009,
       Theorem 11 (for independent numbers that need not have the same distribution).
    """
    log = math.log(3.0 / failure)
    values = np.asarray(variances, dtype=np.float64)
    return np.sqrt(2.0 * log / num_chains * values) + 7.0 * log / (3.0 * (num_chains - 1))


def _upper_end(p: FloatArray, level: float) -> FloatArray:
    """The q above p with ``kl(p, q) = level``, rounded up."""
    # kl is a sum of two terms, each off by a few eps of its size.
    target = level * (1.0 + 16.0 * _EPS) + 16.0 * _EPS
    rest = 1.0 - p
    with np.errstate(divide="ignore", invalid="ignore"):
        negative_entropy = np.where(p > 0.0, p * np.log(p), 0.0) + np.where(rest > 0.0, rest * np.log(rest), 0.0)
        # Both starts are at or above the end: kl >= 2 (q - p)^2, and kl >= -entropy - (1 - p) ln(1 - q).
        pinsker = p + math.sqrt(target / 2.0)
        t = np.where(pinsker < 1.0, -np.log1p(-np.minimum(pinsker, 1.0)), np.inf)
        t = np.minimum(t, (target - negative_entropy) / rest)
        for _ in range(MAX_NEWTON_STEPS):
            q = -np.expm1(-t)
            value = negative_entropy - np.where(p > 0.0, p * np.log(q), 0.0) + rest * t
            step = np.maximum(value - target, 0.0) * q / (q - p)
            step = np.where(np.isfinite(step), step, 0.0)
            t = t - step
            if not (step > 1e-14 * t).any():
                break
    q = np.maximum(-np.expm1(-t), p)
    return np.where(rest > 0.0, np.minimum(q * (1.0 + 4.0 * _EPS), 1.0), 1.0)


def finish_intervals(
    model: MarkovRandomField, lower: FloatArray, upper: FloatArray, confidence: float, simultaneous: bool
) -> Intervals:
    """Intervals from their ends, cut at 0 and 1, and exact for states that the unaries alone decide about."""
    lower = np.clip(lower, 0.0, 1.0)
    upper = np.clip(upper, 0.0, 1.0)
    certain = certain_entries(model)
    known = np.where(model.log_unary[certain] > -np.inf, 1.0, 0.0)
    lower[certain] = known
    upper[certain] = known
    vacuous = (lower <= 0.0) & (upper >= 1.0)
    for array in (lower, upper, vacuous):
        array.setflags(write=False)
    return Intervals(lower, upper, vacuous, confidence, simultaneous)


def _num_intervals(model: MarkovRandomField) -> int:
    """Number of intervals that can fail by themselves: two states of a variable fail together, known ones never."""
    if not model.num_variables:
        return 0
    open_states = np.add.reduceat((~certain_entries(model)).astype(np.int64), model.unary_offsets[:-1])
    return int(np.where(open_states == 2, 1, open_states).sum())
