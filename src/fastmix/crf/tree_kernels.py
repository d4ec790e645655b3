"""Compiled sums over the configurations of many trees at once: marginals, joint weights of neighbors, draws, modes.

All trees of all examples are one forest. ``order`` lists the nodes of a tree from its root on, so that parents come
before their children and children of one parent stand side by side; ``parent`` (-1 at a root), ``edge`` (that to the
parent) and ``parent_first`` (whether the parent is the first end of that edge) are by node.

Sums run in the linear domain, scaled at every node. Where a tree has weights so far apart that a scaled number may
have vanished, it is flagged and done once more in logarithms.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import inner, outer, summing
from fastmix.chains.threshold_kernels import copy_values

__all__ = [
    "add_pairs", "add_pairs_in_logs", "collect_in_logs", "draw_states", "find_modes", "order_trees", "sum_trees",
    "take_tops",
]  # fmt: skip

#: Scaled sums below this may have lost terms: such trees are done in logarithms.
SMALLEST_SUM = 1e-140


@summing
def _to_first(table, values, out):
    """``out[a] = sum_b table[a, b] values[b]``, and the largest of them."""
    largest = 0.0
    for a in range(len(out)):
        total = 0.0
        for b in range(len(values)):
            total += table[a, b] * values[b]
        out[a] = total
        largest = max(largest, total)
    return largest


@inner
def _to_second(table, values, out):
    """``out[b] = sum_a values[a] table[a, b]``, and the largest of them."""
    out[:] = 0.0
    for a in range(len(values)):
        value = values[a]
        for b in range(len(out)):
            out[b] += value * table[a, b]
    largest = 0.0
    for b in range(len(out)):
        largest = max(largest, out[b])
    return largest


@inner
def _scale(values, by):
    """Divide values by a number."""
    for a in range(len(values)):
        values[a] /= by


@inner
def _multiply(values, by):
    """Multiply values by others, and keep their largest from vanishing; the log of what they were divided by."""
    largest = 0.0
    for a in range(len(values)):
        values[a] *= by[a]
        largest = max(largest, values[a])
    if largest == 0.0 or largest > SMALLEST_SUM:
        return 0.0
    _scale(values, largest)
    return math.log(largest)


@outer
def take_tops(values, tops, lowered):
    """The largest entry of every row, and the rows less these."""
    for row in range(len(values)):
        largest = -math.inf
        for a in range(values.shape[1]):
            largest = max(largest, values[row, a])
        tops[row] = largest
        for a in range(values.shape[1]):
            lowered[row, a] = values[row, a] - largest


@outer
def sum_trees(
    starts, order, parent, edge, parent_first, weights, tables, table_of, inside, message, cavity, outside, total, log_z
):
    """Fill the marginals of all nodes and log Z of all trees, NaN for a tree to be done in logarithms.

    ``weights`` (N, K) and ``tables`` (T, K, K) are exponentials whose largest entries are 1. Afterwards ``inside`` has
    the weight of every subtree by the state of its root, ``cavity`` that of the rest of the tree by the state of the
    parent, ``total`` the sum of their products with the table, and ``outside`` the marginals.
    """
    num_states = weights.shape[1]
    for tree in range(len(starts) - 1):
        begin, end = starts[tree], starts[tree + 1]
        is_good = True
        log_scale = 0.0

        # 1. From the leaves to the root.
        for place in range(begin, end):
            inside[order[place]] = 1.0
        for place in range(end - 1, begin - 1, -1):
            node = order[place]
            largest = 0.0
            for a in range(num_states):
                inside[node, a] *= weights[node, a]
                largest = max(largest, inside[node, a])
            if largest < SMALLEST_SUM:
                is_good = False
                break
            _scale(inside[node], largest)
            log_scale += math.log(largest)
            above = parent[node]
            if above < 0:
                continue
            table = tables[table_of[edge[node]]]
            if parent_first[node]:
                largest = _to_first(table, inside[node], message[node])
            else:
                largest = _to_second(table, inside[node], message[node])
            if largest < SMALLEST_SUM:
                is_good = False
                break
            _scale(message[node], largest)
            log_scale += math.log(largest)
            copy_values(cavity[node], inside[above])  # messages of the siblings that come later
            log_scale += _multiply(inside[above], message[node])
        if not is_good:
            log_z[tree] = math.nan
            continue

        # 2. From the root to the leaves; ``prefix`` of a node is all but its later children, kept in ``message``.
        root = order[begin]
        sum_of_root = 0.0
        for a in range(num_states):
            sum_of_root += inside[root, a]
            outside[root, a] = 1.0
        log_scale += math.log(sum_of_root)
        for place in range(begin, end):
            node = order[place]
            above = parent[node]
            if above >= 0:
                # The prefix of the parent stands in its row of ``message``, which nothing needs any more.
                _multiply(cavity[node], message[above])
                table = tables[table_of[edge[node]]]
                if parent_first[node]:
                    largest = _to_second(table, cavity[node], outside[node])
                else:
                    largest = _to_first(table, cavity[node], outside[node])
                if largest < SMALLEST_SUM:
                    is_good = False
                    break
                _scale(outside[node], largest)
                _scale(cavity[node], largest)
                _multiply(message[above], message[node])
            whole = 0.0
            for a in range(num_states):
                message[node, a] = outside[node, a] * weights[node, a]
                outside[node, a] *= inside[node, a]
                whole += outside[node, a]
            if whole < SMALLEST_SUM:
                is_good = False
                break
            total[node] = whole
            _scale(outside[node], whole)
        log_z[tree] = log_scale if is_good else math.nan


@outer
def add_pairs(starts, order, edge, parent_first, table_of, inside, cavity, total, log_z, pairs):
    """Add, for every edge, what its table is multiplied by to give its joint distribution, to ``pairs`` (T, K, K)."""
    num_states = inside.shape[1]
    for tree in range(len(starts) - 1):
        if math.isnan(log_z[tree]):
            continue
        for place in range(starts[tree] + 1, starts[tree + 1]):
            node = order[place]
            out = pairs[table_of[edge[node]]]
            if parent_first[node]:
                first, second = cavity[node], inside[node]
            else:
                first, second = inside[node], cavity[node]
            for a in range(num_states):
                value = first[a] / total[node]
                for b in range(num_states):
                    out[a, b] += value * second[b]


@inner
def _log_sum(values):
    """``log sum exp`` of some values; -inf where all are."""
    largest = -math.inf
    for a in range(len(values)):
        largest = max(largest, values[a])
    if largest == -math.inf:
        return largest
    total = 0.0
    for a in range(len(values)):
        total += math.exp(values[a] - largest)
    return largest + math.log(total)


@inner
def _log_message(table, by_parent_first, values, scratch, out):
    """The log-message along an edge: from values at the child to the states of the parent."""
    for a in range(len(out)):
        for b in range(len(values)):
            scratch[b] = values[b] + (table[a, b] if by_parent_first else table[b, a])
        out[a] = _log_sum(scratch)


@outer
def collect_in_logs(trees, starts, order, parent, edge, parent_first, unary, tables, table_of, inside, message, log_z):
    """Fill the log-weights of the subtrees of some trees by the state of their roots, messages to parents, log Z."""
    scratch = np.empty(unary.shape[1])
    for tree in trees:
        for place in range(starts[tree], starts[tree + 1]):
            copy_values(inside[order[place]], unary[order[place]])
        for place in range(starts[tree + 1] - 1, starts[tree] - 1, -1):
            node = order[place]
            above = parent[node]
            if above < 0:
                log_z[tree] = _log_sum(inside[node])
                continue
            table = tables[table_of[edge[node]]]
            _log_message(table, parent_first[node], inside[node], scratch, message[node])
            for a in range(len(scratch)):
                inside[above, a] += message[node, a]


@outer
def add_pairs_in_logs(
    trees, starts, order, parent, edge, parent_first, unary, tables, table_of, inside, message, marginals, joints
):
    """Fill the marginals of some trees from :func:`collect_in_logs`, and add joint distributions to ``joints``."""
    num_states = unary.shape[1]
    cavity = np.empty(num_states)
    scratch = np.empty(num_states)
    beliefs = np.empty_like(unary)  # logs of the marginals
    joint = np.empty((num_states, num_states))
    for tree in trees:
        for place in range(starts[tree], starts[tree + 1]):
            node = order[place]
            above = parent[node]
            if above < 0:
                copy_values(beliefs[node], inside[node])
            else:
                # The rest of the tree by the state of the parent: a message of -inf makes it 0, whatever the rest.
                for a in range(num_states):
                    is_possible = message[node, a] > -math.inf
                    cavity[a] = beliefs[above, a] - message[node, a] if is_possible else -math.inf
                table = tables[table_of[edge[node]]]
                first = parent_first[node]
                for a in range(num_states):
                    for b in range(num_states):
                        joint[a, b] = cavity[a] + inside[node, b] + (table[a, b] if first else table[b, a])
                norm = _log_sum(joint.ravel())
                out = joints[table_of[edge[node]]]
                for a in range(num_states):
                    for b in range(num_states):
                        value = math.exp(joint[a, b] - norm)
                        if first:
                            out[a, b] += value
                        else:
                            out[b, a] += value
                for b in range(num_states):
                    for a in range(num_states):
                        scratch[a] = joint[a, b]
                    beliefs[node, b] = _log_sum(scratch)
            norm = _log_sum(beliefs[node])
            for a in range(num_states):
                beliefs[node, a] -= norm
                marginals[node, a] = math.exp(beliefs[node, a])


@inner
def _pick(logs, uniform):
    """The state at which the running sum of the probabilities passes a number from 0 to below 1."""
    norm = _log_sum(logs)
    running = 0.0
    last = 0
    for a in range(len(logs)):
        probability = math.exp(logs[a] - norm)
        if probability > 0.0:
            last = a
        running += probability
        if uniform < running:
            return last
    return last  # rounding


@outer
def draw_states(starts, order, parent, edge, parent_first, tables, table_of, inside, uniforms, states):
    """Draw a configuration of all trees from :func:`collect_in_logs`, by a number from 0 to 1 for every node."""
    logs = np.empty(inside.shape[1])
    for place in range(starts[0], starts[-1]):
        node = order[place]
        above = parent[node]
        for b in range(len(logs)):
            logs[b] = inside[node, b]
            if above >= 0:
                table = tables[table_of[edge[node]]]
                logs[b] += table[states[above], b] if parent_first[node] else table[b, states[above]]
        states[node] = _pick(logs, uniforms[node])


@outer
def find_modes(starts, order, parent, edge, parent_first, unary, tables, table_of, best, states):
    """Fill the most probable configuration of all trees; ``best`` (N, K) is scratch."""
    num_states = unary.shape[1]
    for place in range(starts[0], starts[-1]):
        copy_values(best[order[place]], unary[order[place]])
    for place in range(starts[-1] - 1, starts[0] - 1, -1):
        node = order[place]
        above = parent[node]
        if above < 0:
            continue
        table = tables[table_of[edge[node]]]
        for a in range(num_states):
            largest = -math.inf
            for b in range(num_states):
                value = best[node, b] + (table[a, b] if parent_first[node] else table[b, a])
                largest = max(largest, value)
            best[above, a] += largest
    for place in range(starts[0], starts[-1]):
        node = order[place]
        above = parent[node]
        chosen = 0
        largest = -math.inf
        for b in range(num_states):
            value = best[node, b]
            if above >= 0:
                table = tables[table_of[edge[node]]]
                value += table[states[above], b] if parent_first[node] else table[b, states[above]]
            if value > largest:
                largest = value
                chosen = b
        states[node] = chosen


@outer
def order_trees(indptr, neighbors, edge_ids, roots, order, parent, edge):
    """Fill the nodes of all trees from their roots on, breadth first, with their parents and the edges to them."""
    end = 0
    for root in roots:
        begin = end
        order[end] = root
        end += 1
        while begin < end:
            node = order[begin]
            begin += 1
            for k in range(indptr[node], indptr[node + 1]):
                if edge_ids[k] == edge[node]:
                    continue
                order[end] = neighbors[k]
                parent[neighbors[k]] = node
                edge[neighbors[k]] = edge_ids[k]
                end += 1
