"""Certified mixing times: how many sweeps of Gibbs sampling bring a model to a given accuracy, from any start.

Everything rests on a bound on the dependency matrix R (:mod:`fastmix.theory.dependency`). Let two chains be run with
the same schedule, one from any start and one in equilibrium, coupled as well as possible at each update, and let
``delta_i`` bound the probability that they differ at variable i. An update of i turns ``delta_i`` into at most
``min(1, sum_j R_ij delta_j)``, so iterating this from ``delta = 1`` bounds the bias of a sampler for the model at
hand (Dobrushin 1970; Hayes 2006; Dyer, Goldberg and Jerrum 2009, "Matrix norms and rapid mixing for spin systems").
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastmix._checks import check_accuracy, check_choice, check_count
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import UnfitMethodError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.results import Status, jsonable, provenance
from fastmix.theory import norms
from fastmix.theory.criteria import (
    CRITERIA,
    Criterion,
    Finding,
    largest_factor,
    num_random_updates,
    scale_couplings,
    scaled_finding,
)
from fastmix.theory.dependency import (
    DEPENDENCIES,
    Dependency,
    edge_dependencies,
    rounding_margins,
    to_matrix,
    undefined_conditional,
)
from fastmix.theory.norms import Norm

__all__ = ["Certificate", "Schedule", "bias_after", "certify", "safe_matrix"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

Schedule = Literal["systematic", "random"]

_EPS = float(np.finfo(np.float64).eps)
_MAX_VISITS = 3e9  # entries of R that one certificate may visit: about six seconds
_VISITS_AT_ONCE = 5e7  # a tenth of a second: the clock is read between
_SMALLEST_ENTRY = 1e-50  # positive entries of R are raised to this, so that products with delta do not vanish
_LARGEST_ENTRY = 1e300  # infinite ones are cut to this: any positive delta times it is still above 1
_BLOCK_SWEEPS = 50  # without a norm below 1, the sum of delta must fall by a thousandth in this many sweeps
_NUM_OFFENDING = 10
_MAX_UPDATES = 5e9  # about a minute of sampling
_INSTEAD = "The way out is exact inference or loopy belief propagation: fastmix.infer or `fastmix infer` chooses."


@dataclass(frozen=True, eq=False)
class Certificate:
    """How many sweeps bring Gibbs sampling to an accuracy, or why no number can be promised.

    Attributes
    ----------
    certified : bool
        Whether ``num_sweeps`` is a promise. It is made for chains of the named schedule from any start whose states
        have a finite unary.
    accuracy : float
        The total variation distance asked for.
    per_variable : bool
        Whether each marginal is meant, rather than the joint distribution.
    schedule : {"systematic", "random"}
        A sweep updates every variable once in a fixed order, or n variables chosen independently.
    num_sweeps : int or None
        Sweeps after which the accuracy is reached, for this model and schedule; None if not certified.
    num_updates : int or None
        Random updates after which the theorem promises the accuracy for the joint distribution: for Dobrushin's
        criterion ``n ln(n / accuracy) / (1 - norm_value)``, None if the norm is not below 1; for the others see
        :func:`fastmix.theory.criteria.num_random_updates`, None if not certified.
    dependency : str or None
        The bound on R; None, as the norm, where R was not asked for.
    norm, norm_value : str or None, float
        A norm of the bound on R, from above; infinite where some states of the neighbours of a variable forbid every
        state of it, so that Gibbs sampling is undefined.
    bias : float array (n,)
        Bounds on the total variation distance of every marginal after ``num_sweeps`` (if not certified, after the
        ``num_iterated`` sweeps in ``stats``).
    max_bias, total_bias : float
        The largest of them, and the bound on the distance of the joint distribution.
    offending : tuple of (int, float)
        Variables whose row of R sums up to 1 or more, and the sums, the largest first, at most 10 of them.
    advice : str
        What the certificate says, or the way out.
    stats, provenance : mapping
        Sweeps iterated, where ``num_sweeps`` comes from (``method``: the ``iteration`` itself, or ``geometric`` decay
        at the rate of the norm from where it stopped), seconds; version, options, model hash.
    criterion : str
        What the certificate rests on.
    constant, form : float or None, str or None
        The constant C of a criterion for random updates, and whether it is one of ``entropy`` or of ``variance``.
    width : float or None
        The width of the couplings, from above, where the criterion uses it.
    margin : float or None
        The largest factor found by which all couplings could grow with the model still certified; None if not asked
        for.
    valid_for : {"systematic", "random"}
        The updates that the promise is for.
    others : tuple of dict
        What the other criteria said: ``criterion``, ``certified``, ``num_updates``, ``reason``.
    """

    certified: bool
    accuracy: float
    per_variable: bool
    schedule: str
    num_sweeps: int | None
    num_updates: int | None
    dependency: str | None
    norm: str | None
    norm_value: float
    bias: FloatArray
    max_bias: float
    total_bias: float
    offending: tuple[tuple[int, float], ...]
    advice: str
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    criterion: str = "dobrushin"
    constant: float | None = None
    form: str | None = None
    width: float | None = None
    margin: float | None = None
    valid_for: str = "systematic"
    others: tuple[Mapping[str, Any], ...] = ()

    @property
    def status(self) -> Status:
        """``ok`` if certified, else ``not_converged``: the bias did not fall to the accuracy."""
        return Status.OK if self.certified else Status.NOT_CONVERGED

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain Python data, the shape of the command line's JSON."""
        names = (
            "accuracy",
            "per_variable",
            "schedule",
            "num_sweeps",
            "num_updates",
            "dependency",
            "norm",
            "norm_value",
        )
        biases = ("max_bias", "total_bias", "bias")
        return {
            "certified": self.certified,
            "status": str(self.status),
            **{name: jsonable(getattr(self, name)) for name in names},
            **{name: jsonable(getattr(self, name)) if self.certified else None for name in biases},
            "offending": [{"variable": i, "row_sum": jsonable(value)} for i, value in self.offending],
            "advice": self.advice,
            "seconds": self.stats.get("seconds"),
            "stats": jsonable(dict(self.stats)),
            "provenance": jsonable(dict(self.provenance)),
            "criterion": self.criterion,
            "constant": jsonable(self.constant),
            "form": self.form,
            "width": jsonable(self.width),
            "margin": jsonable(self.margin),
            "valid_for": self.valid_for,
            "others": [jsonable(dict(other)) for other in self.others],
        }


def certify(
    model: MarkovRandomField,
    *,
    accuracy: float,
    criterion: str = "auto",
    dependency: Dependency = "sigmoid",
    norm: Norm | None = None,
    schedule: Schedule | None = None,
    per_variable: bool = False,
    order: ArrayLike | None = None,
    evidence: Evidence | None = None,
    max_sweeps: int = 20_000,
    max_updates: float | None = None,
    margin: bool = False,
    time_limit: float | None = None,
) -> Certificate:
    """A :class:`Certificate`: the number of Gibbs sweeps or random updates that reach an accuracy from any start.

    Dobrushin's criterion bounds sweeps in a fixed order, too. ``width``, ``path`` and ``split`` cover stronger
    couplings, for updates of variables chosen at random only (see docs/theory.md).

    For ``dobrushin`` the number is the smallest t for which the iteration of :func:`bias_after` gives ``sum_i delta_i
    <= accuracy`` (``max_i delta_i <= accuracy`` with ``per_variable``), never above the theorem's number for the same
    R. Where the iteration takes too long and the norm r of R is below 1, the bias falls at least by the factor r
    per sweep (exp(r - 1) for random updates) from where the iteration stopped, and the number follows from that.

    Parameters
    ----------
    model : MarkovRandomField
    accuracy : float
        Total variation distance to reach, above 0 and below 1.
    criterion : {"auto", "dobrushin", "width", "path", "split"}
        ``width`` suits dense models of mixed signs and any numbers of states, ``path`` sparse binary ones, ``split``
        models with few strong couplings among many weak ones. ``auto`` asks all that apply and returns the one with
        the fewest updates, Dobrushin's where none is certified; ``others`` holds what the rest said. Further names
        are those of :func:`fastmix.theory.criteria.register_criterion`.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Dependency on R, see :func:`fastmix.theory.edge_dependencies`.
    norm : {"spectral", "inf", "1", "frobenius"}, optional
        Norm for the theorem; without it the smallest.
    schedule : {"systematic", "random"}, optional
        A sweep updates every variable once in a fixed order, or n variables chosen uniformly, with replacement.
        Without it Dobrushin's criterion is asked for systematic sweeps, and the others for random updates.
    per_variable : bool
        Ask for the accuracy of each marginal instead of the joint distribution.
    order : int array (n,), optional
        Order of a systematic sweep, every variable once; by default 0, 1, .., n - 1. The certificate holds for chains
        that sweep in this order: :func:`fastmix.sample` visits one color of the graph after another,
        ``model.structure.visit_order[0]``, for which the number can differ.
    evidence : mapping, optional
        Observed state by variable: the certificate is that of the other variables given these, numbered anew.
    max_sweeps : int
        Limit of the iteration (beside one of about 3e9 visits of entries of R), not of ``num_sweeps``.
    max_updates : float, optional
        More updates than this count as not certified. By default 5e9, about a minute of sampling, for the criteria of
        random updates, and no limit for Dobrushin's; ``math.inf`` is allowed.
    margin : bool
        Whether to search for the largest factor by which all couplings could grow.
    time_limit : float, optional
        Seconds for norm and iteration, after which the certificate is what follows from where they are: a larger number
        of sweeps, or none. The dependencies themselves take their time.

    Returns
    -------
    Certificate
        With ``certified`` false, and the reason in ``advice``, when nothing can be promised.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``schedule="systematic"`` is asked of another criterion than Dobrushin's.
    UnfitMethodError
        If the criterion does not apply to the model.
    ResourceError
        If ``dependency="exact"`` is too large to enumerate.

    Notes
    -----
    A sweep of the iteration costs one visit of each entry of R, about 2 ns; random sweeps about 20 times that.
    Rounding is on the safe side throughout.

    For a start from 1 the iteration falls monotonically, so a sweep in any order is at most ``R delta``, and after t
    sweeps ``sum_i delta_i <= 1^T R^t 1 <= n r^t`` for each of the norms r: this is how the theorem (Dyer, Goldberg
    and Jerrum 2009, Lemma 17; Theorem 4 of Liu and Domke 2014), stated for random updates, also bounds
    ``num_sweeps`` of a systematic schedule by ``num_updates / n``.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (3, 0)], coupling=0.3, field=0.1)
    >>> certificate = certify(model, accuracy=0.01)
    >>> certificate.certified, certificate.num_sweeps, certificate.num_updates
    (True, 7, 58)
    >>> certify(model, accuracy=0.01, schedule="random").num_sweeps
    14
    >>> certificate.criterion, [other["criterion"] for other in certificate.others]
    ('dobrushin', ['width', 'path', 'split'])
    >>> strong = MarkovRandomField.ising([(0, 1), (1, 2), (2, 3), (3, 0)], coupling=2.0)
    >>> certify(strong, accuracy=0.01).certified
    False
    """
    clock = Clock(time_limit)
    check_model(model)
    if evidence is not None:
        model = model.condition(evidence)
    level = check_accuracy(accuracy)
    check_choice("criterion", criterion, ("auto", "dobrushin", *CRITERIA))
    check_choice("dependency", dependency, DEPENDENCIES)
    if norm is not None:
        check_choice("norm", norm, norms.NORMS)
    if schedule is not None or order is not None:
        _check_schedule(schedule or "systematic", order, model.num_variables)
    limit = check_count("max_sweeps", max_sweeps, least=1)
    if max_updates is not None and not max_updates > 0:
        raise ValueError(f"max_updates must be above 0, got {max_updates}")
    systematic = schedule == "systematic" or order is not None
    if systematic and criterion not in ("auto", "dobrushin"):
        raise ValueError(
            f"schedule must be 'random' for criterion={criterion!r}, which says nothing about systematic sweeps; only "
            "criterion='dobrushin' does"
        )
    options: dict[str, Any] = {
        "accuracy": level,
        "criterion": criterion,
        "dependency": dependency,
        "norm": norm,
        "schedule": schedule,
        "per_variable": bool(per_variable),
        "order": None if order is None else "given",
        "evidence": None if evidence is None else {str(variable): state for variable, state in evidence.items()},
        "max_sweeps": limit,
        "max_updates": max_updates,
    }
    found: list[Certificate] = []
    others: dict[str, dict[str, Any]] = {}
    if criterion in ("auto", "dobrushin"):
        share = clock if criterion == "dobrushin" else clock.part(0.5)
        plain = _dobrushin(
            model, level, dependency, norm, schedule or "systematic", bool(per_variable), order, limit, share
        )
        if max_updates is not None and plain.certified and _updates(plain) > max_updates:
            advice = f"Not certified: {_updates(plain):.3g} updates are more than max_updates, {max_updates:.3g}."
            plain = replace(plain, certified=False, num_sweeps=None, advice=advice)
        if margin:
            plain = replace(plain, margin=_dobrushin_margin(model, dependency))
        found.append(plain)
        others["dobrushin"] = _said(plain)
    budget = _MAX_UPDATES if max_updates is None else float(max_updates)
    reduced = model.drop_forbidden_states() if model.has_forbidden else model
    for name in CRITERIA if criterion == "auto" else [criterion] if criterion in CRITERIA else []:
        why = "it says nothing about systematic sweeps" if systematic else CRITERIA[name].unfit(reduced)
        if why is not None:
            if criterion == name:
                raise UnfitMethodError(f"criterion={name!r} does not apply: {why}")
            others[name] = {
                "criterion": name,
                "certified": False,
                "num_updates": None,
                "reason": f"does not apply: {why}",
            }
            continue
        certificate = _by_criterion(CRITERIA[name], model, reduced, level, bool(per_variable), budget, margin, clock)
        found.append(certificate)
        others[name] = _said(certificate)
    certified = [certificate for certificate in found if certificate.certified]
    best = min(certified, key=_updates) if certified else found[0]
    if best.criterion != "dobrushin" and found[0].criterion == "dobrushin":
        # What is known of R stays with the answer.
        first = found[0]
        best = replace(best, dependency=first.dependency, norm=first.norm, norm_value=first.norm_value)
        best = replace(best, offending=first.offending)
    rest = tuple(said for name, said in others.items() if name != best.criterion)
    return replace(best, others=rest, stats={**best.stats, **clock.stats()}, provenance=provenance(model, **options))


def _updates(certificate: Certificate) -> float:
    """Updates that a certified answer takes."""
    if certificate.num_sweeps is not None:
        return float(certificate.num_sweeps) * len(certificate.bias)
    return float(certificate.num_updates or 0)


def _said(certificate: Certificate) -> dict[str, Any]:
    """What a certificate says, among the others."""
    return {
        "criterion": certificate.criterion,
        "certified": certificate.certified,
        "num_updates": int(_updates(certificate)) if certificate.certified else None,
        "reason": certificate.advice,
    }


def _by_criterion(
    criterion: Criterion,
    model: MarkovRandomField,
    reduced: MarkovRandomField,
    accuracy: float,
    per_variable: bool,
    budget: float,
    margin: bool,
    clock: Clock,
) -> Certificate:
    """The certificate of a criterion for random updates; ``reduced`` is the model without forbidden states."""
    finding = criterion.find(reduced, clock=clock)

    def updates(finding: Finding, factor: float = 1.0) -> float:
        return num_random_updates(scale_couplings(model, factor) if factor != 1.0 else model, finding, accuracy)

    number = updates(finding)
    certified = number <= budget and number < math.inf
    if certified:
        advice = (
            f"After {int(number):,} random updates from any start, the joint distribution is within {accuracy:g} of "
            f"the model's in total variation: {finding.reason}."
        )
    elif finding.log_constant < math.inf:
        size = f"{number:.3g}" if number < math.inf else f"e^{finding.log_constant:.0f} and more"
        advice = f"Not certified: {size} random updates are more than max_updates, {budget:.3g}: {finding.reason}."
    else:
        advice = f"Not certified: {finding.reason}."
    factor = None
    if margin:
        factor = largest_factor(
            lambda f: updates(scaled_finding(criterion, finding, reduced, f), f) <= min(budget, 1e300)
        )
    bias = np.full(model.num_variables, accuracy if certified else 1.0)
    bias.setflags(write=False)
    constant = math.exp(finding.log_constant) if finding.log_constant < 700.0 else math.inf
    return Certificate(
        certified=certified,
        accuracy=accuracy,
        per_variable=per_variable,
        schedule="random",
        num_sweeps=None,
        num_updates=int(number) if certified else None,
        dependency=None,
        norm=None,
        norm_value=math.nan,
        bias=bias,
        max_bias=accuracy if certified else 1.0,
        total_bias=accuracy if certified else 1.0,
        offending=(),
        advice=advice,
        stats={"method": criterion.name if certified else None, "num_iterated": 0},
        criterion=criterion.name,
        constant=constant,
        form=finding.form,
        width=finding.width,
        margin=factor,
        valid_for="random",
    )


def _dobrushin_margin(model: MarkovRandomField, dependency: Dependency) -> float:
    """The largest factor of all couplings with a norm of R below 1."""
    return largest_factor(lambda f: norms.smallest_norm(safe_matrix(scale_couplings(model, f), dependency))[1] < 1.0)


def _dobrushin(
    model: MarkovRandomField,
    level: float,
    dependency: Dependency,
    norm: Norm | None,
    schedule: Schedule,
    per_variable: bool,
    order: ArrayLike | None,
    limit: int,
    clock: Clock,
) -> Certificate:
    """The certificate of Dobrushin's criterion, by the iteration of :func:`bias_after` and a norm."""
    n = model.num_variables
    order_array = _check_schedule(schedule, order, n)
    matrix = safe_matrix(model, dependency)
    undefined = undefined_conditional(model)
    if norm is None:
        name, value = norms.smallest_norm(matrix, clock=clock)
    else:
        name, value = norm, norms.matrix_norm(matrix, norm, clock=clock)
    if undefined is not None:
        value = math.inf
    run = _Iteration(matrix, schedule, order_array, _MAX_VISITS, clock)
    target = _Target(n, level, per_variable)
    decay = _Decay(n, name, value, schedule) if value < 1.0 else None
    reached = n == 0
    if decay is not None and not reached:
        # The theorem's number is valid too: the iteration could pass it by rounding only.
        cap = decay.sweeps(np.ones(n), target)
        reached = run.advance(min(limit, cap), target)
        num_sweeps = run.num_sweeps if reached else min(run.num_sweeps + decay.sweeps(run.delta, target), cap)
    else:
        while value < math.inf and not reached and run.num_sweeps < limit and not run.exhausted:
            before = float(run.delta.sum())
            reached = run.advance(min(_BLOCK_SWEEPS, limit - run.num_sweeps), target)
            if float(run.delta.sum()) > 0.999 * before:
                break
        num_sweeps = run.num_sweeps
    certified = reached or decay is not None

    bias = run.delta
    total = target.total(bias)
    if decay is not None and not reached:
        # What was promised holds besides; an entry is never above the sum.
        bias = np.minimum(bias, min(level, decay.after(num_sweeps, entry=True)))
        total = min(target.total(bias), decay.after(num_sweeps), math.inf if per_variable else level)
    bias.setflags(write=False)
    certificate = Certificate(
        certified=certified,
        accuracy=level,
        per_variable=per_variable,
        schedule=schedule,
        num_sweeps=num_sweeps if certified else None,
        num_updates=None if decay is None else _theorem_updates(n, value, level),
        dependency=dependency,
        norm=name,
        norm_value=value,
        bias=bias,
        max_bias=float(bias.max(initial=0.0)),
        total_bias=min(1.0, total),
        offending=_offending(matrix) if undefined is None else ((undefined[0], math.inf),),
        advice="",
        stats={
            "method": "iteration" if reached else "geometric" if certified else None,
            "num_iterated": run.num_sweeps,
            "num_entries": int(matrix.nnz),
            **clock.stats(),
        },
        valid_for=schedule,
    )
    if undefined is not None:
        advice = f"Not certified: {undefined[1]}, so Gibbs sampling is undefined. {_INSTEAD}"
    else:
        advice = _advice(certificate, run.exhausted or run.num_sweeps == limit)
    return replace(certificate, advice=advice)


def bias_after(
    model_or_R: Any,
    num_sweeps: int,
    *,
    schedule: Schedule = "systematic",
    order: ArrayLike | None = None,
    dependency: Dependency = "sigmoid",
) -> FloatArray:
    """Bounds on the bias of every variable's marginal after a number of Gibbs sweeps from any start.

    From ``delta = 1``, a systematic sweep sets ``delta_i <- min(1, sum_j R_ij delta_j)`` in place, one variable after
    another; a random update replaces delta by ``(1 - 1/n) delta + R delta / n``, and n of them, a random sweep,
    by ``sum_k w_k R^k delta`` with binomial weights w, cut at 1. The sum of the result bounds the total
    variation distance of the joint distribution.

    Parameters
    ----------
    model_or_R : MarkovRandomField, or scipy.sparse array or array_like (n, n)
        A model, or a non-negative matrix that bounds its R.
    num_sweeps : int
        At least 0.
    schedule : {"systematic", "random"}
    order : int array (n,), optional
        Order of a systematic sweep, every variable once.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Dependency on R of a model.

    Returns
    -------
    float array (n,)
        Between 0 and 1, falling with the number of sweeps.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.5)
    >>> bias_after(model, 1).round(4).tolist()
    [0.4621, 0.6757, 0.3122]
    >>> bias_after(model, 5).round(4).tolist()
    [0.0243, 0.0225, 0.0104]
    """
    if isinstance(model_or_R, MarkovRandomField):
        check_choice("dependency", dependency, DEPENDENCIES)
        matrix = safe_matrix(model_or_R, dependency)
    else:
        matrix = _inflate(norms._as_nonnegative(model_or_R)[0])
    run = _Iteration(matrix, schedule, _check_schedule(schedule, order, matrix.shape[0]), math.inf)
    run.advance(check_count("num_sweeps", num_sweeps, least=0), None)
    return run.delta


# -- arguments ------------------------------------------------------------------------------------------------------


def _check_schedule(schedule: object, order: ArrayLike | None, n: int) -> IntArray:
    check_choice("schedule", schedule, get_args(Schedule))
    if order is None:
        return np.arange(n)
    if schedule != "systematic":
        raise ValueError(f"order must be left out for schedule={schedule!r}: it is the order of a systematic sweep")
    array = np.asarray(order)
    if array.shape != (n,) or (n and array.dtype.kind not in "iu"):
        raise ValueError(f"order must hold {n} variable numbers, got shape {array.shape} of {array.dtype}")
    array = array.astype(np.int64)
    if not np.array_equal(np.sort(array), np.arange(n)):
        raise ValueError(f"order must hold every variable from 0 to {n - 1} once")
    return array


# -- the matrix, from above -----------------------------------------------------------------------------------------


def safe_matrix(model: MarkovRandomField, dependency: Dependency) -> Any:
    """The bound on R with all rounding on the safe side, that of the sums ``R delta`` to come included.

    Where a conditional is undefined, so is the chain, and nothing is known about it: ones on the diagonal keep every
    bias at 1.
    """
    values = edge_dependencies(model, dependency=dependency)
    values += rounding_margins(model, dependency=dependency)
    if dependency in ("exact", "field"):
        # Their margin is the wider one, so that weak dependencies may be known better from the formula.
        formula = edge_dependencies(model, dependency="sigmoid")
        formula += rounding_margins(model, dependency="sigmoid")
        np.minimum(values, formula, out=values)
    matrix = to_matrix(model, values)
    if undefined_conditional(model) is not None:
        from scipy.sparse import csr_array, eye

        matrix = csr_array(matrix + eye(model.num_variables))
    return _inflate(matrix)


def _inflate(matrix: Any) -> Any:
    # A sum of d products is short by at most d eps; tanh, quotients and this product are within another 8.
    result = matrix.copy()
    result.data *= 1.0 + (int(np.diff(matrix.indptr).max(initial=0)) + 8) * _EPS
    positive = result.data > 0.0
    result.data[positive] = np.maximum(result.data[positive], _SMALLEST_ENTRY)
    return result


def _cut(matrix: Any) -> Any:
    """The matrix with infinite entries made finite, without effect on ``min(1, R delta)``."""
    if matrix.nnz and matrix.data.max() > _LARGEST_ENTRY:
        matrix = matrix.copy()
        np.minimum(matrix.data, _LARGEST_ENTRY, out=matrix.data)
    return matrix


def _offending(matrix: Any) -> tuple[tuple[int, float], ...]:
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    first = np.argsort(-sums, kind="stable")[:_NUM_OFFENDING]
    return tuple((int(i), float(sums[i])) for i in first if sums[i] >= 1.0)


# -- the iteration --------------------------------------------------------------------------------------------------


class _Target:
    """When delta is small enough."""

    def __init__(self, n: int, accuracy: float, per_variable: bool) -> None:
        self.n, self.accuracy, self.per_variable = n, accuracy, per_variable
        # Sums of n terms may be short by n eps; the limit is for the sum as computed.
        self._margin = 1.0 + (n + 4) * _EPS
        self.largest_total = math.inf if per_variable else accuracy / self._margin * (1.0 - 2.0 * _EPS)
        self.largest_entry = accuracy if per_variable else math.inf

    def total(self, delta: FloatArray) -> float:
        """The sum, from above."""
        return float(delta.sum()) * self._margin

    def holds(self, delta: FloatArray) -> bool:
        return float(delta.sum()) <= self.largest_total and float(delta.max(initial=0.0)) <= self.largest_entry


class _Iteration:
    """The vector delta under sweeps of a schedule."""

    def __init__(self, matrix: Any, schedule: str, order: IntArray, max_visits: float, clock: Clock = NO_LIMIT) -> None:
        n = matrix.shape[0]
        self.clock = clock
        self.delta = np.ones(n)
        self.num_sweeps = 0
        self._matrix, self._order, self._visits_left = _cut(matrix), order, max_visits
        self._random = _RandomSweep(self._matrix) if schedule == "random" else None
        self._cost = self._random.cost if self._random else float(matrix.nnz + n)

    @property
    def exhausted(self) -> bool:
        """Whether another sweep would cost more visits than are left, or the time is up."""
        return self._visits_left < self._cost or self.clock.past()

    def advance(self, max_sweeps: int, target: _Target | None) -> bool:
        """Sweep until the target holds, at most so often; whether it does."""
        if not len(self.delta):
            self.num_sweeps += max_sweeps
            return True
        last, reached = self.num_sweeps + max_sweeps, False
        at_once = 1 if self._random is not None else max(1, int(_VISITS_AT_ONCE / self._cost))
        while self.num_sweeps < last and not reached and not self.exhausted:
            made = int(min(at_once, last - self.num_sweeps, self._visits_left / self._cost))
            if self._random is not None:
                self.delta = self._random(self.delta)
                reached = target is not None and target.holds(self.delta)
            else:
                from fastmix.theory.certificate_kernels import sweep_in_place

                total, entry = (target.largest_total, target.largest_entry) if target else (-1.0, -1.0)
                made, reached = sweep_in_place(*self._arrays, self._order, self.delta, total, entry, made)
            self.num_sweeps += made
            self._visits_left -= made * self._cost
        return reached

    @cached_property
    def _arrays(self) -> tuple[IntArray, NDArray[np.uint32], FloatArray]:
        matrix = self._matrix
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint32), matrix.data


class _RandomSweep:
    """One sweep of n random updates, ``delta <- min(1, sum_k w_k R^k delta)`` with the rest of the series bounded.

    The weights of m updates are binomial, ``w_k = C(m, k) n^-k (1 - 1/n)^(m - k)``. With row sums of R at most c, the
    terms beyond K fall by the factor ``q = c (m - K) / ((K + 1) (n - 1))`` or faster, and
    sum up to at most ``w_K max(R^K delta) q / (1 - q)``. For large c the sweep is split into parts of fewer updates.
    """

    def __init__(self, matrix: Any) -> None:
        self._matrix, self._n = matrix, matrix.shape[0]
        row_sum = norms.matrix_norm(matrix, "inf")
        # Four times the growth of one part: series of at most 40 terms.
        num_parts = int(min(max(1.0, math.ceil(row_sum / 4.0)), max(1, self._n)))
        small, extra = divmod(self._n, num_parts)
        self._parts = [(num_parts - extra, *self._weights(small, row_sum))]
        if extra:
            self._parts.append((extra, *self._weights(small + 1, row_sum)))
        products = sum(count * len(weights) for count, weights, _ in self._parts)
        self.cost = float(products) * (matrix.nnz + 2 * self._n)

    def _weights(self, num_updates: int, row_sum: float) -> tuple[list[float], float]:
        """Weights w_0 .. w_K from above, and the factor of the largest ``R^K delta`` that bounds the rest."""
        n, m = self._n, num_updates
        if n < 2:
            return [0.0, 1.0], 0.0
        weights = [math.exp(m * math.log1p(-1.0 / n))]
        term = first = weights[0]  # w_k c^k, and w_0
        for k in range(m):
            ratio = (m - k) / ((k + 1.0) * (n - 1.0))
            q = row_sum * ratio
            if q <= 0.5 and term * q <= 1e-17 * first:
                break
            weights.append(weights[-1] * ratio)
            term *= q
        else:
            q = 0.0  # no term is left out
        # exp and log1p are off by 4 eps, each step of the recurrence by 2 eps.
        return [w * (1.0 + (8 + 4 * j) * _EPS) for j, w in enumerate(weights)], weights[-1] * 2.1 * q

    def __call__(self, delta: FloatArray) -> FloatArray:
        # For products too small for a number; without entries of R there are none.
        smallest = 1e-300 if self._matrix.nnz else 0.0
        for count, weights, rest in self._parts:
            for _ in range(count):
                power = delta
                total = weights[0] * power
                for weight in weights[1:]:
                    power = self._matrix @ power
                    total += weight * power
                total *= 1.0 + (len(weights) + 8) * _EPS
                total += rest * float(power.max()) + smallest
                # Cutting at 1 and at the bound of before loses nothing: the exact iteration falls from 1.
                delta = np.minimum(total, delta)
        return delta


class _Decay:
    """What a norm r < 1 of R alone promises: the bias falls by r a systematic, by exp(r - 1) a random sweep."""

    def __init__(self, n: int, norm: str, value: float, schedule: str) -> None:
        self._n, self._norm = n, norm
        # A hair above, for the logarithms and powers to come.
        rate = math.log(value) if value > 0.0 else -math.inf
        self._log_rate = (rate if schedule == "systematic" else value - 1.0) * (1.0 - 1e-12)

    def _start(self, delta: FloatArray, entry: bool) -> float:
        """A bound on the largest entry, or on the sum, that falls at the rate of the norm."""
        n = self._n
        if self._norm == "inf":
            size = float(delta.max())
        elif self._norm == "1":
            return float(delta.sum()) * (1.0 + (n + 8) * _EPS)
        else:
            size = float(np.sqrt(delta @ delta))
        factor = 1.0 if entry else n if self._norm == "inf" else math.sqrt(n)
        return size * factor * (1.0 + (n + 8) * _EPS)

    def sweeps(self, delta: FloatArray, target: _Target) -> int:
        """Sweeps that bring delta to the target."""
        log_ratio = math.log(self._start(delta, target.per_variable) / target.accuracy) * (1.0 + 1e-12) + 1e-12
        return max(1, math.ceil(log_ratio / -self._log_rate))

    def after(self, num_sweeps: int, *, entry: bool = False) -> float:
        """Sum of delta, or its largest entry, after so many sweeps from the start."""
        return self._start(np.ones(self._n), entry) * math.exp(num_sweeps * self._log_rate) * (1.0 + 1e-12)


def _theorem_updates(n: int, value: float, accuracy: float) -> int:
    """``n ln(n / accuracy) / (1 - norm)``, rounded up."""
    return math.ceil(n * math.log(n / accuracy) / (1.0 - value) * (1.0 + 1e-12)) if n else 0


def _advice(certificate: Certificate, exhausted: bool) -> str:
    """What a certificate without advice says, or the way out."""
    c = certificate
    if c.certified:
        what = "every marginal" if c.per_variable else "the joint distribution"
        return (
            f"After {c.num_sweeps} {c.schedule} sweeps from any start, {what} is within {c.accuracy:g} of the model's "
            "in total variation."
        )
    if c.norm_value == math.inf:
        why = f"a table forbids pairs of states (-inf), so the bound {c.dependency!r} on R is infinite"
    else:
        end = "was not small enough within the limit of" if exhausted else "stopped falling after"
        why = (
            f"the {c.norm} norm of the bound {c.dependency!r} on R is {c.norm_value:.4g}, not below 1, and the bias "
            f"{end} {c.stats['num_iterated']} sweeps"
        )
    where = f" The strongest dependencies are those of variable {c.offending[0][0]}." if c.offending else ""
    tighter: dict[str | None, str] = {
        "sigmoid": " dependency='exact' is tighter, for small degrees.",
        "exact": "",
        "field": "",
    }
    hint = tighter.get(c.dependency, " dependency='sigmoid' is tighter at no cost.")
    return (
        f"Not certified: {why}.{where}{hint} The way out is a nearby model that can be certified: "
        "fastmix.project(model, norm_bound=...) or `fastmix project`, with a norm_bound below 1."
    )
