"""Certified mixing times: the number of sweeps of Gibbs sampling that brings a model to an accuracy, from any start.

Dobrushin's criterion is in :mod:`fastmix.theory.dobrushin`; the criteria for random updates are those of the registry
in :mod:`fastmix.theory.criteria`. Here they are asked, and the best answer is chosen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike

from fastmix._checks import check_accuracy, check_choice, check_count, check_flag, check_positive
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix._context import Context, open_context
from fastmix.errors import UnfitMethodError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.results import Status
from fastmix.theory import norms
from fastmix.theory.bias import Schedule, check_schedule
from fastmix.theory.certificate import Certificate, CertificateRequest
from fastmix.theory.conditionals import undefined_conditional
from fastmix.theory.criteria import CRITERIA, largest_factor, num_random_updates, scale_couplings
from fastmix.theory.criterion import Criterion, CriterionConstant
from fastmix.theory.dependency import DEPENDENCIES, Dependency
from fastmix.theory.dobrushin import DobrushinCriterion
from fastmix.theory.norms import Norm
from fastmix.theory.tuning import MAX_EVERY_CRITERION_VARIABLES

__all__ = ["DEFAULT_ACCURACY", "certify", "certify_reduced"]

#: Total variation distance, of Python and the command line alike.
DEFAULT_ACCURACY = 0.01


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
        Total variation distance to reach, above 0 and below 1.
    criterion : {"auto", "dobrushin", "width", "path", "split"}
        ``width`` suits dense models of mixed signs and any numbers of states, ``path`` sparse binary ones, ``split``
        models with few strong couplings among many weak ones. ``auto`` asks all that apply and could be better, and
        returns the answer with the fewest updates, Dobrushin's where none is certified; ``others`` holds the rest of
        the answers. Further names are those of :func:`fastmix.theory.criteria.register_criterion`.
    dependency : {"exact", "field", "sigmoid", "range", "l1", "linf"}
        Bound on R, see :func:`fastmix.theory.dependency.edge_dependencies`.
    norm : {"spectral", "inf", "1", "frobenius"}, optional
        Norm of R that the theorem uses; the smallest by default.
    schedule : {"systematic", "random"}, optional
        Order of updates. By default Dobrushin's criterion is asked for systematic sweeps, and the others for random
        updates.
    per_variable : bool
        Whether the accuracy is that of each marginal instead of the joint distribution.
    order : int array (n,), optional
        Order of a systematic sweep, by default 0, 1, .., n - 1; that of :func:`fastmix.sample` is
        ``model.structure.visit_order[0]``.
    evidence : mapping, optional
        Observed states by variable: the certificate is for the model of the other variables, numbered anew.
    max_sweeps : int
        Sweeps of the iteration at most (it also ends after about 3e9 visits of entries of R); no limit of
        ``num_sweeps``.
    max_updates : float, optional
        More updates than this count as not certified. By default 5e9, about a minute of sampling, for the criteria of
        random updates, and no limit for Dobrushin's; ``math.inf`` is allowed.
    margin : bool
        Whether to search for the largest factor by which all couplings could grow, with the criterion that is returned
        and all other arguments as they are.
    time_limit : float, optional
        Seconds for norm, iteration and margin. Once they are over, the certificate is what follows from the state of
        each: a larger number of sweeps, or none, and a smaller margin. The dependencies themselves take their time.
    progress : "auto", None or callable
        See :func:`fastmix.infer`; nothing is reported but that it runs.

    Returns
    -------
    Certificate
        With ``certified`` false, and the reason in ``statement``, when nothing can be promised.

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
    CRITERIA.find(criterion)  # it may be in another package, which is loaded then
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
    if (schedule == "systematic" or order is not None) and criterion not in ("auto", "dobrushin"):
        raise ValueError(
            f"schedule must be 'random' for criterion={criterion!r}, which says nothing about systematic sweeps; only "
            "criterion='dobrushin' does"
        )
    options = {
        "accuracy": level, "criterion": criterion, "dependency": dependency, "norm": norm, "schedule": schedule,
        "per_variable": per_variable, "order": None if order is None else "given",
        "max_sweeps": limit, "max_updates": max_updates, "margin": margin,
    }  # fmt: skip
    with open_context(
        "certify", model, evidence=evidence, time_limit=time_limit, progress=progress, options=options
    ) as context:
        if evidence is not None:
            model = model.condition(evidence)
        if schedule is not None or order is not None:
            check_schedule(schedule or "systematic", order, model.num_variables)
        request = CertificateRequest(
            accuracy=level, dependency=dependency, norm=norm, schedule=schedule, per_variable=per_variable,
            order=order, max_sweeps=limit, max_updates=max_updates, margin=margin,
        )  # fmt: skip
        return certify_reduced(reduce_model(model), criterion, request, context)


def certify_reduced(reduction: Reduction, criterion: str, request: CertificateRequest, context: Context) -> Certificate:
    """The certificate of the original model of a reduction, complete but for checks of the arguments."""
    found = _best_certificate(reduction, criterion, request, context.clock)
    stopped_by = "time_limit" if context.clock.past() else "done"
    return context.finish(replace(found, model=reduction.original, stats={**found.stats, "stopped_by": stopped_by}))


def _best_certificate(reduction: Reduction, criterion: str, request: CertificateRequest, clock: Clock) -> Certificate:
    """The certificate with the fewest updates of all criteria that are asked, with what the others said.

    1. Ask Dobrushin's criterion, where it is wanted.
    2. Ask the criteria for random updates that apply and could be better.
    3. Choose the certified answer of the fewest updates, and find its margin if that is wanted.
    4. Add what is known of R, and what the others said.
    """
    reduced = reduction.model
    undefined = undefined_conditional(reduction.original, reduction)
    found: list[Certificate] = []
    answers: dict[str, dict[str, Any]] = {}
    # 1. Dobrushin's criterion, which leaves half of the time to the others.
    if criterion in ("auto", "dobrushin"):
        share = clock if criterion == "dobrushin" else clock.part(0.5)
        certificate = _by_dobrushin(reduced, request, undefined, share, clock)
        found.append(certificate)
        answers["dobrushin"] = _answer(certificate)
    # 2. The criteria for random updates.
    asked: list[str] = []
    if criterion == "auto":
        asked = list(CRITERIA)
    elif criterion in CRITERIA:
        asked = [criterion]
    for name in asked:
        why = _reason_to_skip(name, reduced, request, found, clock if criterion == "auto" else NO_LIMIT)
        if why is None:
            certificate = _by_criterion(CRITERIA[name], reduced, request, clock)
            found.append(certificate)
            answers[name] = _answer(certificate)
        elif criterion == name:
            raise UnfitMethodError(f"criterion={name!r} {why}")
        else:
            answers[name] = {"criterion": name, "certified": False, "num_updates": None, "reason": why}
    # 3. The best answer; the first one says why where none is certified.
    certified = [certificate for certificate in found if certificate.certified]
    best = min(certified, key=_num_updates) if certified else found[0]
    if request.margin and best.criterion != "dobrushin":
        margin = _margin(CRITERIA[best.criterion], reduced, request, best.certified, clock)
        best = replace(best, margin=margin)
    # 4. The rest of what is known.
    if best.criterion != "dobrushin" and found[0].criterion == "dobrushin":
        known = {name: getattr(found[0], name) for name in ("dependency", "norm", "norm_value", "offending")}
        best = replace(best, **known)
    return replace(best, others=tuple(answer for name, answer in answers.items() if name != best.criterion))


def _by_dobrushin(
    model: MarkovRandomField,
    request: CertificateRequest,
    undefined: tuple[int, str] | None,
    share: Clock,
    clock: Clock,
) -> Certificate:
    """The certificate by Dobrushin's criterion, in a share of the time, with its margin if that is asked for."""
    dobrushin = DobrushinCriterion(request, undefined)
    certificate = dobrushin.certify(model, share)
    if not request.margin:
        return certificate
    return replace(certificate, margin=dobrushin.margin(model, certificate.certified, clock.part(0.5)))


def _reason_to_skip(
    name: str, model: MarkovRandomField, request: CertificateRequest, found: list[Certificate], clock: Clock
) -> str | None:
    """The reason why a criterion for random updates is not tried, None if it is."""
    if request.systematic:
        return "does not apply: it says nothing about systematic sweeps"
    why = CRITERIA[name].unfit(model)
    if why is not None:
        return f"does not apply: {why}"

    promised = math.inf
    if found and found[0].certified and model.num_variables > MAX_EVERY_CRITERION_VARIABLES:
        promised = _num_updates(found[0])
    # No C is below 1: of a function of one variable, the entropy given all others is at most its entropy.
    least = CriterionConstant(log_constant=0.0)
    if promised < math.inf and promised <= num_random_updates(model, least, request.accuracy):
        return "not tried: it cannot promise fewer updates"
    return "not tried: the time limit was over" if clock.past() else None


def _num_updates(certificate: Certificate) -> float:
    """Number of random updates, or of single updates in sweeps, that a certificate promises the accuracy after."""
    if certificate.criterion != "dobrushin":
        return float(certificate.num_updates or 0)
    return float(certificate.num_sweeps or 0) * len(certificate.bias)


def _answer(certificate: Certificate) -> dict[str, Any]:
    """The answer of one criterion, as it stands among the others of the certificate that is returned."""
    return {
        "criterion": certificate.criterion,
        "certified": certificate.certified,
        "num_updates": int(_num_updates(certificate)) if certificate.certified else None,
        "reason": certificate.statement,
    }


def _by_criterion(
    criterion: Criterion, model: MarkovRandomField, request: CertificateRequest, clock: Clock
) -> Certificate:
    """The certificate by a criterion for random updates, for a model without forbidden states."""
    found = criterion.find(model, clock=clock)
    number = num_random_updates(model, found, request.accuracy)
    certified = number <= request.budget and number < math.inf
    num_sweeps = -(-int(number) // max(1, model.num_variables)) if certified else None
    largest_bias = request.accuracy if certified else 1.0
    bias = np.full(model.num_variables, largest_bias)
    bias.setflags(write=False)
    return Certificate(
        model=model,
        status=Status.OK if certified else Status.NOT_CONVERGED,
        certified=certified,
        accuracy=request.accuracy,
        per_variable=request.per_variable,
        schedule="random",
        num_sweeps=num_sweeps,
        num_updates=int(number) if certified else None,
        bias=bias,
        max_bias=largest_bias,
        total_bias=largest_bias,
        statement=_statement(found, number, num_sweeps, request),
        stats={"method": criterion.name if certified else None, "num_iterated": 0},
        criterion=criterion.name,
        constant=math.exp(found.log_constant) if found.log_constant < 700.0 else math.inf,
        form=found.form,
        width=found.width,
        valid_for="random",
    )


def _statement(
    found: CriterionConstant, num_updates: float, num_sweeps: int | None, request: CertificateRequest
) -> str:
    """The promise of a criterion for random updates in words; ``num_sweeps`` is None where it is not certified."""
    if num_sweeps is not None:
        return (
            f"After {int(num_updates):,} random updates ({num_sweeps:,} sweeps' worth) from any start, the joint "
            f"distribution is within {request.accuracy:g} of the model's in total variation: {found.reason}."
        )
    if found.log_constant == math.inf:
        return f"Not certified: {found.reason}."
    size = f"{num_updates:.3g}" if num_updates < math.inf else f"e^{found.log_constant:.0f} and more"
    return f"Not certified: {size} random updates are more than max_updates, {request.budget:.3g}: {found.reason}."


def _margin(
    criterion: Criterion, model: MarkovRandomField, request: CertificateRequest, certified: bool, clock: Clock
) -> float:
    """The largest factor found for all couplings with which a criterion needs few enough updates."""

    def certifies(factor: float) -> bool:
        if factor == 1.0:
            return certified
        scaled = scale_couplings(model, factor)
        found = criterion.find(scaled, clock=clock)
        return num_random_updates(scaled, found, request.accuracy) <= min(request.budget, 1e300)

    return largest_factor(certifies, clock)
