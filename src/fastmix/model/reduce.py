"""Smaller models with the same answers: evidence folded in, forbidden states dropped, and the way back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fastmix._arrays import BoolArray, FloatArray, IntArray
from fastmix._checks import as_float_array, describe
from fastmix._clock import NO_LIMIT, Clock
from fastmix.errors import ImpossibleEvidenceError, ImpossibleModelError, ModelError
from fastmix.graphs.basics import run_loop
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.build import offsets_of, table_positions
from fastmix.model.centre import move_constants, take_offsets

__all__ = [
    "Reduction", "certain_entries", "drop_unsupported", "forbid_others", "impossible", "observed_unary", "reduce_model",
]  # fmt: skip

Factors = dict[tuple[int, ...], FloatArray]  # tables over three or more variables, by scope

_AT_ONCE = 1 << 24  # entries of tables that are read before the clock is
_LARGE_ENTRY = 1e4  # nats: rounding of entries beyond it is worth a reduction
_IN_PYTHON = 20_000  # entries times variables of the tables, beyond which the loop is compiled


@dataclass(frozen=True, eq=False)
class Reduction:
    """A model, a smaller one with the same distribution over what is left, and the maps between them.

    ``variables`` are the original numbers of the variables of ``model``, ``unary_positions`` and ``pairwise_positions``
    the original positions of its entries; ``fixed`` (n,) is the state of each original variable that was removed, -1
    for those kept.
    """

    original: MarkovRandomField
    model: MarkovRandomField
    variables: IntArray
    unary_positions: IntArray
    pairwise_positions: IntArray
    fixed: IntArray

    @classmethod
    def none(cls, original: MarkovRandomField, model: MarkovRandomField | None = None) -> Reduction:
        """That of a model in which there is nothing to reduce, to itself or to another one on its graph."""
        n = original.num_variables
        nodes, entries, pairs = map(np.arange, (n, len(original.log_unary), len(original.log_pairwise)))
        return cls(original, original if model is None else model, nodes, entries, pairs, np.full(n, -1))

    def expand_node_marginals(self, marginals: FloatArray) -> FloatArray:
        """Flat node marginals of the original model: point masses for removed variables, zero for dropped states."""
        if self.model is self.original:
            return marginals
        result = np.zeros(len(self.original.log_unary))
        result[self.unary_positions] = marginals
        removed = np.flatnonzero(self.fixed >= 0)
        result[self.original.unary_offsets[removed] + self.fixed[removed]] = 1.0
        return result

    def expand_edge_marginals(self, node_marginals: FloatArray, edge_marginals: FloatArray) -> FloatArray:
        """Flat edge marginals of the original model; an edge with a removed end is a product with a point mass."""
        model = self.original
        if self.model is self.original:
            return edge_marginals
        nodes = self.expand_node_marginals(node_marginals)
        result = np.zeros(len(model.log_pairwise))
        result[self.pairwise_positions] = edge_marginals
        touched = self.fixed[model.edges].max(axis=1) >= 0
        ends = _entry_ends(model, touched)
        result[np.repeat(touched, np.diff(model.pairwise_offsets))] = nodes[ends[0]] * nodes[ends[1]]
        return result

    def expand_states(self, states: ArrayLike) -> IntArray:
        """Configurations (..., n) of the original model from configurations of the reduced one."""
        x, shape = self.model._as_states(states)
        if self.model is self.original:
            return x.reshape((*shape, self.original.num_variables))
        result = np.repeat(self.fixed[None, :], len(x), axis=0)
        flat = self.unary_positions[self.model.unary_offsets[:-1] + x]
        result[:, self.variables] = flat - self.original.unary_offsets[self.variables]
        return result.reshape((*shape, self.original.num_variables))


def reduce_model(
    model: MarkovRandomField,
    evidence: Evidence | None = None,
    *,
    drop_forbidden: bool = True,
    fold_single: bool = False,
    clock: Clock = NO_LIMIT,
) -> Reduction:
    """The model given evidence, as a :class:`Reduction` that can map answers back.

    Observed variables leave the model; a list of likelihoods, one per state, is soft evidence: the variable stays, and
    its states are weighted by them. With ``drop_forbidden``, states whose unary, after folding, is -inf go, and with
    ``fold_single`` variables that have a single state left, as if it had been observed. In that case, and where there
    are larger factors, states go, too, that the states left of other variables do not allow
    (:func:`drop_unsupported`). A :class:`ModelError` if the evidence, or the model itself, has
    probability zero for a reason visible in a single variable or edge. After the limit of the clock a reduction of
    several passes ends with an :class:`fastmix._clock.OutOfTimeError`.

    Time and memory are linear in the number of entries. When there is nothing to do, ``model`` of the answer is the
    very object that was given.
    """
    check_model(model)
    original = model
    # Before anything is added to them: what is added to a large constant is lost.
    model = move_constants(model)
    fixed, likelihoods = _observed_states(model, evidence)
    if likelihoods is not None:
        model = model.replace(log_unary=_weighted(model, likelihoods))
    if _nothing_to_do(model, fixed, drop_forbidden, fold_single):
        return Reduction.none(original, model)
    variable_of = np.repeat(np.arange(model.num_variables), model.num_states)
    state_of = np.arange(len(variable_of)) - model.unary_offsets[variable_of]
    unsupported = np.zeros(len(variable_of), dtype=bool)
    while True:
        unary, constant, tables, factors = _fold(model, fixed)
        # States still open: the observed one of a fixed variable, all of the others unless forbidden.
        open_state = (fixed[variable_of] < 0) | (fixed[variable_of] == state_of)
        allowed = open_state & (unary > -np.inf) & ~unsupported
        if drop_forbidden and (factors or (fold_single and not unsupported.any())):  # once is enough for pairs
            before = allowed.copy()
            drop_unsupported(model, tables, factors, fixed, allowed, clock)
            unsupported |= before & ~allowed
        num_left = np.bincount(variable_of[allowed], minlength=model.num_variables)
        if constant == -np.inf or (num_left == 0).any():
            raise _impossible(model, fixed, num_left, given=bool(evidence))
        single = (num_left == 1) & (fixed < 0)
        if not fold_single or not single.any():
            break
        chosen = allowed & single[variable_of]
        fixed[variable_of[chosen]] = state_of[chosen]

    if allowed.all() and (fixed < 0).all():
        return Reduction.none(original, model)
    kept_state = (allowed if drop_forbidden else open_state) & (fixed[variable_of] < 0)
    kept_edge = (fixed[model.edges[:, 0]] < 0) & (fixed[model.edges[:, 1]] < 0)
    variables, unary_positions = np.flatnonzero(fixed < 0), np.flatnonzero(kept_state)
    num_states = np.bincount(variable_of[kept_state], minlength=model.num_variables)[variables]
    pairwise_positions = _kept_entries(model, kept_edge, kept_state)
    state_names = None
    if model.state_names is not None:
        left_names = [model.state_names[variable_of[p]][state_of[p]] for p in unary_positions]
        state_names = [left_names[a:b] for a, b in pairwise(offsets_of(num_states))]
    reduced = MarkovRandomField(
        num_states,
        unary[unary_positions],
        (np.cumsum(fixed < 0) - 1)[model.edges[kept_edge]],
        tables[pairwise_positions],
        constant,
        None if model.variable_names is None else tuple(model.variable_names[i] for i in variables),
        state_names,  # type: ignore[arg-type]
        *_kept_factors(model, factors, fixed, kept_state),
    )
    # What is left of a table can have a constant although the table had none.
    return Reduction(original, move_constants(reduced), variables, unary_positions, pairwise_positions, fixed)


def forbid_others(model: MarkovRandomField, evidence: Evidence | None) -> Reduction | None:
    """The model with all states but the observed ones forbidden, on the same structure; None where that is impossible.

    Cheaper than :func:`reduce_model` where the graph is so small that nothing is gained by cutting it. None also where
    entries are so large that what is left of a table should have its constant taken out.
    """
    original = model
    model = move_constants(model)
    if evidence is None or (isinstance(evidence, Mapping) and not evidence):
        return Reduction.none(original, model)
    if _largest_entry(model) > _LARGE_ENTRY:
        return None
    fixed, likelihoods = _observed_states(model, evidence)
    unary = model.log_unary.copy() if likelihoods is None else _weighted(model, likelihoods)
    offsets = model.unary_offsets
    for v in np.flatnonzero(fixed >= 0).tolist():
        table, state = unary[offsets[v] : offsets[v + 1]], fixed[v]
        value = table[state]
        if value == -np.inf:
            return None
        table.fill(-np.inf)
        table[state] = value
    if likelihoods is not None and any(unary[offsets[v] : offsets[v + 1]].max() == -np.inf for v in likelihoods):
        return None
    given = model._sibling(unary, model.log_pairwise, model.log_factors, model.log_constant)
    return Reduction.none(original, given)


def _largest_entry(model: MarkovRandomField) -> float:
    """The largest finite absolute value of all entries."""
    arrays = (model.log_unary, model.log_pairwise, model.log_factors)
    return max([float(np.abs(a[a > -np.inf]).max(initial=0.0)) for a in arrays])


def observed_unary(model: MarkovRandomField, evidence: Evidence | None) -> tuple[FloatArray, IntArray]:
    """Unary entries given evidence, with -inf for states that were not observed; and the state of each variable or -1.

    The likelihoods of soft evidence are added.
    """
    fixed, likelihoods = _observed_states(model, evidence)
    unary = model.log_unary.copy() if likelihoods is None else _weighted(model, likelihoods)
    observed = np.flatnonzero(fixed >= 0)
    places = model.unary_offsets[observed] + fixed[observed]
    kept = unary[places]
    unary[np.repeat(fixed >= 0, model.num_states)] = -np.inf
    unary[places] = kept
    return unary, fixed


def check_evidence(evidence: Any) -> None:
    """A :class:`ModelError` if evidence is no mapping, with what it is instead."""
    if not isinstance(evidence, Mapping):
        raise ModelError(
            f"evidence must be a mapping from variables to states, such as {{0: 1}}, or None, got {describe(evidence)}"
        )


def _observed_states(
    model: MarkovRandomField, evidence: Evidence | None
) -> tuple[IntArray, dict[int, FloatArray] | None]:
    """Observed state of each variable, -1 for the others, and likelihoods by variable if there are any."""
    fixed = np.full(model.num_variables, -1, dtype=np.int64)
    if evidence is None:
        return fixed, None
    check_evidence(evidence)
    soft: dict[int, FloatArray] = {}
    for variable, state in evidence.items():
        i = model.variable_index(variable)
        if isinstance(state, list | tuple | np.ndarray):
            soft[i] = soft.get(i, 1.0) * _likelihood(model, variable, i, state)
            continue
        observed = model.state_index(variable, state)
        if fixed[i] not in (-1, observed):
            name = model.names_of_variables()[i]
            raise ModelError(
                f"evidence must give each variable one state, got {fixed[i]} and {observed} for variable {name}"
            )
        fixed[i] = observed
    return fixed, soft or None


def _likelihood(model: MarkovRandomField, variable: Any, i: int, values: Any) -> FloatArray:
    likelihood = as_float_array(f"evidence of variable {describe(variable)}", values)
    right = np.isfinite(likelihood).all() and (likelihood >= 0.0).all() and likelihood.any()
    if likelihood.shape != (model.num_states[i],) or not right:
        raise ModelError(
            f"evidence of variable {describe(variable)} must be likelihoods of at least 0, one for each of its "
            f"{model.num_states[i]} states and not all 0, got {describe(values)}"
        )
    return likelihood


def _weighted(model: MarkovRandomField, likelihoods: dict[int, FloatArray]) -> FloatArray:
    """The unary entries with the logs of likelihoods added."""
    unary = model.log_unary.copy()
    with np.errstate(divide="ignore"):
        for i, likelihood in likelihoods.items():
            unary[model.unary_offsets[i] : model.unary_offsets[i + 1]] += np.log(likelihood)
    return unary


def _nothing_to_do(model: MarkovRandomField, fixed: IntArray, drop_forbidden: bool, fold_single: bool) -> bool:
    """Whether the model stays as it is: the common case, worth no arrays of the size of the tables."""
    if (fixed >= 0).any():
        return False
    # The model checks that every variable has a state; only with forbidden ones can a larger variable have just one.
    terms = (model.log_unary, model.log_factors, *((model.log_pairwise,) if fold_single else ()))
    forbidden = any(a.size and a.min() == -np.inf for a in terms)
    if forbidden and (drop_forbidden or fold_single):
        return False
    return not (fold_single and bool((model.num_states == 1).any()))


def _fold(model: MarkovRandomField, fixed: IntArray) -> tuple[FloatArray, float, FloatArray, Factors]:
    """Unary entries, constant, edge tables and factors with all that is fixed folded into those of fewer variables.

    What is folded has its large constants taken out before it is added, and all constants are added up at once.
    """
    starts = model.unary_offsets[:-1]
    removed = np.flatnonzero(fixed >= 0)
    unary = model.log_unary.copy()
    constants = [model.log_constant]
    if removed.size:
        constants += _fold_edges(model, fixed, unary)
    pairwise, factors = model.log_pairwise, Factors()
    if model.num_factors:
        pairwise = pairwise.copy()
        for scope, table in model.factors:
            free = fixed[scope] < 0
            left, part = scope[free], table[tuple(slice(None) if s < 0 else s for s in fixed[scope])]
            if len(left) == 0:
                constants.append(float(part))
                continue
            if len(left) < len(scope):
                flat, taken = take_offsets(part.reshape(-1), np.array([0, part.size]))
                part = flat.reshape(part.shape)
                constants.append(float(taken[0]))
            if len(left) == 1:
                unary[model.unary_offsets[left[0]] : model.unary_offsets[left[0] + 1]] += part
            elif len(left) == 2:
                e = model.edge_index(int(left[0]), int(left[1]))
                pairwise[model.pairwise_offsets[e] : model.pairwise_offsets[e + 1]] += part.reshape(-1)
            else:
                key = tuple(left.tolist())
                factors[key] = factors[key] + part if key in factors else part
    constants += unary[starts[removed] + fixed[removed]].tolist()
    constants += _entries_between_fixed(model, fixed)[1].tolist()
    return unary, math.fsum(constants), pairwise, factors


def _fold_edges(model: MarkovRandomField, fixed: IntArray, unary: FloatArray) -> list[float]:
    """Add to ``unary``, in place, the rows of edge tables that fixed ends leave; the constants taken out of them."""
    directed, around = model.structure.directed, model.adjacency.neighbors
    place = np.flatnonzero((fixed[directed.owner] >= 0) & (fixed[around] < 0))
    sizes = model.num_states[around[place]]
    offsets = offsets_of(sizes)
    place = np.repeat(place, sizes)
    state = np.arange(len(place)) - np.repeat(offsets[:-1], sizes)
    entries = directed.starts[place] + fixed[directed.owner[place]] * directed.own_steps[place]
    values, taken = take_offsets(model.log_pairwise[entries + state * directed.other_steps[place]], offsets)
    unary += np.bincount(model.unary_offsets[around[place]] + state, values, minlength=len(unary))
    return [float(c) for c in taken[taken != 0.0]]


def _kept_factors(
    model: MarkovRandomField, factors: Factors, fixed: IntArray, kept_state: BoolArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """Scopes and tables of the factors between kept states, for the constructor."""
    number, starts = np.cumsum(fixed < 0) - 1, model.unary_offsets
    scopes = sorted(factors)
    cut = [factors[s][np.ix_(*(kept_state[starts[v] : starts[v + 1]] for v in s))].reshape(-1) for s in scopes]
    sizes = np.array([len(scope) for scope in scopes], dtype=np.int64)
    variables = number[np.array([v for scope in scopes for v in scope], dtype=np.int64)]
    return offsets_of(sizes), variables, np.concatenate(cut) if cut else np.zeros(0)


def _entries_between_fixed(model: MarkovRandomField, fixed: IntArray) -> tuple[IntArray, FloatArray]:
    """The edges with both ends fixed, and the one entry of each that is used."""
    edges = np.flatnonzero((fixed[model.edges] >= 0).all(axis=1))
    i, j = model.edges[edges].T
    return edges, model.log_pairwise[model.pairwise_offsets[edges] + fixed[i] * model.num_states[j] + fixed[j]]


def _impossible(model: MarkovRandomField, fixed: IntArray, num_left: IntArray, *, given: bool) -> ModelError:
    names, states = model.names_of_variables(), model.names_of_states()
    if (dead := np.flatnonzero(num_left == 0)).size:
        return impossible(given, f"variable {names[dead[0]]} has no state left")
    edges, values = _entries_between_fixed(model, fixed)
    if (broken := edges[values == -np.inf]).size:
        i, j = model.edges[broken[0]].tolist()
        left = f"states {states[i][fixed[i]]} and {states[j][fixed[j]]}, the only ones left of its ends"
        return impossible(given, f"edge ({names[i]}, {names[j]}) forbids {left}")
    return impossible(given)


def impossible(given: bool, why: str = "") -> ModelError:
    """The error for a model, or for evidence (``given``), without a configuration of positive probability."""
    reason = f": {why}" if why else ""
    if given:
        return ImpossibleEvidenceError(f"evidence must have positive probability, but it is impossible{reason}")
    return ImpossibleModelError(f"the model has no configuration of positive probability{reason}")


def _kept_entries(model: MarkovRandomField, kept_edge: BoolArray, kept_state: BoolArray) -> IntArray:
    """Positions of the table entries between kept states."""
    sizes = np.diff(model.pairwise_offsets)
    kept = np.repeat(kept_edge, sizes)
    whole = np.logical_and.reduceat(kept_state, model.unary_offsets[:-1]) if len(kept_state) else kept_state
    cut = kept_edge & ~whole[model.edges].all(axis=1)
    ends = _entry_ends(model, cut)
    kept[np.repeat(cut, sizes)] = kept_state[ends[0]] & kept_state[ends[1]]
    return np.flatnonzero(kept)


def _entry_ends(model: MarkovRandomField, chosen: BoolArray) -> tuple[IntArray, IntArray]:
    """For every entry of the tables of chosen edges, where its two states are among the unary entries."""
    owner, row, col = table_positions(model.num_states, model.edges[chosen])
    i, j = model.unary_offsets[model.edges[chosen][owner]].T
    return i + row, j + col


def certain_entries(model: MarkovRandomField) -> BoolArray:
    """Which entries of ``log_unary`` have a probability of 0 or 1 by the unaries alone, (E,).

    States that the unary forbids, and the one state of a variable that it allows.
    """
    allowed = model.log_unary > -np.inf
    if not len(allowed):
        return allowed
    num_allowed = np.add.reduceat(allowed.astype(np.int64), model.unary_offsets[:-1])
    return ~allowed | np.repeat(num_allowed == 1, model.num_states)


# -- arc consistency --------------------------------------------------------------------------------------------------


def drop_unsupported(
    model: MarkovRandomField, tables: FloatArray, factors: Factors, fixed: IntArray, allowed: BoolArray, clock: Clock
) -> None:
    """Disallow, in place, states that some edge table or factor gives no configuration of allowed states.

    ``tables`` are those of the edges, in place of the model's own, and count where no end is ``fixed``; ``allowed`` is
    aligned with ``log_unary``. Terms wait in a queue, and come back when another one takes a state from one of their
    variables, so that a chain of consequences costs each term once per loss (generalised arc consistency, AC-3 of
    Mackworth, 1977). It ends where a variable has no state left.
    """
    scopes, graph = list(factors), model.adjacency
    possible = np.concatenate([part.reshape(-1) > -np.inf for part in (tables, *factors.values())])
    if possible.all():
        return
    sizes = np.append(np.full(model.num_edges, 2), np.array([len(scope) for scope in scopes], dtype=np.int64))
    more = np.cumsum([table.size for table in factors.values()], dtype=np.int64)
    table_starts = np.append(model.pairwise_offsets, model.pairwise_offsets[-1] + more)
    variables = np.concatenate([model.edges.reshape(-1), *scopes])
    hard = ~np.logical_and.reduceat(possible, table_starts[:-1])
    if (fixed >= 0).any():
        hard[: model.num_edges] &= (fixed[model.edges] < 0).all(axis=1)
    terms, around = np.flatnonzero(hard), (graph.indptr, graph.edge_ids)
    if scopes:
        order = np.argsort(variables, kind="stable")
        at = offsets_of(np.bincount(variables, minlength=model.num_variables))
        around = at, np.repeat(np.arange(len(sizes)), sizes)[order]
    most, widest = int(model.num_states.max()), int(sizes.max())
    inputs = (
        _AT_ONCE, most, offsets_of(sizes), variables, table_starts, possible, hard, *around, model.num_states,
        model.unary_offsets,
    )  # fmt: skip
    queue, waiting, marks = np.zeros(len(hard), dtype=np.int64), hard.copy(), np.array([0, len(terms)])
    queue[: len(terms)] = terms
    rooms = np.zeros(widest, dtype=np.int64), np.zeros(widest * most, dtype=np.bool_)
    compiled = int((np.diff(table_starts) * sizes)[terms].sum()) > _IN_PYTHON
    before = np.count_nonzero(allowed)
    while marks[1]:
        run_loop(_close, inputs, (marks, queue, waiting, allowed, *rooms), compiled=compiled)
        if np.count_nonzero(allowed) < before:  # one pass is always made
            clock.check()


def _close(  # type: ignore[no-untyped-def]
    budget, most, scope_starts, scopes, table_starts, possible, hard, around_starts, around, counts,
    offsets, marks, queue, waiting, allowed, digits, seen,
) -> Any:  # fmt: skip
    """The loop of :func:`drop_unsupported`, until so many entries are read; ``marks``: begin, length of the queue."""
    first, count = marks[0], marks[1]
    while count > 0 and budget > 0:
        t = queue[first]
        first = first + 1 if first + 1 < len(queue) else 0
        count -= 1
        waiting[t] = False
        begin, width, entry = scope_starts[t], scope_starts[t + 1] - scope_starts[t], table_starts[t]
        for m in range(width):
            digits[m] = 0
            for s in range(counts[scopes[begin + m]]):
                seen[m * most + s] = False
        while entry < table_starts[t + 1]:
            fits = possible[entry]
            for m in range(width):
                fits = fits and allowed[offsets[scopes[begin + m]] + digits[m]]
            if fits:
                for m in range(width):
                    seen[m * most + digits[m]] = True
            for m in range(width - 1, -1, -1):
                digits[m] += 1
                if digits[m] < counts[scopes[begin + m]]:
                    break
                digits[m] = 0
            entry += 1
        budget -= table_starts[t + 1] - table_starts[t]
        for m in range(width):
            i = scopes[begin + m]
            left, lost = 0, False
            for s in range(counts[i]):
                if allowed[offsets[i] + s]:
                    if seen[m * most + s]:
                        left += 1
                    else:
                        allowed[offsets[i] + s] = False
                        lost = True
            if left == 0:
                count = 0
                break
            if not lost:
                continue
            # What this term has just taken away supported nothing in it: it need not come back for that.
            for k in range(around_starts[i], around_starts[i + 1]):
                other = around[k]
                if hard[other] and not waiting[other] and other != t:
                    last = first + count
                    queue[last if last < len(queue) else last - len(queue)] = other
                    count += 1
                    waiting[other] = True
    marks[0], marks[1] = first, count
