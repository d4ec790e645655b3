"""The result of :func:`fastmix.certify`, and what it is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix.results import Result
from fastmix.theory.bias import Schedule
from fastmix.theory.dependency import Dependency, dependency_matrix
from fastmix.theory.norms import Norm
from fastmix.theory.tuning import MAX_UPDATES

__all__ = ["Certificate", "CertificateRequest"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Certificate(Result):
    """The number of sweeps that brings Gibbs sampling to an accuracy, or why no number can be promised.

    Attributes
    ----------
    certified : bool
        Whether ``num_sweeps`` is a promise. It is made for chains of the named schedule from any start whose states
        have a finite unary.
    accuracy : float
        The total variation distance asked for.
    per_variable : bool
        Whether the accuracy is that of each marginal, rather than of the joint distribution.
    schedule : {"systematic", "random"}
        A sweep updates every variable once in a fixed order, or n variables chosen independently.
    num_sweeps : int or None
        Sweeps after which the accuracy is reached, for this model and schedule; None if not certified. A sweep of
        random updates is n of them.
    num_updates : int or None
        Random updates after which the theorem promises the accuracy for the joint distribution (Dobrushin's criterion:
        ``n ln(n / accuracy) / (1 - norm_value)``); None if there is no such number.
    dependency : str or None
        The bound on R that was used; None, as the norm, where the criterion needs no R.
    norm, norm_value : str or None, float
        Name and value of a norm of the bound on R, rounded up; infinite where some states of the neighbors of a
        variable forbid every state of it, so that Gibbs sampling is undefined.
    bias, max_bias, total_bias : float array (n,), float, float
        Bounds on the total variation distance of every marginal after ``num_sweeps`` (if not certified, after the
        ``num_iterated`` sweeps in ``stats``), the largest of them, and the bound for the joint distribution.
    offending : tuple of (int, float)
        Variables whose row of R sums up to 1 or more, each with the sum, the largest first, at most 10 of them.
    statement : str
        The promise in words, or why nothing can be promised and the way out; also :attr:`advice`.
    status : Status
        ``ok`` if certified, else ``not_converged``: the bias did not fall to the accuracy.
    stats, provenance : mapping
        The sweeps iterated, the origin of ``num_sweeps`` (``method``: the ``iteration`` itself, or ``geometric`` decay
        at the rate of the norm from where it stopped), seconds; version, options, model hash.
    criterion, valid_for : str
        Name of the criterion that the certificate rests on; updates that the promise is for, ``systematic`` or
        ``random``.
    constant, form, width : float or None, str or None, float or None
        The constant C of a criterion for random updates, whether it is one of ``entropy`` or of ``variance``, and an
        upper bound on the width of the couplings where the criterion uses it.
    margin : float or None
        The largest factor found by which all couplings could grow with the model still certified, if asked for.
    others : tuple of dict
        The answers of the other criteria: ``criterion``, ``certified``, ``num_updates``, ``reason``.
    model : MarkovRandomField
        The model that was certified: with evidence, the model of the other variables.
    """

    certified: bool
    accuracy: float
    per_variable: bool
    schedule: str
    bias: FloatArray
    max_bias: float
    total_bias: float
    statement: str
    num_sweeps: int | None = None
    num_updates: int | None = None
    dependency: str | None = None
    norm: str | None = None
    norm_value: float = math.nan
    offending: tuple[tuple[int, float], ...] = ()
    criterion: str = "dobrushin"
    constant: float | None = None
    form: str | None = None
    width: float | None = None
    margin: float | None = None
    valid_for: str = "systematic"
    others: tuple[Mapping[str, Any], ...] = ()

    def __repr__(self) -> str:
        """The verdict, the accuracy and the criterion; the number of sweeps if certified."""
        if not self.certified:
            return f"Certificate(certified=False, accuracy={self.accuracy:g}, criterion={self.criterion!r})"
        what = "random" if self.valid_for == "random" else self.schedule
        return (
            f"Certificate(certified=True, accuracy={self.accuracy:g}, criterion={self.criterion!r}, "
            f"num_sweeps={self.num_sweeps}, schedule={what!r})"
        )

    def title(self) -> str:
        """The name of the criterion, as a heading."""
        return f"certificate by {self.criterion}"

    @property
    def advice(self) -> str:
        """The :attr:`statement`, which names the way out where nothing can be promised."""
        return self.statement

    @property
    def strongest(self) -> list[tuple[str, float]]:
        """Names (or numbers) of the variables of ``offending``, each with the sum of its row of R."""
        names = self.model.variable_names
        return [(str(i) if names is None else names[i], total) for i, total in self.offending]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: the sum of every variable's row of R, and the bound on its bias."""
        sums = np.asarray(self._matrix().sum(axis=1)).reshape(-1)
        return {"variable": list(self.model.names_of_variables()), "row_sum": sums, "bias": self.bias}

    def plot(self, axes: Any = None) -> Any:
        """Axes with a picture of the bound on R, or of the sums of its rows if there are many (extra ``plot``)."""
        axes = super().plot(axes)
        axes.set_title("certified" if self.certified else "not certified")
        return _show.matrix(axes, self._matrix(), label=f"R ({self.dependency or 'sigmoid'})")

    def _matrix(self) -> Any:
        """The bound on R as a sparse matrix (n, n)."""
        return dependency_matrix(self.model, dependency=cast("Any", self.dependency or "sigmoid"))

    def facts(self) -> dict[str, str]:
        """The verdict, the criterion, the norm of R and the number of sweeps, as texts by name."""
        known = {"certified": "yes" if self.certified else "no", "criterion": self.criterion}
        if self.norm is not None:
            known["norm of R"] = f"{self.norm_value:.6g} ({self.norm}, {self.dependency})"
        if self.num_sweeps is not None:
            known["sweeps"] = f"{self.num_sweeps:,} for accuracy {self.accuracy:g}"
        return known

    def shown_rows(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Headings and rows of a table of the variables with the strongest dependencies."""
        return ("variable", "sum of its row of R"), [(name, f"{value:.4g}") for name, value in self.strongest]

    def contents(self) -> dict[str, Any]:
        """All fields of the promise by name; biases are None where nothing is certified."""
        names = (
            "certified", "accuracy", "per_variable", "schedule", "num_sweeps", "num_updates", "dependency", "norm",
            "norm_value", "criterion", "constant", "form", "width", "margin", "valid_for", "others",
        )  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        for name in ("max_bias", "total_bias", "bias"):
            found[name] = getattr(self, name) if self.certified else None
        found["offending"] = [{"variable": i, "row_sum": value} for i, value in self.offending]
        return found


@dataclass(frozen=True)
class CertificateRequest:
    """The checked arguments of :func:`fastmix.certify`."""

    accuracy: float
    dependency: Dependency = "sigmoid"
    norm: Norm | None = None
    schedule: Schedule | None = None
    per_variable: bool = False
    order: ArrayLike | None = None
    max_sweeps: int = 20_000
    max_updates: float | None = None
    margin: bool = False

    @property
    def systematic(self) -> bool:
        """Whether the promise must hold for updates in a fixed order."""
        return self.schedule == "systematic" or self.order is not None

    @property
    def sweep_schedule(self) -> Schedule:
        """The order of updates that Dobrushin's criterion is asked about."""
        return self.schedule or "systematic"

    @property
    def budget(self) -> float:
        """Random updates up to which a criterion for these counts as a certificate."""
        return MAX_UPDATES if self.max_updates is None else float(self.max_updates)
