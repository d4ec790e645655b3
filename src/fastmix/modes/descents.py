"""Local maxima of the weight: where descents of single variables end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray, read_only
from fastmix._clock import NO_LIMIT, Clock
from fastmix.marginals import best_states
from fastmix.model import MarkovRandomField
from fastmix.model.structure import Incident
from fastmix.modes.pattern_arrays import pattern_tables, variables_of
from fastmix.modes.tuning import (
    DESCENT_SECONDS,
    ENTRIES_PER_SECOND,
    FEW_SWEEPS_PER_CALL,
    MAX_CONSTANT_STARTS,
    MAX_DESCENT_SWEEPS,
    MAX_MODES,
    MAX_RESTARTS,
)

__all__ = ["SearchArrays", "entries_of_sweep", "find_modes", "search_arrays", "uniform_states"]


def find_modes(
    model: MarkovRandomField, *, rng: np.random.Generator, count: int = MAX_MODES, clock: Clock = NO_LIMIT
) -> IntArray:
    """Local maxima of the weight, (at most count, n): the largest first, then each far from those before.

    Single variables are set to their best states, given the others, until nothing changes. That begins at the
    *hopeful* configuration, in which every variable, in breadth-first order, takes the state that is best beside those
    of the neighbors before it, if all others agree with it; at the best states of the unaries; at all variables in the
    same state; and at random configurations. From the best of what these lead to it begins again at the hopeful
    configuration without the states taken so far, which is where the opposite of an ordered phase is found.

    All are different and of positive weight; there may be none if pairs are forbidden, and fewer than ``count`` when
    descents meet, would take more than a second, or when the limit of the clock is past.
    """
    n = model.num_variables
    entries = ENTRIES_PER_SECOND * min(DESCENT_SECONDS, clock.left())
    most = int(min(2 * count + MAX_CONSTANT_STARTS, entries / max(1.0, 10.0 * entries_of_sweep(model))))
    if not n or not model.num_edges or most < 1 or count < 1 or clock.past():
        return np.zeros((0, n), dtype=np.int64)
    descents = _Descents(model, clock)
    # To hope is to look at all entries of all tables, which shared ones of many states have no time for.
    hopes = float(model.pairwise_offsets[-1]) <= entries
    starts = [descents.hopeful_states()] if hopes else []
    starts.append(best_states(model, model.log_unary))
    constants = range(min(int(model.num_states.max()), MAX_CONSTANT_STARTS, most // 2))
    starts += [np.minimum(k, model.num_states - 1) for k in constants]
    random = uniform_states(model, max(0, min(count, most - len(starts))), rng)
    descents.extend(np.array([*starts[:most], *random]))
    for _ in range(min(MAX_RESTARTS, int(model.num_states.max()) - 1, most)):
        if not hopes or not len(descents.found) or clock.past():
            break
        descents.take_best()
        descents.extend(descents.hopeful_states()[None])
    return _far_apart(descents.found[np.argsort(-descents.log_weights, kind="stable")], count)


def entries_of_sweep(model: MarkovRandomField) -> float:
    """Entries of unaries and tables that a sweep of a descent looks at: rows alone of tables that are shared."""
    if model.shared_tables is not None:
        return len(model.log_unary) + 2.0 * float(model.num_states[model.edges].sum())
    return len(model.log_unary) + 2.0 * float(model.pairwise_offsets[-1]) + 3.0 * len(model.log_factors)


def _far_apart(found: IntArray, count: int) -> IntArray:
    """At most so many configurations (k, n): the first, then each time the one that differs most from all before."""
    distance = np.full(len(found), found.shape[1] + 1)
    chosen: list[int] = []
    while len(chosen) < min(count, len(found)):
        chosen.append(int(distance.argmax()))  # the first of equals
        distance = np.minimum(distance, (found != found[chosen[-1]]).sum(axis=1))
    return found[chosen]


class _Descents:
    """Configurations that descents have led to, all different, with their log-weights."""

    def __init__(self, model: MarkovRandomField, clock: Clock) -> None:
        self.model = model
        self.clock = clock
        self.found: IntArray = np.zeros((0, model.num_variables), dtype=np.int64)
        self.log_weights: FloatArray = np.zeros(0)
        self._arrays: Any = None
        if model.shared_tables is None:
            self._arrays = search_arrays(model)
        else:
            self._arrays = variables_of(model), pattern_tables(model)[0]
        self._free = np.ones(len(model.log_unary), dtype=np.bool_)  # states that may be hoped for

    def hopeful_states(self) -> IntArray:
        """The configuration of free states that are best beside the neighbors before them, if all others agree."""
        from fastmix.modes.descent_kernels import hopeful, hopeful_shared

        states = np.zeros(self.model.num_variables, dtype=np.int64)
        hope = hopeful if self.model.shared_tables is None else hopeful_shared
        hope(states, self._free, *self._arrays)
        return states

    def take_best(self) -> None:
        """Let the states of the best configuration be free no longer, where a variable has another free one."""
        starts = self.model.unary_offsets[:-1]
        taken = starts + self.found[self.log_weights.argmax()]
        self._free[taken] = np.add.reduceat(self._free, starts, dtype=np.int64) == 1

    def extend(self, states: IntArray) -> None:
        """Descend from configurations (k, n), which are changed, and keep what is new and of positive weight."""
        from fastmix.modes.descent_kernels import descend, descend_shared

        for k in range(len(states)):
            for _ in range(0, MAX_DESCENT_SWEEPS, FEW_SWEEPS_PER_CALL):
                before = states[k].copy()
                if self.model.shared_tables is None:
                    descend(states[k : k + 1], *self._arrays, FEW_SWEEPS_PER_CALL)
                else:
                    descend_shared(states[k], *self._arrays, FEW_SWEEPS_PER_CALL)
                if self.clock.past() or np.array_equal(states[k], before):
                    break
            if self.clock.past():
                states = states[: k + 1]
                break
        # As np.unique with an axis, which takes seconds for a million variables: bytes sort as the numbers do.
        rows = {row.astype(">u4").tobytes(): row for row in (*self.found, *states)}
        found = np.array([rows[key] for key in sorted(rows)])
        log_weights = np.atleast_1d(self.model.log_weight(found))
        possible = log_weights > -np.inf
        self.found = found[possible]
        self.log_weights = log_weights[possible]


def uniform_states(model: MarkovRandomField, count: int, rng: np.random.Generator) -> IntArray:
    """Configurations (count, n) whose variables are independent and uniform on the states that unaries allow."""
    starts = model.unary_offsets[:-1]
    allowed = np.flatnonzero(model.log_unary > -np.inf)
    first = np.searchsorted(allowed, starts)
    choices = np.diff(np.append(first, len(allowed)))
    drawn = np.floor(rng.random((count, model.num_variables)) * choices).astype(np.int64)
    return np.asarray(allowed[first + drawn] - starts)


class SearchArrays(NamedTuple):
    """What :mod:`fastmix.modes.descent_kernels` reads of a model, a large penalty in place of -inf.

    Site i has the neighbors ``neighbors[indptr[i]:indptr[i + 1]]``. State s of it and t of its k-th neighbor have the
    log-potential ``tables[table_starts[k] + s * own_steps[k] + t * other_steps[k]]``; tables of larger factors follow
    those of the edges. State s alone has ``unary[unary_starts[i] + s]``.
    """

    indptr: IntArray
    neighbors: IntArray
    table_starts: IntArray
    own_steps: IntArray
    other_steps: IntArray
    tables: FloatArray
    unary_starts: IntArray
    unary: FloatArray
    num_states: IntArray
    incident: Incident


def search_arrays(model: MarkovRandomField) -> SearchArrays:
    """The arrays of a search, with a large penalty for -inf: a descent must tell bad from worse."""
    from fastmix.chains.layout import directed_arrays

    *structure, tables, unary_starts, unary, num_states = directed_arrays(model)
    if model.has_forbidden:
        largest = max(np.abs(entries[entries > -np.inf]).max(initial=0.0) for entries in (tables, unary))
        least = -1e3 * (1.0 + largest)
        tables = np.maximum(tables, least)
        unary = np.maximum(unary, least)
    arrays = [read_only(array) for array in (*structure, tables, unary_starts, unary, num_states)]
    return SearchArrays._make([*arrays, model.structure.incident])
