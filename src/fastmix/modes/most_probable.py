"""``most_probable()``: the configuration of largest probability, exact where feasible, otherwise with a gap.

Ways to find it are routes, one per file (:mod:`fastmix.modes.routes`). They all work on one
:class:`fastmix.modes.mode_run.ModeRun`, which keeps the best configuration and the smallest bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fastmix import _show
from fastmix._arrays import IntArray
from fastmix._checks import check_choice, check_positive
from fastmix._clock import Ending, OutOfTimeError, Report
from fastmix._context import Context, open_context
from fastmix.errors import ResourceError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.modes.marginal_map import MarginalRun, as_variables, has_noise
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.routes import check_route, find_by_route
from fastmix.results import Result, Status

__all__ = ["MostProbableResult", "most_probable"]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MostProbableResult(Result):
    """A configuration of large probability, and how far from the largest it can be.

    Attributes
    ----------
    model : MarkovRandomField
        The model asked about.
    states : int array (n,)
        Of all variables, observed ones too; -1 for those that were summed out.
    variables : tuple of int or None
        Those that were asked for; None for all of them.
    log_weight : float
        Of these states, see :meth:`fastmix.MarkovRandomField.log_weight`; with the logs of the likelihoods of soft
        evidence added.
    upper_bound : float
        No configuration that agrees with the evidence has a larger log-weight.
    exact : bool
        Whether no configuration has a larger log-weight, up to the rounding of sums.
    method : {"exact", "cut", "messages", "toulbar2", "expansion", "swap", "search"}
    status : Status
        ``ok`` where the answer is exact or the gap is within the tolerance asked for, otherwise ``not_converged``.
    stats, provenance : mapping
    """

    advice_by_status: ClassVar[Mapping[Status, str]] = {
        Status.NOT_CONVERGED: "The gap to the upper bound is larger than tol: allow a longer time_limit, or a "
        "larger tol. Where the extra map is installed, toulbar2 looks for a proof, too."
    }

    states: IntArray
    log_weight: float
    upper_bound: float
    exact: bool
    method: str
    variables: tuple[int, ...] | None = None

    @property
    def gap(self) -> float:
        """By how much the log-weight can be below the largest; 0 where it is exact."""
        return 0.0 if self.exact else max(0.0, self.upper_bound - self.log_weight)

    @property
    def named_states(self) -> list[str]:
        """The name of the state of every variable; its number where states have no names, empty where summed out."""
        return [
            names[state] if state >= 0 else ""
            for names, state in zip(self.model.names_of_states(), self.states[: self.model.num_shown], strict=False)
        ]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name: of every variable its state, and its number.

        Where only some variables were asked for, there are rows for these.
        """
        names = self.model.names_of_variables()
        shown = range(self.model.num_shown) if self.variables is None else self.variables
        states = self.named_states
        return {
            "variable": [names[v] for v in shown],
            "state": [states[v] for v in shown],
            "number": self.states[list(shown)],
        }

    def title(self) -> str:
        """The method."""
        return self.method

    def facts(self) -> dict[str, str]:
        """The log-weight, and by how much it can be below the largest."""
        gap = "the largest" if self.exact else f"at most {self.gap:.3g} below the largest"
        return {"log-weight": f"{self.log_weight:.8g}, {gap}"}

    def contents(self) -> dict[str, Any]:
        """The states, by number and by name, the log-weight and its gap, and the method."""
        names = ("states", "variables", "log_weight", "upper_bound", "gap", "exact", "method")
        found = {name: getattr(self, name) for name in names}
        found["states"] = self.states[: self.model.num_shown]
        found["named_states"] = self.named_states
        return found

    def labels(self) -> IntArray:
        """The states, in the shape of an image model."""
        return self.states if self.model.shape is None else self.states.reshape(self.model.shape)

    def plot(self, axes: Any = None) -> Any:
        """The states as a picture of an image model, else as a point per variable (extra ``plot``); the axes come back.

        The points are at the numbers of the states.
        """
        axes = super().plot(axes)
        if self.model.shape is None or len(self.model.shape) != 2:
            return _show.states(axes, self.states)
        return _show.labeled_picture(axes, self.labels(), self.model.names_of_states()[0])

    def __repr__(self) -> str:
        gap = "exact" if self.exact else f"gap={self.gap:.3g}"
        return f"MostProbableResult(log_weight={self.log_weight:.8g}, {gap}, method={self.method!r}, {self.model})"


def most_probable(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    variables: Sequence[int | str] | None = None,
    method: str = "auto",
    tol: float = 0.0,
    memory_limit: float | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> MostProbableResult:
    """The configuration of largest probability (MAP, MPE), exact where feasible, otherwise with a proven gap.

    On the command line this is ``fastmix map``.

    Parameters
    ----------
    model : MarkovRandomField
    evidence : mapping, optional
        Observed states by variable, numbers or names, or likelihoods by state.
    variables : sequence of int or str, optional
        Find the most probable states of these together, everything else summed out (marginal MAP): exact where the
        tables of the order that this needs fit memory and time, else by a search with a bound. ``method`` is then one
        of ``auto``, ``exact`` and ``search``.
    method : str
        ``cut``, a minimum cut, exact for binary models of any size whose couplings can all be satisfied at once;
        ``exact`` by the junction tree; ``messages``, tree-reweighted ones, for models of pairs; ``toulbar2``, a solver
        that searches a tree for a proof (extra ``map``); ``expansion`` moves for labels whose tables are metrics,
        ``T(a, b) + T(c, c) >= T(a, c) + T(c, b)``, and ``swap`` moves where that holds for a = b; ``search`` for any
        model: messages, small parts of the graph solved exactly where these leave a gap, descents, and chains that cool
        down. All of them begin with the best states of the unaries, and but for a cut with a descent from there, so
        that there is an answer when the time is over. ``auto`` takes a cut where that fits, else exact inference within
        the memory and time there are, else messages, and where these leave a gap toulbar2 where it is installed,
        expansion or swap moves where these fit, and a search.
    tol : float
        Gap at which the answer is good enough, in units of the log-weight; a search goes on until then.
    memory_limit : float, optional
        Bytes of exact inference, half of the memory that is free by default; positive.
    seed : int, optional
        Of the search; drawn and returned when not given.
    time_limit : float, optional
        Seconds; 60 by default.
    progress : "auto", None or callable

    Returns
    -------
    MostProbableResult
        ``stats["moves"]`` counts what was done: descents, cuts, eliminations (exact inference), expansions, swaps,
        passes of messages, nodes of toulbar2 and rounds of annealing. Where toulbar2 was used, the options in
        the provenance have its version.

    Raises
    ------
    UnfitMethodError
        If the method named does not fit the model.
    ResourceError
        If ``exact`` needs more memory or time than allowed, or no configuration of positive probability was found in
        the time there was.
    ModelError
        If no configuration has positive probability; an :class:`fastmix.ImpossibleEvidenceError` given evidence.
    Interrupted
        On Ctrl-C: a KeyboardInterrupt whose ``result`` is the best configuration so far, None before there is one.

    Notes
    -----
    Upper bounds are those of sequential tree-reweighted message passing (Kolmogorov 2006) for models of pairs, and the
    sum of the largest entries of all terms for others. A pass takes time in proportion to the number of states for
    each edge whose table is of Potts or truncated linear form, and to the number of its entries for others. Tables that
    edges share are never laid out in full.

    toulbar2 (Hurley et al. 2016) works on costs that are rounded to whole numbers, in a process of its own; log-weights
    are computed here. A proof of it counts where rounding cannot hide more than 1e-6, or ``tol`` if that is larger;
    otherwise the gap says so.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=1.0, field=[0.5, 0.0, -0.2])
    >>> most_probable(model, evidence={2: 0})
    MostProbableResult(log_weight=1.7, exact, method='cut', MarkovRandomField(3 variables of 2 states, 2 edges))
    >>> most_probable(model, variables=[2]).states.tolist()
    [-1, -1, 1]
    """
    check_model(model)
    check_route(method)
    wanted = None if variables is None else as_variables(model, variables)
    if wanted is None and has_noise(model):
        wanted = tuple(range(model.num_shown))
    if wanted is not None:
        check_choice("method", method, ("auto", "exact", "search"))
    tol = check_positive("tol", tol, "number", or_zero=True)
    if memory_limit is not None:
        memory_limit = check_positive("memory_limit", memory_limit, "number of bytes")
    options = {"method": method, "tol": tol, "memory_limit": memory_limit, "variables": wanted}
    with open_context(
        "most probable", model, evidence=evidence, seed=seed, time_limit=time_limit, progress=progress, options=options
    ) as context:
        if wanted is not None:
            return context.finish(_maximize_some(model, wanted, method, context, tol, memory_limit))
        run: ModeRun | None = None
        used = "search"
        with Ending() as ending:
            reduction = _reduce(model, context)
            run = ModeRun(reduction.model, context, tol=tol, memory_limit=memory_limit)
            used = find_by_route(method, run)
        if run is None or run.states is None:
            if ending.interrupted:
                context.raise_nothing(ending.by)
            raise ResourceError(
                "no configuration of positive probability was found within the time limit, "
                f"{context.clock.limit:g} s; allow a longer time_limit"
            )
        result = MostProbableResult(
            model=model,
            states=reduction.expand_states(run.states),
            log_weight=run.log_weight,
            upper_bound=run.log_weight if run.is_exact else max(run.log_weight, run.upper_bound),
            exact=run.is_exact,
            method="search" if ending.interrupted else used,
            status=_verdict(run, ending),
            stats={"stopped_by": _stopped_by(run, ending), "moves": run.moves, **run.stats},
            provenance={"options": run.engines},
        )
        return context.finish(result)


def _maximize_some(
    model: MarkovRandomField,
    wanted: tuple[int, ...],
    method: str,
    context: Context,
    tol: float,
    memory_limit: float | None,
) -> MostProbableResult:
    """The most probable states of some variables, the others summed out, without seconds and provenance."""
    run: MarginalRun | None = None
    used = "search"
    with Ending() as ending:
        reduction = _reduce(model, context)
        inner = np.cumsum(reduction.fixed < 0) - 1
        left = [v for v in wanted if reduction.fixed[v] < 0]
        run = MarginalRun(reduction.model, inner[left].tolist(), context, tol, memory_limit)
        used = run.run(method)
    if run is None or run.states is None:
        if ending.interrupted:
            context.raise_nothing(ending.by)
        raise ResourceError(
            f"no states of positive probability were found within the time limit, {context.clock.limit:g} s; allow a "
            "longer time_limit, or ask for fewer variables"
        )
    small = np.zeros(reduction.model.num_variables, dtype=np.int64)
    small[run.wanted] = run.states
    states = np.full(model.num_variables, -1, dtype=np.int64)
    states[list(wanted)] = reduction.expand_states(small)[list(wanted)]
    is_good = run.is_exact or run.gap <= tol
    return MostProbableResult(
        model=model,
        states=states,
        variables=wanted,
        log_weight=run.log_weight,
        upper_bound=max(run.log_weight, run.upper_bound),
        exact=run.is_exact,
        method=used,
        status=Status.INTERRUPTED if ending.interrupted else Status.OK if is_good else Status.NOT_CONVERGED,
        stats={"stopped_by": ending.by, "moves": run.moves},
    )


def _reduce(model: MarkovRandomField, context: Context) -> Reduction:
    """The model given evidence without what is forbidden, as far as there is time to find that."""
    try:
        return reduce_model(model, context.evidence, fold_single=True, clock=context.clock)
    except OutOfTimeError:
        return reduce_model(model, context.evidence, drop_forbidden=False)


def _verdict(run: ModeRun, ending: Ending) -> Status:
    """What is said of the configuration that a run has found."""
    if ending.interrupted:
        return Status.INTERRUPTED
    return Status.OK if run.is_exact or run.gap <= run.tol else Status.NOT_CONVERGED


def _stopped_by(run: ModeRun, ending: Ending) -> str:
    """What ended a run, as it stands in its statistics."""
    if ending.interrupted:
        return "interrupt"
    return "time_limit" if run.clock.past() and not run.is_exact else "done"
