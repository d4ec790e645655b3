"""Compiled sweeps of chains whose weights depend on the energy of the tables by a function that is linear in pieces.

The *energy* of a configuration is the sum of its table entries, so that a larger one is more probable. A chain samples

    pi(x) ~ exp(sum_i u_i(x_i) + G(E(x))),

where G is linear between equally spaced knots, constant below the first and of slope 1 above the last, plus a
correction that is constant around each knot. The slope of G at an energy is the scale of the tables there: 0 is the
model of independent variables, 1 the model itself.
"""

from __future__ import annotations

import math

import numpy as np

from fastmix._jit import inner, outer
from fastmix.chains.random_kernels import next_uniform

__all__ = ["log_weight_at", "sweep_energies", "table_energy"]

#: Steps at the two ends as a share of those between them: walkers are there so many times as often as elsewhere.
_SHARE_AT_ENDS = 0.25


@inner
def log_weight_at(energy, shape):
    """G at an energy; ``shape`` is the first knot, the distance of two, and heights and corrections at the knots."""
    low, width, heights, corrections = shape
    place = (energy - low) / width
    last = len(heights) - 1
    if place <= 0.0:
        return heights[0] + corrections[0]
    if place >= last:
        return heights[last] + corrections[last] + (energy - (low + last * width))
    knot = int(place)
    beyond = place - knot
    nearest = knot + 1 if beyond > 0.5 else knot
    return heights[knot] + beyond * (heights[knot + 1] - heights[knot]) + corrections[nearest]


@outer
def table_energy(states, indptr, neighbors, starts, own_steps, other_steps, tables):
    """The sum of the table entries of a configuration."""
    total = 0.0
    for i in range(len(states)):
        for k in range(indptr[i], indptr[i + 1]):
            j = neighbors[k]
            if i < j:
                total += tables[starts[k] + own_steps[k] * states[i] + other_steps[k] * states[j]]
    return total


@inner
def _draw_state(i, energy, states, graph, shape, entries, logs, uniform):
    """Give variable i a state drawn given all others; returns the energy after it.

    ``entries`` and ``logs`` are scratch space for the states of a variable.
    """
    indptr, neighbors, starts, own_steps, other_steps, tables, unary_starts, unary, num_states = graph
    count = num_states[i]
    for state in range(count):
        entries[state] = 0.0
    for k in range(indptr[i], indptr[i + 1]):
        place = starts[k] + other_steps[k] * states[neighbors[k]]
        step = own_steps[k]
        for state in range(count):
            entries[state] += tables[place + step * state]
    rest = energy - entries[states[i]]
    largest = -np.inf
    for state in range(count):
        logs[state] = unary[unary_starts[i] + state] + log_weight_at(rest + entries[state], shape)
        largest = max(largest, logs[state])
    total = 0.0
    for state in range(count):
        total += math.exp(logs[state] - largest)
        logs[state] = total
    level = uniform * total
    state = 0
    while state < count - 1 and logs[state] <= level:
        state += 1
    states[i] = state
    return rest + entries[state]


@inner
def _visit(energy, shape, step, visits):
    """Count a visit of the knot nearest to an energy, and lower the correction there by a step.

    A knot that is visited for the first time begins with the correction of the nearest one that was visited before.
    Energies beyond the ends belong to the first and the last knot, which sink by less: there the chain samples the
    models at both ends, for which the other energies are only the way.
    """
    low, width, heights, corrections = shape
    last = len(heights) - 1
    place = (energy - low) / width
    nearest = int(min(max(place + 0.5, 0.0), float(last)))
    if step > 0.0:
        if visits[nearest] == 0:
            for distance in range(1, last + 1):
                if nearest >= distance and visits[nearest - distance] > 0:
                    corrections[nearest] = corrections[nearest - distance]
                    break
                if nearest + distance <= last and visits[nearest + distance] > 0:
                    corrections[nearest] = corrections[nearest + distance]
                    break
        at_end = place <= 0.0 or place >= last
        corrections[nearest] -= _SHARE_AT_ENDS * step if at_end else step
    visits[nearest] += 1


@outer
def sweep_energies(states, graph, shape, step, visits, stream, energies, sums, kept, total, top):
    """Sweep a chain as many times as ``energies`` has places, and collect what it meets.

    Parameters
    ----------
    states : int array (n,)
        The configuration, which moves on in place.
    graph : tuple of arrays
        Those of :func:`fastmix.chains.layout.directed_arrays`.
    shape : tuple
        The first knot, the distance of knots, and the heights and corrections of G at them.
    step : float
        What the correction at the nearest knot is lowered by after every sweep: 0 leaves it as it is.
    visits : int array (knots,)
        Counts the sweeps that end nearest to each knot.
    stream : uint32 array (4,)
        The words of the random numbers, which move on.
    energies : float array (sweeps,)
        Gets the energy after each sweep.
    sums : float array (entries of log_unary,)
        Gets the weight ``exp(E - G(E) - top)`` of every sweep, for the states after it; not touched where it is empty.
    kept : int array (n,)
        Becomes a configuration of those met, drawn by these weights, of which ``total`` were added up before.
    total, top : float
        See above.

    Returns
    -------
    float
        The sum of the weights, those before included.
    """
    unary_starts = graph[6]
    num_states = graph[8]
    most = 1
    for i in range(len(states)):
        most = max(most, num_states[i])
    entries = np.empty(most)
    logs = np.empty(most)
    s0 = stream[0]
    s1 = stream[1]
    s2 = stream[2]
    s3 = stream[3]
    energy = table_energy(states, graph[0], graph[1], graph[2], graph[3], graph[4], graph[5])
    for sweep in range(len(energies)):
        for i in range(len(states)):
            uniform, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
            energy = _draw_state(i, energy, states, graph, shape, entries, logs, uniform)
        energies[sweep] = energy
        _visit(energy, shape, step, visits)
        if len(sums):
            weight = math.exp(energy - log_weight_at(energy, shape) - top)
            total += weight
            for i in range(len(states)):
                sums[unary_starts[i] + states[i]] += weight
            uniform, s0, s1, s2, s3 = next_uniform(s0, s1, s2, s3)
            if uniform * total < weight:
                kept[:] = states
    stream[0] = s0
    stream[1] = s1
    stream[2] = s2
    stream[3] = s3
    return total
