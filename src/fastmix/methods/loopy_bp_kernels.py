"""Compiled messages of belief propagation. Import it inside functions only: it needs Numba.

An edge e = (i, j) of m carries two messages: number e goes to j, number m + e goes to i. Those from factors over more
variables follow, in the order of their scopes. The change that decides on convergence is that of the logs, before
damping.

Binary models are written in spins (:func:`fastmix.methods.preparation.ising_form`), where a message is one number, its
odds m(1) / m(0), if no coupling is extreme: the product of odds replaces the sum of logs, so a message costs one
division and neither exp nor log.

Otherwise a message is a vector of logs, the largest entry 0; tables may have forbidden pairs, as long as every state
has an allowed partner. Functions take whole arrays and where their part begins: a slice costs more than the few
numbers in it.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner, outer
from fastmix.methods.support_kernels import order_heap, settle

__all__ = ["odds_rounds", "table_beliefs", "table_residual", "table_rounds"]


# -- odds -----------------------------------------------------------------------------------------------------------


@inner
def _node_products(odds, wide, indptr, incoming, messages, products):  # type: ignore[no-untyped-def]
    """Odds of every variable, written to the place of each of its incoming messages: the next loop has no gather.

    Those of wide variables could leave the range of doubles, and are added up as logs. Beyond exp(+-500) they are as
    good as infinite: messages are within exp(+-100), so that a cavity is within rounding of what decides the answer.
    """
    for i in range(len(odds)):
        begin, end = indptr[i], indptr[i + 1]
        value = odds[i]
        if wide[i]:
            for p in range(begin, end):
                value += np.log(messages[incoming[p]])
            value = np.exp(min(max(value, -500.0), 500.0))
        else:
            for p in range(begin, end):
                value *= messages[incoming[p]]
        for p in range(begin, end):
            products[incoming[p]] = value


@inner
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


@inner
def _damp(new, old, damping):  # type: ignore[no-untyped-def]
    """Weighted geometric means with the old odds, by square roots as far as halves do."""
    while damping >= 0.5:
        for d in range(len(new)):
            new[d] = np.sqrt(new[d] * old[d])
        damping = 2.0 * damping - 1.0
    if damping > 0.0:
        for d in range(len(new)):
            new[d] *= (old[d] / new[d]) ** damping


@inner
def _copy(target, source):  # type: ignore[no-untyped-def]
    # A slice assigned to would take longer to compile than all the rest.
    for d in range(len(target)):
        target[d] = source[d]


@outer
def odds_rounds(odds, wide, indptr, incoming, weights, messages, spare, products, damping, tol, num_rounds):  # type: ignore[no-untyped-def]
    """Rounds in which all messages are renewed at once, as odds: how many, the last change, whether it is within tol.

    ``odds`` are p(1) / p(0) by the fields alone, of ``wide`` variables their logs, ``weights`` exp(2 J); ``incoming``
    are the messages that each variable receives, in unsigned numbers (signed ones would be checked for counting from
    the end); ``spare`` and ``products`` are working space; ``damping`` is the weight of the old message in the mean of
    the logs.
    """
    zero, m = np.uint64(0), np.uint64(len(weights))
    x, y = messages, spare
    done, over = 0, 1
    while done < num_rounds and over:
        _node_products(odds, wide, indptr, incoming, x, products)
        over = _new_odds(y, x, products, weights, zero, m, tol)
        over += _new_odds(y, x, products, weights, m, zero, tol)
        _damp(y, x, damping)
        x, y = y, x
        done += 1
    largest = 1.0
    for d in range(len(x)):
        largest = max(largest, max(x[d] / y[d], y[d] / x[d]))
    if done % 2:
        _copy(messages, x)
    return done, np.log(largest) / (1.0 - damping), over == 0


# -- tables: one message --------------------------------------------------------------------------------------------


@inner
def _move_top_to_zero(message, start, count):  # type: ignore[no-untyped-def]
    top = message[start]
    for b in range(start + 1, start + count):
        top = max(top, message[b])
    for b in range(start, start + count):
        message[b] -= top


@inner
def _new_message(cavity, num_in, table, weights, first, tame, forward, work, out, start, num_out):  # type: ignore[no-untyped-def]
    """``out[b] = log sum_a exp(cavity[a] + table[a, b])`` with the largest entry moved to 0.

    The table begins at ``first`` and lies by rows; forward messages sum over rows, the others over columns. A tame
    table has exponentials (``weights``) of which none vanishes: the sum is a product of a matrix and a vector. Entries
    of the cavity that underflow there are too small to matter: no weight is below exp(-300), no double below exp(-745).
    """
    top = cavity[0]
    for a in range(1, num_in):
        top = max(top, cavity[a])
    if not tame:
        step_in, step_out = (num_out, 1) if forward else (1, num_in)
        for b in range(num_out):
            best = -np.inf
            for a in range(num_in):
                best = max(best, cavity[a] + table[first + a * step_in + b * step_out])
            total = 0.0
            for a in range(num_in):
                total += np.exp(cavity[a] + table[first + a * step_in + b * step_out] - best)
            out[start + b] = best + np.log(total)
        _move_top_to_zero(out, start, num_out)
        return
    for a in range(num_in):
        work[a] = np.exp(cavity[a] - top)
    if forward:
        for b in range(num_out):
            out[start + b] = 0.0
        for a in range(num_in):
            factor, row = work[a], first + a * num_out
            for b in range(num_out):
                out[start + b] += factor * weights[row + b]
    else:
        for b in range(num_out):
            total, row = 0.0, first + b * num_in
            for a in range(num_in):
                total += work[a] * weights[row + a]
            out[start + b] = total
    for b in range(start, start + num_out):
        out[b] = np.log(out[b])
    _move_top_to_zero(out, start, num_out)


@inner
def _distance(x, y, start, count):  # type: ignore[no-untyped-def]
    largest = 0.0
    for b in range(start, start + count):
        largest = max(largest, abs(x[b] - y[b]))
    return largest


@inner
def _mix(target, other, weight, start, count):  # type: ignore[no-untyped-def]
    """Move the logs of a message towards another one by a fraction of the way."""
    for b in range(start, start + count):
        target[b] += weight * (other[b] - target[b])
    _move_top_to_zero(target, start, count)


@inner
def _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, totals):  # type: ignore[no-untyped-def]
    """Log-belief of one variable, not normalised: its unary and all incoming messages."""
    base, count = unary_offsets[i], unary_offsets[i + 1] - unary_offsets[i]
    for k in range(base, base + count):
        totals[k] = unary[k]
    for p in range(indptr[i], indptr[i + 1]):
        begin = starts[incoming[p]]
        for k in range(count):
            totals[base + k] += messages[begin + k]


@inner
def _renew(  # type: ignore[no-untyped-def]
    d, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, out
):
    """The new message number d, from the totals of its sender."""
    m = len(edges)
    forward = d < m
    e = d if forward else d - m
    back = d + m if forward else e
    base = unary_offsets[edges[e, 0] if forward else edges[e, 1]]
    begin, num_in = starts[back], starts[back + 1] - starts[back]
    for k in range(num_in):
        cavity[k] = totals[base + k] - messages[begin + k]
    num_out = starts[d + 1] - starts[d]
    _new_message(cavity, num_in, table, weights, offsets[e], tame[e], forward, work, out, starts[d], num_out)


# -- factors: messages to all members -------------------------------------------------------------------------------


@inner
def _spread(a, scopes, members, offsets, factors, totals, unary_offsets, starts, messages, d, out, begin):  # type: ignore[no-untyped-def]
    """Write to ``out`` the log of the belief of factor a, not normalised; the message to its last member is d - 1."""
    size, step = offsets[a + 1] - offsets[a], 1
    for x in range(size):
        out[begin + x] = factors[offsets[a] + x]
    for k in range(scopes[a + 1] - 1, scopes[a] - 1, -1):
        d -= 1
        base, count = unary_offsets[members[k]], starts[d + 1] - starts[d]
        for block in range(begin, begin + size, step * count):
            for s in range(count):
                cavity = totals[base + s] - messages[starts[d] + s]
                for x in range(block + s * step, block + (s + 1) * step):
                    out[x] += cavity
        step *= count


@inner
def _find_tops(room, size, step, count, top):  # type: ignore[no-untyped-def]
    """The largest entry of a factor's table for every state of one member, whose states are ``step`` apart."""
    for s in range(count):
        top[s] = -np.inf
    for block in range(0, size, step * count):
        for s in range(count):
            best = top[s]
            for x in range(block + s * step, block + (s + 1) * step):
                best = max(best, room[x])
            top[s] = best


@inner
def _is_level(a, scopes, starts, d, room, size, top):  # type: ignore[no-untyped-def]
    """Whether no state of any member has a largest entry below exp(-300) of the largest of all.

    Then one exponential of every entry serves all members: what underflows, beyond exp(-745), is lost in rounding.
    """
    peak, step = -np.inf, 1
    for x in range(size):
        peak = max(peak, room[x])
    for _ in range(scopes[a], scopes[a + 1]):
        d -= 1
        count = starts[d + 1] - starts[d]
        _find_tops(room, size, step, count, top)
        for s in range(count):
            if not top[s] >= peak - 300.0:
                return False, peak
        step *= count
    return True, peak


@inner
def _renew_factor(  # type: ignore[no-untyped-def]
    a, scopes, members, offsets, factors, totals, unary_offsets, starts, messages, d, room, top, sums, out
):
    """The new messages of factor a, from the totals of its members; that to the last is number d - 1."""
    _spread(a, scopes, members, offsets, factors, totals, unary_offsets, starts, messages, d, room, 0)
    size, step = offsets[a + 1] - offsets[a], 1
    level, peak = _is_level(a, scopes, starts, d, room, size, top)
    if level:
        for x in range(size):
            room[x] = np.exp(room[x] - peak)
    for k in range(scopes[a + 1] - 1, scopes[a] - 1, -1):
        d -= 1
        base, begin, count = unary_offsets[members[k]], starts[d], starts[d + 1] - starts[d]
        for s in range(count):
            top[s], sums[s] = peak, 0.0
        if not level:
            _find_tops(room, size, step, count, top)
        for block in range(0, size, step * count):
            for s in range(count):
                total = 0.0
                for x in range(block + s * step, block + (s + 1) * step):
                    if level:
                        total += room[x]
                    elif top[s] > -np.inf:
                        total += np.exp(room[x] - top[s])
                sums[s] += total
        for s in range(count):
            out[begin + s] = top[s] + np.log(sums[s]) - (totals[base + s] - messages[begin + s])
        _move_top_to_zero(out, begin, count)
        step *= count


# -- all at once ----------------------------------------------------------------------------------------------------


@outer
def table_rounds(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, weights, tame, starts, messages, spare, totals,
    cavity, work, scopes, members, factor_offsets, factors, room, damping, tol, num_rounds, first, stop,
):  # fmt: skip
    """Rounds in which all messages are renewed at once: how many, the last change, whether it is within tol.

    The first round begins with factor ``first``, after those before it were done by calls before, and there is none
    where ``stop`` is not the number of all factors: these calls do a part of one.

    ``weights`` are exponentials of the tables, for use where ``tame``; message d lies from ``starts[d]`` on. ``spare``
    is a second set of messages; ``totals`` is as long as ``unary``, ``cavity`` and ``work`` as the largest state count.
    Factor a has the members ``members[scopes[a]:scopes[a + 1]]`` and a table from ``factor_offsets[a]`` on, none larger
    than ``room``.
    """
    x, y = messages, spare
    done, largest, m = 0, np.inf, len(edges)
    while done < num_rounds and largest > tol:
        if first == 0:
            for i in range(len(unary_offsets) - 1):
                _node_total(i, unary, unary_offsets, indptr, incoming, starts, x, totals)
        for a in range(first, stop):
            d = 2 * m + scopes[a + 1]
            _renew_factor(
                a, scopes, members, factor_offsets, factors, totals, unary_offsets, starts, x, d, room, cavity, work, y
            )
        if stop < len(scopes) - 1:
            return 0, np.inf, False
        first, largest = 0, 0.0
        for d in range(len(starts) - 1):
            if d < 2 * m:
                _renew(d, edges, offsets, table, weights, tame, totals, unary_offsets, starts, x, cavity, work, y)
            count = starts[d + 1] - starts[d]
            largest = max(largest, _distance(y, x, starts[d], count))
            if damping > 0.0:
                _mix(y, x, damping, starts[d], count)
        x, y = y, x
        done += 1
    if done % 2:
        _copy(messages, x)
    return done, largest, largest <= tol


# -- the most changed first -----------------------------------------------------------------------------------------


@outer
def table_residual(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, weights, tame, starts, messages, pending, totals,
    cavity, work, heap, place, keys, damping, tol, num_updates, num_renewed,
):  # fmt: skip
    """Updates of one message at a time, that with the largest change first; the heap of them begins at -1.

    Updates made, the largest change of a log still pending, and whether that is within tol. An update renews all that
    the receiver sends: the run ends early when ``num_renewed`` messages are, with a receiver of many neighbors at once.
    """
    m = len(edges)
    if heap[0] < 0:
        for i in range(len(unary_offsets) - 1):
            _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, totals)
        for k in range(len(heap)):
            _renew(
                k, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, pending
            )
            keys[k] = _distance(pending, messages, starts[k], starts[k + 1] - starts[k])
            heap[k] = k
        order_heap(heap, place, keys)
    for done in range(num_updates):
        d = heap[0]
        if keys[d] <= tol:
            return done, keys[d], True
        count = starts[d + 1] - starts[d]
        _mix(messages, pending, 1.0 - damping, starts[d], count)
        keys[d] = _distance(pending, messages, starts[d], count) if damping > 0.0 else 0.0
        settle(heap, place, keys, d)
        j = edges[d, 1] if d < m else edges[d - m, 0]
        # Summed afresh: differences added up over millions of updates would drift.
        _node_total(j, unary, unary_offsets, indptr, incoming, starts, messages, totals)
        for p in range(indptr[j], indptr[j + 1]):
            if incoming[p] == d:
                continue  # what goes back to the sender does not depend on its message
            k = incoming[p] + m if incoming[p] < m else incoming[p] - m
            _renew(
                k, edges, offsets, table, weights, tame, totals, unary_offsets, starts, messages, cavity, work, pending
            )
            keys[k] = _distance(pending, messages, starts[k], starts[k + 1] - starts[k])
            settle(heap, place, keys, k)
        num_renewed -= indptr[j + 1] - indptr[j]
        if num_renewed < 0:
            return done + 1, keys[heap[0]], keys[heap[0]] <= tol
    return num_updates, keys[heap[0]], keys[heap[0]] <= tol


# -- beliefs --------------------------------------------------------------------------------------------------------


@inner
def _normalise(values, start, stop):  # type: ignore[no-untyped-def]
    """Turn logs into probabilities in place; the log of their sum is returned."""
    top = -np.inf
    for k in range(start, stop):
        top = max(top, values[k])
    total = 0.0
    for k in range(start, stop):
        values[k] = np.exp(values[k] - top)
        total += values[k]
    for k in range(start, stop):
        values[k] /= total
    return top + np.log(total)


@outer
def table_beliefs(  # type: ignore[no-untyped-def]
    unary, unary_offsets, indptr, incoming, edges, offsets, table, starts, messages, scopes, members, factor_offsets,
    factors, nodes, pairs, sets,
):  # fmt: skip
    """Write the beliefs of variables, edges and factors; the Bethe estimate of log Z, without the model's constant.

    It is ``sum_a log Z_a + sum_i (1 - d_i) log Z_i`` over edges and factors a and variables i in d_i of them (Yedidia,
    Freeman and Weiss, 2005), with the normalisers of the beliefs as the messages stand: how these are scaled does not
    matter.
    """
    m = len(edges)
    log_z = 0.0
    for i in range(len(unary_offsets) - 1):
        _node_total(i, unary, unary_offsets, indptr, incoming, starts, messages, nodes)
    for e in range(m):
        first, second = unary_offsets[edges[e, 0]], unary_offsets[edges[e, 1]]
        rows, columns = starts[m + e + 1] - starts[m + e], starts[e + 1] - starts[e]
        for a in range(rows):
            for b in range(columns):
                k = offsets[e] + a * columns + b
                cavities = (nodes[first + a] - messages[starts[m + e] + a]) + (
                    nodes[second + b] - messages[starts[e] + b]
                )
                pairs[k] = table[k] + cavities
        log_z += _normalise(pairs, offsets[e], offsets[e] + rows * columns)
    for a in range(len(scopes) - 1):
        begin, d = factor_offsets[a], 2 * m + scopes[a + 1]
        _spread(a, scopes, members, factor_offsets, factors, nodes, unary_offsets, starts, messages, d, sets, begin)
        log_z += _normalise(sets, begin, factor_offsets[a + 1])
    for i in range(len(unary_offsets) - 1):
        degree = indptr[i + 1] - indptr[i]
        log_z += (1.0 - degree) * _normalise(nodes, unary_offsets[i], unary_offsets[i + 1])
    return log_z
