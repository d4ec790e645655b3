"""States that no configuration can use because of what their neighbors allow: arc consistency."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Clock
from fastmix.graphs.basics import run_loop
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["Factors", "drop_unsupported"]

Factors = dict[tuple[int, ...], FloatArray]  # tables over three or more variables, by scope

_AT_ONCE = 1 << 24  # entries of tables that are read before the clock is
_IN_PYTHON = 20_000  # entries times variables of the tables, beyond which the loop is compiled


def drop_unsupported(
    model: MarkovRandomField, tables: FloatArray, factors: Factors, fixed: IntArray, allowed: BoolArray, clock: Clock
) -> None:
    """Disallow, in place, states that some edge table or factor gives no configuration of allowed states.

    ``tables`` are those of the edges, in place of the model's own, and count where no end is ``fixed``; ``allowed`` is
    aligned with ``log_unary``. Terms wait in a queue, and come back when another one takes a state from one of their
    variables, so that a chain of consequences costs each term once per loss (generalised arc consistency, AC-3 of
    Mackworth, 1977). It ends where a variable has no state left.
    """
    scopes, graph = list(factors), model.adjacency
    possible = np.concatenate([part.reshape(-1) > -np.inf for part in (tables, *factors.values())])
    if possible.all():
        return
    sizes = np.append(np.full(model.num_edges, 2), np.array([len(scope) for scope in scopes], dtype=np.int64))
    more = np.cumsum([table.size for table in factors.values()], dtype=np.int64)
    table_starts = np.append(model.pairwise_offsets, model.pairwise_offsets[-1] + more)
    variables = np.concatenate([model.edges.reshape(-1), *scopes])
    hard = ~np.logical_and.reduceat(possible, table_starts[:-1])
    if (fixed >= 0).any():
        hard[: model.num_edges] &= (fixed[model.edges] < 0).all(axis=1)
    terms, around = np.flatnonzero(hard), (graph.indptr, graph.edge_ids)
    if scopes:
        order = np.argsort(variables, kind="stable")
        at = offsets_of(np.bincount(variables, minlength=model.num_variables))
        around = at, np.repeat(np.arange(len(sizes)), sizes)[order]
    most, widest = int(model.num_states.max()), int(sizes.max())
    inputs = (
        _AT_ONCE, most, offsets_of(sizes), variables, table_starts, possible, hard, *around, model.num_states,
        model.unary_offsets,
    )  # fmt: skip
    queue, waiting, marks = np.zeros(len(hard), dtype=np.int64), hard.copy(), np.array([0, len(terms)])
    queue[: len(terms)] = terms
    rooms = np.zeros(widest, dtype=np.int64), np.zeros(widest * most, dtype=np.bool_)
    compiled = int((np.diff(table_starts) * sizes)[terms].sum()) > _IN_PYTHON
    before = np.count_nonzero(allowed)
    while marks[1]:
        run_loop(_close, inputs, (marks, queue, waiting, allowed, *rooms), compiled=compiled)
        if np.count_nonzero(allowed) < before:  # one pass is always made
            clock.check()


def _close(  # type: ignore[no-untyped-def]
    budget, most, scope_starts, scopes, table_starts, possible, hard, around_starts, around, counts,
    offsets, marks, queue, waiting, allowed, digits, seen,
) -> Any:  # fmt: skip
    """The loop of :func:`drop_unsupported`, until so many entries are read; ``marks``: begin, length of the queue."""
    first, count = marks[0], marks[1]
    while count > 0 and budget > 0:
        t = queue[first]
        first = first + 1 if first + 1 < len(queue) else 0
        count -= 1
        waiting[t] = False
        begin, width, entry = scope_starts[t], scope_starts[t + 1] - scope_starts[t], table_starts[t]
        for m in range(width):
            digits[m] = 0
            for s in range(counts[scopes[begin + m]]):
                seen[m * most + s] = False
        while entry < table_starts[t + 1]:
            fits = possible[entry]
            for m in range(width):
                fits = fits and allowed[offsets[scopes[begin + m]] + digits[m]]
            if fits:
                for m in range(width):
                    seen[m * most + digits[m]] = True
            for m in range(width - 1, -1, -1):
                digits[m] += 1
                if digits[m] < counts[scopes[begin + m]]:
                    break
                digits[m] = 0
            entry += 1
        budget -= table_starts[t + 1] - table_starts[t]
        for m in range(width):
            i = scopes[begin + m]
            left, lost = 0, False
            for s in range(counts[i]):
                if allowed[offsets[i] + s]:
                    if seen[m * most + s]:
                        left += 1
                    else:
                        allowed[offsets[i] + s] = False
                        lost = True
            if left == 0:
                count = 0
                break
            if not lost:
                continue
            # What this term has just taken away supported nothing in it: it need not come back for that.
            for k in range(around_starts[i], around_starts[i + 1]):
                other = around[k]
                if hard[other] and not waiting[other] and other != t:
                    last = first + count
                    queue[last if last < len(queue) else last - len(queue)] = other
                    count += 1
                    waiting[other] = True
    marks[0], marks[1] = first, count
