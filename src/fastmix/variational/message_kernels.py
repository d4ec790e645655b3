"""Compiled steps of belief propagation on vectors of logs: one message, all of one factor, the belief of one variable.

Import it inside functions only: it needs Numba. A message is a vector of logs, the largest entry 0; message d lies from
``starts[d]`` on, and is numbered as in :mod:`fastmix.variational.messages`. Tables may have forbidden pairs, as long as
every state has an allowed partner. Variable i has its log-potentials from ``unary_starts[i]`` on.

The *cavity* of a message is the log-belief of its sender without what came the opposite way. Functions take whole
arrays and where their part begins: a slice costs more than the few numbers in it. They take arrays one by one: reading
them from a tuple in the innermost loops costs a tenth of the time, and half as much again for mean field.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import inner

__all__ = ["copy_messages", "distance", "mix", "node_total", "renew", "renew_factor", "spread"]

# Logs below the largest from which on exponentials are lost in rounding: they are at least exp(-300), and what
# underflows is below exp(-745).
_LEVEL_LOG_RANGE = 300.0


@inner
def copy_messages(target, source):
    """Copy all messages; a slice assigned to would take longer to compile than all the rest."""
    for d in range(len(target)):
        target[d] = source[d]


@inner
def distance(x, y, start, count):
    """The largest difference of two messages that begin at the same place."""
    largest = 0.0
    for b in range(start, start + count):
        largest = max(largest, abs(x[b] - y[b]))
    return largest


@inner
def mix(target, other, weight, start, count):
    """Move the logs of a message toward another one by a fraction of the way."""
    for b in range(start, start + count):
        target[b] += weight * (other[b] - target[b])
    _move_top_to_zero(target, start, count)


@inner
def node_total(i, unary, unary_starts, indptr, incoming, starts, messages, totals):
    """Write the log-belief of one variable, not normalized: its unary and all incoming messages."""
    base = unary_starts[i]
    count = unary_starts[i + 1] - base
    for k in range(base, base + count):
        totals[k] = unary[k]
    for p in range(indptr[i], indptr[i + 1]):
        begin = starts[incoming[p]]
        for k in range(count):
            totals[base + k] += messages[begin + k]


@inner
def _move_top_to_zero(message, start, count):
    """Subtract the largest entry of a message from all of it."""
    top = message[start]
    for b in range(start + 1, start + count):
        top = max(top, message[b])
    for b in range(start, start + count):
        message[b] -= top


# -- one message of an edge -----------------------------------------------------------------------------------------


@inner
def renew(d, edges, table_starts, tables, weights, tame, unary_starts, totals, starts, messages, cavity, work, out):
    """Write the new message number d to ``out``, from the log-beliefs (``totals``) of its sender."""
    m = len(edges)
    goes_forward = d < m
    e = d if goes_forward else d - m
    opposite = d + m if goes_forward else e
    sender = unary_starts[edges[e, 0] if goes_forward else edges[e, 1]]
    begin = starts[opposite]
    num_in = starts[opposite + 1] - begin
    for k in range(num_in):
        cavity[k] = totals[sender + k] - messages[begin + k]
    num_out = starts[d + 1] - starts[d]
    first = table_starts[e]
    if tame[e]:
        _tame_message(cavity, num_in, weights, first, goes_forward, work, out, starts[d], num_out)
    else:
        _wild_message(cavity, num_in, tables, first, goes_forward, out, starts[d], num_out)
    _move_top_to_zero(out, starts[d], num_out)


@inner
def _wild_message(cavity, num_in, table, first, forward, out, start, num_out):
    """Write ``out[b] = log sum_a exp(cavity[a] + table[a, b])``, each sum relative to its largest term.

    The table begins at ``first`` and lies by rows; forward messages sum over rows, the others over columns.
    """
    step_in = num_out if forward else 1
    step_out = 1 if forward else num_in
    for b in range(num_out):
        top = -np.inf
        for a in range(num_in):
            top = max(top, cavity[a] + table[first + a * step_in + b * step_out])
        total = 0.0
        for a in range(num_in):
            total += np.exp(cavity[a] + table[first + a * step_in + b * step_out] - top)
        out[start + b] = top + np.log(total)


@inner
def _tame_message(cavity, num_in, weights, first, forward, work, out, start, num_out):
    """Write the same up to a constant, by exponentials of the table: the product of a matrix and a vector.

    No weight is below exp(-300), no double below exp(-745): entries of the cavity that underflow are too small to
    matter.
    """
    top = cavity[0]
    for a in range(1, num_in):
        top = max(top, cavity[a])
    for a in range(num_in):
        work[a] = np.exp(cavity[a] - top)
    if forward:
        for b in range(num_out):
            out[start + b] = 0.0
        for a in range(num_in):
            share = work[a]
            row = first + a * num_out
            for b in range(num_out):
                out[start + b] += share * weights[row + b]
    else:
        for b in range(num_out):
            total = 0.0
            row = first + b * num_in
            for a in range(num_in):
                total += work[a] * weights[row + a]
            out[start + b] = total
    for b in range(start, start + num_out):
        out[b] = np.log(out[b])


# -- all messages of a factor ---------------------------------------------------------------------------------------


@inner
def spread(a, d, scope_starts, members, table_starts, tables, unary_starts, totals, starts, messages, out, begin):
    """Write the log-belief of factor a, not normalized, from ``begin`` on; the message to its last member is d - 1.

    Members are gone through from the last: ``step`` is how far two neighboring states of one are apart in the table.
    """
    size = table_starts[a + 1] - table_starts[a]
    for x in range(size):
        out[begin + x] = tables[table_starts[a] + x]
    step = 1
    for k in range(scope_starts[a + 1] - 1, scope_starts[a] - 1, -1):
        d -= 1
        base = unary_starts[members[k]]
        count = starts[d + 1] - starts[d]
        for block in range(begin, begin + size, step * count):
            for s in range(count):
                cavity = totals[base + s] - messages[starts[d] + s]
                for x in range(block + s * step, block + (s + 1) * step):
                    out[x] += cavity
        step *= count


@inner
def _find_tops(table, size, step, count, top):
    """Write the largest entry of a factor's table for every state of one member, whose states are ``step`` apart."""
    for s in range(count):
        top[s] = -np.inf
    for block in range(0, size, step * count):
        for s in range(count):
            best = top[s]
            for x in range(block + s * step, block + (s + 1) * step):
                best = max(best, table[x])
            top[s] = best


@inner
def _is_level(num_members, starts, d, table, size, top):
    """Whether no state of any member has a largest entry below exp(-300) of the largest of all, which comes back too.

    Then one exponential of every entry serves all members.
    """
    peak = -np.inf
    for x in range(size):
        peak = max(peak, table[x])
    step = 1
    for _ in range(num_members):
        d -= 1
        count = starts[d + 1] - starts[d]
        _find_tops(table, size, step, count, top)
        for s in range(count):
            if not top[s] >= peak - _LEVEL_LOG_RANGE:
                return False, peak
        step *= count
    return True, peak


@inner
def renew_factor(
    a, d, scope_starts, members, table_starts, tables, unary_starts, totals, starts, messages, table, top, sums, out
):
    """Write the new messages of factor a, from the log-beliefs of its members; that to the last is number d - 1.

    1. The log-belief of the factor goes to ``table``.
    2. It is summed over all states of the others for each state of a member: by one exponential of every entry where
       these do not differ too much, otherwise relative to the largest of every state.
    3. Taking the cavity out again leaves the message.
    """
    begin = np.int64(0)  # of the type that other callers have: a literal would be compiled for once more
    spread(
        a, d, scope_starts, members, table_starts, tables, unary_starts, totals, starts, messages, table, begin
    )  # 1.
    size = table_starts[a + 1] - table_starts[a]
    num_members = scope_starts[a + 1] - scope_starts[a]
    level, peak = _is_level(num_members, starts, d, table, size, top)
    if level:
        for x in range(size):
            table[x] = np.exp(table[x] - peak)
    step = 1
    for k in range(scope_starts[a + 1] - 1, scope_starts[a] - 1, -1):
        d -= 1
        base = unary_starts[members[k]]
        begin = starts[d]
        count = starts[d + 1] - begin
        for s in range(count):
            top[s] = peak
            sums[s] = 0.0
        if not level:
            _find_tops(table, size, step, count, top)
        for block in range(0, size, step * count):  # 2.
            for s in range(count):
                total = 0.0
                for x in range(block + s * step, block + (s + 1) * step):
                    if level:
                        total += table[x]
                    elif top[s] > -np.inf:
                        total += np.exp(table[x] - top[s])
                sums[s] += total
        for s in range(count):  # 3.
            out[begin + s] = top[s] + np.log(sums[s]) - (totals[base + s] - messages[begin + s])
        _move_top_to_zero(out, begin, count)
        step *= count
