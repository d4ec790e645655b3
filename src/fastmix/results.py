"""``Result``: what every public verb gives, its statuses, and what outputs hold beside the answer."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np

from fastmix import _show
from fastmix._checks import as_text, keep_checked
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.evidence import check_evidence

__all__ = ["LogZKind", "Result", "Status", "jsonable", "plain_evidence", "provenance"]

_SHOWN_ROWS = 10  # of a table in a notebook

#: What is known of log Z:
#:
#: - ``exact``: the number is log Z up to rounding;
#: - ``estimate``: the number estimates it, with a standard error where the method has one, else without any guarantee;
#: - ``bound``: there is no number, but a bound (``log_z_lower``);
#: - ``zero``: Z = 0 is proven, the number is -inf;
#: - ``unknown``: nothing is known, and there is no number.
LogZKind = Literal["exact", "estimate", "bound", "zero", "unknown"]


class Status(StrEnum):
    """How far an answer can be trusted; :attr:`advice` says what to do about it."""

    OK = "ok"
    UNVERIFIED = "unverified"
    NOT_CONVERGED = "not_converged"
    NOT_MIXED = "not_mixed"
    INTERRUPTED = "interrupted"
    TIME_LIMIT = "time_limit"

    @property
    def advice(self) -> str:
        """A sentence on what the status means and what to do about it, for any method."""
        return _ADVICE[self]


_ADVICE = {
    Status.OK: "The answer meets what the method promises.",
    Status.UNVERIFIED: "The iteration converged, but nothing supports the answer: bracket() has proven bounds, and "
    "other methods have errors that are known.",
    Status.NOT_CONVERGED: "The iteration stopped early: allow more time or iterations, or more damping of loopy-bp.",
    Status.NOT_MIXED: "The chains disagree: run longer, or use a method made for strongly coupled models.",
    Status.INTERRUPTED: "The run was interrupted: the answer rests on what had been collected.",
    Status.TIME_LIMIT: "The time limit was reached: the answer is the best that was found by then.",
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result:
    """The answer of a verb, with a verdict on it and all that repeats the call.

    Attributes
    ----------
    model : MarkovRandomField
        What the answer is about, or the model that was made.
    status : Status
        The verdict; :attr:`advice` says what it means for this answer and what to do next.
    history : tuple of mappings
        How the answer came about: an entry for every iteration, or some of them, with its number (``iteration``, or
        ``sweep`` of a sampler) and what was known then. Empty where the verb keeps none.
    stats : mapping
        Counts and seconds; docs/results.md lists the names.
    provenance : mapping
        Version, seed, options, hash of the model, device and machine: what is needed to run it again.
    """

    model: MarkovRandomField
    status: Status = Status.OK
    history: Sequence[Mapping[str, Any]] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    #: What a status means for answers of this kind, where more can be said than for all.
    advice_by_status: ClassVar[Mapping[Status, str]] = {}

    def __post_init__(self) -> None:
        keep_checked(self, history=tuple(self.history))

    @property
    def advice(self) -> str:
        """A sentence or two on what the status means for this answer, and what to do next."""
        return self.advice_by_status.get(self.status, self.status.advice)

    @property
    def seed(self) -> int | None:
        """The seed of the call; None where none was given and nothing was drawn."""
        seed: int | None = self.provenance.get("seed")
        return seed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(status={str(self.status)!r}, {self.model})"

    def title(self) -> str:
        """The name of what gave the answer, with which :meth:`summary` begins."""
        return type(self).__name__

    def facts(self) -> dict[str, str]:
        """The answer in a few words: what :meth:`summary` and notebooks show, by name."""
        return {}

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name, of equal length."""
        return {name: [value] for name, value in self.facts().items()}

    def contents(self) -> dict[str, Any]:
        """The answer as it stands in :meth:`to_dict`, by name; arrays and dataclasses need not be plain yet."""
        return dict(self.facts())

    def summary(self) -> str:
        """A few lines of text: what gave the answer, the verdict and what it means, the answer in short, seconds."""
        lines = [f"{self.title()}: {self.status}. {self.advice}", str(self.model)]
        lines += [f"{name}: {value}" for name, value in self.facts().items()]
        seconds = self.stats.get("seconds")
        if seconds is not None:
            lines.append(f"{seconds:.3g} s, stopped by {self.stats.get('stopped_by', 'done')}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data, the shape of the command line's JSON; docs/results.md has the schema."""
        verdict = {"type": type(self).__name__, "status": str(self.status), "advice": self.advice}
        about = {
            "variable_names": _shown(self.model, self.model.variable_names),
            "state_names": _shown(self.model, self.model.state_names),
            "evidence": self.provenance.get("options", {}).get("evidence"),
        }
        call = {
            "seed": self.seed,
            "seconds": self.stats.get("seconds"),
            "stats": self.stats,
            "provenance": self.provenance,
        }
        return {**verdict, **jsonable(self.contents()), **jsonable(about), **jsonable(call)}

    def to_frame(self, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The :meth:`columns` as a DataFrame of pandas or polars (extra ``interop``)."""
        return _show.frame(self.columns(), library)

    def plot(self, axes: Any = None) -> Any:
        """The answer as a picture (Matplotlib, extra ``plot``); the axes come back."""
        axes = _show.new_axes(axes)
        axes.set_title(f"{self.title()} ({self.status})")
        return axes

    def _repr_html_(self) -> str:
        """A table for notebooks: the facts in short, and the first rows of :meth:`columns`."""
        facts = [("status", str(self.status)), *self.facts().items()]
        head, rows = self.shown_rows()
        return _show.html_table(f"{self.title()}: {self.model}", facts, rows, head)

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The head and the first rows of :meth:`columns`, for notebooks."""
        columns = self.columns()
        length = max((len(column) for column in columns.values()), default=0)
        shown = min(_SHOWN_ROWS, length)
        rows = [tuple(_in_short(column[row]) for column in columns.values()) for row in range(shown)]
        if shown < length:
            rows.append((f"and {length - shown:,} more", *[""] * (len(columns) - 1)))
        return tuple(name.replace("_", " ") for name in columns), rows


def _shown(model: MarkovRandomField, names: Sequence[Any] | None) -> Sequence[Any] | None:
    """Names of the variables, or of their states, without those of hidden variables of laws."""
    return None if names is None else names[: model.num_shown]


def _in_short(value: Any) -> Any:
    """A value as a cell of a table in a notebook."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else value


def plain_evidence(evidence: Evidence | None) -> dict[str, Any] | None:
    """Evidence as it is noted in the provenance."""
    if evidence is None:
        return None
    check_evidence(evidence)
    return {as_text("evidence", k): jsonable(v) for k, v in evidence.items()}


class _Provenance(Mapping[str, Any]):
    """Where a result comes from; the hash of its model is computed when it is first read.

    A large picture takes seconds to hash, because models that share tables have the hash of all their tables in full.
    """

    def __init__(self, facts: dict[str, Any], model: MarkovRandomField) -> None:
        self._facts = facts
        self._model = model

    def __getitem__(self, key: str) -> Any:
        return self._model.content_hash if key == "model_hash" else self._facts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def provenance(
    model: MarkovRandomField, *, seed: int | None = None, device: str = "cpu", **options: Any
) -> Mapping[str, Any]:
    """Everything that an output must hold to be produced again."""
    from fastmix import __version__

    facts = {
        "version": __version__,
        "seed": seed,
        "options": options,
        "model_hash": None,  # in its place
        "device": device,
        **_machine(),
    }
    return _Provenance(facts, model)


@cache
def _machine() -> dict[str, str]:
    """The platform and the versions, which do not change while a process runs."""
    return {"platform": platform.platform(), "python": platform.python_version(), "numpy": np.__version__}


def jsonable(value: Any) -> Any:
    """``value`` as plain Python data for JSON; numbers that are not finite become None."""
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
