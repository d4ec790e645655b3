"""``most_probable()``: the configuration of largest probability, exact where feasible, otherwise with a gap."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from fastmix import _show
from fastmix._arrays import FloatArray, IntArray
from fastmix._checks import check_choice, check_positive, choose_seed
from fastmix._clock import Clock, OutOfTimeError, Report, listening
from fastmix._memory import available_memory
from fastmix.chains.cpu import CpuChains
from fastmix.errors import Interrupted, ModelError, ResourceError, UnfitMethodError
from fastmix.exact.junction_tree import check_size, model_factors, plan_tree
from fastmix.graphs.basics import label_components
from fastmix.methods.base import DEFAULT_SECONDS
from fastmix.methods.cuts import best_expansion, check_expansion, cut_states
from fastmix.methods.mean_field import penalty
from fastmix.methods.preparation import find_allowed
from fastmix.methods.starts import find_modes, finite_arrays
from fastmix.model import Evidence, MarkovRandomField, check_model
from fastmix.model.build import offsets_of
from fastmix.model.reduce import Reduction, impossible, reduce_model
from fastmix.results import Framed, Status, as_plain, best_states, plain_evidence, provenance
from fastmix.theory.dependency import largest_entries

__all__ = ["METHODS", "MostProbableResult", "most_probable"]

METHODS = ("auto", "exact", "cut", "expansion", "search")
_ANNEALED, _STEPS = 16, 32  # chains that cool down, and temperatures
_HOT, _COLD = 0.5, 20.0  # over the largest log-potentials around a variable, and over the range of a usual table
_ROUNDING = 1e-12  # of sums of log-potentials, relative to the sum of their magnitudes
_DOUBT = (
    3.0  # times the seconds that are left may be estimated for exact inference, for it to be tried: by then it ends
)
_DESCENT_SWEEPS = 100  # at most, of a descent, which mostly ends after ten
_ENTRIES_AT_ONCE = 1 << 26  # of tables that a descent looks at before the clock is read: tenths of a second
_UPDATES_AT_ONCE = 1 << 24  # of single variables, by chains: tenths of a second
_STATES_AT_ONCE = 1 << 24  # of all chains together


@dataclass(frozen=True, eq=False)
class MostProbableResult(Framed):
    """A configuration of large probability, and how far from the largest it can be.

    Attributes
    ----------
    model : MarkovRandomField
        The model asked about.
    states : int array (n,)
        Of all variables, observed ones too.
    log_weight : float
        Of these states, see :meth:`fastmix.MarkovRandomField.log_weight`; with the logs of the likelihoods of soft
        evidence added.
    upper_bound : float
        No configuration that agrees with the evidence has a larger log-weight.
    exact : bool
        Whether no configuration has a larger log-weight, up to the rounding of sums.
    method : {"exact", "cut", "expansion", "search"}
    status : Status
        ``ok`` where the answer is exact or the gap is within the tolerance asked for, otherwise ``not_converged``.
    stats, provenance : mapping
    """

    model: MarkovRandomField
    states: IntArray
    log_weight: float
    upper_bound: float
    exact: bool
    method: str
    status: Status
    stats: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """By how much the log-weight can be below the largest; 0 where it is exact."""
        return 0.0 if self.exact else max(0.0, self.upper_bound - self.log_weight)

    @property
    def advice(self) -> str:
        """What the status means, in one sentence."""
        if self.status != Status.NOT_CONVERGED:
            return self.status.advice
        return "The gap to the upper bound is larger than tol: allow a longer time_limit, or a larger tol."

    @property
    def state_names(self) -> list[str]:
        """The names of the states; numbers where they have none."""
        return [names[state] for names, state in zip(self.model.names_of_states(), self.states, strict=True)]

    def columns(self) -> dict[str, Any]:
        """Columns of :meth:`to_frame` and of a ``.csv`` file by name: of every variable its state, and its number."""
        names = self.model.names_of_variables()
        return {"variable": list(names), "state": self.state_names, "number": self.states}

    def _repr_html_(self) -> str:
        gap = "exact" if self.exact else f"at most {self.gap:.4g} below the best"
        facts = [("method", self.method), ("log-weight", f"{self.log_weight:.8g} ({gap})")]
        pairs = list(zip(self.model.names_of_variables(), self.state_names, strict=True))
        rows = [*pairs[:10], *([(f"and {len(pairs) - 10:,} more", "")] if len(pairs) > 10 else [])]
        return _show.html_table(repr(self.model), facts, rows, ("variable", "state"))

    def summary(self) -> str:
        """A few lines of text: the method, the verdict and what it means, the log-weight and its gap, seconds."""
        gap = "the largest" if self.exact else f"at most {self.gap:.3g} below the largest"
        lines = [f"{self.method}: {self.status}. {self.advice}", str(self.model)]
        lines.append(f"log-weight: {self.log_weight:.8g}, {gap}")
        if (seconds := self.stats.get("seconds")) is not None:
            lines.append(f"{seconds:.3g} s")
        return "\n".join(lines)

    def labels(self) -> IntArray:
        """The states, in the shape of an image model."""
        return self.states if self.model.shape is None else self.states.reshape(self.model.shape)

    def plot(self, axes: Any = None) -> Any:
        """The states of an image model as a picture (Matplotlib, extra ``plot``); the axes come back."""
        if self.model.shape is None or len(self.model.shape) != 2:
            raise ValueError("plot needs an image model: MarkovRandomField.image")
        return _show.labelled_picture(_show.new_axes(axes), self.labels(), self.model.names_of_states()[0])

    def __repr__(self) -> str:
        gap = "exact" if self.exact else f"gap={self.gap:.3g}"
        return f"MostProbableResult(log_weight={self.log_weight:.8g}, {gap}, method={self.method!r}, {self.model})"

    def to_dict(self) -> dict[str, Any]:
        """The result as plain Python data, the shape of the command line's JSON."""
        evidence = self.provenance.get("options", {}).get("evidence")
        names = None if self.model.state_names is None else self.state_names
        about = {"state_names": names, "variable_names": self.model.variable_names, "evidence": evidence}
        return as_plain(self, "states log_weight upper_bound gap exact method", **about)


def most_probable(
    model: MarkovRandomField,
    *,
    evidence: Evidence | None = None,
    method: Literal["auto", "exact", "cut", "expansion", "search"] = "auto",
    tol: float = 0.0,
    memory_limit: float | None = None,
    seed: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> MostProbableResult:
    """The configuration of largest probability (MAP, MPE), exact where feasible, otherwise with a proven gap.

    Parameters
    ----------
    model : MarkovRandomField
    evidence : mapping, optional
        Observed states by variable, numbers or names, or likelihoods by state.
    method : {"auto", "exact", "cut", "expansion", "search"}
        ``cut``, a minimum cut, exact for binary models of any size whose couplings can all be satisfied at once;
        ``exact`` by the junction tree; ``expansion`` moves for attractive models of several labels; ``search`` for any
        model: tree-reweighted messages, descents, and chains that cool down. All of them begin with a descent from the
        best states of the unaries, so that there is an answer when the time is over. ``auto`` takes a cut where that
        fits, else exact inference within the memory and time there are, else a search, after expansion moves where
        these fit.
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
        ``stats["moves"]`` counts what was done: descents, cuts, eliminations (exact inference), expansions, passes of
        messages and rounds of annealing.

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
    Upper bounds of the search are those of sequential tree-reweighted message passing (Kolmogorov 2006) for models of
    pairs, and the sum of the largest entries of all terms for others.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2)], coupling=1.0, field=[0.5, 0.0, -0.2])
    >>> most_probable(model, evidence={2: 0})
    MostProbableResult(log_weight=1.7, exact, method='cut', MarkovRandomField(3 variables of 2 states, 2 edges))
    """
    check_model(model)
    check_choice("method", method, METHODS)
    tol = check_positive("tol", tol, "number", or_zero=True)
    if memory_limit is not None:
        memory_limit = check_positive("memory_limit", memory_limit, "number of bytes")
    seed = choose_seed(seed)
    with listening(progress, "most probable") as listener:
        clock = Clock(time_limit, default=DEFAULT_SECONDS, listener=listener, what="most probable")
        search: _Search | None = None
        try:
            reduction = _reduce(model, evidence, clock)
            search = _Search(reduction.model, seed, clock, tol, memory_limit, bool(evidence))
            used = search.run(method)
        except KeyboardInterrupt:
            if search is None or search.states is None:
                raise
            search.interrupted = True
            used = "search"
    if search.states is None:
        raise ResourceError(
            f"no configuration of positive probability was found within the time limit, {clock.limit:g} s; allow a "
            "longer time_limit"
        )
    exact = search.exact
    result = MostProbableResult(
        model,
        reduction.expand_states(search.states),
        search.value,
        search.value if exact else max(search.value, search.upper),
        exact,
        used,
        _verdict(search),
        {"stopped_by": _stopped_by(search), "moves": search.moves, **search.stats, **clock.stats()},
        provenance(model, seed=seed, evidence=plain_evidence(evidence), method=method, tol=tol,
                   memory_limit=memory_limit, time_limit=clock.asked),
    )  # fmt: skip
    if search.interrupted:
        raise Interrupted("the search was interrupted; the best configuration so far is in this exception", result)
    return result


def _reduce(model: MarkovRandomField, evidence: Evidence | None, clock: Clock) -> Reduction:
    """The model given evidence without what is forbidden, as far as there is time to find that."""
    try:
        return reduce_model(model, evidence, fold_single=True, clock=clock)
    except OutOfTimeError:
        return reduce_model(model, evidence, drop_forbidden=False)


def _verdict(search: _Search) -> Status:
    """What is said of the configuration that a search has found."""
    if search.interrupted:
        return Status.INTERRUPTED
    return Status.OK if search.exact or search.upper - search.value <= search.tol else Status.NOT_CONVERGED


def _stopped_by(search: _Search) -> str:
    """What ended a search, as it stands in its statistics."""
    if search.interrupted:
        return "interrupt"
    return "time_limit" if search.clock.past() and not search.exact else "done"


class _Search:
    """The best configuration so far and the smallest upper bound, for a model without evidence.

    ``given`` says whether the model is one given evidence, for messages.
    """

    def __init__(
        self,
        model: MarkovRandomField,
        seed: int,
        clock: Clock,
        tol: float,
        memory_limit: float | None,
        given: bool = False,
    ) -> None:
        self.model, self.clock, self.tol, self.given = model, clock, tol, given
        self.memory_limit = available_memory() / 2 if memory_limit is None else memory_limit
        self.rng = np.random.default_rng([seed, 11])
        self.seed = seed
        self.states: IntArray | None = None
        self.value = -np.inf
        tops = _ranges(model)[0]
        self.upper = model.log_constant + float(tops.sum())  # the largest entries of all terms
        self.rounding = _ROUNDING * (abs(model.log_constant) + float(np.abs(tops[tops > -np.inf]).sum()))
        self.stats: dict[str, Any] = {}
        self.moves: dict[str, int] = {}
        self.alone = False  # a method that was asked for by name has all the time to itself
        self._finite: tuple[Any, ...] | None = None
        self.interrupted = False

    @property
    def exact(self) -> bool:
        """Whether what the bound leaves open is no more than the rounding of the sums behind it."""
        return self.states is not None and self.upper - self.value <= self.rounding

    @property
    def done(self) -> bool:
        """Whether the gap is small enough, or the time is over."""
        if self.states is not None and self.upper - self.value <= max(self.tol, self.rounding):
            return True
        return self.clock.past()

    def offer(self, states: IntArray) -> float:
        """Keep a configuration if it is better than what there is; its log-weight comes back."""
        value = float(self.model.log_weight(states))
        if value > self.value:
            self.states, self.value = states.copy(), value
        return value

    def lower(self, upper: float, rounding: float) -> None:
        """Keep an upper bound that is computed up to ``rounding`` if it is better than what there is."""
        if upper + rounding < self.upper:
            self.upper = upper + rounding
            self.rounding = max(self.rounding, 2.0 * rounding)  # the bound may be too high by it, and is raised by it

    def count(self, move: str, number: int = 1) -> None:
        """Remember that moves of a kind were made, for the statistics."""
        if number:
            self.moves[move] = self.moves.get(move, 0) + number

    def cross(self, states: IntArray) -> None:
        """Take from a configuration whatever is better than in the best one, piece by piece.

        The variables in which the two differ fall into connected pieces that do not touch each other, so that each can
        be taken or left on its own.
        """
        best, model = self.states, self.model
        if best is None or not (differs := states != best).any():
            self.offer(states)
            return
        inside = differs[model.edges].all(axis=1)
        count, label = label_components(model.num_variables, model.edges[inside])
        label = np.where(differs, label, -1)
        in_scopes = np.maximum.reduceat(label[model.scope_variables], model.structure.scope_starts[:-1])
        owner = np.concatenate([label, label[model.edges].max(axis=1, initial=-1), in_scopes])
        terms = (model.log_unary, model.log_pairwise, model.log_factors)
        new, old = (
            np.concatenate([v[p[0]] for v, p in zip(terms, model.entry_positions(x[None]), strict=True)])[owner >= 0]
            for x in (states, best)
        )
        gains = np.bincount(owner[owner >= 0], new - old, minlength=count)  # the best one has a finite weight
        self.offer(np.where(differs & (gains > 0.0)[label], states, best))

    def run(self, method: str) -> str:
        """Find a configuration by the method named; the one used comes back."""
        if not self.model.num_variables:
            self.offer(np.zeros(0, dtype=np.int64))
            self.upper = self.value
            return "exact"
        self.alone = method != "auto"
        self._begin()
        for name in ("cut", "exact", "expansion"):
            if method not in ("auto", name):
                continue
            try:
                self.clock.check()
                getattr(self, f"_{name}")()
            except OutOfTimeError:
                if method == "exact":
                    message = "exact inference takes longer than the time limit; allow more, or use method='search'"
                    raise ResourceError(message) from None
                if method == name:
                    return name  # with what the descent found
                continue
            except (UnfitMethodError, ResourceError):
                if method == name:
                    raise
                continue
            if name != "expansion":
                return name
            if method == name:
                self._tighten(100)
                return name
        self._search()
        return "search"

    def _begin(self) -> None:
        """The best states of the unaries, and a descent from there: an answer, whatever takes too long afterwards."""
        states = best_states(self.model, self.model.log_unary)
        self.offer(states)
        if not self.clock.past():
            self._descend(states)

    def _descend(self, states: IntArray) -> IntArray:
        """Set single variables of a configuration to their best states until nothing changes, and offer it."""
        from fastmix.methods.mode_kernels import descend

        row, arrays = states[None].copy(), self._arrays()
        work = len(self.model.log_unary) + 2 * len(self.model.log_pairwise) + 3 * len(self.model.log_factors)
        sweeps = max(1, min(_DESCENT_SWEEPS, _ENTRIES_AT_ONCE // max(1, work)))
        for _ in range(0, _DESCENT_SWEEPS, sweeps):
            before = row.copy()
            descend(row, *arrays, sweeps)
            if self.clock.past() or np.array_equal(row, before):
                break
        self.count("descents")
        self.offer(row[0])
        return np.asarray(row[0])

    def _arrays(self) -> tuple[Any, ...]:
        """The arrays of descents and messages, made once."""
        if self._finite is None:
            self._finite = finite_arrays(self.model)
        return self._finite

    def _cut(self) -> None:
        states, missed = cut_states(self.model, self.clock)
        value = self.offer(states)
        self.lower(value + missed, 0.0)
        self.count("cuts")
        self.stats["rounding"] = missed

    def _exact(self) -> None:
        check_size(self.model, self.memory_limit, self.clock.part(0.25), self.model.num_variables)
        tree = plan_tree(model_factors(self.model), memory_limit=self.memory_limit, clock=self.clock.part(0.25))
        if tree.seconds > _DOUBT * self.clock.left() and not self.alone:
            raise ResourceError(f"exact inference takes about {tree.seconds:.2g} s, over the time limit")
        # Where the estimate does not fit, and might be wrong, a search must have its time, too.
        share = 1.0 if self.alone else 0.9 if tree.seconds <= self.clock.left() else 0.6
        try:
            _, states = tree.most_probable(self.clock.part(share))
        except ModelError as error:
            raise impossible(self.given) from error
        self.upper = self.offer(np.asarray(states))
        self.count("eliminations")
        self.stats["treewidth"] = tree.treewidth

    def _expansion(self) -> None:
        """Expansion moves from the best configuration; tables that there was no time to check count as attractive.

        A move is only made if it is a gain, so that this decides how good the moves are and nothing else.
        """
        with contextlib.suppress(OutOfTimeError):
            check_expansion(self.model, self.clock.part(0.2))
        assert self.states is not None
        states, moves = best_expansion(self.model, self.states, self.clock.part(1.0 if self.alone else 0.5))
        self.count("expansions", moves)
        self.offer(states)

    def _tighten(self, num_passes: int) -> None:
        """Lower the upper bound by messages, and try what they lead to."""
        if self.model.num_factors or self.done:
            return
        from fastmix.methods.mode_kernels import dual_pass

        messages = _Messages(self.model, self._arrays())
        # Sums of as many terms as there are messages, each rounded.
        rounding = 1e-13 * len(messages.values) * (1.0 + messages.largest)
        previous = np.inf
        for k in range(num_passes):
            if self.clock.past():
                break
            dual_pass(True, *messages.arrays)
            self.offer(messages.states)
            bound = dual_pass(False, *messages.arrays) + self.model.log_constant
            self.lower(bound, rounding)
            self.count("passes")
            self.clock.report(k + 1, num_passes, "passes")
            if self.done or previous - bound < 1e-7 * max(1.0, abs(bound)):
                break
            previous = bound
        self.stats["passes"] = self.moves.get("passes", 0)

    def _search(self) -> None:
        """Messages, descents, and then annealing."""
        self._tighten(200)
        if self.done and self.states is not None:
            return
        if not self.clock.past():
            modes = find_modes(self.model, seed=self.seed, clock=self.clock)
            self.count("descents", len(modes))
            for states in modes:
                self.offer(states)
        if self.states is None:
            allowed = find_allowed(self.model, self.model.log_unary, self.given, self.clock)
            if allowed is not None:
                self.offer(allowed)
        self._anneal()

    def _anneal(self) -> None:
        """Cool chains down, each time for longer, and then set single variables, until the gap is closed or time over.

        What is forbidden has a penalty: chains could not get around it otherwise.
        """
        if self.done:
            return
        model, clock, num_sweeps = self.model, self.clock, 8
        spans = _ranges(model)[1]
        usual = float(np.median(spans[spans > 0.0])) if spans.any() else 1.0
        largest = float(largest_entries(model).max()) or 1.0
        thetas = np.maximum(model.parameters, -penalty(model))
        num_chains = max(1, min(_ANNEALED, _STATES_AT_ONCE // model.num_variables))
        chains = CpuChains(model.structure, num_chains=num_chains, seed=self.seed, num_threads=1, steady=False)
        scales = np.geomspace(_HOT / largest, max(_COLD / usual, 2.0 * _HOT / largest), _STEPS)
        rounds = 0
        while not self.done:
            rounds += 1
            clock.report(rounds, None, "rounds")
            chains.set_states(self.rng.integers(0, model.num_states, size=(num_chains, model.num_variables)))
            for scale in scales:
                chains.load(thetas, [[scale]])
                self._sweep(chains, num_sweeps)
                if clock.past():
                    break
            for states in np.ascontiguousarray(chains.get_states()):
                self.cross(self._descend(states))
                if clock.past():
                    break
            self.count("rounds of annealing")
            if clock.used() < 0.1 * (clock.limit or np.inf):
                num_sweeps *= 4
        self.stats["annealing_sweeps"] = num_sweeps * _STEPS

    def _sweep(self, chains: CpuChains, num_sweeps: int) -> None:
        """Sweeps of chains, until the time is over."""
        each = max(1, min(num_sweeps, _UPDATES_AT_ONCE // max(1, chains.num_chains * self.model.num_variables)))
        for start in range(0, num_sweeps, each):
            chains.sweep(min(each, num_sweeps - start))
            if self.clock.past():
                break


class _Messages:
    """What :func:`fastmix.methods.mode_kernels.dual_pass` works on."""

    def __init__(self, model: MarkovRandomField, arrays: tuple[Any, ...]) -> None:
        arrays = arrays[:-1]
        indptr, neighbors, num_states = arrays[0], arrays[1], arrays[-1]
        owner = np.repeat(np.arange(model.num_variables), np.diff(indptr))
        reverse = np.empty(len(neighbors), dtype=np.int64)
        reverse[np.lexsort((owner, neighbors))] = np.lexsort((neighbors, owner))
        starts = offsets_of(num_states[owner])
        self.values, self.states = np.zeros(int(starts[-1])), np.zeros(model.num_variables, dtype=np.int64)
        self.largest = max(float(np.abs(a).max(initial=0.0)) for a in (arrays[5], arrays[7]))
        belief = np.empty(int(num_states.max(initial=1)))
        self.arrays = (*arrays, reverse, starts, self.values, self.states, belief)


def _ranges(model: MarkovRandomField) -> tuple[FloatArray, FloatArray]:
    """The largest entry of every term, and by how much its finite ones differ; 0 where all is forbidden."""
    sizes = np.concatenate(
        [np.diff(offsets) for offsets in (model.unary_offsets, model.pairwise_offsets, model.factor_offsets)]
    )
    starts, values = offsets_of(sizes)[:-1], model.parameters
    top = np.maximum.reduceat(values, starts)
    low = np.minimum.reduceat(np.where(values > -np.inf, values, np.inf), starts)
    return top, np.maximum(top - low, 0.0)
