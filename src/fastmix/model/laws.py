"""Laws by which a variable depends on many parents without a table of all their states: noisy-or, counts, and kin.

Each of them reads the parents one after another and keeps little in mind: whether a cause was active, the largest
contribution, how many were true. So a law of k parents is a chain of k small tables over hidden variables of what is
kept in mind (Heckerman and Breese 1996, "Causal independence for probability assessment and inference using Bayesian
networks"), and the parents can be read in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import as_float_array, as_list, check_choice, check_count, check_positive, describe, keep_checked
from fastmix._memory import check_memory
from fastmix.errors import ModelError

__all__ = ["Law", "LawChain", "Logical", "NoisyMax", "NoisyOr", "chain_factors"]

#: Parents up to which a law is one table: a chain would have tables as large.
FEW_PARENTS = 2


class LawChain(NamedTuple):
    """A law as a chain: what is in mind at first, how each parent changes it, and what the variable is in the end.

    Attributes
    ----------
    start : float array (S,)
        Probabilities of what is in mind before the first parent.
    steps : list of float arrays (S, L_k, S)
        For each parent the probabilities of what is in mind next, given what is and the parent's state.
    output : float array (S, L)
        Probabilities of the states of the variable.
    """

    start: FloatArray
    steps: list[FloatArray]
    output: FloatArray


@dataclass(frozen=True)
class Law:
    """How a variable of a Bayesian network depends on its parents, in place of a table."""

    def chain(self, parent_states: tuple[int, ...], num_states: int) -> LawChain:
        """The law as a chain, for parents and a variable of these state counts; a ModelError where it has others."""
        raise NotImplementedError

    def probabilities(self, parents: IntArray, parent_states: tuple[int, ...], num_states: int) -> FloatArray:
        """Probabilities (N, L) of the states of the variable, given rows (N, k) of states of the parents."""
        start, steps, output = self.chain(parent_states, num_states)
        mind = np.repeat(start[None], len(parents), axis=0)
        for k, step in enumerate(steps):
            mind = np.einsum("ns,nst->nt", mind, step.transpose(1, 0, 2)[parents[:, k]])
        return np.asarray(mind @ output)

    def table(self, parent_states: tuple[int, ...], num_states: int) -> FloatArray:
        """The table that the law stands for, an axis for each parent and the variable last."""
        size = float(np.prod([*parent_states, num_states], dtype=float))
        check_memory(8.0 * size * 4, f"the table of {len(parent_states)} parents", "keep the law as it is")
        start, steps, output = self.chain(parent_states, num_states)
        mind = start
        for step in steps:
            mind = np.tensordot(mind, step, axes=(-1, 0))
        return np.asarray(np.tensordot(mind, output, axes=(-1, 0)))


@dataclass(frozen=True)
class NoisyOr(Law):
    """The variable is on if some active cause succeeds: ``P(off) = (1 - leak) * prod over active causes (1 - p_k)``.

    Parents and the variable have two states, the second of which is on (Pearl 1988).

    Parameters
    ----------
    probabilities_of_causes : sequence of float
        For each parent, the probability that it turns the variable on by itself.
    leak : float
        Probability that the variable is on though no cause is active.

    Examples
    --------
    >>> NoisyOr([0.9, 0.5], leak=0.1).table((2, 2), 2)[1, 1].round(3).tolist()
    [0.045, 0.955]
    """

    probabilities_of_causes: tuple[float, ...]
    leak: float = 0.0

    def __post_init__(self) -> None:
        values = as_list("probabilities_of_causes", self.probabilities_of_causes, "a list of probabilities")
        checked = tuple([check_positive("probabilities_of_causes", p, or_zero=True, most=1.0) for p in values])
        leak = check_positive("leak", self.leak, or_zero=True, most=1.0)
        keep_checked(self, probabilities_of_causes=checked, leak=leak)

    def chain(self, parent_states: tuple[int, ...], num_states: int) -> LawChain:
        """The law as a chain: in mind is whether a cause has succeeded."""
        _check_binary("NoisyOr", parent_states, num_states)
        _check_length("NoisyOr", len(self.probabilities_of_causes), parent_states)
        steps = []
        for p in self.probabilities_of_causes:
            step = np.zeros((2, 2, 2))
            step[0, 0, 0] = 1.0
            step[0, 1] = (1.0 - p, p)
            step[1, :, 1] = 1.0
            steps.append(step)
        return LawChain(np.array([1.0 - self.leak, self.leak]), steps, np.eye(2))


@dataclass(frozen=True, eq=False)
class NoisyMax(Law):
    """The variable is the largest of the contributions of its parents, each drawn by the state of that parent.

    The states of the variable are ordered, from the weakest on (Díez 1993).

    Parameters
    ----------
    contributions : sequence of float arrays (L_k, L)
        For each parent and each of its states, the probabilities of its contribution.
    leak : float array (L,), optional
        Probabilities of a contribution that no parent makes; the weakest state by default.

    Examples
    --------
    >>> cause = [[1.0, 0.0, 0.0], [0.2, 0.5, 0.3]]
    >>> NoisyMax([cause, cause]).table((2, 2), 3)[1, 1].round(3).tolist()
    [0.04, 0.45, 0.51]
    """

    contributions: tuple[FloatArray, ...]
    leak: FloatArray | None = None

    def __post_init__(self) -> None:
        from fastmix.model.network import normalize_rows

        listed = as_list("contributions", self.contributions, "a list of tables, one for each parent")
        tables = []
        for k, values in enumerate([*listed, *([] if self.leak is None else [self.leak])]):
            name = f"contributions[{k}]" if k < len(listed) else "leak"
            array = as_float_array(name, values)
            if array.ndim != (2 if k < len(listed) else 1) or not array.size:
                raise ModelError(f"{name} must have rows of probabilities, got shape {array.shape}")
            table, bad = normalize_rows(array)
            if bad is not None:
                raise ModelError(f"{name} must have rows of probabilities that sum to 1, got {describe(values)}")
            table.setflags(write=False)
            tables.append(table)
        keep_checked(self, contributions=tuple(tables[: len(listed)]))
        if self.leak is not None:
            keep_checked(self, leak=tables[-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoisyMax) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Any:
        """All numbers of the law."""
        leak = None if self.leak is None else tuple(self.leak.tolist())
        return leak, tuple(tuple(map(tuple, table.tolist())) for table in self.contributions)

    def chain(self, parent_states: tuple[int, ...], num_states: int) -> LawChain:
        """The law as a chain: in mind is the largest contribution so far."""
        _check_length("NoisyMax", len(self.contributions), parent_states)
        start = np.eye(num_states)[0] if self.leak is None else np.asarray(self.leak)
        if len(start) != num_states:
            raise ModelError(f"leak must have {num_states} probabilities, got {len(start)}")
        steps = []
        for k, table in enumerate(self.contributions):
            if table.shape != (parent_states[k], num_states):
                expected = (parent_states[k], num_states)
                raise ModelError(f"contributions[{k}] must have shape {expected}, got {table.shape}")
            step = np.zeros((num_states, parent_states[k], num_states))
            for s in range(num_states):
                step[s, :, s] = table[:, : s + 1].sum(axis=1)
                step[s, :, s + 1 :] = table[:, s + 1 :]
            steps.append(step)
        return LawChain(start, steps, np.eye(num_states))


@dataclass(frozen=True)
class Logical(Law):
    """The variable says whether something holds of its parents: ``and``, ``or``, ``exactly_one`` or ``at_most``.

    Parents and the variable have two states, the second of which is true. Observed as true, the variable is a
    constraint on its parents.

    Parameters
    ----------
    kind : {"and", "or", "exactly_one", "at_most"}
    count : int, optional
        How many parents are true at most, for ``at_most``.

    Examples
    --------
    >>> Logical("at_most", 1).table((2, 2), 2)[..., 1].tolist()
    [[1.0, 1.0], [1.0, 0.0]]
    """

    kind: Literal["and", "or", "exactly_one", "at_most"]
    count: int | None = field(default=None)

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("and", "or", "exactly_one", "at_most"))
        if self.kind == "at_most":
            if self.count is None:
                raise ModelError("count must be given for at_most, got None")
            keep_checked(self, count=check_count("count", self.count, least=0, most=1000, error=ModelError))
        elif self.count is not None:
            raise ModelError(f"count must be left out for {self.kind}, got {describe(self.count)}")

    def chain(self, parent_states: tuple[int, ...], num_states: int) -> LawChain:
        """The law as a chain: in mind is how many parents were true, or false for ``and``, as far as that matters."""
        _check_binary("Logical", parent_states, num_states)
        highest = {"and": 1, "or": 1, "exactly_one": 2}.get(self.kind, (self.count or 0) + 1)
        step = np.zeros((highest + 1, 2, highest + 1))
        counted = 0 if self.kind == "and" else 1
        for s in range(highest + 1):
            step[s, counted, min(s + 1, highest)] = 1.0
            step[s, 1 - counted, s] = 1.0
        holds = np.zeros(highest + 1)
        holding = {"and": [0], "or": [1], "exactly_one": [1]}.get(self.kind, list(range(highest)))
        holds[holding] = 1.0
        start = np.eye(highest + 1)[0]
        return LawChain(start, [step] * len(parent_states), np.stack([1.0 - holds, holds], axis=1))


def chain_factors(
    chain: LawChain, parents: tuple[int, ...], child: int, first_hidden: int
) -> tuple[list[tuple[tuple[int, ...], FloatArray]], int]:
    """Factors whose product, summed over hidden variables from ``first_hidden`` on, is a law; and how many these are.

    What is in mind after each parent but the last is a hidden variable. Laws of two parents at most are one table.
    """
    start, steps, output = chain
    if len(parents) <= FEW_PARENTS:
        mind = start
        for step in steps:
            mind = np.tensordot(mind, step, axes=(-1, 0))
        return [((*parents, child), np.tensordot(mind, output, axes=(-1, 0)))], 0
    factors: list[tuple[tuple[int, ...], FloatArray]] = []
    num_hidden = len(parents) - 1
    for k, step in enumerate(steps):
        after = first_hidden + k
        if k == 0:
            factors.append(((parents[k], after), np.tensordot(start, step, axes=(0, 0))))
        elif k < num_hidden:
            factors.append(((after - 1, parents[k], after), step))
        else:
            factors.append(((after - 1, parents[k], child), np.tensordot(step, output, axes=(-1, 0))))
    return factors, num_hidden


def _check_binary(name: str, parent_states: tuple[int, ...], num_states: int) -> None:
    """A ModelError where the variable or a parent has not two states."""
    counts = (*parent_states, num_states)
    if any(count != 2 for count in counts):
        other = next(count for count in counts if count != 2)
        raise ModelError(f"{name} must have parents and a variable of two states, got {other}")


def _check_length(name: str, length: int, parent_states: tuple[int, ...]) -> None:
    """A ModelError where a law is not for as many parents as there are."""
    if length != len(parent_states):
        raise ModelError(f"{name} must be for {len(parent_states)} parents, got {length}")
