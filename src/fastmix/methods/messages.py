"""The messages of belief propagation on one model: how they are kept, renewed and turned into beliefs.

Each class has ``advance(num_iterations, damping, tol)``, which gives the iterations made, the largest change of the log
of a message (before damping) and whether it is within tol; and ``beliefs()``, which gives flat node marginals, flat
edge marginals and the Bethe estimate of log Z. Messages start uniform (binary ones after the fields of the tables have
been moved to the variables, which does not change the fixed points). All expect a model in which every state has an
allowed partner at every neighbour (:func:`fastmix.methods.preparation.reduce_to_supported`).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastmix.methods.ising_form import IsingForm, ising_form
from fastmix.model import MarkovRandomField
from fastmix.model.build import offsets_of

__all__ = [
    "Messages", "Schedule", "binary_beliefs", "exponentials", "fit_odds", "halvings_of", "incoming_messages",
    "make_messages", "message_starts", "tabled_beliefs",
]  # fmt: skip

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Schedule = Literal["parallel", "residual"]

# Odds within exp(+-300): products of two stay within the range of doubles, which ends at exp(+-708).
_ODDS_LOG_RANGE = 300.0
# Exponentials of a table are used where none is below exp(-300) of the largest, see table_message_kernels.
_TAME_LOG_RANGE = 300.0
_MOST_HALVINGS = 4
_CHUNK_WORK = 2e7
_BLOCK = 1 << 13  # edges whose beliefs are computed at once: their numbers stay in a cache


class Messages(Protocol):
    """What the loop of :func:`fastmix.methods.loopy_bp` works with."""

    kernel: str
    chunk_work: float  # table entries between two looks at the clock and the keyboard: a fraction of a second

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        """Renew the messages; iterations made, largest change, whether it is within tol."""
        ...

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        """Flat node marginals, flat edge marginals, Bethe log Z."""
        ...


def make_messages(model: MarkovRandomField, *, schedule: Schedule, damping: float | None) -> Messages:
    """The fastest kind of messages that fits a model; ``damping`` None stands for 0, 1/2 and 3/4."""
    if schedule == "residual":
        return _ResidualMessages(model)
    form = ising_form(model)
    if form is None:
        return _TableMessages(model)
    return _OddsMessages(model, form) if fit_odds(model, form, damping) else _LogOddsMessages(model, form)


def fit_odds(model: MarkovRandomField, form: IsingForm, damping: float | None) -> bool:
    """Whether messages can be odds: none leaves the range of doubles, and damping is a matter of square roots."""
    reach = 2.0 * np.abs(form.field)
    for end in model.edges.T:
        reach += np.bincount(end, 2.0 * np.abs(form.coupling), minlength=model.num_variables)
    # Edges add 2 |J| to the log-odds at most, so this bounds every product of odds.
    return bool(reach.max(initial=0.0) <= _ODDS_LOG_RANGE) and (damping is None or halvings_of(damping) is not None)


def halvings_of(damping: float) -> int | None:
    """The k of a damping of 1 - 2^-k: then the weighted mean of logs is a matter of square roots."""
    return next((k for k in range(_MOST_HALVINGS + 1) if damping == 1.0 - 0.5**k), None)


def incoming_messages(model: MarkovRandomField) -> IntArray:
    """Numbers of the messages that variables receive, in the order of the adjacency: e goes up, m + e down."""
    graph = model.adjacency
    owner = np.repeat(np.arange(model.num_variables), graph.degree)
    return graph.edge_ids + np.where(owner < graph.neighbors, model.num_edges, 0)


# -- binary ---------------------------------------------------------------------------------------------------------


class _OddsMessages:
    kernel = "odds"
    chunk_work = _CHUNK_WORK

    def __init__(self, model: MarkovRandomField, form: IsingForm) -> None:
        self.model, self.form = model, form
        kind = np.uint32 if 2 * model.num_edges < 2**32 else np.uint64
        self._indptr, self._incoming = model.adjacency.indptr.astype(kind), incoming_messages(model).astype(kind)
        self._odds, self._weights = np.exp(2.0 * form.field), np.exp(2.0 * form.coupling)
        self._messages = np.ones(2 * model.num_edges)
        self._spare, self._products = np.ones_like(self._messages), np.ones_like(self._messages)

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        from fastmix.methods.loopy_bp_kernels import odds_rounds

        halvings = halvings_of(damping)
        assert halvings is not None
        rounds, change, converged = odds_rounds(
            self._odds, self._indptr, self._incoming, self._weights, self._messages, self._spare, self._products,
            halvings, tol, num_iterations,
        )  # fmt: skip
        return int(rounds), float(change), bool(converged)

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        return binary_beliefs(self.model, self.form, np.log(self._messages))


class _LogOddsMessages:
    kernel = "log-odds"
    chunk_work = _CHUNK_WORK

    def __init__(self, model: MarkovRandomField, form: IsingForm) -> None:
        self.model, self.form = model, form
        self._field, self._twice_coupling = 2.0 * form.field, 2.0 * form.coupling
        self._weights = np.exp(-np.abs(self._twice_coupling))
        self._messages = np.zeros(2 * model.num_edges)
        self._totals = np.empty(model.num_variables)

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        from fastmix.methods.loopy_bp_kernels import log_odds_rounds

        rounds, change, converged = log_odds_rounds(
            self._field, self.model.edges, self._twice_coupling, self._weights, self._messages, self._totals, damping,
            tol, num_iterations,
        )  # fmt: skip
        return int(rounds), float(change), bool(converged)

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        return binary_beliefs(self.model, self.form, self._messages)


def binary_beliefs(
    model: MarkovRandomField, form: IsingForm, messages: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Beliefs and Bethe log Z in spins, where a message is exp(+-log-odds / 2)."""
    n, m = model.num_variables, model.num_edges
    i, j = model.edges.T
    upward, downward = messages[:m], messages[m:]
    total = 2.0 * form.field
    total += np.bincount(j, upward, minlength=n)
    total += np.bincount(i, downward, minlength=n)
    low = np.exp(-np.abs(total))
    node_log_z = 0.5 * np.abs(total) + np.log1p(low)
    nodes = np.empty((n, 2))
    nodes[:, 0] = np.where(total >= 0.0, low, 1.0) / (1.0 + low)
    nodes[:, 1] = np.where(total >= 0.0, 1.0, low) / (1.0 + low)
    pairs, edge_log_z = np.empty((m, 4)), np.empty(m)
    for begin in range(0, m, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        first, second = 0.5 * (total[i[part]] - downward[part]), 0.5 * (total[j[part]] - upward[part])
        coupling = form.coupling[part]
        logs = np.stack(
            [
                -first - second + coupling,
                second - first - coupling,
                first - second - coupling,
                first + second + coupling,
            ]
        )
        top = logs.max(axis=0)
        weights = np.exp(logs - top)
        sums = weights.sum(axis=0)
        pairs[part] = (weights / sums).T
        edge_log_z[part] = top + np.log(sums)
    log_z = form.constant + float(edge_log_z.sum() + ((1.0 - model.adjacency.degree) * node_log_z).sum())
    return nodes.ravel(), pairs.ravel(), log_z


# -- any tables -----------------------------------------------------------------------------------------------------


class _TableMessages:
    kernel = "tables"
    chunk_work = _CHUNK_WORK

    def __init__(self, model: MarkovRandomField) -> None:
        self.model = model
        self._incoming = incoming_messages(model)
        self._starts = message_starts(model)
        self._messages = np.zeros(int(self._starts[-1]))
        widest = int(model.num_states.max(initial=0))
        self._state: tuple[NDArray[Any], ...] = (
            model.log_unary, model.unary_offsets, model.adjacency.indptr, self._incoming, model.edges,
            model.pairwise_offsets, model.log_pairwise, *exponentials(model), self._starts, self._messages,
            np.zeros_like(self._messages), np.empty(len(model.log_unary)), np.empty(widest), np.empty(widest),
        )  # fmt: skip

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        from fastmix.methods.table_message_kernels import table_rounds

        arguments: tuple[Any, ...] = (*self._state, damping, tol, num_iterations)
        rounds, change, converged = table_rounds(*arguments)
        return int(rounds), float(change), bool(converged)

    def beliefs(self) -> tuple[FloatArray, FloatArray, float]:
        return tabled_beliefs(self.model, self._starts, self._messages)


def message_starts(model: MarkovRandomField) -> IntArray:
    """Where the vector of each message begins, (2 m + 1,)."""
    i, j = model.edges.T
    return offsets_of(np.concatenate([model.num_states[j], model.num_states[i]]))


def tabled_beliefs(
    model: MarkovRandomField, starts: IntArray, messages: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Beliefs and Bethe log Z from messages that are vectors of logs."""
    from fastmix.methods.table_message_kernels import table_beliefs

    nodes, pairs = np.empty(len(model.log_unary)), np.empty(len(model.log_pairwise))
    log_z = table_beliefs(
        model.log_unary, model.unary_offsets, model.adjacency.indptr, incoming_messages(model), model.edges,
        model.pairwise_offsets, model.log_pairwise, starts, messages, nodes, pairs,
    )  # fmt: skip
    return nodes, pairs, model.log_constant + float(log_z)


class _ResidualMessages(_TableMessages):
    kernel = "residual"

    def __init__(self, model: MarkovRandomField) -> None:
        from fastmix.methods.table_message_kernels import start_residual

        super().__init__(model)
        count = 2 * model.num_edges
        self._state += np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64), np.empty(count)
        if count:
            start_residual(*self._state)

    def advance(self, num_iterations: int, damping: float, tol: float) -> tuple[int, float, bool]:
        from fastmix.methods.table_message_kernels import table_residual

        size = 2 * self.model.num_edges
        if size == 0:
            return 1, 0.0, True
        arguments: tuple[Any, ...] = (*self._state, damping, tol, num_iterations * size)
        updates, change, converged = table_residual(*arguments)
        return -(-int(updates) // size), float(change), bool(converged)


def exponentials(model: MarkovRandomField) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Exponentials of the tables, each divided by its largest, and the tables for which none vanishes."""
    if not model.num_edges:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    starts = model.pairwise_offsets[:-1]
    top = np.maximum.reduceat(model.log_pairwise, starts)
    tame = top - np.minimum.reduceat(model.log_pairwise, starts) <= _TAME_LOG_RANGE
    return np.exp(model.log_pairwise - np.repeat(top, np.diff(model.pairwise_offsets))), tame
