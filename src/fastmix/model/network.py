"""Bayesian networks: a directed graph without cycles and a conditional table for each variable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _checks
from fastmix._arrays import FloatArray, IntArray
from fastmix._memory import check_memory
from fastmix.errors import ModelError
from fastmix.model.laws import Law, LawChain, chain_factors
from fastmix.model.mrf import MarkovRandomField

__all__ = ["MOST_PARENTS", "ROW_TOLERANCE", "BayesianNetwork", "normalize_rows"]

# Tables are printed with few digits: 0.3333 three times is within this of 1. A little more, for the rounding of sums.
ROW_TOLERANCE = 1e-4 + 1e-9
HIDDEN_NAME = "hidden "  # what the names of the hidden variables of laws begin with, before a number
MOST_PARENTS = 31  # with the axis of the child these are 32, the most axes of an array that every NumPy allows


@dataclass(frozen=True, eq=False, repr=False)
class BayesianNetwork:
    """A Bayesian network ``p(x) = prod_i p(x_i | x_parents(i))`` over discrete variables with names.

    Parameters
    ----------
    variable_names : sequence of str
        One name per variable, all different.
    state_names : sequence of sequences of str
        The states of each variable, at least one, different within the variable.
    parents : sequence of sequences of int
        The parents of each variable by number; their order is that of the axes of its table.
    tables : sequence of float arrays and laws
        For variable i with parents (a, b, ..) an array of shape (L_a, L_b, .., L_i): the child's states are the last
        axis, so that each row along it is a distribution. Or a :class:`fastmix.NoisyOr`, :class:`fastmix.NoisyMax` or
        :class:`fastmix.Logical`, which takes any number of parents.
    name : str
        Name of the network.
    numbered : bool
        The names are only the numbers of variables and states, as in formats without names: its model has none.

    Attributes
    ----------
    num_states : int array (n,)
    order : tuple of int
        All variables, parents before their children.

    Raises
    ------
    ModelError
        If names repeat, a parent does not exist or repeats, a table has the wrong shape, holds a number that is
        negative or not finite, or a row that is further than 1e-4 from summing to 1, or if the graph has a cycle.

    Notes
    -----
    Rows within 1e-4 of summing to 1 are divided by their sum, so that log Z without evidence is 0 up to rounding.
    Arrays are copied and read-only.

    Examples
    --------
    >>> network = BayesianNetwork(
    ...     ["rain", "wet"], [["no", "yes"], ["no", "yes"]], [[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.0, 1.0]]]
    ... )
    >>> network
    BayesianNetwork(2 variables, 1 arc, 6 table entries)
    >>> network.order
    (0, 1)
    """

    variable_names: tuple[str, ...]
    state_names: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[Any, ...]
    name: str = "unknown"
    numbered: bool = False
    num_states: IntArray = field(init=False)
    order: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        given_states = _as_lists("state_names", self.state_names)
        n = len(given_states)
        num_states = _checks.as_state_counts([len(states) for states in given_states])
        names = _checks.as_variable_names(self.variable_names, n)
        if names is None:
            raise ModelError("variable_names must be a list of names, got None")
        states = _checks.as_state_names(given_states, num_states)
        parents = _as_parents(self.parents, n)
        try:
            order = tuple(TopologicalSorter(dict(enumerate(parents))).static_order())
        except CycleError as error:
            cycle = " -> ".join(names[i] for i in error.args[1])
            raise ModelError(f"parents must not form a cycle, got {cycle[:200]}") from None
        tables: list[Any] = []
        for i, table in enumerate(_as_tables(self.tables, n)):
            shape = tuple(num_states[[*parents[i], i]].tolist())
            if isinstance(table, Law):
                table.chain(shape[:-1], shape[-1])
                tables.append(table)
                continue
            if len(parents[i]) > MOST_PARENTS:
                raise ModelError(
                    f"parents[{i}] must have at most {MOST_PARENTS} variables where the variable has a table, got "
                    f"{len(parents[i])}"
                )
            tables.append(_as_table(f"tables[{i}] (of {names[i]!r})", table, shape))
        num_states.setflags(write=False)
        self.__dict__.update(
            variable_names=names,
            state_names=states,
            parents=parents,
            tables=tuple(tables),
            name=_checks.as_text("name", self.name),
            num_states=num_states,
            order=order,
        )

    @property
    def num_variables(self) -> int:
        """Number of variables n."""
        return len(self.variable_names)

    @property
    def num_entries(self) -> int:
        """Numbers in all tables together, those of the chains that laws are among them."""
        sizes = [table.size for table in self.tables if not isinstance(table, Law)]
        return sum(sizes) + sum(step.size for i in self.laws for step in self._chain(i).steps)

    @property
    def laws(self) -> tuple[int, ...]:
        """The variables that have a law in place of a table."""
        return tuple(i for i, table in enumerate(self.tables) if isinstance(table, Law))

    def dense(self) -> BayesianNetwork:
        """The network with a table in place of every law; the network itself where it has none.

        Examples
        --------
        >>> from fastmix import Logical
        >>> tables = [[0.5, 0.5], [0.5, 0.5], Logical("and")]
        >>> coins = BayesianNetwork(["a", "b", "c"], [["no", "yes"]] * 3, [[], [], [0, 1]], tables)
        >>> coins.dense().tables[2][1].tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        if not self.laws:
            return self
        tables = []
        for i, table in enumerate(self.tables):
            if isinstance(table, Law):
                of_child = self.parents[i]
                if len(of_child) > MOST_PARENTS:
                    name = self.variable_names[i]
                    raise ModelError(
                        f"{name!r} must have at most {MOST_PARENTS} parents for a table, got {len(of_child)}"
                    )
                table = table.table(tuple(self.num_states[list(of_child)].tolist()), int(self.num_states[i]))
            tables.append(table)
        return replace(self, tables=tuple(tables))

    def _chain(self, i: int) -> LawChain:
        """The law of a variable as a chain."""
        law: Law = self.tables[i]
        return law.chain(tuple(self.num_states[list(self.parents[i])].tolist()), int(self.num_states[i]))

    def to_factors(self) -> tuple[list[tuple[int, ...]], list[FloatArray]]:
        """Scopes and log-tables of the network as factors, one per variable: its parents, then the variable itself.

        The product of the factors is p(x), so log Z is 0, and with evidence it is the log-probability of the evidence.
        Probability 0 becomes -inf. The last variable of a scope is the last axis. Laws become chains of factors, with
        hidden variables that have the numbers from n on.

        Examples
        --------
        >>> scopes, log_tables = BayesianNetwork(["a"], [["x", "y"]], [[]], [[1.0, 0.0]]).to_factors()
        >>> scopes, log_tables[0].tolist()
        ([(0,)], [0.0, -inf])
        """
        scopes: list[tuple[int, ...]] = []
        tables: list[FloatArray] = []
        first_hidden = self.num_variables
        for i, table in enumerate(self.tables):
            factors = [((*self.parents[i], i), table)]
            if isinstance(table, Law):
                factors, num_hidden = chain_factors(self._chain(i), self.parents[i], i, first_hidden)
                first_hidden += num_hidden
            scopes += [scope for scope, _ in factors]
            tables += [values for _, values in factors]
        with np.errstate(divide="ignore"):
            return scopes, [np.log(values) for values in tables]

    def to_model(self) -> MarkovRandomField:
        """The network as a Markov random field with the same names; its log Z is 0, and it remembers the network.

        Laws become chains of small tables over hidden variables, which are the last ones of the model; answers by
        variable leave them out.

        Examples
        --------
        >>> tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
        >>> rain = BayesianNetwork(["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], tables)
        >>> rain.to_model()
        MarkovRandomField(2 variables of 2 states, 1 edge)
        """
        scopes, tables = self.to_factors()
        counts: dict[int, int] = {}
        for scope, values in zip(scopes, tables, strict=True):
            counts |= dict(zip(scope, values.shape, strict=True))
        hidden = [counts[v] for v in range(self.num_variables, len(counts))]
        names = (*self.variable_names, *(f"{HIDDEN_NAME}{k}" for k in range(len(hidden))))
        states = (*self.state_names, *(tuple(map(str, range(count))) for count in hidden))
        model = MarkovRandomField.from_factors(
            [len(own) for own in states],
            zip(scopes, tables, strict=True),
            variable_names=None if self.numbered else names,
            state_names=None if self.numbered else states,
        )
        return model.remember_network(self)

    def variable_index(self, variable: int | str) -> int:
        """Number of a variable given by number or name."""
        return _checks.as_index("variable", variable, self._index_of_name, self.num_variables)

    def state_index(self, variable: int | str, state: int | str) -> int:
        """Number of a state of a variable given by number or name."""
        i = self.variable_index(variable)
        names = {name: k for k, name in enumerate(self.state_names[i])}
        what = f"state of variable {_checks.describe(variable)}"
        return _checks.as_index(what, state, names, int(self.num_states[i]))

    def do(self, interventions: Mapping[Any, Any]) -> BayesianNetwork:
        """The network after interventions: the arcs into the variables that are set are gone (the mutilated network).

        Seeing that a variable has a state says something about its causes; setting it does not. So evidence changes
        the probabilities of the ancestors of a variable, and an intervention leaves those of all variables that do not
        descend from it as they are (Pearl 2009, "Causality", chapter 3).

        Parameters
        ----------
        interventions : mapping
            States by variable, numbers or names; or probabilities of all states, from which the state is then drawn
            whatever the parents are.

        Raises
        ------
        ModelError
            If a variable or state does not exist, a variable is set twice, or probabilities do not sum to 1.

        Examples
        --------
        Rain wets the street, and so does cleaning it. A wet street speaks for rain, unless it was wetted on purpose:

        >>> from fastmix import infer
        >>> tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
        >>> rain = BayesianNetwork(["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], tables)
        >>> infer(rain.to_model(), evidence={"wet": "yes"}).marginal("rain").round(3).tolist()
        [0.364, 0.636]
        >>> infer(rain.do({"wet": "yes"}).to_model()).marginal("rain").round(3).tolist()
        [0.8, 0.2]
        """
        if not isinstance(interventions, Mapping):
            raise ModelError(
                "interventions must be a mapping from variables to states, such as {'wet': 'yes'}, "
                f"got {_checks.describe(interventions)}"
            )
        parents = list(self.parents)
        tables = list(self.tables)
        done: set[int] = set()
        for variable, state in interventions.items():
            i = self.variable_index(variable)
            if i in done:
                raise ModelError(f"interventions must set each variable once, got {self.variable_names[i]} again")
            done.add(i)
            parents[i] = ()
            count = int(self.num_states[i])
            if isinstance(state, list | tuple | np.ndarray):
                tables[i] = _as_table(f"interventions of variable {_checks.describe(variable)}", state, (count,))
            else:
                tables[i] = np.eye(count)[self.state_index(variable, state)]
        return BayesianNetwork(
            self.variable_names, self.state_names, tuple(parents), tuple(tables), self.name, self.numbered
        )

    def ancestral(self, variables: Sequence[int | str]) -> BayesianNetwork:
        """The network of some variables and all their ancestors, which is all that matters to them.

        The tables of all other variables add up to 1 (barren nodes: Shachter 1986, "Evaluating influence diagrams").
        So the answers about the variables that are kept stay as they are, given evidence on these.

        Parameters
        ----------
        variables : sequence of int or str
            Those asked about and those observed, numbers or names; at least one.

        Returns
        -------
        BayesianNetwork
            Names and states as here, in the same order; numbers are those of what is left.

        Raises
        ------
        ModelError
            If a variable does not exist, or none is named.

        Examples
        --------
        >>> tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]]
        >>> rain = BayesianNetwork(["rain", "wet", "slip"], [["no", "yes"]] * 3, [[], [0], [1]], tables)
        >>> rain.ancestral(["wet"]).variable_names
        ('rain', 'wet')
        """
        waiting = [self.variable_index(v) for v in _checks.as_list("variables", variables, "a list of variables")]
        if not waiting:
            raise ModelError("variables must name at least one variable, got none")
        kept: set[int] = set()
        while waiting:
            i = waiting.pop()
            if i not in kept:
                kept.add(i)
                waiting += self.parents[i]
        numbers = sorted(kept)
        place = {i: k for k, i in enumerate(numbers)}
        return BayesianNetwork(
            tuple(self.variable_names[i] for i in numbers),
            tuple(self.state_names[i] for i in numbers),
            tuple(tuple(place[parent] for parent in self.parents[i]) for i in numbers),
            tuple(self.tables[i] for i in numbers),
            self.name,
        )

    def sample(self, num_draws: int, *, seed: int | None = None) -> IntArray:
        """Independent exact draws by ancestral sampling, an int array (num_draws, n) of state numbers.

        Each variable is drawn given its parents, for all draws at once. A state of probability 0 is never drawn.

        Parameters
        ----------
        num_draws : int
            At least 0.
        seed : int, optional
            The same seed and ``num_draws`` give the same draws. Without a seed the operating system gives one.

        Raises
        ------
        ResourceError
            If the draws need more than half of the free memory.

        Notes
        -----
        Time in proportion to ``num_draws`` times the sum of the state counts; memory 8 bytes per draw and variable.

        Examples
        --------
        >>> coin = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.25, 0.75]])
        >>> coin.sample(10_000, seed=1).mean().round(2).item()
        0.75
        """
        count = _checks.check_count("num_draws", num_draws, least=0)
        rng = np.random.default_rng(_checks.choose_seed(seed))
        required = 8.0 * count * (self.num_variables + 4)
        check_memory(required, f"num_draws {count}", "draw fewer at a time, with different seeds")
        states = np.empty((self.num_variables, count), dtype=np.int64)
        for i in self.order:
            table = self.tables[i]
            row = np.zeros(count, dtype=np.int64)
            if isinstance(table, Law):
                of_child = self.parents[i]
                counts = tuple(self.num_states[list(of_child)].tolist())
                table = table.probabilities(states[list(of_child)].T, counts, int(self.num_states[i]))
                row = np.arange(count)
            else:
                for parent in self.parents[i]:
                    row *= self.num_states[parent]
                    row += states[parent]
            uniform = rng.random(count)
            state = np.zeros(count, dtype=np.int64)
            # The state drawn is the number of thresholds that the uniform reaches.
            for thresholds in _thresholds(table.reshape(-1, table.shape[-1])):
                state += uniform >= thresholds[row]
            states[i] = state
        return np.ascontiguousarray(states.T)

    @cached_property
    def _index_of_name(self) -> dict[str, int]:
        """Number of every variable by name; none where names are numbers only."""
        return {} if self.numbered else {name: i for i, name in enumerate(self.variable_names)}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BayesianNetwork):
            return NotImplemented
        return self._texts() == other._texts() and all(map(_same_table, self.tables, other.tables))

    def __hash__(self) -> int:
        return hash(self._texts())

    def _texts(self) -> tuple[Any, ...]:
        """Everything but the tables, for comparisons and the hash."""
        return self.variable_names, self.state_names, self.parents, self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays come back from a pickle writable: going through the constructor locks them again.
        arguments = self.variable_names, self.state_names, self.parents, self.tables, self.name, self.numbered
        return BayesianNetwork, arguments

    def __repr__(self) -> str:
        num_arcs = sum(map(len, self.parents))
        variables = "1 variable" if self.num_variables == 1 else f"{self.num_variables} variables"
        arcs = "1 arc" if num_arcs == 1 else f"{num_arcs} arcs"
        return f"BayesianNetwork({variables}, {arcs}, {self.num_entries} table entries)"


def normalize_rows(table: FloatArray) -> tuple[FloatArray, int | None]:
    """A table with its rows along the last axis divided by their sums, and the first row that is no distribution.

    A row is no distribution if an entry is negative or not finite, or if the sum is further than 1e-4 from 1; if all of
    them are distributions, None is returned for it. A row that sums to 1 up to rounding stays as it is, so that doing
    this again changes nothing.
    """
    size = table.shape[-1]
    rows = table.reshape(-1, size)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = rows.sum(axis=1)
        # With a NaN or an infinity in a row its sum is NaN or infinite, too, and fails the comparison.
        right = (rows >= 0).all(axis=1) & (np.abs(sums - 1) <= ROW_TOLERANCE)
    if not right.all():
        return table, int(np.argmin(right))
    # Quotients and their sum carry at most one rounding, of half an epsilon, for each entry.
    exact = np.abs(sums - 1) <= (size + 1) * np.finfo(np.float64).eps
    sums[exact] = 1.0
    return (rows / sums[:, None] + 0.0).reshape(table.shape), None


def _same_table(one: Any, two: Any) -> bool:
    """Whether two tables or laws are equal."""
    if isinstance(one, Law) or isinstance(two, Law):
        return bool(type(one) is type(two) and one == two)
    return np.array_equal(one, two)


def _thresholds(rows: FloatArray) -> FloatArray:
    """Cumulative probabilities of every row for all states but the last, an array (L - 1, rows).

    They are infinite from the last state of positive probability on: rounding must not let a uniform number pass it.
    """
    sums = np.cumsum(rows, axis=1)
    last = rows.shape[1] - 1 - np.argmax(rows[:, ::-1] > 0, axis=1)
    sums[np.arange(rows.shape[1]) >= last[:, None]] = np.inf
    return np.ascontiguousarray(sums[:, :-1].T)


def _as_tables(values: Any, count: int) -> list[Any]:
    """The tables, one per variable, each still as it was given."""
    result = _checks.as_list("tables", values, "a list with one table per variable")
    if len(result) != count:
        raise ModelError(f"tables must have one table per variable, {count}, got {len(result)}")
    return result


def _as_lists(argument: str, values: Any, count: int | None = None) -> list[list[Any]]:
    """The lists in a list; ``count`` of them, if it is given."""
    items = _checks.as_list(argument, values, "a list with one item per variable")
    result = [_checks.as_list(f"{argument}[{i}]", item, "a list") for i, item in enumerate(items)]
    if count is not None and len(result) != count:
        raise ModelError(f"{argument} must have one list per variable, {count}, got {len(result)}")
    return result


def _as_parents(values: Any, n: int) -> tuple[tuple[int, ...], ...]:
    """The parents of every variable as checked numbers."""
    result: list[tuple[int, ...]] = []
    for i, item in enumerate(_as_lists("parents", values, n)):
        name = f"parents[{i}]"
        own = tuple(_checks.check_count(name, parent, least=0, most=n - 1, error=ModelError) for parent in item)
        if len(set(own)) < len(own) or i in own:
            raise ModelError(f"{name} must hold each variable once and not {i} itself, got {_checks.describe(own)}")
        result.append(own)
    return tuple(result)


def _as_table(name: str, values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """A read-only table of this shape whose rows are distributions; ``name`` is its name in errors."""
    check_memory(24.0 * math.prod(shape), name, "use fewer parents")  # the copy, and the working arrays of its check
    array = _checks.as_float_array(name, values)
    if array.shape != shape:
        raise ModelError(f"{name} must have shape {shape}, parents first and the child last, got {array.shape}")
    table, bad = normalize_rows(array)
    if bad is not None:
        row = array.reshape(-1, shape[-1])[bad]
        where = ""
        if len(shape) > 1:
            states_of_parents = tuple(int(k) for k in np.unravel_index(bad, shape[:-1]))
            where = f" at {states_of_parents}"
        raise ModelError(
            f"{name} must have rows of probabilities that sum to 1, got {_checks.describe(row.tolist())}{where}"
        )
    table.setflags(write=False)
    return table
