"""The set that a model is learnt in, and what learning gives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import check_choice, check_positive, keep_checked
from fastmix.model import MarkovRandomField
from fastmix.results import Framed, Status, as_plain
from fastmix.theory import norms

__all__ = ["LearnResult", "NormBall", "WidthBall", "ball_by_name"]

_SHOWN = 10  # edges in a notebook
# Of a result, in a notebook, and in its JSON.
_NUMBERS = ("ridge", "l1", "moment_error", "bias_bound", "validation_log_likelihood")
_FACTS = ("objective", "moments", "value", "num_rows", *_NUMBERS, "seed")
_ADVICE = {
    Status.NOT_CONVERGED: "The optimum was not reached: allow more time_limit or max_iter, or a larger ridge or tol.",
    Status.NOT_MIXED: "The chains did not follow the model: take tempered moments, a larger ridge or a set to stay in.",
}


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


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult(Framed):
    """A model fitted to data, and what is known about the fit.

    Attributes
    ----------
    model : MarkovRandomField
        With the names of the data; its vectors and tables add up to 0 over every index. Hidden variables come last.
    objective : str
        ``likelihood`` or ``pseudo-likelihood``.
    moments : str
        How moments of the model were found: ``closed form``, ``enumeration``, ``junction tree``, ``sampled`` or
        ``tempered`` (sampled by replica exchange); ``none`` for the pseudo-likelihood.
    status : Status
        ``not_converged`` if the optimum was not reached, ``not_mixed`` if the chains did not follow the model.
    value : float or None
        The objective that was minimised, penalties included; None where it was sampled.
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
    seed : int
    history : list of dict
        An entry for every iteration: seconds since the call, ``moment_error``, length of the ``step`` and ``norms`` of
        the model (exact objectives: after 1, 4, 16, .. iterations); exact objectives have their ``value`` and
        ``gradient_norm``, sampled ones what is left to gain (``gap``), its ``noise``, ``num_sweeps``, ``bias_bound``.
    stats, provenance : mapping
    """

    model: MarkovRandomField
    objective: str
    moments: str
    status: Status
    value: float | None
    ridge: float
    l1: float
    within: NormBall | None
    norms: Mapping[str, float]
    moment_error: float | None
    bias_bound: float | None
    validation_log_likelihood: float | None
    num_rows: int
    seed: int
    history: list[dict[str, Any]] = field(default_factory=list)
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return (
            f"LearnResult({self.objective}, status={str(self.status)!r}, ridge={self.ridge:g}, l1={self.l1:g}, "
            f"spectral norm {self.norms['spectral']:.3g}, {self.model})"
        )

    @property
    def advice(self) -> str:
        """What the status means for a fit, in one sentence."""
        return _ADVICE.get(self.status, self.status.advice)

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: of every edge its variables, and the Frobenius norm of its table.

        Of an Ising coupling that is ``2 |J|``.
        """
        names = self.model.names_of_variables()
        first, second = ([names[i] for i in self.model.edges[:, k]] for k in (0, 1))
        return {"first": first, "second": second, "size": self._sizes()}

    def plot(self, axes: Any = None, *, kind: Literal["edges", "history"] = "edges") -> Any:
        """The sizes of all edges, or the way of the fit, as a picture (Matplotlib, extra ``plot``); the axes come back.

        Parameters
        ----------
        axes : matplotlib Axes, optional
            Of a new figure by default.
        kind : {"edges", "history"}
            ``history``: the moment error of every iteration; the gradient of pseudo-likelihoods, which have none.
        """
        check_choice("kind", kind, ("edges", "history"))
        axes = _show.new_axes(axes)
        axes.set_title(f"{self.objective} ({self.status})")
        if kind == "edges":
            from scipy.sparse import coo_array

            (i, j), sizes, n = self.model.edges.T, self._sizes(), self.model.num_variables
            both = coo_array((np.r_[sizes, sizes], (np.r_[i, j], np.r_[j, i])), shape=(n, n))
            return _show.matrix(axes, both, label="size")
        name = "gradient_norm" if self.objective == "pseudo-likelihood" else "moment_error"
        values = [math.nan if entry[name] is None else entry[name] for entry in self.history]
        return _show.curve(axes, values, xlabel="iteration", ylabel=name.replace("_", " "))

    def _sizes(self) -> FloatArray:
        edges = np.repeat(np.arange(self.model.num_edges), np.diff(self.model.pairwise_offsets))
        return np.sqrt(np.bincount(edges, self.model.log_pairwise**2, self.model.num_edges))

    def _repr_html_(self) -> str:
        facts: list[tuple[str, Any]] = [("status", self.status), ("objective", self.objective)]
        known = {"norm": self.norms["spectral"], **{name: getattr(self, name) for name in _NUMBERS}}
        facts += [(name.replace("_", " "), f"{value:.4g}") for name, value in known.items() if value is not None]
        columns = self.columns()
        largest = np.argsort(-columns["size"], kind="stable")[:_SHOWN]
        rows = [(columns["first"][e], columns["second"][e], f"{columns['size'][e]:.4g}") for e in largest]
        if (more := self.model.num_edges - len(rows)) > 0:
            rows.append((f"and {more:,} more", "", ""))
        return _show.html_table(repr(self.model), facts, rows, ("edge", "", "size"))

    def to_dict(self) -> dict[str, Any]:
        """The result without the model as plain data, the shape of the command line's JSON."""
        sizes = {"num_variables": self.model.num_variables, "num_edges": self.model.num_edges}
        within = None if self.within is None else {"norm": self.within.norm, "bound": self.within.bound}
        return as_plain(self, " ".join(_FACTS), **sizes, within=within, norms=self.norms)
