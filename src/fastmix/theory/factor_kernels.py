"""The loop that measures factors over three or more variables, pair by pair of their variables."""

from __future__ import annotations

import numpy as np

__all__ = ["MAX_NORM", "RANGE", "SUM_NORM", "measure_pairs"]

# The kinds of sizes of the difference of two columns.
RANGE = 0
SUM_NORM = 1
MAX_NORM = 2


def measure_pairs(budget, kind, scope_starts, counts, table_starts, tables, first_pairs, hard, place, result):
    """Fill in sizes of pairs of factors, both directions of a pair side by side in ``result`` (2 pairs,).

    The loop begins at ``place``, a factor and the number of one of its pairs, ends once ``budget`` entries have been
    compared, and leaves the place that comes next there. ``kind`` is one of the numbers above. Factor k has the
    variables with the state counts ``counts[scope_starts[k]:scope_starts[k + 1]]`` and its table at
    ``table_starts[k]``; its first pair is ``first_pairs[k]``, and ``hard[k]`` says whether its table has -inf.

    1. Find the variables p < q of pair t, in the order of ``triu_indices``. The table of the factor is A x P x B x Q x
       C, with the rest of the variables in A, B and C.
    2. Go through both directions: rows are the states of one of the two, columns those of the other. Without -inf
       ranges are the same both ways, and cheaper over pairs of the fewer states.
    3. Find the largest difference of two columns for all states of the rest. Rows that are forbidden in both columns do
       not count; where a row is forbidden in one of them, or none is left, the size is infinite.
    """
    k = place[0]
    t = place[1]
    while k < len(first_pairs) and budget > 0:
        # 1. The pair, and the steps of its variables in the table.
        begin = scope_starts[k]
        members = scope_starts[k + 1] - scope_starts[k]
        first = table_starts[k]
        end = table_starts[k + 1]
        p = 0
        skipped = t
        while skipped >= members - 1 - p:
            skipped -= members - 1 - p
            p += 1
        q = p + 1 + skipped
        num_p = counts[begin + p]
        num_q = counts[begin + q]
        step_q = 1
        step_p = num_q
        for axis in range(q + 1, members):
            step_q *= counts[begin + axis]
        for axis in range(p + 1, q):
            step_p *= counts[begin + axis]
        step_p *= step_q
        place_of_size = 2 * (first_pairs[k] + t)
        for turn in range(2):
            # 2. The direction.
            one_way = kind == RANGE and not hard[k]
            if one_way and (turn == 0) == (num_q > num_p):
                continue
            rows = num_p
            row_step = step_p
            cols = num_q
            col_step = step_q
            if turn == 1:
                rows = num_q
                row_step = step_q
                cols = num_p
                col_step = step_p
            best = 0.0
            for outer in range(first, end, num_p * step_p):
                for middle in range(outer, outer + step_p, num_q * step_q):
                    for origin in range(middle, middle + step_q):
                        # 3. All pairs of columns.
                        for a in range(cols - 1):
                            for b in range(a + 1, cols):
                                high = -np.inf
                                low = np.inf
                                total = 0.0
                                largest = 0.0
                                apart = False
                                for r in range(rows):
                                    one = tables[origin + r * row_step + a * col_step]
                                    two = tables[origin + r * row_step + b * col_step]
                                    if one == -np.inf or two == -np.inf:
                                        apart = apart or one != two
                                        continue
                                    difference = one - two
                                    high = max(high, difference)
                                    low = min(low, difference)
                                    total += abs(difference)
                                    largest = max(largest, abs(difference))
                                size = largest
                                if kind == RANGE:
                                    size = high - low
                                elif kind == SUM_NORM:
                                    size = total
                                if apart or high == -np.inf or not size < np.inf:
                                    size = np.inf
                                best = max(best, size)
            result[place_of_size + turn] = best
            if one_way:
                result[place_of_size + 1 - turn] = best
        budget -= (end - first) * min(num_p, num_q)
        t += 1
        if 2 * t == members * (members - 1):
            k += 1
            t = 0
    place[0] = k
    place[1] = t
