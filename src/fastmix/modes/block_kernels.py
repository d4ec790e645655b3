"""Compiled moves of blocks: the best states of many variables at once, given those of the others.

A block is what is left when some variables stay as they are, chosen such that the tables of an elimination order of the
others fit a limit.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["choose_block", "fill_region", "move_block"]

#: Values that differ by less, relative to 1 and their size, count as equal: which of them is taken is drawn.
_TIE = 1e-9
#: Variables that are drawn where one must stay.
_NUM_DRAWN = 4
#: Log of the entries of a table at most, once all tables together have become many: 64 entries.
_SMALL_LOG = 4.1589
#: Log of the entries of the first tables, and by how much it is raised at a time: by a factor of two.
_FIRST_LEVEL = 1.5
_LEVEL_STEP = 0.6932
#: The largest noise.
_MOST_NOISE = 1.0


@njit(cache=True, nogil=True)
def choose_block(inside, indptr, neighbors, log_states, log_limit, log_total, noise, uniforms, fixed, order):
    """Choose a block among some variables, and an order that eliminates it with small tables.

    1. Going around, eliminate variables whose tables are small enough for now; the neighbors of each become neighbors
       of each other. Where none is, tables may be larger.
    2. Where none may be larger, a variable stays: of a few that are drawn the one with most neighbors.

    Parameters
    ----------
    inside : int array (k,)
        The variables that may be in the block.
    indptr, neighbors : int arrays
        The graph in compressed rows.
    log_states : float array (n,)
        Logs of the numbers of states.
    log_limit, log_total : float
        Logs of the numbers of entries of a table and of all of them, at most. Once all together reach half of what
        they may have, tables must be small.
    noise : float array (k,)
        What is added to the logs of entries where they are compared, at most 1.
    uniforms : float array
        Numbers to draw by, from 0 to 1; used again when they are used up.
    fixed : bool array (n,)
        What stays: all true at first, false in the end for the variables of the block.
    order : int array (n,)
        Its first entries get the variables of the block.

    Returns
    -------
    tuple
        Variables of the block, of its widest table, entries of its largest table, and of all messages.
    """
    k = len(inside)
    num_words = (k + 63) // 64
    rows = np.zeros((k, num_words), dtype=np.uint64)
    local = np.full(len(fixed), -1, dtype=np.int64)
    for a in range(k):
        local[inside[a]] = a
    sizes = np.empty(k)
    degrees = np.zeros(k, dtype=np.int64)
    for a in range(k):
        sizes[a] = log_states[inside[a]]
        for m in range(indptr[inside[a]], indptr[inside[a] + 1]):
            b = local[neighbors[m]]
            if b >= 0:
                rows[a, b >> 6] |= np.uint64(1) << np.uint64(b & 63)
                sizes[a] += log_states[inside[b]]
                degrees[a] += 1
    waiting = np.arange(k)
    left = k
    around = np.empty(k, dtype=np.int64)
    drawn = 0
    count = 0
    widest = 1
    largest = 0.0
    total = 0.0
    messages = 0.0
    half = 0.5 * np.exp(log_total)
    level = _FIRST_LEVEL  # log of the entries that a table may have now
    looked = 0
    at_place = 0
    while left > 0:
        limit = log_limit if total < half else min(log_limit, _SMALL_LOG)
        if at_place >= left:
            at_place = 0
        a = waiting[at_place]
        # A variable that has more states than a table may have entries can move alone.
        fits = sizes[a] <= limit or degrees[a] == 0
        best = at_place
        stays = False
        if not (fits and sizes[a] + noise[a] <= level):
            at_place += 1
            looked += 1
            if looked <= left:
                continue
            looked = 0
            if level < limit + _MOST_NOISE:
                level += _LEVEL_STEP
                continue
            stays = True
            level -= 2.0 * _LEVEL_STEP
        looked = 0
        if stays:  # 2.
            most = -1
            for _ in range(_NUM_DRAWN):
                i = min(int(uniforms[drawn % len(uniforms)] * left), left - 1)
                drawn += 1
                if degrees[waiting[i]] > most:
                    most = degrees[waiting[i]]
                    best = i
            a = waiting[best]
        left -= 1
        waiting[best] = waiting[left]
        degree = 0
        for word in range(num_words):
            bits = rows[a, word]
            at = word * 64
            while bits:
                if bits & np.uint64(1):
                    around[degree] = at
                    degree += 1
                bits >>= np.uint64(1)
                at += 1
        own_word = a >> 6
        own_bit = np.uint64(1) << np.uint64(a & 63)
        for m in range(degree):
            b = around[m]
            rows[b, own_word] &= ~own_bit
            sizes[b] -= log_states[inside[a]]
            degrees[b] -= 1
        if stays:
            continue
        # 1.
        v = inside[a]
        fixed[v] = False
        order[count] = v
        count += 1
        entries = np.exp(sizes[a])
        total += entries
        largest = max(largest, entries)
        messages += entries / np.exp(log_states[v])
        widest = max(widest, degree + 1)
        for m in range(degree):
            b = around[m]
            for other in range(degree):
                c = around[other]
                if c != b:
                    word = c >> 6
                    bit = np.uint64(1) << np.uint64(c & 63)
                    if not rows[b, word] & bit:
                        rows[b, word] |= bit
                        sizes[b] += log_states[inside[c]]
                        degrees[b] += 1
    return count, widest, largest, messages


@njit(cache=True, nogil=True)
def fill_region(indptr, neighbors, begins, uniforms, met, region):
    """Fill in variables in the order in which a search in breadth from the first of ``begins`` meets them.

    The neighbors of each are met beginning at one that is drawn. Where a component ends, the search begins anew at the
    next of ``begins`` that was not met; ``met`` is all false at first.
    """
    found = 0
    reached = 0
    next_begin = 0
    while found < len(region):
        if reached == found:
            while met[begins[next_begin]]:
                next_begin += 1
            met[begins[next_begin]] = True
            region[found] = begins[next_begin]
            found += 1
            continue
        v = region[reached]
        degree = indptr[v + 1] - indptr[v]
        shift = int(uniforms[reached % len(uniforms)] * degree)
        reached += 1
        for k in range(degree):
            u = neighbors[indptr[v] + (k + shift) % degree]
            if not met[u] and found < len(region):
                met[u] = True
                region[found] = u
                found += 1


@njit(cache=True, nogil=True)
def move_block(x, fixed, order, place, states, scopes, tables, values, uniforms, limits):
    """Set the variables of a block to states that are best together, given those that stay; whether there was room.

    1. Every table goes to the first of its free variables in the order.
    2. Variable by variable, the tables there are added up over their free variables, and maximized over the first. The
       result is a table for the next variable that it has.
    3. Backwards, each variable takes a state that is best given those after it; among equals one is drawn.

    Parameters
    ----------
    x : int array (n,)
        The configuration, changed in place.
    fixed : bool array (n,)
        What stays.
    order, place : int arrays (block,), (n,)
        An order of elimination of the block, and the place of every variable of it.
    states : int array (n,)
        Numbers of states.
    scopes : tuple of int arrays
        Where the scope of each table begins in the other two; the variables, and how far a state moves in the table.
    tables : int array
        Where each table begins in ``values``.
    values : float array
        Finite log-potentials.
    uniforms : float array (n,)
        Numbers to draw by, from 0 to 1.
    limits : int array (3,)
        Entries of a clique, of all messages together, and variables of a clique, at most.
    """
    scope_starts, members, strides = scopes
    n = len(x)
    num_tables = len(tables)
    most = num_tables + len(order)
    following = np.full(most, -1, dtype=np.int64)  # the next table of the same variable
    first = np.full(n, -1, dtype=np.int64)
    bases = np.empty(num_tables, dtype=np.int64)
    # 1.
    for t in range(num_tables):
        base = tables[t]
        owner = -1
        for k in range(scope_starts[t], scope_starts[t + 1]):
            v = members[k]
            if fixed[v]:
                base += x[v] * strides[k]
            elif owner < 0 or place[v] < place[owner]:
                owner = v
        bases[t] = base
        if owner >= 0:
            following[t] = first[owner]
            first[owner] = t
    # Messages: the table of the k-th is at message_starts[k], its scope from message_scopes[k] on.
    message_starts = np.zeros(len(order) + 1, dtype=np.int64)
    message_scopes = np.zeros(len(order) + 1, dtype=np.int64)
    message_members = np.empty(len(order) * limits[2], dtype=np.int64)
    message_strides = np.empty(len(order) * limits[2], dtype=np.int64)
    messages = np.empty(limits[1])
    sums = np.empty(limits[0])
    clique = np.empty(limits[2], dtype=np.int64)
    steps = np.empty(limits[2], dtype=np.int64)
    digits = np.empty(limits[2], dtype=np.int64)
    slot = np.full(n, -1, dtype=np.int64)
    # 2.
    for num_messages, v in enumerate(order):
        width = 0
        entries = 1
        t = first[v]
        while t >= 0:
            if t < num_tables:
                begin = scope_starts[t]
                end = scope_starts[t + 1]
            else:
                begin = message_scopes[t - num_tables]
                end = message_scopes[t - num_tables + 1]
            for k in range(begin, end):
                u = members[k] if t < num_tables else message_members[k]
                if u != v and not fixed[u] and slot[u] < 0:
                    if width == limits[2]:
                        return False
                    slot[u] = width
                    clique[width] = u
                    width += 1
                    entries *= states[u]
            t = following[t]
        own = states[v]
        begin_message = message_starts[num_messages]
        if entries * own > limits[0] or begin_message + entries > limits[1]:
            return False
        # The states of v run fastest in the sums.
        sums[: entries * own] = 0.0
        t = first[v]
        while t >= 0:
            for d in range(width):
                steps[d] = 0
                digits[d] = 0
            step = 0
            if t < num_tables:
                at = bases[t]
                for k in range(scope_starts[t], scope_starts[t + 1]):
                    u = members[k]
                    if u == v:
                        step = strides[k]
                    elif not fixed[u]:
                        steps[slot[u]] = strides[k]
                _add_table(sums, values, at, step, own, entries, steps, digits, clique, states, width)
            else:
                k_message = t - num_tables
                at = message_starts[k_message]
                for k in range(message_scopes[k_message], message_scopes[k_message + 1]):
                    u = message_members[k]
                    if u == v:
                        step = message_strides[k]
                    else:
                        steps[slot[u]] = message_strides[k]
                _add_table(sums, messages, at, step, own, entries, steps, digits, clique, states, width)
            t = following[t]
        for i in range(entries):
            best = sums[i * own]
            for s in range(1, own):
                best = max(best, sums[i * own + s])
            messages[begin_message + i] = best
        begin_scope = message_scopes[num_messages]
        stride = 1
        owner = -1
        for d in range(width - 1, -1, -1):
            u = clique[d]
            message_members[begin_scope + d] = u
            message_strides[begin_scope + d] = stride
            stride *= states[u]
            slot[u] = -1
            if owner < 0 or place[u] < place[owner]:
                owner = u
        message_starts[num_messages + 1] = begin_message + entries
        message_scopes[num_messages + 1] = begin_scope + width
        if owner >= 0:
            t = num_tables + num_messages
            following[t] = first[owner]
            first[owner] = t
    # 3.
    for p in range(len(order) - 1, -1, -1):
        v = order[p]
        own = states[v]
        for s in range(own):
            sums[s] = 0.0
        t = first[v]
        while t >= 0:
            step = 0
            if t < num_tables:
                at = bases[t]
                for k in range(scope_starts[t], scope_starts[t + 1]):
                    u = members[k]
                    if u == v:
                        step = strides[k]
                    elif not fixed[u]:
                        at += x[u] * strides[k]
                for s in range(own):
                    sums[s] += values[at + s * step]
            else:
                at = message_starts[t - num_tables]
                for k in range(message_scopes[t - num_tables], message_scopes[t - num_tables + 1]):
                    u = message_members[k]
                    if u == v:
                        step = message_strides[k]
                    else:
                        at += x[u] * message_strides[k]
                for s in range(own):
                    sums[s] += messages[at + s * step]
            t = following[t]
        best = sums[0]
        for s in range(1, own):
            best = max(best, sums[s])
        least = best - _TIE * (1.0 + abs(best))
        num_best = 0
        for s in range(own):
            num_best += sums[s] >= least
        wanted = min(int(uniforms[v] * num_best), num_best - 1)
        for s in range(own):
            if sums[s] >= least:
                if wanted == 0:
                    x[v] = s
                    break
                wanted -= 1
    return True


@njit(cache=True, nogil=True)
def _add_table(sums, values, at, step, own, entries, steps, digits, clique, states, width):
    """Add a table to sums over a clique, whose last variable runs fastest but for the one that is maximized."""
    for i in range(entries):
        row = i * own
        for s in range(own):
            sums[row + s] += values[at + s * step]
        for d in range(width - 1, -1, -1):
            digits[d] += 1
            at += steps[d]
            if digits[d] < states[clique[d]]:
                break
            at -= digits[d] * steps[d]
            digits[d] = 0
