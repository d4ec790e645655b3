"""Compiled moves of blocks: the best states of many variables at once, given those of the others.

A block is what is left when some variables stay as they are. These are chosen such that the tables of an elimination
order fit a limit: with the others fixed, the cliques of the order lose the variables that stay.
"""

from __future__ import annotations

import numpy as np

from fastmix._jit import njit

__all__ = ["choose_fixed", "move_block"]

#: Values that differ by less, relative to 1 and their size, count as equal: which of them is taken is drawn.
_TIE = 1e-9


@njit(cache=True, nogil=True)
def choose_fixed(bag_starts, bags, log_states, log_limit, order, uniforms, sizes, crowding, fixed):
    """Mark variables that stay, so that no clique of an elimination order has more than a number of entries.

    Parameters
    ----------
    bag_starts, bags : int arrays
        The clique of variable v, itself included, is ``bags[bag_starts[v]:bag_starts[v + 1]]``.
    log_states : float array (n,)
        Logs of the numbers of states.
    log_limit : float
        Log of the number of entries.
    order : int array (n,)
        In which cliques are looked at: those that are too large lose variables, drawn by how many too large ones they
        are in.
    uniforms : float array
        Numbers to draw by, from 0 to 1; at least as many as there are variables.
    sizes, crowding : float arrays (n,)
        Room for logs of entries, and for the numbers of cliques that are too large.
    fixed : bool array (n,)
        What stays; variables that are marked already are left out of all cliques.
    """
    n = len(log_states)
    for v in range(n):
        sizes[v] = 0.0
        crowding[v] = 0.0
    for v in range(n):
        if fixed[v]:
            continue
        for k in range(bag_starts[v], bag_starts[v + 1]):
            if not fixed[bags[k]]:
                sizes[v] += log_states[bags[k]]
        if sizes[v] > log_limit:
            for k in range(bag_starts[v], bag_starts[v + 1]):
                crowding[bags[k]] += 1.0
    drawn = 0
    for v in order:
        if fixed[v]:
            continue
        while True:
            size = 0.0
            weight = 0.0
            for k in range(bag_starts[v], bag_starts[v + 1]):
                u = bags[k]
                if not fixed[u]:
                    size += log_states[u]
                    weight += crowding[u] * crowding[u]
            if size <= log_limit:
                break
            left = uniforms[drawn] * weight
            drawn += 1
            chosen = -1
            for k in range(bag_starts[v], bag_starts[v + 1]):
                u = bags[k]
                if not fixed[u]:
                    chosen = u
                    left -= crowding[u] * crowding[u]
                    if left < 0.0:
                        break
            fixed[chosen] = True
            if chosen == v:
                break


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
    order, place : int arrays (n,)
        An order of elimination, and the place of every variable in it.
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
    most = num_tables + n
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
    message_starts = np.zeros(n + 1, dtype=np.int64)
    message_scopes = np.zeros(n + 1, dtype=np.int64)
    message_members = np.empty(n * limits[2], dtype=np.int64)
    message_strides = np.empty(n * limits[2], dtype=np.int64)
    messages = np.empty(limits[1])
    sums = np.empty(limits[0])
    clique = np.empty(limits[2], dtype=np.int64)
    steps = np.empty(limits[2], dtype=np.int64)
    digits = np.empty(limits[2], dtype=np.int64)
    slot = np.full(n, -1, dtype=np.int64)
    num_messages = 0
    # 2.
    for v in order:
        if fixed[v]:
            continue
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
        num_messages += 1
    # 3.
    for p in range(n - 1, -1, -1):
        v = order[p]
        if fixed[v]:
            continue
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
