"""``most_probable()``: the configuration of largest probability, exact where feasible, otherwise with a gap.

Ways to find it are routes, one per file (:mod:`fastmix.modes.routes`). They all work on one
:class:`fastmix.modes.mode_run.ModeRun`, which keeps the best configuration and the smallest bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from fastmix import _show
from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import check_choice, check_count, check_positive
from fastmix._clock import Ending, OutOfTimeError, Report
from fastmix._context import Context, open_context
from fastmix.errors import ResourceError
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.reduce import Reduction, reduce_model
from fastmix.modes.marginal_map import MarginalRun, as_variables, has_noise
from fastmix.modes.mode_run import ModeRun
from fastmix.modes.routes import check_route, find_by_route
from fastmix.modes.solutions import SolutionRun
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
    solutions : int array (k, n)
        The configurations found, that of the largest weight first: fewer than asked for where there are no more, or
        there was no time to find them.
    log_weights : float array (k,)
        Of the solutions.
    upper_bounds : float array (k,)
        No configuration that differs enough from the solutions before this one has a larger log-weight.
    proven : bool array (k,)
        Whether no such configuration has a larger log-weight than this one, up to the rounding of sums.
    status : Status
        ``ok`` where all solutions are exact, or their gaps within the tolerance asked for, and none is missing;
        otherwise ``not_converged``.
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
    solutions: IntArray
    log_weights: FloatArray
    upper_bounds: FloatArray
    proven: BoolArray

    @property
    def gaps(self) -> FloatArray:
        """By how much the log-weight of each solution can be below the largest beside those before it, (k,)."""
        return np.where(self.proven, 0.0, np.maximum(self.upper_bounds - self.log_weights, 0.0))

    @property
    def gap(self) -> float:
        """By how much the log-weight can be below the largest; 0 where it is exact."""
        return 0.0 if self.exact else max(0.0, self.upper_bound - self.log_weight)

    @property
    def named_states(self) -> list[str]:
        """The name of the state of every variable; its number where states have no names, empty where summed out."""
        return self._names_of(self.states)

    @property
    def named_solutions(self) -> list[list[str]]:
        """The names of the states of every solution."""
        return [self._names_of(states) for states in self.solutions]

    def _names_of(self, states: IntArray) -> list[str]:
        """The name of the state of every variable in a configuration."""
        return [
            names[state] if state >= 0 else ""
            for names, state in zip(self.model.names_of_states(), states[: self.model.num_shown], strict=False)
        ]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name: of every variable its state, and its number.

        Where only some variables were asked for, there are rows for these. Several solutions follow each other, with
        the number of the solution, from 0, and its log-weight in columns of their own.
        """
        names = self.model.names_of_variables()
        shown = list(range(self.model.num_shown) if self.variables is None else self.variables)
        count = len(self.solutions)
        states = self.named_solutions
        found: dict[str, Any] = {
            "variable": [names[v] for v in shown] * count,
            "state": [of_one[v] for of_one in states for v in shown],
            "number": self.solutions[:, shown].reshape(-1),
        }
        if count == 1:
            return found
        numbers = np.repeat(np.arange(count), len(shown))
        return {"solution": numbers, "log_weight": self.log_weights[numbers], **found}

    def title(self) -> str:
        """The method."""
        return self.method

    def facts(self) -> dict[str, str]:
        """The log-weight, and by how much it can be below the largest."""
        gap = "the largest" if self.exact else f"at most {self.gap:.3g} below the largest"
        found = {"log-weight": f"{self.log_weight:.8g}, {gap}"}
        if len(self.solutions) > 1:
            least = float(self.log_weights.min())
            found["solutions"] = f"{len(self.solutions)}, {int(self.proven.sum())} proven, log-weights from {least:.8g}"
        return found

    def contents(self) -> dict[str, Any]:
        """The states, by number and by name, the log-weight and its gap, the method, and the same of all solutions."""
        names = ("states", "variables", "log_weight", "upper_bound", "gap", "exact", "method")
        of_solutions = ("solutions", "log_weights", "upper_bounds", "proven")
        found = {name: getattr(self, name) for name in (*names, *of_solutions)}
        found["states"] = self.states[: self.model.num_shown]
        found["solutions"] = self.solutions[:, : self.model.num_shown]
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
        more = f"{len(self.solutions)} solutions, " if len(self.solutions) > 1 else ""
        return (
            f"MostProbableResult(log_weight={self.log_weight:.8g}, {gap}, {more}method={self.method!r}, {self.model})"
        )


def most_probable(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    variables: Sequence[int | str] | None = None,
    method: str = "auto",
    tol: float = 0.0,
    num_solutions: int = 1,
    min_distance: int = 1,
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
        model: messages, small parts of the graph solved exactly where these leave a gap, descents, chains that cool
        down, and moves of blocks, each to its best states given the rest. All of them begin with the best states of
        the unaries, and but for a cut with a descent from there, so that there is an answer when the time is over.
        ``auto`` takes a cut where that fits, else exact inference within the memory and time there are, else messages,
        and where these leave a gap toulbar2 where it is installed, expansion or swap moves where these fit, and a
        search.
    tol : float
        Gap at which the answer is good enough, in units of the log-weight; a search goes on until then.
    num_solutions : int
        How many configurations to find, at most: the best one, then each time the best of those that differ enough
        from all before. Not together with ``variables``.
    min_distance : int
        In how many variables any two of them must differ, at least; at 1 they are the best ones there are.
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
    Upper bounds are those of sequential tree-reweighted message passing (Kolmogorov 2006) for models of pairs, and for
    others those of mini-buckets (Dechter and Rish 2003) in the search, the sum of the largest entries of all terms
    elsewhere. A pass takes time in proportion to the number of states for each edge whose table is of Potts or
    truncated linear form, and to the number of its entries for others. Tables that edges share are never laid out in
    full.

    toulbar2 (Hurley et al. 2016) works on costs that are rounded to whole numbers, in a process of its own; log-weights
    are computed here. A proof of it counts where rounding cannot hide more than 1e-6, or ``tol`` if that is larger;
    otherwise the gap says so.

    Several solutions with ``min_distance=1`` take two runs through the junction tree each (Nilsson 1998, Yanover and
    Weiss 2004). With a larger distance the tree has counters of differences, one for each solution before; where that
    does not fit, and where the junction tree does not, ``auto`` asks toulbar2 if it is installed, and then searches
    with prices on agreement, which bound from above what is left (Batra et al. 2012).

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=1.0, field=[0.5, 0.1, -0.2])
    >>> most_probable(model, evidence={2: 0})
    MostProbableResult(log_weight=1.6, exact, method='cut', MarkovRandomField(3 variables of 2 states, 2 edges))
    >>> most_probable(model, variables=[2]).states.tolist()
    [-1, -1, 1]
    >>> most_probable(model, num_solutions=3).solutions.tolist()
    [[1, 1, 1], [0, 0, 0], [1, 1, 0]]
    """
    check_model(model)
    check_route(method)
    num_solutions = check_count("num_solutions", num_solutions, least=1)
    min_distance = check_count("min_distance", min_distance, least=1)
    wanted = None if variables is None else as_variables(model, variables)
    if wanted is None and has_noise(model):
        wanted = tuple(range(model.num_shown))
    if wanted is not None:
        check_choice("method", method, ("auto", "exact", "search"))
        if num_solutions > 1:
            raise ValueError(
                f"num_solutions must be 1 where variables are summed out, got {num_solutions}; leave out variables"
            )
    tol = check_positive("tol", tol, "number", or_zero=True)
    if memory_limit is not None:
        memory_limit = check_positive("memory_limit", memory_limit, "number of bytes")
    options: dict[str, Any] = {
        "method": method,
        "tol": tol,
        "num_solutions": num_solutions,
        "min_distance": min_distance,
        "memory_limit": memory_limit,
        "variables": wanted,
    }
    with open_context(
        "most probable", model, evidence=evidence, seed=seed, time_limit=time_limit, progress=progress, options=options
    ) as context:
        if wanted is not None:
            return context.finish(_maximize_some(model, wanted, method, context, tol, memory_limit))
        if num_solutions > 1:
            return context.finish(
                _find_several(model, method, context, tol, memory_limit, (num_solutions, min_distance))
            )
        return context.finish(_find_one(model, method, context, tol, memory_limit))


def _find_one(
    model: MarkovRandomField, method: str, context: Context, tol: float, memory_limit: float | None
) -> MostProbableResult:
    """The most probable configuration, without seconds and provenance."""
    run: ModeRun | None = None
    used = "search"
    with Ending() as ending:
        reduction = _reduce(model, context)
        run = ModeRun(reduction.model, context, tol=tol, memory_limit=memory_limit)
        used = find_by_route(method, run)
    if run is None or run.states is None:
        _raise_nothing(context, ending)
    states = reduction.expand_states(run.states)
    bound = run.log_weight if run.is_exact else max(run.log_weight, run.upper_bound)
    return MostProbableResult(
        model=model,
        states=states,
        log_weight=run.log_weight,
        upper_bound=bound,
        exact=run.is_exact,
        method="search" if ending.interrupted else used,
        status=_verdict(run, ending),
        stats={"stopped_by": _stopped_by(run, ending), "moves": run.moves, **run.stats},
        provenance={"options": run.engines},
        **_as_solutions(states, run.log_weight, bound, run.is_exact),
    )


def _find_several(
    model: MarkovRandomField,
    method: str,
    context: Context,
    tol: float,
    memory_limit: float | None,
    asked: tuple[int, int],
) -> MostProbableResult:
    """As many of the most probable configurations as asked for, as far apart, without seconds and provenance."""
    run: SolutionRun | None = None
    used = "search"
    with Ending() as ending:
        reduction = _reduce(model, context)
        counted = np.flatnonzero(reduction.variables < model.num_shown)
        run = SolutionRun(
            reduction.model, counted, context, tol=tol, memory_limit=memory_limit, num_solutions=asked[0],
            min_distance=asked[1],
        )  # fmt: skip
        used = run.run(method)
    if run is None or not run.found:
        _raise_nothing(context, ending)
    found = run.ranked()
    first = found[0]
    is_whole = run.is_complete or len(found) == asked[0]
    is_good = is_whole and all(one.is_exact or one.upper_bound - one.log_weight <= tol for one in found)
    states = reduction.expand_states(np.array([one.states for one in found]))
    return MostProbableResult(
        model=model,
        states=states[0],
        log_weight=first.log_weight,
        upper_bound=first.log_weight if first.is_exact else first.upper_bound,
        exact=first.is_exact,
        method="search" if ending.interrupted else used,
        solutions=states,
        log_weights=np.array([one.log_weight for one in found]),
        upper_bounds=np.array([one.log_weight if one.is_exact else one.upper_bound for one in found]),
        proven=np.array([one.is_exact for one in found]),
        status=Status.INTERRUPTED if ending.interrupted else Status.OK if is_good else Status.NOT_CONVERGED,
        stats={"stopped_by": ending.by, "moves": run.moves, **run.stats},
        provenance={"options": run.engines},
    )


def _raise_nothing(context: Context, ending: Ending) -> NoReturn:
    """Raise the error of a call that ended before there was any configuration."""
    if ending.interrupted:
        context.raise_nothing(ending.by)
    raise ResourceError(
        "no configuration of positive probability was found within the time limit, "
        f"{context.clock.limit:g} s; allow a longer time_limit"
    )


def _as_solutions(states: IntArray, log_weight: float, upper_bound: float, exact: bool) -> dict[str, Any]:
    """The fields of a result on its solutions, where there is one."""
    return {
        "solutions": states[None],
        "log_weights": np.array([log_weight]),
        "upper_bounds": np.array([upper_bound]),
        "proven": np.array([exact]),
    }


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
        **_as_solutions(states, run.log_weight, max(run.log_weight, run.upper_bound), run.is_exact),
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
