"""The model: a discrete Markov random field in flat arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _checks
from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import ModelError, UnfitMethodError
from fastmix.graphs import Adjacency
from fastmix.model.constructors import Constructors
from fastmix.model.structure import Structure

__all__ = ["Evidence", "MarkovRandomField", "check_model", "check_pairwise"]

# Observed states by variable, each given by number or name; or soft evidence, a list of likelihoods by state.
Evidence = Mapping[Any, Any]

_SHARED = (
    "num_states", "edges", "unary_offsets", "pairwise_offsets", "factor_offsets", "scope_starts", "scope_variables"
)  # fmt: skip
_ENTRIES = {  # the flat arrays: where their tables begin, and what says how long they are
    "log_unary": ("unary_offsets", "num_states"),
    "log_pairwise": ("pairwise_offsets", "num_states and edges"),
    "log_factors": ("factor_offsets", "num_states and the scopes"),
}
_CHUNK_ENTRIES = 1 << 22  # entries gathered at once by batched methods: 32 MiB per temporary


@dataclass(frozen=True, eq=False, repr=False)
class MarkovRandomField(Constructors):
    """A Markov random field ``p(x) = exp(k + sum_i u_i(x_i) + sum_ij T_ij(x_i, x_j) + sum_a F_a(x_a)) / Z``.

    Factors F_a over three or more variables are for models that need them; most have none.

    Variables are numbered from 0, the states of variable i from 0 to ``num_states[i] - 1``. Build models with
    :meth:`from_tables`, :meth:`from_factors`, :meth:`ising`, :meth:`from_couplings`, :meth:`potts`, :meth:`rbm` or
    :meth:`from_networkx`; the class itself takes the arrays as they are stored, and checks them.

    Parameters
    ----------
    num_states : int array (n,)
        Number of states of each variable, at least 1.
    log_unary : float array (sum of num_states,)
        The vectors u_i one after another; -inf forbids a state, NaN and +inf are refused.
    edges : int array (m, 2)
        Pairs (i, j) with i < j, in lexicographic order, each once.
    log_pairwise : float array (sum over edges of L_i * L_j,)
        The tables T_ij one after another, each row by row (rows for x_i).
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
    All arrays are copied and read-only. Memory: 8 bytes per entry and 24 bytes per edge.

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
    structure: Structure = field(init=False)
    unary_offsets: IntArray = field(init=False)
    pairwise_offsets: IntArray = field(init=False)
    factor_offsets: IntArray = field(init=False)

    def __post_init__(self) -> None:
        structure = Structure.of(self.num_states, self.edges, self.scope_starts, self.scope_variables)
        self._fill(
            structure,
            **{name: _as_entries(structure, name, getattr(self, name)) for name in _ENTRIES},
            log_constant=_checks.as_number("log_constant", self.log_constant) + 0.0,
            variable_names=_checks.as_variable_names(self.variable_names, structure.num_variables),
            state_names=_checks.as_state_names(self.state_names, structure.num_states),
            shape=_checks.as_shape(self.shape, structure.num_variables),
        )

    def _fill(self, structure: Structure, **own: Any) -> None:
        """Set all attributes, which have been checked."""
        for name in _ENTRIES:
            own[name].setflags(write=False)
        self.__dict__.update(structure=structure, **{name: getattr(structure, name) for name in _SHARED}, **own)

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
        return len(self.log_unary) + len(self.log_pairwise) + len(self.log_factors)

    @property
    def parameters(self) -> FloatArray:
        """The parameter vector theta: ``log_unary``, ``log_pairwise`` and ``log_factors`` (a new array)."""
        return np.concatenate([self.log_unary, self.log_pairwise, self.log_factors])

    def factor(self, number: int) -> tuple[IntArray, FloatArray]:
        """The scope of a factor over three or more variables, and its table with an axis for each (read-only)."""
        structure = self.structure
        number = _checks.as_index("factor", number, {}, self.num_factors)
        scope = self.scope_variables[structure.scope_starts[number] : structure.scope_starts[number + 1]]  # type: ignore[index]
        values = self.log_factors[structure.factor_offsets[number] : structure.factor_offsets[number + 1]]
        return scope, values.reshape(self.num_states[scope])

    @property
    def factors(self) -> list[tuple[IntArray, FloatArray]]:
        """All factors over three or more variables, see :meth:`factor`."""
        return [self.factor(k) for k in range(self.num_factors)]

    def terms(self) -> Iterator[tuple[list[int], FloatArray]]:
        """All terms in turn, unaries, edge tables and factors: their variables, and the table with an axis for each."""
        for i in range(self.num_variables):
            yield [i], self.log_unary[self.unary_offsets[i] : self.unary_offsets[i + 1]]
        for (i, j), start, end in zip(
            self.edges.tolist(), self.pairwise_offsets, self.pairwise_offsets[1:], strict=False
        ):
            yield [i, j], self.log_pairwise[start:end].reshape(self.num_states[[i, j]])
        for scope, table in self.factors:
            yield scope.tolist(), table

    @property
    def adjacency(self) -> Adjacency:
        """Neighbors of every variable in compressed rows."""
        return self.structure.adjacency

    @property
    def has_forbidden(self) -> bool:
        """Whether some unary or table entry is -inf."""
        arrays = (self.log_unary, self.log_pairwise, self.log_factors)
        return any(bool(a.size) and a.min() == -np.inf for a in arrays)

    def unary(self, variable: int | str) -> FloatArray:
        """The vector u_i of one variable, given by number or name (a read-only view)."""
        i = self.variable_index(variable)
        return self.log_unary[self.unary_offsets[i] : self.unary_offsets[i + 1]]

    def edge_index(self, i: int | str, j: int | str) -> int:
        """Row of the edge between two variables in :attr:`edges`; a :class:`fastmix.ModelError` if there is none."""
        a, b = sorted((self.variable_index(i), self.variable_index(j)))
        lo, hi = np.searchsorted(self.edges[:, 0], [a, a + 1])
        e = int(lo + np.searchsorted(self.edges[lo:hi, 1], b))
        if e == hi or self.edges[e, 1] != b:
            raise ModelError(
                f"i and j must have an edge between them, which variables {i!r} and {j!r} have not; joint of a result "
                "gives the probabilities of any variables together, and unary those potentials that one has by itself"
            )
        return e

    def table(self, i: int | str, j: int | str) -> FloatArray:
        """The table T of the edge between i and j, rows for i and columns for j (a read-only view)."""
        return self.edge_table(self.log_pairwise, i, j)

    def edge_table(self, values: FloatArray, i: int | str, j: int | str) -> FloatArray:
        """The same of any array aligned with :attr:`log_pairwise`."""
        e = self.edge_index(i, j)
        a, b = self.edges[e]
        array = _checks.as_array("values", values, "be an array aligned with log_pairwise")
        if array.shape != self.log_pairwise.shape:
            raise ModelError(f"values must have shape {self.log_pairwise.shape}, as log_pairwise, got {array.shape}")
        part = array[self.pairwise_offsets[e] : self.pairwise_offsets[e + 1]]
        table = part.reshape(self.num_states[a], self.num_states[b])
        return table if self.variable_index(i) == a else table.T

    def variable_index(self, variable: int | str) -> int:
        """Number of a variable given by number or name."""
        return _checks.as_index("variable", variable, self._index_of_name, self.num_variables)

    def state_index(self, variable: int | str, state: int | str) -> int:
        """Number of a state of a variable given by number or name."""
        i = self.variable_index(variable)
        names = {} if self.state_names is None else {name: k for k, name in enumerate(self.state_names[i])}
        what = f"state of variable {_checks.describe(variable)}"
        return _checks.as_index(what, state, names, int(self.num_states[i]))

    def names_of_variables(self) -> list[str]:
        """Names of all variables: their numbers where they have none."""
        return list(self.variable_names or map(str, range(self.num_variables)))

    def names_of_states(self) -> list[list[str]]:
        """Names of the states of all variables: their numbers where they have none."""
        if self.state_names is not None:
            return [list(names) for names in self.state_names]
        numbers = {count: [str(k) for k in range(count)] for count in np.unique(self.num_states).tolist()}
        return [numbers[count] for count in self.num_states.tolist()]

    @cached_property
    def _index_of_name(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.variable_names or ())}

    # -- probabilities --------------------------------------------------------------------------------------------

    def log_weight(self, states: ArrayLike) -> Any:
        """Unnormalised log-probability ``k + sum_i u_i + sum_ij T_ij + sum_a F_a`` of configurations.

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
        chunk = max(1, _CHUNK_ENTRIES // max(1, width))
        for start in range(0, len(x), chunk):
            unary, pairwise, factors = self.entry_positions(x[start : start + chunk])
            total[start : start + chunk] = self.log_unary[unary].sum(axis=1) + self.log_pairwise[pairwise].sum(axis=1)
            if self.num_factors:
                total[start : start + chunk] += self.log_factors[factors].sum(axis=1)
        total += self.log_constant
        return total.reshape(shape) if shape else float(total[0])

    def sufficient_statistics(self, states: ArrayLike) -> FloatArray:
        """Indicators f(x) of the entries that configurations (..., n) use, aligned with :attr:`parameters`.

        ``f(x) @ parameters + log_constant`` is :meth:`log_weight` (for finite parameters: 0 times -inf is NaN).
        """
        x, shape = self._as_states(states)
        required = 8.0 * len(x) * (self.num_parameters + self.num_variables + self.num_edges + self.num_factors)
        check_memory(required, f"the array of statistics of {len(x)} configurations", "give fewer at a time")
        f = np.zeros((len(x), self.num_parameters))
        start, rows = 0, np.arange(len(x))[:, None]
        for values, positions in zip(
            (self.log_unary, self.log_pairwise, self.log_factors), self.entry_positions(x), strict=True
        ):
            f[rows, start + positions] = 1.0
            start += len(values)
        return f.reshape((*shape, self.num_parameters))

    def _as_states(self, states: ArrayLike) -> tuple[IntArray, tuple[int, ...]]:
        array = _checks.as_array("states", states, f"have shape (..., {self.num_variables})")
        if array.size and not _checks.is_whole(array):
            raise ModelError(f"states must hold whole numbers, got {_checks.describe(states)}")
        if array.ndim == 0 or array.shape[-1] != self.num_variables:
            raise ModelError(f"states must have shape (..., {self.num_variables}), got shape {array.shape}")
        x = array.astype(np.int64).reshape(int(np.prod(array.shape[:-1], dtype=np.int64)), self.num_variables)
        if (bad := (x < 0) | (x >= self.num_states)).any():
            row, i = np.argwhere(bad)[0]
            raise ModelError(f"states of variable {i} must be from 0 to {self.num_states[i] - 1}, got {x[row, i]}")
        return x, array.shape[:-1]

    def entry_positions(self, x: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Positions in :attr:`log_unary`, :attr:`log_pairwise` and :attr:`log_factors` of configurations (batch, n).

        Their shapes are (batch, n), (batch, m) and (batch, f).
        """
        unary = self.unary_offsets[:-1] + x
        i, j = self.edges[:, 0], self.edges[:, 1]
        pairwise = self.pairwise_offsets[:-1] + x[:, i] * self.num_states[j] + x[:, j]
        structure, factors = self.structure, np.zeros((len(x), 0), dtype=np.int64)
        if self.num_factors:
            steps = x[:, structure.scope_variables] * structure.factor_strides
            factors = self.factor_offsets[:-1] + np.add.reduceat(steps, structure.scope_starts[:-1], axis=1)
        return unary, pairwise, factors

    # -- derived models -------------------------------------------------------------------------------------------

    def condition(self, evidence: Evidence) -> MarkovRandomField:
        """The model of the other variables given observed ones.

        Observed variables leave the model; their unaries and tables fold into the constant and into their
        neighbors' unaries, so that log Z becomes the log of the unnormalised mass of the evidence. Use
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
        """The same distribution without the states that a unary forbids."""
        from fastmix.model.reduce import reduce_model

        return reduce_model(self).model

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
        first, second = len(self.log_unary), len(self.log_unary) + len(self.log_pairwise)
        _check_allowed(self.structure, vector[:first])
        return self._sibling(vector[:first], vector[first:second], vector[second:], self.log_constant)

    def replace(
        self,
        *,
        log_unary: ArrayLike | None = None,
        log_pairwise: ArrayLike | None = None,
        log_factors: ArrayLike | None = None,
        log_constant: float | None = None,
    ) -> MarkovRandomField:
        """The same graph and names with other flat arrays or another constant; what is not given is shared."""
        given = {"log_unary": log_unary, "log_pairwise": log_pairwise, "log_factors": log_factors}
        constant = self.log_constant if log_constant is None else _checks.as_number("log_constant", log_constant) + 0.0
        arrays = {
            name: getattr(self, name) if values is None else _as_entries(self.structure, name, values)
            for name, values in given.items()
        }
        return self._sibling(**arrays, log_constant=constant)

    def _sibling(
        self, log_unary: FloatArray, log_pairwise: FloatArray, log_factors: FloatArray, log_constant: float
    ) -> MarkovRandomField:
        """A model on the same structure with checked parameters."""
        model = object.__new__(MarkovRandomField)
        model._fill(
            self.structure, log_unary=log_unary, log_pairwise=log_pairwise, log_factors=log_factors,
            log_constant=log_constant, variable_names=self.variable_names, state_names=self.state_names,
            shape=self.shape,
        )  # fmt: skip
        return model

    # -- identity -------------------------------------------------------------------------------------------------

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over graph, parameters and names, the same on every machine and in every process."""
        digest = hashlib.sha256(b"fastmix pairwise mrf 1")
        arrays = [self.num_states, self.edges, self.log_unary, self.log_pairwise, np.array([self.log_constant])]
        if self.num_factors:
            arrays += [self.structure.scope_starts, self.structure.scope_variables, self.log_factors]
        for array in arrays:
            digest.update(len(array).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).data)
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
        arguments = (self.num_states, self.log_unary, self.edges, self.log_pairwise, self.log_constant)
        factors = (self.scope_starts, self.scope_variables, self.log_factors)
        return MarkovRandomField, (*arguments, self.variable_names, self.state_names, *factors, self.shape)

    def __repr__(self) -> str:
        states = f" of {_span(self.num_states, 'state')}" if self.num_variables else ""
        factors, constant = "", f", log_constant={self.log_constant:.6g}" if self.log_constant else ""
        if self.num_factors:
            sizes = np.diff(self.structure.scope_starts)
            factors = f", {_plural(self.num_factors, 'factor')} of {_span(sizes, 'variable')}"
        of = f"{_plural(self.num_variables, 'variable')}{states}, {_plural(self.num_edges, 'edge')}"
        return f"MarkovRandomField({of}{factors}{constant})"


def check_model(model: Any, name: str = "model") -> None:
    """A TypeError if ``model`` is no model, with what it is instead; ``name`` is that of the argument."""
    if not isinstance(model, MarkovRandomField):
        raise TypeError(
            f"{name} must be a MarkovRandomField, got {_checks.describe(model)}; build one with "
            "MarkovRandomField.from_tables, or read one from a file with fastmix.io.read_model"
        )


def check_pairwise(model: MarkovRandomField, what: str) -> None:
    """An :class:`fastmix.UnfitMethodError` if the model has factors over three or more variables."""
    if model.num_factors:
        count = _plural(model.num_factors, "factor")
        raise UnfitMethodError(f"{what} must have a model of pairs, got {count} over three or more variables")


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def _span(counts: IntArray, word: str) -> str:
    low, high = int(counts.min()), int(counts.max())
    return f"{'' if low == high else f'{low} to '}{high} {word}{'' if high == 1 else 's'}"


def _as_entries(structure: Structure, name: str, values: ArrayLike) -> FloatArray:
    """A checked copy of one of the flat arrays."""
    offsets, source = _ENTRIES[name]
    array = _checks.as_flat(name, values, int(getattr(structure, offsets)[-1]), source)
    if name == "log_unary":
        _check_allowed(structure, array)
    return array


def _check_allowed(structure: Structure, log_unary: FloatArray) -> None:
    """A :class:`ModelError` if the unaries leave a variable without any state."""
    if log_unary.size and log_unary.min() == -np.inf:
        best = np.maximum.reduceat(log_unary, structure.unary_offsets[:-1])
        if (dead := np.flatnonzero(best == -np.inf)).size:
            raise ModelError(f"log_unary must allow at least one state; variable {dead[0]} has only -inf")
