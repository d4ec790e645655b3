"""Compiled messages between binary variables. Import it inside functions only: it needs Numba.

An edge e = (i, j) of m carries two messages: number e goes to j, number m + e goes to i. Models are written in spins
(see :mod:`fastmix.methods.ising_form`), where a message is one number:

- ``odds_rounds``: m(1) / m(0). The product of odds replaces the sum of logs, so a message costs one division and
  neither exp nor log. For models whose odds cannot leave the range of doubles.
- ``log_odds_rounds``: log m(1) / m(0), for any strength and damping.

The change that decides on convergence is that of the logs, before damping.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["log_odds_rounds", "odds_rounds"]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
# Division follows IEEE rules, because a check for zero would keep loops from being vectorised.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_entry = njit(cache=True, nogil=True, error_model="numpy")


# -- binary, odds ---------------------------------------------------------------------------------------------------


@_inner
def _node_products(odds, indptr, incoming, messages, products):  # type: ignore[no-untyped-def]
    """Odds of every variable, written to the place of each of its incoming messages: the next loop has no gather."""
    for i in range(len(odds)):
        begin, end = indptr[i], indptr[i + 1]
        value = odds[i]
        for p in range(begin, end):
            value *= messages[incoming[p]]
        for p in range(begin, end):
            products[incoming[p]] = value


@_inner
def _new_odds(new, old, products, weights, first, back, tol):  # type: ignore[no-untyped-def]
    """New messages from number ``first`` on, and how many changed by more than tol; those opposite start at ``back``.

    A message is (cavity w + 1) / (cavity + w), where the cavity is the product of the sender over the opposite message.
    """
    count = 0
    for e in range(np.uint64(len(weights))):
        w, opposite, product = weights[e], old[back + np.uint64(e)], products[back + np.uint64(e)]
        value = (opposite + product * w) / (opposite * w + product)
        before = old[first + np.uint64(e)]
        new[first + np.uint64(e)] = value
        count += abs(value - before) > tol * before
    return count


@_inner
def _geometric_mean(new, old):  # type: ignore[no-untyped-def]
    for d in range(len(new)):
        new[d] = np.sqrt(new[d] * old[d])


@_inner
def _copy(target, source):  # type: ignore[no-untyped-def]
    # A slice assigned to would take longer to compile than all the rest.
    for d in range(len(target)):
        target[d] = source[d]


@_entry
def odds_rounds(odds, indptr, incoming, weights, messages, spare, products, halvings, tol, num_rounds):  # type: ignore[no-untyped-def]
    """Rounds in which all messages are renewed at once, as odds.

    Parameters
    ----------
    odds : float array (n,)
        p(1) / p(0) by the fields alone.
    indptr, incoming : unsigned int arrays (n + 1,), (2 m,)
        The messages that each variable receives. Signed numbers would be checked for counting from the end.
    weights : float array (m,)
        exp(2 J).
    messages, spare, products : float array (2 m,)
        Messages, changed; and working space.
    halvings : int
        The change of the logs is halved this many times: 0 is no damping, 1 is damping by 1/2, 2 by 3/4.
    tol : float
    num_rounds : int
        At least 1.

    Returns
    -------
    rounds made, largest change of a log in the last one, whether it is within tol
    """
    zero, m = np.uint64(0), np.uint64(len(weights))
    x, y = messages, spare
    done, over = 0, 1
    while done < num_rounds and over:
        _node_products(odds, indptr, incoming, x, products)
        over = _new_odds(y, x, products, weights, zero, m, tol)
        over += _new_odds(y, x, products, weights, m, zero, tol)
        for _ in range(halvings):
            _geometric_mean(y, x)
        x, y = y, x
        done += 1
    largest = 1.0
    for d in range(len(x)):
        largest = max(largest, max(x[d] / y[d], y[d] / x[d]))
    if done % 2:
        _copy(messages, x)
    return done, np.log(largest) * 2.0**halvings, over == 0


# -- binary, log-odds -----------------------------------------------------------------------------------------------


@_inner
def _new_log_odds(cavity, twice_coupling, weight):  # type: ignore[no-untyped-def]
    """2 atanh(tanh(cavity / 2) tanh(J)), to rounding for numbers of any size.

    With a = |cavity|, b = |2 J| it is log (1 + exp(-a - b)) / (exp(-a) + exp(-b)), without cancellation. Where both
    exponentials vanish, min(a, b) is taken out of the logarithm.
    """
    a, b = abs(cavity), abs(twice_coupling)
    small = np.exp(-a)
    if small + weight > 1e-290:
        value = np.log((1.0 + small * weight) / (small + weight))
    else:
        value = min(a, b) - np.log1p(np.exp(-abs(a - b)))
    return value if (cavity >= 0.0) == (twice_coupling >= 0.0) else -value


@_entry
def log_odds_rounds(field, edges, twice_coupling, weights, messages, totals, damping, tol, num_rounds):  # type: ignore[no-untyped-def]
    """Rounds in which all messages are renewed at once, as log-odds.

    Parameters
    ----------
    field : float array (n,)
        log p(1) / p(0) by the fields alone.
    edges : int array (m, 2)
    twice_coupling, weights : float array (m,)
        2 J and exp(-2 |J|).
    messages : float array (2 m,)
        Changed.
    totals : float array (n,)
        Working space.
    damping : float
        Weight of the old message in the mean of the logs.

    Returns
    -------
    rounds made, largest change of a log in the last one, whether it is within tol
    """
    m = len(edges)
    largest = 0.0
    for done in range(num_rounds):
        _copy(totals, field)
        for e in range(m):
            totals[edges[e, 1]] += messages[e]
            totals[edges[e, 0]] += messages[m + e]
        largest = 0.0
        for e in range(m):
            right, left = messages[e], messages[m + e]
            new_right = _new_log_odds(totals[edges[e, 0]] - left, twice_coupling[e], weights[e])
            new_left = _new_log_odds(totals[edges[e, 1]] - right, twice_coupling[e], weights[e])
            largest = max(largest, max(abs(new_right - right), abs(new_left - left)))
            messages[e] = new_right + damping * (right - new_right)
            messages[m + e] = new_left + damping * (left - new_left)
        if largest <= tol:
            return done + 1, largest, True
    return num_rounds, largest, False
