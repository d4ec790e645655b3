"""Quantiles of Student's distribution, for errors that few numbers tell."""

from __future__ import annotations

import math

__all__ = ["student_factor", "student_quantile"]

_LARGE_FREEDOM = 1000  # degrees of freedom beyond which the expansion of a quantile is exact to 1e-10
_BISECTIONS = 60  # of an angle, down to rounding
_NORMAL_QUANTILE = 1.959963984540054  # standard deviations that a normal variable stays within with probability 0.95


def student_quantile(freedom: int, probability: float) -> float:
    """The quantile of Student's distribution for a probability of at least 1/2; infinite without degrees of freedom.

    By bisection of the finite sums for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4), in the
    angle whose tangent is the variable over the root of the degrees: loading SciPy's takes longer than short limits.
    """
    if freedom <= 0:
        return math.inf
    if freedom > _LARGE_FREEDOM:
        from statistics import NormalDist

        normal = NormalDist().inv_cdf(probability)
        return normal * _student_expansion(normal, freedom)
    wanted = 2.0 * probability - 1.0  # of the absolute value
    low = 0.0
    high = 0.5 * math.pi
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if _student_share(freedom, middle) < wanted:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(0.5 * (low + high))


def _student_share(freedom: int, angle: float) -> float:
    """The probability that a Student variable is at most ``sqrt(freedom) tan(angle)`` in absolute value."""
    sine = math.sin(angle)
    cosine = math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for k in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1.0) / (k + 2.0)
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total


def student_factor(freedom: int) -> float:
    """Factor for a standard error with few degrees of freedom: Student's quantile for 95 % over the normal one.

    By the expansion of Fisher and Cornish where that is exact to four digits.
    """
    if freedom < 10:
        return student_quantile(freedom, 0.975) / _NORMAL_QUANTILE
    return _student_expansion(_NORMAL_QUANTILE, freedom)


def _student_expansion(z: float, freedom: int) -> float:
    """The quantile of Student's distribution over the normal one, ``z``, by the expansion of Fisher and Cornish."""
    first = (z**2 + 1.0) / 4.0
    second = (5.0 * z**4 + 16.0 * z**2 + 3.0) / 96.0
    third = (3.0 * z**6 + 19.0 * z**4 + 17.0 * z**2 - 15.0) / 384.0
    return 1.0 + first / freedom + second / freedom**2 + third / freedom**3
