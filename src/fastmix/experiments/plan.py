"""What an experiment is made of: settings, cases, the methods run on each, and where their randomness comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastmix._checks import check_count, check_seed

if TYPE_CHECKING:
    from fastmix.experiments.figures import Figure, Table
    from fastmix.experiments.findings import Finding

__all__ = ["DEFAULT_TRIALS", "Case", "Experiment", "MethodCall", "Row", "Settings", "Task", "derive_seed", "row_key"]

Row = dict[str, Any]
"""One line of an experiment's file; ``row["seconds"]`` comes from the file of seconds beside it."""

DEFAULT_TRIALS = 50
_MOST_TRIALS = 1_000_000  # every one is planned before the first is run


@dataclass(frozen=True)
class Settings:
    """What a user can choose about an experiment.

    Attributes
    ----------
    trials : int or None
        Random instances for every point of a figure; 50 as in the paper when None, and a few when ``quick``.
    quick : bool
        A small version of the same: minutes instead of hours.
    methods : tuple of str or None
        Methods to compare; those of the paper when None.
    seed : int
        Root of all randomness.
    images : str or None
        Folder of photographs for denoising; those that scikit-image carries when None.
    """

    trials: int | None = None
    quick: bool = False
    methods: tuple[str, ...] | None = None
    seed: int = 0
    images: str | None = None

    def __post_init__(self) -> None:
        if self.trials is not None:
            check_count("trials", self.trials, least=1, most=_MOST_TRIALS)
        check_seed(self.seed)

    def num_trials(self, quick_trials: int) -> int:
        """How many trials to run, where a quick run takes ``quick_trials``."""
        return self.trials or (quick_trials if self.quick else DEFAULT_TRIALS)

    def chosen(self, calls: Sequence[MethodCall]) -> tuple[MethodCall, ...]:
        """Those of an experiment's methods that were asked for, in the order of the experiment.

        Raises
        ------
        ValueError
            If a method was asked for that the experiment does not have.
        """
        if self.methods is None:
            return tuple(calls)
        known = [call.name for call in calls]
        if unknown := [name for name in self.methods if name not in known]:
            raise ValueError(f"methods must be among {', '.join(known)}, got {unknown[0]!r}")
        if not self.methods:
            raise ValueError(f"methods must name at least one of {', '.join(known)}, got none")
        return tuple(call for call in calls if call.name in self.methods)

    def restricted(self, calls: Sequence[MethodCall]) -> Settings:
        """The same with the methods that an experiment has; all of them when it has none of those asked for."""
        if self.methods is None:
            return self
        known = {call.name for call in calls}
        return replace(self, methods=tuple(name for name in self.methods if name in known) or None)


@dataclass(frozen=True)
class MethodCall:
    """A method and the options it is run with.

    Attributes
    ----------
    name : str
        As in :data:`fastmix.experiments.methods.STYLES`; names the curve.
    options : mapping
        Plain data; part of what identifies a row.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One instance, the same for every method.

    Attributes
    ----------
    problem : str
        How to build it, as in :data:`fastmix.experiments.problems.PROBLEMS`.
    trial : int
    parameters : mapping
        Plain data: kind, strength, size.
    seed : int
        Root of all randomness; see :func:`derive_seed`.
    payload : bytes
        Data that a worker needs and cannot make, such as pixels; ``parameters`` must identify it.
    """

    problem: str
    trial: int
    parameters: Mapping[str, Any]
    seed: int
    payload: bytes = field(default=b"", repr=False)

    def derive_seed(self, *words: object) -> int:
        """A seed for one purpose within this case."""
        return derive_seed(self.seed, self.problem, canonical(self.parameters), self.trial, *words)


@dataclass(frozen=True)
class Task:
    """A case and the methods still to be run on it: what is handed to a worker."""

    case: Case
    calls: tuple[MethodCall, ...]

    def row_keys(self) -> list[str]:
        """Identity of each row that the task gives."""
        return [row_key(self.case, call) for call in self.calls]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Attributes
    ----------
    name, title, summary : str
        Name on the command line, heading, and what is done in a few sentences.
    calls : callable
        Methods with their options for given settings.
    tasks : callable
        All cases with all methods, in the order of the file.
    figures, tables, findings : callable
        What rows say.
    alone : bool
        Whether tasks must run one at a time on this machine, because seconds are the result.
    """

    name: str
    title: str
    summary: str
    calls: Callable[[Settings], Sequence[MethodCall]]
    tasks: Callable[[Settings], list[Task]]
    figures: Callable[[Settings, Sequence[Row]], list[Figure]]
    tables: Callable[[Settings, Sequence[Row]], list[Table]]
    findings: Callable[[Settings, Sequence[Row]], list[Finding]]
    alone: bool = False


def canonical(value: Any) -> str:
    """Plain data as one line of JSON that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def row_key(case: Case, call: MethodCall) -> str:
    """Identity of a row: equal for equal instances, methods, options and seeds.

    Experiments that draw the same runs have rows of equal keys, so that nothing is run twice.

    Examples
    --------
    >>> case = Case("ising-grid", 0, {"strength": 1.5}, seed=0)
    >>> row_key(case, MethodCall("gibbs")) == row_key(case, MethodCall("gibbs", {}))
    True
    """
    facts = [case.problem, case.parameters, case.trial, case.seed, call.name, call.options]
    return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]


def derive_seed(seed: int, *words: object) -> int:
    """A seed of 63 bits for one purpose, independent of those for others.

    Parameters
    ----------
    seed : int
        The user's.
    *words : object
        What the numbers are for; told apart by their text.

    Examples
    --------
    >>> derive_seed(0, "gibbs", 1) == derive_seed(0, "gibbs", 1)
    True
    >>> derive_seed(0, "gibbs", 1) == derive_seed(0, "gibbs", 2)
    False
    """
    digest = hashlib.sha256(canonical([str(word) for word in words]).encode()).digest()
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(np.frombuffer(digest, dtype="<u4").tolist()))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
