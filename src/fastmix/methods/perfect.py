"""Draws that follow the model exactly: by coupling from the past, and in Bayesian networks given the parents."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fastmix._arrays import IntArray
from fastmix._checks import check_count, choose_seed
from fastmix._clock import NO_LIMIT, Clock, OutOfTimeError, Report
from fastmix._memory import check_memory
from fastmix.chains.conditionals import check_conditionals
from fastmix.chains.generator import make_streams
from fastmix.chains.layout import directed_arrays
from fastmix.errors import NotConvergedError, ResourceError, UnfitMethodError
from fastmix.methods.base import Context, Method, option, run_method
from fastmix.methods.starts import starts_matter
from fastmix.methods.swendsen_wang import is_swendsen_wang
from fastmix.model import Evidence, MarkovRandomField
from fastmix.model.network import BayesianNetwork
from fastmix.results import DrawResult, jsonable, provenance
from fastmix.theory.bias import safe_matrix
from fastmix.theory.dependency import Dependency
from fastmix.theory.norms import smallest_norm

__all__ = ["Perfect", "PerfectSamples", "ancestral_sample", "perfect_sample"]

_EPOCHS = 48  # streams of a sample: one for every doubling of the past
_MAX_STATES = 64  # bits of a set
_UPDATES_AT_ONCE = 1_000_000  # tens of milliseconds: the clock is read between


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PerfectSamples(DrawResult):
    """Independent exact configurations, and what they cost."""

    num_sweeps: IntArray  #: (num_draws,), how far into the past each draw had to go
    reason: str  #: why coupling from the past works on this model

    def to_dict(self) -> dict[str, Any]:
        """The run as plain data, without the draws."""
        return {
            **super().to_dict(),
            "num_draws": len(self.states),
            "num_sweeps_max": int(self.num_sweeps.max(initial=0)),
            "num_sweeps_mean": jsonable(float(self.num_sweeps.mean()) if len(self.num_sweeps) else 0.0),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Perfect(Method):
    """Exact draws by coupling from the past; the options are those of :func:`fastmix.perfect_sample`."""

    name: ClassVar[str] = "perfect"
    guarantee: ClassVar[str] = "independent exact draws; the standard errors are those of frequencies"
    takes_factors: ClassVar[bool] = True

    num_draws: int = option(100, help="Exact draws; 100 by default.")
    max_sweeps: int = option(1 << 20, help="How far into the past to go.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_draws", check_count("num_draws", self.num_draws, least=0))
        object.__setattr__(self, "max_sweeps", check_count("max_sweeps", self.max_sweeps, least=1))

    def budget(self) -> None:
        """As long as it takes: leaving out draws that take long would bias the others."""

    def check(self, model: MarkovRandomField) -> None:
        """There must be a reason why the past is forgotten."""
        _reason(model, NO_LIMIT)

    def fits_in_time(self, model: MarkovRandomField, clock: Clock) -> str | None:
        """The same, or a :class:`NotConvergedError` where the time is over before a reason is found."""
        try:
            _reason(model, clock)
        except UnfitMethodError as error:
            return str(error)
        return None

    def run(self, model: MarkovRandomField, context: Context) -> PerfectSamples:
        """The draws; a time limit that ends before all of them are there is an error."""
        num_draws, clock, threads = self.num_draws, context.clock, context.num_threads
        required = 24.0 * num_draws * max(1, model.num_variables)
        check_memory(required, f"num_draws {num_draws}", "draw fewer at a time, each time with another seed")
        reason = _reason(model, clock)
        past = _Past(model, context.seed, self.max_sweeps)
        states = np.empty((num_draws, model.num_variables), dtype=np.int64)
        sweeps = np.zeros(num_draws, dtype=np.int64)
        share = max(1, min(256, -(-num_draws // (8 * threads))))
        ended = Event()

        def check() -> None:
            if ended.is_set():
                raise OutOfTimeError
            if clock.past():
                raise NotConvergedError(
                    f"{num_draws} perfect draws take longer than {clock.limit:g} s, and the fastest of them would "
                    "be biased: raise time_limit, or ask for fewer"
                )

        def work(first: int) -> int:
            numbers = range(first, min(num_draws, first + share))
            for r, streams in zip(numbers, past.streams(numbers), strict=True):
                states[r], sweeps[r] = past.sample(r, streams, check)
            return len(numbers)

        done = 0
        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work, first) for first in range(0, num_draws, share)]
            try:
                for future in futures:
                    done += future.result()
                    clock.report(done, num_draws, "draws", per_second=past.updates(sweeps) / max(clock.used(), 1e-9))
            finally:
                ended.set()
                for future in futures:
                    future.cancel()
        updates = past.updates(sweeps)
        return PerfectSamples.of(
            model,
            states,
            method=self.name,
            edge_marginals=DrawResult.pair_frequencies(model, states) if context.edge_marginals else None,
            stats={"updates": updates, "updates_per_second": updates / max(clock.used(), 1e-9)},
            num_sweeps=sweeps,
            reason=reason,
        )


def perfect_sample(
    model: MarkovRandomField,
    *,
    num_draws: int = 1,
    evidence: Evidence | None = None,
    max_sweeps: int = 1 << 20,
    seed: int | None = None,
    num_threads: int | None = None,
    time_limit: float | None = None,
    progress: Report = "auto",
) -> PerfectSamples:
    """Independent samples that follow the model exactly, up to the rounding of floating-point numbers.

    Coupling from the past (Propp and Wilson, 1996): Gibbs sweeps are run from all configurations at once, from further
    and further in the past and always with the same random numbers for the same moment, until all of them have met at
    the present. "All at once" is a set of possible states for every variable (a bounding chain: Huber, 2004;
    Haeggstroem and Nelander, 1999). For attractive binary models this is the monotone coupling from the two extreme
    configurations.

    Parameters
    ----------
    model : MarkovRandomField
        Attractive and binary (also after exchanging the states of some variables), or certified with a dependency norm
        below 1 (see :func:`fastmix.certify`); at most 64 states per variable.
    num_draws : int
    max_sweeps : int
        How far into the past to go. Samples that take longer raise an error and are never dropped: leaving them out
        would bias the rest.
    evidence, seed, num_threads, time_limit, progress
        As for :func:`fastmix.infer`; there is no time limit by default, and one that is over is an error.

    Raises
    ------
    UnfitMethodError
        If the model is neither attractive and binary nor certified.
    NotConvergedError
        If some sample has not met its past after ``max_sweeps``, or not all are there within the ``time_limit``.

    Notes
    -----
    For a certified binary model the expected number of variables not yet known falls at least by the norm in every n
    random updates, so samples come within O(log n) sweeps; more states need a norm far below 1 for that, because two
    conditional distributions at distance d may select different states with probability 2 d / (1 + d). Attractive
    models take about as long as the chain needs to mix, which strong couplings make exponential.

    Examples
    --------
    >>> model = MarkovRandomField.ising([(0, 1), (1, 2), (0, 2)], coupling=0.4, field=[0.5, 0.0, -0.2])
    >>> samples = perfect_sample(model, num_draws=1000, seed=1)
    >>> samples.states.shape, str(samples.status)
    ((1000, 3), 'ok')
    """
    method = Perfect(num_draws, max_sweeps)
    return run_method(
        method, model, evidence=evidence, seed=seed, num_threads=num_threads, time_limit=time_limit, progress=progress
    )


def ancestral_sample(network: BayesianNetwork, *, num_draws: int = 1000, seed: int | None = None) -> DrawResult:
    """Independent exact configurations of a Bayesian network without evidence, with their relative frequencies.

    Variables are drawn one after another, each given its parents (:meth:`BayesianNetwork.sample`): nothing has to mix.
    The log Z of a network is 0.
    The result is about ``network.to_model()``; with evidence use :func:`fastmix.draw_exact` or :func:`fastmix.sample`
    on that. The seed is drawn and returned when not given. A :class:`ResourceError` if the draws need more than half of
    the free memory.

    Examples
    --------
    >>> tables = [[0.8, 0.2], [[0.9, 0.1], [0.3, 0.7]]]
    >>> rain = BayesianNetwork(["rain", "wet"], [["no", "yes"]] * 2, [[], [0]], tables)
    >>> result = ancestral_sample(rain, num_draws=10_000, seed=1)
    >>> result.method, result.marginals[1].round(2).tolist()
    ('ancestral', [0.78, 0.22])
    """
    if not isinstance(network, BayesianNetwork):
        raise TypeError(f"network must be a BayesianNetwork, got {type(network).__name__}")
    clock, chosen = Clock(), choose_seed(seed)
    states = network.sample(num_draws, seed=chosen)
    model = network.to_model()
    updates = states.size
    return DrawResult.of(
        model, states, method="ancestral", log_z=0.0, log_z_kind="exact",
        stats={
            "guarantee": "independent exact draws; the standard errors are those of frequencies",
            "note": "ancestral sampling: every variable was drawn given its parents", "num_draws": len(states),
            "stopped_by": "done", "updates": updates, "updates_per_second": updates / max(clock.used(), 1e-9),
            **clock.stats(),
        },
        provenance=provenance(model, seed=chosen, num_draws=len(states), evidence=None),
    )  # fmt: skip


def _reason(model: MarkovRandomField, clock: Clock) -> str:
    """Why the past is forgotten, or an error that says why it might not be."""
    if model.num_variables and model.num_states.max() > _MAX_STATES:
        raise UnfitMethodError(
            f"perfect samples need at most {_MAX_STATES} states per variable, got {model.num_states.max()}; use "
            "Gibbs sampling, or exact draws"
        )
    binary = bool((model.num_states <= 2).all())
    if binary and not model.has_forbidden and is_swendsen_wang(model):
        return "attractive binary model: the two extreme configurations bound all others"
    check_conditionals(model)
    if starts_matter(model):
        raise UnfitMethodError(
            "perfect samples need factors over three or more variables that forbid nothing; use exact draws"
        )
    dependencies: tuple[Dependency, ...] = ("sigmoid", "exact")
    for dependency in dependencies:
        # The exact dependencies are finer, above all with forbidden pairs, but not always feasible.
        with contextlib.suppress(ResourceError):
            norm, value = smallest_norm(safe_matrix(model, dependency, clock), clock=clock)
            if value < 1.0:
                return f"certified: dependency norm {value:.3g} ({norm})"
    if clock.past():
        raise NotConvergedError(
            f"{clock.limit:g} s were over before it was known whether perfect samples can be drawn (dependency norm at "
            f"most {value:.3g}, and it has to be below 1): raise time_limit"
        )
    raise UnfitMethodError(
        "perfect samples need an attractive binary model or a dependency norm below 1, and this model has "
        f"{value:.3g} ({norm}); project it first, or use exact draws or Gibbs sampling"
    )


class _Past:
    """Coupling from the past for one model."""

    def __init__(self, model: MarkovRandomField, seed: int, max_sweeps: int) -> None:
        self.model, self.seed, self.max_sweeps = model, seed, max_sweeps
        self.order = model.structure.visit_order[0].astype(np.int64)
        self.binary = bool((model.num_states == 2).all()) and not model.num_factors
        if self.binary:
            self.arrays: tuple[Any, ...] = _odds(model)
            self.full: NDArray[Any] = np.full(model.num_variables, 3, dtype=np.uint8)
        else:
            self.arrays = (*directed_arrays(model), model.structure.incident)
            self.full = np.array([(1 << int(k)) - 1 for k in model.num_states], dtype=np.uint64)

    def streams(self, numbers: range) -> NDArray[np.uint32]:
        """The streams (numbers, epochs, 4) of consecutive samples: together, as one of them would take as long."""
        count = len(numbers) * _EPOCHS
        return make_streams(self.seed, numbers.start * _EPOCHS, count).T.reshape(-1, _EPOCHS, 4)

    def sample(self, number: int, streams: NDArray[np.uint32], check: Callable[[], None]) -> tuple[IntArray, int]:
        """The configuration of a sample at the present, and how many sweeps ago chains began; ``check`` may end it."""
        from fastmix.methods.perfect_kernels import bound_binary, bound_general

        run: Any = bound_binary if self.binary else bound_general
        n = self.model.num_variables
        if n == 0:
            return np.zeros(0, dtype=np.int64), 0
        # Epoch 0 is the last sweep, epoch k > 0 the 2^(k - 1) sweeps before all later ones: the past doubles.
        for epoch in range(_EPOCHS):
            total = 1 << epoch
            if total > self.max_sweeps:
                break
            sets = self.full.copy()
            for k in range(epoch, -1, -1):
                stream, left = streams[k].copy(), 1 << max(0, k - 1)
                while left:
                    check()
                    count = min(left, max(1, _UPDATES_AT_ONCE // n))
                    run(sets, self.order, *self.arrays, stream, count)
                    left -= count
            if self._met(sets):
                return _members(sets), total
        raise NotConvergedError(
            f"sample {number} has not met its past after {total // 2} sweeps: raise max_sweeps, or project the model "
            "onto a smaller norm_bound"
        )

    def updates(self, sweeps: IntArray) -> int:
        """Updates behind samples that began so many sweeps ago: 1 + 2 + 4 + .. sweeps each."""
        return int((2 * sweeps[sweeps > 0] - 1).sum()) * self.model.num_variables

    def _met(self, sets: NDArray[Any]) -> bool:
        return not (sets & (sets - sets.dtype.type(1))).any()


def _members(sets: NDArray[Any]) -> IntArray:
    """The only member of every set."""
    return np.asarray(np.frexp(sets.astype(np.float64))[1] - 1, dtype=np.int64)


def _odds(model: MarkovRandomField) -> tuple[Any, ...]:
    """Neighbors, what either state of them adds to the log-odds of state 1, and the unary log-odds."""
    directed, tables = model.structure.directed, model.log_pairwise
    zero = directed.starts[:, None] + directed.other_steps[:, None] * np.arange(2)
    with np.errstate(invalid="ignore"):
        odds = tables[zero + directed.own_steps[:, None]] - tables[zero]
        unary = model.log_unary[1::2] - model.log_unary[::2]
    # A neighbor's state that forbids both own states is never in its set together with an allowed configuration.
    odds = np.where(np.isnan(odds), 0.0, odds)
    return model.adjacency.indptr, model.adjacency.neighbors, np.ascontiguousarray(odds), unary
