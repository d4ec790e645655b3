"""What runs in the process of toulbar2: a cost function network made in memory, and a search for its optimum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._engine import Speaker

__all__ = ["Network", "Outcome", "solve"]

#: Seconds of processor time of toulbar2's own timer, whose signal the caller sends instead: never by itself.
_ENDLESS = 10**8
#: Variables of a function up to which toulbar2 takes a whole table.
_TABLE_ARITY = 3


class Network(NamedTuple):
    """A cost function network, and what is wanted of it.

    Attributes
    ----------
    num_states : list of int
    functions : list
        Pairs of a scope and its costs as an array, the last variable fastest: whole numbers, infinite where forbidden.
    upper_bound : int or None
        Only configurations of a smaller cost are looked for.
    seed : int
    counted : sequence of int
        Numbers of the variables in which the configuration must differ from those of ``apart``.
    apart : sequence of sequences of int
        Configurations of all variables.
    distance : int
        In how many of the counted variables it must differ from each of them.
    """

    num_states: list[int]
    functions: list[tuple[tuple[int, ...], FloatArray]]
    upper_bound: int | None
    seed: int
    counted: Sequence[int] = ()
    apart: Sequence[Sequence[int]] = ()
    distance: int = 0


class Outcome(NamedTuple):
    """What a search has found.

    Attributes
    ----------
    states : list of int, or None
        The best configuration; None where none was found that costs less than the upper bound.
    is_complete : bool
        Whether no other configuration costs less.
    lower_bound : float
        No configuration costs less than this; not to be used where the search is complete.
    num_nodes : int
        Nodes of the search tree.
    """

    states: list[int] | None
    is_complete: bool
    lower_bound: float
    num_nodes: int


def solve(network: Network, say: Speaker) -> None:
    """Say the :class:`Outcome` of a search, which the signal of an interval timer ends early."""
    import pytoulbar2
    from pytoulbar2 import pytb2

    problem = pytoulbar2.CFN(resolution=0, seed=network.seed, verbose=-1)
    solver = problem.CFN
    solver.timer(_ENDLESS)  # from here on the signal ends the search, and not the process
    try:
        _add_functions(solver.wcsp, network, pytb2.MAX_COST)
        pytb2.check()
        if network.upper_bound is not None:
            solver.wcsp.updateUb(network.upper_bound)
        solver.wcsp.sortConstraints()
        solver.solve()
    except pytb2.Contradiction:  # nothing costs less than the upper bound
        solver.wcsp.whenContradiction()
        say(Outcome(None, is_complete=True, lower_bound=0.0, num_nodes=0))
        return
    found = solver.solutions()
    states = [int(state) for state in found[-1][1]] if found else None
    complete = not pytb2.option.limited
    say(Outcome(states, complete, float(solver.getDDualBound()), int(solver.getNbNodes())))


def _add_functions(wcsp: Any, network: Network, forbidden: int) -> None:
    """Add the variables and the functions of a network to an empty problem."""
    for number, count in enumerate(network.num_states):
        wcsp.makeEnumeratedVariable(f"x{number}", 0, count - 1)
    for states in network.apart:
        _add_differences(wcsp, network, states)
    for scope, costs in network.functions:
        if len(scope) == 0:
            wcsp.postNullaryConstraint(float(costs[0]))
        elif len(scope) <= _TABLE_ARITY:
            post = (wcsp.postUnaryConstraint, wcsp.postBinaryConstraint, wcsp.postTernaryConstraint)[len(scope) - 1]
            post(*scope, costs.tolist(), False)
        else:
            _add_large_function(wcsp, network.num_states, scope, costs, forbidden)


def _add_differences(wcsp: Any, network: Network, states: Sequence[int]) -> None:
    """Ask that enough variables differ from a configuration: a linear constraint on their other states."""
    words = [str(network.distance)]
    for v in network.counted:
        others = [state for state in range(network.num_states[v]) if state != states[v]]
        words.append(str(len(others)))
        words += [f"{state} 1" for state in others]
    wcsp.postKnapsackConstraint(list(network.counted), " ".join(words), kp=True)


def _add_large_function(
    wcsp: Any, num_states: list[int], scope: tuple[int, ...], costs: FloatArray, forbidden: int
) -> None:
    """Add a function over four or more variables, entry by entry of those that cost something."""
    table = costs.reshape([num_states[v] for v in scope])
    entries = np.argwhere(table > 0.0)
    number = wcsp.postNaryConstraintBegin(list(scope), 0, len(entries), False)
    for entry in entries.tolist():
        cost = table[tuple(entry)]
        wcsp.postNaryConstraintTuple(number, entry, forbidden if np.isinf(cost) else int(cost))
    wcsp.postNaryConstraintEnd(number)
