"""Messages of belief propagation between variables and factors of any size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastmix._jit import njit
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = ["FactorMessages"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class FactorMessages:
    """Logs of the messages from every term over two or more variables to each of these, at most 0.

    The message from term a to variable i is ``m_ai(x_i) ~ sum over the rest of a of exp(F_a(x_a)) prod_j q_ja(x_j)``
    with ``q_ja = exp(u_j) prod_{b != a} m_bj``. Edges of zeros between variables of a factor are no terms.

    Parameters
    ----------
    model : MarkovRandomField
        Every state must have an allowed configuration in every term that holds its variable.
    """

    kernel = "factors"

    def __init__(self, model: MarkovRandomField) -> None:
        self.model, structure = model, model.structure
        inside = np.zeros(model.num_edges, dtype=bool)
        inside[structure.scope_pairs] = True
        zero = np.ones(model.num_edges, dtype=bool)
        if model.num_edges:
            zero = np.maximum.reduceat(np.abs(model.log_pairwise), model.pairwise_offsets[:-1]) == 0.0
        self._edges = np.flatnonzero(~(inside & zero))
        kept = np.repeat(~(inside & zero), np.diff(model.pairwise_offsets))
        sizes = np.concatenate([np.full(len(self._edges), 2), np.diff(structure.scope_starts)])
        lengths = np.concatenate([np.diff(model.pairwise_offsets)[self._edges], np.diff(structure.factor_offsets)])
        self._starts, self._tables_at = offsets_of(sizes), offsets_of(lengths)
        self._members = np.concatenate([model.edges[self._edges].reshape(-1), structure.scope_variables])
        self._tables = np.concatenate([model.log_pairwise[kept], model.log_factors])
        self._at = offsets_of(model.num_states[self._members])
        self._messages = np.zeros(int(self._at[-1]))
        self._total, self._room = np.empty(len(model.log_unary)), np.empty(int(lengths.max(initial=1)))
        self._wide = np.empty((2, int(model.num_states.max(initial=1))))

    def _arguments(self) -> tuple[NDArray[np.generic], ...]:
        model = self.model
        return (
            model.num_states, model.unary_offsets, model.log_unary, self._starts, self._members, self._tables_at,
            self._tables, self._at, self._messages, self._total, self._room,
        )  # fmt: skip

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        """Renew all messages; iterations made, largest change of a log before damping, whether it is within tol."""
        new = np.empty_like(self._messages)
        made, change = factor_rounds(*self._arguments(), new, self._wide, damping, tol, num_iterations)
        return int(made), float(change), bool(change <= tol)

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        """Flat node marginals, flat edge marginals, Bethe log Z."""
        model = self.model
        beliefs, nodes = np.empty(len(self._tables)), np.empty(len(model.log_unary))
        log_z = factor_beliefs(*self._arguments(), beliefs, nodes)
        return nodes, self._edge_beliefs(beliefs), model.log_constant + float(log_z)

    def _edge_beliefs(self, beliefs: FloatArray) -> FloatArray:
        """Of every edge, from the first term that holds both its ends."""
        model, offsets = self.model, self.model.pairwise_offsets
        pairs, known = np.empty(len(model.log_pairwise)), np.zeros(model.num_edges, dtype=bool)
        for a in range(len(self._starts) - 1):
            scope = self._members[self._starts[a] : self._starts[a + 1]]
            table = beliefs[self._tables_at[a] : self._tables_at[a + 1]].reshape(model.num_states[scope])
            for first in range(len(scope)):
                for second in range(first + 1, len(scope)):
                    e = int(self._edges[a]) if len(scope) == 2 else model.edge_index(scope[first], scope[second])
                    if not known[e]:
                        rest = tuple(axis for axis in range(len(scope)) if axis not in (first, second))
                        pairs[offsets[e] : offsets[e + 1]] = table.sum(axis=rest).reshape(-1)
                        known[e] = True
        return pairs


@njit(cache=True, nogil=True)
def _add_up(states, unary_at, unary, members, at, messages, total):  # type: ignore[no-untyped-def]
    """Write to ``total`` the log of every variable's unary times all messages to it."""
    for k in range(len(unary)):
        total[k] = unary[k]
    for k in range(len(members)):
        i = members[k]
        for s in range(states[i]):
            total[unary_at[i] + s] += messages[at[k] + s]


@njit(cache=True, nogil=True)
def _spread(a, states, unary_at, starts, members, tables_at, tables, at, messages, total, room):  # type: ignore[no-untyped-def]
    """Write to ``room`` the log of the belief of term a, less its normaliser; the largest."""
    first, last, step = starts[a], starts[a + 1], 1
    size = tables_at[a + 1] - tables_at[a]
    for x in range(size):
        room[x] = tables[tables_at[a] + x]
    for k in range(last - 1, first - 1, -1):
        i = members[k]
        count = states[i]
        for x in range(size):
            s = (x // step) % count
            room[x] += total[unary_at[i] + s] - messages[at[k] + s]
        step *= count
    top = -np.inf
    for x in range(size):
        top = max(top, room[x])
    return top


@njit(cache=True, nogil=True)
def factor_rounds(  # type: ignore[no-untyped-def]
    states, unary_at, unary, starts, members, tables_at, tables, at, messages, total, room, new, wide, damping, tol,
    num_rounds,
):  # fmt: skip
    """Renew all messages at once, until none changes by more than tol; rounds made and the largest change of the last.

    ``members[starts[a]:starts[a + 1]]`` are the variables of term a, whose table begins at ``tables_at[a]``; the
    message to the k-th member begins at ``at[k]``.
    """
    change = 0.0
    for made in range(1, num_rounds + 1):
        change = 0.0
        _add_up(states, unary_at, unary, members, at, messages, total)
        for a in range(len(starts) - 1):
            _spread(a, states, unary_at, starts, members, tables_at, tables, at, messages, total, room)
            step, size = 1, tables_at[a + 1] - tables_at[a]
            for k in range(starts[a + 1] - 1, starts[a] - 1, -1):
                i = members[k]
                count = states[i]
                top, sums = wide[0], wide[1]
                for s in range(count):
                    top[s], sums[s] = -np.inf, 0.0
                for x in range(size):
                    s = (x // step) % count
                    top[s] = max(top[s], room[x])
                for x in range(size):
                    s = (x // step) % count
                    if top[s] > -np.inf:
                        sums[s] += np.exp(room[x] - top[s])
                largest = -np.inf
                for s in range(count):
                    out = total[unary_at[i] + s] - messages[at[k] + s]
                    sums[s] = top[s] + np.log(sums[s]) - out
                    largest = max(largest, sums[s])
                for s in range(count):
                    value = sums[s] - largest
                    change = max(change, abs(value - messages[at[k] + s]))
                    new[at[k] + s] = damping * messages[at[k] + s] + (1.0 - damping) * value
                step *= count
        for k in range(len(messages)):
            messages[k] = new[k]
        if change <= tol:
            return made, change
    return num_rounds, change


@njit(cache=True, nogil=True)
def factor_beliefs(  # type: ignore[no-untyped-def]
    states, unary_at, unary, starts, members, tables_at, tables, at, messages, total, room, beliefs, nodes
):
    """Write the beliefs of all terms and variables; the Bethe estimate of log Z.

    ``log Z = sum_a log Z_a + sum_i (1 - d_i) log Z_i`` with the normalisers of terms and of variables in d_i terms
    (Yedidia, Freeman and Weiss, 2005).
    """
    _add_up(states, unary_at, unary, members, at, messages, total)
    log_z = 0.0
    degree = np.zeros(len(states))
    for a in range(len(starts) - 1):
        top = _spread(a, states, unary_at, starts, members, tables_at, tables, at, messages, total, room)
        whole, size = 0.0, tables_at[a + 1] - tables_at[a]
        for x in range(size):
            whole += np.exp(room[x] - top)
        for x in range(size):
            beliefs[tables_at[a] + x] = np.exp(room[x] - top) / whole
        log_z += top + np.log(whole)
        for k in range(starts[a], starts[a + 1]):
            degree[members[k]] += 1.0
    for i in range(len(states)):
        first, last = unary_at[i], unary_at[i + 1]
        top, whole = -np.inf, 0.0
        for k in range(first, last):
            top = max(top, total[k])
        for k in range(first, last):
            whole += np.exp(total[k] - top)
        for k in range(first, last):
            nodes[k] = np.exp(total[k] - top) / whole
        log_z += (1.0 - degree[i]) * (top + np.log(whole))
    return log_z
