"""Loopy belief propagation: marginals and the Bethe estimate of log Z, with a verdict on convergence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import FloatArray
from fastmix._checks import check_choice, check_count, check_positive, check_share, keep_checked
from fastmix._clock import NO_LIMIT, Clock, Report
from fastmix.errors import UnfitMethodError
from fastmix.graphs import connected_components
from fastmix.methods.base import Context, Method, option, run_method
from fastmix.methods.preparation import IsingForm, ising_form, reduce_to_supported
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.build import offsets_of
from fastmix.model.reduce import Reduction
from fastmix.results import InferenceResult, LogZKind, Status, jsonable

__all__ = ["LoopyBP", "LoopyBPResult", "loopy_bp", "make_messages"]

MessageOrder = Literal["parallel", "residual"]

# Automatic damping: where both converge, undamped takes half the iterations, but attractive models often swing between
# two states without; going on from the undamped messages gave the better marginals.
_DAMPINGS = (0.0, 0.5, 0.75)
_WINDOW = 50  # iterations undamped without progress that end a stage; a damped one takes 1 / (1 - damping) times more
_LAST_WINDOW = 500  # iterations without any progress that show, in the last stage, that the messages cycle
# The smallest change of a window, as a fraction of the smallest before, that counts as progress: for a stage that more
# damping follows, and for the last, which nothing but time should end while there is any.
_PROGRESS, _LAST_PROGRESS = 0.8, 0.99
_CHUNK, _CHUNK_SHARE = 25, 0.025  # iterations between two looks at the progress, or a share of those made
_CHUNK_WORK = 2e7  # table entries between two looks at the clock and the keyboard: a fraction of a second
# Products of two odds within exp(+-300) stay in the range of doubles, which ends at exp(+-708). Messages within
# exp(+-100) do not matter beside odds that are not, see _node_products of the kernels.
_ODDS_LOG_RANGE, _MESSAGE_LOG_RANGE = 300.0, 100.0
# Exponentials of a table are used where none is below exp(-300) of the largest, see _new_message of the kernels.
_TAME_LOG_RANGE = 300.0
_RENEWED = 1 << 21  # messages between two looks at the clock where they are updated one by one: a second or so


@dataclass(frozen=True, eq=False, repr=False)
class LoopyBPResult(InferenceResult):
    """Beliefs of loopy belief propagation, and the Bethe estimate of log Z, which is no bound on either side.

    Messages that have not converged have no ``log_z``: what they give can be off by any factor. On graphs without
    cycles converged ones are exact, and so is their ``log_z``.

    Attributes
    ----------
    largest_change : float
        Largest change of the log of a message in the last iteration, before damping.
    """

    largest_change: float = 0.0

    @property
    def converged(self) -> bool:
        """Whether the last iteration changed no message by more than the tolerance."""
        return self.status == Status.OK

    @property
    def history(self) -> list[tuple[int, float]]:
        """Iterations made, and the largest change of the last of them, after every chunk of iterations."""
        return list(self.stats["history"])

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data; adds ``largest_change``."""
        return {**super().to_dict(), "largest_change": jsonable(self.largest_change)}


@dataclass(frozen=True)
class LoopyBP(Method):
    """Loopy belief propagation; the options are those of :func:`fastmix.loopy_bp`."""

    name: ClassVar[str] = "loopy-bp"
    guarantee: ClassVar[str] = "none, except on forests, where a converged answer is exact"
    seeded: ClassVar[bool] = False
    threaded: ClassVar[bool] = False
    gives_log_z: ClassVar[bool] = True
    takes_factors: ClassVar[bool] = True
    answers_zero: ClassVar[bool] = True
    needs_support: ClassVar[bool] = True

    message_order: MessageOrder = option("parallel", help="Order of messages: parallel or residual.")
    damping: float | None = option(help="Weight of the old message, from 0 to below 1; as needed by default.")
    max_iter: int | None = option(help="Iterations at most; by default as many as bring progress in the time.")
    tol: float = option(1e-9, help="Largest change of a message's log at the end.")

    def __post_init__(self) -> None:
        check_choice("message_order", self.message_order, get_args(MessageOrder))
        if self.damping is not None:
            keep_checked(self, damping=check_share("damping", self.damping, least=0.0))
        if self.max_iter is not None:
            keep_checked(self, max_iter=check_count("max_iter", self.max_iter, least=1))
        keep_checked(self, tol=check_positive("tol", self.tol))

    def reduce(self, model: MarkovRandomField, evidence: Evidence | None, clock: Clock = NO_LIMIT) -> Reduction:
        """Without states that no allowed pair has room for: every message stays finite."""
        return reduce_to_supported(model, evidence, clock)

    def run(self, model: MarkovRandomField, context: Context) -> LoopyBPResult:
        """Beliefs from the messages as they stand in the end."""
        messages = make_messages(model, message_order=self.message_order)
        status, stats = self._iterate(messages, model, context.clock)
        nodes, pairs, bethe = messages.beliefs(bool(context.edge_marginals))
        log_z_kind: LogZKind = "unknown"
        if status is Status.OK:
            log_z_kind = "exact" if _is_forest(model) else "estimate"
        return LoopyBPResult(
            model=model,
            method=self.name,
            status=status,
            node_marginals=nodes,
            edge_marginals=pairs if context.edge_marginals else None,
            log_z=None if log_z_kind == "unknown" else bethe,
            log_z_kind=log_z_kind,
            stats={**stats, "kernel": messages.kernel, "backend": "cpu"},
            largest_change=stats["largest_change"],
        )

    def _iterate(
        self, messages: _TableMessages | _OddsMessages, model: MarkovRandomField, clock: Clock
    ) -> tuple[Status, dict[str, Any]]:
        """Renew the messages until they stand still, cycle, or a limit is met, with more damping without progress."""
        search = _Search(self, model)
        status, stopped_by = Status.NOT_CONVERGED, "done"
        work = 1.0 + len(model.log_pairwise) + float(_factor_work(model).sum())
        most_at_once = max(1.0, _CHUNK_WORK / work)
        try:
            while not search.is_over:
                chunk = int(min(max(_CHUNK, _CHUNK_SHARE * search.done), most_at_once, search.left))
                made, change, converged = messages.advance(chunk, search.damping, self.tol, clock)
                search.note(made, change)
                clock.report(search.done, self.max_iter, "iterations")
                if converged:
                    status = Status.OK
                    break
                if clock.past() and not search.is_over:
                    stopped_by = "time_limit"
                    break
        except KeyboardInterrupt:
            status, stopped_by = Status.INTERRUPTED, "interrupt"
        return status, {
            "iterations": search.done, "updates": search.done * 2 * model.num_edges, "largest_change": search.change,
            "damping": search.damping, "history": search.history, "stopped_by": stopped_by,
        }  # fmt: skip


class _Search:
    """How far the messages have come, and how much damping they need.

    A stage of damping ends after a window of iterations without progress. The last ends, unless the number of
    iterations was given, after 500 without any: then the messages cycle.
    """

    def __init__(self, method: LoopyBP, model: MarkovRandomField) -> None:
        self.max_iter = method.max_iter
        self.stages = list(_DAMPINGS) if method.damping is None else [float(method.damping)]
        self.stage = self.done = 0
        self.change = math.inf
        self.history: list[tuple[int, float]] = []
        self.cycles = False
        self._is_forest = _is_forest(model)
        if self._is_forest:  # it ends by itself, after as many as the longest path
            self.stages = self.stages[:1]
        self._lowest = self._reference = math.inf
        self._window_end = self._window()

    @property
    def damping(self) -> float:
        """The weight of the old messages."""
        return self.stages[self.stage]

    @property
    def left(self) -> float:
        """Iterations that may still be made."""
        return math.inf if self.max_iter is None else self.max_iter - self.done

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done, or nothing is gained by going on."""
        return self.left <= 0 or (self.cycles and self.max_iter is None and not self._is_forest)

    def note(self, made: int, change: float) -> None:
        """Take in some iterations and the last change; see whether there was progress where a window ends."""
        if not made:
            return
        self.done += made
        self.change = change
        self.history.append((self.done, change))
        self._lowest = min(self._lowest, change)
        if self.done < self._window_end:
            return
        is_last = self.stage + 1 == len(self.stages)
        if self._lowest > (_LAST_PROGRESS if is_last else _PROGRESS) * self._reference:
            self.cycles = is_last
            self.stage += not is_last
            self._reference = math.inf
        else:
            self._reference = self._lowest
        self._lowest = math.inf
        self._window_end = self.done + self._window()

    def _window(self) -> float:
        return float(_LAST_WINDOW) if self.stage + 1 == len(self.stages) else _WINDOW / (1.0 - self.damping)


def loopy_bp(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    message_order: MessageOrder = "parallel",
    damping: float | None = None,
    max_iter: int | None = None,
    tol: float = 1e-9,
    edge_marginals: bool = False,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> LoopyBPResult:
    """Marginals by loopy belief propagation (sum-product), exact on trees.

    The message from i to j is ``m_ij(x_j) ~ sum_{x_i} exp(u_i(x_i) + T_ij(x_i, x_j)) prod_{k != j} m_ki(x_i)``, the
    belief of i is ``b_i(x_i) ~ exp(u_i(x_i)) prod_k m_ki(x_i)``, that of an edge
    ``b_ij ~ exp(T_ij) (b_i / m_ji) (b_j / m_ij)``, and with their normalisers
    ``log Z = k + sum_ij log Z_ij + sum_i (1 - degree_i) log Z_i`` (Bethe).

    Parameters
    ----------
    model : MarkovRandomField
        Any state counts, any strength; forbidden states and pairs are fine.
    message_order : {"parallel", "residual"}
        All messages at once, or always that one which would change most (Elidan, McGraw and Koller, 2006). An
        iteration is as many updates as there are messages, two per edge, in both.
    damping : float, optional
        From 0 to below 1: weight of the old message in the mean of the logs, a geometric mean of messages. By default
        0, and when that makes no progress 0.5 and then 0.75; on graphs without cycles always 0.
    max_iter : int, optional
        Iterations at most. By default as many as there is time for, unless the messages cycle: the largest change has
        not fallen in 500 iterations of the strongest damping.
    tol : float
        Converged when no log of a message changes by more (before damping; messages have their largest entry at 1).
    evidence, edge_marginals, time_limit, progress
        As for :func:`fastmix.infer`; after 60 seconds by default the messages are used as they stand.

    Returns
    -------
    LoopyBPResult
        ``status`` is ``not_converged`` when the messages still moved in the end: the marginals are
        those of the last messages, those of edges need not agree with those of variables, and ``log_z`` is None.
        ``history`` holds the changes, ``stats`` the iterations, the damping at the end, the kernel and the seconds.

    Raises
    ------
    ImpossibleEvidenceError
        If the evidence is impossible, as far as a search can show. Where that shows that the model itself has no
        configuration, a :class:`fastmix.results.ZeroResult` comes back.

    Notes
    -----
    An iteration costs ``O(sum over edges of L_i L_j)`` time. Memory is that of two sets of messages, ``O(sum over edges
    of L_i + L_j)``, and of a copy of the tables.

    Fixed points are stationary points of the Bethe free energy (Yedidia, Freeman and Weiss, 2005). Strongly coupled
    loopy models may have several, or none that the iteration settles in. The residual order converges more often: on
    16x16 Ising grids with mixed couplings up to 2 in 10 of 12 cases against 1 of 12, at fifty times the time. With
    forbidden pairs messages can go on growing while the marginals stand still: such a run counts as not converged.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=0.8, field=[0.3, 0.0, 0.0])
    >>> result = loopy_bp(model)
    >>> str(result.status), round(result.log_z, 6), result.marginal(2).round(6).tolist()
    ('ok', 2.705289, [0.435774, 0.564226])
    """
    method = LoopyBP(message_order, damping, max_iter, tol)
    return run_method(
        method, model, evidence=evidence, edge_marginals=edge_marginals, time_limit=time_limit, progress=progress
    )  # fmt: skip


def _is_forest(model: MarkovRandomField) -> bool:
    count, _ = connected_components(model.num_variables, model.edges)
    return model.num_edges == model.num_variables - count


# -- messages -------------------------------------------------------------------------------------------------------


def make_messages(model: MarkovRandomField, *, message_order: MessageOrder) -> _TableMessages | _OddsMessages:
    """The fastest kind of messages that fits a model: how they are kept, renewed and turned into beliefs.

    They start uniform (odds after the fields of the tables have been moved to the variables, which does not change the
    fixed points). Every state must have an allowed partner at every neighbor.
    """
    if message_order == "residual":
        if model.num_factors:
            raise UnfitMethodError(
                "message_order must be parallel for models with factors over three variables or more"
            )
        return _ResidualMessages(model)
    form = ising_form(model)
    if form is None or 2.0 * np.abs(form.coupling).max(initial=0.0) > _MESSAGE_LOG_RANGE:
        return _TableMessages(model)
    return _OddsMessages(model, form)


class _OddsMessages:
    """One number per message, its odds m(1) / m(0): for binary models without extreme couplings."""

    kernel = "odds"

    def __init__(self, model: MarkovRandomField, form: IsingForm) -> None:
        from fastmix.methods import loopy_bp_kernels as kernels

        self.model, self.form, self._kernels = model, form, kernels
        m = model.num_edges
        kind = np.uint32 if 2 * m < 2**32 else np.uint64
        self._messages = np.ones(2 * m)
        # Edges add 2 |J| to the log-odds at most, so this bounds every product of odds.
        reach = 2.0 * np.abs(form.field)
        for end in model.edges.T:
            reach += np.bincount(end, 2.0 * np.abs(form.coupling), minlength=model.num_variables)
        wide, field = reach > _ODDS_LOG_RANGE, 2.0 * form.field
        odds = np.where(wide, field, np.exp(np.where(wide, 0.0, field)))
        self._arguments = (
            odds, wide, model.adjacency.indptr.astype(kind), _incoming(model).astype(kind),
            np.exp(2.0 * form.coupling), self._messages, np.ones(2 * m), np.ones(2 * m),
        )  # fmt: skip

    def advance(
        self,
        num_iterations: int,
        damping: float,
        tol: float,
        clock: Clock = NO_LIMIT,  # noqa: ARG002  # iterations are short
    ) -> tuple[int, float, bool]:
        """Renew them, as those of tables."""
        made, change, converged = self._kernels.odds_rounds(*self._arguments, damping, tol, num_iterations)
        return int(made), float(change), bool(converged)

    def beliefs(self, every_edge: bool = True) -> tuple[FloatArray, FloatArray, float]:  # noqa: ARG002  # all carry them
        """Beliefs computed from tables, for the Ising form of the model."""
        model, form, graph = self.model, self.form, self.model.adjacency
        unary = np.outer(form.field, [-1.0, 1.0]).ravel()
        table = np.outer(form.coupling, [1.0, -1.0, -1.0, 1.0]).ravel()
        logs = np.zeros(2 * len(self._messages))
        logs[1::2] = np.log(self._messages)
        nodes, pairs = np.empty(len(unary)), np.empty(len(table))
        log_z = self._kernels.table_beliefs(
            unary, model.unary_offsets, graph.indptr, _incoming(model), model.edges, model.pairwise_offsets[:-1], table,
            np.arange(0, len(logs) + 1, 2), logs, *_factors(model), nodes, pairs, np.zeros(0),
        )  # fmt: skip
        return nodes, pairs, form.constant + float(log_z)


class _TableMessages:
    """Vectors of logs, for any tables.

    Edges of zeros between variables of a factor are there for the graph alone, and carry no messages.
    """

    def __init__(self, model: MarkovRandomField) -> None:
        from fastmix.methods import loopy_bp_kernels as kernels

        self.model, self._kernels, structure = model, kernels, model.structure
        self.kernel = "factors" if model.num_factors else "tables"
        self._carries = np.ones(model.num_edges, dtype=bool)
        if len(inside := structure.scope_pairs):
            sizes = np.maximum.reduceat(np.abs(model.log_pairwise), model.pairwise_offsets[:-1])
            self._carries[inside] = sizes[inside] > 0.0
        edges, weights, tame = model.edges[self._carries], *_exponentials(model)
        members = np.concatenate([edges[:, 1], edges[:, 0], structure.scope_variables])  # receivers of the messages
        indptr, incoming = model.adjacency.indptr, _incoming(model)
        if model.num_factors:
            indptr = offsets_of(np.bincount(members, minlength=model.num_variables))
            incoming = np.argsort(members, kind="stable")
        starts = offsets_of(model.num_states[members])
        self._messages = np.zeros(int(starts[-1]))
        widest = int(model.num_states.max(initial=0))
        self._state: tuple[NDArray[Any], ...] = (
            model.log_unary, model.unary_offsets, indptr, incoming, edges, model.pairwise_offsets[:-1][self._carries],
            model.log_pairwise, weights, tame[self._carries], starts, self._messages, np.zeros_like(self._messages),
            np.empty(len(model.log_unary)), np.empty(widest), np.empty(widest), *_factors(model),
            np.empty(int(np.diff(structure.factor_offsets).max(initial=0))),
        )  # fmt: skip
        self._parts = _parts(_factor_work(model))

    def advance(
        self, num_iterations: int, damping: float, tol: float, clock: Clock = NO_LIMIT
    ) -> tuple[int, float, bool]:
        """Renew them; iterations made, largest change of a log before damping, whether it is within tol.

        Iterations so long that the clock must be read within them are made in parts; one that it ends does not count.
        """
        made, change, converged = 0, float("inf"), False
        if len(self._parts) > 2:
            num_iterations = 1
        for first, stop in pairwise(self._parts):
            if first and clock.past():
                break
            arguments = damping, tol, num_iterations, first, stop
            made, change, converged = self._kernels.table_rounds(*self._state, *arguments)
        return int(made), float(change), bool(converged)

    def beliefs(self, every_edge: bool = True) -> tuple[FloatArray, FloatArray, float]:
        """Flat node marginals, flat edge marginals, Bethe log Z.

        Without ``every_edge`` edges that carry no messages may be left out.
        """
        model, state = self.model, self._state
        nodes, pairs = np.empty(len(model.log_unary)), np.empty(len(model.log_pairwise))
        sets = np.empty(len(model.log_factors))
        log_z = self._kernels.table_beliefs(*state[:7], *state[9:11], *_factors(model), nodes, pairs, sets)
        if every_edge:
            self._fill_edges(pairs, sets)
        return nodes, pairs, model.log_constant + float(log_z)

    def _fill_edges(self, pairs: FloatArray, sets: FloatArray) -> None:
        """Beliefs of the edges without messages, from the first factor that holds both ends."""
        model, starts = self.model, self.model.pairwise_offsets.tolist()
        hidden = {tuple(model.edges[e].tolist()): e for e in np.flatnonzero(~self._carries)}
        tables = np.split(sets, model.structure.factor_offsets[1:-1])
        for scope, values in zip(model.structure.scopes, tables, strict=False):
            table = values.reshape(model.num_states[scope])
            for ends in combinations(enumerate(scope.tolist()), 2):
                if (e := hidden.pop((ends[0][1], ends[1][1]), None)) is not None:
                    rest = tuple(axis for axis in range(len(scope)) if axis not in (ends[0][0], ends[1][0]))
                    pairs[starts[e] : starts[e + 1]] = table.sum(axis=rest).reshape(-1)


class _ResidualMessages(_TableMessages):
    """Those that are renewed one at a time, the most changed first."""

    def __init__(self, model: MarkovRandomField) -> None:
        super().__init__(model)
        self.kernel = "residual"
        count = 2 * model.num_edges
        self._begun = 0  # updates of an iteration that is not complete
        heap, place, keys = np.full(count, -1, dtype=np.int32), np.empty(count, dtype=np.int32), np.empty(count)
        self._state = (*self._state[:15], heap, place, keys)  # without the factors, of which there are none

    def advance(
        self,
        num_iterations: int,
        damping: float,
        tol: float,
        clock: Clock = NO_LIMIT,  # noqa: ARG002  # _RENEWED ends a call
    ) -> tuple[int, float, bool]:
        """Renew them; an iteration that is not complete is gone on with."""
        size = 2 * self.model.num_edges
        if size == 0:
            return 1, 0.0, True
        limits = num_iterations * size - self._begun, _RENEWED
        updates, change, converged = self._kernels.table_residual(*self._state, damping, tol, *limits)
        made, self._begun = divmod(self._begun + int(updates), size)
        if converged and self._begun:
            made, self._begun = made + 1, 0
        return made, float(change), bool(converged)


def _factor_work(model: MarkovRandomField) -> FloatArray:
    """Table entries that the messages of every factor take to renew, times its members."""
    structure = model.structure
    return np.diff(structure.factor_offsets).astype(float) * np.diff(structure.scope_starts)


def _parts(work: FloatArray) -> list[int]:
    """Where parts of an iteration over the factors begin, and the end: each of about as much work as a chunk."""
    parts = np.floor(np.cumsum(work) / _CHUNK_WORK)
    return [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(work)]


def _incoming(model: MarkovRandomField) -> NDArray[np.int64]:
    """Numbers of the messages that variables receive, in the order of the adjacency: e goes up, m + e down."""
    graph = model.adjacency
    return graph.edge_ids + np.where(model.structure.directed.owner < graph.neighbors, model.num_edges, 0)


def _factors(model: MarkovRandomField) -> tuple[NDArray[Any], ...]:
    """Where scopes begin, their members, where tables begin, and the tables of factors over three or more variables."""
    structure = model.structure
    return structure.scope_starts, structure.scope_variables, structure.factor_offsets, model.log_factors


def _exponentials(model: MarkovRandomField) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Exponentials of the tables, each divided by its largest, and the tables for which none vanishes."""
    if not model.num_edges:
        return np.zeros(0), np.zeros(0, dtype=np.bool_)
    starts = model.pairwise_offsets[:-1]
    top = np.maximum.reduceat(model.log_pairwise, starts)
    tame = top - np.minimum.reduceat(model.log_pairwise, starts) <= _TAME_LOG_RANGE
    return np.exp(model.log_pairwise - np.repeat(top, np.diff(model.pairwise_offsets))), tame
