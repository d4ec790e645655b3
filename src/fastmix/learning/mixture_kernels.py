"""Compiled loops over rows of data for mixtures of trees: sums over missing values, expected counts, draws.

All components are done side by side: the last axis of every table, message and count is that of the components.
A table of variable i has a row for every state of its parent and of itself, from ``starts[i]`` on; ``offsets`` are
those of the states of all variables, ``message_starts`` those of the states of their parents. A root has the parent -1,
of one state.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import inner, outer

__all__ = ["add_counts", "add_expected_counts", "add_logs", "draw_gaps", "masses_of_gaps"]

#: Messages whose largest number is below it are scaled, so that none is lost to underflow.
SMALL = 1e-100


@outer
def add_logs(states, parents, starts, num_states, tables, logs):
    """Add to ``logs`` (R, K) the logarithms, in tables (T, K), of the probabilities of complete rows."""
    for r in range(states.shape[0]):
        out = logs[r]
        for i in range(states.shape[1]):
            parent = parents[i]
            above = states[r, parent] if parent >= 0 else 0
            entry = tables[starts[i] + above * num_states[i] + states[r, i]]
            for k in range(out.shape[0]):
                out[k] += entry[k]


@outer
def add_counts(states, parents, starts, num_states, shares, counts):
    """Add to ``counts`` (T, K) the shares (R, K) of complete rows, where their states are."""
    for r in range(states.shape[0]):
        share = shares[r]
        for i in range(states.shape[1]):
            parent = parents[i]
            above = states[r, parent] if parent >= 0 else 0
            entry = counts[starts[i] + above * num_states[i] + states[r, i]]
            for k in range(share.shape[0]):
                entry[k] += share[k]


@inner
def _gather(row, order, parents, starts, offsets, message_starts, tables, inside, messages, logs):
    """Messages from the leaves of a row to the roots; its log-masses (K,) are added to ``logs``.

    ``inside`` (S, K) are probabilities of what is observed below a state, up to a factor for every component whose
    logarithm is in ``logs``; ``messages`` are their sums over the states of a variable, for those of its parent.
    """
    num_components = logs.shape[0]
    for i in order:
        for x in range(offsets[i], offsets[i + 1]):
            is_allowed = row[i] < 0 or row[i] == x - offsets[i]
            for k in range(num_components):
                inside[x, k] = 1.0 if is_allowed else 0.0
    for place in range(len(order) - 1, -1, -1):
        i = order[place]
        parent = parents[i]
        count = offsets[i + 1] - offsets[i]
        num_above = offsets[parent + 1] - offsets[parent] if parent >= 0 else 1
        for a in range(num_above):
            message = messages[message_starts[i] + a]
            if parent >= 0 and row[parent] >= 0 and row[parent] != a:
                continue
            for k in range(num_components):
                message[k] = 0.0
            for x in range(count):
                if row[i] >= 0 and row[i] != x:
                    continue
                table = tables[starts[i] + a * count + x]
                own = inside[offsets[i] + x]
                for k in range(num_components):
                    message[k] += table[k] * own[k]
            if parent >= 0:
                above = inside[offsets[parent] + a]
                for k in range(num_components):
                    above[k] *= message[k]
            else:
                for k in range(num_components):
                    logs[k] += math.log(message[k])
        if parent >= 0:
            _scale(inside[offsets[parent] : offsets[parent + 1]], logs)


@inner
def _scale(inside, logs):
    """Scale the numbers (states, K) of every component that are all small, and keep the logarithm of the factor."""
    for k in range(logs.shape[0]):
        top = 0.0
        for x in range(inside.shape[0]):
            top = max(top, inside[x, k])
        if 0.0 < top < SMALL:
            for x in range(inside.shape[0]):
                inside[x, k] /= top
            logs[k] += math.log(top)


@outer
def masses_of_gaps(states, order, parents, starts, offsets, message_starts, tables, logs):
    """Add to ``logs`` (R, K) the log-probabilities of rows, -1 summed over, for tables (T, K) of probabilities."""
    num_components = logs.shape[1]
    inside = np.empty((offsets[-1], num_components))
    messages = np.empty((message_starts[-1], num_components))
    for r in range(states.shape[0]):
        _gather(states[r], order, parents, starts, offsets, message_starts, tables, inside, messages, logs[r])


@outer
def add_expected_counts(states, order, parents, starts, offsets, message_starts, tables, shares, counts):
    """Add to ``counts`` (T, K) the expected counts of rows with missing values, whose components have ``shares``."""
    num_components = shares.shape[1]
    inside = np.empty((offsets[-1], num_components))
    messages = np.empty((message_starts[-1], num_components))
    posterior = np.empty((offsets[-1], num_components))
    scale = np.zeros(num_components)
    for r in range(states.shape[0]):
        row = states[r]
        _gather(row, order, parents, starts, offsets, message_starts, tables, inside, messages, scale)
        for i in order:
            parent = parents[i]
            count = offsets[i + 1] - offsets[i]
            num_above = offsets[parent + 1] - offsets[parent] if parent >= 0 else 1
            for x in range(count):
                for k in range(num_components):
                    posterior[offsets[i] + x, k] = 0.0
            for a in range(num_above):
                if parent >= 0 and row[parent] >= 0 and row[parent] != a:
                    continue
                above = posterior[offsets[parent] + a] if parent >= 0 else shares[r]
                message = messages[message_starts[i] + a]
                for x in range(count):
                    if row[i] >= 0 and row[i] != x:
                        continue
                    table = tables[starts[i] + a * count + x]
                    entry = counts[starts[i] + a * count + x]
                    own = inside[offsets[i] + x]
                    below = posterior[offsets[i] + x]
                    for k in range(num_components):
                        joint = above[k] * table[k] * own[k] / message[k] if message[k] > 0.0 else 0.0
                        entry[k] += joint
                        below[k] += joint


@outer
def draw_gaps(states, order, parents, starts, offsets, message_starts, tables, components, numbers):
    """Fill missing values of rows, in place, by draws given the rest and their components, by numbers (R, n) in [0, 1).

    ``tables`` (K, T, 1) are the probabilities of every component alone.
    """
    inside = np.empty((offsets[-1], 1))
    messages = np.empty((message_starts[-1], 1))
    scale = np.zeros(1)
    for r in range(states.shape[0]):
        row = states[r]
        own_tables = tables[components[r]]
        _gather(row, order, parents, starts, offsets, message_starts, own_tables, inside, messages, scale)
        for i in order:
            if row[i] >= 0:
                continue
            parent = parents[i]
            count = offsets[i + 1] - offsets[i]
            above = row[parent] if parent >= 0 else 0
            left = numbers[r, i] * messages[message_starts[i] + above, 0]
            x = 0
            while x < count - 1:
                left -= own_tables[starts[i] + above * count + x, 0] * inside[offsets[i] + x, 0]
                if left < 0.0:
                    break
                x += 1
            row[i] = x
