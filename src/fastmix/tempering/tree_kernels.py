"""Compiled draws of whole forests of variables, and how such forests are cut out of a graph.

As in :mod:`fastmix.tempering.kernels`, ``x[i, l]`` is the state of site i in lane ``l = k * C + c``: ladder c, rung k.
Loops touch few arrays each, and run over all lanes or, where weights are needed, over the C lanes of a rung, for which
they are the same. Everything is a ratio of weights to that of state 0, so that nothing has to be normalised and neither
logarithms nor exponentials are needed; :func:`fastmix.tempering.trees.check_tree_moves` sees to it that they stay
within the range of numbers.
"""

from __future__ import annotations

import numpy as np
from numba import uint8

from fastmix._jit import njit
from fastmix.sampling.gibbs_kernels import _fill

__all__ = ["arrange_forest", "draw_forest", "grow_forest"]

# Functions called only from compiled code need no entry points from Python, which saves compilation time.
_inner = njit(cache=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
_outer = njit(cache=True, nogil=True, error_model="numpy")

_UNIT = 4294967296.0  # random numbers are below 2^32


# -- forests ----------------------------------------------------------------------------------------------------------


@_inner
def _find(leader, i):  # type: ignore[no-untyped-def]
    while leader[i] != i:
        leader[i] = leader[leader[i]]
        i = leader[i]
    return i


@_outer
def grow_forest(candidates, indptr, neighbors, inside):  # type: ignore[no-untyped-def]
    """Take the candidates, one after the other, whose neighbours so far are all in different trees.

    A candidate that is turned down would still close a cycle later, because trees only grow together: the forest is
    maximal when all variables are candidates.

    Parameters
    ----------
    candidates : int (n,)
    indptr, neighbors : int
    inside : bool (n,)
        Filled in: whether a variable is in the forest.
    """
    n = len(inside)
    leader, asked = np.arange(n), np.full(n, -1)
    for i in candidates:
        fits = True
        for k in range(indptr[i], indptr[i + 1]):
            if inside[neighbors[k]]:
                tree = _find(leader, neighbors[k])
                if asked[tree] == i:
                    fits = False
                    break
                asked[tree] = i
        if fits:
            inside[i] = True
            for k in range(indptr[i], indptr[i + 1]):
                if inside[neighbors[k]]:
                    leader[_find(leader, neighbors[k])] = i


@_outer
def arrange_forest(inside, indptr, neighbors, order, up, first, count):  # type: ignore[no-untyped-def]
    """Put the variables of a forest in an order in which parents come first, and the children of each together.

    Parameters
    ----------
    inside : bool (n,)
    indptr, neighbors : int
    order, up, first, count : int (members,)
        Filled in: the variables; where in ``neighbors`` each finds its parent, -1 for roots; the place in ``order`` of
        the first child, and the number of children.
    """
    seen = np.zeros(len(inside), np.bool_)
    place, last = 0, 0
    for root in range(len(inside)):
        if not inside[root] or seen[root]:
            continue
        order[last], up[last] = root, -1
        seen[root] = True
        last += 1
        while place < last:
            i = order[place]
            first[place] = last
            for k in range(indptr[i], indptr[i + 1]):
                j = neighbors[k]
                if inside[j] and not seen[j]:
                    seen[j] = True
                    order[last] = j
                    for back in range(indptr[j], indptr[j + 1]):
                        if neighbors[back] == i:
                            up[last] = back
                    last += 1
            count[place] = last - first[place]
            place += 1


# -- draws ------------------------------------------------------------------------------------------------------------


@_inner
def _fill_with(out, value):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] = value


@_inner
def _select(out, x, zero, one):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] *= one if x[c] != 0 else zero


@_inner
def _look_up(out, x, table):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] *= table[x[c]]


@_inner
def _tell(out, child, above, below):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] *= (1.0 + above * child[c]) / (1.0 + below * child[c])


@_inner
def _add(out, row, weight):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] += weight * row[c]


@_inner
def _set_rungs(out, width, values):  # type: ignore[no-untyped-def]
    for k in range(len(values)):
        _fill_with(out[k * width : (k + 1) * width], values[k])


@_inner
def _weigh(out, x, width, table):  # type: ignore[no-untyped-def]
    """Multiply the ratios of a state by ``table[x, rung]``."""
    two = len(table) == 2  # a choice between two numbers is faster than looking them up
    column = np.empty(len(table))
    for k in range(table.shape[1]):
        a, b = k * width, (k + 1) * width
        if two:
            _select(out[a:b], x[a:b], table[0, k], table[1, k])
        else:
            for t in range(len(table)):
                column[t] = table[t, k]
            _look_up(out[a:b], x[a:b], column)


@_inner
def _message(out, child, width, above, below):  # type: ignore[no-untyped-def]
    """What a child of two states tells its parent."""
    for k in range(len(above)):
        a, b = k * width, (k + 1) * width
        _tell(out[a:b], child[a:b], above[k], below[k])


@_inner
def _add_weighed(out, row, width, weights):  # type: ignore[no-untyped-def]
    for k in range(len(weights)):
        _add(out[k * width : (k + 1) * width], row[k * width : (k + 1) * width], weights[k])


@_inner
def _multiply_ratio(out, above, below):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] *= above[c] / below[c]


@_inner
def _choose_two(x, u, row):  # type: ignore[no-untyped-def]
    """State 1 with probability ``row / (1 + row)``, rounded to a multiple of 2^-32."""
    for c in range(len(x)):
        x[c] = uint8((u[c] + 0.5) * (1.0 + row[c]) >= _UNIT)


@_inner
def _scale(out, u):  # type: ignore[no-untyped-def]
    for c in range(len(out)):
        out[c] *= (u[c] + 0.5) / _UNIT


@_inner
def _compare(x, goal, below, kept):  # type: ignore[no-untyped-def]
    for c in range(len(x)):
        x[c] = uint8(uint8(x[c] & kept) + uint8(goal[c] >= below[c]))


@_outer
def draw_forest(  # type: ignore[no-untyped-def]
    x, order, up, first, count, inside, rows, base, indptr, neighbors, states, starts, tables, streams, ratio
):
    """Draw all variables of a forest at once given the others, in every lane with the weights of its rung.

    From the leaves up, ``r_i(s)`` collects the weight of state s of variable i in its subtree, over that of state 0. A
    child c tells its parent t the ratio ``(1 + sum_s A(s, t) r_c(s)) / (1 + sum_s A(s, 0) r_c(s))`` with
    ``A(s, t) = exp(T(s, t) - T(0, t))``, sums over s > 0. Then, from the roots down, every variable is drawn given its
    parent, with weights ``r_i(s) A(s, x_parent)``.

    Parameters
    ----------
    x : uint8 (n, K * C)
    order, up, first, count : int (members,)
        Of :func:`arrange_forest`.
    inside : bool (n,)
    rows : int (members + 1,)
        The first row of every member in ``ratio``, one for every state but 0.
    base : float (rows, K)
        At every rung, the ratios with unaries only, as if all children were in state 0.
    indptr, neighbors : int
    states : int (n,)
        State counts.
    starts : int (entries of neighbors,)
        Where the table of a variable and one of its neighbours begins: A(s, t) for the states s > 0 of the variable
        and, changing faster, t of the neighbour.
    tables : float (entries, K)
    streams : uint32 (4, K * C)
    ratio : float (rows, K * C)
        Room.
    """
    lanes = x.shape[1]
    width = lanes // base.shape[1]
    u, above, below = np.empty(lanes, np.uint32), np.empty(lanes), np.empty(lanes)
    s0, s1, s2, s3 = streams[0], streams[1], streams[2], streams[3]
    for p in range(len(order) - 1, -1, -1):
        i, row = order[p], rows[p]
        cuts = rows[p + 1] - row
        for s in range(cuts):
            _set_rungs(ratio[row + s], width, base[row + s])
        for k in range(indptr[i], indptr[i + 1]):
            j = neighbors[k]
            if not inside[j]:
                for s in range(cuts):
                    begin = starts[k] + s * states[j]
                    _weigh(ratio[row + s], x[j], width, tables[begin : begin + states[j]])
        for q in range(first[p], first[p] + count[p]):
            begin, child, last = starts[up[q]], rows[q], rows[q + 1]
            if last - child == 1:
                for s in range(cuts):
                    _message(ratio[row + s], ratio[child], width, tables[begin + s + 1], tables[begin])
                continue
            _fill_with(below, 1.0)
            for t in range(last - child):
                _add_weighed(below, ratio[child + t], width, tables[begin + t * states[i]])
            for s in range(cuts):
                _fill_with(above, 1.0)
                for t in range(last - child):
                    _add_weighed(above, ratio[child + t], width, tables[begin + t * states[i] + s + 1])
                _multiply_ratio(ratio[row + s], above, below)
    for p in range(len(order)):
        i, row = order[p], rows[p]
        cuts = rows[p + 1] - row
        _fill(s0, s1, s2, s3, u)
        if up[p] >= 0:
            j = neighbors[up[p]]
            for s in range(cuts):
                begin = starts[up[p]] + s * states[j]
                _weigh(ratio[row + s], x[j], width, tables[begin : begin + states[j]])
        if cuts == 1:
            _choose_two(x[i], u, ratio[row])
            continue
        _fill_with(above, 1.0)
        for s in range(cuts):
            _add(above, ratio[row + s], 1.0)
        _scale(above, u)
        _fill_with(below, 1.0)
        for s in range(cuts):
            _compare(x[i], above, below, uint8(0) if s == 0 else uint8(255))
            _add(below, ratio[row + s], 1.0)
