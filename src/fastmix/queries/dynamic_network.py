"""``DynamicNetwork``: variables that are repeated in time, each depending on its own time and the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray
from fastmix._checks import as_list, check_count, check_positive, describe, keep_checked
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ImpossibleEvidenceError, ModelError
from fastmix.exact.batch import BatchElimination, plan_batch
from fastmix.model import MarkovRandomField
from fastmix.model.network import BayesianNetwork
from fastmix.queries.rows import read_rows

__all__ = ["DynamicNetwork", "Filtered"]

#: Bytes of memory for each variable of an unrolled network: its name, parents and states. Not measured by a script.
_BYTES_PER_VARIABLE = 1000.0


class Filtered(NamedTuple):
    """What is known of one time, given all that was observed up to it.

    Attributes
    ----------
    time : int
    marginals : list of float arrays
        Probabilities of the states of every variable at this time.
    log_evidence : float
        Log-probability of all observations up to this time.
    """

    time: int
    marginals: list[FloatArray]
    log_evidence: float


@dataclass(frozen=True, eq=False, repr=False)
class DynamicNetwork:
    """A Bayesian network that is repeated in time: how it begins, and how each time follows from the one before.

    Parameters
    ----------
    first : BayesianNetwork
        The variables at time 0. Its names and states are those of all times.
    parents : sequence of lists
        For each variable at later times its parents: numbers or names of variables at the same time, and pairs
        ``(variable, -1)`` for those at the time before.
    tables : sequence of float arrays and laws
        As for :class:`fastmix.BayesianNetwork`, in the order of these parents, the variable itself last.

    Raises
    ------
    ModelError
        If a parent does not exist, or a table does not fit.

    Examples
    --------
    An umbrella that is seen on rainy days, mostly (Russell and Norvig):

    >>> names = ["no", "yes"]
    >>> first = BayesianNetwork(["rain", "umbrella"], [names, names], [[], [0]], [[0.5, 0.5], [[0.8, 0.2], [0.1, 0.9]]])
    >>> tables = [[[0.7, 0.3], [0.3, 0.7]], [[0.8, 0.2], [0.1, 0.9]]]
    >>> weather = DynamicNetwork(first, [[("rain", -1)], ["rain"]], tables)
    >>> seen = [{"umbrella": "yes"}, {"umbrella": "yes"}]
    >>> [step.marginals[0].round(3).tolist() for step in weather.filter(seen)]
    [[0.182, 0.818], [0.117, 0.883]]
    """

    first: BayesianNetwork
    parents: tuple[tuple[Any, ...], ...]
    tables: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.first, BayesianNetwork):
            raise ModelError(f"first must be a BayesianNetwork, got {describe(self.first)}")
        n = self.first.num_variables
        given = as_list("parents", self.parents, "a list with one list per variable")
        if len(given) != n:
            raise ModelError(f"parents must have one list per variable, {n}, got {len(given)}")
        parents = tuple([tuple([self._parent(p) for p in as_list("parents", own, "a list")]) for own in given])
        tables = tuple(as_list("tables", self.tables, "a list with one table per variable"))
        keep_checked(self, parents=parents, tables=tables)
        self._two_times()  # whose checks are those of the tables

    def _parent(self, parent: Any) -> tuple[int, int]:
        """The number of a variable, and 0 or -1 for its time."""
        lag = 0
        if isinstance(parent, tuple | list):
            if len(parent) != 2 or parent[1] not in (0, -1) or isinstance(parent[1], bool):
                raise ModelError(f"parents must be variables or pairs (variable, -1), got {describe(parent)}")
            parent, lag = parent
        return self.first.variable_index(parent), int(lag)

    @property
    def num_variables(self) -> int:
        """Number of variables at each time."""
        return self.first.num_variables

    @property
    def interface(self) -> tuple[int, ...]:
        """The variables that the next time depends on."""
        return tuple(sorted({v for own in self.parents for v, lag in own if lag}))

    def __repr__(self) -> str:
        return f"DynamicNetwork({self.num_variables} variables, {len(self.interface)} of them remembered)"

    def unroll(self, num_times: int) -> BayesianNetwork:
        """The network of the times 0 to ``num_times - 1``, with variables called ``name[time]``.

        Examples
        --------
        >>> coin = BayesianNetwork(["coin"], [["head", "tail"]], [[]], [[0.5, 0.5]])
        >>> DynamicNetwork(coin, [[("coin", -1)]], [[[0.9, 0.1], [0.1, 0.9]]]).unroll(3)
        BayesianNetwork(3 variables, 2 arcs, 10 table entries)
        """
        count = check_count("num_times", num_times, least=1)
        n = self.num_variables
        required = _BYTES_PER_VARIABLE * count * max(1, n)
        check_memory(required, f"num_times {count}: a network of {count * n} variables", "unroll fewer, or filter")
        names = [f"{name}[{time}]" for time in range(count) for name in self.first.variable_names]
        parents = [list(own) for own in self.first.parents]
        for time in range(1, count):
            parents += [[(time + lag) * n + v for v, lag in own] for own in self.parents]
        tables = [*self.first.tables, *self.tables * (count - 1)]
        states = self.first.state_names * count
        return BayesianNetwork(names, states, parents, tables, self.first.name)  # type: ignore[arg-type]

    def filter(
        self, observations: Iterable[Mapping[Any, Any]], *, memory_limit: float | None = None
    ) -> Iterator[Filtered]:
        """What is known of each time given the observations up to it, one time after another.

        Only the joint distribution of the variables that the next time depends on is kept, so that memory does not
        grow with the number of times, and observations may come without end.

        Parameters
        ----------
        observations : iterable of mappings
            For each time the observed states by variable, numbers or names; empty where nothing was seen.
        memory_limit : float, optional
            Bytes of tables; half of the free memory by default.

        Returns
        -------
        iterator of Filtered

        Raises
        ------
        ModelError
            If observations are no mappings, or name what does not exist.
        ImpossibleEvidenceError
            If what was observed has probability zero.
        ResourceError
            If the tables of one step do not fit: the joint distribution of many variables is kept.
        """
        limit = available_memory() / 2
        if memory_limit is not None:
            limit = check_positive("memory_limit", memory_limit, "number of bytes")
        is_scalar = isinstance(observations, np.ndarray) and observations.ndim == 0
        if isinstance(observations, Mapping) or not isinstance(observations, Iterable) or is_scalar:
            raise ModelError(
                f"observations must be mappings, one for each time, such as [{{'rain': 'yes'}}], got "
                f"{describe(observations)}"
            )
        try:
            times = iter(observations)
        except Exception:  # objects may raise anything
            given = describe(observations)
            raise ModelError(f"observations must be mappings, one for each time, got {given}") from None
        return self._filter(times, limit)

    def _filter(self, observations: Iterator[Mapping[Any, Any]], limit: float) -> Iterator[Filtered]:
        """What :meth:`filter` gives, within a limit in bytes."""
        interface = self.interface
        number = len(interface)
        model = self.first.to_model()
        shown = model
        plan = plan_batch(model, sets=[interface] if interface else [], memory_limit=limit)
        later: BatchElimination | None = None
        belief = np.ones(1)
        total = 0.0
        shift = 0
        for time, observed in enumerate(observations):
            if not isinstance(observed, Mapping):
                raise ModelError(f"observations must be mappings, got {describe(observed)} at time {time}")
            if time:
                model = self._step_model(belief)
                sets = [tuple(number + v for v in interface)] if interface else []
                later = plan_batch(model, sets=sets, memory_limit=limit) if later is None else later.with_model(model)
                plan = later
                shift = number
            row = np.full((1, model.num_variables), -1, dtype=np.int64)
            row[0, shift : shift + self.num_variables] = read_rows(shown, [observed])[0, : self.num_variables]
            answer = plan.answer(row)
            if not np.isfinite(answer.log_z[0]):
                raise ImpossibleEvidenceError(f"observations must be possible, which those at {time} are not")
            total += float(answer.log_z[0])
            if interface:
                belief = answer.joints[0].reshape(self.first.num_states[list(interface)])
            assert answer.marginals is not None
            parts = np.split(answer.marginals[0], model.unary_offsets[1:-1])
            yield Filtered(time, parts[shift : shift + self.num_variables], total)

    def _two_times(self) -> BayesianNetwork:
        """The variables of the interface, whose tables mean nothing, and then those of the time that follows."""
        first = self.first
        interface = self.interface
        place = {v: k for k, v in enumerate(interface)}
        number = len(interface)
        parents: list[Sequence[int]] = [()] * number
        parents += [[place[v] if lag else number + v for v, lag in own] for own in self.parents]
        uniform = [np.full(int(first.num_states[v]), 1.0 / int(first.num_states[v])) for v in interface]
        names = [*(f"{first.variable_names[v]}[-1]" for v in interface), *first.variable_names]
        states = [*(first.state_names[v] for v in interface), *first.state_names]
        return BayesianNetwork(names, states, parents, [*uniform, *self.tables])  # type: ignore[arg-type]

    def _step_model(self, belief: FloatArray) -> MarkovRandomField:
        """The model of what is remembered of a time, and the time that follows."""
        scopes, tables = self._two_times().to_factors()
        number = len(self.interface)
        counts: dict[int, int] = {}
        for scope, values in zip(scopes, tables, strict=True):
            counts |= dict(zip(scope, values.shape, strict=True))
        factors: list[Any] = list(zip(scopes, tables, strict=True))[number:]
        if number:
            with np.errstate(divide="ignore"):
                factors.append((tuple(range(number)), np.log(belief)))
        return MarkovRandomField.from_factors([counts[v] for v in range(len(counts))], factors)
