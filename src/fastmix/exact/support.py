"""Factors over any scopes, and what no positive configuration supports dropped from them.

A state is supported by a factor if some positive entry of the factor has it, the other variables being in states that
are supported themselves. Removing states until all are supported by all factors (generalised arc consistency) changes
no probability, and on models with deterministic relations, such as pedigrees, shrinks the tables a thousandfold.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastmix.errors import ModelError

__all__ = ["Factors", "Support", "drop_unsupported"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Factors(NamedTuple):
    """A model as a product of tables.

    ``scopes`` has one tuple of distinct variables per factor, ``tables`` its flat array of logs, the last variable of
    the scope fastest; -inf forbids.
    """

    num_states: Sequence[int]
    scopes: Sequence[tuple[int, ...]]
    tables: Sequence[FloatArray]


class Support(NamedTuple):
    """Factors without unsupported states, single states and constant axes, and the way back.

    ``variables`` are those left, in the old numbering, ``states`` the states left of every old variable.
    """

    factors: Factors
    variables: IntArray
    states: list[IntArray]
    log_constant: float

    def expand_marginals(self, marginals: Sequence[FloatArray]) -> list[FloatArray]:
        """Marginals of all the old variables from those of the variables left."""
        where = dict(zip(self.variables.tolist(), marginals, strict=True))
        result = []
        for v, (count, kept) in enumerate(zip(self.old_states, self.states, strict=True)):
            vector = np.zeros(count)
            vector[kept] = where.get(v, 1.0)
            result.append(vector)
        return result

    def expand_states(self, states: IntArray) -> IntArray:
        """Configurations (.., old variables) from those (.., variables left)."""
        result = np.empty((*states.shape[:-1], len(self.states)), dtype=np.int64)
        result[...] = [kept[0] for kept in self.states]
        for k, v in enumerate(self.variables.tolist()):
            result[..., v] = self.states[v][states[..., k]]
        return result

    old_states: Sequence[int] = ()


def drop_unsupported(factors: Factors, evidence: dict[int, int] | None = None) -> Support:
    """Equivalent factors over fewer states and variables.

    Parameters
    ----------
    factors : Factors
    evidence : dict, optional
        Observed states by variable: all other states of it are taken as forbidden.

    Raises
    ------
    ModelError
        If a variable is left without a state, so that no configuration has positive probability. The reverse does
        not hold: local consistency can miss a contradiction, which inference then finds.

    Notes
    -----
    Each round costs the entries of the factors with zeros that touch a variable that changed.

    Examples
    --------
    >>> xor = np.log([1.0, 1e-300, 1e-300, 1.0, 1e-300, 1.0, 1.0, 1e-300])
    >>> factors = Factors([2, 2, 2], [(0, 1, 2), (0,)], [np.where(xor < -600, -np.inf, xor), np.zeros(2)])
    >>> drop_unsupported(factors, {0: 1, 1: 1}).states[2].tolist()
    [0]
    """
    num_states = [int(s) for s in factors.num_states]
    offsets = np.concatenate([[0], np.cumsum(num_states)]).astype(np.int64)
    alive = np.ones(offsets[-1], dtype=bool)
    for v, state in (evidence or {}).items():
        alive[offsets[v] : offsets[v + 1]] = False
        alive[offsets[v] + state] = True
    _propagate(factors, num_states, offsets, alive)
    counts = np.add.reduceat(alive, offsets[:-1], dtype=np.int64) if num_states else np.zeros(0, dtype=np.int64)
    if not counts.all():
        v = int(np.argmin(counts))
        raise ModelError(f"no configuration has positive probability: all states of variable {v} are forbidden")
    places = np.flatnonzero(alive) - np.repeat(offsets[:-1], counts)
    states = np.split(places, np.cumsum(counts)[:-1]) if num_states else []
    new_number = np.cumsum(counts > 1) - 1
    log_constant, scopes, tables = 0.0, [], []
    shrunk = (counts < np.array(num_states, dtype=np.int64)).tolist()
    single = (counts == 1).tolist()
    numbers = new_number.tolist()
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        if any(shrunk[v] or single[v] for v in scope):
            shape = [num_states[v] for v in scope]
            table = table.reshape(shape)
            for axis, v in enumerate(scope):
                if shrunk[v]:
                    table = table.take(states[v], axis=axis)
            table = table.reshape(-1)
            scope = tuple([v for v in scope if not single[v]])
        if not scope:
            log_constant += float(table.sum())
            continue
        scopes.append(tuple([numbers[v] for v in scope]))
        tables.append(table)
    left = counts[counts > 1].tolist()
    scopes, tables, constant = _drop_axes(left, scopes, tables)
    variables = np.flatnonzero(counts > 1)
    return Support(Factors(left, scopes, tables), variables, states, log_constant + constant, num_states)


def _by_shape(
    num_states: Sequence[int], scopes: Sequence[tuple[int, ...]], chosen: Sequence[int]
) -> dict[tuple[int, ...], list[int]]:
    shapes: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for f in chosen:
        shapes[tuple([num_states[v] for v in scopes[f]])].append(f)
    return shapes


def _propagate(factors: Factors, num_states: list[int], offsets: IntArray, alive: NDArray[np.bool_]) -> None:
    """Clear the states that some factor does not support, to the fixed point; factors of one shape at once."""
    with_zeros = [f for f, table in enumerate(factors.tables) if table.size and table.min() == -np.inf]
    groups = []
    for shape, members in _by_shape(num_states, factors.scopes, with_zeros).items():
        scopes = np.array([factors.scopes[f] for f in members], dtype=np.int64).reshape(len(members), len(shape))
        masks = np.stack([factors.tables[f] for f in members]).reshape(len(members), *shape) > -np.inf
        groups.append((shape, scopes, masks))
    changed = np.ones(len(num_states), dtype=bool)
    while changed.any():
        before = alive.copy()
        for shape, scopes, masks in groups:
            active = np.flatnonzero(changed[scopes].any(axis=1)) if len(shape) else np.arange(len(scopes))
            if not len(active):
                continue
            sub = masks[active]
            where = [offsets[scopes[active, axis]][:, None] + np.arange(size) for axis, size in enumerate(shape)]
            for axis, index in enumerate(where):
                side = [1] * len(shape)
                side[axis] = shape[axis]
                sub &= alive[index].reshape(-1, *side)
            masks[active] = sub
            for axis, index in enumerate(where):
                others = tuple(a + 1 for a in range(len(shape)) if a != axis)
                alive[index[~sub.any(axis=others)]] = False
        lost = before & ~alive
        changed = np.add.reduceat(lost, offsets[:-1], dtype=np.int64) > 0 if num_states else np.zeros(0, dtype=bool)


def _drop_axes(
    num_states: list[int], scopes: list[tuple[int, ...]], tables: list[FloatArray]
) -> tuple[list[tuple[int, ...]], list[FloatArray], float]:
    """The factors without the axes that their tables do not depend on, and the sum of those that are constant."""
    constant = 0.0
    scopes, tables = list(scopes), list(tables)
    gone = set()
    for shape, members in _by_shape(num_states, scopes, range(len(scopes))).items():
        stack = np.stack([tables[f] for f in members]).reshape(len(members), *shape)
        same = [
            (stack == stack.take([0], axis=axis + 1)).reshape(len(members), -1).all(axis=1)
            for axis in range(len(shape))
        ]
        for k in np.flatnonzero(np.any(same, axis=0)).tolist():
            f, table = members[k], stack[k]
            drop = [axis for axis in range(len(shape)) if same[axis][k]]
            for axis in drop:
                table = table.take([0], axis=axis)
            scopes[f] = tuple([v for axis, v in enumerate(scopes[f]) if axis not in drop])
            tables[f] = table.reshape(-1)
            if not scopes[f]:
                constant += float(tables[f][0])
                gone.add(f)
    keep = [f for f in range(len(scopes)) if f not in gone]
    return [scopes[f] for f in keep], [tables[f] for f in keep], constant
