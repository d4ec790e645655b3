"""What calls return: the statuses, and the result of marginal inference."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_text, describe
from fastmix.errors import ImpossibleModelError
from fastmix.estimates import Estimate, joint_frequencies, mean_of, variance_of
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.reduce import Reduction, check_evidence

__all__ = [
    "DrawResult", "Framed", "InferenceResult", "LogZKind", "Status", "ZeroResult", "as_plain", "best_states",
    "jsonable", "plain_evidence", "provenance", "smallest_type",
]  # fmt: skip

_SHOWN_VARIABLES, _BARS, _TRACES = 10, 40, 8  # in a notebook's table, and in charts

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
        """One sentence for the user."""
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


class Framed:
    """A result with ``columns()``, which make a table."""

    def to_frame(self: Any, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The :meth:`columns` as a table of pandas or polars."""
        return _show.frame(self.columns(), library)


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class InferenceResult(Framed):
    """Marginals of a model and what is known about them.

    Attributes
    ----------
    model : MarkovRandomField
        The model asked about; with evidence, still with all its variables.
    method : str
        The method that ran.
    status : Status
    node_marginals : float array, aligned with ``model.log_unary``
        Probability of every state of every variable; observed variables have a point mass. None where Z = 0
        (:class:`ZeroResult`).
    edge_marginals : float array aligned with ``model.log_pairwise``, or None
        Joint probabilities of every edge.
    log_z : float or None
        Natural log of the normaliser; with evidence, of the unnormalised mass of the evidence.
    log_z_kind : {"exact", "estimate", "bound", "zero", "unknown"}
        What is known of it. ``exact``: up to rounding. ``estimate``: with ``log_z_std_error`` where the method has one,
        otherwise without any guarantee (the Bethe estimate of belief propagation). ``bound``: there is ``log_z_lower``
        alone. ``zero``: Z = 0 is proven, and ``log_z`` is -inf (null in JSON). ``unknown``: ``log_z`` is None because
        the method has none, or nothing that means anything.
    log_z_std_error, log_z_lower : float or None
        Its standard error, and a number that it is at least, where the method has them.
    stats : mapping
        Counts and seconds.
    provenance : mapping
        Version, seed, options, model hash, device: what is needed to run it again.
    bracket : BracketResult or None
        Proven bounds on the same numbers, where they were asked for.
    """

    model: MarkovRandomField
    method: str
    status: Status
    node_marginals: FloatArray
    edge_marginals: FloatArray | None
    log_z: float | None
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    log_z_kind: LogZKind = "unknown"
    log_z_std_error: float | None = None
    log_z_lower: float | None = None
    bracket: Any = None

    def __repr__(self) -> str:
        log_z = "" if self.log_z is None else f", log_z={self.log_z:.6g}"
        return f"{type(self).__name__}(method={self.method!r}, status={str(self.status)!r}, {self.model}{log_z})"

    @property
    def advice(self) -> str:
        """What the status means and what to do about it, in one sentence."""
        return self.status.advice

    @property
    def marginals(self) -> list[FloatArray]:
        """One probability vector per variable."""
        return np.split(self.node_marginals, self.model.unary_offsets[1:-1]) if self.model.num_variables else []

    def marginal(self, variable: int | str) -> FloatArray:
        """Probability vector of one variable, given by number or name."""
        i = self.model.variable_index(variable)
        return self.node_marginals[self.model.unary_offsets[i] : self.model.unary_offsets[i + 1]]

    def edge_marginal(self, i: int | str, j: int | str) -> FloatArray:
        """Joint probabilities (L_i, L_j) of two neighbors."""
        if self.edge_marginals is None:
            raise ValueError(f"the method {self.method!r} was not asked for edge marginals")
        return self.model.edge_table(self.edge_marginals, i, j)

    def labels(self) -> NDArray[np.int64]:
        """The state of largest probability of every variable by itself: (n,), or in the shape of an image model.

        The configuration of largest probability as a whole is another question: :func:`fastmix.most_probable`.
        """
        states = best_states(self.model, self.node_marginals)
        return states if self.model.shape is None else states.reshape(self.model.shape)

    def to_array(self) -> FloatArray:
        """Probabilities (n, K), or (H, W, K) of an image model, where all variables have K states."""
        counts = np.unique(self.model.num_states)
        if len(counts) > 1:
            raise ValueError(f"to_array needs equal state counts, got {counts.min()} to {counts.max()}; use marginals")
        shape = (self.model.num_variables,) if self.model.shape is None else self.model.shape
        return self.node_marginals.reshape(*shape, int(counts[0]) if len(counts) else 0)

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name, with a row for every state.

        They are variable, state, probability, and std_error where there is one.
        """
        names, states = self.model.names_of_variables(), self.model.names_of_states()
        columns = {
            "variable": [name for name, of in zip(names, states, strict=True) for _ in of],
            "state": [state for of_variable in states for state in of_variable],
            "probability": self.node_marginals,
        }
        errors = self.__dict__.get("std_error")
        return columns if errors is None else {**columns, "std_error": errors}

    def arrays(self) -> dict[str, Any]:
        """What an ``.npz`` file holds, by name: marginals, and standard errors and draws, in the smallest type."""
        found = {name: self.__dict__.get(name) for name in ("node_marginals", "edge_marginals", "std_error", "draws")}
        if found["draws"] is not None:
            found["draws"] = smallest_type(found["draws"])
        return found

    def summary(self) -> str:
        """A few lines of text: the method, the verdict and what it means, log Z, seconds."""
        lines = [f"{self.method}: {self.status}. {self.advice}", str(self.model)]
        if guarantee := self.stats.get("guarantee"):
            lines.append(f"guarantee: {guarantee}")
        if self.log_z is not None:
            error = "" if self.log_z_std_error is None else f" ± {self.log_z_std_error:.2g}"
            lines.append(f"log Z: {self.log_z:.8g}{error} ({self.log_z_kind})")
        if (errors := self.__dict__.get("std_error")) is not None and len(errors):
            lines.append(f"largest standard error of a probability: {errors.max():.2g}")
        if (r_hat := self.__dict__.get("r_hat")) is not None and len(r_hat):
            lines.append(
                f"largest R-hat: {r_hat.max():.4g}, smallest effective sample size: {self.__dict__['ess'].min():.4g}"
            )
        if (seconds := self.stats.get("seconds")) is not None:
            lines.append(f"{seconds:.3g} s, stopped by {self.stats.get('stopped_by', 'done')}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [("method", self.method), ("status", self.status)]
        if self.log_z is not None:
            facts.append(("log Z", f"{self.log_z:.8g}"))
        names, states = self.model.names_of_variables(), self.model.names_of_states()
        shown = min(_SHOWN_VARIABLES, self.model.num_variables)
        rows = [
            (name, ", ".join(f"{state}: {p:.4g}" for state, p in zip(of_variable, vector, strict=True)))
            for name, of_variable, vector in zip(names[:shown], states[:shown], self.marginals[:shown], strict=True)
        ]
        if shown < self.model.num_variables:
            rows.append((f"and {self.model.num_variables - shown:,} more", ""))
        return _show.html_table(repr(self.model), facts, rows, ("variable", "probability of its states"))

    def plot(self, axes: Any = None, *, kind: str = "marginals") -> Any:
        """The result as a picture (Matplotlib, extra ``plot``); the axes come back.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Of a new figure by default.
        kind : str
            ``marginals``: an image model of two states shows the probability of state 1 and one of more states the
            labels; other models of up to 40 variables show bars, larger ones a map of all probabilities.
            ``mixing``, of samplers: R-hat against effective sample size, a point for every variable. ``trace``, of
            chains that kept draws: their log-weights in order. ``ladder``, of replica exchange: how often the exchange
            between two rungs is rejected.
        """
        drawings = self._drawings()
        if not isinstance(kind, str) or kind not in drawings:
            raise ValueError(f"kind must be one of {', '.join(drawings)} for {self.method}, got {describe(kind)}")
        axes = _show.new_axes(axes)
        axes.set_title(f"{self.method} ({self.status})")
        return drawings[kind](axes)

    def _drawings(self) -> dict[str, Callable[[Any], Any]]:
        """What :meth:`plot` can draw of this result, by kind."""
        found: dict[str, Callable[[Any], Any]] = {"marginals": self._draw_marginals}
        if (r_hat := self.__dict__.get("r_hat")) is not None and len(r_hat):
            found["mixing"] = self._draw_mixing
        if (draws := self.__dict__.get("draws")) is not None and draws.size:
            found["trace"] = self._draw_trace
        return found

    def _draw_mixing(self, axes: Any) -> Any:
        ess, r_hat = self.__dict__["ess"], self.__dict__["r_hat"]
        seen = np.isfinite(ess) & np.isfinite(r_hat)
        return _show.points(axes, ess[seen], r_hat[seen], xlabel="effective sample size", ylabel="R-hat", level=1.01)

    def _draw_trace(self, axes: Any) -> Any:
        values = np.array([self.model.log_weight(chain) for chain in self.__dict__["draws"][:_TRACES]])
        return _show.traces(axes, values, xlabel="draw", ylabel="log-weight")

    def _draw_marginals(self, axes: Any) -> Any:
        model = self.model
        counts = np.unique(model.num_states)
        if model.shape is not None and len(model.shape) == 2 and len(counts) == 1:
            if counts[0] == 2:
                values = self.to_array()[..., 1]
                return _show.picture(axes, values, label="probability of state 1", vmin=0.0, vmax=1.0, cmap="gray")
            return _show.labelled_picture(axes, self.labels(), model.names_of_states()[0])
        errors = self.__dict__.get("std_error")
        if model.num_variables <= _BARS:
            split = None if errors is None else np.split(errors, model.unary_offsets[1:-1])
            return _show.bars(axes, model.names_of_variables(), self.marginals, split)
        values = np.full((int(counts[-1]), model.num_variables), np.nan)
        owner = np.repeat(np.arange(model.num_variables), model.num_states)
        values[np.arange(len(owner)) - model.unary_offsets[owner], owner] = self.node_marginals
        axes.set(xlabel="variable", ylabel="state")
        return _show.picture(axes, values, label="probability", vmin=0.0, vmax=1.0, aspect="auto")

    def joint(self, *variables: int | str) -> Estimate:
        """Probabilities of the states of a few variables together, an axis for each, with standard errors.

        Exact inference gives them exactly; samplers from the draws they kept (``num_draws``).
        """
        numbers = [self.model.variable_index(v) for v in variables]
        if not numbers or len(set(numbers)) < len(numbers):
            raise ValueError(f"joint needs one or more different variables, got {list(variables)}")
        return self._joint(numbers)

    def _joint(self, numbers: list[int]) -> Estimate:
        return joint_frequencies(self._configurations(), numbers, self.model.num_states[numbers].tolist())

    def expect(self, function: Callable[[NDArray[np.int64]], Any]) -> Estimate:
        """The expectation of a function of the configuration, with its standard error.

        Parameters
        ----------
        function : callable
            Takes configurations, an int array (rows, n), and gives one value, or one array, per row:
            ``model.log_weight`` does, and ``lambda x: x.mean(axis=-1)``.

        Raises
        ------
        ValueError
            If there are no draws: a sampler must be told ``num_draws``. Exact inference makes its own.
        """
        return mean_of(function, self._configurations())

    def variance(self, function: Callable[[NDArray[np.int64]], Any]) -> Estimate:
        """The variance of a function of the configuration, as :meth:`expect` takes it, with its standard error."""
        return variance_of(function, self._configurations())

    def _configurations(self) -> NDArray[Any]:
        """Configurations (chains, draws, n) to average over."""
        draws = self.__dict__.get("draws")
        if draws is None or not draws.size:
            raise ValueError(
                f"{self.method} kept no draws to average over: run sample() with num_draws, or the method exact"
            )
        return np.asarray(draws)

    def expanded(self, reduction: Reduction) -> Self:
        """The same result about the model that was reduced: with all its variables and states."""
        return self if reduction.model is reduction.original else replace(self, **self._expansion(reduction))

    def _expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields that are about the reduced model, as they are for the original one."""
        values: dict[str, Any] = {"model": reduction.original}
        values["node_marginals"] = reduction.expand_node_marginals(self.node_marginals)
        if self.edge_marginals is not None:
            values["edge_marginals"] = reduction.expand_edge_marginals(self.node_marginals, self.edge_marginals)
        # What further fields of these names hold is the same for every sampler.
        if (errors := self.__dict__.get("std_error")) is not None:
            values["std_error"] = np.zeros(len(reduction.original.log_unary))
            values["std_error"][reduction.unary_positions] = errors
        for name, best in (("ess", np.inf), ("r_hat", 1.0)):
            if (numbers := self.__dict__.get(name)) is not None:
                values[name] = np.full(reduction.original.num_variables, best)
                values[name][reduction.variables] = numbers
        for name in ("states", "draws"):
            if (states := self.__dict__.get(name)) is not None:
                values[name] = reduction.expand_states(states).astype(states.dtype, copy=False)
        return values

    def _by_variable(self, values: FloatArray | None) -> list[Any] | None:
        """Numbers of every state as plain data, a list for every variable; None for None."""
        if values is None or not self.model.num_variables:
            return None if values is None else []
        return [jsonable(vector) for vector in np.split(values, self.model.unary_offsets[1:-1])]

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON."""
        names, states = self.model.variable_names, self.model.state_names
        evidence = self.provenance.get("options", {}).get("evidence")
        facts = as_plain(
            self, "method log_z log_z_kind", marginals=None, variable_names=names, state_names=states, evidence=evidence
        )
        if self.log_z_kind != "zero":
            facts["marginals"] = [vector.tolist() for vector in self.marginals]
        return facts if self.bracket is None else {**facts, "bracket": self.bracket.to_dict()}


@dataclass(frozen=True, eq=False, repr=False)
class ZeroResult(InferenceResult):
    """The answer about a model without a configuration of positive probability: Z = 0, which is proven.

    ``log_z`` is -inf and ``log_z_kind`` is ``zero``. There are no marginals: ``node_marginals`` and ``marginals`` are
    None, and what is made of them is refused with a :class:`fastmix.ImpossibleModelError`, tables and pictures
    included. ``stats["reason"]`` says what contradicts what.
    """

    @classmethod
    def of(cls, model: MarkovRandomField, method: str, reason: str) -> Self:
        """The result for a model that a method has proven to be impossible."""
        stats = {"guarantee": "proven", "reason": reason, "stopped_by": "done"}
        nothing: Any = None  # the type of the field is that of all other results
        return cls(model, method, Status.OK, nothing, None, -math.inf, stats, log_z_kind="zero")

    @property
    def marginals(self) -> Any:
        """None: there are no marginals."""
        return None

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """An :class:`fastmix.ImpossibleModelError`: there are no marginals."""
        raise ImpossibleModelError(f"there are no marginals, Z = 0: {self.stats['reason']}")

    marginal = edge_marginal = labels = to_array = columns = arrays = plot = joint = _configurations = _refuse

    def summary(self) -> str:
        """A few lines of text: the method, that Z = 0, and why."""
        lines = [f"{self.method}: {self.status}. Z = 0 is proven: {self.stats['reason']}", str(self.model)]
        if (seconds := self.stats.get("seconds")) is not None:
            lines.append(f"{seconds:.3g} s")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts = [("method", self.method), ("status", self.status), ("log Z", f"-inf: {self.stats['reason']}")]
        return _show.html_table(repr(self.model), facts, [], ("variable", "probability of its states"))


@dataclass(frozen=True, eq=False, repr=False)
class DrawResult(InferenceResult):
    """Independent exact configurations; also an array of them (``numpy.asarray(result)``, ``result[0]``).

    ``node_marginals`` are relative frequencies.

    Attributes
    ----------
    states : int array (num_draws, n)
        Of all variables, also with evidence.
    std_error : float array, aligned with ``model.log_unary``
        Of the frequencies.
    """

    states: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    std_error: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.states)} draws, method={self.method!r}, {self.model})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.states, dtype=dtype, copy=True if copy is None else copy)

    def __getattr__(self, name: str) -> Any:
        if name in ("T", "astype", "dtype", "max", "mean", "min", "ndim", "reshape", "shape", "size", "sum", "tolist"):
            return getattr(self.states, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, item: Any) -> Any:
        return self.states[item]

    def arrays(self) -> dict[str, Any]:
        """As of any result; the draws are (1, num_draws, n)."""
        return {**super().arrays(), "draws": smallest_type(self.states[None])}

    def _configurations(self) -> NDArray[Any]:
        return self.states[:, None, :]

    @classmethod
    def of(cls, model: MarkovRandomField, states: NDArray[np.int64], **fields: Any) -> Self:
        """The result for configurations (num_draws, n) of all variables: their frequencies, and what else is given."""
        mean, error = cls.frequencies(model, states)
        fields = {"status": Status.OK, "edge_marginals": None, "log_z": None} | fields
        return cls(model=model, node_marginals=mean, states=states, std_error=error, **fields)

    @staticmethod
    def frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Relative frequency of every state in configurations (num_draws, n), and its standard error.

        The error is that of one more draw with and one without the state: states that were never drawn may be rare.
        """
        count, total = np.zeros(len(model.log_unary)), max(1, len(states))
        rows = max(1, (1 << 20) // max(1, model.num_variables))
        for first in range(0, len(states), rows):
            entries = (states[first : first + rows] + model.unary_offsets[:-1]).reshape(-1)
            count += np.bincount(entries, minlength=len(count))
        share = (count + 1.0) / (total + 2.0)
        varies = np.repeat(model.num_states > 1, model.num_states)
        return count / total, np.where(varies, np.sqrt(share * (1.0 - share) / total), 0.0)

    @staticmethod
    def pair_frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> FloatArray:
        """Relative frequency of every pair of states of every edge in configurations (num_draws, n)."""
        counts, (i, j) = np.zeros(len(model.log_pairwise)), model.edges.T
        rows = max(1, (1 << 20) // max(1, model.num_edges))
        for first in range(0, len(states), rows):
            part = states[first : first + rows]
            entries = model.pairwise_offsets[:-1] + part[:, i] * model.num_states[j] + part[:, j]
            counts += np.bincount(entries.reshape(-1), minlength=len(counts))
        return counts / max(1, len(states))


def best_states(model: MarkovRandomField, values: FloatArray) -> NDArray[np.int64]:
    """For every variable the first of the states with the largest of the values, (n,)."""
    starts = model.unary_offsets[:-1]
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    places = np.flatnonzero(values == np.repeat(np.maximum.reduceat(values, starts), model.num_states))
    return np.asarray(places[np.searchsorted(places, starts)] - starts)


def smallest_type(states: NDArray[Any]) -> NDArray[Any]:
    """States in the smallest whole numbers that hold them."""
    return states.astype(np.min_scalar_type(int(states.max(initial=0))), copy=False)


def plain_evidence(evidence: Evidence | None) -> dict[str, Any] | None:
    """Evidence as it is noted in the provenance."""
    if evidence is None:
        return None
    check_evidence(evidence)
    return {as_text("evidence", k): jsonable(v) for k, v in evidence.items()}


def provenance(
    model: MarkovRandomField, *, seed: int | None = None, device: str = "cpu", **options: Any
) -> dict[str, Any]:
    """What an output must hold to be produced again."""
    from fastmix import __version__

    return {
        "version": __version__,
        "seed": seed,
        "options": options,
        "model_hash": model.content_hash,
        "device": device,
        **_machine(),
    }


@cache
def _machine() -> dict[str, str]:
    """What does not change while a process runs."""
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


def as_plain(result: Any, names: str, **facts: Any) -> dict[str, Any]:
    """The status of a result, attributes of these names, facts, seconds, stats and provenance as plain data."""
    known = {name: getattr(result, name) for name in names.split()} | facts
    origin = {"seconds": result.stats.get("seconds"), "stats": result.stats, "provenance": result.provenance}
    return {"status": str(result.status), **jsonable({**known, **origin})}
