"""Graphs of networks that are found in data: trees, and trees beside a class."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._clock import Clock
from fastmix._memory import check_memory
from fastmix.learning.chow_liu import heaviest_tree
from fastmix.learning.dataset import Dataset
from fastmix.model.flat import offsets_of
from fastmix.queries.tuning import ONE_HOT_ENTRIES

__all__ = ["augmented_tree", "chow_liu_tree", "mutual_information"]


def chow_liu_tree(data: Dataset, root: int, clock: Clock) -> list[list[int]]:
    """The parents of every variable in the tree of the largest likelihood, with its arcs away from a root.

    Chow and Liu (1968): the spanning tree with the largest sum of mutual informations. That of two variables is taken
    from the rows that have both.
    """
    n = len(data.num_states)
    if n == 1:
        return [[]]
    return _away_from(root, n, heaviest_tree(mutual_information(data, clock)))


def augmented_tree(data: Dataset, target: int, clock: Clock) -> list[list[int]]:
    """The parents of every variable in a tree-augmented naive Bayes network: the class, and one of the others.

    Friedman, Geiger and Goldszmidt (1997): the spanning tree of the other variables with the largest sum of mutual
    informations given the class.
    """
    n = len(data.num_states)
    others = [v for v in range(n) if v != target]
    parents: list[list[int]] = [[] for _ in range(n)]
    if len(others) > 1:
        information = mutual_information(data, clock, given=target)
        tree = heaviest_tree(information[np.ix_(others, others)])
        for k, of_tree in enumerate(_away_from(0, len(others), tree)):
            parents[others[k]] = [others[parent] for parent in of_tree]
    for v in others:
        parents[v] = [target, *parents[v]]
    return parents


def mutual_information(data: Dataset, clock: Clock, given: int | None = None) -> FloatArray:
    """Mutual informations (n, n) of all pairs of variables, in nats, given the variable ``given`` or nothing.

    Each is that of the rows in which no value that it needs is missing.
    """
    n = len(data.num_states)
    size = int(data.num_states.sum())
    check_memory(48.0 * size**2, f"mutual informations of {size:,} states", "use fewer variables or states")
    if given is None:
        return _information_of(data, np.ones(len(data.states), dtype=bool), clock)[0]
    total = np.zeros((n, n))
    mass = np.zeros((n, n))
    for state in range(int(data.num_states[given])):
        information, weight = _information_of(data, data.states[:, given] == state, clock)
        total += weight * information
        mass += weight
    return np.divide(total, mass, out=np.zeros((n, n)), where=mass > 0.0)


def _information_of(data: Dataset, chosen: BoolArray, clock: Clock) -> tuple[FloatArray, FloatArray]:
    """Mutual informations (n, n) in some rows, and the weights (n, n) of the rows that have both values of a pair."""
    counts = data.num_states
    starts = offsets_of(counts)[:-1]
    owner = np.repeat(np.arange(len(counts)), counts)
    joint = _pair_weights(data, np.flatnonzero(chosen), clock)
    # For each state and each other variable, and for each pair of variables: the weights of the rows that have both.
    of_state = np.add.reduceat(joint, starts, axis=1)
    of_pair = np.add.reduceat(of_state, starts, axis=0)
    rows = of_state[:, owner]
    cols = of_state.T[owner]
    whole = of_pair[owner][:, owner]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(joint > 0.0, joint * np.log(joint * whole / (rows * cols)), 0.0)
    sums = np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    return np.divide(sums, of_pair, out=np.zeros_like(sums), where=of_pair > 0.0), of_pair


def _pair_weights(data: Dataset, rows: IntArray, clock: Clock) -> FloatArray:
    """Weights (S, S) of the rows that have two states of two variables, for all pairs of states."""
    starts = offsets_of(data.num_states)[:-1]
    size = int(data.num_states.sum())
    joint = np.zeros((size, size))
    step = max(1, ONE_HOT_ENTRIES // size)
    for first, last in pairwise([*range(0, len(rows), step), len(rows)]):
        clock.check()
        part = rows[first:last]
        states = data.states[part].astype(np.int64)
        known = states >= 0
        hot = np.zeros((len(part), size))
        at = np.nonzero(known)
        hot[at[0], (starts + states)[known]] = 1.0
        joint += hot.T @ (data.weights[part, None] * hot)
    return joint


def _away_from(root: int, n: int, edges: IntArray) -> list[list[int]]:
    """The parent of every node of a tree (none of the root), all arcs pointing away from the root."""
    around: list[list[int]] = [[] for _ in range(n)]
    for i, j in edges.tolist():
        around[i].append(j)
        around[j].append(i)
    parents: list[list[int]] = [[] for _ in range(n)]
    seen = {root}
    waiting = [root]
    for node in waiting:
        for other in around[node]:
            if other not in seen:
                seen.add(other)
                parents[other] = [node]
                waiting.append(other)
    return parents
