"""Centered factors: what factors over three or more variables are beside unaries and edge tables."""

from __future__ import annotations

import math

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._loops import run_loop
from fastmix.errors import ModelError
from fastmix.model.mrf import MarkovRandomField
from fastmix.model.tuning import MAX_PYTHON_ENTRIES

__all__ = ["center_factors"]


def center_factors(model: MarkovRandomField) -> MarkovRandomField:
    """An equal model in which unaries and edge tables hold everything of the factors that they can hold.

    The mean of every factor over three or more variables goes to the constant, the mean effect of each variable to the
    unaries, and the mean effect of each pair to the edge tables: the terms of low order of the analysis of variance.
    The rest has mean zero over all but any two of its variables, and nothing nearer to zero gives the same
    distribution.

    Raises
    ------
    ModelError
        If a factor has -inf entries, which have no mean.

    Examples
    --------
    >>> table = [[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]]
    >>> model = MarkovRandomField.from_factors([2, 2, 2], [((0, 1, 2), table)])
    >>> centered = center_factors(model)
    >>> centered.factor(0)[1].ravel().tolist()
    [0.125, -0.125, -0.125, 0.125, -0.125, 0.125, 0.125, -0.125]
    >>> centered.table(0, 1).tolist(), round(centered.log_weight([0, 0, 0]), 12)
    ([[0.125, -0.125], [-0.125, 0.125]], 1.0)
    """
    if not model.num_factors:
        return model
    if model.log_factors.min() == -np.inf:
        raise ModelError("center_factors needs factors without -inf, which have no mean")
    structure = model.structure
    unary = model.log_unary.copy()
    pairwise = model.log_pairwise.copy()
    factors = model.log_factors.copy()
    constants = np.zeros(model.num_factors)
    counts = model.num_states[structure.scope_variables]
    inputs = (
        structure.scope_starts,
        structure.scope_variables,
        counts,
        structure.factor_offsets,
        model.unary_offsets,
        model.pairwise_offsets,
        structure.first_pairs,
        structure.scope_pairs,
    )
    # Working arrays: two of the size of the largest table, one for tables of pairs, one for effects of variables.
    largest_table = int(np.diff(structure.factor_offsets).max())
    most_effects = int(np.diff(structure.scope_starts).max()) * int(counts.max())
    table = np.zeros(largest_table)
    partial = np.zeros(largest_table)
    parts = np.zeros(most_effects**2)
    effects = np.zeros(most_effects)
    changed = (table, partial, parts, effects, constants, unary, pairwise, factors)
    run_loop(_take_low_orders, inputs, changed, compiled=len(factors) > MAX_PYTHON_ENTRIES)
    constant = math.fsum([model.log_constant, *constants.tolist()])
    return model.replace(log_unary=unary, log_pairwise=pairwise, log_factors=factors, log_constant=constant)


def _take_low_orders(
    scope_starts: IntArray,
    scopes: IntArray,
    counts: IntArray,
    table_starts: IntArray,
    unary_starts: IntArray,
    pair_starts: IntArray,
    first_pairs: IntArray,
    scope_pairs: IntArray,
    table: FloatArray,
    partial: FloatArray,
    parts: FloatArray,
    effects: FloatArray,
    constants: FloatArray,
    unary: FloatArray,
    pairwise: FloatArray,
    factors: FloatArray,
) -> None:
    """Take the parts of low order from every factor and add them to constants, unaries and edge tables, in place.

    This is the loop of :func:`center_factors`. The variables of a factor are 0, 1, .. here; its table has the states of
    variable 0 one after another, and so on within each of these.

    1. Sums over all but two variables p < q. The sums over the variables above q are made one from another, and from
       each of them the sums over the variables below p: all tables together have a few times the entries of the factor.
    2. The means of these sums: the mean of all, the effects of single variables, and the effects of pairs beside these.
    3. The sum of all these effects as a table, by the same way back: the pairs with q are added for all states of
       0, .., q to the sum for 0, .., q - 1. It is taken from the factor.

    ``parts`` holds the table of pair (p, q) from ``(p * members + q) * width * width`` on, with rows of ``width``, the
    largest state count; ``effects`` holds those of variable p from ``p * width`` on. ``table`` and ``partial`` are
    working arrays.
    """
    for k in range(len(first_pairs)):
        begin = scope_starts[k]
        members = scope_starts[k + 1] - begin
        first = table_starts[k]
        size = table_starts[k + 1] - first
        width = 1
        for axis in range(members):
            width = max(width, counts[begin + axis])
        block = width * width

        # 1. From the last variable to the first: `table` is the sum over all variables above q.
        for entry in range(size):
            table[entry] = factors[first + entry]
        length = size
        for q in range(members - 1, 0, -1):
            num_q = counts[begin + q]
            rest = length
            for entry in range(length):
                partial[entry] = table[entry]
            for p in range(q):
                num_p = counts[begin + p]
                at = (p * members + q) * block
                rest //= num_p
                scale = num_p * num_q / size
                for x in range(num_p):
                    for y in range(num_q):
                        parts[at + x * width + y] = 0.0
                    for middle in range(x * rest, (x + 1) * rest, num_q):
                        for y in range(num_q):
                            parts[at + x * width + y] += partial[middle + y]
                    for y in range(num_q):
                        parts[at + x * width + y] *= scale
                for x in range(1, num_p):
                    for entry in range(rest):
                        partial[entry] += partial[x * rest + entry]
            length //= num_q
            for entry in range(length):
                total = 0.0
                for y in range(num_q):
                    total += table[entry * num_q + y]
                table[entry] = total

        # 2. The means of a single variable are those of its pair with the next variable, or with the one before.
        mean = 0.0
        for entry in range(counts[begin]):
            mean += table[entry]
        mean /= size
        constants[k] = mean
        for axis in range(members):
            place = unary_starts[scopes[begin + axis]]
            if axis + 1 < members:
                at = (axis * members + axis + 1) * block
                num_other = counts[begin + axis + 1]
                step = width
                other_step = 1
            else:
                at = ((axis - 1) * members + axis) * block
                num_other = counts[begin + axis - 1]
                step = 1
                other_step = width
            for x in range(counts[begin + axis]):
                total = 0.0
                for y in range(num_other):
                    total += parts[at + x * step + y * other_step]
                effect = total / num_other - mean
                effects[axis * width + x] = effect
                unary[place + x] += effect
        t = first_pairs[k]
        for p in range(members):
            for q in range(p + 1, members):
                num_q = counts[begin + q]
                at = (p * members + q) * block
                place = pair_starts[scope_pairs[t]]
                t += 1
                for x in range(counts[begin + p]):
                    for y in range(num_q):
                        here = at + x * width + y
                        low = effects[p * width + x] + effects[q * width + y] + mean
                        parts[here] -= low
                        pairwise[place + x * num_q + y] += parts[here]

        # 3. The effects of single variables and the mean go into the tables of pairs (q - 1, q) first.
        for q in range(1, members):
            at = ((q - 1) * members + q) * block
            for x in range(counts[begin + q - 1]):
                for y in range(counts[begin + q]):
                    parts[at + x * width + y] += effects[q * width + y]
                    if q == 1:
                        parts[at + x * width + y] += effects[x] + mean
        length = counts[begin]
        for entry in range(length):
            table[entry] = 0.0
        for q in range(1, members):
            num_q = counts[begin + q]
            rest = num_q
            for y in range(num_q):
                partial[y] = 0.0
            for p in range(q - 1, -1, -1):
                at = (p * members + q) * block
                for x in range(counts[begin + p] - 1, -1, -1):  # the first state last: the others are made from it
                    for middle in range(0, rest, num_q):
                        for y in range(num_q):
                            partial[x * rest + middle + y] = partial[middle + y] + parts[at + x * width + y]
                rest *= counts[begin + p]
            for entry in range(length):
                for y in range(num_q):
                    partial[entry * num_q + y] += table[entry]
            length *= num_q
            for entry in range(length):
                table[entry] = partial[entry]
        for entry in range(size):
            factors[first + entry] -= table[entry]
