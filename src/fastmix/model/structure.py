"""The structure that all models on one graph share: state counts, scopes, places of entries, neighbors, visit order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _checks
from fastmix._arrays import IntArray
from fastmix.errors import ModelError
from fastmix.graphs import Adjacency, check_coloring
from fastmix.graphs.colors import color_graph
from fastmix.graphs.edges import build_adjacency
from fastmix.model.flat import offsets_of
from fastmix.model.shared import TableUse

__all__ = ["Directed", "FactorGroup", "Incident", "Structure"]

T = TypeVar("T", bound=tuple[NDArray[Any], ...])


class Directed(NamedTuple):
    """Both directions of every edge, aligned with ``adjacency.neighbors``: arrays (2 m,).

    The entry of ``log_pairwise`` for state s of ``owner[k]`` and state t of its neighbor ``adjacency.neighbors[k]`` is
    at ``starts[k] + s * own_steps[k] + t * other_steps[k]``, whichever of the two comes first in the edge.
    """

    owner: IntArray
    starts: IntArray
    own_steps: IntArray
    other_steps: IntArray


class FactorGroup(NamedTuple):
    """Factors over three or more variables whose tables have one shape."""

    numbers: IntArray
    scopes: IntArray
    first_pairs: (
        IntArray  # where pairs begin in ``Structure.scope_pairs``, in the order of ``np.triu_indices(size, 1)``
    )
    places: IntArray  # places of the table entries in ``log_factors``, (k, ...), with an axis for every variable


class Incident(NamedTuple):
    """The factors over three or more variables around every variable, in compressed rows.

    Variable i has the entries from ``indptr[i]`` to ``indptr[i + 1]``. Entry k belongs to factor ``factors[k]``. With
    the tables of edges and factors one after another, state s of the variable, beside state 0 of all others, is at
    ``starts[k] + s * own_steps[k]``. The other variables of its scope are ``members[m]`` with m from
    ``member_starts[k]`` on; a step of ``members[m]`` to the next state is ``steps[m]`` places, and that variable is at
    ``slots[m]`` of ``adjacency.neighbors``.
    """

    indptr: IntArray
    factors: IntArray
    starts: IntArray
    own_steps: IntArray
    member_starts: IntArray
    members: IntArray
    steps: IntArray
    slots: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class Structure:
    """A graph with state counts, and everything that follows from both: made once, shared by all models on it.

    Terms over one and two variables are the fast path: a vector per variable and a table per edge. Terms over three or
    more variables are listed by their scopes; every two variables of a scope are also an edge, whose table may be 0,
    so that the edges are all pairs of neighbors.

    Parameters and offsets are those of :class:`fastmix.MarkovRandomField`: scope a of a term over more than two
    variables is ``scope_variables[scope_starts[a]:scope_starts[a + 1]]``. All arrays are read-only. What is derived
    from them is computed when first used.

    Where edges share tables, ``table_use`` says which pattern the table of every edge is made of
    (:mod:`fastmix.model.shared`); it is None where every edge has a table of its own.
    """

    num_states: IntArray
    edges: IntArray
    scope_starts: IntArray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    scope_variables: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    table_use: TableUse | None = None
    unary_offsets: IntArray = field(init=False)
    pairwise_offsets: IntArray = field(init=False)
    factor_offsets: IntArray = field(init=False)

    @classmethod
    def of(
        cls,
        num_states: ArrayLike,
        edges: ArrayLike,
        scope_starts: ArrayLike | None = None,
        scope_variables: ArrayLike | None = None,
    ) -> Structure:
        """The structure made of these arrays, which are checked as :class:`fastmix.MarkovRandomField` says."""
        counts = _checks.as_state_counts(num_states)
        n = len(counts)
        pairs = _checks.as_edges(edges, n)
        keys = pairs[:, 0] * np.int64(n) + pairs[:, 1]
        if (pairs[:, 0] >= pairs[:, 1]).any() or (np.diff(keys) <= 0).any():
            rule = "have i < j in every row and be in lexicographic order, each once"
            raise ModelError(f"edges must {rule}; MarkovRandomField.from_tables sorts and merges")
        if scope_starts is None and scope_variables is None:
            return cls(counts, pairs)
        starts, variables = _as_scopes(scope_starts, scope_variables, n)
        structure = cls(counts, pairs, starts, variables)
        if len(structure.scope_pairs) and structure.scope_pairs.min() < 0:
            raise ModelError("edges must hold every pair of a scope; MarkovRandomField.from_factors adds them")
        return structure

    def __post_init__(self) -> None:
        ends = self.num_states[self.edges]
        derived = {
            "unary_offsets": offsets_of(self.num_states),
            "pairwise_offsets": offsets_of(ends[:, 0] * ends[:, 1]),
            "factor_offsets": offsets_of(self._table_sizes()),
        }
        self.__dict__.update(derived)
        _locked((self.num_states, self.edges, self.scope_starts, self.scope_variables, *derived.values()))

    def _table_sizes(self) -> IntArray:
        """Number of entries of the table of every factor, (f,)."""
        if not self.num_factors:
            return np.zeros(0, dtype=np.int64)
        logs = np.add.reduceat(np.log2(self.num_states[self.scope_variables]), self.scope_starts[:-1])
        if logs.max() > 62.0:
            raise ModelError("the table of a factor must have fewer than 2^62 entries")
        return np.multiply.reduceat(self.num_states[self.scope_variables], self.scope_starts[:-1])

    @property
    def num_variables(self) -> int:
        """Number of variables n."""
        return len(self.num_states)

    @property
    def num_edges(self) -> int:
        """Number of edges m."""
        return len(self.edges)

    @property
    def num_factors(self) -> int:
        """Number of terms over three or more variables."""
        return len(self.scope_starts) - 1

    @property
    def scopes(self) -> list[IntArray]:
        """Scopes of all terms over three or more variables."""
        return np.split(self.scope_variables, self.scope_starts[1:-1]) if self.num_factors else []

    @property
    def max_scope(self) -> int:
        """Number of variables of the largest term."""
        largest_small = 2 if self.num_edges else 1
        return int(np.diff(self.scope_starts).max(initial=min(self.num_variables, largest_small)))

    @cached_property
    def factor_strides(self) -> IntArray:
        """Strides of all members of ``scope_variables``: places from one state to the next in the factor's table."""
        steps = np.ones(len(self.scope_variables), dtype=np.int64)
        sizes = np.diff(self.scope_starts)
        counts = self.num_states[self.scope_variables]
        last = self.scope_starts[1:] - 1
        for back in range(1, int(sizes.max(initial=1))):
            here = last[sizes > back] - back
            steps[here] = steps[here + 1] * counts[here + 1]
        return _locked((steps,))[0]

    @cached_property
    def scope_pairs(self) -> IntArray:
        """Numbers of the edges of all pairs of every scope, -1 for a pair without an edge."""
        keys = self.edges[:, 0] * np.int64(self.num_variables) + self.edges[:, 1]
        found = [np.zeros(0, dtype=np.int64)]
        sizes = np.diff(self.scope_starts)
        for size in np.unique(sizes).tolist():
            members = self.scope_variables[self.scope_starts[:-1][sizes == size][:, None] + np.arange(size)]
            first, second = np.triu_indices(size, 1)
            wanted = (members[:, first] * np.int64(self.num_variables) + members[:, second]).reshape(-1)
            places = np.searchsorted(keys, wanted)
            places[places == len(keys)] = 0
            found.append(np.where(keys[places] == wanted, places, -1) if len(keys) else np.full(len(wanted), -1))
        return np.concatenate(found)

    @cached_property
    def first_pairs(self) -> IntArray:
        """Where the pairs of every factor begin in :attr:`scope_pairs`, ordered as ``np.triu_indices(size, 1)``."""
        sizes = np.diff(self.scope_starts)
        order = np.argsort(sizes, kind="stable")
        counts = sizes * (sizes - 1) // 2
        first = np.empty(len(sizes), dtype=np.int64)
        first[order] = offsets_of(counts[order])[:-1]
        return _locked((first,))[0]

    def factor_groups(self, max_entries: int = 1 << 18) -> Iterator[FactorGroup]:
        """All factors in groups of one shape; a group of several has at most ``max_entries`` entries."""
        sizes = np.diff(self.scope_starts)
        first_pair = 0
        for size in np.unique(sizes).tolist():
            numbers = np.flatnonzero(sizes == size)
            scopes = self.scope_variables[self.scope_starts[numbers][:, None] + np.arange(size)]
            num_pairs = size * (size - 1) // 2
            shapes, group = np.unique(self.num_states[scopes], axis=0, return_inverse=True)
            for k, shape in enumerate(shapes.tolist()):
                members = np.flatnonzero(group.ravel() == k)
                num_entries = math.prod(shape)
                chunk = max(1, max_entries // num_entries)
                for start in range(0, len(members), chunk):
                    some = members[start : start + chunk]
                    places = self.factor_offsets[numbers[some]][:, None] + np.arange(num_entries)
                    pairs = first_pair + some * num_pairs
                    yield FactorGroup(numbers[some], scopes[some], pairs, places.reshape(-1, *shape))
            first_pair += len(numbers) * num_pairs

    @cached_property
    def adjacency(self) -> Adjacency:
        """Neighbors of every variable in compressed rows."""
        return build_adjacency(self.num_variables, self.edges)

    @cached_property
    def directed(self) -> Directed:
        """Places of the table entries of both directions of every edge."""
        graph = self.adjacency
        owner = np.repeat(np.arange(self.num_variables), graph.degree)
        first = owner < graph.neighbors
        own_steps = np.where(first, self.num_states[graph.neighbors], 1)
        other_steps = np.where(first, 1, self.num_states[owner])
        return _locked(Directed(owner, self.pairwise_offsets[graph.edge_ids], own_steps, other_steps))

    @cached_property
    def incident(self) -> Incident:
        """Places of the table entries of the factors around every variable."""
        sizes = np.diff(self.scope_starts)
        variables = self.scope_variables
        n = self.num_variables
        graph = self.adjacency
        # An incidence is a factor with one of its variables, the owner: sorted by owner, in the order of factors.
        order = np.argsort(variables, kind="stable")
        factors = np.repeat(np.arange(self.num_factors), sizes)[order]
        owner = variables[order]
        # The members are all variables of the scope but the owner: places from that of the owner on move up by one.
        num_members = sizes[factors] - 1
        member_starts = offsets_of(num_members)
        local = np.arange(member_starts[-1]) - np.repeat(member_starts[:-1], num_members)
        places = np.repeat(self.scope_starts[factors], num_members) + local
        places += places >= np.repeat(order, num_members)
        members = variables[places]
        # Neighbors of a variable ascend, so that keys (owner, neighbor) do.
        keys = self.directed.owner * n + graph.neighbors
        member_keys = np.repeat(owner, num_members) * n + members
        return _locked(
            Incident(
                indptr=offsets_of(np.bincount(owner, minlength=n)),
                factors=factors,
                starts=self.pairwise_offsets[-1] + self.factor_offsets[factors],
                own_steps=self.factor_strides[order],
                member_starts=member_starts,
                members=members,
                steps=self.factor_strides[places],
                slots=np.searchsorted(keys, member_keys),
            )
        )

    @cached_property
    def table_shapes(self) -> list[tuple[int, int, IntArray]]:
        """The shapes of edge tables in ascending order: rows, columns, and the edges whose tables have the shape."""
        ends = self.num_states[self.edges]
        codes = ends[:, 0] << 32 | ends[:, 1]
        if len(codes) and (codes == codes[0]).all():  # as nearly always; sorting millions of edges takes a second
            return [(int(ends[0, 0]), int(ends[0, 1]), np.arange(len(codes)))]
        shapes = []
        for code in np.unique(codes).tolist():
            num_rows = code >> 32
            num_cols = code & 0xFFFFFFFF
            shapes.append((num_rows, num_cols, np.flatnonzero(codes == code)))
        return shapes

    @cached_property
    def visit_order(self) -> tuple[NDArray[np.int32], IntArray]:
        """The order of a systematic sweep, and where its color classes begin; variables ascend within a class.

        Variables of one class have no edge between them and can be updated in any order or at once.
        """
        colors = color_graph(self.num_variables, self.edges, lambda: self.adjacency)
        check_coloring(self.edges, colors)
        order = np.argsort(colors, kind="stable").astype(np.int32)
        return _locked((order, offsets_of(np.bincount(colors, minlength=1))))

    @cached_property
    def pattern_entries(self) -> float:
        """Number of entries of all conditional tables: ``L_i - 1`` times the patterns of states around variable i."""
        graph = self.adjacency
        logs = np.log(self.num_states.astype(np.float64))
        around = np.bincount(self.directed.owner, logs[graph.neighbors], self.num_variables)
        return float(np.sum((self.num_states - 1) * np.exp(np.minimum(around, 700.0))))

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come back from a pickle writable: going through the constructor locks them again.
        arguments = (self.num_states, self.edges, self.scope_starts, self.scope_variables, self.table_use)
        return Structure, arguments

    def with_table_use(self, use: TableUse | None) -> Structure:
        """The same graph, with other tables that edges share, or with none; what has been derived is kept."""
        if use is self.table_use:
            return self
        other = object.__new__(Structure)
        other.__dict__.update(self.__dict__)
        other.__dict__["table_use"] = use
        return other


def _locked(arrays: T) -> T:
    """The same arrays, read-only from now on."""
    for array in arrays:
        array.setflags(write=False)
    return arrays


def _as_scopes(scope_starts: ArrayLike | None, scope_variables: ArrayLike | None, n: int) -> tuple[IntArray, IntArray]:
    """The scopes as checked arrays: where each begins, and the variables of all."""
    starts = _checks.as_whole_numbers("scope_starts", [] if scope_starts is None else scope_starts)
    variables = _checks.as_whole_numbers("scope_variables", [] if scope_variables is None else scope_variables)
    if not len(starts) or starts[0] != 0 or starts[-1] != len(variables) or (np.diff(starts) < 3).any():
        raise ModelError("scope_starts must begin at 0, end at the number of scope_variables, and rise by 3 or more")
    if variables.size and not (variables.min() >= 0 and variables.max() < n):
        raise ModelError(f"scope_variables must be from 0 to {n - 1}")
    is_rising = np.diff(variables) > 0
    is_rising[starts[1:-1] - 1] = True  # from the end of a scope to the next one
    scopes = [tuple(scope) for scope in np.split(variables, starts[1:-1])] if len(starts) > 1 else []
    if not is_rising.all() or any(a >= b for a, b in pairwise(scopes)):
        raise ModelError("scopes must be ascending, in lexicographic order, each once; from_factors sorts and merges")
    return starts, variables
