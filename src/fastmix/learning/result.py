"""The set that a model is learnt in, and what learning gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import as_float_array, check_choice, check_positive, keep_checked
from fastmix.results import Result, Status
from fastmix.theory import norms

__all__ = ["LearnResult", "NormBall", "WidthBall", "ball_by_name"]

#: Edges that a notebook shows.
NUM_SHOWN_EDGES = 10
#: Fields of a result that a notebook shows as numbers.
NUMBERS = ("ridge", "l1", "moment_error", "bias_bound", "validation_log_likelihood")
#: Fields of a result in its JSON.
FACTS = ("objective", "moments", "value", "num_rows", *NUMBERS)


@dataclass(frozen=True)
class NormBall:
    """The models whose dependency matrix (bound ``range``) has a norm of at most ``bound``: a convex set.

    With ``bound < 1`` Gibbs sampling provably mixes fast there (:func:`fastmix.certify`); 2.5 is the paper's practical
    choice.

    Examples
    --------
    >>> NormBall(norm="inf", bound=0.9).certified
    True
    """

    norm: Literal["spectral", "inf", "1", "frobenius"] = "spectral"
    bound: float = 2.5

    def __post_init__(self) -> None:
        check_choice("norm", self.norm, norms.NORMS)
        keep_checked(self, bound=check_positive("bound", self.bound))

    @property
    def certified(self) -> bool:
        """Whether all models within mix fast."""
        return self.bound < 1.0

    def __str__(self) -> str:
        """A text for :func:`ball_by_name`."""
        return f"{self.norm}:{self.bound:g}"


@dataclass(frozen=True)
class WidthBall(NormBall):
    """The models whose couplings have a width of at most ``bound``: a convex set, larger for dense models.

    With ``bound < 1`` Gibbs sampling by random updates provably mixes fast there (:func:`fastmix.certify`, criterion
    ``width``).
    """

    norm: Literal["width"] = field(default="width", init=False, repr=False)  # type: ignore[assignment]
    bound: float = 0.95

    def __post_init__(self) -> None:
        keep_checked(self, bound=check_positive("bound", self.bound))


def ball_by_name(text: str) -> NormBall:
    """The set that a text such as ``spectral:2.5``, ``inf:0.9`` or ``width:0.95`` names.

    Examples
    --------
    >>> ball_by_name("inf:0.9")
    NormBall(norm='inf', bound=0.9)
    >>> ball_by_name("width:0.95")
    WidthBall(bound=0.95)
    """
    kind, _, number = text.partition(":")
    rule = f"within must be a norm and a bound such as spectral:2.5, with one of {', '.join(norms.NORMS)}, width"
    try:
        return WidthBall(float(number)) if kind == "width" else NormBall(cast("Any", kind), float(number))
    except ValueError:
        raise ValueError(f"{rule}, got {text!r}") from None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LearnResult(Result):
    """A model fitted to data, and what is known about the fit.

    Attributes
    ----------
    model : MarkovRandomField
        With the names of the data; its vectors and tables add up to 0 over every index. Hidden variables come last.
    objective : str
        Its name: ``likelihood`` or ``pseudo-likelihood``, or that of an objective of your own.
    moments : str
        How moments of the model were found: ``closed form`` (trees), ``enumeration``, ``junction tree``, ``sampled`` or
        ``tempered`` (sampled by replica exchange); ``none`` for the pseudo-likelihood and the
        independent model.
    status : Status
        ``not_converged`` if the optimum was not reached, ``not_mixed`` if the chains did not follow the model.
    value : float or None
        The objective that was minimized, penalties included; None where it was sampled.
    ridge, l1 : float
        As given, or as chosen on the validation data.
    within : NormBall or None
    norms : mapping
        Norms of the dependency matrix (bound ``sigmoid``) of the model: ``spectral`` and ``inf``. Below 1 Gibbs
        sampling provably mixes fast. NaN of large models where no time was left for them.
    moment_error : float or None
        Largest difference between probabilities of states and pairs of the model and of the data. Penalties and a set
        to stay in keep it above 0.
    bias_bound : float or None
        In a set with a bound below 1: no entry of the last gradient, as a difference of moments, had a larger bias.
    validation_log_likelihood : float or None
        Mean over the validation data (of the log-pseudo-likelihood, for that objective).
    num_rows : int
    history : sequence of mappings
        An entry for every ``iteration``: ``seconds`` since the call, ``moment_error``, length of the ``step`` and
        ``norms`` of the model (None but after 1, 4, 16, .. iterations); exact objectives have their ``value``
        and ``gradient_norm``, sampled ones what is left to gain (``gap``), its ``noise``, ``num_sweeps``,
        ``bias_bound``.
    stats, provenance : mapping
    """

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_CONVERGED: "The optimum was not reached: allow more time_limit or max_iter, or a larger ridge "
        "or tol.",
        Status.NOT_MIXED: "The chains did not follow the model: take tempered moments, a larger ridge or a set to "
        "stay in.",
    }

    objective: str
    moments: str
    value: float | None
    ridge: float
    l1: float
    within: NormBall | None
    norms: Mapping[str, float]
    moment_error: float | None
    bias_bound: float | None
    validation_log_likelihood: float | None
    num_rows: int

    def __repr__(self) -> str:
        return (
            f"LearnResult({self.objective}, status={str(self.status)!r}, ridge={self.ridge:g}, l1={self.l1:g}, "
            f"spectral norm {self.norms['spectral']:.3g}, {self.model})"
        )

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: of every edge its variables, and the Frobenius norm of its table.

        Of an Ising coupling that is ``2 |J|``.
        """
        names = self.model.names_of_variables()
        first = [names[i] for i in self.model.edges[:, 0]]
        second = [names[j] for j in self.model.edges[:, 1]]
        return {"first": first, "second": second, "size": self._sizes()}

    def couplings(self, *, stability: ArrayLike | None = None, library: Literal["pandas", "polars"] = "pandas") -> Any:
        """The edges as a frame of pandas or polars (extra ``interop``), the strongest first.

        Its columns are ``first``, ``second``, ``size`` as in :meth:`columns`, and ``coupling``, which is positive where
        late states go with late ones: the table's share of the product of two scales from -1 to 1, an Ising coupling J
        for binary variables.

        Parameters
        ----------
        stability : float array (n, n), optional
            As :func:`fastmix.learning.stability` gives it: a column ``stability``, how often an edge is found again.
        library : {"pandas", "polars"}
        """
        found = {**self.columns(), "coupling": self._directions()}
        if stability is not None:
            found["stability"] = self._shares(stability)
        order = np.argsort(-found["size"], kind="stable")
        return _show.frame({name: np.asarray(values)[order] for name, values in found.items()}, library)

    def plot(
        self,
        axes: Any = None,
        *,
        kind: Literal["edges", "graph", "history"] = "edges",
        stability: ArrayLike | None = None,
    ) -> Any:
        """The edges, or the way of the fit, as a picture (Matplotlib, extra ``plot``); the axes come back.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Of a new figure by default.
        kind : {"edges", "graph", "history"}
            ``edges``: their sizes as a matrix. ``graph``: the variables in a circle; lines are as thick as edges are
            strong, blue where late states go with late ones, else vermilion. ``history``: the moment error of every
            iteration; the gradient of pseudo-likelihoods, which have none.
        stability : float array (n, n), optional
            Of a graph, as for :meth:`couplings`: edges that are not always found again are pale.
        """
        check_choice("kind", kind, ("edges", "graph", "history"))
        if stability is not None and kind != "graph":
            raise ValueError("stability must be left out but with kind='graph'")
        shares = None if stability is None else self._shares(stability)
        axes = super().plot(axes)
        if kind == "graph":
            names = self.model.names_of_variables()
            return _show.circle(axes, names, self.model.edges, self._sizes(), self._directions(), shares)
        if kind == "edges":
            from scipy.sparse import coo_array

            i, j = self.model.edges.T
            sizes = self._sizes()
            n = self.model.num_variables
            both = coo_array((np.r_[sizes, sizes], (np.r_[i, j], np.r_[j, i])), shape=(n, n))
            return _show.named(_show.matrix(axes, both, label="size"), self.model.variable_names)
        name = "gradient_norm" if self.objective == "pseudo-likelihood" else "moment_error"
        values = [math.nan if entry[name] is None else entry[name] for entry in self.history]
        return _show.curve(axes, values, xlabel="iteration", ylabel=name.replace("_", " "))

    def _directions(self) -> FloatArray:
        """Of every edge, the share of its table in the product of two scales from -1 to 1 over the states in order."""
        result = np.zeros(self.model.num_edges)
        for e, (i, j) in enumerate(self.model.edges.tolist()):
            first, second = (np.linspace(-1.0, 1.0, int(self.model.num_states[v])) for v in (i, j))
            squares = float(first @ first) * float(second @ second)
            result[e] = first @ self.model.table(i, j) @ second / squares
        return result

    def _shares(self, stability: ArrayLike) -> FloatArray:
        """How often every edge is found again, from such a number for every pair."""
        shares = as_float_array("stability", stability)
        n = self.model.num_variables
        if shares.shape != (n, n):
            raise ValueError(f"stability must have shape ({n}, {n}), one number for each pair, got {shares.shape}")
        return np.clip(shares[tuple(self.model.edges.T)], 0.0, 1.0)

    def _sizes(self) -> FloatArray:
        """The Frobenius norm of the table of every edge."""
        edges = np.repeat(np.arange(self.model.num_edges), np.diff(self.model.pairwise_offsets))
        return np.sqrt(np.bincount(edges, self.model.log_pairwise**2, self.model.num_edges))

    def title(self) -> str:
        """The objective."""
        return self.objective

    def facts(self) -> dict[str, str]:
        """The norm of the model, the penalties, and how well the fit did, as far as it is known."""
        known = {"norm": self.norms["spectral"], **{name: getattr(self, name) for name in NUMBERS}}
        return {name.replace("_", " "): f"{value:.4g}" for name, value in known.items() if value is not None}

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """The edges with the largest tables."""
        columns = self.columns()
        largest = np.argsort(-columns["size"], kind="stable")[:NUM_SHOWN_EDGES]
        rows = [(columns["first"][e], columns["second"][e], f"{columns['size'][e]:.4g}") for e in largest]
        more = self.model.num_edges - len(rows)
        if more > 0:
            rows.append((f"and {more:,} more", "", ""))
        return ("edge", "", "size"), rows

    def contents(self) -> dict[str, Any]:
        """All that is known of the fit; the model is left out."""
        return {
            **{name: getattr(self, name) for name in FACTS},
            "num_variables": self.model.num_variables,
            "num_edges": self.model.num_edges,
            "within": None if self.within is None else {"norm": self.within.norm, "bound": self.within.bound},
            "norms": self.norms,
        }
