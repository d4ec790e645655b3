"""What an experiment is made of: settings, cases, the methods run on each, and where their randomness comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fastmix._checks import as_list, as_path, check_count, check_flag, check_seed, describe, keep_checked

if TYPE_CHECKING:
    from fastmix.experiments.figures import Figure, Table
    from fastmix.experiments.findings import Finding

__all__ = ["Case", "Experiment", "MethodCall", "Row", "Settings", "canonical", "derive_seed"]

Row = dict[str, Any]  # a line of an experiment's file; its "seconds", by stage, are in a file beside it
_MOST_TRIALS = 1_000_000  # every one is planned before the first is run


@dataclass(frozen=True)
class Settings:
    """What a user can choose about an experiment, see :func:`fastmix.experiments.run_experiment`."""

    trials: int | None = None
    quick: bool = False
    methods: Sequence[str] | None = None
    seed: int = 0
    images: str | None = None

    def __post_init__(self) -> None:
        if self.trials is not None:
            keep_checked(self, trials=check_count("trials", self.trials, least=1, most=_MOST_TRIALS))
        if self.methods is not None:
            keep_checked(self, methods=tuple(as_list("methods", self.methods, "a list of names of methods")))
        if self.images is not None:
            keep_checked(self, images=as_path("images", self.images))
        keep_checked(self, quick=check_flag("quick", self.quick), seed=check_seed(self.seed))


@dataclass(frozen=True)
class MethodCall:
    """A curve of a figure: its name, and the method behind it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)  # plain data, see fastmix.experiments.trials.run_method
    quick: Mapping[str, Any] = field(default_factory=dict)  # those that a quick run changes


@dataclass(frozen=True)
class Case:
    """One instance, the same for every method, and the methods to be run on it: what is handed to a worker."""

    problem: str
    trial: int
    parameters: Mapping[str, Any]  # plain data (kind, strength, size), of which trials.build makes the instance
    seed: int  # the root of all randomness
    payload: bytes = field(default=b"", repr=False)  # what a worker cannot make, such as pixels; parameters identify it
    calls: tuple[MethodCall, ...] = ()

    def derive_seed(self, *words: object) -> int:
        """A seed for one purpose within this case."""
        return derive_seed(self.seed, self.problem, canonical(self.parameters), self.trial, *words)

    def row_key(self, call: MethodCall) -> str:
        """Identity of a row: experiments that draw the same runs have rows of equal keys, and nothing is run twice."""
        facts = [self.problem, self.parameters, self.trial, self.seed, call.name, call.options]
        return hashlib.sha256(canonical(facts).encode()).hexdigest()[:16]

    def row_keys(self) -> list[str]:
        """Identity of each row that the case gives."""
        return [self.row_key(call) for call in self.calls]

    def without(self, keys: Container[str]) -> Case:
        """The case without the methods whose rows are known already."""
        return replace(self, calls=tuple(call for call in self.calls if self.row_key(call) not in keys))


def synthetic_cases(experiment: Experiment, settings: Settings) -> list[Case]:
    """Random instances of every shape, kind and strength.

    Trials come first: a run that is stopped early has all points of the figures, from fewer trials.
    """
    strengths = experiment.quick_strengths if settings.quick else experiment.strengths
    return [
        Case(experiment.problem, trial, {**shape, "kind": kind, "strength": strength}, settings.seed)
        for trial in range(experiment.num_trials(settings))
        for shape in experiment.shapes
        for kind in experiment.kinds
        for strength in strengths
    ]


@dataclass(frozen=True)
class Experiment:
    """The specification of one figure or table of the paper."""

    name: str
    title: str
    summary: str  # what is done, in a few sentences
    problem: str
    methods: tuple[MethodCall, ...]
    draw: Callable[[Experiment, Settings, Sequence[Row]], Sequence[Figure | Table]]
    findings: Callable[[Sequence[Row]], Sequence[Finding]] = lambda _: ()
    where: str = ""
    caption: str = ""
    paper: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # the paper's own numbers by method
    shapes: tuple[Mapping[str, Any], ...] = ({},)
    kinds: tuple[str, ...] = ("attractive", "mixed")
    strengths: tuple[float, ...] = tuple(0.5 * k for k in range(9))
    quick_strengths: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0)
    trials: int = 50
    quick_trials: int = 3
    make_cases: Callable[[Experiment, Settings], list[Case]] = synthetic_cases  # in the order of the file
    alone: bool = False  # whether tasks must run one at a time on this machine, because seconds are the result

    def num_trials(self, settings: Settings) -> int:
        """How many instances every point has."""
        return settings.trials or (self.quick_trials if settings.quick else self.trials)

    def calls(self, settings: Settings) -> tuple[MethodCall, ...]:
        """The methods that were asked for, in the order of the experiment, with their options."""
        known = [call.name for call in self.methods]
        if unknown := [name for name in settings.methods or () if not isinstance(name, str) or name not in known]:
            raise ValueError(f"methods must be among {', '.join(known)}, got {describe(unknown[0])}")
        if settings.methods is not None and not settings.methods:
            raise ValueError(f"methods must name at least one of {', '.join(known)}, got none")
        return tuple(
            MethodCall(call.name, {**call.options, **(call.quick if settings.quick else {})})
            for call in self.methods
            if settings.methods is None or call.name in settings.methods
        )

    def restrict(self, settings: Settings) -> Settings:
        """The same with the methods that this experiment has; all of them when it has none of those asked for."""
        known = [call.name for call in self.methods]
        return replace(settings, methods=tuple(name for name in settings.methods or () if name in known) or None)

    def cases(self, settings: Settings) -> list[Case]:
        """All cases with all methods, in the order of the file."""
        calls = self.calls(settings)
        return [replace(case, calls=calls) for case in self.make_cases(self, settings)]


def canonical(value: Any) -> str:
    """Plain data as one line of JSON that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def derive_seed(seed: int, *words: object) -> int:
    """A seed of 63 bits from the user's for one purpose, told apart from others by the text of the words."""
    digest = hashlib.sha256(canonical([str(word) for word in words]).encode()).digest()
    sequence = np.random.SeedSequence(seed, spawn_key=tuple(np.frombuffer(digest, dtype="<u4").tolist()))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))
