"""``InferenceResult``: marginals of a model and what is known about them; of chains and of exact draws, too."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import describe
from fastmix.errors import ImpossibleModelError
from fastmix.estimates import Estimate, estimate_of, joint_frequencies, mean_of, variance_of
from fastmix.model import MarkovRandomField
from fastmix.model.reduce import Reduction
from fastmix.results import LogZKind, Result, jsonable

__all__ = [
    "ChainResult", "DrawResult", "InferenceResult", "ZeroResult", "best_states", "expand_errors", "expand_states",
    "smallest_type",
]  # fmt: skip

_BARS = 40  # variables up to which marginals are drawn as bars
_TRACES = 8  # chains whose log-weights are drawn
_R_HAT_LEVEL = 1.01  # that R-hat should stay below
_ENTRIES_AT_ONCE = 1 << 20  # states or pairs of draws that are counted at once


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class InferenceResult(Result):
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
    std_error : float array, aligned with ``model.log_unary``, or None
        Standard error of every probability, where the method knows it.
    log_z : float or None
        Natural log of the normalizer; with evidence, of the unnormalized mass of the evidence.
    log_z_kind : {"exact", "estimate", "bound", "zero", "unknown"}
        What is known of it. ``exact``: up to rounding. ``estimate``: with ``log_z_std_error`` where the method has one,
        otherwise without any guarantee (the Bethe estimate of belief propagation). ``bound``: there is ``log_z_lower``
        alone. ``zero``: Z = 0 is proven, and ``log_z`` is -inf (null in JSON). ``unknown``: ``log_z`` is None because
        the method has none, or nothing that means anything.
    log_z_std_error, log_z_lower : float or None
        Its standard error, and a number that it is at least, where the method has them.
    bracket : BracketResult or None
        Proven bounds on the same numbers, where they were asked for.
    history, stats, provenance
        As for every :class:`fastmix.results.Result`.
    """

    method: str
    node_marginals: FloatArray
    edge_marginals: FloatArray | None = None
    std_error: FloatArray | None = None
    log_z: float | None = None
    log_z_kind: LogZKind = "unknown"
    log_z_std_error: float | None = None
    log_z_lower: float | None = None
    bracket: Any = None

    def __repr__(self) -> str:
        log_z = "" if self.log_z is None else f", log_z={self.log_z:.6g}"
        return f"{type(self).__name__}(method={self.method!r}, status={str(self.status)!r}, {self.model}{log_z})"

    def title(self) -> str:
        """The method."""
        return self.method

    @property
    def marginals(self) -> list[FloatArray]:
        """One probability vector per variable, hidden ones of laws left out."""
        parts = np.split(self.node_marginals, self.model.unary_offsets[1:-1]) if self.model.num_variables else []
        return parts[: self.model.num_shown]

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

    def entropy(self) -> FloatArray:
        """Entropy of the marginal of every variable, in nats: (n,), or in the shape of an image model.

        It is 0 where the state is certain, and the log of the number of states where nothing is known.
        """
        q = self.node_marginals
        terms = -q * np.log(np.where(q > 0.0, q, 1.0)) + 0.0  # -0.0 becomes 0.0
        entropies = np.add.reduceat(terms, self.model.unary_offsets[:-1]) if self.model.num_variables else terms
        return entropies if self.model.shape is None else entropies.reshape(self.model.shape)

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: :meth:`state_columns`."""
        return self.state_columns()

    def state_columns(self) -> dict[str, Any]:
        """Columns of a ``.csv`` file by name, with a row for every state.

        They are variable, state, probability, and std_error where there is one.
        """
        shown = self.model.num_shown
        last = int(self.model.unary_offsets[shown])
        names = self.model.names_of_variables()[:shown]
        states = self.model.names_of_states()[:shown]
        columns = {
            "variable": [name for name, of in zip(names, states, strict=True) for _ in of],
            "state": [state for of_variable in states for state in of_variable],
            "probability": self.node_marginals[:last],
        }
        return columns if self.std_error is None else {**columns, "std_error": self.std_error[:last]}

    def arrays(self) -> dict[str, Any]:
        """Arrays of an ``.npz`` file by name; None for what the result does not have."""
        names = ("node_marginals", "edge_marginals", "std_error")
        return {name: getattr(self, name) for name in names}

    def facts(self) -> dict[str, str]:
        """The guarantee of the method, log Z, and the largest standard error, as far as they are known."""
        known = {}
        guarantee = self.stats.get("guarantee")
        if guarantee:
            known["guarantee"] = str(guarantee)
        if self.log_z is not None:
            error = "" if self.log_z_std_error is None else f" ± {self.log_z_std_error:.2g}"
            known["log Z"] = f"{self.log_z:.8g}{error} ({self.log_z_kind})"
        if self.std_error is not None and len(self.std_error):
            known["largest standard error of a probability"] = f"{self.std_error.max():.2g}"
        return known

    def contents(self) -> dict[str, Any]:
        """The method, log Z, marginals by variable, and the bracket where one was asked for."""
        found: dict[str, Any] = {
            "method": self.method,
            "log_z": self.log_z,
            "log_z_kind": self.log_z_kind,
            "log_z_std_error": self.log_z_std_error,
            "log_z_lower": self.log_z_lower,
            "marginals": self.by_variable(self.node_marginals),
            "std_error": self.by_variable(self.std_error),
        }
        if self.bracket is not None:
            found["bracket"] = self.bracket.to_dict()
        return found

    def by_variable(self, values: FloatArray | None) -> list[Any] | None:
        """Numbers of every state as plain data, a list for every variable; None for None."""
        if values is None:
            return None
        if not self.model.num_variables:
            return []
        parts = np.split(values, self.model.unary_offsets[1:-1])[: self.model.num_shown]
        return [jsonable(vector) for vector in parts]

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """A row for each of the first variables, with the probabilities of its states."""
        names = self.model.names_of_variables()
        states = self.model.names_of_states()
        shown = min(10, self.model.num_shown)
        rows: list[tuple[Any, ...]] = []
        for name, of_variable, vector in zip(names[:shown], states[:shown], self.marginals[:shown], strict=True):
            rows.append((name, ", ".join(f"{state}: {p:.4g}" for state, p in zip(of_variable, vector, strict=True))))
        if shown < self.model.num_shown:
            rows.append((f"and {self.model.num_shown - shown:,} more", ""))
        return ("variable", "probability of its states"), rows

    def plot(self, axes: Any = None, *, kind: str = "marginals") -> Any:
        """The result as a picture (Matplotlib, extra ``plot``); the axes come back.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Of a new figure by default.
        kind : str
            ``marginals``: an image model of two states shows the probability of state 1 and one of more states the
            labels; other models of up to 40 variables show bars, larger ones a map of all probabilities.
            ``entropy``, of image models: how uncertain the label of every pixel is (:meth:`entropy`).
            ``mixing``, of samplers: R-hat against effective sample size, a point for every variable. ``trace``, of
            chains that kept draws: their log-weights in order. ``ladder``, of replica exchange: how often the exchange
            between two rungs is rejected.
        """
        drawings = self.drawings()
        if not isinstance(kind, str) or kind not in drawings:
            raise ValueError(f"kind must be one of {', '.join(drawings)} for {self.method}, got {describe(kind)}")
        return drawings[kind](super().plot(axes))

    def drawings(self) -> dict[str, Callable[[Any], Any]]:
        """Functions of the axes by which :meth:`plot` draws this result, by kind."""
        if self.model.shape is None or len(self.model.shape) != 2:
            return {"marginals": self._draw_marginals}
        return {"marginals": self._draw_marginals, "entropy": self._draw_entropy}

    def _draw_entropy(self, axes: Any) -> Any:
        """Draw the entropies of all pixels, from 0 to that of states which are all as probable."""
        most = float(np.log(self.model.num_states.max(initial=2)))
        return _show.picture(axes, self.entropy(), label="entropy (nats)", vmin=0.0, vmax=most, cmap="magma")

    def _draw_marginals(self, axes: Any) -> Any:
        """Draw a picture, bars or a map of all probabilities, whichever suits the model."""
        model = self.model
        counts = np.unique(model.num_states)
        if model.shape is not None and len(model.shape) == 2 and len(counts) == 1:
            if counts[0] == 2:
                values = self.to_array()[..., 1]
                label = f"probability of {_show.legend_of_states(model.state_names, 1)}"
                return _show.picture(axes, values, label=label, vmin=0.0, vmax=1.0, cmap="gray")
            return _show.labeled_picture(axes, self.labels(), model.names_of_states()[0])
        if model.num_variables <= _BARS:
            split = None if self.std_error is None else np.split(self.std_error, model.unary_offsets[1:-1])
            shown = model.num_shown
            labels = None if model.state_names is None else model.state_names[:shown]
            split = None if split is None else split[:shown]
            return _show.bars(axes, model.names_of_variables()[:shown], self.marginals, split, labels)
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
        """Frequencies of the joint states of variables, given by number."""
        draws = self._configurations()
        return joint_frequencies(draws, numbers, self.model.num_states[numbers].tolist(), self._run_name)

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
        return mean_of(function, self._configurations(), self._run_name)

    def variance(self, function: Callable[[NDArray[np.int64]], Any]) -> Estimate:
        """The variance of a function of the configuration, as :meth:`expect` takes it, with its standard error."""
        return variance_of(function, self._configurations(), self._run_name)

    def estimate(
        self,
        function: Callable[[Mapping[str, Any]], Any],
        observables: Mapping[str, Callable[[NDArray[np.int64]], Any]],
    ) -> Estimate:
        """A function of expectations, with its standard error, and without most of the bias that its curvature makes.

        Estimates by :meth:`expect` and :meth:`variance` can be calculated with as well; they vary together.

        Parameters
        ----------
        function : callable
            Takes the means of the observables by name, and gives a number or an array.
        observables : dict
            Functions of the configuration by name, as :meth:`expect` takes them.

        Examples
        --------
        The Binder cumulant of nine spins:

        >>> from fastmix import sample
        >>> from fastmix.instances import ising_grid
        >>> run = sample(ising_grid(3, 3, coupling_max=0.5, seed=0), num_sweeps=2000, num_draws=200, seed=0)
        >>> def magnetization(x):
        ...     return 2.0 * x.mean(axis=-1) - 1.0
        >>> observables = {"m2": lambda x: magnetization(x) ** 2, "m4": lambda x: magnetization(x) ** 4}
        >>> binder = run.estimate(lambda means: 1.0 - means["m4"] / (3.0 * means["m2"] ** 2), observables)
        >>> bool(binder.std_error < 0.05)
        True
        """
        return estimate_of(function, observables, self._configurations(), self._run_name)

    @cached_property
    def _run_name(self) -> str:
        """The name of the run: estimates from it vary together."""
        return secrets.token_hex(8)

    def _configurations(self) -> NDArray[Any]:
        """Configurations (chains, draws, n) to average over; a ValueError where there are none."""
        raise ValueError(
            f"{self.method} kept no draws to average over: run sample() or temper() with num_draws, or the method exact"
        )

    def expanded(self, reduction: Reduction) -> Self:
        """A copy about the model that was reduced, with all its variables and states."""
        return self if reduction.model is reduction.original else replace(self, **self.expansion(reduction))

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields that are about the reduced model, as they are for the original one."""
        values: dict[str, Any] = {"model": reduction.original}
        values["node_marginals"] = reduction.expand_node_marginals(self.node_marginals)
        if self.edge_marginals is not None:
            values["edge_marginals"] = reduction.expand_edge_marginals(self.node_marginals, self.edge_marginals)
        if self.std_error is not None:
            values["std_error"] = expand_errors(reduction, self.std_error)
        return values


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ZeroResult(InferenceResult):
    """The answer about a model without a configuration of positive probability: Z = 0, which is proven.

    ``log_z`` is -inf and ``log_z_kind`` is ``zero``. There are no marginals: ``node_marginals`` and ``marginals`` are
    None, and what is made of them is refused with a :class:`fastmix.ImpossibleModelError`, tables and pictures
    included. ``stats["reason"]`` says what contradicts what.
    """

    @classmethod
    def of(cls, model: MarkovRandomField, method: str, reason: str) -> Self:
        """The result for a model that a method has proven to be impossible."""
        nothing: Any = None  # the type of the field is that of all other results
        return cls(
            model=model,
            method=method,
            node_marginals=nothing,
            log_z=-math.inf,
            log_z_kind="zero",
            stats={"guarantee": "proven", "reason": reason},
        )

    @property
    def marginals(self) -> Any:
        """None: there are no marginals."""
        return None

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise an :class:`fastmix.ImpossibleModelError`: there are no marginals."""
        raise ImpossibleModelError(f"there are no marginals, Z = 0: {self.stats['reason']}")

    marginal = _refuse
    edge_marginal = _refuse
    labels = _refuse
    to_array = _refuse
    columns = _refuse
    state_columns = _refuse
    arrays = _refuse
    plot = _refuse
    joint = _refuse
    _configurations = _refuse

    @property
    def advice(self) -> str:
        """A sentence that Z = 0 is proven, and why."""
        return f"Z = 0 is proven: {self.stats['reason']}."

    def facts(self) -> dict[str, str]:
        """Log Z alone."""
        return {"log Z": "-inf"}

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """No rows: there are no marginals."""
        return ("variable", "probability of its states"), []


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChainResult(InferenceResult):
    """Marginals from chains, with their error bars and what the chains say about themselves.

    Attributes
    ----------
    std_error : float array, aligned with ``model.log_unary``
        Monte Carlo standard error of every probability.
    ess, r_hat : float array (n,)
        Effective sample size and split R-hat of every variable; observed ones have the best values.
    states : int array (chains, n)
        Where the chains ended.
    draws : int array (chains, draws, n), or None
        Configurations that were kept.
    """

    std_error: FloatArray
    ess: FloatArray
    r_hat: FloatArray
    states: IntArray
    draws: NDArray[np.integer[Any]] | None = None

    def arrays(self) -> dict[str, Any]:
        """Arrays of an ``.npz`` file by name; draws in the smallest type that holds them."""
        return {**super().arrays(), "draws": None if self.draws is None else smallest_type(self.draws)}

    def facts(self) -> dict[str, str]:
        """The facts of every result, and how well the chains have mixed."""
        known = super().facts()
        if len(self.r_hat):
            if self.stats.get("num_sweeps") != 1:  # one sweep cannot be compared with others of its chain
                known["largest R-hat"] = f"{self.r_hat.max():.4g}"
            known["smallest effective sample size"] = f"{self.ess.min():,.0f}"
        return known

    def contents(self) -> dict[str, Any]:
        """The contents of every result, with ``r_hat_max``, ``ess_min`` and ``updates_per_second``."""
        return {
            **super().contents(),
            "r_hat_max": float(self.r_hat.max(initial=1.0)),
            "ess_min": float(self.ess.min(initial=np.inf)),
            "updates_per_second": self.stats.get("updates_per_second"),
        }

    def drawings(self) -> dict[str, Callable[[Any], Any]]:
        """The drawings of every result, with ``mixing``, and ``trace`` where draws were kept."""
        found = super().drawings()
        if len(self.r_hat):
            found["mixing"] = self._draw_mixing
        if self.draws is not None and self.draws.size:
            found["trace"] = self._draw_trace
        return found

    def _draw_mixing(self, axes: Any) -> Any:
        """Draw R-hat against the effective sample size, a point for every variable."""
        seen = np.isfinite(self.ess) & np.isfinite(self.r_hat)
        names = {"xlabel": "effective sample size", "ylabel": "R-hat"}
        return _show.points(axes, self.ess[seen], self.r_hat[seen], **names, level=_R_HAT_LEVEL)

    def _draw_trace(self, axes: Any) -> Any:
        """Draw the log-weights of the draws of some chains."""
        assert self.draws is not None
        values = np.array([self.model.log_weight(chain) for chain in self.draws[:_TRACES]])
        return _show.traces(axes, values, xlabel="draw", ylabel="log-weight")

    def _configurations(self) -> NDArray[Any]:
        """The draws that were kept."""
        if self.draws is None or not self.draws.size:
            return super()._configurations()
        return np.asarray(self.draws)

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model, those of the chains included."""
        values = super().expansion(reduction)
        for name, best in (("ess", np.inf), ("r_hat", 1.0)):
            values[name] = np.full(reduction.original.num_variables, best)
            values[name][reduction.variables] = getattr(self, name)
        values["states"] = expand_states(reduction, self.states)
        if self.draws is not None:
            values["draws"] = expand_states(reduction, self.draws)
        return values


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DrawResult(InferenceResult):
    """Independent exact configurations: a sequence of them (``len(result)``, ``result[0]``, ``numpy.asarray(result)``).

    ``node_marginals`` are relative frequencies. For arithmetic take the array ``states``.

    Attributes
    ----------
    states : int array (num_draws, n)
        Of all variables, also with evidence.
    std_error : float array, aligned with ``model.log_unary``
        Of the frequencies.
    """

    states: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.states)} draws, method={self.method!r}, {self.model})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.states, dtype=dtype, copy=True if copy is None else copy)

    def __len__(self) -> int:
        return len(self.states)

    def __getitem__(self, item: Any) -> Any:
        return self.states[item]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame`: a row for every draw, a column for every variable, the names of its states.

        Numbers where states have no names. The frequencies of the states are :meth:`state_columns`.
        """
        labels = self.model.state_names
        columns: dict[str, Any] = {}
        for v, name in enumerate(self.model.names_of_variables()[: self.model.num_shown]):
            drawn = self.states[:, v]
            columns[name] = drawn if labels is None else np.array(labels[v], dtype=object)[drawn]
        return columns

    def arrays(self) -> dict[str, Any]:
        """Arrays of an ``.npz`` file by name; the draws are (1, num_draws, n)."""
        return {**super().arrays(), "draws": smallest_type(self.states[None])}

    def _configurations(self) -> NDArray[Any]:
        """The draws, each a chain of its own."""
        return self.states[:, None, :]

    def expansion(self, reduction: Reduction) -> dict[str, Any]:
        """The fields for the original model, the draws included."""
        return {**super().expansion(reduction), "states": expand_states(reduction, self.states)}

    @classmethod
    def of(cls, model: MarkovRandomField, states: NDArray[np.int64], **fields: Any) -> Self:
        """The result for configurations (num_draws, n) of all variables: their frequencies, and what else is given."""
        mean, error = cls.frequencies(model, states)
        return cls(model=model, node_marginals=mean, states=states, std_error=error, **fields)

    @staticmethod
    def frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
        """Relative frequency of every state in configurations (num_draws, n), and its standard error.

        The error is that of one more draw with and one without the state: states that were never drawn may be rare.
        """
        count = np.zeros(len(model.log_unary))
        total = max(1, len(states))
        rows = max(1, _ENTRIES_AT_ONCE // max(1, model.num_variables))
        for first in range(0, len(states), rows):
            entries = (states[first : first + rows] + model.unary_offsets[:-1]).reshape(-1)
            count += np.bincount(entries, minlength=len(count))
        share = (count + 1.0) / (total + 2.0)
        varies = np.repeat(model.num_states > 1, model.num_states)
        return count / total, np.where(varies, np.sqrt(share * (1.0 - share) / total), 0.0)

    @staticmethod
    def pair_frequencies(model: MarkovRandomField, states: NDArray[np.int64]) -> FloatArray:
        """Relative frequency of every pair of states of every edge in configurations (num_draws, n)."""
        counts = np.zeros(int(model.pairwise_offsets[-1]))
        i, j = model.edges.T
        rows = max(1, _ENTRIES_AT_ONCE // max(1, model.num_edges))
        for first in range(0, len(states), rows):
            part = states[first : first + rows]
            entries = model.pairwise_offsets[:-1] + part[:, i] * model.num_states[j] + part[:, j]
            counts += np.bincount(entries.reshape(-1), minlength=len(counts))
        return counts / max(1, len(states))


def best_states(model: MarkovRandomField, values: FloatArray) -> NDArray[np.int64]:
    """The state of the largest value for every variable, the first if there are several, (n,)."""
    starts = model.unary_offsets[:-1]
    if not len(starts):
        return np.zeros(0, dtype=np.int64)
    places = np.flatnonzero(values == np.repeat(np.maximum.reduceat(values, starts), model.num_states))
    return np.asarray(places[np.searchsorted(places, starts)] - starts)


def smallest_type(states: NDArray[Any]) -> NDArray[Any]:
    """States in the smallest whole numbers that hold them."""
    return states.astype(np.min_scalar_type(int(states.max(initial=0))), copy=False)


def expand_errors(reduction: Reduction, errors: FloatArray) -> FloatArray:
    """Errors of the states of the original model: 0 for those that evidence decides."""
    values = np.zeros(len(reduction.original.log_unary))
    values[reduction.unary_positions] = errors
    return values


def expand_states(reduction: Reduction, states: NDArray[Any]) -> NDArray[Any]:
    """Configurations of the original model, in the type of those of the reduced one."""
    return reduction.expand_states(states).astype(states.dtype, copy=False)
