"""Arc consistency: states that some edge table or factor gives no allowed configuration are found and disallowed."""

from __future__ import annotations

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._loops import run_loop
from fastmix.model.flat import offsets_of
from fastmix.model.mrf import MarkovRandomField
from fastmix.model.tuning import ENTRIES_BETWEEN_CLOCKS, MAX_PYTHON_SUPPORTS

__all__ = ["Factors", "drop_unsupported"]

Factors = dict[tuple[int, ...], FloatArray]  # tables over three or more variables, by scope


def drop_unsupported(
    model: MarkovRandomField, tables: FloatArray, factors: Factors, fixed: IntArray, allowed: BoolArray, clock: Clock
) -> None:
    """Disallow, in place, states that some edge table or factor gives no configuration of allowed states.

    Terms wait in a queue, and come back when another one takes a state from one of their variables, so that a chain of
    consequences costs each term once per loss (generalized arc consistency, AC-3 of Mackworth, 1977). The search ends
    where a variable has no state left.

    Parameters
    ----------
    model : MarkovRandomField
    tables : float array, as ``model.log_pairwise``
        Edge tables in place of the model's own. Those of edges with a fixed end do not count.
    factors : dict of arrays by scope
        Factors over three or more variables in place of the model's own.
    fixed : int array (n,)
        The state of variables that are fixed, -1 for the others.
    allowed : bool array, as ``model.log_unary``
        Which states are allowed; changed in place.
    clock : Clock
        Looked at after every pass that has disallowed something.
    """
    scopes = list(factors)
    possible = np.concatenate([part.reshape(-1) > -np.inf for part in (tables, *factors.values())])
    if possible.all():
        return
    # The terms are the edges and then the factors: their numbers of variables, their variables, their tables.
    widths = np.append(np.full(model.num_edges, 2), np.array([len(scope) for scope in scopes], dtype=np.int64))
    variables = np.concatenate([model.edges.reshape(-1), *scopes])
    ends_of_factors = np.cumsum([table.size for table in factors.values()], dtype=np.int64)
    table_starts = np.append(model.pairwise_offsets, model.pairwise_offsets[-1] + ends_of_factors)
    # Only terms that forbid something can take a state from a variable.
    is_hard = ~np.logical_and.reduceat(possible, table_starts[:-1])
    if (fixed >= 0).any():
        is_hard[: model.num_edges] &= (fixed[model.edges] < 0).all(axis=1)
    hard_terms = np.flatnonzero(is_hard)
    around_starts, around = _terms_around(model, widths, variables)
    num_states = int(model.num_states.max())
    inputs = (
        ENTRIES_BETWEEN_CLOCKS,
        num_states,
        offsets_of(widths),
        variables,
        table_starts,
        possible,
        is_hard,
        around_starts,
        around,
        model.num_states,
        model.unary_offsets,
    )
    queue = np.zeros(len(is_hard), dtype=np.int64)
    queue[: len(hard_terms)] = hard_terms
    begin_and_length = np.array([0, len(hard_terms)])
    waiting = is_hard.copy()
    most_variables = int(widths.max())
    digits = np.zeros(most_variables, dtype=np.int64)
    seen = np.zeros(most_variables * num_states, dtype=np.bool_)
    changed = (begin_and_length, queue, waiting, allowed, digits, seen)
    compiled = int((np.diff(table_starts) * widths)[hard_terms].sum()) > MAX_PYTHON_SUPPORTS
    num_allowed = np.count_nonzero(allowed)
    while begin_and_length[1]:
        run_loop(_follow_queue, inputs, changed, compiled=compiled)
        if np.count_nonzero(allowed) < num_allowed:  # one pass is always made
            clock.check()


def _terms_around(model: MarkovRandomField, widths: IntArray, variables: IntArray) -> tuple[IntArray, IntArray]:
    """The terms around every variable in compressed rows: row starts (n + 1,), and numbers of terms."""
    if len(widths) == model.num_edges:
        graph = model.adjacency
        return graph.indptr, graph.edge_ids
    order = np.argsort(variables, kind="stable")
    row_starts = offsets_of(np.bincount(variables, minlength=model.num_variables))
    return row_starts, np.repeat(np.arange(len(widths)), widths)[order]


def _follow_queue(
    budget: int,
    max_states: int,
    scope_starts: IntArray,
    scopes: IntArray,
    table_starts: IntArray,
    possible: BoolArray,
    is_hard: BoolArray,
    around_starts: IntArray,
    around: IntArray,
    counts: IntArray,
    offsets: IntArray,
    begin_and_length: IntArray,
    queue: IntArray,
    waiting: BoolArray,
    allowed: BoolArray,
    digits: IntArray,
    seen: BoolArray,
) -> None:
    """Check the terms in the queue, a ring, until it is empty or ``budget`` entries of tables are read.

    This is the loop of :func:`drop_unsupported`.

    1. Take the first term from the queue.
    2. Read its table, whose states are counted in ``digits``, and note in ``seen`` (a row of ``max_states`` per
       variable) the states of allowed configurations.
    3. Disallow the states that were not seen; an empty variable empties the queue, which ends the search.
    4. Put the other terms around a variable that lost a state into the queue.
    """
    first = begin_and_length[0]
    length = begin_and_length[1]
    while length > 0 and budget > 0:
        # 1.
        term = queue[first]
        first = first + 1 if first + 1 < len(queue) else 0
        length -= 1
        waiting[term] = False
        begin = scope_starts[term]
        width = scope_starts[term + 1] - begin

        # 2.
        for m in range(width):
            digits[m] = 0
            for s in range(counts[scopes[begin + m]]):
                seen[m * max_states + s] = False
        entry = table_starts[term]
        while entry < table_starts[term + 1]:
            fits = possible[entry]
            for m in range(width):
                fits = fits and allowed[offsets[scopes[begin + m]] + digits[m]]
            if fits:
                for m in range(width):
                    seen[m * max_states + digits[m]] = True
            for m in range(width - 1, -1, -1):
                digits[m] += 1
                if digits[m] < counts[scopes[begin + m]]:
                    break
                digits[m] = 0
            entry += 1
        budget -= table_starts[term + 1] - table_starts[term]

        for m in range(width):
            # 3.
            i = scopes[begin + m]
            num_left = 0
            has_lost = False
            for s in range(counts[i]):
                if allowed[offsets[i] + s]:
                    if seen[m * max_states + s]:
                        num_left += 1
                    else:
                        allowed[offsets[i] + s] = False
                        has_lost = True
            if num_left == 0:
                length = 0
                break
            if not has_lost:
                continue
            # 4. A state that this term has just taken away supported nothing in it: the term itself stays out.
            for k in range(around_starts[i], around_starts[i + 1]):
                other = around[k]
                if is_hard[other] and not waiting[other] and other != term:
                    last = first + length
                    queue[last if last < len(queue) else last - len(queue)] = other
                    length += 1
                    waiting[other] = True
    begin_and_length[0] = first
    begin_and_length[1] = length
