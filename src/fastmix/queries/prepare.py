"""``prepare``: a model made ready for many questions, whose plan, order and tables are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastmix._arrays import IntArray
from fastmix._checks import as_list, check_choice, check_count, check_flag, check_positive, describe
from fastmix._clock import Ending, Report
from fastmix._context import open_context
from fastmix._memory import available_memory, check_memory
from fastmix.errors import ModelError
from fastmix.model import MarkovRandomField, check_model
from fastmix.queries.answers import RowAnswers, Wanted
from fastmix.queries.asking import Asking, Plans
from fastmix.queries.gap_chains import fits_chains
from fastmix.queries.row_beliefs import fits_messages
from fastmix.queries.rows import fill_rows, read_rows

__all__ = ["PreparedModel", "prepare"]

Sets = tuple[tuple[int, ...], ...]


def prepare(
    model: MarkovRandomField,
    *,
    evidence_variables: Iterable[int | str] | None = None,
    queries: Iterable[Sequence[int | str]] | None = None,
    memory_limit: float | None = None,
) -> PreparedModel:
    """The model, ready for rows of evidence: how to answer them is planned once and kept.

    Parameters
    ----------
    model : MarkovRandomField
    evidence_variables : iterable of int or str, optional
        Variables that every row will observe. They cut the graph, which can make exact answers much cheaper; rows
        that leave one of them open are refused.
    queries : iterable of sets of variables, optional
        Sets whose joint distributions are wanted; those of single variables need not be named.
    memory_limit : float, optional
        Bytes of tables; half of the free memory by default.

    Returns
    -------
    PreparedModel

    Raises
    ------
    ModelError
        If a variable is unknown, or a set names one that every row observes.

    Notes
    -----
    Exact inference answers where its tables fit. Elsewhere rows that observe enough variables are answered exactly by
    plans of their own, and the rest side by side, each with its verdict: by chains, or by belief propagation where the
    model forbids states, or it is asked for. :func:`fastmix.infer` does so row by row where these are few, or the model
    has larger factors.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8)
    >>> prepared = prepare(model)
    >>> answers = prepared.ask([[0, -1, -1], [-1, -1, 1], [-1, -1, -1]])
    >>> answers.marginal(1).round(3).tolist()
    [[0.832, 0.168], [0.168, 0.832], [0.5, 0.5]]
    >>> answers.log_evidence.round(3).tolist()
    [-0.693, -0.693, 0.0]
    """
    check_model(model)
    given = _numbers(model, "evidence_variables", evidence_variables)
    sets = []
    for query in _listed("queries", queries):
        numbers = _numbers(model, "queries", as_list("queries", query, "sets of variables such as (0, 1)"))
        if set(numbers) & set(given):
            raise ModelError(f"queries must leave out evidence_variables, got {describe(query)}")
        sets.append(numbers)
    limit = available_memory() / 2
    if memory_limit is not None:
        limit = check_positive("memory_limit", memory_limit, "number of bytes")
    return PreparedModel(model, given, tuple(sets), limit)


@dataclass(frozen=True, eq=False, repr=False)
class PreparedModel:
    """A model with kept plans for rows of evidence; made by :func:`fastmix.prepare`.

    It can be used by several threads at once, and be pickled; plans are then made anew.

    Attributes
    ----------
    model : MarkovRandomField
    evidence_variables : tuple of int
        Variables that every row observes.
    queries : tuple of tuples of int
        Sets whose joint distributions are among the answers.
    memory_limit : float
        Bytes of tables.
    """

    model: MarkovRandomField
    evidence_variables: tuple[int, ...] = ()
    queries: Sets = ()
    memory_limit: float = np.inf
    plans: Plans = field(default_factory=Plans, init=False)

    def __repr__(self) -> str:
        return f"PreparedModel({self.model})"

    def __reduce__(self) -> tuple[Any, ...]:
        return PreparedModel, (self.model, self.evidence_variables, self.queries, self.memory_limit)

    def ask(
        self,
        rows: Any,
        *,
        marginals: bool = True,
        most_probable: bool = False,
        num_draws: int = 0,
        otherwise: Literal["auto", "chains", "loopy-bp"] = "auto",
        seed: int | None = None,
        num_threads: int | None = None,
        time_limit: float | None = None,
        progress: Report = "auto",
    ) -> RowAnswers:
        """Answers for rows of evidence, in their order.

        Parameters
        ----------
        rows : frame, array_like (N, n), or sequence of mappings
            Observed states. A frame has a column for each of some variables, an array one for every variable, a
            mapping those of its row. Open, and so asked for, are variables without a column, -1 in arrays of whole
            numbers, NaN and None.
        marginals : bool
            Marginals of all variables, and the joint distributions that the model was prepared for.
        most_probable : bool
            The most probable configuration that agrees with each row.
        num_draws : int
            Independent configurations to draw for each row.
        otherwise : {"auto", "chains", "loopy-bp"}
            How rows are answered that exact inference does not fit. ``chains`` take sweeps until their halves agree
            (``ok``, else ``not_mixed``); there are none for models with larger factors or forbidden states. Loopy
            belief propagation takes a fraction of the time; its rows are ``unverified`` where messages converge,
            ``not_converged`` elsewhere, ``row_log_z`` is the Bethe estimate, and there are no draws. ``auto`` takes
            chains for more than a few rows, belief propagation where there are none, and :func:`fastmix.infer` row by
            row for few rows, or larger factors.
        seed : int, optional
            Of the draws, and of rows that are sampled.
        num_threads : int, optional
            Blocks of rows are answered side by side; all processors by default.
        time_limit : float, optional
            Seconds, none by default. Rows that are not answered by then have the status ``time_limit``, and NaN.
        progress : "auto", None or callable
            See :func:`fastmix.infer`.

        Returns
        -------
        RowAnswers

        Raises
        ------
        ModelError
            If a value is no state, a column no variable, or one of ``evidence_variables`` is open in a row.
        ValueError
            If the model, or what is wanted, does not fit ``otherwise``.
        ResourceError
            If the answers do not fit the memory.
        Interrupted
            On Ctrl-C: a KeyboardInterrupt whose ``result`` has the rows that were answered by then.
        """
        wanted = Wanted(
            check_flag("marginals", marginals),
            check_flag("most_probable", most_probable),
            check_count("num_draws", num_draws, least=0),
        )
        self._check_otherwise(otherwise, wanted)
        states = read_rows(self.model, rows)
        self._check_rows(states, wanted)
        options = {
            "rows": len(states), "marginals": marginals, "most_probable": most_probable, "num_draws": num_draws,
            "otherwise": otherwise,
        }  # fmt: skip
        with open_context(
            "rows", self.model, seed=seed, time_limit=time_limit, progress=progress, num_threads=num_threads,
            options=options,
        ) as context:  # fmt: skip
            work = Asking(self, states, wanted, context, otherwise)
            with Ending() as ending:
                work.run()
            return context.finish(work.result(ending))

    def predict(
        self,
        rows: Any,
        *,
        seed: int | None = None,
        num_threads: int | None = None,
        time_limit: float | None = None,
        progress: Report = "auto",
    ) -> Any:
        """The rows with every open variable at its most probable state, each by its own marginal.

        A frame gives a frame with a column for every variable, an array an array. Arguments are those of :meth:`ask`.
        Variables of impossible rows that are open stay open. For states that are most probable together see
        :meth:`impute`.
        """
        answers = self.ask(rows, seed=seed, num_threads=num_threads, time_limit=time_limit, progress=progress)
        return fill_rows(self.model, rows, answers.best_states)

    def impute(
        self,
        rows: Any,
        *,
        by: Literal["most_probable", "draw"] = "most_probable",
        seed: int | None = None,
        num_threads: int | None = None,
        time_limit: float | None = None,
        progress: Report = "auto",
    ) -> Any:
        """The rows with what is open filled: the most probable completion together, or one drawn given the row.

        A frame gives a frame with a column for every variable, an array an array. Impossible rows stay as they are.
        Other arguments are those of :meth:`ask`.
        """
        check_choice("by", by, ("most_probable", "draw"))
        draws = by == "draw"
        answers = self.ask(
            rows, marginals=False, most_probable=not draws, num_draws=int(draws), seed=seed, num_threads=num_threads,
            time_limit=time_limit, progress=progress,
        )  # fmt: skip
        filled = answers.completions if answers.draws is None else answers.draws[:, 0]
        assert filled is not None
        return fill_rows(self.model, rows, np.where(filled < 0, answers.rows, filled))

    def update(self, model: MarkovRandomField) -> PreparedModel:
        """The same for other parameters on the same structure: the plans are kept."""
        check_model(model)
        if not (
            np.array_equal(model.num_states, self.model.num_states)
            and np.array_equal(model.edges, self.model.edges)
            and np.array_equal(model.structure.scope_starts, self.model.structure.scope_starts)
            and np.array_equal(model.structure.scope_variables, self.model.structure.scope_variables)
        ):
            raise ModelError("model must have the variables, edges and factors that were prepared")
        updated = PreparedModel(model, self.evidence_variables, self.queries, self.memory_limit)
        updated.plans.take(self.plans, model)
        return updated

    def _check_otherwise(self, otherwise: str, wanted: Wanted) -> None:
        """Refuse a way of answering that the model, or what is wanted, does not fit."""
        check_choice("otherwise", otherwise, ("auto", "chains", "loopy-bp"))
        if otherwise == "chains" and not fits_chains(self.model):
            raise ValueError("otherwise must be auto or loopy-bp for models with larger factors or forbidden states")
        if otherwise == "loopy-bp" and not fits_messages(self.model):
            raise ValueError("otherwise must be auto for models with factors over three or more variables")
        if otherwise == "loopy-bp" and wanted.num_draws:
            raise ValueError(
                f"otherwise must be auto or chains where draws are wanted, got num_draws={wanted.num_draws}"
            )

    def _check_rows(self, states: IntArray, wanted: Wanted) -> None:
        """Refuse rows that leave open what every row observes, and answers that do not fit the memory."""
        for v in self.evidence_variables:
            is_open = np.flatnonzero(states[:, v] < 0)
            if len(is_open):
                name = self.model.names_of_variables()[v]
                raise ModelError(
                    f"rows must observe {name}, one of evidence_variables, in all rows; row {is_open[0]} does not"
                )
        n = self.model.num_variables
        numbers = int(self.model.unary_offsets[-1]) * wanted.marginals + n * (wanted.most_probable + wanted.num_draws)
        check_memory(16.0 * len(states) * numbers, f"rows {len(states)}", "ask for fewer rows at a time")


def _numbers(model: MarkovRandomField, name: str, variables: Any) -> tuple[int, ...]:
    """Numbers of some variables, each of them once."""
    numbers = [model.variable_index(variable) for variable in _listed(name, variables)]
    if len(set(numbers)) < len(numbers):
        raise ModelError(f"{name} must name a variable once, got {describe(variables)}")
    return tuple(numbers)


def _listed(name: str, values: Any) -> list[Any]:
    """The entries of a list argument; none where it is None."""
    return [] if values is None else list(as_list(name, values, "a list of variables"))
