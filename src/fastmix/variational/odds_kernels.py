"""Compiled messages between binary variables, one number each. Import it inside functions only: it needs Numba.

Binary models are written in spins (:func:`fastmix.model.forms.ising_form`), where a message is one number, its odds
m(1) / m(0), if no coupling is extreme: the product of odds replaces the sum of logs, so a message costs one division
and neither exp nor log. Messages are numbered as in :mod:`fastmix.variational.messages`.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer
from fastmix.variational.message_kernels import copy_messages

__all__ = ["odds_rounds"]

# Log-odds beyond which a variable is as good as in one state: messages are within exp(+-100), so that a cavity stays
# within rounding of what decides the answer, and two such odds stay within the range of doubles, exp(+-708).
_MAX_LOG_ODDS = 500.0


@inner
def _node_products(odds, wide, indptr, incoming, messages, products):
    """Odds of every variable, written to the place of each of its incoming messages: the next loop has no gather.

    Odds of wide variables could leave the range of doubles; they are added up as logs and cut off.
    """
    for i in range(len(odds)):
        begin = indptr[i]
        end = indptr[i + 1]
        value = odds[i]
        if wide[i]:
            for p in range(begin, end):
                value += np.log(messages[incoming[p]])
            value = np.exp(min(max(value, -_MAX_LOG_ODDS), _MAX_LOG_ODDS))
        else:
            for p in range(begin, end):
                value *= messages[incoming[p]]
        for p in range(begin, end):
            products[incoming[p]] = value


@inner
def _new_odds(new, old, products, weights, first, back, tol):
    """Number of the messages from ``first`` on that changed by more than tol; the new ones are written.

    A message is (cavity w + 1) / (cavity + w), where the cavity is the product of the sender over the opposite message.
    Opposite messages start at ``back``.
    """
    num_moved = 0
    for e in range(np.uint64(len(weights))):
        w = weights[e]
        opposite = old[back + np.uint64(e)]
        product = products[back + np.uint64(e)]
        value = (opposite + product * w) / (opposite * w + product)
        before = old[first + np.uint64(e)]
        new[first + np.uint64(e)] = value
        num_moved += abs(value - before) > tol * before
    return num_moved


@inner
def _damp(new, old, damping):
    """Replace new odds by weighted geometric means with the old ones, by square roots as far as halves do."""
    while damping >= 0.5:
        for d in range(len(new)):
            new[d] = np.sqrt(new[d] * old[d])
        damping = 2.0 * damping - 1.0
    if damping > 0.0:
        for d in range(len(new)):
            new[d] *= (old[d] / new[d]) ** damping


@outer
def odds_rounds(odds, wide, indptr, incoming, weights, messages, spare, products, damping, tol, num_rounds):
    """Rounds made in which all messages are renewed at once, the last change, and whether it is within tol.

    ``odds`` are p(1) / p(0) by the fields alone, of ``wide`` variables their logs, ``weights`` exp(2 J); ``incoming``
    are the messages that each variable receives, in unsigned numbers (signed ones would be checked for counting from
    the end); ``spare`` and ``products`` are working space; ``damping`` is the weight of the old message in the mean of
    the logs.
    """
    zero = np.uint64(0)
    m = np.uint64(len(weights))
    now = messages
    then = spare
    num_made = 0
    num_moved = 1
    while num_made < num_rounds and num_moved:
        _node_products(odds, wide, indptr, incoming, now, products)
        num_moved = _new_odds(then, now, products, weights, zero, m, tol)
        num_moved += _new_odds(then, now, products, weights, m, zero, tol)
        _damp(then, now, damping)
        now, then = then, now
        num_made += 1
    largest_ratio = 1.0
    for d in range(len(now)):
        largest_ratio = max(largest_ratio, max(now[d] / then[d], then[d] / now[d]))
    if num_made % 2:
        copy_messages(messages, now)
    return num_made, np.log(largest_ratio) / (1.0 - damping), num_moved == 0
