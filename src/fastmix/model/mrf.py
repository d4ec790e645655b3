"""The model: a discrete Markov random field in flat arrays."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix import _checks
from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs import Adjacency
from fastmix.model.constructors import Constructors
from fastmix.model.flat import largest_entries, reduce_tables
from fastmix.model.shared import SharedTables, TableUse
from fastmix.model.structure import Structure
from fastmix.model.tuning import GATHERED_ENTRIES, GATHERED_TABLE_ENTRIES

if TYPE_CHECKING:
    from fastmix.model.network import BayesianNetwork

__all__ = ["Evidence", "MarkovRandomField", "check_model", "check_pairwise"]

# Observed states by variable, each given by number or name; or soft evidence, a list of likelihoods by state.
Evidence = Mapping[Any, Any]

# Attributes that a model has from its structure.
_SHARED = (
    "num_states",
    "edges",
    "unary_offsets",
    "pairwise_offsets",
    "factor_offsets",
    "scope_starts",
    "scope_variables",
)
# The flat arrays, each with the attribute that says where its tables begin, and the arguments that set its length.
_ENTRIES = {
    "log_unary": ("unary_offsets", "num_states"),
    "log_pairwise": ("pairwise_offsets", "num_states and edges"),
    "log_factors": ("factor_offsets", "num_states and the scopes"),
}


@dataclass(frozen=True, eq=False, repr=False)
class MarkovRandomField(Constructors):
    """A Markov random field ``p(x) = exp(k + sum_i u_i(x_i) + sum_ij T_ij(x_i, x_j) + sum_a F_a(x_a)) / Z``.

    Factors F_a over three or more variables are for models that need them; most have none.

    Variables are numbered from 0, the states of variable i from 0 to ``num_states[i] - 1``. Build models with
    :meth:`from_tables`, :meth:`from_patterns`, :meth:`from_factors`, :meth:`ising`, :meth:`from_couplings`,
    :meth:`potts`, :meth:`rbm`, :meth:`image` or :meth:`from_networkx`; the class itself takes the arrays as they are
    stored, and checks them.

    The tables of a model may share patterns: T_ij is then a pattern times a weight, and the model holds the patterns
    and a number per edge (``shared_tables``). It means the same as a model with the tables in full, and is equal to it.

    Parameters
    ----------
    num_states : int array (n,)
        Number of states of each variable, at least 1.
    log_unary : float array (sum of num_states,)
        The vectors u_i one after another; -inf forbids a state, NaN and +inf are refused.
    edges : int array (m, 2)
        Pairs (i, j) with i < j, in lexicographic order, each once.
    log_pairwise : float array (sum over edges of L_i * L_j,)
        The tables T_ij one after another, each row by row (rows for x_i). Where tables are shared, they are laid out
        in full when this is first asked for, if the memory is enough: :meth:`edge_tables` and :meth:`table` take no
        room for all of them.
    log_constant : float
        The constant k. It counts in log Z.
    variable_names : sequence of str, optional
        One name per variable, all different.
    state_names : sequence of sequences of str, optional
        For each variable, one name per state, all different within the variable.
    scope_starts, scope_variables : int arrays (f + 1,) and (sum of sizes,), optional
        Scopes of the factors over three or more variables, each ascending, in lexicographic order; every two variables
        of a scope must be an edge.
    log_factors : float array (sum of the sizes of their tables,), optional
        The tables F_a one after another, the last variable fastest.
    shape : tuple of int, optional
        Of an array whose entries, row by row, the variables are (:meth:`image`). It shapes pictures and changes no
        answer, so that it counts neither in comparisons nor in :attr:`content_hash`.
    shared_tables : SharedTables, optional
        Patterns and weights in place of ``log_pairwise``, which may then be empty.

    Attributes
    ----------
    structure : Structure
        What models with other parameters on the same graph share (:meth:`with_parameters`, :meth:`replace`).
    unary_offsets : int array (n + 1,)
        ``log_unary[unary_offsets[i]:unary_offsets[i + 1]]`` is u_i.
    pairwise_offsets, factor_offsets : int arrays (m + 1,) and (f + 1,)
        The same for the tables of the edges and of the factors.

    Raises
    ------
    ModelError
        If an array has the wrong shape, holds NaN, +inf or finite numbers beyond 1e100 (sums of which would overflow),
        names a variable that does not exist, joins a variable to itself, or leaves a variable without any allowed
        state.

    Notes
    -----
    All arrays are copied and read-only. Memory: 8 bytes per entry and 24 bytes per edge; with shared tables 37 bytes
    per edge and 8 per entry of the patterns.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5, field=[0.1, 0.0, -0.3])
    >>> model
    MarkovRandomField(3 variables of 2 states, 2 edges)
    >>> round(model.log_weight([1, 1, 0]), 3)
    0.4
    """

    num_states: IntArray
    log_unary: FloatArray
    edges: IntArray
    log_pairwise: FloatArray
    log_constant: float = 0.0
    variable_names: tuple[str, ...] | None = None
    state_names: tuple[tuple[str, ...], ...] | None = None
    scope_starts: IntArray | None = None
    scope_variables: IntArray | None = None
    log_factors: FloatArray = field(default_factory=lambda: np.zeros(0))
    shape: tuple[int, ...] | None = None
    shared_tables: SharedTables | None = None
    structure: Structure = field(init=False)
    unary_offsets: IntArray = field(init=False)
    pairwise_offsets: IntArray = field(init=False)
    factor_offsets: IntArray = field(init=False)

    def __post_init__(self) -> None:
        structure = Structure.of(self.num_states, self.edges, self.scope_starts, self.scope_variables)
        shared = self.shared_tables
        if shared is not None:
            structure = structure.with_table_use(_checked_use(structure, shared))
        entries: dict[str, Any] = {}
        for name in _ENTRIES:
            given = getattr(self, name)
            if name != "log_pairwise" or shared is None or np.size(given):
                entries[name] = _as_entries(structure, name, given)
        if shared is not None:
            self._check_equal_tables(entries.pop("log_pairwise", None), structure, shared)
            del self.__dict__["log_pairwise"]
        self._fill(
            structure,
            **entries,
            shared_tables=shared,
            log_constant=_checks.as_number("log_constant", self.log_constant) + 0.0,
            variable_names=_checks.as_variable_names(self.variable_names, structure.num_variables),
            state_names=_checks.as_state_names(self.state_names, structure.num_states),
            shape=_checks.as_shape(self.shape, structure.num_variables),
        )

    def _fill(self, structure: Structure, **own: Any) -> None:
        """Set all attributes, which have been checked; ``log_pairwise`` is missing where tables are shared."""
        for name in _ENTRIES:
            if name in own:
                own[name].setflags(write=False)
        from_structure = {name: getattr(structure, name) for name in _SHARED}
        self.__dict__.update(structure=structure, **from_structure, **own)

    @staticmethod
    def _check_equal_tables(given: FloatArray | None, structure: Structure, shared: SharedTables) -> None:
        """Raise a :class:`ModelError` where full tables are given beside shared ones, and are others."""
        if given is None:
            return
        full = shared.flat(structure.pairwise_offsets, structure.table_shapes)
        if not np.array_equal(given, full):
            raise ModelError("log_pairwise must be left out, or hold the same tables, where shared_tables are given")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """The full tables of a model that shares them, laid out when they are first asked for."""
            shared = self.__dict__.get("shared_tables")
            if name != "log_pairwise" or shared is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            num_entries = int(self.pairwise_offsets[-1])
            required = 8.0 * num_entries + 24.0 * min(num_entries, GATHERED_TABLE_ENTRIES)
            check_memory(
                required, f"laying out {self.num_edges:,} shared tables in full", "take a method that reads them shared"
            )
            tables = shared.flat(self.pairwise_offsets, self.structure.table_shapes)
            tables.setflags(write=False)
            self.__dict__["log_pairwise"] = tables
            return tables

    # -- shape ----------------------------------------------------------------------------------------------------

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
        """Number of factors over three or more variables."""
        return self.structure.num_factors

    @property
    def num_parameters(self) -> int:
        """Length of :attr:`parameters`: entries of unaries, edge tables and factors."""
        return len(self.log_unary) + int(self.pairwise_offsets[-1]) + len(self.log_factors)

    @property
    def parameters(self) -> FloatArray:
        """The parameter vector theta: ``log_unary``, ``log_pairwise`` and ``log_factors`` (a new array)."""
        return np.concatenate([self.log_unary, self.log_pairwise, self.log_factors])

    @property
    def weight_parameters(self) -> FloatArray:
        """``log_unary``, then the weights of shared tables, then those of following patterns if there are any.

        The log-weight is linear in these as it is in :attr:`parameters`, while the patterns stay as they are.
        """
        shared = self.shared_tables
        if shared is None:
            raise ModelError("weight_parameters must be asked of a model that shares tables, as from_patterns builds")
        following = np.zeros(0) if shared.next_weights is None else shared.next_weights
        return np.concatenate([self.log_unary, shared.weights, following])

    def factor(self, number: int) -> tuple[IntArray, FloatArray]:
        """The scope of a factor over three or more variables, and its table with an axis for each (read-only)."""
        structure = self.structure
        number = _checks.as_index("factor", number, {}, self.num_factors)
        scope = structure.scope_variables[structure.scope_starts[number] : structure.scope_starts[number + 1]]
        values = self.log_factors[structure.factor_offsets[number] : structure.factor_offsets[number + 1]]
        return scope, values.reshape(self.num_states[scope])

    @property
    def factors(self) -> list[tuple[IntArray, FloatArray]]:
        """Scopes and tables of all factors over three or more variables, as :meth:`factor` gives them."""
        return [self.factor(k) for k in range(self.num_factors)]

    def terms(self) -> Iterator[tuple[list[int], FloatArray]]:
        """Variables and table of every term: of the unaries, the edges and the factors, one after another."""
        for i in range(self.num_variables):
            yield [i], self.log_unary[self.unary_offsets[i] : self.unary_offsets[i + 1]]
        for e, ends in enumerate(self.edges.tolist()):
            yield ends, self.table_of_edge(e)
        for scope, table in self.factors:
            yield scope.tolist(), table

    @property
    def network(self) -> BayesianNetwork | None:
        """The Bayesian network that the model was made of, by ``to_model`` or a reader; None for all other models.

        It changes no answer, and counts neither in comparisons nor in :attr:`content_hash`. Models made of this one,
        with evidence or other parameters, have none.
        """
        network: BayesianNetwork | None = self.__dict__.get("_network")
        return network

    @property
    def num_hidden(self) -> int:
        """How many of the last variables are hidden ones of laws of a network: answers by variable leave them out."""
        return 0 if self.network is None else self.num_variables - self.network.num_variables

    @property
    def num_shown(self) -> int:
        """How many of the first variables answers are given for: all that are not hidden."""
        return self.num_variables - self.num_hidden

    def remember_network(self, network: BayesianNetwork) -> MarkovRandomField:
        """The model itself, which from now on has the network that it was made of."""
        self.__dict__["_network"] = network
        return self

    @property
    def adjacency(self) -> Adjacency:
        """Neighbors of every variable in compressed rows."""
        return self.structure.adjacency

    @property
    def has_forbidden(self) -> bool:
        """Whether some unary or table entry is -inf."""
        if self.tables_forbid:
            return True
        return any(bool(a.size) and a.min() == -np.inf for a in (self.log_unary, self.log_factors))

    @property
    def tables_forbid(self) -> bool:
        """Whether some entry of an edge table is -inf."""
        if self.shared_tables is not None:
            return self.shared_tables.has_forbidden
        return bool(self.log_pairwise.size) and bool(self.log_pairwise.min() == -np.inf)

    def unary(self, variable: int | str) -> FloatArray:
        """The vector u_i of one variable, given by number or name (a read-only view)."""
        i = self.variable_index(variable)
        return self.log_unary[self.unary_offsets[i] : self.unary_offsets[i + 1]]

    def edge_index(self, i: int | str, j: int | str) -> int:
        """Row of the edge between two variables in :attr:`edges`; a :class:`fastmix.ModelError` if there is none."""
        first, second = sorted((self.variable_index(i), self.variable_index(j)))
        begin, end = np.searchsorted(self.edges[:, 0], [first, first + 1])
        e = int(begin + np.searchsorted(self.edges[begin:end, 1], second))
        if e == end or self.edges[e, 1] != second:
            raise ModelError(
                f"i and j must have an edge between them, which variables {i!r} and {j!r} have not; joint of a result "
                "gives the probabilities of any variables together, and unary those potentials that one has by itself"
            )
        return e

    def table(self, i: int | str, j: int | str) -> FloatArray:
        """The table T of the edge between i and j, rows for i and columns for j (read-only)."""
        e = self.edge_index(i, j)
        table = self.table_of_edge(e)
        return table if self.variable_index(i) == self.edges[e, 0] else table.T

    def edge_table(self, values: FloatArray, i: int | str, j: int | str) -> FloatArray:
        """The table of the edge between i and j in any array aligned with :attr:`log_pairwise`, rows for i."""
        e = self.edge_index(i, j)
        first, second = self.edges[e]
        array = _checks.as_array("values", values, "be an array aligned with log_pairwise")
        expected = (int(self.pairwise_offsets[-1]),)
        if array.shape != expected:
            raise ModelError(f"values must have shape {expected}, as log_pairwise, got {array.shape}")
        part = array[self.pairwise_offsets[e] : self.pairwise_offsets[e + 1]]
        table = part.reshape(self.num_states[first], self.num_states[second])
        return table if self.variable_index(i) == first else table.T

    def variable_index(self, variable: int | str) -> int:
        """Number of a variable given by number or name."""
        return _checks.as_index("variable", variable, self._index_of_name, self.num_variables)

    def state_index(self, variable: int | str, state: int | str) -> int:
        """Number of a state of a variable given by number or name."""
        i = self.variable_index(variable)
        names: dict[str, int] = {}
        if self.state_names is not None:
            names = {name: k for k, name in enumerate(self.state_names[i])}
        what = f"state of variable {_checks.describe(variable)}"
        return _checks.as_index(what, state, names, int(self.num_states[i]))

    def names_of_variables(self) -> list[str]:
        """Names of all variables; their numbers as text in a model without names."""
        return list(self.variable_names or map(str, range(self.num_variables)))

    def names_of_states(self) -> list[list[str]]:
        """Names of the states of all variables; their numbers as text in a model without names."""
        if self.state_names is not None:
            return [list(names) for names in self.state_names]
        numbers = {count: [str(k) for k in range(count)] for count in np.unique(self.num_states).tolist()}
        return [numbers[count] for count in self.num_states.tolist()]

    @cached_property
    def _index_of_name(self) -> dict[str, int]:
        """Number of every variable by name."""
        return {name: i for i, name in enumerate(self.variable_names or ())}

    # -- probabilities --------------------------------------------------------------------------------------------

    def log_weight(self, states: ArrayLike) -> Any:
        """Unnormalized log-probability ``k + sum_i u_i + sum_ij T_ij + sum_a F_a`` of configurations.

        Parameters
        ----------
        states : int array (..., n)
            One configuration or many.

        Returns
        -------
        float or float array (...)
            -inf for a forbidden configuration.
        """
        x, shape = self._as_states(states)
        total = np.empty(len(x))
        width = self.num_variables + self.num_edges + len(self.structure.scope_variables)
        chunk = max(1, GATHERED_ENTRIES // max(1, width))
        for start in range(0, len(x), chunk):
            part = slice(start, start + chunk)
            unary, pairwise, factors = self.entry_positions(x[part])
            total[part] = self.log_unary[unary].sum(axis=1)
            if self.shared_tables is None:
                total[part] += self.log_pairwise[pairwise].sum(axis=1)
            else:
                i, j = self.edges.T
                total[part] += self.table_entries(np.arange(self.num_edges), x[part][:, i], x[part][:, j]).sum(axis=1)
            if self.num_factors:
                total[part] += self.log_factors[factors].sum(axis=1)
        total += self.log_constant
        return total.reshape(shape) if shape else float(total[0])

    def sufficient_statistics(self, states: ArrayLike) -> FloatArray:
        """Indicators f(x) of the entries that configurations (..., n) use, aligned with :attr:`parameters`.

        ``f(x) @ parameters + log_constant`` is :meth:`log_weight` (for finite parameters: 0 times -inf is NaN).
        """
        x, shape = self._as_states(states)
        required = 8.0 * len(x) * (self.num_parameters + self.num_variables + self.num_edges + self.num_factors)
        check_memory(required, f"the array of statistics of {len(x)} configurations", "give fewer at a time")
        statistics = np.zeros((len(x), self.num_parameters))
        rows = np.arange(len(x))[:, None]
        lengths = (len(self.log_unary), int(self.pairwise_offsets[-1]), len(self.log_factors))
        start = 0
        for length, positions in zip(lengths, self.entry_positions(x), strict=True):
            statistics[rows, start + positions] = 1.0
            start += length
        return statistics.reshape((*shape, self.num_parameters))

    def _as_states(self, states: ArrayLike) -> tuple[IntArray, tuple[int, ...]]:
        """Configurations as a checked array (k, n), and the shape that they were given in without the last axis."""
        array = _checks.as_array("states", states, f"have shape (..., {self.num_variables})")
        if array.size and not _checks.is_whole(array):
            raise ModelError(f"states must hold whole numbers, got {_checks.describe(states)}")
        if array.ndim == 0 or array.shape[-1] != self.num_variables:
            raise ModelError(f"states must have shape (..., {self.num_variables}), got shape {array.shape}")
        num_configurations = int(np.prod(array.shape[:-1], dtype=np.int64))
        x = array.astype(np.int64).reshape(num_configurations, self.num_variables)
        bad = (x < 0) | (x >= self.num_states)
        if bad.any():
            row, i = np.argwhere(bad)[0]
            raise ModelError(f"states of variable {i} must be from 0 to {self.num_states[i] - 1}, got {x[row, i]}")
        return x, array.shape[:-1]

    def entry_positions(self, x: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Positions in :attr:`log_unary`, :attr:`log_pairwise` and :attr:`log_factors` of configurations (batch, n).

        Their shapes are (batch, n), (batch, m) and (batch, f).
        """
        structure = self.structure
        unary = self.unary_offsets[:-1] + x
        i = self.edges[:, 0]
        j = self.edges[:, 1]
        pairwise = self.pairwise_offsets[:-1] + x[:, i] * self.num_states[j] + x[:, j]
        factors = np.zeros((len(x), 0), dtype=np.int64)
        if self.num_factors:
            steps = x[:, structure.scope_variables] * structure.factor_strides
            factors = self.factor_offsets[:-1] + np.add.reduceat(steps, structure.scope_starts[:-1], axis=1)
        return unary, pairwise, factors

    # -- tables, in full or shared ---------------------------------------------------------------------------------

    @property
    def tables(self) -> FloatArray | SharedTables:
        """The tables of all edges as the model stores them: ``shared_tables``, or else ``log_pairwise``."""
        return self.log_pairwise if self.shared_tables is None else self.shared_tables

    def table_of_edge(self, e: int) -> FloatArray:
        """The table of an edge by its number, rows for its first variable (read-only)."""
        num_rows, num_cols = self.num_states[self.edges[e]].tolist()
        if self.shared_tables is None:
            values = self.log_pairwise[self.pairwise_offsets[e] : self.pairwise_offsets[e + 1]]
        else:
            values = self.shared_tables.of_edges(np.array([e]), num_rows, num_cols)
            values.setflags(write=False)
        return values.reshape(num_rows, num_cols)

    def edge_tables(self, edges: Any, num_rows: int, num_cols: int) -> FloatArray:
        """Tables (k, rows * columns) of some edges, an array of numbers or a slice, all of which have this shape."""
        if self.shared_tables is not None:
            return self.shared_tables.of_edges(edges, num_rows, num_cols)
        size = num_rows * num_cols
        if len(self.log_pairwise) == size * self.num_edges and len(self.structure.table_shapes) == 1:
            return self.log_pairwise.reshape(-1, size)[edges]
        return self.log_pairwise[self.pairwise_offsets[:-1][edges][:, None] + np.arange(size)]

    def table_entries(self, edges: IntArray, rows: IntArray, cols: IntArray) -> FloatArray:
        """One entry of the table of each of some edges: arrays of one shape, or that broadcast to the largest."""
        if self.shared_tables is not None:
            return self.shared_tables.entries(edges, rows, cols)
        return self.log_pairwise[self.pairwise_offsets[edges] + rows * self.num_states[self.edges[edges, 1]] + cols]

    def least_of_tables(self) -> FloatArray:
        """The least entry of the table of every edge, (m,)."""
        if self.shared_tables is not None:
            return self.shared_tables.least_and_largest()[0]
        return reduce_tables(np.minimum, self.log_pairwise, self.pairwise_offsets)

    def largest_of_tables(self) -> FloatArray:
        """The largest entry of the table of every edge, (m,)."""
        if self.shared_tables is not None:
            return self.shared_tables.least_and_largest()[1]
        return reduce_tables(np.maximum, self.log_pairwise, self.pairwise_offsets)

    def sizes_of_tables(self) -> FloatArray:
        """The largest finite absolute entry of the table of every edge, (m,), 0 where there is none."""
        if self.shared_tables is not None:
            return self.shared_tables.largest_entries()
        return largest_entries(self.log_pairwise, self.pairwise_offsets)

    def _tables_in_order(self) -> Iterator[FloatArray]:
        """The entries of all tables, some tables at a time."""
        if self.shared_tables is None or "log_pairwise" in self.__dict__:
            yield self.log_pairwise
            return
        sizes = np.diff(self.pairwise_offsets)
        whole = bool(len(sizes)) and bool((sizes == sizes[0]).all()) and len(self.structure.table_shapes) == 1
        if not whole:
            yield self.shared_tables.flat(self.pairwise_offsets, self.structure.table_shapes)
            return
        num_rows, num_cols, _ = self.structure.table_shapes[0]
        chunk = max(1, GATHERED_TABLE_ENTRIES // int(sizes[0]))
        for start in range(0, self.num_edges, chunk):
            yield self.shared_tables.of_edges(slice(start, start + chunk), num_rows, num_cols).reshape(-1)

    # -- derived models -------------------------------------------------------------------------------------------

    def condition(self, evidence: Evidence) -> MarkovRandomField:
        """The model of the other variables given observed ones.

        Observed variables leave the model; their unaries and tables fold into the constant and into their
        neighbors' unaries, so that log Z becomes the log of the unnormalized mass of the evidence. Use
        :func:`fastmix.model.reduce.reduce_model` to keep track of which variable is which.

        Examples
        --------
        >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0, field=[0.5, 0.0])
        >>> model.condition({0: 1}).log_unary.tolist(), model.condition({0: 1}).log_constant
        ([-1.0, 1.0], 0.5)
        """
        from fastmix.model.reduce import reduce_model

        return reduce_model(self, evidence, drop_forbidden=False).model

    def drop_forbidden_states(self) -> MarkovRandomField:
        """The model without the states that its unaries forbid: the distribution is the same."""
        from fastmix.model.reduce import reduce_model

        return reduce_model(self).model

    def couplings(self) -> FloatArray:
        """The coupling J of every edge (m,), aligned with ``edges``, of an Ising or a Potts model.

        Between binary variables ``J = (T00 - T01 - T10 + T11) / 4``: every table is ``J s_i s_j``, with spins -1 and
        +1, plus functions of either spin, which :meth:`fields` includes. Between variables with K > 2 states the table
        must be ``J [x_i = x_j]`` plus functions of either variable. Learned models have couplings, too, however their
        tables are written.

        Raises
        ------
        ModelError
            If a table is of neither kind; the message names the edge.

        Examples
        --------
        >>> MarkovRandomField.ising([(0, 1), (1, 2)], coupling=[0.5, -1.0], field=0.3).couplings().tolist()
        [0.5, -1.0]
        >>> MarkovRandomField.potts([(0, 1)], 0.7, num_states=3).couplings().round(12).tolist()
        [0.7]
        """
        from fastmix.model.forms import couplings_of

        return couplings_of(self)

    def fields(self) -> FloatArray:
        """The fields of all variables beside the :meth:`couplings`.

        A binary model has h (n,): its log-weight is ``sum_i h_i s_i + sum_ij J_ij s_i s_j`` with spins -1 and +1, and a
        constant. A model with K > 2 states per variable has an array (n, K) with rows of mean zero: the sums of the
        unaries and of the functions of one variable in the tables.

        Raises
        ------
        ModelError
            If the model forbids something, has factors over three or more variables, or unequal state counts.

        Examples
        --------
        >>> MarkovRandomField.ising([(0, 1)], coupling=0.5, field=[0.25, -1.0]).fields().tolist()
        [0.25, -1.0]
        """
        from fastmix.model.forms import fields_of

        return fields_of(self)

    def with_parameters(self, parameters: ArrayLike) -> MarkovRandomField:
        """The same graph, constant and names with other :attr:`parameters`; only these are checked.

        Examples
        --------
        >>> model = MarkovRandomField.ising([(0, 1)], coupling=1.0)
        >>> doubled = model.with_parameters(2.0 * model.parameters)
        >>> doubled.table(0, 1).tolist(), doubled.structure is model.structure
        ([[2.0, -2.0], [-2.0, 2.0]], True)
        """
        vector = _checks.as_flat("parameters", parameters, self.num_parameters, "the model")
        first_pairwise = len(self.log_unary)
        first_factor = first_pairwise + int(self.pairwise_offsets[-1])
        log_unary = vector[:first_pairwise]
        _check_allowed(self.structure, log_unary)
        return self._sibling(log_unary, vector[first_pairwise:first_factor], vector[first_factor:], self.log_constant)

    def at_temperature(self, temperature: float) -> MarkovRandomField:
        """The same model at a temperature: all log-weights are divided by it, those that are -inf stay.

        Parameters
        ----------
        temperature : float
            Positive; 1 is the model itself, infinity makes all allowed configurations equally probable.

        Examples
        --------
        >>> MarkovRandomField.ising([(0, 1)], coupling=1.0).at_temperature(2.0).table(0, 1).tolist()
        [[0.5, -0.5], [-0.5, 0.5]]
        """
        if isinstance(temperature, float) and temperature == math.inf:
            factor = 0.0
        else:
            factor = 1.0 / _checks.check_positive("temperature", temperature, "number")
            if math.isinf(factor):
                raise ValueError(f"temperature must not be so low that its inverse overflows, got {temperature}")

        def scaled(values: FloatArray) -> FloatArray:
            return np.where(values > -np.inf, factor * np.where(values > -np.inf, values, 0.0), -np.inf)

        own: dict[str, Any] = {
            "log_unary": scaled(self.log_unary),
            "log_factors": scaled(self.log_factors),
            "log_constant": factor * self.log_constant,
        }
        shared = self.shared_tables
        if shared is None or (factor == 0.0 and shared.has_forbidden):
            return self.replace(log_pairwise=scaled(self.log_pairwise), **own)
        weights = factor * self.weight_parameters[len(self.log_unary) :]
        return self.replace(shared_tables=shared.with_weights(weights), **own)

    def replace(
        self,
        *,
        log_unary: ArrayLike | None = None,
        log_pairwise: ArrayLike | None = None,
        log_factors: ArrayLike | None = None,
        log_constant: float | None = None,
        shared_tables: SharedTables | None = None,
    ) -> MarkovRandomField:
        """A model on the same graph, with the same names, and with other parameters or another constant.

        What is not given stays. ``log_pairwise`` are tables in full, ``shared_tables`` patterns with weights, of which
        only the patterns' shapes are checked; at most one of both can be given.
        """
        if shared_tables is not None:
            if log_pairwise is not None:
                raise ModelError("log_pairwise must be left out where shared_tables are given")
            same_use = isinstance(shared_tables, SharedTables) and shared_tables.use is self.structure.table_use
            if not same_use:
                _checked_use(self.structure, shared_tables)
        given = {"log_unary": log_unary, "log_pairwise": log_pairwise, "log_factors": log_factors}
        constant = self.log_constant
        if log_constant is not None:
            constant = _checks.as_number("log_constant", log_constant) + 0.0
        arrays: dict[str, Any] = {}
        for name, values in given.items():
            if values is not None:
                arrays[name] = _as_entries(self.structure, name, values)
            elif name == "log_pairwise":
                arrays[name] = self.tables if shared_tables is None else shared_tables
            else:
                arrays[name] = getattr(self, name)
        return self._sibling(**arrays, log_constant=constant)

    def _sibling(
        self,
        log_unary: FloatArray,
        log_pairwise: FloatArray | SharedTables,
        log_factors: FloatArray,
        log_constant: float,
    ) -> MarkovRandomField:
        """A model on the same graph with checked parameters, its tables in full or shared."""
        parts: dict[str, Any] = {"log_unary": log_unary, "log_factors": log_factors, "log_constant": log_constant}
        if isinstance(log_pairwise, SharedTables):
            structure = self.structure.with_table_use(log_pairwise.use)
            parts["shared_tables"] = log_pairwise
        else:
            structure = self.structure.with_table_use(None)
            parts["log_pairwise"] = log_pairwise
            parts["shared_tables"] = None
        model = object.__new__(MarkovRandomField)
        model._fill(
            structure,
            **parts,
            variable_names=self.variable_names,
            state_names=self.state_names,
            shape=self.shape,
        )
        return model

    # -- identity -------------------------------------------------------------------------------------------------

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over graph, parameters and names, the same on every machine and in every process."""
        digest = hashlib.sha256(b"fastmix pairwise mrf 1")

        def take_in(length: int, parts: Iterable[NDArray[Any]]) -> None:
            digest.update(length.to_bytes(8, "little"))
            for part in parts:
                digest.update(np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<")).data)

        for array in (self.num_states, self.edges, self.log_unary):
            take_in(len(array), [array])
        take_in(int(self.pairwise_offsets[-1]), self._tables_in_order())
        arrays = [np.array([self.log_constant])]
        if self.num_factors:
            arrays += [self.structure.scope_starts, self.structure.scope_variables, self.log_factors]
        for array in arrays:
            take_in(len(array), [array])
        digest.update(repr((self.variable_names, self.state_names)).encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MarkovRandomField):
            return NotImplemented
        return self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come back from a pickle writable: going through the constructor locks them again.
        tables = () if self.shared_tables is not None else self.log_pairwise
        arguments = (self.num_states, self.log_unary, self.edges, tables, self.log_constant)
        factors = (self.scope_starts, self.scope_variables, self.log_factors)
        names = (self.variable_names, self.state_names)
        whole = (*arguments, *names, *factors, self.shape, self.shared_tables)
        if self.network is None:
            return MarkovRandomField, whole
        return MarkovRandomField, whole, {"_network": self.network}

    def __repr__(self) -> str:
        variables = _plural(self.num_variables, "variable")
        if self.num_variables:
            variables += f" of {_span(self.num_states, 'state')}"
        parts = [variables, _plural(self.num_edges, "edge")]
        if self.num_factors:
            sizes = np.diff(self.structure.scope_starts)
            parts.append(f"{_plural(self.num_factors, 'factor')} of {_span(sizes, 'variable')}")
        if self.log_constant:
            parts.append(f"log_constant={self.log_constant:.6g}")
        return f"MarkovRandomField({', '.join(parts)})"


def check_model(model: Any, name: str = "model") -> None:
    """Raise a TypeError if ``model`` is no model, with a way to one; ``name`` is the name of the argument."""
    if isinstance(model, MarkovRandomField):
        return
    from fastmix.model.network import BayesianNetwork

    if isinstance(model, BayesianNetwork):
        way_out = "its method to_model() gives one"
    else:
        way_out = "build one with MarkovRandomField.from_tables, or read one from a file with fastmix.io.read_model"
    raise TypeError(f"{name} must be a MarkovRandomField, got {_checks.describe(model)}; {way_out}")


def check_pairwise(model: MarkovRandomField, what: str) -> None:
    """Raise an :class:`fastmix.UnfitMethodError` if the model has factors over three or more variables."""
    if model.num_factors:
        count = _plural(model.num_factors, "factor")
        raise UnfitMethodError(f"{what} must have a model of pairs, got {count} over three or more variables")


def _plural(count: int, word: str) -> str:
    """A count with its word, such as "1 edge" or "2,000 edges"."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _span(counts: IntArray, word: str) -> str:
    """The range of counts with their word, such as "2 states" or "2 to 4 states"."""
    low = int(counts.min())
    high = int(counts.max())
    words = f"{high} {word}" if high == 1 else f"{high} {word}s"
    return words if low == high else f"{low} to {words}"


def _as_entries(structure: Structure, name: str, values: ArrayLike) -> FloatArray:
    """A checked copy of the flat array that has this name."""
    offsets, source = _ENTRIES[name]
    array = _checks.as_flat(name, values, int(getattr(structure, offsets)[-1]), source)
    if name == "log_unary":
        _check_allowed(structure, array)
    return array


def _checked_use(structure: Structure, shared: SharedTables) -> TableUse:
    """The patterns that shared tables use, checked against the graph."""
    if not isinstance(shared, SharedTables):
        raise ModelError(f"shared_tables must be those of a model, or None, got {_checks.describe(shared)}")
    if structure.num_factors:
        raise ModelError("shared_tables must come without factors over three or more variables")
    use = shared.use
    TableUse.checked(use.shapes, use.of_edge, use.turned, structure.num_states[structure.edges])
    return use


def _check_allowed(structure: Structure, log_unary: FloatArray) -> None:
    """Raise a :class:`ModelError` if the unaries leave a variable without any state."""
    if not log_unary.size or log_unary.min() > -np.inf:
        return
    best = np.maximum.reduceat(log_unary, structure.unary_offsets[:-1])
    dead = np.flatnonzero(best == -np.inf)
    if dead.size:
        raise ModelError(f"log_unary must allow at least one state; variable {dead[0]} has only -inf")
