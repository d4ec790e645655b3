"""``predict`` and ``impute``: answers for the holes of a table, by whatever way fits the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import check_choice
from fastmix._clock import NO_LIMIT, Report
from fastmix._context import open_context
from fastmix._memory import check_memory
from fastmix.model import MarkovRandomField
from fastmix.queries.answers import RowAnswers, Wanted
from fastmix.queries.gap_chains import answer_by_chains, fits_chains
from fastmix.queries.prepare import PreparedModel, prepare
from fastmix.queries.row_beliefs import answer_by_messages, fits_messages
from fastmix.queries.rows import fill_rows, read_rows
from fastmix.queries.tuning import MAX_PLANNED_PATTERNS, PATTERN_SECONDS

__all__ = ["impute", "predict"]


def predict(
    model: MarkovRandomField,
    rows: Any,
    *,
    method: Literal["auto", "exact", "chains", "loopy-bp"] = "auto",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> RowAnswers:
    """Probabilities of what is missing in every row of a table, and the most probable state of each variable.

    Parameters
    ----------
    model : MarkovRandomField
    rows : frame, array_like (N, n), or sequence of mappings
        As for :meth:`fastmix.PreparedModel.ask`: open, and so asked for, are variables without a column (hidden ones,
        too), -1 in arrays of whole numbers, NaN and None.
    method : {"auto", "exact", "chains", "loopy-bp"}
        ``exact`` is :func:`fastmix.prepare`. ``chains`` are two or more for every row, side by side; half of their
        sweeps and chains against the other half say how accurate they are: a row is ``ok`` where no probability has a
        standard error above about 0.03, ``not_mixed`` else. ``loopy-bp`` is belief propagation for all rows side by
        side, whose rows are ``unverified`` where messages converge (``ok`` on graphs without cycles, where they are
        exact), ``not_converged`` else. ``auto`` takes exact inference where all rows, or few sets of observed
        variables, have plans that fit, and chains elsewhere; models with larger factors or forbidden states have no
        chains: :meth:`fastmix.PreparedModel.ask` says what answers them.
    seed : int, optional
        Of the chains. Drawn and returned when not given.
    num_threads, time_limit, progress
        As for :meth:`fastmix.PreparedModel.ask`.

    Returns
    -------
    RowAnswers
        ``marginal(variable)`` are probabilities (N, states), ``best_states`` (N, n) the most probable ones.

    Raises
    ------
    ModelError
        If a value is no state, or a column no variable.
    ValueError
        If chains are asked for and the model has larger factors or forbidden states, or belief propagation and it has
        larger factors.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8)
    >>> answers = predict(model, [[0, -1, -1], [-1, -1, 1]])
    >>> answers.marginal(1).round(3).tolist(), answers.best_states.tolist()
    ([[0.832, 0.168], [0.168, 0.832]], [[0, 0, 0], [1, 1, 1]])
    """
    wanted = Wanted(marginals=True, most_probable=False, num_draws=0)
    check_choice("method", method, ("auto", "exact", "chains", "loopy-bp"))
    return _answer("predict", model, rows, wanted, method, seed, num_threads, time_limit, progress)


def impute(
    model: MarkovRandomField,
    rows: Any,
    *,
    by: Literal["most_probable", "draw"] = "most_probable",
    method: Literal["auto", "exact", "chains"] = "auto",
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> Any:
    """The table with its holes filled: the most probable completion of every row together, or one that is drawn.

    A frame gives a frame with a column for every variable but hidden ones, an array an array. Rows that no state
    agrees with, and those that the time did not suffice for, keep their holes.

    Parameters
    ----------
    model, rows, method, seed, num_threads, time_limit, progress
        As for :func:`fastmix.predict`, which has probabilities and a verdict on every row. By chains the most probable
        completion is the best one that annealed chains end in.
    by : {"most_probable", "draw"}
        Draws have the spread of real rows, so that statistics of the filled table are not biased; a most probable
        completion errs least often.

    Raises
    ------
    ModelError, ValueError
        As for :func:`fastmix.predict`.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8)
    >>> impute(model, [[0, -1, -1], [-1, -1, 1]]).tolist()
    [[0, 0, 0], [1, 1, 1]]
    """
    check_choice("by", by, ("most_probable", "draw"))
    draws = by == "draw"
    wanted = Wanted(marginals=False, most_probable=not draws, num_draws=int(draws))
    check_choice("method", method, ("auto", "exact", "chains"))
    answers = _answer("impute", model, rows, wanted, method, seed, num_threads, time_limit, progress)
    filled = answers.completions if answers.draws is None else answers.draws[:, 0]
    assert filled is not None
    return fill_rows(model, rows, np.where(filled < 0, answers.rows, filled), with_hidden=False)


def _answer(
    verb: str, model: MarkovRandomField, rows: Any, wanted: Wanted, method: str, seed: int | None,
    num_threads: int | None, time_limit: float | None, progress: Report,
) -> RowAnswers:  # fmt: skip
    """Answers by a prepared model, or by chains or belief propagation for all rows."""
    prepared = prepare(model)
    if method == "chains" and not fits_chains(model):
        raise ValueError("method must be auto or exact for models with larger factors or forbidden states")
    if method == "loopy-bp" and not fits_messages(model):
        raise ValueError("method must be auto or exact for models with factors over three or more variables")
    states = read_rows(model, rows)
    options = {"rows": len(states), "method": method}
    with open_context(
        verb, model, seed=seed, time_limit=time_limit, progress=progress, num_threads=num_threads, options=options
    ) as context:
        by_chains = method == "chains" or (method == "auto" and not _is_exact_cheap(prepared, states))
        if by_chains or method == "loopy-bp":
            numbers = int(model.unary_offsets[-1]) + model.num_variables
            check_memory(16.0 * len(states) * numbers, f"rows {len(states)}", "ask for fewer rows at a time")
        if method == "loopy-bp":
            return context.finish(answer_by_messages(model, states, wanted, context))
        if by_chains:
            return context.finish(answer_by_chains(model, states, wanted, context))
        answers = prepared.ask(
            states, marginals=wanted.marginals, most_probable=wanted.most_probable, num_draws=wanted.num_draws,
            seed=context.seed_of("rows"), num_threads=num_threads, time_limit=context.clock.limit, progress=progress,
        )  # fmt: skip
        return context.finish(replace(answers, provenance={}))


def _is_exact_cheap(prepared: PreparedModel, states: IntArray) -> bool:
    """Whether one plan is quick for all rows, or there are few plans to make; always where there are no chains."""
    if not fits_chains(prepared.model):
        return True
    plan = prepared.plans.of(prepared, (), NO_LIMIT)
    if plan is not None and plan.seconds_per_row <= PATTERN_SECONDS:
        return True
    patterns = np.unique(np.packbits(states >= 0, axis=1), axis=0, return_index=True)[1]
    if len(patterns) > MAX_PLANNED_PATTERNS:
        return False
    for row in states[patterns]:
        given = tuple(np.flatnonzero(row >= 0).tolist())
        own = prepared.plans.of(prepared, given, NO_LIMIT)
        if own is None or own.seconds_per_row > PATTERN_SECONDS:
            return False
    return True
