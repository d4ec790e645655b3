"""Certified mixing times: how many sweeps of Gibbs sampling bring a model to a given accuracy, from any start.

Dobrushin's criterion is here, by the iteration of :mod:`fastmix.theory.bias`; the others are in
:mod:`fastmix.theory.criteria`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import ArrayLike

from fastmix import _show
from fastmix._arrays import FloatArray
from fastmix._checks import check_accuracy, check_choice, check_count, check_flag, check_positive
from fastmix._clock import Clock, Report, listening
from fastmix.errors import UnfitMethodError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.centre import move_constants
from fastmix.results import Framed, Status, as_plain, plain_evidence, provenance
from fastmix.theory import norms
from fastmix.theory.bias import Decay, Iteration, Schedule, Target, check_schedule, safe_matrix
from fastmix.theory.criteria import (
    CRITERIA,
    Criterion,
    Finding,
    largest_factor,
    num_random_updates,
    scale_couplings,
)
from fastmix.theory.dependency import DEPENDENCIES, Dependency, dependency_matrix, undefined_conditional
from fastmix.theory.norms import Norm

__all__ = ["DEFAULT_ACCURACY", "Certificate", "certify"]

_MAX_VISITS = 3e9  # entries of R that one certificate may visit: about six seconds
_MARGIN_VISITS = 1e8  # of one model that is scaled for the margin: a fifth of a second
_MATRIX_SHARE = 0.5  # of a time limit, for the bound on R; then tables of many states get wider ones
_BLOCK_SWEEPS = 50  # without a norm below 1, the sum of delta must fall by a thousandth in this many sweeps
_NUM_OFFENDING = 10
_MAX_UPDATES = 5e9  # about a minute of sampling
DEFAULT_ACCURACY = 0.01  # total variation distance, of Python and the command line alike
_ASK_ALL = 500  # variables up to which all criteria are asked, though Dobrushin's is the best: a fraction of a second
_INSTEAD = "The way out is exact inference or loopy belief propagation: fastmix.infer or `fastmix infer` chooses."


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Framed):
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
        Sweeps after which the accuracy is reached, for this model and schedule; None if not certified. Of a schedule of
        random updates they are the sweeps' worth of these, n updates each.
    num_updates : int or None
        Random updates after which the theorem promises the accuracy for the joint distribution (Dobrushin's criterion:
        ``n ln(n / accuracy) / (1 - norm_value)``); None if there is no such number.
    dependency : str or None
        The bound on R; None, as the norm, where R was not asked for.
    norm, norm_value : str or None, float
        A norm of the bound on R, from above; infinite where some states of the neighbors of a variable forbid every
        state of it, so that Gibbs sampling is undefined.
    bias, max_bias, total_bias : float array (n,), float, float
        Bounds on the total variation distance of every marginal after ``num_sweeps`` (if not certified, after the
        ``num_iterated`` sweeps in ``stats``), the largest of them, and that of the joint distribution.
    offending : tuple of (int, float)
        Variables whose row of R sums up to 1 or more, and the sums, the largest first, at most 10 of them.
    advice : str
        What the certificate says, or the way out.
    stats, provenance : mapping
        Sweeps iterated, where ``num_sweeps`` comes from (``method``: the ``iteration`` itself, or ``geometric`` decay
        at the rate of the norm from where it stopped), seconds; version, options, model hash.
    criterion, valid_for : str
        What the certificate rests on; the updates that the promise is for, ``systematic`` or ``random``.
    constant, form, width : float or None, str or None, float or None
        The constant C of a criterion for random updates, whether it is one of ``entropy`` or of ``variance``, and the
        width of the couplings, from above, where the criterion uses it.
    margin : float or None
        The largest factor found by which all couplings could grow with the model still certified, if asked for.
    others : tuple of dict
        What the other criteria said: ``criterion``, ``certified``, ``num_updates``, ``reason``.
    model : MarkovRandomField
        What was certified: with evidence, the model of the other variables.
    """

    certified: bool
    accuracy: float
    per_variable: bool
    schedule: str
    bias: FloatArray
    max_bias: float
    total_bias: float
    advice: str
    num_sweeps: int | None = None
    num_updates: int | None = None
    dependency: str | None = None
    norm: str | None = None
    norm_value: float = math.nan
    offending: tuple[tuple[int, float], ...] = ()
    stats: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    criterion: str = "dobrushin"
    constant: float | None = None
    form: str | None = None
    width: float | None = None
    margin: float | None = None
    valid_for: str = "systematic"
    others: tuple[Mapping[str, Any], ...] = ()
    model: MarkovRandomField | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        if not self.certified:
            return f"Certificate(certified=False, accuracy={self.accuracy:g}, criterion={self.criterion!r})"
        what = "random" if self.valid_for == "random" else self.schedule
        return (
            f"Certificate(certified=True, accuracy={self.accuracy:g}, criterion={self.criterion!r}, "
            f"num_sweeps={self.num_sweeps}, schedule={what!r})"
        )

    @property
    def status(self) -> Status:
        """``ok`` if certified, else ``not_converged``: the bias did not fall to the accuracy."""
        return Status.OK if self.certified else Status.NOT_CONVERGED

    @property
    def strongest(self) -> list[tuple[str, float]]:
        """The variables of ``offending`` by name, by number where they have none, with the sums of their rows of R."""
        names = None if self.model is None else self.model.names_of_variables()
        return [(str(i) if names is None else names[i], total) for i, total in self.offending]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` by name: of every variable the sum of its row of R, and the bound on its bias."""
        model, matrix = self._matrix()
        sums = np.asarray(matrix.sum(axis=1)).reshape(-1)
        return {"variable": list(model.names_of_variables()), "row_sum": sums, "bias": self.bias}

    def plot(self, axes: Any = None) -> Any:
        """The bound on R as a picture, or the sums of its rows if there are many (Matplotlib, extra ``plot``)."""
        axes = _show.new_axes(axes)
        axes.set_title("certified" if self.certified else "not certified")
        return _show.matrix(axes, self._matrix()[1], label=f"R ({self.dependency or 'sigmoid'})")

    def _matrix(self) -> tuple[MarkovRandomField, Any]:
        if self.model is None:
            raise ValueError("the certificate has no model: it was not made by certify()")
        return self.model, dependency_matrix(self.model, dependency=cast("Any", self.dependency or "sigmoid"))

    def _repr_html_(self) -> str:
        facts = [("certified", "yes" if self.certified else "no"), ("criterion", self.criterion)]
        if self.norm is not None:
            facts.append(("norm of R", f"{self.norm_value:.6g} ({self.norm}, {self.dependency})"))
        if self.num_sweeps is not None:
            facts.append(("sweeps", f"{self.num_sweeps:,} for accuracy {self.accuracy:g}"))
        rows = [(name, f"{value:.4g}") for name, value in self.strongest]
        return _show.html_table("Certificate", facts, rows, ("variable", "sum of its row of R"))

    def to_dict(self) -> dict[str, Any]:
        """The certificate as plain Python data, the shape of the command line's JSON."""
        names = (
            "certified accuracy per_variable schedule num_sweeps num_updates dependency norm norm_value advice "
            "criterion constant form width margin valid_for others"
        )
        biases = {name: getattr(self, name) if self.certified else None for name in ("max_bias", "total_bias", "bias")}
        offending = [{"variable": i, "row_sum": value} for i, value in self.offending]
        return as_plain(self, names, offending=offending, **biases)


def certify(
    model: MarkovRandomField,
    *,
    accuracy: float = DEFAULT_ACCURACY,
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
    progress: Report = "auto",
) -> Certificate:
    """A :class:`Certificate`: the number of Gibbs sweeps or random updates that reach an accuracy from any start.

    Dobrushin's criterion bounds sweeps in a fixed order, too, and takes factors over three or more variables.
    ``width``, ``path`` and ``split`` cover stronger couplings, for updates of variables chosen at random only (see
    docs/theory.md).

    For ``dobrushin`` the number is the smallest t for which the iteration of :func:`fastmix.theory.bias.bias_after`
    gives ``sum_i delta_i <= accuracy`` (``max_i delta_i <= accuracy`` with ``per_variable``), never above the theorem's
    number for the same R. Where the iteration takes too long and the norm r of R is below 1, the number follows from
    the factor r (exp(r - 1) for random updates) by which the bias falls at least per sweep from there.

    Parameters
    ----------
    model : MarkovRandomField
    accuracy : float
        Total variation distance to reach, above 0 and below 1; 0.01 by default.
    criterion : {"auto", "dobrushin", "width", "path", "split"}
        ``width`` suits dense models of mixed signs and any numbers of states, ``path`` sparse binary ones, ``split``
        models with few strong couplings among many weak ones. ``auto`` asks all that apply and could be better, and
        returns the one with the fewest updates, Dobrushin's where none is certified; ``others`` holds what the rest
        said. Further names are those of :func:`fastmix.theory.criteria.register_criterion`.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Bound on R, see :func:`fastmix.theory.dependency.edge_dependencies`.
    norm : {"spectral", "inf", "1", "frobenius"}, optional
        Norm for the theorem; without it the smallest.
    schedule : {"systematic", "random"}, optional
        By default Dobrushin's criterion is asked for systematic sweeps, and the others for random updates.
    per_variable : bool
        Ask for the accuracy of each marginal instead of the joint distribution.
    order : int array (n,), optional
        Order of a systematic sweep, by default 0, 1, .., n - 1; that of :func:`fastmix.sample` is
        ``model.structure.visit_order[0]``.
    evidence : mapping, optional
        Observed state by variable: the certificate is that of the other variables given these, numbered anew.
    max_sweeps : int
        Limit of the iteration (beside one of about 3e9 visits of entries of R), not of ``num_sweeps``.
    max_updates : float, optional
        More updates than this count as not certified. By default 5e9, about a minute of sampling, for the criteria of
        random updates, and no limit for Dobrushin's; ``math.inf`` is allowed.
    margin : bool
        Whether to search for the largest factor by which all couplings could grow, with the criterion that is returned
        and all other arguments as they are.
    time_limit : float, optional
        Seconds for norm, iteration and margin, after which the certificate is what follows from where they are: a
        larger number of sweeps, or none, and a smaller margin. The dependencies themselves take their time.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; nothing is reported but that it runs.

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
    Interrupted
        On Ctrl-C: a KeyboardInterrupt; there is no certificate then.

    Notes
    -----
    A sweep of the iteration costs one visit of each entry of R, about 2 ns; random sweeps about 20 times that.
    Rounding is on the safe side throughout. The theorem is that of Dyer, Goldberg and Jerrum (2009, Lemma 17) and
    Theorem 4 of Liu and Domke (2014), for random updates. From 1 the iteration falls monotonically, so a sweep in any
    order is at most ``R delta``, and ``num_updates / n`` bounds systematic sweeps as well.

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
    check_model(model)
    level = check_accuracy(accuracy)
    check_choice("criterion", criterion, ("auto", "dobrushin", *CRITERIA))
    check_choice("dependency", dependency, DEPENDENCIES)
    if norm is not None:
        check_choice("norm", norm, norms.NORMS)
    limit = check_count("max_sweeps", max_sweeps, least=1)
    if max_updates is not None:
        unlimited = isinstance(max_updates, float) and max_updates == math.inf
        max_updates = math.inf if unlimited else check_positive("max_updates", max_updates)
    if schedule is not None:
        check_choice("schedule", schedule, get_args(Schedule))
    per_variable = check_flag("per_variable", per_variable)
    margin = check_flag("margin", margin)
    systematic = schedule == "systematic" or order is not None
    if systematic and criterion not in ("auto", "dobrushin"):
        raise ValueError(
            f"schedule must be 'random' for criterion={criterion!r}, which says nothing about systematic sweeps; only "
            "criterion='dobrushin' does"
        )
    options: dict[str, Any] = {
        "accuracy": level, "criterion": criterion, "dependency": dependency, "norm": norm, "schedule": schedule,
        "per_variable": per_variable, "order": None if order is None else "given",
        "max_sweeps": limit, "max_updates": max_updates, "margin": margin,
        "time_limit": time_limit,
    }  # fmt: skip
    with listening(progress, "certify") as listener:
        clock = Clock(time_limit, listener=listener, what="certify")
        if evidence is not None:
            model = model.condition(evidence)
        options["evidence"] = plain_evidence(evidence)
        if schedule is not None or order is not None:
            check_schedule(schedule or "systematic", order, model.num_variables)
        undefined = undefined_conditional(model)
        reduced = model.drop_forbidden_states() if model.has_forbidden else move_constants(model)
        found: list[Certificate] = []
        others: dict[str, dict[str, Any]] = {}
        if criterion in ("auto", "dobrushin"):
            share = clock if criterion == "dobrushin" else clock.part(0.5)
            asked = _Dobrushin(
                level, dependency, norm, schedule or "systematic", per_variable, order, limit, max_updates, undefined
            )
            plain = asked.certify(reduced, share)
            if margin:
                plain = replace(plain, margin=asked.margin(reduced, plain.certified, clock.part(0.5)))
            found.append(plain)
            others["dobrushin"] = _said(plain)
        budget = _MAX_UPDATES if max_updates is None else float(max_updates)
        promised = _updates(found[0]) if found and found[0].certified and model.num_variables > _ASK_ALL else math.inf
        for name in CRITERIA if criterion == "auto" else [criterion] if criterion in CRITERIA else []:
            why = "it says nothing about systematic sweeps" if systematic else CRITERIA[name].unfit(reduced)
            late = criterion == "auto" and clock.past()
            # No C is below 1: of a function of one variable, the entropy given all others is at most its entropy.
            compare = why is None and promised < math.inf
            beaten = compare and promised <= num_random_updates(reduced, Finding(0.0), level)
            if why is not None or late or beaten:
                if criterion == name:
                    raise UnfitMethodError(f"criterion={name!r} does not apply: {why}")
                skipped = "it cannot promise fewer updates" if beaten else "the time limit was over"
                reason = f"not tried: {skipped}" if why is None else f"does not apply: {why}"
                others[name] = {"criterion": name, "certified": False, "num_updates": None, "reason": reason}
                continue
            certificate = _by_criterion(CRITERIA[name], reduced, level, per_variable, budget, clock)
            found.append(certificate)
            others[name] = _said(certificate)
        certified = [certificate for certificate in found if certificate.certified]
        best = min(certified, key=_updates) if certified else found[0]
        if margin and best.criterion != "dobrushin":
            criterion_of = CRITERIA[best.criterion]
            best = replace(best, margin=_margin_of(criterion_of, reduced, level, budget, best.certified, clock))
        if best.criterion != "dobrushin" and found[0].criterion == "dobrushin":
            # What is known of R stays with the answer.
            known = {name: getattr(found[0], name) for name in ("dependency", "norm", "norm_value", "offending")}
            best = replace(best, **known)
        rest = tuple(said for name, said in others.items() if name != best.criterion)
        stats = {**best.stats, "stopped_by": "time_limit" if clock.past() else "done", **clock.stats()}
        return replace(best, model=model, others=rest, stats=stats, provenance=provenance(model, **options))


def _updates(certificate: Certificate) -> float:
    """Updates that a certified answer takes."""
    if certificate.criterion != "dobrushin":
        return float(certificate.num_updates or 0)
    return float(certificate.num_sweeps or 0) * len(certificate.bias)


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
    accuracy: float,
    per_variable: bool,
    budget: float,
    clock: Clock,
) -> Certificate:
    """The certificate of a criterion for random updates, of a model without forbidden states."""
    finding = criterion.find(model, clock=clock)
    number = num_random_updates(model, finding, accuracy)
    certified = number <= budget and number < math.inf
    num_sweeps = -(-int(number) // max(1, model.num_variables)) if certified else None
    if certified:
        advice = (
            f"After {int(number):,} random updates ({num_sweeps:,} sweeps' worth) from any start, the joint "
            f"distribution is within {accuracy:g} of the model's in total variation: {finding.reason}."
        )
    elif finding.log_constant < math.inf:
        size = f"{number:.3g}" if number < math.inf else f"e^{finding.log_constant:.0f} and more"
        advice = f"Not certified: {size} random updates are more than max_updates, {budget:.3g}: {finding.reason}."
    else:
        advice = f"Not certified: {finding.reason}."

    left = accuracy if certified else 1.0
    bias = np.full(model.num_variables, left)
    bias.setflags(write=False)
    return Certificate(
        certified=certified,
        accuracy=accuracy,
        per_variable=per_variable,
        schedule="random",
        num_sweeps=num_sweeps,
        num_updates=int(number) if certified else None,
        bias=bias,
        max_bias=left,
        total_bias=left,
        advice=advice,
        stats={"method": criterion.name if certified else None, "num_iterated": 0},
        criterion=criterion.name,
        constant=math.exp(finding.log_constant) if finding.log_constant < 700.0 else math.inf,
        form=finding.form,
        width=finding.width,
        valid_for="random",
    )


def _margin_of(
    criterion: Criterion, model: MarkovRandomField, accuracy: float, budget: float, certified: bool, clock: Clock
) -> float:
    """The largest factor found of all couplings with which a criterion needs few enough updates."""

    def certifies(factor: float) -> bool:
        if factor == 1.0:
            return certified
        scaled = scale_couplings(model, factor)
        found = criterion.find(scaled, clock=clock)
        return num_random_updates(scaled, found, accuracy) <= min(budget, 1e300)

    return largest_factor(certifies, clock)


@dataclass(frozen=True)
class _Dobrushin:
    """What is asked of Dobrushin's criterion."""

    level: float
    dependency: Dependency
    norm: Norm | None
    schedule: Schedule
    per_variable: bool
    order: ArrayLike | None
    max_sweeps: int
    max_updates: float | None
    undefined: tuple[int, str] | None  # a variable that the states of its neighbors can leave without a state

    def certify(self, model: MarkovRandomField, clock: Clock, max_visits: float | None = None) -> Certificate:
        """The certificate by the iteration and a norm, of a model without forbidden states."""
        n = model.num_variables
        matrix = safe_matrix(model, self.dependency, clock.part(_MATRIX_SHARE))
        name, value = self._norm_of(matrix, clock)
        order = check_schedule(self.schedule, self.order, n)
        run = Iteration(matrix, self.schedule, order, _MAX_VISITS if max_visits is None else max_visits, clock)
        target = Target(n, self.level, self.per_variable)
        decay = Decay(name, value, self.schedule) if value < 1.0 else None
        reached, num_sweeps = self._iterate(run, target, decay, possible=value < math.inf)
        certified = reached or decay is not None
        too_many = certified and self.max_updates is not None and float(num_sweeps) * n > self.max_updates
        theorem = None if decay is None else 0
        if decay is not None and n:  # Theorem 4 of Liu and Domke (2014), rounded up
            theorem = math.ceil(n * math.log(n / self.level) / (1.0 - value) * (1.0 + 1e-12))
        bias = run.delta
        total = target.total(bias)
        if decay is not None and not reached:
            bias = np.minimum(bias, self.level)  # as was promised; an entry is never above the sum
            total = min(target.total(bias), math.inf if self.per_variable else self.level)
        bias.setflags(write=False)
        certificate = Certificate(
            certified=certified and not too_many,
            accuracy=self.level,
            per_variable=self.per_variable,
            schedule=self.schedule,
            num_sweeps=num_sweeps if certified and not too_many else None,
            num_updates=theorem,
            dependency=self.dependency,
            norm=name,
            norm_value=value,
            bias=bias,
            max_bias=float(bias.max(initial=0.0)),
            total_bias=min(1.0, total),
            offending=_offending(matrix) if self.undefined is None else ((self.undefined[0], math.inf),),
            advice="",
            stats={
                "method": "iteration" if reached else "geometric" if certified else None,
                "num_iterated": run.num_sweeps,
                "num_entries": int(matrix.nnz),
            },
            valid_for=self.schedule,
        )
        if self.undefined is not None:
            advice = f"Not certified: {self.undefined[1]}, so Gibbs sampling is undefined. {_INSTEAD}"
        elif too_many:
            updates = float(num_sweeps) * n
            advice = f"Not certified: {updates:.3g} updates are more than max_updates, {self.max_updates:.3g}."
        else:
            ended = run.exhausted or run.num_sweeps == self.max_sweeps
            advice = _advice(replace(certificate, model=model), ended)
        return replace(certificate, advice=advice)

    def _norm_of(self, matrix: Any, clock: Clock) -> tuple[str, float]:
        """Name and value of the norm asked for, or of the smallest; infinite where R is undefined."""
        if self.norm is None:
            name, value = norms.smallest_norm(matrix, clock=clock)
        else:
            name, value = self.norm, norms.matrix_norm(matrix, self.norm, clock=clock)
        return name, value if self.undefined is None else math.inf

    def _iterate(self, run: Iteration, target: Target, decay: Decay | None, *, possible: bool) -> tuple[bool, int]:
        """Whether the iteration reached the target within the limit, and the number of sweeps that does."""
        limit, n = self.max_sweeps, len(run.delta)
        reached = n == 0
        if decay is not None and not reached:
            # The theorem's number is valid too: the iteration could pass it by rounding only.
            cap = decay.sweeps(np.ones(n), target)
            reached = run.advance(min(limit, cap), target)
            if reached:
                return True, run.num_sweeps
            return False, min(run.num_sweeps + decay.sweeps(run.delta, target), cap)
        while possible and not reached and run.num_sweeps < limit and not run.exhausted:
            before = float(run.delta.sum())
            reached = run.advance(min(_BLOCK_SWEEPS, limit - run.num_sweeps), target)
            if float(run.delta.sum()) > 0.999 * before:
                break
        return reached, run.num_sweeps

    def margin(self, model: MarkovRandomField, certified: bool, clock: Clock) -> float:
        """The largest factor found of all couplings with which the same would be certified."""

        def certifies(factor: float) -> bool:
            if factor == 1.0:
                return certified
            scaled = scale_couplings(model, factor)
            if self.max_updates is None and self._norm_of(safe_matrix(scaled, self.dependency, clock), clock)[1] < 1.0:
                return True
            return self.certify(scaled, clock, _MARGIN_VISITS).certified

        return largest_factor(certifies, clock)


def _offending(matrix: Any) -> tuple[tuple[int, float], ...]:
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    first = np.argsort(-sums, kind="stable")[:_NUM_OFFENDING]
    return tuple((int(i), float(sums[i])) for i in first if sums[i] >= 1.0)


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
    where = f" The strongest dependencies are those of variable {c.strongest[0][0]}." if c.offending else ""
    hint = " dependency='exact' is tighter, for small degrees." if c.dependency == "sigmoid" else ""
    if c.dependency in ("range", "l1", "linf"):
        hint = " dependency='sigmoid' is tighter at no cost."
    return (
        f"Not certified: {why}.{where}{hint} The way out is a nearby model that can be certified: "
        "fastmix.project(model, norm_bound=...) or `fastmix project`, with a norm_bound below 1."
    )
