"""What an experiment is made of: settings, cases, the methods run on each, and where their randomness comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fastmix._checks import (
    as_list,
    as_path,
    check_choice,
    check_count,
    check_flag,
    check_positive,
    check_seed,
    describe,
    keep_checked,
)
from fastmix._context import stream_seed
from fastmix.experiments.tuning import MAX_TRIALS

if TYPE_CHECKING:
    from fastmix.experiments.figures import Figure, Table
    from fastmix.experiments.findings import Finding

__all__ = ["Case", "Experiment", "MethodCall", "Row", "Settings", "canonical"]

Row = dict[str, Any]  # a line of an experiment's file; its "seconds", by stage, are in a file beside it


#: Kinds of couplings: of one sign, and of both.
KINDS = ("attractive", "mixed")


@dataclass(frozen=True)
class Settings:
    """Choices of a user about an experiment, see :func:`fastmix.experiments.run_experiment`."""

    num_trials: int | None = None
    quick: bool = False
    methods: Sequence[str] | None = None
    seed: int = 0
    images: str | None = None
    kinds: Sequence[str] | None = None
    strengths: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.num_trials is not None:
            keep_checked(self, num_trials=check_count("num_trials", self.num_trials, least=1, most=MAX_TRIALS))
        if self.methods is not None:
            keep_checked(self, methods=tuple(as_list("methods", self.methods, "a list of names of methods")))
        if self.images is not None:
            keep_checked(self, images=as_path("images", self.images))
        if self.kinds is not None:
            keep_checked(self, kinds=_chosen_kinds(self.kinds))
        if self.strengths is not None:
            keep_checked(self, strengths=_chosen_strengths(self.strengths))
        keep_checked(self, quick=check_flag("quick", self.quick), seed=check_seed(self.seed))


def _chosen_kinds(kinds: object) -> tuple[str, ...]:
    """Kinds of couplings that were asked for, once each; a ValueError where there is no such kind."""
    asked = as_list("kinds", kinds, "a list of kinds of couplings")
    for kind in asked:
        check_choice("kinds", kind, KINDS)
    if not asked:
        raise ValueError(f"kinds must name at least one of {', '.join(KINDS)}, got none")
    return tuple(kind for kind in KINDS if kind in asked)


def _chosen_strengths(strengths: object) -> tuple[float, ...]:
    """Strengths that were asked for, from the smallest on; a ValueError where one is negative or not finite."""
    asked = as_list("strengths", strengths, "a list of strengths of couplings")
    if not asked:
        raise ValueError("strengths must have at least one number, got none")
    return tuple(sorted({check_positive("strengths", strength, or_zero=True) for strength in asked}))


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

    def seed_of(self, name: str) -> int:
        """The seed of the stream of random numbers that has this name within the case."""
        return stream_seed(self.seed, self.problem, canonical(self.parameters), self.trial, name)

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
    strengths = settings.strengths or (experiment.quick_strengths if settings.quick else experiment.strengths)
    asked = experiment.kinds if settings.kinds is None else settings.kinds
    kinds = [kind for kind in experiment.kinds if kind in asked] or experiment.kinds
    return [
        Case(experiment.problem, trial, {**shape, "kind": kind, "strength": strength}, settings.seed)
        for trial in range(experiment.num_trials(settings))
        for shape in experiment.shapes
        for kind in kinds
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
    kinds: tuple[str, ...] = KINDS
    strengths: tuple[float, ...] = tuple(0.5 * k for k in range(9))
    quick_strengths: tuple[float, ...] = (0.0, 1.0, 2.0, 3.0, 4.0)
    trials: int = 50
    quick_trials: int = 3
    make_cases: Callable[[Experiment, Settings], list[Case]] = synthetic_cases  # in the order of the file
    alone: bool = False  # whether tasks must run one at a time on this machine, because seconds are the result

    def num_trials(self, settings: Settings) -> int:
        """How many instances every point has."""
        return settings.num_trials or (self.quick_trials if settings.quick else self.trials)

    def calls(self, settings: Settings) -> tuple[MethodCall, ...]:
        """The methods that were asked for, in the order of the experiment, with their options."""
        known = [call.name for call in self.methods]
        unknown = [name for name in settings.methods or () if not isinstance(name, str) or name not in known]
        if unknown:
            raise ValueError(f"methods must be among {', '.join(known)}, got {describe(unknown[0])}")
        if settings.methods is not None and not settings.methods:
            raise ValueError(f"methods must name at least one of {', '.join(known)}, got none")
        return tuple(
            MethodCall(call.name, {**call.options, **(call.quick if settings.quick else {})})
            for call in self.methods
            if settings.methods is None or call.name in settings.methods
        )

    def restrict(self, settings: Settings) -> Settings:
        """Settings with those of the methods that this experiment has; all of its own when it has none of them."""
        known = [call.name for call in self.methods]
        return replace(settings, methods=tuple(name for name in settings.methods or () if name in known) or None)

    def cases(self, settings: Settings) -> list[Case]:
        """All cases with all methods, in the order of the file."""
        calls = self.calls(settings)
        return [replace(case, calls=calls) for case in self.make_cases(self, settings)]


def canonical(value: Any) -> str:
    """Plain data as one line of JSON that does not depend on the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
